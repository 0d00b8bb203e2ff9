"""The target and the session of a call, in a form that may be logged."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from mcpx.model.events import Passage

LONGEST: Final = 256  # Characters.
HIDDEN: Final = "[hidden]"


@lru_cache(10_000)
def session_mark(session: str) -> str:
    """Identify a session without its id, because the id gives access to the session."""
    return hashlib.sha256(session.encode(errors="replace")).hexdigest()[:12]


def _cut(text: str) -> str:
    return text[:LONGEST]


def target_of(passage: Passage, cut: Callable[[str], str] = _cut) -> str:
    """Return the name of a tool or prompt, or a URI without credentials and query."""
    name = passage.name
    if passage.offer is None and ":" in name:
        name = plain_uri(name)
    return cut(name)


def plain_uri(uri: str, query_mark: str = "…") -> str:
    """Remove credentials, query, and fragment, which may be secret. `query_mark` stands for a
    query."""
    try:
        parts = urlsplit(uri[: 4 * LONGEST])
    except ValueError:
        return HIDDEN
    query = query_mark if parts.query else ""
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query=query, fragment="").geturl()
