"""An owner for background tasks: every task belongs to one, and ends with it.

`asyncio.TaskGroup` ends all tasks when one fails; a gateway wants the opposite, so a task that dies
of a bug is logged and the others live on. What a task is expected to raise, it handles itself.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from itertools import islice
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE = 16
AGAIN = 0.2
"""Seconds after which a task that goes on is asked to stop once more: one whose own
`asyncio.timeout` was up in the turn in which it was asked has heard only of that."""


def spread(items: Iterable[T], act: Callable[[T], object]) -> None:
    """Do it to a few in each turn of the loop: a thousand calls that end at once would hold all
    others up."""
    rest = iter(items)

    def go_on() -> None:
        some = list(islice(rest, AT_ONCE))
        for item in some:
            act(item)
        if len(some) == AT_ONCE:
            asyncio.get_running_loop().call_soon(go_on)

    go_on()


class Tasks:
    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._running: set[asyncio.Task[Any]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        """Kept, for asking for it is a system call (getpid) in Python 3.11."""
        self.closed = False

    def start(
        self, work: Coroutine[Any, Any, Any], *, awaited: bool = False, apart: bool = False
    ) -> asyncio.Task[Any]:
        """`awaited`: whoever waits for the task gets its error, so it is not a surprise worth a log
        line. `apart`: it is nothing of the request that happened to cause it."""
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        task = (
            self.loop.create_task(work, context=Context()) if apart else self.loop.create_task(work)
        )
        self._running.add(task)
        task.add_done_callback(self._done_awaited if awaited else self._done)
        if self.closed:
            task.cancel()
        return task

    def _done_awaited(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen, should the last waiter have given up

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: a background task failed", self._owner, exc_info=error)

    def cancel(self) -> None:
        """For owners that cannot wait: ask every task to stop, a few in each turn."""
        self.closed = True
        spread(list(self._running), _stop)

    async def close(self) -> None:
        self.cancel()
        current = asyncio.current_task()
        while rest := [task for task in self._running if task is not current]:
            await asyncio.wait(rest, timeout=AGAIN)
            spread(rest, _stop)


def _stop(task: asyncio.Task[Any]) -> None:
    if not task.cancelling():  # asked twice it would not finish what it does at its end
        task.cancel()
