"""LIF-7: a server's standard error goes into a bounded, named log."""

import logging
import tracemalloc
from collections.abc import Callable

import pytest

from fixtures.work import growth, steps
from mcpx.transports import stderrlog
from mcpx.transports.stderrlog import KEPT_BYTES, KEPT_LINES, LINE_BYTES, StderrLog


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "mcpx.server")
    return caplog


def test_lines_are_logged_under_the_servers_name_and_kept(lines: pytest.LogCaptureFixture) -> None:
    """LIF-7"""
    log = StderrLog("files")
    for piece in (b"one\ntw", b"o", b"\n", b"\nthr", b"ee"):
        log.feed(piece)
    assert lines.messages == ["[files] one", "[files] two"]
    assert log.tail(10) == ["one", "two", "three"]
    assert log.tail(1) == ["three"]
    assert log.tail(0) == []
    log.close()
    assert lines.messages[2:] == ["[files] three"]


def test_every_way_of_cutting_a_stream_gives_the_same_lines() -> None:
    """LIF-7"""
    data = "".join(f"line {i} ä\r\n" for i in range(50)).encode() + b"x" * 5000 + b"\nend"
    expected = None
    for size in (1, 2, 3, 7, 100, 2049, 100_000):
        log = StderrLog("a")
        for at in range(0, len(data), size):
            log.feed(data[at : at + size])
        expected = expected or log.tail(1000)
        assert log.tail(1000) == expected
        assert len(expected) == 52 and expected[0] == "line 0 ä" and expected[51] == "end"
        assert expected[50] == "x" * LINE_BYTES + " …"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07plain", "plain"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b(B\x1bMup", "up"),
        (b"10%\r20%\r", "10% 20%"),
        (b"a\x00\x08\x7fb", "a b"),
        (b"bad \xff\xfe utf", "bad �� utf"),
        ("fake\u2028line \u202egnp".encode(), "fake line  gnp"),
        ("\x9b31mc1".encode(), "c1"),
        (b"tab\there  ", "tab here"),
        (b"\x1b[", ""),
        (b"\x1b]never ends", ""),
    ],
)
def test_a_line_is_plain_text(raw: bytes, text: str) -> None:
    """LIF-7"""
    log = StderrLog("a")
    log.feed(raw + b"\n")
    assert log.tail(1) == ([text] if text else [])


def test_memory_is_bounded() -> None:
    """LIF-7"""
    log = StderrLog("a")
    for i in range(10_000):
        log.feed(b"%d\n" % i)
    assert log.tail(10_000) == [str(i) for i in range(10_000 - KEPT_LINES, 10_000)]
    log.feed(b"".join(b"%05d\n" % i for i in range(10_000)))
    assert log.tail(10_000) == [f"{i:05}" for i in range(10_000 - KEPT_LINES, 10_000)]
    for _ in range(1000):
        log.feed(b"x" * 3000 + b"\n")
    assert sum(map(len, log.tail(10_000))) <= KEPT_BYTES
    for _ in range(1000):
        log.feed(b"x" * 3000)
    assert len(log._partial) <= LINE_BYTES + 1


def test_a_flood_reaches_the_log_as_a_trickle_and_is_counted(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-7"""
    now = 0.0
    monkeypatch.setattr(stderrlog, "monotonic", lambda: now)
    log = StderrLog("a")
    log.feed(b"line\n" * 1000)
    assert lines.messages == ["[a] line"] * stderrlog.BURST
    now = 1.0
    log.feed(b"more\n" * 100)
    assert lines.messages[stderrlog.BURST :] == ["[a] (800 lines left out)"] + ["[a] more"] * 20
    log.close()
    assert lines.messages[-1] == "[a] (80 lines left out)"


@pytest.mark.parametrize("chunk", [b"x\n" * 32768, b"\n" * 65536, b"y" * 65536, b"\x1b[" * 32767 + b"\n"])
def test_of_a_flood_only_its_ends_are_looked_at(
    chunk: bytes, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-7: no steps for the lines in between and no memory either, so that it costs what reading it costs."""
    monkeypatch.setattr(stderrlog, "monotonic", lambda: 0.0)
    log = StderrLog("a")
    log.feed(b"usual\n" * stderrlog.BURST)
    flood = chunk * 64
    assert steps(lambda: log.feed(flood), 16 * KEPT_LINES)
    tracemalloc.start()
    try:
        for _ in range(10):
            log.feed(flood)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(flood)  # a list of all its lines takes twenty times the flood
    assert lines.messages == ["[a] usual"] * stderrlog.BURST


@pytest.mark.parametrize(
    "hostile", [b"\x1b[", b"\x1b[0", b"\x1b]", b"\x1b ", b"\x1b", "\x9b0 ".encode(), b"\x00 ", b" "]
)
def test_making_a_line_readable_is_linear_whatever_it_holds(hostile: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIF-7: lines are cut at `LINE_BYTES`; the expressions do not rely on it."""
    monkeypatch.setattr(stderrlog, "LINE_BYTES", 1 << 20)

    def tail_of(size: int) -> Callable[[], list[str]]:
        log = StderrLog("a")
        log.feed(hostile * (size // len(hostile)) + b"x")
        return lambda: log.tail(1)

    times = growth(tail_of(1 << 13), tail_of(1 << 17))
    assert times < 4 * 16, "sixteen times the line; an expression that backtracks takes 256 times as long"


def test_what_leaves_is_redacted(lines: pytest.LogCaptureFixture) -> None:
    """LIF-7"""
    log = StderrLog("a", redact=lambda line: line.replace("hunter2", "***"))
    log.feed(b"password \x1b[1mhunter2\n")
    assert log.tail(1) == ["password ***"]
    assert lines.messages == ["[a] password ***"]
