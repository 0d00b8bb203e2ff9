"""What happened to each server: the lines its processes wrote to standard error over all their
lives, what became of it, and its states over the last day.

Promise: bounded for each server in lines, bytes and states; a server that is gone from the
configuration is forgotten. A line costs one look and one append while it comes; it is made
readable, and free of secrets, when somebody reads it.
"""

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

from mcpx.core.gateway import Gateway
from mcpx.model.events import ConfigApplied, UpstreamChanged
from mcpx.processes.stderrlog import Overhear, Redact, line_of
from mcpx.upstreams.life import State, Status
from mcpx.upstreams.upstream import Upstream

MOST_LINES = 1_000
MOST_BYTES = 128 * 1024
MOST_SPANS = 500
DAY = 24 * 3600.0
"""Seconds for which states are told."""
LONGEST = 500
"""Characters of an error that are kept with a state."""


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    at: float
    text: str
    stream: Literal["stderr", "mcpx"]


@dataclass(frozen=True, slots=True)
class Span:
    start: float
    state: State
    error: str | None = None
    end: float | None = None
    """None: it is still so."""


@dataclass(slots=True)
class _Heard:
    """One line as it came."""

    number: int
    at: float
    raw: bytes
    redact: Redact | None
    ours: bool


@dataclass(slots=True)
class _Record:
    """Of one server."""

    lines: deque[_Heard] = field(default_factory=deque[_Heard])
    size: int = 0
    last: int = 0
    spans: deque[Span] = field(default_factory=lambda: deque[Span](maxlen=MOST_SPANS))
    noted: Status | None = None

    def hear(self, raw: bytes, redact: Redact | None, ours: bool = False) -> None:
        if not raw.strip():
            return
        self.last += 1
        self.lines.append(_Heard(self.last, time.time(), raw, redact, ours))
        self.size += len(raw)
        while len(self.lines) > MOST_LINES or self.size > MOST_BYTES:
            self.size -= len(self.lines.popleft().raw)

    def enter(self, state: State, error: str | None, at: float) -> None:
        now = time.time()
        if self.spans:
            self.spans[-1] = replace(self.spans[-1], end=now)
        self.spans.append(Span(now if self.spans else at, state, error))


class Chronicle:
    def __init__(self, gateway: Gateway) -> None:
        """Begins with how everything is now; made before the servers are started it misses
        nothing."""
        self._gateway = gateway
        self._records: dict[str, _Record] = {}
        gateway.overhear = self._overhear
        gateway.bus.subscribe(self._changed, UpstreamChanged)
        gateway.bus.subscribe(self._applied, ConfigApplied)
        self._look()

    # For whoever asks
    # ------------------------------------------------------------------------------------------

    def lines(self, server: str, after: int = 0, limit: int = 200) -> tuple[list[Line], int]:
        """Those after that number, the first of them first; after none: the last ones. And the
        number of the last."""
        record = self._records.get(server)
        if record is None or limit <= 0:
            return [], 0 if record is None else record.last
        found = [each for each in record.lines if each.number > after]
        chosen = found[:limit] if after else found[-limit:]
        return [self._told(each) for each in chosen], record.last

    def tail(self, server: str, count: int) -> list[str]:
        """The last lines of its own."""
        record = self._records.get(server)
        lines = [] if record is None else [each for each in record.lines if not each.ours][-count:]
        return [self._told(each).text for each in lines]

    def spans(self, server: str) -> list[Span]:
        """Its states of the last day, the oldest first."""
        record = self._records.get(server)
        begin = time.time() - DAY
        told = (
            []
            if record is None
            else [each for each in record.spans if each.end is None or each.end > begin]
        )
        return [replace(each, start=begin) if each.start < begin else each for each in told]

    @staticmethod
    def now() -> float:
        """By the clock that the states are told by."""
        return time.time()

    def _told(self, heard: _Heard) -> Line:
        text = self._gateway.redactor.redact(line_of(heard.raw, heard.redact))
        return Line(heard.number, heard.at, text, "mcpx" if heard.ours else "stderr")

    # What happens
    # ----------------------------------------------------------------------------------------------

    def _overhear(self, server: str) -> Overhear:
        return self._records.setdefault(server, _Record()).hear

    def _changed(self, event: UpstreamChanged) -> None:
        upstream = self._gateway.generation.upstreams.get(event.server)
        if upstream is not None:
            self._note(event.server, upstream)

    def _applied(self, event: ConfigApplied) -> None:
        if event.ok:
            self._look()

    def _look(self) -> None:
        upstreams = self._gateway.generation.upstreams
        for name in [name for name in self._records if name not in upstreams]:
            del self._records[name]
        for name, upstream in upstreams.items():
            self._note(name, upstream)

    def _note(self, name: str, upstream: Upstream) -> None:
        record, status = self._records.setdefault(name, _Record()), upstream.status
        before, record.noted = record.noted, status
        if before is not None and (before.state, before.last_error) == (
            status.state,
            status.last_error,
        ):
            return
        error = (
            None
            if upstream.connection.problem is None
            else upstream.connection.problem.removeprefix(f"{name}: ")[:LONGEST]
        )
        if status.state == "connecting" and error is not None:
            record.hear(b"is tried again", None, ours=True)  # it is no better for that
        elif not record.spans or (record.spans[-1].state, record.spans[-1].error) != (
            status.state,
            error,
        ):
            record.enter(status.state, error, status.since)
            record.hear(
                _words(upstream, status.state, error).encode(errors="replace"), None, ours=True
            )


def _words(upstream: Upstream, state: State, error: str | None) -> str:
    if state == "connected":
        tools, terms = len(upstream.definitions["tools"]), upstream.connection.terms
        version = "" if terms is None else f", protocol {terms.version}"
        return f"connected{version}, {tools} tool{'s' * (tools != 1)}"
    words = {
        "connecting": "is being connected",
        "sleeping": "went to sleep",
        "disconnected": "is not connected",
        "needs_auth": "waits for somebody to sign in",
        "disabled": "is switched off",
    }.get(state, state)
    return words if error is None else f"{words}: {error}"
