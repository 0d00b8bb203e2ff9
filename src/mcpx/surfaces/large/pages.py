"""Pages of a kept result: rows, keys, lines or characters, filtered and bounded (SUR-11).

Promise: a page has at most `room` bytes and a last line of at most `NOTE_BYTES` that says what it is and where the
next one begins; pages one after the other are the whole. Each page holds at least one item: one that is too large is
shown cut, and the last line says the expression that selects it. `grep` is a plain substring, since a regular
expression can take forever; the work is linear.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from mcpx.surfaces.large.excerpt import TIGHTEST, clip, cut, fit, size_of, weigh
from mcpx.surfaces.large.preview import LONG_LINE, by_characters, counted

NOTE_BYTES = 400
GREP_BYTES = 16 << 20
"""What `grep` may write out to look through it: an answer of jmespath may be endless."""
_AROUND = 120
"""Characters shown before and after a match in a text with very long lines."""
_SUGGESTED = 120
"""Bytes of a suggested expression; a longer one would fill the last line."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")

Show = Callable[[object], str]


class BadReading(Exception):
    """What is wrong with the arguments and what to do, in words for a model."""


@dataclass(frozen=True, slots=True)
class Asked:
    offset: int = 0
    limit: int | None = None
    jmespath: str | None = None
    grep: str | None = None


@dataclass(frozen=True, slots=True)
class _Items:
    """What paging needs to know of rows, keys or lines. Functions take positions in the whole."""

    unit: str
    total: int
    positions: Sequence[int]
    """Which of them are left after `grep`."""
    weight: Callable[[int], int]
    show: Callable[[Sequence[int]], str]
    cut: Callable[[Sequence[int], int, int], str]
    """Some of them whole, then one that is too large, cut to about so many bytes."""
    path: Callable[[int], str] | None = None
    """The expression that selects one of them."""
    numbered: bool = True
    """Whether it can be seen which of them are shown."""


def page_of_rows(rows: list[object], asked: Asked, room: int, show: Show) -> str:
    items = _Items(
        unit="row",
        total=len(rows),
        positions=_matching(asked, len(rows), lambda at: rows[at]),
        weight=lambda at: weigh(rows[at], TIGHTEST * room),
        show=lambda positions: show([rows[at] for at in positions]),
        cut=lambda whole, at, left: show([*(rows[each] for each in whole), clip(rows[at], left)]),
        path=lambda at: f"[{at}]",
        numbered=asked.grep is None,
    )
    return _page(items, asked, room)


def page_of_keys(fields: dict[str, object], asked: Asked, room: int, show: Show) -> str:
    names = list(fields)

    def some(positions: Sequence[int]) -> dict[str, object]:
        return {names[at]: fields[names[at]] for at in positions}

    def path(at: int) -> str:
        if _IDENTIFIER.fullmatch(names[at]):
            return names[at]
        quoted = _json(names[at][:60])
        return quoted if len(names[at]) <= 60 and len(quoted.encode()) <= 60 else f"values(@)[{at}]"

    items = _Items(
        unit="key",
        total=len(names),
        positions=_matching(asked, len(names), lambda at: some([at])),
        weight=lambda at: weigh(some([at]), TIGHTEST * room),
        show=lambda positions: show(some(positions)),
        cut=lambda whole, at, left: show({**some(whole), names[at]: clip(fields[names[at]], left)}),
        path=path,
    )
    return _page(items, asked, room)


def page_of_text(text: str, asked: Asked, room: int) -> str:
    lines = text.removesuffix("\n").split("\n")
    if by_characters(lines, min(LONG_LINE, room - 20)):
        return _page_of_matches(text, asked, room) if asked.grep else _page_of_characters(text, asked, room)
    positions: Sequence[int] = range(len(lines))
    if asked.grep is not None:
        needle, folded = _smart_case(asked.grep)
        compared = _folded(text).split("\n") if folded else lines
        positions = [at for at in positions if needle in compared[at]]

    def line(at: int) -> str:
        return f"{at}: {lines[at]}" if asked.grep is not None else lines[at]

    items = _Items(
        unit="line",
        total=len(lines),
        positions=positions,
        weight=lambda at: size_of(line(at)) + 1,
        show=lambda positions: "\n".join(map(line, positions)),
        cut=lambda _, at, left: cut(line(at), left),
    )
    return _page(items, asked, room)


def _page(items: _Items, asked: Asked, room: int) -> str:
    chosen = items.positions
    if not chosen and asked.grep is not None:
        return (
            f"[nothing in {counted(items.total, items.unit)} contains {_json(cut(asked.grep, 40))}; "
            "grep is a plain substring, not a regular expression]"
        )
    start, stop = _bounds(asked, len(chosen), "match" if asked.grep is not None else items.unit)
    count, text = fit(
        stop - start,
        room,
        lambda nth: items.weight(chosen[start + nth]),
        lambda first: items.show(chosen[start : start + first]),
    )
    notes: list[str] = []
    end = start + count
    if end < stop and (not count or items.weight(chosen[end]) > room):  # no page has room for the next one
        with_cut = _with_one_cut(items, chosen[start:end], chosen[end], room, text)
        if with_cut is not None:
            text = with_cut
            notes.append(f"{items.unit} {chosen[end]} is cut" + _how_to_select(items, chosen[end], asked))
            end += 1
    if asked.grep is not None:
        which = "" if items.numbered else f": {items.unit}s {_some_numbers(chosen[start:end])}"
        notes.insert(0, f"{_range('match', start, end, len(chosen))} in {counted(items.total, items.unit)}{which}")
    elif start or end < len(chosen):
        notes.insert(0, _range(items.unit, start, end, len(chosen)))
    return _with_notes(text, notes, end if end < len(chosen) else None, paged=start > 0)


def _with_one_cut(items: _Items, whole: Sequence[int], large: int, room: int, text: str) -> str | None:
    """The page with a part of one more; `None` where too little room is left for that, and it gets its own page."""
    left = room - size_of(text)
    while not whole or left > max(room // 4, 100):
        longer = items.cut(whole, large, left)
        if size_of(longer) <= room:
            return longer
        if left < 50:
            return cut(longer, room)
        left = min(left * room // size_of(longer), left - 20)
    return None


def _page_of_characters(text: str, asked: Asked, room: int) -> str:
    start, stop = _bounds(asked, len(text), "character")
    shown = cut(text[start:stop], room)
    end = start + len(shown)
    notes = [_range("character", start, end, len(text))] if start or end < len(text) else []
    return _with_notes(shown, notes, end if end < len(text) else None, paged=start > 0)


def _page_of_matches(text: str, asked: Asked, room: int) -> str:
    """Lines are too long to be shown: what is around each match instead, with the place where it begins."""
    needle, folded = _smart_case(asked.grep or "")
    compared = _folded(text) if folded else text
    found: list[tuple[int, int]] = []
    end = 0
    while (at := compared.find(needle, end)) >= 0:
        begin, end = max(at - _AROUND, end), at + len(needle) + _AROUND
        found.append((begin, end))

    def line(nth: int) -> str:
        begin, end = found[nth]
        return cut(f"{begin}: …{text[begin:end]}…".replace("\n", " "), room - 1)

    items = _Items(
        unit="character",
        total=len(text),
        positions=range(len(found)),
        weight=lambda nth: size_of(line(nth)) + 1,
        show=lambda positions: "\n".join(map(line, positions)),
        cut=lambda _, nth, left: cut(line(nth), left),
    )
    answer = _page(items, asked, room)
    return answer.removesuffix("]") + "; each begins with its offset]" if found else answer


def _bounds(asked: Asked, count: int, unit: str) -> tuple[int, int]:
    if asked.offset >= count:
        raise BadReading(
            f"offset {asked.offset} is past the end: there {_are(count, unit)}, the last at offset {count - 1}"
        )
    return asked.offset, count if asked.limit is None else min(count, asked.offset + asked.limit)


def _are(count: int, unit: str) -> str:
    return f"is 1 {unit}" if count == 1 else f"are {count:,} {_plural(unit)}"


def _plural(unit: str) -> str:
    return "matches" if unit == "match" else f"{unit}s"


def _range(unit: str, start: int, end: int, count: int) -> str:
    return f"{unit} {start} of {count:,}" if end == start + 1 else f"{_plural(unit)} {start}-{end - 1} of {count:,}"


def _some_numbers(positions: Sequence[int]) -> str:
    listed = ", ".join(map(str, positions[:8]))
    return f"{listed}, …" if len(positions) > 8 else listed


def _how_to_select(items: _Items, position: int, asked: Asked) -> str:
    if items.path is None:
        return ""
    path = items.path(position)
    expression = path if asked.jmespath is None else f"{asked.jmespath} | {path}"
    quoted = _json(expression)
    if size_of(quoted) > _SUGGESTED:
        return f"; to read all of it: jmespath={_json(f'… | {path}')}"
    return f"; to read all of it: jmespath={quoted}"


def _with_notes(text: str, notes: list[str], following: int | None, *, paged: bool) -> str:
    if following is not None:
        notes.append(f"next: offset={following}")
    elif paged:
        notes.append("the end")
    return f"{text}\n[{'; '.join(notes)}]" if notes else text


def _matching(asked: Asked, count: int, value: Callable[[int], object]) -> Sequence[int]:
    """The positions of the values whose JSON contains what is looked for, as it is or as JSON spells it."""
    if asked.grep is None:
        return range(count)
    needle, folded = _smart_case(asked.grep)
    needles = {needle, _json(needle)[1:-1]}
    left = GREP_BYTES
    found: list[int] = []
    for at in range(count):
        if asked.jmespath is not None:
            left -= weigh(value(at), left)
            if left < 0:
                raise BadReading("grep: the jmespath expression selects too much; select less")
        text = _json(value(at))
        if folded:
            text = text.lower()
        if any(needle in text for needle in needles):
            found.append(at)
    return found


def _smart_case(pattern: str) -> tuple[str, bool]:
    """What to look for, and whether in lower case: a pattern without capitals finds both."""
    return pattern, pattern == pattern.lower()


def _folded(text: str) -> str:
    """In lower case, with every character where it was: one letter alone becomes two."""
    return text.replace("İ", "i").lower()


def _json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # what orjson does not write: large integers, cut emoji, more than 254 levels
        return json.dumps(clip(value, 1 << 20), ensure_ascii=False, separators=(",", ":"))
