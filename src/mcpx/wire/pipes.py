"""Handing a pipe to the event loop without closing somebody else's, and writing to it seldom."""

import asyncio
import os
from typing import IO, Any, Protocol


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
