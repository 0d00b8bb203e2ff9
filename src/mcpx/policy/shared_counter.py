"""One counter of a limit that replicas share, as this one has it; and one call on its way in.

Promised: whoever stands in line is let in by the store's word while it is there, in turn between
clients as ever, and by this replica's own count while it is not. A place, or a place in line, is
given back however a call ends.
"""

import asyncio
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from mcpx.policy.counters import Bound, Counter

if TYPE_CHECKING:
    from mcpx.policy.shared_counters import SharedCounters


class SharedCounter(Counter):
    """`running` and `waiting` are this replica's."""

    __slots__ = ("_all", "heard", "heard_at", "key")

    def __init__(self, bound: Bound, key: str, all: "SharedCounters") -> None:
        super().__init__(bound)
        self.key = key
        self._all = all
        self.heard = 0.0
        """Calls of the last minute over all replicas, as the store last said."""
        self.heard_at = 0.0

    def leave(self) -> None:
        self.running -= 1
        if not self._all.counting:
            self.let_in()
        elif self.bound.in_flight is not None:
            self._all.owe(self, places=1)

    def let_in(self) -> None:
        """The store says whose turn it is, while it is there."""
        if self.waiting and (self.bound.in_flight is None or self._all.alone):
            super().let_in()

    def line_up(self, who: Hashable, *, displacing: bool) -> "asyncio.Future[None] | None":
        turn = super().line_up(who, displacing=displacing)
        if turn is not None:
            self._all.waits_in(self)
        return turn

    def may_displace(self, who: Hashable) -> bool:
        return bool(self._lines) and self._longest(who) is not None

    def end(self, who: Hashable, turn: "asyncio.Future[None]") -> None:
        """A call waits no more, whatever became of its turn."""
        if not turn.done():
            turn.cancel()
        if turn.cancelled():
            if self._remove(who, turn):
                self._all.owe(self, left=1)
        elif turn.exception() is None:  # it came just then
            self.leave()

    def admit(self, places: int) -> int:
        """So many of those in line; how many places are left over."""
        while places and self._lines:
            turn = self._next()
            if turn.done():  # it was cancelled in this very turn of the loop, and is on its way out
                self._all.owe(self, left=1)
            else:
                turn.set_result(None)
                self.running += 1
                places -= 1
        return places

    def send_away(self, error: Exception) -> None:
        for who, line in list(self._lines.items()):
            for turn in list(line):
                self._remove(who, turn)
                if not turn.done():
                    turn.set_exception(error)

    def hear(self, spent: float, now: float) -> None:
        if self.bound.per_minute is not None:
            self.spent = self.heard = spent
            self.at = self.heard_at = now

    def unheard(self, now: float) -> tuple[float, float]:
        """Calls of the last minute: those that the store knew of, and those since."""
        rate = self.bound.per_minute
        if rate is None:
            return 0.0, 0.0
        heard = max(0.0, self.heard - (now - self.heard_at) * rate / 60)
        spent = max(0.0, self.spent - (now - self.at) * rate / 60)
        return heard, max(0.0, spent - heard)


class Ask:
    """One call on its way in. `end` it, whatever became of it."""

    __slots__ = ("answer", "counted", "held", "met", "spent", "turn", "until", "who")

    def __init__(self, who: Hashable, met: Sequence[SharedCounter], until: float) -> None:
        self.who = who
        self.met = met
        self.until = until
        """By the loop's clock: after it nobody waits for it any more."""
        self.held = 0
        """Of `met`, those at which it has a place."""
        self.counted = False
        """As one of a minute's calls, by those in `spent`."""
        self.spent: list[SharedCounter] = []
        self.turn: asyncio.Future[None] | None = None
        """In the line of the next one of `met`."""
        self.answer: asyncio.Future[list[int]] | None = None

    def count(self) -> None:
        self.counted = True
        self.spent = [counter for counter in self.met if counter.bound.per_minute is not None]

    def end(self) -> None:
        turn, self.turn = self.turn, None
        if turn is not None:
            self.met[self.held].end(self.who, turn)
        for counter in self.met[: self.held]:
            counter.leave()
