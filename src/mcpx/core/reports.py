"""Receives the events of upstreams, updates the catalogs, and informs clients.

Clients receive nothing about a server in quarantine, and not its name.
"""

import logging
from collections.abc import Callable

from mcpx.base.abridge import Abridged, Limits
from mcpx.core.announcements import Announcements
from mcpx.core.catalogs import Catalogs
from mcpx.core.generation import Generation
from mcpx.core.starting import Starting
from mcpx.model.events import Bus, OffersChanged, ResourceUpdated, ServerSaid
from mcpx.upstreams.context import KindListed, ListsRead, ListsVary, UpstreamEvent

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
