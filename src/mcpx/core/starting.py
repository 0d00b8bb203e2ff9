"""Waiting for servers that are starting (LIF-1): how long a list, a search or an unknown name may be held up.

A server that was seen before is listed from its snapshot and delays nobody. One that was never seen may still have to
be downloaded: a first list waits for it, until it has listed or failed, at most `first_start_wait` after the client's
first message, and no longer than a third of that after the last one that came.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable

from mcpx.core.source import Source
from mcpx.model.call import Caller

AFTER_THE_LAST = 1 / 3


class Starting:
    def __init__(
        self,
        sources: Callable[[Caller], Iterable[Source]],
        first_start_wait: Callable[[], float],
    ) -> None:
        """`sources`: those that a caller may know of."""
        self._sources = sources
        self._first_start_wait = first_start_wait
        self._last_came: float | None = None
        self._news = asyncio.Event()

    def came(self) -> None:
        """A server has listed what it offers."""
        self._last_came = time.monotonic()
        self._news.set()  # whoever waits looks at the time again
        self._news = asyncio.Event()

    def unknown(self, caller: Caller) -> list[Source]:
        """Sources of which nothing is known yet, though it will be."""
        return [source for source in self._sources(caller) if not source.settled.is_set()]

    def _left(self, caller: Caller) -> float:
        """Seconds for which this caller may still be held up."""
        wait = self._first_start_wait()
        end = caller.since + wait
        if self._last_came is not None:
            end = min(end, self._last_came + wait * AFTER_THE_LAST)
        return end - time.monotonic()

    async def wait(self, caller: Caller) -> None:
        async for _ in self.as_they_settle(caller):
            pass

    async def as_they_settle(self, caller: Caller) -> AsyncIterator[None]:
        """Yields each time one has settled, until none is left or the time is up."""
        while starting := self.unknown(caller):
            left = self._left(caller)
            if left <= 0 or not await any_set([self._news, *(source.settled for source in starting)], left):
                return
            yield


async def any_set(events: Iterable[asyncio.Event], seconds: float | None) -> bool:
    """Until one of them is set or the time is up; whether one is."""
    return await _wait(events, seconds, asyncio.FIRST_COMPLETED) > 0


async def all_set(events: Iterable[asyncio.Event], seconds: float | None) -> None:
    """Until all of them are set or the time is up."""
    await _wait(events, seconds, asyncio.ALL_COMPLETED)


async def _wait(events: Iterable[asyncio.Event], seconds: float | None, until: str) -> int:
    """How many of them are."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    if not waits:
        return 0
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=until)
        return len(done)
    finally:
        for wait in waits:
            wait.cancel()
