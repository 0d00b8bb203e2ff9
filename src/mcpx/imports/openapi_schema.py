"""Converts schemas of an OpenAPI document to JSON Schema 2020-12 without references.

The result is limited in size and depth, and references that lead in a circle are cut. The result
accepts everything that the original accepts, except `readOnly` properties, because the API checks
its arguments itself. For this reason `oneOf` becomes `anyOf`, and `not`, `if`, and `unevaluated…`
are left out.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mcpx.imports.openapi_document import BadReference, Document
from mcpx.imports.source import Unfit, bounded, clean, clip
from mcpx.model.call import Json, as_list, as_object, is_array, is_object


@dataclass(frozen=True, slots=True)
class Detail:
    """Limits for texts and schemas from a document."""

    depth: int
    """Levels of nested schemas."""
    values: int
    """JSON values of the schema of one argument."""
    text: int
    """Characters of the description of a command. An argument gets half of it."""


TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
MAX_DEPTH = 40
"""Nested schemas, including those of `allOf`."""
MAX_CHOICES = 100
MAX_BRANCHES = 20
_COUNTS = frozenset(
    ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
)
_NUMBERS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_KEPT_ONCE = ("description", "default", "examples", "deprecated")
"""Keys of which the first value wins when schemas are joined."""


class _TooLarge(Exception):
    pass


class Schemas:
    def __init__(self, document: Document) -> None:
        self._document = document

    def convert(self, schema: Any, detail: Detail) -> Json:
        """The schema as deep as the limit of values allows."""
        for depth in range(detail.depth, -1, -1):
            try:
                return _Conversion(self._document, detail).schema(schema, depth)
            except _TooLarge:
                continue
        return _with_types({}, _types(self._document.resolved_or_empty(schema)))

    def object_fields(self, schema: Any) -> "ObjectFields | None":
        """The fields of an object schema and its `allOf`. Returns None for other schemas."""
        found = ObjectFields({}, [])
        if self._collect(schema, found, ()) and found.properties:
            return found
        return None

    def _collect(self, schema: Any, found: "ObjectFields", path: tuple[str, ...]) -> bool:
        table = as_object(schema)
        found.schemas += 1
        if found.schemas > MAX_CHOICES or len(path) > MAX_DEPTH:
            return False
        ref = table.get("$ref")
        if isinstance(ref, str):
            try:
                return ref not in path and self._collect(
                    self._document.target(ref), found, (*path, ref)
                )
            except BadReference:
                return False
        is_object_schema = _types(table) in ([], ["object"], ["object", "null"])
        if table.get("anyOf") or table.get("oneOf") or not is_object_schema:
            return False
        for name, field in as_object(table.get("properties")).items():
            found.properties.setdefault(name, field)
        found.required += _texts(table.get("required"))
        allows_more = table.get("additionalProperties") not in (None, False, True, {})
        found.is_open = found.is_open or allows_more or bool(table.get("patternProperties"))
        return all(self._collect(part, found, (*path, "")) for part in as_list(table.get("allOf")))

    def is_read_only(self, schema: Any) -> bool:
        return self._document.resolved_or_empty(schema).get("readOnly") is True


@dataclass(slots=True)
class ObjectFields:
    properties: Json
    """The schemas as the document has them."""
    required: list[str]
    is_open: bool = False
    """Other fields are allowed, too."""
    schemas: int = 0


class _Conversion:
    def __init__(self, document: Document, detail: Detail) -> None:
        self._document = document
        self._max_text = detail.text // 2
        self._values_left = detail.values

    def schema(self, given: Any, depth: int, path: tuple[str, ...] = ()) -> Json:
        """`path`: the references that lead here, and "" for each step without a reference."""
        table = as_object(given)
        self._spend(1)
        if len(path) > MAX_DEPTH:
            return {}
        if isinstance(table.get("$ref"), str):
            return self._referenced(table, depth, path)
        made = self._keywords(table)
        self._spend(len(made))
        if depth > 0:
            made |= dict(self._nested(table, depth, path))
        if table.get("nullable") is True or "null" in as_list(made.get("type")):
            _allow_null(made)
        for part in as_list(table.get("allOf"))[:MAX_BRANCHES]:
            _join(made, self.schema(part, depth, (*path, "")))
        return made

    def _referenced(self, table: Json, depth: int, path: tuple[str, ...]) -> Json:
        ref = table["$ref"]
        if ref in path:
            text = f"the same as '{ref.rpartition('/')[2]}' around it"
            return {"description": clip(text, self._max_text)}
        try:
            target = self._document.target(ref)
        except BadReference:
            return {}
        made = self.schema(target, depth, (*path, ref))
        # OpenAPI 3.1 allows other keywords next to `$ref`. Documents of 3.0 have them, too.
        beside = {key: value for key, value in table.items() if key != "$ref"}
        if beside:
            over = self.schema(beside, depth, (*path, ""))
            made |= {key: over[key] for key in ("description", "default") if key in over}
            _join(made, over)
        return made

    def _keywords(self, table: Json) -> Json:
        """The keywords without nested schemas."""
        made = _with_types({}, _types(table))
        text = table.get("description") or table.get("title")
        if isinstance(text, str) and clip(text, self._max_text):
            made["description"] = clip(text, self._max_text)
        choices = as_list(table.get("enum"))
        if 0 < len(choices) <= MAX_CHOICES:
            _put(made, "enum", choices)
            self._spend(len(choices))
        for key, value in table.items():
            if key in ("const", "default"):
                _put(made, key, value)
            elif _is_valid_keyword(key, value):
                made[key] = value
        # In OpenAPI 3.0, `exclusiveMinimum` is a boolean that belongs to `minimum`.
        for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if table.get(key) is True and bound in made:
                made[key] = made.pop(bound)
        examples = as_list(table.get("examples")) or [table.get("example")]
        if examples[0] is not None:
            _put(made, "examples", examples[:1])
        fields = as_object(table.get("properties"))
        required = [
            name
            for name in dict.fromkeys(_texts(table.get("required"))[:MAX_CHOICES])
            if not _is_read_only(fields.get(name))
        ]
        if required:
            made["required"] = required
            self._spend(len(required))
        return made

    def _nested(self, table: Json, depth: int, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        """The keywords with nested schemas."""

        def convert(schema: Any) -> Any:
            if isinstance(schema, bool):
                return schema
            return self.schema(schema, depth - 1, (*path, ""))

        def convert_all(schemas: Iterable[Any]) -> list[Any]:
            return [convert(schema) for schema in schemas]

        properties = as_object(table.get("properties"))
        self._spend(len(properties))
        shown = {name: field for name, field in properties.items() if not _is_read_only(field)}
        if shown:
            yield "properties", {clean(name): convert(field) for name, field in shown.items()}
        for key in ("items", "propertyNames"):
            if is_object(table.get(key)):
                yield key, convert(table[key])
        if is_array(table.get("prefixItems")):
            yield "prefixItems", convert_all(table["prefixItems"][:MAX_BRANCHES])
        more = table.get("additionalProperties")
        is_closed_part = more is False and "allOf" in table
        if isinstance(more, bool | dict) and more != {} and not is_closed_part:
            yield "additionalProperties", convert(more)
        any_of, one_of = as_list(table.get("anyOf")), as_list(table.get("oneOf"))
        branches = any_of or one_of
        if 0 < len(branches) <= MAX_BRANCHES and not (any_of and one_of):
            yield "anyOf", convert_all(branches)

    def _spend(self, values: int) -> None:
        self._values_left -= values
        if self._values_left < 0:
            raise _TooLarge


def _is_valid_keyword(key: str, value: Any) -> bool:
    if key in _COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    if key in _NUMBERS:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) < 1e300 and (key != "multipleOf" or value > 0)
    if key in ("uniqueItems", "deprecated"):
        return value is True
    if key == "format":
        return isinstance(value, str) and bool(re.fullmatch(r"[\w./:-]{1,40}", value, re.ASCII))
    if key == "pattern":
        return isinstance(value, str) and len(value) <= 500 and clean(value) == value
    return False


def _types(table: Json) -> list[str]:
    given = table.get("type")
    listed = given if is_array(given) else [given]
    found = [name for name in TYPES if name in listed]
    is_nullable = table.get("nullable") is True
    if len(found) != len(listed) and not is_nullable:
        return []
    if found and is_nullable and "null" not in found:
        found.append("null")
    return found


def _with_types(made: Json, types: list[str]) -> Json:
    if types:
        made["type"] = types
    if len(types) == 1:
        made["type"] = types[0]
    return made


def _allow_null(made: Json) -> None:
    if None not in made.get("enum", [None]):
        made["enum"] = [*made["enum"], None]
    if "anyOf" in made and {"type": "null"} not in made["anyOf"]:
        made["anyOf"].append({"type": "null"})


def _join(made: Json, more: Json) -> None:
    """Add the conditions of `more` to `made`. Conflicting conditions go to `allOf`."""
    apart: Json = {}
    for key, value in more.items():
        if key == "additionalProperties" and value is False:
            continue  # Each part would refuse the fields of the others.
        if key not in made:
            made[key] = value
        elif key == "properties":
            other = {name: field for name, field in value.items() if name in made[key]}
            made[key] |= {name: field for name, field in value.items() if name not in made[key]}
            different = {name: field for name, field in other.items() if made[key][name] != field}
            if different:
                apart[key] = different
        elif key == "required":
            made[key] = list(dict.fromkeys([*made[key], *value]))
        elif key not in _KEPT_ONCE and made[key] != value:
            apart[key] = value
    if apart:
        made.setdefault("allOf", []).append(apart)


def _put(made: Json, key: str, value: Any) -> None:
    try:
        made[key] = bounded(value)
    except Unfit:
        pass


def _texts(value: Any) -> list[str]:
    return [text for text in as_list(value) if isinstance(text, str)]


def _is_read_only(schema: Any) -> bool:
    return as_object(schema).get("readOnly") is True


def checkable(schema: Json) -> tuple[Json, str]:
    """A schema that a configuration accepts, and a note if parts of the schema were left out."""
    from mcpx.surfaces.checking.schemas import lenient, unjudged

    if unjudged(schema) is None:
        return schema, ""
    plain = lenient(schema)
    if unjudged(plain) is None:
        return plain, "some of its patterns cannot be checked; all are left out"
    names: Json = {}
    for name, field in as_object(schema.get("properties")).items():
        description = as_object(field).get("description")
        names[name] = {"description": description} if description else {}
    kept = ("type", "required", "additionalProperties")
    bare = {key: value for key, value in schema.items() if key in kept}
    note = "what its arguments must be cannot be checked; only their names are"
    return {**bare, "properties": names}, note
