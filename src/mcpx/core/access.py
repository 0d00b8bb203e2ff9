"""What each caller may see of the gateway: servers, tools, mode, and freshness of lists."""

from dataclasses import replace
from typing import TYPE_CHECKING

from mcpx.catalog.catalog import Catalog
from mcpx.catalog.naming import may_belong
from mcpx.core.reports import Shown
from mcpx.model.call import Caller
from mcpx.model.events import Viewer
from mcpx.model.offer import Freshness, Kind
from mcpx.surfaces.view import Service
from mcpx.upstreams.upstream import Upstream
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.core.gateway import Gateway
    from mcpx.policy.sight import Sight


class CallerAccess:
    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway

    def sight(self, caller: Caller) -> "Sight | None":
        """What this caller sees; None: everything."""
        warden = self._gateway.generation.warden
        if warden is not None:
            return warden.sight(caller)
        if caller.profile is None:
            return None
        from mcpx.policy.sight import NOTHING  # the last profile is gone

        return NOTHING

    def limited(self, caller: Caller) -> Catalog | None:
        """What a caller finds that does not see everything; None: it does."""
        return None if self.sight(caller) is None else self._gateway.catalogs.of(caller)

    def knows(self, caller: Caller, server: str) -> bool:
        """Whether this caller may know of that server."""
        return self.sight(caller) is None or self._gateway.catalogs.of(caller).knows(server)

    def mode(self, caller: Caller) -> str | None:
        """The mode this caller asked for, or that of its profile; None: the configured one."""
        warden = self._gateway.generation.warden
        if caller.mode is not None or warden is None or caller.profile is None:
            return caller.mode
        return warden.mode(caller.profile)

    def shown_mode(self, caller: Caller) -> tuple[str, str]:
        """The mode that this caller is shown, and why (SUR-5)."""
        surfaces, wanted = self._gateway.generation.surfaces, self.mode(caller)
        mode, why = surfaces.of(wanted).shown_as(caller)
        if caller.mode is not None:
            return mode, why or "it asked for it by its path"
        return mode, why or (
            "the configuration says so" if wanted is None else "its profile says so"
        )

    def upstreams(self, caller: Caller) -> list[Upstream]:
        """The servers this caller may know of."""
        upstreams = self._gateway.generation.upstreams.values()
        if self.sight(caller) is None:
            return list(upstreams)
        catalog = self._gateway.catalogs.of(caller)
        return [upstream for upstream in upstreams if catalog.knows(upstream.name)]

    def service(self, name: str) -> Service | None:
        """An enabled server as clients are told of it."""
        source = self._gateway.generation.source(name)
        if source is None or not source.enabled:
            return None
        status = source.status
        return Service(
            name, source.description, source.instructions, status.state, status.last_error
        )

    async def show(self, caller: Caller, catalog: Catalog) -> None:
        """A client is shown this catalog: its names stay, and what differs from it later is
        announced."""
        self._gateway.catalogs.show(catalog)
        await self.watched_by(caller)

    async def watched_by(self, caller: Caller) -> None:
        """From here on this caller is told of what differs from what it sees now."""
        viewer = (caller.profile, caller.principal)
        if not self._gateway.announcements.knows(viewer):
            self._gateway.announcements.shown(viewer, await self.look(viewer))

    async def look(self, viewer: Viewer) -> Shown:
        caller = Caller(profile=viewer[0], principal=viewer[1])
        sight = self.sight(caller)
        catalog = await self._gateway.catalogs.seen(sight)
        services = [
            s for s in self._gateway.generation.sources if s.enabled and catalog.knows(s.name)
        ]
        told = hash(tuple((s.name, s.description, s.instructions) for s in services))
        return Shown(catalog, told, self.mode(caller), sight is not None)

    def param_headers(self, tool: str, caller: Caller) -> era.ParamHeaders | None:
        """Which arguments of a tool travel as HTTP headers too, for a caller who calls it by its
        name."""
        if not self._gateway.generation.surfaces.of(self.mode(caller)).by_name(caller):
            return None
        return self._gateway.annotations.of(self._gateway.catalogs.of(caller), tool)

    def freshness(self, caller: Caller, kind: Kind) -> Freshness:
        """How long the caller may cache a merged list."""
        servers = [upstream for upstream in self.upstreams(caller) if upstream.enabled]
        lists = [
            fresh for server in servers if (fresh := server.freshness(caller, kind)) is not None
        ]
        merged = Freshness.of_all(lists)
        if self._gateway.generation.config.tells_apart or any(
            server.offers_vary for server in servers
        ):
            return replace(
                merged, public=False
            )  # Clients get different lists, or need a token for them.
        return merged

    async def prepare(self, caller: Caller) -> None:
        """Before a list: time for servers nothing is known of yet; what comes later is announced
        (LIF-1)."""
        await self._gateway.starting.wait(caller)
        await self._gateway.catalogs.ready(caller)

    def strangers(self, caller: Caller, server: str | None, name: str) -> list[Upstream]:
        """Servers that have not said yet what they offer: that one, else those whose prefix the
        name has.

        Not every one: else each name that a model makes up would have all of them tried."""
        naming = self._gateway.generation.config.naming

        def is_meant(upstream: Upstream) -> bool:
            if server is not None:
                return upstream.name == server
            return may_belong(name, upstream.name, upstream.server.prefix, naming)

        return [u for u in self.upstreams(caller) if u.enabled and not u.known and is_meant(u)]
