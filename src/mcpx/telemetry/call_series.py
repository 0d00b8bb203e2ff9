"""Calls over time: counts, errors, and durations, in steps that are longer for older calls.

Adding a call costs the same however many calls there were. Memory is bounded. Percentiles come from
a histogram and are accurate to about 10 %.
"""

from bisect import bisect_left
from collections import deque
from typing import Final

STEP_SECONDS: Final = (15, 60, 900, 7200)
"""The length of a step on each level. Each length is a multiple of the one before."""
STEPS_KEPT: Final = (60, 60, 96, 84)
"""Steps on each level: 15 minutes, 1 hour, 1 day, and 1 week."""

EDGES: Final = tuple(0.0001 * 1.25**n for n in range(63))
"""Upper edges of the histogram in seconds, from 0.1 ms to about 100 s."""


class Tally:
    """Counts and durations of some calls."""

    __slots__ = ("calls", "errors", "slots")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.slots: dict[int, int] = {}
        """Calls by histogram slot. Denied calls are in no slot."""

    def add(self, seconds: float | None, is_error: bool) -> None:
        self.calls += 1
        self.errors += is_error
        if seconds is not None:
            slot = bisect_left(EDGES, seconds)
            self.slots[slot] = self.slots.get(slot, 0) + 1

    def merge(self, other: "Tally") -> None:
        self.calls += other.calls
        self.errors += other.errors
        for slot, count in other.slots.items():
            self.slots[slot] = self.slots.get(slot, 0) + count

    def percentile(self, share: float) -> float | None:
        """Return a duration in seconds, or None without timed calls."""
        wanted = share * sum(self.slots.values())
        passed = 0
        for slot, count in sorted(self.slots.items()):
            if passed + count >= wanted:
                low = EDGES[slot - 1] if slot else 0.0
                high = EDGES[min(slot, len(EDGES) - 1)]
                return low + (high - low) * (wanted - passed) / count
            passed += count
        return None

    def percentile_ms(self, share: float) -> float | None:
        seconds = self.percentile(share)
        return None if seconds is None else round(seconds * 1000, 2)


class Series:
    """The calls of one server, or of all servers, over time."""

    __slots__ = ("_levels", "_newest", "_newest_step")

    def __init__(self) -> None:
        self._levels = [deque[tuple[int, Tally]](maxlen=count) for count in STEPS_KEPT]
        self._newest = Tally()
        """The calls of the current step of the first level."""
        self._newest_step = 0

    def add(self, now: float, seconds: float | None, is_error: bool) -> None:
        self._advance(now)
        self._newest.add(seconds, is_error)

    def _advance(self, now: float) -> None:
        """End the current step if its time is over. A clock that was set back ends no step."""
        step = int(now) // STEP_SECONDS[0]
        if step <= self._newest_step:
            return
        if self._newest.calls:
            for level in range(len(STEP_SECONDS)):
                begin = self._newest_begin(level)
                steps = self._levels[level]
                if not steps or steps[-1][0] != begin:
                    steps.append((begin, Tally()))
                steps[-1][1].merge(self._newest)
            self._newest = Tally()
        self._newest_step = step

    def _newest_begin(self, level: int) -> int:
        """The time at which the level's step that contains the current step begins."""
        time = self._newest_step * STEP_SECONDS[0]
        return time - time % STEP_SECONDS[level]

    def steps(self, level: int, now: float) -> dict[int, Tally]:
        """Return the steps with calls by the time at which they begin, the newest last."""
        self._advance(now)
        length = STEP_SECONDS[level]
        first = int(now) // length * length - (STEPS_KEPT[level] - 1) * length
        found = {begin: tally for begin, tally in self._levels[level] if begin >= first}
        if self._newest.calls:
            begin = self._newest_begin(level)
            merged = Tally()
            merged.merge(self._newest)
            if begin in found:
                merged.merge(found[begin])
            found[begin] = merged
        return found

    def total(self, level: int, now: float, *, since: float = 0.0) -> Tally:
        """Return the sum of all steps of a level that begin at `since` or later."""
        total = Tally()
        for begin, tally in self.steps(level, now).items():
            if begin >= since:
                total.merge(tally)
        return total


class MinuteRate:
    """The number of calls in the last 60 seconds."""

    __slots__ = ("_counts", "_second", "_total")

    def __init__(self) -> None:
        self._counts = [0] * 60
        self._second = 0
        self._total = 0

    def add(self, second: int) -> None:
        self._advance(second)
        self._counts[second % 60] += 1
        self._total += 1

    def at(self, second: int) -> int:
        self._advance(second)
        return self._total

    def _advance(self, second: int) -> None:
        elapsed = second - self._second
        if elapsed <= 0:  # The clock may have been set back.
            return
        if elapsed >= 60:
            self._counts = [0] * 60
            self._total = 0
        else:
            for passed in range(self._second + 1, second + 1):
                self._total -= self._counts[passed % 60]
                self._counts[passed % 60] = 0
        self._second = second
