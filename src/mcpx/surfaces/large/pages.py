"""Pages of a kept result: rows, keys, lines or characters, filtered and bounded (SUR-11).

Promise: a page has at most `room` bytes and a last line of at most `NOTE_BYTES` that says what it
is and with which arguments the next one is read; pages one after the other are the whole. Each page
holds at least one item: one that is too large is shown cut, and the last line says the arguments
that read it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcpx.surfaces.large.example import step
from mcpx.surfaces.large.excerpt import TIGHTEST, clip, cut, fit, size_of, weigh
from mcpx.surfaces.large.finding import Needle
from mcpx.surfaces.large.hints import arguments, quoted
from mcpx.surfaces.large.lines import has_line_over
from mcpx.surfaces.large.marks import own
from mcpx.surfaces.large.preview import LONG_LINE, NOT_JSON, counted

NOTE_BYTES = 480
_PLAIN = "grep is a plain substring, not a regular expression"
_AROUND = 120
"""Characters shown before and after a match in a text with very long lines."""
_SUGGESTED = 140
"""Bytes of suggested arguments; longer ones would fill the last line."""

Show = Callable[[object], str]


class BadReading(Exception):
    """What is wrong with the arguments and what to do, in words for a model."""


@dataclass(frozen=True, slots=True)
class Asked:
    offset: int = 0
    limit: int | None = None
    jmespath: str | None = None
    grep: str | None = None
    handle: str = ""


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
    weight: Callable[[int], int]
    show: Callable[[Sequence[int]], str]
    cut: Callable[[Sequence[int], int, int], str]
    """Some of them whole, then one that is too large, cut to about so many bytes."""
    path: Callable[[int], str] | None = None
    """The expression that selects one of them."""
    listed: bool = False
    """Whether it must be told which of them match: nothing else says it."""
    prefixed: bool = False
    """Whether each that matches is shown after its offset."""
    value: Callable[[Sequence[int]], object] | None = None
    """Some of them as JSON."""


def page_of_rows(rows: list[object], asked: Asked, room: int, show: Show) -> Page:
    items = _Items(
        unit="row",
        total=len(rows),
        positions=range(len(rows))
        if asked.grep is None
        else Needle(asked.grep).in_json([row] for row in rows),
        weight=lambda at: weigh(rows[at], TIGHTEST * room),
        show=lambda positions: show([rows[at] for at in positions]),
        cut=lambda whole, at, left: show([*(rows[each] for each in whole), clip(rows[at], left)]),
        path=lambda at: f"[{at}]",
        listed=True,
        value=lambda positions: [rows[at] for at in positions],
    )
    return _page(items, asked, room)


def page_of_keys(fields: dict[str, object], asked: Asked, room: int, show: Show) -> Page:
    names = list(fields)

    def some(positions: Sequence[int]) -> dict[str, object]:
        return {names[at]: fields[names[at]] for at in positions}

    def alone(name: str) -> dict[str, object]:
        return {name: fields[name]}

    def path(at: int) -> str:
        return step(names[at]) or f"values(@)[{at}]"

    items = _Items(
        unit="key",
        total=len(names),
        positions=range(len(names))
        if asked.grep is None
        else Needle(asked.grep).in_json(map(alone, names)),
        weight=lambda at: weigh(some([at]), TIGHTEST * room),
        show=lambda positions: show(some(positions)),
        cut=lambda whole, at, left: show({**some(whole), names[at]: clip(fields[names[at]], left)}),
        path=path,
        value=some,
    )
    return _page(items, asked, room)


def page_of_text(text: str, asked: Asked, room: int) -> Page:
    if has_line_over(text, min(LONG_LINE, room - 20)):
        return (
            _page_of_matches(text, asked, room)
            if asked.grep
            else _page_of_characters(text, asked, room)
        )
    lines = text.removesuffix("\n").split("\n")
    found = None if asked.grep is None else Needle(asked.grep).in_lines(lines)

    def line(at: int) -> str:
        return lines[at] if found is None else f"{at}: {lines[at]}"

    items = _Items(
        unit="line",
        total=len(lines),
        positions=range(len(lines)) if found is None else found,
        weight=lambda at: size_of(line(at)) + 1,
        show=lambda positions: "\n".join(map(line, positions)),
        cut=lambda _, at, left: cut(line(at), left),
        prefixed=True,
    )
    return _page(items, asked, room)


def _page(items: _Items, asked: Asked, room: int) -> Page:
    chosen = items.positions
    if not chosen and asked.grep is not None:
        what = (
            f"nothing in {counted(items.total, items.unit)} contains {Needle(asked.grep).quoted()}"
        )
        return Page(own(f"{what}; {_PLAIN}"))
    start, stop = _bounds(asked, len(chosen), "match" if asked.grep is not None else items.unit)
    count, text = fit(
        stop - start,
        room,
        lambda nth: items.weight(chosen[start + nth]),
        lambda first: items.show(chosen[start : start + first]),
    )
    notes: list[str] = []
    end = start + count
    value = NOT_JSON if items.value is None else items.value(chosen[start:end])
    if end < stop and (
        not count or items.weight(chosen[end]) > room
    ):  # no page has room for the next one
        with_cut = _with_one_cut(items, chosen[start:end], chosen[end], room, text)
        if with_cut is not None:
            text, value = with_cut, NOT_JSON
            notes.append(
                f"{items.unit} {chosen[end]} is cut" + _how_to_select(items, chosen[end], asked)
            )
            end += 1
    if asked.grep is not None:
        which = f": {items.unit}s {_some_numbers(chosen[start:end])}" if items.listed else ""
        which = ", each after its offset" if items.prefixed else which
        known = _range("match", start, end, len(chosen))
        notes.insert(0, f"{known} in {counted(items.total, items.unit)}{which}")
    elif start or end < len(chosen):
        notes.insert(0, _range(items.unit, start, end, len(chosen)))
    return Page(_with_notes(text, notes, asked, end if end < len(chosen) else None), value)


def _with_one_cut(
    items: _Items, whole: Sequence[int], large: int, room: int, text: str
) -> str | None:
    """The page with a part of one more; `None` where too little room is left for that, and it gets
    its own page."""
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
    return Page(_with_notes(shown, notes, asked, end if end < len(text) else None))


def _page_of_matches(text: str, asked: Asked, room: int) -> Page:
    """Lines are too long to be shown: what is around each match instead, with the place where it
    begins."""
    needle = Needle(asked.grep or "")
    compared = needle.fold(text)
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
        weight=lambda nth: size_of(line(nth)) + 1,
        show=lambda positions: "\n".join(map(line, positions)),
        cut=lambda _, nth, left: cut(line(nth), left),
        prefixed=True,
    )
    return _page(items, asked, room)


def _bounds(asked: Asked, count: int, unit: str) -> tuple[int, int]:
    if asked.offset >= count:
        raise BadReading(
            f"offset {asked.offset} is past the end: there {_are(count, unit)}, the last at "
            f"offset {count - 1}"
        )
    return asked.offset, count if asked.limit is None else min(count, asked.offset + asked.limit)


def _are(count: int, unit: str) -> str:
    return f"is 1 {unit}" if count == 1 else f"are {count:,} {_plural(unit)}"


def _plural(unit: str) -> str:
    return "matches" if unit == "match" else f"{unit}s"


def _range(unit: str, start: int, end: int, count: int) -> str:
    if start == 0 and end == count:
        return f"{count:,} {unit if count == 1 else _plural(unit)}"
    which = f"{unit} {start}" if end == start + 1 else f"{_plural(unit)} {start}-{end - 1}"
    return f"{which} of {count:,}"


def _some_numbers(positions: Sequence[int]) -> str:
    listed = ", ".join(map(str, positions[:8]))
    return f"{listed}, …" if len(positions) > 8 else listed


def _how_to_select(items: _Items, position: int, asked: Asked) -> str:
    if items.path is None:
        return ""
    path = items.path(position)
    all_of_it = path if asked.jmespath is None else f"{asked.jmespath} | {path}"
    given = arguments(handle=asked.handle, jmespath=all_of_it)
    if size_of(given) > _SUGGESTED:
        given = f'the same "jmespath" with {quoted(f" | {path}")} at its end'
    return f", all of it: {given}"


def _with_notes(text: str, notes: list[str], asked: Asked, following: int | None) -> str:
    if following is not None:
        limit, jmespath, grep = asked.limit, asked.jmespath, asked.grep
        given = arguments(
            handle=asked.handle, jmespath=jmespath, grep=grep, offset=following, limit=limit
        )
        notes.append(
            "next: "
            + (given if size_of(given) <= _SUGGESTED else f'the same with "offset": {following}')
        )
    elif asked.offset:
        notes.append("the end")
    return f"{text}\n{own('; '.join(notes))}" if notes else text
