"""OBS-2: a check of the audit log finds rows that are missing or were changed."""

import asyncio
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpx.base import jsonl_file
from mcpx.base.jsonl_file import JsonlFile, Options, backup_path
from mcpx.telemetry import chain
from mcpx.telemetry.chain import Chain, Line, Report, check, numbered

KEY = b"0123456789abcdef0123456789abcdef"


def write(
    file: Path, rows: int, *, key: bytes | None = KEY, writer: str = "r1", max_bytes: int = 1 << 20
) -> None:
    """Write rows as one process does."""

    async def run() -> None:
        log = JsonlFile(
            file,
            Options(max_bytes=max_bytes, backup_count=5, build_chain=lambda: Chain(writer, key)),
        )
        for number in range(rows):
            await log.write_now(
                b'{"time":"2026-01-01T00:00:00.000Z","event":"call","n":%d}\n' % number,
                is_redacted=True,
            )
        log.close()
        log.join()

    asyncio.run(run())


def files_of(file: Path) -> list[Path]:
    return [
        path
        for path in [*(backup_path(file, number) for number in range(9, 0, -1)), file]
        if path.exists()
    ]


def checked(file: Path, key: bytes | None = KEY) -> Report:
    def lines() -> list[Line]:
        paths = files_of(file)
        return [
            line
            for path in paths
            for line in numbered(path.name, path.read_bytes().splitlines(keepends=True))
        ]

    return check(lines(), key)


def edit(file: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


def test_rows_of_several_processes_and_files_are_found_whole(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    for writer in ("r1", "r2", "r1"):
        write(file, 20, writer=writer, max_bytes=2000)
    report = checked(file)
    assert len(files_of(file)) > 3 and report.problems == () and report.chains == 3


def test_rows_of_an_earlier_version_are_counted_as_unprotected(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_bytes(b'{"time":"2026-01-01T00:00:00.000Z","event":"call"}\n' * 3)
    write(file, 3)
    assert checked(file).problems == () and checked(file).unprotected == 3


@pytest.mark.parametrize("key", [KEY, None], ids=["key", "no key"])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda rows: [*rows[:4], rows[4].replace(b'"n":3', b'"n":9'), *rows[5:]],
            "audit.jsonl:5: the row was changed",
        ),
        (lambda rows: [*rows[:4], *rows[5:]], "are missing before it: 1"),
        (lambda rows: [rows[0], *rows[5:]], "are missing before it: 4"),
        (lambda rows: rows[3:], "does not begin with its first row"),
        (lambda rows: [*rows[:3], rows[4], rows[3], *rows[5:]], "missing before it"),
        (lambda rows: [*rows[:4], rows[3], *rows[4:]], "out of order"),
        (lambda rows: [*rows[:4], b'{"event":"call","n":3}\n', *rows[4:]], "in no chain"),
        (lambda rows: [*rows[:4], rows[4][:-30] + b"\n", *rows[5:]], "are missing before it: 1"),
    ],
)
def test_a_deleted_changed_or_inserted_row_is_found(
    tmp_path: Path, key: bytes | None, change: Callable[[list[bytes]], list[bytes]], problem: str
) -> None:
    file = tmp_path / "audit.jsonl"
    write(file, 10, key=key)
    edit(file, change)
    problems = checked(file, key).problems
    assert len(problems) >= 1 and problem in problems[0]


@pytest.mark.parametrize("where", ["chain", "file"])
def test_removing_the_end_of_an_earlier_chain_or_file_is_found(tmp_path: Path, where: str) -> None:
    """The next chain, and the next file, name the last row before them."""
    file = tmp_path / "audit.jsonl"
    write(file, 10)
    if where == "chain":
        write(file, 10, writer="r2")
        edit(file, lambda rows: [*rows[:8], *rows[11:]])
    else:
        write(file, 60, max_bytes=3000)
        edit(backup_path(file, 2), lambda rows: rows[:-2])
    assert any("missing" in problem for problem in checked(file).problems)


def test_a_whole_file_in_the_middle_cannot_be_removed(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    write(file, 100, max_bytes=3000)
    backup_path(file, 2).unlink()
    backup_path(file, 3).rename(backup_path(file, 2))
    assert any("missing" in problem for problem in checked(file).problems)


def test_with_another_key_the_check_names_the_cause(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    write(file, 3)
    (problem,) = checked(file, None).problems
    assert "another MCPX_KEY" in problem


def test_a_log_without_its_oldest_chain_is_reported_as_incomplete(tmp_path: Path) -> None:
    """Retention leaves the same log, so it is not a problem."""
    file = tmp_path / "audit.jsonl"
    write(file, 3)
    write(file, 3, writer="r2")
    assert not checked(file).has_earlier
    edit(file, lambda rows: rows[4:])
    report = checked(file)
    assert report.has_earlier and report.problems == ()


def test_rows_after_a_full_disk_begin_a_new_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may have taken some rows of the batch, so the old chain cannot be continued."""
    file = tmp_path / "audit.jsonl"
    write_bytes = os.write

    def fill_up(handle: int, data: memoryview) -> int:
        if b'"n":2' in bytes(data):
            write_bytes(handle, data[:40])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(handle, data)

    monkeypatch.setattr(jsonl_file.os, "write", fill_up)
    write(file, 6)
    rows = [json.loads(line) for line in file.read_bytes().splitlines() if line.endswith(b"}")]
    assert [row["event"] for row in rows].count(chain.OPENED) == 2 and checked(file).problems == ()


def test_a_new_file_begins_each_day_and_old_ones_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.jsonl"

    def write_on(day: str) -> None:
        async def run() -> None:
            log = JsonlFile(file, Options(max_bytes=1 << 20, backup_count=9, max_days=2))
            await log.write_now(b'{"time":"%s","event":"call"}\n' % day.encode(), is_redacted=True)
            log.close()
            log.join()

        monkeypatch.setattr(jsonl_file, "today", lambda: day[:10])
        asyncio.run(run())

    for day in ("2026-01-01T12:00:00.000Z", "2026-01-01T13:00:00.000Z", "2026-01-02T00:00:00.000Z"):
        write_on(day)
    assert [len(path.read_bytes().splitlines()) for path in files_of(file)] == [2, 1]
    os.utime(backup_path(file, 1), (0, 0))
    write_on("2026-01-03T00:00:00.000Z")
    assert b"2026-01-01" not in b"".join(path.read_bytes() for path in files_of(file))
