"""Tells clients which of their lists have changed: what differs from what they were shown, not more
often than they want to hear it. Fifty servers that start together are not fifty notices (CFG-5).

Where not everybody sees everything, each viewer hears of what it sees and of nothing else (SEC-2).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from mcpx.base.aio import Tasks
from mcpx.catalog.catalog import Catalog
from mcpx.model.events import Bus, OffersChanged, Viewer
from mcpx.model.offer import Kind
from mcpx.model.slices import Work, in_slices

GAP = 1.0
"""Seconds between two announcements."""

PIECE = 500
"""Offers that are compared between two points at which the work may be interrupted."""

MOST_VIEWERS = 10_000
"""Of whom it is known what they were shown; as many as there may be sessions."""
AT_A_TIME = 64
"""Viewers that are told together: the first do not wait until the last has been looked at."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a viewer was shown."""

    catalog: Catalog
    told: int
    """What menus tell of servers beside their tools, as a hash: there may be thousands of
    viewers."""
    mode: str | None
    """The mode of the viewer's profile."""
    limited: bool
    """Whether there may be more than it sees."""


class Announcements:
    def __init__(
        self,
        bus: Bus,
        tasks: Tasks,
        look: Callable[[Viewer], Awaitable[Shown]],
        listing_modes: Callable[[], frozenset[str | None]],
    ) -> None:
        """`look`: what a viewer sees now, once the catalog is what servers offer; `listing_modes`:
        those whose menu lists servers."""
        self._bus = bus
        self._tasks = tasks
        self._look = look
        self._listing_modes = listing_modes
        self._known: dict[Viewer, Shown] = {}
        """What clients were told of: the first list they saw, then each announcement."""
        self._stale = False
        self._forced: set[Kind] = set()
        self._modes: frozenset[str | None] = frozenset()
        self._servers: set[str] = set()
        self._running: asyncio.Task[None] | None = None

    def knows(self, viewer: Viewer) -> bool:
        return viewer in self._known

    def shown(self, viewer: Viewer, what: Shown) -> None:
        """A client is shown the catalog: from here on, what differs is announced."""
        if viewer not in self._known:
            if len(self._known) >= MOST_VIEWERS:
                del self._known[next(iter(self._known))]
            self._known[viewer] = what

    def changed(self, server: str, forced: Iterable[Kind] = ()) -> None:
        """A server's lists are read again; `forced`: the server said itself that these have
        changed."""
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
            news = _News(frozenset(self._forced), frozenset(self._servers), self._modes)
            self._modes = frozenset()
            self._forced.clear()
            self._servers.clear()
            await self._tell(news)
            await asyncio.sleep(GAP)

    async def _tell(self, news: "_News") -> None:
        heard: _Heard = {} if self._known else {(news.kinds, news.server, news.modes): {None}}
        different: dict[tuple[int, int], frozenset[Kind]] = {}
        compared: list[Catalog] = []
        """Held, so that their identities stay theirs."""
        for count, (viewer, before) in enumerate(list(self._known.items()), 1):
            after = await self._look(viewer)
            pair = (id(before.catalog), id(after.catalog))
            if pair not in different:
                different[pair] = frozenset(
                    await in_slices(_different(before.catalog, after.catalog))
                )
                compared += [before.catalog, after.catalog]
            if viewer in self._known:
                self._known[viewer] = after
            kinds, modes, limited = different[pair], news.modes, before.limited or after.limited
            if not limited:
                kinds |= news.kinds  # who sees everything is told whatever a server says
            if before.mode != after.mode:
                kinds |= _TOOLS
            if before.told != after.told:
                modes |= self._listing_modes()
            server = (
                news.server
                if news.server is not None and after.catalog.knows(news.server)
                else None
            )
            heard.setdefault((kinds, server, modes), set()).add(viewer if limited else None)
            if count % AT_A_TIME == 0:
                self._publish(heard)
        self._publish(heard)

    def _publish(self, heard: "_Heard") -> None:
        for (kinds, server, modes), viewers in heard.items():
            others = frozenset(viewer for viewer in viewers if viewer is not None)
            for whom in ([None] if None in viewers else []) + ([others] if others else []):
                if kinds:
                    self._bus.publish(OffersChanged(kinds, None, server, viewers=whom))
                if modes and "tools" not in kinds:
                    self._bus.publish(OffersChanged(_TOOLS, modes=modes, viewers=whom))
        heard.clear()


_TOOLS: frozenset[Kind] = frozenset({"tools"})
_Heard = dict[tuple[frozenset[Kind], str | None, frozenset[str | None]], set[Viewer | None]]
"""Which kinds, whose and in which modes, and who is to hear of it; None: all who see everything."""


@dataclass(frozen=True, slots=True)
class _News:
    kinds: frozenset[Kind]
    servers: frozenset[str]
    modes: frozenset[str | None]

    @property
    def server(self) -> str | None:
        """Whose news it is, if it is only one's."""
        return next(iter(self.servers)) if len(self.servers) == 1 else None


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
