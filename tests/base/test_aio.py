"""`base.aio`: rate limits, fair queues, shared runs. Rules are compared with simple models."""

import asyncio
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.clock import Clock
from kit.loop import never_return, run, yield_to_loop
from mcpx.base.aio import (
    FairQueue,
    QueueFull,
    SingleFlight,
    Tasks,
    TokenBucket,
    WorkCancelled,
    first_of,
)

# TokenBucket


@given(
    burst=st.integers(1, 20),
    rate=st.sampled_from([0.25, 1.0, 4.0]),
    steps=st.lists(st.tuples(st.sampled_from([0.0, 0.25, 1.0, 8.0]), st.integers(1, 25))),
)
def test_a_bucket_grants_what_a_model_with_exact_time_grants(
    burst: int, rate: float, steps: list[tuple[float, int]]
) -> None:
    clock = Clock()
    bucket = TokenBucket(burst, rate, clock)
    expected = float(burst)
    for pause, count in steps:
        clock.advance(pause)
        expected = min(burst, expected + pause * rate)
        wait = bucket.seconds_until(count)
        assert wait == max(0.0, (count - expected) / rate)
        granted = bucket.take(count)
        assert granted == (wait == 0)
        if granted:
            expected -= count
        assert bucket.tokens == expected


def test_a_bucket_takes_a_part_gives_back_and_follows_changed_limits() -> None:
    clock = Clock()
    bucket = TokenBucket(5, 1, clock)
    assert bucket.take_up_to(8) == 5
    assert bucket.take_up_to(8) == 0
    bucket.give_back(2)
    assert bucket.tokens == 2
    bucket.burst, bucket.rate = 1, 0.5
    assert bucket.is_full
    assert bucket.take()
    clock.advance(1)
    assert bucket.seconds_until() == 1


# FairQueue


class QueueModel:
    """What `FairQueue` promises, with lists."""

    def __init__(self, slots: int, room: int) -> None:
        self.slots, self.room = slots, room
        self.running: list[int] = []
        self.lines: list[tuple[str, deque[int]]] = []
        self.rejected: list[int] = []

    def line(self, key: str) -> "deque[int]":
        return next((line for name, line in self.lines if name == key), deque())

    def enter(self, key: str, call: int) -> None:
        if len(self.running) < self.slots:
            self.running.append(call)
            return
        if sum(len(line) for _, line in self.lines) >= self.room:
            longest = max((line for _, line in self.lines), key=len, default=deque[int]())
            if len(longest) <= len(self.line(key)) + 1:
                self.rejected.append(call)
                return
            self.rejected.append(longest.pop())
        if not self.line(key):
            self.lines.append((key, deque()))
        self.line(key).append(call)

    def leave(self, call: int) -> None:
        self.running.remove(call)
        if self.lines:
            key, line = self.lines.pop(0)
            self.running.append(line.popleft())
            if line:
                self.lines.append((key, line))

    def cancel(self, call: int) -> None:
        for _, line in self.lines:
            if call in line:
                line.remove(call)
        self.lines = [each for each in self.lines if each[1]]


@given(
    slots=st.integers(1, 3),
    room=st.integers(0, 4),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["enter", "enter", "enter", "leave", "cancel"]), st.integers(0, 3)
        )
    ),
)
def test_a_queue_admits_and_rejects_the_calls_that_a_model_does(
    slots: int, room: int, steps: list[tuple[str, int]]
) -> None:
    async def main() -> None:
        queue, model = FairQueue(slots, room), QueueModel(slots, room)
        rejected: list[int] = []
        running: list[int] = []
        calls: list[asyncio.Task[None]] = []

        async def call(key: str, number: int) -> None:
            try:
                await queue.enter(key)
            except QueueFull:
                rejected.append(number)
            else:
                running.append(number)

        for action, choice in steps:
            if action == "enter":
                key, number = "abcd"[choice], len(calls)
                calls.append(asyncio.ensure_future(call(key, number)))
                model.enter(key, number)
            elif action == "leave" and running:
                number = running.pop(choice % len(running))
                queue.leave()
                model.leave(number)
            elif action == "cancel" and calls:
                number = choice % len(calls)
                calls[number].cancel()
                model.cancel(number)
            await yield_to_loop(3)
            assert sorted(running) == sorted(model.running)
            assert rejected == model.rejected
            assert queue.running == len(running)
            assert queue.waiting == sum(len(line) for _, line in model.lines)
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert queue.waiting == 0

    run(main())


def test_a_cancelled_or_late_call_leaves_no_trace() -> None:
    async def main() -> None:
        queue = FairQueue(1, 10)
        await queue.enter()
        with pytest.raises(TimeoutError):
            await queue.enter(timeout=0)
        admitted = asyncio.ensure_future(queue.enter())
        await yield_to_loop()
        queue.leave()  # In this turn, the call gets the slot and is cancelled.
        admitted.cancel()
        await asyncio.wait([admitted])
        assert (queue.running, queue.waiting) == (0, 0)

    run(main())


def test_a_queue_limits_sizes_grows_and_closes() -> None:
    async def main() -> None:
        queue = FairQueue(1, 10, max_waiting_size=100)
        await queue.enter(size=1000)
        waiting = [asyncio.ensure_future(queue.enter(size=size)) for size in (60, 40)]
        await yield_to_loop()
        with pytest.raises(QueueFull):
            await queue.enter(size=1)
        queue.slots = 2
        queue.admit()
        await waiting[0]
        queue.close(ValueError("closed"))
        with pytest.raises(ValueError, match="closed"):
            await waiting[1]
        with pytest.raises(ValueError, match="closed"):
            await queue.enter()

    run(main())


# SingleFlight


def test_callers_share_one_run_and_its_outcome() -> None:
    async def main() -> None:
        flights: SingleFlight[str, str] = SingleFlight(Tasks("test"))
        runs: list[str] = []

        async def work(outcome: str) -> str:
            runs.append(outcome)
            await yield_to_loop()
            if outcome == "fail":
                raise ValueError(outcome)
            return outcome

        calls = [
            flights.run(key, lambda key=key: work(key)) for key in ("a", "b", "a", "fail", "fail")
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert outcomes[:3] == ["a", "b", "a"]
        assert [type(each) for each in outcomes[3:]] == [ValueError, ValueError]
        assert runs == ["a", "b", "fail"]
        assert len(flights) == 0
        await flights.run("a", lambda: work("a"))
        assert runs == ["a", "b", "fail", "a"]

    run(main())


def test_the_last_caller_cancels_the_run_and_others_do_not() -> None:
    async def main() -> None:
        flights: SingleFlight[None, None] = SingleFlight(Tasks("test"))
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await never_return()
            finally:
                ended.set()

        first, last = (asyncio.ensure_future(flights.run(None, work)) for _ in range(2))
        await yield_to_loop()
        first.cancel()
        await yield_to_loop()
        assert not ended.is_set()
        last.cancel()
        await yield_to_loop()
        assert ended.is_set()
        assert None not in flights

    run(main())


def test_a_started_run_needs_no_caller_and_ends_with_its_owner() -> None:
    async def main() -> None:
        tasks = Tasks("test")
        flights: SingleFlight[None, None] = SingleFlight(tasks)
        started = flights.start(None, never_return)
        caller = asyncio.ensure_future(flights.run(None, never_return))
        await yield_to_loop()
        caller.cancel()
        await yield_to_loop()
        assert not started.done()
        caller = asyncio.ensure_future(flights.run(None, never_return))
        await yield_to_loop()
        await tasks.close()
        with pytest.raises(WorkCancelled):
            await caller

    run(main())


# first_of


def test_first_of_returns_the_first_and_cancels_its_coroutines_only() -> None:
    async def main() -> None:
        cancelled: list[str] = []

        async def waits() -> None:
            try:
                await never_return()
            except asyncio.CancelledError:
                cancelled.append("coroutine")
                raise

        event = asyncio.Event()
        task = asyncio.ensure_future(never_return())
        waiting = asyncio.ensure_future(first_of(task, waits(), event.wait()))
        await yield_to_loop()
        event.set()
        assert await waiting == 2
        await yield_to_loop()
        assert cancelled == ["coroutine"]
        assert not task.done()
        assert await first_of(task, timeout=0) is None
        task.cancel()
        assert await first_of(task, waits()) == 0

    run(main())


def test_first_of_raises_the_error_of_a_coroutine() -> None:
    async def main() -> None:
        async def fails() -> None:
            raise ValueError("failed")

        with pytest.raises(ValueError, match="failed"):
            await first_of(never_return(), fails())

    run(main())
