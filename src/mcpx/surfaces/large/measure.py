"""Sizes of texts and JSON values, and how much of them fits into so many bytes (SUR-11).

The work depends on the bytes that are asked for, not on the value. A value that jmespath made may
refer to the same part in many places, and be endless when it is written out.
"""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from typing import cast

DEEPEST = 100
"""Levels of a value that is shown whole. All encoders accept as many."""
TIGHTEST = 4
"""No rendering is smaller than compact JSON by more than this factor."""


class NotJson(TypeError):
    """A value that JSON cannot represent."""


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, most: int) -> str:
    """The longest beginning of `text` within `most` bytes."""
    head = text[: max(most, 0)]
    if size_of(head) <= most:
        return head
    raw = head.encode("utf-8", "surrogatepass")
    return raw[: character_start(raw, max(most, 0))].decode("utf-8", "surrogatepass")


def character_start(raw: bytes, at: int) -> int:
    """The start of the character that contains this byte."""
    while at and raw[at] & 0xC0 == 0x80:
        at -= 1
    return at


def weigh(value: object, enough: int) -> int:
    """About the bytes of a value as compact JSON; some number above `enough` if it is larger.

    Raises `NotJson`.
    """
    total = 0
    levels: list[Iterator[object]] = [iter((value,))]
    while levels:
        for item in levels[-1]:
            weight, inner = _weight(item, enough)
            total += weight
            if total > enough or (inner and len(levels) > DEEPEST):
                return max(total, enough + 1)
            if inner is not None:
                levels.append(inner)
                break
        else:
            levels.pop()
    return total


def _weight(item: object, enough: int) -> tuple[int, Iterator[object] | None]:
    match item:
        case str():
            return 3 + (len(item) if len(item) > enough else size_of(item)), None
        case None | bool() | float():
            return 5, None
        case int():
            return 2 + item.bit_length() // 4, None
        case list():
            return 2, iter(cast("list[object]", item))
        case dict():
            return 2, chain.from_iterable(cast("dict[str, object]", item).items())
        case _:
            raise NotJson(type(item).__name__)


def fit(
    count: int, most: int, weight: Callable[[int], int], show: Callable[[int], str]
) -> tuple[int, str]:
    """How many of the first `count` items can be shown within `most` bytes, and their text.

    `weight` is about the size of one item; `show` renders so many of the first. Items that together
    weigh more than `TIGHTEST` times `most` are never rendered.
    """
    total = high = 0
    while high < count:
        total += weight(high)
        if total > TIGHTEST * most:
            break
        high += 1
    fitting, text = 0, ""
    while fitting < high:
        middle = (fitting + high + 1) // 2
        shown = show(middle)
        if size_of(shown) <= most:
            fitting, text = middle, shown
        else:
            high = middle - 1
    return fitting, text


def count_lines(text: str) -> int:
    """A line break at the end of a text ends its last line."""
    return text.count("\n") + (not text.endswith("\n"))


def has_line_over(text: str, most: int) -> bool:
    """Whether a line has more than `most` bytes, `most` above 0."""
    data = text.encode("utf-8", "surrogatepass")
    begin = 0
    while len(data) - begin > most:
        last = data.rfind(b"\n", begin, begin + most + 1)
        if last < 0:
            return True
        begin = last + 1
    return False


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def own(text: str) -> str:
    """A line of the gateway between a server's lines."""
    return f"[mcpx: {text}]"


def quoted(text: str) -> str:
    """A JSON string; characters that cannot be printed are escaped."""
    written = json.dumps(text, ensure_ascii=False)
    if written.isprintable():
        return written
    return json.dumps(text)
