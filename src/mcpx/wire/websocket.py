"""WebSockets, both sides, on the sans-I/O protocols of `websockets` (imported when the first one is
opened).

Promise: text and binary messages alike reach `on_message`, whole and within the limit (beyond it
the peer gets 1009); pings are answered, a peer that does not answer ours is dropped, as is one that
sends frames without end that are no messages; `on_close` is called exactly once for every socket
that was open, with a reason fit for a log. If `on_message` raises, the peer gets 1011. Each peer
has its share of time and memory (`wire.flow`); from a client that does not read its answers nothing
more is taken.

No promise: compression (never negotiated), that a message is UTF-8 or JSON, proxies. `on_message`
may be called before `connect` returns, if the server speaks at once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from mcpx.wire.address import BadAddress, parse
from mcpx.wire.exchange import Exchange, Headers, encode_headers
from mcpx.wire.flow import Budget, Intake, Outflow
from mcpx.wire.http_dial import default_context

if TYPE_CHECKING:
    from websockets.protocol import Protocol as SansIO

__all__ = ["Refused", "WebSocket", "accept", "connect"]

log = logging.getLogger(__name__)
quiet = logging.getLogger(f"{__name__}.protocol")
"""For the library: it tells of every connection at INFO, and of headers, with their secrets, at
DEBUG."""
quiet.setLevel(logging.WARNING)

PING_EVERY: Final = 20.0
"""Seconds. Below the minute after which proxies and NATs forget a silent connection."""
CLOSE_TIMEOUT: Final = 5.0
"""Seconds a peer has for its part of the closing handshake."""
PIECE: Final = 4096
"""Bytes that are parsed at once: up to two thousand frames."""
IDLE_FRAMES: Final = 10_000
"""Frames in `PING_EVERY` seconds that carry nothing: pings, pongs, empty fragments."""
DRAIN_TIMEOUT: Final = 30.0
"""Seconds in which a peer must take something of what waits for it."""


class Refused(ConnectionError):
    """The server answered the handshake with something else than a WebSocket."""

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        super().__init__(f"the server answered with HTTP {status}")
        self.status = status
        self.headers = headers
        self.body = body


class WebSocket(asyncio.Protocol):
    """One open socket."""

    def __init__(
        self,
        protocol: "SansIO",
        on_message: Callable[[bytes], None],
        on_close: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """`budget`: the peer is a client of ours, and what waits for it is counted there."""
        self._protocol = protocol
        self._on_message = on_message
        self._on_close = on_close
        self._budget = budget
        self._intake = Intake(self._feed, largest=PIECE)
        self._out: Outflow | None = None
        self.data_received = self._intake.take
        self._transport: asyncio.Transport | None = None
        self._open = False
        self.begun = False
        self._why = ""  # of our own doing
        self._fragments: bytearray | None = None
        self._heard = True
        self._ping: asyncio.TimerHandle | None = None
        self._end: asyncio.TimerHandle | None = None
        self._idle_frames = 0
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def closed(self) -> bool:
        """Nothing more can be sent."""
        return not self._open

    @property
    def congested(self) -> bool:
        """The peer does not read as fast as it is written to."""
        return self._out is not None and self._out.congested

    def send(self, text: bytes) -> None:
        """One text frame; nothing once closed."""
        if self._open:
            self._protocol.send_text(text)
            self.flush()

    async def drain(self) -> None:
        """Wait until the socket's buffer is below its mark, or the connection is gone."""
        if self._out is not None:
            await self._out.drain()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Begin the closing handshake. `on_close` follows when the connection is gone."""
        if self._open:
            self._open = False
            self._why = self._why or f"closed by us with {code} {reason}".rstrip()
            # A close frame holds 123 bytes of reason, and no half characters.
            self._protocol.send_close(code, reason.encode()[:123].decode("utf-8", "ignore"))
            self.flush()

    # --- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._intake.read_from(self._transport)
        self._out = Outflow(self._transport, self._budget)

    def begin(self) -> None:
        """The handshake is done."""
        self.begun = True
        self._open = (
            self._end is None
        )  # the first frames may have come with the handshake, and have been wrong
        self._ping = asyncio.get_running_loop().call_later(PING_EVERY, self._keep_alive)
        if not self.opened.done():
            self.opened.set_result(None)

    def _feed(self, data: bytes) -> None:
        self._heard = True
        self._protocol.receive_data(data)
        self.flush()
        self._work_off()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self.flush()
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open = False
        self._transport = None
        self._intake.clear()
        self._protocol.receive_eof()
        for timer in (self._ping, self._end):
            if timer is not None:
                timer.cancel()
        self.resume_writing()
        if not self.opened.done():
            self.opened.set_exception(self._problem(exc))
        if self.begun:
            try:
                self._on_close(self._reason(exc))
            except Exception:
                log.exception("on_close failed")

    def pause_writing(self) -> None:
        if self._out is not None:
            self._out.pause()
        if self._budget is not None:
            self._intake.hold(True)

    def resume_writing(self) -> None:
        if self._out is not None:
            self._out.resume()
        self._intake.hold(False)

    # --- inside

    def _work_off(self) -> None:
        from websockets.frames import Frame, Opcode
        from websockets.http11 import Response

        for event in self._protocol.events_received():
            if isinstance(event, Response) and self._protocol.handshake_exc is None:
                self.begin()
            elif isinstance(event, Frame):
                if event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                    if len(event.data) < 2:  # no message is so short
                        self._idle_frames += 1
                    self._fragment(bytes(event.data), event.fin)
                else:
                    self._idle_frames += 1
        if self._idle_frames > IDLE_FRAMES:
            self._why = "it sends frames without end that are no messages"
            self.abort()
        if self._protocol.handshake_exc is not None and not self.opened.done():
            self.opened.set_exception(self._problem(None))

    def _fragment(self, data: bytes, fin: bool) -> None:
        if self._fragments is not None:
            self._fragments += data
            if not fin:
                return
            data, self._fragments = bytes(self._fragments), None
        elif not fin:
            self._fragments = bytearray(data)
            return
        if self._why:  # closed by us
            return
        try:
            self._on_message(data)
        except Exception:
            log.exception("on_message failed")
            self.close(1011, "internal error")

    def flush(self) -> None:
        transport, out = self._transport, self._out
        if transport is None or out is None:
            return
        for data in self._protocol.data_to_send():
            if data:
                out.write(data)
            elif transport.can_write_eof():
                transport.write_eof()
            else:  # TLS has no half-close
                transport.close()
        if self._protocol.close_expected():
            self._leave()

    def _leave(self) -> None:
        """Nothing more is sent; the peer has a while to take what was, and to go."""
        self._open = False
        if self._end is None and self._transport is not None:
            self._end = asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, self.abort)

    def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        self._ping = loop.call_later(PING_EVERY, self._keep_alive)
        self._idle_frames = 0
        if self._out is not None:
            self._out.sweep(loop.time(), DRAIN_TIMEOUT)
        if not self._heard:
            self._why = "no answer to a ping"
            self.abort()
        elif self._open:
            self._heard = False
            self._protocol.send_ping(b"mcpx")
            self.flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _problem(self, exc: Exception | None) -> ConnectionError:
        from websockets.exceptions import InvalidStatus

        if not isinstance(refused := self._protocol.handshake_exc, InvalidStatus):
            return ConnectionError(self._reason(exc))
        answer = refused.response
        fields = [
            (name.lower().encode(), value.encode("latin-1"))
            for name, value in answer.headers.raw_items()
        ]
        return Refused(answer.status_code, Headers.of(fields), bytes(answer.body))

    @property
    def parting(self) -> str:
        """What the peer said as it closed."""
        received = self._protocol.close_rcvd
        return "" if received is None else received.reason

    def _reason(self, exc: Exception | None) -> str:
        protocol = self._protocol
        if self._why:
            return self._why
        if self._out is not None and self._out.why:
            return self._out.why
        if protocol.handshake_exc is not None:
            return f"the handshake failed: {protocol.handshake_exc}"
        if protocol.close_rcvd is not None:
            return f"closed by the peer with {protocol.close_rcvd}"
        if protocol.close_sent is not None:
            return f"closed by us with {protocol.close_sent}"
        return f"the connection was lost{f': {exc}' if exc else ''}"


_HOP_BY_HOP = frozenset({"connection", "upgrade"})


def accept(
    exchange: Exchange,
    *,
    limit: int,
    subprotocol: str,
    on_message: Callable[[bytes], None],
    on_close: Callable[[str], None],
) -> WebSocket | None:
    """Turn a request into a WebSocket, or answer it with an error and return None."""
    from websockets.datastructures import Headers as Fields
    from websockets.http11 import Request
    from websockets.server import ServerProtocol
    from websockets.typing import Subprotocol

    def select(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        # Many clients offer none; the library's own choice would refuse them.
        return Subprotocol(subprotocol) if subprotocol in offered else None

    protocol = ServerProtocol(
        subprotocols=[Subprotocol(subprotocol)],
        select_subprotocol=select,
        max_size=limit,
        logger=quiet,
    )
    # The protocol insists on parsing a request itself. It gets what concerns it: its limits are not
    # ours.
    fields = [
        (n, v)
        for n, v in exchange.headers.items()
        if n.startswith("sec-websocket-") or n in _HOP_BY_HOP
    ]
    request = Request("/", Fields(fields))
    protocol.receive_data(request.serialize())
    response = protocol.accept(request) if protocol.events_received() else None
    if response is None or response.status_code != 101 or exchange.method != "GET":
        status = 426 if response is not None and response.status_code == 426 else 400
        more = [("upgrade", "websocket")] if status == 426 else []
        exchange.reply(
            status, b"this is a WebSocket; the handshake was not one\n", "text/plain", more
        )
        return None
    transport, rest, budget = exchange.upgrade()
    socket = WebSocket(protocol, on_message, on_close, budget)
    transport.set_protocol(socket)
    socket.connection_made(transport)
    protocol.send_response(response)
    socket.begin()
    socket.flush()
    if rest:  # not before the caller has the socket
        asyncio.get_running_loop().call_soon(socket.data_received, rest)
    return socket


async def connect(
    url: str,
    headers: Sequence[tuple[str, str]],
    *,
    limit: int,
    subprotocol: str,
    timeout: float,
    on_message: Callable[[bytes], None],
    on_close: Callable[[str], None],
) -> WebSocket:
    """Open a WebSocket. OSError (so also `Refused`, ConnectionError and TimeoutError) says why
    not."""
    from websockets.client import ClientProtocol
    from websockets.typing import Subprotocol
    from websockets.uri import parse_uri

    try:
        uri = parse_uri(parse(url, ("ws", "wss")).url)
        encode_headers(headers)  # refuses line breaks; the library would not
    except ValueError as error:
        why = str(error) if isinstance(error, BadAddress) else "a header that cannot be sent"
        raise ConnectionError(why) from None
    protocol = ClientProtocol(
        uri, subprotocols=[Subprotocol(subprotocol)], max_size=limit, logger=quiet
    )
    request = protocol.connect()
    for name, value in headers:
        request.headers[name] = value
    socket = WebSocket(protocol, on_message, on_close)
    context = default_context() if uri.secure else None
    try:
        async with asyncio.timeout(timeout):
            await asyncio.get_running_loop().create_connection(
                lambda: socket,
                uri.host,
                uri.port,
                ssl=context,
                server_hostname=uri.host if uri.secure else None,
            )
            protocol.send_request(request)
            socket.flush()
            await socket.opened
    except BaseException as e:
        socket.begun = False  # nobody has it, so nobody is told of its end
        socket.opened.cancel()
        socket.abort()
        if isinstance(e, TimeoutError):
            raise TimeoutError(f"no WebSocket to {uri.host}:{uri.port} in {timeout:g} s") from None
        raise
    return socket
