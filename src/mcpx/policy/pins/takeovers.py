"""Whether a definition reaches for what another server has: its tool's name, or the use of its
tool."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from mcpx.policy.pins.fingerprint import Item
from mcpx.policy.pins.marks import folded, one_line

Elsewhere = Mapping[str, str]
"""The tools of all other servers: their names, as they read, and whose they are."""

SHORTEST = 6
"""Characters of a tool's name from which a text that has it is taken to speak of the tool."""
LOOKED_AT = 20_000
MOST = 4
_WORD = re.compile(r"\w[\w.-]*\w")


def as_read(name: str) -> str:
    """Two names that read the same to a person or a model."""
    return folded(name).casefold()


def takeovers(
    item: Item, own: Callable[[], Collection[str]], elsewhere: Elsewhere
) -> tuple[str, ...]:
    """`own`: names the server has itself, as they read; to speak of those is nothing."""
    if not elsewhere:
        return ()
    return tuple(_found(item, own, elsewhere))


def same_name(item: Item, elsewhere: Elsewhere) -> Iterator[str]:
    """Only that, which is quickly seen."""
    if (
        item.kind == "tools"
        and elsewhere
        and (other := elsewhere.get(as_read(item.name))) is not None
    ):
        yield f"has the name of a tool of {one_line(other)!r}"


def _found(item: Item, own: Callable[[], Collection[str]], elsewhere: Elsewhere) -> Iterator[str]:
    yield from same_name(item, elsewhere)
    text = item.definition.get("instructions" if item.kind == "instructions" else "description")
    if not isinstance(text, str):
        return
    words = {as_read(word) for word in _WORD.findall(text[:LOOKED_AT])}
    named = [word for word in words if _is_a_name(word) and word in elsewhere]
    if named:
        mine = own()
        for word in sorted(word for word in named if word not in mine)[:MOST]:
            yield f"speaks of the tool {one_line(word)!r} of {one_line(elsewhere[word])!r}"


def _is_a_name(word: str) -> bool:
    """`search` is a word of any text; `search_mail` is not."""
    return len(word) >= SHORTEST and any(mark in word for mark in "_-.")
