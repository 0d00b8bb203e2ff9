"""What each server offered when it was last seen, kept on disk so that lists are answered before any server is up.

One file per server, named by what the server *is* (its connection) and not by the config it stands in. Only what the
server itself published is kept: definitions and instructions, never headers, environment or arguments. Losing the
folder loses comfort, never function: a file that cannot be read or written is passed over.
"""

import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from mcpx.model.call import Json, as_list, as_object
from mcpx.model.offer import KINDS, Kind
from mcpx.wire import codec

log = logging.getLogger(__name__)

FORMAT = 1
LARGEST = 64 * 2**20
"""A snapshot of 10,000 tools has some 10 MB; what is larger was not written by us."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    definitions: Mapping[Kind, Sequence[Json]]
    instructions: str
    traits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the server is like (`traits`)."""
    same: Sequence[Sequence[str]] = ()
    """Kinds of clients that are offered the same as everybody."""


def key_of(identity: Sequence[object]) -> str:
    """The name of a server's file. `identity` may hold secrets (arguments, URLs): only its hash is written."""
    return hashlib.sha256(repr(tuple(identity)).encode()).hexdigest()[:32]


class Snapshots:
    def __init__(self, folder: Path | None) -> None:
        """Without a folder nothing is kept."""
        self._folder = folder

    def load(self, key: str) -> Snapshot | None:
        if self._folder is None:
            return None
        file = self._folder / f"{key}.json"
        try:
            if file.stat().st_size > LARGEST:
                return None
            kept = as_object(codec.load(file.read_bytes()))
        except (OSError, codec.BadJson):
            return None
        definitions = as_object(kept.get("definitions"))
        if kept.get("format") != FORMAT or not all(isinstance(definitions.get(kind), list) for kind in KINDS):
            return None
        instructions: Any = kept.get("instructions")
        same = [kind for kind in as_list(kept.get("same")) if all(isinstance(part, str) for part in as_list(kind))]
        return Snapshot(
            {kind: cast(list[Json], definitions[kind]) for kind in KINDS},
            instructions if isinstance(instructions, str) else "",
            as_object(kept.get("traits")),
            tuple(as_list(kind) for kind in same if as_list(kind)),
        )

    def save(self, key: str, snapshot: Snapshot) -> None:
        """Replace the file as a whole: a reader finds the old or the new one, never a part."""
        if self._folder is None:
            return
        body = {
            "format": FORMAT,
            "definitions": snapshot.definitions,
            "instructions": snapshot.instructions,
            "traits": snapshot.traits,
            "same": snapshot.same,
        }
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=f".{key}-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(codec.dump(body))
                os.replace(name, self._folder / f"{key}.json")
            except BaseException:
                os.unlink(name)
                raise
        except (OSError, codec.Unencodable) as error:
            log.warning("the snapshot of a server could not be written: %s", error)
