"""The gateway: the sources of one configuration, the catalog of what they offer, and the door for
every call.

Everything built from one configuration is a `Generation`, which never changes: a reload builds the
next one, from the same parts where it can, and swaps one pointer. A call belongs to the generation
it began in.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.base.aio import Tasks
from mcpx.catalog.catalog import Catalog
from mcpx.config import Config, Server
from mcpx.config.plan import Plan
from mcpx.config.plan import plan as plan_of
from mcpx.core.access import CallerAccess
from mcpx.core.catalogs import Annotations, Catalogs
from mcpx.core.generation import (
    Generation,
    Passing,
    Provisions,
    Source,
    SurfaceState,
    changed_menus,
    listing_menus,
    settings_of,
    shown_otherwise,
)
from mcpx.core.relay import Relay
from mcpx.core.reports import Announcements, Reports, described, health
from mcpx.core.starting import Starting, all_set
from mcpx.core.view import CallersView, route
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import SERVER_DOWN, Unavailable
from mcpx.model.events import Bus
from mcpx.model.redaction import Redactor
from mcpx.model.secret_rules import secrets_of_environment
from mcpx.upstreams.context import Admission, UpstreamContext
from mcpx.upstreams.life import Gate
from mcpx.upstreams.snapshot import Snapshots
from mcpx.upstreams.upstream import Upstream
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials
    from mcpx.core.local import LocalCommands
    from mcpx.core.pinning import Pinning
    from mcpx.policy.warden import Warden
    from mcpx.processes.stderrlog import Overhear
    from mcpx.replicas.replicas import Replicas

STARTS_AT_ONCE = 8
"""Servers that are started at a time: fifty interpreters at once would all be slow (LIF-1)."""
PUBLISH_AFTER = 3.0
"""CFG-5: seconds a reload waits for started and restarted servers before it shows the new state."""


class GatewaySessions:
    """State of client sessions at the gateway and its servers."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._levels: dict[str, str] = {}
        """The log level of each session."""

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        for upstream in self._gateway.access.upstreams(caller):
            upstream.subscriptions.notify(caller, method, params)

    async def listen_for(self, caller: Caller, server: str, uri: str, who: str) -> None:
        """A modern client's listening wants to hear of a resource."""
        upstream = self._gateway.generation.upstreams.get(server)
        if upstream is None or not self._gateway.catalogs.of(caller).may_read(server, uri):
            raise Unavailable(server, SERVER_DOWN, "was removed from the configuration")
        call = Call("subscriptions/listen", {"uri": uri}, caller)
        await self._gateway.relay(
            server, uri, call, call.params, lambda: upstream.watch(caller, uri, who)
        )

    async def stop_listening(self, who: str) -> None:
        """Wherever it is heard by now: servers may have been replaced since it began."""
        await asyncio.gather(
            *(upstream.subscriptions.end(who) for upstream in self._gateway.passing.upstreams())
        )

    async def end_session(self, session: str, *, moved: bool = False) -> None:
        """`moved`: it goes on at another replica."""
        self._levels.pop(session, None)
        self._gateway.surface_state.forget(session, moved=moved)
        await asyncio.gather(
            *(upstream.end_session(session) for upstream in self._gateway.passing.upstreams())
        )

    def choice_of(self, session: str) -> Json | None:
        """What `auto` chose for a session, to be taken up (`take_choice`) by the replica where it
        goes on."""
        return self._gateway.surface_state.choice_of(session)

    def take_choice(self, session: str, choice: Json) -> None:
        self._gateway.surface_state.take_choice(session, choice)

    def see_off(self, stays: Callable[[str], bool]) -> None:
        """Calls that wait for a client's next word are given up where that may not come in any
        more."""
        for upstream in self._gateway.passing.upstreams():
            upstream.calls.see_off(stays)

    async def set_level(self, caller: Caller, level: str) -> None:
        """Servers are asked for the lowest level anybody wants; each client still gets only its
        own."""
        if caller.session is not None:
            self._levels[caller.session] = level
        lowest = min(self._levels.values() or [level], key=era.LOG_LEVELS.index)
        # A server that is slow to answer this must not hold up the client.
        self._gateway.tasks.start(self._spread_level(lowest, caller))

    async def _spread_level(self, level: str, caller: Caller) -> None:
        await asyncio.gather(
            *(
                u.subscriptions.set_level(level, caller)
                for u in self._gateway.access.upstreams(caller)
            )
        )


class GenerationBuilder:
    """Builds the parts of a generation from a configuration."""

    def __init__(self, gateway: "Gateway", context: UpstreamContext) -> None:
        self._gateway = gateway
        self._context = context

    def upstream(self, server: Server, config: Config) -> Upstream:
        auth = next((entry for entry in config.auth_configs if entry.name == server.auth), None)
        return Upstream(server, self._context, auth and (auth.name, auth.auth))

    def commands(self, config: Config, before: "LocalCommands | None") -> "LocalCommands | None":
        if not config.commands:
            return None
        from mcpx.core.local import LocalCommands, Means  # who has none does without

        has, redact = self._gateway.provisions, self._gateway.redactor.redact
        means = Means(
            self._gateway.environ,
            lambda: has.fetcher,
            lambda: self._gateway.surface_state.checker,
            has.ring,
            redact,
        )
        return LocalCommands(config, means, before)

    def warden(self, config: Config) -> "Warden | None":
        if not config.guarded:
            if "policy_state" in vars(self._gateway.provisions):
                self._gateway.provisions.policy_state.lift_limits()
            return None
        from mcpx.policy.warden import Warden

        return Warden(config, self._gateway.provisions.policy_state)

    def admission(self, server: Server) -> Admission | None:
        return None if server.trust == "open" else self._gateway.pinning.admission(server)


class Gateway:
    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        state: Path | None = None,
        *,
        itself: str = "",
        looks: bool = False,
        redactor: Redactor | None = None,
        replicas: "Replicas | None" = None,
    ) -> None:
        """`state` is the folder for what is not configuration; without one nothing is kept.
        `itself` marks this gateway to itself, should one of its servers turn out to be the gateway.
        `looks`: it is only to be seen how the servers are: nobody is asked to sign in, and of
        `state` only what others signed in for is used. `redactor`: what the log uses too.
        `replicas`: those it shares a store with."""
        self.itself = itself
        self.replicas = replicas
        """None: all there is of this gateway is this process."""
        self.redactor = redactor or Redactor()
        """What must not be said to anybody; up to date with configurations and tokens."""
        self.redactor.learn("config", config.secrets)
        self.redactor.learn("environment", secrets_of_environment(environ))
        self.bus = Bus()
        self.refused: Counter[str] = Counter()
        """What was refused at the door, by limit."""
        self.overhear: Callable[[str], Overhear | None] = lambda server: None
        """Who hears what processes of a server write to standard error; set by whoever looks after
        servers."""
        self.access = CallerAccess(self)
        self.sessions = GatewaySessions(self)
        self.relay = Relay(self.bus, self)
        self.provisions = Provisions(
            environ, state, self.bus, self.redactor, self._credentials_changed, replicas
        )
        self._environ, self._state, self._looks = environ, state, looks
        self.tasks = Tasks("gateway")
        self.passing = Passing(lambda: self.generation, self.provisions, self.tasks)
        self.surface_state = SurfaceState(replicas)
        self.catalogs = Catalogs(
            lambda: self.generation.sources,
            lambda: self.generation.config.naming,
            self.tasks,
            self.access.sight,
        )
        self.starting = Starting(self.access.upstreams, lambda: self.generation.config.global_)
        self.announcements = Announcements(
            self.bus, self.tasks, self.access.look, lambda: listing_menus(self.generation.config)
        )
        self.reports = Reports(
            lambda: self.generation,
            self.bus,
            self.catalogs,
            self.starting,
            self.announcements,
            self._changed,
        )
        self._snapshots = Snapshots(None if state is None or looks else state / "snapshots")
        context = UpstreamContext(
            environ,
            self._snapshots,
            Gate(STARTS_AT_ONCE),
            self.reports.publish,
            lambda: self.provisions.ring,
            not looks,
            itself,
            redact=self.redactor.redact,
            admission=lambda server: self._builder.admission(server),
            overhear=lambda server: self.overhear(server),
            may_ask=lambda server, caller: (
                self.reports.may_speak(server) and self.access.knows(caller, server)
            ),
            apart=lambda: self.generation.config.tells_apart,
        )
        self._builder = GenerationBuilder(self, context)
        upstreams = {
            server.name: self._builder.upstream(server, config) for server in config.mcp_servers
        }
        surfaces = self.surface_state.surfaces(config)
        self.generation = Generation(
            config,
            upstreams,
            surfaces,
            self._builder.commands(config, None),
            self._builder.warden(config),
        )
        self._applying = asyncio.Lock()
        self._started = False
        self._solo: Caller | None = None
        self.annotations = Annotations()

    # What it is made of
    # --------------------------------------------------------------------------------------

    def queued(self) -> Mapping[str, int]:
        """Calls that wait for their turn, by the kind of limit that has them wait: `client`,
        `profile`, `server`."""
        return (
            self.provisions.policy_state.counters.depth()
            if self.generation.warden is not None
            else {}
        )

    def refusals(self) -> Mapping[str, int]:
        """How many calls each limit has refused: `client.per_minute`, `server.in_flight`,
        `gateway.in_flight` …"""
        if "policy_state" not in vars(self.provisions):
            return self.refused
        return self.provisions.policy_state.counters.refused + self.refused

    @cached_property
    def pinning(self) -> "Pinning":
        """What was approved of servers that are not trusted as they come."""
        from mcpx.core.pinning import Pinning

        return Pinning(self, self.provisions.policy_state.pins, self.tasks, keeps=not self._looks)

    def hear_results(self, listener: Callable[[Json, Json], None] | None) -> None:
        """`listener` hears of each result that a compact mode shows: as it came, and as it is
        shown."""
        self.surface_state.on_shaped = listener

    def credentials(self, auth_config: str) -> "list[Credentials]":
        """What is at work of an auth config; nothing before somebody has needed it."""
        return self.provisions.ring.known(auth_config) if "ring" in vars(self.provisions) else []

    def _changed(self, server: str) -> None:
        """It was started anew, or has said that something there is not what it was."""
        if "answers" in vars(self.provisions):
            changed = (upstream for upstream in self.passing.upstreams() if upstream.name == server)
            self.provisions.forget_answers(*changed)

    def _credentials_changed(self, credentials: "Credentials") -> None:
        for upstream in self.passing.upstreams():
            if upstream.signing is not None and upstream.signing.inner is credentials:
                upstream.connection.credentials_changed()

    def sign_ins_changed(self) -> None:
        """Another replica has signed in or out, or renewed what it had: look at what is kept."""
        if "ring" in vars(self.provisions):
            self.provisions.ring.look_again()

    def pins_changed(self) -> None:
        """Another replica has approved something."""
        if "pinning" in vars(self):
            self.pinning.look_again()

    # Life
    # ----------------------------------------------------------------------------------------------

    def start(self, solo: Caller | None = None) -> None:
        """Connect every enabled server, a few at a time and in the background."""
        self._started, self._solo = True, solo
        self._snapshots.serving = True
        if self.replicas is not None:
            self.catalogs.share(self.replicas, self.announcements.look)
        self.tasks.start(self._prune())
        for upstream in self.generation.upstreams.values():
            upstream.connection.start(solo)
        if solo is not None:
            self.catalogs.changed()  # Snapshots have other lists for its kind of client.
        self._watch_pins()

    async def apply(self, config: Config) -> Plan:
        """Take up a new configuration. What did not change is the same object, connections, calls
        and all."""
        async with self._applying:
            before = self.generation
            self.redactor.learn("config", config.secrets)
            plan = plan_of(before.config, config)
            if plan.empty:
                return plan
            reused = {*plan.kept, *plan.updated}
            upstreams = {
                server.name: before.upstreams[server.name]
                if server.name in reused
                else self._builder.upstream(server, config)
                for server in config.mcp_servers
            }
            fresh = [upstream for name, upstream in upstreams.items() if name not in reused]
            self.passing.come(fresh)
            if self._started:
                for upstream in fresh:
                    if (replaced := before.upstreams.get(upstream.name)) is not None:
                        upstream.inherit(replaced)
                    upstream.connection.start(self._solo)
                # With a snapshot or after a failed start an old process must not go yet; a new
                # server keeps nobody.
                coming = [
                    u.life.connected_once
                    if (old := before.upstreams.get(u.name)) is not None and old.server.enabled
                    else u.settled
                    for u in fresh
                    if u.server.enabled and not u.server.lazy
                ]
                await all_set(coming, PUBLISH_AFTER)
            self.passing.arrived(fresh)
            for server in config.mcp_servers:
                if server.name in plan.updated:
                    upstreams[server.name].update(server)
            self.catalogs.forget_names(before.config, config)
            surfaces = before.surfaces
            if (before.config.mode, settings_of(before.config)) != (
                config.mode,
                settings_of(config),
            ):
                surfaces = self.surface_state.surfaces(config)
            self.announcements.menus_changed(changed_menus(before.config, config))
            local = self._builder.commands(config, before.local)
            self.generation = Generation(
                config, upstreams, surfaces, local, self._builder.warden(config)
            )
            if before.warden is not None or self.generation.warden is not None:
                self.catalogs.looked_at_otherwise()
            if config.tells_apart and not before.config.tells_apart:
                for upstream in upstreams.values():
                    upstream.connection.hush()
            if shown_otherwise(before.config, config):
                self.surface_state.let_go()
            self.catalogs.changed()
            self.announcements.look()
            for name, upstream in before.upstreams.items():
                successor = upstreams.get(name)
                if name not in plan.kept:
                    self.provisions.forget_answers(upstream)
                if successor is not upstream:
                    if successor is not None:
                        successor.succeed(upstream)
                    self.passing.leave(upstream)
            if before.local is not None:
                for tool in before.local.replaced_by(local):
                    self.passing.retire(tool)
            await self.passing.keep_credentials()
            self._watch_pins()
            return plan

    def beside(self, config: Config) -> "Gateway":
        """Another one in the same surroundings, to see what a configuration would be like: it asks
        nobody to sign in, keeps nothing, and is the caller's to close."""
        return Gateway(config, self._environ, self._state, itself=self.itself, looks=True)

    @property
    def environ(self) -> Mapping[str, str]:
        """What it was started with."""
        return self._environ

    async def reconnect(self, name: str) -> bool:
        """Connect a server anew; False: there is none of that name. Not while a configuration is
        being taken up."""
        async with self._applying:
            upstream = self.generation.upstreams.get(name)
            if upstream is not None:
                await upstream.connection.reconnect()
            return upstream is not None

    def _watch_pins(self) -> None:
        if self._started and "pinning" in vars(self):
            self.pinning.start()

    async def _prune(self) -> None:
        """Let go of what was known of servers that are long gone."""
        present = [upstream.snapshot_key for upstream in self.passing.upstreams()]
        await asyncio.to_thread(self._snapshots.prune, present)

    def wind_down(self) -> None:
        """The end is near: what runs may finish, of several calls no other is begun."""
        self.surface_state.ending = True

    async def close(self) -> None:
        await self.tasks.close()
        if self.catalogs.names is not None:
            await self.catalogs.names.close()
        if "pinning" in vars(self):
            await self.pinning.close()
        await self.provisions.close_answers()
        local = self.generation.local
        sources = [*self.passing.upstreams(), *([] if local is None else [local])]
        await asyncio.gather(*(source.close() for source in sources))
        await self.provisions.close()
        await self.surface_state.close()

    # The door
    # ----------------------------------------------------------------------------------------------

    def handle(self, call: Call) -> Awaitable[Json]:
        generation, caller = self.generation, call.caller
        if (names := self.catalogs.names) is not None and names.loading is not None:
            return self._handle_after(names.loading, call)
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

    async def describe(self) -> Json:
        """Every server and command as people want to see it."""
        await self.catalogs.ready()
        auto = [asdict(choice) for choice in self.surface_state.latest_choices()]
        return {**described(self.generation, self.catalog), "auto": auto}

    def figures(self) -> Json:
        """What is kept, for whoever counts."""
        kept, size = self.surface_state.kept_now()
        answers = self.provisions.answers if "answers" in vars(self.provisions) else None
        cached = (0, 0, 0) if answers is None else (answers.given, answers.made, answers.size)
        return {"kept": kept, "kept_bytes": size, "cached": cached}

    def health(self, caller: Caller | None = None) -> Json:
        """Of the servers that the caller may know of; None: of all."""
        if caller is None or self.access.sight(caller) is None:
            return health(self.generation.upstreams)
        return health(
            {upstream.name: upstream for upstream in self.access.upstreams(caller)}, whole=False
        )

    # What callers find
    # -------------------------------------------------------------------------------------------

    def view(self, caller: Caller) -> CallersView:
        """The gateway as this caller finds it."""
        return CallersView(self, self.generation, caller)

    @property
    def catalog(self) -> Catalog:
        return self.catalogs.shared

    # Waiting for servers that start
    # --------------------------------------------------------------------------------
