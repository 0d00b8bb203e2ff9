"""The network front: one HTTP server, its routes, and the guard before every one of them.

`/mcp` and a path below it for each mode speak streamable HTTP, `/sse` + `/messages` the transport of 2024-11-05,
`/ws` WebSocket, all of them also below `/p/<profile>`; `/health` and `/ready` are for whoever looks after the process.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, quote, unquote

from mcpx import __version__
from mcpx.front.conversation import ClientConversation
from mcpx.front.dispatch import Dispatcher
from mcpx.front.guard import Guard
from mcpx.front.streamable import Streamable
from mcpx.front.streams import EVENT_STREAM, PING
from mcpx.front.visitor import Visitor
from mcpx.surfaces import SURFACES
from mcpx.wire import codec, descriptors, websocket
from mcpx.wire.http_server import Exchange, HttpServer, Limits
from mcpx.wire.sse import sse_frame
from mcpx.wire.tasks import Tasks

PING_EVERY = 15.0
"""Seconds between signs of life on a silent stream; proxies close what is idle for 30 to 60."""

MOST_CLIENTS = 4096
"""Connections of clients, if half of what may be open at once is as much: the other half is for servers."""

PARTING = 0.5
"""Seconds a WebSocket's client has to say goodbye when we end."""


Page = Callable[[], tuple[bytes, str]]
"""A body and its content type, made when it is asked for."""


class HttpFront:
    def __init__(
        self, dispatcher: Dispatcher, guard: Guard, *, max_request: int, pages: Mapping[str, Page] | None = None
    ) -> None:
        """`pages`: what else is shown, by path, to whoever is let in."""
        self._pages = pages or {}
        self._dispatcher = dispatcher
        self._guard = guard
        self._limit = max_request
        self._tasks = Tasks("front")
        self._streamable = Streamable(dispatcher, self._tasks)
        connections = min(MOST_CLIENTS, descriptors.soft_limit() // 2)
        self._server = HttpServer(self._handle, Limits(body_bytes=max_request, connections=connections))
        self._legacy: dict[str, _LegacyStream] = {}
        self._sockets: dict[ClientConversation, websocket.WebSocket] = {}
        self._parted = asyncio.Event()
        """The last WebSocket is closed."""
        self._ending = False

    async def start(self, host: str, port: int, tls: tuple[str, str] | None = None) -> int:
        context = None
        if tls is not None:
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
        bound = await self._server.start(host, port, ssl=context)
        self._tasks.start(self._tend())
        return bound

    async def _tend(self) -> None:
        """One sweep for all streams and sessions instead of a timer for each."""
        while True:
            await asyncio.sleep(PING_EVERY)
            self._streamable.tend()
            for stream in self._legacy.values():
                stream.exchange.write(PING)

    async def close(self, grace: float) -> None:
        self._ending = True
        connections = [*self._sockets, *(stream.connection for stream in self._legacy.values())]
        await asyncio.gather(self._streamable.close(grace), *(c.finish(grace) for c in connections))
        for stream in list(self._legacy.values()):
            await stream.connection.close()
            stream.exchange.end()
        for connection, socket in list(self._sockets.items()):
            await connection.close()
            socket.close(1001, "the gateway is ending")
        if self._sockets:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PARTING):
                    await self._parted.wait()
        await self._server.close(0.2)
        await self._tasks.close()

    # Routes --------------------------------------------------------------------------------------------------

    def _handle(self, exchange: Exchange) -> None:
        if not self._guard.host_allowed(exchange):
            exchange.reply(421, b"unknown host", "text/plain")
            return
        if not self._guard.origin_allowed(exchange):
            exchange.reply(403, b"origin not allowed: server.allowed_origins has those that are", "text/plain")
            return
        if self._guard.is_ourselves(exchange.headers):
            exchange.reply(508, b"this address is mcpx itself: leave it out of its own configuration", "text/plain")
            return
        principal = self._guard.principal(exchange.headers)
        path, profile = exchange.path, None
        if path.startswith("/p/"):
            name, slash, rest = path[3:].partition("/")
            path, profile = slash + rest, unquote(name)
        if path in ("/health", "/ready") and profile is None:
            self._tell_health(exchange, path, principal)
        elif principal is None:
            exchange.reply(401, b"a bearer token is required", "text/plain", [("www-authenticate", "Bearer")])
        else:
            address = exchange.client[0] if exchange.client else ""
            self._enter(exchange, path, Visitor(principal, profile, address))

    def _enter(self, exchange: Exchange, path: str, visitor: Visitor) -> None:
        """`path`: behind that of the profile."""
        profiles = self._dispatcher.gateway.generation.config.profiles
        profile = next((profile for profile in profiles if profile.name == visitor.profile), None)
        mode = None if profile is None else profile.mode
        if visitor.profile is not None and profile is None:
            exchange.reply(404, b"not found; MCP is at /mcp", "text/plain")
        elif path == "/mcp":
            self._streamable.handle(exchange, visitor, mode)
        elif path.startswith("/mcp/") and path[5:] in SURFACES:
            self._streamable.handle(exchange, visitor, path[5:])
        elif path == "/sse":
            self._open_legacy(exchange, visitor, mode)
        elif path == "/messages":
            self._post_legacy(exchange, visitor)
        elif path == "/ws":
            self._open_socket(exchange, visitor, mode)
        elif visitor.profile is None and (page := self._pages.get(path)) is not None:
            self._show(exchange, *page())
        else:
            exchange.reply(404, b"not found; MCP is at /mcp", "text/plain")

    def _show(self, exchange: Exchange, body: bytes, kind: str) -> None:
        if exchange.method in ("GET", "HEAD"):
            exchange.reply(200, body, kind)
        else:
            exchange.reply(405, b"", None, [("allow", "GET, HEAD")])

    def _tell_health(self, exchange: Exchange, path: str, principal: str | None) -> None:
        if exchange.method not in ("GET", "HEAD"):
            exchange.reply(405, b"", None, [("allow", "GET, HEAD")])
            return
        if path == "/ready":
            exchange.reply(503 if self._ending else 200, b'{"ready":%s}' % (b"false" if self._ending else b"true"))
            return
        health: Mapping[str, object] = self._dispatcher.gateway.health()
        if principal is None:
            health = {"status": health["status"]}
        else:
            health = {"status": health["status"], "version": __version__, "servers": health["servers"]}
        exchange.reply(200, codec.dump(health))

    # HTTP+SSE of 2024-11-05 ------------------------------------------------------------------------------------

    def _open_legacy(self, exchange: Exchange, visitor: Visitor, mode: str | None) -> None:
        if exchange.method != "GET":
            exchange.reply(405, b"", None, [("allow", "GET")])
            return
        stream = _LegacyStream(self._dispatcher, exchange, visitor, mode)
        self._legacy[stream.connection.session.id] = stream
        exchange.on_disconnect = lambda: self._drop_legacy(stream)
        exchange.stream(200, EVENT_STREAM)
        base = "" if visitor.profile is None else f"/p/{quote(visitor.profile, safe='')}"
        endpoint = f"{base}/messages?session={stream.connection.session.id}"
        exchange.write(sse_frame(endpoint.encode(), event="endpoint"))

    def _drop_legacy(self, stream: "_LegacyStream") -> None:
        self._legacy.pop(stream.connection.session.id, None)
        self._tasks.start(stream.connection.close())

    def _post_legacy(self, exchange: Exchange, visitor: Visitor) -> None:
        if exchange.method != "POST":
            exchange.reply(405, b"", None, [("allow", "POST")])
            return
        wanted = parse_qs(exchange.query).get("session", [""])[0]
        stream = self._legacy.get(wanted)
        if stream is None or not visitor.owns(stream.visitor):
            exchange.reply(404, b"unknown session", "text/plain")
            return
        if stream.exchange.congested:  # what it asks for would be put on top of what it has not read
            self._tasks.start(self._when_read(stream, exchange))
        else:
            exchange.reply(202)
            stream.connection.peer.receive(exchange.body)

    async def _when_read(self, stream: "_LegacyStream", exchange: Exchange) -> None:
        await stream.exchange.drain()
        if not exchange.closed and not stream.exchange.closed:
            exchange.reply(202)
            stream.connection.peer.receive(exchange.body)
        else:
            exchange.reply(404, b"unknown session", "text/plain")

    # WebSocket -------------------------------------------------------------------------------------------------

    def _open_socket(self, exchange: Exchange, visitor: Visitor, mode: str | None) -> None:
        pending: list[bytes] = []
        connection: ClientConversation | None = None

        def received(raw: bytes) -> None:
            # A client may have sent its first message together with the handshake.
            pending.append(raw) if connection is None else connection.peer.receive(raw)

        def closed(reason: str) -> None:
            if connection is not None:
                connection.peer.lose(reason or "the client closed the connection")
                self._sockets.pop(connection, None)
                if not self._sockets:
                    self._parted.set()
                self._tasks.start(connection.close())

        socket = websocket.accept(exchange, limit=self._limit, subprotocol="mcp", on_message=received, on_close=closed)
        if socket is None:
            return
        connection = ClientConversation(
            self._dispatcher,
            socket.send,
            visitor=visitor,
            mode=mode,
            carrier="websocket",
            congested=lambda: socket.congested,
            on_shutdown=socket.close,
        )
        self._sockets[connection] = socket
        self._parted.clear()
        for raw in pending:
            connection.peer.receive(raw)


class _LegacyStream:
    """One client of the older HTTP+SSE transport: everything down goes over its GET."""

    def __init__(self, dispatcher: Dispatcher, exchange: Exchange, visitor: Visitor, mode: str | None) -> None:
        self.exchange = exchange
        self.visitor = visitor
        self.connection = ClientConversation(
            dispatcher,
            lambda raw: exchange.write(sse_frame(raw, event="message")),
            visitor=visitor,
            mode=mode,
            carrier="sse",
            congested=lambda: exchange.congested,
            on_shutdown=exchange.end,
        )
