"""The network front: one HTTP server, its routes (`front.routes`), and the reception before every
one of them.

`/mcp` and a path below it for each mode speak streamable HTTP, `/sse` + `/messages` the transport
of 2024-11-05, `/ws` WebSocket, all of them also below `/p/<profile>`; `/health` and `/ready` are
for whoever looks after the process.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qs, quote

from mcpx import __version__
from mcpx.base.aio import Tasks
from mcpx.config import Config
from mcpx.front.conversation import ClientConversation
from mcpx.front.dispatch import Dispatcher
from mcpx.front.identity.badge import NEVER, WRONG_TOKEN, Badge, Identity, Refusal
from mcpx.front.proxies import Arrival, address_of
from mcpx.front.reception import LOOK, Reception
from mcpx.front.refusing import refuse, tell_metadata
from mcpx.front.routes import WELL_KNOWN, Route, place_of
from mcpx.front.sessions import Client, client_key
from mcpx.front.streamable import CLOSED, Streamable
from mcpx.front.streams import EVENT_STREAM, PING
from mcpx.front.visitor import Visitor
from mcpx.model.call import ANONYMOUS, Caller
from mcpx.model.events import ClientCounts, DoorRefused
from mcpx.wire import codec, descriptors, websocket
from mcpx.wire.http_server import Exchange, HttpServer, Limits
from mcpx.wire.sse import sse_frame

if TYPE_CHECKING:
    from mcpx.front.neighbours.neighbours import Neighbours

log = logging.getLogger(__name__)

SPOKEN: Final = ("/mcp", "/sse", "/messages", "/ws")
"""What paths begin with that speak MCP."""
PING_EVERY = 15.0
"""Seconds between signs of life on a silent stream; proxies close what is idle for 30 to 60."""

MOST_CLIENTS = 4096
"""Connections of clients, if half of what may be open at once is as much: the other half is for
servers."""

PARTING = 0.5
"""Seconds a WebSocket's client has to say goodbye when we end."""


Page = Callable[[Visitor], tuple[bytes, str] | None]
"""A body and its content type, made when this visitor asks for it; None: there is no such page
now."""


class HttpFront:
    def __init__(
        self,
        dispatcher: Dispatcher,
        reception: Reception,
        *,
        max_request: int,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        """`pages`: what else is shown, by path, to whoever is let in; the path is one of
        `ROUTES`."""
        self._pages = pages or {}
        self._dispatcher = dispatcher
        self._reception = reception
        self._limit = max_request
        self._tasks = Tasks("front")
        self._streamable = Streamable(dispatcher, self._tasks, self._count_conversations)
        # Half of the descriptors. Replicas accept connections on two ports.
        if dispatcher.gateway.replicas is None:
            share = 2
        else:
            share = 4
        limits = Limits(
            body_bytes=max_request, connections=min(MOST_CLIENTS, descriptors.soft_limit() // share)
        )
        self._server = HttpServer(self._handle, limits, self._forestall)
        self._legacy: dict[str, _LegacyStream] = {}
        self._sockets: dict[ClientConversation, websocket.WebSocket] = {}
        self._parted = asyncio.Event()
        """The last WebSocket is closed."""
        self._ending = False
        self._neighbours = self._streamable.neighbours = self._meet_neighbours(limits)
        if self._neighbours is None:
            self._waits = ""
        else:
            self._waits = "this replica has not joined the others yet"
        """Why nobody is let in yet; empty: they are."""
        self._watching: asyncio.Task[None] | None = None

    def _meet_neighbours(self, limits: Limits) -> "Neighbours | None":
        replicas = self._dispatcher.gateway.replicas
        if replicas is None:
            return None
        from mcpx.front.neighbours.neighbours import Neighbours
        from mcpx.front.neighbours.rooms import Rooms

        rooms = Rooms(
            self._streamable.sessions, self._dispatcher, self._tasks, self._streamable.handle
        )
        return Neighbours(replicas, rooms, self._enter_passed, limits)

    async def start(self, host: str, port: int, tls: tuple[str, str] | None = None) -> int:
        context = None
        if tls is not None:
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
        bound = await self._server.start(host, port, ssl=context)
        self._tasks.start(self._tend())
        self._watch()
        if self._neighbours is not None:
            self._tasks.start(self._join(self._neighbours))
        return bound

    async def _join(self, neighbours: "Neighbours") -> None:
        """Clients are let in when the store was reached, and all that is shared is known here."""
        gateway = self._dispatcher.gateway
        assert gateway.replicas is not None
        await gateway.replicas.joined.wait()
        while True:
            try:
                await neighbours.open(gateway.generation.config.server.replica)
                break
            except OSError as error:
                log.error(
                    "other replicas cannot reach this one: %s (server.replica); it is tried again",
                    error,
                )
                await asyncio.sleep(1.0)
        for prepare in gateway.replicas.preparations:
            await prepare()
        while True:
            self._waits = ""
            await gateway.replicas.parted.wait()
            self._waits = "the other replicas have another MCPX_KEY than this one"
            await gateway.replicas.joined.wait()

    # Who leaves
    # ----------------------------------------------------------------------------------------------

    def take_up(self, config: Config) -> None:
        """Another configuration counts from now on; whom it does not let in any more has to
        leave."""
        self._reception.take_up(config)
        self._see_off()
        self._watch()

    def narrow(self, config: Config) -> None:
        """Another configuration will soon count; whom it does not name any more has to leave
        now."""
        self._reception.narrow(config)
        self._see_off()

    def _watch(self) -> None:
        if self._reception.identity is not None and (
            self._watching is None or self._watching.done()
        ):
            self._watching = self._tasks.start(self._keep_watch())

    async def _keep_watch(self) -> None:
        """Notice tokens that were revoked or have ended, while any must be shown."""
        while (identity := self._reception.identity) is not None:
            try:
                if identity.look():
                    self._see_off()
            except Exception:
                log.exception("looking after tokens failed")
            await asyncio.sleep(LOOK)

    def _see_off(self) -> None:
        """End everything of everybody who would not be let in again: sessions, streams, sockets,
        calls in flight."""
        ends = NEVER

        def leaves(visitor: Visitor) -> bool:
            nonlocal ends
            until = self._reception.stays_until(visitor)
            if until is not None:
                ends = min(ends, until)
            return until is None

        self._streamable.see_off(leaves)
        for stream in [stream for stream in self._legacy.values() if leaves(stream.visitor)]:
            stream.exchange.on_disconnect = None
            self._drop_legacy(stream)
            stream.exchange.end()
        for connection, socket in [(c, s) for c, s in self._sockets.items() if leaves(c.visitor)]:
            socket.close(1008, CLOSED)
            self._tasks.start(connection.close())
        self._dispatcher.gateway.sessions.see_off(self._reception.knows)
        if self._reception.identity is not None:
            self._reception.identity.looked(ends)

    async def _tend(self) -> None:
        """One sweep for all streams and sessions instead of a timer for each."""
        while True:
            await asyncio.sleep(PING_EVERY)
            self._streamable.tend()
            if (replicas := self._dispatcher.gateway.replicas) is not None:
                replicas.members.count(len(self._streamable.sessions))
            for stream in self._legacy.values():
                stream.exchange.write(PING)

    async def drain(self, seconds: float, grace: float) -> None:
        """The end is near: load balancers are told, and given so long to notice; then other
        replicas go on with the sessions."""
        self._ending = True
        if (replicas := self._dispatcher.gateway.replicas) is not None:
            replicas.members.update(state="leaving")
        if seconds:
            log.info("draining for %g s: /ready says so", seconds)
            await asyncio.sleep(seconds)
        if self._neighbours is not None and not self._waits:
            await self._streamable.give_away(grace)
            await self._neighbours.say_goodbye()

    async def close(self, grace: float) -> None:
        self._ending = True
        connections = [*self._sockets, *(stream.connection for stream in self._legacy.values())]
        if self._neighbours is None:
            passed = ()
        else:
            passed = (self._neighbours.finish(grace),)
        await asyncio.gather(
            self._streamable.close(grace), *passed, *(c.finish(grace) for c in connections)
        )
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
        if self._neighbours is not None:
            await self._neighbours.close(0.2)
        await self._tasks.close()
        await self._reception.close()

    # Routes
    # ----------------------------------------------------------------------------------------------

    def _handle(self, exchange: Exchange) -> None:
        guard = self._reception.guard
        if guard.proxied:
            arrival = guard.arrival(exchange)
        else:
            arrival = None
        if not guard.host_allowed(exchange, arrival):
            if (
                (route := place_of(exchange.path)[0]) is not None
                and route.open
                and guard.names_nobody(exchange)
            ):
                self._tell_health(exchange, route.path, None)  # what strangers learn
                return
            self._tell_refused("host", exchange, arrival)
            exchange.reply(
                421, b"unknown host: server.allowed_hosts has those that are known", "text/plain"
            )
            return
        if not guard.origin_allowed(exchange, arrival):
            self._tell_refused("origin", exchange, arrival)
            exchange.reply(
                403, b"origin not allowed: server.allowed_origins has those that are", "text/plain"
            )
            return
        if guard.is_ourselves(exchange.headers):
            self._tell_refused("loop", exchange, arrival)
            exchange.reply(
                508,
                b"this address is mcpx itself: leave it out of its own configuration",
                "text/plain",
            )
            return
        route, path, asked = place_of(exchange.path)
        if route is None and WELL_KNOWN in exchange.path:
            tell_metadata(exchange, self._reception, arrival)
            return
        identity = self._reception.identity
        if identity is None:
            found = None
        else:
            found = identity.admit(exchange)
        if found is None or isinstance(found, Badge):
            self._admit(exchange, route, path, asked, arrival, found)
        elif isinstance(found, Refusal):
            self._turn_away(exchange, route, arrival, found)
        else:
            self._tasks.start(self._later(exchange, route, path, asked, arrival, identity, found))

    def _forestall(self, exchange: Exchange) -> int | None:
        """A stranger's large body is not read; what is to be said to them in full needs a smaller
        one."""
        status, guard = self._reception.forestall(exchange), self._reception.guard
        if status is not None:
            self._tell_refused(
                "token", exchange, guard.arrival(exchange) if guard.proxied else None
            )
        return status

    async def _later(
        self,
        exchange: Exchange,
        route: Route | None,
        path: str,
        asked: str | None,
        arrival: Arrival | None,
        identity: Identity | None,
        finding: Coroutine[Any, Any, Badge | Refusal],
    ) -> None:
        """Who it is was not known at once."""
        try:
            found = await finding
            if exchange.closed:
                return
            if self._reception.identity is not identity:
                self._handle(exchange)
            elif isinstance(found, Badge):
                self._admit(exchange, route, path, asked, arrival, found)
            else:
                self._turn_away(exchange, route, arrival, found)
        except Exception:
            log.exception("answering %s failed", path)
            exchange.failed()

    def _admit(
        self,
        exchange: Exchange,
        route: Route | None,
        path: str,
        asked: str | None,
        arrival: Arrival | None,
        badge: Badge | None,
    ) -> None:
        if badge is None and asked is None:
            profile = None
        else:
            profile = self._reception.doors.enter(badge, asked)
        if badge is None:
            principal = ANONYMOUS
        else:
            principal = badge.principal
        visitor = Visitor(principal, profile, address_of(exchange, arrival), badge)
        if route is not None and route.open:
            self._tell_health(exchange, path, visitor)
        else:
            self._enter(exchange, path if route is not None else "", visitor)

    def _turn_away(
        self, exchange: Exchange, route: Route | None, arrival: Arrival | None, refusal: Refusal
    ) -> None:
        if route is not None and route.open:
            self._tell_health(exchange, route.path, None)
            return
        self._tell_refused("token", exchange, arrival)
        refuse(exchange, refusal, self._reception, arrival)

    def _tell_refused(
        self,
        reason: Literal["host", "origin", "loop", "token"],
        exchange: Exchange,
        arrival: Arrival | None,
    ) -> None:
        self._dispatcher.gateway.bus.publish(DoorRefused(reason, address_of(exchange, arrival)))

    def _enter(self, exchange: Exchange, path: str, visitor: Visitor) -> None:
        """`path`: behind that of the profile; one that `ROUTES` does not have is empty. The
        profile's mode counts where the path asks for none."""
        warden = self._dispatcher.gateway.generation.warden
        if visitor.profile is not None and not (
            warden is not None and warden.knows(visitor.profile)
        ):
            exchange.reply(404, b"not found; MCP is at /mcp", "text/plain")
        elif self._waits and path.startswith(SPOKEN):
            exchange.reply(503, self._waits.encode(), "text/plain", [("retry-after", "1")])
        elif path == "/mcp":
            self._streamable.handle(exchange, visitor)
        elif path.startswith("/mcp/"):
            self._streamable.handle(exchange, visitor, path[5:])
        elif path == "/sse":
            self._open_legacy(exchange, visitor)
        elif path == "/messages":
            self._post_legacy(exchange, visitor)
        elif path == "/ws":
            self._open_socket(exchange, visitor)
        elif (
            visitor.profile is None
            and path in self._pages
            and (page := self._pages[path](visitor)) is not None
        ):
            self._show(exchange, *page)
        else:
            exchange.reply(404, b"not found; MCP is at /mcp", "text/plain")

    def _enter_passed(self, exchange: Exchange, visitor: Visitor) -> None:
        """From another replica, which has let them in."""
        _, path, _ = place_of(exchange.path)
        if not self._reception.follows(visitor):
            wrong = [("www-authenticate", f'Bearer error="{WRONG_TOKEN.error}"')]
            exchange.reply(WRONG_TOKEN.status, WRONG_TOKEN.text.encode(), "text/plain", wrong)
        elif path == "/messages":
            self._post_legacy(exchange, visitor, passed=True)
        elif path == "/mcp" or path.startswith("/mcp/"):
            self._streamable.handle(exchange, visitor, path[5:] or None, passed=True)
        else:
            exchange.reply(404, b"not found", "text/plain")

    def _show(self, exchange: Exchange, body: bytes, kind: str) -> None:
        if exchange.method in ("GET", "HEAD"):
            exchange.reply(200, body, kind)
        else:
            exchange.reply(405, b"", None, [("allow", "GET, HEAD")])

    def _tell_health(self, exchange: Exchange, path: str, visitor: Visitor | None) -> None:
        if exchange.method not in ("GET", "HEAD"):
            exchange.reply(405, b"", None, [("allow", "GET, HEAD")])
            return
        if path == "/ready":
            status = self._readiness()
            exchange.reply(status, b'{"ready":%s}' % (b"true" if status == 200 else b"false"))
            return
        if visitor is None:
            seen_by = Caller()
        else:
            seen_by = Caller(visitor.principal, visitor.profile, visitor.address)
        health: Mapping[str, object] = self._dispatcher.gateway.health(
            None if visitor is None else seen_by
        )
        if visitor is None:
            health = {"status": health["status"]}
        else:
            if self._neighbours is None or seen_by.profile is not None:
                whole = {}
            else:
                whole = self._neighbours.describe()
            health = {
                "status": health["status"],
                "version": __version__,
                "servers": health["servers"],
                **whole,
            }
        exchange.reply(200, codec.dump(health))

    def _readiness(self) -> int:
        """The HTTP status of `/ready`."""
        # 404 and not 503 while draining: with `http-check disable-on-404`, HAProxy then lets open
        # requests finish.
        if self._ending:
            return 404
        if self._waits:
            return 503
        return 200

    def counts(self) -> ClientCounts:
        sessions = self._streamable.sessions
        by_transport = {
            "http": len(sessions),
            "sse": len(self._legacy),
            "websocket": len(self._sockets),
        }
        return ClientCounts(
            by_transport, self._server.connection_count, sessions.room, sessions.evicted
        )

    def _count_conversations(self, client: Client | None) -> int:
        """Over WebSocket and HTTP+SSE, of a client or of all."""
        if client is None:
            return len(self._legacy) + len(self._sockets)
        visitors = [each.visitor for each in (*self._legacy.values(), *self._sockets)]
        return sum(client_key(visitor) == client.key for visitor in visitors)

    # HTTP+SSE of 2024-11-05
    # ------------------------------------------------------------------------------------

    def _open_legacy(self, exchange: Exchange, visitor: Visitor) -> None:
        if exchange.method != "GET":
            exchange.reply(405, b"", None, [("allow", "GET")])
            return
        if not self._streamable.admits(exchange, visitor):
            return
        if self._neighbours is None:
            id = None
        else:
            id = self._neighbours.mint()
        stream = _LegacyStream(self._dispatcher, exchange, visitor, id)
        self._legacy[stream.connection.session.id] = stream
        exchange.on_disconnect = lambda: self._drop_legacy(stream)
        exchange.stream(200, EVENT_STREAM)
        if visitor.profile is None:
            base = ""
        else:
            base = f"/p/{quote(visitor.profile, safe='')}"
        endpoint = f"{base}/messages?session={stream.connection.session.id}"
        exchange.write(sse_frame(endpoint.encode(), event="endpoint"))

    def _drop_legacy(self, stream: "_LegacyStream") -> None:
        self._legacy.pop(stream.connection.session.id, None)
        self._tasks.start(stream.connection.close())

    def _post_legacy(self, exchange: Exchange, visitor: Visitor, *, passed: bool = False) -> None:
        if exchange.method != "POST":
            exchange.reply(405, b"", None, [("allow", "POST")])
            return
        wanted = parse_qs(exchange.query).get("session", [""])[0]
        stream = self._legacy.get(wanted)
        if stream is None and not passed:
            neighbours = self._neighbours
        else:
            neighbours = None
        if neighbours is not None and neighbours.hand_to_stream(exchange, visitor, wanted):
            return
        if stream is None or not visitor.owns(stream.visitor):
            exchange.reply(404, b"unknown session", "text/plain")
            return
        stream.visitor = visitor  # who may have another token by now: the stream is as good as that
        if (
            stream.exchange.congested
        ):  # what it asks for would be put on top of what it has not read
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

    # WebSocket
    # ----------------------------------------------------------------------------------------------

    def _open_socket(self, exchange: Exchange, visitor: Visitor) -> None:
        if not self._streamable.admits(exchange, visitor):
            return
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

        socket = websocket.accept(
            exchange, limit=self._limit, subprotocol="mcp", on_message=received, on_close=closed
        )
        if socket is None:
            return
        connection = ClientConversation(
            self._dispatcher,
            socket.send,
            visitor=visitor,
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

    def __init__(
        self, dispatcher: Dispatcher, exchange: Exchange, visitor: Visitor, id: str | None
    ) -> None:
        self.exchange = exchange
        self.visitor = visitor
        self.connection = ClientConversation(
            dispatcher,
            lambda raw: exchange.write(sse_frame(raw, event="message")),
            visitor=visitor,
            carrier="sse",
            congested=lambda: exchange.congested,
            id=id,
            on_shutdown=exchange.end,
        )
