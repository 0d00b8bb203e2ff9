"""Differences between two definitions, for a terminal: one line for each changed line of a field.

Each line is made visible (`review.visible`). Nothing is left out, except lines that are too long or
too many, and then the output says so.
"""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from mcpx.base.text_diff import common_ends
from mcpx.model.call import Json
from mcpx.policy.pins.review import visible

MOST = 4_000
"""Lines of one definition."""
LONGEST = 20_000
"""Characters of one line."""
CONTEXT = 40
"""Characters of a long line that are shown on both sides of the difference."""
MAX_DEPTH = 20
_SCHEMAS = ("inputSchema", "outputSchema")
_FIRST = ("name", "title", "description", "instructions", "annotations", *_SCHEMAS)
TOO_LONG = "TOO LONG TO BE SHOWN"

FieldPath = tuple[tuple[str, ...], bool]
"""Keys, and whether the value is a text: the text `1` differs from the number."""


def diff(before: Json | None, after: Json) -> list[str]:
    """Return lines that begin with `+` or `-`. A new definition is shown whole."""
    lines = list(islice(_lines(before or {}, after), MOST + 1))
    if len(lines) > MOST:
        lines[MOST:] = [f"  ... {TOO_LONG}: there are more differences than are shown here"]
    return lines


def _lines(before: Json, after: Json) -> Iterator[str]:
    old_fields, new_fields = dict(_fields(before)), dict(_fields(after))
    for path in sorted({**old_fields, **new_fields}, key=_order):
        old, new = old_fields.get(path, []), new_fields.get(path, [])
        first, last = common_ends(old, new)
        removed, added = old[first : len(old) - last], new[first : len(new) - last]
        if len(removed) == len(added) == 1:
            removed[0], added[0] = _around(removed[0], added[0])
        for line in removed:
            yield from _shown("-", path, line)
        for line in added:
            yield from _shown("+", path, line)


def _order(path: FieldPath) -> tuple[int, str]:
    key = path[0][0]
    if key in _FIRST:
        return _FIRST.index(key), key
    return len(_FIRST), key


def _fields(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[FieldPath, list[str]]]:
    """Each value that is not an object, as lines of text."""
    if isinstance(value, dict) and value and len(keys) < MAX_DEPTH:
        for key, member in cast(Json, value).items():
            yield from _fields(member, (*keys, key))
    elif isinstance(value, str):
        yield (keys, True), value.split("\n")
    elif keys:
        yield (keys, False), [_written(value, keys[-1])]


def _written(value: Any, key: str) -> str:
    if key == "required" and isinstance(value, list):
        value = sorted(cast(list[Any], value), key=str)  # Their order has no meaning.
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return "a value that cannot be written"


def _around(old: str, new: str) -> tuple[str, str]:
    """Shorten two long lines to the difference and its context."""
    first, last = common_ends(old, new)
    begin, end = max(0, first - CONTEXT), max(0, last - CONTEXT)
    head = "… " * (begin > 0)
    tail = " …" * (end > 0)
    return (
        f"{head}{old[begin : len(old) - end]}{tail}",
        f"{head}{new[begin : len(new) - end]}{tail}",
    )


def _shown(sign: str, path: FieldPath, text: str) -> Iterator[str]:
    place = visible(".".join(path[0]))
    place = place.replace("\n", "<U+000A>").replace("\t", " ")
    for line in visible(text).expandtabs(4).split("\n"):
        if len(line) > LONGEST:
            line = f"{line[:LONGEST]} ... {TOO_LONG}"
        yield f"{sign} {place}: {line}"
