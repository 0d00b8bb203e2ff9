"""The typed parameters of a command, and the JSON Schema they make (SRC-5)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Literal, cast
from urllib.parse import unquote

from mcpx.model.call import Json, as_list, as_object
from mcpx.model.kinds import Mistake

MOST_PARTS = 200
"""Of a schema that are looked into for names."""
_BOUNDS: dict[str, tuple[str, str]] = {
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a command."""

    name: str
    """As callers write it, and as `{name}` in the command."""
    type: Literal["string", "number", "integer", "boolean", "array", "object"] = "string"
    """Its JSON type."""
    required: bool = False
    """Whether a call without it is refused."""
    default: Any = None
    """Used when a call leaves it out."""
    description: str = ""
    """What it is for."""
    enum: tuple[Any, ...] | None = None
    """The only values allowed."""
    min: float | None = None
    """Least value of a number; least length of a text, a list or an object."""
    max: float | None = None
    """Largest value of a number; largest length of a text, a list or an object."""
    pattern: str | None = None
    """Regular expression that a text must match."""
    items: Mapping[str, Any] | None = None
    """JSON Schema of the elements of a list."""
    properties: Mapping[str, Any] | None = None
    """JSON Schemas of the fields of an object, by name."""

    def mistakes(self) -> Iterator[Mistake]:
        given: list[tuple[Any, tuple[str | int, ...]]] = [
            (v, ("enum", i)) for i, v in enumerate(self.enum or ())
        ]
        if self.default is not None:
            given.append((self.default, ("default",)))
            if self.enum is not None and self.default not in self.enum:
                yield Mistake("the default is not in 'enum'", ("default",))
        for value, path in given:
            if not isinstance(value, _TYPES[self.type]) or (
                isinstance(value, bool) and self.type != "boolean"
            ):
                yield Mistake(f"not of type {self.type}", path)
            elif isinstance(value, float) and not isfinite(value):
                yield Mistake("a number that is not finite, which JSON has not", path)
            elif (size := _size(value)) is not None and not self._least <= size <= self._most:
                yield Mistake("beyond 'min' or 'max'", path)
        for key, kinds in (
            ("pattern", ("string",)),
            ("items", ("array",)),
            ("properties", ("object",)),
        ):
            if getattr(self, key) is not None and self.type not in kinds:
                yield Mistake(f"'{key}' goes with 'type: {kinds[0]}'", (key,), at="key")
        for key in ("min", "max"):
            if getattr(self, key) is not None and self.type not in _BOUNDS:
                yield Mistake(f"'{key}' does not go with 'type: {self.type}'", (key,), at="key")
        if self.min is not None and self.max is not None and self.min > self.max:
            yield Mistake("'min' is more than 'max'", ("min",))

    @property
    def _least(self) -> float:
        return -inf if self.min is None else self.min

    @property
    def _most(self) -> float:
        return inf if self.max is None else self.max

    @property
    def is_free(self) -> bool:
        """Whether its schema holds what was not checked above."""
        return any(given is not None for given in (self.pattern, self.items, self.properties))

    @property
    def schema(self) -> Json:
        made: Json = {"type": self.type}
        if self.description:
            made["description"] = self.description
        if self.enum is not None:
            made["enum"] = list(self.enum)
        if self.default is not None:
            made["default"] = self.default
        for key, value in zip(_BOUNDS.get(self.type, ()), (self.min, self.max), strict=False):
            if value is not None:
                made[key] = int(value) if float(value).is_integer() else value
        for key in ("pattern", "items", "properties"):
            if (value := getattr(self, key)) is not None:
                made[key] = value
        return made


def _size(value: Any) -> float | None:
    """What `min` and `max` are about."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    return len(cast("str | list[Any]", value)) if isinstance(value, str | list | dict) else None


def schema_of(parameters: Sequence[Parameter]) -> Json:
    """What the arguments of a command must be."""
    known = {parameter.name: parameter.schema for parameter in parameters}
    made: Json = {"type": "object", "properties": known, "additionalProperties": False}
    # An argument that has a default may be left out, whatever the file says: it is never missing.
    if required := [p.name for p in parameters if p.required and p.default is None]:
        made["required"] = required
    return made


def names_in(schema: Json) -> list[str]:
    """The arguments that a schema names, also where it refers to its own parts."""
    found: dict[str, None] = {}
    waiting: list[Any] = [schema]
    seen: list[Any] = []
    while waiting and len(seen) < MOST_PARTS:
        part = as_object(waiting.pop(0))
        if any(part is each for each in seen):
            continue
        seen.append(part)
        found.update(dict.fromkeys(as_object(part.get("properties"))))
        for key in ("allOf", "anyOf", "oneOf"):
            waiting += as_list(part.get(key))
        waiting += [part[key] for key in ("if", "then", "else") if key in part]
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = schema
            for step in reference[2:].split("/"):
                target = as_object(target).get(unquote(step).replace("~1", "/").replace("~0", "~"))
            waiting.append(target)
    return list(found)


def with_defaults(schema: Json, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, and the defaults of those it leaves out."""
    known = {name: as_object(its) for name, its in as_object(schema.get("properties")).items()}
    left_out = {name: its["default"] for name, its in known.items() if "default" in its}
    return {**left_out, **arguments}
