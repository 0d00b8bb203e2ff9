"""What every front does alike: greet a client, make a `Call` of its message, shape the result for
its era.

Knows no transport. A front brings the way messages come and go; the dispatcher decides what they
mean.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol

from mcpx import __version__
from mcpx.core.gateway import Gateway
from mcpx.front.admission import Admission
from mcpx.front.audience import Audience, ListenStream, Session
from mcpx.front.instructions import instructions
from mcpx.front.notices import encoded
from mcpx.front.visitor import Visitor
from mcpx.model.call import Call, Caller, Json, Voice, as_object
from mcpx.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, OVERLOADED, RpcError
from mcpx.model.requests import REQUEST, Request
from mcpx.wire import era, jsonrpc
from mcpx.wire.exchange import Headers

log = logging.getLogger(__name__)

REMEMBERED = 1024
"""Modern clients of which is known when they first came."""
NAME_LENGTH = 200
"""Characters of a client's name by which it is known."""
SAID_OF_ITSELF = 64 << 10
"""Bytes a client may say of itself: its name, what it can do. They are kept as long as its
session."""
SUBSCRIPTIONS = 1_000
SUBSCRIBED_BYTES = 256 << 10
"""Resources one client may be subscribed to at a time, and what their URIs may take."""

CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
"""Declared before any server is up (PRO-3); a list nobody fills is empty, not an error."""

SERVER: Json = {"name": "mcpx", "version": __version__}


class Tracker(Protocol):
    """Whoever follows requests: gives them their ids, and their place in a trace."""

    @property
    def attends(self) -> bool:
        """Whether it wants to know how requests end, too."""
        ...

    def begin(self, message: Json, headers: Headers | None, carrier: str) -> Request:
        """In the task that answers the request."""
        ...

    def attend(
        self, request: Request, message: Json, work: Coroutine[Any, Any, Json]
    ) -> Coroutine[Any, Any, Json]:
        """`work` is what answers it."""
        ...

    def follow(
        self, message: Json, headers: Headers | None, carrier: str, work: Coroutine[Any, Any, Json]
    ) -> Coroutine[Any, Any, Json]:
        """Both."""
        ...

    def note(
        self, message: Json, headers: Headers | None, carrier: str, work: Callable[[], Json]
    ) -> tuple[Json, Request]:
        """The same of what is answered at once."""
        ...


class Dispatcher:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.tracker: Tracker | None = None
        """None: nobody wants to know of requests that go well."""
        self.audience = Audience(gateway.access)
        self.admission = Admission(gateway.refused)
        self._seen: dict[tuple[str, str], float] = {}
        self.audience.listen_to(gateway.bus)

    # Greetings
    # ----------------------------------------------------------------------------------------------

    def greet(
        self,
        params: Json,
        session: Session,
        visitor: Visitor,
        voice: Voice,
        *,
        solo: bool,
        mode: str | None = None,
    ) -> Json:
        """Answer `initialize` and make the session's caller."""
        weight_of(params)
        session.caller = Caller(
            principal=visitor.principal,
            profile=visitor.profile,
            address=visitor.address,
            client=as_object(params.get("clientInfo")),
            version=era.negotiate(params.get("protocolVersion")),
            mode=mode,
            session=session.id,
            solo=solo,
            capabilities=as_object(params.get("capabilities")),
            voice=voice,
            since=time.monotonic(),
        )
        _followed(session.caller)
        return {
            "protocolVersion": session.caller.version,
            "capabilities": CAPABILITIES,
            "serverInfo": SERVER,
            "instructions": self._instructions(session.caller),
        }

    def discover(self, caller: Caller) -> Json:
        return {
            "supportedVersions": list(era.MODERN),
            "capabilities": CAPABILITIES,
            "instructions": self._instructions(caller),
            "_meta": {era.SERVER_KEY: SERVER},
        }

    def _instructions(self, caller: Caller) -> str:
        generation = self.gateway.generation
        surface = generation.surfaces.of(self.gateway.access.mode(caller))
        catalog = self.gateway.catalogs.of(caller)
        direct = surface.shows_all(caller, catalog)  # compact menus tell of servers themselves
        sources = [
            (s.name, s.instructions)
            for s in generation.sources
            if s.enabled and catalog.knows(s.name)
        ]
        return instructions(sources, direct=direct)

    def modern_caller(
        self, message: Json, visitor: Visitor, voice: Voice, *, solo: bool, mode: str | None = None
    ) -> Caller:
        """The caller of one modern request, from its own envelope."""
        meta: Json = message["params"]["_meta"]
        level = meta.get(era.LEVEL_KEY)
        return Caller(
            principal=visitor.principal,
            profile=visitor.profile,
            address=visitor.address,
            client=as_object(meta.get(era.CLIENT_KEY)),
            version=era.LATEST_MODERN,
            modern=True,
            mode=mode,
            solo=solo,
            capabilities=as_object(meta.get(era.CAPABILITIES_KEY)),
            log_level=level if level in era.LOG_LEVELS else None,
            voice=voice,
            since=self._first_seen(visitor.principal, meta),
        )

    def _first_seen(self, principal: str, meta: Json) -> float:
        """When this client's first message came. It has no session; who it says it is is all that
        tells."""
        name = as_object(meta.get(era.CLIENT_KEY)).get("name")
        client = (principal, name[:NAME_LENGTH] if isinstance(name, str) else "")
        seen = self._seen.get(client)
        if seen is None:
            seen = self._seen[client] = time.monotonic()
            if len(self._seen) > REMEMBERED:
                del self._seen[next(iter(self._seen))]
        return seen

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def serve_modern(self, message: Json, caller: Caller) -> Json:
        method = message["method"]
        if self.tracker is None:
            request = None
        else:
            request = _followed(caller)
        if method in era.REMOVED:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        if method == "server/discover":
            return era.as_modern(method, self.discover(caller))
        call = Call(method, message["params"], caller, None, request)
        return era.as_modern(method, await self.gateway.handle(call))

    async def serve_older(
        self, message: Json, session: Session, voice: Voice | None = None
    ) -> Json:
        """`voice`: the way back on the stream of this very request, where requests have one."""
        method, params = message["method"], jsonrpc.params_of(message)
        if self.tracker is None:
            request = None
        else:
            request = _followed(session.caller)
        if method == "ping":
            return {}
        if method == "logging/setLevel":
            return await self._set_level(session, params.get("level"))
        call = Call(method, params, session.caller, voice, request)
        if method == "resources/subscribe":
            return await self._subscribe(call, session)
        if method == "resources/unsubscribe":
            return await self._unsubscribe(call, session)
        if method == "tools/list" and session.changed is not None:
            return await self._list(call, session)
        return await self.gateway.handle(call)

    async def _list(self, call: Call, session: Session) -> Json:
        """Of a session that may go on elsewhere: what it is shown goes along."""
        before = self.gateway.sessions.choice_of(session.id)
        result = await self.gateway.handle(call)
        if self.gateway.sessions.choice_of(session.id) != before:
            session.note()
        return result

    async def _set_level(self, session: Session, level: Any) -> Json:
        if level not in era.LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, f"level must be one of {', '.join(era.LOG_LEVELS)}")
        session.set_level(level)
        await self.gateway.sessions.set_level(session.caller, level)
        return {}

    async def _subscribe(self, call: Call, session: Session) -> Json:
        uri: Any = call.params.get("uri")
        if isinstance(uri, str):
            target = await self.gateway.view(call.caller).locate(uri)
        else:
            target = None
        known = target is not None and uri in session.subscriptions.get(target, ())
        if (
            target is not None and not known
        ):  # noted first: a server may tell of a change together with its answer
            _admit([*session.forms(), uri])
            session.subscriptions.setdefault(target, set()).add(uri)
        try:
            result = await self.gateway.handle(call)
        except (RpcError, asyncio.CancelledError):
            if target is not None and not known:
                session.drop(target, uri)
            raise
        session.note()
        return result

    async def _unsubscribe(self, call: Call, session: Session) -> Json:
        uri: Any = call.params.get("uri")
        if isinstance(uri, str):
            target = await self.gateway.view(call.caller).locate(uri)
        else:
            target = None
        if target is not None:
            left = session.drop(target, uri)
            session.note()
            if left:
                return {}  # the same resource is still subscribed under another form of its URI
        return await self.gateway.handle(call)

    async def go_on(self, session: Session) -> None:
        """A conversation that another gateway began: servers are told what its client had asked of
        them."""
        caller = session.caller
        self.audience.join(session)
        if caller.log_level is not None:
            await self.gateway.sessions.set_level(caller, caller.log_level)
        for forms in list(session.subscriptions.values()):
            uri = next(iter(forms), None)
            if uri is None:  # the client has taken it back meanwhile
                continue
            call = Call("resources/subscribe", {"uri": uri}, caller)
            try:
                await self.gateway.handle(call)
            except RpcError as error:
                log.info("a subscription could not be made anew: %s", error)

    def notification(self, session: Session, method: str, params: Json) -> None:
        """A client's notification; what concerns servers goes to those that are this client's
        own."""
        if method not in ("notifications/initialized", "notifications/cancelled"):
            self.gateway.sessions.notify(session.caller, method, params)

    async def leave(self, session: Session, *, moved: bool = False) -> None:
        """`moved`: it goes on at another replica."""
        self.audience.leave(session)
        await self.gateway.sessions.end_session(session.id, moved=moved)

    # Listening (modern)
    # ----------------------------------------------------------------------------------------

    async def listen(self, stream: ListenStream, caller: Caller, until: asyncio.Event) -> Json:
        """Answer one `subscriptions/listen` when the end has come. Servers are subscribed before it
        is acknowledged."""
        _followed(caller)
        _admit(stream.wanted_uris())
        if self.gateway.access.limited(caller) is not None:
            await self.gateway.access.watched_by(caller)
        try:
            for uri in stream.wanted_uris():
                target = await self.gateway.view(caller).locate(uri)
                if target is None:
                    continue
                # Noted first: a server may tell of a change together with its answer.
                stream.forms.setdefault(target, set()).add(uri)
                try:
                    await self.gateway.sessions.listen_for(caller, *target, stream.id)
                except RpcError:
                    stream.forms.pop(target)  # not honoured, so not acknowledged
            stream.acknowledge()
            self.audience.join_stream(stream)
            await until.wait()
            return stream.goodbye()
        finally:
            self.audience.leave_stream(stream)
            await self.gateway.sessions.stop_listening(stream.id)


def _followed(caller: Caller) -> Request | None:
    """The request that is being answered, if somebody follows it; they learn who asks."""
    if (request := REQUEST.get()) is not None:
        request.caller = caller
    return request


def weight_of(params: Json) -> int:
    """About what remembering a client takes, in bytes, by what it says of itself in
    `initialize`."""
    raw = encoded({key: params.get(key) for key in ("clientInfo", "capabilities")})
    if len(raw) > SAID_OF_ITSELF:
        text = (
            f"clientInfo and capabilities take {len(raw):,} bytes; at most {SAID_OF_ITSELF:,} "
            "are taken"
        )
        raise RpcError(INVALID_PARAMS, text)
    # In memory every object, text and number has a head of its own.
    return (
        len(raw)
        + 64 * (raw.count(b"{") + raw.count(b"["))
        + 28 * raw.count(b'"')
        + 32 * raw.count(b",")
    )


def _admit(uris: Collection[str]) -> None:
    """Whether so many subscriptions are in bounds."""
    if len(uris) > SUBSCRIPTIONS or sum(map(len, uris)) > SUBSCRIBED_BYTES:
        text = (
            f"no more than {SUBSCRIPTIONS:,} resources can be subscribed to, by URIs of "
            f"{SUBSCRIBED_BYTES:,} bytes"
        )
        raise RpcError(OVERLOADED, f"{text} in all; unsubscribe from some first")
