"""Renewal of a token, once for all calls that wait for it, with pauses after failures."""

import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, TypeVar

from mcpx.base.aio import SingleFlight, Tasks, WorkCancelled
from mcpx.model.errors import Unproved

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0


class Failed(Unproved):
    """A renewal failed. `wait` is the pause in seconds that the token server requested."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Renewal(Generic[T]):
    """Runs `renew` when a result is needed.

    All waiting callers get the same result or the same failure. A failed renewal is not repeated
    during a pause, which doubles with each failure. During the pause, callers get the failure at
    once.
    """

    def __init__(self, name: str, renew: Callable[[], Awaitable[T]]) -> None:
        """`renew` raises `Failed`."""
        self._name = name
        self._renew = renew
        self._tasks = Tasks(name)
        self._flight: SingleFlight[None, T] = SingleFlight(self._tasks, apart=False)
        self._pause = 0.0
        self._paused_until = 0.0
        self._failure: Failed | None = None

    @property
    def is_idle(self) -> bool:
        """False during a renewal and during the pause after a failure."""
        return None not in self._flight and monotonic() >= self._paused_until

    @property
    def problem(self) -> str | None:
        """Why the last renewal failed."""
        return None if self._failure is None else self._failure.reason

    def start(self) -> None:
        """Renew without waiting."""
        self._flight.start(None, self._run)

    async def result(self) -> T:
        """Return the result of the current renewal, or of a new one. Raises `Unproved`."""
        is_paused = None not in self._flight and monotonic() < self._paused_until
        if is_paused and self._failure is not None:
            raise Failed(self._failure.reason)
        try:
            return await self._flight.run(None, self._run)
        except WorkCancelled:
            raise Unproved(f"{self._name}: is no longer used") from None
        except Failed as failure:
            raise Failed(failure.reason) from None  # A new exception for each caller.

    async def _run(self) -> T:
        try:
            result = await self._renew()
        except Failed as failure:
            self._failed(failure)
            raise
        except Exception as error:
            log.exception("%s: renewing it failed", self._name)
            failure = Failed(f"{self._name}: failed inside the gateway: {type(error).__name__}")
            self._failed(failure)
            raise failure from None
        self._pause = 0.0
        self._failure = None
        return result

    def _failed(self, failure: Failed) -> None:
        self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
        self._paused_until = monotonic() + max(self._pause, failure.wait)
        self._failure = failure

    async def close(self) -> None:
        await self._tasks.close()
