"""How much work a JSON Schema can make: counted before anything is compiled or run.

A schema of two kilobytes can ask a validator for more steps than there are atoms: definitions that use the next one
twice, thirty times over; alternatives that come back to themselves a level further down; circles that never get
further down at all. Python cannot stop the validator once it runs, so the number of steps is found beforehand.

Promised: `measure` and `survey` are linear, iterative and bounded. `Survey.work` is never less than the number of
times that a rule is held against a value, costly rules counted as many. It may be far more: the count knows the shape
of the schema and the size and depth of the value, not where they meet.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from mcpx.model.call import Json, as_object, is_array, is_object

MOST_NODES = 20_000
"""Values in a schema. The largest of 686 real ones has some hundreds."""
MOST_SCHEMAS = 5_000
DEEPEST = 100
"""Levels of a schema; the validator's own limit is 255."""
DEEPEST_ARGUMENTS = 32
"""Levels of arguments that a schema which uses itself is followed down."""
MOST_PATTERNS = 20
"""Regular expressions in a schema: one may take 10 ms to compile."""
MOST_TO_TELL_APART = 1_000
"""Values in arguments of which some must differ: lists and objects among them are compared each with each."""
MOST_UNEVALUATED = 2_000
"""Schemas beside `unevaluated…`, in all: references among them are compiled anew each time, at up to 50 µs."""
TOO_MUCH = 1_000_000_000
_MOST_TEXT = 4_194_304
_TEXT = 16
"""Characters that count as a value: patterns run over them."""
_PATTERN = 64
_FRACTION = 500
"""An exact `multipleOf: 0.1` takes that much longer than `minimum: 1`."""
_TELLING_APART = 10_000
_LARGE = 2**63
_MOST_EXACT = 1e24

# Applied to the value itself, …
_SAME = ("not", "if", "then", "else")
_SAME_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_MAPS = ("dependentSchemas", "dependencies")
# … and to what is inside it.
_INNER = ("additionalProperties", "unevaluatedProperties", "propertyNames", "items", "additionalItems", "contains")
_INNER_MORE = ("unevaluatedItems",)
_INNER_LISTS = ("prefixItems", "items")
_INNER_MAPS = ("properties", "patternProperties")
# Under these, a schema that accepts more makes its parent accept less.
_NEGATES = frozenset(
    ("not", "if", "oneOf", "contains", "unevaluatedProperties", "unevaluatedItems", "patternProperties")
)
_ELSEWHERE = ("$dynamicRef", "$recursiveRef")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COMPARES = frozenset((*_BOUNDS, "const", "enum", "uniqueItems"))


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int
    depth: int
    text: int
    odd: bool = False
    """Some number in it is so large or so small that comparing it exactly takes thousands of times as long."""


@dataclass(frozen=True, slots=True)
class Survey:
    efforts: tuple[int, ...]
    """By depth of a value (0: nothing inside it): how many rules are held against it, if each list has one item."""
    settled: bool
    """The last effort is that of every greater depth. Else deeper values are too much."""
    patterns: tuple[str, ...]
    negates: bool
    content: bool
    compares: bool
    """Numbers with numbers."""
    tells_apart: bool

    def work(self, size: Size) -> int:
        if (
            (size.depth >= len(self.efforts) and not self.settled)
            or (size.odd and self.compares)
            or (size.nodes > MOST_TO_TELL_APART and self.tells_apart)
        ):
            return TOO_MUCH
        values = size.nodes + (size.text // _TEXT if self.patterns else 0)
        return values * self.efforts[min(size.depth, len(self.efforts) - 1)]


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
            if is_object(holder):
                text += sum(map(len, holder))
                inside = holder.values()
            else:
                inside = holder
            for each in inside:
                if isinstance(each, str):
                    text += len(each)
                elif isinstance(each, (dict, list)):
                    below.append(each)
                elif isinstance(each, int):
                    odd = odd or not -_LARGE < each < _LARGE
                elif isinstance(each, float):
                    odd = odd or bool(each and not 1 / _MOST_EXACT < abs(each) < _MOST_EXACT)
        level = below
    return Size(nodes, depth, text, odd)


def survey(root: Json, size: Size) -> Survey | None:
    """What a schema of this size can cost; None when that cannot be told or is too much at once."""
    if size.depth > DEEPEST or size.text > _MOST_TEXT:
        return None
    graph = _Graph()
    if not graph.read(root):
        return None
    order = graph.order()
    if order is None or _unevaluated(graph, order) > MOST_UNEVALUATED:
        return None
    efforts: list[int] = []
    before = [0] * len(order)
    settled = False
    while len(efforts) < DEEPEST_ARGUMENTS and not settled:
        now = [0] * len(order)
        for node in order:
            steps = (
                graph.own[node]
                + sum(now[other] for other in graph.same[node])
                + sum(before[other] for other in graph.inner[node])
            )
            now[node] = min(steps * graph.factor[node], TOO_MUCH)
        settled = now == before
        if not settled:
            efforts.append(now[0])
            if now[0] >= TOO_MUCH:
                break
        before = now
    words = graph.words
    return Survey(
        tuple(efforts),
        settled,
        tuple(graph.patterns),
        negates=not words.isdisjoint(_NEGATES),
        content="contentEncoding" in words or "contentMediaType" in words,
        compares=not words.isdisjoint(_COMPARES),
        tells_apart="uniqueItems" in words,
    )


def _unevaluated(graph: "_Graph", order: list[int]) -> int:
    """How many schemas stand beside `unevaluated…`, as often as they are compiled there."""
    if max(graph.factor) == 1:
        return 0
    beside = [0] * len(order)
    for node in order:
        beside[node] = min((1 + sum(beside[other] for other in graph.same[node])) * graph.factor[node], TOO_MUCH)
    return sum(beside[node] for node in order if graph.factor[node] > 1)


class _Graph:
    """The schemas that the root can reach, by number, and which of them each one uses."""

    def __init__(self) -> None:
        self.same: list[list[int]] = []
        self.inner: list[list[int]] = []
        self.own: list[int] = []
        """What a schema asks of a value by itself."""
        self.factor: list[int] = []
        self.words: set[str] = set()
        self.patterns: dict[str, None] = {}
        self._numbers: dict[int, int] = {}
        self._schemas: list[Json] = []

    def read(self, root: Json) -> bool:
        """False when there is too much of something, or a reference that leads out of what can be followed."""
        self._number(root)
        refers = renames = False
        for schema in self._schemas:  # grows while it is read
            if len(self._schemas) > MOST_SCHEMAS:
                return False
            self.words.update(schema)
            renames = renames or (schema is not root and ("$id" in schema or "id" in schema))
            same = [self._number(each) for each in _used(schema, _SAME, _SAME_LISTS, _SAME_MAPS)]
            if "$ref" in schema:
                refers = True
                target = resolve(root, schema["$ref"])
                if target is None:
                    return False
                same.append(self._number(target))
            inner = [self._number(each) for each in _used(schema, _INNER + _INNER_MORE, _INNER_LISTS, _INNER_MAPS)]
            self.same.append([number for number in same if number >= 0])
            self.inner.append([number for number in inner if number >= 0])
            self.own.append(_own(schema))
            # Measured: each level of `unevaluated…` runs what is beside it two and a half times.
            self.factor.append(3 if "unevaluatedProperties" in schema or "unevaluatedItems" in schema else 1)
            for pattern in (schema.get("pattern"), *as_object(schema.get("patternProperties"))):
                if isinstance(pattern, str):
                    self.patterns[pattern] = None
        elsewhere = (refers and renames) or not self.words.isdisjoint(_ELSEWHERE)
        return not elsewhere and len(self.patterns) <= MOST_PATTERNS

    def _number(self, schema: object) -> int:
        if not is_object(schema):
            return -1
        number = self._numbers.setdefault(id(schema), len(self._schemas))
        if number == len(self._schemas):
            self._schemas.append(schema)
        return number

    def order(self) -> list[int] | None:
        """The numbers so that each comes after those it applies to the same value; None when they go in circles."""
        done: list[int] = []
        state = [0] * len(self.same)  # 1: on the trail, 2: done
        for start in range(len(self.same)):
            trail: list[tuple[int, Iterator[int]]] = []
            following = start
            while True:
                if state[following] == 1:
                    return None
                if state[following] == 0:
                    state[following] = 1
                    trail.append((following, iter(self.same[following])))
                while trail:
                    here, onward = trail[-1]
                    after = next(onward, None)
                    if after is not None:
                        following = after
                        break
                    state[here] = 2
                    done.append(here)
                    trail.pop()
                else:
                    break
        return done


def _own(schema: Json) -> int:
    """How many rules a schema has besides those that are schemas, each option and each name counted."""
    rules = 1
    for key in ("const", "enum", "required"):
        if key in schema:
            size = measure({key: schema[key]}, MOST_NODES)
            rules += size.nodes * (_FRACTION if size.odd else 1) if size else TOO_MUCH
    if isinstance(schema.get("pattern"), str):
        rules += _PATTERN
    rules += _PATTERN * len(as_object(schema.get("patternProperties")))
    if any(isinstance(schema.get(key), float) for key in _BOUNDS):
        rules += _FRACTION
    if schema.get("uniqueItems") is True:
        rules += _TELLING_APART
    return rules


def _used(schema: Json, single: tuple[str, ...], lists: tuple[str, ...], maps: tuple[str, ...]) -> Iterator[object]:
    for key in single:
        if key in schema:
            yield schema[key]
    for key in lists:
        if is_array(schema.get(key)):
            yield from schema[key]
    for key in maps:
        yield from as_object(schema.get(key)).values()


def resolve(root: Json, reference: object) -> object | None:
    """The schema that `#` or `#/…` points to; None for all else. Nothing is looked up outside the document."""
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
