"""Tokens without a tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.formats.tokens import estimate


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("工具", 2),
        ("工具 ab", 3),
        ("naïve", 2),
        ("🎉", 1),
        ("\ud83d", 1),
    ],
)
def test_four_ascii_characters_or_one_other_are_a_token(text: str, tokens: int) -> None:
    """SUR-10: ASCII characters / 4 + other characters, rounded up."""
    assert estimate(text) == tokens


@given(st.text(), st.text())
def test_two_texts_together_are_never_more_than_both_alone(one: str, other: str) -> None:
    """SUR-10"""
    assert (
        max(estimate(one), estimate(other))
        <= estimate(one + other)
        <= estimate(one) + estimate(other)
    )
