"""Two definitions side by side, for a terminal: what differs, field by field, letter by letter
where it matters.

Every line is made visible (`marks`): nothing in it hides or steers. Nothing new is left out, but
for what is longer than anybody reads; then the last line says so. Linear in what servers send: the
common beginning and end of two texts are found, and what lies between is shown whole.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from mcpx.model.call import Json, as_object
from mcpx.policy.pins.fingerprint import fingerprint
from mcpx.policy.pins.marks import visible

MOST = 4_000
"""Lines of one definition."""
LONGEST = 20_000
"""Characters of one line."""
CONTEXT = 40
"""Characters of a long line that are shown on both sides of what differs."""
_SCHEMAS = ("inputSchema", "outputSchema")
_FIRST = ("name", "title", "description", "instructions", "annotations", *_SCHEMAS)


def diff(before: Json | None, after: Json) -> list[str]:
    """Lines that begin with `+`, `-` or a blank. `before` None: it is new, and shown whole."""
    lines = list(islice(_lines(before or {}, after), MOST + 1))
    if len(lines) > MOST:
        lines[MOST:] = ["  ... TOO LONG TO BE SHOWN: there is more that differs than is shown here"]
    return lines


def _lines(before: Json, after: Json) -> Iterator[str]:
    keys = {**before, **after}
    for key in sorted(
        keys, key=lambda one: (_FIRST.index(one) if one in _FIRST else len(_FIRST), one)
    ):
        yield from _field(key, before, after)


def _field(key: str, before: Json, after: Json) -> Iterator[str]:
    old, new = before.get(key), after.get(key)
    if _same(old, new) and (key in before) == (key in after):
        return
    if key in _SCHEMAS or (key == "annotations"):
        yield from _parts(key, as_object(old), as_object(new), depth=0)
    elif isinstance(old, str | None) and isinstance(new, str | None):
        yield from _text(key, old, new)
    else:
        yield from _value(key, key in before, old, key in after, new)


def _parts(path: str, old: Json, new: Json, depth: int) -> Iterator[str]:
    """Property by property."""
    for key in {**old, **new}:
        was, now = old.get(key), new.get(key)
        if key in old and key in new and _same(was, now):
            continue
        where = f"{path}.{key}"
        if isinstance(now, dict) and isinstance(was, dict) and depth < 20:
            yield from _parts(where, as_object(was), as_object(now), depth + 1)
        elif key == "properties" and isinstance(now, dict) and key not in old:
            yield from _parts(where, {}, as_object(now), depth + 1)
        elif key in old and key in new and isinstance(was, str) and isinstance(now, str):
            yield from _text(where, was, now)
        else:
            yield from _value(where, key in old, was, key in new, now)


def _value(where: str, had: bool, old: Any, has: bool, new: Any) -> Iterator[str]:
    if had:
        yield from _told("-", where, _written(old))
    if has:
        yield from _told("+", where, _written(new))


def _written(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "a value that cannot be written"


def _text(where: str, old: str | None, new: str | None) -> Iterator[str]:
    """Line by line."""
    if old is None or new is None:
        sign, text = ("+", new) if old is None else ("-", old)
        for line in (text or "").split("\n") if text is not None else ():
            yield from _told(sign, where, line)
        return
    was, now = old.split("\n"), new.split("\n")
    first, last = _common(was, now)
    gone, come = was[first : len(was) - last], now[first : len(now) - last]
    if len(gone) == len(come) == 1:
        gone[0], come[0] = _around(gone[0], come[0])
    for line in gone:
        yield from _told("-", where, line)
    for line in come:
        yield from _told("+", where, line)


def _around(old: str, new: str) -> tuple[str, str]:
    """Of two long lines, what differs and a little on both sides."""
    first, last = _common(old, new)
    begin, end = max(0, first - CONTEXT), max(0, last - CONTEXT)
    head = "… " if begin else ""
    tail = " …" if end else ""
    return head + old[begin : len(old) - end] + tail, head + new[begin : len(new) - end] + tail


def _common(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How much of two sequences is the same at the beginning, and of the rest at the end."""
    shortest = min(len(old), len(new))
    first = 0
    while first < shortest and old[first] == new[first]:
        first += 1
    last = 0
    while last < shortest - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last


def _told(sign: str, where: str, text: str) -> Iterator[str]:
    for line in visible(text).replace("\t", "    ").split("\n"):
        place = visible(where).replace("\n", "<U+000A>").replace("\t", " ")
        cut = line[:LONGEST] + " ... TOO LONG TO BE SHOWN" * (len(line) > LONGEST)
        yield f"{sign} {place}: {cut}"


def _same(old: Any, new: Any) -> bool:
    """As JSON: `true` is not 1, and the order of keys is nothing."""
    return old is new or (old == new and fingerprint({"": old}) == fingerprint({"": new}) != "")
