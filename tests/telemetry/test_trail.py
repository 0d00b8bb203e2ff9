"""OBS-1: the file that rows go to: private, turned over, never in the way of a call."""

import asyncio
import json
import logging
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpx.telemetry import trail as module
from mcpx.telemetry.trail import Trail, older


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines() if line.strip()]


def written(file: Path, work: Callable[[Trail], None], max_bytes: int = 10**9, keep: int = 5, **more: Any) -> Trail:
    async def run() -> Trail:
        trail = Trail(file, max_bytes, keep, **more)
        work(trail)
        trail.finish()
        trail.wait()
        return trail

    return asyncio.run(run())


def some(count: int, **facts: Any) -> Callable[[Trail], None]:
    def work(trail: Trail) -> None:
        for number in range(count):
            trail.write({"number": number, **facts}, "now")

    return work


def test_rows_come_in_their_order_into_a_file_of_the_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "trail.jsonl"
    written(file, some(1000))
    assert [row["number"] for row in rows(file)] == list(range(1000))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"
    file.write_text('{"before":1}\n')
    file.chmod(0o644)
    written(file, some(1))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert rows(file) == [{"before": 1}, {"number": 0}]


def test_a_row_that_was_cut_off_does_not_spoil_the_next(tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"
    file.write_text('{"half":')
    written(file, some(1))
    assert file.read_text().splitlines() == ['{"half":', '{"number":0}']


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_a_full_file_is_turned_over_and_so_many_are_kept(tmp_path: Path, keep: int) -> None:
    file = tmp_path / "trail.jsonl"
    for number in range(6):
        written(file, some(1, round=number, text="x" * 100), max_bytes=50, keep=keep)
    kept = [older(file, number) for number in range(1, keep + 1)]
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    assert [rows(each)[0]["round"] for each in kept] == [5, 4, 3][:keep]
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in kept)


def test_fewer_files_are_kept_once_fewer_are_wanted(tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"
    for keep in (4, 4, 4, 4, 2):
        written(file, some(1, text="x" * 100), max_bytes=50, keep=keep)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trail.jsonl.1", "trail.jsonl.2"]


def test_a_file_that_cannot_be_turned_over_grows_on_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "trail.jsonl"
    (older(file, 1) / "in the way").mkdir(parents=True)

    async def run() -> None:
        trail = Trail(file, 100, 1)
        for turn in range(3):
            some(10, turn=turn)(trail)
            await done_with(trail)
        trail.finish()
        trail.wait()
        assert trail.lost == 0

    asyncio.run(run())
    assert [(row["turn"], row["number"]) for row in rows(file)] == [(turn, n) for turn in range(3) for n in range(10)]
    [told] = [record.getMessage() for record in caplog.records]
    assert "cannot be turned over" in told and "grows on" in told


def test_the_older_files_stay_where_the_file_is_append_only(tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"
    for number in (1, 2, 3):
        older(file, number).write_text(f'{{"old":{number}}}\n')
    file.touch(0o600)
    if shutil.which("chattr") is None or subprocess.run(["chattr", "+a", file], capture_output=True).returncode:
        pytest.skip("no file can be made append-only here")
    try:
        for _ in range(5):
            assert written(file, some(10), max_bytes=100).lost == 0
        assert len(rows(file)) == 50
        assert all(rows(older(file, number)) == [{"old": number}] for number in (1, 2, 3))
    finally:
        subprocess.run(["chattr", "-a", file], check=True)


def test_two_that_write_to_one_trail_lose_nothing_and_turn_it_over_once(tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"

    async def run() -> None:
        trails = [Trail(file, 4_000, 50) for _ in range(4)]
        for number in range(400):
            trails[number % 4].write({"number": number, "text": "x" * 50}, "now")
            if number % 40 == 39:
                for trail in trails:
                    trail._hand_over()
                await asyncio.sleep(0.002)
        for trail in trails:
            trail.finish()
            trail.wait()

    asyncio.run(run())
    found = sorted(row["number"] for path in tmp_path.iterdir() for row in rows(path))
    assert found == list(range(400))


async def done_with(trail: Trail) -> None:
    """Until the thread is done with all that was handed in; nobody announces it."""
    async with asyncio.timeout(10):
        while trail._taken != trail._done:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_a_slow_disk_holds_nobody_up_and_what_found_no_room_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10_000)
    monkeypatch.setattr(module, "GATHER", 0.001)
    file, disk = tmp_path / "trail.jsonl", threading.Event()
    write = os.write

    def slow(handle: int, data: Any) -> int:
        disk.wait(10)
        return write(handle, data)

    monkeypatch.setattr(module.os, "write", slow)

    async def run() -> Trail:
        trail = Trail(file, 10**9, 1)
        for number in range(1000):
            trail.write({"number": number, "text": "x" * 100}, "now")
        await asyncio.sleep(0.01)
        assert trail.lost > 800
        disk.set()
        await done_with(trail)
        trail.write({"number": "last"}, "later")
        trail.finish()
        trail.wait()
        return trail

    trail = asyncio.run(run())
    found = rows(file)
    assert found[-2:] == [{"time": "later", "event": "dropped", "count": trail.lost}, {"number": "last"}]
    assert len(found) - 2 + trail.lost == 1000


def test_a_file_that_cannot_be_written_is_said_once_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GATHER", 0.001)
    file = tmp_path / "trail.jsonl"
    file.mkdir()

    async def run() -> Trail:
        trail = Trail(file, 10**9, 1)
        for number in range(3):
            trail.write({"number": number}, "now")
            await done_with(trail)
        file.rmdir()
        trail.write({"number": 3}, "now")
        trail.finish()
        trail.wait()
        return trail

    with caplog.at_level(logging.WARNING):
        trail = asyncio.run(run())
    assert trail.lost == 3
    assert len([record for record in caplog.records if "cannot be written" in record.getMessage()]) == 1
    first, second = rows(file)
    assert (first["event"], first["count"], second) == ("dropped", 3, {"number": 3})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes by name")
def test_a_pipe_or_a_link_in_its_place_is_refused_and_nobody_waits(tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    link.symlink_to(target)
    try:
        assert written(pipe, some(1)).lost == 1
        assert written(link, some(1)).lost == 1
    finally:
        os.close(reader)
    assert not target.exists()


def test_a_folder_of_ours_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    folder.chmod(0o777)
    assert written(folder / "trail.jsonl", some(1), private=True).lost == 1


class Blots:
    """A redactor that knows one secret."""

    edition = 0

    def redact(self, text: str) -> str:
        return text.replace("s3cr3t", "***")

    def redact_json(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.redact(key): self.redact_json(its) for key, its in value.items()}
        return self.redact(value) if isinstance(value, str) else value


def test_what_is_known_to_be_secret_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"

    def work(trail: Trail) -> None:
        trail.write({"plain": 1}, "now")
        trail.write({"deep": {"s3cr3t": "a s3cr3t", "n": 5}}, "now")

    written(file, work, redactor=Blots())
    assert rows(file) == [{"plain": 1}, {"deep": {"***": "a ***", "n": 5}}]


def test_rows_that_no_json_can_say_do_not_end_the_trail(tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"

    def work(trail: Trail) -> None:
        trail.write({"what": object()}, "now")
        trail.write({"emoji": "\ud83d", "large": 10**30}, "now")

    written(file, work)
    assert rows(file) == [{"time": "now", "event": "unwritable"}, {"emoji": "\ud83d", "large": 10**30}]
