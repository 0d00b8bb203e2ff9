"""What a server says on its standard error: the last of it kept, what is reasonable of it logged (LIF-7).

Promise: bounded in memory (lines, bytes per line, bytes in all) and in time: a flood costs about as much as
reading it, is counted, and reaches the log as a trickle. Lines come out as plain text: no control
characters, no terminal sequences, no line breaks, invalid UTF-8 replaced; so a server cannot forge or paint
over other lines of the log.
No promise: that no secret is in it. `redact` is applied to every line that leaves; what to redact is the
owner's.
"""

import logging
import re
from collections import deque
from collections.abc import Callable
from time import monotonic

_log = logging.getLogger("mcpx.server")

KEPT_LINES = 200
KEPT_BYTES = 64 * 1024
LINE_BYTES = 2048
BURST = 200
"""Lines that are logged at once; after that `RATE` a second, so that ordinary start-up chatter is never
cut."""
RATE = 20.0

# Terminal sequences whole (colours, titles, links), then every control and formatting character that is left:
# C0, C1, line separators, and the invisible ones that reorder text. All classes are disjoint: linear.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]+")


class StderrLog:
    """Feed it bytes as they come; ask it for the tail."""

    def __init__(self, name: str, redact: Callable[[str], str] | None = None) -> None:
        self.name = name
        self._redact = redact
        self._lines: deque[bytes] = deque()
        """Raw, cut to size: made readable only when asked for, which is seldom."""
        self._size = 0
        self._partial = b""
        self._allowed = float(BURST)
        self._at = monotonic()
        self._left_out = 0

    def feed(self, data: bytes) -> None:
        head, newline, rest = data.partition(b"\n")
        if len(self._partial) <= LINE_BYTES:  # beyond that the line is cut, its rest is of no interest
            self._partial += head[: LINE_BYTES + 1]
        if not newline:
            return
        first, self._partial = self._partial, b""
        # Of a large chunk only the ends matter: what may still be logged, and what will be kept.
        body, newline, last = rest.rpartition(b"\n")
        self._partial = last[: LINE_BYTES + 1]
        total = 1 + (body.count(b"\n") + 1 if newline else 0)
        if _log.isEnabledFor(logging.INFO):
            logged = self._allowance(total)
            if logged:
                self._emit([first, *(body.split(b"\n", logged - 1)[: logged - 1] if newline else ())])
            self._left_out += total - logged
        self._keep(first)
        if newline:
            for line in body.rsplit(b"\n", KEPT_LINES)[-KEPT_LINES:]:
                self._keep(line)

    def tail(self, count: int) -> list[str]:
        """The last lines, oldest first, an unfinished one included; empty ones left out."""
        lines = (self._readable(line) for line in (*self._lines, self._partial))
        return [line for line in lines if line][-count:] if count > 0 else []

    def close(self) -> None:
        """The server is gone: log its unfinished line, and how much was left out."""
        if self._partial:
            self.feed(b"\n")
        if self._left_out:
            self._say_left_out()

    def _keep(self, line: bytes) -> None:
        line = line[: LINE_BYTES + 1]
        self._lines.append(line)
        self._size += len(line)
        while len(self._lines) > KEPT_LINES or self._size > KEPT_BYTES:
            self._size -= len(self._lines.popleft())

    def _allowance(self, wanted: int) -> int:
        now = monotonic()
        self._allowed = min(BURST, self._allowed + (now - self._at) * RATE)
        self._at = now
        granted = min(wanted, int(self._allowed))
        self._allowed -= granted
        return granted

    def _emit(self, lines: list[bytes]) -> None:
        if self._left_out:
            self._say_left_out()
        for raw in lines:
            line = self._readable(raw)
            if line:
                _log.info("[%s] %s", self.name, line)

    def _say_left_out(self) -> None:
        _log.info("[%s] (%d lines left out)", self.name, self._left_out)
        self._left_out = 0

    def _readable(self, raw: bytes) -> str:
        text = raw[:LINE_BYTES].decode("utf-8", "replace")
        text = _CONTROL.sub(" ", _SEQUENCE.sub("", text)).rstrip()
        if self._redact is not None:
            text = self._redact(text)
        return text + " …" if len(raw) > LINE_BYTES else text
