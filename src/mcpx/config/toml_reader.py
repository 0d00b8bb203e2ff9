"""TOML text as nodes, for the files of Codex and its kin.

Promised: what `tomllib` reads, bounded; a key's place is that of its line, or of the table or value
it stands in. Not done here: the exact place of a value, which `tomllib` does not tell.
"""

import re
import tomllib
from typing import Any

from mcpx.config.nodes import MAX_DEPTH, MAX_NODES, Node, Scalar, Sequence, Table
from mcpx.config.problems import Findings, GaveUpError, Place
from mcpx.config.tree import KeyPath, as_list, as_map

_KEY = r"""(?:"[^"\n]*+"|'[^'\n]*+'|[\w-]++)"""
_KEYS = rf"{_KEY}(?:[ \t]*+\.[ \t]*+{_KEY})*+"
_TOO_DEEP = rf"(?<![\w.-])(?:{_KEY}[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}"
_LINE = rf"(?m)^[ \t]*+(?:\[[ \t]*+(?P<table>{_KEYS})[ \t]*+\]|(?P<key>{_KEYS})[ \t]*+=)"


def read_toml(text: str, findings: Findings) -> Node:
    if re.search(_TOO_DEEP, text):  # tomllib takes the square of their number
        findings.add(f"nested more than {MAX_DEPTH} levels deep")
        raise GaveUpError
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, where = str(error).partition(" (at ")
        numbers = re.findall(r"\d+", where)
        place = Place(int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None
        findings.add(f"not valid TOML: {message[0].lower()}{message[1:]}", place=place)
        raise GaveUpError from None
    except (RecursionError, ValueError) as error:
        reason = (
            f"nested more than {MAX_DEPTH} levels deep"
            if isinstance(error, RecursionError)
            else "not valid TOML"
        )
        findings.add(reason)
        raise GaveUpError from None
    return _Nodes(_places(text), findings).node(tree, (), Place(1, 1))


def _places(text: str) -> dict[KeyPath, Place]:
    """Where the lines stand that say a table or a key."""
    places: dict[KeyPath, Place] = {}
    table: KeyPath = ()
    line, counted = 1, 0
    for found in re.finditer(_LINE, text):
        keys = found["table"] or found["key"]
        path = tuple(key.strip("\"'") for key in re.findall(_KEY, keys))
        table, path = (path, path) if found["table"] else (table, table + path)
        start = found.start("table" if found["table"] else "key")
        line += text.count("\n", counted, start)
        counted = start
        place = Place(line, start - text.rfind("\n", 0, start), len(keys))
        for length in range(1, len(path) + 1):
            places.setdefault(path[:length], place)
    return places


class _Nodes:
    def __init__(self, places: dict[KeyPath, Place], findings: Findings) -> None:
        self._places = places
        self._findings = findings
        self._left = MAX_NODES

    def node(self, value: Any, path: KeyPath, above: Place) -> Node:
        self._left -= 1
        if self._left < 0 or len(path) > MAX_DEPTH:
            what = (
                f"holds more than {MAX_NODES:,} values"
                if self._left < 0
                else f"nested more than {MAX_DEPTH} levels deep"
            )
            self._findings.add(what)
            raise GaveUpError
        place = self._places.get(path, above)
        if (table := as_map(value)) is not None:
            entries = {key: self.node(item, (*path, key), place) for key, item in table.items()}
            return Table(place, {key: (node.place, node) for key, node in entries.items()})
        if (items := as_list(value)) is not None:
            return Sequence(
                place, [self.node(item, (*path, index), place) for index, item in enumerate(items)]
            )
        return Scalar(place, "", value if isinstance(value, bool | int | float) else str(value))
