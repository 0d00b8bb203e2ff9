"""What each server offered when it was last seen, kept on disk so that lists are answered before
any server is up.

One file per server, named by what the server *is* (its connection) and not by the config it stands
in. Only what the server itself published is kept: definitions and instructions, never headers,
environment or arguments. Losing the folder loses comfort, never function: a file that cannot be
read or written, or is none of ours, is passed over. Files of servers that are gone are removed:
when nobody has used them for long, or there are very many.
"""

import asyncio
import hashlib
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mcpx.base import WINDOWS, files
from mcpx.model.call import Json, as_list, as_object, is_array
from mcpx.model.offer import KINDS, Kind
from mcpx.model.slices import Work, at_once, in_slices
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.wire import codec

if TYPE_CHECKING:
    from mcpx.config import Server

log = logging.getLogger(__name__)

FORMAT = 1
LARGEST = 64 * 2**20
"""A snapshot of 10,000 tools has some 10 MB; what is larger was not written by us."""
QUICK = 2**20
"""Bytes that are read while others are served: some ten milliseconds. What is larger is read only
at the start."""
UNUSED = 30 * 86_400.0
"""Seconds after which a file that nobody has used is removed. Other configurations keep theirs in
the same folder."""
MOST_UNUSED = 256
"""Files that are kept for servers that are not there; the latest."""
LEFT_BEHIND = 3_600.0
"""Seconds after which a file that was being written is nobody's any more."""

NAMES = re.compile(r"[0-9a-f]{32}\.json")
_OURS = re.compile(rf"{NAMES.pattern}|\.[0-9a-f]{{32}}-\w+")


Lists = Mapping[Kind, Sequence[Json]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    definitions: Lists | None
    """The lists for clients without such capabilities, or None if the server never listed for
    them."""
    instructions: str
    traits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the server is like (`traits`)."""
    same: Sequence[Sequence[str]] = ()
    """Kinds of clients that are offered the same as everybody."""
    by_kind: Mapping[ClientKind, Lists] = field(default_factory=dict[ClientKind, Lists])
    """The lists for kinds of clients that get other lists."""
    awaited: Sequence[Sequence[str]] = ()
    """Kinds of clients for which lists have waited in vain. The empty kind stands for all
    clients."""

    @property
    def any_lists(self) -> Lists:
        """The lists for some kind of client; empty if the server never listed."""
        return self.definitions or next(iter(self.by_kind.values()), dict[Kind, Sequence[Json]]())


def key_of(identity: Sequence[object]) -> str:
    """The name of a server's file. `identity` may hold secrets (arguments, URLs): only its hash is
    written."""
    return hashlib.sha256(repr(tuple(identity)).encode()).hexdigest()[:32]


def identity_of(server: "Server") -> tuple[object, ...]:
    """What makes a server this server, whatever file it stands in; values of variables and headers
    are left out."""
    spec = server.connection
    names = [sorted(getattr(spec, key, {})) for key in ("env", "headers")]
    parts = [getattr(spec, key, None) for key in ("command", "args", "cwd", "url")]
    return (server.name, type(spec).__name__, *parts, *names)


class Snapshots:
    def __init__(self, folder: Path | None) -> None:
        """Without a folder nothing is kept."""
        self.serving = False
        """Whether clients are served: nothing may take long any more."""
        self._folder = folder

    def load(self, key: str) -> Snapshot | None:
        if self._folder is None:
            return None
        raw = _read(self._folder / f"{key}.json", QUICK if self.serving else LARGEST)
        if raw is None:
            return None
        try:
            kept = as_object(codec.load(raw, strict=True))
        except codec.BadJson:
            return None
        definitions: Lists | None = None
        if kept.get("definitions", ()) is not None:
            raw_lists = as_object(kept.get("definitions"))
            definitions = {
                kind: raw_lists[kind] for kind in KINDS if isinstance(raw_lists.get(kind), list)
            }
        if kept.get("format") != FORMAT or (
            definitions is not None and len(definitions) < len(KINDS)
        ):
            return None
        instructions: Any = kept.get("instructions")
        return Snapshot(
            definitions,
            instructions if isinstance(instructions, str) else "",
            as_object(kept.get("traits")),
            tuple(kind for kind in _kinds_in(kept.get("same")) if kind),
            _by_kind_in(kept.get("by_kind"), definitions),
            tuple(_kinds_in(kept.get("awaited"))),
        )

    def save(self, key: str, snapshot: Snapshot) -> None:
        """Replace the file as a whole: a reader finds the old or the new one, never a part."""
        if self._folder is not None:
            with _told():
                self._write(key, at_once(self._pieces(snapshot)))

    async def keep(self, key: str, snapshot: Snapshot) -> None:
        """The same, beside everything else."""
        if self._folder is not None:
            with _told():
                await asyncio.to_thread(self._write, key, await in_slices(self._pieces(snapshot)))

    def use(self, key: str) -> bool:
        """What is kept is still so: mark it as in use; False when it is gone."""
        if self._folder is None:
            return True
        try:
            os.utime(self._folder / f"{key}.json", follow_symlinks=False)
        except OSError:
            return False
        return True

    def _pieces(self, snapshot: Snapshot) -> Work[list[bytes]]:
        """The file as JSON, made piece by piece."""
        pieces = [b'{"format":%d,"definitions":' % FORMAT]
        if snapshot.definitions is None:
            pieces.append(b"null")
        else:
            pieces += yield from _written(snapshot.definitions)
        pieces.append(b',"by_kind":[')
        for number, (client_kind, lists) in enumerate(snapshot.by_kind.items()):
            pieces.append(
                b'%s{"kind":%s,"definitions":'
                % (b"," if number else b"", codec.dump(sorted(client_kind)))
            )
            pieces += yield from _written(lists, snapshot.definitions or {})
            pieces.append(b"}")
        rest = {
            "instructions": snapshot.instructions,
            "traits": snapshot.traits,
            "same": snapshot.same,
            "awaited": snapshot.awaited,
        }
        pieces.extend((b"],", codec.dump(rest)[1:]))
        return pieces

    def _write(self, key: str, pieces: Sequence[bytes]) -> None:
        assert self._folder is not None
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=f".{key}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(pieces)
            os.replace(name, self._folder / f"{key}.json")
        except BaseException:
            os.unlink(name)
            raise

    # What nobody needs any more
    # --------------------------------------------------------------------------------

    def prune(self, present: Iterable[str]) -> None:
        """Remove what is kept of servers other than these, unless it was used lately. What does not
        look like a file of ours, or belongs to another user, stays."""
        if self._folder is None:
            return
        names = {f"{key}.json" for key in present}
        spare: list[os.DirEntry[str]] = []
        with suppress(OSError), os.scandir(self._folder) as entries:
            spare = [
                entry
                for entry in entries
                if entry.name not in names and _OURS.fullmatch(entry.name)
            ]
        unused = sorted(
            ((age, entry) for entry in spare if (age := _age_of(entry)) is not None),
            key=lambda one: one[0],
        )
        for at, (age, entry) in enumerate(unused):
            if at >= MOST_UNUSED or age > (LEFT_BEHIND if entry.name.startswith(".") else UNUSED):
                with suppress(OSError):
                    os.unlink(entry.path)


def _written(lists: Lists, common: Lists | None = None) -> Work[list[bytes]]:
    """Lists as JSON.

    With `common`, an element is the index of the same definition in `common`, or an array with the
    definition."""
    pieces = [b"{"]
    for kind in KINDS:
        pieces.append(b'%s"%s":[' % (b"" if kind == KINDS[0] else b",", kind.encode()))
        indexes = (
            {}
            if common is None
            else {id(one): index for index, one in enumerate(common.get(kind, ()))}
        )
        for at, definition in enumerate(lists.get(kind, ())):
            element: object = (
                definition if common is None else indexes.get(id(definition), [definition])
            )
            pieces.extend((b",\n" if at else b"\n", codec.dump(element)))
            if at % 32 == 0:
                yield
        pieces.append(b"]")
    pieces.append(b"}")
    return pieces


def _kinds_in(raw: object) -> list[list[str]]:
    kinds = [kind for kind in as_list(raw) if is_array(kind)]
    return [kind for kind in kinds if all(isinstance(part, str) for part in kind)]


def _by_kind_in(raw: object, common: Lists | None) -> Mapping[ClientKind, Lists]:
    """The lists by kind of client, without those that cannot be read."""
    found: dict[ClientKind, Lists] = {}
    for entry in as_list(raw):
        kinds = _kinds_in([as_object(entry).get("kind")])
        lists = _resolved(as_object(as_object(entry).get("definitions")), common or {})
        if kinds and kinds[0] and lists is not None:
            found[frozenset(kinds[0])] = lists
    return found


def _resolved(raw: Json, common: Lists) -> Lists | None:
    """The inverse of `_written` with `common`. None if it is not well-formed."""
    lists: dict[Kind, list[Json]] = {}
    for kind in KINDS:
        elements = raw.get(kind)
        if not isinstance(elements, list):
            return None
        shared = common.get(kind, ())
        found = lists[kind] = []
        for element in cast(list[Any], elements):
            if is_array(element) and len(element) == 1:
                found.append(element[0])
            elif isinstance(element, int) and 0 <= element < len(shared):
                found.append(shared[element])
            else:
                return None
    return lists


def _age_of(entry: "os.DirEntry[str]") -> float | None:
    """Seconds since a file of our own was last written or used."""
    with suppress(OSError):
        about = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(about.st_mode) and _is_mine(about):
            return time.time() - about.st_mtime
    return None


def _is_mine(about: os.stat_result) -> bool:
    return WINDOWS or about.st_uid == os.getuid()  # there a file has no number of an owner


class _told:  # noqa: N801 - reads as a phrase
    """Whatever keeps a snapshot from being written is a warning."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, (OSError, codec.Unencodable)):
            log.warning("the snapshot of a server could not be written: %s", error)
            return True
        return False


def _read(file: Path, largest: int) -> bytes | None:
    """A regular file of our own; nothing that could hang, has no end or is too large."""
    try:
        handle = os.open(file, os.O_RDONLY | files.NONBLOCK | files.NOFOLLOW)
    except OSError:
        return None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or not _is_mine(about) or about.st_size > largest:
            return None
        with os.fdopen(os.dup(handle), "rb") as opened:
            return opened.read(largest)
    except OSError:
        return None
    finally:
        os.close(handle)
