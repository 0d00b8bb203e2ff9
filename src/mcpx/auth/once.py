"""Work that many may want at once and that is done once: a token that is fetched.

Promised: whoever asks while it is under way waits for the same run and gets the same outcome,
failures too. A waiter that leaves changes nothing for the others; the last to leave ends it. What
fails is not tried again before a pause is over, which grows with each failure; meanwhile everybody
gets the failure at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, TypeVar

from mcpx.base.aio import Tasks
from mcpx.model.errors import Unproved

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds after a failure in which nothing is tried."""


class Failed(Unproved):
    """Of the work itself; `wait` is how long it asks to be left alone, in seconds."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class _Run(Generic[T]):
    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiting = 0


class Once(Generic[T]):
    def __init__(self, name: str, work: Callable[[], Awaitable[T]]) -> None:
        """`work` raises `Failed`."""
        self._name = name
        self._work = work
        self._tasks = Tasks(name)
        self._run: _Run[T] | None = None
        self._pause = 0.0
        self._until = 0.0
        self._failure: Failed | None = None

    @property
    def at_rest(self) -> bool:
        """Neither under way nor in a pause after a failure."""
        return self._run is None and monotonic() >= self._until

    @property
    def problem(self) -> str | None:
        """Why it failed the last time; None: it did not."""
        return None if self._failure is None else self._failure.reason

    def begin(self) -> None:
        """Without waiting for it; to be asked when `at_rest`."""
        self._started().waiting += 1  # nobody's leaving ends it

    async def outcome(self) -> T:
        """Of the run under way, or of a new one. Raises `Unproved`."""
        run = self._run
        if run is None:
            if self._failure is not None and monotonic() < self._until:
                raise Failed(self._failure.reason)
            run = self._started()
        run.waiting += 1
        try:
            await asyncio.wait([run.task])
        finally:
            run.waiting -= 1
            if not run.waiting and not run.task.done():
                run.task.cancel()
                self._over(run)
        if run.task.cancelled():
            raise Unproved(f"{self._name}: is no longer used")
        try:
            return run.task.result()
        except Failed as failure:
            raise Failed(failure.reason) from None  # each waiter has its own

    def _started(self) -> "_Run[T]":
        run = self._run = _Run(self._tasks.start(self._do(), awaited=True))
        run.task.add_done_callback(lambda _: self._over(run))
        return run

    def _over(self, run: "_Run[T]") -> None:
        if self._run is run:
            self._run = None

    async def _do(self) -> T:
        try:
            result = await self._work()
        except Failed as failure:
            self._rest(failure)
            raise
        except Exception as error:
            log.exception("%s: renewing it failed", self._name)
            failure = Failed(f"{self._name}: failed inside the gateway: {type(error).__name__}")
            self._rest(failure)
            raise failure from None
        self._pause, self._failure = 0.0, None
        return result

    def _rest(self, failure: Failed) -> None:
        self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
        self._until = monotonic() + max(self._pause, failure.wait)
        self._failure = failure

    async def close(self) -> None:
        await self._tasks.close()
