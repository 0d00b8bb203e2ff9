"""One live connection to one server: a conversation, its negotiated era, and what is said on it.

A link carries calls of either era's clients and shapes them for its own. It knows whom it belongs to: nobody in
particular (shared), one session, or one call at a time; a question that no stream ties to a call goes to that
owner and to nobody else.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from mcpx.config import Server
from mcpx.model.call import Call, Json, Voice, as_object
from mcpx.model.errors import METHOD_NOT_FOUND, RpcError, Unavailable
from mcpx.model.offer import Kind
from mcpx.transports.dial import Dial
from mcpx.upstreams.errands import Errand, answer_for_older
from mcpx.upstreams.negotiate import Era, Identity, Terms, negotiate
from mcpx.wire import era
from mcpx.wire.peer import Conversation
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

PAGES = 1000
ITEMS = 100_000
"""A server that pages for ever is stopped here (NAM-6)."""

LISTS: Mapping[Kind, tuple[str, str, str]] = {
    "tools": ("tools/list", "tools", "tools"),
    "prompts": ("prompts/list", "prompts", "prompts"),
    "resources": ("resources/list", "resources", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources"),
}
"""Kind -> method, key of the result, capability that offers it."""

LISTEN_RETRY = (0.5, 2.0, 10.0, 30.0)
GREETING = 5.0
"""Seconds a server's question may be ahead of the call its link was opened for."""

STRAYS = ("notifications/progress", "notifications/cancelled")
"""What names a request of ours by our own id: outside of that request it means nothing to anybody."""


class Hearer(Protocol):
    """Who wants to know what a link hears outside of any call."""

    def heard(self, link: "Link", method: str, params: Json) -> None: ...

    def lost(self, link: "Link", reason: str) -> None: ...

    def idle(self, link: "Link") -> None:
        """It carries no call any more."""
        ...


class Link:
    def __init__(
        self, server: Server, hearer: Hearer, who: Identity, *, owner: str | None, voice: Voice | None
    ) -> None:
        self.server = server
        self.who = who
        self.owner = owner
        """The session this link is private to; None for a shared one."""
        self.terms: Terms = Terms("", False, {}, "", {})
        self.subscribers: dict[str, set[str]] = {}
        """Native URI -> who subscribed through this link."""
        self.errands: dict[Errand, None] = {}
        self.alive = False
        self.calls = 0
        self.affinity: tuple[str, ...] = ()
        """Of a link that carries one call at a time: whose calls."""
        self._hearer = hearer
        self._voice = voice
        self._talk: Conversation | None = None
        self._tasks = Tasks(server.name)
        self._busy = asyncio.Event()
        self._listening: asyncio.Task[Any] | None = None
        self._acknowledged = asyncio.Event()
        self._level: str | None = None

    @property
    def modern(self) -> bool:
        return self.terms.modern

    async def open(self, openings: Sequence[Era], environ: Mapping[str, str], annotations: Mapping[str, Any]) -> None:
        """Connect and negotiate, bounded by the server's `timeout`. Nothing is left behind on failure."""
        server = self.server
        dial = Dial(server.name, self, server.timeout, server.max_message, environ, annotations)
        talk = await server.connection.open(dial)
        self._talk = talk
        try:
            self.terms = await negotiate(server.name, talk, openings, self.who, server.timeout)
        except BaseException:
            await talk.close()
            raise
        talk.agreed(self.terms.version)
        self.alive = True
        log.debug("[%s] link open, %s", server.name, self.terms.version)

    # Calls -------------------------------------------------------------------------------------------------

    async def call(self, call: Call, method: str, params: Json, errand: Errand) -> Json:
        """Forward one call of a client and bring back its result, in the client's own era."""
        caller = call.caller
        self.errands[errand] = None
        self.calls += 1
        self._busy.set()
        try:
            if not self.terms.modern:
                if caller.modern:
                    params = era.unstamped(params)
                return await self._send(method, params, errand)
            if caller.modern:
                return await self._send(method, self._stamped(call, params), errand)
            return await answer_for_older(
                call, self.server.name, lambda p: self._send(method, self._stamped(call, p), errand), params
            )
        finally:
            del self.errands[errand]
            if not self.errands:
                self._busy.clear()
                self._hearer.idle(self)

    def _stamped(self, call: Call, params: Json) -> Json:
        caller = call.caller
        # An older client that set no level hears what is worth an "info"; a modern one says what it wants.
        level = caller.log_level if caller.modern else caller.log_level or "info"
        return era.stamped(params, through(caller.client), caller.capabilities, level)

    async def _send(self, method: str, params: Json, errand: Errand | None) -> Json:
        assert self._talk is not None
        return await self._talk.request(method, params, meanwhile=errand, timeout=self.server.call_timeout)

    async def request(self, message: Json) -> Json:
        """A question of the server that no stream ties to a call (`wire.peer.Inbound`)."""
        method, params = message["method"], message.get("params")
        if method == "ping":
            return {}
        if not self.errands and self._voice is None:
            # A server may ask as soon as it is greeted, a moment before the call the link was opened for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GREETING):
                    await self._busy.wait()
        if self.errands and (self._voice is not None or self.owner is not None or len(self.errands) == 1):
            return await next(reversed(self.errands)).question(method, params)
        if self._voice is not None:
            return await self._voice.ask(self.server.name, method, params)
        raise RpcError(METHOD_NOT_FOUND, f"nobody here can be asked {method}")

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
            able = self.who.capabilities if capabilities is None else capabilities
            params = era.stamped(params, self.who.client, able, None)
        return await self._talk.request(method, params, timeout=timeout or self.server.timeout)

    async def probe(self, timeout: float) -> None:
        """Ask for a sign of life; an error is one too."""
        await self.ask("server/discover" if self.terms.modern else "ping", {}, timeout)

    def memory(self) -> int:
        """Bytes the server's own process holds; 0 where that cannot be told."""
        return self._talk.memory() if self._talk is not None else 0

    def notify(self, method: str, params: Json) -> None:
        if self.alive and self._talk is not None and not self.terms.modern:
            self._talk.notify(method, params)

    # What the server offers --------------------------------------------------------------------------------

    async def list(self, kind: Kind, capabilities: Mapping[str, Any] | None = None) -> list[Json]:
        """Everything of one kind, all pages. Junk is kept here and dropped where names are settled.

        `capabilities`: what a modern server offers to a client with these, instead of to us."""
        method, key, capability = LISTS[kind]
        if capability not in self.terms.capabilities:
            return []
        found: list[Json] = []
        cursors: set[str] = set()
        params: Json = {}
        for _ in range(PAGES):
            try:
                result = await self.ask(method, params, capabilities=capabilities)
            except RpcError as error:
                if error.code == METHOD_NOT_FOUND:
                    return found  # declared resources, but has no templates; or declared what it lacks
                raise
            page: Any = result.get(key)
            if isinstance(page, list):
                found.extend(cast(list[Json], page))
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or cursor in cursors or len(found) > ITEMS:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        else:
            log.warning("[%s] %s does not end; stopped after %d pages", self.server.name, method, PAGES)
        return found[:ITEMS]

    # Subscriptions and levels ------------------------------------------------------------------------------

    async def subscribe(self, uri: str, who: str, params: Json) -> Json:
        users = self.subscribers.setdefault(uri, set())
        first = not users
        users.add(who)
        try:
            if self.terms.modern:
                if first:
                    await self._listen_anew()
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
            await self._listen_anew()
            return {}
        return await self.ask("resources/unsubscribe", {**params, "uri": uri})

    def _forget(self, uri: str, who: str) -> bool:
        users = self.subscribers.get(uri)
        if users is None:
            return False
        users.discard(who)
        if users:
            return False
        del self.subscribers[uri]
        return True

    async def set_level(self, level: str) -> None:
        """Ask an older server for log messages; a modern one is asked with each call."""
        if level == self._level or self.terms.modern or "logging" not in self.terms.capabilities:
            return
        self._level = level
        try:
            await self.ask("logging/setLevel", {"level": level})
        except RpcError as error:
            log.debug("[%s] refused log level %s: %s", self.server.name, level, error.message)

    async def listen(self) -> None:
        """Modern servers announce changes only to those who listen; older ones do it unasked."""
        if self.terms.modern:
            await self._listen_anew()

    async def _listen_anew(self) -> None:
        previous = self._listening
        self._acknowledged = acknowledged = asyncio.Event()
        self._listening = self._tasks.start(self._keep_listening(acknowledged))
        with contextlib.suppress(TimeoutError):  # a server that never acknowledges must not hold up its own calls
            async with asyncio.timeout(min(self.server.timeout, 3.0)):
                await acknowledged.wait()
        if previous is not None:
            previous.cancel()

    async def _keep_listening(self, acknowledged: asyncio.Event) -> None:
        assert self._talk is not None
        ear = _ListenErrand(self, acknowledged)
        tries = 0
        while self.alive:
            wanted: Json = {}
            for capability, flag in (
                ("tools", "toolsListChanged"),
                ("prompts", "promptsListChanged"),
                ("resources", "resourcesListChanged"),
            ):
                if as_object(self.terms.capabilities.get(capability)).get("listChanged"):
                    wanted[flag] = True
            if self.subscribers:
                wanted["resourceSubscriptions"] = sorted(self.subscribers)
            if not wanted:
                acknowledged.set()
                return
            params = era.stamped({"notifications": wanted}, self.who.client, self.who.capabilities, None)
            try:
                await self._talk.request("subscriptions/listen", params, meanwhile=ear)
                tries = 0
            except Unavailable as error:
                log.debug("[%s] listening ended: %s", self.server.name, error.message)
            except RpcError as error:
                log.debug("[%s] does not take listeners: %s", self.server.name, error.message)
                acknowledged.set()
                return
            await asyncio.sleep(LISTEN_RETRY[min(tries, len(LISTEN_RETRY) - 1)])
            tries += 1

    # What the server says ------------------------------------------------------------------------------------

    def notification(self, method: str, params: Json) -> None:
        if method == "notifications/subscriptions/acknowledged":
            self._acknowledged.set()
        elif method == "notifications/message" and self._only_modern_callers():
            # They have no session that could be told, and what one of them caused is not another client's business.
            if len(self.errands) == 1:
                next(iter(self.errands)).notification(method, params)
        elif method not in STRAYS:
            self._hearer.heard(self, method, params)

    def _only_modern_callers(self) -> bool:
        return bool(self.errands) and all(errand.call.caller.modern for errand in self.errands)

    def closed(self, reason: str) -> None:
        if self.alive:
            self.alive = False
            self._hearer.lost(self, reason)

    async def close(self) -> None:
        self.alive = False
        await self._tasks.close()
        if self._talk is not None:
            await self._talk.close()


class _ListenErrand:
    """The `subscriptions/listen` request of a link; over HTTP its stream carries what it asked for."""

    def __init__(self, link: Link, acknowledged: asyncio.Event) -> None:
        self._link = link
        self._acknowledged = acknowledged

    def progress(self, params: Json) -> None:
        pass

    def notification(self, method: str, params: Json) -> None:
        if method == "notifications/subscriptions/acknowledged":
            self._acknowledged.set()
        else:
            self._link.notification(method, params)

    async def question(self, method: str, params: Json | None) -> Json:
        raise RpcError(METHOD_NOT_FOUND, f"nobody here can be asked {method}")

    def paused(self, retry_ms: int) -> None:
        pass


def through(client: Mapping[str, Any]) -> Json:
    """`clientInfo` as it goes up: the client's own, marked as coming through us (PRO-3)."""
    from mcpx import __version__

    name = client.get("name")
    if not isinstance(name, str) or not name:
        return {"name": "mcpx-through-proxy", "version": __version__}
    return {**client, "name": f"{name}-through-proxy"}
