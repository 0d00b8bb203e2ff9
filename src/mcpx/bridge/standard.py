"""Standard input and output as a bridge uses them: what can be watched is watched, and never
blocks.

Where a pipe cannot be watched (Windows), two threads carry it to and from sockets, which can.
"""

import os
import socket
import stat
from collections.abc import Callable

from mcpx.bridge.messages import Id, write
from mcpx.model.errors import INVALID_REQUEST, RpcError
from mcpx.wire.framing import Framing, MessageReader, frame

CHUNK = 65536
DEFAULT_MAX_REQUEST = 4 << 20
CARRIED = os.name != "posix"
"""Whether pipes cannot be watched here."""


def can_be_watched() -> bool:
    """Whether standard input can: not a file, nor the null device."""
    if CARRIED:
        return True
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0)


class Standard:
    """Our own copies of 0 and 1; what would print by mistake goes to stderr, never between
    messages."""

    def __init__(self) -> None:
        self._input, self._output = os.dup(0), os.dup(1)
        os.dup2(2, 1)
        self._blocked: list[int] = []
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        if CARRIED:
            self._sockets = _carried(self._input, self._output)
        self.watches_output = CARRIED or _is_stream(self._output) or os.isatty(self._output)
        """A file is simply written. A terminal is often input and output in one, and then blocks
        for neither."""
        if not CARRIED:
            for handle in (self._input, self._output) if self.watches_output else (self._input,):
                if os.get_blocking(handle):
                    self._blocked.append(handle)
                    os.set_blocking(handle, False)

    @property
    def source(self) -> int:
        """What to watch for input."""
        return self._input if self._sockets is None else self._sockets[0].fileno()

    @property
    def sink(self) -> int:
        """What to watch for room."""
        return self._output if self._sockets is None else self._sockets[1].fileno()

    def read(self) -> bytes:
        """Nothing: the end. Raises BlockingIOError when there is nothing yet, OSError when it is
        broken."""
        return (
            os.read(self._input, CHUNK) if self._sockets is None else self._sockets[0].recv(CHUNK)
        )

    def write(self, data: memoryview) -> int:
        """The same; how much of it was taken."""
        return (
            os.write(self._output, data) if self._sockets is None else self._sockets[1].send(data)
        )

    def close(self) -> None:
        """Leave them as they were: others may hold them too."""
        for handle in self._blocked:
            try:
                os.set_blocking(handle, True)
            except OSError:
                pass
        if self._sockets is not None:
            self._sockets[1].setblocking(True)
            self._sockets[1].shutdown(
                socket.SHUT_WR
            )  # the thread writes what is left, and closes its end
            self._sockets[1].recv(1)
            return
        os.close(self._input)
        os.close(self._output)


def _is_stream(handle: int) -> bool:
    mode = os.fstat(handle).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _carried(source: int, sink: int) -> tuple[socket.socket, socket.socket]:
    """Sockets in the place of two pipes."""
    from threading import Thread

    (here_in, there_in), (here_out, there_out) = socket.socketpair(), socket.socketpair()

    def bring() -> None:
        try:
            while data := os.read(source, CHUNK):
                there_in.sendall(data)
        except OSError:
            pass
        there_in.close()

    def take() -> None:
        try:
            while data := there_out.recv(CHUNK):
                while data:
                    data = data[os.write(sink, data) :]
        except OSError:
            pass  # nobody reads any more: the next write from here fails
        there_out.close()

    for work in (bring, take):
        Thread(target=work, daemon=True).start()
    for end in (here_in, here_out):
        end.setblocking(False)
    return here_in, here_out


class ClientSide:
    def __init__(
        self,
        max_request: object,
        on_message: Callable[[bytes], None],
    ) -> None:
        if not isinstance(max_request, int):
            max_request = DEFAULT_MAX_REQUEST
        self.standard = Standard()
        self.is_reading = True
        self._reader = MessageReader(on_message, self._skipped, limit=max_request, framing="detect")
        self._output = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes that the client has not taken yet."""
        return len(self._output)

    def read(self) -> bool:
        """Read what the client has sent. Return False at the end of the input."""
        try:
            data = self.standard.read()
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self._reader.finish()
            return False
        self._reader.feed(data)
        return True

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        error = RpcError(INVALID_REQUEST, f"skipped {size:,} bytes of input: {reason}")
        self.send_error(None, error)

    def send(self, raw: bytes) -> None:
        framing: Framing = "newline"
        if self._reader.framing == "content-length":
            framing = "content-length"
        self._output += frame(raw, framing)

    def send_error(self, id: Id | None, error: RpcError) -> None:
        self.send(write({"jsonrpc": "2.0", "id": id, "error": error.to_json()}))

    def flush(self) -> bool:
        """Write what the client takes. Return False if it takes nothing more, ever."""
        try:
            while self._output:
                count = self.standard.write(memoryview(self._output)[:CHUNK])
                del self._output[:count]
        except BlockingIOError:
            pass
        except OSError:
            self._output.clear()
            return False
        return True
