"""What is wrong with arguments that a schema does not accept, as values: where, what kind of fault,
what was wanted.

The compiled validator says yes or no and is the only judge. Asked for reasons it copies the
argument once for each, and all alternatives of alternatives, so a refused megabyte can take
gigabytes; that is why the reasons are looked for here. Only refused arguments come here, so a rule
that is not known here costs a good explanation and nothing else.

Promised: at least one fault, found within a bounded number of steps, whatever schema and arguments
are. Among alternatives the one that was meant is explained where that is clear: the only one of the
right type, or the one whose tag (`{"kind": "text", …}`) fits. Not promised: all faults.
"""

from dataclasses import dataclass
from typing import Literal, cast

from mcpx.model.call import Json, as_list, as_object, is_array, is_object
from mcpx.surfaces.checking.bounds import resolve
from mcpx.surfaces.checking.schemas import Compiled, holds

Path = tuple[str | int, ...]

_MOST_STEPS = 5_000
_MOST_FAULTS = 50
_RULE_STEPS = 20  # small rules are compiled to be tried: 50 µs each, …
_PATTERN_STEPS = 500  # … and up to 10 ms
_OPTIONS = 10  # that are compared in a step's time
_TEXT = 1_000  # characters that are handed over in a step's time
_DEEPEST = 64
_RULES = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "a match of {}",
    "uniqueItems": "items that differ from each other",
}
_AT_LEAST = {"minItems": "at least {} items", "minProperties": "at least {} entries"}
_AT_MOST = {"maxItems": "at most {} items", "maxProperties": "at most {} entries"}


@dataclass(frozen=True, slots=True)
class Fault:
    path: Path
    kind: Literal["missing", "unknown", "type", "choice", "rule"]
    value: object
    """What stands there; None where something is missing."""
    schema: object = True
    """What should stand there."""
    types: frozenset[str] = frozenset()
    """Of a wrong type or choice: the types that are right."""
    options: tuple[object, ...] = ()
    """The values to choose from, or the names that are known."""
    words: str = ""
    """A rule in words, where the schema is not all there is to say."""


def type_of(value: object) -> str:
    """The JSON type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "array" if isinstance(value, list) else "object"


def find_faults(compiled: Compiled, arguments: Json) -> list[Fault]:
    try:
        found = _Search(compiled).look(compiled.schema, arguments, (), compiled.known is not None)
    except RecursionError:  # thousands of references in a row
        found = []
    return found or [Fault((), "rule", arguments, words="what the signature says")]


class _Search:
    __slots__ = ("_draft", "_left", "_root")

    def __init__(self, compiled: Compiled) -> None:
        self._root = compiled.schema
        self._draft = compiled.draft
        self._left = _MOST_STEPS

    def look(self, schema: object, value: object, path: Path, closed: bool = False) -> list[Fault]:
        self._left -= 1
        if self._left < 0 or len(path) > _DEEPEST:
            return []
        if not is_object(schema):
            return [Fault(path, "rule", value, words="nothing")] if schema is False else []
        node = schema
        found: list[Fault] = []
        if "$ref" in node:
            found = self.look(resolve(self._root, node["$ref"]), value, path)
            if self._draft <= 7:
                return found
        found = found or self._itself(node, value, path)
        if found:
            return found
        if is_object(value):
            found += self._in_object(node, value, path, closed)
        elif is_array(value):
            found += self._in_array(node, value, path)
        found += self._combined(node, value, path)
        return found + self._rules(node, value, path)

    def _itself(self, node: Json, value: object, path: Path) -> list[Fault]:
        """The value as a whole: its type, or the values it may be."""
        kinds: object = node.get("type")
        types = frozenset(
            kind for kind in (kinds if is_array(kinds) else [kinds]) if isinstance(kind, str)
        )
        options = (node["const"],) if "const" in node else tuple(as_list(node.get("enum")))
        self._left -= len(options) // _OPTIONS
        if options and not any(same(value, option) for option in options):
            own = frozenset(map(type_of, options))
            return [Fault(path, "choice", value, node, own & types or own, options)]
        if types and not any(self._is_a(value, kind) for kind in types):
            return [Fault(path, "type", value, node, types)]
        return []

    def _is_a(self, value: object, kind: str) -> bool:
        own = type_of(value)
        if own == "number" and kind == "integer":
            return self._draft > 4 and cast(float, value).is_integer()
        return own == kind or (own == "integer" and kind == "number")

    def _in_object(self, node: Json, value: Json, path: Path, closed: bool) -> list[Fault]:
        properties = as_object(node.get("properties"))
        found = [
            Fault((*path, name), "missing", None, properties.get(name, True))
            for name in as_list(node.get("required"))
            if isinstance(name, str) and name not in value
        ]
        others: object = (
            True if "patternProperties" in node else node.get("additionalProperties", not closed)
        )
        for name, inner in value.items():
            if self._left < 0 or len(found) > _MOST_FAULTS:
                break
            if name in properties:
                found += self.look(properties[name], inner, (*path, name))
            elif others is False:
                self._left -= 1
                found.append(Fault((*path, name), "unknown", inner, options=tuple(properties)))
            else:
                found += self.look(others, inner, (*path, name))
        return found

    def _in_array(self, node: Json, value: list[object], path: Path) -> list[Fault]:
        items: object = node.get("items", True)
        first = items if is_array(items) else as_list(node.get("prefixItems"))
        rest = node.get("additionalItems", True) if is_array(items) else items
        found: list[Fault] = []
        for index, inner in enumerate(value):
            if self._left < 0 or len(found) > _MOST_FAULTS:
                break
            found += self.look(first[index] if index < len(first) else rest, inner, (*path, index))
        return found

    def _combined(self, node: Json, value: object, path: Path) -> list[Fault]:
        found: list[Fault] = []
        for branch in as_list(node.get("allOf")):
            found += self.look(branch, value, path)
        for key in ("anyOf", "oneOf"):
            if key in node:
                found += self._alternatives(node, key, value, path)
        if "if" in node:
            found += self.look(
                node.get("else" if self.look(node["if"], value, path) else "then"), value, path
            )
        if "not" in node and not self.look(node["not"], value, path) and self._left > 0:
            found.append(Fault(path, "rule", value, words="something else"))
        return found

    def _alternatives(self, node: Json, key: str, value: object, path: Path) -> list[Fault]:
        tried = [self.look(branch, value, path) for branch in as_list(node[key])]
        fit = sum(not faults for faults in tried)
        if fit or not tried:
            several = fit > 1 and key == "oneOf" and self._left > 0
            return (
                [Fault(path, "rule", value, words="what fits only one of the alternatives")]
                if several
                else []
            )
        here = [_at(faults, path) for faults in tried]
        right = [faults for faults, fault in zip(tried, here, strict=True) if fault is None]
        if not right:
            return [_merged([fault for fault in here if fault], node)]
        if len(right) == 1:
            return right[0]
        tagged = [faults for faults in right if not _tags(faults, path)]
        if len(tagged) == 1:
            return tagged[0]
        if not tagged:
            tags = [_tags(faults, path)[0] for faults in right]
            if len({fault.path for fault in tags}) == 1:
                return [_merged(tags, True)]
        return [Fault(path, "rule", value, node)]

    def _rules(self, node: Json, value: object, path: Path) -> list[Fault]:
        told = _lengths(node, value)
        rules = {key: node[key] for key in _RULES if key in node}
        if rules:
            steps = _PATTERN_STEPS if "pattern" in rules else _RULE_STEPS * (1 + len(rules))
            self._left -= steps + (len(value) // _TEXT if isinstance(value, str) else 0)
            if self._left >= 0 and not holds(rules, self._draft, value):
                broken = [key for key in rules if not holds({key: rules[key]}, self._draft, value)]
                told += [_RULES[key].format(str(rules[key])[:100]) for key in broken or rules]
        return [Fault(path, "rule", value, words=", ".join(told))] if told else []


def _lengths(node: Json, value: object) -> list[str]:
    """What is wrong with the length of a list or an object, in words."""
    key = "Items" if is_array(value) else "Properties" if is_object(value) else ""
    least, most = node.get(f"min{key}"), node.get(f"max{key}")
    told: list[str] = []
    if isinstance(value, (list, dict)):
        length = len(cast(list[object], value))
        if isinstance(least, int | float) and length < least:
            told.append(_AT_LEAST[f"min{key}"].format(least))
        if isinstance(most, int | float) and length > most:
            told.append(_AT_MOST[f"max{key}"].format(most))
    return told


def same(one: object, other: object) -> bool:
    """Equal as JSON: `true` is not `1`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def _at(faults: list[Fault], path: Path) -> Fault | None:
    """The fault by which the value as a whole is out of place, if that is what is wrong."""
    return next(
        (fault for fault in faults if fault.path == path and fault.kind in ("type", "choice")), None
    )


def _tags(faults: list[Fault], path: Path) -> list[Fault]:
    return [
        fault for fault in faults if fault.kind == "choice" and len(fault.path) == len(path) + 1
    ]


def _merged(faults: list[Fault], schema: object) -> Fault:
    """One fault for all alternatives that are out of place."""
    types = frozenset[str]().union(*(fault.types for fault in faults))
    options = tuple(option for fault in faults for option in fault.options)
    return Fault(
        faults[0].path, "choice" if options else "type", faults[0].value, schema, types, options
    )
