"""One connection of a bridge to a gateway, never blocking: lines out as the other side takes them,
messages in."""

import socket
from collections.abc import Callable
from typing import Any

from mcpx.wire.framing import MessageReader

CHUNK = 65536
LARGEST = 1 << 30
"""Bytes of a message from a gateway, which bounds what it takes from servers; only so that there is
an end."""


class Link:
    def __init__(
        self, connected: socket.socket, generation: int, on_message: "Callable[[Link, bytes], None]"
    ) -> None:
        connected.setblocking(False)
        self.connected = connected
        self.generation = generation
        self.own: Any = None
        """The process behind it, where it is this client's alone."""
        self.moving = False
        """Its gateway ends: nothing new goes there, what runs may finish."""
        self.acknowledged: set[Any] = set()
        """Listenings that the client believes begun: it is not told a second time."""
        self._sent = 0
        self._said = 0
        self._out = bytearray()
        self._closing = False
        self._reader = MessageReader(
            lambda raw: on_message(self, raw), _skipped, limit=LARGEST, framing="newline"
        )

    @property
    def waiting(self) -> int:
        """Bytes that it has not taken yet."""
        return len(self._out)

    def say(self, raw: bytes) -> int:
        """Send a message; where it ends among all that was said."""
        self._said += len(raw) + 1
        self._out += raw
        self._out += b"\n"
        return self._said

    def unsent(self, end: int, size: int) -> bytes | None:
        """A message of that size, if nothing of it is out."""
        start = end - size - 1 - self._sent
        return bytes(self._out[start : start + size]) if start >= 0 else None

    def flush(self) -> bool:
        """Whether the connection is good."""
        try:
            while self._out:
                count = self.connected.send(memoryview(self._out)[:CHUNK])
                self._sent += count
                del self._out[:count]
        except BlockingIOError:
            return True
        except OSError:
            return False
        if self._closing:
            self._closing = False
            try:
                self.connected.shutdown(socket.SHUT_WR)
            except OSError:
                return False
        return True

    def say_no_more(self) -> bool:
        """Once everything is out: the gateway lets what runs finish, and closes. Whether the
        connection is good."""
        self._closing = True
        return self.flush()

    def read(self) -> bool:
        """Whether there will be more."""
        try:
            data = self.connected.recv(CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._reader.feed(data)
        return True

    def close(self) -> None:
        self.connected.close()


def _skipped(size: int, reason: str, head: bytes) -> None:
    pass
