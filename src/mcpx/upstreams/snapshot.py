"""Disk cache of each server's last known tools, prompts, and resources.

It lets the gateway answer list requests before the servers have started. One file per server is
named after the server's connection, and not after the config file. It has only what the server
published: definitions and instructions, never headers, environment, or arguments. A file that
cannot be read or written is ignored. Files of removed servers are deleted when they have not been
used for long, or there are very many.
"""

import asyncio
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mcpx.base import WINDOWS
from mcpx.base.aio import Work, at_once, in_slices
from mcpx.base.files import read_small, remove_leftovers, replace_private
from mcpx.model.call import Json, as_list, as_object, is_array
from mcpx.model.offer import KINDS, Kind
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.wire import codec

if TYPE_CHECKING:
    from mcpx.config import Server

log = logging.getLogger(__name__)

FORMAT = 1
LARGEST = 64 * 2**20
"""A snapshot of 10,000 tools has some 10 MB. A larger file was not written by mcpx."""
QUICK = 2**20
"""Bytes that are read while clients are served: some ten milliseconds."""
UNUSED = 30 * 86_400.0
"""Seconds after which an unused file is deleted. Other configurations share the folder."""
MOST_UNUSED = 256
"""Files that are kept for servers of other configurations."""

NAMES = re.compile(r"[0-9a-f]{32}\.json")
_OWN = re.compile(rf"{NAMES.pattern}|\.[0-9a-f]{{32}}-\w+")
"""With the temporary files of earlier versions."""

Lists = Mapping[Kind, Sequence[Json]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    definitions: Lists | None
    """The common lists, or None if the server never listed them."""
    instructions: str
    traits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    same: Sequence[Sequence[str]] = ()
    """Kinds of clients that get the common lists."""
    by_kind: Mapping[ClientKind, Lists] = field(default_factory=dict[ClientKind, Lists])
    """The lists for other kinds of clients."""
    awaited: Sequence[Sequence[str]] = ()
    """Kinds of clients for which lists have waited in vain. The empty kind stands for all
    clients."""

    @property
    def any_lists(self) -> Lists:
        """The lists for some kind of client, or empty if the server never listed."""
        return self.definitions or next(iter(self.by_kind.values()), dict[Kind, Sequence[Json]]())


def key_of(identity: Sequence[object]) -> str:
    """The name of a server's file: a hash, because `identity` may contain secrets."""
    return hashlib.sha256(repr(tuple(identity)).encode()).hexdigest()[:32]


def identity_of(server: "Server") -> tuple[object, ...]:
    """What identifies a server in any file, without the values of variables and headers."""
    spec = server.connection
    names = [sorted(getattr(spec, key, {})) for key in ("env", "headers")]
    parts = [getattr(spec, key, None) for key in ("command", "args", "cwd", "url")]
    return (server.name, type(spec).__name__, *parts, *names)


class Snapshots:
    def __init__(self, folder: Path | None) -> None:
        """Without a folder nothing is kept."""
        self.serving = False
        """Whether clients are served, so that nothing may take long."""
        self._folder = folder

    def load(self, key: str) -> Snapshot | None:
        if self._folder is None:
            return None
        limit = QUICK if self.serving else LARGEST
        try:
            raw = read_small(self._folder / f"{key}.json", limit + 1)
            if len(raw) > limit:
                return None
            return _decoded(as_object(codec.load(raw, strict=True)))
        except (OSError, codec.BadJson):
            return None

    def save(self, key: str, snapshot: Snapshot) -> None:
        if self._folder is not None:
            self._write(key, at_once(_pieces(snapshot)))

    async def keep(self, key: str, snapshot: Snapshot) -> None:
        """As `save`, in slices and in a thread."""
        if self._folder is not None:
            pieces = await in_slices(_pieces(snapshot))
            await asyncio.to_thread(self._write, key, pieces)

    def _write(self, key: str, pieces: Sequence[bytes]) -> None:
        assert self._folder is not None
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_private(self._folder / f"{key}.json", b"".join(pieces))
        except OSError as error:
            log.warning("the snapshot of a server could not be written: %s", error)

    def use(self, key: str) -> bool:
        """Mark a file as used. Returns False if it does not exist."""
        if self._folder is None:
            return True
        try:
            os.utime(self._folder / f"{key}.json", follow_symlinks=False)
        except OSError:
            return False
        return True

    def prune(self, present: Iterable[str]) -> None:
        """Delete the unused files of servers that are not present. Other files stay."""
        if self._folder is None:
            return
        names = {f"{key}.json" for key in present}
        ages: list[tuple[float, str]] = []
        with suppress(OSError):
            remove_leftovers(self._folder)
            for entry in os.scandir(self._folder):
                if entry.name not in names and _OWN.fullmatch(entry.name) and _is_own(entry):
                    age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                    ages.append((age, entry.path))
        for index, (age, path) in enumerate(sorted(ages)):
            if index >= MOST_UNUSED or age > UNUSED:
                with suppress(OSError):
                    os.unlink(path)


def _is_own(entry: "os.DirEntry[str]") -> bool:
    found = entry.stat(follow_symlinks=False)
    return stat.S_ISREG(found.st_mode) and (WINDOWS or found.st_uid == os.getuid())


# Encoding
# --------------------------------------------------------------------------------------------------


def _pieces(snapshot: Snapshot) -> Work[list[bytes]]:
    """The file as JSON."""
    pieces = [b'{"format":%d,"definitions":' % FORMAT]
    if snapshot.definitions is None:
        pieces.append(b"null")
    else:
        pieces += yield from _encoded(snapshot.definitions)
    pieces.append(b',"by_kind":[')
    separator = b""
    for client_kind, lists in snapshot.by_kind.items():
        pieces.append(b'%s{"kind":%s' % (separator, codec.dump(sorted(client_kind))))
        pieces.append(b',"definitions":')
        pieces += yield from _encoded(lists, snapshot.definitions or {})
        pieces.append(b"}")
        separator = b","
    rest = {
        "instructions": snapshot.instructions,
        "traits": snapshot.traits,
        "same": snapshot.same,
        "awaited": snapshot.awaited,
    }
    pieces.extend((b"],", codec.dump(rest)[1:]))
    return pieces


def _encoded(lists: Lists, common: Lists | None = None) -> Work[list[bytes]]:
    """Lists as JSON.

    With `common`, an element is the index of the same definition in `common`, or an array with the
    definition.
    """
    pieces: list[bytes] = []
    for kind in KINDS:
        pieces.append(b'%s"%s":[' % (b"," if pieces else b"{", kind.encode()))
        indexes: dict[int, int] = {}
        if common is not None:
            indexes = {id(one): index for index, one in enumerate(common.get(kind, ()))}
        separator = b"\n"
        for at, definition in enumerate(lists.get(kind, ())):
            element: object = definition
            if common is not None:
                element = indexes.get(id(definition), [definition])
            pieces.extend((separator, codec.dump(element)))
            separator = b",\n"
            if at % 32 == 0:
                yield
        pieces.append(b"]")
    pieces.append(b"}")
    return pieces


def _decoded(kept: Json) -> Snapshot | None:
    definitions: Lists | None = None
    if kept.get("format") != FORMAT:
        return None
    if kept.get("definitions", ()) is not None:
        definitions = _lists(as_object(kept.get("definitions")), None)
        if definitions is None:
            return None
    by_kind: dict[ClientKind, Lists] = {}
    for entry in map(as_object, as_list(kept.get("by_kind"))):
        lists = _lists(as_object(entry.get("definitions")), definitions or {})
        for client_kind in _kinds([entry.get("kind")]):
            if client_kind and lists is not None:
                by_kind[frozenset(client_kind)] = lists
    instructions = kept.get("instructions")
    return Snapshot(
        definitions,
        instructions if isinstance(instructions, str) else "",
        as_object(kept.get("traits")),
        tuple(kind for kind in _kinds(kept.get("same")) if kind),
        by_kind,
        tuple(_kinds(kept.get("awaited"))),
    )


def _kinds(raw: object) -> list[list[str]]:
    kinds = [kind for kind in as_list(raw) if is_array(kind)]
    return [kind for kind in kinds if all(isinstance(part, str) for part in kind)]


def _lists(raw: Json, common: Lists | None) -> Lists | None:
    """The inverse of `_encoded`. None if the value is not well-formed."""
    lists: dict[Kind, list[Json]] = {}
    for kind in KINDS:
        if not isinstance(raw.get(kind), list):
            return None
        elements = cast(list[Any], raw[kind])
        if common is None:
            lists[kind] = elements
            continue
        found = lists[kind] = []
        shared = common.get(kind, ())
        for element in elements:
            if is_array(element) and len(element) == 1:
                found.append(element[0])
            elif isinstance(element, int) and 0 <= element < len(shared):
                found.append(shared[element])
            else:
                return None
    return lists
