"""JSON as editors and clients write it: with comments and trailing commas, refused where it is ambiguous.

Promised: one pass over the text whatever it holds; what is taken out leaves spaces, so that every position
holds. Not done here: positions themselves (`compose` finds them when somebody asks).
"""

import json
import re
from typing import Any

from mcpx.config.nodes import MAX_DEPTH, MAX_NODES
from mcpx.config.problems import Place
from mcpx.config.tree import Tree, children, shorten

# Patterns stay text: strict JSON, the usual case, needs none of them compiled. A string left open is eaten to the
# end of its line, a comment to the end of the file: one pass is enough.
_STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?'
_COMMENT = rf"(?s){_STRING}|(//[^\n]*|/\*.*?(?:\*/|\Z))"
_TRAILING_COMMA = rf"{_STRING}|(,)(?=\s*[}}\]])"
_NOT_YAML = (
    r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
    r"|[^\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""Surrogates, also escaped ones, and what YAML calls not printable; tabs, because YAML minds them."""


class NotJsonError(Exception):
    def __init__(self, reason: str, place: Place | None = None) -> None:
        super().__init__(reason)
        self.place = place


def loads(text: str) -> tuple[Any, str | None]:
    """The value, and a key that some object holds twice, if one does."""
    doubled: list[str] = []

    def table(pairs: list[tuple[str, Any]]) -> Tree:
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        left = set(result)
        doubled.append(next(key for key, _ in pairs if key not in left or left.remove(key)))
        return dict(reversed(pairs))  # the first one counts, as in YAML

    def strict(text: str) -> Any:
        return json.loads(text, object_pairs_hook=table, parse_constant=_refuse_constant)

    try:
        try:
            tree = strict(text)
        except json.JSONDecodeError:
            doubled.clear()
            tree = strict(_without_comments(text))
    except json.JSONDecodeError as error:
        reason = f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]}"
        raise NotJsonError(reason, Place(error.lineno, error.colno)) from None
    except RecursionError:
        raise NotJsonError(f"nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:  # a number of five thousand digits
        raise NotJsonError(f"not valid JSON: {shorten(str(error))}") from None
    _check_bounds(tree)
    return tree, doubled[0] if doubled else None


def as_yaml(text: str) -> str:
    """The same text for a YAML reader; every character that matters keeps its line and column."""
    return re.sub(_NOT_YAML, lambda odd: " " * len(odd[0]), _without_comments(text))


def _without_comments(text: str) -> str:
    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0]) if match[1] else match[0]

    return re.sub(_TRAILING_COMMA, blank, re.sub(_COMMENT, blank, text))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _check_bounds(tree: object) -> None:
    left = MAX_NODES
    level: list[object] = [tree]
    for _ in range(MAX_DEPTH + 1):
        left -= len(level)
        if left < 0:
            raise NotJsonError(f"holds more than {MAX_NODES:,} values")
        level = [child for node in level for child in children(node)]
        if not level:
            return
    raise NotJsonError(f"nested more than {MAX_DEPTH} levels deep")
