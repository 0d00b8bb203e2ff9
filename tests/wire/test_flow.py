"""Shares of time and memory: an `Intake` that is poured into, an `Outflow` that is not read."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from kit.clock import Clock
from mcpx.wire import flow
from mcpx.wire.flow import Budget, Intake, Outflow

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def on(main: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, 20))

    return on


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(flow, "clock", clock)
    return clock


class Source:
    """A transport as far as an intake knows it, and as far as an outflow does."""

    def __init__(self) -> None:
        self.paused = self.closed = False
        self.buffered = 0

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write(self, data: bytes) -> None:
        self.buffered += len(data)

    def get_write_buffer_size(self) -> int:
        return self.buffered


async def turns(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_small_message_is_handed_on_at_once(run: Run) -> None:
    async def main() -> None:
        got: list[bytes] = []
        intake = Intake(got.append)
        intake.read_from(source := Source())
        intake.take(b"hello")
        assert got == [b"hello"]
        assert not source.paused

    run(main())


def test_what_is_poured_in_is_worked_off_over_many_turns_while_nothing_more_is_read(
    run: Run, clock: Clock
) -> None:
    async def main() -> None:
        most, worked = 0, 0

        def feed(piece: bytes) -> None:
            nonlocal worked
            worked += len(piece)
            clock.advance(len(piece) * 1e-6)  # a byte is much work

        intake = Intake(feed)
        intake.read_from(source := Source())
        intake.take(bytes(256_000))
        assert worked < 10_000
        assert source.paused
        passed = 0
        while source.paused:
            before = clock.now
            await turns()
            passed += 1
            most = max(most, clock.now - before)
        assert worked == 256_000
        assert passed > 50
        assert most < 0.01

    run(main())


def test_much_that_is_little_work_is_handed_on_at_once(run: Run, clock: Clock) -> None:
    async def main() -> None:
        got = bytearray()
        intake = Intake(got.extend)
        intake.read_from(source := Source())
        intake.take(bytes(256_000))
        assert len(got) == 256_000
        assert not source.paused

    run(main())


def test_many_who_pour_share_one_slice_of_a_turn(run: Run, clock: Clock) -> None:
    async def main() -> None:
        done = [0] * 50

        def feeder(n: int) -> Callable[[bytes], None]:
            def feed(piece: bytes) -> None:
                done[n] += len(piece)
                clock.advance(len(piece) * 1e-6)

            return feed

        intakes = [Intake(feeder(n)) for n in range(50)]
        for intake in intakes:
            intake.read_from(Source())
            intake.take(bytes(20_000))
        most = 0.0
        while any(intake.waiting for intake in intakes):
            before = clock.now
            await turns()
            most = max(most, clock.now - before)
        assert most < 0.01
        assert done == [20_000] * 50

    run(main())


def test_one_whose_little_took_long_waits_in_line_with_its_next(run: Run, clock: Clock) -> None:
    async def main() -> None:
        got: list[bytes] = []

        def feed(piece: bytes) -> None:
            got.append(piece)
            clock.advance(0.005)

        intake = Intake(feed)
        intake.read_from(Source())
        intake.take(b"a")
        assert got == [b"a"]
        intake.take(b"b")
        assert got == [b"a"]
        await turns(2)
        assert got == [b"a", b"b"]

    run(main())


def test_after_a_piece_that_took_very_long_those_in_line_leave_the_others_as_much_time(
    run: Run, clock: Clock
) -> None:
    async def main() -> None:
        began: list[float] = []
        loop = asyncio.get_running_loop()
        all_done = asyncio.Event()

        def feed(piece: bytes) -> None:
            began.append(loop.time())
            clock.advance(0.1)
            if len(began) == 4:
                all_done.set()

        intakes = [Intake(feed, largest=1000) for _ in range(2)]
        for intake in intakes:
            intake.read_from(Source())
            intake.hold(True)
            intake.take(bytes(1001))
            intake.hold(False)
        await all_done.wait()
        pauses = [later - earlier for earlier, later in itertools.pairwise(began)]
        assert min(pauses) > 0.09

    run(main())


def test_a_held_intake_reads_ahead_a_little_and_no_more(run: Run) -> None:
    async def main() -> None:
        got: list[bytes] = []
        intake = Intake(got.append)
        intake.read_from(source := Source())
        intake.hold(True)
        intake.take(b"x" * 1000)
        assert not source.paused  # so that the end of the connection is seen
        intake.take(b"y" * flow.READ_AHEAD)
        assert source.paused
        await turns(5)
        assert got == []
        intake.hold(False)
        await turns(20)
        assert b"".join(got) == b"x" * 1000 + b"y" * flow.READ_AHEAD
        assert not source.paused

    run(main())


def test_what_was_not_worked_off_goes_to_whoever_reads_next(run: Run) -> None:
    async def main() -> None:
        got: list[bytes] = []
        intake = Intake(got.append)
        intake.read_from(source := Source())
        intake.hold(True)
        intake.take(b"x" * 100_000)
        intake.hold(False)
        assert intake.let_go() == b"x" * 100_000
        assert not source.paused
        await turns(5)
        assert got == []

    run(main())


def test_whoever_takes_over_in_the_midst_of_a_chunk_gets_the_rest_of_it(run: Run) -> None:
    async def main() -> None:
        got: list[bytes] = []

        def feed(piece: bytes) -> None:
            got.append(piece)
            got.append(intake.let_go())

        intake = Intake(feed)
        intake.read_from(Source())
        whole = bytes(range(256)) * 400
        intake.take(whole)
        await turns(3)
        assert len(got) == 2
        assert b"".join(got) == whole

    run(main())


def test_a_feed_that_raises_ends_its_own_connection_only(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        def fail(piece: bytes) -> None:
            raise ValueError("no")

        got: list[bytes] = []
        broken, other = Intake(fail), Intake(got.append)
        broken.read_from(source := Source())
        other.read_from(Source())
        for intake in (broken, other):  # so that both stand in line
            intake.hold(True)
        broken.take(bytes(100_000))
        other.take(b"z" * 100_000)
        for intake in (broken, other):
            intake.hold(False)
        while other.waiting:
            await turns()
        assert source.closed
        assert b"".join(got) == b"z" * 100_000

    run(main())
    assert "could not be worked off" in caplog.text


@given(st.lists(st.binary(max_size=20_000), max_size=12), st.lists(st.booleans(), max_size=12))
def test_whatever_is_held_and_when_the_same_bytes_come_out_in_the_same_order(
    chunks: list[bytes], holds: list[bool]
) -> None:
    async def main() -> None:
        got = bytearray()
        intake = Intake(got.extend)
        intake.read_from(Source())
        for n, chunk in enumerate(chunks):
            if n < len(holds):
                intake.hold(holds[n])
            intake.take(chunk)
            await turns(n % 3)
        intake.hold(False)
        while intake.waiting:
            await turns()
        assert bytes(got) == b"".join(chunks)

    asyncio.run(main())


# --- writing


def outflow(budget: Budget | None = None) -> tuple[Outflow, Source]:
    source = Source()
    return Outflow(cast(asyncio.WriteTransport, source), budget), source


def test_one_large_message_may_wait_but_not_a_second_behind_it() -> None:
    out, source = outflow()
    out.pause()
    out.write(bytes(flow.MOST_WAITING + 1))
    assert not source.closed
    out.write(b"more")
    assert source.closed
    assert "does not read" in out.why


def test_beyond_the_budget_whoever_has_most_waiting_is_cut() -> None:
    budget = Budget(1000)
    (one, one_source), (two, two_source) = outflow(budget), outflow(budget)
    one.pause()
    two.pause()
    one.write(bytes(700))
    two.write(bytes(200))
    assert not one_source.closed
    two.write(bytes(200))
    assert one_source.closed
    assert not two_source.closed
    assert budget.total == 400
    two.resume()
    assert budget.total == 0


def test_ten_bytes_now_and_then_are_not_reading() -> None:
    out, source = outflow()
    out.pause()
    out.write(bytes(10_000_000))
    for second in range(0, 30, 5):
        source.buffered -= 10
        out.sweep(float(second), 20.0)
    assert source.closed


def test_a_slow_reader_that_goes_on_reading_is_left_alone() -> None:
    out, source = outflow()
    out.pause()
    out.write(bytes(10_000_000))
    for second in range(0, 300, 5):
        source.buffered -= 30_000
        out.sweep(float(second), 20.0)
    assert not source.closed
