"""Receives the events of upstreams, updates the catalogs, and informs clients.

Clients receive nothing about a server in quarantine, and not its name.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from mcpx.base.abridge import Abridged, Limits
from mcpx.base.aio import Tasks, Work, in_slices
from mcpx.catalog.catalog import Catalog
from mcpx.config import Command
from mcpx.core.catalogs import Catalogs
from mcpx.core.generation import Generation
from mcpx.core.starting import Starting
from mcpx.model.call import Json
from mcpx.model.events import Bus, OffersChanged, ResourceUpdated, ServerSaid, Viewer
from mcpx.model.offer import Kind
from mcpx.upstreams.context import KindListed, ListsRead, ListsVary, UpstreamEvent
from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

BRIEF = ("status", "since", "last_error")
"""What is told of a server to whoever does not see all of it."""
WELL = ("connected", "disabled", "sleeping")


def described(generation: Generation, catalog: Catalog) -> Json:
    """Everything as people want to see it: configuration, state, and what it offers."""
    servers = [
        {
            "name": name,
            "description": upstream.server.description,
            **_with_held(upstream, _state(upstream)),
            "last_error": upstream.connection.problem,
            "auth_url": upstream.auth_url,
            "tools": catalog.count(name, "tools"),
        }
        for name, upstream in generation.upstreams.items()
    ]
    commands = [_about(command) for command in generation.config.commands]
    return {"servers": servers, "commands": commands, "mode": generation.config.mode}


def health(upstreams: Mapping[str, Upstream], *, whole: bool = True) -> Json:
    """For whoever may ask: without what only the owner may see. `whole`: they see all of these
    servers; else it is not told what was left out of their lists, nor what others do there."""
    servers = {name: _state(upstream) for name, upstream in upstreams.items()}
    if not whole:
        servers = {name: {key: told[key] for key in BRIEF} for name, told in servers.items()}
    good = all(entry["status"] in WELL for entry in servers.values())
    return {"status": "ok" if good else "degraded", "servers": servers}


def _with_held(upstream: Upstream, state: Json) -> Json:
    held, notes = upstream.describe_held()
    quarantined = upstream.server.enabled and not upstream.enabled
    return {**state, "held": held, "quarantined": quarantined, "notes": [*notes, *state["notes"]]}


def _about(command: Command) -> Json:
    return {
        "name": command.name,
        "description": command.description,
        "type": command.action.type,
        "enabled": command.enabled,
        "last_error": command.switched_off,
    }


def _state(upstream: Upstream) -> Json:
    status = upstream.status
    return {
        "status": status.state,
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(status.since)),
        "last_error": status.last_error,
        **upstream.describe(),
    }


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


MESSAGE_LIMITS = Limits(text=8_000, items=40, depth=6, nodes=200)


class Reports:
    def __init__(
        self,
        generation: Callable[[], Generation],
        bus: Bus,
        catalogs: Catalogs,
        starting: Starting,
        announcements: Announcements,
        changed: Callable[[str], None],
    ) -> None:
        """`changed` is called for a server that has restarted or has announced a change."""
        self._generation = generation
        self._bus = bus
        self._catalogs = catalogs
        self._starting = starting
        self._announcements = announcements
        self._changed = changed

    def publish(self, event: UpstreamEvent) -> None:
        if isinstance(event, ListsRead):
            self._lists_read(event)
            return
        if isinstance(event, ListsVary):
            self._lists_vary(event)
            return
        if isinstance(event, KindListed):
            self._kind_listed(event)
            return
        if isinstance(event, ResourceUpdated):
            self._changed(event.server)
        if isinstance(event, ServerSaid) and event.method == "notifications/message":
            level = Abridged(event.params.get("level"), MESSAGE_LIMITS)
            data = Abridged(event.params.get("data"), MESSAGE_LIMITS)
            log.info("[%s] %s: %s", event.server, level, data)
        if not isinstance(event, ResourceUpdated | ServerSaid) or self.may_speak(event.server):
            self._bus.publish(event)

    def lists_changed(self, server: str) -> None:
        """Approvals of the server's tools or prompts have changed."""
        self.publish(ListsRead(server, ("tools", "prompts"), True))

    def _lists_read(self, event: ListsRead) -> None:
        server = event.server
        self._starting.came()
        self._changed(server)
        self._catalogs.changed()
        if not self.may_speak(server):
            self._announcements.look()
            return
        upstream = self._generation().upstreams.get(server)
        # Of a pinned server, only differences in what clients see are announced.
        is_trusted = upstream is None or upstream.server.trust == "open"
        self._announcements.changed(server, event.kinds if event.announced and is_trusted else ())

    def _lists_vary(self, event: ListsVary) -> None:
        self._catalogs.varied()
        if event.session is None:
            return
        self._changed(event.server)
        if self.may_speak(event.server):
            self._bus.publish(OffersChanged(frozenset(event.kinds), event.session, event.server))

    def _kind_listed(self, event: KindListed) -> None:
        server, kind = event.server, event.client_kind
        self._starting.came(kind)
        if not event.changed:
            return
        self._catalogs.varied()
        self._changed(server)
        if event.announce and self.may_speak(server):
            changed = frozenset(event.changed)
            self._bus.publish(OffersChanged(changed, None, server, client_kind=kind))

    def may_speak(self, server: str) -> bool:
        """Whether clients may know the server. True for one that starts or ends."""
        upstream = self._generation().upstreams.get(server)
        return upstream is None or upstream.enabled or not upstream.server.enabled
