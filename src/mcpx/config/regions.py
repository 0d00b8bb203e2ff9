"""What of a text belongs to an entry of a block or of brackets: its comments, its comma, its lines.

Promised: a comment directly above an entry, as far in as it, is its own; so is one behind it on its
line, and those below that are further in. What an empty line sets apart belongs to nobody and
stays. Not done here: changing.
"""

import re
from dataclasses import dataclass

from mcpx.config.emit import column
from mcpx.config.layout import Child, Form, Piece

_COMMENTS = {"yaml": r"(?<![^\s,\[\]{}])#[^\n]*", "json": r"//[^\n]*|/\*(?s:.*?)\*/"}


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Where its line break is, or the text ends."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def next_line(text: str, at: int) -> int:
    return min(len(text), line_end(text, at) + 1)


def begins_line(text: str, at: int) -> bool:
    return not text[line_start(text, at) : at].strip()


def indent_of(text: str, at: int) -> str:
    """What stands before the first letter of its line."""
    start = line_start(text, at)
    return text[start : start + len(text[start:at]) - len(text[start:at].lstrip(" \t"))]


@dataclass(frozen=True, slots=True)
class Region:
    start: int
    end: int


def own_lines(text: str, piece: Piece, index: int) -> Region:
    """The lines of an entry of a block, with the comments that are its own."""
    child = piece.children[index]
    return Region(_own_start(text, piece, index), _own_end(text, child, piece))


def _own_start(text: str, piece: Piece, index: int) -> int:
    child = piece.children[index]
    if not begins_line(text, child.start):
        return child.start
    start, depth = line_start(text, child.start), column(text, child.start)
    floor = piece.children[index - 1].piece.end if index else 0
    while start > floor:
        above = line_start(text, start - 1)
        line = text[above : start - 1]
        if (
            above < floor
            or not line.lstrip().startswith("#")
            or len(line) - len(line.lstrip()) > depth
        ):
            break
        start = above
    # What begins a file speaks of all of it.
    return start if start > 0 or index else line_start(text, child.start)


def _own_end(text: str, child: Child, piece: Piece) -> int:
    at = next_line(text, max(child.key_end, child.piece.end))
    return _past_comments(text, at, column(text, piece.children[0].start) + 1)


def end_of_block(text: str, piece: Piece) -> int:
    """Behind the last key of a map, and what is commented out there."""
    end, depth = (
        own_lines(text, piece, len(piece.children) - 1).end,
        column(text, piece.children[0].start),
    )
    return _past_comments(text, end, depth) if depth else end


def _past_comments(text: str, at: int, least: int) -> int:
    while at < len(text):
        line = text[at : line_end(text, at)]
        depth = len(line) - len(line.lstrip())
        if not line.lstrip().startswith("#") or depth < least:
            break
        at = next_line(text, at)
    return at


def blank_between(text: str, piece: Piece) -> bool:
    """Whether empty lines set the entries of a block apart."""
    ends = [max(child.key_end, child.piece.end) for child in piece.children]
    gaps = [
        text[line_end(text, end) : child.start]
        for end, child in zip(ends, piece.children[1:], strict=False)
    ]
    return any(re.search(r"\n[ \t\r]*\n", gap) for gap in gaps)


def blank_run(text: str, at: int) -> int:
    """Behind the empty lines that begin here."""
    found = re.compile(r"(?:[ \t\r]*\n)*").match(text, at)
    return found.end() if found else at


@dataclass(slots=True)
class Slot:
    """An entry in brackets: what stands before it, it, and what stands behind its comma on its
    line."""

    before: str
    start: int
    end: int
    behind: str


@dataclass(slots=True)
class Brackets:
    opening: str
    slots: list[Slot]
    closing: str
    trailing_comma: bool
    broken: bool
    """Over several lines, an entry on each."""


def brackets(text: str, form: Form, piece: Piece) -> Brackets:
    """The parts of a list or a map in brackets that has entries."""
    first = piece.children[0]
    opens = _content_start(text, piece)
    head, before = _at_line_break(text[opens : first.start])
    slots: list[Slot] = []
    comma = False
    for at, child in enumerate(piece.children):
        end = max(child.key_end, child.piece.end)
        until = piece.children[at + 1].start if at + 1 < len(piece.children) else piece.end - 1
        gap = text[end:until]
        found = _comma(gap, form)
        comma = found >= 0
        behind, rest = _at_line_break(gap[:found] + gap[found + 1 :] if comma else gap)
        slots.append(Slot(before, child.start, end, behind))
        before = rest
    return Brackets(head, slots, before + text[piece.end - 1], comma, "\n" in head)


def _content_start(text: str, piece: Piece) -> int:
    """Behind the opening bracket; an anchor may stand before it."""
    return text.index("{" if piece.kind == "map" else "[", piece.start) + 1


def _at_line_break(gap: str) -> tuple[str, str]:
    at = gap.find("\n")
    return (gap[: at + 1], gap[at + 1 :]) if at >= 0 else ("", gap)


def _comma(gap: str, form: Form) -> int:
    bare = re.sub(_COMMENTS[form], lambda comment: " " * len(comment[0]), gap)
    return bare.find(",")


def without_own(before: str) -> str:
    """What stays of what stood before an entry in brackets that goes: comments that an empty line
    sets apart."""
    apart = re.split(r"(?<=\n)(?=[ \t\r]*\n)", before)
    return "".join(apart[:-1]) if len(apart) > 1 else ""
