"""A tool's input schema, compiled once for checking; whatever the server wrote there.

Promised: `Compiled.passes` is one call into a compiled validator for ordinary schemas. Nothing is
fetched: no network, no file. No schema hangs, overflows or fills memory, neither when it is
compiled nor when arguments are held against it: what is beyond plain bounds (`bounds`) passes, and
the server judges. So does what a broken schema is given: that is its server's mistake, not the
caller's.

Patterns that the linear regular expressions cannot do are left out. Formats are notes, not rules,
as JSON Schema says.

Not promised: words about what is wrong (`faults`), and a second look: a definition is taken as it
was first seen.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mcpx.model.call import Json, as_object, is_array, is_object
from mcpx.surfaces.checking.bounds import MOST_NODES, Bounds, bounds_of

if TYPE_CHECKING:
    from jsonschema_rs import Validator

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
    validator = None if draft <= 7 and bounds.words & _CONTENT else _validator(schema, draft)
    if validator is None and bounds.words & _LEFT_OUT and not bounds.words & _NEGATES:
        schema = cast(Json, _lenient(schema))
        validator = _validator(schema, draft)
    return OPEN if validator is None else Compiled(schema, _known(schema), validator, bounds)


def unjudged(schema: Json) -> str | None:
    """Why arguments cannot be held against all of a schema, if that is so."""
    import json

    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return "holds what JSON has not (a date, a number that is not finite)"
    compiled = compile_schema(schema, own=True)
    if compiled.validator is not None:
        return None if compiled.schema is schema else _wrong_with(schema)
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
    return None if not names or schema.keys() & _MORE_NAMES else frozenset(names)


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
