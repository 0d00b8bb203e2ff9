"""An expression to begin with, made from what a kept result really holds (SUR-11).

Promise: it is valid jmespath, fits in one line of `LONGEST` characters, and selects something from
this very value. A filter on a value that was seen where there is one, for that is what is asked for
most and mistaken most. No promise: that it is what somebody wants to know.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

from mcpx.formats.json import as_json
from mcpx.surfaces.large.excerpt import weigh

LONGEST = 160
_NAME = 60
"""Characters of a name in an expression."""
_WORD = 40
"""Characters of a value in a filter."""
_SAMPLE = 50
"""Rows and keys that are looked at."""
_LEVELS = 4
_PLACES = 300
"""Values that are looked at for the rows among them."""
_MANY = 12
"""Keys from which on an object of objects is as good as a list of them."""
_WEIGHED = 2_000
"""Bytes from which on a part is large."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")


class Rows(NamedTuple):
    path: str
    """Empty where the whole value is meant."""
    items: list[object]


def step(name: str) -> str | None:
    """A key as a part of an expression; None where that would be long, or hard to copy."""
    if _IDENTIFIER.fullmatch(name):
        return name
    if len(name) > _NAME or not name.isprintable():
        return None
    quoted = as_json(name)
    return quoted if len(quoted.encode()) <= _NAME else None


def rows_in(value: object) -> Rows | None:
    """The longest list of objects in it, or what may be read like one; failing that its longest
    list."""
    found = list(islice(_lists(value), _PLACES))
    tables = [rows for rows in found if isinstance(rows.items[0], dict)]
    return max(tables or found, key=lambda rows: len(rows.items), default=None)


def example(value: object, rows: Rows | None) -> str | None:
    """None: for nothing at all."""
    if rows is not None:
        expression = _of_rows(rows)
    elif isinstance(value, dict) and value:
        fields = cast(dict[str, object], value)
        expression = None if len(fields) > _MANY else _largest(fields)
        expression = expression or "keys(@)"
    elif isinstance(value, list) and value:
        inside = _largest(cast(list[Any], value)[0])
        expression = f"[0].{inside}" if inside else "length(@)"
    else:
        return None
    return (
        expression if len(expression) <= LONGEST else f"length({rows.path or '@' if rows else '@'})"
    )


def _lists(value: object) -> Iterator[Rows]:
    """What there is to page through, the nearest first."""
    waiting: list[tuple[str, object, int]] = [("", value, 0)]
    for path, here, level in waiting:
        if len(waiting) > _PLACES:
            return
        if isinstance(here, list) and here:
            items = cast(list[object], here)
            if len(items) > 1 or not isinstance(items[0], dict) or level >= _LEVELS:
                yield Rows(path, items)
            else:
                waiting.append((f"{path}[0]", cast(object, items[0]), level + 1))
        elif isinstance(here, dict):
            fields = cast(dict[str, object], here)
            if len(fields) > _MANY and all(
                isinstance(each, dict) for each in islice(fields.values(), _SAMPLE)
            ):
                yield Rows(f"values({path or '@'})", list(fields.values()))
                continue
            for key in islice(fields, _SAMPLE) if level < _LEVELS else ():
                name = step(key)
                if (
                    name is not None
                    and isinstance(fields[key], (dict, list))
                    and len(path) + len(name) < LONGEST // 2
                ):
                    waiting.append((f"{path}.{name}" if path else name, fields[key], level + 1))


def _of_rows(rows: Rows) -> str:
    path, sample = (
        rows.path,
        [cast(dict[str, object], row) for row in rows.items[:_SAMPLE] if isinstance(row, dict)],
    )
    names = {key: name for key in dict.fromkeys(_keys(sample)) if (name := step(key)) is not None}
    columns = {key: [row[key] for row in sample if key in row] for key in names}
    for key, values in sorted(columns.items(), key=lambda column: _kinds(column[1])):
        if 0 < _kinds(values) <= len(values) // 2 and (word := _word(values)) is not None:
            return f"length({path}[?{names[key]}=='{word}'])"
    for key, values in columns.items():
        if values and all(isinstance(value, bool) for value in values):
            return f"length({path}[?{'' if any(values) else '!'}{names[key]}])"
    for key, values in columns.items():
        if (word := _word(values)) is not None:
            return f"{path}[?{names[key]}=='{word}']"
    for key in columns:
        if _all_numbers(rows.items, key):
            return f"max_by({path or '@'}, &{names[key]})"
    for key, values in columns.items():
        if any(value is not None for value in values):
            return f"{path}[].{names[key]}"
    if (
        rows.items
        and not isinstance(rows.items[-1], (dict, list))
        and rows.items[-1] not in (None, "")
    ):
        return f"{path}[-1]"
    return f"length({path or '@'})"


def _keys(sample: list[dict[str, object]]) -> Iterator[str]:
    for row in sample:
        yield from islice(row, _SAMPLE)


def _kinds(values: list[object]) -> int:
    """How many words there are; more than can be where they are all the same, long, or none."""
    words = {value if isinstance(value, str) else None for value in values}
    words.discard(None)
    too_long = any(word is not None and len(word) > _WORD for word in words)
    return len(values) if too_long or len(words) < 2 else len(words)


def _word(values: list[object]) -> str | None:
    """The first that a filter can say."""
    for value in values:
        if (
            isinstance(value, str)
            and 0 < len(value) <= _WORD
            and value.isprintable()
            and not set(value) & set("'\\`")
        ):
            return value
    return None


def _largest(value: object) -> str | None:
    """The way to where most of an object is; None where there is none, or nothing in it."""
    path = ""
    here = value
    for _ in range(_LEVELS):
        if not isinstance(here, dict):
            break
        inner = cast(dict[str, object], here)
        key = max(islice(inner, _SAMPLE), key=lambda key: weigh(inner[key], _WEIGHED), default=None)
        if key is None or (name := step(key)) is None or inner[key] in (None, "", [], {}, False, 0):
            break
        path, here = f"{path}.{name}" if path else name, inner[key]
    return path or None


def _all_numbers(rows: list[Any], key: str) -> bool:
    """Of each and every row: one other would make the expression fail."""
    numbers = (int, float)
    return all(row.__class__ is dict and row.get(key).__class__ in numbers for row in rows)
