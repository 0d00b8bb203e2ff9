"""JSON text as nodes that know their place in it: with the comments and trailing commas of editors
and clients.

Promised: one pass, bounded work whatever the text, no key that silently replaces another. Nothing
of YAML is imported for it: that takes longer than reading the file. Not done here: what the values
mean.
"""

import re
from bisect import bisect_right
from json import JSONDecodeError, JSONDecoder
from typing import NoReturn

from mcpx.config.nodes import MAX_DEPTH, MAX_NODES, Entries, Node, Scalar, Sequence, Table
from mcpx.config.problems import Findings, GaveUpError, Place
from mcpx.config.tree import shorten

_BETWEEN = re.compile(r"(?:[ \t\n\r]++|//[^\n]*+|/\*(?s:.*?)\*/)*+")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = JSONDecoder(parse_constant=_refuse_constant)


def read_json(text: str, line_starts: list[int], findings: Findings, most: int = MAX_NODES) -> Node:
    """The nodes of a text, so many at most; raises when it cannot be followed to its end."""
    return _Reader(text, line_starts, findings, most).document()


class _Reader:
    def __init__(self, text: str, line_starts: list[int], findings: Findings, most: int) -> None:
        self._text = text
        self._starts = line_starts
        self._findings = findings
        self._at = 0
        self._path: list[str | int] = []
        self._most = self._left = most

    def document(self) -> Node:
        root = self._node()
        if self._next():
            self._refuse("not valid JSON: extra data")
        return root

    def _next(self) -> str:
        """The next character that means something; nothing at the end."""
        found = _BETWEEN.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _node(self) -> Node:
        self._left -= 1
        begins = self._next()
        if self._left < 0:
            self._refuse(f"holds more than {self._most:,} values")
        if len(self._path) > MAX_DEPTH:
            self._refuse(f"nested more than {MAX_DEPTH} levels deep")
        if begins == "{":
            return self._table()
        return self._sequence() if begins == "[" else self._scalar()

    def _scalar(self) -> Scalar:
        start = self._at
        try:
            value, self._at = _DECODER.raw_decode(self._text, start)
        except JSONDecodeError as error:
            self._at = error.pos
            self._refuse(f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]}")
        except ValueError as error:  # a number of five thousand digits, and what is not a number
            self._refuse(f"not valid JSON: {shorten(str(error))}")
        text = value if isinstance(value, str) else self._text[start : self._at]
        return Scalar(self._place(start, self._at), text, value)

    def _sequence(self) -> Sequence:
        start, items = self._at, list[Node]()
        self._at += 1
        while self._next() != "]":
            items.append(self._node_at(len(items)))
            self._comma("]")
        self._at += 1
        return Sequence(self._place(start, start + 1), items)

    def _table(self) -> Table:
        start, entries = self._at, Entries()
        self._at += 1
        while (begins := self._next()) != "}":
            if begins != '"':
                self._refuse("not valid JSON: expecting property name enclosed in double quotes")
            name = self._scalar()
            place, key = name.place, name.text
            if self._next() != ":":
                self._refuse("not valid JSON: expecting ':' delimiter")
            self._at += 1
            value = self._node_at(key)
            if key in entries:
                hint = f"it stands on line {entries[key][0].line} already"
                self._findings.add(
                    f"duplicate key {shorten(key)!r}", (*self._path, key), hint=hint, place=place
                )
            else:
                entries[key] = place, value
            self._comma("}")
        self._at += 1
        return Table(self._place(start, start + 1), entries)

    def _node_at(self, step: str | int) -> Node:
        self._path.append(step)
        node = self._node()
        self._path.pop()
        return node

    def _comma(self, end: str) -> None:
        found = self._next()
        if found == ",":
            self._at += 1
        elif found != end:
            self._refuse("not valid JSON: expecting ',' delimiter")

    def _refuse(self, message: str) -> NoReturn:
        self._findings.add(message, place=self._place(self._at, self._at + 1))
        raise GaveUpError

    def _place(self, start: int, end: int) -> Place:
        line = bisect_right(self._starts, start)
        begins = self._starts[line - 1]
        ends = self._starts[line] if line < len(self._starts) else len(self._text)
        return Place(line, start - begins + 1, end - start if end <= ends else 0)
