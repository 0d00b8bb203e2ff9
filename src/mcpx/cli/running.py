"""Coroutines of commands, and what Ctrl-C does to them.

Promise: pressed once, what was begun is ended in good order; pressed again, the process ends at
once and without a word, wherever it is: a KeyboardInterrupt in the midst of somebody's cleaning up
would leave others waiting for ever. No promise for the gateway that serves: it minds its signals
itself (`app`).
"""

import os
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, NoReturn, TypeVar

from mcpx.cli import codes

T = TypeVar("T")


def result_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run` has it."""
    import asyncio  # what answers without one is quicker

    return asyncio.run(_minding_signals(coroutine))


async def _minding_signals(coroutine: Coroutine[Any, Any, T]) -> T:
    import signal

    cancels = signal.getsignal(
        signal.SIGINT
    )  # asyncio's own, if there is one: it cancels this task
    if not callable(cancels) or cancels is signal.default_int_handler:
        return await coroutine

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _again)
        cancels(number, frame)

    signal.signal(signal.SIGINT, first)
    try:
        return await coroutine
    finally:
        if signal.getsignal(signal.SIGINT) is first:
            signal.signal(signal.SIGINT, cancels)


def _again(_number: int, _frame: FrameType | None) -> None:
    os._exit(codes.INTERRUPTED)


def leave() -> NoReturn:
    """After Ctrl-C: what did not reach its end is not told of one by one, and the prompt begins a
    line of its own. Child processes that are left are ended (`processes.keeper`)."""
    import signal

    signal.signal(signal.SIGINT, _again)
    try:
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):  # nobody reads any more
        pass
    os._exit(codes.INTERRUPTED)
