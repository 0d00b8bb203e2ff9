"""A catalog as some callers see it: the whole one and which of its offers they see.

Promised: what is not seen is found in no way, not by its name, its own name, its URI in any form,
nor by a search or a count. It costs a few bytes for each offer that is seen: names, definitions,
templates and the search index are those of the whole. Not promised: that a search ranks as if there
were nothing else, for how rare a word is is told by all.
"""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, Self

from mcpx.base.aio import Work, at_once
from mcpx.catalog.apps import is_app_only, is_page
from mcpx.catalog.catalog import Catalog, Searchable
from mcpx.catalog.naming import spellings, unwrap_uri
from mcpx.model.offer import KINDS, Kind, Offer

if TYPE_CHECKING:
    from mcpx.catalog.search.index import Hits

_BY_NAME: tuple[Kind, ...] = ("tools", "prompts")
REMEMBERED = 64
"""Names by which something was found that are looked up at once."""
_PIECE = 50
"""Offers that are looked at between two points at which the work may be interrupted."""
_FIRST = 100
"""Offers of a server that are looked at in between to see whether anything of it is seen."""


class Seen(Protocol):
    """Who sees what; `policy.sight.Sight` is one."""

    def server(self, name: str) -> bool: ...

    @property
    def picks(self) -> bool: ...

    def offer(self, offer: Offer) -> bool: ...

    def resource(self, server: str, uri: str) -> bool: ...


class Narrowed(Catalog):
    """Made by `narrowing`, then only read."""

    __slots__ = ("_from", "_instead", "_known", "_members", "_places", "_seen_servers", "sight")

    sight: Seen
    _from: Catalog
    _places: "array[int]"
    """Of the tools that are seen, among all."""
    _members: "array[int]"
    """The identities of all that is seen, in order: a set of them would take ten times as much."""
    _seen_servers: frozenset[str]
    _known: dict[tuple[Kind, str], Offer]
    """Some of those that were found before, by public name."""
    _instead: Mapping[tuple[Kind, str], Offer]
    """What is seen because the same of a server that comes first is not, by its URI."""

    @classmethod
    def narrowing(cls, whole: Catalog, sight: Seen) -> Work["Narrowed"]:
        seen: dict[Kind, tuple[Offer, ...]] = {}
        places = array("I")
        for kind in KINDS:
            found: list[Offer] = []
            for place, offer in enumerate(whole.offers[kind]):
                if place % _PIECE == 0:
                    yield
                if sight.offer(offer):
                    found.append(offer)
                    if kind == "tools":
                        places.append(place)
            seen[kind] = tuple(found)
        later: list[Offer] = []
        for place, offer in enumerate(whole.later):
            if place % _PIECE == 0:
                yield
            if sight.offer(offer):
                later.append(offer)
        return cls._made(whole, sight, seen, places, later)

    @classmethod
    def _made(
        cls,
        whole: Catalog,
        sight: Seen,
        seen: Mapping[Kind, tuple[Offer, ...]],
        places: "array[int]",
        later: Sequence[Offer],
    ) -> Self:
        """`later`: of what comes after the same of others, all that may be seen."""
        narrowed = cls.__new__(cls)
        narrowed._from = whole
        narrowed._model_catalog = None
        narrowed.has_app_tools = whole.has_app_tools and not isinstance(sight, _ModelSight)
        narrowed.sight = sight
        narrowed.naming, narrowed.descriptions, narrowed.warnings = (
            whole.naming,
            whole.descriptions,
            (),
        )
        instead: dict[tuple[Kind, str], Offer] = {}
        if later:
            first = {
                (kind, offer.public)
                for kind, found in seen.items()
                for offer in found
                if kind not in _BY_NAME
            }
            for offer in later:
                if (offer.kind, offer.public) not in first:
                    instead.setdefault((offer.kind, offer.public), offer)
            added = {
                kind: tuple(offer for offer in instead.values() if offer.kind == kind)
                for kind in KINDS
            }
            seen = {kind: (*found, *added[kind]) for kind, found in seen.items()}
        narrowed._instead, narrowed._known = instead, {}
        narrowed.offers = MappingProxyType(dict(seen))
        narrowed._places = places
        narrowed._seen_servers = frozenset(
            offer.server for found in (*seen.values(), later) for offer in found
        )
        narrowed._members = array(
            "Q", sorted(id(offer) for found in (*seen.values(), later) for offer in found)
        )
        return narrowed

    @property
    def whole(self) -> Catalog:
        return self._from

    def knows(self, server: str) -> bool:
        if server in self._seen_servers:
            return True
        # One of which nothing is seen though it offers something is nobody's business.
        return self.sight.server(server) and not self._from.has_offered(server)

    def sees(self, offer: Offer) -> bool:
        return self._has(offer) or self.sight.offer(offer)

    def _has(self, offer: Offer) -> bool:
        members, mark = self._members, id(offer)
        at = bisect_left(members, mark)
        return at < len(members) and members[at] == mark

    def find(self, kind: Kind, public: str) -> Offer | None:
        known = self._known.get((kind, public))
        if known is not None:
            return known
        offer = self._from.find(kind, public)
        found = (
            offer if offer is not None and self._has(offer) else self._instead.get((kind, public))
        )
        if found is not None and len(self._known) < REMEMBERED:
            self._known[kind, public] = found
        return found

    def native(self, kind: Kind, server: str, name: str) -> Offer | None:
        offer = self._from.native(kind, server, name) or self._from.native_later(kind, server, name)
        return offer if offer is not None and self._has(offer) else None

    def tools_named(self, native: str) -> Sequence[Offer]:
        return [offer for offer in self._from.tools_named(native) if self._has(offer)]

    def count(self, server: str, kind: Kind) -> int:
        return sum(offer.server == server for offer in self.offers[kind])

    # Searching
    # ----------------------------------------------------------------------------------------------

    @property
    def indexed(self) -> bool:
        return self._from.indexed

    @property
    def index(self) -> "Searchable":
        return _NarrowedIndex(self._from.index, self._places)

    def indexing(self) -> Work["Searchable"]:
        yield from self._from.indexing()
        return self.index

    # URIs
    # ----------------------------------------------------------------------------------------------

    def resolve_uri(self, uri: str) -> tuple[str, str] | None:
        listed = self.find("resources", uri)
        if listed is not None:
            return listed.server, listed.name
        if is_page(uri):
            return self._resolve_page(uri)
        wrapped = unwrap_uri(uri)
        if wrapped is not None:
            return (
                wrapped if self._from.has_server(wrapped[0]) and self.may_read(*wrapped) else None
            )
        # The first who has it may be one that is not seen.
        server = next(
            (offer.server for offer in self.offers["resources"] if offer.name == uri), None
        )
        if server is None:
            server = next(
                (its for its in self._from.expanding(uri, self._has) if self.may_read(its, uri)),
                None,
            )
        return None if server is None else (server, uri)

    def may_read(self, server: str, uri: str) -> bool:
        """By the server's own URI. One that is neither listed nor given by a template is asked for
        only by those who see all resources of a server: else what its server says of it would
        differ from what is said of hidden ones. What only templates lead to that are not seen is
        not seen either."""
        if not self.knows(server):
            return False
        if self.native("resources", server, uri) is not None:
            return self.sight.resource(server, uri)
        if self.sight.picks and server not in self._from.expanding(uri, self._has):
            return False
        return all(self._may_be_there(server, spelling) for spelling in spellings(uri))

    def _may_be_there(self, server: str, uri: str) -> bool:
        if not self.sight.resource(server, uri):
            return False
        listed = self._from.native("resources", server, uri) or self._from.native_later(
            "resources", server, uri
        )
        if listed is not None:
            return self._has(listed)
        by_any = server in self._from.expanding(uri)
        return not by_any or server in self._from.expanding(uri, self._has)


def without_app_tools(catalog: Catalog) -> Catalog:
    sight = _ModelSight(catalog.sight if isinstance(catalog, Narrowed) else None)
    if catalog.blank:
        return Blank.of(catalog.whole, sight)
    return at_once(Narrowed.narrowing(catalog.whole, sight))


class _ModelSight:
    """The sight of a caller without tools that are for apps only."""

    __slots__ = ("_caller", "picks")

    def __init__(self, caller: Seen | None) -> None:
        self._caller = caller
        self.picks = caller is not None and caller.picks

    def server(self, name: str) -> bool:
        return self._caller is None or self._caller.server(name)

    def offer(self, offer: Offer) -> bool:
        if offer.kind == "tools" and is_app_only(offer.definition):
            return False
        return self._caller is None or self._caller.offer(offer)

    def resource(self, server: str, uri: str) -> bool:
        return self._caller is None or self._caller.resource(server, uri)


class Blank(Narrowed):
    """Until it is known what is seen: lists nothing and finds nothing by a search. What somebody
    names, and whether anything of a server is seen, is looked at by itself: meanwhile what runs may
    have to ask its client something, and what a client listens to may change."""

    __slots__ = ("_looked",)

    blank = True
    _looked: bool

    @classmethod
    def of(cls, whole: Catalog, sight: Seen) -> "Blank":
        made = cls._made(whole, sight, dict.fromkeys(KINDS, ()), array("I"), ())
        made._looked = False
        return made

    def knows(self, server: str) -> bool:
        if not self._looked:
            self._looked = True
            self._seen_servers = frozenset(self._servers())
        return super().knows(server)

    def _has(self, offer: Offer) -> bool:
        return self.sight.offer(offer)

    def _servers(self) -> set[str]:
        """By the first offers of each: nobody else has a turn meanwhile."""
        seen: set[str] = set()
        looks: dict[str, int] = {}
        for found in (*self._from.offers.values(), self._from.later):
            for offer in found:
                server = offer.server
                if server not in seen and (looked := looks.get(server, 0)) < _FIRST:
                    looks[server] = looked + 1
                    if self.sight.offer(offer):
                        seen.add(server)
        return seen


class _NarrowedIndex:
    """The index of the whole as `Narrowed` shows it: positions are those of the tools that are
    seen."""

    __slots__ = ("_index", "_places")

    def __init__(self, index: "Searchable", places: "array[int]") -> None:
        self._index = index
        self._places = places

    def search(
        self,
        query: str,
        *,
        limit: int = 20,
        offset: int = 0,
        service: str | None = None,
        among: Sequence[int] | None = None,
    ) -> "Hits":
        found = self._index.search(
            query, limit=limit, offset=offset, service=service, among=self._places
        )
        hits = tuple(
            replace(hit, position=bisect_left(self._places, hit.position)) for hit in found.hits
        )
        return replace(found, hits=hits)
