"""The latest calls, for people who look: a ring in memory, bounded in number and, by short texts, in bytes.

Nothing is kept before somebody looks, unless a trail of calls is kept anyway; and no longer than `UNWATCHED` seconds
after the last look. It holds no arguments, no results and no error texts: where those are wanted, `recording` keeps
them beside it, by the same numbers.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mcpx.model.call import Json
from mcpx.model.events import Bus, CallFinished
from mcpx.telemetry.targets import LONGEST, target_of

MOST = 500
"""Calls; with texts of at most `LONGEST` characters about half a megabyte."""
UNWATCHED = 3600.0
"""Seconds after the last look."""

FIELDS = (
    "number",
    "time",
    "principal",
    "profile",
    "client",
    "method",
    "server",
    "name",
    "rule",
    "outcome",
    "code",
    "ms",
)


class Activity:
    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._clock = clock
        self._calls: deque[tuple[Any, ...]] = deque(maxlen=MOST)
        self._number = 0
        self._looked = clock()
        self._on = False
        self._record: Callable[[int, CallFinished], None] | None = None

    def begin(self) -> None:
        if not self._on:
            self._on = True
            self._bus.subscribe(self._finished, CallFinished)

    def keep_on(self, record: Callable[[int, CallFinished], None]) -> None:
        """From now on calls are kept whether or not somebody looks; `record` hears of each, with its number."""
        self._record = record
        self.begin()

    def end(self) -> None:
        self._on = False
        self._record = None
        self._bus.unsubscribe(self._finished)
        self._calls.clear()

    def look(self, after: int = 0, limit: int = MOST) -> Json:
        """The calls behind a number, the latest last; from now on they are kept, if they were not."""
        self._looked = self._clock()
        was_on = self._on
        self.begin()
        found = [call for call in self._calls if call[0] > after][-limit:] if limit > 0 else []
        calls = [{name: its for name, its in zip(FIELDS, call, strict=True) if its is not None} for call in found]
        return {"calls": calls, "last": self._number, "was_on": was_on}

    def _finished(self, event: CallFinished) -> None:
        now, record = self._clock(), self._record
        if record is None and now - self._looked > UNWATCHED:
            self.end()
            return
        self._number += 1
        passage = event.passage
        caller, name = passage.caller, passage.caller.client.get("name")
        self._calls.append(
            (
                self._number,
                round(now, 3),
                caller.principal[:LONGEST],
                caller.profile,
                name[:LONGEST] if isinstance(name, str) else None,
                passage.method,
                passage.server,
                target_of(passage),
                None if passage.rule is None else passage.rule[:LONGEST],
                event.outcome,
                event.code,
                round(event.seconds * 1000, 1),
            )
        )
        if record is not None:
            record(self._number, event)
