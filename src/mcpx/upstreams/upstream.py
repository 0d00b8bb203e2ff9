"""One configured server: what it offers, and the way to send it a call.

A server that is down keeps the lists that it offered last. With a snapshot of an earlier run, they
are known before the server has started.
"""

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from mcpx.base.aio import Tasks
from mcpx.config import Server
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import Unavailable
from mcpx.model.events import UpstreamChanged
from mcpx.model.offer import Freshness, Kind, Offers
from mcpx.upstreams.calls import CallForwarder
from mcpx.upstreams.connection import MainConnection, address_of, proofs_of
from mcpx.upstreams.context import UpstreamContext
from mcpx.upstreams.dialling import Dialler
from mcpx.upstreams.health import HealthMonitor
from mcpx.upstreams.judging import Judging
from mcpx.upstreams.kind_lists import KindLists
from mcpx.upstreams.life import Life, Status
from mcpx.upstreams.link_owner import LinkOwner
from mcpx.upstreams.links import Links
from mcpx.upstreams.list_refresh import ListRefresh
from mcpx.upstreams.offers import OfferBook
from mcpx.upstreams.snapshot import identity_of, key_of
from mcpx.upstreams.subscriptions import Subscriptions
from mcpx.upstreams.traits import Traits

if TYPE_CHECKING:
    from mcpx.auth import Auth


class Upstream:
    """Implements `core.source.Source`."""

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
