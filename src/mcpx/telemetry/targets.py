"""What a call was aimed at, and in which session it came, in a form that may be kept."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlsplit

from mcpx.model.events import Passage

LONGEST = 256
"""Characters of it."""
HIDDEN = "[hidden]"


@lru_cache(10_000)
def session_mark(session: str) -> str:
    """What tells a session from others; the id itself would let whoever reads it take part in
    it."""
    return hashlib.sha256(session.encode(errors="replace")).hexdigest()[:12]


def _cut(text: str) -> str:
    return text[:LONGEST]


def target_of(passage: Passage, cut: Callable[[str], str] = _cut) -> str:
    """The name of a tool or prompt; a URI without what may be secret in it: who signs in there, and
    its query. `cut`: how much of it is told."""
    name = passage.name
    return cut(name if passage.offer is not None or ":" not in name else plain_uri(name))


def plain_uri(uri: str) -> str:
    try:
        parts = urlsplit(uri[: 4 * LONGEST])
    except ValueError:
        return HIDDEN
    plain = parts._replace(
        netloc=parts.netloc.rpartition("@")[2], query="…" if parts.query else "", fragment=""
    )
    return plain.geturl()
