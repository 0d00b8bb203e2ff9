"""`.env` files as the usual tools read them: comments, `export`, quotes, values over several lines.

Promised: one pass, no failure; lines that are no assignment are counted, not guessed at. Variables
inside values stay as they are.
"""

import re
from collections.abc import Iterator

_ASSIGNMENT = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)"
_CLOSING = {"'": "'", '"': r'(?<!\\)(?:\\\\)*"'}
_COMMENT = r"(?:^|\s)#.*"
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse(text: str) -> tuple[dict[str, str], list[int]]:
    """The variables, and the numbers of the lines that could not be read."""
    values: dict[str, str] = {}
    odd: list[int] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(_ASSIGNMENT, line)
        if not match:
            odd.append(number)
        elif match[2][:1] in _CLOSING:
            value = _quoted(match[2], (more for _, more in lines))
            if value is None:
                odd.append(number)
            else:
                values[match[1]] = value
        else:
            values[match[1]] = re.sub(_COMMENT, "", match[2]).rstrip()
    return values, odd


def _quoted(value: str, more: Iterator[str]) -> str | None:
    """The text between the quotes; keys and certificates go on over several lines."""
    quote, part = value[0], value[1:]
    parts: list[str] = []
    while (end := re.search(_CLOSING[quote], part)) is None:
        parts.append(part)
        following = next(more, None)
        if following is None:
            return None
        part = following
    whole = "\n".join([*parts, part[: end.end() - 1]])
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), whole) if quote == '"' else whole
