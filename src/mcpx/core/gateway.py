"""The gateway: the servers of one configuration, the catalog of what they offer, and the door for every call.

Everything built from one configuration is a `Generation`; the catalog is rebuilt when a server's offers change
and swapped as a whole. Servers start in the background and never delay an answer beyond `startup_wait`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mcpx.catalog.catalog import Catalog
from mcpx.catalog.naming import public_name
from mcpx.config import Config
from mcpx.config.plan import Plan
from mcpx.config.plan import plan as plan_of
from mcpx.core.catalogs import Catalogs
from mcpx.core.room import CallersRoom
from mcpx.core.router import route
from mcpx.core.surfaces import SurfaceState, changed_menus, listing_menus, settings_of
from mcpx.model.call import Call, Caller, Json
from mcpx.model.events import Bus, OffersChanged, ResourceUpdated, ServerSaid, UpstreamChanged
from mcpx.model.offer import Kind
from mcpx.surfaces.surface import Surfaces
from mcpx.surfaces.view import Service
from mcpx.upstreams.life import Gate
from mcpx.upstreams.snapshot import Snapshots
from mcpx.upstreams.upstream import Surroundings, Upstream
from mcpx.wire import era
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

ANNOUNCE_GAP = 1.0
"""Seconds between two announcements of changed lists: fifty servers that start together are not fifty notices."""

LULL = 0.4
"""The part of `startup_wait` that a list with something to show waits for one more server after the last that came."""
STARTS_AT_ONCE = 8
"""Servers that are started at a time: fifty interpreters at once would all be slow (LIF-1)."""
PUBLISH_AFTER = 3.0
"""CFG-5: seconds a reload waits for started and restarted servers before it shows the new state."""
DRAIN = 30.0
"""Seconds running calls of a server that was removed may take to finish."""


@dataclass(frozen=True, slots=True)
class Generation:
    """All that was built from one `Config`. A reload builds the next one, from the same parts where it can."""

    config: Config
    upstreams: Mapping[str, Upstream]
    surfaces: Surfaces


class Gateway:
    """Also the `Hub` its upstreams report to."""

    def __init__(self, config: Config, environ: Mapping[str, str], state: Path | None = None) -> None:
        """`state` is the folder for what is not configuration; without one nothing is kept."""
        self.bus = Bus()
        self._tasks = Tasks("gateway")
        snapshots = Snapshots(None if state is None else state / "snapshots")
        self._around = Surroundings(environ, snapshots, Gate(STARTS_AT_ONCE))
        upstreams = {server.name: Upstream(server, self, self._around) for server in config.mcp_servers}
        self._surface_state = SurfaceState()
        self.generation = Generation(config, upstreams, self._surface_state.surfaces(config))
        self._applying = asyncio.Lock()
        self._aside: set[Upstream] = set()
        """Servers that are started for the next generation, or drained after the last."""
        self._started = False
        self._solo: Caller | None = None
        self.catalogs = Catalogs(lambda: self.generation.upstreams.values(), lambda: self.generation.config.naming)
        self._known: Catalog | None = None
        """What clients were told of: the first list they saw, then each announcement."""
        self._told: list[tuple[str, str, str]] = []
        self._stale = False
        self._forced: set[Kind] = set()
        self._menus_changed: frozenset[str | None] = frozenset()
        self._changed_by: set[str] = set()
        self._last_came = 0.0
        self._announcing: asyncio.Task[None] | None = None
        self._levels: dict[str, str] = {}
        self._annotations: tuple[Catalog | None, dict[str, era.ParamHeaders | None]] = (None, {})

    # Life ----------------------------------------------------------------------------------------------------

    def start(self, solo: Caller | None = None) -> None:
        """Connect every enabled server, a few at a time and in the background."""
        self._started, self._solo = True, solo
        for upstream in self.generation.upstreams.values():
            upstream.start(solo)

    async def apply(self, config: Config) -> Plan:
        """Take up a new configuration. What did not change is the same object, connections, calls and all."""
        async with self._applying:
            before = self.generation
            plan = plan_of(before.config, config)
            if plan.empty:
                return plan
            reused = {*plan.kept, *plan.updated}
            upstreams = {
                server.name: before.upstreams[server.name]
                if server.name in reused
                else Upstream(server, self, self._around)
                for server in config.mcp_servers
            }
            fresh = [upstream for name, upstream in upstreams.items() if name not in reused]
            self._aside.update(fresh)
            if self._started:
                for upstream in fresh:
                    if (replaced := before.upstreams.get(upstream.name)) is not None:
                        upstream.inherit(replaced)
                    upstream.start(self._solo)
                # Not `settled`: with a snapshot or after a failed start the old process must not go yet.
                coming = [u.came for u in fresh if u.server.enabled and not u.server.lazy]
                await _set(coming, PUBLISH_AFTER, all_of_them=True)
            self._aside.difference_update(fresh)
            for server in config.mcp_servers:
                if server.name in plan.updated:
                    upstreams[server.name].update(server)
            self.catalogs.forget_names(before.config, config)
            surfaces = before.surfaces
            if (before.config.mode, settings_of(before.config)) != (config.mode, settings_of(config)):
                surfaces = self._surface_state.surfaces(config)
            self._menus_changed |= changed_menus(before.config, config)
            self.generation = Generation(config, upstreams, surfaces)
            self._changed_offers()
            for name, upstream in before.upstreams.items():
                if upstreams.get(name) is not upstream:
                    self._tasks.start(self._drain(upstream))
            return plan

    async def _drain(self, upstream: Upstream) -> None:
        self._aside.add(upstream)
        await upstream.drain(DRAIN)
        self._aside.discard(upstream)

    async def close(self) -> None:
        await self._tasks.close()
        await asyncio.gather(*(upstream.close() for upstream in {*self.generation.upstreams.values(), *self._aside}))
        self._surface_state.close()

    # The door --------------------------------------------------------------------------------------------------

    async def handle(self, call: Call) -> Json:
        return await route(self.generation.surfaces.of(call.caller.mode), CallersRoom(self, call.caller), call)

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        for upstream in self.generation.upstreams.values():
            upstream.notify(caller, method, params)

    async def end_session(self, session: str) -> None:
        self._levels.pop(session, None)
        self.catalogs.forget(session)
        self._surface_state.forget(session)
        await asyncio.gather(*(upstream.end_session(session) for upstream in self.generation.upstreams.values()))

    async def set_level(self, caller: Caller, level: str) -> None:
        """Servers are asked for the lowest level anybody wants; each client still gets only its own."""
        if caller.session is not None:
            self._levels[caller.session] = level
        lowest = min(self._levels.values() or [level], key=era.LOG_LEVELS.index)
        # A server that is slow to answer this must not hold up the client.
        self._tasks.start(self._spread_level(lowest, caller))

    async def _spread_level(self, level: str, caller: Caller) -> None:
        await asyncio.gather(*(u.set_level(level, caller) for u in self.generation.upstreams.values()))

    def describe(self) -> Json:
        """Every server as people want to see it: configuration, state, and what it offers."""
        servers = [
            {
                "name": name,
                "description": upstream.server.description,
                **_state(upstream),
                "tools": self.catalog.count(name, "tools"),
            }
            for name, upstream in self.generation.upstreams.items()
        ]
        auto = [asdict(choice) for choice in self._surface_state.latest_choices()]
        return {"servers": servers, "mode": self.generation.config.mode, "auto": auto}

    def health(self) -> dict[str, Any]:
        servers = {name: _state(upstream) for name, upstream in self.generation.upstreams.items()}
        good = all(entry["status"] in ("connected", "disabled", "sleeping") for entry in servers.values())
        return {"status": "ok" if good else "degraded", "servers": servers}

    # What callers find -------------------------------------------------------------------------------------------

    def room(self, caller: Caller) -> CallersRoom:
        """The gateway as this caller finds it."""
        return CallersRoom(self, caller)

    @property
    def catalog(self) -> Catalog:
        return self.catalogs.shared

    def service(self, name: str) -> Service | None:
        """An enabled server as clients are told of it."""
        upstream = self.generation.upstreams.get(name)
        if upstream is None or not upstream.server.enabled:
            return None
        status = upstream.status
        return Service(name, upstream.description, upstream.instructions, status.state, status.last_error)

    def show(self, catalog: Catalog) -> None:
        """A client is shown this catalog: its names stay, and what differs from it later is announced."""
        self.catalogs.show(catalog)
        if self._known is None:
            self._known, self._told = self.catalogs.shared, self._services()

    def _services(self) -> list[tuple[str, str, str]]:
        """What menus tell of servers, beside their tools."""
        upstreams = self.generation.upstreams.values()
        return [(u.name, u.description, u.instructions) for u in upstreams if u.server.enabled]

    def param_headers(self, tool: str, caller: Caller) -> era.ParamHeaders | None:
        """Which arguments of a tool travel as HTTP headers too; worked out once for each catalog."""
        if not self.generation.surfaces.of(caller.mode).by_name(caller):
            return None
        catalog = self.catalogs.of(caller)
        if self._annotations[0] is not catalog:
            self._annotations = (catalog, {})
        known = self._annotations[1]
        if tool not in known:
            offer = catalog.find("tools", tool)
            known[tool] = None if offer is None else era.param_headers(offer.definition.get("inputSchema"))
        return known[tool]

    # Waiting for servers that start --------------------------------------------------------------------------------

    def _starting(self, server: str | None = None) -> list[Upstream]:
        upstreams = self.generation.upstreams.values()
        return [u for u in upstreams if not u.settled.is_set() and server in (None, u.name)]

    async def prepare(self, caller: Caller) -> None:
        """Before a list: a moment for servers nothing is known of yet; what comes later is announced (LIF-1).

        The moment begins with the client's first message: it is waited for once, not with every list."""
        startup_wait = self.generation.config.global_.startup_wait
        while starting := self._starting():
            end = caller.since + startup_wait
            if any(any(upstream.definitions.values()) for upstream in self.generation.upstreams.values()):
                end = min(end, max(caller.since, self._last_came) + LULL * startup_wait)
            left = end - time.monotonic()
            if left <= 0 or not await _set([upstream.settled for upstream in starting], left):
                break
        if caller.answers and not caller.solo:
            await self.learn(caller, startup_wait)

    async def learn(self, caller: Caller, seconds: float) -> None:
        """Find out what servers offer to a client like this one; once for each life of a server."""
        work = [task for u in self.generation.upstreams.values() if (task := u.learn(caller)) is not None]
        if work and seconds > 0:
            await asyncio.wait(work, timeout=seconds)

    def strangers(self, server: str | None, name: str) -> list[Upstream]:
        """Servers that did not come up and never said what they offer: that one, else those whose prefix the name has.

        Not every one: else each name that a model makes up would have all of them tried."""
        naming = self.generation.config.naming

        def is_meant(upstream: Upstream) -> bool:
            if server is not None:
                return upstream.name == server
            prefix = public_name(upstream.name, "", upstream.server.prefix, naming)
            return prefix != "" and name.startswith(prefix)

        down = [u for u in self.generation.upstreams.values() if u.server.enabled and u.settled.is_set()]
        return [upstream for upstream in down if not upstream.known and is_meant(upstream)]

    async def as_servers_settle(self, server: str | None = None) -> AsyncIterator[None]:
        """Yields each time a starting server has settled, until none is left. Each is bounded by its `timeout`."""
        while starting := self._starting(server):
            await _set([u.settled for u in starting], None)
            yield

    # What upstreams report (Hub) ---------------------------------------------------------------------------------

    def offers_changed(self, server: str, kinds: Iterable[Kind], said_so: bool) -> None:
        if said_so:
            self._forced.update(kinds)
        self._changed_by.add(server)
        self._last_came = time.monotonic()
        self._changed_offers()

    def offers_vary(self, server: str, kinds: Iterable[Kind], session: str | None) -> None:
        """Some callers are offered something else than before; told to the session it concerns."""
        self.catalogs.changed()
        if session is not None:
            self.bus.publish(OffersChanged(frozenset(kinds), session, server))

    def _changed_offers(self) -> None:
        self.catalogs.changed()
        self._stale = True
        if self._announcing is None or self._announcing.done():
            self._announcing = self._tasks.start(self._announce())

    async def _announce(self) -> None:
        """Tell what differs, or what a server said differs; not more often than clients want to hear it."""
        while self._stale:
            self._stale = False
            known, after = self._known, self.catalog
            kinds, servers, menus = set(self._forced), list(self._changed_by), self._menus_changed
            self._menus_changed = frozenset()
            self._forced.clear()
            self._changed_by.clear()
            if known is not None:
                kinds.update(kind for kind, offers in after.offers.items() if known.offers[kind] != offers)
                told = self._services()
                if told != self._told:
                    menus |= listing_menus(self.generation.config)
                self._known, self._told = after, told
            if kinds:
                self.bus.publish(OffersChanged(frozenset(kinds), None, servers[0] if len(servers) == 1 else None))
            if menus and "tools" not in kinds:
                self.bus.publish(OffersChanged(frozenset({"tools"}), modes=menus))
            await asyncio.sleep(ANNOUNCE_GAP)

    def resource_updated(self, server: str, params: Json, owner: str | None) -> None:
        self.bus.publish(ResourceUpdated(server, params, owner))

    def said(self, server: str, method: str, params: Json, owner: str | None) -> None:
        if method == "notifications/message":
            log.info("[%s] %s: %s", server, params.get("level"), params.get("data"))
        self.bus.publish(ServerSaid(server, method, params, owner))

    def state_changed(self, server: str) -> None:
        self.bus.publish(UpstreamChanged(server))


def _state(upstream: Upstream) -> Json:
    """How a server is, for people and programs."""
    status, latency = upstream.status, upstream.latency
    return {
        "status": status.state,
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(status.since)),
        "last_error": status.last_error,
        "restarts": upstream.restarts,
        "latency_ms": None if latency is None else round(latency * 1000, 1),
    }


async def _set(events: Iterable[asyncio.Event], seconds: float | None, *, all_of_them: bool = False) -> bool:
    """Until one of them is set, or all are, or the time is up; whether one is."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    if not waits:
        return False
    try:
        until = asyncio.ALL_COMPLETED if all_of_them else asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=until)
    finally:
        for wait in waits:
            wait.cancel()
    return bool(done)
