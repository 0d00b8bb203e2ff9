"""The native shape of a configuration as JSON Schema (draft 2020-12), for editors (CFG-8).

Promised: made of what `validate` obeys, the dataclasses with their kinds and families, and of the
docstrings of their fields, so that it can say nothing else: a key or a type that the loader does
not take is not taken here either, and `${VAR}` may stand where the loader lets one stand. Parts
that other packages bring are among it.

Stricter than the loader in one thing: words to choose from are to be written as they are listed, in
lower case mostly. Not said: what holds between fields (`checks`).
"""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Mapping
from dataclasses import Field, fields
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from mcpx.base.build import is_required, is_table, is_union, shape_of
from mcpx.config.schema import Config, PerServer, Server
from mcpx.config.validate import classes_of, is_text, required_keys
from mcpx.model.call import Json
from mcpx.model.family import Family, Part
from mcpx.model.kinds import Inside, Rule, Tagged

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
    if schemas.shared:
        made = {**made, "$defs": schemas.shared}
    return {"$schema": DRAFT, **made}


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
        """A map with the fields of a class as its keys."""
        families = [classes for _, kind in shape_of(cls).values() if (classes := classes_of(kind))]
        if not families:
            return self._object(cls, {}, [])
        # `type: http` belongs to the section `http` and no other.
        ways: list[Json] = []
        for name, part in _parts(families[0]):
            section = {"type": {"const": name, **_described(part)}, name: self._referred(part)}
            needed = ["type", name]
            if not required_keys(part):
                section[name] = _or_nothing(section[name])
                needed.remove(name)
            ways.append(self._object(cls, section, needed))
        return {"oneOf": ways}

    def _object(self, cls: type, properties: dict[str, Json], needed: list[str]) -> Json:
        described: dict[str, Json] = {}
        required = list(needed)
        for key, (field, kind) in shape_of(cls).items():
            if classes_of(kind):
                continue
            schema = self.of(kind)
            if is_required(field):
                required.append(key)
            else:
                schema = _or_nothing(schema)
            words = docs_of(cls).get(field.name, "")
            if cls is Server and key in _INHERITED:
                words = f"{words} Absent: as `global` says."
            if words:
                schema = {"description": words, **schema}
            described[key] = {**schema, **_default(cls, field)}
        known: Json = {**properties, **described, "$schema": True}
        closed: Json = {"type": "object", "properties": known}
        if required:
            closed["required"] = required
        return {**_described(cls), **closed, **EXTRA}

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
        if is_union(kind):
            schemas = [self.of(option) for option in options if option is not NoneType]
            if len(schemas) == 1:
                return schemas[0]
            return {"anyOf": schemas}
        if origin is tuple:
            return {"type": "array", "items": self._item(options[0])}
        if origin is Mapping:
            return {"type": "object", "additionalProperties": self._item(options[1]) or True}
        if is_table(kind):
            return self._referred(kind)
        return dict(_SCALARS[kind])

    def _item(self, kind: Any) -> Json:
        """A list or map of texts takes a number as it is spelled."""
        if not is_text(kind):
            return self.of(kind)
        return {**self.of(kind), "type": ["string", "number", "boolean"]}

    def _annotated(self, kind: Any, marks: tuple[Any, ...]) -> Json:
        for mark in marks:
            if isinstance(mark, Tagged):
                return {"oneOf": [self._tagged(name, part) for name, part in _parts(mark.classes)]}
            if isinstance(mark, Family):
                return _one_of(tuple(_listed(cast("Family[Part]", mark))))
        schema: Json = self.of(kind)
        for mark in marks:
            if isinstance(mark, Rule):
                schema = {**schema, **mark.keywords}
            if isinstance(mark, Inside):
                only: Json = {"properties": {mark.key: schema}, "required": [mark.key]}
                alone: Json = {"type": "object", **only, **EXTRA}
                schema = dict[str, Any](anyOf=[schema, alone])
        return schema

    def _tagged(self, name: str, part: type) -> Json:
        if part not in self._names:
            self._names[part] = given = _free(part, self.shared)
            kind: dict[str, Json] = {"type": {"const": name, **_described(part)}}
            self.shared[given] = self._object(part, kind, ["type"])
        return {"$ref": f"#/$defs/{self._names[part]}"}


_INHERITED = {*(field.name for field in fields(PerServer)), "timeout"}
"""Keys of a server that `global` says where it says nothing."""


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
    """A key without a value means the same as no key."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return {**schema, "type": [kinds, "null"]}
    if isinstance(kinds, list):
        return {**schema, "type": [*cast("list[str]", kinds), "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if not schema:
        return {}
    return {"anyOf": [schema, {"type": "null"}]}


def _described(cls: type) -> Json:
    words = " ".join((cls.__doc__ or "").split())
    if not words or words.startswith(f"{cls.__name__}("):  # The generated one of a dataclass.
        return {}
    return {"description": words}


def _default(cls: type, field: "Field[Any]") -> Json:
    value = field.default
    is_inherited = cls is Server and field.name in _INHERITED
    if is_inherited or value == "" or not isinstance(value, str | int | float):
        return {}
    return {"default": value}


def _free(cls: type, taken: Mapping[str, Any]) -> str:
    """Two families may have a class of one name."""
    if cls.__name__ not in taken:
        return cls.__name__
    name, number = f"{cls.__module__.rsplit('.', 2)[-2]}.{cls.__name__}", 2
    while name in taken:
        name, number = f"{name}.{number}", number + 1
    return name


# Docstrings of fields


@cache
def docs_of(part: type) -> dict[str, str]:
    """The docstrings below the fields of a dataclass and its bases. Empty without the source."""
    found: dict[str, str] = {}
    for owner in reversed(part.__mro__[:-1]):
        for node, after in itertools.pairwise(_body(owner)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = getattr(getattr(after, "value", None), "value", None)
                if isinstance(after, ast.Expr) and isinstance(text, str):
                    found[node.target.id] = inspect.cleandoc(text).replace("\n", " ")
    return found


def _body(owner: type) -> list[ast.stmt]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError, SyntaxError):
        return []
    for node in tree.body[:1]:
        if isinstance(node, ast.ClassDef):
            return node.body
    return []
