"""One configured server: its status, its part of the catalog, and the one way to send it a call.

A server that is down keeps what it last offered; with a snapshot of an earlier run it is listed
before it was ever up. Nothing is sent twice unless the server certainly did not act on it, or the
call may be repeated without harm.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress

from mcpx.base.aio import Tasks
from mcpx.base.text import visible
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
from mcpx.model.offer import Freshness, Kind, Offers
from mcpx.transports import downloads_itself, starts_process
from mcpx.transports.dial import UNTOLD
from mcpx.upstreams.bridges import Parked, Parking
from mcpx.upstreams.connections import Connections
from mcpx.upstreams.health import look_after
from mcpx.upstreams.hub import Hub
from mcpx.upstreams.judging import Judging
from mcpx.upstreams.lease import Lease
from mcpx.upstreams.life import Life, ShownPhase, Status
from mcpx.upstreams.link import Link
from mcpx.upstreams.negotiate import Terms
from mcpx.upstreams.offers import Learning
from mcpx.upstreams.proofs import Named, address_of, proofs_of, wants_sign_in
from mcpx.upstreams.surroundings import Surroundings
from mcpx.upstreams.traits import NOTHING, kind_of
from mcpx.wire import era

log = logging.getLogger(__name__)

TOLD = 1000
"""Characters of a server's own words that are kept as the reason why it is not connected."""
UNREACHABLE = ("disconnected", "needs_auth", "disabled")
"""States in which the lists for a kind of client are not requested."""
DOWNLOAD_SHOWN_AFTER = 3.0
"""Seconds without output after which a program that downloads itself is shown as downloading."""
LONGEST_WISH = 10.0
"""Seconds of a server's `Retry-After` that a call waits for before it is sent once more."""


class Upstream:
    """Implements `core.source.Source`, and looks after its main link (`connections.MainLink`,
    `health.Patient`)."""

    def __init__(
        self, server: Server, hub: Hub, around: Surroundings, auth: Named | None = None
    ) -> None:
        """`auth`: the auth config it refers to, and its name."""
        self.server = server
        self.name = server.name
        self.latency: float | None = None
        """Seconds the last probe took."""
        self._tasks = Tasks(server.name)
        self._hub = hub
        self._redact = around.redact
        self._apart = around.apart
        self._is_late = False
        """The current attempt has taken longer than `DOWNLOAD_SHOWN_AFTER`."""
        self._words = ""
        """What it last said to nobody in particular: as it died, or instead of an answer."""
        self._auth = auth
        self.credentials, self.signing = proofs_of(server, auth, around, self._tasks)
        """What proves the gateway to it, and how people sign in to it where they can."""
        self._connections = Connections(server, hub, around, self._tasks, self)
        self._links, self._book = self._connections.links, self._connections.book
        self._judging = Judging(server.name, self._book, self._links, self._tasks)
        self._parking = Parking(server.name, self._tasks, self._rested)
        self._life = Life(
            server, self._connect, lambda: hub.state_changed(server.name), around.gate
        )
        self._living: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._solo: Caller | None = None
        self._before: Upstream | None = None
        """The one it replaced, while that is drained."""
        self._calls = 0
        self._running = 0
        """Calls that are not over: waiting for the server or a link, or sent."""
        self._rest = asyncio.Event()
        self._admission_of = around.admission
        self._admission = self._book.admission = around.admission(server)
        self.pinned = self._admission is not None
        if server.enabled and (self._admission is None or self._admission.seen):
            self._book.remember()
        if self.known or not server.enabled:
            self.settled.set()

    @property
    def address(self) -> str:
        """Where it is; none of a program."""
        return address_of(self.server)

    @property
    def enabled(self) -> bool:
        """Whether clients may find anything of it."""
        return self.server.enabled and (self._admission is None or self._admission.shown)

    @property
    def prefix(self) -> str | None:
        return self.server.prefix

    @property
    def local(self) -> bool:
        return False

    @property
    def status(self) -> Status:
        return self._life.status

    @property
    def problem(self) -> str | None:
        """Its last error as its owner is told of it, in its own words too."""
        error = self.status.last_error
        return (
            error if error is None else error.replace(UNTOLD, f": {self._fit_to_say(self._words)}")
        )

    @property
    def offered(self) -> bool:
        return self._book.offered

    @property
    def settled(self) -> asyncio.Event:
        """Set once it is known what the server offers, or that it cannot be known yet."""
        return self._life.settled

    @property
    def came(self) -> asyncio.Event:
        """Set once it was connected, and has listed what it offers, for the first time."""
        return self._life.came

    @property
    def snapshot_key(self) -> str:
        """What its snapshot is called."""
        return self._connections.key

    @property
    def restarts(self) -> int:
        return self._life.recovery.restarts

    def describe(self) -> Json:
        """What there is to tell of it beside its status."""
        links = self._links.describe()
        processes = len(links) if starts_process(self.server.connection) else 0
        return {
            "phase": self.phase,
            "phase_s": None if self.phase_seconds is None else int(self.phase_seconds),
            "restarts": self.restarts,
            "latency_ms": None if self.latency is None else round(self.latency * 1000, 1),
            "processes": processes,
            "links": links,
            "notes": [note for notes in self._book.notes.values() for note in notes],
        }

    def describe_held(self) -> tuple[int, list[str]]:
        """How many definitions are held back, and what there is to tell of it; for its owner
        only."""
        return (0, []) if self._admission is None else (self._admission.held, self._admission.notes)

    # Life
    # ----------------------------------------------------------------------------------------------

    def start(self, caller: Caller | None = None) -> None:
        """Connect in the background. `caller` is the one client of a stdio front, whose own link
        this becomes."""
        self._solo = caller
        if self._living is None and caller is not None:
            self._book.serve_only(kind_of(caller.capabilities))
            if self.known:
                self.settled.set()
            elif self.server.enabled:
                self.settled.clear()
        if self._living is None and self.server.enabled:
            # A lazy server is started once to learn what it offers; from then on only when it is
            # called.
            work = self._life.run(asleep=self.server.lazy and self.known)
            self._living = self._tasks.start(work, apart=True)

    async def _connect(self) -> str | None:
        """One attempt; what went wrong, if anything."""
        try:
            with self._download_shown():
                link = await self._connections.connect(self._solo)
        except RpcError as error:
            said = error.message if len(error.message) <= TOLD else f"{error.message[:TOLD]}…"
            problem = error.message if isinstance(error, Unavailable) else f"{self.name}: {said}"
            if isinstance(error, Unavailable):
                if error.retry_after:
                    self._life.hold_off(error.retry_after)
                if self._wants_sign_in(error):
                    self._life.needs_auth, problem = True, error.message
        except Exception as error:
            log.exception("[%s] connecting failed", self.name)
            problem = f"{self.name}: {type(error).__name__}"
        else:
            if link.alive:
                tools = len(self.definitions["tools"])
                log.info(
                    "[%s] connected, %s, %d tool%s",
                    self.name,
                    link.terms.version,
                    tools,
                    "s" * (tools != 1),
                )
                self.changed(link)
                return None
            problem = f"{self.name}: died right after it was connected"
        problem = self._fit_to_say(problem)
        if not self.known:
            self.given_up()
        known = (
            self._life.needs_auth and problem == self.status.last_error
        )  # it is asked once a minute
        log.log(
            logging.DEBUG if known else logging.WARNING,
            "[%s] %s",
            self.name,
            problem.removeprefix(f"{self.name}: "),
        )
        return problem

    @contextmanager
    def _download_shown(self) -> Generator[None]:
        """While it starts: reports when it is found to be downloading."""

        def tell() -> None:
            self._is_late = True
            if self.phase == "downloading":
                log.info(
                    "[%s] has no output after %g s: it is probably downloading",
                    self.name,
                    DOWNLOAD_SHOWN_AFTER,
                )
                self._hub.state_changed(self.name)

        timer = asyncio.get_running_loop().call_later(DOWNLOAD_SHOWN_AFTER, tell)
        try:
            yield
        finally:
            timer.cancel()
            self._is_late = False

    def changed(self, link: Link) -> None:
        self._stop_watching()
        self._watcher = self._tasks.start(self._look_after(link))

    def lost(self, reason: str) -> None:
        self._stop_watching()
        self._life.lost(self._fit_to_say(reason))

    def confide(self, words: str) -> bool:
        """Where clients are told apart its words are its owner's: they may be about any client."""
        new, self._words = words != self._words, words
        apart = self._apart()
        if apart and new:
            log.warning("[%s] its last words: %s", self.name, self._fit_to_say(words))
        return apart

    def _told_to_all(self, error: Unavailable) -> str:
        """Of a call that was refused for want of a sign-in: what the server said of it is its
        client's."""
        if not self.confide(error.message.removeprefix(f"{self.name}: ")):
            return error.message
        return f"{self.name}: wants the gateway to sign in (HTTP {error.http_status}){UNTOLD}"

    def hush(self) -> None:
        """From now on clients are told apart."""
        status, words = self.status, self._fit_to_say(self._words)
        if words and words in (error := status.last_error or ""):
            self._life.set(status.state, error[: error.index(words)].rstrip(": '") + UNTOLD)

    def _fit_to_say(self, problem: str) -> str:
        """To people and clients: a server's words may hold anything."""
        return visible(self._redact(problem))

    def renew(self) -> None:
        self._stop_watching()
        self._life.rest("renew")

    def _stop_watching(self) -> None:
        if self._watcher is not None and self._watcher is not asyncio.current_task():
            self._watcher.cancel()  # it would keep the dead link in memory until its next look

    async def _look_after(self, link: Link) -> None:
        verdict = await look_after(self, link)
        if not link.alive or link is not self._links.main:
            return
        if verdict == "lost":
            self._connections.lost(link, "did not answer health probes")
            return
        log.info(
            "[%s] %s",
            self.name,
            "goes to sleep" if verdict == "sleep" else "is started anew: old or large",
        )
        self._life.rest(verdict)
        await self._links.close()

    async def reconnect(self) -> None:
        """Connect anew, now: what runs there is cut off, what waits for it goes on waiting. One
        that is down or asleep is tried."""
        living = self._living
        if living is None or not self.server.enabled:
            self.start(self._solo)
        elif living.done() or living.cancelling():
            return  # it is on its way out
        elif self._links.main is None or self._life.phase is not None:
            self._life.wake()
        else:
            log.info("[%s] is connected anew: somebody asked for it", self.name)
            self._stop_watching()
            self._life.set("connecting")
            await self._links.close()  # before there is another: it would be closed with them
            self._life.rest("renew")

    @property
    def phase(self) -> ShownPhase | None:
        """The step of the current connection attempt: waits for other starts, starts, downloads
        itself, lists."""
        phase = self._life.phase
        if phase != "starting":
            return phase
        if self._links.main is not None:
            return "listing"
        return "downloading" if self._is_downloading else phase

    @property
    def _is_downloading(self) -> bool:
        """True if its program has probably to download the server first (LIF-10)."""
        return (
            self._is_late
            and downloads_itself(self.server.connection)
            and not self._connections.has_output
        )

    @property
    def phase_seconds(self) -> float | None:
        """Seconds since the current attempt started the server. None if no attempt runs."""
        return time.monotonic() - self._life.started_at if self._life.phase == "starting" else None

    @property
    def next_try(self) -> float | None:
        """Of one that is down: when it is tried again, in seconds since 1970; None: only when a
        call wants it."""
        due = self._life.next_try
        return None if due is None else time.time() + max(due - time.monotonic(), 0.0)

    @property
    def terms(self) -> Terms | None:
        """What was agreed on with it; None while it is not connected."""
        main = self._links.main
        return None if main is None or not main.alive else main.terms

    @property
    def running(self) -> int:
        """Calls that are not over."""
        return self._running

    @property
    def link_count(self) -> int:
        return sum(1 for _ in self._links)

    @property
    def process_count(self) -> int:
        return self.link_count if starts_process(self.server.connection) else 0

    def traffic(self) -> int:
        return self._calls

    def busy(self) -> bool:
        return self._running > 0 or self._links.opening

    def listened_to(self) -> bool:
        return bool(self._connections.subscriptions)

    def probed(self, latency: float | None, problem: str | None) -> None:
        self.latency = latency if latency is not None else self.latency
        if problem is not None:
            self._life.set("degraded", problem)
        elif self.status.state == "degraded":
            self._life.set("connected")

    # Signing in
    # ----------------------------------------------------------------------------------------------

    @property
    def auth_type(self) -> str | None:
        """How the gateway proves itself to it, as far as the config says."""
        return None if self._auth is None else self._auth[1].type

    @property
    def auth_url(self) -> str | None:
        """Where somebody has to sign in."""
        return None if self.signing is None else self.signing.auth_url

    def _wants_sign_in(self, error: Unavailable) -> bool:
        return wants_sign_in(error, self.signing, self._auth)

    def credentials_changed(self) -> None:
        """Somebody has signed in or out, or has to."""
        signing = self.signing
        if signing is None or self._living is None:
            return
        self._hub.state_changed(self.name)
        if not signing.changed():
            if self.status.state == "needs_auth":
                self._life.set("needs_auth", self._fit_to_say(signing.reason))
            return
        log.info("[%s] sign-in has changed, it is connected anew", self.name)
        main = self._links.main
        if main is not None and main.alive:
            self._connections.renew()  # what it offers, and who it thinks we are, may differ now
        else:
            self._life.hurry()

    # What it offers
    # --------------------------------------------------------------------------------------------

    @property
    def instructions(self) -> str:
        """What it says about itself; text of a stranger."""
        said = self._book.instructions
        return said if self._admission is None else self._admission.instructions(said)

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
        offers = self._book.of(caller)
        return offers if self._admission is None else self._admission.admitted(offers)

    def freshness(self, caller: Caller, kind: Kind) -> Freshness | None:
        """How long the caller may cache a list. None: the server does not have this list, or has
        failed to start."""
        if not self.known and self.settled.is_set():
            return None
        return self._book.freshness(caller, kind)

    def cache_ttl_of(self, name: str) -> float | None:
        return self.server.cache_ttl

    def answering(self, name: str) -> "Upstream":
        return self

    def shares(self, caller: Caller) -> bool:
        """Whether others who are like this caller would be answered the same: nobody has anything
        of their own here, and nobody is asked."""
        traits = self._connections.traits
        alike = self.server.isolation == "shared" and not self.offers_vary and not traits.asks
        return alike and (traits.quiet or not caller.answers)

    @property
    def may_ask(self) -> Collection[str]:
        """By which capabilities its clients can be asked, or were: for one that has them no other
        link is needed."""
        traits = self._connections.traits
        return traits.asks | traits.declares.keys()

    @property
    def delays_lists(self) -> bool:
        """Whether lists wait for the server. They do so in one run only if the server never lists
        (LIF-1)."""
        return not self.settled.is_set() and not self._book.awaited_before

    def given_up(self) -> None:
        """Record that a list has waited for the server in vain."""
        self._book.awaited(kind_of(self._solo.capabilities) if self._solo is not None else NOTHING)

    def learning(self, caller: Caller) -> Learning | None:
        """Start to read the lists for the caller's kind (`OfferBook.learning`)."""
        if caller.solo or not caller.answers or not self.known or self.status.state in UNREACHABLE:
            return None
        refresh = self.status.state != "sleeping"
        return self._book.learning(caller, self._links.main, self._main_link, refresh=refresh)

    def is_learning(self, caller: Caller) -> bool:
        """Whether the lists for the caller's kind are read for the first time."""
        return bool(caller.answers) and not caller.solo and self._book.is_learning(caller)

    def given_up_for(self, learning: Learning, caller: Caller) -> None:
        """Record that the caller receives a list before the reading of its kind's lists is done."""
        learning.late = True
        if learning.patience == "first":
            self._book.awaited(kind_of(caller.capabilities))

    async def _main_link(self) -> Link:
        """The main link. Waits for the current attempt, and wakes a sleeping server. Raises
        Unavailable."""
        main = self._links.main
        if main is None or not main.alive:
            self.start(self._solo)
            if self.status.state == "sleeping":
                await self._tried()
            else:
                await self._life.attempt_over()
            main = self._links.main
        if main is None or not main.alive:
            raise Unavailable(self.name, SERVER_DOWN, self.status.last_error or "not connected")
        return main

    # Changes of its configuration
    # --------------------------------------------------------------------------------

    def inherit(self, other: "Upstream") -> None:
        """Stand in for the upstream this one will replace."""
        if self.server.enabled:
            self._connections.inherit(other._connections)

    def succeed(self, other: "Upstream") -> None:
        """The other one is replaced now; what waits there for an answer of its client is answered
        there."""
        self._before, other._before = other, None
        self._connections.succeed(other._connections)

    def update(self, server: Server) -> None:
        """Take up settings that need no new connection."""
        self.server = self._life.server = server
        self._life.recovery.retry_delay, self._life.recovery.max_retries = (
            server.retry_delay,
            server.max_retries,
        )
        self._connections.update(server)
        before, self._admission = self._admission, self._admission_of(server)
        self._book.admission, self.pinned = self._admission, self._admission is not None
        if before is None and self._admission is not None:
            self._judging.begin()
        if self._admission is not None:
            self._book.judge()
            if not self._admission.seen and self._living is not None:
                self._tasks.start(self._meet())

    async def _meet(self) -> None:
        """It was known from an earlier run only, which does not count any more: one that sleeps is
        woken."""
        with suppress(Unavailable):
            await self._connected()

    async def drain(self, grace: float) -> None:
        """Let running calls finish, for so many seconds, then close."""
        try:
            async with asyncio.timeout(grace):
                while self._running or self._parking:
                    self._rest.clear()
                    await self._rest.wait()
        except TimeoutError:
            log.warning("[%s] calls that are still running are cut off", self.name)
        await self.close("was removed from the configuration, or changed in it")

    async def close(self, why: str = "the gateway is ending") -> None:
        if self._living is not None:
            self._living.cancel()
        await self._connections.close(why)
        await self._tasks.close()
        await self._links.close(why)  # what a task opened or let go while it ended

    async def end_session(self, session: str) -> None:
        await self._connections.end_session(session)

    # Calls
    # ----------------------------------------------------------------------------------------------

    async def call(self, call: Call, params: Json, *, repeatable: bool = False) -> Json:
        """Forward one call. An error the server itself sent is raised as it is; ours names the
        server.

        `repeatable`: reading, or a tool that says it may be called again; sent once more if the
        server died of it."""
        self._calls += 1
        self._running += 1
        try:
            try:
                result = await self._forward(call, params)
            except Unavailable as error:
                if error.retry_after is not None and error.retry_after <= LONGEST_WISH:
                    await asyncio.sleep(error.retry_after)
                elif not _again(error, repeatable):
                    raise
                result = await self._forward(call, params)
        except RpcError as error:
            if not isinstance(error, Unavailable):
                self._life.recovery.served()  # an error is an answer
            else:
                error.say(self._fit_to_say(error.message))
                if self._wants_sign_in(error):
                    self._life.set("needs_auth", self._told_to_all(error))
            raise
        finally:
            self._running -= 1
            self._rested()
        self._life.recovery.served()
        if self._life.status.state == "needs_auth":
            self._life.set("connected")
        return result_with_public_pages(self.name, result)

    def see_off(self, stays: Callable[[str], bool]) -> None:
        """Give up the calls of principals that may not come in any more."""
        if self._parking:
            self._parking.see_off(stays)

    def _rested(self) -> None:
        if not self._running and not self._parking:
            self._rest.set()

    async def _forward(self, call: Call, params: Json) -> Json:
        caller = call.caller
        comes_back = caller.modern and bool(caller.answers) and call.method in era.MAY_ASK
        if not comes_back:
            lease = self._links.take_now(call)
            if lease is not None:
                if self.pinned and not self._judging.passes(lease):
                    await self._judging.admit(lease, params)
                return await lease.run(params)
        if not self.server.enabled:
            raise Unavailable(self.name, SERVER_DOWN, self.server.switched_off or "is disabled")
        if comes_back and self._parking.holds(call):
            return await self._parking.resume(call, params)
        if comes_back and self._before is not None and self._before._parking.holds(call):
            return await self._before.call(call, params)
        await self._connected()
        if comes_back and self._links.era_for(caller) == "older":
            return await self._park(call, params)
        lease = self._links.take_now(call) or await self._links.take(call)
        if (
            comes_back and not lease.link.modern
        ):  # that it speaks no other era was found out just now
            lease.end()
            return await self._park(call, params)
        return await self._use(lease, params)

    async def _park(self, call: Call, params: Json) -> Json:
        """A modern client's call to an older server, which may ask."""
        if call.params.get("requestState") is not None:
            # An older server has no states: it is unknown, or was ours.
            return await self._parking.resume(call, params)
        return await self._parking.begin(
            call, params, lambda parked: self._run(call, params, parked)
        )

    async def _run(self, call: Call, params: Json, parked: Parked) -> Json:
        parked.lease = lease = self._links.take_now(call, parked) or await self._links.take(
            call, parked
        )
        return await self._use(lease, params)

    async def _use(self, lease: Lease, params: Json) -> Json:
        if self.pinned:
            await self._judging.admit(lease, params)
        return await lease.run(params)

    async def _connected(self) -> None:
        """Wait, bounded, for this server only; one that is down is tried now, once for all that
        wait."""
        main = self._links.main
        if main is None or not main.alive:
            await self._tried()

    async def introduced(self) -> None:
        """The same, for one that is not known: until it has said what it offers."""
        if not self.known:
            await self._tried()

    async def _tried(self) -> None:
        self.start(self._solo)
        try:
            await self._life.ready()
            main = self._links.main
            if main is None or not main.alive:
                reason = (self.status.last_error or "not connected").removeprefix(f"{self.name}: ")
                status = 401 if self.status.state == "needs_auth" else None
                raise Unavailable(self.name, SERVER_DOWN, reason, http_status=status)
        except Unavailable as error:
            error.say(self._fit_to_say(error.message))
            self._wants_sign_in(error)
            raise

    # What reaches the server besides calls
    # ---------------------------------------------------------------------

    async def subscribe(self, caller: Caller, uri: str, params: Json) -> Json:
        return await self.watch(caller, uri, caller.session or "", params)

    async def unsubscribe(self, caller: Caller, uri: str, params: Json) -> Json:
        return await self._connections.subscriptions.unsubscribe(
            self._links, uri, caller.session or "", params
        )

    async def watch(self, caller: Caller, uri: str, who: str, params: Json | None = None) -> Json:
        """Listen for a resource on behalf of a session or of a modern client's listening."""
        await self._connected()
        params = params or {}
        try:
            link = await self._connections.link_to_watch(
                Call("resources/subscribe", params, caller)
            )
            return await self._connections.subscriptions.subscribe(link, uri, who, params)
        except Unavailable as error:
            error.say(self._fit_to_say(error.message))
            raise

    async def unwatch(self, who: str) -> None:
        await self._connections.subscriptions.end(self._links, who)

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        self._connections.notify(caller, method, params)

    async def set_level(self, level: str, caller: Caller) -> None:
        await self._connections.set_level(level, caller)


def _again(error: Unavailable, repeatable: bool) -> bool:
    """Whether to send a call once more: not one that waited for its turn in vain, its time is
    up."""
    return (error.unsent and error.code not in (SERVER_TIMEOUT, OVERLOADED)) or (
        repeatable and error.code == SERVER_DIED
    )


def _first_sentence(text: str) -> str:
    line = " ".join(text[:1000].split())
    end = re.search(r"[.!?](?=\s)|[。！？]", line)
    return line if end is None else line[: end.end()]
