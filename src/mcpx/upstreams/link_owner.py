"""What follows from what the links of one server report: questions, messages, and lost links."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcpx.model.call import Json
from mcpx.model.errors import RpcError, Unavailable
from mcpx.model.events import ResourceUpdated, ServerSaid
from mcpx.model.offer import Kind
from mcpx.transports import starts_process
from mcpx.upstreams.chatter import Chatter

if TYPE_CHECKING:
    from mcpx.upstreams.link import Link
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

NOBODY = object()
"""The owner of a message that no client receives."""

CHANGES: Mapping[str, tuple[Kind, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}


class LinkOwner:
    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._name = upstream.name
        self._publish = upstream.context.publish
        self._apart = upstream.context.apart
        self._traits = upstream.traits
        self._chatter = Chatter(upstream.name, self._resource_updated)

    def close(self) -> None:
        self._chatter.close()

    # Messages
    # ----------------------------------------------------------------------------------------------

    def heard(self, link: "Link", method: str, params: Json, owner: object | None) -> None:
        """A message outside of a call. `owner`: the client that it concerns, or None for all."""
        if method in CHANGES:
            self._upstream.refresh.lists_changed(link, CHANGES[method])
        elif method == "notifications/resources/updated":
            uri = params.get("uri")
            users = link.listening.subscribers.get(uri) if isinstance(uri, str) else None
            if users:
                self._chatter.updated(params, frozenset(users))
        elif self._chatter.admits(params):
            shared = owner is None and link.calls > 0 and not link.single
            if shared and method == "notifications/message" and self._apart():
                # It may be about any call on this link. While one client has calls, it is that
                # client's. Otherwise it is only logged.
                owner = link.only_holder or NOBODY
            self._publish(ServerSaid(self._name, method, params, owner, link.callers))

    def _resource_updated(self, params: Json, to: frozenset[str]) -> None:
        self._publish(ResourceUpdated(self._name, params, to))

    # Links
    # ----------------------------------------------------------------------------------------------

    def output_began(self) -> None:
        """The process of a link that is being opened has written its first byte."""
        self._upstream.connection.has_output = True

    def lost(self, link: "Link", reason: str) -> None:
        links = self._upstream.links
        was_main = link is links.main
        links.retire(link)
        if was_main:
            log.warning("[%s] connection lost: %s", self._name, reason)
            self._upstream.connection.lost(reason)
        elif links.main is not None and not starts_process(self._upstream.server.connection):
            # Either both links of the server answer, or none.
            self._upstream.tasks.start(self._probe(links.main))

    async def _probe(self, main: "Link") -> None:
        try:
            await main.probe(self._upstream.server.timeout)
        except Unavailable as error:
            if main.alive and main is self._upstream.links.main:
                self.lost(main, error.message.removeprefix(f"{self._name}: "))
        except RpcError:
            pass  # An error is an answer.

    def retired(self, link: "Link") -> None:
        """The link is being closed."""
        self._upstream.book.held.link_gone(link)
        if link.listening.subscribers:
            self._upstream.subscriptions.carry_soon()

    def rested(self, link: "Link") -> None:
        """The link carries no call any more."""
        self._upstream.links.rested(link)

    def bound(self, link: "Link") -> None:
        """The link belongs to one session from now on."""
        self._upstream.links.wishes.rethink()
        if link is self._upstream.links.main:
            self.renew()
        else:
            self._upstream.subscriptions.carry_soon()

    def renew(self) -> None:
        """Open another main link. The current one stays for its clients."""
        links = self._upstream.links
        if links.main is not None:
            links.main.told.clear()  # Its lists are not the common lists any more.
        links.main = None
        self._upstream.connection.renew()

    def spoilt(self, link: "Link") -> None:
        """No client can use the main link any more."""
        self._upstream.links.retire(link)
        self._upstream.connection.renew()

    def main_changed(self, link: "Link") -> None:
        """Another link is the main one."""
        for each in self._upstream.links:
            each.told.clear()
        self._upstream.health.watch(link)
        self._upstream.subscriptions.carry_soon()

    # Questions
    # ----------------------------------------------------------------------------------------------

    def answered(self) -> None:
        """A call is answered in which the server could have asked a question."""
        if self._traits.answered_unasked():
            told = "[%s] has asked nothing in many calls: its connection is shared by everybody"
            log.info(told, self._name)
            self._traits_changed()

    def asked(self, method: str) -> None:
        """The server has asked a question."""
        if self._traits.asked(method):
            log.debug("[%s] asks: %s", self._name, method)
            self._traits_changed()
            main = self._upstream.links.main
            if main is not None and main.use == "lent":
                # Clients that cannot be asked need a link that declares nothing as the main link.
                self.renew()

    def asked_late(self) -> None:
        """The server has asked a question while no client had a call on a used link."""
        if not self._traits.asks_late:
            self._traits.asks_late = True
            self._traits_changed()

    def _traits_changed(self) -> None:
        self._upstream.links.wishes.rethink()
        self._upstream.book.keep_soon()
