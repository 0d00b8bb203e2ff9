"""What clients want to hear of one server, and the link over which they hear it.

Subscriptions and the log level outlive links, restarts, and reloads. Each client hears over exactly
one link, so that it hears a change once: over its session's own link, or else over the main one.
"""

import logging
from collections import Counter
from typing import TYPE_CHECKING

from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import OVERLOADED, SERVER_DIED, RpcError, Unavailable
from mcpx.upstreams.link import Link
from mcpx.upstreams.wishes import is_session

if TYPE_CHECKING:
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

MOST_OF_ONE = 1_000
MOST = 10_000
MOST_CHARACTERS = 4 * 2**20
"""Subscriptions of one client at one server, of all its clients, and characters of their URIs."""


class Subscriptions:
    def __init__(self, upstream: "Upstream") -> None:
        self.level: str | None = None
        """The lowest log level that a client wants."""
        self._upstream = upstream
        self._server = upstream.name
        self._wanted: dict[str, set[str]] = {}
        """Native URI -> sessions and listenings of modern clients."""
        self._counts: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def inherit(self, other: "Subscriptions") -> None:
        """The other upstream was replaced."""
        for uri, users in other._wanted.items():
            for who in users:
                self._note(uri, who)
        main = self._upstream.links.main
        if other.level is not None and other.level != self.level and main is not None:
            self._upstream.tasks.start(main.listening.set_level(other.level))
        self.level = other.level
        self.carry_soon()

    async def subscribe(self, call: Call, uri: str, who: str) -> Json:
        link = await self._link_for(call)
        if who not in self._wanted.get(uri, ()):
            self._refuse_if_too_many(uri, who)
        result = await link.listening.subscribe(uri, who, call.params)
        self._note(uri, who)
        return result

    async def _link_for(self, call: Call) -> Link:
        """The link of the client's calls, because it reports what they change."""
        upstream, caller, links = self._upstream, call.caller, self._upstream.links
        asks = bool(upstream.traits.asks)
        # A client without a session has no link of its own, unless it is isolated.
        is_guest = caller.session is None and upstream.server.isolation == "shared"
        if links.lends_to(caller) and not (asks and is_guest):
            lease = links.take_now(call) or await links.take(call)
            lease.end()
            if asks:
                lease.link.bind(caller, "it has subscriptions of this client")
            if lease.link.alive:
                return lease.link
        if links.main is None:
            raise Unavailable(self._server, SERVER_DIED, "the connection was lost")
        return links.main

    def _refuse_if_too_many(self, uri: str, who: str) -> None:
        characters = sum(map(len, self._wanted)) + len(uri)
        reason = ""
        if self._counts[who] >= MOST_OF_ONE:
            reason = f"one client may have {MOST_OF_ONE:,} subscriptions here"
        elif self._counts.total() >= MOST or characters > MOST_CHARACTERS:
            reason = "there are too many subscriptions here"
        if reason:
            raise Unavailable(self._server, OVERLOADED, reason)

    def _note(self, uri: str, who: str) -> None:
        users = self._wanted.setdefault(uri, set())
        if who not in users:
            users.add(who)
            self._counts[who] += 1

    async def unsubscribe(self, uri: str, who: str, params: Json) -> Json:
        self._forget(uri, who)
        result: Json = {}
        for link in self._upstream.links:
            if who in link.listening.subscribers.get(uri, ()):
                result = await link.listening.unsubscribe(uri, who, params)
        return result

    async def end(self, who: str) -> None:
        """A client has disconnected, and ends its subscriptions."""
        for uri in [uri for uri, users in self._wanted.items() if who in users]:
            try:
                await self.unsubscribe(uri, who, {})
            except RpcError:
                pass

    def _forget(self, uri: str, who: str) -> None:
        users = self._wanted.get(uri, set())
        if who not in users:
            return
        users.discard(who)
        self._counts[who] -= 1
        if not self._counts[who]:
            del self._counts[who]
        if not users:
            del self._wanted[uri]

    # Other links
    # ----------------------------------------------------------------------------------------------

    def carry_soon(self) -> None:
        main = self._upstream.links.main
        if main is not None and main.alive and self._wanted:
            self._upstream.tasks.start(self._carry(main))

    async def carry_to(self, main: Link) -> None:
        """Renew everything over a new main link."""
        if self.level is not None:
            await main.listening.set_level(self.level)
        await self._carry(main)

    async def _carry(self, main: Link) -> None:
        """Let each client hear over its own link, or else over the main one."""
        links = [link for link in self._upstream.links if link.alive]
        own = {link.owner: link for link in links if link.owner is not None}
        for uri, users in list(self._wanted.items()):
            for who in tuple(users):
                heard = [link for link in links if who in link.listening.subscribers.get(uri, ())]
                target = own.get(who)
                for link in heard:
                    # A modern client's link belongs to the client and not to its listening.
                    if link.owner is not None and not is_session(str(link.owner)):
                        target = target or link
                try:
                    await self._move(uri, who, heard, target or main)
                except RpcError as error:
                    if not main.alive:
                        return  # The next main link carries them.
                    told = "[%s] a subscription could not be renewed: %s"
                    log.warning(told, self._server, error.message)
                    break

    async def _move(self, uri: str, who: str, heard: list[Link], target: Link) -> None:
        if target not in heard:
            await target.listening.subscribe(uri, who, {})
        is_wanted = who in self._wanted.get(uri, ())  # It may have ended while it was moved.
        for link in {*heard, target}:
            if link is not target or not is_wanted:
                await link.listening.unsubscribe(uri, who, {})

    # Notifications and log levels
    # ----------------------------------------------------------------------------------------------

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """Send a client's notification over its own links."""
        for link in self._upstream.links:
            is_own = caller.session is not None and link.owner == caller.session
            if caller.solo or is_own:
                link.notify(method, params)

    async def set_level(self, level: str, caller: Caller) -> None:
        """`level` is the lowest of all clients, for shared links. The caller's own level counts for
        its own link."""
        self.level = level
        for link in self._upstream.links:
            if link.owner is None:
                await link.listening.set_level(level)
            elif link.owner == caller.session and caller.log_level is not None:
                await link.listening.set_level(caller.log_level)
