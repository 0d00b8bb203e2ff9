"""Background tasks, shared runs, fair queues, rate limits, and slices for one event loop."""

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Iterable
from contextvars import Context
from itertools import islice
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

ITEMS_PER_TURN = 16
RECANCEL_SECONDS = 0.2


def spread(items: Iterable[T], act: Callable[[T], object]) -> None:
    """Call `act` for each item, for a few items in each turn of the loop.

    A thousand calls that end in one turn would delay all other work.
    """
    remaining = iter(items)

    def next_turn() -> None:
        batch = list(islice(remaining, ITEMS_PER_TURN))
        for item in batch:
            act(item)
        if len(batch) == ITEMS_PER_TURN:
            asyncio.get_running_loop().call_soon(next_turn)

    next_turn()


class Tasks:
    """Background tasks of one owner.

    `asyncio.TaskGroup` cancels all tasks if one fails. `Tasks` logs the failure, and the other
    tasks continue. A task handles its expected exceptions itself.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._running: set[asyncio.Task[Any]] = set()
        # In Python 3.11, get_running_loop() makes a system call (getpid).
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    def start(
        self, work: Coroutine[Any, Any, T], *, awaited: bool = False, apart: bool = False
    ) -> asyncio.Task[T]:
        """Start a task. A task that is started after `close` is cancelled.

        If `awaited`, another task receives the exception, and it is not logged. If `apart`, the
        task does not inherit context variables, for example those of the current request.
        """
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        if apart:
            task = self.loop.create_task(work, context=Context())
        else:
            task = self.loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done_awaited if awaited else self._done)
        if self.closed:
            task.cancel()
        return task

    def _done_awaited(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        _mark_retrieved(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: a background task failed", self._owner, exc_info=error)

    def cancel(self) -> None:
        """Cancel all tasks, a few in each turn of the loop. Do not wait for them."""
        self.closed = True
        spread(list(self._running), _cancel_once)

    async def close(self) -> None:
        """Cancel all tasks and wait for their end.

        A task whose `asyncio.timeout` expires in the turn of its cancellation sees only the
        timeout. Such a task is cancelled again.
        """
        self.cancel()
        current = asyncio.current_task()
        while remaining := [task for task in self._running if task is not current]:
            await asyncio.wait(remaining, timeout=RECANCEL_SECONDS)
            spread(remaining, _cancel_once)


def _cancel_once(task: asyncio.Task[Any]) -> None:
    if not task.cancelling():  # A second request would interrupt its cleanup.
        task.cancel()


def _mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Prevent asyncio's log message about an exception that was never retrieved."""
    if not future.cancelled():
        future.exception()


async def first_of(*awaitables: Awaitable[object], timeout: float | None = None) -> int | None:
    """Wait for the first awaitable, and return its index, or None after `timeout` seconds.

    If several are done, the lowest index counts. Coroutines run as tasks. They are cancelled when
    `first_of` returns, and the exception of the first one is raised. Futures and tasks belong to
    the caller: they continue, and the caller retrieves their results.
    """
    futures = [asyncio.ensure_future(each) for each in awaitables]
    owned = [
        future
        for future, each in zip(futures, awaitables, strict=True)
        if inspect.iscoroutine(each)
    ]
    try:
        done, _ = await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in owned:
            future.cancel()
            future.add_done_callback(_mark_retrieved)
    for index, future in enumerate(futures):
        if future in done:
            if future in owned:
                future.result()
            return index
    return None


class WorkCancelled(Exception):
    """The owner of shared work has closed before the work was done."""


class SingleFlight(Generic[K, T]):
    """Runs work once for all callers that need its result at the same time.

    All callers of a run get the same result or the same exception. A caller that is cancelled does
    not affect the others. If the last caller is cancelled, the run is cancelled too.
    """

    def __init__(self, tasks: Tasks, *, apart: bool = True) -> None:
        """If `apart`, runs do not inherit context variables of their first caller."""
        self._tasks = tasks
        self._apart = apart
        self._runs: dict[K, asyncio.Task[T]] = {}
        self._waiting: dict[asyncio.Task[T], int] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    def start(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Start a run, or return the current one. It continues if no caller waits for it."""
        task = self._begin(key, work)
        self._waiting[task] += 1
        return task

    async def run(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the current run, or for a new one. Raises `WorkCancelled`."""
        task = self._begin(key, work)
        self._waiting[task] += 1
        try:
            await asyncio.wait((task,))
        finally:
            if task in self._waiting:
                self._waiting[task] -= 1
                if not self._waiting[task]:
                    self._end(key, task)
                    task.cancel()
        if task.cancelled():
            raise WorkCancelled
        return task.result()

    def _begin(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        task = self._runs.get(key)
        if task is None:
            task = self._tasks.start(work(), awaited=True, apart=self._apart)
            self._runs[key] = task
            self._waiting[task] = 0
            task.add_done_callback(lambda task: self._end(key, task))
        return task

    def _end(self, key: K, task: asyncio.Task[T]) -> None:
        self._waiting.pop(task, None)
        if self._runs.get(key) is task:
            del self._runs[key]


class TokenBucket:
    """Rate limit that allows bursts. Starts full. `burst` and `rate` may change at any time."""

    __slots__ = ("_clock", "_tokens", "_updated_at", "burst", "rate")

    def __init__(
        self, burst: float, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`rate` is in tokens per second."""
        self.burst = burst
        self.rate = rate
        self._clock = clock
        self._tokens = float(burst)
        self._updated_at = clock()

    @property
    def tokens(self) -> float:
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._updated_at) * self.rate)
        self._updated_at = now
        return self._tokens

    @property
    def is_full(self) -> bool:
        return self.tokens >= self.burst

    def take(self, count: float = 1) -> bool:
        """Take all of these tokens, or none."""
        if self.tokens < count:
            return False
        self._tokens -= count
        return True

    def take_up_to(self, count: int) -> int:
        """Take as many of these tokens as possible, and return their number."""
        taken = max(0, min(count, int(self.tokens)))
        self._tokens -= taken
        return taken

    def give_back(self, count: float = 1) -> None:
        self._tokens = min(self.burst, self.tokens + count)

    def seconds_until(self, count: float = 1) -> float:
        """Return the time after which `take` can succeed, or 0 if it can succeed now."""
        missing = count - self.tokens
        return max(0.0, missing / self.rate)


class QueueFull(Exception):
    """The queue has no place for the caller, or another caller has taken its place."""


class FairQueue:
    """Limits concurrency. Callers without a slot wait in a bounded queue.

    Keys (usually clients) take turns. Calls of one key keep their order. In a full queue, a key
    with fewer waiting calls displaces the last call of the key with the most.
    """

    def __init__(
        self, slots: float, max_waiting: float, max_waiting_size: float = float("inf")
    ) -> None:
        """`max_waiting_size` limits the sum of the sizes that are passed to `enter`."""
        self.slots = slots
        self.max_waiting = max_waiting
        self.max_waiting_size = max_waiting_size
        self.running: int = 0
        self.waiting: int = 0
        self._waiting_size = 0
        self._lines: dict[Hashable, deque[_Ticket]] = {}
        self._closed_by: Exception | None = None

    def try_enter(self) -> bool:
        """Take a slot if one is free and no call waits."""
        if self.running >= self.slots or self.waiting:
            return False
        self.running += 1
        return True

    def has_room(self, key: Hashable = None, size: int = 0) -> bool:
        """Return whether `enter` would succeed or wait."""
        if self.running < self.slots and not self.waiting:
            return True
        if self._waiting_size + size > self.max_waiting_size and self.waiting:
            return False
        return self.waiting < self.max_waiting or self._displaceable(key) is not None

    async def enter(
        self, key: Hashable = None, size: int = 0, timeout: float | None = None
    ) -> None:
        """Wait for a slot. The caller must `leave` it. Raises `QueueFull` and `TimeoutError`."""
        if self._closed_by is not None:
            raise self._closed_by
        if self.try_enter():
            return
        if not self.has_room(key, size):
            raise QueueFull
        if self.waiting >= self.max_waiting:
            self._displace(key)
        ticket = _Ticket(key, size, asyncio.get_running_loop().create_future())
        self._add(ticket)
        try:
            async with asyncio.timeout(timeout):
                await ticket.turn
        except BaseException:
            if ticket.is_admitted:
                self.leave()
            elif not ticket.turn.done() or ticket.turn.cancelled():
                self._remove(ticket)
            raise

    def leave(self) -> None:
        """Release a slot."""
        self.running -= 1
        if self.waiting:
            self.admit()

    def admit(self) -> None:
        """Admit waiting calls to free slots. Call it after `slots` was increased."""
        while self._lines and self.running < self.slots:
            ticket = next(iter(self._lines.values()))[0]
            self._remove(ticket)
            if ticket.key in self._lines:  # The next turn belongs to another key.
                self._lines[ticket.key] = self._lines.pop(ticket.key)
            if not ticket.turn.done():
                ticket.turn.set_result(None)
                self.running += 1

    def close(self, error: Exception) -> None:
        """Raise `error` in all current and later callers."""
        self._closed_by = error
        for line in list(self._lines.values()):
            for ticket in list(line):
                self._reject(ticket, error)

    def _add(self, ticket: "_Ticket") -> None:
        self._lines.setdefault(ticket.key, deque()).append(ticket)
        self.waiting += 1
        self._waiting_size += ticket.size

    def _remove(self, ticket: "_Ticket") -> None:
        line = self._lines.get(ticket.key)
        if line is None or ticket not in line:
            return
        line.remove(ticket)
        if not line:
            del self._lines[ticket.key]
        self.waiting -= 1
        self._waiting_size -= ticket.size

    def _displaceable(self, key: Hashable) -> "_Ticket | None":
        """Return the last call of the longest line.

        Return None if the line of `key` would be as long with one more call.
        """
        if not self._lines:
            return None
        longest = max(self._lines.values(), key=len)
        if len(longest) <= len(self._lines.get(key, ())) + 1:
            return None
        return longest[-1]

    def _displace(self, key: Hashable) -> None:
        ticket = self._displaceable(key)
        if ticket is not None:
            self._reject(ticket, QueueFull())

    def _reject(self, ticket: "_Ticket", error: Exception) -> None:
        self._remove(ticket)
        if not ticket.turn.done():
            ticket.turn.set_exception(error)


class _Ticket:
    __slots__ = ("key", "size", "turn")

    def __init__(self, key: Hashable, size: int, turn: asyncio.Future[None]) -> None:
        self.key = key
        self.size = size
        self.turn = turn

    @property
    def is_admitted(self) -> bool:
        turn = self.turn
        return turn.done() and not turn.cancelled() and turn.exception() is None


# Slices of long work. A thread would not help, because Python code holds the interpreter there too.

SLICE_SECONDS: Final = 0.003

Work = Generator[None, None, T]
"""A generator that yields wherever it may be interrupted, and returns the outcome."""


async def in_slices(work: Work[T]) -> T:
    """Run the work, and let the event loop continue after each slice."""
    pace = Pace()
    try:
        while True:
            next(work)
            await pace.step()
    except StopIteration as end:
        return end.value


def at_once(work: Work[T]) -> T:
    """Run the work without interruption, because it is short or no event loop runs."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        return end.value


class Pace:
    """Slices of a coroutine, which calls `step` wherever it may be interrupted."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    async def step(self) -> None:
        if perf_counter() - self._began >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()
