"""Clocks moved by hand: `Clock` for code that is given a clock, `LoopClock` for timers of the event
loop."""

import asyncio

import pytest

from kit.loop import yield_to_loop


class Clock:
    """A function that returns the time in seconds. Only `advance` and assignments to `now` change
    the time."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class LoopClock:
    """Moves the clock of the running event loop ahead. The time limit given to `run` must be longer
    than that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._ahead_seconds = 0.0
        real = self._loop.time
        monkeypatch.setattr(self._loop, "time", lambda: real() + self._ahead_seconds)

    def move(self, seconds: float) -> None:
        """Move the clock. Timers that are due have not run yet."""
        self._ahead_seconds += seconds

    async def advance(self, seconds: float) -> None:
        """Move the clock, then let the timers that are due run."""
        self.move(seconds)
        await yield_to_loop()
