"""One configured server: its slice of the catalog, its status, and the one way to send it a call.

A server that is down keeps what it last offered; with a snapshot of an earlier run it is listed before it was ever
up. Nothing is sent twice unless the server certainly did not act on it, or the call may be repeated without harm.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from mcpx.config import Server
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, RpcError, Unavailable
from mcpx.model.offer import KINDS, Kind
from mcpx.upstreams.errands import Errand, Parking
from mcpx.upstreams.health import look_after
from mcpx.upstreams.life import Gate, Life, Status
from mcpx.upstreams.link import Link
from mcpx.upstreams.links import Links
from mcpx.upstreams.shelf import Announcer, Dates, Shelf
from mcpx.upstreams.snapshot import Snapshots, key_of
from mcpx.upstreams.variants import Offers, Variants
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

DEBOUNCE = 0.05
"""Seconds to collect `list_changed` of a server before its lists are read again: storms cost one reading."""
LONGEST_WISH = 10.0
"""Seconds of a server's `Retry-After` that a call waits for before it is sent once more."""

CHANGES: Mapping[str, tuple[Kind, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}


class Hub(Announcer, Protocol):
    """What an upstream tells the gateway."""

    def resource_updated(self, server: str, params: Json, owner: str | None) -> None: ...

    def said(self, server: str, method: str, params: Json, owner: str | None) -> None: ...

    def state_changed(self, server: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all upstreams of a gateway share."""

    environ: Mapping[str, str]
    snapshots: Snapshots
    gate: Gate


class Upstream:
    def __init__(self, server: Server, hub: Hub, around: Surroundings) -> None:
        self.server = server
        self.name = server.name
        self.latency: float | None = None
        """Seconds the last probe took."""
        self._hub = hub
        self._tasks = Tasks(server.name)
        self._links = Links(server, self, around.environ, self._tasks)
        self._shelf = Shelf(server.name, self._links, hub, around.snapshots, key_of(_identity(server)), self._tasks)
        self._parking = Parking(server.name, self._tasks)
        self._life = Life(server, self._connect, lambda: hub.state_changed(server.name), around.gate)
        self._living: asyncio.Task[None] | None = None
        self._main: Link | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._changed: set[Kind] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._solo: Caller | None = None
        self._level: str | None = None
        self._calls = 0
        self._watched: dict[str, set[str]] = {}
        """URIs that modern clients listen for -> who."""
        self._orphaned: dict[str, set[str]] = {}
        """Subscriptions whose link was lost; they are renewed on the shared one, now or when it is back."""
        if server.enabled:
            self._shelf.remember()
        if self.known or not server.enabled:
            self.settled.set()

    @property
    def status(self) -> Status:
        return self._life.status

    @property
    def settled(self) -> asyncio.Event:
        """Set once it is known what the server offers, or that it cannot be known yet."""
        return self._life.settled

    @property
    def restarts(self) -> int:
        return self._life.recovery.restarts

    @property
    def came(self) -> asyncio.Event:
        """Set once it was connected, and has listed what it offers, for the first time."""
        return self._life.came

    # Life ----------------------------------------------------------------------------------------------------

    def start(self, caller: Caller | None = None) -> None:
        """Connect in the background. `caller` is the one client of a stdio front, whose own link this becomes."""
        self._solo = caller
        if self._living is None and self.server.enabled:
            # A lazy server is started once to learn what it offers; from then on only when it is called.
            self._living = self._tasks.start(self._life.run(asleep=self.server.lazy and self.known))

    async def _connect(self) -> str | None:
        """One attempt; what went wrong, if anything."""
        try:
            link = await self._links.first(self._solo)
            self._main = link
            self._shelf.instructions = link.terms.instructions
            self._shelf.variants.forget_answers()
            await link.listen()
            await self._shelf.read(link, KINDS, said_so=False)
            if self._level is not None:
                await link.set_level(self._level)
            await self._renew_subscriptions(link)
        except RpcError as error:
            if isinstance(error, Unavailable) and error.retry_after:
                self._life.hold_off(error.retry_after)
            problem = error.message if isinstance(error, Unavailable) else f"{self.name}: {error.message}"
        except Exception as error:
            log.exception("[%s] connecting failed", self.name)
            problem = f"{self.name}: {type(error).__name__}"
        else:
            if link.alive:
                tools = len(self.definitions["tools"])
                log.info("[%s] connected, %s, %d tool%s", self.name, link.terms.version, tools, "s" * (tools != 1))
                self._watcher = self._tasks.start(self._look_after(link))
                return None
            problem = f"{self.name}: died right after it was connected"
        log.warning("[%s] %s", self.name, problem.removeprefix(f"{self.name}: "))
        if self._main is not None:
            self._main, broken = None, self._main
            self._links.forget(broken)
            await broken.close()
        return problem

    async def _renew_subscriptions(self, link: Link) -> None:
        orphaned, self._orphaned = self._orphaned, {}
        for uri, users in orphaned.items():
            for who in users:
                try:
                    await link.subscribe(uri, who, {})
                except RpcError as error:
                    if not link.alive:
                        self._orphaned.setdefault(uri, set()).add(who)
                        continue
                    log.warning("[%s] a subscription could not be renewed: %s", self.name, error.message)

    async def _look_after(self, link: Link) -> None:
        verdict = await look_after(self, link)
        if not link.alive or link is not self._main:
            return
        if verdict == "lost":
            self._links.forget(link)
            await link.close()
            self.lost(link, "did not answer health probes")
            return
        log.info("[%s] %s", self.name, "goes to sleep" if verdict == "sleep" else "is started anew: old or large")
        self._main = None
        self._life.rest(verdict)
        await self._links.close()

    def traffic(self) -> int:
        return self._calls

    def busy(self) -> bool:
        return self._links.opening or any(link.errands for link in self._links.all())

    def listened_to(self) -> bool:
        return any(link.subscribers for link in self._links.all())

    def probed(self, latency: float | None, problem: str | None) -> None:
        self.latency = latency if latency is not None else self.latency
        if problem is not None:
            self._life.set("degraded", problem)
        elif self.status.state == "degraded":
            self._life.set("connected")

    # What it offers --------------------------------------------------------------------------------------------

    @property
    def instructions(self) -> str:
        """What it says about itself; text of a stranger."""
        return self._shelf.instructions

    @property
    def description(self) -> str:
        """What it is for: the user's word, else the first sentence of its own."""
        return self.server.description or _first_sentence(self.instructions)

    @property
    def dates(self) -> Mapping[str, Dates]:
        """Of each tool it offers to everybody."""
        return self._shelf.dates

    @property
    def definitions(self) -> Offers:
        """What it offers to everybody."""
        return self._shelf.definitions

    @property
    def known(self) -> bool:
        """Whether it said itself what it offers, now or in an earlier run."""
        return self._shelf.known

    @property
    def variants(self) -> Variants:
        return self._shelf.variants

    def offers(self, caller: Caller | None) -> Offers:
        """What this caller is offered; None asks for what everybody is."""
        return self._shelf.offers(caller)

    def learn(self, caller: Caller) -> asyncio.Task[None] | None:
        """Find out what a client like this one is offered; None when that is known, or cannot be found out now."""
        if self._main is None or not self._main.alive:
            return None
        return self._shelf.learn(caller, self._main)

    # Changes of its configuration --------------------------------------------------------------------------------

    def inherit(self, other: "Upstream") -> None:
        """Take over what clients asked of the upstream this one replaces (levels and subscriptions), and what it
        offered, unless it is known what this one offers."""
        if self.server.enabled and not self.known:
            self._shelf.inherit(other._shelf)
        self._level = other._level
        self._watched = {uri: set(users) for uri, users in other._watched.items()}
        for link in other._links.all():
            if link.owner is None:
                for uri, users in link.subscribers.items():
                    self._orphaned.setdefault(uri, set()).update(users)

    def update(self, server: Server) -> None:
        """Take up settings that need no new connection."""
        self.server = self._life.server = server
        self._life.recovery.retry_delay, self._life.recovery.max_retries = server.retry_delay, server.max_retries
        self._links.update(server)

    async def drain(self, grace: float) -> None:
        """Let running calls finish, for so many seconds, then close."""
        try:
            async with asyncio.timeout(grace):
                while any(link.errands for link in self._links.all()):
                    await self._links.wait_for_rest()
        except TimeoutError:
            log.warning("[%s] calls that are still running are cut off", self.name)
        await self.close()

    async def close(self) -> None:
        self._shelf.close()
        if self._living is not None:
            self._living.cancel()
        await self._links.close()
        await self._tasks.close()

    async def end_session(self, session: str) -> None:
        """The session is over: its private links, and its subscriptions on shared ones, go with it."""
        self._shelf.forget_session(session)
        for users in self._orphaned.values():
            users.discard(session)
        for link in self._links.all():
            for uri in [uri for uri, users in link.subscribers.items() if session in users]:
                try:
                    await link.unsubscribe(uri, session, {})
                except RpcError:
                    pass
        await self._links.end_session(session)

    # Calls ---------------------------------------------------------------------------------------------------

    async def call(self, call: Call, params: Json, *, repeatable: bool = False) -> Json:
        """Forward one call. An error the server itself sent is raised as it is; ours names the server.

        `repeatable`: reading, or a tool that says it may be called again; sent once more if the server died of it."""
        self._calls += 1
        try:
            result = await self._persist(call, params, repeatable)
        except RpcError as error:
            if not isinstance(error, Unavailable):
                self._life.recovery.served()  # an error is an answer
            raise
        self._life.recovery.served()
        return result

    async def _persist(self, call: Call, params: Json, repeatable: bool) -> Json:
        try:
            return await self._forward(call, params)
        except Unavailable as error:
            if error.retry_after is not None and error.retry_after <= LONGEST_WISH:
                await asyncio.sleep(error.retry_after)
            elif not error.unsent and not (repeatable and error.code == SERVER_DIED):
                raise
            return await self._forward(call, params)

    async def _forward(self, call: Call, params: Json) -> Json:
        caller = call.caller
        link = self._links.ready(caller)
        if link is not None and (link.modern or not caller.modern or not caller.answers):
            return await link.call(call, call.method, params, Errand(call, self.name))
        if not self.server.enabled:
            raise Unavailable(self.name, SERVER_DOWN, "is disabled")
        if self._parking.holds(call):
            return await self._parking.resume(call)
        await self._connected()
        if caller.modern and caller.answers and self._links.era_for(caller) == "older":
            if call.params.get("requestState") is not None:
                return await self._parking.resume(call)  # an older server has no states: it is unknown, or was ours
            return await self._parking.begin(call, lambda errand: self._run(call, params, errand))
        return await self._run(call, params, Errand(call, self.name))

    async def _run(self, call: Call, params: Json, errand: Errand) -> Json:
        caller = call.caller
        if self._links.key_for(caller) is not None:
            link = await self._links.keep(caller)
            return await link.call(call, call.method, params, errand)
        link = await self._links.borrow(caller)
        try:
            if caller.log_level is not None:
                await link.set_level(caller.log_level)
            await self._watch_on(link)
            return await link.call(call, call.method, params, errand)
        finally:
            self._links.give_back(link)

    async def _connected(self) -> None:
        """Wait, bounded, for this server only; one that is down is tried now, once for all that wait."""
        if self._main is None or not self._main.alive:
            await self._tried()

    async def introduced(self) -> None:
        """The same, for one that is not known: until it has said what it offers."""
        if not self.known:
            await self._tried()

    async def _tried(self) -> None:
        self.start(self._solo)
        await self._life.ready()
        if self._main is None or not self._main.alive:
            reason = (self.status.last_error or "not connected").removeprefix(f"{self.name}: ")
            raise Unavailable(self.name, SERVER_DOWN, reason)

    async def link_for(self, caller: Caller) -> Link:
        await self._connected()
        if self._links.key_for(caller) is None and self._main is not None:
            return self._main
        return await self._links.keep(caller)

    async def watch(self, uri: str, who: str) -> None:
        """A modern client listens for a resource: on the shared link, and on those that carry calls of their own."""
        await self._connected()
        assert self._main is not None
        await self._main.subscribe(uri, who, {})
        self._watched.setdefault(uri, set()).add(who)

    async def unwatch(self, uri: str, who: str) -> None:
        users = self._watched.get(uri, set())
        users.discard(who)
        if not users:
            self._watched.pop(uri, None)
        for link in self._links.all():
            if who in link.subscribers.get(uri, ()):
                with contextlib.suppress(RpcError):
                    await link.unsubscribe(uri, who, {})

    async def _watch_on(self, link: Link) -> None:
        for uri, users in list(self._watched.items()):
            for who in users - link.subscribers.get(uri, set()):
                with contextlib.suppress(RpcError):
                    await link.subscribe(uri, who, {})

    # What reaches the server besides calls ---------------------------------------------------------------------

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """A client's notification goes over the links that are its own."""
        if caller.solo:
            for link in self._links.all():
                link.notify(method, params)
        elif caller.session is not None:
            for link in self._links.of_session(caller.session):
                link.notify(method, params)

    async def set_level(self, level: str, caller: Caller) -> None:
        """`level` is the lowest anybody wants (shared links), the caller's own counts on its private link."""
        self._level = level
        for link in self._links.all():
            if link.owner is None:
                await link.set_level(level)
            elif link.owner == caller.session and caller.log_level is not None:
                await link.set_level(caller.log_level)

    # What the server says ----------------------------------------------------------------------------------------

    def heard(self, link: Link, method: str, params: Json) -> None:
        if method in CHANGES and link.owner is not None:
            self._tasks.start(self._shelf.learn_session(link, link.owner, CHANGES[method]))
        elif method in CHANGES:
            self._changed.update(CHANGES[method])
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = self._tasks.start(self._refresh())
        elif method == "notifications/resources/updated":
            self._hub.resource_updated(self.name, params, link.owner)
        else:
            self._hub.said(self.name, method, params, link.owner)

    async def _refresh(self) -> None:
        while self._changed:
            await asyncio.sleep(DEBOUNCE)
            kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in self._changed)
            self._changed.clear()
            link = self._main
            if link is None or not link.alive:
                return
            try:
                await self._shelf.read(link, kinds, said_so=True)
            except RpcError as error:
                if link.alive:
                    log.warning("[%s] its lists could not be read: %s", self.name, error.message)

    def lost(self, link: Link, reason: str) -> None:
        self._links.forget(link)
        for uri, users in link.subscribers.items():
            self._orphaned.setdefault(uri, set()).update(users)
        if link is self._main:
            self._main = None
            if self._watcher is not None and self._watcher is not asyncio.current_task():
                self._watcher.cancel()  # it would keep the dead link in memory until its next look
            log.warning("[%s] connection lost: %s", self.name, reason)
            self._life.lost(f"{self.name}: {reason}")
        elif self._orphaned and self._main is not None and self._main.alive:
            self._tasks.start(self._renew_subscriptions(self._main))
        self._tasks.start(link.close())

    def idle(self, link: Link) -> None:
        self._links.rested()


def _identity(server: Server) -> tuple[object, ...]:
    """What makes a server this server, whatever file it stands in; values of variables and headers are left out."""
    spec = server.connection
    names = [sorted(getattr(spec, key, {})) for key in ("env", "headers")]
    parts = [getattr(spec, key, None) for key in ("command", "args", "cwd", "url")]
    return (server.name, type(spec).__name__, *parts, *names)


def _first_sentence(text: str) -> str:
    line = " ".join(text[:1000].split())
    end = re.search(r"[.!?](?=\s)|[。！？]", line)
    return line if end is None else line[: end.end()]
