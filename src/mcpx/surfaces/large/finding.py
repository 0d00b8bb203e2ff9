"""`grep` in a kept result: which rows, keys or lines contain a text (SUR-11).

Promise: a plain substring, in lower case on both sides when what is looked for has no capitals. JSON is looked through
as compact JSON, where the text may stand as it is or as JSON spells it. The work is bounded by `WORK`, whatever the
rows are; `Found.looked_at` says how far it went. Rows are written out many at a time, and one by one only where they
contain it: what is rare is found about as fast as orjson writes.

No promise: that all matches are known, see `Found`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from mcpx.formats.values import render
from mcpx.surfaces.large.excerpt import cut, weigh

WORK = 200_000_000
"""What one search may cost, in bytes that are written and looked through: about half a second."""
_BLOCK = 1024
"""Rows that are looked through together."""
_GROUP = 16
"""And those of a block that contains it."""
_LOOK = 250
"""A look at one row or at some costs as much as so many bytes, even if they are short."""
_ROW = 16
_WEIGHED = 16
"""Weighing a byte costs as much as writing so many."""
_HEAVY = 1 << 18
"""Rows that weigh more are not looked through together where they may be endless."""
_SLOWLY = 8
"""How much more a byte costs that orjson does not write."""
_VERY_SLOWLY = 400
"""And one that is nested too deeply for json as well."""
_TOO_DEEP = 100_000
"""To find out that it is."""
_LINE = 300
"""A line that contains it."""

_slow_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True, slots=True)
class Found:
    positions: list[int]
    looked_at: int
    """How many rows, keys or lines from the first one on were looked through."""


@dataclass(frozen=True, slots=True)
class Needle:
    """What is looked for."""

    text: str

    @property
    def folded(self) -> bool:
        """A text without capitals finds both."""
        return self.text == self.text.lower()

    def quoted(self) -> str:
        return to_json(cut(self.text, 40))


def fold(text: str) -> str:
    """In lower case, with every character where it was: one letter alone becomes two."""
    return text.replace("İ", "i").lower()


def rows_with(
    needle: Needle, count: int, some: Callable[[int, int], object], *, enough: int, endless: bool = False
) -> Found:
    """Which of `count` rows, `some(first, end)` of which are a list or an object, contain the needle.

    `enough`: once it has so many it only counts the rest, and only if that takes little. `endless`: they may be too
    much to be written out, and are weighed first; it ends before one that is.
    """
    search = _Search(needle, some, endless)
    found: list[int] = []
    try:
        for block in range(0, count, _BLOCK):
            block_end = min(block + _BLOCK, count)
            if not search.look(block, block_end):
                continue
            for group in range(block, block_end, _GROUP):
                group_end = min(group + _GROUP, block_end)
                if not search.look(group, group_end):
                    continue
                for row in range(group, group_end):
                    if search.look(row, row + 1):
                        found.append(row)
                        if len(found) == enough:
                            search.left = min(search.left, WORK // 4)
    except _NoWorkLeft:
        return Found(found, search.at)
    return Found(found, count)


class _NoWorkLeft(Exception):
    pass


class _Search:
    """What is looked for, in what, and how much work is left."""

    __slots__ = ("_endless", "_folded", "_needles", "_some", "at", "left")

    def __init__(self, needle: Needle, some: Callable[[int, int], object], endless: bool) -> None:
        self._needles = tuple({needle.text, to_json(needle.text)[1:-1]})
        self._folded = needle.folded
        self._some = some
        self._endless = endless
        self.left = WORK
        self.at = 0
        """The first row of those that were looked at last."""

    def look(self, first: int, end: int) -> bool:
        """Whether these rows contain it; of more than one: whether one of them may."""
        self.at = first
        if self.left < 0:
            raise _NoWorkLeft
        self.left -= _LOOK + _ROW * (end - first)
        rows = self._some(first, end)
        if self._endless and not self._can_be_written(rows, alone=end - first == 1):
            return True
        text = self._written(rows, alone=end - first == 1)
        if text is None:
            return True
        text = text[1:-1]  # what is around the rows is not theirs
        if self._folded:
            text = text.lower()
        return any(needle in text for needle in self._needles)

    def _can_be_written(self, rows: object, *, alone: bool) -> bool:
        most = max(self.left // _WEIGHED, 0)
        if not alone:
            most = min(most, _HEAVY)
        weight = weigh(rows, most)
        self.left -= weight * _WEIGHED
        if alone and weight > most:
            raise _NoWorkLeft
        return weight <= most

    def _written(self, rows: object, *, alone: bool) -> str | None:
        """Rows as compact JSON; `None` where they are better looked at in smaller parts."""
        try:
            text = orjson.dumps(rows).decode()
            self.left -= len(text)
        except TypeError:  # what orjson does not write: large integers, cut emoji, more than 254 levels
            try:
                text = _slow_json(rows)
                self.left -= len(text) * _SLOWLY
            except RecursionError:
                if not alone:
                    self.left -= _TOO_DEEP
                    return None
                text = render(rows, toon=False)
                self.left -= len(text) * _VERY_SLOWLY
        return text


def lines_with(needle: Needle, text: str, total: int, *, enough: int) -> tuple[Found, list[int]]:
    """The lines that contain it, and where each of them begins."""
    compared = fold(text) if needle.folded else text
    numbers, starts = list[int](), list[int]()
    number = begin = 0
    left = WORK
    at = -1 if "\n" in needle.text else compared.find(needle.text)
    while at >= 0:
        number += compared.count("\n", begin, at)
        begin = max(compared.rfind("\n", begin, at) + 1, begin)
        numbers.append(number)
        starts.append(begin)
        left -= _LINE
        if len(numbers) == enough:
            left = min(left, WORK // 4)
        if left < 0:
            return Found(numbers, number + 1), starts
        begin = compared.find("\n", at) + 1
        if not begin:
            break
        number += 1
        at = compared.find(needle.text, begin)
    return Found(numbers, total), starts


def to_json(text: str) -> str:
    try:
        return orjson.dumps(text).decode()
    except TypeError:  # half an emoji
        return _slow_json(text)
