"""The `instructions` of a greeting (PRO-3): a sentence of our own, the names of the servers, and
what each says itself.

Promise: at most `limit` bytes of UTF-8, whatever servers say and however many there are. Short
texts come whole, long ones share what is left and are cut at the end of a sentence; one that is cut
ends in `…`. Text of a server is one paragraph behind its name: it begins no line, so it can pass
for no heading and for no other server. No promise: that a model is not taken in by what the text
says.
"""

import re
from collections.abc import Sequence

LIMIT = 4096
"""Bytes of all of it."""
NAMES = 2048
"""Bytes of our own sentence, with the names."""
LEAST = 120
"""Bytes below which a part is not worth its place: of more servers than that the first come
first."""

_OURS = "mcpx is one gateway in front of several MCP servers"
_SENTENCE = re.compile(r"[.!?][\"')\]]*(?= )|[。！？…]")
_CUT = " …"


def instructions(servers: Sequence[tuple[str, str]], *, direct: bool, limit: int = LIMIT) -> str:
    """`servers`: name and own text of each, in the order of the config. `direct`: whether the texts
    are wanted too."""
    head = _names([_one_line(name) for name, _ in servers], min(limit, NAMES))
    if not direct:
        return head
    room = limit - _size(head)
    parts = [
        (_one_line(name), text) for name, told in servers if (text := _one_line(told[: 4 * limit]))
    ]
    parts = parts[: max(room // LEAST, 0)]
    whole = [f"\n\n{name}: {text}" for name, text in parts]
    fitted = [""] * len(parts)
    left = len(parts)
    for at in sorted(range(len(parts)), key=lambda at: _size(whole[at])):
        fitted[at] = _fit(whole[at], f"\n\n{parts[at][0]}: ", room // left)
        room -= _size(fitted[at])
        left -= 1
    return head + "".join(fitted)


def _names(names: Sequence[str], limit: int) -> str:
    listed = ", ".join(names)
    room = limit - _size(f"{_OURS}: , ….")
    if _size(listed) > room:
        listed = _head(listed, room).rpartition(", ")[0] + ", …"
    if names:
        return f"{_OURS}: {listed}."
    return f"{_OURS}."


def _fit(part: str, front: str, room: int) -> str:
    """A part within so many bytes: whole sentences, or whole words of the first; nothing if not
    even one word fits."""
    if _size(part) <= room:
        return part
    body = _head(part, room - _size(_CUT))[len(front) :]
    ends = [found.end() for found in _SENTENCE.finditer(body + " ")]
    if ends:
        kept = body[: ends[-1]]
    else:
        kept = body.rpartition(" ")[0]
    if kept.strip():
        return f"{front}{kept.rstrip()}{_CUT}"
    return ""


def _head(text: str, size: int) -> str:
    return text.encode()[: max(size, 0)].decode("utf-8", "ignore")


def _size(text: str) -> int:
    return len(text.encode())


def _one_line(text: str) -> str:
    """A stranger's text on one line, without what steers a terminal, turns the writing or is half a
    character."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(c for c in line if c.isprintable()).strip()
