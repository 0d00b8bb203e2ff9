"""A model's arguments before a call: right ones pass untouched, near misses are mended, the rest is
explained."""

import copy
import json
import socket
import time
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.cost import count_steps
from mcpx.surfaces.checking.arguments import Checked, Checker
from mcpx.surfaces.checking.schemas import (
    MOST_COMPILED,
    MOST_KEPT,
    MOST_NODES,
    MOST_RULES,
    Compiled,
    Schemas,
    bounds_of,
)

Json = dict[str, Any]

# How long a busy machine takes says nothing here.
calmly = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

READ: Json = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        "mode": {"enum": ["text", "binary"]},
        "follow": {"type": "boolean"},
        "ratio": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object", "properties": {"depth": {"type": "integer"}}},
    },
    "required": ["path"],
}


def of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


def check(schema: object, arguments: object) -> Checked:
    return Checker().check(schema, arguments)


def problems(schema: object, arguments: object) -> tuple[str, ...]:
    before = copy.deepcopy(arguments)
    checked = check(schema, arguments)
    assert checked.repairs == ()
    assert arguments == before
    return checked.problems


def mended(schema: object, arguments: object) -> tuple[Json, tuple[str, ...]]:
    before = copy.deepcopy(arguments)
    checked = check(schema, arguments)
    assert checked.problems == ()
    assert arguments == before, "what was given is never changed"
    return checked.arguments, checked.repairs


# What passes


def test_right_arguments_go_on_as_the_object_that_came() -> None:
    """SUR-9: what the schema accepts is neither copied nor touched."""
    arguments = {"path": "/x", "limit": 5, "options": {"depth": 1, "more": True}}
    checked = check(READ, arguments)
    assert checked == Checked(arguments)
    assert checked.arguments is arguments


def test_no_arguments_are_an_empty_object() -> None:
    """SUR-9"""
    assert check(of(a={"type": "string"}), None) == Checked({})
    assert problems(READ, None) == ("path: required and missing, expected string",)


@pytest.mark.parametrize("schema", [None, True, False, 5, "object", [], {}])
def test_a_tool_without_a_schema_takes_anything(schema: object) -> None:
    """SUR-9"""
    arguments = {"anything": [1]}
    assert check(schema, arguments).arguments is arguments
    assert check(schema, arguments).problems == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strng"},
        {"properties": 5},
        {"properties": {"a": {"type": "str"}}, "required": ["b"]},
        {"properties": {"a": {"exclusiveMinimum": True}}, "required": ["b"]},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": [5]},
        {"type": "array"},
        {"type": ["array", "null"]},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": 7},
        {"properties": {"\ud800": {"type": "string"}}},
    ],
)
def test_a_broken_schema_refuses_nothing(schema: Json) -> None:
    """SUR-9: that is the server's mistake, and the caller cannot mend it."""
    arguments = {"a": {"b": "5"}, "c": None}
    assert check(schema, arguments) == Checked(arguments)


@pytest.mark.parametrize(
    "draft",
    [
        "https://example.com/my-schema",
        "http://json-schema.org/draft-03/schema#",
        "",
        "nonsense",
        "x" * 1000,
    ],
)
def test_a_strange_dialect_is_read_as_the_newest(draft: str) -> None:
    """SUR-9"""
    schema = {"$schema": draft, **of(a={"type": "array", "prefixItems": [{"type": "integer"}]})}
    assert check(schema, {"a": [1, "x"]}).problems == ()
    assert problems(schema, {"a": ["x"]}) == ('a[0]: expected integer, got string "x"',)


def test_the_dialect_that_is_named_counts() -> None:
    """SUR-9: a list as `items` is a tuple in draft 7 and nothing in 2020-12."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **of(a={"items": [{"type": "integer"}]}),
    }
    assert problems(schema, {"a": ["x"]}) == ('a[0]: expected integer, got string "x"',)
    beside = {
        "$schema": schema["$schema"],
        **of(a={"$ref": "#/definitions/a", "type": "null"}),
        "definitions": {"a": {}},
    }
    assert check(beside, {"a": 1}).problems == (), "nothing counts beside a $ref there"


def test_formats_and_contents_are_notes_and_not_rules() -> None:
    """SUR-9: in every dialect."""
    for draft in ("draft-04", "draft-06", "draft-07"):
        schema = {
            "$schema": f"http://json-schema.org/{draft}/schema#",
            **of(
                a={
                    "type": "string",
                    "format": "date",
                    "contentEncoding": "base64",
                    "contentMediaType": "application/json",
                }
            ),
        }
        assert check(schema, {"a": "!!"}).problems == ()
        assert check(schema, {"a": True}).problems == ("a: expected string, got boolean true",)


@pytest.mark.parametrize(
    "odd", [{"a": "\ud800"}, {"\ud800": 1}, {"a": float("inf")}, {"a": 10**40}, {"a": (1, 2)}]
)
def test_what_cannot_be_judged_is_not_refused(odd: Json) -> None:
    """SUR-9: half an emoji, an infinity, a number of any length."""
    schema = {
        "type": "object",
        "properties": {"a": {"minLength": 1, "minItems": 1}},
        "additionalProperties": True,
    }
    assert check(schema, odd).arguments is odd
    assert check(schema, odd).problems == ()


# Arguments that are no object


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ([1, 2], "array of 2"),
        (5, "number 5"),
        (True, "boolean true"),
        ("hello", 'string "hello"'),
        ("[1]", 'string "[1]"'),
        ('{"path": ', 'string "{\\"path\\": "'),
        ('{"path": NaN}', 'string "{\\"path\\": NaN}"'),
        ("x" * 1_000_000, f'string "{"x" * 40}…"'),
        ("[" * 100_000, f'string "{"[" * 40}…"'),
        ('{"a":' * 100_000, r'string "{\"a\":{\"a\":'),
    ],
)
def test_what_is_no_object_is_refused_with_what_came(given_: object, told: str) -> None:
    """SUR-9"""
    (problem,) = problems(READ, given_)
    assert problem.startswith(f"arguments: expected an object, got {told}")
    assert len(problem) < 200


def test_arguments_as_a_json_text_are_read_and_that_is_told() -> None:
    """SUR-9: models often send them so."""
    arguments, repairs = mended(READ, '{"path": "/x", "limit": "5"}')
    assert arguments == {"path": "/x", "limit": 5}
    assert repairs == ("arguments: JSON text taken as an object", 'limit: "5" taken as 5')
    assert mended(READ, ' {"path": "/x"} ')[1] == ("arguments: JSON text taken as an object",)
    assert mended(of(a={"type": "string"}), " ") == ({}, ("arguments: nothing taken as {}",))


def test_a_json_text_with_mistakes_is_refused_for_the_mistakes() -> None:
    """SUR-9"""
    assert problems(READ, '{"limit": 5}') == ("path: required and missing, expected string",)


# Names


def test_a_missing_argument_is_told_with_its_type() -> None:
    """SUR-9"""
    schema = {
        **of(
            where=of(lat={"type": "number"}, lon={"type": "number"}),
            items={"type": "array", "items": {**of(name={"type": "string"}), "required": ["name"]}},
        ),
        "required": ["where", "other"],
    }
    assert problems(schema, {"items": [{"name": "a"}, {}]}) == (
        "where: required and missing, expected {lat?: number, lon?: number}",
        "other: required and missing, expected a value",
        "items[1].name: required and missing, expected string",
    )


def test_an_unknown_argument_is_refused_with_the_nearest_name() -> None:
    """SUR-9: nothing in the schema forbids it, but an optional argument with a typo would be lost
    without a word."""
    assert problems(READ, {"path": "/x", "limt": 5}) == (
        "limt: unknown argument, did you mean limit?",
    )


def test_an_unknown_argument_that_is_like_no_other_gets_the_list() -> None:
    """SUR-9"""
    (problem,) = problems(READ, {"path": "/x", "zzzzzz": 5})
    assert problem == (
        "zzzzzz: unknown argument, expected path, limit, mode, follow, ratio, tags, options"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"additionalProperties": True},
        {"additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^n": {"type": "integer"}}},
        {"unevaluatedProperties": True},
        {"allOf": [{"properties": {"new": {"type": "integer"}}}]},
        {"anyOf": [{"properties": {"new": {"type": "integer"}}}]},
        {"oneOf": [{"properties": {"new": {"type": "integer"}}}]},
        {"if": {"required": ["new"]}, "then": {"properties": {"new": {"type": "integer"}}}},
        {"$ref": "#/$defs/more", "$defs": {"more": {"properties": {"new": {"type": "integer"}}}}},
        {"dependentSchemas": {"new": {"properties": {"new": {"type": "integer"}}}}},
    ],
)
def test_a_schema_that_allows_more_names_is_believed(more: Json) -> None:
    """SUR-9"""
    arguments = {"path": "/x", "new": 5}
    assert check({**READ, **more}, arguments) == Checked(arguments)


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "properties": {}}])
def test_without_any_listed_name_every_name_is_taken(schema: Json) -> None:
    """SUR-9: nobody wrote the names down, so none is wrong."""
    assert check(schema, {"x": 1}).problems == ()


def test_a_schema_that_forbids_other_names_is_enforced_at_every_depth() -> None:
    """SUR-9"""
    schema = of(where={**of(latitude={"type": "number"}), "additionalProperties": False})
    assert problems(schema, {"where": {"latitud": 5}}) == (
        "where.latitud: unknown argument, did you mean latitude?",
    )
    empty = {"type": "object", "additionalProperties": False}
    assert problems(empty, {"x": 5}) == ("x: unknown argument, none is taken here",)


@pytest.mark.parametrize("name", ["filePath", "FILE_PATH", "file-path", "Filepath", "file path"])
def test_a_name_in_another_way_of_writing_is_taken_for_the_known_one(name: str) -> None:
    """SUR-9: only where it is otherwise unknown and the known one is not given."""
    schema = {**of(file_path={"type": "string"}), "required": ["file_path"]}
    arguments, repairs = mended(schema, {name: "/x"})
    assert arguments == {"file_path": "/x"}
    (told,) = repairs
    assert told.endswith(": taken as file_path")


def test_a_name_is_not_taken_for_one_that_is_given_or_for_one_of_two() -> None:
    """SUR-9"""
    schema = of(file_path={"type": "string"})
    assert problems(schema, {"file_path": "/x", "filePath": "/y"}) == (
        "filePath: unknown argument, did you mean file_path?",
    )
    assert problems(schema, {"filePath": "/x", "FilePath": "/y"}) != ()
    two = of(file_path={"type": "string"}, filepath={"type": "string"})
    assert len(problems(two, {"filePath": "/x"})) == 1


def test_where_more_names_are_allowed_none_is_rewritten() -> None:
    """SUR-9"""
    schema = {
        **of(file_path={"type": "string"}),
        "required": ["file_path"],
        "additionalProperties": True,
    }
    assert problems(schema, {"filePath": "/x"}) == (
        "file_path: required and missing, expected string",
    )


# Values


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"limit": "abc"}, 'limit: expected integer, got string "abc"'),
        ({"limit": 5.5}, "limit: expected integer, got number 5.5"),
        ({"limit": True}, "limit: expected integer, got boolean true"),
        ({"limit": [5]}, "limit: expected integer, got array of 1"),
        ({"limit": {"value": 5}}, "limit: expected integer, got object {value}"),
        ({"limit": 500}, "limit: expected at most 100, got number 500"),
        ({"limit": "500"}, 'limit: expected integer, got string "500"'),
        ({"ratio": "x" * 500}, f'ratio: expected number, got string "{"x" * 40}…"'),
        ({"follow": "yes"}, 'follow: expected boolean, got string "yes"'),
        ({"follow": 1}, "follow: expected boolean, got number 1"),
        ({"tags": "a"}, 'tags: expected string[], got string "a"'),
        ({"tags": ["a", {"b": 1}]}, "tags[1]: expected string, got object {b}"),
        ({"options": {"depth": "deep"}}, 'options.depth: expected integer, got string "deep"'),
        ({"options": []}, "options: expected {depth?: number}, got array of 0"),
        (
            {"mode": "tex"},
            'mode: expected one of "text", "binary", got string "tex"; did you mean "text"?',
        ),
        ({"mode": 7}, 'mode: expected one of "text", "binary", got number 7'),
        ({"path": None}, "path: expected string, got null"),
        ({"tags": ["a", None]}, "tags[1]: expected string, got null"),
    ],
)
def test_a_wrong_value_is_told_with_its_path_and_what_was_expected(
    arguments: Json, problem: str
) -> None:
    """SUR-9: so that the model's next try is right."""
    assert problems(READ, {"path": "/x", **arguments}) == (problem,)


@pytest.mark.parametrize(
    ("rules", "value", "expected"),
    [
        ({"minLength": 3}, "ab", "at least 3 characters"),
        ({"maxLength": 1}, "ab", "at most 1 characters"),
        ({"pattern": "^[0-9]+$"}, "ab", "a match of ^[0-9]+$"),
        ({"exclusiveMinimum": 0}, 0, "more than 0"),
        ({"exclusiveMaximum": 9}, 9, "less than 9"),
        ({"minimum": 5, "multipleOf": 3}, 4, "at least 5, a multiple of 3"),
        ({"minItems": 1}, [], "at least 1 items"),
        ({"maxItems": 1}, [1, 2], "at most 1 items"),
        ({"uniqueItems": True}, [1, 1], "items that differ from each other"),
        ({"minProperties": 1}, {}, "at least 1 entries"),
        ({"maxProperties": 1}, {"x": 1, "y": 2}, "at most 1 entries"),
        ({"const": "this"}, "that", '"this"'),
        ({"const": {"a": 1}}, {}, "object {a}"),
        (False, 1, "nothing"),
        ({"not": {"type": "integer"}}, 1, "something else"),
    ],
)
def test_every_usual_rule_is_told_in_words(rules: Any, value: object, expected: str) -> None:
    """SUR-9"""
    (problem,) = problems(of(a=rules), {"a": value})
    assert problem.startswith(f"a: expected {expected}, got ")


def test_a_rule_without_words_of_its_own_is_refused_all_the_same() -> None:
    """SUR-9"""
    schema = of(a={"contains": {"type": "string"}})
    assert problems(schema, {"a": [1]}) == ("a: expected what the signature says, got array of 1",)


def test_a_long_enum_is_cut_and_the_nearest_value_is_named() -> None:
    """SUR-9"""
    zones = [f"Europe/City{n}" for n in range(400)] + ["Europe/Berlin"]
    (problem,) = problems(of(zone={"type": "string", "enum": zones}), {"zone": "Europe/Berln"})
    assert problem.endswith('… 389 more, got string "Europe/Berln"; did you mean "Europe/Berlin"?')
    assert len(problem) < 500


def test_odd_names_are_quoted_in_a_path() -> None:
    """SUR-9"""
    schema = of(**{"a b": of(**{"c.d": {"type": "array", "items": {"type": "integer"}}})})
    assert problems(schema, {"a b": {"c.d": ["x"]}}) == (
        '"a b"["c.d"][0]: expected integer, got string "x"',
    )
    (problem,) = problems(of(**{"n" * 5000: {"type": "integer"}}), {"n" * 5000: "x"})
    assert len(problem) < 200


def test_only_the_first_problems_are_told_and_the_rest_is_counted() -> None:
    """SUR-9"""
    schema = {
        "type": "object",
        "properties": {f"p{n}": {} for n in range(17)},
        "required": [f"p{n}" for n in range(17)],
    }
    told = problems(schema, {})
    assert told == (
        *(f"p{n}: required and missing, expected a value" for n in range(5)),
        "… and 12 more",
    )


def test_a_place_is_told_once() -> None:
    """SUR-9: whatever number of rules it breaks."""
    schema = {"allOf": [{"properties": {"a": {"type": "integer"}}}] * 3}
    assert problems(schema, {"a": "x"}) == ('a: expected integer, got string "x"',)


def test_half_an_emoji_in_a_problem_can_be_sent() -> None:
    """SUR-9"""
    (problem,) = problems(READ, {"path": "/x", "\ud83d": 1})
    assert problem.encode()


# Alternatives


def test_alternatives_are_told_as_a_type_and_not_as_a_wall_of_text() -> None:
    """SUR-9"""
    schema = of(
        a={"anyOf": [{"type": "string"}, of(x={"type": "integer"}), of(y={"type": "integer"})]}
    )
    assert problems(schema, {"a": True}) == (
        "a: expected string | {x?: number} | {y?: number}, got boolean true",
    )
    scalar = of(a={"oneOf": [{"type": "integer"}, {"type": "boolean"}]})
    assert problems(scalar, {"a": "x"}) == ('a: expected integer or boolean, got string "x"',)
    both = of(a={"anyOf": [{**of(x={}), "required": ["x"]}, {**of(y={}), "required": ["y"]}]})
    assert problems(both, {"a": {}}) == ("a: expected {x: unknown} | {y: unknown}, got object {}",)
    long = of(a={"anyOf": [of(**{f"name{n}": {"type": "string"}}) for n in range(90)]})
    (problem,) = problems(long, {"a": 1})
    assert len(problem) < 250


def test_the_only_alternative_of_the_right_type_is_explained() -> None:
    """SUR-9: an optional object, as Pydantic writes it."""
    place = {**of(lat={"type": "number"}), "required": ["lat"]}
    schema = {
        **of(a={"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]}),
        "$defs": {"Place": place},
    }
    assert problems(schema, {"a": {"lat": "north"}}) == (
        'a.lat: expected number, got string "north"',
    )
    assert problems(schema, {"a": {}}) == ("a.lat: required and missing, expected number",)
    assert problems(schema, {"a": 5}) == ("a: expected {lat: number} | null, got number 5",)


def test_the_alternative_with_the_right_tag_is_explained() -> None:
    """SUR-9"""
    text = {**of(kind={"const": "text"}, body={"type": "string"}), "required": ["kind", "body"]}
    image = {**of(kind={"const": "image"}, url={"type": "string"}), "required": ["kind", "url"]}
    schema = of(part={"oneOf": [text, image]})
    assert problems(schema, {"part": {"kind": "image"}}) == (
        "part.url: required and missing, expected string",
    )
    assert problems(schema, {"part": {"kind": "imag", "url": "x"}}) == (
        'part.kind: expected one of "text", "image", got string "imag"; did you mean "image"?',
    )


def test_choices_spread_over_alternatives_are_one_list() -> None:
    """SUR-9"""
    schema = of(a={"anyOf": [{"const": "x"}, {"enum": ["y", "z"]}, {"type": "null"}]})
    assert problems(schema, {"a": "q"}) == (
        'a: expected one of "x", "y", "z", null, got string "q"',
    )


def test_a_value_that_fits_two_of_one_is_told() -> None:
    """SUR-9"""
    schema = of(a={"oneOf": [{"type": "integer"}, {"minimum": 5}]})
    assert problems(schema, {"a": 7}) == (
        "a: expected what fits only one of the alternatives, got number 7",
    )


def test_conditions_lead_to_the_branch_that_counts() -> None:
    """SUR-9"""
    schema = {
        **of(kind={"type": "string"}, size={}),
        "if": {"properties": {"kind": {"const": "big"}}},
        "then": {"properties": {"size": {"type": "integer"}}},
        "else": {"required": ["name"]},
    }
    assert problems(schema, {"kind": "big", "size": "x"}) == (
        'size: expected integer, got string "x"',
    )
    assert problems(schema, {"kind": "small"}) == ("name: required and missing, expected a value",)


# Repairs


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        ("integer", "5", 5),
        ("integer", " -12 ", -12),
        ("integer", "5.0", 5),
        ("integer", "1234567890123456789", 1234567890123456789),
        ("number", "5", 5),
        ("number", "0.25", 0.25),
        ("number", "1e3", 1000.0),
        ("boolean", "true", True),
        ("boolean", "False", False),
        (["integer", "null"], "5", 5),
        (["integer", "null"], "null", None),
        (["integer", "boolean"], "true", True),
        ("array", "[1, 2]", [1, 2]),
        ("object", '{"a": 1}', {"a": 1}),
        (["array", "object"], "[]", []),
        ("string", 123, "123"),
        ("string", 1.5, "1.5"),
        (["string", "null"], 123, "123"),
    ],
)
def test_a_value_that_can_mean_only_one_thing_is_taken_for_it(
    kind: Any, value: object, meant: object
) -> None:
    """SUR-9"""
    for schema in (
        of(a={"type": kind}),
        of(a={"anyOf": [{"type": k} for k in ([kind] if isinstance(kind, str) else kind)]}),
    ):
        arguments, repairs = mended(schema, {"a": value})
        assert arguments == {"a": meant}
        assert type(arguments["a"]) is type(meant)
        (told,) = repairs
        assert told.startswith("a: ")
        assert " taken as " in told


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", "007"),
        ("integer", "5.5"),
        ("integer", "0x10"),
        ("integer", "1_000"),
        ("integer", "1,000"),
        ("integer", "five"),
        ("integer", ""),
        ("integer", "٥"),
        ("number", "Infinity"),
        ("number", "NaN"),
        ("number", "1e999"),
        ("number", "[1]"),
        ("boolean", "yes"),
        ("boolean", "1"),
        ("boolean", 1),
        ("boolean", 0),
        ("integer", True),
        ("array", "a,b"),
        ("array", "a"),
        ("array", 5),
        ("array", {"a": 1}),
        ("array", '{"a": 1}'),
        ("array", "[1"),
        ("object", "{'a': 1}"),
        ("object", []),
        ("string", True),
        ("string", 5.0),
        ("string", 1e300),
        ("string", {"a": 1}),
        ("string", ["a"]),
        (["string", "array"], 5),
        (["integer", "boolean"], "x"),
    ],
)
def test_what_could_mean_something_else_is_not_guessed(kind: Any, value: object) -> None:
    """SUR-9"""
    assert len(problems(of(a={"type": kind}), {"a": value})) == 1


def test_a_text_stays_a_text_where_texts_are_allowed() -> None:
    """SUR-9"""
    for schema in (
        of(a={"type": ["string", "integer"]}),
        of(a={"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        of(a={}),
    ):
        arguments = {"a": "5"}
        assert check(schema, arguments).arguments is arguments
    refused = of(a={"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 3}]})
    assert problems(refused, {"a": "5"}) != ()


def test_a_whole_number_with_a_point_is_an_integer_in_every_draft() -> None:
    """SUR-9: as it came where the draft says so, repaired in draft 4."""
    arguments = {"a": 5.0}
    assert check(of(a={"type": "integer"}), arguments).arguments is arguments
    old = {"$schema": "http://json-schema.org/draft-04/schema#", **of(a={"type": "integer"})}
    repaired, repairs = mended(old, arguments)
    assert (repaired, type(repaired["a"]), repairs) == ({"a": 5}, int, ("a: 5.0 taken as 5",))


def test_null_for_what_may_be_left_out_is_left_out() -> None:
    """SUR-9: models often send null for what they do not use."""
    arguments, repairs = mended(
        READ, {"path": "/x", "limit": None, "mode": None, "options": {"depth": None}}
    )
    assert arguments == {"path": "/x", "options": {}}
    assert repairs == (
        "limit: null left out",
        "mode: null left out",
        "options.depth: null left out",
    )


def test_null_where_null_is_allowed_is_sent() -> None:
    """SUR-9"""
    arguments = {"a": None}
    assert check(of(a={"type": ["string", "null"]}), arguments).arguments is arguments


def test_a_choice_in_another_case_is_taken_for_the_only_one_like_it() -> None:
    """SUR-9"""
    assert mended(READ, {"path": "/x", "mode": "TEXT"}) == (
        {"path": "/x", "mode": "text"},
        ('mode: "TEXT" taken as "text"',),
    )
    assert problems(of(a={"enum": ["a", "A"]}), {"a": "á"}) != ()
    assert problems(of(a={"enum": ["ab", "AB"]}), {"a": "Ab"}) != ()
    assert mended(of(a={"enum": [1, 2]}), {"a": "2"})[0] == {"a": 2}
    assert mended(of(a={"type": "string", "enum": ["1", "2"]}), {"a": 2})[0] == {"a": "2"}
    assert problems(of(a={"enum": [1, 2]}), {"a": "3"}) != ()


def test_repairs_follow_each_other_inward() -> None:
    """SUR-9: a name, then the JSON text under it, then the number in that."""
    schema = of(the_list={"type": "array", "items": of(size={"type": "integer"})})
    arguments, repairs = mended(schema, {"theList": '[{"size": "5"}, {"size": null}]'})
    assert arguments == {"the_list": [{"size": 5}, {}]}
    assert repairs == (
        "theList: taken as the_list",
        "the_list: JSON text taken as an array",
        'the_list[0].size: "5" taken as 5',
        "the_list[1].size: null left out",
    )


def test_many_repairs_are_made_and_the_first_are_told() -> None:
    """SUR-9"""
    schema = of(a={"type": "array", "items": {"type": "integer"}})
    arguments, repairs = mended(schema, {"a": [str(n) for n in range(100)]})
    assert arguments == {"a": list(range(100))}
    assert repairs[0] == 'a[0]: "0" taken as 0'
    assert repairs[5:] == ("… and 95 more",)


def test_a_call_that_stays_wrong_is_refused_as_it_was_given() -> None:
    """SUR-9: nothing half repaired, and the problems of what was sent."""
    given_ = {"limit": "5", "ratio": "x", "path": "/x"}
    checked = check(READ, given_)
    assert checked.arguments is given_
    assert checked.repairs == ()
    assert checked.problems == (
        'limit: expected integer, got string "5"',
        'ratio: expected number, got string "x"',
    )
    assert problems(READ, {"path": "/x", "limit": "101"}) == (
        'limit: expected integer, got string "101"',
    )


def test_nothing_given_is_written_to() -> None:
    """SUR-9"""
    schema = of(a=of(n={"type": "integer"}), big={"type": "array"})
    given_ = {"a": {"n": "5", "other": [1]}, "big": [1, 2]}
    before = copy.deepcopy(given_)
    checked = check(schema, given_)
    assert checked.arguments == {"a": {"n": 5, "other": [1]}, "big": [1, 2]}
    assert given_ == before


# Compiled once


def test_a_definition_is_compiled_once_and_at_its_first_call() -> None:
    """SUR-9: not for a list, and not again."""
    schemas = Schemas()
    assert len(schemas) == 0
    compiled = schemas.compiled(READ)
    assert schemas.compiled(READ) is compiled
    assert len(schemas) == 1


def test_kept_validators_are_bounded_in_number_and_in_size() -> None:
    """SEC-6: servers come and go, and each brings definitions."""
    schemas = Schemas()
    for _ in range(MOST_COMPILED + 10):
        schemas.compiled({"type": "object"})
    assert len(schemas) == MOST_COMPILED
    for _ in range(MOST_KEPT // MOST_NODES + 10):
        schemas.compiled({"type": "object", "enum": list(range(MOST_NODES - 10))})
        schemas.compiled(
            {"type": "array", "enum": list(range(MOST_NODES * 2))}
        )  # not even looked at
    assert len(schemas) <= MOST_KEPT // (MOST_NODES - 10) + 1


def test_the_least_used_definition_is_forgotten_first() -> None:
    """SEC-6"""
    schemas = Schemas()
    compiled = schemas.compiled(READ)
    for _ in range(100):
        schemas.compiled({"type": "array"})
        assert schemas.compiled(READ) is compiled


# Hostile schemas


def test_no_reference_reaches_the_network_or_a_file(tmp_path: Path) -> None:
    """SUR-9: the validator would fetch them; here they are not followed, and the server judges."""
    (tmp_path / "schema.json").write_text('{"type": "integer"}')
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        for reference in (
            f"http://127.0.0.1:{port}/schema.json",
            (tmp_path / "schema.json").as_uri(),
            "other.json",
            "urn:x:y",
            "#anchor",
            "#/$defs/none",
            "",
            5,
        ):
            for schema in (
                {**of(a={"$ref": reference}, n={"type": "integer"}), "required": ["n"]},
                {
                    **of(a={}, n={"type": "integer"}),
                    "required": ["n"],
                    "$defs": {"unused": {"$ref": reference}},
                },
                {**of(a={"$dynamicRef": reference}, n={"type": "integer"}), "required": ["n"]},
                {**of(a={"$id": f"http://127.0.0.1:{port}/", "$ref": "x"}, n={"type": "integer"})},
                {"$schema": reference, **of(a={}, n={"type": "integer"})},
            ):
                assert check(schema, {"a": "text", "n": 5}).problems == ()
        far = {**of(a={"$ref": f"http://127.0.0.1:{port}/"}, n={"type": "integer"})}
        assert check(far, {"n": "x"}) == Checked({"n": "x"})
        with pytest.raises(BlockingIOError):
            listener.accept()


CIRCLES: list[Json] = [
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"allOf": [{"$ref": "#"}, {"required": ["x"]}]},
    {"anyOf": [{"$ref": "#"}] * 20},
    {"oneOf": [{"$ref": "#"}, {"type": "string"}]},
    {"not": {"$ref": "#"}},
    {"if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"}},
    {"$dynamicRef": "#x", "$dynamicAnchor": "x"},
    {"allOf": [{"$ref": "#"}], "unevaluatedProperties": False},
    {"dependentSchemas": {"a": {"$ref": "#"}}, "unevaluatedProperties": False},
    {
        "$ref": "#/$defs/a0",
        "$defs": {
            f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{k}"} for k in range(30)] + [False]}
            for i in range(30)
        },
    },
]


@pytest.mark.parametrize("schema", CIRCLES)
def test_references_in_circles_end(schema: Json) -> None:
    """SEC-6: they say nothing, so they refuse nothing."""
    arguments = {"a": {"a": 1}}
    assert check(schema, arguments) == Checked(arguments)


def test_a_schema_that_uses_itself_further_down_is_checked_to_every_usual_depth() -> None:
    """SUR-9: trees are legal."""
    node = {
        **of(name={"type": "string"}, children={"type": "array", "items": {"$ref": "#/$defs/Node"}})
    }
    schema = {
        **of(root={"$ref": "#/$defs/Node"}),
        "$defs": {"Node": {**node, "required": ["name"]}},
    }
    tree = {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}, {"name": "d"}]}
    assert check(schema, {"root": tree}).problems == ()
    tree["children"][0]["children"][0] = {"name": 5, "children": {}}
    assert problems(schema, {"root": tree}) == (
        "root.children[0].children[0].name: expected string, got number 5",
        "root.children[0].children[0].children: expected Node[], got object {}",
    )


def nested(depth: int, kind: type = dict) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value} if kind is dict else [value]
    return value


@pytest.mark.parametrize("depth", [10, 40, 1_000, 100_000])
def test_arguments_of_any_depth_are_survived(depth: int) -> None:
    """SEC-6: a validator that went along would overflow the stack, which nothing can catch."""
    recursive = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}}
    for schema in (
        recursive,
        of(a={}),
        of(a={"type": "object"}),
        of(a={"enum": [{"a": {}}]}),
        of(a={"uniqueItems": True}),
    ):
        arguments = {"a": nested(depth)}
        checked = check(schema, arguments)
        assert checked.arguments is arguments
        assert bool(checked.problems) == ("enum" in schema["properties"]["a"] and depth == 10)
    refused = {"a": nested(depth), "b": "x"}
    assert bool(check(recursive, refused).problems) == (depth == 10), (
        "what is deeper is for the server to judge"
    )


def doubling(levels: int) -> Json:
    """Two kilobytes that hold one value against two to the power of `levels` schemas."""
    defs: Json = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {
        **of(a={"$ref": "#/$defs/a0"}, n={"type": "integer"}),
        "$defs": {**defs, f"a{levels}": {"type": "string"}},
    }


def doubling_inward(levels: int) -> Json:
    inner: Json = {"type": "string"}
    defs: Json = {f"a{levels}": inner}
    for n in range(levels):
        defs[f"a{n}"] = {
            "anyOf": [{"properties": {"a": {"$ref": f"#/$defs/a{n + 1}"}}, "required": ["z"]}] * 2
        }
    return {**of(a={"$ref": "#/$defs/a0"}, n={"type": "integer"}), "$defs": defs}


def unevaluated(levels: int) -> Json:
    schema: Json = {"properties": {"a": {"type": "string"}}, "unevaluatedProperties": False}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return of(a=schema, n={"type": "integer"})


def unevaluated_doubling(levels: int) -> Json:
    """Never ends to be compiled, let alone to run."""
    schema = doubling(levels)
    schema["properties"]["a"]["unevaluatedProperties"] = False
    return schema


RECURSIVE: Json = {
    **of(a={"$ref": "#/$defs/v"}, n={"type": "integer"}),
    "$defs": {
        "v": {
            "anyOf": [
                {"properties": {"a": {"$ref": "#/$defs/v"}}, "required": [f"z{n}"]}
                for n in range(9)
            ]
        }
    },
}


@pytest.mark.parametrize(
    "schema",
    [doubling(60), doubling_inward(60), unevaluated(40), unevaluated_doubling(60), RECURSIVE],
)
def test_a_small_schema_that_asks_for_endless_work_is_left_to_the_server(schema: Json) -> None:
    """SEC-6: nobody can stop the validator once it runs, so what does not fit into a bound does not
    run."""
    arguments = {"a": nested(30), "n": "x"}
    assert check(schema, arguments) == Checked(arguments)


def test_the_same_schema_is_checked_where_that_is_little_work() -> None:
    """SUR-9: it is written out as far down as the arguments go."""
    assert problems(RECURSIVE, {"a": {"a": {}}}) != ()
    assert problems(doubling(5), {"a": True}) == ("a: expected string, got boolean true",)
    assert mended(doubling(5), {"a": 5})[0] == {"a": "5"}


def test_a_schema_is_never_judged_beyond_its_bound() -> None:
    """SEC-6: on schemas whose work is known."""
    for levels in (1, 5, 10, 11, 12, 20, 60):
        allowed = bounds_of(doubling(levels))
        assert (allowed is not None and allowed.allow({"a": 1})) == (2**levels < MOST_RULES / 3)
    allowed = bounds_of(RECURSIVE)
    assert allowed is not None
    for depth in range(40):
        assert allowed.allow({"a": nested(depth)}) == (depth < 2)


def deep_schema(depth: int) -> Json:
    schema: Json = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return {**of(a=schema, n={"type": "integer"}), "required": ["n"]}


def test_a_schema_too_large_or_too_deep_is_left_to_the_server() -> None:
    """SEC-6"""
    wide = {**of(n={"type": "integer"}, a={"enum": list(range(1_000_000))}), "required": ["n"]}
    many = {
        **of(n={"type": "integer"}, a={"anyOf": [{"minLength": n} for n in range(20_000)]}),
        "required": ["n"],
    }
    names = of(**{f"p{n}": {"type": "integer"} for n in range(100_000)})
    for schema in (wide, many, names, deep_schema(100_000)):
        for arguments in ({"n": 5, "a": "x"}, {}, {"n": "x"}, {"p1": "x"}):
            assert check(schema, arguments) == Checked(arguments)


def test_long_descriptions_are_nothing_to_judge() -> None:
    """SUR-9"""
    schema = {**of(n={"type": "integer", "description": "x" * 1_000_000}), "required": ["n"]}
    assert check(schema, {}).problems == ("n: required and missing, expected number",)


def test_compiling_is_bounded_for_any_schema() -> None:
    """SEC-6: in steps, which are the same on every machine."""
    chain: Json = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(1_500)}
    worst = {
        "$ref": "#/$defs/a0",
        "$defs": {**chain, "a1500": {"properties": {"a": {"$ref": "#"}}}},
    }
    for schema in (
        worst,
        RECURSIVE,
        {"anyOf": [of(a={})] * 100_000},
        of(a={"enum": list(range(1_000_000))}),
    ):
        assert count_steps(lambda schema=schema: check(schema, {"a": nested(30)})) < 3_000_000


def test_a_thousand_references_in_a_row_are_survived() -> None:
    """SEC-6"""
    chain: Json = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(1_000)}
    schema = {**of(a={"$ref": "#/$defs/a0"}), "$defs": {**chain, "a1000": {"type": "integer"}}}
    assert check(schema, {"a": 5}).problems == ()
    assert check(schema, {"a": []}).problems == (), "too long a way for us"


def test_patterns_run_in_linear_time() -> None:
    """SEC-6: this one takes a backtracking engine longer than the world has."""
    schema = of(a={"type": "string", "pattern": "^(a+)+$"})
    assert check(schema, {"a": "a" * 50_000}).problems == ()
    assert check(schema, {"a": "a" * 50_000 + "!"}).problems != ()


@pytest.mark.parametrize(
    "pattern",
    ["^(?=.*x)", r"(a)\1", "(?<!a)b", "(", "[z-a]", "((a{1000}){1000}){1000}", r"\p{Nope}"],
)
def test_a_pattern_that_is_none_or_not_linear_is_left_out_and_the_rest_counts(pattern: str) -> None:
    """SUR-9"""
    schema = {**of(a={"type": "string", "pattern": pattern, "maxLength": 3}, n={"type": "integer"})}
    assert check(schema, {"a": "abc", "n": 5}).problems == ()
    assert problems(schema, {"a": "abcd"}) == (
        'a: expected at most 3 characters, got string "abcd"',
    )
    assert problems(schema, {"n": "x"}) == ('n: expected integer, got string "x"',)


@pytest.mark.parametrize(
    "around", [{"not": {}}, {"oneOf": [{}, {"type": "null"}]}, {"if": {}, "then": False}]
)
def test_leaving_out_a_pattern_never_refuses_more(around: Json) -> None:
    """SUR-9: under `not` and its like, a rule less is a refusal more. Then the server judges."""
    inner = json.loads(json.dumps(around).replace("{}", '{"pattern": "^(?=y)"}', 1))
    schema = of(a=inner, n={"type": "integer"})
    assert check(schema, {"a": "no", "n": 5}).problems == ()
    assert check(schema, {"a": "no", "n": "x"}).problems == ()


def test_too_many_patterns_and_too_long_texts_are_not_run() -> None:
    """SEC-6: each is bounded, so both together are."""
    many = of(
        n={"type": "integer"}, **{f"p{n}": {"pattern": f"(a|b)*a(a|b){{{n}}}"} for n in range(200)}
    )
    assert check(many, {"p5": "x", "n": 5}).problems == ()
    names = {
        **of(n={"type": "integer"}),
        "patternProperties": {f"(a|b)*a(a|b){{{n}}}": True for n in range(20_000)},
    }
    assert check(names, {"p5": "x", "n": 5}).problems == ()
    long = {"p": "x" * 1_000_000, "n": 5}
    assert check(of(p={"pattern": "^y"}, n={"type": "integer"}), long) == Checked(long)


def test_a_panic_in_the_validator_is_not_the_callers_fault() -> None:
    """SEC-6"""

    class PanicException(BaseException):  # as the real one is called
        pass

    class Raising:
        def __init__(self, error: BaseException) -> None:
            self._error = error

        def is_valid(self, _: object) -> bool:
            raise self._error

    def compiled(error: BaseException) -> Compiled:
        return Compiled({}, validator=cast(Any, Raising(error)), bounds=bounds_of({}))

    assert compiled(PanicException()).passes({})
    with pytest.raises(KeyboardInterrupt):
        compiled(KeyboardInterrupt()).passes({})


# Hostile arguments


def test_wrong_arguments_are_explained_in_bounded_work_and_huge_ones_are_left_to_the_server() -> (
    None
):
    """SEC-6: asked for its reasons, the validator would copy a megabyte for each."""
    schema = {
        "allOf": [{**of(a={"type": "array", "items": {"type": "integer"}}), "required": ["b"]}] * 20
    }
    small = (["x" * 10] * 5_000, "x" * 4_000_000, {str(n): n for n in range(5_000)})
    huge = (["x" * 10] * 50_000, nested(50_000, list), {str(n): n for n in range(50_000)})
    for value in (*small, *huge):
        arguments = {"a": value}
        told: list[Checked] = []
        assert (
            count_steps(
                lambda arguments=arguments, told=told: told.append(check(schema, arguments))
            )
            < 2_000_000
        )
        assert bool(told[0].problems) == any(value is each for each in small)
        assert sum(map(len, told[0].problems)) < 2_000
        assert told[0].arguments is arguments


COSTLY = {
    "a long choice for each of many": (of(a={"items": {"enum": list(range(9_000))}}), [-1] * 2_000),
    "long texts under many patterns": (
        of(a={"allOf": [{"pattern": "^(a|b){1,50}$"}] * 400}),
        "a" * 60_000,
    ),
    "lists that must differ": (of(a={"uniqueItems": True}), [[n] for n in range(1_000)]),
    "numbers that take long to compare": (of(a={"items": {"multipleOf": 0.1}}), [5e-324] * 100),
    "fractions without number": (of(a={"items": {"multipleOf": 0.1}}), [0.3] * 100_000),
    "integers without end": (of(a={"items": {"minimum": 1}}), [10**4_000] * 100),
    "values without number": (of(a={"items": {"type": "string"}}), [1] * 300_000),
}


@pytest.mark.parametrize(("schema", "value"), COSTLY.values(), ids=COSTLY.keys())
def test_what_would_take_long_is_left_to_the_server(schema: Json, value: Any) -> None:
    """SEC-6: each of them is a fraction of a second, or many seconds."""
    schema = {**schema, "required": ["b"]}
    arguments = {"a": value}
    assert check(schema, arguments) == Checked(arguments)


def test_a_json_text_that_grows_when_read_is_counted_again() -> None:
    """SEC-6: the text is one value, what it spells may be a hundred thousand."""
    schema = {
        **of(a={"type": "array", "items": {"$ref": "#/$defs/v"}}),
        "$defs": {
            "v": {
                "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/v"}}] * 9
                + [{"type": "integer"}]
            }
        },
    }
    arguments, repairs = mended(schema, {"a": "[" * 30 + "1" + "]" * 30})
    assert repairs == ("a: JSON text taken as an array",)
    assert isinstance(arguments["a"], list)
    assert problems(schema, {"a": "[" * 100_000}) != ()


def test_hostile_names_and_choices_do_not_make_long_texts() -> None:
    """SEC-6"""
    schema = of(**{"p" * 100_000 + str(n): {"type": "string"} for n in range(20)})
    (problem,) = problems(schema, {"x" * 100_000: 1})
    assert len(problem) < 1_000
    choices = of(a={"enum": ["c" * 100_000 + str(n) for n in range(20)]})
    (problem,) = problems(choices, {"a": "d" * 100_000})
    assert len(problem) < 1_000
    assert "\n" not in problem


# Any schema, any arguments

SCALARS = st.sampled_from(
    [None, True, False, 0, 1, 5, 5.0, -1.5, "", "5", "true", "a", "A", "null", "[1]", '{"a": 1}']
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "A"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KINDS = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    maps = st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    known = {
        "type": KINDS | st.lists(KINDS, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "properties": maps,
        "required": st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(
            st.sampled_from(["^a", "(?=b)", "c$"]), inner, max_size=2
        ),
        "propertyNames": inner,
        "items": inner,
        "prefixItems": lists,
        "contains": inner,
        "uniqueItems": st.booleans(),
        "minimum": st.integers(-2, 6),
        "maxLength": st.integers(0, 3),
        "minItems": st.integers(0, 2),
        "pattern": st.sampled_from(["^a", "(?=a)", "(?!5)", "^$"]),
        "contentEncoding": st.just("base64"),
        "format": st.just("date"),
        "allOf": lists,
        "anyOf": lists,
        "oneOf": lists,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "unevaluatedProperties": inner,
        "dependentSchemas": maps,
        "$ref": st.sampled_from(["#", "#/$defs/x", "#/$defs/y", "#/$defs/none"]),
    }
    each = st.one_of([st.tuples(st.just(key), value) for key, value in known.items()])
    return st.lists(each, max_size=4).map(dict)


SCHEMAS = st.recursive(
    st.booleans() | st.builds(lambda kind: {"type": kind}, KINDS), keywords, max_leaves=5
)
ROOTS = st.builds(
    lambda draft, root, x, y: {
        **draft,
        **(root if isinstance(root, dict) else {}),
        "$defs": {"x": x, "y": y},
    },
    st.sampled_from([{}, {}, {"$schema": "http://json-schema.org/draft-07/schema#"}]),
    keywords(SCHEMAS),
    SCHEMAS,
    SCHEMAS,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "A"]), VALUES, max_size=4)


def judged(schema: Json, arguments: Json) -> bool | None:
    """What the validator says by itself, with every pattern it can do; None for a schema that is
    none."""
    kind = (
        jsonschema_rs.Draft7Validator if "$schema" in schema else jsonschema_rs.Draft202012Validator
    )
    try:
        return kind(schema, validate_formats=False, offline=True).is_valid(arguments)
    except ValueError:
        return None


def only_listed_names_are_wrong(schema: Json, arguments: Json) -> bool:
    return bool(arguments.keys() - schema.get("properties", {}).keys())


@calmly
@given(ROOTS, OBJECTS)
def test_what_the_schema_accepts_is_never_refused_or_changed(schema: Json, arguments: Json) -> None:
    """SUR-9: for any schema and any arguments, but for names that it does not list."""
    verdict = judged(schema, arguments)
    checked = check(schema, arguments)
    if verdict and not only_listed_names_are_wrong(schema, arguments):
        assert checked == Checked(arguments)
        assert checked.arguments is arguments
    assert bool(checked.problems) <= (checked.arguments is arguments)


PLAIN = st.recursive(
    st.builds(lambda kind: {"type": kind}, KINDS),
    lambda inner: (
        st.fixed_dictionaries(
            {"type": KINDS},
            optional={
                "enum": st.lists(VALUES, min_size=1, max_size=3),
                "properties": st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
                "required": st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True),
                "additionalProperties": st.just(False) | inner,
                "items": inner,
                "minimum": st.integers(-2, 6),
            },
        )
        | st.builds(
            lambda key, inner: {key: inner},
            st.sampled_from(["anyOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        )
    ),
    max_leaves=6,
)


@calmly
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), PLAIN, min_size=1, max_size=3), OBJECTS)
def test_what_is_called_after_a_repair_is_what_the_schema_accepts(
    properties: Json, arguments: Json
) -> None:
    """SUR-9: and what is refused comes with a reason, and as it was given."""
    schema = of(**properties)
    before = copy.deepcopy(arguments)
    checked = check(schema, arguments)
    assert arguments == before
    if checked.problems:
        assert checked.arguments is arguments
        assert checked.repairs == ()
    else:
        assert judged(schema, checked.arguments)
        assert checked.arguments.keys() <= properties.keys()
        assert bool(checked.repairs) == (checked.arguments is not arguments)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "$ref",
                    "items",
                    "anyOf",
                    "enum",
                    "required",
                    "$defs",
                    "pattern",
                    "$id",
                    "a",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@calmly
@given(JUNK, JUNK)
def test_nothing_that_is_sent_as_a_schema_or_as_arguments_raises(
    schema: Any, arguments: Any
) -> None:
    """SEC-6"""
    checked = check(schema, arguments)
    assert all(isinstance(problem, str) and problem.encode() for problem in checked.problems)


def _processor(work: Any) -> float:
    """The least of three times, in seconds of processor time: others may be at work here."""
    took: list[float] = []
    for _ in range(3):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


WIDE = {f"p{n}": {"type": "string", "description": "x" * 200} for n in range(4_000)}
IN_A_ROW = {
    f"d{n}": of(**{f"x{k}": {"$ref": f"#/$defs/d{(7 * n + k) % 400}"} for k in range(8)})
    for n in range(400)
}
BOUND = 0.5
"""Seconds of processor time: several times what it takes, less than what made it worth a test
(seconds)."""

MEGABYTES: list[Json] = [
    {"type": "object", "properties": WIDE},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": IN_A_ROW},
    of(**{f"p{n}": {"pattern": "|".join(f"w{n}x{k}" for k in range(5_000))} for n in range(10)}),
    of(**{f"p{n}": {"pattern": f"^.{{1,{900 + n}}}$"} for n in range(10)}),
    of(a={"anyOf": [{"const": str(n), "type": "string"} for n in range(2_600)]}),
    of(a={"enum": [f"choice {n} " + "x" * 100 for n in range(7_900)]}),
    {"type": "object", "required": [f"p{n}" for n in range(100_000)]},
]


@pytest.mark.parametrize("schema", MEGABYTES, ids=range(len(MEGABYTES)))
def test_a_schema_of_a_megabyte_does_not_hold_up_everybody(schema: Json) -> None:
    """SEC-6: compiling it, judging by it, explaining by it."""
    wrong: Json = {"a": 5, "p1": [], **{f"q{n}": n for n in range(3_000)}}
    assert _processor(lambda: Checker().check(schema, wrong)) < BOUND


def test_large_arguments_do_not_hold_up_everybody() -> None:
    """SEC-6: neither as they are nor as a text, neither right nor wrong in every place."""
    row = {f"f{n}": {"type": ["string", "null"], "maxLength": 9, "minLength": 1} for n in range(20)}
    schema = of(rows={"type": "array", "items": of(**row)})
    checker = Checker()
    for cell in ("abc", 5, [], None, "5" * 20):
        for count in (900, 50_000):
            rows = [{f"f{n}": cell for n in range(10)} for _ in range(count)]
            assert _processor(lambda rows=rows: checker.check(schema, {"rows": rows})) < BOUND
    text = json.dumps({"rows": [{"f1": "abc"}] * 200_000})
    assert _processor(lambda: checker.check(schema, text)) < BOUND
    assert checker.check(schema, text).problems
