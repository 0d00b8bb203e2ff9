"""Log lines: plain, one line each, and no more of a kind than somebody would read."""

import asyncio
import errno
import io
import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpx.base.text import visible
from mcpx.model.requests import REQUEST, Request
from mcpx.wire import logs
from mcpx.wire.logs import OURS, AsJson, LogFile, Outlet, Plain

NASTY = (
    "\x1b[31mred\r\n12:00:00 ERROR forged\x85next\u2028line\u2029par\u202egnp\x9b2J\x00\x07 文字"
)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(stream: io.StringIO) -> Iterator[logging.Logger]:
    target = logging.StreamHandler(stream)
    target.setFormatter(Plain())
    made = logging.getLogger("mcpx.test_logs")
    made.propagate, made.handlers[:] = False, [Outlet([target])]
    made.setLevel(logging.INFO)
    yield made
    made.handlers.clear()


def test_what_a_peer_wrote_is_one_line_of_plain_text(
    log: logging.Logger, stream: io.StringIO
) -> None:
    log.warning("[%s] said %s", "a", NASTY)
    log.warning("[%s] %r", "a", {"data": NASTY})
    told = stream.getvalue()
    assert len(told.splitlines()) == 2
    assert told.replace("\n", "").isprintable()
    assert "文字" in told
    assert r"\x1b[31mred\r\n12:00:00 ERROR forged\x85next\u2028line" in told
    assert (
        visible("half \ud800 an emoji") == r"half \ud800 an emoji"
    )  # not logged here: reports of tests are UTF-8


def test_a_traceback_keeps_its_lines_and_what_the_error_says_is_one_of_them(
    log: logging.Logger, stream: io.StringIO
) -> None:
    try:
        try:
            raise ValueError(NASTY)
        except ValueError as error:
            raise ExceptionGroup(NASTY, [OSError(NASTY), KeyError(NASTY)]) from error
    except ExceptionGroup:
        log.exception("failed on %s", NASTY)
    first, *rest = stream.getvalue().removesuffix("\n").split("\n")
    assert "failed on" in first
    assert len(rest) > 8
    assert all(line.startswith("    ") and line.isprintable() for line in rest), rest
    assert sum("forged" in line for line in rest) >= 4
    assert not any(line.strip().startswith("12:00:00") for line in rest)


def test_our_own_words_may_have_several_lines_and_are_never_left_out(
    log: logging.Logger, stream: io.StringIO
) -> None:
    for _ in range(100):
        log.error("%s", "error: wrong\n  --> here\x1b", extra=OURS)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 200
    assert lines[1] == "      --> here\\x1b"


def test_a_kind_is_limited_and_what_was_left_out_is_counted(
    log: logging.Logger, stream: io.StringIO
) -> None:
    for i in range(5000):
        log.warning("[%s] skipped %d", "loud", i)
    log.warning("[%s] skipped %d", "quiet", 1)
    log.info("[%s] connected", "loud")
    assert len(stream.getvalue().splitlines()) == logs.BURST + 2
    log.handlers[0].close()
    last = stream.getvalue().splitlines()[-1]
    assert f"[loud] … and {5000 - logs.BURST:,} more like '[%s] skipped %d'" in last


def test_it_is_counted_though_nothing_more_comes(
    log: logging.Logger, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "COUNTING", 0.01)

    async def main() -> None:
        for _ in range(100):
            log.warning("a kind")
        async with asyncio.timeout(5):
            while "80 more like 'a kind'" not in stream.getvalue():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_what_a_peer_chose_makes_no_new_kind_and_kinds_are_bounded(
    log: logging.Logger, stream: io.StringIO
) -> None:
    outlet = log.handlers[0]
    assert isinstance(outlet, Outlet)
    for i in range(1000):
        log.error("answering %s failed", f"method{i}")
    assert len(stream.getvalue().splitlines()) == logs.BURST
    for i in range(logs.KINDS * 2):
        log.error("[%s] x", f"server{i}")
    assert len(outlet._kinds) <= logs.KINDS  # pyright: ignore[reportPrivateUsage]


def test_a_large_value_is_not_written_whole(log: logging.Logger, stream: io.StringIO) -> None:
    log.warning("%s", "z" * 10_000_000)
    assert len(stream.getvalue()) < 60_000


def test_the_log_file_is_private_also_after_it_was_turned(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        handler = LogFile(tmp_path / "log", maxBytes=100, backupCount=2, encoding="utf-8")
        handler.setFormatter(Plain())
        for _ in range(5):
            handler.handle(logging.LogRecord("mcpx", logging.INFO, "", 0, "x" * 60, (), None))
        handler.close()
    finally:
        os.umask(before)
    files = list(tmp_path.iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_log_file_that_cannot_be_written_is_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = LogFile(tmp_path / "log", encoding="utf-8", delay=True)
    record = logging.LogRecord("mcpx", logging.INFO, "", 0, "x", (), None)

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        for _ in range(5):
            handler.handle(record)
    told = capsys.readouterr().err
    assert told.count("cannot be written: [Errno 24] Too many open files") == 1
    assert "Traceback" not in told
    handler.handle(record)
    handler.close()
    assert (tmp_path / "log").read_text() == "x\n"


@pytest.fixture
def as_json(log: logging.Logger) -> logging.Logger:
    outlet = log.handlers[0]
    assert isinstance(outlet, Outlet)
    outlet.targets[0].setFormatter(AsJson())
    return log


def test_as_json_every_line_is_an_object_whatever_is_logged(
    as_json: logging.Logger, stream: io.StringIO
) -> None:
    """OBS-1."""
    as_json.warning("[%s] said %s", "a", NASTY)
    as_json.handlers[0].handle(
        logging.LogRecord("others", logging.WARNING, "", 0, "%d of %d", ("no number",), None)
    )
    as_json.error("%s", "error: wrong\n  --> here\x1b", extra=OURS)
    as_json.warning("%s", "z" * 10_000_000)
    try:
        raise ExceptionGroup(NASTY, [OSError(NASTY), KeyError("x" * 100_000)])
    except ExceptionGroup:
        as_json.exception("failed on %s", NASTY)
    raw = stream.getvalue()
    lines = [json.loads(line) for line in raw.splitlines()]
    assert len(lines) == 5 and raw.replace("\n", "").isprintable()
    assert (
        lines[0]["server"] == "a"
        and lines[0]["message"].startswith("said ")
        and "文字" in lines[0]["message"]
    )
    assert lines[1]["message"] == "%d of %d (TypeError in its values)"
    assert lines[2]["message"] == "error: wrong\n  --> here\\x1b"
    assert lines[3]["message"] == "z" * logs.LONGEST + "… [9,992,000 more]"
    assert lines[4]["error"].splitlines()[0].endswith("Traceback (most recent call last):")
    assert max(map(len, raw.splitlines())) < 60_000
    assert all(
        set(line) <= {"time", "level", "logger", "server", "message", "error"} for line in lines
    )


def test_as_json_a_line_names_its_request_while_that_is_being_answered(
    as_json: logging.Logger, stream: io.StringIO
) -> None:
    """OBS-1: not after that, not what the loop calls back, and not the count of what was left
    out."""

    async def main() -> None:
        request = Request("mine")
        request.trace_id = "ab" * 16
        REQUEST.set(request)
        as_json.info("now")
        await asyncio.create_task(asyncio.to_thread(as_json.info, "in a thread"))
        called = asyncio.Event()
        asyncio.get_running_loop().call_soon(lambda: (as_json.info("called back"), called.set()))
        await called.wait()
        for _ in range(100):
            as_json.info("often")
        as_json.handlers[0].close()
        request.over = True
        as_json.info("over")
        as_json.info("the bug", extra={"request": request})

    asyncio.run(main())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    named = {line["message"] for line in lines if line.get("request_id") == "mine"}
    assert named == {"now", "in a thread", "often", "the bug"}
    assert {line.get("trace_id") for line in lines if line["message"] in named} == {"ab" * 16}
