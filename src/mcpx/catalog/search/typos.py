"""Words that are nearly right: which known words a misspelt or unfinished one can mean.

Promised: one wrong, missing, extra or swapped letter is found wherever it stands; a second one in
words of eight letters or more, unless both fall so that neither end of the word is left whole. The
cost is bounded: a few thousand comparisons at most, whatever the vocabulary. Not promised: which of
several near words is meant; the nearest are given, the frequent first.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

SHORTEST = 4
"""Shorter words have too many neighbours to guess at."""
_SHORTEST_FOR_TWO = 8
_CANDIDATES = 2_000
"""So many words with the same beginning (or end) are compared, no more."""


class Spellings:
    """Words in lower case, sorted forwards and backwards."""

    __slots__ = ("_backward", "_forward", "_frequency")

    def __init__(self, words: Iterable[str], frequency: Callable[[str], int]) -> None:
        self._forward = sorted(word for word in words if word.isascii() and word.isalpha())
        self._backward = sorted(word[::-1] for word in self._forward)
        self._frequency = frequency

    def starting(self, beginning: str, limit: int) -> list[str]:
        """The words that go on from here, the frequent first."""
        return sorted(_with_prefix(self._forward, beginning), key=self._rank)[:limit]

    def near(self, word: str, limit: int) -> list[str]:
        """The words that `word` can be a slip of: the nearest only, the frequent first."""
        if len(word) < SHORTEST or not word.isalpha():
            return []
        allowed = 2 if len(word) >= _SHORTEST_FOR_TWO else 1
        # One slip leaves one end of the word whole. (Less than half of it: a swap touches two
        # letters.)
        kept = max(1, (len(word) - 1) // (1 + allowed))
        candidates = set(_with_prefix(self._forward, word[:kept]))
        candidates.update(found[::-1] for found in _with_prefix(self._backward, word[::-1][:kept]))
        nearest = allowed
        found: list[str] = []
        letters = set(word)
        for candidate in candidates:
            # Cheap to ask, and says no to nearly all: a slip brings in one letter and takes one
            # away.
            if (
                abs(len(candidate) - len(word)) <= nearest
                and len(letters.difference(candidate)) <= nearest
                and len(set(candidate) - letters) <= nearest
            ):
                distance = slips(word, candidate, nearest)
                if distance < nearest:
                    nearest, found = distance, []
                if distance == nearest:
                    found.append(candidate)
        return sorted(found, key=self._rank)[:limit]

    def _rank(self, word: str) -> tuple[int, str]:
        return -self._frequency(word), word


def _with_prefix(ordered: Sequence[str], prefix: str) -> list[str]:
    start = end = bisect_left(ordered, prefix)
    last = min(len(ordered), start + _CANDIDATES)
    while end < last and ordered[end].startswith(prefix):
        end += 1
    return list(ordered[start:end])


def slips(one: str, other: str, most: int) -> int:
    """Wrong, missing, extra or swapped letters between two words; `most + 1` when there are more
    than `most`."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        following = [at]
        for there, another in enumerate(other, 1):
            cost = min(row[there] + 1, following[-1] + 1, row[there - 1] + (letter != another))
            if at > 1 and there > 1 and letter == other[there - 2] and one[at - 2] == another:
                cost = min(cost, before[there - 2] + 1)
            following.append(cost)
        if min(following) > most:
            return most + 1
        before, row = row, following
    return min(row[-1], most + 1)
