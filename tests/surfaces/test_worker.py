"""SUR-11: whatever is asked of a kept result, the gateway goes on, and the answer comes within
bounds."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.loop import run
from kit.until import until
from mcpx.surfaces.large.kept import pack
from mcpx.surfaces.large.offload import Busy, Limits, Overrun
from mcpx.surfaces.large.preview import NOT_JSON
from mcpx.surfaces.large.reading import BadReading, Page
from mcpx.surfaces.large.shaping import ALL, Decision, decide
from mcpx.surfaces.large.worker import AT_ONCE, Worker
from mcpx.surfaces.settings import Rendering

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


HOW = Rendering(value_format="json")


async def ask(worker: Worker, text: bytes, owner: str = "ann", **arguments: Any) -> Page:
    return await worker.read(owner, pack(text), {"handle": "h", **arguments}, HOW)


async def shape(worker: Worker, *texts: str, owner: str = "ann", how: Rendering = HOW) -> Decision:
    return await worker.decide(owner, texts, None, how, alone=len(texts) == 1)


def small() -> Worker:
    return Worker(Limits(cpu_seconds=1, memory=256 << 20))


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

    async def closing() -> Any:
        try:
            return await main(used)
        finally:
            await used.close()

    return run(closing())


def test_what_is_small_is_read_at_once_and_the_rest_in_a_process(started: list[Started]) -> None:
    """SUR-11: and both read the same."""

    async def main(worker: Worker) -> None:
        page = await ask(worker, ROWS, offset=3, limit=1)
        assert page.value == [{"id": 3, "name": "Row 3"}]
        assert started == []
        assert (await ask(worker, ROWS, offset=3, limit=1, jmespath="@")).value == page.value
        assert len(MANY) > AT_ONCE
        assert (await ask(worker, MANY, grep="line 39999")).text.startswith("39999: line 39999\n")
        assert (await ask(worker, MANY, offset=1, limit=1)).text == (
            'line 1\n[mcpx: line 1 of 40,000; next: {"handle": "h", "offset": 2, "limit": 1}]'
        )
        assert len(started) == 1, "one process for all of them"

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
def test_an_expression_that_explodes_is_stopped_and_the_next_one_is_answered(
    expression: str,
) -> None:
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


def test_one_job_at_a_time_and_not_too_many_that_wait(started: list[Started]) -> None:
    """SUR-11: a crowd gets as many processes as one client."""

    async def main(worker: Worker) -> None:
        asked = [
            asyncio.create_task(ask(worker, ROWS, str(n), jmespath="length(@)")) for n in range(5)
        ]
        await asyncio.wait(asked)
        told = [str(task.exception()) for task in asked if task.exception() is not None]
        assert len(started) == 1
        assert len(told) == 2 and all("try again" in text for text in told)

    working(main, Worker(Limits(max_waiting=2)))


def test_one_owner_may_have_so_many_and_the_next_still_has_a_place() -> None:
    """SUR-11"""

    async def main(worker: Worker) -> None:
        asked = [
            asyncio.create_task(ask(worker, ROWS, "ann", jmespath="length(@)")) for _ in range(5)
        ]
        other = asyncio.create_task(ask(worker, ROWS, "bob", jmespath="length(@)"))
        await asyncio.wait([*asked, other])
        assert [task.exception() is None for task in asked] == [True, True, False, False, False]
        assert "500" in other.result().text

    working(main, Worker(Limits(max_waiting=2)))


def test_owners_take_turns() -> None:
    """SUR-11: who comes after one with many waits for one of them, not for all."""

    async def main(worker: Worker) -> None:
        order: list[str] = []

        async def asking(owner: str) -> None:
            await ask(worker, ROWS, owner, jmespath="length(@)")
            order.append(owner)

        many = [asyncio.create_task(asking("ann")) for _ in range(5)]
        await asyncio.sleep(0)
        one = asyncio.create_task(asking("bob"))
        await asyncio.wait([*many, one])
        assert order.index("bob") <= 2

    working(main)


def test_what_waits_is_bounded_in_bytes() -> None:
    """SUR-11: it is in memory as long as it waits."""
    text = "x" * 400_000

    async def main(worker: Worker) -> None:
        asked = [asyncio.create_task(shape(worker, text, owner=str(n))) for n in range(4)]
        await asyncio.wait(asked)
        assert [type(task.exception()) for task in asked] == [
            type(None),
            type(None),
            type(None),
            Busy,
        ]

    working(main, Worker(Limits(max_waiting_bytes=900_000)))


def test_who_leaves_takes_their_place_in_the_queue_along(started: list[Started]) -> None:
    """SUR-11: what was not begun is not done, and what was begun is ended."""

    async def main(worker: Worker) -> None:
        first = asyncio.create_task(ask(worker, ROWS, jmespath=EXPLOSIONS[0]))
        second = asyncio.create_task(ask(worker, ROWS, jmespath=EXPLOSIONS[0]))
        third = asyncio.create_task(ask(worker, ROWS, jmespath="length(@)"))
        await until(lambda: bool(started))
        began = time.monotonic()
        second.cancel()
        first.cancel()
        assert "500" in (await third).text
        assert time.monotonic() - began < 2.5, "it did not wait for what was cancelled"
        assert len(started) == 2
        await until(lambda: started[0].poll() is not None)
        assert worker._reading._queue.waiting == worker._reading._queue._waiting_size == 0

    working(main)


def test_leaving_in_the_turn_in_which_it_became_ones_turn_hands_it_on(
    started: list[Started],
) -> None:
    """SUR-11: nobody waits for a place that is free."""

    async def main(worker: Worker) -> None:
        first = asyncio.create_task(ask(worker, ROWS, "ann", jmespath="length(@)"))
        second = asyncio.create_task(ask(worker, ROWS, "bob", jmespath="length(@)"))
        third = asyncio.create_task(ask(worker, ROWS, "cid", jmespath="length(@)"))
        first.add_done_callback(lambda _: second.cancel())
        assert "500" in (await third).text
        assert second.cancelled()
        assert "500" in (await ask(worker, ROWS, jmespath="length(@)")).text

    working(main)


def test_a_job_that_does_not_end_is_ended(started: list[Started]) -> None:
    """SUR-11: also one that takes no processor time."""

    async def main(worker: Worker) -> None:
        with pytest.raises(BadReading, match="too much time or memory"):
            await ask(worker, ROWS, jmespath="length(@)")
        with pytest.raises(Overrun):
            await shape(worker, "x" * 300_000)

    working(main, Worker(Limits(seconds=0.001)))
    assert all(process.returncode != 0 for process in started) and started


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_died_or_hangs_harms_nobody_else(
    end: signal.Signals, started: list[Started]
) -> None:
    """SUR-11: who waits has another one."""

    async def main(worker: Worker) -> None:
        await ask(worker, ROWS, jmespath="length(@)")
        os.kill(started[0].pid, end)
        if end is signal.SIGSTOP:
            with pytest.raises(BadReading, match="too much time"):
                await ask(worker, ROWS, jmespath="length(@)")
        else:
            process = worker._reading._process
            await until(lambda: process is not None and process.returncode is not None)
        assert "500" in (await ask(worker, ROWS, jmespath="length(@)")).text
        assert len(started) == 2

    working(main, Worker(Limits(seconds=1.5)))


def test_no_process_is_kept_that_has_nothing_to_do(started: list[Started]) -> None:
    """SUR-11: it is ended when idle; the next job has another."""

    async def main(worker: Worker) -> None:
        await ask(worker, ROWS, jmespath="length(@)")
        await until(lambda: started[0].returncode is not None)
        await ask(worker, ROWS, jmespath="length(@)")
        assert len(started) == 2

    working(main, Worker(Limits(idle_seconds=0.05)))


def test_a_process_goes_with_whoever_started_it_in_the_midst_of_a_job() -> None:
    """LIF-7: though that was killed, and could not say goodbye."""
    program = f"""
import asyncio, os, signal, subprocess
from mcpx.surfaces.large.kept import pack
from mcpx.surfaces.large.worker import Worker
from mcpx.surfaces.settings import Rendering
real = subprocess.Popen
class Popen(real):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        print(self.pid, flush=True)
subprocess.Popen = Popen
async def main():
    worker = Worker()
    asked = {{"handle": "h", "jmespath": {EXPLOSIONS[0]!r}}}
    await asyncio.wait([asyncio.ensure_future(worker.read("ann", pack({ROWS!r}), asked, Rendering()))], timeout=1)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    run(until(lambda: not _is_alive(int(done.stdout)), 5))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in "ZX"  # whose child it is now, reaps it when it likes


def test_the_end_of_the_gateway_does_not_wait_for_a_job(started: list[Started]) -> None:
    """LIF-8: nor does who waited for one wait on."""

    async def main(worker: Worker) -> None:
        running = asyncio.create_task(ask(worker, ROWS, jmespath=EXPLOSIONS[0]))
        waiting = asyncio.create_task(ask(worker, ROWS, jmespath="length(@)"))
        await until(lambda: bool(started))
        began = time.monotonic()
        await worker.close()
        for task in (running, waiting):
            with pytest.raises(BadReading):
                await task
        assert time.monotonic() - began < 2
        with pytest.raises(Overrun):
            await shape(worker, "x" * 300_000)
        assert len(started) == 1, "nothing is begun any more"

    working(main)
    assert started[0].returncode != 0


def test_a_process_that_cannot_be_started_is_told_like_one_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SUR-11: no descriptors, no memory."""

    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "no process")

    monkeypatch.setattr(subprocess, "Popen", refuse)

    async def main(worker: Worker) -> None:
        with pytest.raises(Overrun):
            await shape(worker, "x" * 300_000)
        with pytest.raises(BadReading):
            await ask(worker, ROWS, jmespath="length(@)")

    working(main)


SHAPED: list[tuple[list[str], bool]] = [
    ([json.dumps([{"id": n, "name": f"row {n}"} for n in range(20_000)])], True),
    ([json.dumps([{"id": n, "name": f"row {n}"} for n in range(20_000)], indent=2)], True),
    (["line\n" * 100_000], True),
    (["字" * 200_000, "short"], False),
    (["x" * 300_000, "y" * 300_000, '{"a":   1}'], False),
    (['{"a":   1}', "x" * 300_000], False),
    (["\ud83d" + "x" * 300_000], True),
    ([*(f"part {n}" for n in range(900)), "z" * 300_000], False),
]


@pytest.mark.parametrize(("texts", "alone"), SHAPED, ids=range(len(SHAPED)))
@pytest.mark.parametrize(
    "how", [HOW, Rendering(), Rendering(result_limit=1_000_000)], ids=["json", "toon", "roomy"]
)
def test_the_same_is_decided_in_either_process(
    texts: list[str], alone: bool, how: Rendering
) -> None:
    """SUR-7, SUR-11: what is kept, what is shown of it, and what is rendered anew."""

    async def main(worker: Worker) -> None:
        here = decide(texts, None, how, alone=alone)
        there = await worker.decide("ann", texts, None, how, alone=alone)
        assert (there.piece, there.place, there.says_own) == (here.piece, here.place, here.says_own)
        assert (there.value is NOT_JSON) == (here.value is NOT_JSON)
        if here.place == ALL or here.piece is None:
            assert list(there.shown) == list(here.shown)

    working(main)


def test_a_job_of_ten_megabytes_does_not_hold_up_the_loop() -> None:
    """SUR-11: neither when it is sent nor when it comes back."""
    text = "".join(f"line {number} of a log\n" for number in range(500_000))
    assert len(text) > 10_000_000

    async def main(worker: Worker) -> None:
        await shape(worker, "x" * 300_000)
        job = asyncio.create_task(shape(worker, text))
        longest, last = 0.0, time.process_time()
        while not job.done():
            await asyncio.sleep(0)
            longest, last = max(longest, time.process_time() - last), time.process_time()
        piece = job.result().piece
        assert piece is not None and piece.size == len(text)
        assert longest < 0.05, f"{longest * 1000:.0f} ms of our own time in one turn"

    working(main)


def test_modules_in_the_folder_of_the_gateway_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threats: mcpx is started in folders that others may write to."""
    (tmp_path / "jmespath.py").write_text("open('run', 'w')")
    monkeypatch.chdir(tmp_path)

    async def main(worker: Worker) -> None:
        assert "500" in (await ask(worker, ROWS, jmespath="length(@)")).text

    working(main)
    assert not (tmp_path / "run").exists()
