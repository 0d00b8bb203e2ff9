"""A file's values with their places in its text, and the ways through them.

Promised: questions only; nothing is read or judged here.
"""

from dataclasses import dataclass
from typing import Any, Literal

from mcpx.config.problems import Place
from mcpx.config.tree import KeyPath

MAX_NODES = 50_000
"""Values in a file, aliases counted as often as they are used. Two thousand servers need about
half."""
MAX_DEPTH = 50


@dataclass(slots=True)
class Scalar:
    place: Place
    text: str
    """As written, without its quotes."""
    value: str | int | float | bool | None


@dataclass(slots=True)
class Sequence:
    place: Place
    items: "list[Node]"


@dataclass(slots=True)
class Table:
    place: Place
    entries: "Entries"


Node = Scalar | Sequence | Table
Entries = dict[str, tuple[Place, Node]]
"""By key: where the key stands, and its value."""


def values_of(node: Node | None) -> Any:
    if isinstance(node, Table):
        return {key: values_of(value) for key, (_, value) in node.entries.items()}
    if isinstance(node, Sequence):
        return [values_of(item) for item in node.items]
    return node.value if node else None


def place_of(node: Node, path: KeyPath, at: Literal["key", "value"]) -> Place:
    """Where a field stands, or the nearest thing above it that is there."""
    key: Place | None = None
    for step in path:
        found = _step(node, step)
        if found is None:
            break
        key, node = found
    if key and (at == "key" or not isinstance(node, Scalar) or not node.text):
        return key
    if isinstance(node, Table) and node.entries:
        return next(iter(node.entries.values()))[0]
    return node.place


def spelling_of(node: Node | None, path: KeyPath) -> str | None:
    for step in path:
        found = _step(node, step)
        if found is None:
            return None
        node = found[1]
    return node.text if isinstance(node, Scalar) else None


def _step(node: Node | None, step: str | int) -> tuple[Place | None, Node] | None:
    if isinstance(node, Table) and isinstance(step, str):
        return node.entries.get(step)
    if isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
        return None, node.items[step]
    return None
