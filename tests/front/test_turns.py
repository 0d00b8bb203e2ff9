"""Long work in short turns of the loop."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from kit.loop import run
from kit.until import until
from mcpx.front.turns import AT_ONCE, Turns


def steps(done: list[int], count: int, seconds: float = 0.0) -> Iterator[None]:
    for n in range(count):
        if seconds:
            time.sleep(seconds)  # work that takes as long
        done.append(n)
        yield


def test_a_little_is_done_at_once_without_any_loop() -> None:
    done: list[int] = []
    Turns().do(steps(done, AT_ONCE))
    assert len(done) == AT_ONCE


def test_long_work_leaves_turns_to_others_and_keeps_its_order() -> None:
    async def main() -> None:
        turns, done = Turns(), list[int]()
        turns.do(steps(done, 500, 0.0005))
        turns.do(steps(done, 3))
        assert AT_ONCE <= len(done) < 200
        seen = {len(done)}
        while turns:
            await asyncio.sleep(0)
            seen.add(len(done))
        assert len(seen) > 10  # somebody else had a turn in between, again and again
        assert done == [*range(500), *range(3)]

    run(main())


def test_work_that_fails_is_logged_and_other_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        turns, done = Turns(), list[int]()

        def broken() -> Iterator[None]:
            yield
            raise KeyError("a bug")

        turns.do(broken())
        turns.do(steps(done, 5))
        await until(lambda: not turns)
        assert done == [0, 1, 2, 3, 4]

    run(main())
    assert "work in turns failed" in caplog.text


def test_work_given_while_other_work_is_done_comes_after_it() -> None:
    turns, done = Turns(), list[int]()

    def first() -> Iterator[None]:
        done.append(-1)
        turns.do(steps(done, 2))
        yield
        done.append(-2)
        yield

    turns.do(first())
    assert done == [-1, -2, 0, 1]
