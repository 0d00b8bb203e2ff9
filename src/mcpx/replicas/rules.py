"""How the files of one folder are shared: what in them is told to others, and what becomes of two
that differ.

A *state* is what replicas tell each other of one file, as a JSON object. States are merged so that
it does not matter who merges first, nor how often; what was removed is told too, so that somebody's
old copy does not bring it back. What has to be known for that is kept beside the files
(`remembered`): with it a change of the file since is a change, and everything else an old copy.
"""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from re import Pattern
from time import time
from typing import Any, Final, Protocol

from mcpx.model.call import Json, as_object

REMOVED: Final = 400 * 86_400.0
"""Seconds for which it is known that a file was removed."""
_DEAD: Final = 16
"""Earlier lives of a file that are known to be over; the latest."""


class Rule(Protocol):
    """Of one folder. What raises ValueError, KeyError or TypeError leaves the file as it is."""

    @property
    def folder(self) -> str:
        """Under the state folder."""
        ...

    @property
    def most(self) -> int:
        """Files that are shared; the latest."""
        ...

    @property
    def largest(self) -> int:
        """Bytes of a file that is shared."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether it stays while there are replicas; else it is for comfort, ends by itself, and
        whoever removes a file does so for himself."""
        ...

    def owns(self, name: str) -> bool:
        """Whether a file of this name is shared."""
        ...

    def taken(self, raw: bytes | None, at: float, known: Json) -> Json | None:
        """What the file says now. `raw`: what is in it, None where there is none in a folder that
        is there; `at`: when it was written; `known`: what is remembered, nothing of a file that is
        new. None: it says nothing."""
        ...

    def merged(self, mine: Json, theirs: Json) -> Json:
        """Equal to `theirs` where mine adds nothing."""
        ...

    def rendered(self, state: Json, raw: bytes | None) -> bytes | None:
        """What is to be in the file, where `raw` is now; the same where that will do, None: no
        file."""
        ...

    def remembered(self, state: Json) -> Json:
        """What is to be known of it the next time; nothing: it need not be known any longer."""
        ...

    def alone(self, file: Path) -> AbstractContextManager[Any]:
        """While it is replaced. Nobody else of this machine changes it then."""
        ...


@dataclass(frozen=True)
class Whole:
    """Files that count as they are: the last one written. What was removed stays so (if they are
    `lasting`), also against whoever goes on changing what he had before."""

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
        version, dead = int(known.get("version", 0)), as_object(known.get("dead"))
        is_gone = bool(known) and known["born"] in dead
        if raw is None:
            if not known or not self.lasting:
                return None
            if is_gone:
                return {**known, "content": None}
            now = time()
            return {
                **known,
                "version": version + 1,
                "at": now,
                "dead": {**dead, known["born"]: now},
                "content": None,
            }
        digest = hashlib.sha256(raw).hexdigest()
        content = raw.decode()
        if known and digest == known["digest"]:
            return {
                **known,
                "content": None if is_gone else content,
            }  # gone: an old copy of what was removed
        born = (
            known["born"]
            if known and not is_gone
            else hashlib.sha256(f"{digest} {at}".encode()).hexdigest()[:16]
        )
        about = {"born": born, "version": version + 1, "at": at, "digest": digest, "dead": dead}
        return {**about, "content": content}

    def merged(self, mine: Json, theirs: Json) -> Json:
        dead: dict[str, float] = {**mine["dead"], **theirs["dead"]}
        if len(dead) > _DEAD:
            dead = dict(sorted(dead.items(), key=lambda one: (one[1], one[0]))[-_DEAD:])
        alive = [one for one in (theirs, mine) if one["born"] not in dead]
        latest = max(
            alive or (theirs, mine), key=lambda one: (one["version"], one["at"], one["digest"])
        )
        return {**latest, "dead": dead, "content": latest["content"] if alive else None}

    def rendered(self, state: Json, raw: bytes | None) -> bytes | None:
        return None if state["content"] is None else str(state["content"]).encode()

    def remembered(self, state: Json) -> Json:
        if state["content"] is None and state["at"] < time() - REMOVED:
            return {}
        return {name: value for name, value in state.items() if name != "content"}

    def alone(self, file: Path) -> AbstractContextManager[Any]:
        return self.lock()
