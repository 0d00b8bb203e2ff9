"""SUR-11: whatever is asked of a kept result, the gateway goes on, and the answer comes within bounds."""

import asyncio
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures.parts import run, until
from mcpx.surfaces.large import worker as module
from mcpx.surfaces.large.kept import Kept
from mcpx.surfaces.large.pages import BadReading, Page
from mcpx.surfaces.large.worker import AT_ONCE, Worker

ROWS = b"[" + b",".join(b'{"id":%d,"name":"Row %d"}' % (n, n) for n in range(500)) + b"]"
MANY = b"\n".join(b"line %d" % n for n in range(40_000))
DOUBLED = "[@, @]" + " | [@, @]" * 50
EXPLOSIONS = [
    "[@, @][]" + " | [@, @][]" * 50,
    f"{DOUBLED} | to_string(@)",
    "to_string(@) | " + "join(@, [@, @, @]) | " * 30 + "length(@)",
    f"[{DOUBLED}, {DOUBLED}] | [0] == [1]",
    "[*].*[]" + " | [@, @, @][]" * 20,
    " | ".join(["reverse([@, @][])"] * 50),
]


def kept(text: bytes) -> Kept:
    return Kept(zlib.compress(text, 1), len(text))


async def ask(worker: Worker, text: bytes, **arguments: Any) -> Page:
    return await worker.read(kept(text), {"handle": "h", **arguments}, 16_000, False, 3)


def small() -> Worker:
    return Worker(processor=1, memory=256 << 20)


class Started(subprocess.Popen[bytes]):
    """Notes the processes that are started."""

    every: "list[Started]"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.every.append(self)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    Started.every = []
    monkeypatch.setattr(subprocess, "Popen", Started)
    return Started.every


def working(main: Callable[[Worker], Any], worker: Worker | None = None) -> Any:
    used = worker or Worker()
    try:
        return run(main(used))
    finally:
        used.close()


def test_what_is_small_is_read_at_once_and_the_rest_in_a_process(started: list[Started]) -> None:
    """SUR-11: and both read the same."""

    async def main(worker: Worker) -> None:
        page = await ask(worker, ROWS, offset=3, limit=1)
        assert page.value == [{"id": 3, "name": "Row 3"}]
        assert started == []
        assert await ask(worker, ROWS, offset=3, limit=1, jmespath="@") == page
        assert len(MANY) > AT_ONCE
        assert (await ask(worker, MANY, grep="line 39999")).text.startswith("39999: line 39999\n")
        assert (await ask(worker, MANY, offset=1, limit=1)).text == "line 1\n[line 1 of 40,000; next: offset=2]"
        assert [process.returncode for process in started] == [0, 0, 0]

    working(main)


def test_values_come_out_of_the_process_as_they_are() -> None:
    """SUR-11: large integers, half an emoji, nothing."""

    async def main(worker: Worker) -> None:
        text = b'[123456789012345678901234567890, "\\ud83d", null, 1.5, {"a": []}]'
        page = await ask(worker, text, jmespath="@")
        assert page.value == [123456789012345678901234567890, "\ud83d", None, 1.5, {"a": []}]

    working(main)


@pytest.mark.parametrize("value", [[], {}, 5, 10**400, "x" * 2_000])
def test_what_no_schema_has_judged_is_judged_here(value: Any) -> None:
    """SUR-11"""
    deep: Any = value
    for _ in range(5_000):
        deep = [deep]

    async def main(worker: Worker) -> None:
        for given in (value, deep):
            with pytest.raises(BadReading, match="jmespath"):
                await ask(worker, ROWS, jmespath=given)
            with pytest.raises(BadReading, match="offset"):
                await ask(worker, MANY, offset=[given])

    working(main)


def test_a_mistake_is_told_from_the_process_as_from_here() -> None:
    """SUR-11"""

    async def main(worker: Worker) -> None:
        with pytest.raises(BadReading, match="syntax error at position 1"):
            await ask(worker, ROWS, jmespath="[")
        with pytest.raises(BadReading, match="past the end"):
            await ask(worker, MANY, offset=50_000)

    working(main)


@pytest.mark.parametrize("expression", EXPLOSIONS)
def test_an_expression_that_explodes_is_stopped_and_the_next_one_is_answered(expression: str) -> None:
    """SUR-11: by its time or its memory, and the model is told. Meanwhile the gateway goes on."""

    async def main(worker: Worker) -> None:
        exploding = asyncio.create_task(ask(worker, ROWS, jmespath=expression))
        turns = 0
        while not exploding.done():
            turns += 1
            await asyncio.sleep(0.01)
        with pytest.raises(BadReading, match="too much time or memory"):
            exploding.result()
        assert turns > 3
        assert "0" in (await ask(worker, ROWS, jmespath="[0].id")).text

    working(main, small())


def test_a_search_through_an_endless_answer_is_stopped() -> None:
    """SUR-11"""

    async def main(worker: Worker) -> None:
        with pytest.raises(BadReading, match="too much time or memory"):
            await ask(worker, ROWS, jmespath=DOUBLED, grep="nothing like it")

    working(main, small())


def test_one_reading_at_a_time_and_not_too_many_that_wait(
    started: list[Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SUR-11: a crowd gets as many processes as one client."""
    monkeypatch.setattr(module, "MOST_WAITING", 3)

    async def main(worker: Worker) -> None:
        asked = [asyncio.create_task(ask(worker, ROWS, jmespath="length(@)")) for _ in range(5)]
        alive = 0
        while not all(task.done() for task in asked):
            alive = max(alive, sum(process.returncode is None for process in started))
            await asyncio.sleep(0.005)
        told = [str(task.exception()) for task in asked if task.exception() is not None]
        assert alive == 1 and len(started) == 3
        assert len(told) == 2 and all("try again" in text for text in told)

    working(main)


def test_who_leaves_takes_their_place_in_the_queue_along(started: list[Started]) -> None:
    """SUR-11: what was not begun is not done."""

    async def main(worker: Worker) -> None:
        first = asyncio.create_task(ask(worker, ROWS, jmespath="length(@)"))
        second = asyncio.create_task(ask(worker, ROWS, jmespath="length(@)"))
        await asyncio.sleep(0)
        second.cancel()
        assert "500" in (await first).text
        assert len(started) == 1

    working(main)


def test_a_reading_that_does_not_end_is_ended(started: list[Started]) -> None:
    """SUR-11: also one that takes no processor time."""

    async def main(worker: Worker) -> None:
        with pytest.raises(BadReading, match="too much time or memory"):
            await ask(worker, ROWS, jmespath="length(@)")

    working(main, Worker(longest=0.001))
    assert started[0].returncode != 0


def test_the_end_of_the_gateway_does_not_wait_for_a_reading(started: list[Started]) -> None:
    """LIF-8"""

    async def main(worker: Worker) -> None:
        task = asyncio.create_task(ask(worker, ROWS, jmespath=EXPLOSIONS[0]))
        await until(lambda: bool(started))
        began = time.monotonic()
        worker.close()
        with pytest.raises(BadReading):
            await task
        assert time.monotonic() - began < 2

    working(main)
    assert started[0].returncode != 0


def test_modules_in_the_folder_of_the_gateway_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threats: mcpx is started in folders that others may write to."""
    (tmp_path / "jmespath.py").write_text("open('run', 'w')")
    monkeypatch.chdir(tmp_path)

    async def main(worker: Worker) -> None:
        assert "500" in (await ask(worker, ROWS, jmespath="length(@)")).text

    working(main)
    assert not (tmp_path / "run").exists()
