"""OBS-1: the audit log file is private, is rotated, and never blocks a call."""

import asyncio
import json
import logging
import os
import shutil
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from kit.loop import run
from kit.until import until
from mcpx.base import jsonl_file
from mcpx.base.jsonl_file import JsonlFile, Options, backup_path
from mcpx.model.redaction import Redactor

LARGE_TEXT = "x" * 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def short_flush_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_file, "FLUSH_INTERVAL_SECONDS", 0.001)


def numbered_rows(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"number": number, **fields} for number in range(count)]


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines() if line]


def encoded(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def open_file(
    path: Path, max_bytes: int = 10**9, backup_count: int = 5, **options: Any
) -> JsonlFile:
    return JsonlFile(path, Options(max_bytes=max_bytes, backup_count=backup_count, **options))


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def close_and_join(file: JsonlFile) -> None:
    file.close()
    file.join()


def write_file(
    path: Path,
    *rows: dict[str, Any],
    max_bytes: int = 10**9,
    backup_count: int = 5,
    **options: Any,
) -> JsonlFile:
    """Write rows with a new `JsonlFile`, and wait until each row is on disk or lost."""

    async def main() -> JsonlFile:
        file = open_file(path, max_bytes, backup_count, **options)
        for row in rows:
            file.write(encoded(row), is_redacted=False)
        close_and_join(file)
        return file

    return run(main())


async def write_and_wait(file: JsonlFile, *rows: dict[str, Any]) -> None:
    for row in rows:
        file.write(encoded(row), is_redacted=False)
    await until(lambda: file.pending_bytes == 0)


def test_writes_rows_in_order_to_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.jsonl"
    rows = numbered_rows(1000)
    write_file(path, *rows)
    assert read_rows(path) == rows
    assert permissions(path) == 0o600
    assert permissions(path.parent) == 0o700


def test_makes_an_existing_file_private(path: Path) -> None:
    path.write_text('{"before":1}\n')
    path.chmod(0o644)
    write_file(path, {"after": 2})
    assert permissions(path) == 0o600
    assert read_rows(path) == [{"before": 1}, {"after": 2}]


def test_starts_a_new_line_after_a_partial_row(path: Path) -> None:
    path.write_text('{"partial":')
    write_file(path, {"number": 0})
    assert path.read_text().splitlines() == ['{"partial":', '{"number":0}']


@pytest.mark.parametrize("backup_count", [0, 1, 3])
def test_rotation_keeps_the_configured_number_of_backups(path: Path, backup_count: int) -> None:
    for number in range(6):
        row = {"number": number, "text": LARGE_TEXT}
        write_file(path, row, max_bytes=50, backup_count=backup_count)
    backups = [backup_path(path, number) for number in range(1, backup_count + 1)]
    assert sorted(path.parent.iterdir()) == sorted(backups)
    assert [read_rows(backup)[0]["number"] for backup in backups] == [5, 4, 3][:backup_count]
    assert all(permissions(backup) == 0o600 for backup in backups)


def test_rotation_deletes_backups_beyond_a_reduced_backup_count(path: Path) -> None:
    for backup_count in (4, 4, 4, 4, 2):
        write_file(path, {"text": LARGE_TEXT}, max_bytes=50, backup_count=backup_count)
    assert sorted(path.parent.iterdir()) == [backup_path(path, 1), backup_path(path, 2)]


def test_file_keeps_growing_and_logs_one_error_if_rotation_fails(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    non_empty_folder = backup_path(path, 1)
    (non_empty_folder / "entry").mkdir(parents=True)
    batches = [numbered_rows(10, batch=batch) for batch in range(3)]

    async def main() -> None:
        file = open_file(path, 100, 1)
        for batch in batches:
            await write_and_wait(file, *batch)
        close_and_join(file)
        assert file.lost_rows == 0

    run(main())
    assert read_rows(path) == [row for batch in batches for row in batch]
    [message] = caplog.messages
    assert message.startswith(f"Cannot rotate {path}: ")


def test_rotation_of_an_append_only_file_keeps_the_backups(path: Path) -> None:
    for number in (1, 2, 3):
        backup_path(path, number).write_text(f'{{"backup":{number}}}\n')
    path.touch(0o600)
    command = ["chattr", "+a", path]
    if shutil.which("chattr") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("chattr cannot make a file append-only")
    try:
        for _ in range(5):
            file = write_file(path, *numbered_rows(10), max_bytes=100)
            assert file.lost_rows == 0
        assert len(read_rows(path)) == 50
        for number in (1, 2, 3):
            assert read_rows(backup_path(path, number)) == [{"backup": number}]
    finally:
        subprocess.run(["chattr", "-a", path], check=True)


@pytest.mark.usefixtures("short_flush_interval")
def test_several_writers_of_one_file_lose_no_rows(path: Path) -> None:
    rows = numbered_rows(400, text=LARGE_TEXT)

    async def main() -> None:
        files = [open_file(path, 4_000, 50) for _ in range(4)]
        for row in rows:
            files[row["number"] % 4].write(encoded(row), is_redacted=False)
            if row["number"] % 40 == 39:
                await asyncio.sleep(0.002)
        for file in files:
            close_and_join(file)

    run(main())
    written = [row["number"] for each in path.parent.iterdir() for row in read_rows(each)]
    assert sorted(written) == list(range(400))


@pytest.mark.usefixtures("short_flush_interval")
def test_slow_disk_does_not_block_writes_and_dropped_rows_are_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_is_ready = threading.Event()
    os_write = os.write

    def slow_write(fd: int, data: memoryview) -> int:
        disk_is_ready.wait(10)
        return os_write(fd, data)

    monkeypatch.setattr(jsonl_file, "MAX_PENDING_BYTES", 10_000)
    monkeypatch.setattr(jsonl_file.os, "write", slow_write)

    async def main() -> int:
        file = open_file(path, 10**9, 1)
        for row in numbered_rows(1000, text=LARGE_TEXT):
            file.write(encoded(row), is_redacted=False)
        await asyncio.sleep(0.01)
        assert file.lost_rows > 800
        disk_is_ready.set()
        await until(lambda: file.pending_bytes == 0)
        file.write(encoded({"number": "last"}), is_redacted=False)
        close_and_join(file)
        return file.lost_rows

    lost_rows = run(main())
    *written, dropped, last = read_rows(path)
    del dropped["time"]
    assert dropped == {"event": "dropped", "count": lost_rows}
    assert last == {"number": "last"}
    assert len(written) + lost_rows == 1000


@pytest.mark.usefixtures("short_flush_interval")
def test_write_errors_are_logged_once_and_failed_rows_are_counted(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path.mkdir()

    async def main() -> None:
        file = open_file(path, 10**9, 1)
        for row in numbered_rows(3):
            await write_and_wait(file, row)
        os.rmdir(path)
        file.write(encoded({"number": 3}), is_redacted=False)
        close_and_join(file)
        assert file.lost_rows == 3

    run(main())
    error, recovered = caplog.messages
    assert error.startswith(f"Cannot write {path}: ")
    assert recovered == f"Writing to {path} works again."
    dropped, row = read_rows(path)
    del dropped["time"]
    assert dropped == {"event": "dropped", "count": 3}
    assert row == {"number": 3}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_rejects_a_named_pipe_and_a_symbolic_link(tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    link.symlink_to(target)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert write_file(pipe, {"number": 0}).lost_rows == 1
        assert write_file(link, {"number": 0}).lost_rows == 1
    finally:
        os.close(reader)
    assert not target.exists()


def test_rejects_a_private_folder_that_other_users_can_write_to(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    folder.chmod(0o777)
    file = write_file(folder / "audit.jsonl", {"number": 0}, require_private_folder=True)
    assert file.lost_rows == 1


def test_redacts_secrets_in_keys_and_values(path: Path) -> None:
    redactor = Redactor()
    redactor.learn("config", ["s3cr3t"])
    row = {"arguments": {"s3cr3t": "a s3cr3t", "limit": 5}}
    write_file(path, {"plain": 1}, row, redactor=redactor)
    assert read_rows(path) == [{"plain": 1}, {"arguments": {"***": "a ***", "limit": 5}}]
