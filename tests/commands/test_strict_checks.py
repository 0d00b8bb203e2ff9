"""SRC-5: arguments of commands are judged here or not let through: nobody else looks at them."""

import pytest

from mcpx.commands.parameters import Parameter, names_in, schema_of
from mcpx.surfaces.checking.arguments import Checker

GUARDED = schema_of(
    [
        Parameter(name="name", pattern="^[a-z]+$", required=True),
        Parameter(name="count", type="integer", max=100),
        Parameter(name="text"),
        Parameter(name="tree", type="object"),
        Parameter(name="list", type="array"),
    ]
)


def deep(levels: int) -> dict[str, object]:
    return {"n": deep(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"text": "x" * 200_000},
        {"list": list(range(50_000))},
        {"tree": deep(40)},
        {"text": "\ud800"},
        {"count": 10**30},
        {"text": "x" * 4_000_000},
        {"tree": deep(240)},
        {"list": [1e400]},
    ],
    ids=["nothing", "text", "list", "deep", "half", "huge", "largest", "deepest", "infinite"],
)
def test_what_is_large_or_odd_does_not_carry_the_rest_past_the_check(
    beside: dict[str, object],
) -> None:
    checker = Checker()
    for wrong in ({"name": "../etc"}, {}, {"name": "a", "other": 1}):
        assert checker.check(GUARDED, {**wrong, **beside}, mend=False).problems


@pytest.mark.parametrize(
    "beside",
    [
        {"text": "x" * 200_000},
        {"list": list(range(50_000))},
        {"tree": deep(40)},
        {"text": "\ud800"},
    ],
)
def test_what_is_large_or_odd_and_right_passes(beside: dict[str, object]) -> None:
    assert not Checker().check(GUARDED, {"name": "a", **beside}, mend=False).problems


def test_a_number_beyond_64_bits_is_held_against_its_bounds() -> None:
    said = Checker().check(GUARDED, {"name": "a", "count": 10**30}, mend=False).problems
    assert "count" in said[0]
    free = schema_of([Parameter(name="count", type="integer")])
    assert not Checker().check(free, {"count": 10**30}, mend=False).problems


def test_many_patterns_are_all_checked() -> None:
    schema = schema_of(
        [Parameter(name=f"p{at}", pattern=f"^[a-z]{{{at}}}$") for at in range(1, 40)]
    )
    assert Checker().check(schema, {"p39": "no"}, mend=False).problems
    assert not Checker().check(schema, {"p3": "abc"}, mend=False).problems


def test_the_names_of_a_schema_are_found_behind_its_references() -> None:
    schema = {
        "$ref": "#/$defs/a~1b",
        "allOf": [
            {"properties": {"y": {}}},
            {"$ref": "#"},
            {"$ref": "#/$defs/none"},
            {"$ref": "elsewhere"},
        ],
        "properties": {"x": {}},
        "$defs": {
            "a/b": {
                "properties": {"z": {"properties": {"not_me": {}}}},
                "anyOf": [{"$ref": "#/$defs/a~1b"}],
            }
        },
    }
    assert sorted(names_in(schema)) == ["x", "y", "z"]
