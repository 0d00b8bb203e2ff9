"""What is known of one server's definitions, in memory and on disk.

One file per server name, readable by its owner only, replaced as a whole. Several gateways may
share a folder: each writes under a lock, and takes up what others approved meanwhile. A file that
cannot be read, or is none of ours, is `Unreadable`: whoever asked must hold everything back.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from mcpx.base.files import NOFOLLOW, private_folder, read_small, replace_private
from mcpx.model.call import Json, as_list, as_object
from mcpx.policy.pins.fingerprint import Item, Key, PinnedKind, fingerprint
from mcpx.wire import codec

FORMAT = 1
LARGEST = 64 * 2**20
"""Bytes of a file that is read."""
DEFINITIONS = 16 * 2**20
HELD_BYTES = 4 * 2**20
"""Characters of approved definitions, and of held ones, that are kept; of the others only the
fingerprint."""
MOST_HELD = 1_000
VERSIONS = 4
"""Approved definitions of one name that count: some clients may be offered one, some another. The
latest."""
_KINDS: tuple[PinnedKind, ...] = ("tools", "prompts", "instructions")


class Unreadable(Exception):
    """There is a file, and what it says is not known."""


@dataclass(frozen=True, slots=True)
class Approved:
    fingerprints: tuple[str, ...]
    """The latest first."""
    at: float
    by: str
    definition: Json | None
    """The latest; None where it was too much to be kept."""


@dataclass(frozen=True, slots=True)
class Held:
    item: Item
    since: float
    for_some: bool = False
    """Only some clients are offered it."""


@dataclass(slots=True)
class Kept:
    since: float | None = None
    """When it was first seen; None: never."""
    kinds: frozenset[PinnedKind] = frozenset()
    """The lists that were seen then: what comes later in them is new."""
    released: float | None = None
    """When somebody let it out of quarantine."""
    approved: dict[Key, Approved] = field(default_factory=dict[Key, Approved])
    held: dict[tuple[Key, str], Held] = field(default_factory=dict[tuple[Key, str], Held])

    def copy(self) -> "Kept":
        return replace(self, approved=dict(self.approved), held=dict(self.held))

    def approve(self, item: Item, at: float, by: str) -> None:
        before = self.approved.get(item.key)
        older = (
            ()
            if before is None
            else tuple(one for one in before.fingerprints if one != item.fingerprint)
        )
        self.approved[item.key] = Approved(
            (item.fingerprint, *older)[:VERSIONS], at, by, item.definition
        )
        self.held.pop((item.key, item.fingerprint), None)

    def approves(self, item: Item) -> bool:
        found = self.approved.get(item.key)
        return (
            found is not None and bool(item.fingerprint) and item.fingerprint in found.fingerprints
        )

    def take_up(self, other: "Kept") -> bool:
        """What others approved meanwhile; whether that is anything new."""
        news = False
        for key, theirs in other.approved.items():
            ours = self.approved.get(key)
            if ours is None:
                self.approved[key], news = theirs, True
            elif unknown := tuple(
                one for one in theirs.fingerprints if one not in ours.fingerprints
            ):
                latest, rest = (theirs, ours) if theirs.at > ours.at else (ours, theirs)
                both = dict.fromkeys((*latest.fingerprints, *rest.fingerprints, *unknown))
                merged = replace(latest, fingerprints=tuple(both)[:VERSIONS])
                news = news or merged.fingerprints != ours.fingerprints
                self.approved[key] = merged
        if other.since is not None and (self.since is None or not other.kinds <= self.kinds):
            self.since, self.kinds, news = self.since or other.since, self.kinds | other.kinds, True
        if other.released is not None and self.released is None:
            self.released, news = other.released, True
        for key in [key for key, held in self.held.items() if self.approves(held.item)]:
            del self.held[key]
        return news


class PinFile:
    def __init__(self, folder: Path, server: str) -> None:
        self.server = server
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", server)[:40]
        digest = hashlib.sha256(server.encode("utf-8", "surrogatepass")).hexdigest()
        self.path = folder / f"{plain}-{digest[:16]}.json"

    def load(self) -> Kept | None:
        """None: there is none. Raises `Unreadable`."""
        try:
            raw = read_small(self.path, LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreadable(f"{self.path} cannot be read: {error.strerror or error}") from None
        if len(raw) > LARGEST:
            raise Unreadable(f"{self.path} is too large to be ours")
        try:
            server, kept = read(raw)
            if server != self.server:
                raise ValueError
            return kept
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Unreadable(
                f"{self.path} is damaged, or was not written by this version"
            ) from None

    def save(self, kept: Kept, *, mend: bool = False) -> Kept:
        """Write it, with what others have approved since; what was written. Raises OSError;
        `Unreadable` where there is something else, unless it is to be mended."""
        private_folder(self.path.parent)
        with alone(self.path.parent):
            try:
                there = self.load()
            except Unreadable:
                if not mend:
                    raise
                there = None
                os.replace(self.path, self.path.with_suffix(".damaged"))
            if there is not None:
                kept.take_up(there)
            replace_private(self.path, text_of(self.server, kept))
        return kept


@contextlib.contextmanager
def alone(folder: Path) -> Generator[None]:
    """One process at a time replaces files there."""
    try:
        import fcntl
    except ImportError:  # Windows: the last one to write wins
        yield
        return
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read(raw: bytes) -> tuple[str, Kept]:
    """The name of the server, and what is kept of it. Raises ValueError, TypeError, KeyError or
    RecursionError."""
    found = as_object(codec.load(raw, strict=True))
    if found.get("format") != FORMAT:
        raise ValueError
    return _text(found["server"]), _kept(found)


def text_of(server: str, kept: Kept) -> bytes:
    return b"".join(_pieces(server, kept))


def _pieces(server: str, kept: Kept) -> Iterable[bytes]:
    head = {
        "format": FORMAT,
        "server": server,
        "since": kept.since,
        "kinds": sorted(kept.kinds),
        "released": kept.released,
    }
    yield _dump(head)[:-1] + b',\n"approved":['
    left, comma = DEFINITIONS, b""
    for (kind, name), one in kept.approved.items():
        about = {
            "kind": kind,
            "name": name,
            "fingerprints": one.fingerprints,
            "at": one.at,
            "by": one.by,
        }
        raw = b"null" if one.definition is None else _dump(one.definition)
        left -= len(raw)
        yield (
            comma
            + b"\n"
            + _dump(about)[:-1]
            + b',"definition":'
            + (raw if left >= 0 else b"null")
            + b"}"
        )
        comma = b","
    yield b'],\n"held":['
    left, comma = HELD_BYTES, b""
    for held in list(kept.held.values())[:MOST_HELD]:
        item, raw = held.item, _dump(held.item.definition)
        left -= len(raw)
        if left < 0:
            continue  # the gateway that is offered it knows it; without one it is not approved
        about = {
            "kind": item.kind,
            "name": item.name,
            "since": held.since,
            "for_some": held.for_some,
        }
        yield comma + b"\n" + _dump(about)[:-1] + b',"definition":' + raw + b"}"
        comma = b","
    yield b"]}\n"


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def _kept(found: Json) -> Kept:
    kinds: frozenset[PinnedKind] = frozenset(_kind(one) for one in as_list(found["kinds"]))
    kept = Kept(_time(found["since"]), kinds, _time(found["released"]))
    for entry in map(as_object, cast(list[Any], found["approved"])):
        prints = tuple(_text(one) for one in cast(list[Any], entry["fingerprints"]))
        definition = None if entry["definition"] is None else cast(Json, dict(entry["definition"]))
        at = _time(entry["at"]) or 0.0
        key = _kind(entry["kind"]), _text(entry["name"])
        kept.approved[key] = Approved(prints[:VERSIONS], at, _text(entry["by"]), definition)
    for entry in map(as_object, cast(list[Any], found["held"])):
        definition = cast(Json, dict(entry["definition"]))
        # Never as the file has it: what is approved by it must be what is shown.
        item = Item(_kind(entry["kind"]), _text(entry["name"]), fingerprint(definition), definition)
        kept.held[item.key, item.fingerprint] = Held(
            item, _time(entry["since"]) or 0.0, entry.get("for_some") is True
        )
    return kept


def _time(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError
    return value


def _kind(value: Any) -> PinnedKind:
    if value not in _KINDS:
        raise ValueError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value
