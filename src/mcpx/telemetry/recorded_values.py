"""Arguments and results as the call log keeps them: JSON of bounded size.

A value that fits is kept unchanged. A larger value is abridged, and the time for this does not
depend on its size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from mcpx.base.abridge import Limits, abridge
from mcpx.formats.tokens import estimate
from mcpx.model.call import is_array, is_object
from mcpx.wire import codec

MAX_BYTES: Final = 16 << 10
MAX_PARTS: Final = 200
LIMITS: Final = (
    Limits(text=4_000, items=20, depth=12, nodes=40),
    Limits(text=200, items=20, depth=12, nodes=60),
    Limits(text=20, items=10, depth=6, nodes=30),
)
"""The first limits whose result fits into `MAX_BYTES` are used. The last ones always fit."""


@dataclass(slots=True)
class RecordedValue:
    text: bytes
    """JSON."""
    whole: bool
    size: int
    """Bytes of the whole value as JSON. An estimate, if it was abridged."""
    tokens: int


def record(value: Any, redact: Callable[[str], str]) -> RecordedValue:
    try:
        if _is_small(value):
            text = codec.dump(value)
            if len(text) <= MAX_BYTES:
                return RecordedValue(text, True, len(text), estimate(text.decode()))
        for limits in LIMITS:
            text = codec.dump(abridge(value, limits, redact))
            if len(text) <= MAX_BYTES:
                break
        else:
            text = b"null"
    except codec.Unencodable:
        return RecordedValue(b"null", False, 0, 0)
    size = max(_text_size(value), len(text))
    return RecordedValue(text, False, size, -(-size // 4))


def _is_small(value: Any) -> bool:
    """Return whether the value has few parts and few characters, so that encoding it is cheap."""
    parts = [value]
    characters = 0
    for part in parts:  # The list grows during the loop.
        if isinstance(part, str):
            characters += len(part)
        elif is_object(part):
            if len(parts) + len(part) > MAX_PARTS:
                return False
            characters += sum(map(len, part))
            parts.extend(part.values())
        elif is_array(part):
            if len(parts) + len(part) > MAX_PARTS:
                return False
            parts.extend(part)
    return characters <= MAX_BYTES


def _text_size(value: Any) -> int:
    """Return the characters in the content blocks of a tool result."""
    content = value.get("content") if is_object(value) else None
    if not is_array(content):
        return 0
    total = 0
    for block in islice(content, MAX_PARTS):
        if is_object(block):
            texts = (block.get("text"), block.get("data"))
            total += sum(len(text) for text in texts if isinstance(text, str))
    return total
