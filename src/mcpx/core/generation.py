"""All that was built from one configuration. It never changes: a reload builds the next one and
swaps one pointer."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mcpx.base.aio import Tasks
from mcpx.config import Config
from mcpx.config.schema import PerServer
from mcpx.model.call import Call, Caller, Json
from mcpx.model.events import Bus
from mcpx.model.offer import Offers
from mcpx.model.redaction import Redactor
from mcpx.surfaces import SURFACES
from mcpx.surfaces.settings import Rendering, Settings
from mcpx.surfaces.surface import Lasting, Surfaces
from mcpx.upstreams.life import Status
from mcpx.upstreams.upstream import Upstream

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials
    from mcpx.auth.ring import Ring
    from mcpx.core.caching import Answers
    from mcpx.core.local import LocalCommands, Tool
    from mcpx.policy.state import PolicyState
    from mcpx.policy.warden import Warden
    from mcpx.replicas.replicas import Replicas
    from mcpx.wire.fetch import Fetcher


class Source(Protocol):
    name: str

    @property
    def enabled(self) -> bool: ...

    @property
    def prefix(self) -> str | None:
        """Put before its names."""
        ...

    @property
    def local(self) -> bool:
        """Whether it is no server: its tools keep their plain names, and nobody is told where they
        come from."""
        ...

    @property
    def pinned(self) -> bool:
        """Whether something that it offers may be held back, and be called no more (SEC-5)."""
        ...

    @property
    def status(self) -> Status: ...

    @property
    def description(self) -> str: ...

    @property
    def instructions(self) -> str: ...

    @property
    def known(self) -> bool:
        """Whether it said itself what it offers, now or in an earlier run."""
        ...

    @property
    def offered(self) -> bool:
        """Whether it ever had anything to offer, be it not there any more or held back."""
        ...

    @property
    def settled(self) -> asyncio.Event:
        """Set once it is known what it offers, or that it cannot be known yet."""
        ...

    @property
    def offers_vary(self) -> bool: ...

    def offers(self, caller: Caller | None) -> Offers:
        """What this caller is offered; None asks for what everybody is."""
        ...

    def cache_ttl_of(self, name: str) -> float | None:
        """Seconds an answer of a read-only tool may be given again; None: never."""
        ...

    def answering(self, name: str) -> Hashable:
        """What answers calls of a tool: the same as long as nothing about it is configured
        otherwise."""
        ...

    def shares(self, caller: Caller) -> bool:
        """Whether others who are like this caller would be answered the same: nothing of its own is
        asked for."""
        ...

    async def introduced(self) -> None:
        """Wait, bounded, until it has said what it offers; one that is down is tried."""
        ...

    def call(self, call: Call, params: Json, *, repeatable: bool = False) -> Awaitable[Json]: ...

    async def subscribe(self, caller: Caller, uri: str, params: Json) -> Json: ...

    async def unsubscribe(self, caller: Caller, uri: str, params: Json) -> Json: ...


class Provisions:
    def __init__(
        self,
        environ: Mapping[str, str],
        state: Path | None,
        bus: Bus,
        redactor: Redactor,
        credentials_changed: "Callable[[Credentials], None]",
        replicas: "Replicas | None" = None,
    ) -> None:
        """`replicas`: with whom what is made here is shared."""
        self._environ, self._state = environ, state
        self._bus = bus
        self._redactor = redactor
        self._credentials_changed = credentials_changed
        self._replicas = replicas

    @cached_property
    def policy_state(self) -> "PolicyState":
        """What of policy outlives a reload."""
        from mcpx.policy.state import PolicyState

        return PolicyState(self._state, self._bus.publish, self._replicas)

    @cached_property
    def fetcher(self) -> "Fetcher":
        """The client for requests to APIs and token servers."""
        from mcpx.wire.fetch import Fetcher

        return Fetcher(self._environ)

    @cached_property
    def ring(self) -> "Ring":
        """The credentials that servers and commands use."""
        from mcpx.auth.ring import Ring

        shared = None
        if self._replicas is not None:
            from mcpx.auth.shared import Shared

            shared = Shared(self._replicas)
        changed = self._credentials_changed
        return Ring(
            self._environ, self._state, lambda: self.fetcher, changed, self._redactor, shared
        )

    @cached_property
    def answers(self) -> "Answers":
        """What read-only tools answered, where the configuration says that it may be given
        again."""
        from mcpx.core.caching import Answers

        return Answers()

    def forget_answers(self, *owners: Hashable) -> None:
        if "answers" in vars(self):
            for owner in owners:
                self.answers.forget(owner)

    async def close_answers(self) -> None:
        if "answers" in vars(self):
            await self.answers.close()

    async def close(self) -> None:
        """At the very end: servers that are closed may still have something to say to whoever
        signed them in."""
        for made in ("policy_state", "ring", "fetcher"):
            if made in vars(self):
                await vars(self)[made].close()


@dataclass(frozen=True, slots=True)
class Generation:
    """All that was built from one `Config`."""

    config: Config
    upstreams: Mapping[str, Upstream]
    surfaces: Surfaces
    local: "LocalCommands | None" = None
    """The commands of the configuration; None when it has none."""
    warden: "Warden | None" = None
    """Who guards it; None when there is nothing to guard."""

    @property
    def sources(self) -> Iterable[Source]:
        """All that offers something, in the order of their tools: the user's own commands come
        first, so that they keep their names."""
        return (
            self.upstreams.values()
            if self.local is None
            else (self.local, *self.upstreams.values())
        )

    def source(self, name: str) -> Source | None:
        if self.local is not None and name == self.local.name:
            return self.local
        return self.upstreams.get(name)


DRAIN = 30.0
"""Seconds running calls of a server that was removed may take to finish."""


class Passing:
    def __init__(
        self, generation: Callable[[], Generation], provisions: Provisions, tasks: Tasks
    ) -> None:
        self._generation = generation
        self._provisions = provisions
        self._tasks = tasks
        self._upstreams: set[Upstream] = set()
        self._tools: set[Tool] = set()

    def upstreams(self) -> set[Upstream]:
        """All: those of the generation, and those that come and go."""
        return {*self._generation().upstreams.values(), *self._upstreams}

    def come(self, upstreams: Iterable[Upstream]) -> None:
        """They are being started for the next generation."""
        self._upstreams.update(upstreams)

    def arrived(self, upstreams: Iterable[Upstream]) -> None:
        self._upstreams.difference_update(upstreams)

    def leave(self, upstream: Upstream) -> None:
        self._upstreams.add(upstream)
        self._tasks.start(self._drain(upstream))

    def retire(self, tool: "Tool") -> None:
        """A command that was changed or removed."""
        self._provisions.forget_answers(tool)
        self._tools.add(tool)
        self._tasks.start(self._let_finish(tool))

    async def _drain(self, upstream: Upstream) -> None:
        await upstream.drain(DRAIN)
        self._upstreams.discard(upstream)
        await self.keep_credentials()

    async def _let_finish(self, tool: "Tool") -> None:
        await tool.drain(DRAIN)
        self._tools.discard(tool)
        self._provisions.forget_answers(
            tool
        )  # a call that began before the reload may have left one
        await self.keep_credentials()

    async def keep_credentials(self) -> None:
        """Those that the configuration has, and those that somebody still uses."""
        if "ring" not in vars(self._provisions):
            return
        generation, upstreams = self._generation(), self.upstreams()
        tools = {*self._tools, *(generation.local.tools if generation.local is not None else ())}
        used = {each.credentials for each in (*upstreams, *tools)}
        auths = {entry.name: entry.auth for entry in generation.config.auth_configs}
        await self._provisions.ring.keep(auths, {(u.name, u.address) for u in upstreams}, used)


class SurfaceState(Lasting):
    """Kept results and choices, shared by all generations."""

    def surfaces(self, config: Config) -> Surfaces:
        return Surfaces(config.mode, settings_of(config), self)


def settings_of(config: Config) -> Settings:
    common, proxy = config.global_, config.global_.tool_proxy
    rendering = _rendering(common)
    own = {server.name: _rendering(server) for server in config.mcp_servers}
    return Settings(
        common=rendering,
        servers={name: its for name, its in own.items() if its != rendering},
        menu_budget=common.menu_budget,
        auto_budget=common.auto_budget,
        auto_direct_limit=common.auto_direct_limit,
        auto_rules=common.auto_rules,
        enable_search=proxy.enable_search,
        enable_execute=proxy.enable_execute,
        enable_list_services=proxy.enable_list_services,
        search_limit=proxy.search_limit,
    )


def changed_menus(old: Config, new: Config) -> frozenset[str | None]:
    """The modes whose menu is another one though the tools are the same; None stands for the
    configured mode."""
    before, after = settings_of(old), settings_of(new)
    different = {
        name for name in Settings.__slots__ if getattr(before, name) != getattr(after, name)
    }
    # Only of those that were asked for: nobody has seen the menu of another.
    changed: set[str | None] = {
        mode
        for mode, surface in SURFACES.loaded.items()
        if not different.isdisjoint(surface.menu_settings)
    }
    if old.mode != new.mode or new.mode in changed:
        changed.add(None)
    return frozenset(changed)


def listing_menus(config: Config) -> frozenset[str | None]:
    """The modes whose menu lists servers; None stands for the configured mode."""
    modes: set[str | None] = {
        mode for mode, surface in SURFACES.loaded.items() if surface.lists_servers
    }
    return frozenset(modes | {None} if config.mode in modes else modes)


def shown_otherwise(old: Config, new: Config) -> bool:
    """Whether somebody may see less than before."""
    before = {server.name: server.trust for server in old.mcp_servers}
    wary = any(before.get(server.name, server.trust) != server.trust for server in new.mcp_servers)
    return wary or (old.profiles, old.policy) != (new.profiles, new.policy)


def _rendering(keys: PerServer) -> Rendering:
    return Rendering(
        schema_format=keys.schema_format
        or ("typescript" if keys.schema_compression_enabled else "json"),
        max_description_len=keys.max_description_len,
        value_format=keys.value_format or ("toon" if keys.toon_compression_enabled else "json"),
        toon_min_size=keys.toon_compression_min_size,
        compact_json=keys.json_compression_enabled,
        structured=keys.structured_content == "include",
        result_limit=keys.result_limit,
    )
