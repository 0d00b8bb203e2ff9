"""HTTP/1.1 for the front: requests as `Exchange`s, handed to one synchronous handler. No task per
request.

Promise: the handler is called with the whole body, in order for each connection, one exchange at a
time; an answer known at once is one write to the socket. Limits on heads, bodies, connections and
every kind of waiting hold for whatever a client sends or does not send, and each has its share of a
turn and no more (`wire.flow`): while a client does not read its answers, none of its requests is
begun. A client that goes away is reported.

No promise: HTTP/2, compression, routing, checks of Host and Origin (the front's), half-open clients
(one that shuts its writing side counts as gone: so a cancelled call looks).
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mcpx.base import WINDOWS
from mcpx.wire.exchange import Exchange, Headers
from mcpx.wire.flow import Budget
from mcpx.wire.http_connection import Connection, Limits, refusal

if TYPE_CHECKING:
    import socket
    import ssl

__all__ = ["Exchange", "Headers", "HttpServer", "Limits"]

LOOKS: Final = 64
"""Connections looked at for one that makes room for a newcomer."""


async def _turns() -> None:
    """asyncio takes up to four turns of the loop from accepting a client to its connection, and to
    its end."""
    for _ in range(4):
        await asyncio.sleep(0)


class HttpServer:
    """Listening sockets, their connections, and one coarse timer for all of them."""

    def __init__(
        self,
        handler: Callable[[Exchange], None],
        limits: Limits = Limits(),  # noqa: B008
        forestall: Callable[[Exchange], int | None] | None = None,
        secure: Callable[[asyncio.Protocol], asyncio.Protocol] | None = None,
        refusal: Callable[[int], bytes] = refusal,
    ) -> None:
        """`forestall` returns the status that refuses a request with a large body before the body
        is read, or None to read it. `secure` adds a handshake and encryption to each connection.
        `refusal` builds the last response of a connection, from its status."""
        self.handler = handler
        self.forestall = forestall
        self.refusal = refusal
        self._secure = secure
        self.limits = limits
        self.now = time.monotonic()
        self.closing = False
        self.bodies = 0
        """Bytes of large bodies, of requests being read or answered."""
        self.budget = Budget(limits.waiting_bytes)
        """What waits to be read by all clients; those of sockets given away too, if their new owner
        counts it."""
        self._tick = min(
            1.0, *(t / 4 for t in (limits.head_timeout, limits.body_timeout, limits.keep_alive))
        )
        self._tick = min(self._tick, limits.write_timeout / 4)
        self._listeners: list[asyncio.Server] = []
        self._connections: dict[Connection, None] = {}
        self._adopted: set[asyncio.Transport] = set()
        """Sockets given away by `upgrade`: they count until they close."""
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()

    async def start(self, host: str, port: int, *, ssl: "ssl.SSLContext | None" = None) -> int:
        """Listen, and return the port. May be called again for another address."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            self._protocol,
            host,
            port,
            ssl=ssl,
            backlog=2048,
            reuse_address=not WINDOWS,  # there it would let others take our port from us
            ssl_handshake_timeout=self.limits.head_timeout if ssl else None,
        )
        return self._listening(listener)

    async def start_on(self, sock: "socket.socket", ssl: "ssl.SSLContext | None" = None) -> int:
        """Accept the connections of a listening socket, and return its port."""
        timeout = self.limits.head_timeout if ssl else None
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            self._protocol, sock=sock, ssl=ssl, ssl_handshake_timeout=timeout
        )
        return self._listening(listener)

    def _listening(self, listener: asyncio.Server) -> int:
        self._listeners.append(listener)
        if self._timer is None:
            self._sweep()
        return listener.sockets[0].getsockname()[1]

    def _protocol(self) -> asyncio.Protocol:
        connection = Connection(self)
        return connection if self._secure is None else self._secure(connection)

    async def close(self, grace: float) -> None:
        """Stop listening, close idle connections, give the others `grace` seconds."""
        self.closing = True
        await self._stop_listening()
        for connection in list(self._connections):
            connection.close_if_idle()
        await self._wait_empty(grace)
        for connection in list(self._connections):
            connection.abort()
        for transport in self._adopted:
            transport.abort()
        await self._wait_empty(1.0)
        await _turns()  # for the sockets of those just refused or aborted to be closed
        if self._timer is not None:
            self._timer.cancel()

    async def _stop_listening(self) -> None:
        # asyncio of Python 3.11 leaks the socket of a client accepted in the turn in which its
        # server closes: accept no more, let those be connected that were accepted, then close.
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            for sock in listener.sockets:
                try:
                    loop.remove_reader(sock.fileno())
                except NotImplementedError:  # on Windows
                    pass
        await _turns()
        for listener in self._listeners:
            listener.close()

    async def _wait_empty(self, seconds: float) -> None:
        if self._connections:
            try:
                async with asyncio.timeout(seconds):
                    await self._empty.wait()
            except TimeoutError:
                pass

    def _sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick, self._sweep)
        self.now = time.monotonic()
        for connection in list(self._connections):
            connection.sweep(self.now)
        self._adopted = {t for t in self._adopted if not t.is_closing()}

    @property
    def connection_count(self) -> int:
        """Those that are open, sockets given away too."""
        return len(self._connections) + len(self._adopted)

    # --- for the connections

    def admit(self, connection: Connection) -> bool:
        if self.closing:
            return False
        if (
            len(self._connections) + len(self._adopted) >= self.limits.connections
            and not self._make_room()
        ):
            return False
        self._connections[connection] = None
        return True

    def _make_room(self) -> bool:
        """Close one that is missed least; those in use are looked at later again."""
        for _ in range(min(LOOKS, len(self._connections))):
            connection = next(iter(self._connections))
            del self._connections[connection]
            if connection.spare:
                # What it has not read would keep its socket open, and nobody looks after it any
                # more.
                connection.abort() if connection.waiting else connection.close()
                return True
            self._connections[connection] = None
        return False

    def adopt(self, transport: asyncio.Transport) -> None:
        self._adopted.add(transport)

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if self.closing and not self._connections:
            self._empty.set()
