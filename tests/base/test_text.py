"""`base.text`: text from outside stays bounded, on one line, and harmless for terminals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.base import text as texts


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc… [1 more]"),
        ("x" * 2_000, 2, "xx… [1,998 more]"),
    ],
)
def test_cut_counts_what_it_leaves_out(text: str, limit: int, expected: str) -> None:
    assert texts.cut(text, limit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  two\n words ", "two words"),
        ("a\x1b[31mb\u202ec", "a [31mb c"),
        ("x" * 12, "x" * 10 + "… [2 more]"),
        ("y" * 1_010, "y" * 10 + "… [1,000 more]"),
    ],
)
def test_one_line_is_printable_and_short(text: str, expected: str) -> None:
    assert texts.one_line(text, 10) == expected


@given(st.text(), st.integers(1, 50))
def test_one_line_is_always_one_bounded_printable_line(text: str, limit: int) -> None:
    line = texts.one_line(text, limit)
    assert line.isprintable()
    assert len(line) <= limit + len(texts.more(len(text)))


@pytest.mark.parametrize(
    ("text", "visible", "terminal_safe"),
    [
        ("plain é 文", "plain é 文", "plain é 文"),
        ("a\nb\tc", "a\\nb\\tc", "a b c"),
        ("\x1b[1;31mred\x1b[0m", "\\x1b[1;31mred\\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "\\x1b]0;title\\x07text", "text"),
        ("zero\u200bwidth", "zero\\u200bwidth", "zero width"),
        ("tag\U000e0041", "tag\\U000e0041", "tag "),
        ("half\ud83d", "half\\ud83d", "half "),
    ],
)
def test_unsafe_characters_are_escaped_or_removed(
    text: str, visible: str, terminal_safe: str
) -> None:
    assert texts.visible(text) == visible
    assert texts.terminal_safe(text) == terminal_safe


@given(st.text())
def test_no_unsafe_character_remains(text: str) -> None:
    for safe in (texts.visible(text), texts.terminal_safe(text)):
        assert texts.visible(safe) == safe
