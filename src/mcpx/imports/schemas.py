"""A schema of an OpenAPI document as plain JSON Schema 2020-12.

Promised: no references are left, those that lead in a circle are cut; bounded in size and depth
whatever the document says; whatever the original accepts is accepted, except for what only
responses have (`readOnly`). Where something must be left out the schema asks for less: the API has
the last word. For the same reason `oneOf` becomes `anyOf`, and what judges by what a schema does
not accept (`not`, `if`, `unevaluated…`) is left out.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mcpx.imports.document import BadReference, Document
from mcpx.imports.texts import Unfit, clean, clip, literal
from mcpx.model.call import Json, as_list, as_object, is_array, is_object


@dataclass(frozen=True, slots=True)
class Detail:
    """How much of a document is told."""

    depth: int
    """Levels of schemas within schemas."""
    values: int
    """JSON values of one argument's schema."""
    text: int
    """Characters of a description; of an argument's, half of it."""


TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_DEEPEST = 40
"""Schemas within schemas by any way, `allOf` included."""
_MOST_CHOICES = 100
_MOST_BRANCHES = 20
_ANNOTATED_AS: dict[str, Callable[[Any], bool]] = {
    "format": lambda value: (
        isinstance(value, str) and bool(re.fullmatch(r"[\w./:-]{1,40}", value, re.ASCII))
    ),
    "pattern": lambda value: isinstance(value, str) and len(value) <= 500 and clean(value) == value,
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems"), lambda value: _is_count(value)
    ),
    **dict.fromkeys(("minProperties", "maxProperties"), lambda value: _is_count(value)),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        lambda value: _is_number(value),
    ),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **dict.fromkeys(("uniqueItems", "deprecated"), lambda value: value is True),
}


class _TooMuchError(Exception):
    """More values than may be."""


class Schemas:
    def __init__(self, document: Document) -> None:
        self._document = document

    def of(self, schema: Any, detail: Detail) -> Json:
        """As deep as its bound in values allows."""
        for depth in range(detail.depth, -1, -1):
            try:
                return _Conversion(self._document, detail, detail.values).schema(schema, depth)
            except _TooMuchError:
                continue
        try:
            types = _types(self._document.resolved(schema))
        except BadReference:
            types = []
        return {"type": types[0] if len(types) == 1 else types} if types else {}

    def fields(self, schema: Any) -> Json | None:
        """An object schema whose fields are known, with those of `allOf` among its `properties`,
        each as it stands in the document; None for any other schema."""
        found: Json = {"properties": {}, "required": [], "parts": 0}
        return found if self._gather(schema, found, ()) and found["properties"] else None

    def _gather(self, schema: Any, found: Json, seen: tuple[str, ...]) -> bool:
        table = as_object(schema)
        found["parts"] += 1
        if found["parts"] > _MOST_CHOICES or len(seen) > _DEEPEST:
            return False
        if isinstance(ref := table.get("$ref"), str):
            if ref in seen:
                return False
            try:
                return self._gather(self._document.target(ref), found, (*seen, ref))
            except BadReference:
                return False
        if (
            table.get("anyOf")
            or table.get("oneOf")
            or _types(table) not in ([], ["object"], ["object", "null"])
        ):
            return False
        for name, its in as_object(table.get("properties")).items():
            found["properties"].setdefault(name, its)
        found["required"] += [
            name for name in as_list(table.get("required")) if isinstance(name, str)
        ]
        for key in ("minProperties", "patternProperties"):
            if table.get(key):
                found[key] = table[key]
        if table.get("additionalProperties") not in (None, False, True, {}):
            found["additionalProperties"] = True
        return all(self._gather(each, found, (*seen, "")) for each in as_list(table.get("allOf")))

    def is_read_only(self, schema: Any) -> bool:
        try:
            return self._document.resolved(schema).get("readOnly") is True
        except BadReference:
            return False


class _Conversion:
    def __init__(self, document: Document, detail: Detail, values: int) -> None:
        self._document = document
        self._text = detail.text // 2
        self._left = values

    def schema(self, given: Any, depth: int, seen: tuple[str, ...] = ()) -> Json:
        """`seen`: the references followed to come here, and "" for each step without one."""
        table = as_object(given)
        self._spend(1)
        if len(seen) > _DEEPEST:
            return {}
        if isinstance(ref := table.get("$ref"), str):
            return self._referred(ref, table, depth, seen)
        made = self._own(table)
        self._spend(len(made))
        if depth > 0:
            for key, value in self._below(table, depth, seen):
                made[key] = value
        _take_null(made, table)
        for each in as_list(table.get("allOf"))[:_MOST_BRANCHES]:
            _join(made, self.schema(each, depth, (*seen, "")))
        return made

    def _referred(self, ref: str, table: Json, depth: int, seen: tuple[str, ...]) -> Json:
        if ref in seen:
            return {
                "description": clip(f"the same as '{ref.rpartition('/')[2]}' around it", self._text)
            }
        try:
            target = self._document.target(ref)
        except BadReference:
            return {}
        made = self.schema(target, depth, (*seen, ref))
        beside = {key: value for key, value in table.items() if key != "$ref"}
        if beside:  # 3.1 allows it, and 3.0 documents have it all the same
            over = self.schema(beside, depth, (*seen, ""))
            made = {
                **made,
                **{key: value for key, value in over.items() if key in ("description", "default")},
            }
            _join(made, over)
        return made

    def _own(self, table: Json) -> Json:
        """What stands in the schema itself."""
        made: Json = {}
        types = _types(table)
        if types:
            made["type"] = types[0] if len(types) == 1 else types
        if isinstance(told := table.get("description") or table.get("title"), str) and (
            told := clip(told, self._text)
        ):
            made["description"] = told
        if is_array(choices := table.get("enum")) and 0 < len(choices) <= _MOST_CHOICES:
            _put(made, "enum", choices)
            self._spend(len(choices))
        for key in ("const", "default"):
            if key in table:
                _put(made, key, table[key])
        for key, fits in _ANNOTATED_AS.items():
            if key in table and fits(table[key]):
                made[key] = table[key]
        for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if table.get(key) is True and bound in made:  # as 3.0 has it
                made[key] = made.pop(bound)
        examples = (
            table.get("examples") if is_array(table.get("examples")) else [table.get("example")]
        )
        if (first := as_list(examples)[:1]) not in ([], [None]):
            _put(made, "examples", first)
        fields = as_object(table.get("properties"))
        named = [
            name for name in as_list(table.get("required"))[:_MOST_CHOICES] if isinstance(name, str)
        ]
        if required := [
            name for name in dict.fromkeys(named) if not self._is_read_only(fields.get(name))
        ]:
            made["required"] = required
            self._spend(len(required))
        return made

    def _below(self, table: Json, depth: int, seen: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        """The schemas within it."""

        def inner(schema: Any) -> Any:
            return (
                schema if isinstance(schema, bool) else self.schema(schema, depth - 1, (*seen, ""))
            )

        properties = as_object(table.get("properties"))
        self._spend(len(properties))
        if shown := {name: its for name, its in properties.items() if not self._is_read_only(its)}:
            yield "properties", {clean(name): inner(its) for name, its in shown.items()}
        for key in ("items", "propertyNames"):
            if is_object(table.get(key)):
                yield key, inner(table[key])
        if is_array(table.get("prefixItems")):
            yield "prefixItems", [inner(each) for each in table["prefixItems"][:_MOST_BRANCHES]]
        more = table.get("additionalProperties")
        if (
            isinstance(more, bool | dict)
            and more != {}
            and not (more is False and "allOf" in table)
        ):
            yield "additionalProperties", inner(more)
        branches = [each for key in ("anyOf", "oneOf") for each in as_list(table.get(key))]
        if 0 < len(branches) <= _MOST_BRANCHES and not (table.get("anyOf") and table.get("oneOf")):
            yield "anyOf", [inner(each) for each in branches]

    def _is_read_only(self, schema: Any) -> bool:
        return as_object(schema).get("readOnly") is True

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise _TooMuchError


def _types(table: Json) -> list[str]:
    given = table.get("type")
    listed = given if is_array(given) else [given]
    found = [each for each in TYPES if each in listed]
    if found and table.get("nullable") is True and "null" not in found:
        found.append("null")
    return found if len(found) == len(listed) or table.get("nullable") is True else []


def _take_null(made: Json, table: Json) -> None:
    """What may be null, says 3.0 in a word of its own."""
    takes_null = table.get("nullable") is True or "null" in as_list(made.get("type"))
    if takes_null and "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    if table.get("nullable") is True and "anyOf" in made and {"type": "null"} not in made["anyOf"]:
        made["anyOf"].append({"type": "null"})


def _join(made: Json, more: Json) -> None:
    """What both ask for, in one; what cannot be said so stays apart."""
    apart: Json = {}
    for key, value in more.items():
        if key == "additionalProperties" and value is False:
            continue  # each part would refuse the fields of the others
        if key not in made:
            made[key] = value
        elif key == "properties":
            for name, its in value.items():
                if made[key].setdefault(name, its) != its:
                    apart.setdefault(key, {})[name] = its
        elif key == "required":
            made[key] = list(dict.fromkeys([*made[key], *value]))
        elif key not in ("description", "default", "examples", "deprecated") and made[key] != value:
            apart[key] = value
    if apart:
        made.setdefault("allOf", []).append(apart)


def _put(made: Json, key: str, value: Any) -> None:
    try:
        made[key] = literal(value)
    except Unfit:
        pass


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def checkable(schema: Json) -> tuple[Json, str | None]:
    """What arguments can be held against, and what had to be left out for that: a configuration
    takes no other."""
    from mcpx.surfaces.checking.schemas import lenient, unjudged

    if unjudged(schema) is None:
        return schema, None
    plain = lenient(schema)
    if unjudged(plain) is None:
        return plain, "some of its patterns cannot be checked; all are left out"
    told = {
        name: as_object(its).get("description")
        for name, its in as_object(schema.get("properties")).items()
    }
    names = {name: {"description": text} if text else Json() for name, text in told.items()}
    bare = {
        key: value
        for key, value in schema.items()
        if key in ("type", "required", "additionalProperties")
    }
    return {
        **bare,
        "properties": names,
    }, "what its arguments must be cannot be checked; only their names are"
