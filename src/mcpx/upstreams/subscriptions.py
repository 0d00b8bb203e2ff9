"""Who wants to hear of which resource of one server, and over which link each of them does.

What clients want outlives links, restarts and reloads; each of them hears over exactly one link, so
that nobody hears a change twice. A session with a link of its own hears over that, everybody else
over the main one.
"""

import logging
from collections import Counter
from collections.abc import Iterable

from mcpx.model.call import Json
from mcpx.model.errors import OVERLOADED, RpcError, Unavailable
from mcpx.upstreams.link import Link
from mcpx.upstreams.wishes import is_session

log = logging.getLogger(__name__)

MOST_OF_ONE = 1_000
MOST = 10_000
MOST_CHARACTERS = 4 * 2**20
"""Subscriptions of one client at one server, of all its clients, and characters of the URIs of
these."""


class Subscriptions:
    def __init__(self, server: str) -> None:
        self._server = server
        self._wanted: dict[str, set[str]] = {}
        """Native URI -> who (a session, or a modern client's listening)."""
        self._counts: Counter[str] = Counter()

    def inherit(self, other: "Subscriptions") -> None:
        for uri, users in other._wanted.items():
            for who in users:
                self._note(uri, who)

    async def subscribe(self, link: Link, uri: str, who: str, params: Json) -> Json:
        if who not in self._wanted.get(uri, ()):
            self._refuse_if_too_many(uri, who)
        result = await link.subscribe(uri, who, params)
        self._note(uri, who)
        return result

    def _refuse_if_too_many(self, uri: str, who: str) -> None:
        if self._counts[who] >= MOST_OF_ONE:
            raise Unavailable(
                self._server, OVERLOADED, f"one client may have {MOST_OF_ONE:,} subscriptions here"
            )
        if (
            sum(self._counts.values()) >= MOST
            or sum(map(len, self._wanted)) + len(uri) > MOST_CHARACTERS
        ):
            raise Unavailable(self._server, OVERLOADED, "there are too many subscriptions here")

    def _note(self, uri: str, who: str) -> None:
        users = self._wanted.setdefault(uri, set())
        if who not in users:
            users.add(who)
            self._counts[who] += 1

    async def unsubscribe(self, links: Iterable[Link], uri: str, who: str, params: Json) -> Json:
        self._forget(uri, who)
        result: Json = {}
        for link in links:
            if who in link.subscribers.get(uri, ()):
                result = await link.unsubscribe(uri, who, params)
        return result

    async def end(self, links: Iterable[Link], who: str) -> None:
        """Somebody left: nothing is sent to them any more, and nothing is asked for on their
        behalf."""
        for uri in [uri for uri, users in self._wanted.items() if who in users]:
            try:
                await self.unsubscribe(links, uri, who, {})
            except RpcError:
                pass

    def _forget(self, uri: str, who: str) -> None:
        users = self._wanted.get(uri)
        if users is not None and who in users:
            users.discard(who)
            self._counts[who] -= 1
            if not self._counts[who]:
                del self._counts[who]
            if not users:
                del self._wanted[uri]

    async def carry(self, links: Iterable[Link], main: Link) -> None:
        """Have everybody hear over a link of their own if there is one, else over the main one."""
        links = tuple(link for link in links if link.alive)
        own = {link.owner: link for link in links if link.owner is not None}
        for uri, users in list(self._wanted.items()):
            for who in tuple(users):
                heard = [link for link in links if who in link.subscribers.get(uri, ())]
                # A modern client's link is not private to its listening, but to whom that belongs.
                theirs = (
                    link
                    for link in heard
                    if link.owner is not None and not is_session(str(link.owner))
                )
                target = own.get(who) or next(theirs, main)
                try:
                    await self._move(uri, who, heard, target)
                except RpcError as error:
                    if not main.alive:
                        return  # they are still wanted, and carried by the next
                    log.warning(
                        "[%s] a subscription could not be renewed: %s", self._server, error.message
                    )
                    break

    async def _move(self, uri: str, who: str, heard: list[Link], target: Link) -> None:
        if target not in heard:
            await target.subscribe(uri, who, {})
        wanted = who in self._wanted.get(uri, ())  # else gone meanwhile
        for link in {*heard, target}:
            if link is not target or not wanted:
                await link.unsubscribe(uri, who, {})

    def __bool__(self) -> bool:
        return bool(self._wanted)
