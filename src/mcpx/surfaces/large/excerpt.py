"""How much of a text or of a JSON value fits into so many bytes (SUR-11).

Promise: nothing here cuts a character in two, and the work is bounded by the bytes asked for, not
by the value: a value that refers to the same part in many places (jmespath makes such) may be
endless when written out. Depth is bounded as well: what is nested deeper than `DEEPEST` does not
fit, and is cut.

No promise: `weigh` is exact. It is the size as compact JSON without escapes; who renders a value
measures again.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, cast

from mcpx.surfaces.large import marks

DEEPEST = 100
"""Levels a value may have to be shown whole; all encoders take as many."""
TIGHTEST = 4
"""No rendering is smaller than compact JSON by more than this."""
_CLIPPED_LEVELS = 6
_TRIES = 4


class NotJson(TypeError):
    """A value that no JSON text says."""


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, most: int) -> str:
    """The longest beginning of `text` within `most` bytes."""
    head = text[: max(most, 0)]
    if size_of(head) <= most:
        return head
    raw = head.encode("utf-8", "surrogatepass")
    end = max(most, 0)
    while end and raw[end] & 0xC0 == 0x80:
        end -= 1
    return raw[:end].decode("utf-8", "surrogatepass")


def weigh(value: object, enough: int) -> int:
    """About the bytes of a value as compact JSON; some number above `enough` once that is
    passed."""
    total = 0
    levels: list[Iterator[object]] = [iter((value,))]
    while levels:
        for item in levels[-1]:
            inner: Iterator[object] | None = None
            if isinstance(item, str):
                total += 3 + (len(item) if len(item) > enough else size_of(item))
            elif item is None or isinstance(item, (bool, float)):
                total += 5
            elif isinstance(item, int):
                total += 2 + item.bit_length() // 4
            elif isinstance(item, list):
                total += 2
                inner = iter(cast(list[object], item))
            elif isinstance(item, dict):
                total += 2
                inner = chain.from_iterable(cast(dict[str, object], item).items())
            else:
                raise NotJson(type(item).__name__)
            if total > enough:
                return total
            if inner is not None:
                if len(levels) > DEEPEST:
                    return enough + 1
                levels.append(inner)
                break
        else:
            levels.pop()
    return total


def fit(
    count: int, most: int, weight: Callable[[int], int], show: Callable[[int], str]
) -> tuple[int, str]:
    """How many of the first `count` items can be shown within `most` bytes, and how they look.

    `weight` is about the size of one item, `show` renders so many of the first. Rendered rows take
    less than their weights say, often half: so it looks further, a few times. Items that weigh more
    than `TIGHTEST` times `most` are never rendered. Nothing fits: `(0, "")`.
    """
    fitting = considered = total = 0
    while considered < count:
        total += weight(considered)
        if total > TIGHTEST * most:
            break
        considered += 1
        fitting += total <= most
    text = show(fitting) if fitting else ""
    while fitting and (size := size_of(text)) > most:
        fitting = min(fitting - 1, fitting * most // size)
        text = show(fitting) if fitting else ""
    guess = fitting * most // max(size_of(text), 1) if fitting else 1
    for _ in range(_TRIES):
        guess = min(guess, considered)
        if guess <= fitting:
            break
        more = show(guess)
        size = size_of(more)
        if size <= most:
            fitting, text = guess, more
        else:
            considered = guess - 1
        guess = guess * most // size
    return fitting, text


def clip(value: object, room: int, levels: int = _CLIPPED_LEVELS) -> object:
    """A value cut down to about `room` bytes; every cut leaves a mark (`marks`)."""
    if weigh(value, room) <= room and levels > 0:
        return value
    if isinstance(value, str):
        kept = cut(value, max(room - 30, 10))
        return value if len(kept) == len(value) else marks.cut_string(kept, len(value) - len(kept))
    if isinstance(value, list):
        return _clip_list(cast(list[object], value), room, levels)
    if isinstance(value, dict):
        return _clip_object(cast(dict[str, object], value), room, levels)
    return value


def _clip_list(items: list[object], room: int, levels: int) -> object:
    if levels == 0 or room < 30:
        return marks.whole_list(len(items))
    left = room - 20
    shown: list[object] = []
    for item in items:
        weight = weigh(item, left)
        if weight > left:
            if not shown:
                shown.append(clip(item, left, levels - 1))
            break
        shown.append(item)
        left -= weight
    return [*shown, marks.more_items(len(items) - len(shown))] if len(shown) < len(items) else shown


def _clip_object(fields: dict[str, object], room: int, levels: int) -> object:
    """Short values whole, the long ones share what room is left."""
    if levels == 0 or room < 30:
        return marks.whole_object(len(fields))
    count = min(len(fields), max(room // 20, 1))
    share = room // count
    first = [(short_key(key), fields[key]) for key in islice(fields, count)]
    weights = [size_of(key) + 4 + weigh(value, share) for key, value in first]
    long = sum(weight > share for weight in weights)
    spare = (room - sum(min(weight, share) for weight in weights)) // long if long else 0
    shown: dict[str, Any] = {}
    for (key, value), weight in zip(first, weights, strict=True):
        shown[key] = (
            clip(value, share + spare - size_of(key) - 4, levels - 1) if weight > share else value
        )
    if count < len(fields):
        shown[marks.more_keys(len(fields) - count)] = None
    return shown


def short_key(key: str) -> str:
    return key if len(key) <= 80 else marks.cut_string(key[:60], len(key) - 60)
