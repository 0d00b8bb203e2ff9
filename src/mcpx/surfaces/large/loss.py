"""Whether a JSON text may be said again from its value (SUR-7).

Promise: where `says_all` is true, rendering the value anew loses nothing but white space and
spelling. A key that comes twice, digits that a float does not hold, and nesting that can hardly be
written again are such losses.
"""

import json
from typing import Any

import orjson

DEEPEST = 250
"""Levels of nesting up to which a text is taken for data."""
_DIGITS = 15
"""Significant digits that every float holds."""


class _Lossy(Exception):
    """Caught in `says_all`."""


def is_too_deep(text: str | bytes, value: object) -> bool:
    brackets = (
        text.count("[") + text.count("{")
        if isinstance(text, str)
        else text.count(b"[") + text.count(b"{")
    )
    if brackets <= DEEPEST:
        return False
    try:
        orjson.dumps(value)
    except TypeError as error:
        return "ecursion" in str(error)
    return False


def says_all(text: str, written: bytes) -> bool:
    """`written`: the value of the text as compact JSON."""
    if text.encode("utf-8", "replace") == written:
        return True
    try:
        json.loads(text, parse_float=_exact, object_pairs_hook=_unique)
    except (_Lossy, ValueError, RecursionError):
        return False
    return True


def _exact(literal: str) -> float:
    number = float(literal)
    if len(literal) > _DIGITS or "e" in literal or "E" in literal:
        from decimal import Decimal

        if Decimal(literal) != Decimal(repr(number)):
            raise _Lossy
    return number


def _unique(pairs: list[tuple[str, Any]]) -> int:
    """Only how many there are matters."""
    if len(dict(pairs)) < len(pairs):
        raise _Lossy
    return 0
