"""JSON Schema as TypeScript: each keyword, in the spelling that the promise gives."""

from typing import Any

import pytest

from mcpx.formats.typescript import DESCRIPTION_LENGTH, signature, type_text

Json = dict[str, Any]


def parameter(schema: object, **more: Any) -> str:
    """The text of one required parameter, without what stands around it."""
    text = type_text({"type": "object", "properties": {"x": schema}, "required": ["x"]}, **more)
    assert text.startswith("{x: "), text
    return text.removeprefix("{x: ").removesuffix("}")


def test_the_spelling_is_the_one_that_was_promised() -> None:
    """FMT-1"""
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "number"},
            "mode": {"enum": ["a", "b"]},
        },
        "required": ["path"],
    }

    assert type_text(schema) == '{path: string, limit?: number, mode?: "a" | "b"}'
    assert signature("read", schema) == 'read({path: string, limit?: number, mode?: "a" | "b"})'


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        # basic types
        ({"type": "string"}, "string"),
        ({"type": "number"}, "number"),
        ({"type": "integer"}, "number /* integer */"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "null"}, "null"),
        ({}, "unknown"),
        (True, "unknown"),
        (False, "never"),
        ({"not": {}}, "never"),
        # arrays and tuples
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        ({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, "number[][]"),
        ({"type": "array"}, "unknown[]"),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]},
            "[string, number]",
        ),
        ({"type": "array", "items": [{"type": "string"}, {"type": "null"}]}, "[string, null]"),
        (
            {
                "type": "array",
                "prefixItems": [{"type": "string"}],
                "items": {"type": ["number", "null"]},
            },
            "[string, ...(number | null)[]]",
        ),
        (
            {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "number"}},
            "[string, ...number[]]",
        ),
        # objects and records
        ({"type": "object"}, "object"),
        ({"type": "object", "properties": {}}, "{}"),
        ({"type": "object", "additionalProperties": False}, "{}"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "Record<string, number>"),
        ({"type": "object", "additionalProperties": True}, "Record<string, unknown>"),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
            "Record<string, string>",
        ),
        (
            {
                "type": "object",
                "propertyNames": {"enum": ["a", "b"]},
                "additionalProperties": {"type": "string"},
            },
            'Record<"a" | "b", string>',
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "number"},
            },
            "{a?: string, [key: string]: number}",
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": False,
            },
            "{a?: string}",
        ),
        ({"type": "object", "required": ["a"]}, "{a: unknown}"),
        (
            {"properties": {"x-y": {"type": "string"}, "2": True, "$ok_1": True}},
            '{"x-y"?: string, "2"?: unknown, $ok_1?: unknown}',
        ),
        # unions
        ({"type": ["string", "null"]}, "string | null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        (
            {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            "string | string[]",
        ),
        ({"anyOf": [{"type": "string"}, {"type": "string"}]}, "string"),
        (
            {"type": "object", "oneOf": [{"properties": {"a": True}}, {"required": ["b"]}]},
            "{a?: unknown} | {b: unknown}",
        ),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"enum": ["a"], "nullable": True}, '"a" | null'),
        # intersections
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "string"}}},
                    {"properties": {"b": True}, "required": ["a"]},
                ]
            },
            "{a: string, b?: unknown}",
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "string"}}},
                    {"properties": {"a": {"default": "b"}}},
                ]
            },
            '{a?: string /* default: "b" */}',
        ),
        ({"allOf": [{"enum": ["a", "b"]}]}, '"a" | "b"'),
        (
            {
                "allOf": [
                    {"properties": {"a": True}},
                    {"anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
                ]
            },
            "{a?: unknown} & ({b: unknown} | {c: unknown})",
        ),
        (
            {
                "type": "object",
                "properties": {"a": True},
                "oneOf": [{"properties": {"b": True}}, {"type": "null"}],
            },
            "{a?: unknown} & ({b?: unknown} | null)",
        ),
        (
            {"type": "array", "items": {"allOf": [{"required": ["a"]}, {"type": "string"}]}},
            "({a: unknown} & string)[]",
        ),
        # enums and constants
        (
            {"type": "string", "enum": ["a", 1, 1.5, 2.0, None, True, 'say "hi"']},
            '"a" | 1 | 1.5 | 2 | null | true | "say \\"hi\\""',
        ),
        ({"const": "a"}, '"a"'),
        ({"const": None}, "null"),
        ({"const": {"a": [1]}}, '{"a":[1]}'),
        ({"enum": []}, "unknown"),
        # types that are only implied, and those of sloppy servers
        ({"properties": {"a": {"type": "string"}}}, "{a?: string}"),
        ({"items": {"type": "string"}}, "string[]"),
        ({"type": "int"}, "number"),
        ({"type": "String"}, "string"),
        ({"type": "file"}, "unknown"),
    ],
)
def test_each_keyword_has_its_type(schema: object, text: str) -> None:
    """FMT-1"""
    assert parameter(schema) == text


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string", "format": "date-time"}, "string /* date-time */"),
        ({"type": "integer", "format": "int32", "default": 5}, "number /* default: 5 */"),
        ({"type": "integer", "minimum": 1, "maximum": 100}, "number /* 1-100 */"),
        ({"type": "number", "minimum": -5, "maximum": 10.5}, "number /* -5 to 10.5 */"),
        ({"type": "number", "minimum": 0}, "number /* >= 0 */"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, "number /* > 0; <= 1 */"),
        (
            {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1},
            "number /* integer */",
        ),
        ({"type": "number", "multipleOf": 5}, "number /* multiple of 5 */"),
        ({"type": "string", "minLength": 1}, "string /* not empty */"),
        ({"type": "string", "minLength": 2, "maxLength": 8}, "string /* 2-8 characters */"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "string /* /^[a-z]+$/ */"),
        ({"type": "string", "contentEncoding": "base64"}, "string /* base64 */"),
        (
            {"type": "array", "items": {"type": "string", "format": "uuid"}, "maxItems": 3},
            "string[] /* at most 3 items; each uuid */",
        ),
        (
            {"type": "array", "minItems": 2, "maxItems": 2, "uniqueItems": True},
            "unknown[] /* 2 items; unique */",
        ),
        (
            {"type": "string", "default": "x", "deprecated": True},
            'string /* deprecated; default: "x" */',
        ),
        (
            {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}], "default": None},
            "string | null /* uri */",
        ),
        ({"type": "string", "description": "Where to look"}, "string /* Where to look */"),
        ({"type": "string", "description": " Two\n\tlines. "}, "string /* Two lines */"),
        (
            {"type": "string", "description": "Size", "default": "big"},
            'string /* Size; default: "big" */',
        ),
        # what says nothing new is left out
        ({"type": "string", "description": "X.", "title": "X"}, "string"),
        (
            {"type": "number", "description": "Results (default: 5)", "default": 5},
            "number /* Results (default: 5) */",
        ),
        (
            {"type": "number", "description": "From 1-9", "minimum": 1, "maximum": 9},
            "number /* From 1-9 */",
        ),
        ({"type": "array", "default": []}, "unknown[]"),
        # the description of the thing itself, wherever it stands
        (
            {"type": "array", "items": {"type": "string", "description": "A name"}},
            "string[] /* A name */",
        ),
        (
            {"anyOf": [{"type": "string", "description": "A name"}, {"type": "null"}]},
            "string | null /* A name */",
        ),
        (
            {
                "oneOf": [
                    {"const": "a", "description": "first"},
                    {"const": "b", "description": "second"},
                ]
            },
            '"a" /* first */ | "b" /* second */',
        ),
    ],
)
def test_what_a_type_cannot_say_is_one_comment(schema: object, text: str) -> None:
    """FMT-1: formats and defaults as comments."""
    assert parameter(schema) == text


def test_properties_that_must_be_there_by_choice_are_named() -> None:
    """FMT-1"""
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "name": {"type": "string"},
            "team": {"type": "string"},
        },
        "anyOf": [{"required": ["id"]}, {"required": ["name", "team"]}],
    }

    assert (
        type_text(schema)
        == "{id?: string, name?: string, team?: string} /* needs id or name + team */"
    )


def test_a_description_cannot_end_its_comment() -> None:
    """FMT-1"""
    hostile = {"type": "string", "description": "a */ b", "default": "*/", "pattern": "x*/"}

    assert parameter(hostile) == 'string /* a * / b; default: "* /" */'


def test_descriptions_are_cut_where_the_caller_says() -> None:
    """FMT-1: max_description_len."""
    schema = {"type": "string", "description": "word " * 100, "default": "x"}

    assert parameter(schema, max_description_len=9) == 'string /* word word...; default: "x" */'
    assert parameter(schema, max_description_len=0) == "string"
    assert parameter(schema, max_description_len=-1) == "string"
    assert (
        parameter(schema)
        == f'string /* {("word " * 100)[:DESCRIPTION_LENGTH].rstrip()}...; default: "x" */'
    )
    assert (
        parameter(schema, max_description_len=1_000)
        == f'string /* {("word " * 100).rstrip()}; default: "x" */'
    )


def test_a_long_enum_is_cut_and_the_rest_counted() -> None:
    """FMT-1"""
    text = parameter({"enum": list(range(290))})

    assert text.startswith("0 | 1 | 2 | ")
    assert text.endswith("| 49 | ... 240 more")


@pytest.mark.parametrize(
    "pointer",
    [
        "#/$defs/Mode",
        "#/definitions/Mode",
        "#/properties/first",
        "#/%24defs/Mode",
        "#/$defs/a~1b",
        "#/$defs/List/anyOf/1",
    ],
)
def test_any_local_pointer_is_followed(pointer: str) -> None:
    """FMT-1: $ref."""
    mode = {"type": "string", "enum": ["fast", "slow"], "description": "How"}
    defs = {"Mode": mode, "a/b": mode, "List": {"anyOf": [True, mode]}}
    schema = {
        "$defs": defs,
        "definitions": defs,
        "properties": {"first": mode, "x": {"$ref": pointer}},
    }

    assert 'x?: "fast" | "slow" /* How */}' in type_text(schema)


@pytest.mark.parametrize(
    "pointer",
    [
        "#/$defs/Gone",
        "other.json#/a",
        "https://example.org/a",
        "",
        "#anchor",
        5,
        "#/$defs/Circle",
        "#/$defs" + "/a" * 30,
    ],
)
def test_a_reference_that_leads_nowhere_is_unknown(pointer: object) -> None:
    """FMT-1: $ref."""
    defs: Json = {"type": "string"}
    for _ in range(30):  # there, and further down than anyone would point
        defs = {"a": defs}
    defs |= {"Circle": {"$ref": "#/$defs/Round"}, "Round": {"$ref": "#/$defs/Circle"}}

    assert type_text({"$defs": defs, "properties": {"x": {"$ref": pointer}}}) == "{x?: unknown}"


def test_what_stands_beside_a_reference_counts_too() -> None:
    """FMT-1: $ref."""
    schema = {
        "$defs": {"Base": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "properties": {
            "x": {
                "$ref": "#/$defs/Base",
                "description": "Mine",
                "properties": {"b": {"type": "number"}},
            },
        },
    }

    assert type_text(schema) == "{x?: {b?: number} & {a?: string} /* Mine */}"


def test_a_definition_used_twice_is_written_once() -> None:
    """FMT-1: $ref."""
    point = {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}}
    schema = {
        "$defs": {"Point": {**point, "description": "A place"}},
        "properties": {"from": {"$ref": "#/$defs/Point"}, "to": {"$ref": "#/$defs/Point"}},
        "required": ["from", "to"],
    }

    assert signature("route", schema) == (
        "route({from: Point, to: Point})\ntype Point = {lat?: number, lon?: number} /* A place */"
    )


def test_a_definition_used_once_or_tiny_is_written_in_place() -> None:
    """FMT-1: $ref."""
    schema = {
        "$defs": {
            "Point": {"properties": {"lat": {"type": "number"}}},
            "Unit": {"enum": ["km", "mi"]},
        },
        "properties": {
            "at": {"$ref": "#/$defs/Point"},
            "a": {"$ref": "#/$defs/Unit"},
            "b": {"$ref": "#/$defs/Unit"},
        },
    }

    assert type_text(schema) == '{at?: {lat?: number}, a?: "km" | "mi", b?: "km" | "mi"}'


def test_a_recursive_ref_is_named_once() -> None:
    """FMT-1: $ref, also recursive."""
    node = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        },
        "required": ["name"],
    }
    schema = {
        "$defs": {"Node": node},
        "properties": {"root": {"$ref": "#/$defs/Node"}},
        "required": ["root"],
    }

    assert (
        signature("draw", schema)
        == "draw({root: Node})\ntype Node = {name: string, children?: Node[]}"
    )


def test_definitions_that_use_each_other_are_all_there() -> None:
    """FMT-1: $ref, also recursive."""
    defs = {
        "Or": {
            "type": "object",
            "properties": {"any": {"type": "array", "items": {"$ref": "#/$defs/Filter"}}},
        },
        "Not": {"type": "object", "properties": {"not": {"$ref": "#/$defs/Filter"}}},
        "Filter": {"anyOf": [{"$ref": "#/$defs/Or"}, {"$ref": "#/$defs/Not"}, {"type": "string"}]},
    }

    assert type_text({"$defs": defs, "properties": {"where": {"$ref": "#/$defs/Filter"}}}) == (
        "{where?: Filter}\ntype Filter = {any?: Filter[]} | {not?: Filter} | string"
    )


def test_a_root_that_refers_to_itself_has_a_name() -> None:
    """FMT-1: $ref, also recursive."""
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}}}

    assert type_text(schema) == "Root\ntype Root = {child?: Root}"
    assert signature("walk", schema) == "walk(Root)\ntype Root = {child?: Root}"


def test_two_definitions_of_the_same_name_are_told_apart() -> None:
    """FMT-1: $ref."""
    big = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = {
        "$defs": {"string": big, "v1": {"It em": big}, "v2": {"It_em": big}},
        "properties": {
            key: {"type": "array", "items": {"$ref": pointer}}
            for key, pointer in {
                "a": "#/$defs/string",
                "b": "#/$defs/string",
                "c": "#/$defs/v1/It em",
                "d": "#/$defs/v1/It em",
                "e": "#/$defs/v2/It_em",
                "f": "#/$defs/v2/It_em",
            }.items()
        },
    }

    first, *definitions = type_text(schema).split("\n")

    assert (
        first
        == "{a?: string2[], b?: string2[], c?: It_em[], d?: It_em[], e?: It_em2[], f?: It_em2[]}"
    )
    assert definitions == [
        f"type {name} = {{a?: string}}" for name in ("string2", "It_em", "It_em2")
    ]


@pytest.mark.parametrize(
    "schema",
    [{"type": "object"}, {"type": "object", "properties": {}}, {}, None, True, False, 7, "x", []],
)
def test_a_tool_without_parameters_takes_an_empty_object(schema: object) -> None:
    """FMT-1"""
    assert signature("now", schema) == "now({})"
