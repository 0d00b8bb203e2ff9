"""Waits for a condition that has no event: `until` in a coroutine, `wait_until` in a thread.

Both check the condition every 1 to 10 ms, return its first true value, and fail if it stays false
too long.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any


async def until(condition: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
    """Wait until `condition()` is true and return its value. A condition may return an
    awaitable."""
    deadline = (
        time.monotonic() + seconds
    )  # Not the clock of the event loop: a test may have moved that.
    for pause in _pauses():
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, _message(condition, seconds, what)
        await asyncio.sleep(pause)


def wait_until(condition: Callable[[], Any], seconds: float = 60.0, what: str = "") -> Any:
    """Block until `condition()` is true and return its value. `what` names the awaited state in the
    error message."""
    deadline = time.monotonic() + seconds
    for pause in _pauses():
        if value := condition():
            return value
        assert time.monotonic() < deadline, _message(condition, seconds, what)
        time.sleep(pause)


def _pauses() -> Iterator[float]:
    pause = 0.001
    while True:
        yield pause
        pause = min(2 * pause, 0.01)


def _message(condition: Callable[[], Any], seconds: float, what: str) -> str:
    return f"not true within {seconds:g} s: {what or _source(condition)}"


def _source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):  # A built-in function or a bound method of one.
        return repr(condition)
