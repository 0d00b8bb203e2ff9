from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.policy.patterns import LONGEST, REMEMBERED, Patterns


@pytest.mark.parametrize(
    ("patterns", "names", "meant"),
    [
        ([], ["a"], False),
        (["*"], ["a"], True),
        (["git*"], ["github"], True),
        (["git*"], ["GitHub"], False),
        (["?a"], ["ba"], True),
        (["[ab]x"], ["bx"], True),
        (["[!ab]x"], ["bx"], False),
        (["!secret"], ["a"], True),
        (["!secret"], ["secret"], False),
        (["a", "!b"], ["c"], False),
        (["*", "!b*", "b1"], ["b1"], True),
        (["*", "!b*", "b1"], ["b2"], False),
        (["!b*", "b1"], ["c"], False),
        (["b1", "!b*"], ["b1"], False),
        (["files.read"], ["files__read", "read", "files.read"], True),
        (["*", "!read"], ["files__read", "read", "files.read"], False),
        (["a*"], ["a\nb"], True),
        (["[a"], ["[a"], True),
    ],
)
def test_the_last_pattern_that_matches_any_of_the_names_decides(
    patterns: list[str], names: list[str], meant: bool
) -> None:
    assert Patterns(patterns).matches(*names) is meant
    once = Patterns(patterns)
    assert [once.matches(*names), once.matches(*names)] == [meant, meant]


def test_it_can_be_said_which_pattern_decided() -> None:
    patterns = Patterns(["*", "!b*", "b1"])
    assert patterns.decides("b2") == (False, 1)
    assert patterns.decides("b1") == (True, 2)
    assert Patterns(["a"]).decides("b") == (False, None)


def test_what_is_remembered_is_bounded() -> None:
    patterns = Patterns(["a*"])
    for number in range(REMEMBERED + 10):
        patterns.matches(f"a{number}")
    assert len(patterns._answers) <= REMEMBERED  # pyright: ignore[reportPrivateUsage]
    before = len(patterns._answers)  # pyright: ignore[reportPrivateUsage]
    assert patterns.matches("a" * (LONGEST + 1))
    assert len(patterns._answers) == before  # pyright: ignore[reportPrivateUsage]


def test_a_pattern_of_many_stars_takes_no_long_time() -> None:
    assert not Patterns(["*a" * 30 + "b"]).matches("a" * 5_000)


@given(st.text("ab*?[]\n", min_size=1, max_size=5), st.text("ab\n", max_size=6))
def test_a_pattern_means_what_a_glob_means(glob: str, name: str) -> None:
    assert Patterns([glob]).matches(name) is fnmatchcase(name, glob)
