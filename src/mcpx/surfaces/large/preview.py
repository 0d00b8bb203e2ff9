"""The beginning and the shape of a large text, from which a model decides how to read on (SUR-11).

Promise: at most `max_bytes` of text: of JSON a few rows with their long strings cut (`brief`), else
whole lines where one fits; a shape in one line; and something to look for that is there. Names in a
shape are quoted unless they are plain: no name breaks the line or passes for something else. No
promise: that the shape of rows holds for all of them. It is read off the first ones.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, cast

import orjson

from mcpx.formats.writing import value_writer
from mcpx.surfaces.large.brief import brief
from mcpx.surfaces.large.example import example, rows_in
from mcpx.surfaces.large.excerpt import cut, size_of
from mcpx.surfaces.large.lines import count_lines, counted, has_line_over

__all__ = ["LONG_LINE", "NOT_JSON", "Preview", "counted", "preview", "shape_of"]

NOT_JSON: object = ...
"""Stands for the value of a text that is no JSON."""
LONG_LINE = 4_000
"""Bytes of a line from which on a text is read by characters: by lines some answers would be one
line too long."""
_SHAPE_BYTES = 600
_SAMPLE = 50
"""Rows that are looked at for their shape."""
_NAMES = 12
"""Names in a shape, on each of its levels."""
_ALIKE = 3
"""Names of an object whose values are alike."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
_LINES = 12
"""Lines of a text that are shown: of a log most are alike."""
_LOOKED_AT = 64 << 10
"""Characters after the beginning of a text in which a word is looked for."""
_WORD = re.compile(r"[^\W\d_]{4,24}")

Unit = Literal["row", "key", "line", "character"]


@dataclass(frozen=True, slots=True)
class Preview:
    text: str
    """The first rows, keys or lines."""
    shape: str
    """`array of 1,240 objects {id: number, name: string, …}`, `text, 5,310 lines`: what there is,
    in one line."""
    unit: Unit
    """What `offset` and `limit` count."""
    count: int = 0
    """Rows, lines or characters that are shown; 0 where that cannot be said."""
    rows: str | None = None
    """Of JSON: the expression for the rows that are counted, empty where the whole is meant; None
    where there are none, or no more of them."""
    find: str | None = None
    """Something to begin with that finds something: an expression in JSON, a word in a text."""


def preview(
    text: str,
    value: object = NOT_JSON,
    *,
    max_bytes: int = 1500,
    write: Callable[[object], str] | None = None,
) -> Preview:
    """`value`: what the text says, when it is JSON; `write`: how parts of it are shown, else as
    TOON."""
    if not isinstance(value, (list, dict)):
        return _of_text(value if isinstance(value, str) else text, max_bytes)
    whole: object = cast(Any, value)
    rows = rows_in(whole)
    shown = brief(
        whole,
        max_bytes,
        write or value_writer("toon"),
        whole if rows is None else rows.items,
    )
    return Preview(
        shown.text,
        shape_of(whole),
        "row" if isinstance(value, list) else "key",
        shown.rows,
        None if rows is None or shown.rows >= len(rows.items) else rows.path,
        example(whole, rows),
    )


def _of_text(text: str, max_bytes: int) -> Preview:
    shown, by_characters = cut(text, max_bytes), has_line_over(text, LONG_LINE)
    count = len(shown) if by_characters else 0
    if not by_characters and len(shown) < len(text):
        whole = "\n".join(shown.rpartition("\n")[0].split("\n", _LINES)[:_LINES])
        shown, count = (whole, count_lines(whole)) if whole else (shown, 0)
    unit: Unit = "character" if by_characters else "line"
    find = _rarest_word(text[len(shown) : len(shown) + _LOOKED_AT])
    return Preview(shown, _text_shape(text, by_characters=by_characters), unit, count, None, find)


def _rarest_word(text: str) -> str | None:
    """The first of those that come up least: in a log it tells more than one that stands in every
    line."""
    counts = Counter(_WORD.findall(text))
    word = min(counts, key=counts.__getitem__, default=None)
    return (
        word.lower() if word is not None and word.isascii() else word
    )  # in lower case any case is found


def shape_of(value: object) -> str:
    """A string stands for a text."""
    if isinstance(value, str):
        return _text_shape(value, by_characters=has_line_over(value, LONG_LINE))
    shape = _shape(value, 2)
    return shape if size_of(shape) <= _SHAPE_BYTES else cut(shape, _SHAPE_BYTES - 3) + "…"


def _text_shape(text: str, *, by_characters: bool) -> str:
    """`by_characters`: whether `offset` and `limit` count characters, since a line is too long."""
    lines = counted(count_lines(text), "line")
    return f"text, {lines} of {len(text):,} characters" if by_characters else f"text, {lines}"


def _shape(value: object, levels: int) -> str:
    if isinstance(value, list):
        return _list_shape(cast(list[object], value), levels)
    if isinstance(value, dict):
        fields = cast(dict[str, object], value)
        shape = f"object with {counted(len(fields), 'key')}"
        if not levels or not fields:
            return shape
        if len(fields) > _NAMES and all(
            isinstance(each, dict) for each in islice(fields.values(), _SAMPLE)
        ):
            some = ", ".join(map(_name, islice(fields, _ALIKE)))
            return (
                f"{shape} ({some}, …) of objects {_columns(list(islice(fields.values(), _SAMPLE)))}"
            )
        names = [
            f"{_name(key)}: {_shape(fields[key], levels - 1)}" for key in islice(fields, _NAMES)
        ]
        return f"{shape}: {', '.join(names)}{', …' if len(fields) > _NAMES else ''}"
    return _kind(value)


def _list_shape(rows: list[object], levels: int) -> str:
    sample = rows[:_SAMPLE]
    kinds = {_kind(row) for row in sample}
    kind = kinds.pop() if len(kinds) == 1 else "value"
    shape = f"array of {counted(len(rows), kind)}"
    if kind != "object" or not levels:
        return shape
    return f"{shape} {_columns(sample)}"


def _columns(sample: list[object]) -> str:
    """The fields of objects that are alike."""
    # The first names of each row in the order in which they turn up; a name that a row lacks gets
    # its mark.
    seen: dict[str, set[str]] = {}
    more = False
    objects = cast(list[dict[str, Any]], sample)
    for row in objects:
        for key in islice(row, _NAMES):
            if key in seen or len(seen) < _NAMES:
                seen.setdefault(key, set()).add(_kind(row[key]))
        more = more or len(row) > _NAMES or any(key not in seen for key in islice(row, _NAMES))
    names = [
        (
            f"{_name(key)}{'' if all(key in row for row in objects) else '?'}: "
            f"{' or '.join(sorted(types))}"
        )
        for key, types in seen.items()
    ]
    return f"{{{', '.join([*names, '…'] if more else names)}}}"


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
    return orjson.dumps(key[:40].encode("utf-8", "replace").decode()).decode() + (
        "…" if len(key) > 40 else ""
    )
