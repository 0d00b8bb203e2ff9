"""Calls, errors and how long they took, over time: in ever longer steps the longer ago it is.

Promised: calls cost the same however many there were; what is kept is bounded, and small where
little happened. Percentiles are read off a histogram: they are right to about a tenth.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

STEPS = (15, 60, 900, 7200)
"""Seconds of a step on each level; each is a multiple of the one before."""
KEPT = (60, 60, 96, 84)
"""Steps that are told of on each level: a quarter of an hour, an hour, a day, a week."""
FINEST = STEPS[0]

EDGES = tuple(0.0001 * 1.25**n for n in range(63))
"""Upper edges of the histogram, in seconds: a tenth of a millisecond to about a hundred seconds."""
_SLOTS = len(EDGES) + 1


def slot_of(seconds: float) -> int:
    """Of the histogram."""
    return bisect_left(EDGES, seconds)


class Tally:
    """What happened in one step."""

    __slots__ = ("calls", "counts", "errors")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.counts = [0] * _SLOTS

    def add(self, slots: Sequence[int], failed: int = 0, refused: int = 0) -> None:
        """`slots`: where the times they took belong (`slot_of`); those that were refused took
        none."""
        self.calls += len(slots) + refused
        self.errors += failed + refused
        counts = self.counts
        for slot in slots:
            counts[slot] += 1

    def take(self, other: "Tally") -> None:
        self.calls += other.calls
        self.errors += other.errors
        mine = self.counts
        for at, count in enumerate(other.counts):
            if count:
                mine[at] += count

    def percentile(self, share: float) -> float | None:
        """In seconds; None where nothing was timed."""
        total = sum(self.counts)
        if not total:
            return None
        wanted, passed = share * total, 0
        for at, count in enumerate(self.counts):
            if count and passed + count >= wanted:
                low, high = EDGES[at - 1] if at else 0.0, EDGES[min(at, len(EDGES) - 1)]
                return low + (high - low) * (wanted - passed) / count
            passed += count
        return EDGES[-1]

    @property
    def p50_ms(self) -> float | None:
        return _ms(self.percentile(0.5))

    @property
    def p95_ms(self) -> float | None:
        return _ms(self.percentile(0.95))


class _Packed(NamedTuple):
    """A step that is over; of the histogram only what is not empty, five bytes a slot."""

    at: int
    calls: int
    errors: int
    counts: bytes

    @classmethod
    def of(cls, at: int, tally: Tally) -> "_Packed":
        counts = b"".join(
            slot.to_bytes(1, "big") + min(count, 0xFFFFFFFF).to_bytes(4, "big")
            for slot, count in enumerate(tally.counts)
            if count
        )
        return cls(at, tally.calls, tally.errors, counts)

    def into(self, tally: Tally) -> Tally:
        tally.calls += self.calls
        tally.errors += self.errors
        for place in range(0, len(self.counts), 5):
            tally.counts[self.counts[place]] += int.from_bytes(
                self.counts[place + 1 : place + 5], "big"
            )
        return tally


class Series:
    """One thing over time: everything, or a server."""

    __slots__ = ("_kept", "_now", "_open")

    def __init__(self) -> None:
        self._now = 0
        """The finest step that is open, as its number."""
        self._open = [Tally() for _ in STEPS]
        """What is not over on each level, less what is still open on the finer ones."""
        self._kept: list[deque[_Packed]] = [deque(maxlen=kept) for kept in KEPT]

    def add(self, second: int, slots: Sequence[int], failed: int = 0, refused: int = 0) -> None:
        """Calls of one second; see `Tally.add`."""
        step = second // FINEST
        if step > self._now:
            self._turn(step)
        self._open[0].add(slots, failed, refused)

    def _turn(self, step: int) -> None:
        """Another step begins; what is over on one level goes up to the next. A clock that was put
        back begins none."""
        begins, self._now = self._now * FINEST, step
        moment = step * FINEST
        for level, seconds in enumerate(STEPS):
            if begins // seconds == moment // seconds:
                return
            tally = self._open[level]
            if tally.calls:
                self._kept[level].append(_Packed.of(begins // seconds * seconds, tally))
                if level + 1 < len(STEPS):
                    self._open[level + 1].take(tally)
                self._open[level] = Tally()

    def steps(self, level: int, now: float) -> Iterator[tuple[int, Tally]]:
        """Those in which something happened, the latest last: when each began, and what
        happened."""
        step = int(now) // FINEST
        if step > self._now:
            self._turn(step)
        first = int(now) // STEPS[level] * STEPS[level] - (KEPT[level] - 1) * STEPS[level]
        for packed in self._kept[level]:
            if packed.at >= first:
                yield packed.at, packed.into(Tally())
        whole = Tally()
        for each in self._open[: level + 1]:
            whole.take(each)
        if whole.calls:
            yield self._now * FINEST // STEPS[level] * STEPS[level], whole

    def over(self, level: int, now: float, latest: int | None = None) -> Tally:
        """All steps of a level together, or the latest of them."""
        whole = Tally()
        first = (
            0 if latest is None else int(now) // STEPS[level] * STEPS[level] - latest * STEPS[level]
        )
        for at, tally in self.steps(level, now):
            if at >= first:
                whole.take(tally)
        return whole


class Rate:
    """How many in the last minute."""

    __slots__ = ("_counts", "_second", "_total")

    def __init__(self) -> None:
        self._counts = [0] * 60
        self._second = 0
        self._total = 0

    def add(self, second: int, many: int = 1) -> None:
        if second != self._second:
            self._turn(second)
        self._counts[second % 60] += many
        self._total += many

    def _turn(self, second: int) -> None:
        if not 0 < second - self._second < 60:
            if second < self._second:
                return  # a clock that was put back
            self._counts, self._total = [0] * 60, 0
        else:
            for passed in _places(range(self._second + 1, second + 1)):
                self._total -= self._counts[passed]
                self._counts[passed] = 0
        self._second = second

    def at(self, second: int) -> int:
        if second != self._second:
            self._turn(second)
        return self._total


def _places(seconds: Iterable[int]) -> Iterator[int]:
    return (second % 60 for second in seconds)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
