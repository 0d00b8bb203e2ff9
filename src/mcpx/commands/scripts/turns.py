"""How many scripts run at a time: of one command, and of all together.

Promised: who came first goes first; the number of those who wait is bounded; who gives up waiting
takes nothing along.
"""

import asyncio
from weakref import WeakKeyDictionary

from mcpx.commands.work import CommandFailed

ALL_TOGETHER = 32
"""Scripts of all commands at a time."""
MOST_WAITING = 100
"""Calls of one command that wait for their turn."""

_together: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()


class Turns:
    def __init__(self, most: int) -> None:
        self.most = most
        self._own = asyncio.Semaphore(most)
        self._waiting = 0

    async def take(self) -> None:
        """Wait for a turn; it is the caller's to `give_back`, once."""
        if self._own.locked() and self._waiting >= MOST_WAITING:
            raise CommandFailed(
                f"{self.most} run and {self._waiting} wait already; try again later"
            )
        self._waiting += 1
        try:
            await self._own.acquire()
            try:
                await _all().acquire()
            except BaseException:
                self._own.release()
                raise
        finally:
            self._waiting -= 1

    def give_back(self) -> None:
        _all().release()
        self._own.release()


def _all() -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    if loop not in _together:
        _together[loop] = asyncio.Semaphore(ALL_TOGETHER)
    return _together[loop]
