"""The gateway: the sources of one configuration, the catalog of what they offer, and the door for every call.

Everything built from one configuration is a `Generation`, which never changes: a reload builds the next one, from the
same parts where it can, and swaps one pointer. A call belongs to the generation it began in.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.catalog.catalog import Catalog
from mcpx.catalog.naming import may_belong
from mcpx.config import Config, Server
from mcpx.config.plan import Plan
from mcpx.config.plan import plan as plan_of
from mcpx.config.secrets import secrets_of
from mcpx.core.announcements import Announcements, Shown
from mcpx.core.catalogs import Catalogs
from mcpx.core.generation import Generation
from mcpx.core.relay import Relay
from mcpx.core.router import route
from mcpx.core.source import Source
from mcpx.core.starting import Starting, all_set
from mcpx.core.surfaces import SurfaceState, changed_menus, listing_menus, settings_of, shown_otherwise
from mcpx.core.telling import described, health
from mcpx.core.view import CallersView
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import SERVER_DOWN, Unavailable
from mcpx.model.events import Bus, OffersChanged, ResourceUpdated, ServerSaid, UpstreamChanged, Viewer
from mcpx.model.offer import Kind
from mcpx.model.redaction import Redactor
from mcpx.surfaces.view import Service
from mcpx.upstreams.life import Gate
from mcpx.upstreams.snapshot import Snapshots
from mcpx.upstreams.surroundings import Surroundings
from mcpx.upstreams.upstream import Upstream
from mcpx.wire import era
from mcpx.wire.logs import Brief
from mcpx.wire.tasks import Tasks

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials
    from mcpx.auth.ring import Ring
    from mcpx.core.caching import Answers
    from mcpx.core.local import LocalCommands, Tool
    from mcpx.core.pinning import Pinning
    from mcpx.policy.sight import Sight
    from mcpx.policy.state import PolicyState
    from mcpx.policy.warden import Warden
    from mcpx.processes.stderrlog import Overhear
    from mcpx.upstreams.admission import Admission
    from mcpx.wire.fetch import Fetcher

log = logging.getLogger(__name__)

STARTS_AT_ONCE = 8
"""Servers that are started at a time: fifty interpreters at once would all be slow (LIF-1)."""
PUBLISH_AFTER = 3.0
"""CFG-5: seconds a reload waits for started and restarted servers before it shows the new state."""
LOGGED = 2_000
"""Characters of a server's message that are logged."""
DRAIN = 30.0
"""Seconds running calls of a server that was removed may take to finish."""


class Gateway:
    """Also the `Hub` its upstreams report to."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        state: Path | None = None,
        *,
        itself: str = "",
        looks: bool = False,
        redactor: Redactor | None = None,
    ) -> None:
        """`state` is the folder for what is not configuration; without one nothing is kept. `itself` marks this
        gateway to itself, should one of its servers turn out to be the gateway. `looks`: it is only to be seen how
        the servers are: nobody is asked to sign in, and of `state` only what others signed in for is used.
        `redactor`: what the log uses too."""
        self.itself = itself
        self.redactor = redactor or Redactor()
        """What must not be said to anybody; up to date with configurations and tokens."""
        self.redactor.learn("config", config.secrets)
        self.redactor.learn("environment", secrets_of(environ))
        self.bus = Bus()
        self.refused: Counter[str] = Counter()
        """What was refused at the door, by limit."""
        self.overhear: Callable[[str], Overhear | None] = lambda server: None
        """Who hears what processes of a server write to standard error; set by whoever looks after servers."""
        self.relay = Relay(self.bus, self)
        self._tasks = Tasks("gateway")
        self._snapshots = Snapshots(None if state is None or looks else state / "snapshots")
        gate = Gate(STARTS_AT_ONCE)
        self._environ, self._state, self._looks = environ, state, looks
        self._around = Surroundings(
            environ,
            self._snapshots,
            gate,
            lambda: self.ring,
            not looks,
            itself,
            redact=self.redactor.redact,
            admission=self._admission,
            overhear=lambda server: self.overhear(server),
            may_ask=lambda server, caller: self._may_speak(server) and self.knows(caller, server),
            apart=lambda: self.generation.config.tells_apart,
        )
        upstreams = {server.name: self._upstream(server, config) for server in config.mcp_servers}
        self._surface_state = SurfaceState()
        local = self._commands(config, None)
        surfaces = self._surface_state.surfaces(config)
        self.generation = Generation(config, upstreams, surfaces, local, self._warden(config))
        self._applying = asyncio.Lock()
        self._aside: set[Upstream] = set()
        """Servers that are started for the next generation, or drained after the last."""
        self._leaving: set[Tool] = set()
        """Commands that finish what they were asked."""
        self._started = False
        self._solo: Caller | None = None
        self.catalogs = Catalogs(
            lambda: self.generation.sources, lambda: self.generation.config.naming, self._tasks, self.sight
        )
        self.starting = Starting(self._upstreams_of, lambda: self.generation.config.global_.first_start_wait)
        self._announcements = Announcements(
            self.bus, self._tasks, self._look, lambda: listing_menus(self.generation.config)
        )
        self._levels: dict[str, str] = {}
        self._annotations: tuple[Catalog | None, dict[str, era.ParamHeaders | None]] = (None, {})

    # What it is made of --------------------------------------------------------------------------------------

    def _upstream(self, server: Server, config: Config) -> Upstream:
        auth = next((entry for entry in config.auth_configs if entry.name == server.auth), None)
        return Upstream(server, self, self._around, None if auth is None else (auth.name, auth.auth))

    def _commands(self, config: Config, before: "LocalCommands | None") -> "LocalCommands | None":
        if not config.commands:
            return None
        from mcpx.core.local import LocalCommands, Means  # who has none does without

        means = Means(
            self._environ, lambda: self.fetcher, lambda: self._surface_state.checker, self.ring, self.redactor.redact
        )
        return LocalCommands(config, means, before)

    def _warden(self, config: Config) -> "Warden | None":
        if not config.guarded:
            if "policy_state" in vars(self):
                self.policy_state.lift_limits()
            return None
        from mcpx.policy.warden import Warden

        return Warden(config, self.policy_state)

    @cached_property
    def policy_state(self) -> "PolicyState":
        """What of policy outlives a reload."""
        from mcpx.policy.state import PolicyState

        return PolicyState(self._state, self.bus.publish)

    def queued(self) -> Mapping[str, int]:
        """Calls that wait for their turn, by the kind of limit that has them wait: `client`, `profile`, `server`."""
        return self.policy_state.counters.depth() if self.generation.warden is not None else {}

    def refusals(self) -> Mapping[str, int]:
        """How many calls each limit has refused: `client.per_minute`, `server.in_flight`, `gateway.in_flight` …"""
        return self.policy_state.counters.refused + self.refused if "policy_state" in vars(self) else self.refused

    @cached_property
    def pinning(self) -> "Pinning":
        """What was approved of servers that are not trusted as they come."""
        from mcpx.core.pinning import Pinning

        return Pinning(self, self.policy_state.pins, self._tasks, keeps=not self._looks)

    def _admission(self, server: Server) -> "Admission | None":
        return None if server.trust == "open" else self.pinning.admission(server)

    def sight(self, caller: Caller) -> "Sight | None":
        """What this caller sees; None: everything."""
        warden = self.generation.warden
        if warden is not None:
            return warden.sight(caller)
        if caller.profile is None:
            return None
        from mcpx.policy.sight import NOTHING  # the last profile is gone

        return NOTHING

    def limited(self, caller: Caller) -> Catalog | None:
        """What a caller finds that does not see everything; None: it does."""
        return None if self.sight(caller) is None else self.catalogs.of(caller)

    def knows(self, caller: Caller, server: str) -> bool:
        """Whether this caller may know of that server."""
        return self.sight(caller) is None or self.catalogs.of(caller).knows(server)

    def mode(self, caller: Caller) -> str | None:
        """The mode this caller asked for, or that of its profile; None: the configured one."""
        warden = self.generation.warden
        if caller.mode is not None or warden is None or caller.profile is None:
            return caller.mode
        return warden.mode(caller.profile)

    def shown_mode(self, caller: Caller) -> tuple[str, str]:
        """The mode that this caller is shown, and why (SUR-5)."""
        surfaces, wanted = self.generation.surfaces, self.mode(caller)
        mode, why = surfaces.of(wanted).shown_as(caller)
        if caller.mode is not None:
            return mode, why or "it asked for it by its path"
        return mode, why or ("the configuration says so" if wanted is None else "its profile says so")

    def hear_results(self, listener: Callable[[Json, Json], None] | None) -> None:
        """`listener` hears of each result that a compact mode shows: as it came, and as it is shown."""
        self._surface_state.on_shaped = listener

    def _upstreams_of(self, caller: Caller) -> list[Upstream]:
        """The servers this caller may know of."""
        upstreams = self.generation.upstreams.values()
        if self.sight(caller) is None:
            return list(upstreams)
        catalog = self.catalogs.of(caller)
        return [upstream for upstream in upstreams if catalog.knows(upstream.name)]

    @cached_property
    def fetcher(self) -> "Fetcher":
        """The client for requests to APIs and token servers."""
        from mcpx.wire.fetch import Fetcher

        return Fetcher(self._environ)

    @cached_property
    def answers(self) -> "Answers":
        """What read-only tools answered, where the configuration says that it may be given again."""
        from mcpx.core.caching import Answers

        return Answers()

    def _forget_answers(self, *owners: Hashable) -> None:
        if "answers" in vars(self):
            for owner in owners:
                self.answers.forget(owner)

    @cached_property
    def ring(self) -> "Ring":
        """The credentials that servers and commands use."""
        from mcpx.auth.ring import Ring

        return Ring(self._environ, self._state, lambda: self.fetcher, self._credentials_changed, self.redactor)

    def credentials(self, auth_config: str) -> "list[Credentials]":
        """What is at work of an auth config; nothing before somebody has needed it."""
        return self.ring.known(auth_config) if "ring" in vars(self) else []

    def _credentials_changed(self, credentials: "Credentials") -> None:
        for upstream in self._all():
            if upstream.signing is not None and upstream.signing.inner is credentials:
                upstream.credentials_changed()

    # Life ----------------------------------------------------------------------------------------------------

    def start(self, solo: Caller | None = None) -> None:
        """Connect every enabled server, a few at a time and in the background."""
        self._started, self._solo = True, solo
        self._snapshots.serving = True
        self._tasks.start(self._prune())
        for upstream in self.generation.upstreams.values():
            upstream.start(solo)
        self._watch_pins()

    async def apply(self, config: Config) -> Plan:
        """Take up a new configuration. What did not change is the same object, connections, calls and all."""
        async with self._applying:
            before = self.generation
            self.redactor.learn("config", config.secrets)
            plan = plan_of(before.config, config)
            if plan.empty:
                return plan
            reused = {*plan.kept, *plan.updated}
            upstreams = {
                server.name: before.upstreams[server.name] if server.name in reused else self._upstream(server, config)
                for server in config.mcp_servers
            }
            fresh = [upstream for name, upstream in upstreams.items() if name not in reused]
            self._aside.update(fresh)
            if self._started:
                for upstream in fresh:
                    if (replaced := before.upstreams.get(upstream.name)) is not None:
                        upstream.inherit(replaced)
                    upstream.start(self._solo)
                # With a snapshot or after a failed start an old process must not go yet; a new server keeps nobody.
                coming = [
                    u.came if (old := before.upstreams.get(u.name)) is not None and old.server.enabled else u.settled
                    for u in fresh
                    if u.server.enabled and not u.server.lazy
                ]
                await all_set(coming, PUBLISH_AFTER)
            self._aside.difference_update(fresh)
            for server in config.mcp_servers:
                if server.name in plan.updated:
                    upstreams[server.name].update(server)
            self.catalogs.forget_names(before.config, config)
            surfaces = before.surfaces
            if (before.config.mode, settings_of(before.config)) != (config.mode, settings_of(config)):
                surfaces = self._surface_state.surfaces(config)
            self._announcements.menus_changed(changed_menus(before.config, config))
            local = self._commands(config, before.local)
            self.generation = Generation(config, upstreams, surfaces, local, self._warden(config))
            if before.warden is not None or self.generation.warden is not None:
                self.catalogs.looked_at_otherwise()
            if config.tells_apart and not before.config.tells_apart:
                for upstream in upstreams.values():
                    upstream.hush()
            if shown_otherwise(before.config, config):
                self._surface_state.let_go()
            self.catalogs.changed()
            self._announcements.look()
            for name, upstream in before.upstreams.items():
                successor = upstreams.get(name)
                if name not in plan.kept:
                    self._forget_answers(upstream)
                if successor is not upstream:
                    if successor is not None:
                        successor.succeed(upstream)
                    self._aside.add(upstream)
                    self._tasks.start(self._drain(upstream))
            if before.local is not None:
                for tool in before.local.replaced_by(local):
                    self._forget_answers(tool)
                    self._leaving.add(tool)
                    self._tasks.start(self._let_finish(tool))
            await self._keep_credentials()
            self._watch_pins()
            return plan

    def beside(self, config: Config) -> "Gateway":
        """Another one in the same surroundings, to see what a configuration would be like: it asks nobody to sign in,
        keeps nothing, and is the caller's to close."""
        return Gateway(config, self._environ, self._state, itself=self.itself, looks=True)

    @property
    def environ(self) -> Mapping[str, str]:
        """What it was started with."""
        return self._environ

    async def reconnect(self, name: str) -> bool:
        """Connect a server anew; False: there is none of that name. Not while a configuration is being taken up."""
        async with self._applying:
            upstream = self.generation.upstreams.get(name)
            if upstream is not None:
                await upstream.reconnect()
            return upstream is not None

    def _watch_pins(self) -> None:
        if self._started and "pinning" in vars(self):
            self.pinning.start()

    async def _drain(self, upstream: Upstream) -> None:
        await upstream.drain(DRAIN)
        self._aside.discard(upstream)
        await self._keep_credentials()

    async def _let_finish(self, tool: "Tool") -> None:
        await tool.drain(DRAIN)
        self._leaving.discard(tool)
        self._forget_answers(tool)  # a call that began before the reload may have left one
        await self._keep_credentials()

    async def _keep_credentials(self) -> None:
        """Those that the configuration has, and those that somebody still uses."""
        if "ring" not in vars(self):
            return
        generation = self.generation
        tools = {*self._leaving, *(generation.local.tools if generation.local is not None else ())}
        used = {each.credentials for each in (*self._all(), *tools)}
        auths = {entry.name: entry.auth for entry in generation.config.auth_configs}
        await self.ring.keep(auths, {(u.name, u.address) for u in self._all()}, used)

    async def _prune(self) -> None:
        """Let go of what was known of servers that are long gone."""
        present = [upstream.snapshot_key for upstream in self._all()]
        await asyncio.to_thread(self._snapshots.prune, present)

    def wind_down(self) -> None:
        """The end is near: what runs may finish, of several calls no other is begun."""
        self._surface_state.ending = True

    async def close(self) -> None:
        await self._tasks.close()
        if "pinning" in vars(self):
            await self.pinning.close()
        if "answers" in vars(self):
            await self.answers.close()
        await asyncio.gather(*(upstream.close() for upstream in {*self.generation.upstreams.values(), *self._aside}))
        if self.generation.local is not None:
            await self.generation.local.close()
        for made in ("ring", "fetcher"):
            if made in vars(self):
                await vars(self)[made].close()
        self._surface_state.close()

    # The door --------------------------------------------------------------------------------------------------

    def handle(self, call: Call) -> Awaitable[Json]:
        generation, caller = self.generation, call.caller
        mode, view = caller.mode, CallersView(self, generation, caller)
        if caller.profile is not None or generation.warden is not None:
            if view.catalog.blank and (building := self.catalogs.nothing_yet(caller)) is not None:
                return self._handle_after(building, call)
            if mode is None and caller.profile is not None and generation.warden is not None:
                mode = generation.warden.mode(caller.profile)
        return route(generation.surfaces.of(mode), view, call)

    async def _handle_after(self, building: asyncio.Task[None], call: Call) -> Json:
        await asyncio.wait([building])
        return await self.handle(call)

    def source(self, generation: Generation, server: str) -> Source:
        """As the generation has it that a call began in; one that came later, as it is now."""
        found = generation.source(server) or self.generation.source(server)
        if found is None:
            raise Unavailable(server, SERVER_DOWN, "was removed from the configuration")
        return found

    def is_current(self, source: Source) -> bool:
        """Whether it belongs to the configuration of now."""
        return self.generation.source(source.name) is source

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        for upstream in self._upstreams_of(caller):
            upstream.notify(caller, method, params)

    async def listen_for(self, caller: Caller, server: str, uri: str, who: str) -> None:
        """A modern client's listening wants to hear of a resource."""
        upstream = self.generation.upstreams.get(server)
        if upstream is None or not self.catalogs.of(caller).may_read(server, uri):
            raise Unavailable(server, SERVER_DOWN, "was removed from the configuration")
        call = Call("subscriptions/listen", {"uri": uri}, caller)
        await self.relay(server, uri, call, call.params, lambda: upstream.watch(caller, uri, who))

    async def stop_listening(self, who: str) -> None:
        """Wherever it is heard by now: servers may have been replaced since it began."""
        await asyncio.gather(*(upstream.unwatch(who) for upstream in self._all()))

    async def end_session(self, session: str) -> None:
        self._levels.pop(session, None)
        self._surface_state.forget(session)
        await asyncio.gather(*(upstream.end_session(session) for upstream in self._all()))

    def see_off(self, stays: Callable[[str], bool]) -> None:
        """Calls that wait for a client's next word are given up where that may not come in any more."""
        for upstream in self._all():
            upstream.see_off(stays)

    def _all(self) -> set[Upstream]:
        """Also those that come and go."""
        return {*self.generation.upstreams.values(), *self._aside}

    async def set_level(self, caller: Caller, level: str) -> None:
        """Servers are asked for the lowest level anybody wants; each client still gets only its own."""
        if caller.session is not None:
            self._levels[caller.session] = level
        lowest = min(self._levels.values() or [level], key=era.LOG_LEVELS.index)
        # A server that is slow to answer this must not hold up the client.
        self._tasks.start(self._spread_level(lowest, caller))

    async def _spread_level(self, level: str, caller: Caller) -> None:
        await asyncio.gather(*(u.set_level(level, caller) for u in self._upstreams_of(caller)))

    async def describe(self) -> Json:
        """Every server and command as people want to see it."""
        await self.catalogs.ready()
        auto = [asdict(choice) for choice in self._surface_state.latest_choices()]
        return {**described(self.generation, self.catalog), "auto": auto}

    def figures(self) -> Json:
        """What is kept, for whoever counts."""
        kept, size = self._surface_state.kept_now()
        answers = self.answers if "answers" in vars(self) else None
        cached = (0, 0, 0) if answers is None else (answers.given, answers.made, answers.size)
        return {"kept": kept, "kept_bytes": size, "cached": cached}

    def health(self, caller: Caller | None = None) -> Json:
        """Of the servers that the caller may know of; None: of all."""
        if caller is None or self.sight(caller) is None:
            return health(self.generation.upstreams)
        return health({upstream.name: upstream for upstream in self._upstreams_of(caller)}, whole=False)

    # What callers find -------------------------------------------------------------------------------------------

    def view(self, caller: Caller) -> CallersView:
        """The gateway as this caller finds it."""
        return CallersView(self, self.generation, caller)

    @property
    def catalog(self) -> Catalog:
        return self.catalogs.shared

    def service(self, name: str) -> Service | None:
        """An enabled server as clients are told of it."""
        source = self.generation.source(name)
        if source is None or not source.enabled:
            return None
        status = source.status
        return Service(name, source.description, source.instructions, status.state, status.last_error)

    async def show(self, caller: Caller, catalog: Catalog) -> None:
        """A client is shown this catalog: its names stay, and what differs from it later is announced."""
        self.catalogs.show(catalog)
        await self.watched_by(caller)

    async def watched_by(self, caller: Caller) -> None:
        """From here on this caller is told of what differs from what it sees now."""
        viewer = (caller.profile, caller.principal)
        if not self._announcements.knows(viewer):
            self._announcements.shown(viewer, await self._look(viewer))

    async def _look(self, viewer: Viewer) -> Shown:
        caller = Caller(profile=viewer[0], principal=viewer[1])
        sight = self.sight(caller)
        catalog = await self.catalogs.seen(sight)
        services = [s for s in self.generation.sources if s.enabled and catalog.knows(s.name)]
        told = hash(tuple((s.name, s.description, s.instructions) for s in services))
        return Shown(catalog, told, self.mode(caller), sight is not None)

    def param_headers(self, tool: str, caller: Caller) -> era.ParamHeaders | None:
        """Which arguments of a tool travel as HTTP headers too; worked out once for each catalog."""
        if not self.generation.surfaces.of(self.mode(caller)).by_name(caller):
            return None
        catalog = self.catalogs.of(caller)
        whole = catalog.whole
        if self._annotations[0] is not whole:
            self._annotations = (whole, {})
        known = self._annotations[1]
        offer = whole.find("tools", tool)
        if offer is None:
            return None  # and not kept: there is no end of names that nobody has
        if tool not in known:
            known[tool] = era.param_headers(offer.definition.get("inputSchema"))
        wanted = known[tool]
        return wanted if wanted and catalog.sees(offer) else None

    # Waiting for servers that start --------------------------------------------------------------------------------

    async def prepare(self, caller: Caller) -> None:
        """Before a list: time for servers nothing is known of yet; what comes later is announced (LIF-1)."""
        await self.starting.wait(caller)
        if caller.answers and not caller.solo:
            await self.learn(caller, self.generation.config.global_.startup_wait)
        await self.catalogs.ready(caller)

    async def learn(self, caller: Caller, seconds: float) -> None:
        """Find out what servers offer to a client like this one; once for each kind of client."""
        work = [task for u in self._upstreams_of(caller) if (task := u.learn(caller)) is not None]
        if work and seconds > 0:
            await asyncio.wait(work, timeout=seconds)

    def strangers(self, caller: Caller, server: str | None, name: str) -> list[Upstream]:
        """Servers that have not said yet what they offer: that one, else those whose prefix the name has.

        Not every one: else each name that a model makes up would have all of them tried."""
        naming = self.generation.config.naming

        def is_meant(upstream: Upstream) -> bool:
            if server is not None:
                return upstream.name == server
            return may_belong(name, upstream.name, upstream.server.prefix, naming)

        return [u for u in self._upstreams_of(caller) if u.enabled and not u.known and is_meant(u)]

    # What upstreams report (Hub) ---------------------------------------------------------------------------------

    def offers_changed(self, server: str, kinds: Iterable[Kind], said_so: bool) -> None:
        self.starting.came()
        self._changed(server)
        self.catalogs.changed()
        if not self._may_speak(server):
            self._announcements.look()  # nor is it named as the one that has changed
            return
        upstream = self.generation.upstreams.get(server)
        # Of one that is not taken at its word, only what clients see counts: what is held back is nobody's news.
        trusted = upstream is None or upstream.server.trust == "open"
        self._announcements.changed(server, kinds if said_so and trusted else ())

    def offers_vary(self, server: str, kinds: Iterable[Kind], session: str | None) -> None:
        """Some callers are offered something else than before; told to the session it concerns."""
        self.catalogs.varied()
        if session is not None:
            self._changed(server)
        if session is not None and self._may_speak(server):
            self.bus.publish(OffersChanged(frozenset(kinds), session, server))

    def resource_updated(self, server: str, params: Json, to: frozenset[str]) -> None:
        self._changed(server)
        if self._may_speak(server):
            self.bus.publish(ResourceUpdated(server, params, to))

    def _changed(self, server: str) -> None:
        """It was started anew, or has said that something there is not what it was."""
        if "answers" in vars(self):
            self._forget_answers(*(upstream for upstream in self._all() if upstream.name == server))

    def said(self, server: str, method: str, params: Json, owner: object | None) -> None:
        if method == "notifications/message":
            log.info("[%s] %s: %s", server, Brief(params.get("level")), Brief(params.get("data")))
        if self._may_speak(server):
            self.bus.publish(ServerSaid(server, method, params, owner))

    def _may_speak(self, server: str) -> bool:
        """Not to clients who may not know of it: in quarantine. One that comes or goes may."""
        upstream = self.generation.upstreams.get(server)
        return upstream is None or upstream.enabled or not upstream.server.enabled

    def state_changed(self, server: str) -> None:
        self.bus.publish(UpstreamChanged(server))
