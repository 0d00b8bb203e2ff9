"""Pages of a kept result: rows, keys, lines or characters, filtered and bounded (SUR-11).

Promise: a page has at most `room` bytes and a last line of at most `NOTE_BYTES` that says what it is and where the
next one begins; pages one after the other are the whole. Each page holds at least one item: one that is too large is
shown cut, and the last line says the expression that selects it. Where `grep` did not get through all of it, the last
line says how far it got and how to look further.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcpx.surfaces.large.excerpt import TIGHTEST, clip, cut, fit, size_of, weigh
from mcpx.surfaces.large.finding import Needle, fold, lines_with, rows_with, to_json
from mcpx.surfaces.large.lines import count_lines, has_line_over, start_of_line
from mcpx.surfaces.large.preview import LONG_LINE, NOT_JSON, counted

NOTE_BYTES = 400
_PLAIN = "grep is a plain substring, not a regular expression"
_AROUND = 120
"""Characters shown before and after a match in a text with very long lines."""
_SUGGESTED = 120
"""Bytes of a suggested expression; a longer one would fill the last line."""
_REST = 60
"""The same for the expression that selects what `grep` did not get to."""
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
    endless: bool = False
    """Whether what jmespath selected may be endless when written out."""


@dataclass(frozen=True, slots=True)
class Page:
    text: str
    value: object = NOT_JSON
    """The rows or keys that are shown, where each is shown whole."""


@dataclass(frozen=True, slots=True)
class _Items:
    """What paging needs to know of rows, keys or lines. Functions take positions in the whole."""

    unit: str
    total: int
    positions: Sequence[int]
    """Which of them are left after `grep`."""
    looked_at: int
    """How many of them `grep` got through; the total, mostly."""
    weight: Callable[[int], int]
    show: Callable[[Sequence[int]], str]
    cut: Callable[[Sequence[int], int, int], str]
    """Some of them whole, then one that is too large, cut to about so many bytes."""
    path: Callable[[int], str] | None = None
    """The expression that selects one of them."""
    rest: Callable[[int], str] | None = None
    """The expression that selects all from one of them on."""
    numbered: bool = True
    """Whether it can be seen which of them are shown."""
    value: Callable[[Sequence[int]], object] | None = None
    """Some of them as JSON."""


def page_of_rows(rows: list[object], asked: Asked, room: int, show: Show) -> Page:
    positions, looked_at = _matching(asked, room, len(rows), lambda first, end: rows[first:end])
    items = _Items(
        unit="row",
        total=len(rows),
        positions=positions,
        looked_at=looked_at,
        weight=lambda at: weigh(rows[at], TIGHTEST * room),
        show=lambda positions: show([rows[at] for at in positions]),
        cut=lambda whole, at, left: show([*(rows[each] for each in whole), clip(rows[at], left)]),
        path=lambda at: f"[{at}]",
        rest=lambda at: f"[{at}:]",
        numbered=asked.grep is None,
        value=lambda positions: [rows[at] for at in positions],
    )
    return _page(items, asked, room)


def page_of_keys(fields: dict[str, object], asked: Asked, room: int, show: Show) -> Page:
    names = list(fields)

    def some(positions: Sequence[int]) -> dict[str, object]:
        return {names[at]: fields[names[at]] for at in positions}

    def path(at: int) -> str:
        if _IDENTIFIER.fullmatch(names[at]):
            return names[at]
        quoted = to_json(names[at][:60])
        return quoted if len(names[at]) <= 60 and len(quoted.encode()) <= 60 else f"values(@)[{at}]"

    positions, looked_at = _matching(asked, room, len(names), lambda first, end: some(range(first, end)))
    items = _Items(
        unit="key",
        total=len(names),
        positions=positions,
        looked_at=looked_at,
        weight=lambda at: weigh(some([at]), TIGHTEST * room),
        show=lambda positions: show(some(positions)),
        cut=lambda whole, at, left: show({**some(whole), names[at]: clip(fields[names[at]], left)}),
        path=path,
        rest=lambda at: f"values(@)[{at}:]",
        value=some,
    )
    return _page(items, asked, room)


def page_of_text(text: str, asked: Asked, room: int) -> Page:
    if has_line_over(text, min(LONG_LINE, room - 20)):
        return _page_of_matches(text, asked, room) if asked.grep else _page_of_characters(text, asked, room)
    total = count_lines(text)
    return _page(
        _lines(text, total, asked, room) if asked.grep is None else _matches(text, total, asked, room), asked, room
    )


def _lines(text: str, total: int, asked: Asked, room: int) -> _Items:
    """Those of them that a page may have, from `offset` on: all are shorter than `room`, so it does not look further
    than so far."""
    begin = start_of_line(text, asked.offset) if asked.offset < total else len(text)
    lines = text[begin : begin + (TIGHTEST + 1) * room].removesuffix("\n").split("\n")
    return _Items(
        unit="line",
        total=total,
        positions=range(total),
        looked_at=total,
        weight=lambda at: size_of(lines[at - asked.offset]) + 1,
        show=lambda positions: "\n".join(lines[at - asked.offset] for at in positions),
        cut=lambda _, at, left: cut(lines[at - asked.offset], left),
    )


def _matches(text: str, total: int, asked: Asked, room: int) -> _Items:
    text = text.removesuffix("\n")
    found, starts = lines_with(Needle(asked.grep or ""), text, total, enough=asked.offset + room)

    def line(nth: int) -> str:
        end = text.find("\n", starts[nth])
        return f"{found.positions[nth]}: {text[starts[nth] : end if end >= 0 else len(text)]}"

    return _Items(
        unit="line",
        total=total,
        positions=range(len(starts)),
        looked_at=found.looked_at,
        weight=lambda nth: size_of(line(nth)) + 1,
        show=lambda positions: "\n".join(map(line, positions)),
        cut=lambda _, nth, left: cut(line(nth), left),
    )


def _page(items: _Items, asked: Asked, room: int) -> Page:
    chosen = items.positions
    unfinished = items.looked_at < items.total
    if unfinished and not items.looked_at:
        raise BadReading("grep: the jmespath expression selects too much; select less")
    if not chosen and asked.grep is not None:
        what = f"nothing in {_looked_at(items)} contains {Needle(asked.grep).quoted()}; "
        return Page(f"[{what}{_further(items, asked) if unfinished else _PLAIN}]")
    start, stop = _bounds(asked, len(chosen), "match" if asked.grep is not None else items.unit, items)
    count, text = fit(
        stop - start,
        room,
        lambda nth: items.weight(chosen[start + nth]),
        lambda first: items.show(chosen[start : start + first]),
    )
    notes: list[str] = []
    end = start + count
    value = NOT_JSON if items.value is None else items.value(chosen[start:end])
    if end < stop and (not count or items.weight(chosen[end]) > room):  # no page has room for the next one
        with_cut = _with_one_cut(items, chosen[start:end], chosen[end], room, text)
        if with_cut is not None:
            text, value = with_cut, NOT_JSON
            notes.append(f"{items.unit} {chosen[end]} is cut" + _how_to_select(items, chosen[end], asked))
            end += 1
    if asked.grep is not None:
        which = "" if items.numbered or unfinished else f": {items.unit}s {_some_numbers(chosen[start:end])}"
        known = _range("match", start, end, len(chosen), at_least=unfinished)
        notes.insert(0, f"{known} in {_looked_at(items)}{which}")
    elif start or end < len(chosen):
        notes.insert(0, _range(items.unit, start, end, len(chosen)))
    if unfinished and end == len(chosen):
        notes.append(_further(items, asked))
        return Page(_with_notes(text, notes, None, paged=False), value)
    return Page(_with_notes(text, notes, end if end < len(chosen) else None, paged=start > 0), value)


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


def _page_of_characters(text: str, asked: Asked, room: int) -> Page:
    start, stop = _bounds(asked, len(text), "character")
    shown = cut(text[start : min(stop, start + room)], room)
    end = start + len(shown)
    notes = [_range("character", start, end, len(text))] if start or end < len(text) else []
    return Page(_with_notes(shown, notes, end if end < len(text) else None, paged=start > 0))


def _page_of_matches(text: str, asked: Asked, room: int) -> Page:
    """Lines are too long to be shown: what is around each match instead, with the place where it begins."""
    needle = Needle(asked.grep or "")
    compared = fold(text) if needle.folded else text
    found: list[tuple[int, int]] = []
    end = 0
    while (at := compared.find(needle.text, end)) >= 0:
        begin, end = max(at - _AROUND, end), at + len(needle.text) + _AROUND
        found.append((begin, end))

    def line(nth: int) -> str:
        begin, end = found[nth]
        return cut(f"{begin}: …{text[begin:end]}…".replace("\n", " "), room - 1)

    items = _Items(
        unit="character",
        total=len(text),
        positions=range(len(found)),
        looked_at=len(text),
        weight=lambda nth: size_of(line(nth)) + 1,
        show=lambda positions: "\n".join(map(line, positions)),
        cut=lambda _, nth, left: cut(line(nth), left),
    )
    answer = _page(items, asked, room)
    return Page(answer.text.removesuffix("]") + "; each begins with its offset]") if found else answer


def _bounds(asked: Asked, count: int, unit: str, items: _Items | None = None) -> tuple[int, int]:
    if asked.offset >= count:
        if items is not None and items.looked_at < items.total:
            raise BadReading(
                f"offset {asked.offset} is past what one grep finds: {count:,} matches in {_looked_at(items)}; "
                f"{_further(items, asked)}"
            )
        raise BadReading(
            f"offset {asked.offset} is past the end: there {_are(count, unit)}, the last at offset {count - 1}"
        )
    return asked.offset, count if asked.limit is None else min(count, asked.offset + asked.limit)


def _looked_at(items: _Items) -> str:
    total = counted(items.total, items.unit)
    return total if items.looked_at == items.total else f"the first {items.looked_at:,} of {total}"


def _further(items: _Items, asked: Asked) -> str:
    """What to do where `grep` stopped."""
    if items.rest is None:
        return "look for something less frequent"
    return f"to look further: jmespath={_expression(asked, items.rest(items.looked_at), _REST)}"


def _are(count: int, unit: str) -> str:
    return f"is 1 {unit}" if count == 1 else f"are {count:,} {_plural(unit)}"


def _plural(unit: str) -> str:
    return "matches" if unit == "match" else f"{unit}s"


def _range(unit: str, start: int, end: int, count: int, *, at_least: bool = False) -> str:
    which = f"{unit} {start}" if end == start + 1 else f"{_plural(unit)} {start}-{end - 1}"
    return f"{which} of {'at least ' if at_least else ''}{count:,}"


def _some_numbers(positions: Sequence[int]) -> str:
    listed = ", ".join(map(str, positions[:8]))
    return f"{listed}, …" if len(positions) > 8 else listed


def _how_to_select(items: _Items, position: int, asked: Asked) -> str:
    if items.path is None:
        return ""
    return f"; to read all of it: jmespath={_expression(asked, items.path(position), _SUGGESTED)}"


def _expression(asked: Asked, path: str, most: int) -> str:
    """In quotes, after what selected the whole if that is short."""
    quoted = to_json(path if asked.jmespath is None else f"{asked.jmespath} | {path}")
    return quoted if size_of(quoted) <= most else to_json(f"… | {path}")


def _with_notes(text: str, notes: list[str], following: int | None, *, paged: bool) -> str:
    if following is not None:
        notes.append(f"next: offset={following}")
    elif paged:
        notes.append("the end")
    return f"{text}\n[{'; '.join(notes)}]" if notes else text


def _matching(asked: Asked, room: int, count: int, some: Callable[[int, int], object]) -> tuple[Sequence[int], int]:
    """The positions of the rows or keys that contain what is looked for, and how many were looked at."""
    if asked.grep is None:
        return range(count), count
    found = rows_with(Needle(asked.grep), count, some, enough=asked.offset + room, endless=asked.endless)
    return found.positions, found.looked_at
