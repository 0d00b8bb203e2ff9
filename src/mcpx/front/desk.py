"""What every front does alike: greet a client, make a `Call` of its message, shape the result for its era.

Knows no transport. A front brings the way messages come and go; the desk decides what they mean.
"""

import asyncio
import time
from typing import Any

from mcpx import __version__
from mcpx.core.gateway import Gateway
from mcpx.front.audience import Audience, Ear, Session
from mcpx.model.call import Call, Caller, Json, Voice, as_object
from mcpx.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from mcpx.wire import era, jsonrpc

INSTRUCTIONS_LIMIT = 2048

CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
"""Declared before any server is up (PRO-3); a list nobody fills is empty, not an error."""

SERVER: Json = {"name": "mcpx", "version": __version__}


class Desk:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.audience = Audience()
        gateway.bus.subscribe(self.audience.hear)

    # Greetings -----------------------------------------------------------------------------------------------

    def greet(self, params: Json, session: Session, principal: str, voice: Voice, *, solo: bool) -> Json:
        """Answer `initialize` and make the session's caller."""
        session.caller = Caller(
            principal=principal,
            client=as_object(params.get("clientInfo")),
            version=era.negotiate(params.get("protocolVersion")),
            session=session.id,
            solo=solo,
            capabilities=as_object(params.get("capabilities")),
            voice=voice,
            since=time.monotonic(),
        )
        return {
            "protocolVersion": session.caller.version,
            "capabilities": CAPABILITIES,
            "serverInfo": SERVER,
            "instructions": self._instructions(),
        }

    def discover(self) -> Json:
        return {
            "supportedVersions": list(era.MODERN),
            "capabilities": CAPABILITIES,
            "instructions": self._instructions(),
            "_meta": {era.SERVER_KEY: SERVER},
        }

    def _instructions(self) -> str:
        names = [u.name for u in self.gateway.generation.upstreams.values() if u.server.enabled]
        text = "mcpx is one gateway in front of several MCP servers"
        listed = ", ".join(names)
        if len(text) + len(listed) + 3 > INSTRUCTIONS_LIMIT:
            listed = listed[: INSTRUCTIONS_LIMIT - len(text) - 6].rsplit(", ", 1)[0] + ", …"
        return f"{text}: {listed}." if names else f"{text}."

    def modern_caller(self, message: Json, principal: str, voice: Voice, *, solo: bool) -> Caller:
        """The caller of one modern request, from its own envelope."""
        meta: Json = message["params"]["_meta"]
        level = meta.get(era.LEVEL_KEY)
        return Caller(
            principal=principal,
            client=as_object(meta.get(era.CLIENT_KEY)),
            version=era.LATEST_MODERN,
            modern=True,
            solo=solo,
            capabilities=as_object(meta.get(era.CAPABILITIES_KEY)),
            log_level=level if level in era.LOG_LEVELS else None,
            voice=voice,
            since=time.monotonic(),
        )

    # Requests ------------------------------------------------------------------------------------------------

    async def serve_modern(self, message: Json, caller: Caller) -> Json:
        method = message["method"]
        if method in era.REMOVED:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        if method == "server/discover":
            return era.as_modern(method, self.discover())
        return era.as_modern(method, await self.gateway.handle(Call(method, message["params"], caller)))

    async def serve_older(self, message: Json, session: Session, caller: Caller) -> Json:
        method, params = message["method"], jsonrpc.params_of(message)
        if method == "ping":
            return {}
        if method == "logging/setLevel":
            return await self._set_level(session, params.get("level"))
        result = await self.gateway.handle(Call(method, params, caller))
        if method == "resources/subscribe" or method == "resources/unsubscribe":
            await self._note_subscription(session, method, params["uri"])
        return result

    async def _set_level(self, session: Session, level: Any) -> Json:
        if level not in era.LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, f"level must be one of {', '.join(era.LOG_LEVELS)}")
        session.set_level(level)
        await self.gateway.set_level(session.caller, level)
        return {}

    async def _note_subscription(self, session: Session, method: str, uri: str) -> None:
        target = await self.gateway.locate(uri)
        if target is not None:
            forms = session.subscriptions.setdefault(target, set())
            forms.add(uri) if method == "resources/subscribe" else forms.discard(uri)

    def notification(self, session: Session, method: str, params: Json) -> None:
        """A client's notification; what concerns servers goes to those that are this client's own."""
        if method not in ("notifications/initialized", "notifications/cancelled"):
            self.gateway.notify(session.caller, method, params)

    async def leave(self, session: Session) -> None:
        self.audience.leave(session)
        await self.gateway.end_session(session.id)

    # Listening (modern) ----------------------------------------------------------------------------------------

    async def listen(self, ear: Ear, caller: Caller, until: asyncio.Event) -> Json:
        """Answer one `subscriptions/listen` when the end has come. Servers are subscribed before it is acknowledged."""
        watched: list[tuple[str, str]] = []
        try:
            for uri in ear.wanted_uris():
                target = await self.gateway.locate(uri)
                if target is None:
                    continue
                try:
                    link = await self.gateway.generation.upstreams[target[0]].shared_link()
                    await link.subscribe(target[1], ear.id, {})
                except RpcError:
                    continue  # not honoured, so not acknowledged
                watched.append(target)
                ear.forms.setdefault(target, set()).add(uri)
            ear.acknowledge()
            self.audience.join_ear(ear)
            await until.wait()
            return ear.goodbye()
        finally:
            self.audience.leave_ear(ear)
            for server, uri in watched:
                await self._unwatch(server, uri, ear.id)

    async def _unwatch(self, server: str, uri: str, who: str) -> None:
        try:
            link = await self.gateway.generation.upstreams[server].shared_link()
            await link.unsubscribe(uri, who, {})
        except RpcError:
            pass
