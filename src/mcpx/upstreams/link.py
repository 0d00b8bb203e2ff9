"""One live connection to one server: a conversation, its negotiated era, who holds it, and what is
said on it.

A link carries calls of either era's clients and shapes them for its own. A question that no stream
ties to a call goes to the one client that holds leases on the link, to the session the link is
private to, or to nobody. On a client's own link one for roots is that client's whenever it comes:
it waits for a call, and a server that nobody answered is told with the next call to ask again, if
the client declared that its roots may change.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mcpx.base.aio import Tasks
from mcpx.config import Server
from mcpx.model.call import Caller, Json, Voice, as_object
from mcpx.model.errors import INVALID_PARAMS, OVERLOADED, RpcError, Unasked
from mcpx.model.events import SEVERAL
from mcpx.model.offer import Kind as OfferKind
from mcpx.model.requests import SPAN
from mcpx.transports.dial import Dial
from mcpx.upstreams.bridges import answer_for_older
from mcpx.upstreams.extensions import forwarded_capabilities, without_task
from mcpx.upstreams.lease import Lease
from mcpx.upstreams.listening import Listening
from mcpx.upstreams.negotiate import Deadline, Era, Identity, Terms, negotiate
from mcpx.upstreams.owner import Owner
from mcpx.upstreams.traits import NOTHING, ROOTS, Needs, Traits
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.wire import codec, era
from mcpx.wire.peer import Conversation

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials
    from mcpx.processes.stderrlog import Overhear

log = logging.getLogger(__name__)

GREETING = 5.0
"""Seconds a server's question may be ahead of the call its link was opened for; some do nothing
else until they are answered."""

MOST_QUESTIONS = 64
QUESTION_BYTES = 16 * 2**20
"""Questions of a server on one link that wait for their answers, and bytes of them."""

STRAYS = ("notifications/progress", "notifications/cancelled")
"""What names a request of ours by our own id: outside of that request it means nothing to
anybody."""

Use = Literal["shared", "lent", "session", "call", "learning"]
"""Who may have it: everybody; one client at a time; one session; one call; nobody yet, it is only
asked for lists."""


class Link:
    def __init__(
        self,
        server: Server,
        keeper: Owner,
        who: Identity,
        traits: Traits,
        needs: Needs,
        *,
        use: Use,
        owner: object | None = None,
        why: str = "",
        voice: Voice | None = None,
        may_ask: Callable[[], bool] = lambda: True,
    ) -> None:
        """`voice`: who is asked between calls, as long as `may_ask` says that they may know of this
        server."""
        self.server = server
        self.name = server.name
        self.who = who
        self.needs = needs
        """What it was opened with: whose calls may go over it."""
        self.use: Use = use
        self.owner = owner
        """Whom it is private to: a session, or what stands for one; None for everybody's."""
        self.why = why
        self.single = False
        """It was opened for one client, and no other has calls there."""
        self.lasting = False
        """Kept for as long as its session lasts: the server has something there that would be
        lost."""
        self.terms: Terms = Terms("", False, {}, "", {})
        self.told: set[OfferKind | ClientKind] = set()
        """The lists that were read over it, to judge by; kinds of clients: what those are offered,
        where it differs."""
        self.subscribers: dict[str, set[str]] = {}
        """Native URI -> who is subscribed through this link."""
        self.leases: dict[Lease, None] = {}
        self.holders: dict[object, int] = {}
        """Clients that hold leases, and how many."""
        self.ghosts: set[object] = set()
        """Clients whose calls did not end cleanly: the server may still ask about them."""
        self.users: set[object] = set()
        """Clients that had calls on it and are not known to be gone."""
        self.last_client: object | None = None
        self.callers: object | None = None
        """The client whose calls used this link. SEVERAL if there was more than one, None if there
        was none."""
        self._passer_by = float("-inf")
        """When a client that leaves no trace (modern, over HTTP) last had a call on it."""
        self.alive = False
        self.calls = 0
        self.rested_at = asyncio.get_running_loop().time()
        self._keeper = keeper
        self._traits = traits
        self._voice = voice
        self._may_ask = may_ask
        self._talk: Conversation | None = None
        self._tasks = Tasks(server.name)
        self._held = asyncio.Event()
        self._listening = Listening(self, self._tasks)
        self._level: str | None = None
        self._questions = self._question_bytes = 0
        self._roots_missed = False
        """The server asked for its client's roots and was put off: it does not ask again of
        itself."""

    @property
    def modern(self) -> bool:
        return self.terms.modern

    @property
    def could_ask(self) -> bool:
        """Whether the server was told of clients that it may ask something."""
        return bool(self.needs.kind) and not self.terms.modern

    @property
    def exclusive(self) -> bool:
        """Whether one client at a time may hold it: the server could ask, and is not known never
        to."""
        return self.use == "lent" and not self._traits.quiet

    async def open(
        self,
        openings: Sequence[Era],
        environ: Mapping[str, str],
        annotations: Mapping[str, Any],
        credentials: "Credentials | None" = None,
        itself: str = "",
        confide: Callable[[str], bool] = lambda words: False,
        overhear: "Overhear | None" = None,
    ) -> None:
        """Connect and negotiate within `start_timeout` and `timeout`. A failure closes the
        connection."""
        server, size = self.server, self.server.max_message
        deadline = Deadline(server.start_limit, server.timeout)

        def output_began() -> None:
            deadline.output_began()
            self._keeper.output_began()

        dial = Dial(
            server.name,
            self,
            server.timeout,
            size,
            environ,
            annotations,
            credentials,
            itself,
            confide,
            overhear,
            output_began,
        )
        talk = await server.connection.open(dial)
        self._talk = talk
        try:
            self.terms = await negotiate(server.name, talk, openings, self.who, deadline)
        except BaseException:
            await talk.close()
            raise
        talk.agreed(self.terms.version)
        self.alive = True
        log.debug("[%s] link open, %s", server.name, self.terms.version)

    # Who holds it
    # ------------------------------------------------------------------------------------------

    def free_for(self, client: object) -> bool:
        """Whether nobody else holds it, and no call of anybody else may still be asked about."""
        holders, ghosts = self.holders, self.ghosts
        return (not holders or (len(holders) == 1 and client in holders)) and (
            not ghosts or ghosts == {client}
        )

    def hold(self, lease: Lease) -> None:
        self.leases[lease] = None
        client = lease.client
        self.holders[client] = self.holders.get(client, 0) + 1
        self.callers = client if self.callers in (None, client) else SEVERAL
        if isinstance(client, str):
            self.users.add(client)
        self.calls += 1
        self._held.set()

    def release(self, lease: Lease) -> None:
        """Once for each lease, however its call ended."""
        if lease not in self.leases:
            return
        del self.leases[lease]
        client = self.last_client = lease.client
        self.holders[client] -= 1
        if not self.holders[client]:
            del self.holders[client]
            if not isinstance(client, str):
                self._passer_by = asyncio.get_running_loop().time()
        if not self.leases:
            self.rested_at = asyncio.get_running_loop().time()
            self._keeper.rested(self)

    @property
    def unused(self) -> bool:
        """Whether nobody holds it, waits to hear on it, or is likely to come back to it."""
        passed = asyncio.get_running_loop().time() - self._passer_by
        return (
            not (self.leases or self.users or self.subscribers) and passed >= self.server.link_idle
        )

    def haunt(self, client: object) -> None:
        """A call was given up; where the server can ask at all, it may still ask about that
        call."""
        if self.could_ask:
            self.ghosts.add(client if isinstance(client, str) else None)

    def bind(self, caller: Caller, why: str) -> None:
        """From now on this is one session's: the server knows something of that client."""
        if (
            not caller.solo
            and caller.session is not None
            and self.owner is None
            and not self.terms.modern
        ):
            self.owner, self.use, self.why = caller.session, "session", why
            self._keeper.bound(self)

    def answered(self) -> None:
        if self.could_ask:
            self._keeper.answered()

    def asked(self, method: str) -> None:
        self._keeper.asked(method)

    # Calls
    # ----------------------------------------------------------------------------------------------

    def call(self, lease: Lease, params: Json) -> Awaitable[Json]:
        """Forward one call of a client and bring back its result, in the client's own era."""
        call = lease.call
        caller = call.caller
        if call.method == "tools/call":
            params = without_task(params)
        if not self.terms.modern:
            if caller.modern:
                params = era.unstamped(params)
            if self._roots_missed and lease.askable and "roots" in caller.capabilities:
                self._have_roots_asked_for()
            if caller.log_level is not None and not self._tells(caller.log_level):
                return self._send_with_level(lease, params, caller.log_level)
            return self._send(call.method, params, lease)
        if caller.modern:
            return self._send(call.method, self._stamped(caller, params), lease)
        return answer_for_older(
            call,
            self.name,
            lambda p: self._send(call.method, self._stamped(caller, p), lease),
            params,
        )

    @staticmethod
    def _stamped(caller: Caller, params: Json) -> Json:
        # An older client that set no level hears what is worth an "info"; a modern one says what it
        # wants.
        level = caller.log_level if caller.modern else caller.log_level or "info"
        return era.stamped(
            params, through(caller.client), forwarded_capabilities(caller.capabilities), level
        )

    async def _send_with_level(self, lease: Lease, params: Json, level: str) -> Json:
        await self.set_level(level)
        return await self._send(lease.call.method, params, lease)

    def _send(self, method: str, params: Json, lease: Lease) -> Awaitable[Json]:
        assert self._talk is not None
        if (span := SPAN.get()) is not None:
            params = span.told(params)
        return self._talk.request(method, params, meanwhile=lease, timeout=self.server.call_timeout)

    async def request(self, message: Json) -> Json:
        """A question of the server that no stream ties to a call (`wire.peer.Inbound`)."""
        method, params = message["method"], message.get("params")
        if method == "ping":
            return {}
        with self.questioning(params):
            return await self._asked(method, params)

    @contextlib.contextmanager
    def questioning(self, params: Json | None) -> Generator[None, None, None]:
        """While a question of the server waits for its answer."""
        try:
            size = len(codec.dump(params))
        except codec.Unencodable:
            raise RpcError(
                INVALID_PARAMS, "the question cannot be passed on: it is no JSON"
            ) from None
        if self._questions >= MOST_QUESTIONS or self._question_bytes + size > QUESTION_BYTES:
            raise RpcError(OVERLOADED, "too many questions wait for an answer")
        self._questions += 1
        self._question_bytes += size
        try:
            yield
        finally:
            self._questions -= 1
            self._question_bytes -= size

    async def _asked(self, method: str, params: Json | None) -> Json:
        self.asked(method)
        voice = self._voice if self._may_ask() else None
        # On a client's own link these can only be that client's, and they are about no call: any
        # will do.
        roots = method == ROOTS and (self.single or self.owner is not None)
        if self.calls and not (self.leases or voice is not None or roots):
            # about a call that is over, or nothing: whoever comes next is not to be asked
            self._keeper.asked_late()
        try:
            while True:
                waits = voice is None and self.use != "learning"
                newest = await self._awaited(roots=roots) if waits else self._askable()
                if newest is None and voice is not None:
                    return await voice.ask(self.name, method, params)
                if newest is None or not self.free_for(newest.client):
                    raise Unasked(method)
                try:
                    return await newest.ask(method, params)
                except Unasked:  # that call is over
                    if not roots:
                        raise
        except (
            Unasked,
            asyncio.CancelledError,
        ):  # nobody came in time, or in the time that the server gave
            self._roots_missed = self._roots_missed or roots
            raise

    async def _awaited(self, *, roots: bool) -> Lease | None:
        """The newest call by which somebody can be asked, also if it is yet to come: a server may
        ask as soon as it is greeted, a moment before the call the link was opened for; for roots,
        if it is slow, a moment after."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GREETING):
                while self._askable() is None and (roots or not self.calls):
                    self._held.clear()
                    await self._held.wait()
        return self._askable()

    def _have_roots_asked_for(self) -> None:
        """Before a call by which its client can be asked: a server that hears of other roots asks
        which they are."""
        self._roots_missed = False
        if (
            as_object(self.who.capabilities.get("roots")).get("listChanged") is True
        ):  # else it was told they stay
            self.notify("notifications/roots/list_changed", {})

    def _askable(self) -> Lease | None:
        return next((lease for lease in reversed(self.leases) if lease.askable), None)

    async def ask(
        self,
        method: str,
        params: Json,
        timeout: float | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> Json:
        """A request of the gateway's own (lists, subscriptions), under the server's `timeout`."""
        assert self._talk is not None
        if self.terms.modern:
            able = (
                self.who.capabilities
                if capabilities is None
                else forwarded_capabilities(capabilities)
            )
            params = era.stamped(params, self.who.client, able, None)
        return await self._talk.request(method, params, timeout=timeout or self.server.timeout)

    async def listen_for(self, wanted: Json, meanwhile: Any) -> Json:
        """One `subscriptions/listen`, until the server ends it."""
        assert self._talk is not None
        params = era.stamped(
            {"notifications": wanted}, self.who.client, self.who.capabilities, None
        )
        return await self._talk.request("subscriptions/listen", params, meanwhile=meanwhile)

    async def probe(self, timeout: float) -> None:
        """Ask for a sign of life; an error is one too."""
        await self.ask("server/discover" if self.terms.modern else "ping", {}, timeout)

    def memory(self) -> int:
        """Bytes the server's own process holds; 0 where that cannot be told."""
        return self._talk.memory() if self._talk is not None else 0

    def notify(self, method: str, params: Json) -> None:
        if self.alive and self._talk is not None and not self.terms.modern:
            self._talk.notify(method, params)

    # Subscriptions and levels
    # ------------------------------------------------------------------------------

    async def subscribe(self, uri: str, who: str, params: Json) -> Json:
        users = self.subscribers.setdefault(uri, set())
        first = not users
        users.add(who)
        try:
            if self.terms.modern:
                if first:
                    await self._listening.begin()
                return {}
            return await self.ask("resources/subscribe", {**params, "uri": uri}) if first else {}
        except (RpcError, asyncio.CancelledError):
            self._forget(uri, who)
            raise

    async def unsubscribe(self, uri: str, who: str, params: Json) -> Json:
        last = self._forget(uri, who)
        if not last or not self.alive:
            return {}
        if self.terms.modern:
            await self._listening.begin()
            return {}
        return await self.ask("resources/unsubscribe", {**params, "uri": uri})

    def _forget(self, uri: str, who: str) -> bool:
        """Whether that was the last one."""
        users = self.subscribers.get(uri)
        if users is None or who not in users:
            return False
        users.discard(who)
        if users:
            return False
        del self.subscribers[uri]
        return True

    async def set_level(self, level: str) -> None:
        """Ask an older server for log messages from this level on; a modern one is asked with each
        call."""
        if level == self._level or self.terms.modern or "logging" not in self.terms.capabilities:
            return
        self._level = level
        try:
            await self.ask("logging/setLevel", {"level": level})
        except RpcError as error:
            log.debug("[%s] refused log level %s: %s", self.name, level, error.message)

    def _tells(self, level: str) -> bool:
        """Whether it sends that much already: whoever wants less is told less, message by
        message."""
        return self._level is not None and era.LOG_LEVELS.index(
            self._level
        ) <= era.LOG_LEVELS.index(level)

    async def listen(self) -> None:
        """Modern servers announce changes only to those who listen; older ones do it unasked."""
        if self.terms.modern:
            await self._listening.begin()

    # What the server says
    # ------------------------------------------------------------------------------------

    def notification(self, method: str, params: Json) -> None:
        if method == "notifications/subscriptions/acknowledged":
            self._listening.acknowledged()
        elif method == "notifications/message":
            self._logged(method, params)
        elif method not in STRAYS:
            self._keeper.heard(self, method, params, self.owner)

    def _logged(self, method: str, params: Json) -> None:
        """What one client's call made a server say is not another client's business."""
        if self.leases and all(lease.call.caller.modern for lease in self.leases):
            # They have no session that could be told.
            if len(self.holders) == 1:
                next(reversed(self.leases)).notification(method, params)
        elif (
            self.exclusive or self.use == "call" or (self.use == "lent" and len(self.holders) == 1)
        ):
            client = next(iter(self.holders)) if len(self.holders) == 1 else self.last_client
            if isinstance(client, str):
                self._keeper.heard(self, method, params, client)
        else:
            self._keeper.heard(self, method, params, self.owner)

    def closed(self, reason: str) -> None:
        if self.alive:
            self.alive = False
            self._keeper.lost(self, reason)

    async def close(self) -> None:
        self.alive = False
        await self._tasks.close()
        if self._talk is not None:
            await self._talk.close()


def through(client: Mapping[str, Any]) -> Json:
    """`clientInfo` as it goes up: the client's own, marked as coming through us (PRO-3)."""
    from mcpx import __version__

    name = client.get("name")
    if not isinstance(name, str) or not name:
        return {"name": "mcpx-through-proxy", "version": __version__}
    return {**client, "name": f"{name}-through-proxy"}


PLAIN = Needs(NOTHING, era.LATEST_OLDER)
"""Of a link that was opened on nobody's behalf: it declares nothing that a client could be
asked."""
