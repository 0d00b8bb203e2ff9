"""Arguments of a call as people are shown them who have to decide about it: one line, shortened,
nothing secret.

Promised: nothing in it steers a terminal, turns the direction of writing or looks like a line of
ours. What is left out is said, and of a long text the end is shown too, so that nothing can be
hidden behind padding.
"""

import json
from itertools import islice
from typing import Any

from mcpx.model.call import is_array, is_object
from mcpx.model.redaction import is_secret_name

WHOLE = 4_000
"""Characters of it all."""
TEXT = 400
"""Characters of one text."""
ENTRIES = 50
"""Entries of one object or array."""
DEEPEST = 8
"""Levels of nesting."""
VALUES = 4_000
"""Values of it all; each entry of an object or array has the same share of those that are left for
it."""


def shown(value: object) -> str:
    """`value` as one line of JSON."""
    return line(json.dumps(_short(value, 0, VALUES), ensure_ascii=False), WHOLE)


def line(text: str, most: int) -> str:
    """On one line; what cannot be seen is written out."""
    text = _middle_out(text, most)
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else _written(c) for c in text)
    )


def _written(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _middle_out(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]} …[{len(text) - most:,} characters]… {text[-end:]}"


def _short(value: object, depth: int, room: int) -> Any:
    if isinstance(value, str):
        return _middle_out(value, TEXT)
    if is_object(value):
        if depth >= DEEPEST:
            return "{…}"
        most = min(ENTRIES, max(room, 1))
        entries: dict[str, Any] = {}
        for key, its in islice(value.items(), most):
            name = _middle_out(key, TEXT)
            while name in entries:  # two long ones that differ in what is left out
                name += "′"
            hidden = is_secret_name(key) and not isinstance(its, bool)
            entries[name] = (
                "***" if hidden else _short(its, depth + 1, room // min(len(value), most))
            )
        if len(value) > most:
            rest = "…"
            while rest in entries:
                rest += "…"
            entries[rest] = f"{len(value) - most:,} more"
        return entries
    if is_array(value):
        if depth >= DEEPEST:
            return "[…]"
        most = min(ENTRIES, max(room, 1))
        items = [_short(each, depth + 1, room // min(len(value), most)) for each in value[:most]]
        return [*items, f"… {len(value) - most:,} more"] if len(value) > most else items
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"a number of {value.bit_length():,} bits"
    return value
