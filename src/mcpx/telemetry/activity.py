"""The latest calls, for people who look: a ring in memory, bounded in number and, by short texts,
in bytes.

Nothing is kept before somebody looks, unless a trail of calls is kept anyway; and no longer than
`UNWATCHED` seconds after the last look. It holds no arguments, no results and no error texts: where
those are wanted, `recording` keeps them beside it, by the same numbers. `statistics` counts in the
same pass.

Every call comes through here, so what calls have in common (`Line`) is found by one lookup and put
into words once; a call itself leaves a tuple behind, which becomes a row when it is read.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from mcpx.model.call import Json
from mcpx.model.events import Bus, CallFinished, Outcome, Passage
from mcpx.telemetry.targets import LONGEST, target_of

MOST = 500
"""Calls; with texts of at most `LONGEST` characters about half a megabyte."""
UNWATCHED = 3600.0
"""Seconds after the last look."""
MOST_LINES = 2_000
"""Remembered at once; that many are found again quickly."""


class Line:
    """What calls by the same client of the same target have in common, and those of this second
    that nobody counted yet."""

    __slots__ = (
        "client",
        "counters",
        "last",
        "method",
        "modern",
        "name",
        "odd",
        "principal",
        "profile",
        "protocol",
        "public",
        "server",
        "times",
        "version",
    )

    def __init__(self, passage: Passage) -> None:
        caller, name = passage.caller, passage.caller.client.get("name")
        self.principal = caller.principal[:LONGEST]
        self.profile = caller.profile
        self.client = name[:LONGEST] if isinstance(name, str) else None
        version = caller.client.get("version")
        self.version = version[:LONGEST] if isinstance(version, str) else None
        self.protocol = caller.version
        self.modern = caller.modern
        self.method = passage.method
        self.server = passage.server
        self.name = target_of(passage)
        self.public = None if passage.offer is None else passage.offer.public
        self.times: list[float] = []
        """Seconds that those took which went well."""
        self.odd: list[tuple[float, Outcome]] = []
        """The others."""
        self.last = 0.0
        self.counters: Any = None
        """Where they are counted; known to whoever counts."""


_Call = tuple[float, Line, str | None, Outcome, int | None, float]
"""When it was over, what it was, the rule, how it ended, with which code, and how many seconds it
took."""


class Activity:
    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._clock = clock
        self._calls: deque[_Call] = deque(maxlen=MOST)
        self.last = 0
        """The number of the latest call."""
        self._lines: dict[tuple[object, ...], Line] = {}
        self._looked = clock()
        self._on = False
        self._kept_on = False
        self._record: Callable[[int, CallFinished], None] | None = None
        self.records_all = False
        """Whether calls that went well are recorded, too."""
        self._count: Callable[[int, list[Line]], None] | None = None
        self._uncounted: list[Line] = []
        self._begin = self._end = 0.0
        """Of the second that they belong to."""

    def begin(self) -> None:
        if not self._on:
            self._on = True
            self._bus.subscribe(self._finished, CallFinished)

    def record(self, record: Callable[[int, CallFinished], None]) -> None:
        """From now on calls are kept whether or not somebody looks; `record` hears of each that did
        not go well, and while `records_all` of each, with its number."""
        self._record = record
        self._kept_on = True
        self.begin()

    def count(self, count: Callable[[int, list[Line]], None]) -> None:
        """From now on calls are kept whether or not somebody looks; `count` is told of the lines
        that were called in a second, at the latest when the next call comes."""
        self._count = count
        self._kept_on = True
        self.begin()

    def end(self) -> None:
        self._on = self._kept_on = self.records_all = False
        self._record = self._count = None
        self._bus.unsubscribe(self._finished)
        self._calls.clear()
        self._lines.clear()
        self._uncounted.clear()

    # What happens
    # ----------------------------------------------------------------------------------------------

    def _finished(self, event: CallFinished) -> None:
        passage, seconds, outcome, code = event
        now = self._clock()
        if not self._begin <= now < self._end:
            if not self._kept_on and now - self._looked > UNWATCHED:
                self.end()
                return
            self.count_up(now)
        call, offer = passage.call, passage.offer
        caller = call.caller
        who = caller.client.get("name")
        key = (caller.principal, caller.profile, who, passage.server, passage.name, call.method)
        try:
            line = self._lines.get(key)
        except TypeError:  # a client may call itself anything
            line = None
        if line is None or (offer is not None and line.public is not offer.public):
            line = self._line(key, passage)
        self._calls.append((now, line, passage.rule, outcome, code, seconds))
        self.last += 1
        if self._count is not None:
            if not line.times and not line.odd:
                self._uncounted.append(line)
            line.last = now
            if outcome == "ok":
                line.times.append(seconds)
            else:
                line.odd.append((seconds, outcome))
        if (self.records_all or outcome != "ok") and self._record is not None:
            self._record(self.last, event)

    def _line(self, key: tuple[object, ...], passage: Passage) -> Line:
        line = Line(passage)
        kept = (line.principal, line.profile, line.client, line.server, line.name, line.method)
        if kept == key:  # otherwise something in it is too long to be remembered, or must not be
            if len(self._lines) >= MOST_LINES:
                self._lines.clear()
            self._lines[key] = line
        return line

    def count_up(self, now: float | None = None) -> None:
        """Have counted what is not; the next second begins."""
        second = int(self._begin)
        self._begin = float(int(self._clock() if now is None else now))
        self._end = self._begin + 1
        lines, self._uncounted = self._uncounted, []
        if self._count is not None and lines:
            self._count(second, lines)

    def forget_lines(self) -> None:
        """What is counted by them may have gone."""
        self.count_up()
        self._lines.clear()

    # What is asked
    # ----------------------------------------------------------------------------------------------

    def look(self, after: int = 0, limit: int = MOST) -> Json:
        """The calls behind a number, the latest last; from now on they are kept, if they were
        not."""
        self._looked = self._clock()
        was_on = self._on
        self.begin()
        calls = [row for row, _ in self.rows(after, limit)]
        return {"calls": calls, "last": self.last, "was_on": was_on}

    def rows(self, after: int = 0, limit: int = MOST) -> Iterator[tuple[Json, Line]]:
        """Those behind a number, the latest `limit` of them."""
        before = self.last - len(self._calls)
        first = max(after, before, self.last - max(limit, 0))
        for number, call in enumerate(islice(self._calls, first - before, None), first + 1):
            yield _row(number, call), call[1]

    def row(self, number: int) -> tuple[Json, Line] | None:
        place = number - self.last + len(self._calls) - 1
        if not 0 <= place < len(self._calls):
            return None
        call = self._calls[place]
        return _row(number, call), call[1]


def _row(number: int, call: _Call) -> Json:
    now, line, rule, outcome, code, seconds = call
    row: Json = {
        "number": number,
        "time": round(now, 3),
        "principal": line.principal,
        "profile": line.profile,
        "client": line.client,
        "method": line.method,
        "server": line.server,
        "name": line.name,
        "rule": None if rule is None else rule[:LONGEST],
        "outcome": outcome,
        "code": code,
        "ms": round(seconds * 1000, 1),
    }
    return {name: its for name, its in row.items() if its is not None}
