"""`base.text_diff`: diffs are those of difflib, and long ones take linear time."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.base import text_diff
from mcpx.base.text_diff import lines_of, unified_diff

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12)


def applied(old: list[str], diff: list[str]) -> list[str]:
    """Apply a unified diff."""
    new: list[str] = []
    at = 0
    for line in diff[2:]:
        if line.startswith("@@ "):
            begin, _, count = line.split()[1][1:].partition(",")
            start = int(begin) - (count != "0")  # The number of an empty part is one less.
            new += old[at:start]
            at = start
        elif line.startswith("+"):
            new.append(line[1:])
        else:
            assert old[at] == line[1:]
            if line.startswith(" "):
                new.append(line[1:])
            at += 1
    return new + old[at:]


@given(LINES, LINES, st.integers(0, 3), st.sampled_from([0, 3, 1_000]))
def test_a_diff_turns_the_old_text_into_the_new_one(
    old: list[str], new: list[str], context: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_diff, "MAX_COMPARED_LINES", most)
        diff = unified_diff(old, new, "old", "new", context=context)
    if old == new:
        assert diff == []
        return
    assert diff[:2] == ["--- old", "+++ new"]
    assert applied(old, diff) == new


def test_small_texts_have_the_diff_of_difflib() -> None:
    old = [f"line {number}" for number in range(30)]
    new = [*old[:10], "changed", *old[11:20], *old[25:]]
    expected = list(difflib.unified_diff(old, new, "a", "b", lineterm=""))
    assert unified_diff(old, new, "a", "b") == expected


def test_a_missing_newline_is_marked() -> None:
    assert lines_of("a\nb\n") == ["a", "b"]
    diff = "\n".join(unified_diff(lines_of("a\nb"), lines_of("a\nb\n"), "x", "y"))
    assert diff.splitlines()[3:] == [" a", "-b", "\\ No newline at end of file", "+b"]


def test_a_long_difference_is_one_change() -> None:
    old = ["same", *(f"old {number}" for number in range(50_000)), "end"]
    new = ["same", *(f"new {number}" for number in range(50_000)), "end"]
    diff = unified_diff(old, new, "a", "b", context=1)
    assert diff[2:4] == ["@@ -1,50002 +1,50002 @@", " same"]
    assert diff[-1] == " end"
    assert len(diff) == 3 + 2 + 100_000
