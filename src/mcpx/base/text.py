"""Text from outside, made fit for messages, logs, and terminals."""

import re
from typing import Final

MAX_REASON_CHARACTERS: Final = 200

# Classes are disjoint, so that matching takes linear time.
UNSAFE_CLASS: Final = (
    "\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
"""Content of a regular expression's character class: characters that break lines, hide or reorder
text, or control a terminal."""

_UNSAFE = re.compile(f"[{UNSAFE_CLASS}]")
_UNSAFE_RUN = re.compile(f"[{UNSAFE_CLASS}]+")
# Whole sequences: colors, titles, links.
_TERMINAL_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]"
)


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters, and the number of those left out: `abc… [1,234 more]`."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}{more(len(text) - limit)}"


def more(count: int) -> str:
    """The mark for values that were left out."""
    return f"… [{count:,} more]"


def one_line(text: str, limit: int = MAX_REASON_CHARACTERS) -> str:
    """Replace unprintable characters and runs of whitespace by one space, and cut the line."""
    head = text[: 4 * limit]
    if not head.isprintable():
        head = "".join([c if c.isprintable() else " " for c in head])
    line = " ".join(head.split())
    left_out = max(len(line) - limit, 0) + len(text) - len(head)
    if not left_out:
        return line
    return f"{line[:limit]}{more(left_out)}"


def visible(text: str) -> str:
    r"""Escape unsafe characters: a line feed becomes `\n`, a zero-width space `\u200b`."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def terminal_safe(text: str) -> str:
    """Remove terminal sequences, and replace each run of unsafe characters by a space."""
    return _UNSAFE_RUN.sub(" ", _TERMINAL_SEQUENCE.sub("", text))
