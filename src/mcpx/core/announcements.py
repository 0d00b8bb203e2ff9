"""Tells clients which of their lists have changed: what differs from what they were shown, not more often than they
want to hear it. Fifty servers that start together are not fifty notices (CFG-5)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from mcpx.catalog.catalog import Catalog
from mcpx.model.events import Bus, OffersChanged
from mcpx.model.offer import Kind
from mcpx.model.slices import Work, in_slices
from mcpx.wire.tasks import Tasks

GAP = 1.0
"""Seconds between two announcements."""

PIECE = 500
"""Offers that are compared between two points at which the work may be interrupted."""

Told = list[tuple[str, str, str]]
"""What menus tell of servers, beside their tools: name, description, instructions."""


class Announcements:
    def __init__(
        self,
        bus: Bus,
        tasks: Tasks,
        catalog: Callable[[], Catalog],
        ready: Callable[[], Awaitable[object]],
        services: Callable[[], Told],
        listing_modes: Callable[[], frozenset[str | None]],
    ) -> None:
        """`ready` waits until the catalog is what servers offer; `listing_modes`: those whose menu lists servers."""
        self._bus = bus
        self._tasks = tasks
        self._catalog = catalog
        self._ready = ready
        self._services = services
        self._listing_modes = listing_modes
        self._known: Catalog | None = None
        """What clients were told of: the first list they saw, then each announcement."""
        self._told: Told = []
        self._stale = False
        self._forced: set[Kind] = set()
        self._modes: frozenset[str | None] = frozenset()
        self._servers: set[str] = set()
        self._running: asyncio.Task[None] | None = None

    def shown(self) -> None:
        """A client is shown the catalog: from here on, what differs is announced."""
        if self._known is None:
            self._known, self._told = self._catalog(), self._services()

    def changed(self, server: str, forced: Iterable[Kind] = ()) -> None:
        """A server's lists are read again; `forced`: the server said itself that these have changed."""
        self._servers.add(server)
        self._forced.update(forced)
        self.look()

    def menus_changed(self, modes: frozenset[str | None]) -> None:
        self._modes |= modes

    def look(self) -> None:
        """Something may differ: tell what does."""
        self._stale = True
        if self._running is None or self._running.done():
            self._running = self._tasks.start(self._announce())

    async def _announce(self) -> None:
        while self._stale:
            self._stale = False
            kinds, servers, modes = set(self._forced), list(self._servers), self._modes
            self._modes = frozenset()
            self._forced.clear()
            self._servers.clear()
            await self._ready()
            known, after = self._known, self._catalog()
            if known is not None:
                kinds.update(await in_slices(_different(known, after)))
                told = self._services()
                if told != self._told:
                    modes |= self._listing_modes()
                self._known, self._told = after, told
            if kinds:
                self._bus.publish(OffersChanged(frozenset(kinds), None, servers[0] if len(servers) == 1 else None))
            if modes and "tools" not in kinds:
                self._bus.publish(OffersChanged(frozenset({"tools"}), modes=modes))
            await asyncio.sleep(GAP)


def _different(before: Catalog, after: Catalog) -> Work[set[Kind]]:
    """The kinds of which the two do not offer the same."""
    kinds: set[Kind] = set()
    for kind, offers in after.offers.items() if before is not after else ():
        others = before.offers[kind]
        if len(others) != len(offers):
            kinds.add(kind)
            continue
        for start in range(0, len(offers), PIECE):
            if offers[start : start + PIECE] != others[start : start + PIECE]:
                kinds.add(kind)
                break
            yield
    return kinds
