"""A tool's input schema, compiled once for checking; whatever the server wrote there.

Promised: `Compiled.passes` is one call into a compiled validator for ordinary schemas. Nothing is fetched: no network,
no file. No schema hangs, overflows or fills memory, neither when it is compiled nor when arguments are held against
it: what both could cost is counted first. Where the whole schema is too much, an `outline` of it is checked: which
arguments there must be, and the types of those at the top. A broken schema accepts everything: that is its server's
mistake, not the caller's.

An outline, and a schema without the patterns that the linear regular expressions cannot do, accept more than the
schema itself and never less. Formats are notes, not rules, as JSON Schema has it.

Not promised: words about what is wrong (`faults`), and a second look: a definition is taken as it was first seen.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mcpx.model.call import Json, as_object, is_array, is_object
from mcpx.surfaces.checking.effort import MOST_NODES, Size, Survey, measure, survey

if TYPE_CHECKING:
    from jsonschema_rs import Validator

Made = TypeVar("Made")
TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")

MOST_COMPILED = 4_096
"""Definitions whose validators are kept, …"""
MOST_KEPT = 200_000
"""… and the JSON values in them all; compiled, they take up to 600 bytes each."""
MOST_WORK = 10_000_000
"""Rules held against values in one check, at 10 to 20 ns each."""
_MOST_ARGUMENTS = 200_000
_MOST_TEXT = 65_536
"""Characters in arguments that patterns are run over: 10 ms for the worst pattern on the test bench."""
_MOST_NAMES = 5_000
_PATTERN_BYTES = 1_048_576  # of one compiled pattern: `^.{1,255}$` takes over a quarter of it
_NOT_RULES = ("contentEncoding", "contentMediaType")  # the validator enforces them in older drafts; servers do not
# With one of these at the root, `properties` need not be all the names there are.
_MORE_NAMES = frozenset(
    (
        *("additionalProperties", "patternProperties", "unevaluatedProperties", "dependentSchemas", "dependencies"),
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef", "$recursiveRef"),
    )
)


@dataclass(frozen=True, slots=True)
class Compiled:
    schema: Json
    """What is checked: the server's schema, or an outline of it."""
    draft: int = 2020
    known: frozenset[str] | None = None
    """All the names there are; None when the schema allows others, or says itself that it does not."""
    is_valid: Callable[[Any], bool] | None = None
    """None accepts everything."""
    cost: Survey | None = None
    """Of the whole schema; None: it is an outline, which looks at no more than the top."""

    def fit(self, arguments: Json) -> "Compiled":
        """This one, or the outline where these arguments would take too long."""
        if self.cost is None:
            return self
        size = measure(arguments, _MOST_ARGUMENTS)
        if size is None or self.cost.work(size) > MOST_WORK or (self.cost.patterns and size.text > _MOST_TEXT):
            return _outline(self.schema, self.draft, self.known)
        return self

    def passes(self, arguments: Json) -> bool:
        if self.known is not None and not arguments.keys() <= self.known:
            return False
        if self.is_valid is None:
            return True
        return _accepts(self.is_valid, arguments if self.cost else _top(arguments))


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

    def compiled(self, schema: object) -> Compiled:
        key = id(schema)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found[1]
        if not is_object(schema):
            return OPEN
        size = measure(schema, MOST_NODES)
        made = compile_schema(schema, size)
        weight = 1 + size.nodes + size.text // 500 if size else MOST_KEPT // 4
        self._kept[key] = (schema, made, weight)
        self._weight += weight
        while len(self._kept) > MOST_COMPILED or (self._weight > MOST_KEPT and len(self._kept) > 1):
            self._weight -= self._kept.popitem(last=False)[1][2]
        return made


def compile_schema(schema: Json, size: Size | None) -> Compiled:
    kinds = schema.get("type")
    if kinds is not None and kinds != "object" and not (is_array(kinds) and "object" in kinds):
        return OPEN  # arguments are always an object: this schema means something else
    draft, known = draft_of(schema), _known(schema)
    found = None if size is None else survey(schema, size)
    if found is None:
        return _outline(schema, draft, known)
    patterns = [pattern for pattern in found.patterns if not _is_linear(pattern)]
    if patterns or found.content:
        if found.negates:  # inner schemas that say less accept more, and these then make the outer ones accept less
            return _outline(schema, draft, known)
        schema = cast(Json, _without(schema, frozenset(patterns)))
    validator = _validator(schema, draft)
    if validator is None:
        return OPEN
    return Compiled(schema, draft, known, validator.is_valid, found)


def draft_of(schema: Json) -> int:
    """The draft that a schema says it is written in. Who says nothing, or names a stranger's, means 2020-12."""
    named = schema.get("$schema")
    if isinstance(named, str) and len(named) < 100:
        for draft, mark in ((4, "draft-04"), (6, "draft-06"), (7, "draft-07"), (2019, "2019-09")):
            if mark in named:
                return draft
    return 2020


def holds(rules: Json, draft: int, value: object) -> bool:
    """Whether a value keeps some small rules, such as `{"minimum": 1}`. Rules that mean nothing are kept."""
    validator = _validator(rules, draft)
    return validator is None or _accepts(validator.is_valid, value)


def _accepts(is_valid: Callable[[Any], bool], value: object) -> bool:
    """Half an emoji, an infinity: nothing to judge, so not ours to refuse."""
    return _attempted(is_valid, value) is not False


def _attempted(work: Callable[..., Made], *given: object, **options: object) -> Made | None:
    """What the validator makes of what strangers wrote; None where it fails, or panics."""
    try:
        return work(*given, **options)
    except Exception:  # noqa: BLE001 - no list of what it raises is known
        return None
    except BaseException as e:
        if type(e).__name__ == "PanicException":  # a class in no module that could be imported
            return None
        raise


def _top(arguments: Json) -> Json:
    """What an outline looks at: the validator would copy all the rest."""
    return {name: type(each)() if is_object(each) or is_array(each) else each for name, each in arguments.items()}


def _validator(schema: Json, draft: int) -> "Validator | None":
    import jsonschema_rs as rs  # 30 ms, and only a compact surface that is called needs it

    kind = {4: rs.Draft4Validator, 6: rs.Draft6Validator, 7: rs.Draft7Validator, 2019: rs.Draft201909Validator}
    named = {key: value for key, value in schema.items() if key != "$schema"}
    options = rs.RegexOptions(size_limit=_PATTERN_BYTES)
    make: Callable[..., Validator] = kind.get(draft, rs.Draft202012Validator)
    return _attempted(make, named, validate_formats=False, offline=True, pattern_options=options)


def _is_linear(pattern: str) -> bool:
    return _validator({"pattern": pattern}, 2020) is not None


def _known(schema: Json) -> frozenset[str] | None:
    """No properties at all says that nobody wrote the names down, not that there are none."""
    names = as_object(schema.get("properties"))
    return None if not names or len(names) > _MOST_NAMES or schema.keys() & _MORE_NAMES else frozenset(names)


def _outline(schema: Json, draft: int, known: frozenset[str] | None) -> Compiled:
    """Only what can be said about the top without looking further down."""
    names = as_object(schema.get("properties"))
    if len(names) > _MOST_NAMES or (draft <= 7 and "$ref" in schema):  # there, nothing counts beside a `$ref`
        return OPEN
    outline: Json = {"type": "object", "properties": {name: _rules(rules, draft) for name, rules in names.items()}}
    demanded = schema.get("required")
    if is_array(demanded):
        outline["required"] = [name for name in demanded[:_MOST_NAMES] if isinstance(name, str)]
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        outline["additionalProperties"] = False
    validator = _validator(outline, draft)
    return OPEN if validator is None else Compiled(outline, draft, known, validator.is_valid)


def _rules(schema: object, draft: int) -> Json:
    rules = as_object(schema)
    kinds: object = rules.get("type")
    listed = kinds if is_array(kinds) else [kinds]
    if (
        not 0 < len(listed) <= len(TYPES)
        or not all(kind in TYPES for kind in listed)
        or (draft <= 7 and "$ref" in rules)
    ):
        return {}
    return {"type": kinds}


def _without(node: object, patterns: frozenset[str]) -> object:
    """A schema without some patterns, and without the rules about content. Only for depths that were counted."""
    if is_array(node):
        return [_without(item, patterns) for item in node]
    if not is_object(node):
        return node
    kept: Json = {}
    for key, value in node.items():
        if isinstance(value, str) and (key in _NOT_RULES or (key == "pattern" and value in patterns)):
            continue
        # What stands in these is data, whatever it looks like.
        kept[key] = value if key in ("const", "enum", "default", "examples") else _without(value, patterns)
    return kept
