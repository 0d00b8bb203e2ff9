"""Runs coroutines of commands, and reports mistakes.

Ctrl-C, pressed once, ends what was begun in good order. Pressed again, it ends the process at once
and without a word: a KeyboardInterrupt inside a cleanup would leave other tasks waiting forever.
The gateway that serves handles its signals itself (`app`).
"""

import os
import sys
from collections.abc import Coroutine, Sequence
from types import FrameType
from typing import Any, NoReturn, TypeVar

from mcpx.cli import codes
from mcpx.model.errors import ConfigError

T = TypeVar("T")

PROBLEM_KEYS = ("message", "hint", "path", "file", "line", "column")
"""Of a mistake in a config (`config.problems.Told`)."""


def warn(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def mistake(message: str) -> ConfigError:
    """The exception for a mistake in the config or on the command line. Its exit code is 2."""
    return ConfigError([f"error: {message}"])


def result_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    import asyncio  # Commands that need no event loop start faster without it.

    return asyncio.run(_minding_signals(coroutine))


async def _minding_signals(coroutine: Coroutine[Any, Any, T]) -> T:
    import signal

    cancels = signal.getsignal(signal.SIGINT)  # Usually asyncio's handler, which cancels this task.
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
    """End the process after Ctrl-C. `processes.keeper` ends the child processes that are left."""
    import signal

    signal.signal(signal.SIGINT, _again)
    try:
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # The prompt begins on a new line.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):  # The reader has gone.
        pass
    os._exit(codes.INTERRUPTED)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the caller reads JSON. Works before parsing, because mistakes of the command line are
    JSON, too."""
    for word in arguments:
        if word in ("--", "--json"):
            return word == "--json"
    return False


def print_mistakes(error: ConfigError, as_json: bool) -> None:
    if not as_json:
        sys.stderr.write("\n\n".join(error.problems) + "\n")
        return
    import json

    texts = [problem.removeprefix("error: ") for problem in error.problems]
    problems = [
        {key: getattr(each, key) for key in PROBLEM_KEYS} for each in getattr(error, "told", ())
    ]
    problems = problems or [{"message": text} for text in texts]
    facts = {"code": "mistake", "message": "\n".join(texts), "problems": problems}
    # ASCII only: nothing in it controls a terminal.
    sys.stderr.write(json.dumps({"error": facts}) + "\n")
