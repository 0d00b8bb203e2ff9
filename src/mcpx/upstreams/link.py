"""One live connection to one server: a conversation, its era, and the clients that use it.

A link carries calls of clients of either era and converts them for its own.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mcpx.base.aio import Tasks
from mcpx.config import Server
from mcpx.model.call import Caller, Json, Voice, as_object
from mcpx.model.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    OVERLOADED,
    RpcError,
    Unasked,
    Unavailable,
)
from mcpx.model.events import SEVERAL
from mcpx.model.offer import Kind as OfferKind
from mcpx.model.requests import SPAN
from mcpx.transports.dial import Dial
from mcpx.upstreams.bridges import Lease, answer_for_older
from mcpx.upstreams.negotiate import Deadline, Era, Identity, Terms, negotiate
from mcpx.upstreams.traits import (
    NOTHING,
    ROOTS,
    Needs,
    Traits,
    forwarded_capabilities,
    without_task,
)
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.wire import codec, era
from mcpx.wire.peer import Conversation

if TYPE_CHECKING:
    from mcpx.upstreams.link_owner import LinkOwner

log = logging.getLogger(__name__)

GREETING = 5.0
"""Seconds that a server's question may be ahead of the call its link was opened for. Some servers
do nothing else until they are answered."""
MOST_QUESTIONS = 64
QUESTION_BYTES = 16 * 2**20
"""Unanswered questions of a server on one link, and their size."""


class LinkQuestions:
    def __init__(self, link: "Link", voice: Voice | None, may_ask: Callable[[], bool]) -> None:
        """`voice` is asked between calls, as long as `may_ask` returns True."""
        self.lease_taken = asyncio.Event()
        self._link = link
        self._voice = voice
        self._may_ask = may_ask
        self._open = 0
        self._open_bytes = 0
        self.roots_missed = False
        """The server asked for roots and was not answered. It does not ask again by itself."""

    @contextlib.contextmanager
    def counted(self, params: Json | None) -> Generator[None]:
        """Limits the questions that wait for an answer."""
        try:
            size = len(codec.dump(params))
        except codec.Unencodable:
            reason = "the question cannot be passed on: it is no JSON"
            raise RpcError(INVALID_PARAMS, reason) from None
        if self._open >= MOST_QUESTIONS or self._open_bytes + size > QUESTION_BYTES:
            raise RpcError(OVERLOADED, "too many questions wait for an answer")
        self._open += 1
        self._open_bytes += size
        try:
            yield
        finally:
            self._open -= 1
            self._open_bytes -= size

    async def ask(self, method: str, params: Json | None) -> Json:
        """Ask a client. Raises `Unasked` if no client can be asked in time."""
        link = self._link
        link.asked(method)
        voice = self._voice if self._may_ask() else None
        # On a client's own link, roots are that client's, and about no call: any call will do.
        roots = method == ROOTS and (link.single or link.owner is not None)
        if link.calls and not (link.leases or voice is not None or roots):
            # The question is about an earlier call, or about none. The next caller is not asked.
            link.asked_late()
        try:
            while True:
                if voice is None and link.use != "learning":
                    await self._wait_for_lease(roots=roots)
                newest = self._askable()
                if newest is None and voice is not None:
                    return await voice.ask(link.name, method, params)
                if newest is None or not link.free_for(newest.client):
                    raise Unasked(method)
                try:
                    return await newest.ask(method, params)
                except Unasked:  # The call has ended.
                    if not roots:
                        raise
        except (Unasked, asyncio.CancelledError):
            self.roots_missed = self.roots_missed or roots
            raise

    async def _wait_for_lease(self, *, roots: bool) -> None:
        """Wait for a call whose client can be asked. A server may ask a moment before the call that
        the link was opened for, and a slow one may ask for roots a moment after it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GREETING):
                while self._askable() is None and (roots or not self._link.calls):
                    self.lease_taken.clear()
                    await self.lease_taken.wait()

    def _askable(self) -> Lease | None:
        """The newest call whose client can be asked."""
        return next((lease for lease in reversed(self._link.leases) if lease.askable), None)

    def ask_for_roots_again(self, lease: Lease) -> None:
        """Before a call: make the server ask for roots that it missed."""
        if lease.askable and "roots" in lease.call.caller.capabilities:
            self.roots_missed = False
            link = self._link
            if as_object(link.who.capabilities.get("roots")).get("listChanged") is True:
                link.notify("notifications/roots/list_changed", {})


RETRY = (0.5, 2.0, 10.0, 30.0)
"""Seconds before a listen request that ended is sent again."""
ACKNOWLEDGED_WITHIN = 3.0
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

FLAGS = (
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
)


class Listening:
    def __init__(self, link: "Link", tasks: Tasks) -> None:
        self.subscribers: dict[str, set[str]] = {}
        """Native URI -> the sessions and modern listenings that are subscribed."""
        self._link = link
        self._tasks = tasks
        self._level: str | None = None
        self._running: asyncio.Task[Any] | None = None
        self._acknowledged = asyncio.Event()

    async def subscribe(self, uri: str, who: str, params: Json) -> Json:
        users = self.subscribers.setdefault(uri, set())
        is_first = not users
        users.add(who)
        try:
            if not is_first:
                return {}
            if self._link.modern:
                await self.listen()
                return {}
            return await self._link.ask("resources/subscribe", {**params, "uri": uri})
        except (RpcError, asyncio.CancelledError):
            self._forget(uri, who)
            raise

    async def unsubscribe(self, uri: str, who: str, params: Json) -> Json:
        was_last = self._forget(uri, who)
        if not was_last or not self._link.alive:
            return {}
        if self._link.modern:
            await self.listen()
            return {}
        return await self._link.ask("resources/unsubscribe", {**params, "uri": uri})

    def _forget(self, uri: str, who: str) -> bool:
        """Whether that was the last subscriber."""
        users = self.subscribers.get(uri, set())
        if who not in users:
            return False
        users.discard(who)
        if not users:
            del self.subscribers[uri]
        return not users

    async def set_level(self, level: str) -> None:
        """Ask an older server for log messages from this level on. Modern requests carry it."""
        link = self._link
        if level == self._level or link.modern or "logging" not in link.terms.capabilities:
            return
        self._level = level
        try:
            await link.ask("logging/setLevel", {"level": level})
        except RpcError as error:
            log.debug("[%s] refused log level %s: %s", link.name, level, error.message)

    def covers(self, level: str) -> bool:
        """Whether the server sends messages of this level already."""
        order = era.LOG_LEVELS.index
        return self._level is not None and order(self._level) <= order(level)

    def acknowledged(self) -> None:
        self._acknowledged.set()

    async def listen(self) -> None:
        """Listen for what is wanted now. The previous request ends when this one is accepted."""
        if not self._link.modern:
            return  # Older servers announce changes unasked.
        previous = self._running
        self._acknowledged = acknowledged = asyncio.Event()
        self._running = self._tasks.start(self._keep_listening(acknowledged), apart=True)
        # A server that never acknowledges must not delay its own calls.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._link.server.timeout, ACKNOWLEDGED_WITHIN)):
                await acknowledged.wait()
        if previous is not None:
            previous.cancel()

    def _wanted(self) -> Json:
        able = self._link.terms.capabilities
        wanted: Json = {}
        for name, flag in FLAGS:
            if as_object(able.get(name)).get("listChanged"):
                wanted[flag] = True
        if self.subscribers:
            wanted["resourceSubscriptions"] = sorted(self.subscribers)
        return wanted

    async def _keep_listening(self, acknowledged: asyncio.Event) -> None:
        link, stream = self._link, _Stream(self._link, acknowledged)
        tries = 0
        while link.alive and (wanted := self._wanted()):
            try:
                await link.listen_for(wanted, stream)
                tries = 0
            except Unavailable as error:
                log.debug("[%s] listening ended: %s", link.name, error.message)
            except RpcError as error:
                log.debug("[%s] does not take listeners: %s", link.name, error.message)
                break
            link.told.clear()  # Changes are not reported now.
            await asyncio.sleep(RETRY[min(tries, len(RETRY) - 1)])
            tries += 1
        acknowledged.set()


class _Stream:
    """Receives messages for a listen request. Implements `wire.peer.Meanwhile`."""

    def __init__(self, link: "Link", acknowledged: asyncio.Event) -> None:
        self._link = link
        self._acknowledged = acknowledged

    def progress(self, params: Json) -> None:
        pass

    def notification(self, method: str, params: Json) -> None:
        if method == ACKNOWLEDGED:
            self._acknowledged.set()
        else:
            self._link.notification(method, params)

    async def question(self, method: str, params: Json | None) -> Json:
        raise RpcError(METHOD_NOT_FOUND, f"nobody here can be asked {method}")

    def paused(self, retry_ms: int) -> None:
        pass


STRAYS = ("notifications/progress", "notifications/cancelled")
"""Messages that name a request of the gateway. Outside of that request they mean nothing."""

Use = Literal["shared", "lent", "session", "call", "learning"]
"""Who may use a link: all clients, one client at a time, one session, one call, or no client yet,
because it was opened to read lists."""


class Link:
    def __init__(
        self,
        server: Server,
        keeper: "LinkOwner",
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
        self.server = server
        self.name = server.name
        self.who = who
        self.needs = needs
        """What the link was opened with, which decides whose calls it may carry."""
        self.use: Use = use
        self.owner = owner
        """The session that the link belongs to, or what stands for one."""
        self.why = why
        self.single = False
        """Whether the link was opened for one client, and carries no calls of others."""
        self.lasting = False
        """Whether the link lives as long as its session, because the server keeps a state there."""
        self.terms: Terms = Terms("", False, {}, "", {})
        self.told: set[OfferKind | ClientKind] = set()
        """The lists that were read over it to judge them, and the kinds of clients whose lists
        were read, if they differ."""
        self.leases: dict[Lease, None] = {}
        self.holders: dict[object, int] = {}
        """Number of leases by client."""
        self.ghosts: set[object] = set()
        """Clients of calls that did not end cleanly. The server may still ask about the calls."""
        self.users: set[object] = set()
        """Clients that had calls on the link and are not known to be gone."""
        self.last_client: object | None = None
        self.callers: object | None = None
        """The client whose calls used this link, SEVERAL, or None."""
        self._guest_left_at = float("-inf")
        """When a client without a session (modern, over HTTP) last had a call on it."""
        self.alive = False
        self.calls = 0
        self.rested_at = asyncio.get_running_loop().time()
        self._keeper = keeper
        self._traits = traits
        self._talk: Conversation | None = None
        self._tasks = Tasks(server.name)
        self.listening = Listening(self, self._tasks)
        self.questions = LinkQuestions(self, voice, may_ask)
        self.answered = keeper.answered
        self.asked = keeper.asked
        self.asked_late = keeper.asked_late

    @property
    def modern(self) -> bool:
        return self.terms.modern

    @property
    def could_ask(self) -> bool:
        """Whether the server was told that it may ask clients."""
        return bool(self.needs.kind) and not self.terms.modern

    async def open(self, openings: Sequence[Era], dial: Dial, deadline: Deadline) -> None:
        """Connect and negotiate. A failure closes the connection."""
        talk = await self.server.connection.open(dial)
        self._talk = talk
        try:
            self.terms = await negotiate(self.name, talk, openings, self.who, deadline)
        except BaseException:
            await talk.close()
            raise
        talk.agreed(self.terms.version)
        self.alive = True
        log.debug("[%s] link open, %s", self.name, self.terms.version)

    # Holders
    # ------------------------------------------------------------------------------------------

    def free_for(self, client: object) -> bool:
        """Whether no other client holds the link, or may still be asked about a call."""
        holders, ghosts = self.holders, self.ghosts
        if holders and (len(holders) > 1 or client not in holders):
            return False
        return not ghosts or ghosts == {client}

    @property
    def only_holder(self) -> object | None:
        """The client with leases, if there is only one."""
        return next(iter(self.holders)) if len(self.holders) == 1 else None

    def hold(self, lease: Lease) -> None:
        self.leases[lease] = None
        client = lease.client
        self.holders[client] = self.holders.get(client, 0) + 1
        if self.callers is None:
            self.callers = client
        elif self.callers != client:
            self.callers = SEVERAL
        if isinstance(client, str):
            self.users.add(client)
        self.calls += 1
        self.questions.lease_taken.set()

    def release(self, lease: Lease) -> None:
        """Called once for each lease, however its call ended."""
        if lease not in self.leases:
            return
        del self.leases[lease]
        client = self.last_client = lease.client
        self.holders[client] -= 1
        if not self.holders[client]:
            del self.holders[client]
            if not isinstance(client, str):
                self._guest_left_at = asyncio.get_running_loop().time()
        if not self.leases:
            self.rested_at = asyncio.get_running_loop().time()
            self._keeper.rested(self)

    @property
    def unused(self) -> bool:
        """Whether no client holds the link, is subscribed on it, or is likely to return to it."""
        if self.leases or self.users or self.listening.subscribers:
            return False
        return asyncio.get_running_loop().time() - self._guest_left_at >= self.server.link_idle

    def haunt(self, client: object) -> None:
        """A call was cancelled. If the server can ask, it may still ask about that call."""
        if self.could_ask:
            self.ghosts.add(client if isinstance(client, str) else None)

    def bind(self, caller: Caller, why: str) -> None:
        """From now on the link belongs to one session, because the server knows its client."""
        if caller.solo or caller.session is None or self.owner is not None or self.modern:
            return
        self.owner, self.use, self.why = caller.session, "session", why
        self._keeper.bound(self)

    # Calls
    # ----------------------------------------------------------------------------------------------

    def call(self, lease: Lease, params: Json) -> Awaitable[Json]:
        """Forward one call of a client. The result has the client's era."""
        call = lease.call
        caller = call.caller
        if call.method == "tools/call":
            params = without_task(params)
        if not self.terms.modern:
            if caller.modern:
                params = era.unstamped(params)
            if self.questions.roots_missed:
                self.questions.ask_for_roots_again(lease)
            level = caller.log_level
            if level is not None and not self.listening.covers(level):
                return self._send_with_level(lease, params, level)
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
        level = caller.log_level
        if not caller.modern:  # An older client that set no level receives "info" and above.
            level = level or "info"
        return era.stamped(
            params, through(caller.client), forwarded_capabilities(caller.capabilities), level
        )

    async def _send_with_level(self, lease: Lease, params: Json, level: str) -> Json:
        await self.listening.set_level(level)
        return await self._send(lease.call.method, params, lease)

    def _send(self, method: str, params: Json, lease: Lease) -> Awaitable[Json]:
        assert self._talk is not None
        if (span := SPAN.get()) is not None:
            params = span.told(params)
        return self._talk.request(method, params, meanwhile=lease, timeout=self.server.call_timeout)

    # Requests of the gateway
    # ----------------------------------------------------------------------------------------------

    async def ask(
        self,
        method: str,
        params: Json,
        timeout: float | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> Json:
        """Send a request of the gateway (lists, subscriptions), with the server's `timeout`."""
        assert self._talk is not None
        if self.terms.modern:
            able = self.who.capabilities
            if capabilities is not None:
                able = forwarded_capabilities(capabilities)
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
        """Ask for a sign of life. An error is one, too."""
        await self.ask("server/discover" if self.terms.modern else "ping", {}, timeout)

    def memory(self) -> int:
        """Bytes of the server's own process, or 0 if unknown."""
        return self._talk.memory() if self._talk is not None else 0

    def notify(self, method: str, params: Json) -> None:
        if self.alive and self._talk is not None and not self.terms.modern:
            self._talk.notify(method, params)

    # Messages of the server
    # ----------------------------------------------------------------------------------------------

    async def request(self, message: Json) -> Json:
        """A question that belongs to no stream of a call (`wire.peer.Inbound`)."""
        method, params = message["method"], message.get("params")
        if method == "ping":
            return {}
        with self.questions.counted(params):
            return await self.questions.ask(method, params)

    def notification(self, method: str, params: Json) -> None:
        if method == ACKNOWLEDGED:
            self.listening.acknowledged()
        elif method == "notifications/message":
            self._logged(method, params)
        elif method not in STRAYS:
            self._keeper.heard(self, method, params, self.owner)

    def _logged(self, method: str, params: Json) -> None:
        """A log message that one client's call has caused must not reach another client."""
        if self.leases and all(lease.call.caller.modern for lease in self.leases):
            # They have no session that could be told.
            if len(self.holders) == 1:
                next(reversed(self.leases)).notification(method, params)
            return
        owner = self.owner
        is_lent = self.use == "lent" and (not self._traits.quiet or len(self.holders) == 1)
        if self.use == "call" or is_lent:
            owner = self.only_holder or self.last_client
            if not isinstance(owner, str):
                return
        self._keeper.heard(self, method, params, owner)

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
    """`clientInfo` for servers: the client's own, marked as coming through mcpx (PRO-3)."""
    from mcpx import __version__

    name = client.get("name")
    if not isinstance(name, str) or not name:
        return {"name": "mcpx-through-proxy", "version": __version__}
    return {**client, "name": f"{name}-through-proxy"}


PLAIN = Needs(NOTHING, era.LATEST_OLDER)
"""Of a link that was opened for no client: it declares nothing that a client could be asked."""
