"""The catalog as each caller finds it: one for all, and others where a server offers some clients
more.

Servers may show tools only to clients that can be asked something back, and a session with a link
of its own may have made things on it that nobody else has. Public names are settled over all of it,
so that a name means the same to everybody, and a name that a client was shown stays (NAM-1).

Who does not see everything finds what it sees of such a catalog (`narrowing`).

A small catalog is built when it is asked for. A large one takes a tenth of a second and more: it is
built in slices, and until it is done everybody finds the one before; `ready` waits for it. All that
is kept is bounded.
"""

import asyncio
import logging
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mcpx.base.aio import Tasks, in_slices
from mcpx.catalog.catalog import Catalog, Held, Source
from mcpx.catalog.merge import NOTHING_HELD
from mcpx.catalog.naming import Naming
from mcpx.config import Config
from mcpx.core.generation import Source as AnySource
from mcpx.model.call import Caller
from mcpx.model.offer import Kind, Offers
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.core.narrowing import Narrowing
    from mcpx.core.shared_names import SharedNames
    from mcpx.policy.sight import Sight
    from mcpx.replicas.replicas import Replicas

log = logging.getLogger(__name__)


class Annotations:
    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._known: dict[str, era.ParamHeaders | None] = {}

    def of(self, catalog: Catalog, tool: str) -> era.ParamHeaders | None:
        """As whoever has this catalog may know."""
        whole = catalog.whole
        if self._catalog is not whole:
            self._catalog, self._known = whole, {}
        offer = whole.find("tools", tool)
        if offer is None:
            return None  # and not kept: there is no end of names that nobody has
        if tool not in self._known:
            self._known[tool] = era.param_headers(offer.definition.get("inputSchema"))
        wanted = self._known[tool]
        return wanted if wanted and catalog.sees(offer) else None


Given = dict[tuple[Kind, str, str], str]

AT_ONCE = 1_000
"""Offers of which a catalog is built while everybody waits: ten milliseconds."""
MOST_SPECIAL = 64
SPECIAL_OFFERS = 100_000
"""Catalogs of some callers that are kept, and offers in all of them; the one longest unused
goes."""
MOST_GIVEN = 100_000
GIVEN_CHARACTERS = 2**24
"""Names that stay with their owners though these may be gone: so many, and so long in all; then
only what is there."""
MOST_VIEWERS = 1_000
"""Of whom it is remembered what they find."""
TRIES = 2
"""Buildings that are waited for: the one under way, and the one for what has changed since it
began."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What a catalog is built from; the same recipe gives the same catalog."""

    sources: tuple[Source, ...]
    naming: Naming

    @property
    def size(self) -> int:
        return sum(len(found) for source in self.sources for found in source.definitions.values())


class _Special:
    """A catalog of some callers, once it is built."""

    def __init__(self, offers: tuple[Offers, ...]) -> None:
        self.offers = offers
        """Kept: what tells it from others is their identity."""
        self.catalog: Catalog | None = None
        self.building: asyncio.Task[None] | None = None


class Catalogs:
    def __init__(
        self,
        sources: Callable[[], Iterable[AnySource]],
        naming: Callable[[], Naming],
        tasks: Tasks,
        sight: "Callable[[Caller], Sight | None]" = lambda caller: None,
    ) -> None:
        """`sight`: what a caller sees; None: everything."""
        self._sources = sources
        self._sight = sight
        self._naming = naming
        self._tasks = tasks
        self._shared: Catalog | None = None
        self._recipe: _Recipe | None = None
        """What the shared one is built from."""
        self._wanted: _Recipe | None = None
        """What it is to be built from; whatever else is being built is shown to nobody."""
        self._stale = False
        self.changes = 0
        """Grows whenever anybody may find another catalog than before."""
        self._building: asyncio.Task[None] | None = None
        self._varying: tuple[AnySource, ...] | None = None
        """Who offers some callers something else; None: to be looked up."""
        self._special: dict[tuple[int, ...], _Special] = {}
        self._shown: dict[int, Catalog] = {}
        self._narrowed: dict[tuple[str | None, str], Catalog] = {}
        """What those find, by profile and principal, who are offered what everybody is and do not
        see all of it; until something changes."""
        self._given: Given = {}
        self._given_characters = 0
        self.names: SharedNames | None = None
        """What replicas gave; None: all names are given here."""
        self._warned: set[str] = set()

    # For everybody
    # ----------------------------------------------------------------------------------------------

    @property
    def shared(self) -> Catalog:
        """Built when it is asked for, so that many changes at once cost one building."""
        if self._stale or self._shared is None:
            self._renew()
        assert self._shared is not None
        return self._shared

    def _renew(self) -> None:
        recipe = self._cook(None)
        if recipe == self._recipe:
            self._stale = False
            if self._building is not None:  # it has become again what it was
                self._wanted = recipe
                self.varied()
        elif recipe.size <= AT_ONCE:
            self._publish(
                recipe, Catalog.build(recipe.sources, recipe.naming, self._known, self._held)
            )
        else:
            if self._building is None:
                self._stale = False  # until something changes again, be it before the work begins
                self._wanted = recipe
                self._building = self._tasks.start(self._build_shared(recipe))
            if self._shared is None:
                self._shared = Catalog.build((), recipe.naming)

    async def _build_shared(self, recipe: _Recipe) -> None:
        try:
            given, held = dict(self._known), self._held
            catalog = await in_slices(Catalog.building(recipe.sources, recipe.naming, given, held))
            if self._wanted is recipe:
                stale = self._stale
                self._publish(recipe, catalog)
                # What has changed meanwhile: an offer, or a name that a client was shown.
                self._stale = stale or len(given) != len(self._known)
                if (
                    held is not self._held
                ):  # what replicas agreed on was compared with the catalog before
                    self._recipe, self._stale = None, True
        finally:
            self._building = None

    def _publish(self, recipe: _Recipe, catalog: Catalog) -> None:
        self._shared, self._recipe, self._wanted, self._stale = catalog, recipe, recipe, False
        for warning in catalog.warnings:
            if warning not in self._warned:
                log.warning("%s", warning)
        self._warned = set(catalog.warnings)
        self.varied()
        self._shown.clear()

    @cached_property
    def _narrowing(self) -> "Narrowing":
        from mcpx.core.narrowing import (
            Narrowing,
        )  # where everybody sees everything there is no need

        return Narrowing(self._tasks, self._is_otherwise, lambda: self._shared)

    def _cook(self, caller: Caller | None) -> _Recipe:
        sources = (
            Source(
                its.name, its.prefix, its.offers(caller), its.local, its.description, its.offered
            )
            for its in self._sources()
            if its.enabled
        )
        return _Recipe(tuple(sources), self._naming())

    async def ready(self, caller: Caller | None = None) -> bool:
        """Wait until what is offered now is what is found; whether that took any waiting."""
        waited = False
        for _ in range(TRIES):
            if caller is None:
                _ = self.shared
            else:
                self.of(caller)
            building = self._building or self._building_for(caller)
            if (
                building is None
                and caller is not None
                and (sight := self._sight(caller)) is not None
            ):
                building = self._narrowing.building(self._whole_of(caller), sight)
            if building is None:
                break
            waited = True
            await asyncio.wait([building])
        return waited

    # For some
    # ----------------------------------------------------------------------------------------------

    def of(self, caller: Caller) -> Catalog:
        """What this caller finds."""
        known = self._narrowed.get((caller.profile, caller.principal)) if self._narrowed else None
        if known is not None and self._is_like_all(caller):
            return known
        sight = self._sight(caller)
        whole = self._whole_of(caller)
        if sight is None:
            return whole
        found = self._narrowing.of(whole, sight)
        if (
            whole is self._shared
            and not found.blank
            and not self._stale
            and len(self._narrowed) < MOST_VIEWERS
        ):
            self._narrowed[caller.profile, caller.principal] = found
        return found

    def nothing_yet(self, caller: Caller) -> asyncio.Task[None] | None:
        """What a call must wait for because nothing can be found before it is done."""
        sight = self._sight(caller)
        return None if sight is None else self._narrowing.unseen(self._whole_of(caller), sight)

    async def seen(self, sight: "Sight | None") -> Catalog:
        """What those find who see so and are offered what everybody is."""
        await self.ready()
        shared = self.shared
        if sight is None:
            return shared
        if (building := self._narrowing.building(shared, sight)) is not None:
            await asyncio.wait([building])
        return self._narrowing.of(shared, sight)

    def _whole_of(self, caller: Caller) -> Catalog:
        """For almost everybody the shared one, at the cost of one look."""
        shared = self.shared
        if self._is_like_all(caller):
            return shared
        special = self._special_of(caller)
        if special is None:
            return shared
        if special.catalog is None and special.building is None:
            recipe = self._cook(caller)
            if recipe.size <= AT_ONCE:
                special.catalog = Catalog.build(
                    recipe.sources, recipe.naming, self._known, self._held
                )
                self._make_room()
            else:
                special.building = self._tasks.start(self._build_special(special, recipe))
        return special.catalog or shared

    def _is_like_all(self, caller: Caller) -> bool:
        """Whether it is known at a look that this caller is offered what everybody is."""
        return self._varying == () or caller.solo or not caller.answers

    def _special_of(self, caller: Caller) -> _Special | None:
        """None: this caller is offered what everybody is."""
        if self._varying is None:
            self._varying = tuple(its for its in self._sources() if its.enabled and its.offers_vary)
        offers = tuple(upstream.offers(caller) for upstream in self._varying)
        if all(
            own is source.offers(None) for own, source in zip(offers, self._varying, strict=True)
        ):
            return None
        key = tuple(map(id, offers))
        special = self._special.pop(key, None) or _Special(offers)
        self._special[key] = special  # the one used last is the last
        return special

    async def _build_special(self, special: _Special, recipe: _Recipe) -> None:
        try:
            held, catalog = None, None
            while (
                held is not self._held
            ):  # again, if replicas agreed on names meanwhile, not compared with it
                held = self._held
                building = Catalog.building(recipe.sources, recipe.naming, dict(self._known), held)
                catalog = await in_slices(building)
            special.catalog = catalog
            self._is_otherwise()
            self._make_room()
        finally:
            special.building = None

    def _building_for(self, caller: Caller | None) -> asyncio.Task[None] | None:
        if caller is None or self._is_like_all(caller):
            return None
        special = self._special_of(caller)
        return None if special is None else special.building

    def _make_room(self) -> None:
        kept = list(self._special.items())
        offers = sum(_size(special.catalog) for _, special in kept)
        for key, special in kept[:-1]:
            if len(self._special) <= MOST_SPECIAL and offers <= SPECIAL_OFFERS:
                break
            offers -= _size(special.catalog)
            self._shown.pop(id(special.catalog), None)
            del self._special[key]

    # Changes
    # ----------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """What everybody is offered may have changed, and by whom."""
        self._stale = True
        self._varying = None
        self._is_otherwise()

    def _is_otherwise(self) -> None:
        self.changes += 1
        self._narrowed.clear()

    def looked_at_otherwise(self) -> None:
        """What callers see of it may have changed."""
        self._is_otherwise()
        if "_narrowing" in vars(self):
            self._narrowing.clear()

    def varied(self) -> None:
        """What some are offered has changed."""
        self._is_otherwise()
        self._varying = None
        self._special.clear()
        if "_narrowing" in vars(self) and self._shared is not None:
            self._narrowing.keep(self._shared)
        self._shown = {
            key: catalog for key, catalog in self._shown.items() if catalog is self._shared
        }

    def show(self, catalog: Catalog) -> None:
        """From here on clients know these names: they stay with their owners."""
        catalog = catalog.whole  # whoever sees only some of it: a name means the same to everybody
        if id(catalog) in self._shown:
            return
        self._shown[id(catalog)] = catalog
        self._give(catalog)
        if self.names is not None:
            self.names.show(catalog)
        if len(self._given) > MOST_GIVEN or self._given_characters > GIVEN_CHARACTERS:
            self._given, self._given_characters = {}, 0
            for shown in self._shown.values():
                self._give(shown)

    def _give(self, catalog: Catalog) -> None:
        for key, public in catalog.names().items():
            if key not in self._given:
                self._given_characters += len(key[2]) + len(public)
            self._given[key] = public

    def forget_names(self, old: Config, new: Config) -> None:
        """Names stay, except those the user has changed."""
        if old.naming != new.naming:
            self._given.clear()
        prefixes = {server.name: server.prefix for server in new.mcp_servers}
        renamed = {
            server.name
            for server in old.mcp_servers
            if prefixes.get(server.name, "") != server.prefix
        }
        self._given = {key: public for key, public in self._given.items() if key[1] not in renamed}
        self._given_characters = sum(
            len(key[2]) + len(public) for key, public in self._given.items()
        )
        if self.names is not None:
            self.names.forget(None if old.naming != new.naming else renamed)

    # With replicas
    # ----------------------------------------------------------------------------------------------

    def share(self, replicas: "Replicas", renamed: Callable[[], None]) -> None:
        """From here on names are those of all replicas; `renamed` hears when clients find other
        ones for that."""
        from mcpx.core.shared_names import SharedNames

        def changed() -> None:
            log.info("some names are now those that another replica gave before")
            self._recipe = None
            self.changed()
            self.varied()
            self._shown.clear()
            renamed()

        self.names = SharedNames(
            replicas, self._sources, self._naming, lambda: self._given, changed
        )

    @property
    def _known(self) -> Mapping[tuple[Kind, str, str], str]:
        """The names that were given, here and elsewhere."""
        return self._given if self.names is None else ChainMap(self.names.settled, self._given)

    @property
    def _held(self) -> Held:
        return NOTHING_HELD if self.names is None else self.names.held


def _size(catalog: Catalog | None) -> int:
    return 0 if catalog is None else sum(map(len, catalog.offers.values()))
