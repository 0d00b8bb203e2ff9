"""Arguments of a call as people are shown them who have to decide about it: one line, shortened, nothing secret.

Promised: nothing in it steers a terminal, turns the direction of writing or looks like a line of ours. What is left out
is said, and of a long text the end is shown too, so that nothing can be hidden behind padding.
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


def shown(value: object) -> str:
    """`value` as one line of JSON."""
    return line(json.dumps(_short(value, 0), ensure_ascii=False), WHOLE)


def line(text: str, most: int) -> str:
    """On one line; what cannot be seen is written out."""
    text = _middle_out(text, most)
    return text if text.isprintable() else "".join(c if c.isprintable() else _written(c) for c in text)


def _written(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _middle_out(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]} …[{len(text) - most:,} characters]… {text[-end:]}"


def _short(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return _middle_out(value, TEXT)
    if is_object(value):
        if depth >= DEEPEST:
            return "{…}"
        entries = {
            _middle_out(key, TEXT): "***"
            if is_secret_name(key) and not isinstance(its, bool)
            else _short(its, depth + 1)
            for key, its in islice(value.items(), ENTRIES)
        }
        return {**entries, "…": f"{len(value) - ENTRIES:,} more"} if len(value) > ENTRIES else entries
    if is_array(value):
        if depth >= DEEPEST:
            return "[…]"
        items = [_short(each, depth + 1) for each in value[:ENTRIES]]
        return [*items, f"… {len(value) - ENTRIES:,} more"] if len(value) > ENTRIES else items
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"a number of {value.bit_length():,} bits"
    return value
