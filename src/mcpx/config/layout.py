"""A text as pieces that know where they begin and end, for changing some and leaving the rest as it
is.

Promised: of a text that `Source` can read, every key, value, list item, alias and `<<` with its
exact place; values are those that `Source` reads. Not done here: reading a text that is not known
to be good; changing anything.
"""

import re
from dataclasses import dataclass, field
from json import JSONDecoder
from typing import Any, Literal

import yaml

from mcpx.config.compose import Composer
from mcpx.config.nodes import MAX_DEPTH, MAX_NODES, Scalar
from mcpx.config.problems import Findings

Form = Literal["yaml", "json"]

_BETWEEN = re.compile(r"(?:[ \t\n\r]++|//[^\n]*+|/\*(?s:.*?)\*/)*+")
_DECODER = JSONDecoder()


@dataclass(slots=True)
class Piece:
    """A value in the text."""

    start: int
    end: int
    """Behind its last character; comments and line breaks that follow are not part of it."""
    kind: Literal["scalar", "list", "map"]
    value: Any
    """What is read there, aliases followed and `<<` worked in."""
    text: str = ""
    """Of a scalar: as written, without its quotes."""
    style: str = ""
    """Of a scalar: its quotes, or `|` and `>`."""
    flow: bool = False
    """In brackets; JSON is nothing else."""
    children: "list[Child]" = field(default_factory=list["Child"])
    anchor: str | None = None
    alias: str | None = None


@dataclass(slots=True)
class Child:
    """An item of a list, or a key and its value."""

    start: int
    """Where its dash or its key begins; in brackets, where the item begins."""
    key: str | None
    key_end: int
    """Behind the dash or the colon."""
    piece: Piece
    merge: bool = False
    """It is a `<<`."""
    flow: bool = False
    """It stands in brackets."""


def lay_out(text: str, form: Form) -> Piece:
    """The pieces of a text that `Source` has read without a finding."""
    return _Json(text).node() if form == "json" else _Yaml(text).whole()


class _Yaml(Composer):
    def __init__(self, text: str) -> None:
        super().__init__(text, Findings(_nowhere), MAX_NODES, MAX_DEPTH)
        self._source = text
        self._pieces: dict[str, Piece] = {}

    def whole(self) -> Piece:
        self._loader.get_event()
        self._loader.get_event()
        return self._piece()

    def _piece(self) -> Piece:
        event: Any = self._loader.get_event()
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.AliasEvent):
            known = self._pieces[event.anchor]
            return Piece(start, end, known.kind, known.value, known.text, alias=event.anchor)
        if isinstance(event, yaml.ScalarEvent):
            scalar: Scalar = self._scalar(event)
            style = str(event.style or "")
            end = self._trimmed(start, end) if style in ("|", ">") else end
            piece = Piece(start, end, "scalar", scalar.value, scalar.text, style)
        elif isinstance(event, yaml.SequenceStartEvent):
            piece = self._list(start, bool(event.flow_style))
        else:
            piece = self._map(start, bool(event.flow_style))
        piece.anchor = event.anchor
        if event.anchor:
            self._pieces[event.anchor] = piece
        return piece

    def _list(self, start: int, flow: bool) -> Piece:
        piece = Piece(start, start, "list", [], flow=flow)
        while not self._loader.check_event(yaml.SequenceEndEvent):
            item = self._piece()
            dash = (
                item.start if flow else self._source.rindex("-", start, self._before(item, piece))
            )
            piece.children.append(Child(dash, None, dash + (not flow), item, flow=flow))
        return self._closed(piece)

    def _before(self, item: Piece, piece: Piece) -> int:
        """Where at the latest the dash of an item stands: the text between it and the item may hold
        comments."""
        floor = piece.children[-1].piece.end if piece.children else piece.start
        gap = self._source[floor : item.start]
        bare = re.sub(r"#[^\n\r]*", lambda comment: " " * len(comment[0]), gap)
        # An anchor or a tag may hold a dash, too; the dash of an item is followed by a space or a
        # line's end.
        found = [at.start() for at in re.finditer(r"(?<![^\s-])-(?=\s|$)", bare)]
        return floor + found[0] + 1

    def _map(self, start: int, flow: bool) -> Piece:
        piece = Piece(start, start, "map", {}, flow=flow)
        while not self._loader.check_event(yaml.MappingEndEvent):
            plain = getattr(self._loader.peek_event(), "style", "") in (None, "")
            key = self._piece()
            value = self._piece()
            colon = self._colon(key.end, value.start)
            merge = plain and key.text == "<<"
            piece.children.append(Child(key.start, key.text, colon, value, merge, flow))
        return self._closed(piece)

    def _colon(self, floor: int, ceiling: int) -> int:
        """Behind the colon; a flow key without value has none."""
        at = self._source.find(":", floor, ceiling)
        return at + 1 if at >= 0 else floor

    def _closed(self, piece: Piece) -> Piece:
        event: Any = self._loader.get_event()
        last = piece.children[-1] if piece.children else None
        piece.end = (
            event.end_mark.index
            if piece.flow
            else max(last.key_end, last.piece.end)
            if last
            else piece.start
        )
        piece.value = value_of(piece.kind, piece.children)
        return piece

    def _trimmed(self, start: int, end: int) -> int:
        """The end of a block scalar: behind its last line that is not empty."""
        return start + len(self._source[start:end].rstrip())


def value_of(kind: str, children: "list[Child]") -> Any:
    """What is read of a list or a map with these children."""
    if kind == "list":
        return [child.piece.value for child in children]
    merged: dict[str, Any] = {}
    for child in children:
        if child.merge:
            tables = child.piece.value if child.piece.kind == "list" else [child.piece.value]
            for table in tables:
                merged = {**table, **merged}
    return {
        **merged,
        **{str(child.key): child.piece.value for child in children if not child.merge},
    }


def _nowhere(path: object) -> Any:
    return None, ()


class _Json:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _next(self) -> str:
        found = _BETWEEN.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def node(self) -> Piece:
        begins, start = self._next(), self._at
        if begins not in "{[":
            value, self._at = _DECODER.raw_decode(self._text, start)
            spelled = value if isinstance(value, str) else self._text[start : self._at]
            return Piece(
                start,
                self._at,
                "scalar",
                value,
                spelled,
                '"' if isinstance(value, str) else "",
                flow=True,
            )
        piece = Piece(start, start, "map" if begins == "{" else "list", None, flow=True)
        self._at += 1
        while self._next() not in "}]":
            begin, key = self._at, None
            if begins == "{":
                key, self._at = _DECODER.raw_decode(self._text, begin)
                self._next()
                self._at += 1
            colon = self._at
            item = self.node()
            piece.children.append(
                Child(begin, key, colon if begins == "{" else begin, item, flow=True)
            )
            if self._next() == ",":
                self._at += 1
        self._at += 1
        piece.end, piece.value = self._at, value_of(piece.kind, piece.children)
        return piece
