"""Reader of YAML files. It bounds the work for every text.

It does not recurse without limit, does not expand aliases into millions of values, runs no
constructor of a tag, and does not let one key replace another silently.
"""

import re
from typing import Any, NoReturn

import yaml

from mcpx.config.nodes import (
    MAX_DEPTH,
    MAX_NODES,
    Child,
    Lines,
    Node,
    list_node,
    map_node,
    merged_maps,
)
from mcpx.config.problems import Findings, GaveUpError, Place
from mcpx.config.tree import shorten

# PyYAML's composer recurses in C without limit, and 100,000 brackets crash the process. Its events
# arrive one at a time.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Event = Any

# YAML calls these characters not printable. PyYAML's two readers report them at different places.
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value", f"{_TAG}merge"}
_SYNTAX_HINTS = {
    "cannot start any token": "indent with spaces, not tabs; quote text that begins with @ ` or %",
    "mapping values are not allowed": "is a quote or a line break missing before this ':'?",
    "expected <block end>": "is this line indented like its neighbours?",
    "did not find expected key": "is this line indented like its neighbours?",
    "could not find expected ':'": "is a ':' missing, or is a quote open?",
    "unexpected end of stream": "is a quote or a bracket left open?",
    "expected a single document": "one file holds one configuration: take out the '---'",
}


def read_yaml(
    text: str, findings: Findings, max_nodes: int = MAX_NODES, max_depth: int = MAX_DEPTH
) -> Node | None:
    """Return None if the text has no value. Raises GaveUpError."""
    if odd := UNPRINTABLE.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        place = Place(line, odd.start() - text.rfind("\n", 0, odd.start()))
        findings.add(f"the character U+{ord(odd[0]):04X} is not allowed", place=place)
        raise GaveUpError
    try:
        return _Reader(text, findings, max_nodes, max_depth).document()
    except yaml.MarkedYAMLError as error:
        _report(error, findings)
        raise GaveUpError from None


def _report(error: yaml.MarkedYAMLError, findings: Findings) -> None:
    problem = error.problem or "it cannot be read"
    marks = [error.problem_mark, error.context_mark]
    if "end of stream" in problem:
        marks.reverse()  # The open quote or bracket says more than the end of the file.
    place = None
    if mark := marks[0] or marks[1]:
        place = Place(mark.line + 1, mark.column + 1)
    hint = next((hint for words, hint in _SYNTAX_HINTS.items() if words in problem), "")
    findings.add(f"not valid YAML: {problem}", hint=hint, place=place)


class _Reader:
    def __init__(self, text: str, findings: Findings, max_nodes: int, max_depth: int) -> None:
        self._loader = _Loader(text)
        self._text = text
        self._lines = Lines(text)
        self._max_nodes, self._max_depth = max_nodes, max_depth
        self._findings = findings
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._path: list[str | int] = []
        self._count = 0

    def document(self) -> Node | None:
        loader = self._loader
        loader.get_event()  # Start of the stream.
        if loader.check_event(yaml.StreamEndEvent):
            return None
        loader.get_event()  # Start of the document.
        root = self._node(0)
        loader.get_event()  # End of the document.
        if not loader.check_event(yaml.StreamEndEvent):
            self._refuse("not valid YAML: expected a single document", loader.get_event())
        return root

    def _node(self, depth: int) -> Node:
        event: _Event = self._loader.get_event()
        kind: object = event.__class__
        before = self._count
        self._spend(1, event)
        if depth > self._max_depth:
            self._refuse(f"nested more than {self._max_depth} levels deep", event)
        if kind is yaml.AliasEvent:
            return self._alias(event)
        if kind is yaml.ScalarEvent:
            node = self._scalar(event)
        elif kind is yaml.SequenceStartEvent:
            node = self._list(event, depth)
        else:
            node = self._map(event, depth)
        if event.anchor:
            # Registered when the node is complete, so that no node contains itself.
            node.anchor = event.anchor
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
        start, end = _span(event)
        return Node(start, end, node.kind, node.value, node.text, target=node)

    def _scalar(self, event: _Event) -> Node:
        start, end = _span(event)
        text, style = str(event.value), event.style or ""
        if style in ("|", ">"):
            end = start + len(self._text[start:end].rstrip())
        tag = event.tag
        if tag in (None, "!"):
            tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit)
        value = text
        if tag not in _TEXT_TAGS:
            value = self._constructed(tag.removeprefix(_TAG), yaml.ScalarNode(tag, text), event)
        return Node(start, end, "scalar", value, text, style)

    def _constructed(self, kind: str, node: yaml.ScalarNode, event: _Event) -> Any:
        if kind == "null":
            return None
        if kind not in ("int", "float", "bool"):
            self._refuse_tag(event)
        try:
            return getattr(self._loader, f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            self._add(f"not a readable {kind}", _span(event))
            return node.value

    def _list(self, event: _Event, depth: int) -> Node:
        if event.tag not in (None, "!", f"{_TAG}seq"):
            self._refuse_tag(event)
        items: list[Node] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            items.append(self._node_at(len(items), depth + 1))
        end = self._loader.get_event().end_mark.index
        start, is_flow = event.start_mark.index, bool(event.flow_style)
        if not is_flow:
            end = max((item.end for item in items), default=start)
        return list_node(start, end, items, is_flow=is_flow)

    def _map(self, event: _Event, depth: int) -> Node:
        if event.tag not in (None, "!", f"{_TAG}map"):
            self._refuse_tag(event)
        is_flow = bool(event.flow_style)
        children: list[Child] = []
        key_starts: dict[str, int] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            is_plain = getattr(self._loader.peek_event(), "style", "") in (None, "")
            key = self._node(depth + 1)
            self._count -= key.kind == "scalar"  # A key is not a value, as in JSON.
            step = key.text if key.kind == "scalar" else "?"
            value = self._node_at(step, depth + 1)
            if key.kind != "scalar":
                self._add("a key must be text, not a list or a mapping", (key.start, key.end))
                continue
            is_merge = step == "<<" and is_plain
            if is_merge:
                self._check_merge(value, event)
            elif step in key_starts:
                line = self._lines.place(key_starts[step], key_starts[step]).line
                hint = f"it stands on line {line} already"
                span = key.start, key.end
                self._add(f"duplicate key {shorten(step)!r}", span, step, hint=hint)
                continue
            else:
                key_starts[step] = key.start
            colon = self._text.find(":", key.end, value.start) + 1
            value_from = colon or key.end  # A key without a value in brackets has no colon.
            children.append(Child(key.start, step, key.end, value, value_from, is_merge, is_flow))
        start, end = event.start_mark.index, self._loader.get_event().end_mark.index
        if not is_flow:
            end = max((max(each.value_from, each.node.end) for each in children), default=start)
        return map_node(start, end, children, is_flow=is_flow)

    def _check_merge(self, value: Node, event: _Event) -> None:
        tables = merged_maps(value)
        for table in tables:
            self._spend(len(table.entries), event)
        written = value.target or value
        expected = len(written.children) if written.kind == "list" else 1
        if len(tables) < expected:
            self._add("'<<' takes a mapping or a list of mappings", (value.start, value.end))

    def _spend(self, nodes: int, event: _Event) -> None:
        self._count += nodes
        if self._count > self._max_nodes:
            what = f"holds more than {self._max_nodes:,} values, aliases counted each time"
            self._refuse(what, event)

    def _refuse_tag(self, event: _Event) -> NoReturn:
        tag = shorten(str(event.tag).replace(_TAG, "!!"))
        self._refuse(f"the tag '{tag}' is not allowed", event)

    def _refuse(self, message: str, event: _Event) -> NoReturn:
        self._add(message, _span(event))
        raise GaveUpError

    def _add(self, message: str, span: tuple[int, int], *below: str, hint: str = "") -> None:
        place = self._lines.place(*span)
        self._findings.add(message, (*self._path, *below), hint=hint, place=place)


def _span(event: _Event) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index
