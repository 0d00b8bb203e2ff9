"""Pipes as transports of the event loop, and as threads where the loop cannot wait for them.

The loop of Windows waits only for pipes that were made for it, and standard input is usually none.
The threads keep the contract of transports: no data while reading is paused, at most one piece read
ahead, and written data counts until the system has taken it. A thread that waits for input cannot
be woken. It ends with the process.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import IO, Any, Protocol, cast

from mcpx.base import PORTABLE

CHUNK = 65536
HIGH, LOW = 65536, 16384
"""Bytes that wait to be written: from the first on there is no room, below the second there is
again."""


class _Number:
    """A descriptor that its transport closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        """Nothing: it is closed already, and its number may be another's."""


def handed_over(pipe: IO[bytes] | None, loop: asyncio.AbstractEventLoop) -> Any:
    """What to give the loop for this pipe. asyncio closes the file; uvloop closes the descriptor
    and *then* the file as well, by which time another thread may have been given the number: so
    uvloop gets no file to close."""
    assert pipe is not None
    if isinstance(loop, asyncio.BaseEventLoop):
        return pipe
    with pipe:
        return _Number(os.dup(pipe.fileno()))


class Sink(Protocol):
    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool: ...


AT_ONCE = 65536
"""Bytes that are not kept for the end of the turn."""


class Gathered:
    """Writes what is said in one turn of the loop in one system call, which costs as much as a good
    part of all else that is done for a small message."""

    __slots__ = ("_loop", "_size", "_transport", "_waiting")

    def __init__(self, transport: Sink) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._waiting: list[bytes] = []
        self._size = 0

    def write(self, data: bytes, *, more_to_come: bool) -> None:
        """`more_to_come`: there may be more to say in this turn. Never blocks, never fails."""
        if not self._waiting:
            if not more_to_come:
                self._write(data)
                return
            self._loop.call_soon(self.flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > AT_ONCE or not more_to_come:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            waiting, self._waiting, self._size = self._waiting, [], 0
            self._write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


async def read_pipe(protocol: asyncio.Protocol, pipe: IO[bytes]) -> asyncio.ReadTransport:
    loop = asyncio.get_running_loop()
    if PORTABLE:
        return ThreadReader(loop, pipe, protocol)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, handed_over(pipe, loop))
    return transport


async def write_pipe(protocol: asyncio.BaseProtocol, pipe: IO[bytes]) -> asyncio.WriteTransport:
    loop = asyncio.get_running_loop()
    if PORTABLE:
        return ThreadWriter(loop, pipe, protocol)
    transport, _ = await loop.connect_write_pipe(lambda: protocol, handed_over(pipe, loop))
    return transport


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[..., object], *about: object) -> bool:
    try:
        loop.call_soon_threadsafe(what, *about)
    except RuntimeError:  # it is closed
        return False
    return True


class ThreadReader(asyncio.ReadTransport):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes], protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._loop, self._pipe, self._protocol = loop, pipe, protocol
        self._closing = False
        self._paused = False
        self._piece: bytes | None = None
        """What was read and may not be handed on yet."""
        self._taken = threading.Event()
        protocol.connection_made(self)
        threading.Thread(target=self._run, name="standard input", daemon=True).start()

    def _run(self) -> None:
        data = b"first"
        while data and not self._closing:
            try:
                data = os.read(self._pipe.fileno(), CHUNK)
            except OSError:  # the other end was killed
                data = b""
            self._taken.clear()
            if not _tell(self._loop, self._arrived, data):
                return
            self._taken.wait()

    def _arrived(self, data: bytes) -> None:
        self._piece = data
        if not self._paused:
            self._hand_on()

    def _hand_on(self) -> None:
        data, self._piece = self._piece, None
        if self._closing:
            self._taken.set()  # nobody wants what was read meanwhile, and the thread may end
            return
        if data is None:
            return
        if data:
            self._protocol.data_received(data)
            self._taken.set()
            return
        self._closing = True
        self._taken.set()
        self._protocol.eof_received()
        self._protocol.connection_lost(None)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._hand_on)

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """The pipe stays open: to close what another thread reads blocks on some systems until it
        has read."""
        if not self._closing:
            self._closing = True
            self._taken.set()
            self._loop.call_soon(self._protocol.connection_lost, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._pipe if name == "pipe" else default


class ThreadWriter(asyncio.WriteTransport):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes], protocol: asyncio.BaseProtocol
    ) -> None:
        super().__init__()
        self._loop, self._pipe, self._protocol = loop, pipe, protocol
        self._closing = self._lost = self._full = False
        self._size = 0
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        protocol.connection_made(self)
        threading.Thread(target=self._run, name="standard output", daemon=True).start()

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            rest = memoryview(data)
            try:
                while rest and not self._lost:
                    rest = rest[os.write(self._pipe.fileno(), rest) :]
            except (OSError, ValueError) as error:  # whoever read it is gone
                _tell(self._loop, self._end, error)
                return
            _tell(self._loop, self._written, len(data))
        with contextlib.suppress(OSError):
            self._pipe.close()
        _tell(self._loop, self._end, None)

    def _written(self, size: int) -> None:
        self._size -= size
        if self._full and self._size <= LOW:
            self._full = False
            cast(Any, self._protocol).resume_writing()

    def _end(self, error: Exception | None) -> None:
        if not self._lost:
            self._closing = self._lost = True
            self._size = 0
            self._protocol.connection_lost(error)

    def write(self, data: Any) -> None:
        if self._closing or not data:
            return
        self._size += len(data)
        self._queue.put(bytes(data))
        if not self._full and self._size > HIGH:
            self._full = True
            cast(Any, self._protocol).pause_writing()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._queue.put(None)

    def abort(self) -> None:
        self._closing = True
        self._queue.put(None)
        self._loop.call_soon(self._end, None)

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return self._size

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._pipe if name == "pipe" else default
