"""Background tasks and their owner."""

import asyncio
import logging

import pytest

from kit.loop import never_return, run, yield_to_loop
from mcpx.base.aio import Tasks


def test_a_task_that_dies_is_logged_and_the_others_live_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        tasks = Tasks("owner")
        alive = asyncio.Event()

        async def dies() -> None:
            raise ValueError("a bug")

        async def lives() -> None:
            await yield_to_loop()
            alive.set()

        tasks.start(lives())
        tasks.start(dies())
        await alive.wait()
        await tasks.close()

    with caplog.at_level(logging.ERROR):
        run(main())
    [record] = caplog.records
    assert record.getMessage() == "owner: a background task failed"
    assert record.exc_info is not None


def test_the_error_of_an_awaited_task_goes_to_who_awaits_it_and_to_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        tasks = Tasks("owner")

        async def dies() -> None:
            raise ValueError("expected")

        with pytest.raises(ValueError, match="expected"):
            await tasks.start(dies(), awaited=True)
        abandoned = tasks.start(dies(), awaited=True)
        await asyncio.wait([abandoned])
        await tasks.close()

    run(main())  # which also fails on an exception that nobody retrieved
    assert caplog.records == []


def test_close_waits_until_every_task_has_ended_its_own_way() -> None:
    async def main() -> None:
        tasks = Tasks("owner")
        ended: list[str] = []

        async def slow_to_end() -> None:
            try:
                await never_return()
            finally:
                await yield_to_loop()
                ended.append("slow")

        for _ in range(3):
            tasks.start(slow_to_end())
        await yield_to_loop()
        await tasks.close()
        assert ended == ["slow"] * 3

    run(main())


def test_nothing_starts_after_the_end() -> None:
    async def main() -> None:
        tasks = Tasks("owner")
        ran: list[int] = []

        async def work() -> None:
            ran.append(1)

        await tasks.close()
        task = tasks.start(work())
        await asyncio.wait([task])
        assert task.cancelled()
        assert ran == []

    run(main())


def test_a_task_that_closes_its_own_owner_ends_with_it_and_does_not_hang() -> None:
    async def main() -> None:
        tasks = Tasks("owner")
        other = tasks.start(never_return())
        await yield_to_loop()

        async def closes() -> None:
            await tasks.close()

        with pytest.raises(asyncio.CancelledError):
            await tasks.start(closes())
        assert other.cancelled()

    run(main())


def test_a_task_whose_own_time_is_up_in_the_turn_in_which_it_is_asked_to_stop_stops() -> None:
    """LIF-8: it takes the word to stop for the end of its time, and would go on for ever."""

    async def main() -> None:
        tasks = Tasks("owner")
        loop = asyncio.get_running_loop()
        deadlines: list[asyncio.Timeout] = []

        async def beats() -> None:
            while True:
                try:
                    async with asyncio.timeout(60) as deadline:
                        deadlines.append(deadline)
                        await never_return()
                except TimeoutError:
                    pass

        beating = tasks.start(beats())
        await yield_to_loop()
        deadlines[0].reschedule(loop.time())
        for _ in range(1_000):
            if beating.cancelling():
                break
            await asyncio.sleep(0)
        assert beating.cancelling()
        async with asyncio.timeout(10):
            await tasks.close()
        assert beating.cancelled()

    run(main(), 30)
