"""One configured server: what it offers, and the way to send it a call.

A server that is down keeps the lists that it offered last. With a snapshot of an earlier run, they
are known before the server has started.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from mcpx.base.aio import Tasks
from mcpx.catalog.apps import result_with_public_pages
from mcpx.config import Server
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import (
    OVERLOADED,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_TIMEOUT,
    RpcError,
    Unavailable,
)
from mcpx.model.events import UpstreamChanged
from mcpx.model.offer import Freshness, Kind, Offers
from mcpx.upstreams.bridges import Lease, Parked, Parking
from mcpx.upstreams.connection import HealthMonitor, MainConnection, address_of, proofs_of
from mcpx.upstreams.context import UpstreamContext
from mcpx.upstreams.dialling import Dialler
from mcpx.upstreams.judging import Judging
from mcpx.upstreams.kind_lists import KindLists
from mcpx.upstreams.life import Life, Status
from mcpx.upstreams.link_owner import LinkOwner, ListRefresh
from mcpx.upstreams.links import Links
from mcpx.upstreams.offers import OfferBook
from mcpx.upstreams.snapshot import identity_of, key_of
from mcpx.upstreams.subscriptions import Subscriptions
from mcpx.upstreams.traits import Traits
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.auth import Auth

log = logging.getLogger(__name__)

MAX_RETRY_AFTER = 10.0
"""Seconds of a server's `Retry-After` that a call waits for before it is sent again."""


class CallForwarder:
    def __init__(self, upstream: "Upstream") -> None:
        self.made = 0
        """Calls since the start."""
        self.running = 0
        """Calls that are waiting or were sent."""
        self.before: Upstream | None = None
        """The upstream that this one has replaced, while it is drained."""
        self._upstream = upstream
        self._name = upstream.name
        self._life = upstream.life
        self._links = upstream.links
        self._judging = upstream.judging
        self._parking = Parking(upstream.name, upstream.tasks, self._check_idle)
        self._idle = asyncio.Event()

    async def call(self, call: Call, params: Json, *, repeatable: bool = False) -> Json:
        """Forward one call. Errors of the server are raised unchanged.

        A `repeatable` call is sent again if the server died.
        """
        self.made += 1
        self.running += 1
        try:
            try:
                result = await self._forward(call, params)
            except Unavailable as error:
                if error.retry_after is not None and error.retry_after <= MAX_RETRY_AFTER:
                    await asyncio.sleep(error.retry_after)
                elif not _may_repeat(error, repeatable):
                    raise
                result = await self._forward(call, params)
        except Unavailable as error:
            connection = self._upstream.connection
            connection.make_presentable(error)
            if connection.explain_sign_in(error):
                connection.sign_in_wanted(error)
            raise
        except RpcError:
            self._life.recovery.served()  # An error is an answer.
            raise
        finally:
            self.running -= 1
            self._check_idle()
        self._life.recovery.served()
        if self._life.status.state == "needs_auth":
            self._life.set_status("connected")
        return result_with_public_pages(self._name, result)

    async def _forward(self, call: Call, params: Json) -> Json:
        caller = call.caller
        comes_back = caller.modern and bool(caller.answers) and call.method in era.MAY_ASK
        if not comes_back:
            lease = self._links.take_now(call)
            if lease is not None:
                if self._upstream.admission is not None and not self._judging.passes(lease):
                    await self._judging.admit(lease, params)
                return await lease.run(params)
        server = self._upstream.server
        if not server.enabled:
            raise Unavailable(self._name, SERVER_DOWN, server.switched_off or "is disabled")
        if comes_back and self._parking.holds(call):
            return await self._parking.resume(call, params)
        if comes_back and self.before is not None and self.before.calls._parking.holds(call):
            return await self.before.call(call, params)
        await self._upstream.connection.wait_until_connected()
        if comes_back and self._links.wishes.era_for(caller) == "older":
            return await self._park(call, params)
        lease = self._links.take_now(call) or await self._links.take(call)
        if comes_back and not lease.link.modern:  # The era was found out just now.
            lease.end()
            return await self._park(call, params)
        return await self._use(lease, params)

    async def _park(self, call: Call, params: Json) -> Json:
        """A modern client's call to an older server, which may ask a question."""
        if call.params.get("requestState") is not None:
            # Older servers have no states: it is unknown, or one of the gateway.
            return await self._parking.resume(call, params)

        async def run(parked: Parked) -> Json:
            lease = self._links.take_now(call, parked)
            parked.lease = lease or await self._links.take(call, parked)
            return await self._use(parked.lease, params)

        return await self._parking.begin(call, params, run)

    async def _use(self, lease: Lease, params: Json) -> Json:
        if self._upstream.admission is not None:
            await self._judging.admit(lease, params)
        return await lease.run(params)

    def see_off(self, stays: Callable[[str], bool]) -> None:
        """Cancel the parked calls of principals that are no longer allowed."""
        if self._parking:
            self._parking.see_off(stays)

    def _check_idle(self) -> None:
        if not self.running and not self._parking:
            self._idle.set()

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for running calls."""
        try:
            async with asyncio.timeout(grace):
                while self.running or self._parking:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.warning("[%s] calls that are still running are cut off", self._name)


def _may_repeat(error: Unavailable, repeatable: bool) -> bool:
    """Whether to send a call again. A call that has waited for a connection in vain is too late."""
    if repeatable and error.code == SERVER_DIED:
        return True
    return error.unsent and error.code not in (SERVER_TIMEOUT, OVERLOADED)


class Upstream:
    """Implements `core.generation.Source`."""

    local = False

    def __init__(
        self, server: Server, context: UpstreamContext, auth: "tuple[str, Auth] | None" = None
    ) -> None:
        """`auth`: the name of its auth config, and the config."""
        self.server = server
        self.name = server.name
        self.address = address_of(server)
        """Empty for a program."""
        self.auth = auth
        self.context = context
        self.tasks = Tasks(server.name)
        self.traits = Traits()
        self.admission = context.admission(server)
        self.credentials, self.signing = proofs_of(self, auth)
        self.snapshot_key = key_of(identity_of(server))
        self.connection = MainConnection(self)
        self.life = Life(
            server,
            self.connection.connect,
            lambda: context.publish(UpstreamChanged(server.name)),
            context.gate,
        )
        self.settled = self.life.settled
        self.health = HealthMonitor(self)
        self.owner = LinkOwner(self)
        self.dialler = Dialler(self)
        self.links = Links(self)
        self.book = OfferBook(self)
        self.kinds = KindLists(self)
        self.refresh = ListRefresh(self)
        self.subscriptions = Subscriptions(self)
        self.judging = Judging(self)
        self.calls = CallForwarder(self)
        self.call = self.calls.call  # A method that forwards would cost each call.
        if server.enabled and (self.admission is None or self.admission.seen):
            self.book.snapshot.load()
        if self.known or not server.enabled:
            self.settled.set()

    @property
    def enabled(self) -> bool:
        """Whether clients may find the server."""
        return self.server.enabled and (self.admission is None or self.admission.shown)

    @property
    def pinned(self) -> bool:
        return self.admission is not None

    @property
    def prefix(self) -> str | None:
        return self.server.prefix

    @property
    def status(self) -> Status:
        return self.life.status

    @property
    def auth_url(self) -> str | None:
        """Where a user has to sign in."""
        return None if self.signing is None else self.signing.auth_url

    def describe(self) -> Json:
        """Details for the administrator, in addition to the status."""
        connection = self.connection
        latency = self.health.latency
        seconds = connection.phase_seconds
        return {
            "phase": connection.phase,
            "phase_s": None if seconds is None else int(seconds),
            "restarts": self.life.recovery.restarts,
            "latency_ms": None if latency is None else round(latency * 1000, 1),
            "processes": self.links.pool.process_count,
            "links": self.links.pool.describe(),
            "notes": [note for notes in self.book.notes.values() for note in notes],
        }

    def describe_held(self) -> tuple[int, list[str]]:
        """The number of withheld definitions, and notes about them. For the administrator."""
        if self.admission is None:
            return 0, []
        return self.admission.held, self.admission.notes

    # Offers
    # ----------------------------------------------------------------------------------------------

    @property
    def instructions(self) -> str:
        """What the server says about itself. Untrusted text."""
        if self.admission is None:
            return self.book.instructions
        return self.admission.instructions(self.book.instructions)

    @property
    def description(self) -> str:
        """The configured description, or the first sentence of the instructions."""
        return self.server.description or _first_sentence(self.instructions)

    @property
    def definitions(self) -> Offers:
        """The common lists."""
        return self.book.common

    @property
    def known(self) -> bool:
        """Whether the server has listed its offers, now or in an earlier run."""
        return self.book.known

    @property
    def offered(self) -> bool:
        return self.book.offered

    @property
    def offers_vary(self) -> bool:
        """Whether some callers are offered something else than the common lists."""
        return self.book.varies

    def offers(self, caller: Caller | None) -> Offers:
        """The lists for this caller. None: the common lists."""
        offers = self.book.of(caller)
        return offers if self.admission is None else self.admission.admitted(offers)

    def freshness(self, caller: Caller, kind: Kind) -> Freshness | None:
        """How long the caller may cache a list. None: the server does not have this list, or has
        failed to start."""
        if not self.known and self.settled.is_set():
            return None
        return self.book.freshness(caller, kind)

    def cache_ttl_of(self, name: str) -> float | None:
        return self.server.cache_ttl

    def answering(self, name: str) -> "Upstream":
        return self

    def shares(self, caller: Caller) -> bool:
        """Whether similar callers get the same answer: nothing depends on the session."""
        traits = self.traits
        alike = self.server.isolation == "shared" and not self.offers_vary and not traits.asks
        return alike and (traits.quiet or not caller.answers)

    # Changes of the configuration
    # ----------------------------------------------------------------------------------------------

    def inherit(self, other: "Upstream") -> None:
        """Show the lists of the upstream that this one will replace."""
        if not self.server.enabled:
            return
        if not self.known:
            self.book.inherit(other.book)
            self.traits.take_up(other.traits.to_json())
        self.subscriptions.level = other.subscriptions.level

    def succeed(self, other: "Upstream") -> None:
        """This upstream has replaced the other one, which finishes its parked calls."""
        self.calls.before, other.calls.before = other, None
        self.subscriptions.inherit(other.subscriptions)

    def update(self, server: Server) -> None:
        """Apply settings that need no new connection."""
        self.server = self.life.server = server
        recovery = self.life.recovery
        recovery.retry_delay, recovery.max_retries = server.retry_delay, server.max_retries
        self.links.update(server)
        before, self.admission = self.admission, self.context.admission(server)
        if before is None and self.admission is not None:
            self.judging.begin()
        if self.admission is not None:
            self.book.judge()
            if not self.admission.seen and self.connection.is_started:
                self.tasks.start(self._connect())

    async def _connect(self) -> None:
        """Its lists of an earlier run do not count any more, so a sleeping server is started."""
        with suppress(Unavailable):
            await self.connection.wait_until_connected()

    async def introduced(self) -> None:
        """Wait, bounded, until the server has listed its offers."""
        if not self.known:
            await self.connection.wait_for_attempt()

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for running calls, and close."""
        await self.calls.drain(grace)
        await self.close("was removed from the configuration, or changed in it")

    async def close(self, why: str = "the gateway is ending") -> None:
        self.connection.stop()
        self.owner.close()
        await self.book.close()
        await self.links.close(why)
        await self.tasks.close()
        await self.links.close(why)  # Links that an ending task has opened.

    async def end_session(self, session: str) -> None:
        """Close the session's own links and end its subscriptions."""
        self.book.forget_session(session)
        self.links.end_session(session)
        await self.subscriptions.end(session)

    # Subscriptions
    # ----------------------------------------------------------------------------------------------

    async def subscribe(self, caller: Caller, uri: str, params: Json) -> Json:
        return await self.watch(caller, uri, caller.session or "", params)

    async def unsubscribe(self, caller: Caller, uri: str, params: Json) -> Json:
        return await self.subscriptions.unsubscribe(uri, caller.session or "", params)

    async def watch(self, caller: Caller, uri: str, who: str, params: Json | None = None) -> Json:
        """Subscribe to a resource for a session or for a listening of a modern client."""
        await self.connection.wait_until_connected()
        call = Call("resources/subscribe", params or {}, caller)
        try:
            return await self.subscriptions.subscribe(call, uri, who)
        except Unavailable as error:
            self.connection.make_presentable(error)
            raise


def _first_sentence(text: str) -> str:
    line = " ".join(text[:1000].split())
    end = re.search(r"[.!?](?=\s)|[。！？]", line)
    return line if end is None else line[: end.end()]
