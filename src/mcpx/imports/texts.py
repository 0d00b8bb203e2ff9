"""Strangers' words and values, fit for a configuration: bounded, and without what commands a
terminal or hides."""

import math
import re
from typing import Any

from mcpx.model.call import is_array, is_object

_UNSEEN = re.compile(
    # control characters, surrogates
    "[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
    # what has no width, or turns the direction of reading
    "|[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069]"
)
_BREAK = re.compile("\r\n?|[\x85\u2028\u2029]")
_DEEPEST, _WIDEST, _LONGEST = 4, 100, 300
"""Of a value given as a default, an example or a choice."""


class Unfit(ValueError):
    """A value too large to be repeated."""


def clean(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub("", _BREAK.sub("\n", text))


def one_line(text: str, limit: int = 100) -> str:
    """For a table or a message."""
    return clip(" ".join(clean(text[: 10 * limit]).split()), limit)


def clip(text: str, limit: int) -> str:
    """At most so many characters, cut between words where that is possible."""
    text = clean(text[: 4 * limit + 1_000]).strip()
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    at = max(cut.rfind(" "), cut.rfind("\n"))
    return (cut[:at] if at > limit // 2 else cut).rstrip() + "…"


def joined(*texts: object, limit: int) -> str:
    """Several texts as one; what one of them says already is not said again."""
    told: list[str] = []
    for text in texts:
        cleaned = clip(text, limit) if isinstance(text, str) else ""
        bare = cleaned.rstrip(".…").lower()
        if bare and not any(bare in before.lower() for before in told):
            told = [
                before
                for before in told
                if not cleaned.lower().startswith(before.rstrip(".").lower())
            ]
            told.append(cleaned)
    return clip("\n\n".join(told), limit)


def literal(value: Any, depth: int = _DEEPEST) -> Any:
    """A JSON value as it may be repeated. Raises `Unfit`."""
    if isinstance(value, str):
        if len(value) > _LONGEST or clean(value) != value:
            raise Unfit
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 2**63 else float(value) if abs(value) < 2**1000 else _unfit()
    if isinstance(value, float):
        return value if math.isfinite(value) else _unfit()
    if is_object(value) or is_array(value):
        if depth == 0 or len(value) > _WIDEST:
            raise Unfit
        if is_object(value):
            return {literal(key): literal(item, depth - 1) for key, item in value.items()}
        return [literal(item, depth - 1) for item in value]
    return value


def _unfit() -> Any:
    raise Unfit
