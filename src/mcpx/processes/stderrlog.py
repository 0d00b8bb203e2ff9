"""What one life of a server says on its standard error: the last of it kept, what is reasonable of
it logged (LIF-7).

Promise: bounded in memory (lines, bytes per line, bytes in all) and in time: a flood costs about as
much as reading it. The log gets the first lines, then counts; at DEBUG it gets all but floods.
Lines come out as plain text: no control characters, no terminal sequences, no line breaks, invalid
UTF-8 replaced; so a server cannot forge or paint over other lines of the log. No promise: that no
secret is in it. `redact` is applied to every line that leaves; what to redact is the owner's.
"""

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from mcpx.base.aio import TokenBucket
from mcpx.base.text import terminal_safe
from mcpx.model.redaction import blotted, spellings
from mcpx.model.secret_rules import learnable_secrets
from mcpx.wire import logs

_log = logging.getLogger("mcpx.server")

KEPT_LINES = 200
KEPT_BYTES = 64 * 1024
LINE_BYTES = 2048
BURST, RATE = 8, 0.1
"""Lines that are logged at once, and lines a second after that; fewer than of what mcpx itself says
(`wire.logs`)."""
PARTING = 5
"""Lines before its death that are logged in any case."""
REASON = 300
"""Characters of a line that is told as the reason of a death."""

# What stands after the line that says what happened: stack frames and dumped fields are indented,
# and npm and Node add:
_AFTERWORD = re.compile(
    r"\s|[\^~=\-\s{}\[\]()]*$|Node\.js v\d|npm (?:error|ERR!) A complete log|npm notice"
)
# npm says it first, then explains at length.
_NPM = re.compile(r"npm (?:error|ERR!) (?!code |errno |syscall |path |dest )\S")


class Timer(Protocol):
    def cancel(self) -> None: ...


Redact = Callable[[str], str]
Overhear = Callable[[bytes, Redact | None], None]
"""Hears every line that is kept, raw, and how its secrets are taken out (`line_of`)."""
Later = Callable[[float, Callable[[], None]], Timer]
"""Calls a function so many seconds later: `loop.call_later`."""


class Allowance(TokenBucket):
    """Rate limit of a server's log lines, shared by all processes of the server.

    A server that dies at every start cannot flood the log either.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logs.LOUD_BURST, logs.LOUD_RATE, clock)
        self.parting: list[bytes] = []
        """How the last life that was cut short in the log ended."""

    def take_lines(self, wanted: int) -> int:
        logs.set_limits(self, _log, BURST, RATE)
        return self.take_up_to(wanted)


class StderrLog:
    """Feed it bytes as they come; ask it for the tail."""

    def __init__(
        self,
        name: str,
        redact: Redact | None = None,
        later: Later | None = None,
        allowance: Allowance | None = None,
        overhear: Overhear | None = None,
    ) -> None:
        self.name = name
        self.total = 0
        """Lines that came so far."""
        self._redact = redact
        self._overhear = overhear
        self._later = later
        self._timer: Timer | None = None
        self._allowance = allowance or Allowance()
        self._lines: deque[bytes] = deque()
        """Raw, cut to size: made readable only when asked for, which is seldom."""
        self._size = 0
        self._partial = b""
        self._left_out = 0

    def feed(self, data: bytes) -> None:
        head, newline, rest = data.partition(b"\n")
        if (
            len(self._partial) <= LINE_BYTES
        ):  # beyond that the line is cut, its rest is of no interest
            self._partial += head[: LINE_BYTES + 1]
        if not newline:
            return
        first, self._partial = self._partial, b""
        # Of a large chunk only the ends matter: what may still be logged, and what will be kept.
        body, newline, last = rest.rpartition(b"\n")
        self._partial = last[: LINE_BYTES + 1]
        total = 1 + (body.count(b"\n") + 1 if newline else 0)
        self.total += total
        if _log.isEnabledFor(logging.INFO):
            logged = self._allowance.take_lines(total)
            if logged:
                self._emit(
                    [first, *(body.split(b"\n", logged - 1)[: logged - 1] if newline else ())]
                )
            self._left_out += total - logged
            if logged < total and self._timer is None and self._later is not None:
                self._timer = self._later(logs.COUNTING, self._say_left_out)
        self._keep(first)
        if newline:
            for line in body.rsplit(b"\n", KEPT_LINES)[-KEPT_LINES:]:
                self._keep(line)

    def tail(self, count: int) -> list[str]:
        """The last lines, oldest first, an unfinished one included; empty ones left out."""
        lines = (self._readable(line) for line in (*self._lines, self._partial))
        return [line for line in lines if line][-count:] if count > 0 else []

    def last_words(self, since: int = 0) -> str:
        """Of what came after that many lines, the last line that says something: not the stack
        below it."""
        fresh = min(self.total - since, len(self._lines))
        raw = (*islice(self._lines, len(self._lines) - fresh, None), self._partial)
        lines = [line for line in map(self._readable, raw) if line]
        of_npm = (line for line in lines if _NPM.match(line))
        told = (line for line in reversed(lines) if not _AFTERWORD.match(line))
        words = next(of_npm, None) or next(told, None) or (lines[-1] if lines else "")
        return shortened(words)

    def close(self, *, died: bool = False) -> None:
        """The server is gone: log its unfinished line and how much was left out; if it died, how it
        ended too."""
        if self._partial:
            self.feed(b"\n")
        if self._left_out:
            # What was left out last is what came last: else a line would have been logged since.
            parting = list(self._lines)[-min(PARTING, self._left_out) :]
            if died and parting != self._allowance.parting:
                self._allowance.parting = parting
                self._left_out -= len(parting)
                self._emit(parting)
        self._say_left_out()

    def _keep(self, line: bytes) -> None:
        line = line[: LINE_BYTES + 1]
        self._lines.append(line)
        self._size += len(line)
        if self._overhear is not None:
            self._overhear(line, self._redact)
        while len(self._lines) > KEPT_LINES or self._size > KEPT_BYTES:
            self._size -= len(self._lines.popleft())

    def _emit(self, lines: list[bytes]) -> None:
        self._say_left_out()
        for raw in lines:
            line = self._readable(raw)
            if line:
                _log.info("[%s] %s", self.name, line, extra=logs.OURS)

    def _say_left_out(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._left_out:
            plural = "s" * (self._left_out != 1)
            _log.info("[%s] … and %d more line%s", self.name, self._left_out, plural)
            self._left_out = 0

    def _readable(self, raw: bytes) -> str:
        return line_of(raw, self._redact)


def line_of(raw: bytes, redact: Redact | None) -> str:
    """A kept line as it may be shown."""
    text = readable(raw[:LINE_BYTES]).rstrip()
    if redact is not None:
        text = redact(text)
    return text + " …" if len(raw) > LINE_BYTES else text


def readable(raw: bytes) -> str:
    """What a stranger wrote as one line of plain text."""
    return terminal_safe(raw.decode("utf-8", "replace"))


def shortened(line: str) -> str:
    line = line.strip()
    return line if len(line) <= REASON else line[: REASON - 1] + "…"


def redaction(env: Mapping[str, str], args: Sequence[str] = ()) -> Callable[[str], str]:
    """Removes the secrets of a program's environment and arguments from what the program prints."""
    secrets = spellings(learnable_secrets({"env": env, "args": args}))
    return lambda text: blotted(text, secrets)
