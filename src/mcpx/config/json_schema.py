"""The native shape of a configuration as JSON Schema (draft 2020-12), for editors (CFG-8).

Promised: made of what `validate` obeys, the dataclasses with their kinds and families, and of the
docstrings of their fields, so that it can say nothing else: a key or a type that the loader does
not take is not taken here either, and `${VAR}` may stand where the loader lets one stand. Parts
that other packages bring are among it.

Stricter than the loader in one thing: words to choose from are to be written as they are listed, in
lower case mostly. Not said: what holds between fields (`checks`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from mcpx.config.field_docs import docs_of
from mcpx.config.schema import Config, PerServer, Server
from mcpx.config.validate import is_text
from mcpx.model.call import Json
from mcpx.model.family import Family, Part
from mcpx.model.kinds import Inside, OfType, Rule, Tagged

DRAFT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = r"\$\{"
"""What a text has in it that stands for something else."""
LARGEST = 10**15
"""As the loader has it."""
EXTRA: Json = {"patternProperties": {"^x-": True}, "additionalProperties": False}
"""Keys that begin so are the user's own; others are mistakes."""
_SCALARS: dict[Any, Json] = {
    str: {"type": "string"},
    bool: {"type": ["boolean", "string"], "pattern": REFERENCE},
    int: {
        "type": ["integer", "string"],
        "pattern": REFERENCE,
        "minimum": -LARGEST,
        "maximum": LARGEST,
    },
    float: {
        "type": ["number", "string"],
        "pattern": REFERENCE,
        "minimum": -LARGEST,
        "maximum": LARGEST,
    },
}


def config_schema() -> Json:
    """Of a whole configuration."""
    return _Schemas().whole()


def part_schema(part: type) -> Json:
    """Of one part's own fields: an auth type's, say; it stands on its own."""
    schemas = _Schemas()
    made = schemas.fields_of(part)
    return {"$schema": DRAFT, **made, **({"$defs": schemas.shared} if schemas.shared else {})}


class _Schemas:
    def __init__(self) -> None:
        self.shared: dict[str, Json] = {}
        self._names: dict[type, str] = {}

    def whole(self) -> Json:
        told = self.fields_of(Config)
        title = {
            "$schema": DRAFT,
            "title": "mcpx configuration",
            "description": "One configuration of mcpx.",
        }
        return {**title, **told, "$defs": dict(sorted(self.shared.items()))}

    def fields_of(self, cls: type) -> Json:
        """A mapping with the fields of a class as its keys."""
        named = [
            (key, mark) for key, _, kind in _keys(cls) if (mark := _mark(kind, OfType)) is not None
        ]
        if not named:
            return self._object(cls, {}, [])
        # `type: http` comes with `http` and no other section.
        (_, mark), *_ = named
        ways: list[Json] = []
        for name, part in _parts(mark.classes):
            section = {"type": {"const": name, **_described(part)}, name: self._referred(part)}
            needs = ["type", *([name] if self._needs(part) else [])]
            if not self._needs(part):
                section[name] = _or_nothing(section[name])
            ways.append(self._object(cls, section, needs))
        return {"oneOf": ways}

    def _object(self, cls: type, properties: dict[str, Json], needed: list[str]) -> Json:
        docs = docs_of(cls)
        told: dict[str, Json] = {}
        required = list(needed)
        for key, field, kind in _keys(cls):
            if _mark(kind, OfType) is not None:
                continue
            schema = self.of(kind)
            if _is_required(field):
                required.append(key)
            else:
                schema = _or_nothing(schema)
            words = docs.get(field.name, "")
            if cls is Server and key in _INHERITED:
                words = f"{words} Absent: as `global` says."
            told[key] = {
                **({"description": words} if words else {}),
                **schema,
                **_default(cls, field),
            }
        closed: Json = {"type": "object", "properties": {**properties, **told, "$schema": True}}
        if required:
            closed["required"] = required
        return {**_described(cls), **closed, **EXTRA}

    def _needs(self, cls: type) -> bool:
        return any(_is_required(field) for _, field, _ in _keys(cls))

    def _referred(self, cls: type) -> Json:
        """By name: several places may hold the same, and a class may hold itself."""
        if cls not in self._names:
            self._names[cls] = name = _free(cls, self.shared)
            self.shared[name] = {}
            self.shared[name] = self.fields_of(cls)
        return {"$ref": f"#/$defs/{self._names[cls]}"}

    def of(self, kind: Any) -> Json:
        """What a field of this type may hold."""
        origin, options = get_origin(kind), get_args(kind)
        if kind is Any:
            return {}
        if origin is Annotated:
            return self._annotated(options[0], options[1:])
        if origin is Literal:
            return _one_of(options)
        if origin in (Union, UnionType):
            told = [self.of(option) for option in options if option is not NoneType]
            return told[0] if len(told) == 1 else {"anyOf": told}
        if origin is tuple:
            return {"type": "array", "items": self._item(options[0])}
        if origin is Mapping:
            return {"type": "object", "additionalProperties": self._item(options[1]) or True}
        if isinstance(kind, type) and is_dataclass(kind):
            return self._referred(kind)
        return dict(_SCALARS[kind])

    def _item(self, kind: Any) -> Json:
        """A list or map of texts takes a number as it is spelled."""
        if not is_text(kind):
            return self.of(kind)
        return {**self.of(kind), "type": ["string", "number", "boolean"]}

    def _annotated(self, kind: Any, marks: tuple[Any, ...]) -> Json:
        schema: Json | None = None
        for mark in marks:
            if isinstance(mark, Tagged):
                return {"oneOf": [self._tagged(name, part) for name, part in _parts(mark.classes)]}
            if isinstance(mark, Family):
                return _one_of(tuple(_listed(cast("Family[Part]", mark))))
            schema = self.of(kind) if schema is None else schema
            if isinstance(mark, Rule):
                schema = {**schema, **mark.keywords}
            if isinstance(mark, Inside):
                alone: Json = {
                    "type": "object",
                    "properties": {mark.key: schema},
                    "required": [mark.key],
                }
                schema = {"anyOf": [schema, {**alone, **EXTRA}]}
        return self.of(kind) if schema is None else schema

    def _tagged(self, name: str, part: type) -> Json:
        if part not in self._names:
            self._names[part] = given = _free(part, self.shared)
            kind: dict[str, Json] = {"type": {"const": name, **_described(part)}}
            self.shared[given] = self._object(part, kind, ["type"])
        return {"$ref": f"#/$defs/{self._names[part]}"}


_INHERITED = {*(field.name for field in fields(PerServer)), "timeout"}
"""Keys of a server that `global` says where it says nothing."""


def _keys(cls: type) -> Iterator[tuple[str, "Field[Any]", Any]]:
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        if field.init and field.metadata.get("in_file", True):
            yield field.name.rstrip("_"), field, hints[field.name]


def _mark(kind: Any, wanted: type) -> Any:
    marks = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, wanted)), None)


def _is_required(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _parts(classes: Mapping[str, type]) -> list[tuple[str, type]]:
    """Those of other packages too; one that cannot be loaded is reported by its family, and
    missing."""
    return [(name, part) for name in _listed(classes) if (part := classes.get(name)) is not None]


def _listed(classes: Mapping[str, Any]) -> list[str]:
    if isinstance(classes, Family):
        classes.look_outside()
    return list(classes)


def _one_of(options: tuple[Any, ...]) -> Json:
    return {"anyOf": [{"enum": list(options)}, {"type": "string", "pattern": REFERENCE}]}


def _or_nothing(schema: Json) -> Json:
    """A key without a value is as good as none."""
    kinds = schema.get("type")
    if isinstance(kinds, str | list):
        return {
            **schema,
            "type": [*([kinds] if isinstance(kinds, str) else cast("list[str]", kinds)), "null"],
        }
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else {}


def _described(cls: type) -> Json:
    """A dataclass without a docstring has one that is made of its fields."""
    words = " ".join((cls.__doc__ or "").split())
    return {} if not words or words.startswith(f"{cls.__name__}(") else {"description": words}


def _default(cls: type, field: "Field[Any]") -> Json:
    value = field.default
    if cls is Server and field.name in _INHERITED:
        return {}
    return {"default": value} if isinstance(value, str | int | float) and value != "" else {}


def _free(cls: type, taken: Mapping[str, Any]) -> str:
    """Two families may have a class of one name."""
    if cls.__name__ not in taken:
        return cls.__name__
    name, number = f"{cls.__module__.rsplit('.', 2)[-2]}.{cls.__name__}", 2
    while name in taken:
        name, number = f"{name}.{number}", number + 1
    return name
