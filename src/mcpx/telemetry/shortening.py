"""What was said in a call, made short enough to be kept: JSON of a bounded size, at a bounded cost.

Promised: however large a value is, no more of it is looked at than is kept, and a little. A text is
cut after secrets were taken out of what is left of it, for half a secret would not be found later.
What is short is kept as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mcpx.formats.tokens import estimate
from mcpx.model.call import is_array, is_object
from mcpx.wire import codec

ROOM = 16 << 10
"""Bytes of one value that are kept."""
LONGEST = 4_000
"""Characters of one text in a value that is too long as a whole."""
BEHIND = 1_024
"""Characters behind the end of what is kept that are looked through for a secret that begins before
it."""
NODES = 400
"""Values within a value that are kept of one that is too long."""
DEEPEST = 12
SMALL = 200
"""Values within a value that are counted to find out whether it is short."""


@dataclass(slots=True)
class Short:
    text: bytes
    """JSON."""
    whole: bool
    """Nothing was left out."""
    size: int
    """Bytes of the value as JSON; of one that is too long, about."""
    tokens: int


def shorten(value: Any, redact: Callable[[str], str], room: int = ROOM) -> Short:
    characters = _characters(value, room)
    try:
        if characters is not None:
            text = codec.dump(value)
            if len(text) <= room:
                return Short(text, True, len(text), estimate(text.decode()))
        walk = _Walk(redact, room)
        text = codec.dump(walk.told(value))
        if len(text) > room:  # many short names, or letters that take several bytes
            text = codec.dump(redact(text[: room // 2].decode(errors="ignore")) + " …")
        size = max(characters or 0, _size_of_texts(value), len(text))
        return Short(text, False, size, -(-size // 4))
    except codec.Unencodable:
        return Short(b"null", False, 0, 0)


def _characters(value: Any, most: int) -> int | None:
    """About how many there are; None: certainly more than that, or too many values to count."""
    waiting, seen, total = [value], 0, 0
    while waiting:
        seen += 1
        if seen > SMALL or total > most:
            return None
        one = waiting.pop()
        if isinstance(one, str):
            total += len(one)
        elif is_object(one):
            if len(one) > SMALL:
                return None
            total += sum(map(len, one))
            waiting.extend(one.values())
        elif is_array(one):
            if len(one) > SMALL:
                return None
            waiting.extend(one)
    return total


def _size_of_texts(value: Any) -> int:
    """Of a tool's result: the characters of its blocks."""
    content = value.get("content") if is_object(value) else None
    total = 0
    for block in islice(content, SMALL) if is_array(content) else ():
        if is_object(block):
            total += sum(
                len(text)
                for text in (block.get("text"), block.get("data"))
                if isinstance(text, str)
            )
    return total


class _Walk:
    """The beginning of a value."""

    def __init__(self, redact: Callable[[str], str], room: int) -> None:
        self._redact = redact
        self._characters = room // 2
        self._nodes = NODES

    def told(self, value: Any, depth: int = 0) -> Any:
        self._nodes -= 1
        if isinstance(value, str):
            return self._text(value)
        if is_object(value):
            if depth >= DEEPEST:
                return "…"
            told: dict[str, Any] = {}
            for name, its in value.items():
                if self._nodes <= 0 or self._characters <= 0:
                    told["…"] = f"{len(value) - len(told):,} more"
                    break
                told[self._text(name)] = self.told(its, depth + 1)
            return told
        if is_array(value):
            if depth >= DEEPEST:
                return "…"
            items: list[Any] = []
            for each in value:
                if self._nodes <= 0 or self._characters <= 0:
                    items.append(f"… {len(value) - len(items):,} more")
                    break
                items.append(self.told(each, depth + 1))
            return items
        return value

    def _text(self, text: str) -> str:
        most = min(LONGEST, max(self._characters, 0))
        self._characters -= min(len(text), most)
        if len(text) <= most:
            return text
        return f"{self._redact(text[: most + BEHIND])[:most]}… [{len(text):,} characters]"
