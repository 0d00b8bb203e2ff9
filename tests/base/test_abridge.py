"""`base.abridge`: values of any size become short, and each cut is marked."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.base.abridge import MAX_NUMBER_BITS, Abridged, Limits, abridge

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=60,
)
LIMITS = st.builds(
    Limits,
    text=st.integers(1, 20),
    items=st.integers(1, 6),
    depth=st.integers(1, 4),
    nodes=st.integers(1, 40),
    tail=st.integers(0, 5),
)
MARK = 40  # Characters of a mark, at most.


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(count, value))
    return 1


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for each in value.values() for text in texts(each))]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    return [value] if isinstance(value, str) else []


@given(VALUES, LIMITS)
def test_the_result_keeps_all_limits(value: Any, limits: Limits) -> None:
    short = abridge(value, limits)
    json.dumps(short)
    assert depth(short) <= limits.depth
    assert count(short) <= 2 * limits.nodes + 1  # Each object and array may have one mark more.
    for text in texts(short):
        assert len(text) <= limits.text + limits.tail + MARK


@given(VALUES)
def test_a_value_within_the_limits_is_not_changed(value: Any) -> None:
    wide = Limits(text=100, items=100, depth=100, nodes=10**30)
    assert abridge(value, wide) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x" * 12, "xxxxx… [7 more]"),
        ([1, 2, 3, 4, 5], [1, 2, 3, "… [2 more]"]),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, {"a": 1, "b": 2, "c": 3, "…": "… [1 more]"}),
        ([[[1]]], [["… [1 more]"]]),
        ({"aaaaabc": 1, "aaaaade": 2}, {"aaaaa… [2 more]": 1, "aaaaa… [2 more]′": 2}),
        (2 ** (MAX_NUMBER_BITS + 1), f"a number of {MAX_NUMBER_BITS + 2} bits"),
        ([], []),
        ({}, {}),
        (1.5, 1.5),
    ],
)
def test_cuts_are_marked(value: Any, expected: Any) -> None:
    assert abridge(value, Limits(text=5, items=3, depth=2, nodes=100)) == expected


def test_a_large_entry_does_not_hide_the_others() -> None:
    short = abridge({"large": [0] * 1000, "last": ["seen"]}, Limits(items=1000, nodes=20))
    assert short["last"] == ["seen"]


def test_the_end_of_a_text_can_be_kept() -> None:
    assert abridge("a" * 10 + "z", Limits(text=3, tail=2)) == "aaa… [6 more] …az"


def test_secrets_are_removed_before_texts_are_cut() -> None:
    def redact(text: str) -> str:
        return text.replace("secret", "***")

    value = {"password": 5, "is_password": True, "text": "xx secret behind", "secret": "xsecret"}
    short = abridge(value, Limits(text=5), redact, lambda key: "password" in key)
    assert short == {
        "passw… [3 more]": "***",
        "is_pa… [6 more]": True,
        "text": "xx **… [8 more]",
        "***": "x***",
    }


def test_an_abridged_value_is_shortened_when_it_is_written() -> None:
    assert str(Abridged({"a": "x" * 100}, Limits(text=2))) == "{'a': 'xx… [98 more]'}"
    assert str(Abridged("text", Limits())) == "text"
