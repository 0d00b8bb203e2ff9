"""YAML text as nodes that know their place in it.

Promised: bounded work whatever the text: no deep recursion, no expansion of aliases into millions
of values, no constructor of a foreign tag, no key that silently replaces another. Aliases and `<<`
work as people use them. Not done here: what the values mean.
"""

import re
from typing import Any, NoReturn

import yaml

from mcpx.config.nodes import MAX_DEPTH, MAX_NODES, Entries, Node, Scalar, Sequence, Table
from mcpx.config.problems import Findings, GaveUpError, Place
from mcpx.config.tree import shorten

# PyYAML's own composer recurses in C without a bound and crashes the process on 100,000 brackets;
# the events below it come one at a time.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Event = Any
"""PyYAML's events; its stubs leave their fields untyped."""

# What YAML calls not printable; PyYAML's two readers disagree on where they say so.
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value"}
_SYNTAX_HINTS = {
    "cannot start any token": "indent with spaces, not tabs; quote text that begins with @ ` or %",
    "mapping values are not allowed": "is a quote or a line break missing before this ':'?",
    "expected <block end>": "is this line indented like its neighbours?",
    "did not find expected key": "is this line indented like its neighbours?",
    "could not find expected ':'": "is a ':' missing, or is a quote open?",
    "unexpected end of stream": "is a quote or a bracket left open?",
    "expected a single document": "one file holds one configuration: take out the '---'",
}


def compose(
    text: str, findings: Findings, most: int = MAX_NODES, deepest: int = MAX_DEPTH
) -> Node | None:
    """The nodes of a text, None when it holds nothing; raises when it cannot be followed to its
    end."""
    if odd := UNPRINTABLE.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        place = Place(line, odd.start() - text.rfind("\n", 0, odd.start()))
        findings.add(f"the character U+{ord(odd[0]):04X} is not allowed", place=place)
        raise GaveUpError
    try:
        return Composer(text, findings, most, deepest).document()
    except yaml.MarkedYAMLError as error:
        problem = error.problem or "it cannot be read"
        marks = [error.problem_mark, error.context_mark]
        if "end of stream" in problem:
            marks.reverse()  # what was left open says more than the end of the file
        mark = marks[0] or marks[1]
        place = Place(mark.line + 1, mark.column + 1) if mark else None
        hint = next((hint for words, hint in _SYNTAX_HINTS.items() if words in problem), "")
        findings.add(f"not valid YAML: {problem}", hint=hint, place=place)
        raise GaveUpError from None


class Composer:
    def __init__(self, text: str, findings: Findings, most: int, deepest: int) -> None:
        self._loader = _Loader(text)
        self._most, self._deepest = most, deepest
        self._findings = findings
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._path: list[str | int] = []
        self._count = 0

    def document(self) -> Node | None:
        loader = self._loader
        loader.get_event()  # the stream starts
        if loader.check_event(yaml.StreamEndEvent):
            return None
        loader.get_event()  # the document starts
        root = self._node(0)
        loader.get_event()  # the document ends
        if not loader.check_event(yaml.StreamEndEvent):
            self._refuse("not valid YAML: expected a single document", loader.get_event())
        return root

    def _node(self, depth: int) -> Node:
        event: _Event = self._loader.get_event()
        kind: object = event.__class__
        before = self._count
        self._spend(1, event)
        if depth > self._deepest:
            self._refuse(f"nested more than {self._deepest} levels deep", event)
        if kind is yaml.AliasEvent:
            return self._alias(event)
        if kind is yaml.ScalarEvent:
            node: Node = self._scalar(event)
        elif kind is yaml.SequenceStartEvent:
            node = self._sequence(event, depth)
        else:
            node = self._table(event, depth)
        if event.anchor:
            # Known only now that it is complete, so that no node can hold itself.
            self._anchors[event.anchor] = node, self._count - before
        return node

    def _node_at(self, step: str | int, depth: int) -> Node:
        self._path.append(step)
        node = self._node(depth)
        self._path.pop()
        return node

    def _alias(self, event: _Event) -> Node:
        if event.anchor not in self._anchors:
            self._refuse(f"nothing is anchored as '&{shorten(event.anchor)}' before this", event)
        node, size = self._anchors[event.anchor]
        self._spend(size, event)
        return node

    def _scalar(self, event: _Event) -> Scalar:
        place, text, tag = _place(event), str(event.value), event.tag
        if tag in (None, "!"):
            tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit)
        if tag in _TEXT_TAGS or tag == f"{_TAG}merge":
            return Scalar(place, text, text)
        node = yaml.ScalarNode(tag, text)
        try:
            match tag.removeprefix(_TAG):
                case "int":
                    return Scalar(place, text, self._loader.construct_yaml_int(node))
                case "float":
                    return Scalar(place, text, self._loader.construct_yaml_float(node))
                case "bool":
                    return Scalar(place, text, self._loader.construct_yaml_bool(node))
                case "null":
                    return Scalar(place, text, None)
                case _:
                    self._foreign_tag(event)
        except (ValueError, KeyError, IndexError, OverflowError):
            self._add(f"not a readable {tag.removeprefix(_TAG)}", place)
        return Scalar(place, text, text)

    def _sequence(self, event: _Event, depth: int) -> Sequence:
        if event.tag not in (None, "!", f"{_TAG}seq"):
            self._foreign_tag(event)
        items: list[Node] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            items.append(self._node_at(len(items), depth + 1))
        self._loader.get_event()
        return Sequence(_place(event), items)

    def _table(self, event: _Event, depth: int) -> Table:
        if event.tag not in (None, "!", f"{_TAG}map"):
            self._foreign_tag(event)
        entries: Entries = {}
        merged: Entries = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            plain_key = getattr(self._loader.peek_event(), "style", "") in (None, "")
            key = self._node(depth + 1)
            self._count -= isinstance(key, Scalar)  # a key is no value of its own, as in JSON
            value = self._node_at(key.text if isinstance(key, Scalar) else "?", depth + 1)
            if not isinstance(key, Scalar):
                self._add("a key must be text, not a list or a mapping", key.place)
            elif key.text == "<<" and plain_key:
                self._merge(merged, value, event)
            elif key.text in entries:
                hint = f"it stands on line {entries[key.text][0].line} already"
                self._add(f"duplicate key {shorten(key.text)!r}", key.place, key.text, hint=hint)
            else:
                entries[key.text] = (key.place, value)
        self._loader.get_event()
        return Table(_place(event), {**merged, **entries})

    def _merge(self, into: Entries, value: Node, event: _Event) -> None:
        for table in value.items if isinstance(value, Sequence) else [value]:
            if isinstance(table, Table):
                self._spend(len(table.entries), event)
                for key, entry in table.entries.items():
                    into.setdefault(key, entry)
            else:
                self._add("'<<' takes a mapping or a list of mappings", table.place)

    def _spend(self, nodes: int, event: _Event) -> None:
        self._count += nodes
        if self._count > self._most:
            self._refuse(f"holds more than {self._most:,} values, aliases counted each time", event)

    def _foreign_tag(self, event: _Event) -> NoReturn:
        tag = shorten(str(event.tag).replace(_TAG, "!!"))
        self._refuse(f"the tag '{tag}' is not allowed", event)

    def _refuse(self, message: str, event: _Event) -> NoReturn:
        self._add(message, _place(event))
        raise GaveUpError

    def _add(self, message: str, place: Place, *below: str, hint: str = "") -> None:
        self._findings.add(message, (*self._path, *below), hint=hint, place=place)


def _place(event: _Event) -> Place:
    start, end = event.start_mark, event.end_mark
    same_line = start.line == end.line
    return Place(
        start.line + 1, start.column + 1, max(0, end.column - start.column) if same_line else 0
    )
