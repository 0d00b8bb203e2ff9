"""SUR-9: what a model is told to say can be copied."""

import json

import pytest

from mcpx.surfaces.phrases import LONGEST_TO_COPY, exact


@pytest.mark.parametrize(
    "name", ["plain", 'quo"te', "back\\slash", "two\nlines", "a  b", "字", "\u202eturned", "\ud83d"]
)
def test_a_name_to_copy_is_a_json_string_on_one_line(name: str) -> None:
    """SUR-9: whatever is in it, it is the name; nothing in it is invisible."""
    assert json.loads(exact(name)) == name
    assert exact(name).isprintable()


def test_a_name_that_is_too_long_is_cut() -> None:
    """SUR-9"""
    assert json.loads(exact("n" * 9000)) == "n" * LONGEST_TO_COPY + "..."
