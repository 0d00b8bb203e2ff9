"""Explains arguments that a schema does not accept: for repairs as values, for a model in words.

The compiled validator gives the reasons (`iter_errors`). It copies the arguments for each reason,
so arguments above `MAX_EXPLAINED_BYTES` are refused without one. Among alternatives the one that
was meant is explained if that is clear: the only one of the right type, or the one whose tag
(`{"kind": "text", …}`) fits.

Texts are short, one line each, and safe to send: names and values are cut and quoted as JSON unless
they are plain words. Types are written as in a tool's signature.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from mcpx.model.call import Json, as_object, is_array, is_object
from mcpx.surfaces.checking.schemas import Compiled, attempted

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

Path = tuple[str | int, ...]

MAX_EXPLAINED_BYTES = 64 << 10
MOST_TOLD = 5
_MOST_FAULTS = 50
_MOST_OPTIONS = 12
_LONGEST_VALUE = 40
_LONGEST_TYPE = 160
_LONGEST_GUESS = 60
_PLAIN = re.compile(r"[\w$-]{1,64}")
_ORDER = ("string", "integer", "number", "boolean", "object", "array", "null")
_RULES = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
    "pattern": "a match of {}",
    "uniqueItems": "items that differ from each other",
    "falseSchema": "nothing",
    "not": "something else",
}
_ANYTHING_ELSE = "what the signature says"


@dataclass(frozen=True, slots=True)
class Fault:
    path: Path
    kind: Literal["missing", "unknown", "type", "choice", "rule"]
    value: object
    """The value at the path; None if it is missing."""
    schema: object = True
    """Of the value."""
    types: frozenset[str] = frozenset()
    """Of a wrong type or choice: the types that are right."""
    options: tuple[object, ...] = ()
    """The values to choose from, or the known names."""
    words: str = ""
    """A rule in words."""


def type_of(value: object) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def find_faults(compiled: Compiled, arguments: Json) -> list[Fault]:
    """At least one."""
    unexplained = [Fault((), "rule", arguments, words=_ANYTHING_ELSE)]
    validator, bounds = compiled.validator, compiled.bounds
    if validator is None or bounds is None or not bounds.explains(arguments, MAX_EXPLAINED_BYTES):
        return unexplained

    def errors() -> "list[ValidationError]":
        return list(islice(validator.iter_errors(arguments), _MOST_FAULTS))

    found: list[Fault] = []
    if compiled.known is not None:
        names = tuple(as_object(compiled.schema.get("properties")))
        found = [
            Fault((name,), "unknown", value, options=names)
            for name, value in arguments.items()
            if name not in compiled.known
        ]
    found += _faults(compiled.schema, arguments, attempted(errors) or [])
    return found or unexplained


def _faults(root: Json, arguments: Json, errors: "Iterable[ValidationError]") -> list[Fault]:
    """One for each place."""
    places: dict[Path, Fault] = {}
    for error in errors:
        for fault in _faults_of(root, arguments, error):
            known = places.get(fault.path)
            places[fault.path] = fault if known is None else _both(known, fault)
    return list(places.values())


def _both(one: Fault, other: Fault) -> Fault:
    """A wrong type or choice says more than a rule."""
    if {one.kind, other.kind} == {"type", "choice"}:
        choice, by_type = (one, other) if one.kind == "choice" else (other, one)
        return replace(choice, types=choice.types & by_type.types or choice.types)
    if one.kind == "rule" and other.kind != "rule":
        return other
    if one.kind == "rule" and one.words and other.words:
        return replace(one, words=f"{one.words}, {other.words}")
    return one


def _faults_of(root: Json, arguments: Json, error: "ValidationError") -> list[Fault]:
    kind: Any = error.kind
    path: Path = tuple(error.instance_path)
    value: object = error.instance
    node = as_object(_at(root, error.schema_path[:-1]))
    properties = as_object(node.get("properties"))
    match kind.name:
        case "required":
            name = kind.property
            return [Fault((*path, name), "missing", None, properties.get(name, True))]
        case "additionalProperties":
            options = tuple(properties)
            given = as_object(value)
            return [
                Fault((*path, name), "unknown", given.get(name), options=options)
                for name in kind.unexpected
            ]
        case "falseSchema" if error.schema_path[-1:] == ["additionalProperties"]:
            # The validator's form of an object without any names.
            given = as_object(_at(arguments, path))
            return [Fault((*path, name), "unknown", given[name]) for name in given]
        case "type":
            return [Fault(path, "type", value, node, frozenset(kind.types))]
        case "enum" | "const":
            options = tuple(kind.options) if kind.name == "enum" else (kind.value,)
            return [Fault(path, "choice", value, node, frozenset(map(type_of, options)), options)]
        case "anyOf" | "oneOf":
            tried = [_faults(root, arguments, errors) for errors in kind.context]
            return _alternatives(tried, path, value, node)
        case other:
            words = _RULES.get(other, _ANYTHING_ELSE).format(str(kind.value)[:100])
            return [Fault(path, "rule", value, words=words)]


def _at(value: object, path: Sequence[Any]) -> object:
    here: Any = value
    try:
        for step in path:
            here = here[step]
    except (LookupError, TypeError):
        return None
    return here


def _alternatives(tried: list[list[Fault]], path: Path, value: object, node: Json) -> list[Fault]:
    if not all(tried):
        words = "what fits only one of the alternatives"
        return [Fault(path, "rule", value, words=words)]
    misplaced = [_misplaced(faults, path) for faults in tried]
    right = [faults for faults, fault in zip(tried, misplaced, strict=True) if fault is None]
    if not right:
        return [_merged([fault for fault in misplaced if fault is not None], node)]
    if len(right) == 1:
        return right[0]
    untagged = [faults for faults in right if not _tags(faults, path)]
    if len(untagged) == 1:
        return untagged[0]
    if not untagged:
        tags = [_tags(faults, path)[0] for faults in right]
        if len({fault.path for fault in tags}) == 1:
            return [_merged(tags, True)]
    return [Fault(path, "rule", value, node)]


def _misplaced(faults: list[Fault], path: Path) -> Fault | None:
    """The fault because of which the value as a whole does not fit an alternative."""
    for fault in faults:
        if fault.path == path and fault.kind in ("type", "choice"):
            return fault
    return None


def _tags(faults: list[Fault], path: Path) -> list[Fault]:
    depth = len(path) + 1
    return [fault for fault in faults if fault.kind == "choice" and len(fault.path) == depth]


def _merged(faults: list[Fault], schema: object) -> Fault:
    """One fault for all alternatives."""
    types = frozenset[str]().union(*(fault.types for fault in faults))
    options = tuple(option for fault in faults for option in fault.options)
    path, value = faults[0].path, faults[0].value
    return Fault(path, "choice" if options else "type", value, schema, types, options)


# In words


def problems_text(root: Json, faults: list[Fault]) -> tuple[str, ...]:
    """The first few faults, and how many more there are."""
    told = [_sendable(_problem(root, fault)) for fault in faults[:MOST_TOLD]]
    return (*told, *_more(len(faults)))


def repairs_text(repairs: list[str]) -> tuple[str, ...]:
    return (*map(_sendable, repairs[:MOST_TOLD]), *_more(len(repairs)))


def path_text(path: Path) -> str:
    """`items[2].name`; the arguments themselves are `arguments`."""
    if len(path) > 20:
        path = (*path[:10], "…", *path[-9:])
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step) or step == "…":
            text += f".{step}"
        else:
            text += f"[{_cut(step)}]" if text else _cut(step)
    return text.removeprefix(".") or "arguments"


def short(value: object) -> str:
    """A value in a few characters."""
    if isinstance(value, str):
        return _cut(value)
    if is_object(value):
        names = [path_text((name,)) for name in islice(value, 5)]
        if len(value) > 5:
            names.append("…")
        return f"{{{', '.join(names)}}}"
    if is_array(value):
        return f"of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 128:
        return "too long to tell"
    return json.dumps(value)


def spelled(value: object) -> str:
    """A value with its type: `string "abc"`."""
    kind = type_of(value)
    if kind == "null":
        return kind
    if kind == "integer":
        kind = "number"
    return f"{kind} {short(value)}"


def _problem(root: Json, fault: Fault) -> str:
    where = path_text(fault.path)
    if fault.kind == "missing":
        return f"{where}: required and missing, expected {_type(root, fault.schema)}"
    if fault.kind == "unknown":
        return f"{where}: unknown argument, {_known_names(fault)}"
    got = f"got {spelled(fault.value)}"
    if fault.words:
        return f"{where}: expected {fault.words}, {got}"
    if fault.kind == "choice":
        return f"{where}: expected {_choice(fault)}, {got}{_meant_choice(fault)}"
    if fault.kind == "type" and not fault.types & {"array", "object"}:
        types = " or ".join(kind for kind in _ORDER if kind in fault.types)
        return f"{where}: expected {types}, {got}"
    return f"{where}: expected {_type(root, fault.schema)}, {got}"


def _known_names(fault: Fault) -> str:
    names = [name for name in fault.options if isinstance(name, str)]
    meant = _nearest(str(fault.path[-1]), names)
    if meant:
        return f"did you mean {' or '.join(path_text((name,)) for name in meant)}?"
    if not names:
        return "none is taken here"
    listed = [path_text((name,)) for name in names[:_MOST_OPTIONS]]
    if len(names) > _MOST_OPTIONS:
        listed.append("…")
    return f"expected {', '.join(listed)}"


def _choice(fault: Fault) -> str:
    told = [_option(option) for option in fault.options]
    others = fault.types.difference(map(type_of, fault.options))
    told += [kind for kind in _ORDER if kind in others]
    if len(told) == 1:
        return told[0]
    listed = ", ".join(told[:_MOST_OPTIONS])
    if len(told) > _MOST_OPTIONS:
        listed += f", … {len(told) - _MOST_OPTIONS} more"
    return f"one of {listed}"


def _option(option: object) -> str:
    if is_object(option) or is_array(option):
        return spelled(option)
    return short(option)


def _meant_choice(fault: Fault) -> str:
    if not isinstance(fault.value, str):
        return ""
    meant = _nearest(fault.value, [each for each in fault.options if isinstance(each, str)])
    if not meant:
        return ""
    return f"; did you mean {' or '.join(map(_cut, meant))}?"


def _type(root: Json, schema: object) -> str:
    """The type of a part of a schema, as in the signature."""
    from mcpx.formats.typescript import type_text  # Only wrong arguments need it.

    part = as_object(schema)
    if part is not root:
        part = {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **part}
    text = type_text(part, max_description_len=0).partition("\n")[0]
    if text in ("unknown", ""):
        return "a value"
    if len(text) > _LONGEST_TYPE:
        return f"{text[:_LONGEST_TYPE]}…"
    return text


def _nearest(word: str, known: list[str]) -> list[str]:
    if len(word) > _LONGEST_GUESS:  # difflib takes too long for a megabyte.
        return []
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in known[:500] if len(name) <= _LONGEST_GUESS}
    return [by_lower[match] for match in get_close_matches(word.lower(), by_lower, n=2, cutoff=0.6)]


def _cut(text: str) -> str:
    if len(text) > _LONGEST_VALUE:
        text = f"{text[:_LONGEST_VALUE]}…"
    return json.dumps(text, ensure_ascii=False)


def _more(count: int) -> tuple[str, ...]:
    if count <= MOST_TOLD:
        return ()
    return (f"… and {count - MOST_TOLD} more",)


def _sendable(text: str) -> str:
    """Half an emoji cannot be sent; as `\\ud83d` it says the same."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
