"""OBS-2: attacks on the audit log, by a program that can write to its files, by clients, and by
collectors."""

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from kit.loop import run
from mcpx.base import jsonl_file
from mcpx.base.jsonl_file import JsonlFile, Options, backup_path
from mcpx.cli import audit as command
from mcpx.config import Audit
from mcpx.model.call import Call, Caller
from mcpx.model.events import Bus, Passage
from mcpx.model.offer import Offer
from mcpx.telemetry import audit, audit_sink, exporter
from mcpx.telemetry.audit import AuditLog
from mcpx.telemetry.chain import Chain, Report, check

KEY = b"0123456789abcdef0123456789abcdef"
ROW = b'{"time":"2026-01-01T00:00:00.000Z","event":"call","n":%d}\n'


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run_test(**fixtures: Any) -> None:
        run(test(**fixtures))

    return run_test


class Writer:
    """A process that writes to the log."""

    def __init__(self, file: Path, name: str, max_bytes: int = 1 << 20) -> None:
        self._file = JsonlFile(
            file,
            Options(max_bytes=max_bytes, backup_count=9, build_chain=lambda: Chain(name, KEY)),
        )

    async def write(self, rows: int) -> None:
        for number in range(rows):
            await self._file.write_now(ROW % number, is_redacted=True)

    def end(self) -> None:
        self._file.close()
        self._file.join()


@contextlib.contextmanager
def writer(file: Path, name: str, max_bytes: int = 1 << 20) -> Iterator[Writer]:
    made = Writer(file, name, max_bytes)
    try:
        yield made
    finally:
        made.end()


def verified(file: Path) -> Report:
    return check(command._all_lines(file), KEY)


def keep_lines(file: Path, text: bytes, *, wanted: bool) -> None:
    """Remove the lines of a file that contain a text, or all others."""
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for line in lines if (text in line) == wanted))


# A program that can write to the files, and does not know the key
# -----------------------------------------------


@pytest.mark.parametrize("removed", ["the whole chain", "its end"])
@in_loop
async def test_rows_of_an_ended_process_cannot_be_removed_while_another_continues(
    tmp_path: Path, removed: str
) -> None:
    file = tmp_path / "audit.jsonl"
    with writer(file, "stays") as stays:
        await stays.write(3)
        with writer(file, "ends") as ends:
            await ends.write(3)
        await stays.write(3)
    assert verified(file).problems == ()
    if removed == "its end":
        lines = file.read_bytes().splitlines(keepends=True)
        last = next(line for line in reversed(lines) if b'"chain":"ends-' in line)
        file.write_bytes(b"".join(line for line in lines if line != last))
    else:
        keep_lines(file, b'"chain":"ends-', wanted=False)
    assert any("rows of another process" in problem for problem in verified(file).problems)


@pytest.mark.parametrize("how", ["unlink", "rename"])
@in_loop
async def test_the_file_cannot_be_removed_under_a_process_that_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The older files have no rows of this process, so no number is missing in them."""
    file = tmp_path / "audit.jsonl"
    with writer(file, "earlier", max_bytes=200) as earlier:
        await earlier.write(2)
    assert backup_path(file, 1).exists() and not file.exists()
    monkeypatch.setattr(jsonl_file, "_now", lambda: "2099-01-01T00:00:00.000Z")
    with writer(file, "present") as present:
        await present.write(3)
        file.unlink() if how == "unlink" else file.rename(tmp_path / "elsewhere")
        await present.write(3)
    assert any("a file was removed or renamed" in problem for problem in verified(file).problems)


@in_loop
async def test_an_older_file_cannot_be_removed(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with writer(file, "r1", max_bytes=2000) as made:
        await made.write(60)
    assert backup_path(file, 4).exists() and verified(file).problems == ()
    backup_path(file, 2).unlink()
    assert any("missing" in problem for problem in verified(file).problems)


@in_loop
async def test_rows_cannot_be_replaced_by_rows_without_a_chain(tmp_path: Path) -> None:
    """As an earlier version has written them."""
    file = tmp_path / "audit.jsonl"
    for _ in range(2):
        with writer(file, "r1") as made:
            await made.write(3)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([ROW % number for number in range(3)] + lines[4:]))
    assert any("the rows before it are missing" in problem for problem in verified(file).problems)


@in_loop
async def test_a_chain_of_another_log_cannot_be_inserted(tmp_path: Path) -> None:
    file, other = tmp_path / "audit.jsonl", tmp_path / "other.jsonl"
    for each in (file, other):
        with writer(each, each.stem) as made:
            await made.write(3)
    file.write_bytes(file.read_bytes() + other.read_bytes())
    assert any("the rows before it are missing" in problem for problem in verified(file).problems)


@in_loop
async def test_a_member_of_a_forged_row_cannot_stop_the_check(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with writer(file, "r1") as made:
        await made.write(1)
    mac = b'"mac":"%s"}\n' % (b"0" * 32)
    forged = [
        b'{"event":"call","chain":"x","number":1,"after":[{}],',
        b'{"event":"opened","chain":"y","number":true,',
    ]
    file.write_bytes(file.read_bytes() + b"".join(start + mac for start in forged))
    assert len(verified(file).problems) >= 2


@in_loop
async def test_processes_that_write_and_rotate_together_cause_no_false_report(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit.jsonl"
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(writer(file, f"r{number}", max_bytes=4000)) for number in range(4)
        ]
        for _ in range(5):
            await asyncio.gather(*(each.write(5) for each in writers))
    report = verified(file)
    assert report.problems == () and report.chains == 4 and backup_path(file, 3).exists()


@in_loop
async def test_a_crash_between_two_renames_hides_no_older_file(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with writer(file, "r1", max_bytes=2000) as made:
        await made.write(30)
    before = verified(file)
    for number in range(9, 1, -1):
        if backup_path(file, number).exists():
            backup_path(file, number).rename(backup_path(file, number + 1))
    assert not backup_path(file, 2).exists()
    assert verified(file).rows == before.rows and verified(file).problems == ()
    found, _ = command._latest(file, lambda row: True, 1000)
    assert len(found) == 30


# Clients
# --------------------------------------------------------------------------------------------------


def passage(arguments: dict[str, Any]) -> Passage:
    params = {"name": "send", "arguments": arguments}
    offer = Offer("tools", "mail", "send", "mail_send", {})
    return Passage("mail", "send", offer, Call("tools/call", params, Caller("alice")), params)


@in_loop
async def test_a_client_cannot_hide_a_call_that_never_ended(tmp_path: Path) -> None:
    """With `arguments: values`, the client chooses members of its row."""
    file = tmp_path / "audit.jsonl"
    log = AuditLog(Bus(), file, Audit(arguments="values"))
    await log.begin(passage({"event": "call", "call": "0-0"}))
    log.close().join()
    found, _ = command._latest(file, lambda row: True, 10)
    assert [row["outcome"] for row in found] == ["unfinished"]


@in_loop
async def test_calls_during_a_hung_disk_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows beyond the limit are dropped, and nothing of them is kept."""
    disk = threading.Event()
    write = os.write
    monkeypatch.setattr(
        jsonl_file.os, "write", lambda handle, data: disk.wait(30) and write(handle, data)
    )
    monkeypatch.setattr(jsonl_file, "MAX_PENDING_BYTES", 20_000)
    monkeypatch.setattr(audit, "BEGIN_SECONDS", 0.01)
    log = AuditLog(Bus(), tmp_path / "audit.jsonl", Audit())
    try:
        for number in range(2000):
            await log.begin(passage({}))
            if number == 1000:
                waiting = log._rows_file._batches.qsize()
        assert log._rows_file._batches.qsize() <= waiting + 1
        assert waiting < 100
    finally:
        disk.set()
        log.close().join()


# Collectors
# --------------------------------------------------------------------------------------------------


@in_loop
async def test_a_collector_that_never_reads_does_not_stop_the_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exporter gives up a batch after its time limit, closes the connection, and tries
    again."""
    monkeypatch.setattr(exporter, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(exporter, "RETRY_SECONDS", (0.01, 0.01))
    row = b'{"time":"2026-01-01T00:00:00.000Z","event":"call","text":"%s"}\n' % (b"x" * 1_000_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        sink = audit_sink.make_exporter(
            f"syslog+tcp://127.0.0.1:{listener.getsockname()[1]}", {}, lambda: None
        )  # type: ignore[arg-type,return-value]
        sink.start()
        connections: list[socket.socket] = []
        try:
            for _ in range(4):
                sink.add(row)
            async with asyncio.timeout(20):
                while len(connections) < 3:
                    connection, _ = await loop.sock_accept(listener)
                    connections.append(connection)
        finally:
            await sink.close()
            for connection in connections:
                connection.close()


@in_loop
async def test_a_row_that_is_too_large_for_a_datagram_does_not_stop_the_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client chooses the size of its arguments."""
    monkeypatch.setattr(exporter, "BATCH_SECONDS", 0.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        sink = audit_sink.make_exporter(
            f"syslog://127.0.0.1:{listener.getsockname()[1]}", {}, lambda: None
        )  # type: ignore[arg-type,return-value]
        sink.start()
        try:
            sink.add(ROW.replace(b"%d", b'"%s"') % (b"x" * 100_000))
            sink.add(ROW % 2)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(10):
                received = [await loop.sock_recv(listener, 1 << 17) for _ in range(2)]
        finally:
            await sink.close()
    assert json.loads(received[1].partition(b" - ")[2])["n"] == 2
    assert len(received[0]) == audit_sink.MAX_DATAGRAM_BYTES
