"""LIF-7: a server's standard error goes into a bounded, named log."""

import logging
import tracemalloc
from collections.abc import Callable

import pytest

from kit.clock import Clock
from kit.cost import cost_ratio, count_steps
from mcpx.processes import stderrlog
from mcpx.processes.stderrlog import KEPT_BYTES, KEPT_LINES, LINE_BYTES, Allowance, StderrLog
from mcpx.wire import logs


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


def test_of_start_up_chatter_the_first_lines_are_logged_and_the_rest_is_counted(
    lines: pytest.LogCaptureFixture,
) -> None:
    """LIF-7: a page of banners is eight lines and a number."""
    clock = Clock()
    log = StderrLog("a", allowance=Allowance(clock))
    for number in range(128):
        log.feed(b"line %d\n" % number)
    assert lines.messages == [f"[a] line {number}" for number in range(8)]
    clock.advance(20)
    log.feed(b"more\n" * 3)
    assert lines.messages[8:] == ["[a] … and 120 more lines", "[a] more", "[a] more"]
    log.close()
    assert lines.messages[11:] == ["[a] … and 1 more line"]


def test_who_wants_everything_gets_everything_but_floods(lines: pytest.LogCaptureFixture) -> None:
    """LIF-7: at DEBUG."""
    lines.set_level(logging.DEBUG, "mcpx.server")
    clock = Clock()
    log = StderrLog("a", allowance=Allowance(clock))
    log.feed(b"line\n" * 1000)
    assert lines.messages == ["[a] line"] * 200
    clock.advance(1)
    log.feed(b"more\n" * 100)
    assert lines.messages[200:] == ["[a] … and 800 more lines"] + ["[a] more"] * 20


class Timers:
    """A clock that is told when to ring."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []
        self.cancelled = 0

    def later(self, seconds: float, do: Callable[[], None]) -> "Timers":
        self.set.append((seconds, do))
        return self

    def cancel(self) -> None:
        self.cancelled += 1


def test_a_server_that_falls_silent_is_counted_all_the_same(
    lines: pytest.LogCaptureFixture,
) -> None:
    """LIF-7: once an interval, not with the next line an hour later."""
    timers = Timers()
    log = StderrLog("a", later=timers.later, allowance=Allowance(Clock()))
    log.feed(b"x\n" * 8)
    assert timers.set == []
    for _ in range(3):
        log.feed(b"x\n")
    ((seconds, ring),) = timers.set
    assert seconds == logs.COUNTING
    ring()
    assert lines.messages[8:] == ["[a] … and 3 more lines"]
    log.feed(b"x\n" * 2)
    assert len(timers.set) == 2
    log.close()
    assert timers.cancelled == 2 and lines.messages[9:] == ["[a] … and 2 more lines"]


def test_the_end_of_a_server_that_died_is_logged_whatever_came_before(
    lines: pytest.LogCaptureFixture,
) -> None:
    """LIF-7: the trace back at the end of a long chatter."""
    log = StderrLog("a", allowance=Allowance(Clock()))
    log.feed(b"".join(b"%d\n" % number for number in range(100)) + b"boom")
    log.close(died=True)
    assert lines.messages[8:] == [
        "[a] … and 88 more lines",
        "[a] 96",
        "[a] 97",
        "[a] 98",
        "[a] 99",
        "[a] boom",
    ]


def test_a_server_that_dies_at_every_start_says_the_same_only_once(
    lines: pytest.LogCaptureFixture,
) -> None:
    """LIF-7: the lives of a server share what the log gets of it; another end is told again."""
    allowance = Allowance(Clock())

    def live(end: bytes) -> list[str]:
        lines.clear()
        log = StderrLog("a", allowance=allowance)
        log.feed(b"banner\n" * 20 + end)
        log.close(died=True)
        assert log.last_words() == end.decode()
        return lines.messages

    first = live(b"boom")
    assert len(first) == 8 + 1 + 5 and first[-1] == "[a] boom"
    assert live(b"boom") == ["[a] … and 21 more lines"]
    assert live(b"bang") == ["[a] … and 16 more lines", *["[a] banner"] * 4, "[a] bang"]


NODE = """\
/srv/index.js:3
  throw new Error('no API key')
  ^

Error: no API key
    at Object.<anonymous> (/srv/index.js:3:9)
    at Module._compile (node:internal/modules/cjs/loader:1554:14) {
  code: 'E_KEY'
}

Node.js v22.14.0
"""
NPM = """\
npm error code E404
npm error 404 Not Found - GET https://example.com/nothing - Not found
npm error 404
npm error 404  'nothing@*' is not in this registry.
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git folder.
npm error A complete log of this run can be found in: /tmp/x.log
"""
PYTHON = """\
Traceback (most recent call last):
  File "<string>", line 1, in <module>
ValueError: bad token
"""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("starting\nboom: no API key\n", "boom: no API key"),
        ("boom: no API key", "boom: no API key"),
        ("boom: no API key\n\n  \n", "boom: no API key"),
        (NODE, "Error: no API key"),
        (NPM, "npm error 404 Not Found - GET https://example.com/nothing - Not found"),
        (PYTHON, "ValueError: bad token"),
        ("  × nothing fits\n  ╰─▶ because\n", "╰─▶ because"),
        ("", ""),
        ("\n\n", ""),
        ("x" * 5000, "x" * (stderrlog.REASON - 1) + "…"),
        ("\x1b[31mboom\x1b[0m\rover", "boom over"),
    ],
)
def test_the_last_words_are_the_line_that_tells_the_reason(said: str, words: str) -> None:
    """LIF-7: one line, bounded, plain; stacks and what npm and Node write below are not it."""
    log = StderrLog("a")
    log.feed(said.encode())
    assert log.last_words() == words


def test_last_words_are_what_came_last_and_not_what_it_survived() -> None:
    """LIF-7: a banner of last week is no reason."""
    log = StderrLog("a")
    log.feed(b"running on stdio\nready\n")
    since = log.total
    assert log.last_words(since) == ""
    log.feed(b"fatal: out of luck\n")
    assert log.last_words(since) == "fatal: out of luck"
    log.feed(b"x\n" * 10_000)
    assert log.last_words(log.total - 1) == "x" and log.last_words(log.total) == ""


@pytest.mark.parametrize(
    "chunk", [b"x\n" * 32768, b"\n" * 65536, b"y" * 65536, b"\x1b[" * 32767 + b"\n"]
)
def test_of_a_flood_only_its_ends_are_looked_at(
    chunk: bytes, lines: pytest.LogCaptureFixture
) -> None:
    """LIF-7: no steps for the lines in between and no memory either, so that it costs what reading
    it costs."""
    log = StderrLog("a", allowance=Allowance(Clock()))
    log.feed(b"usual\n" * stderrlog.BURST)
    flood = chunk * 64
    assert count_steps(lambda: log.feed(flood), 16 * KEPT_LINES)
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
def test_making_a_line_readable_is_linear_whatever_it_holds(
    hostile: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-7: lines are cut at `LINE_BYTES`; the expressions do not rely on it."""
    monkeypatch.setattr(stderrlog, "LINE_BYTES", 1 << 20)

    def tail_of(size: int) -> Callable[[], list[str]]:
        log = StderrLog("a")
        log.feed(hostile * (size // len(hostile)) + b"x")
        return lambda: log.tail(1)

    times = cost_ratio(tail_of(1 << 13), tail_of(1 << 17))
    assert times < 4 * 16, (
        "sixteen times the line; an expression that backtracks takes 256 times as long"
    )


def test_what_leaves_is_redacted(lines: pytest.LogCaptureFixture) -> None:
    """LIF-7"""
    log = StderrLog("a", redact=lambda line: line.replace("hunter2", "***"))
    log.feed(b"password \x1b[1mhunter2\n")
    assert log.tail(1) == ["password ***"]
    assert lines.messages == ["[a] password ***"]
