"""Whether a schema, and arguments for it, are small enough to be judged here: seen before anything
is compiled or run.

A schema of two kilobytes can ask a validator for more steps than there are atoms: definitions that
use the next one twice, thirty times over; alternatives that come back to themselves a level further
down; circles that never get further down at all. Python cannot stop the validator once it runs. So
a schema is written out, each reference replaced by what it refers to, as far down as the arguments
go: what does not fit into a plain bound is not judged.

Promised: everything here is bounded itself. What costs more than its size says, such as
`unevaluatedProperties`, is never judged.
"""

import re
from dataclasses import dataclass, field
from math import inf
from typing import Any
from urllib.parse import unquote

from mcpx.model.call import Json, as_object, is_array, is_object

MOST_NODES = 8_000
"""Values in a schema as it stands, at 2 µs each when it is compiled. The largest of 686 real ones
has some hundreds."""
MOST_RULES = 10_000
"""Rules of a schema that is written out, at 1 µs each."""
DEEPEST = 100
"""Levels of a schema; the validator's own limit is 255."""
MOST_PATTERNS = 10
"""Regular expressions in a schema: one may take 2 ms to compile, …"""
MOST_PATTERN_TEXT = 2_000
"""… and more if it is long; characters of all of them."""
MOST_ARGUMENTS = 10_000
DEEPEST_ARGUMENTS = 32
MOST_TEXT = 65_536
"""Characters in arguments that patterns are run over: 10 ms for the worst pattern on the test
bench."""
MOST_TO_TELL_APART = 1_000
"""Values in arguments of which some must differ: lists and objects among them are compared each
with each."""
MOST_WORK = 1_000_000
"""Rules times the values they are held against, at 10 to 20 ns each."""
MOST_COPIED = 100 << 20
"""Bytes of arguments times the rules of their schema, each of which may copy them."""
PATIENCE = 100
"""What is worth so many times as much: arguments that nobody else will judge, for a schema that no
stranger wrote."""
DEEPEST_AT_ALL = 200
"""Levels of those; the validator's own limit is 255."""
_EXACTLY = 1_000
"""A comparison of odd numbers counts as so many."""
_PATTERN = 64
"""A pattern counts as so many rules, …"""
_FRACTION = 500
"""… and so does an exact `multipleOf: 0.1`."""

# Applied to the value itself, and to what is inside it; alone, in a list, in a mapping by name.
_SAME_ALONE = frozenset(("not", "if", "then", "else"))
_SAME_LISTS = frozenset(("allOf", "anyOf", "oneOf"))
_SAME_MAPS = frozenset(("dependentSchemas", "dependencies"))
_INNER_ALONE = frozenset(
    ("additionalProperties", "propertyNames", "items", "additionalItems", "contains")
)
_INNER_LISTS = frozenset(("prefixItems", "items"))
_INNER_MAPS = frozenset(("properties", "patternProperties"))
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LISTED = frozenset(("const", "enum", "required"))
_COMPARES = frozenset((*_BOUNDS, "const", "enum", "uniqueItems"))
_UNFORESEEN = frozenset(("$dynamicRef", "$recursiveRef"))
_NEVER = _UNFORESEEN | {"unevaluatedProperties", "unevaluatedItems"}


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int
    depth: int
    text: int
    odd: bool
    """Some number in it is so large or so small that comparing it exactly takes thousands of times
    as long."""


def measure(value: Json, most: int) -> Size | None:
    """The size of a JSON value; None when it has more than `most` values in it."""
    nodes, depth, text, odd = 1, 0, 0, False
    level: list[Any] = [value]
    while level:
        depth += 1
        below: list[Any] = []
        for holder in level:
            nodes += len(holder)
            if nodes > most:
                return None
            for each in (*holder, *holder.values()) if is_object(holder) else holder:
                if isinstance(each, str):
                    text += len(each)
                elif isinstance(each, (dict, list)):
                    below.append(each)
                elif isinstance(each, int | float):
                    odd = odd or bool(each and not 1e-24 < abs(each) < 2**63)
        level = below
    return Size(nodes, depth, text, odd)


class _TooMuch(Exception):
    pass


@dataclass(slots=True)
class Bounds:
    """What is known of a schema that may be compiled."""

    root: Json
    nodes: int
    words: frozenset[str]
    patterns: int
    _rules: dict[int, int | None] = field(default_factory=dict[int, int | None])

    def allow(self, arguments: Json) -> bool:
        """Whether judging these arguments is bounded."""
        size = measure(arguments, MOST_ARGUMENTS)
        if (
            size is None
            or size.depth > DEEPEST_ARGUMENTS
            or (size.odd and not self.words.isdisjoint(_COMPARES))
        ):
            return False
        if self.patterns and size.text > MOST_TEXT:
            return False
        if "uniqueItems" in self.words and size.nodes > MOST_TO_TELL_APART:
            return False
        return self._work(size) <= MOST_WORK

    def explains(self, arguments: Json, most_bytes: int) -> bool:
        """Whether the validator may copy these arguments for each rule that they break."""
        size = measure(arguments, MOST_ARGUMENTS)
        if size is None:
            return False
        data = size.text + 8 * size.nodes
        return data <= most_bytes and self._work(size) * data <= MOST_COPIED * size.nodes

    def bear(self, arguments: Json) -> bool:
        """The same with patience: who asks refuses what is not judged."""
        size = measure(arguments, PATIENCE * MOST_ARGUMENTS)
        if size is None or size.depth > DEEPEST_AT_ALL:
            return False
        if "uniqueItems" in self.words and size.nodes > 4 * MOST_TO_TELL_APART:
            return False
        exactly = size.odd and not self.words.isdisjoint(_COMPARES)
        return self._work(size) * (_EXACTLY if exactly else 1) <= PATIENCE * MOST_WORK

    def _work(self, size: Size) -> float:
        if size.depth not in self._rules:
            self._rules[size.depth] = self._written_out(size.depth)
        rules = self._rules[size.depth]
        return (
            inf if rules is None else rules * (size.nodes + size.text // 16 * bool(self.patterns))
        )

    def _written_out(self, levels: int) -> int | None:
        """How many rules there are for a value of so many levels; None: too many."""
        count = 0

        def write(schema: object, levels: int) -> None:
            nonlocal count
            if not is_object(schema):
                return
            count += _own(schema)
            if count > MOST_RULES:
                raise _TooMuch
            if "$ref" in schema:
                write(resolve(self.root, schema["$ref"]), levels)
            same, inner = _used(schema)
            for each in same:
                write(each, levels)
            if levels:
                for each in inner:
                    write(each, levels - 1)

        try:
            write(self.root, levels)
        except (_TooMuch, RecursionError):  # circles among them
            return None
        return count


def bounds_of(root: Json, *, own: bool = False) -> Bounds | None:
    """None when the schema is too large, or may do what cannot be foreseen. `own`: no stranger
    wrote it."""
    size = measure(root, MOST_NODES * (4 if own else 1))
    if size is None or size.odd or size.depth > DEEPEST:
        return None
    seen: dict[int, Json] = {id(root): root}
    waiting, words, patterns = [root], set[str](), set[str]()
    while waiting:
        schema = waiting.pop()
        words.update(schema)
        if "pattern" in schema or "patternProperties" in schema:
            written = (schema.get("pattern"), *as_object(schema.get("patternProperties")))
            patterns.update(pattern for pattern in written if isinstance(pattern, str))
        target = resolve(root, schema["$ref"]) if "$ref" in schema else True
        if target is None or (
            schema is not root and ("$id" in schema or isinstance(schema.get("id"), str))
        ):
            return None  # what it refers to, or what others mean by it, cannot be told
        same, inner = _used(schema)
        for each in (target, *same, *inner):
            if is_object(each) and id(each) not in seen:
                seen[id(each)] = each
                waiting.append(each)
    many = 20 if own else 1
    if len(patterns) > many * MOST_PATTERNS or sum(map(len, patterns)) > many * MOST_PATTERN_TEXT:
        return None
    if words & (_UNFORESEEN if own else _NEVER):
        return None
    bounds = Bounds(root, size.nodes, frozenset(words), len(patterns))
    return (
        bounds if (bounds.bear({}) if own else bounds.allow({})) else None
    )  # circles that never get further down


def _own(schema: Json) -> int:
    """How many rules a schema has besides those that are schemas, each option and each name
    counted."""
    count = 1
    for key, value in schema.items():
        if key in _LISTED:
            listed = measure({key: value}, MOST_NODES)
            count += listed.nodes - 1 if listed else MOST_RULES
        elif key == "pattern":
            count += _PATTERN
        elif key == "patternProperties":
            count += _PATTERN * len(as_object(value))
        elif isinstance(value, float) and key in _BOUNDS:
            count += _FRACTION
    return count


def _used(schema: Json) -> tuple[list[object], list[object]]:
    """The schemas inside this one: those for the value itself, and those for what is inside it."""
    same: list[object] = []
    inner: list[object] = []
    for key, value in schema.items():
        if is_object(value):
            if key in _INNER_MAPS:
                inner += value.values()
            elif key in _INNER_ALONE:
                inner.append(value)
            elif key in _SAME_ALONE:
                same.append(value)
            elif key in _SAME_MAPS:
                same += value.values()
        elif is_array(value):
            if key in _SAME_LISTS:
                same += value
            elif key in _INNER_LISTS:
                inner += value
    return same, inner


def resolve(root: Json, reference: object) -> object | None:
    """The schema that `#` or `#/…` points to; None for all else. Nothing is looked up outside the
    document."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/") or len(reference) > 1_000:
        return None
    here: object = root
    for step in unquote(reference[2:]).split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if is_object(here):
            here = here.get(key)
        elif is_array(here) and re.fullmatch("[0-9]{1,6}", key) and int(key) < len(here):
            here = here[int(key)]
        else:
            return None
    return here
