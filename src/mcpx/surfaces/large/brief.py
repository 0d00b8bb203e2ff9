"""A large JSON value in a few of its rows, its long strings cut: enough to see what it holds
(SUR-11).

Promise: at most `most` bytes, and work that depends on these and not on the value. Every cut has a
mark (`marks`), but for the rows of a list that come after those that are shown: who shows them says
how many there are.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

from mcpx.surfaces.large import marks
from mcpx.surfaces.large.excerpt import cut, short_key, size_of

_NODES = 400
"""Values that are looked at: more do not fit anyway."""
_SPARE = 20
"""Characters that are rather shown than counted."""


class _Measure(NamedTuple):
    """How much is shown of what."""

    text: int
    """Characters of a string among others; of one that stands alone there are so many times
    `_ALONE`."""
    rows: int
    """Items of a list of lists or objects; of such a list inside of one a single one."""
    scalars: int
    """Items of any other list."""
    keys: int
    levels: int


_MEASURES = (
    _Measure(60, 3, 10, 24, 5),
    _Measure(40, 3, 6, 16, 4),
    _Measure(30, 2, 4, 12, 3),
    _Measure(20, 1, 3, 12, 2),
    _Measure(12, 1, 1, 6, 1),
)
_ALONE = 5
_ALIKE = 12
"""Keys from which on an object of objects is shown like a list of them: by a few."""


class Brief(NamedTuple):
    text: str
    rows: int
    """Of those that were watched: how many are shown."""


def brief(value: object, most: int, show: Callable[[object], str], watched: object) -> Brief:
    """`show` renders a value; `watched` is a list in it, or the value itself."""
    text = ""
    for measure in _MEASURES:
        shortened = _Shortened(measure, watched)
        text = marks.marked(show(shortened.top(value)))
        if size_of(text) <= most:
            return Brief(text, shortened.count)
    end = f" {marks.own('cut here')}"
    return Brief(cut(text, most - len(end)) + end if most > 2 * len(end) else cut(text, most), 0)


class _Shortened:
    def __init__(self, measure: _Measure, watched: object) -> None:
        self._measure = measure
        self._watched = watched
        self._left = _NODES
        self._lists = 0
        """How many there are around the value that is looked at."""
        self.count = 0

    def top(self, value: object) -> object:
        """Of a list only its first rows, without a mark: so that they may be a table."""
        if isinstance(value, list):
            return self._items(cast(list[object], value), self._measure.levels)
        return self._of(value, self._measure.levels)

    def _of(self, value: object, levels: int) -> object:
        self._left -= 1
        if isinstance(value, str):
            kept = self._measure.text * (1 if self._lists else _ALONE)
            return (
                value
                if len(value) <= kept + _SPARE
                else marks.cut_string(value[:kept], len(value) - kept)
            )
        if isinstance(value, list) and value:
            items = cast(list[object], value)
            if levels <= 0 or self._left <= 0:
                return marks.whole_list(len(items))
            shown = self._items(items, levels)
            return (
                shown
                if len(shown) == len(items)
                else [*shown, marks.more_items(len(items) - len(shown))]
            )
        if isinstance(value, dict) and value:
            fields = cast(dict[str, object], value)
            return (
                marks.whole_object(len(fields))
                if levels <= 0 or self._left <= 0
                else self._fields(fields, levels)
            )
        return cast(object, value)

    def _items(self, items: list[object], levels: int) -> list[object]:
        scalars = not any(_holds(item) for item in islice(items, self._measure.scalars))
        most = self._measure.scalars if scalars else 1 if self._lists else self._measure.rows
        self._lists += 1
        shown = [self._of(item, levels - 1) for item in islice(items, most)]
        self._lists -= 1
        if items is self._watched:
            self.count = len(shown)
        return shown

    def _fields(self, fields: dict[str, object], levels: int) -> dict[str, object]:
        most = self._measure.keys
        if len(fields) > _ALIKE and all(map(_holds, islice(_values(fields), _ALIKE))):
            most = self._measure.rows
        shown: dict[str, object] = {}
        self._lists += most < len(fields)
        for key in islice(fields, most):
            shown[short_key(key)] = self._of(fields[key], levels - 1)
        self._lists -= most < len(fields)
        if len(fields) > most:
            shown[marks.more_keys(len(fields) - most)] = None
        return shown


def _values(fields: dict[str, object]) -> Iterator[object]:
    return iter(fields.values())


def _holds(value: Any) -> bool:
    return isinstance(value, (list, dict))
