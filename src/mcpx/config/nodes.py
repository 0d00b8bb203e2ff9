"""Values of a parsed file with their positions in its text."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from mcpx.config.problems import Place
from mcpx.config.tree import KeyPath, plain

MAX_NODES = 50_000
"""Values in a file. Aliases count as often as they are used. 2,000 servers need about half."""
MAX_DEPTH = 50

_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(slots=True)
class Node:
    start: int
    end: int
    """Behind the last character. Comments and line breaks that follow are not included."""
    kind: Literal["scalar", "list", "map"]
    value: Any = None
    """Aliases and `<<` are resolved. Nodes share parts of it: use `values_of` for a copy."""
    text: str = ""
    """Of a scalar: as written, without quotes."""
    style: str = ""
    """Of a scalar: its quotes, or `|` and `>`."""
    is_flow: bool = False
    """Written in brackets, as everything in JSON."""
    children: "Sequence[Child]" = ()
    entries: "Mapping[str, Child]" = field(default_factory=dict[str, "Child"])
    """Of a map: the children by key, those of `<<` included."""
    anchor: str | None = None
    target: "Node | None" = None
    """Of an alias: the node with the anchor."""


@dataclass(slots=True)
class Child:
    """An item of a list, or a key and its value."""

    start: int
    """Position of the key or the item. `textedit` moves it to the dash of an item."""
    key: str | None
    key_end: int
    node: Node
    value_from: int
    """Behind the colon. `textedit` moves it behind the dash of an item."""
    is_merge: bool = False
    """The key is `<<`."""
    is_flow: bool = False


def list_node(start: int, end: int, items: Iterable[Node], *, is_flow: bool) -> Node:
    children = [
        Child(item.start, None, item.start, item, item.start, is_flow=is_flow) for item in items
    ]
    value = [child.node.value for child in children]
    return Node(start, end, "list", value, is_flow=is_flow, children=children)


def map_node(start: int, end: int, children: Sequence[Child], *, is_flow: bool) -> Node:
    """Keys of the map take precedence over keys of `<<`, and earlier maps of `<<` over later."""
    merged: dict[str, Child] = {}
    entries: dict[str, Child] = {}
    for child in children:
        if not child.is_merge:
            entries.setdefault(str(child.key), child)
            continue
        for table in merged_maps(child.node):
            for key, entry in table.entries.items():
                merged.setdefault(key, entry)
    entries = {**merged, **entries}
    value = {key: child.node.value for key, child in entries.items()}
    return Node(start, end, "map", value, is_flow=is_flow, children=children, entries=entries)


def merged_maps(node: Node) -> list[Node]:
    """The maps that `<<` with this value adds."""
    node = node.target or node
    if node.kind == "list":
        items = (child.node.target or child.node for child in node.children)
        return [item for item in items if item.kind == "map"]
    return [node] if node.kind == "map" else []


def values_of(node: Node | None) -> Any:
    return None if node is None else plain(node.value)


def span_of(root: Node, path: KeyPath, at: Literal["key", "value"]) -> tuple[int, int]:
    """Start and end of a field, or of the nearest parent that exists."""
    key: tuple[int, int] | None = None
    node = root
    for step in path:
        child = _child(node, step)
        if child is None:
            break
        node = child.node.target or child.node
        key = None
        if child.key is not None:
            key = child.start, child.key_end
    if key is not None and (at == "key" or node.kind != "scalar" or not node.text):
        return key
    if node.kind == "map" and node.entries:
        first = next(iter(node.entries.values()))
        return first.start, first.key_end
    if node.kind == "scalar":
        return node.start, node.end
    return node.start, node.start + 1


def spelling_of(root: Node | None, path: KeyPath) -> str | None:
    node = root
    for step in path:
        child = None if node is None else _child(node, step)
        if child is None:
            return None
        node = child.node
    return None if node is None or node.kind != "scalar" else node.text


def _child(node: Node, step: str | int) -> Child | None:
    node = node.target or node
    if isinstance(step, str):
        return node.entries.get(step)
    if node.kind == "list" and step < len(node.children):
        return node.children[step]
    return None


class Lines:
    """Lines of a text. Their numbers begin with 1."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in _LINE_BREAK.finditer(self._text))]

    @cached_property
    def _lines(self) -> list[str]:
        return _LINE_BREAK.split(self._text)

    def line(self, number: int) -> str:
        """Return an empty string behind the last line."""
        return self._lines[number - 1] if number <= len(self._lines) else ""

    def place(self, start: int, end: int) -> Place:
        """The length is 0 if the range does not end on the line on which it starts."""
        number = bisect_right(self._starts, start)
        line_end = len(self._text)
        if number < len(self._starts):
            line_end = self._starts[number]
        length = end - start if end <= line_end else 0
        return Place(number, start - self._starts[number - 1] + 1, length)
