"""A value put into JSON text, or taken out of it, with everything else left as it is.

Promised: comments, order, indentation, line ends and trailing commas stay byte for byte; what is
put in has the manner of what stands around it. Comments that stand above what is taken out stay.
Not done here: reading a text that is not known to be good, or whose keys hold something else than
tables; judging the result.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from mcpx.config.emit import Manner, in_json, inline, manner_of
from mcpx.config.nodes import Child, Node
from mcpx.config.source import root_of
from mcpx.config.textedit import begins_line, indent_of

MAX_VALUES = 2_000_000
Splice = tuple[int, int, str]
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINE_BREAK = re.compile(r"\r?\n")
_BLANKS = re.compile(r"[ \t]*")


def _root(text: str) -> Node:
    root = root_of(text, "json", MAX_VALUES)
    if root is None:
        raise ValueError("not readable")
    return root


def line_break(text: str) -> str:
    """The one that most lines end in."""
    windows = text.count("\r\n")
    return "\r\n" if windows * 2 > text.count("\n") else "\n"


def put(text: str, path: Sequence[str], value: Any) -> str:
    """`value` as the last key of `path`: in the place of what stands there, or behind its
    siblings."""
    writer = _Writer(text)
    return writer.applied(writer.put(path, value))


def put_item(text: str, path: Sequence[str], item: Any) -> str:
    """One more item of a list."""
    writer = _Writer(text)
    return writer.applied(writer.put_item(path, item))


def take_out(text: str, path: Sequence[str]) -> str:
    writer = _Writer(text)
    holder = writer.find(path[:-1])
    index = next(at for at, child in enumerate(holder.children) if child.key == path[-1])
    return writer.applied(writer.without(holder, index))


def take_out_item(text: str, path: Sequence[str], index: int) -> str:
    writer = _Writer(text)
    return writer.applied(writer.without(writer.find(path), index))


class _Writer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._root = _root(text)
        self._manner: Manner = manner_of(text, "json", self._root)
        self._break = line_break(text)

    def applied(self, splices: Sequence[Splice]) -> str:
        text = self._text
        for start, end, new in sorted(splices, reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def find(self, path: Sequence[str]) -> Node:
        piece = self._root
        for key in path:
            piece = next(child.node for child in piece.children if child.key == key)
        return piece

    def put(self, path: Sequence[str], value: Any) -> list[Splice]:
        piece = self._root
        for at, key in enumerate(path):
            child = next((child for child in piece.children if child.key == key), None)
            rest = path[at + 1 :]
            if child is None:
                return self._insert(piece, key, _nested(rest, value))
            if not rest or child.node.value is None:
                return self._replace(child.node, _nested(rest, value))
            piece = child.node
        raise ValueError("the whole text is not replaced")

    def put_item(self, path: Sequence[str], item: Any) -> list[Splice]:
        piece = self._root
        for key in path:
            child = next((child for child in piece.children if child.key == key), None)
            if child is None or child.node.kind == "scalar":
                return self.put(path, [item])
            piece = child.node
        return self._insert(piece, None, item)

    # Values as text

    def _written(self, value: Any, indent: str, *, wide: bool) -> str:
        told = inline(value, "json") if wide else in_json(value, indent, self._manner)
        return told.replace("\n", self._break)

    def _replace(self, piece: Node, value: Any) -> list[Splice]:
        indent, wide = indent_of(self._text, piece.start), not self._is_broken()
        return [(piece.start, piece.end, self._written(value, indent, wide=wide))]

    def _is_broken(self) -> bool:
        """Whether the text has several lines; one that holds nothing shall have."""
        return "\n" in self._text.strip() or not self._root.children

    # Putting in

    def _insert(self, piece: Node, key: str | None, value: Any) -> list[Splice]:
        name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
        if not piece.children:
            return self._insert_first(piece, name, value)
        text, last = self._text, piece.children[-1]
        end = last.node.end
        gap = text[end : piece.end - 1]
        has_comma = "," in _blank(gap)
        comma: list[Splice] = [] if has_comma else [(end, end, ",")]
        if "\n" not in text[piece.start : piece.end]:
            at = end + len(gap.rstrip())
            told = f" {name}{self._written(value, '', wide=True)}{',' * has_comma}"
            # Both at one place: they would change places.
            return [(end, end, f",{told}")] if comma and at == end else [*comma, (at, at, told)]
        indent = self._indent_of(piece, last)
        told = f"{self._break}{indent}{name}{self._written(value, indent, wide=False)}{',' * has_comma}"
        at = self._line_end(end + len(gap.rstrip()), piece.end - 1)
        return [(end, end, f",{told}")] if comma and at == end else [*comma, (at, at, told)]

    def _insert_first(self, piece: Node, name: str, value: Any) -> list[Splice]:
        text, inner = self._text, self._text[piece.start + 1 : piece.end - 1]
        if not self._is_broken():
            at = piece.start + 1 + len(inner.rstrip())
            return [(at, at, f"{name}{self._written(value, '', wide=True)}")]
        indent = indent_of(text, piece.start)
        deeper = indent + self._manner.step
        told = f"{self._break}{deeper}{name}{self._written(value, deeper, wide=False)}"
        if not inner.strip():
            return [(piece.start + 1, piece.end - 1, f"{told}{self._break}{indent}")]
        at = self._line_end(piece.start + 1 + len(inner.rstrip()), piece.end - 1)
        closing = "" if "\n" in text[at : piece.end - 1] else f"{self._break}{indent}"
        return [(at, at, told + closing)]

    def _line_end(self, at: int, most: int) -> int:
        """Where the line of `at` ends, if that is before `most`; what stands behind is blank."""
        found = _LINE_BREAK.search(self._text, at, most)
        return found.start() if found else at

    def _indent_of(self, piece: Node, child: Child) -> str:
        for each in reversed(piece.children):
            if begins_line(self._text, each.start):
                return indent_of(self._text, each.start)
        return indent_of(self._text, child.start) + self._manner.step

    # Taking out

    def without(self, piece: Node, index: int) -> list[Splice]:
        text, child = self._text, piece.children[index]
        start, end = child.start, child.node.end
        before = piece.children[index - 1].node.end if index else piece.start + 1
        after = (
            piece.children[index + 1].start if index + 1 < len(piece.children) else piece.end - 1
        )
        if (
            len(piece.children) == 1
            and not text[before:start].strip()
            and not text[end:after].strip(" \t\r\n,")
        ):
            return [(before, after, "")]
        gone: list[tuple[int, int]] = []
        comma = _blank(text[end:after]).find(",")
        if comma >= 0 and not text[end : end + comma].strip():
            end += comma + 1
        elif comma >= 0:
            gone.append((end + comma, end + comma + 1))
        elif index:  # the last one: the comma before it goes
            comma = before + _blank(text[before:start]).index(",")
            gone.append((comma, comma + 1))
        gone.append(self._stretch(start, end, first=index == 0))
        return [(start, end, "") for start, end in _merged(gone)]

    def _stretch(self, start: int, end: int, *, first: bool) -> tuple[int, int]:
        """What goes: whole lines where nothing else stands on them."""
        text = self._text
        blanks = _BLANKS.match(text, end)
        behind = blanks.end() if blanks else end
        if begins_line(text, start):
            if text[behind : behind + 1] not in ("\r", "\n"):
                return start, end
            opening = text.rfind("\n", 0, start)
            return opening - (text[opening - 1 : opening] == "\r"), behind
        if first:
            return start, behind
        return start - (len(text[:start]) - len(text[:start].rstrip(" \t"))), end


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same without overlaps."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _blank(gap: str) -> str:
    """Comments as blanks."""
    return _COMMENT.sub(lambda found: " " * len(found[0]), gap)
