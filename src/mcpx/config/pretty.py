"""JSON with long lines laid out in several lines, for showing a difference. Files keep their
form."""

import json

from mcpx.config.source import tree_of

LONG_LINE = 80
"""Characters of a line with an object from which the two texts are laid out anew."""


def in_lines(before: str, after: str) -> tuple[str, str]:
    """The two texts, both laid out if one of them has an object on a long line. Texts with comments
    stay unchanged."""
    if not (_has_long_line(before) or _has_long_line(after)):
        return before, after
    laid_out = [_laid_out(text) for text in (before, after)]
    if None in laid_out:
        return before, after
    return str(laid_out[0]), str(laid_out[1])


def _has_long_line(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    lines = text.strip().splitlines()
    return len(lines) == 1 or any(len(line) > LONG_LINE and "{" in line for line in lines)


def _laid_out(text: str) -> str | None:
    if not text.strip():
        return text
    if not text.lstrip().startswith("{"):
        return None
    tree = tree_of(text.strip(), "json")
    return None if tree is None else json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
