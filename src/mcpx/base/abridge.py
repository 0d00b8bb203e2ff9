"""Shortens JSON values for people, logs, and recordings.

The time and the size of the result depend on the limits, not on the value. Marks such as
`… [1,234 more]` stand for the parts that are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, cast

from mcpx.base.text import more

MAX_NUMBER_BITS: Final = 256
REDACTION_LOOKAHEAD: Final = 1_024
"""Characters behind a cut that `redact` sees, so that it finds a secret that is cut in two."""

SECRET: Final = "***"


@dataclass(frozen=True, slots=True)
class Limits:
    text: int = 400
    """Characters of the beginning of a text or a key."""
    items: int = 50
    """Entries of one object or array."""
    depth: int = 8
    """Levels of objects and arrays."""
    nodes: int = 4_000
    """Values in all. The entries of an object or array share the rest equally, so that a large
    entry does not hide the others."""
    tail: int = 0
    """Characters of the end of a text that was cut."""


def abridge(
    value: object,
    limits: Limits,
    redact: Callable[[str], str] | None = None,
    is_secret: Callable[[str], bool] | None = None,
) -> Any:
    """Return a short copy of a JSON value.

    `redact` changes each text before it is cut. Values whose key `is_secret` are replaced, except
    booleans.
    """
    return _Abridger(limits, redact, is_secret).value(value, limits.depth, limits.nodes)


class Abridged:
    """A value for a log line. It is shortened only if the line is written."""

    __slots__ = ("_limits", "_value")

    def __init__(self, value: object, limits: Limits) -> None:
        self._value = value
        self._limits = limits

    def __str__(self) -> str:
        return str(abridge(self._value, self._limits))


class _Abridger:
    def __init__(
        self,
        limits: Limits,
        redact: Callable[[str], str] | None,
        is_secret: Callable[[str], bool] | None,
    ) -> None:
        self._limits = limits
        self._redact = redact
        self._is_secret = is_secret

    def value(self, value: object, depth: int, nodes: int) -> Any:
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return self._members(cast("Mapping[str, object]", value), depth, nodes - 1)
            case list() | tuple():
                return self._items(cast("Sequence[object]", value), depth, nodes - 1)
            case int() if value.bit_length() > MAX_NUMBER_BITS:
                return f"a number of {value.bit_length():,} bits"
            case _:
                return value

    def text(self, text: str) -> str:
        limit, tail = self._limits.text, self._limits.tail
        window = limit + tail + REDACTION_LOOKAHEAD
        head = self._redacted(text[:window])
        length = len(head) + max(0, len(text) - window)
        if length <= limit + tail:
            return head
        mark = more(length - limit - tail)
        if not tail:
            return f"{head[:limit]}{mark}"
        end = self._redacted(text[-tail - REDACTION_LOOKAHEAD :])[-tail:]
        return f"{head[:limit]}{mark} …{end}"

    def _redacted(self, text: str) -> str:
        if self._redact is None:
            return text
        return self._redact(text)

    def _members(self, members: Mapping[str, object], depth: int, nodes: int) -> Any:
        count = self._count_shown(members, nodes)
        if depth <= 0 or (members and count == 0):
            return more(len(members))
        shown: dict[str, Any] = {}
        for key, value in islice(members.items(), count):
            name = _unused(self.text(str(key)), shown)
            if self._hides(str(key), value):
                shown[name] = SECRET
            else:
                shown[name] = self.value(value, depth - 1, nodes // count)
        if count < len(members):
            shown[_unused("…", shown)] = more(len(members) - count)
        return shown

    def _items(self, items: Sequence[object], depth: int, nodes: int) -> Any:
        count = self._count_shown(items, nodes)
        if depth <= 0 or (items and count == 0):
            return more(len(items))
        shown = [self.value(item, depth - 1, nodes // count) for item in islice(items, count)]
        if count < len(items):
            shown.append(more(len(items) - count))
        return shown

    def _count_shown(self, entries: Mapping[str, object] | Sequence[object], nodes: int) -> int:
        return max(0, min(len(entries), self._limits.items, nodes))

    def _hides(self, key: str, value: object) -> bool:
        if self._is_secret is None or isinstance(value, bool):
            return False
        return self._is_secret(key)


def _unused(name: str, names: Mapping[str, object]) -> str:
    """Two keys that differ in what is cut off must stay two."""
    while name in names:
        name += "′"
    return name
