"""Handing a pipe to the event loop without closing somebody else's."""

import asyncio
import os
from typing import IO, Any


class _Number:
    """A descriptor that its transport closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        """Nothing: it is closed already, and its number may be another's."""


def handed_over(pipe: IO[bytes] | None, loop: asyncio.AbstractEventLoop) -> Any:
    """What to give the loop for this pipe. asyncio closes the file; uvloop closes the descriptor and *then* the
    file as well, by which time another thread may have been given the number: so uvloop gets no file to close."""
    assert pipe is not None
    if isinstance(loop, asyncio.BaseEventLoop):
        return pipe
    with pipe:
        return _Number(os.dup(pipe.fileno()))
