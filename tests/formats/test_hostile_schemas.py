"""Schemas from strangers: whatever they hold, the text comes, is bounded, and is closed where it
was opened."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpx.formats.typescript import MAX_DEPTH, MAX_TEXT, signature, type_text

Json = dict[str, Any]

LONGEST = 2 * MAX_TEXT
"""The purse, and what was begun before it was empty."""

TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|=>|[^"]', re.DOTALL)
PAIRS = {"{": "}", "[": "]", "(": ")"}


def well_formed(text: str) -> bool:
    """Strings and comments end, and brackets outside of them match."""
    opened: list[str] = []
    at = 0
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None or (text.startswith("/*", at) and not token.group().startswith("/*")):
            return False
        at = token.end()
        if token.group() in PAIRS:
            opened.append(PAIRS[token.group()])
        elif token.group() in PAIRS.values() and (not opened or opened.pop() != token.group()):
            return False
    return not opened


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{a: "}" /* ) */}', True),
        ("{a", False),
        ("(a]", False),
        ('"a', False),
        ("/* a", False),
        ("/* a */ b */ }", False),
    ],
)
def test_the_judge_of_these_tests_can_tell(text: str, verdict: bool) -> None:
    assert well_formed(text) is verdict


words = st.text(max_size=12) | st.sampled_from(
    ["*/", "/*", '"', "\\", "}", "\n", "a-b", "path", "\ud83d", "\u2028"]
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
pointers = st.sampled_from(
    ["#", "#/$defs/a", "#/$defs/b", "#/properties/path", "#/$defs/a/items", "#/gone", "x", ""]
)
kinds = st.sampled_from(
    ["string", "integer", "number", "boolean", "null", "object", "array", "odd"]
)


def schemas(inner: st.SearchStrategy[object]) -> st.SearchStrategy[Json]:
    """Keywords that mean something, with values that mostly do."""
    several = st.lists(inner, max_size=4)
    named = st.dictionaries(words, inner, max_size=4)
    sound: dict[str, st.SearchStrategy[object]] = {
        "type": kinds | st.lists(kinds, max_size=3),
        "properties": named,
        "patternProperties": named,
        "required": st.lists(words, max_size=3),
        "additionalProperties": inner,
        "propertyNames": inner,
        "items": inner | several,
        "prefixItems": several,
        "anyOf": several,
        "oneOf": several,
        "allOf": several,
        "$ref": pointers,
        "enum": st.lists(junk, max_size=4),
        "const": junk,
        "default": junk,
        "nullable": st.booleans(),
        "not": inner,
        "description": words | st.text(min_size=80, max_size=300),
        "format": words,
        "pattern": words,
        **dict.fromkeys(
            ("minimum", "maximum", "minLength", "maxItems", "multipleOf"),
            st.integers() | st.floats(),
        ),
    }
    # A few keywords at a time; one value in four is not what its keyword wants.
    chosen = st.lists(st.sampled_from(sorted(sound)), max_size=5, unique=True)
    return chosen.flatmap(
        lambda keys: st.fixed_dictionaries(
            {key: st.one_of(*[sound[key]] * 3, junk) for key in keys}
        )
    )


subschemas = st.recursive(junk, schemas, max_leaves=8)
documents = st.builds(
    lambda root, defs: {**root, "$defs": defs} if isinstance(root, dict) else root,
    subschemas,
    st.dictionaries(st.sampled_from(["a", "b"]), subschemas),
)


@settings(max_examples=400, deadline=None)
@given(documents, st.none() | st.integers(-1, 200))
def test_any_schema_has_a_text_that_is_bounded_and_closed(
    schema: object, length: int | None
) -> None:
    """FMT-1"""
    text = signature("tool", schema, max_description_len=length)

    assert len(text) <= LONGEST
    assert well_formed(text), text
    assert all(line.startswith("type ") for line in text.split("\n")[1:])
    assert text == signature("tool", schema, max_description_len=length)
    text.encode()


def wide(count: int) -> Json:
    return {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "description": "d" * 90} for n in range(count)},
    }


def laughs() -> Json:
    """Each definition uses the next one twice: written in place it would be 2 to the power of 60
    long."""
    both = [
        {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(60)
    ]
    return {"$defs": {f"d{n}": schema for n, schema in enumerate(both)}, "$ref": "#/$defs/d0"}


def nested(levels: int, width: int, **inside: object) -> object:
    schema: object = inside
    for _ in range(levels):
        schema = {"type": "array", "prefixItems": [schema] * width}
    return schema


def deep(levels: int) -> object:
    schema: object = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def every_definition_uses_every_other(count: int) -> Json:
    uses = {"properties": {f"q{n}": {"$ref": f"#/$defs/d{n}"} for n in range(count)}}
    return {"$defs": {f"d{n}": uses for n in range(count)}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    "schema",
    [
        wide(100_000),
        laughs(),
        nested(12, 50, type="object", properties={"z": {}}),
        nested(12, 50, const=False),
        deep(600),
        every_definition_uses_every_other(150),
        {"type": ["object"] * 1_000, "required": [f"r{n}" for n in range(50_000)]},
        {
            "anyOf": [
                {"type": "object", "properties": {f"p{n}": {"type": "string"}}}
                for n in range(20_000)
            ]
        },
        {"anyOf": [{}] * 100_000},
        {"enum": ["e" * 1_000_000] * 3},
        {"const": [["c"] * 1_000] * 100},
        {
            "properties": {
                "n" * 1_000_000: {"default": "d" * 1_000_000, "description": "x" * 1_000_000}
            }
        },
        {"properties": {f"p{n}": {"$ref": f"#/properties/p{n + 1}"} for n in range(20_000)}},
        {"$ref": "#/" + "a/" * 1_000_000},
        {"properties": {"x": {"default": 10**4_000, "minimum": 10**4_000, "enum": [10**4_000]}}},
    ],
    ids=lambda schema: str(next(iter(schema)))[:12],
)
def test_a_hostile_schema_has_a_bounded_text(schema: object) -> None:
    """FMT-1"""
    for length in (None, 0, 10**9):
        text = type_text(schema, max_description_len=length)

        assert len(text) <= LONGEST
        assert text.count("\ntype ") <= 100
        assert well_formed(text)


def test_a_document_too_large_to_survey_names_its_definitions() -> None:
    """FMT-1: whether they are recursive or not; this one is, behind more schemas than are looked
    at."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    filling = {f"p{n}": {"type": "null"} for n in range(6_000)}
    schema = {"$defs": {"Node": node}, "properties": {"first": {"$ref": "#/$defs/Node"}, **filling}}

    text = type_text(schema)

    assert text.startswith("{first?: Node, p0?: null, ")
    assert "\ntype Node = " in text


def test_what_was_left_out_is_counted() -> None:
    """FMT-1"""
    text = type_text(wide(10_000))

    kept = text.count("?: string")
    assert 100 < kept < 10_000
    assert text.endswith(f", ... {10_000 - kept} more}}")


def test_nesting_ends_at_a_known_depth() -> None:
    """FMT-1"""
    assert type_text(deep(MAX_DEPTH)) == "{a?: " * MAX_DEPTH + "string" + "}" * MAX_DEPTH
    assert type_text(deep(MAX_DEPTH + 20)) == "{a?: " * MAX_DEPTH + "object" + "}" * MAX_DEPTH


def test_half_an_emoji_does_not_spoil_the_text() -> None:
    """FMT-1: it can be sent as UTF-8."""
    schema = {
        "properties": {
            "a\ud83d": {"enum": ["\ud83d"], "description": "cut \ud83d", "default": "ok"}
        }
    }

    assert type_text(schema) == '{"a\\ud83d"?: "\\ud83d" /* cut \\ud83d; default: "ok" */}'
