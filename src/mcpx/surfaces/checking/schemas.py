"""Compiles a tool's input schema for checking, whatever the server wrote there.

Nothing is fetched: no network, no file. No schema hangs, overflows or fills memory. A schema of two
kilobytes can ask a validator for more steps than there are atoms: definitions that use the next one
twice, thirty times over; alternatives that come back to themselves a level further down. Python
cannot stop the validator once it runs. So a schema is written out before it is compiled, each
reference replaced by its target, as far down as the arguments go. Arguments beyond a plain bound
pass, and the server judges them. So do arguments for a broken schema.

Patterns that the linear regular expressions cannot do are left out. Formats are notes, not rules,
as JSON Schema says.
"""

import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import unquote

from mcpx.model.call import Json, as_object, is_array, is_object

if TYPE_CHECKING:
    from jsonschema_rs import Validator

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
            values = holder
            if is_object(holder):
                values = (*holder, *holder.values())
            for each in values:
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
        work = self._work(size)
        if size.odd and not self.words.isdisjoint(_COMPARES):
            work *= _EXACTLY
        return work <= PATIENCE * MOST_WORK

    def _work(self, size: Size) -> float:
        if size.depth not in self._rules:
            self._rules[size.depth] = self._written_out(size.depth)
        rules = self._rules[size.depth]
        if rules is None:
            return inf
        return rules * (size.nodes + size.text // 16 * bool(self.patterns))

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
    many, never, most_nodes = 1, _NEVER, MOST_NODES
    if own:
        many, never, most_nodes = 20, _UNFORESEEN, 4 * MOST_NODES
    size = measure(root, most_nodes)
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
    if len(patterns) > many * MOST_PATTERNS or sum(map(len, patterns)) > many * MOST_PATTERN_TEXT:
        return None
    if words & never:
        return None
    bounds = Bounds(root, size.nodes, frozenset(words), len(patterns))
    is_bounded = bounds.bear if own else bounds.allow
    if not is_bounded({}):  # Circles that never get further down.
        return None
    return bounds


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


Made = TypeVar("Made")

MOST_COMPILED = 4_096
"""Definitions whose validators are kept, …"""
MOST_KEPT = 200_000
"""… and the JSON values in them all; compiled, they take up to 600 bytes each."""
_PATTERN_BYTES = 1_048_576  # of one compiled pattern: `^.{1,255}$` takes over a quarter of it
# Left out where the schema cannot be compiled with them, or where older drafts enforce what servers
# do not.
_LEFT_OUT = frozenset(("pattern", "contentEncoding", "contentMediaType"))
_CONTENT = frozenset(("contentEncoding", "contentMediaType"))
# Under these, a schema that accepts more makes its parent accept less.
_NEGATES = frozenset(("not", "if", "oneOf", "contains", "patternProperties"))
# With one of these at the root, `properties` need not be all the names there are.
_MORE_NAMES = frozenset(
    (
        *("additionalProperties", "patternProperties", "dependentSchemas", "dependencies"),
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref"),
    )
)


@dataclass(frozen=True, slots=True)
class Compiled:
    schema: Json
    known: frozenset[str] | None = None
    """All the names there are; None when the schema allows others, or says itself that it does
    not."""
    validator: "Validator | None" = None
    bounds: Bounds | None = None
    """None accepts everything."""

    def passes(self, arguments: Json) -> bool:
        if self.bounds is None or self.validator is None or not self.bounds.allow(arguments):
            return True
        if self.known is not None and not arguments.keys() <= self.known:
            return False
        return _accepts(self.validator, arguments)

    def judges(self, arguments: Json) -> bool | None:
        """The same, of a schema whose author nobody doubts and for arguments that nobody else
        judges; None: it cannot be said."""
        if self.bounds is None or self.validator is None or not self.bounds.bear(arguments):
            return None
        if self.known is not None and not arguments.keys() <= self.known:
            return False
        judged = attempted(self.validator.is_valid, arguments)
        if judged is None:
            judged = attempted(self.validator.is_valid, _tame(arguments))
        return judged


OPEN = Compiled({})


class Schemas:
    """The compiled ones, each by the definition it was made of; the least used go first."""

    __slots__ = ("_kept", "_weight")

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[object, Compiled, int]] = OrderedDict()
        """By id, with the definition itself: while it is here, nothing else can have its id."""
        self._weight = 0

    def __len__(self) -> int:
        return len(self._kept)

    def compiled(self, schema: object, *, own: bool = False) -> Compiled:
        """`own`: no stranger wrote it."""
        key = -id(schema) if own else id(schema)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found[1]
        if not is_object(schema):
            return OPEN
        made = compile_schema(schema, own=own)
        weight = MOST_NODES if made.bounds is None else made.bounds.nodes
        self._kept[key] = (schema, made, weight)
        self._weight += weight
        while len(self._kept) > MOST_COMPILED or self._weight > MOST_KEPT:
            self._weight -= self._kept.popitem(last=False)[1][2]
        return made


def compile_schema(schema: Json, *, own: bool = False) -> Compiled:
    kinds = schema.get("type")
    if kinds is not None and kinds != "object" and not (is_array(kinds) and "object" in kinds):
        return OPEN  # arguments are always an object: this schema means something else
    draft, bounds = draft_of(schema), bounds_of(schema, own=own)
    if bounds is None:
        return OPEN
    validator = None
    if draft > 7 or not bounds.words & _CONTENT:
        validator = _validator(schema, draft)
    if validator is None and bounds.words & _LEFT_OUT and not bounds.words & _NEGATES:
        schema = cast(Json, _lenient(schema))
        validator = _validator(schema, draft)
    if validator is None:
        return OPEN
    return Compiled(schema, _known(schema), validator, bounds)


def unjudged(schema: Json) -> str | None:
    """Why arguments cannot be held against all of a schema, if that is so."""
    import json

    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return "holds what JSON has not (a date, a number that is not finite)"
    compiled = compile_schema(schema, own=True)
    if compiled.validator is not None:
        if compiled.schema is schema:
            return None
        return _wrong_with(schema)
    if bounds_of(schema, own=True) is None:
        return (
            "is too large, goes in circles, refers to what is not in it, or uses what is not "
            "checked here"
        )
    return _wrong_with(schema)


def _wrong_with(schema: Json) -> str:
    import jsonschema_rs as rs

    try:
        rs.Draft202012Validator(
            schema, offline=True, pattern_options=rs.RegexOptions(size_limit=_PATTERN_BYTES)
        )
    except Exception as error:  # noqa: BLE001 - no list of what it raises is known
        said = str(error).splitlines()
        return (
            f"is no JSON Schema that can be checked here: {said[0][:200]}"
            if said
            else "is no JSON Schema"
        )
    return "is no JSON Schema that can be checked here"


def draft_of(schema: Json) -> int:
    """The draft that a schema says it is written in. Who says nothing, or names a stranger's, means
    2020-12."""
    named = schema.get("$schema")
    if isinstance(named, str) and len(named) < 100:
        for draft, mark in ((4, "draft-04"), (6, "draft-06"), (7, "draft-07"), (2019, "2019-09")):
            if mark in named:
                return draft
    return 2020


def holds(rules: Json, draft: int, value: object) -> bool:
    """Whether a value keeps some small rules, such as `{"minimum": 1}`. Rules that mean nothing are
    kept."""
    validator = _validator(rules, draft)
    return validator is None or _accepts(validator, value)


def _accepts(validator: "Validator", value: object) -> bool:
    """Half an emoji, an infinity: nothing to judge, so not ours to refuse."""
    return attempted(validator.is_valid, value) is not False


def attempted(work: Callable[..., Made], *given: object, **options: object) -> Made | None:
    """What the validator makes of what strangers wrote; None where it fails, or panics."""
    try:
        return work(*given, **options)
    except Exception:  # noqa: BLE001 - no list of what it raises is known
        return None
    except BaseException as e:
        if type(e).__name__ == "PanicException":  # a class in no module that could be imported
            return None
        raise


def _tame(value: Any) -> Any:
    """The same without what the validator cannot take: half an emoji, an integer beyond 64 bits."""
    if is_object(value):
        return {_tame(key): _tame(each) for key, each in value.items()}
    if is_array(value):
        return [_tame(each) for each in value]
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 2**1000 else math.copysign(1e300, value)
    return value


def _validator(schema: Json, draft: int) -> "Validator | None":
    import jsonschema_rs as rs  # 30 ms, and only a compact surface that is called needs it

    kind = {
        4: rs.Draft4Validator,
        6: rs.Draft6Validator,
        7: rs.Draft7Validator,
        2019: rs.Draft201909Validator,
    }
    named = {key: value for key, value in schema.items() if key != "$schema"}
    options = rs.RegexOptions(size_limit=_PATTERN_BYTES)
    make: Callable[..., Validator] = kind.get(draft, rs.Draft202012Validator)
    return attempted(make, named, validate_formats=False, offline=True, pattern_options=options)


def _known(schema: Json) -> frozenset[str] | None:
    """No properties at all says that nobody wrote the names down, not that there are none."""
    names = as_object(schema.get("properties"))
    if not names or schema.keys() & _MORE_NAMES:
        return None
    return frozenset(names)


def lenient(schema: Json) -> Json:
    """The schema without its patterns: they may be written for another kind of regular
    expressions."""
    return cast(Json, _lenient(schema))


def _lenient(node: object) -> object:
    """A schema without its patterns and its rules about content, where these are texts and no
    names."""
    if is_array(node):
        return [_lenient(item) for item in node]
    if not is_object(node):
        return node
    return {
        # What stands in these is data, whatever it looks like.
        key: value if key in ("const", "enum", "default", "examples") else _lenient(value)
        for key, value in node.items()
        if not (key in _LEFT_OUT and isinstance(value, str))
    }
