"""The beginning and the shape of a large text, from which a model decides how to read on (SUR-11).

Promise: at most `max_bytes` of text, whole rows, keys or lines of it where one fits, and a shape in one line. JSON is
shown by its rows or keys, however few lines it has. Names in a shape are quoted unless they are plain: no name breaks
the line or passes for something else.
No promise: that the shape of rows holds for all of them. It is read off the first ones.
"""

import re
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import orjson

from mcpx.formats.values import render
from mcpx.surfaces.large.excerpt import TIGHTEST, abridged, cut, fit, size_of, weigh
from mcpx.surfaces.large.lines import count_lines, has_line_over, longest_line

NOT_JSON: object = ...
"""Stands for the value of a text that is no JSON."""
LONG_LINE = 4_000
"""Bytes of a line from which on a text is read by characters: by lines some answers would be one line too long."""
_SHAPE_BYTES = 600
_SAMPLE = 50
"""Rows that are looked at for their shape."""
_NAMES = 12
"""Names in a shape, on each of its levels."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class Preview:
    text: str
    """The first rows, keys or lines."""
    shape: str
    """`array of 1,240 objects {id: number, name: string, …}`, `text, 5,310 lines`: what there is, in one line."""
    count: int = 0
    """Rows, lines or characters that are shown whole; 0 where that cannot be said."""


def preview(
    text: str, value: object = NOT_JSON, *, max_bytes: int = 2000, toon: bool = True, min_size: int = 3
) -> Preview:
    """`value`: what the text says, when it is JSON."""

    def show(part: object) -> str:
        return render(part, toon=toon, min_size=min_size)

    count = 0
    if isinstance(value, list):
        rows = cast(list[object], value)
        enough = TIGHTEST * max_bytes
        count, shown = fit(len(rows), max_bytes, lambda at: weigh(rows[at], enough), lambda n: show(rows[:n]))
        if not count:
            shown = abridged(rows, max_bytes, show)
    elif isinstance(value, dict):
        shown = abridged(cast(object, value), max_bytes, show)
    else:
        plain = value if isinstance(value, str) else text
        shown = cut(plain, max_bytes)
        by_characters = has_line_over(plain, LONG_LINE)
        if by_characters:
            count = len(shown)
        elif len(shown) < len(plain):
            whole = shown.rpartition("\n")[0]
            shown, count = (whole, count_lines(whole)) if whole else (shown, 0)
        return Preview(shown, _text_shape(plain, by_characters=by_characters), count)
    return Preview(shown, shape_of(cast(object, value)), count)


def shape_of(value: object) -> str:
    """A string stands for a text."""
    if isinstance(value, str):
        return _text_shape(value, by_characters=has_line_over(value, LONG_LINE))
    shape = _shape(value, 2)
    return shape if size_of(shape) <= _SHAPE_BYTES else cut(shape, _SHAPE_BYTES - 3) + "…"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _text_shape(text: str, *, by_characters: bool) -> str:
    """`by_characters`: whether `offset` and `limit` count characters, since a line is too long."""
    count = count_lines(text)
    if not by_characters:
        return f"text, {counted(count, 'line')}"
    longest = longest_line(text, LONG_LINE // 4)  # no character has more than 4 bytes
    return (
        f"text, {counted(count, 'line')}{', the longest' if count > 1 else ''} of {longest:,} characters "
        f"({len(text):,} characters in all; offset and limit count characters)"
    )


def _shape(value: object, levels: int) -> str:
    if isinstance(value, list):
        return _list_shape(cast(list[object], value), levels)
    if isinstance(value, dict):
        fields = cast(dict[str, object], value)
        shape = f"object with {counted(len(fields), 'key')}"
        if not levels or not fields:
            return shape
        names = [f"{_name(key)}: {_shape(fields[key], levels - 1)}" for key in islice(fields, _NAMES)]
        return f"{shape}: {', '.join(names)}{', …' if len(fields) > _NAMES else ''}"
    return _kind(value)


def _list_shape(rows: list[object], levels: int) -> str:
    sample = rows[:_SAMPLE]
    kinds = {_kind(row) for row in sample}
    kind = kinds.pop() if len(kinds) == 1 else "value"
    shape = f"array of {counted(len(rows), kind)}"
    if kind != "object" or not levels:
        return shape
    # The first names of each row in the order in which they turn up; a name that a row lacks gets its mark.
    seen: dict[str, set[str]] = {}
    more = False
    objects = cast(list[dict[str, Any]], sample)
    for row in objects:
        for key in islice(row, _NAMES):
            if key in seen or len(seen) < _NAMES:
                seen.setdefault(key, set()).add(_kind(row[key]))
        more = more or len(row) > _NAMES or any(key not in seen for key in islice(row, _NAMES))
    names = [
        f"{_name(key)}{'' if all(key in row for row in objects) else '?'}: {' or '.join(sorted(types))}"
        for key, types in seen.items()
    ]
    return f"{shape} {{{', '.join([*names, '…'] if more else names)}}}"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _name(key: str) -> str:
    if _PLAIN_NAME.fullmatch(key):
        return key
    return orjson.dumps(key[:40].encode("utf-8", "replace").decode()).decode() + ("…" if len(key) > 40 else "")
