"""Unified diff of two texts in linear time.

`difflib` compares the lines between the common beginning and the common end. If these are many,
they are shown as one change, because `difflib` would need quadratic time.
"""

import difflib
import re
from collections.abc import Sequence
from typing import Final

MAX_COMPARED_LINES: Final = 1_000
NO_NEWLINE: Final = "\n\\ No newline at end of file"


def lines_of(text: str) -> list[str]:
    """Return the lines without their ends. A last line without a newline is marked."""
    lines = text.splitlines()
    if text and not text.endswith("\n"):
        lines[-1] += NO_NEWLINE
    return lines


def common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return the length of the common beginning, and of the common end of the rest."""
    shortest = min(len(old), len(new))
    first = 0
    while first < shortest and old[first] == new[first]:
        first += 1
    last = 0
    while last < shortest - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last


def unified_diff(
    old: Sequence[str], new: Sequence[str], old_name: str, new_name: str, *, context: int = 3
) -> list[str]:
    """Return the lines of the diff. The result is empty if the texts are equal."""
    if old == new:
        return []
    first, last = common_ends(old, new)
    start, end = max(0, first - context), max(0, last - context)
    old_part, new_part = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(old_part), len(new_part)) <= MAX_COMPARED_LINES:
        lines = difflib.unified_diff(old_part, new_part, old_name, new_name, n=context, lineterm="")
        return [_renumbered(line, start) for line in lines]
    before, after = first - start, last - end
    return [
        f"--- {old_name}",
        f"+++ {new_name}",
        f"@@ -{_range(start, old_part)} +{_range(start, new_part)} @@",
        *(f" {line}" for line in old_part[:before]),
        *(f"-{line}" for line in old_part[before : len(old_part) - after]),
        *(f"+{line}" for line in new_part[before : len(new_part) - after]),
        *(f" {line}" for line in old_part[len(old_part) - after :]),
    ]


def _range(start: int, part: Sequence[str]) -> str:
    """Return the number of the first line, or of the line before an empty part."""
    return f"{start + min(1, len(part))},{len(part)}"


def _renumbered(line: str, start: int) -> str:
    """Add the lines that were left out at the beginning to the numbers of a hunk."""
    if not line.startswith("@@ "):
        return line
    return re.sub(r"([-+])(\d+)", lambda number: f"{number[1]}{int(number[2]) + start}", line)
