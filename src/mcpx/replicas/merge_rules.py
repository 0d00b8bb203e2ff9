"""How the files of one folder are shared by replicas.

A *state* is a JSON object that stands for one file in the store. Merging is commutative, and a
removal is part of the state, so that an old copy does not bring a file back. What a replica
remembers of a state tells a change from an old copy.
"""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from re import Pattern
from time import time
from typing import Any, Final, Protocol

from mcpx.model.call import Json

REMOVAL_SECONDS: Final = 400 * 86_400.0
"""How long a removal is remembered."""


class Rule(Protocol):
    """A file stays as it is if a method raises ValueError, KeyError, TypeError, or
    `UnreadableState`."""

    @property
    def folder(self) -> str:
        """In the state folder."""
        ...

    @property
    def most(self) -> int:
        """Shared files: the latest ones."""
        ...

    @property
    def largest(self) -> int:
        """Bytes of a shared file."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether the store keeps a file as long as there are replicas. Other files expire, and
        their removal is not shared."""
        ...

    def owns(self, name: str) -> bool:
        """Whether a file of this name is shared."""
        ...

    def taken(self, raw: bytes | None, at: float, known: Json) -> Json | None:
        """The state of a file, or None if there is nothing to share. `at`: time of its change."""
        ...

    def merged(self, mine: Json, theirs: Json) -> Json:
        """Equal to `theirs` if `mine` adds nothing."""
        ...

    def rendered(self, state: Json, raw: bytes | None) -> bytes | None:
        """New content of a file that contains `raw`. None: no file."""
        ...

    def remembered(self, state: Json) -> Json:
        """What to remember, or an empty object."""
        ...

    def alone(self, file: Path) -> AbstractContextManager[Any]:
        """Locks the file while it is replaced."""
        ...


@dataclass(frozen=True)
class Whole:
    """The latest content counts. A file has another life after its removal.

    In one life, the removal of a `lasting` file wins against all changes.
    """

    folder: str
    files: Pattern[str]
    most: int
    largest: int
    lasting: bool = True
    but: frozenset[str] = frozenset()
    """Names that are not shared."""
    lock: Callable[[], AbstractContextManager[Any]] = nullcontext

    def owns(self, name: str) -> bool:
        return self.files.fullmatch(name) is not None and name not in self.but

    def taken(self, raw: bytes | None, at: float, known: Json) -> Json | None:
        if raw is None and (not known or not self.lasting):
            return None
        version, digest, life = known.get("version", 0), known.get("digest"), known.get("life")
        was_removed = known.get("removed") or known.get("born") in known.get("dead", ())
        content: str | None = None
        if raw is None:
            if not was_removed:
                version, known = version + 1, {"at": time()}
            at = known["at"]
        elif digest == hashlib.sha256(raw).hexdigest():
            at = known["at"]
            if not was_removed:  # Otherwise, it is an old copy.
                content = raw.decode()
        else:
            content, digest = raw.decode(), hashlib.sha256(raw).hexdigest()
            version += 1
            if was_removed:
                life = (life or 0) + 1
        return {"life": life, "version": version, "at": at, "digest": digest, "content": content}

    def merged(self, mine: Json, theirs: Json) -> Json:
        life = theirs["life"] or 0
        theirs = {**theirs, "life": life}
        if mine["life"] is None:  # This replica has not known the file.
            is_new = theirs["content"] is None and mine["at"] > theirs["at"]
            mine = {**mine, "life": life + is_new}
        return max((theirs, mine), key=_rank)

    def rendered(self, state: Json, raw: bytes | None) -> bytes | None:
        if state["content"] is None:
            return None
        return str(state["content"]).encode()

    def remembered(self, state: Json) -> Json:
        content = state["content"]
        if content is None and state["at"] < time() - REMOVAL_SECONDS:
            return {}
        known = {name: state[name] for name in ("version", "at", "digest")}
        return {**known, "life": state["life"] or 0, "removed": content is None}

    def alone(self, file: Path) -> AbstractContextManager[Any]:
        return self.lock()


def _rank(state: Json) -> tuple[Any, ...]:
    is_removed = state["content"] is None
    return state["life"], is_removed, state["version"], state["at"], state["digest"]
