"""All offers of all sources as one immutable snapshot, under the names clients use.

Promised: a public name leads to exactly one offer and an offer has exactly one public name,
whatever servers send; lookups by name take the same time however many offers there are. Not
promised: that an offer's server is up (a server that is down keeps its tools here), or that a URI
that resolves can be read: the server says so itself. Who may see what is not decided here;
`narrowed.Narrowed` is what some see of one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Protocol

from mcpx.base.aio import Work, at_once
from mcpx.catalog.apps import is_app_only, is_page, page_label, split_page
from mcpx.catalog.merge import NOTHING_HELD, Given, Held, Merged, Source, merge
from mcpx.catalog.naming import Naming, unwrap_uri
from mcpx.catalog.paging import page_of
from mcpx.catalog.templates import LONGEST_EXPANSION, Positions, Template
from mcpx.model.call import Json
from mcpx.model.offer import KINDS, Kind, Offer

if TYPE_CHECKING:
    from mcpx.catalog.search.index import Hits, Index

__all__ = ["Catalog", "Given", "Held", "Searchable", "Source"]

_NOTHING_GIVEN: Given = MappingProxyType({})
_TEMPLATE_CHARACTERS = 65_536
"""So much template text of one server is held against a URI: it bounds a lookup (tens of ms at the
worst)."""
_PIECE = 200
"""Offers between two points at which the building may be interrupted."""


class Searchable(Protocol):
    """What finds tools by words: `search.Index`, or what some see of one."""

    def search(
        self,
        query: str,
        *,
        limit: int = 20,
        offset: int = 0,
        service: str | None = None,
        among: Sequence[int] | None = None,
    ) -> "Hits": ...


class Catalog:
    """Built by `build`, then only read."""

    blank: ClassVar[bool] = False
    """It stands for one that is being made."""
    __slots__ = (
        "__weakref__",
        "_counts",
        "_index",
        "_labels",
        "_later",
        "_model_catalog",
        "_named",
        "_native",
        "_offered",
        "_plain",
        "_public",
        "_servers",
        "_templates",
        "descriptions",
        "has_app_tools",
        "naming",
        "offers",
        "warnings",
    )

    def __init__(
        self,
        offers: Mapping[Kind, Sequence[Offer]],
        servers: Sequence[str],
        naming: Naming,
        warnings: Sequence[str] = (),
        descriptions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """From offers whose public names are settled already; `build` is what settles them."""
        at_once(self._arrange(Merged(offers, (), warnings), servers, naming, descriptions))

    def _arrange(
        self,
        merged: Merged,
        servers: Sequence[str],
        naming: Naming,
        descriptions: Mapping[str, str],
    ) -> Work[None]:
        self.naming = naming
        self.descriptions = descriptions
        """What each server is for."""
        self._index: Index | None = None
        self._named: dict[str, list[Offer]] | None = None
        self.offers: Mapping[Kind, tuple[Offer, ...]] = MappingProxyType(
            {kind: tuple(merged.offers.get(kind, ())) for kind in KINDS}
        )
        self._servers = frozenset(servers)
        self._labels: dict[str, str] = {}
        for server in servers:
            self._labels.setdefault(page_label(server), server)
        self._model_catalog: Catalog | None = None
        self.has_app_tools = False
        """Whether the catalog has a tool that is for apps only."""
        self._offered: frozenset[str] = frozenset()
        self._public: dict[Kind, dict[str, Offer]] = {kind: {} for kind in KINDS}
        self._native: dict[Kind, dict[tuple[str, str], Offer]] = {kind: {} for kind in KINDS}
        self._counts: Counter[tuple[str, Kind]] = Counter()
        for kind, found in self.offers.items():
            public, native = self._public[kind], self._native[kind]
            for index, offer in enumerate(found):
                public[offer.public] = native[offer.server, offer.name] = offer
                self._counts[offer.server, kind] += 1
                if kind == "tools" and not self.has_app_tools:
                    self.has_app_tools = is_app_only(offer.definition)
                if index % _PIECE == 0:
                    yield
        self._plain: dict[str, str] = {}
        for offer in self.offers["resources"]:
            self._plain.setdefault(offer.name, offer.server)
        yield
        self._later = {(offer.kind, offer.server, offer.name): offer for offer in merged.later}
        templates: Sequence[Offer] = self.offers["templates"]
        if self._later:
            order = {server: place for place, server in enumerate(servers)}
            later = (offer for offer in self._later.values() if offer.kind == "templates")
            templates = sorted((*templates, *later), key=lambda offer: order[offer.server])
        self._templates, unmatched = yield from _compiled(templates)
        self.warnings = (*merged.warnings, *unmatched)

    @classmethod
    def build(
        cls,
        sources: Sequence[Source],
        naming: Naming,
        given: Given = _NOTHING_GIVEN,
        held: Held = NOTHING_HELD,
    ) -> "Catalog":
        """`building`, at once."""
        return at_once(cls.building(sources, naming, given, held))

    @classmethod
    def building(
        cls,
        sources: Sequence[Source],
        naming: Naming,
        given: Given = _NOTHING_GIVEN,
        held: Held = NOTHING_HELD,
    ) -> Work["Catalog"]:
        """Merge `sources`, which come in the order of the config.

        `given` is what clients were shown before (see `names`). Such a name stays with its owner,
        even against a server earlier in the config (NAM-1). Names of offers that are not there are
        free again. Leave out of it what the user has renamed: all if the naming changed, a server's
        if its prefix did. A name that could not come from the present naming and prefix is passed
        over in any case. A name that is `held` for an offer is not given to another, though that
        one may not be there.
        """
        merged = yield from merge(sources, naming, given, held)
        descriptions = {source.server: source.description for source in sources}
        catalog = cls.__new__(cls)
        yield from catalog._arrange(
            merged, [source.server for source in sources], naming, descriptions
        )
        catalog._offered = frozenset(source.server for source in sources if source.offered)
        return catalog

    @property
    def whole(self) -> "Catalog":
        """What this is a part of: itself, unless somebody sees only some of it."""
        return self

    @property
    def for_models(self) -> "Catalog":
        """The catalog without tools that are for apps only."""
        if not self.has_app_tools:
            return self
        if self._model_catalog is None:
            from mcpx.catalog.narrowed import without_app_tools

            self._model_catalog = without_app_tools(self)
        return self._model_catalog

    def knows(self, server: str) -> bool:
        """Whether whoever sees this may know of that server."""
        return True

    def sees(self, offer: Offer) -> bool:
        """Whether whoever sees this sees that, which may be of another edition."""
        return True

    def may_read(self, server: str, uri: str) -> bool:
        """Whether whoever sees this may ask that server for that URI, its own."""
        return True

    def has_offered(self, server: str) -> bool:
        """Whether that server has anything to offer, or ever had."""
        return server in self._offered or any(self.count(server, kind) for kind in KINDS)

    def has_server(self, name: str) -> bool:
        return name in self._servers

    def find(self, kind: Kind, public: str) -> Offer | None:
        return self._public[kind].get(public)

    @property
    def later(self) -> Collection[Offer]:
        """What is not offered because a server that comes first has the same."""
        return self._later.values()

    def native_later(self, kind: Kind, server: str, name: str) -> Offer | None:
        return self._later.get((kind, server, name))

    def native(self, kind: Kind, server: str, name: str) -> Offer | None:
        return self._native[kind].get((server, name))

    def tools_named(self, native: str) -> Sequence[Offer]:
        """The tools that their servers call so, in the order of the config."""
        if self._named is None:
            self._named = {}
            for offer in self.offers["tools"]:
                self._named.setdefault(offer.name, []).append(offer)
        return self._named.get(native, ())

    @property
    def indexed(self) -> bool:
        return self._index is not None

    @property
    def index(self) -> Searchable:
        """For searching the tools; its positions are those of `offers["tools"]`. Built when it is
        first needed."""
        return self._index or at_once(self.indexing())

    def indexing(self) -> Work[Searchable]:
        """The same, to be done in slices."""
        if self._index is None:
            from mcpx.catalog.entries import document_of
            from mcpx.catalog.search.index import Index

            descriptions = self.descriptions
            documents = (
                document_of(offer, descriptions.get(offer.server, ""))
                for offer in self.offers["tools"]
            )
            index = yield from Index.building(documents)
            self._index = self._index or index
        return self._index

    def count(self, server: str, kind: Kind) -> int:
        return self._counts[server, kind]

    def names(self) -> dict[tuple[Kind, str, str], str]:
        """What to hand to the next `build` as `given`: tools and prompts; URIs are not ours to
        settle."""
        kinds: tuple[Kind, ...] = ("tools", "prompts")
        return {
            (kind, offer.server, offer.name): offer.public
            for kind in kinds
            for offer in self.offers[kind]
        }

    def page(
        self, kind: Kind, cursor: object = None, limit: object = None
    ) -> tuple[list[Json], str | None]:
        """One page of definitions, and the cursor of the next. A bad cursor or limit is an
        `RpcError`."""
        found, following = page_of(self.offers[kind], cursor, limit)
        return [offer.definition for offer in found], following

    def resolve_uri(self, uri: str) -> tuple[str, str] | None:
        """(server, the server's own URI) for a URI in any form a client may use, or None
        (NAM-4)."""
        # What we listed comes first: it leads back to who listed it, even if a gateway behind us
        # wrapped it.
        listed = self._public["resources"].get(uri)
        if listed is not None:
            return listed.server, listed.name
        if is_page(uri):
            return self._resolve_page(uri)
        wrapped = unwrap_uri(uri)
        if wrapped is not None and wrapped[0] in self._servers:
            return wrapped
        server = self._plain.get(uri)
        # A wrapped URI of a server that is gone is nobody's: no catch-all template may swallow it.
        if server is None and wrapped is None:
            server = next(self.expanding(uri), None)
        return None if server is None else (server, uri)

    def _resolve_page(self, uri: str) -> tuple[str, str] | None:
        """A page by its public URI, or by the server's own URI if exactly one visible server has
        it."""
        whole = self.whole
        label, native = split_page(uri)
        server = whole._labels.get(label)
        if server is not None and self.knows(server):
            if self.native("resources", server, uri) is not None:
                native = uri
            return (server, native) if self.may_read(server, native) else None
        owners = {
            server for server in whole._servers if self.native("resources", server, uri) is not None
        }
        owners.update(whole.expanding(uri, self.sees))
        readable = [server for server in owners if self.may_read(server, uri)]
        return (readable[0], uri) if len(readable) == 1 else None

    def expanding(self, uri: str, counts: Callable[[Offer], bool] | None = None) -> Iterator[str]:
        """The servers one of whose templates gives that URI, in order; of the templates that
        count."""
        if len(uri) > LONGEST_EXPANSION:
            return
        at: Positions | None = None
        for offer, template in self._templates:
            if template.may_match(uri) and (counts is None or counts(offer)):
                at = at or Positions(uri)
                if template.matches(at):
                    yield offer.server


def _compiled(offers: Sequence[Offer]) -> Work[tuple[list[tuple[Offer, Template]], list[str]]]:
    """Offer and template, in order, and a warning for each server some of whose templates match
    nothing."""
    spent: Counter[str] = Counter()
    unmatched: Counter[str] = Counter()
    compiled: list[tuple[Offer, Template]] = []
    for index, offer in enumerate(offers):
        if index % _PIECE == 0:
            yield
        spent[offer.server] += len(offer.name)
        if (
            spent[offer.server] <= _TEMPLATE_CHARACTERS
            and (template := Template(offer.name)).usable
        ):
            compiled.append((offer, template))
        else:
            unmatched[offer.server] += 1
    return compiled, [
        f"{server}: templates listed but never matched, malformed, too long or too many ({number})"
        for server, number in unmatched.items()
    ]
