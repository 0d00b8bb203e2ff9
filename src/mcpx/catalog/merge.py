"""From what the sources sent to offers with settled public names, and what there is to warn of.

Promised: public names of one kind are all different; the same input gives the same names; a source
added at the end renames nothing that came before it; what servers sent is not changed. The work is
linear in the number of definitions, also when servers try to take each other's names. Not promised:
that a definition makes sense beyond having a name; nothing else in it is looked at.

Servers may send thousands: the work is a generator (`base.aio.Work`), so that it can be done in
slices.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count, islice
from types import MappingProxyType
from typing import Any, cast

from mcpx.base.aio import Work
from mcpx.catalog.apps import is_page, public_page, with_public_pages
from mcpx.catalog.naming import LONGEST_URI, Naming, public_name, safe_name, tagged_name, wrap_uri
from mcpx.model.call import Json
from mcpx.model.offer import KINDS, Kind, Offer

Given = Mapping[tuple[Kind, str, str], str]
"""(kind, server, native name) → the public name that clients were shown."""
Held = Mapping[tuple[Kind, str], tuple[str, str]]
"""(kind, public name) → the server and native name that it is kept for, be that not there at
present."""

_KEY: Mapping[Kind, str] = {
    "tools": "name",
    "prompts": "name",
    "resources": "uri",
    "templates": "uriTemplate",
}
NOTHING_HELD: Held = MappingProxyType({})
_CANDIDATES = 8
"""Of the endless names an offer could get, so many are tried to recognise one it was given."""
_PIECE = 50
"""Definitions between two points at which the work may be interrupted: half a millisecond."""
_EXAMPLES = 3
_EXAMPLE_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Source:
    """What one server (or one set of local commands) offers, as it sent it."""

    server: str
    prefix: str | None
    definitions: Mapping[Kind, Sequence[Json]]
    local: bool = False
    """Local commands come from no server: they keep their plain names, and their definitions get no
    `_meta.proxy`."""
    description: str = ""
    """What it is for; found by search."""
    offered: bool = False
    """Whether it ever had anything, be it not there any more or held back."""


@dataclass(frozen=True, slots=True)
class _Entry:
    source: Source
    native: str
    raw: Json


class _Notes:
    """Warnings, one line per server and reason however many names it is about: servers may send
    thousands."""

    def __init__(self) -> None:
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], list[str]] = {}

    def add(self, server: str, reason: str, example: str | None = None) -> None:
        self._numbers[server, reason] += 1
        examples = self._examples.setdefault((server, reason), [])
        if example is not None and len(examples) < _EXAMPLES:
            examples.append(example)

    def lines(self) -> list[str]:
        return [
            f"{server}: {reason} ({number})"
            + (f", such as {', '.join(examples)}" if examples else "")
            for ((server, reason), number), examples in zip(
                self._numbers.items(), self._examples.values(), strict=True
            )
        ]


@dataclass(frozen=True, slots=True)
class Merged:
    offers: Mapping[Kind, Sequence[Offer]]
    """In the order of the sources and then the server's own."""
    later: Sequence[Offer]
    """What is left out because a source before it has the same: to whoever does not see that one,
    it is there."""
    warnings: Sequence[str]


def merge(
    sources: Sequence[Source], naming: Naming, given: Given, held: Held = NOTHING_HELD
) -> Work[Merged]:
    notes = _Notes()
    offers: dict[Kind, list[Offer]] = {}
    later: list[Offer] = []
    for kind in KINDS:
        by_uri = kind == "templates" or (kind == "resources" and naming.uris == "plain")
        entries, beaten = yield from _entries(kind, sources, by_uri, notes)
        publics: Iterable[str]
        if kind in ("tools", "prompts"):
            publics = yield from _settle(kind, entries, naming, given, held, notes)
        else:
            publics = (_public_uri(kind, entry, naming) for entry in entries)
        found = offers[kind] = []
        for index, (entry, public) in enumerate(zip(entries, publics, strict=True)):
            found.append(
                Offer(
                    kind,
                    entry.source.server,
                    entry.native,
                    public,
                    _definition(kind, entry, public),
                )
            )
            if index % _PIECE == 0:
                yield
        for entry in beaten:
            about = _definition(kind, entry, entry.native)
            later.append(Offer(kind, entry.source.server, entry.native, entry.native, about))
    return Merged(offers, later, notes.lines())


def _entries(
    kind: Kind, sources: Sequence[Source], by_uri: bool, notes: _Notes
) -> Work[tuple[list[_Entry], list[_Entry]]]:
    """What can be offered, and what others offer before. Junk goes alone, the rest of the server's
    list stays.

    A thing is listed once per server, or once in all if clients address it by its bare URI
    (`by_uri`): then only the first in the config could ever answer, and the others would be a
    promise that nobody keeps.
    """
    key = _KEY[kind]
    entries: list[_Entry] = []
    beaten: list[_Entry] = []
    owners: dict[str | tuple[str, str], str] = {}
    for source in sources:
        server = source.server
        for index, definition in enumerate(
            cast(Sequence[object], source.definitions.get(kind, ()))
        ):
            if index % _PIECE == 0:
                yield
            raw = cast(Json, definition) if isinstance(definition, dict) else {}
            native = raw.get(key)
            if (
                not isinstance(native, str)
                or not native
                or (key != "name" and len(native) > LONGEST_URI)
            ):
                notes.add(server, f"{kind} left out, not an object with a usable `{key}`")
                continue
            bare = by_uri and not (kind == "resources" and is_page(native))
            mark = native if bare else (server, native)
            owner = owners.get(mark)
            if owner is None:
                owners[mark] = server
                entries.append(_Entry(source, native, raw))
            elif owner == server:
                notes.add(server, f"{kind} left out, listed before", _shown(native))
            else:
                beaten.append(_Entry(source, native, raw))
                notes.add(
                    server,
                    f"{kind} left out, {_shown(owner)} offers the same and comes first",
                    _shown(native),
                )
    return entries, beaten


def _public_uri(kind: Kind, entry: _Entry, naming: Naming) -> str:
    server, native = entry.source.server, entry.native
    if kind == "templates":
        return native
    if is_page(native):
        return public_page(server, native)
    return native if naming.uris == "plain" else wrap_uri(server, native)


def _settle(
    kind: Kind, entries: list[_Entry], naming: Naming, given: Given, held: Held, notes: _Notes
) -> Work[list[str]]:
    """One name for each entry, no two the same, and none that is held for another."""

    def free(name: str, entry: _Entry) -> bool:
        mine = (entry.source.server, entry.native)
        return name not in owners and (not held or held.get((kind, name), mine) == mine)

    natives = {(entry.source.server, entry.native) for entry in entries}
    wanted: list[str] = []
    for index, entry in enumerate(entries):
        wanted.append(safe_name(_wanted(entry, natives, naming), naming))
        if index % _PIECE == 0:
            yield
    settled = [""] * len(entries)
    owners: dict[str, _Entry] = {}
    for index, entry in enumerate(entries if given else ()):
        if index % _PIECE == 0:
            yield
        name = given.get((kind, entry.source.server, entry.native))
        if name and free(name, entry) and _could_be(name, entry, wanted[index], naming):
            settled[index] = name
            owners[name] = entry
    for index, entry in enumerate(entries):
        if index % _PIECE == 0:
            yield
        if not settled[index]:
            # The names an offer could have are endless and those taken are not, so one is found.
            name = next(
                name for name in _candidates(entry, wanted[index], naming) if free(name, entry)
            )
            settled[index] = name
            owners[name] = entry
    # From the outcome, not on the way: a collision is told as long as it lasts, given names or not.
    for index, (entry, want, name) in enumerate(zip(entries, wanted, settled, strict=True)):
        if index % _PIECE == 0:
            yield
        if name != want:
            owner = owners.get(want)
            holder = held.get((kind, want), ("",))[0] if owner is None else owner.source.server
            why = f"because {_shown(holder)} has the name" if holder else "as it was before"
            notes.add(
                entry.source.server,
                f"{kind} under another name, {why}",
                f"{_shown(entry.native)} is {name}",
            )
    return settled


def _wanted(entry: _Entry, natives: Set[tuple[str, str]], naming: Naming) -> str:
    server, native = entry.source.server, entry.native
    if entry.source.local:
        return native
    name, front = (
        public_name(server, native, entry.source.prefix, naming),
        f"{server}{naming.separator}",
    )
    if (
        naming.prefix == "always"
        and name == native
        and native.startswith(front)
        and (server, native.removeprefix(front)) in natives
    ):
        return f"{front}{native}"  # `git` has a `status` as well, which becomes `git_status`
    return name


def _candidates(entry: _Entry, wanted: str, naming: Naming) -> Iterator[str]:
    server, native = entry.source.server, entry.native
    yield wanted
    if not entry.source.local:
        yield safe_name(public_name(server, native, entry.source.prefix, naming), naming)
    full = f"{server}{naming.separator}{native}"
    yield safe_name(full, naming)
    yield tagged_name(full, f"{server}\0{native}", naming)
    for attempt in count(1):
        yield tagged_name(full, f"{server}\0{native}\0{attempt}", naming)


def _could_be(name: str, entry: _Entry, wanted: str, naming: Naming) -> bool:
    """A given name counts while it is one we would make: it may come from a file, or from other
    settings."""
    return name == wanted or name in islice(_candidates(entry, wanted, naming), _CANDIDATES)


def _definition(kind: Kind, entry: _Entry, public: str) -> Json:
    """As clients see it: a shallow copy with the public name and where it comes from (NAM-3)."""
    shown = {**entry.raw, _KEY[kind]: public}
    if not entry.source.local:
        theirs = entry.raw.get("_meta")
        meta: Json = cast(dict[str, Any], theirs) if isinstance(theirs, dict) else {}
        if kind == "tools":
            meta = with_public_pages(entry.source.server, meta)
        origin = "name" if kind in ("tools", "prompts") else "originalUri"
        shown["_meta"] = {**meta, "proxy": {"server": entry.source.server, origin: entry.native}}
    return shown


def _shown(text: str) -> str:
    """Text of a server, fit for a log: escaped and cut."""
    return repr(text if len(text) <= _EXAMPLE_LENGTH else f"{text[:_EXAMPLE_LENGTH]}…")
