"""The beginning and the shape of a large text, from which a model decides how to read on (SUR-11).

The preview of JSON has its first rows with long strings cut, that of a text its first lines. The
shape describes the first rows; later rows may differ. The line behind the preview is a call that
can be copied.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, cast

import orjson

from mcpx.base.abridge import Limits, abridge
from mcpx.formats.json import as_json
from mcpx.formats.writing import value_writer
from mcpx.surfaces.large.measure import (
    count_lines,
    counted,
    cut,
    has_line_over,
    own,
    quoted,
    size_of,
)

NOT_JSON: object = ...
"""The value of a text that is no JSON."""
LONG_LINE = 4_000
"""Bytes of a line from which on a text is read by characters."""
FIRST_ROWS = 3
_WITHOUT_ROWS = Limits(text=300, items=12, depth=5, nodes=100)
_LIMITS = (
    Limits(text=60, items=5, depth=5, nodes=200),
    Limits(text=40, items=4, depth=4, nodes=100),
    Limits(text=20, items=3, depth=3, nodes=50),
    Limits(text=12, items=2, depth=2, nodes=20),
)
_SHAPE_BYTES = 600
_SAMPLE = 50
"""Rows that are looked at for their shape."""
_NAMES = 12
"""Names in a shape, on each of its levels."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
_MAX_STEP_BYTES = 60
_MAX_VALUE = 40
"""Characters of a value in the filter of an example."""
_LINES = 12
"""Lines of a text that are shown: most lines of a log are alike."""
_LOOKED_AT = 64 << 10
"""Characters after the preview of a text in which a word is looked for."""
_WORD = re.compile(r"[^\W\d_]{4,24}")

Unit = Literal["row", "key", "line", "character"]


@dataclass(frozen=True, slots=True)
class Preview:
    text: str
    """The first rows, keys or lines."""
    shape: str
    """`array of 1,240 objects {id: number, name: string, …}`, `text, 5,310 lines`."""
    unit: Unit
    """What `offset` and `limit` count."""
    count: int = 0
    """Rows, lines or characters that are shown; 0 if `offset` does not count what is shown."""
    rows: str | None = None
    """Of JSON: the expression for more rows, empty for the whole value; None without more rows."""
    find: str | None = None
    """Finds something in the result: an expression in JSON, a word in a text."""


def preview(
    text: str,
    value: object = NOT_JSON,
    *,
    max_bytes: int = 1500,
    write: Callable[[object], str] | None = None,
) -> Preview:
    """`value`: of the text, if it is JSON. `write` renders parts of it, by default as TOON."""
    if not isinstance(value, (list, dict)):
        return _of_text(value if isinstance(value, str) else text, max_bytes)
    write = write or value_writer("toon")
    whole: object = cast(Any, value)
    path, rows = rows_in(whole)
    example = "keys(@)"
    if path or isinstance(value, list):
        example = _example(path, rows)
    shape = shape_of(whole)
    if isinstance(value, dict):
        more = path if len(rows) > 1 else None
        limits = _LIMITS if rows else (_WITHOUT_ROWS, *_LIMITS)
        shown = _shortened(whole, max_bytes, write, limits)
        return Preview(shown, shape, "key", 0, more, example)
    first = rows[:FIRST_ROWS]
    more = "" if len(rows) > len(first) else None
    shown = _shortened(first, max_bytes, write)
    return Preview(shown, shape, "row", len(first), more, example)


def abridged(value: object, limits: Limits) -> Any:
    """Rows of a list keep their number, so that they may be a table."""
    if isinstance(value, list):
        return [abridge(row, limits) for row in cast("list[object]", value)]
    return abridge(value, limits)


def _shortened(
    value: object,
    most: int,
    write: Callable[[object], str],
    limits: Sequence[Limits] = _LIMITS,
) -> str:
    text = ""
    for each in limits:
        text = write(abridged(value, each))
        if size_of(text) <= most:
            return text
    return cut(text, most)


def _of_text(text: str, max_bytes: int) -> Preview:
    find = None
    shown = cut(text, max_bytes)
    if has_line_over(text, LONG_LINE):
        find = _rarest_word(text[len(shown) : len(shown) + _LOOKED_AT])
        shape = f"text, {counted(count_lines(text), 'line')} of {len(text):,} characters"
        return Preview(shown, shape, "character", len(shown), None, find)
    count = 0
    if len(shown) < len(text):
        lines = shown.rpartition("\n")[0].split("\n", _LINES)[:_LINES]
        whole = "\n".join(lines)
        if whole:
            shown, count = whole, count_lines(whole)
    find = _rarest_word(text[len(shown) : len(shown) + _LOOKED_AT])
    return Preview(shown, shape_of(text), "line", count, None, find)


def _rarest_word(text: str) -> str | None:
    """In a log a rare word says more than one that is in every line. Lower case finds any case."""
    counts = Counter(_WORD.findall(text))
    word = min(counts, key=counts.__getitem__, default=None)
    if word is not None and word.isascii():
        return word.lower()
    return word


# Expressions


def step(name: str) -> str | None:
    """A key as a part of an expression; None if that would be long, or hard to copy."""
    if _IDENTIFIER.fullmatch(name):
        return name
    spelled = as_json(name)
    if len(spelled.encode()) > _MAX_STEP_BYTES or not name.isprintable():
        return None
    return spelled


def rows_in(value: object) -> tuple[str, list[object]]:
    """The value itself if it is a list, else the longest list on its first two levels."""
    if isinstance(value, list):
        return "", cast("list[object]", value)
    nothing: tuple[str, list[object]] = ("", [])
    return max(_lists(value, 2), key=lambda found: len(found[1]), default=nothing)


def _lists(value: object, levels: int) -> Iterator[tuple[str, list[object]]]:
    if not isinstance(value, dict):
        return
    for key, inner in islice(cast("dict[str, object]", value).items(), _SAMPLE):
        name = step(key)
        if name is None:
            continue
        if isinstance(inner, list):
            yield name, cast("list[object]", inner)
        elif levels > 1:
            for path, items in _lists(inner, levels - 1):
                yield f"{name}.{path}", items


def _example(path: str, rows: list[object]) -> str:
    """An expression that selects something from these rows: a filter if a row has a short text."""
    whole = f"length({path or '@'})"
    if not rows or not isinstance(rows[0], dict):
        return whole
    row = cast("dict[str, object]", rows[0])
    for key, value in islice(row.items(), _NAMES):
        name = step(key)
        if name is None or not isinstance(value, str) or not 0 < len(value) <= _MAX_VALUE:
            continue
        if value.isprintable() and not set(value) & set("'\\`"):
            return f"length({path}[?{name}=='{value}'])"
    return whole


# Shapes


def shape_of(value: object) -> str:
    """Names are quoted unless they are plain, so that no name breaks the line."""
    if not isinstance(value, str):
        shape = _shape(value, 2)
    elif has_line_over(value, LONG_LINE):
        shape = f"text, {counted(count_lines(value), 'line')} of {len(value):,} characters"
    else:
        shape = f"text, {counted(count_lines(value), 'line')}"
    if size_of(shape) <= _SHAPE_BYTES:
        return shape
    return cut(shape, _SHAPE_BYTES - 3) + "…"


def _shape(value: object, levels: int) -> str:
    if isinstance(value, list):
        return _list_shape(cast("list[object]", value), levels)
    if not isinstance(value, dict):
        return _kind(value)
    fields = cast("dict[str, object]", value)
    shape = f"object with {counted(len(fields), 'key')}"
    if not levels or not fields:
        return shape
    names = [f"{_name(key)}: {_shape(fields[key], levels - 1)}" for key in islice(fields, _NAMES)]
    if len(fields) > _NAMES:
        names.append("…")
    return f"{shape}: {', '.join(names)}"


def _list_shape(rows: list[object], levels: int) -> str:
    sample = rows[:_SAMPLE]
    kinds = {_kind(row) for row in sample}
    kind = kinds.pop() if len(kinds) == 1 else "value"
    shape = f"array of {counted(len(rows), kind)}"
    if kind != "object" or not levels:
        return shape
    return f"{shape} {_columns(cast('list[dict[str, object]]', sample))}"


def _columns(rows: list[dict[str, object]]) -> str:
    """The fields of objects. A name that a row lacks is marked with `?`."""
    kinds: dict[str, set[str]] = {}
    for row in rows:
        for key in islice(row, _NAMES + 1):
            kinds.setdefault(key, set()).add(_kind(row[key]))
    names: list[str] = []
    for key in islice(kinds, _NAMES):
        mark = "" if all(key in row for row in rows) else "?"
        names.append(f"{_name(key)}{mark}: {' or '.join(sorted(kinds[key]))}")
    if len(kinds) > _NAMES:
        names.append("…")
    return f"{{{', '.join(names)}}}"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


def _name(key: str) -> str:
    if _PLAIN_NAME.fullmatch(key):
        return key
    name = orjson.dumps(key[:40].encode("utf-8", "replace").decode()).decode()
    return f"{name}…" if len(key) > 40 else name


# Lines around a preview


def arguments(**given: str | int | None) -> str:
    """A JSON object as a model has to write it."""
    pairs: list[str] = []
    for name, value in given.items():
        if isinstance(value, str):
            value = quoted(value)
        if value is not None:
            pairs.append(f'"{name}": {value}')
    return f"{{{', '.join(pairs)}}}"


def opening(size: int, begins: Preview) -> str:
    """What the result is, and what is shown of it."""
    bytes_told = f"{size:,} bytes, "
    if f" {size:,} " in f" {begins.shape} ":
        bytes_told = ""
    if begins.unit == "key":
        shown = "Abridged"
    elif begins.count > 1:
        shown = f"The first {counted(begins.count, begins.unit)}"
    else:
        shown = "It begins"
    return own(f"kept back: {bytes_told}{begins.shape}. {shown}:")


def closing(handle: str, begins: Preview, call: Callable[[str], str], *, by_offset: bool) -> str:
    """How to go on. `call` makes a whole call of arguments; `by_offset`: whether an offset counts
    lines or characters as they are shown."""
    if begins.unit in ("line", "character"):
        offset = begins.count if by_offset and begins.count else None
        told = f"the next {begins.unit}s: {call(arguments(handle=handle, offset=offset))}"
        if begins.find:
            word = arguments(handle=handle, grep=begins.find)
            told += f"; to find a word (in lower case it finds any case): arguments {word}"
        return own(told)
    told = f"to select: {call(arguments(handle=handle, jmespath=begins.find))}"
    if begins.rows is not None:
        following = arguments(
            handle=handle, jmespath=begins.rows or None, offset=begins.count or None
        )
        told += f"; the next rows: arguments {following}"
    return own(told)
