"""One configured server: its part of the catalog, its status, and the one way to send it a call.

A server that is down keeps what it last offered; with a snapshot of an earlier run it is listed before it was ever
up. Nothing is sent twice unless the server certainly did not act on it, or the call may be repeated without harm.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mcpx.config import Server
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, RpcError, Unavailable
from mcpx.model.offer import KINDS, Kind, Offers
from mcpx.transports import starts_process
from mcpx.upstreams.bridges import Parked, Parking
from mcpx.upstreams.health import look_after
from mcpx.upstreams.hub import Hub
from mcpx.upstreams.life import Gate, Life, Status
from mcpx.upstreams.link import Link
from mcpx.upstreams.links import Links
from mcpx.upstreams.offers import OfferBook
from mcpx.upstreams.snapshot import Snapshots, key_of
from mcpx.upstreams.subscriptions import Subscriptions
from mcpx.upstreams.traits import Traits
from mcpx.upstreams.wishes import is_session
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

DEBOUNCE = 0.05
"""Seconds to collect `list_changed` of a server before its lists are read again: storms cost one reading."""
LONGEST_WISH = 10.0
"""Seconds of a server's `Retry-After` that a call waits for before it is sent once more."""
LEARN_AT_ONCE = 2
"""Links that are opened at a time, for all servers, only to find out what a kind of client is offered."""

CHANGES: Mapping[str, tuple[Kind, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all upstreams of a gateway share."""

    environ: Mapping[str, str]
    snapshots: Snapshots
    gate: Gate
    itself: str = ""
    """What marks this gateway to itself, should a server turn out to be the gateway."""
    learning: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LEARN_AT_ONCE))


class Upstream:
    """Implements `core.source.Source`, and hears what its links have to say (`link.Owner`)."""

    def __init__(self, server: Server, hub: Hub, around: Surroundings) -> None:
        self.server = server
        self.name = server.name
        self.latency: float | None = None
        """Seconds the last probe took."""
        self._hub = hub
        self._tasks = Tasks(server.name)
        self._traits = Traits()
        self._links = Links(server, self, around.environ, self._tasks, self._traits, around.itself)
        key = key_of(_identity(server))
        self._book = OfferBook(
            server.name, self._links, hub, around.snapshots, key, self._traits, around.learning, self._tasks
        )
        self._subscriptions = Subscriptions(server.name)
        self._parking = Parking(server.name, self._tasks)
        self._life = Life(server, self._connect, lambda: hub.state_changed(server.name), around.gate)
        self._living: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._changed: set[Kind] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._solo: Caller | None = None
        self._level: str | None = None
        self._calls = 0
        self._running = 0
        """Calls that are not over: waiting for the server or a link, or sent."""
        self._rest = asyncio.Event()
        if server.enabled:
            self._book.remember()
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
    def came(self) -> asyncio.Event:
        """Set once it was connected, and has listed what it offers, for the first time."""
        return self._life.came

    @property
    def restarts(self) -> int:
        return self._life.recovery.restarts

    def describe(self) -> Json:
        """What there is to tell of it beside its status."""
        links = self._links.describe()
        processes = len(links) if starts_process(self.server.connection) else 0
        return {
            "restarts": self.restarts,
            "latency_ms": None if self.latency is None else round(self.latency * 1000, 1),
            "processes": processes,
            "links": links,
        }

    # Life ----------------------------------------------------------------------------------------------------

    def start(self, caller: Caller | None = None) -> None:
        """Connect in the background. `caller` is the one client of a stdio front, whose own link this becomes."""
        self._solo = caller
        if self._living is None and self.server.enabled:
            # A lazy server is started once to learn what it offers; from then on only when it is called.
            self._living = self._tasks.start(self._life.run(asleep=self.server.lazy and self.known))

    async def _connect(self) -> str | None:
        """One attempt; what went wrong, if anything."""
        link: Link | None = None
        try:
            link = await self._links.first(self._solo)
            self._book.instructions = link.terms.instructions
            await link.listen()
            await self._book.read(link, KINDS, said_so=False)
            if self._level is not None:
                await link.set_level(self._level)
            await self._subscriptions.carry(self._links, link)
        except RpcError as error:
            problem = error.message if isinstance(error, Unavailable) else f"{self.name}: {error.message}"
            if isinstance(error, Unavailable):
                if error.retry_after:
                    self._life.hold_off(error.retry_after)
                self._life.needs_auth = error.http_status == 401
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
        if link is not None:
            await asyncio.shield(self._links.retire(link))
        return problem

    async def _look_after(self, link: Link) -> None:
        verdict = await look_after(self, link)
        if not link.alive or link is not self._links.main:
            return
        if verdict == "lost":
            self.lost(link, "did not answer health probes")
            return
        log.info("[%s] %s", self.name, "goes to sleep" if verdict == "sleep" else "is started anew: old or large")
        self._life.rest(verdict)
        await self._links.close()

    def traffic(self) -> int:
        return self._calls

    def busy(self) -> bool:
        return self._running > 0 or self._links.opening

    def listened_to(self) -> bool:
        return bool(self._subscriptions)

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
        return self._book.instructions

    @property
    def description(self) -> str:
        """What it is for: the user's word, else the first sentence of its own."""
        return self.server.description or _first_sentence(self.instructions)

    @property
    def definitions(self) -> Offers:
        """What it offers to everybody."""
        return self._book.common

    @property
    def known(self) -> bool:
        """Whether it said itself what it offers, now or in an earlier run."""
        return self._book.known

    @property
    def offers_vary(self) -> bool:
        """Whether some callers are offered something else than everybody."""
        return self._book.varies

    def offers(self, caller: Caller | None) -> Offers:
        """What this caller is offered; None asks for what everybody is."""
        return self._book.of(caller)

    def learn(self, caller: Caller) -> asyncio.Task[None] | None:
        """Find out what a client like this one is offered; None when that is known, or cannot be found out now."""
        main = self._links.main
        return None if main is None or not main.alive else self._book.learn(caller, main)

    # Changes of its configuration --------------------------------------------------------------------------------

    def inherit(self, other: "Upstream") -> None:
        """Stand in for the upstream this one will replace: show what that one offered until it is known better."""
        if self.server.enabled and not self.known:
            self._book.inherit(other._book)
        self._level = other._level

    def succeed(self, other: "Upstream") -> None:
        """The other one is replaced now: what its clients listen for is listened for here."""
        self._subscriptions.inherit(other._subscriptions)
        if self._subscriptions:
            self._carry_soon()

    def update(self, server: Server) -> None:
        """Take up settings that need no new connection."""
        self.server = self._life.server = server
        self._life.recovery.retry_delay, self._life.recovery.max_retries = server.retry_delay, server.max_retries
        self._links.update(server)

    async def drain(self, grace: float) -> None:
        """Let running calls finish, for so many seconds, then close."""
        try:
            async with asyncio.timeout(grace):
                while self._running:
                    self._rest.clear()
                    await self._rest.wait()
        except TimeoutError:
            log.warning("[%s] calls that are still running are cut off", self.name)
        await self.close("was removed from the configuration, or changed in it")

    async def close(self, why: str = "the gateway is ending") -> None:
        self._book.close()
        if self._living is not None:
            self._living.cancel()
        await self._links.close(why)
        await self._tasks.close()
        await self._links.close(why)  # what a task opened or let go while it ended

    async def end_session(self, session: str) -> None:
        """The session is over: its private links, and its subscriptions on shared ones, go with it."""
        self._book.forget_session(session)
        self._links.end_session(session)
        await self._subscriptions.end(self._links, session)

    def retired(self, link: Link) -> None:
        if link.subscribers:
            self._carry_soon()

    # Calls ---------------------------------------------------------------------------------------------------

    async def call(self, call: Call, params: Json, *, repeatable: bool = False) -> Json:
        """Forward one call. An error the server itself sent is raised as it is; ours names the server.

        `repeatable`: reading, or a tool that says it may be called again; sent once more if the server died of it."""
        self._calls += 1
        self._running += 1
        try:
            try:
                result = await self._forward(call, params)
            except Unavailable as error:
                if error.retry_after is not None and error.retry_after <= LONGEST_WISH:
                    await asyncio.sleep(error.retry_after)
                elif not error.unsent and not (repeatable and error.code == SERVER_DIED):
                    raise
                result = await self._forward(call, params)
        except RpcError as error:
            if not isinstance(error, Unavailable):
                self._life.recovery.served()  # an error is an answer
            raise
        finally:
            self._running -= 1
            if not self._running:
                self._rest.set()
        self._life.recovery.served()
        return result

    async def _forward(self, call: Call, params: Json) -> Json:
        caller = call.caller
        comes_back = caller.modern and bool(caller.answers)
        if not comes_back:
            lease = self._links.take_now(call)
            if lease is not None:
                return await lease.run(params)
        if not self.server.enabled:
            raise Unavailable(self.name, SERVER_DOWN, self.server.switched_off or "is disabled")
        if comes_back and self._parking.holds(call):
            return await self._parking.resume(call)
        await self._connected()
        if comes_back and self._links.era_for(caller) == "older":
            if call.params.get("requestState") is not None:
                return await self._parking.resume(call)  # an older server has no states: it is unknown, or was ours
            return await self._parking.begin(call, lambda parked: self._run(call, params, parked))
        return await self._run(call, params, None)

    async def _run(self, call: Call, params: Json, parked: Parked | None) -> Json:
        lease = self._links.take_now(call, parked) or await self._links.take(call, parked)
        if parked is not None:
            parked.lease = lease
        return await lease.run(params)

    async def _connected(self) -> None:
        """Wait, bounded, for this server only; one that is down is tried now, once for all that wait."""
        main = self._links.main
        if main is None or not main.alive:
            await self._tried()

    async def introduced(self) -> None:
        """The same, for one that is not known: until it has said what it offers."""
        if not self.known:
            await self._tried()

    async def _tried(self) -> None:
        self.start(self._solo)
        await self._life.ready()
        main = self._links.main
        if main is None or not main.alive:
            reason = (self.status.last_error or "not connected").removeprefix(f"{self.name}: ")
            raise Unavailable(self.name, SERVER_DOWN, reason)

    async def subscribe(self, caller: Caller, uri: str, params: Json) -> Json:
        return await self.watch(caller, uri, caller.session or "", params)

    async def unsubscribe(self, caller: Caller, uri: str, params: Json) -> Json:
        return await self._subscriptions.unsubscribe(self._links, uri, caller.session or "", params)

    async def watch(self, caller: Caller, uri: str, who: str, params: Json | None = None) -> Json:
        """Listen for a resource on behalf of a session or of a modern client's listening."""
        await self._connected()
        params = params or {}
        link = await self._link_to_watch(Call("resources/subscribe", params, caller))
        return await self._subscriptions.subscribe(link, uri, who, params)

    async def _link_to_watch(self, call: Call) -> Link:
        """What a client's calls change is told where its calls go; for most of them that is the main link."""
        if self._links.lends_to(call.caller):
            lease = self._links.take_now(call) or await self._links.take(call)
            lease.end()
            link = lease.link
            if self._traits.asks:
                link.bind(call.caller, "it has subscriptions of this client")
            if link.alive and (link.owner is not None or not self._traits.asks):
                return link
        if self._links.main is None:
            raise Unavailable(self.name, SERVER_DIED, "the connection was lost")
        return self._links.main

    async def unwatch(self, who: str) -> None:
        await self._subscriptions.end(self._links, who)

    # What reaches the server besides calls ---------------------------------------------------------------------

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """A client's notification goes over the links that are its own."""
        for link in self._links:
            if caller.solo or (caller.session is not None and link.owner == caller.session):
                link.notify(method, params)

    async def set_level(self, level: str, caller: Caller) -> None:
        """`level` is the lowest anybody wants (shared links), the caller's own counts on its private link."""
        self._level = level
        for link in self._links:
            if link.owner is None:
                await link.set_level(level)
            elif link.owner == caller.session and caller.log_level is not None:
                await link.set_level(caller.log_level)

    # What the server says, and what becomes of its links (`link.Owner`) ---------------------------------------------

    def heard(self, link: Link, method: str, params: Json, owner: object | None) -> None:
        if method in CHANGES:
            self._lists_changed(link, CHANGES[method])
        elif method == "notifications/resources/updated":
            uri = params.get("uri")
            users = link.subscribers.get(uri) if isinstance(uri, str) else None
            if users:
                self._hub.resource_updated(self.name, params, frozenset(users))
        else:
            self._hub.said(self.name, method, params, owner)

    def _lists_changed(self, link: Link, kinds: tuple[Kind, ...]) -> None:
        if link is self._links.main:
            self._changed.update(kinds)
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = self._tasks.start(self._refresh())
            return
        client = link.owner or (next(iter(link.holders)) if len(link.holders) == 1 else link.last_client)
        if isinstance(client, str) and is_session(client):
            self._tasks.start(self._learn_session(link, client, kinds))

    async def _learn_session(self, link: Link, session: str, kinds: tuple[Kind, ...]) -> None:
        """The server has something for this session that nobody else has: its link stays with it."""
        if await self._book.learn_session(link, session, kinds) and link.alive and link.owner in (None, session):
            if link.owner is None:
                link.owner, link.use, link.why = session, "session", "the server keeps something for this client"
            link.lasting = True

    async def _refresh(self) -> None:
        while self._changed:
            await asyncio.sleep(DEBOUNCE)
            kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in self._changed)
            self._changed.clear()
            link = self._links.main
            if link is None or not link.alive:
                return
            try:
                await self._book.read(link, kinds, said_so=True)
            except RpcError as error:
                if link.alive:
                    log.warning("[%s] its lists could not be read: %s", self.name, error.message)

    def lost(self, link: Link, reason: str) -> None:
        was_main = link is self._links.main
        self._links.retire(link)
        if was_main:
            self._stop_watching()
            log.warning("[%s] connection lost: %s", self.name, reason)
            self._life.lost(f"{self.name}: {reason}")
            return
        main = self._links.main
        if main is not None and not starts_process(self.server.connection):
            self._tasks.start(self._look_at(main))  # the same server answers both, or neither

    async def _look_at(self, main: Link) -> None:
        try:
            await main.probe(self.server.timeout)
        except Unavailable as error:
            if main.alive and main is self._links.main:
                self.lost(main, error.message.removeprefix(f"{self.name}: "))
        except RpcError:
            pass  # an error is an answer

    def rested(self, link: Link) -> None:
        self._links.rested(link)

    def answered(self) -> None:
        if self._traits.answered_unasked():
            log.info("[%s] has asked nothing in many calls: its connection is shared by everybody", self.name)
            self._links.rethink()
            self._book.keep_soon()

    def asked(self, method: str) -> None:
        if self._traits.asked(method):
            log.debug("[%s] asks: %s", self.name, method)
            self._links.rethink()
            self._book.keep_soon()
            main = self._links.main
            if main is not None and main.use == "lent":
                # Who cannot be asked needs a link that declares nothing: that is the main one from now on.
                self._links.main = None
                self._renew()

    def asked_late(self) -> None:
        if not self._traits.asks_late:
            self._traits.asks_late = True
            self._links.rethink()
            self._book.keep_soon()

    def bound(self, link: Link) -> None:
        self._links.rethink()
        if link is self._links.main:
            self._links.main = None
            self._renew()
        else:
            self._carry_soon()

    def spoilt(self, link: Link) -> None:
        self._links.retire(link)
        self._renew()

    def _renew(self) -> None:
        """Make the main link anew, at once; the others live on."""
        self._stop_watching()
        self._life.rest("renew")

    def main_changed(self, link: Link) -> None:
        self._stop_watching()
        self._watcher = self._tasks.start(self._look_after(link))
        self._carry_soon()

    def varies(self) -> bool:
        return self._book.varies_by_kind

    def _stop_watching(self) -> None:
        if self._watcher is not None and self._watcher is not asyncio.current_task():
            self._watcher.cancel()  # it would keep the dead link in memory until its next look

    def _carry_soon(self) -> None:
        main = self._links.main
        if main is not None and main.alive:
            self._tasks.start(self._subscriptions.carry(self._links, main))


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
