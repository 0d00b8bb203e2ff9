"""Words that are nearly right."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpx.catalog.search.query import Spellings, slips

WORDS = [
    "search",
    "weather",
    "forecast",
    "screenshot",
    "presentation",
    "file",
    "fill",
    "repository",
    "commit",
]


def spellings(words: list[str] = WORDS) -> Spellings:
    return Spellings(words, lambda word: 9 if word == "fill" else 1)


@pytest.mark.parametrize(
    ("one", "other", "number"),
    [
        ("a", "a", 0),
        ("ab", "ba", 1),
        ("abc", "ac", 1),
        ("abc", "abxc", 1),
        ("abc", "axc", 1),
        ("abcd", "badc", 2),
    ],
)
def test_slips_are_counted(one: str, other: str, number: int) -> None:
    """FMT-3"""
    assert slips(one, other, 2) == slips(other, one, 2) == number
    assert slips(one, other, 0) == min(number, 1)


def a_slip(word: str) -> st.SearchStrategy[str]:
    at = st.integers(0, len(word) - 1)
    letter = st.sampled_from(string.ascii_lowercase)
    return st.one_of(
        at.map(lambda n: word[:n] + word[n + 1 :]),
        at.filter(lambda n: n < len(word) - 1).map(
            lambda n: word[:n] + word[n + 1] + word[n] + word[n + 2 :]
        ),
        st.builds(lambda n, new: word[:n] + new + word[n:], at, letter),
        st.builds(lambda n, new: word[:n] + new + word[n + 1 :], at, letter),
    )


@settings(deadline=None)
@given(
    st.sampled_from([word for word in WORDS if len(word) > 5]).flatmap(
        lambda word: st.tuples(st.just(word), a_slip(word))
    )
)
def test_one_slip_is_found_wherever_it_stands(pair: tuple[str, str]) -> None:
    """FMT-3"""
    word, slipped = pair
    assert spellings().near(slipped, 3)[:1] == [word]


@pytest.mark.parametrize(
    "slipped", ["presnetaton", "presentatoin", "prezentacion", "repostory", "scrensot"]
)
def test_long_words_may_have_two_slips(slipped: str) -> None:
    """FMT-3"""
    assert len(spellings().near(slipped, 3)) == 1


def test_short_words_and_numbers_are_not_guessed_at() -> None:
    """FMT-3"""
    assert spellings().near("fie", 3) == []
    assert spellings().near("4096", 3) == []
    assert spellings().near("wther", 3) == [], "two slips are too many for a short word"


def test_of_equally_near_words_the_frequent_comes_first() -> None:
    """FMT-3"""
    assert spellings().near("fild", 3) == ["fill", "file"]


def test_an_unfinished_word_leads_to_its_continuations() -> None:
    """FMT-3"""
    assert spellings().starting("fi", 5) == ["fill", "file"]
    assert spellings().starting("fi", 1) == ["fill"]
    assert spellings().starting("zzz", 5) == []
