"""SUR-4: the parameters of a tool as a search tells them."""

from typing import Any

import pytest

from mcpx.catalog.entries import parameters_of

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Where"},
        "head": {"$ref": "#/$defs/a~1b"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "odd": True,
    },
    "required": ["path"],
    "$defs": {"a/b": {"type": "integer"}},
}


def test_each_has_its_type_its_description_and_whether_it_is_required() -> None:
    """SUR-4"""
    assert parameters_of(SCHEMA) == {
        "path": {"type": "string", "description": "Where", "required": True},
        "head": {"type": "integer", "description": "", "required": False},
        "either": {"type": "integer | null", "description": "", "required": False},
        "odd": {"type": "any", "description": "", "required": False},
    }


@pytest.mark.parametrize(
    "schema", [None, True, [], {"properties": []}, {"properties": {}, "required": 3}]
)
def test_what_is_no_schema_has_no_parameters(schema: Any) -> None:
    """SUR-4"""
    assert parameters_of(schema) == {}
