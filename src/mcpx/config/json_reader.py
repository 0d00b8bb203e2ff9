"""Readers of JSON, with the comments and trailing commas of editors, and of TOML.

They bound the work for every text. They do not import YAML, which takes longer than reading a file.
"""

import re
from json import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn

from mcpx.config.nodes import MAX_DEPTH, MAX_NODES, Child, Lines, Node, list_node, map_node
from mcpx.config.problems import Findings, GaveUpError, Place
from mcpx.config.tree import KeyPath, as_list, as_map, shorten

_BETWEEN = re.compile(r"(?:[ \t\n\r]++|//[^\n]*+|/\*(?s:.*?)\*/)*+")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = JSONDecoder(parse_constant=_refuse_constant)


def read_json(text: str, findings: Findings, max_nodes: int = MAX_NODES) -> Node:
    """Raises GaveUpError."""
    return _JsonReader(text, findings, max_nodes).document()


class _JsonReader:
    def __init__(self, text: str, findings: Findings, max_nodes: int) -> None:
        self._text = text
        self._lines = Lines(text)
        self._findings = findings
        self._at = 0
        self._path: list[str | int] = []
        self._max_nodes = self._nodes_left = max_nodes

    def document(self) -> Node:
        root = self._node()
        if self._next():
            self._refuse("not valid JSON: extra data")
        return root

    def _next(self) -> str:
        """The next character that is not a blank or part of a comment. Empty at the end."""
        if found := _BETWEEN.match(self._text, self._at):
            self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _node(self) -> Node:
        self._nodes_left -= 1
        first = self._next()
        if self._nodes_left < 0:
            self._refuse(f"holds more than {self._max_nodes:,} values")
        if len(self._path) > MAX_DEPTH:
            self._refuse(f"nested more than {MAX_DEPTH} levels deep")
        if first == "{":
            return self._map()
        if first == "[":
            return self._list()
        return self._scalar()

    def _scalar(self) -> Node:
        start = self._at
        try:
            value, self._at = _DECODER.raw_decode(self._text, start)
        except JSONDecodeError as error:
            self._at = error.pos
            self._refuse(f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]}")
        except ValueError as error:  # A number of 5,000 digits, or NaN.
            self._refuse(f"not valid JSON: {shorten(str(error))}")
        if isinstance(value, str):
            return Node(start, self._at, "scalar", value, value, '"', is_flow=True)
        return Node(start, self._at, "scalar", value, self._text[start : self._at], is_flow=True)

    def _list(self) -> Node:
        start, items = self._at, list[Node]()
        self._at += 1
        while self._next() != "]":
            items.append(self._node_at(len(items)))
            self._skip_comma("]")
        self._at += 1
        return list_node(start, self._at, items, is_flow=True)

    def _map(self) -> Node:
        start, children, lines = self._at, list[Child](), dict[str, Node]()
        self._at += 1
        while (first := self._next()) != "}":
            if first != '"':
                self._refuse("not valid JSON: expecting property name enclosed in double quotes")
            name = self._scalar()
            if self._next() != ":":
                self._refuse("not valid JSON: expecting ':' delimiter")
            self._at += 1
            colon = self._at
            value = self._node_at(name.text)
            if name.text in lines:
                self._report_duplicate(name, lines[name.text])
            else:
                lines[name.text] = name
                child = Child(name.start, name.text, name.end, value, colon, is_flow=True)
                children.append(child)
            self._skip_comma("}")
        self._at += 1
        return map_node(start, self._at, children, is_flow=True)

    def _report_duplicate(self, name: Node, first: Node) -> None:
        hint = f"it stands on line {self._lines.place(first.start, first.end).line} already"
        what, path = f"duplicate key {shorten(name.text)!r}", (*self._path, name.text)
        place = self._lines.place(name.start, name.end)
        self._findings.add(what, path, hint=hint, place=place)

    def _node_at(self, step: str | int) -> Node:
        self._path.append(step)
        node = self._node()
        self._path.pop()
        return node

    def _skip_comma(self, closing: str) -> None:
        found = self._next()
        if found == ",":
            self._at += 1
        elif found != closing:
            self._refuse("not valid JSON: expecting ',' delimiter")

    def _refuse(self, message: str) -> NoReturn:
        self._findings.add(message, place=self._lines.place(self._at, self._at + 1))
        raise GaveUpError


_KEY = r"""(?:"[^"\n]*+"|'[^'\n]*+'|[\w-]++)"""
_KEYS = rf"{_KEY}(?:[ \t]*+\.[ \t]*+{_KEY})*+"
_TOO_DEEP = rf"(?<![\w.-])(?:{_KEY}[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}"
_LINE = rf"(?m)^[ \t]*+(?:\[[ \t]*+(?P<table>{_KEYS})[ \t]*+\]|(?P<key>{_KEYS})[ \t]*+=)"
_DEPTH_MESSAGE = f"nested more than {MAX_DEPTH} levels deep"

Span = tuple[int, int]


def read_toml(text: str, findings: Findings) -> Node:
    """The position of a value is that of its key, because `tomllib` reports no positions.

    Raises GaveUpError.
    """
    import tomllib

    if re.search(_TOO_DEEP, text):  # tomllib needs quadratic time for dotted keys.
        findings.add(_DEPTH_MESSAGE)
        raise GaveUpError
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, where = str(error).partition(" (at ")
        numbers = [int(number) for number in re.findall(r"\d+", where)]
        place = None
        if len(numbers) == 2:
            place = Place(*numbers)
        findings.add(f"not valid TOML: {message[0].lower()}{message[1:]}", place=place)
        raise GaveUpError from None
    except RecursionError:
        findings.add(_DEPTH_MESSAGE)
        raise GaveUpError from None
    except ValueError:
        findings.add("not valid TOML")
        raise GaveUpError from None
    return _TomlNodes(_key_spans(text), findings).node(tree, (), (0, 1))


def _key_spans(text: str) -> dict[KeyPath, Span]:
    """Positions of the lines with a table or a key."""
    spans: dict[KeyPath, Span] = {}
    table: KeyPath = ()
    for found in re.finditer(_LINE, text):
        keys = found["table"] or found["key"]
        path = tuple(key.strip("\"'") for key in re.findall(_KEY, keys))
        if found["table"]:
            table, span = path, found.span("table")
        else:
            path, span = table + path, found.span("key")
        for length in range(1, len(path) + 1):
            spans.setdefault(path[:length], span)
    return spans


class _TomlNodes:
    def __init__(self, spans: dict[KeyPath, Span], findings: Findings) -> None:
        self._spans = spans
        self._findings = findings
        self._nodes_left = MAX_NODES

    def node(self, value: Any, path: KeyPath, above: Span) -> Node:
        self._nodes_left -= 1
        if self._nodes_left < 0:
            self._refuse(f"holds more than {MAX_NODES:,} values")
        if len(path) > MAX_DEPTH:
            self._refuse(_DEPTH_MESSAGE)
        span = self._spans.get(path, above)
        if (table := as_map(value)) is not None:
            children = [self._child(key, item, path, span) for key, item in table.items()]
            return map_node(*span, children, is_flow=False)
        if (items := as_list(value)) is not None:
            nodes = [self.node(item, (*path, index), span) for index, item in enumerate(items)]
            return list_node(*span, nodes, is_flow=False)
        if not isinstance(value, bool | int | float):
            value = str(value)
        return Node(*span, "scalar", value)

    def _child(self, key: str, value: Any, path: KeyPath, above: Span) -> Child:
        node = self.node(value, (*path, key), above)
        return Child(node.start, key, node.end, node, node.end)

    def _refuse(self, message: str) -> NoReturn:
        self._findings.add(message)
        raise GaveUpError
