"""What servers report, and who is told of it: the `Hub` of the upstreams.

A server that clients may not know of, because it is in quarantine, is heard and named to nobody.
"""

import logging
from collections.abc import Callable, Collection, Iterable

from mcpx.base.abridge import Abridged, Limits
from mcpx.core.announcements import Announcements
from mcpx.core.catalogs import Catalogs
from mcpx.core.generation import Generation
from mcpx.core.starting import Starting
from mcpx.model.call import Json
from mcpx.model.events import Bus, OffersChanged, ResourceUpdated, ServerSaid, UpstreamChanged
from mcpx.model.offer import Kind
from mcpx.upstreams.traits import Kind as ClientKind

log = logging.getLogger(__name__)

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
        """`changed` hears of a server that was started anew, or has said that something there is
        not what it was."""
        self._generation = generation
        self._bus = bus
        self._catalogs = catalogs
        self._starting = starting
        self._announcements = announcements
        self._changed = changed

    def offers_changed(self, server: str, kinds: Iterable[Kind], said_so: bool) -> None:
        self._starting.came()
        self._changed(server)
        self._catalogs.changed()
        if not self.may_speak(server):
            self._announcements.look()  # nor is it named as the one that has changed
            return
        upstream = self._generation().upstreams.get(server)
        # Of one that is not taken at its word, only what clients see counts: what is held back is
        # nobody's news.
        trusted = upstream is None or upstream.server.trust == "open"
        self._announcements.changed(server, kinds if said_so and trusted else ())

    def offers_vary(self, server: str, kinds: Iterable[Kind], session: str | None) -> None:
        """Some callers are offered something else than before; told to the session it concerns."""
        self._catalogs.varied()
        if session is not None:
            self._changed(server)
        if session is not None and self.may_speak(server):
            self._bus.publish(OffersChanged(frozenset(kinds), session, server))

    def listed_for(
        self, server: str, client_kind: ClientKind, changed: Collection[Kind], *, announce: bool
    ) -> None:
        self._starting.came(client_kind)
        if not changed:
            return
        self._catalogs.varied()
        self._changed(server)
        if announce and self.may_speak(server):
            self._bus.publish(
                OffersChanged(frozenset(changed), None, server, client_kind=client_kind)
            )

    def resource_updated(self, server: str, params: Json, to: frozenset[str]) -> None:
        self._changed(server)
        if self.may_speak(server):
            self._bus.publish(ResourceUpdated(server, params, to))

    def said(
        self,
        server: str,
        method: str,
        params: Json,
        owner: object | None,
        callers: object | None = None,
    ) -> None:
        if method == "notifications/message":
            level = Abridged(params.get("level"), MESSAGE_LIMITS)
            data = Abridged(params.get("data"), MESSAGE_LIMITS)
            log.info("[%s] %s: %s", server, level, data)
        if self.may_speak(server):
            self._bus.publish(ServerSaid(server, method, params, owner, callers))

    def state_changed(self, server: str) -> None:
        self._bus.publish(UpstreamChanged(server))

    def may_speak(self, server: str) -> bool:
        """Not to clients who may not know of it: in quarantine. One that comes or goes may."""
        upstream = self._generation().upstreams.get(server)
        return upstream is None or upstream.enabled or not upstream.server.enabled
