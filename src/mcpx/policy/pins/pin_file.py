"""Approved and withheld definitions of one server, in memory and in a file.

Several gateways may share a folder. Each writes under a lock and takes over approvals of others. If
a file cannot be read, the caller has to withhold everything.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mcpx.base.state_file import StateFile, UnreadableState
from mcpx.model.call import Json, as_object
from mcpx.policy.pins.fingerprint import Item, Key, PinnedKind, fingerprint

MAX_FILE_BYTES = 64 * 2**20
MAX_APPROVED_BYTES = 16 * 2**20
"""Of approved definitions. Of others, only the fingerprint is kept."""
HELD_BYTES = 4 * 2**20
MAX_HELD = 1_000
VERSIONS = 4
"""Approved definitions of one name: servers may offer different ones to different clients."""


@dataclass(frozen=True, slots=True)
class Approved:
    fingerprints: tuple[str, ...]
    """The latest first."""
    at: float
    by: str
    definition: Json | None
    """The latest. None if it is too large to be kept."""


@dataclass(frozen=True, slots=True)
class Held:
    item: Item
    since: float
    for_some: bool = False
    """Only some clients are offered it."""


@dataclass(slots=True)
class Kept:
    since: float | None = None
    """Time of the first approval."""
    kinds: frozenset[PinnedKind] = frozenset()
    """Lists that were read by then. Later additions to them are new."""
    released: float | None = None
    """Time of the release from quarantine."""
    approved: dict[Key, Approved] = field(default_factory=dict[Key, Approved])
    held: dict[tuple[Key, str], Held] = field(default_factory=dict[tuple[Key, str], Held])

    def copy(self) -> "Kept":
        return replace(self, approved=dict(self.approved), held=dict(self.held))

    @property
    def is_empty(self) -> bool:
        return self.since is None and not self.approved and self.released is None

    def approve(self, item: Item, at: float, by: str) -> None:
        prints = [item.fingerprint]
        before = self.approved.get(item.key)
        if before is not None:
            prints += [one for one in before.fingerprints if one != item.fingerprint]
        self.approved[item.key] = Approved(tuple(prints[:VERSIONS]), at, by, item.definition)
        self.held.pop((item.key, item.fingerprint), None)

    def approves(self, item: Item) -> bool:
        found = self.approved.get(item.key)
        if found is None or not item.fingerprint:
            return False
        return item.fingerprint in found.fingerprints

    def take_up(self, other: "Kept") -> bool:
        """Add what others approved. Return whether anything is new."""
        news = False
        for key, theirs in other.approved.items():
            merged = _merged(self.approved.get(key), theirs)
            news = news or key not in self.approved
            news = news or merged.fingerprints != self.approved[key].fingerprints
            self.approved[key] = merged
        if other.since is not None and (self.since is None or not other.kinds <= self.kinds):
            self.since, self.kinds, news = self.since or other.since, self.kinds | other.kinds, True
        if other.released is not None and self.released is None:
            self.released, news = other.released, True
        for key, held in list(self.held.items()):
            if self.approves(held.item):
                del self.held[key]
        return news


def _merged(ours: Approved | None, theirs: Approved) -> Approved:
    if ours is None:
        return theirs
    if set(theirs.fingerprints) <= set(ours.fingerprints):
        return ours
    latest, other = ours, theirs
    if theirs.at > ours.at:
        latest, other = theirs, ours
    prints = dict.fromkeys((*latest.fingerprints, *other.fingerprints))
    return replace(latest, fingerprints=tuple(prints)[:VERSIONS])


# The file


@dataclass(frozen=True, slots=True)
class _ApprovedEntry:
    kind: PinnedKind
    name: str
    fingerprints: tuple[str, ...]
    at: float | None
    by: str
    definition: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class _HeldEntry:
    kind: PinnedKind
    name: str
    since: float | None
    definition: dict[str, Any]
    for_some: bool = False


@dataclass(frozen=True, slots=True)
class _Content:
    format: Literal[1]
    server: str
    since: float | None
    kinds: tuple[PinnedKind, ...]
    released: float | None
    approved: tuple[_ApprovedEntry, ...]
    held: tuple[_HeldEntry, ...]


class PinFile:
    def __init__(self, folder: Path, server: str) -> None:
        self.server = server
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", server)[:40]
        digest = hashlib.sha256(server.encode("utf-8", "surrogatepass")).hexdigest()
        self.path = folder / f"{plain}-{digest[:16]}.json"
        self._file = StateFile(self.path, _Content, max_bytes=MAX_FILE_BYTES, encode=_encode)

    def load(self) -> Kept | None:
        """Return None if the file does not exist. Raises `UnreadableState`."""
        try:
            content = self._file.read()
        except OSError as error:
            reason = f"{self.path} cannot be read: {error.strerror or error}"
            raise UnreadableState(reason) from None
        if content is None:
            return None
        if content.server != self.server:
            raise UnreadableState(f"{self.path} belongs to the server {content.server!r}")
        return _kept(content)

    def save(self, kept: Kept, *, mend: bool = False) -> Kept:
        """Write `kept`, with the approvals of others, and return it.

        Raises OSError, and `UnreadableState` for a damaged file that should not be replaced.
        """
        with self._file.lock():
            try:
                there = self.load()
            except UnreadableState:
                if not mend:
                    raise
                there = None
                os.replace(self.path, self.path.with_suffix(".damaged"))
            if there is not None:
                kept.take_up(there)
            self._file.write(_content(self.server, kept))
        return kept

    def lock(self) -> AbstractContextManager[None]:
        return self._file.lock()


def decode(raw: bytes) -> tuple[str, Kept]:
    """Return the name of the server and what is kept. Raises `UnreadableState`."""
    content = StateFile(Path("pins"), _Content, max_bytes=MAX_FILE_BYTES).decode(raw)
    return content.server, _kept(content)


def encode(server: str, kept: Kept) -> bytes:
    return _encode(_content(server, kept))


def _content(server: str, kept: Kept) -> _Content:
    approved = [
        _ApprovedEntry(kind, name, one.fingerprints, one.at, one.by, one.definition)
        for (kind, name), one in kept.approved.items()
    ]
    held = [
        _HeldEntry(one.item.kind, one.item.name, one.since, one.item.definition, one.for_some)
        for one in list(kept.held.values())[:MAX_HELD]
    ]
    kinds = tuple(sorted(kept.kinds))
    return _Content(1, server, kept.since, kinds, kept.released, tuple(approved), tuple(held))


def _kept(content: _Content) -> Kept:
    kept = Kept(content.since, frozenset(content.kinds), content.released)
    for one in content.approved:
        prints, at = one.fingerprints[:VERSIONS], one.at or 0.0
        kept.approved[one.kind, one.name] = Approved(prints, at, one.by, one.definition)
    for one in content.held:
        # The fingerprint is never read from the file: what is approved must be what is shown.
        item = Item(one.kind, one.name, fingerprint(one.definition), one.definition)
        kept.held[item.key, item.fingerprint] = Held(item, one.since or 0.0, one.for_some)
    return kept


def _encode(content: _Content) -> bytes:
    head: Json = {"format": 1, "server": content.server, "since": content.since}
    head |= {"kinds": content.kinds, "released": content.released}
    approved = b",\n".join(_within(content.approved, MAX_APPROVED_BYTES, keeps_rest=True))
    held = b",\n".join(_within(content.held, HELD_BYTES, keeps_rest=False))
    return b'%b,\n"approved":[\n%b],\n"held":[\n%b]}\n' % (_dump(head)[:-1], approved, held)


def _within(
    entries: Iterable[_ApprovedEntry | _HeldEntry], room: int, *, keeps_rest: bool
) -> Iterator[bytes]:
    """Encode entries. If their definitions need more room, leave out definitions or entries."""
    for entry in entries:
        fields = {name: getattr(entry, name) for name in entry.__slots__ if name != "definition"}
        definition = _dump(entry.definition)
        room -= len(definition)
        if room < 0:
            if not keeps_rest:
                continue
            definition = b"null"
        yield _dump(fields)[:-1] + b',"definition":' + definition + b"}"


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")


# Over replicas


@dataclass(frozen=True)
class SharedPins:
    """Implements `replicas.merge_rules.Rule`: all approvals count at each replica.

    Withheld definitions stay in each replica, which may be offered different ones.
    """

    folder: str = "pins"
    most: int = 1_000
    largest: int = MAX_FILE_BYTES
    lasting: bool = True

    def owns(self, name: str) -> bool:
        return name.endswith(".json") and not name.startswith(".")

    def taken(self, raw: bytes | None, at: float, known: Json) -> Json | None:
        if raw is None:
            return None
        server, kept = decode(raw)
        if kept.is_empty:
            return None
        return _state(server, kept)

    def merged(self, mine: Json, theirs: Json) -> Json:
        server, kept = decode(_dump(theirs))
        if kept.take_up(decode(_dump(mine))[1]):
            return _state(server, kept)
        return theirs

    def rendered(self, state: Json, raw: bytes | None) -> bytes | None:
        server, theirs = decode(_dump(state))
        kept = Kept()
        if raw is not None:
            kept = decode(raw)[1]
        if kept.take_up(theirs):
            return encode(server, kept)
        return raw

    def remembered(self, state: Json) -> Json:
        return {}

    def alone(self, file: Path) -> AbstractContextManager[Any]:
        return PinFile(file.parent, "").lock()


def _state(server: str, kept: Kept) -> Json:
    kept.held.clear()
    return as_object(json.loads(encode(server, kept)))
