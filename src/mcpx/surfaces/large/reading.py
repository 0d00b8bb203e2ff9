"""The tool `result` of the built-in server `mcpx`: reads a kept result page by page (SUR-11).

`offset` and `limit` count the rows of a JSON array, the keys of a JSON object, the lines of a text,
or the characters of a text with very long lines. `jmespath` selects first, then `grep` filters,
then `offset` and `limit` (or `head`, the same as `limit`) page. Values are rendered like results.

An answer has at most `limit_bytes` (`LEAST` if that is more). Its last line says what it is and how
to read the next page. Pages one after the other are the whole. Without `jmespath` the work is
linear in the result; an expression may take any time and memory, so it runs in a process
(`worker`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mcpx.base.abridge import Limits
from mcpx.formats.json import as_json
from mcpx.formats.writing import value_writer
from mcpx.model.call import Json
from mcpx.model.offer import Offer
from mcpx.surfaces.large.measure import (
    TIGHTEST,
    NotJson,
    counted,
    cut,
    fit,
    has_line_over,
    own,
    quoted,
    size_of,
    weigh,
)
from mcpx.surfaces.large.preview import (
    LONG_LINE,
    NOT_JSON,
    abridged,
    arguments,
    shape_of,
    step,
)
from mcpx.surfaces.large.shaping import is_too_deep
from mcpx.wire.codec import BadJson, load

LEAST = 700
"""Bytes below which an answer would be all explanation."""
NOTE_BYTES = 480
ROOMY = LONG_LINE + NOTE_BYTES + 20
"""Limit from which on a text is paged by lines, or by characters, as its preview counts them."""
PARAMETERS = "{handle, offset?, limit?, jmespath?, grep?}"
"""For the description of the tool through which this one is called."""
_MAX_GREP = 500
_MAX_EXPRESSION = 1_000
_AROUND = 120
"""Characters shown before and after a match in a text with very long lines."""
_SUGGESTED = 140
"""Bytes of suggested arguments; longer ones would fill the last line."""

TOOL: Json = {
    "name": "result",
    "description": (
        "Reads on in a large result that was kept (15 minutes). Counted in rows of a JSON array, "
        "keys of a JSON "
        "object, lines of a text, or characters where its lines are very long. jmespath selects "
        "first, then grep "
        "filters, then offset and limit page. The last line of an answer says what to read next."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": {
                "type": "string",
                "description": "The handle that stands below the kept result",
            },
            "offset": {"type": "integer", "minimum": 0, "description": "Skip so many (default 0)"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "description": "At most so many (default: as many as fit)",
            },
            "jmespath": {
                "type": "string",
                "minLength": 1,
                "maxLength": _MAX_EXPRESSION,
                "description": (
                    'JSON only: what to select, e.g. "items[?size > `10`].name", or keys(@)'
                ),
            },
            "grep": {
                "type": "string",
                "minLength": 1,
                "maxLength": _MAX_GREP,
                "description": (
                    "Only lines (or rows, as compact JSON) that contain this: a plain substring, "
                    "not a regular "
                    "expression; upper and lower case are the same unless it has capitals"
                ),
            },
            "head": {"type": "integer", "minimum": 1, "description": "Only the first so many"},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}

BUILT_IN = "mcpx"
READER = Offer("tools", BUILT_IN, "result", "mcpx.result", TOOL)
OWN_NAMES = (READER.public, f"{BUILT_IN}_{READER.name}", f"{BUILT_IN}/{READER.name}")

Show = Callable[[object], str]


class BadReading(Exception):
    """What is wrong with the arguments and what to do, for a model."""


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
    """The rows or keys of the page if each is shown whole."""


def read(
    text: bytes,
    given: Mapping[str, Any],
    *,
    limit_bytes: int,
    write: Callable[[object], str] | None = None,
) -> Page:
    """A page of a kept result. `write` renders values, by default as TOON. Raises `BadReading`."""
    asked = asked_for(given)
    whole = _parsed(text)
    value = whole
    if asked.jmespath is not None:
        value = _selected(asked.jmespath, whole)
    room = max(limit_bytes, LEAST) - NOTE_BYTES
    show = write or value_writer("toon")
    try:
        if value is NOT_JSON:
            return _page_of_text(text.decode("utf-8", "replace"), asked, room)
        if isinstance(value, str):
            return _page_of_text(value, asked, room)
        if isinstance(value, (list, dict)) and value:
            whole_value = cast("list[object] | dict[str, object]", value)
            return _page(_Json(whole_value, asked, room, show), asked, room)
        small = cast(object, value)  # A number or the like, or nothing at all.
        weigh(small, room)
    except NotJson:
        why = "jmespath: an expression that begins with & only goes into a function"
        raise BadReading(f"{why}; {_what_it_is(whole)}") from None
    shown = cut(show(small), room)
    if asked.jmespath is not None and small in (None, [], {}):
        shown += f"\n{own(f'jmespath found nothing; {_what_it_is(whole)}')}"
    return Page(shown, small)


def asked_for(given: Mapping[str, Any]) -> Asked:
    """The schema has judged and repaired arguments, unless they are too large to be judged."""
    limits = [_count(given, name, 1) for name in ("limit", "head")]
    return Asked(
        offset=_count(given, "offset", 0) or 0,
        limit=min((limit for limit in limits if limit is not None), default=None),
        jmespath=_text(given, "jmespath", _MAX_EXPRESSION),
        grep=_text(given, "grep", _MAX_GREP),
        handle=str(given.get("handle")),
    )


def _count(given: Mapping[str, Any], name: str, least: int) -> int | None:
    value = given.get(name)
    if value is not None and (type(value) is not int or not least <= value < 10**15):
        raise BadReading(f"{name} must be a whole number from {least} on")
    return value


def _text(given: Mapping[str, Any], name: str, most: int) -> str | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= most):
        raise BadReading(f"{name} must be a text of 1 to {most:,} characters")
    return value


def _parsed(text: bytes) -> object:
    """An array, an object or a string; anything else is read as a text."""
    if text[:64].lstrip(b" \t\r\n\xef\xbb\xbf")[:1] not in (b"{", b"[", b'"', b""):
        return NOT_JSON
    try:
        value = load(text)
    except BadJson:
        return NOT_JSON
    whole = cast(object, value)
    if not isinstance(value, (dict, list, str)) or is_too_deep(text, whole):
        return NOT_JSON
    return whole


# jmespath


def _selected(expression: str, whole: object) -> object:
    if whole is NOT_JSON:
        raise BadReading(
            "jmespath needs JSON, and this result is text; use grep, or offset and limit"
        )
    try:
        return _query(expression, whole)
    except BadReading as error:
        raise BadReading(f"{error}; {_what_it_is(whole)}") from None


def _what_it_is(whole: object) -> str:
    return f"the result is: {cut(shape_of(whole), 300)}"


def _query(expression: str, value: object) -> object:
    import jmespath
    from jmespath.exceptions import ArityError, JMESPathError, JMESPathTypeError, ParseError

    try:
        return jmespath.compile(expression).search(value)
    except RecursionError:
        raise BadReading("the jmespath expression is nested too deeply") from None
    except JMESPathTypeError as error:  # Its own text would hold the whole value.
        types = " or ".join(error.expected_types)
        told = f"{error.function_name}() takes {types}, not {error.actual_type}"
        raise BadReading(f"jmespath: {told}") from None
    except ArityError as error:
        raise BadReading(f"jmespath: {error}") from None
    except ParseError as error:
        at = error.lex_position
        rest = expression[at : at + 20]
        place = f"before {rest!r}" if rest else "the end of the expression"
        raise BadReading(f"jmespath: syntax error at position {at}, {place}") from None
    except JMESPathError as error:
        raise BadReading(f"jmespath: {str(error)[:200]}") from None
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, Warning) as error:
        # Errors of Python: a number compared with a string, a slice with step 0.
        raise BadReading(f"jmespath cannot evaluate this: {str(error)[:200]}") from None


# grep


class _Needle:
    """A text to look for. Without capitals it finds both cases."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._folded = text == text.lower()
        self._spellings = {text, as_json(text)[1:-1]}

    def fold(self, text: str) -> str:
        """Keeps every character in its place: one letter alone would become two."""
        return text.replace("İ", "i").lower() if self._folded else text

    def in_lines(self, lines: Iterable[str]) -> list[int]:
        return [number for number, line in enumerate(lines) if self.text in self.fold(line)]

    def in_json(self, values: Iterable[object]) -> list[int]:
        """Which lists or objects contain it, as it is written or as JSON spells it."""
        found: list[int] = []
        for number, value in enumerate(values):
            text = self.fold(as_json(value)[1:-1])
            if any(spelling in text for spelling in self._spellings):
                found.append(number)
        return found

    def around(self, text: str) -> list[tuple[int, int]]:
        """The begin and end of an excerpt for each match."""
        compared = self.fold(text)
        found: list[tuple[int, int]] = []
        end = 0
        while (at := compared.find(self.text, end)) >= 0:
            begin, end = max(at - _AROUND, end), at + len(self.text) + _AROUND
            found.append((begin, end))
        return found


# Pages


class _Json:
    """The rows of an array or the keys of an object. Positions count in the whole."""

    def __init__(
        self, whole: list[object] | dict[str, object], asked: Asked, room: int, show: Show
    ) -> None:
        self._room = room
        self._show = show
        self.total = len(whole)
        self.positions: Sequence[int] = range(len(whole))
        """Of the items that `grep` leaves."""
        self._names: list[str] | None = None
        self.unit = "row"
        if isinstance(whole, dict):
            self.unit = "key"
            self._names = list(whole)
            whole = list(whole.values())
        self._values = whole
        if asked.grep is not None:
            items = (self.value([at]) for at in range(len(whole)))
            self.positions = _Needle(asked.grep).in_json(items)

    def value(self, positions: Sequence[int]) -> object:
        """The items as JSON."""
        if self._names is None:
            return [self._values[at] for at in positions]
        return {self._names[at]: self._values[at] for at in positions}

    def weight(self, at: int) -> int:
        return weigh(self.value([at]), TIGHTEST * self._room)

    def show(self, positions: Sequence[int]) -> str:
        return self._show(self.value(positions))

    def show_cut(self, at: int) -> str:
        """One item that is too large for a page, with long texts and lists cut."""
        text = ""
        for part in (1, 2, 4, 8, 16, 64, 256):
            characters = self._room // part
            items = max(characters // 20, 2)
            limits = Limits(text=characters, items=items, depth=6, nodes=4 * items)
            text = self._show(abridged(self.value([at]), limits))
            if size_of(text) <= self._room:
                return text
        return cut(text, self._room)

    def match_note(self, positions: Sequence[int]) -> str:
        """Which items match; keys show it themselves."""
        return "" if self._names else f": rows {_some_numbers(positions)}"

    def path(self, at: int) -> str | None:
        """The expression that selects an item."""
        if self._names is None:
            return f"[{at}]"
        return step(self._names[at]) or f"values(@)[{at}]"


class _Lines:
    """Lines of a text, or matches in a text with very long lines, each with its offset."""

    def __init__(self, unit: str, total: int, lines: Sequence[str], room: int) -> None:
        self.unit = unit
        self.total = total
        self._lines = lines
        self._room = room
        self.positions: Sequence[int] = range(len(lines))

    def value(self, positions: Sequence[int]) -> object:
        return NOT_JSON

    def weight(self, at: int) -> int:
        return size_of(self._lines[at]) + 1

    def show(self, positions: Sequence[int]) -> str:
        return "\n".join(self._lines[at] for at in positions)

    def show_cut(self, at: int) -> str:
        return cut(self._lines[at], self._room)

    def match_note(self, positions: Sequence[int]) -> str:
        return ", each after its offset"

    def path(self, at: int) -> str | None:
        return None


def _page_of_text(text: str, asked: Asked, room: int) -> Page:
    needle = None if asked.grep is None else _Needle(asked.grep)
    if not has_line_over(text, min(LONG_LINE, room - 20)):
        lines = text.removesuffix("\n").split("\n")
        total = len(lines)
        if needle is not None:
            lines = [f"{at}: {lines[at]}" for at in needle.in_lines(lines)]
        return _page(_Lines("line", total, lines, room), asked, room)
    if needle is not None:
        places = needle.around(text)
        lines = [f"{begin}: …{text[begin:end]}…".replace("\n", " ") for begin, end in places]
        return _page(_Lines("character", len(text), lines, room), asked, room)
    start, stop = _bounds(asked, len(text), "character")
    shown = cut(text[start : min(stop, start + room)], room)
    end = start + len(shown)
    notes = _range_note("character", start, end, len(text))
    return Page(_with_notes(shown, notes, asked, end, len(text)))


def _page(items: _Json | _Lines, asked: Asked, room: int) -> Page:
    chosen = items.positions
    noun = items.unit
    among = f"in {counted(items.total, items.unit)}"
    if asked.grep is not None:
        noun = "match"
        if not chosen:
            told = f"nothing {among} contains {as_json(cut(asked.grep, 40))}"
            return Page(own(f"{told}; grep is a plain substring, not a regular expression"))
    start, stop = _bounds(asked, len(chosen), noun)
    count, text = fit(
        stop - start,
        room,
        lambda nth: items.weight(chosen[start + nth]),
        lambda first: items.show(chosen[start : start + first]),
    )
    end = start + max(count, 1)
    value: object = NOT_JSON
    if count:
        value = items.value(chosen[start:end])
    else:
        text = items.show_cut(chosen[start])
    notes = _range_note(noun, start, end, len(chosen))
    if asked.grep is not None:
        which = items.match_note(chosen[start:end])
        notes = [f"{_range(noun, start, end, len(chosen))} {among}{which}"]
    if not count:
        notes.append(_cut_note(items, chosen[start], asked))
    return Page(_with_notes(text, notes, asked, end, len(chosen)), value)


def _bounds(asked: Asked, count: int, unit: str) -> tuple[int, int]:
    if asked.offset >= count:
        are = f"are {count:,} {_plural(unit)}" if count != 1 else f"is 1 {unit}"
        last = f"the last at offset {count - 1}"
        raise BadReading(f"offset {asked.offset} is past the end: there {are}, {last}")
    if asked.limit is None:
        return asked.offset, count
    return asked.offset, min(count, asked.offset + asked.limit)


def _plural(unit: str) -> str:
    return "matches" if unit == "match" else f"{unit}s"


def _range_note(unit: str, start: int, end: int, count: int) -> list[str]:
    if start == 0 and end == count:
        return []
    return [_range(unit, start, end, count)]


def _range(unit: str, start: int, end: int, count: int) -> str:
    if start == 0 and end == count:
        return f"1 {unit}" if count == 1 else f"{count:,} {_plural(unit)}"
    which = f"{unit} {start}"
    if end > start + 1:
        which = f"{_plural(unit)} {start}-{end - 1}"
    return f"{which} of {count:,}"


def _some_numbers(positions: Sequence[int]) -> str:
    listed = list(map(str, positions[:8]))
    if len(positions) > 8:
        listed.append("…")
    return ", ".join(listed)


def _cut_note(items: _Json | _Lines, position: int, asked: Asked) -> str:
    told = f"{items.unit} {position} is cut"
    path = items.path(position)
    if path is None:
        return told
    if asked.jmespath is not None:
        given = arguments(handle=asked.handle, jmespath=f"{asked.jmespath} | {path}")
    else:
        given = arguments(handle=asked.handle, jmespath=path)
    if size_of(given) > _SUGGESTED:
        given = f'the same "jmespath" with {quoted(f" | {path}")} at its end'
    return f"{told}, all of it: {given}"


def _with_notes(text: str, notes: list[str], asked: Asked, end: int, count: int) -> str:
    if end < count:
        given = arguments(
            handle=asked.handle,
            jmespath=asked.jmespath,
            grep=asked.grep,
            offset=end,
            limit=asked.limit,
        )
        if size_of(given) > _SUGGESTED:
            given = f'the same with "offset": {end}'
        notes.append(f"next: {given}")
    elif asked.offset:
        notes.append("the end")
    if not notes:
        return text
    return f"{text}\n{own('; '.join(notes))}"
