"""Schemas of OpenAPI documents as plain JSON Schema."""

import json
import time
from typing import Any

import jsonschema_rs
import pytest

from mcpx.imports.openapi_document import Document
from mcpx.imports.openapi_schema import Detail, Schemas

Json = dict[str, Any]
FULL = Detail(8, 400, 1_000)


def converted(schema: Any, detail: Detail = FULL, **components: Any) -> Json:
    document = Document({"openapi": "3.0.3", "components": {"schemas": components}})
    made = Schemas(document).convert(schema, detail)
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **made})
    assert "$ref" not in json.dumps(made)
    return made


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "number", "minimum": 1, "exclusiveMinimum": True},
            {"type": "number", "exclusiveMinimum": 1},
        ),
        ({"maximum": 5, "exclusiveMaximum": False}, {"maximum": 5}),
        ({"exclusiveMaximum": 5}, {"exclusiveMaximum": 5}),
        ({"type": "integer", "example": 7}, {"type": "integer", "examples": [7]}),
        (
            {"oneOf": [{"type": "string"}], "nullable": True},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        ({"type": "file", "xml": {"name": "a"}, "x-own": 1, "discriminator": {}}, {}),
        ({"not": {"type": "string"}, "if": {}, "then": False}, {}),
        (
            {
                "minLength": -1,
                "maxLength": "9",
                "pattern": 5,
                "required": "a",
                "enum": "a",
                "items": [],
            },
            {},
        ),
        ("nonsense", {}),
        ({"$ref": "other.yaml#/a"}, {}),
        ({"$ref": "https://evil.example/schema.json"}, {}),
        ({"$ref": "#/components/schemas/Nobody"}, {}),
        (
            {"default": float("inf"), "enum": [1e999], "example": 2**70},
            {"examples": [float(2**70)]},
        ),
    ],
    ids=str,
)
def test_the_words_of_openapi_become_those_of_json_schema(given: Any, made: Json) -> None:
    assert converted(given) == made


def test_references_are_put_in_their_place_with_what_stands_beside_them() -> None:
    made = converted(
        {**ref("Pet"), "description": "mine"}, Pet={"type": "object", "description": "a pet"}
    )
    assert made == {"type": "object", "description": "mine"}


def test_what_leads_in_a_circle_is_cut_and_says_so() -> None:
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": ref("Node")}}
    made = converted(ref("Node"), Node=node)
    assert made["properties"]["next"] == {"description": "the same as 'Node' around it"}
    assert converted(ref("A"), A=ref("B"), B=ref("A")) == {
        "description": "the same as 'A' around it"
    }


def test_parts_of_one_object_become_one() -> None:
    named = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    made = converted(
        {
            "allOf": [
                ref("Named"),
                {"properties": {"age": {"type": "integer"}}, "required": ["age"]},
            ]
        },
        Named=named,
    )
    assert made == {
        "type": "object",
        "required": ["name", "age"],
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    }
    made = converted({"allOf": [{"minimum": 1}, {"minimum": 2}]})
    assert made == {"minimum": 1, "allOf": [{"minimum": 2}]}


def test_what_only_answers_have_is_left_out_of_what_is_sent() -> None:
    properties = {
        "id": {"type": "string", "readOnly": True},
        "name": {"type": "string", "writeOnly": True},
    }
    made = converted({"type": "object", "properties": properties, "required": ["id", "name"]})
    assert made == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }


def test_a_schema_that_is_cut_accepts_what_the_whole_one_accepts() -> None:
    deep: Json = {"type": "string"}
    for _ in range(30):
        deep = {
            "type": "object",
            "required": ["a"],
            "properties": {"a": deep},
            "additionalProperties": False,
        }
    value: Any = "x"
    for _ in range(30):
        value = {"a": value}
    for detail in (FULL, Detail(3, 40, 100), Detail(1, 4, 100)):
        made = converted(deep, detail)
        assert len(json.dumps(made)) < 2_000
        assert jsonschema_rs.is_valid(made, value)
    both = {
        "oneOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"b": deep}},
        ]
    }
    assert jsonschema_rs.is_valid(converted(both, Detail(1, 40, 100)), {"a": "x"})


def test_a_document_that_grows_without_end_is_cut_in_a_moment() -> None:
    """A billion laughs in references, a million properties, ten thousand choices."""
    laughs = {
        f"L{n}": {"properties": {f"p{k}": ref(f"L{n + 1}") for k in range(10)}} for n in range(30)
    }
    wide = {"type": "object", "properties": {f"p{k}": {"type": "string"} for k in range(100_000)}}
    many = {"enum": list(range(10_000)), "anyOf": [{"const": k} for k in range(10_000)]}
    parts = {f"A{n}": {"allOf": [ref(f"A{n + 1}")] * 20} for n in range(30)}
    started = time.process_time()
    for schema in (ref("L0"), wide, many, ref("A0")):
        assert len(json.dumps(converted(schema, **laughs, **parts))) < 50_000
    assert time.process_time() - started < 5
