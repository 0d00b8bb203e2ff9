"""One HTTP/1.1 connection of a client: bytes in, `Exchange`s out, in order and one at a time.

Promise: limits on heads, bodies and every kind of waiting hold for whatever a client sends or does
not send, and each has its share of a turn and no more (`wire.flow`): while a client does not read
its answers, none of its requests is begun. A client that goes away is reported. The state
of all connections belongs to `HttpServer`.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from mcpx.wire.exchange import PHRASES, Exchange, Headers, status_line
from mcpx.wire.flow import Budget, Intake, Outflow

if TYPE_CHECKING:
    from mcpx.wire.http_server import HttpServer

log = logging.getLogger(__name__)

LINGER: Final = 2.0
"""Seconds a refused client may go on sending before its socket is closed. Closing at once would
send a reset, which throws our answer out of the client's buffer before it is read."""
SPARED = 2.0
RESTED = 10.0
"""Seconds a connection may bring nothing before it makes room for another, where there is none:
half of a request or less; and after an answer."""
MOST_HEADERS: Final = 256
"""Each costs ten times its bytes."""
LARGE: Final = 65536
"""Bytes; smaller bodies are not worth counting: there can be no more of them than connections."""
COPY_BELOW: Final = 65536
"""Smaller bodies are copied behind their head; with larger ones the transport gets two buffers at
once."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost. Times in seconds and for the whole phase: dripping bytes gains
    nothing."""

    header_bytes: int = 65536
    body_bytes: int = 4 * 2**20
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    keep_alive: float = 75.0
    """Longer than the pools of clients keep idle connections (Node 4 s, Go and aiohttp 15 to
    90)."""
    connections: int = 4096
    write_timeout: float = 30.0
    """A reader that takes next to nothing for so long is dropped."""
    waiting_bytes: int = 128 * 2**20
    """What may wait to be read by all clients together."""
    bodies_bytes: int = 256 * 2**20
    """The bodies of all requests that are being read or answered. Beyond it the next large one is
    refused."""


_MORE = {401: b"www-authenticate: Bearer\r\n", 503: b"retry-after: 1\r\n"}


def refusal(status: int) -> bytes:
    """The whole answer to a client that is not heard any further."""
    text = PHRASES[status]
    head = status_line(status, "text/plain") + _MORE.get(status, b"")
    return head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(text) + text


class _Stop(Exception):
    """Leaves the parser from inside a callback."""


_NOTHING: Final[dict[bytes, bytes]] = {}
_NO_MORE: Final[list[tuple[bytes, bytes]]] = []
"""Of a request that is not there; never written to: a message begins with its own."""


class RequestReader:
    """Parses the requests of one connection. The parser calls its `on_` methods."""

    __slots__ = (
        *("_began", "_body", "_chunk", "_connection", "_fields", "_http10", "_keep", "_limits"),
        *("_more", "_parser", "_server", "_surplus", "_upgrade", "_url"),
        *("counted", "deaf", "in_head", "reading", "tail"),
    )

    def __init__(self, connection: "Connection", server: "HttpServer") -> None:
        self._connection = connection
        self._server = server
        self._limits = server.limits
        self._parser = HttpRequestParser(self)
        self.reading = False
        """A request has begun and is not complete."""
        self.in_head = True
        self.deaf = False
        """Nothing more is parsed."""
        self.tail: bytearray | None = None
        """Bytes after the head of an upgrade."""
        self.counted = 0
        """Bytes of large bodies that this connection holds."""
        self._url = b""
        self._fields: dict[bytes, bytes] = _NOTHING
        self._more: list[tuple[bytes, bytes]] = _NO_MORE
        self._body: bytes | bytearray = b""
        self._keep = True
        self._http10 = False
        self._upgrade = False
        self._chunk = 0  # Size of the chunk that is being parsed.
        self._began = False  # The request began in that chunk.
        self._surplus = 0  # Bytes of earlier chunks without the end of the head and without body.

    def end(self) -> None:
        """The connection is lost. Break the reference cycles, so that memory is freed at once."""
        self.deaf = True
        self.count(-self.counted)
        self._parser = cast(HttpRequestParser, None)
        self._connection = cast(Connection, None)

    def feed(self, data: bytes) -> None:
        if self.tail is not None:
            self.tail += data
            if len(self.tail) > self._limits.header_bytes:
                self._connection.abort()
        while data and not self.deaf:
            data = self._parse(data)

    def _parse(self, data: bytes) -> bytes:
        """Returns what has to be parsed once more."""
        self._chunk = len(data)
        self._began = False
        before = len(self._body)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as e:
            return self._upgraded(data[e.args[0] :])
        except HttpParserCallbackError as e:
            if not isinstance(e.__context__, _Stop):
                log.error("a parser callback failed", exc_info=e)
                self._connection.abort()
        except HttpParserError:
            self._connection.refuse(400)
        if self.reading and not self._began:
            if not self.in_head and len(self._body) != before:
                self._surplus = 0
            else:  # an endless header, or an endless trailer
                self._surplus += len(data)
                if self._surplus > self._limits.header_bytes:
                    self._connection.refuse(431)
        if self.reading and len(self._fields) + len(self._more) > MOST_HEADERS:
            self._connection.refuse(431)
        return b""

    def on_message_begin(self) -> None:
        self._began = self.reading = self.in_head = True
        self._url = b""
        self._fields, self._more = {}, []
        self._body = b""
        self._surplus = 0
        self._connection.since = self._server.now

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # else it is a trailer
            name = name.lower()
            if name in self._fields:
                self._more.append((name, value))
            else:
                self._fields[name] = value

    def on_headers_complete(self) -> None:
        self.in_head = False
        self._connection.since = self._server.now
        limits, fields, parser = self._limits, self._fields, self._parser
        if self._surplus + self._chunk > limits.header_bytes:
            pairs = [*fields.items(), *self._more]
            if sum([len(n) + len(v) + 4 for n, v in pairs]) + len(self._url) > limits.header_bytes:
                self._stop(431)
        if len(fields) + len(self._more) > MOST_HEADERS:
            self._stop(431)
        self._surplus = 0
        self._keep = parser.should_keep_alive()
        self._upgrade = parser.should_upgrade()
        self._http10 = False
        if (b"connection" in fields or not self._keep) and (
            version := parser.get_http_version()
        ) != "1.1":
            if version != "1.0":
                self._stop(505)
            self._http10 = True
        if b"host" not in fields and not self._http10:
            self._stop(400)
        if self._more and any(name == b"host" for name, _ in self._more):
            self._stop(400)
        if self._upgrade and parser.get_method() == b"CONNECT":
            self._stop(405)
        if (
            b"transfer-encoding" in fields
            and fields[b"transfer-encoding"].strip().lower() != b"chunked"
        ):
            self._stop(501)
        if b"content-length" in fields:
            size = int(fields[b"content-length"])
            if size > limits.body_bytes:
                self._stop(413)
            if size > LARGE:
                self._forestall()
        expectation = fields.get(b"expect")
        if expectation is None or self._http10 or expectation.strip().lower() != b"100-continue":
            return
        # It cannot be sent behind an unfinished answer. Clients continue after a second.
        if self._connection.current is None and not self._connection.queue:
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        size = len(self._body) + len(body)
        if size > self._limits.body_bytes:
            self._stop(413)
        if size > LARGE:
            if len(self._body) <= LARGE and b"content-length" not in self._fields:
                self._forestall()
            self.count(len(body))
            if self._server.bodies > self._limits.bodies_bytes:
                self._stop(503)
        if not self._body:
            self._body = body
        else:
            # Not a list: a body in chunks of one byte would weigh many times its size.
            if not isinstance(self._body, bytearray):
                self._body = bytearray(self._body)
            self._body += body

    def _forestall(self) -> None:
        """What strangers send must not take the room of those who are let in."""
        if self._server.forestall is None:
            return
        method, target = self._parser.get_method().decode(), self._url.decode()
        request = Exchange(
            self._connection,
            method,
            target,
            Headers(self._fields, self._more),
            b"",
            False,
            self._http10,
        )
        if (status := self._server.forestall(request)) is not None:
            self._stop(status)

    def count(self, more: int) -> None:
        self.counted += more
        self._server.bodies += more

    def on_message_complete(self) -> None:
        self.reading = False
        if (
            not self._upgrade
        ):  # else it goes on in `_upgraded`, where the bytes that follow are known
            self._complete()

    def _upgraded(self, rest: bytes) -> bytes:
        upgrade = self._fields.get(b"upgrade", b"")
        if self._parser.get_method() == b"GET" and upgrade.strip().lower() == b"websocket":
            self.tail = bytearray(rest)
            self._keep = False
            self._complete()
            return b""
        # An offer we decline, such as Java's and curl's h2c: an ordinary request, and the
        # connection's last. But the parser has stopped before its body: give the head to a new one,
        # without the offer.
        fields = [
            f
            for f in (*self._fields.items(), *self._more)
            if f[0] not in (b"upgrade", b"connection")
        ]
        lines = [b"%b: %b\r\n" % field for field in (*fields, (b"connection", b"close"))]
        start = b"%b %b HTTP/1.%d\r\n" % (
            self._parser.get_method(),
            self._url,
            0 if self._http10 else 1,
        )
        self._parser = HttpRequestParser(self)
        return b"".join([start, *lines, b"\r\n", rest])

    def _complete(self) -> None:
        connection = self._connection
        body, self._body = bytes(self._body), b""
        method, target = self._parser.get_method().decode(), self._url.decode()
        headers = Headers(self._fields, self._more or ())
        exchange = Exchange(connection, method, target, headers, body, self._keep, self._http10)
        # An idle connection holds nothing.
        self._fields, self._more, self._url = _NOTHING, _NO_MORE, b""
        connection.used = True
        if not self._keep:
            self.deaf = True
        if connection.current is None and not connection.queue and not connection.out.congested:
            connection.begin(exchange)
        else:
            connection.queue.append(exchange)
            connection.intake.hold(True)

    def _stop(self, status: int) -> NoReturn:
        self._connection.refuse(status)
        raise _Stop


class Connection(asyncio.Protocol):
    """One client, whose requests are answered in order, one at a time."""

    __slots__ = (
        *("_ending", "_pumping", "_reader", "_server", "_transport", "current"),
        *("data_received", "intake", "out", "queue", "since", "used"),
    )

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._transport = cast(asyncio.Transport, None)
        self.used = False
        self.current: Exchange | None = None
        self.queue: list[Exchange | int] = []
        """Complete requests. The last one may be the status of a refusal."""
        self._pumping = False
        self._ending = False  # Closing, or waiting for a refused client to stop sending.
        self.since = server.now
        """When the present phase began, by the server's coarse clock."""
        self._reader = RequestReader(self, server)
        self.intake = Intake(self._reader.feed)
        self.data_received = self.intake.take
        self.out = cast(Outflow, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.intake.read_from(self._transport)
        self.out = Outflow(self._transport, self._server.budget)
        if not self._server.admit(self):
            self._ending = self._reader.deaf = True
            self._transport.write(self._server.refusal(503))
            self._transport.close()

    @property
    def client(self) -> tuple[str, int] | None:
        return _address(self._transport, "peername")

    @property
    def server(self) -> tuple[str, int] | None:
        return _address(self._transport, "sockname")

    @property
    def scheme(self) -> str:
        return "http" if self._transport.get_extra_info("sslcontext") is None else "https"

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        self._ending = True
        self.queue.clear()
        self._reader.end()
        self.intake.end()
        self.out.resume()
        self.data_received = _unheard
        exchange, self.current = self.current, None
        if exchange is not None:
            try:
                exchange.lost()
            except Exception:
                log.exception("on_disconnect failed")

    @property
    def congested(self) -> bool:
        return self.out.congested

    @property
    def waiting(self) -> int:
        return self.out.waiting

    def pause_writing(self) -> None:
        self.out.pause()
        self.intake.hold(True)

    def resume_writing(self) -> None:
        self.out.resume()
        if not self._pumping:
            self._pump()

    def begin(self, exchange: Exchange) -> None:
        self.current = exchange
        try:
            self._server.handler(exchange)
        except Exception:
            log.exception("the handler failed")
            exchange.failed()

    def answered(self, keep: bool) -> None:
        self.current = None
        if self._reader.counted and not self.queue and not self._reader.reading:
            self._reader.count(-self._reader.counted)
        self.since = self._server.now
        if not keep or self._server.closing:
            self.close()
        elif self.queue and not self._pumping:
            self._pump()

    def _pump(self) -> None:
        self._pumping = True  # a handler that answers at once comes back here
        while self.queue and self.current is None and not self.out.congested:
            following = self.queue.pop(0)
            if isinstance(following, int):
                self._send_refusal(following)
            else:
                self.begin(following)
        self._pumping = False
        if not self.queue and not self.out.congested:
            self.intake.hold(False)

    def refuse(self, status: int) -> None:
        if self._reader.deaf:
            return
        self._reader.deaf = True
        self._reader.reading = False
        if self.current is None and not self.queue:
            self._send_refusal(status)
        else:
            self.queue.append(status)

    def _send_refusal(self, status: int) -> None:
        self._ending = True
        self.since = self._server.now
        self.write(self._server.refusal(status))
        self.intake.hold(False)
        if (
            self._transport.can_write_eof()
        ):  # TLS cannot: such a client must go by `connection: close`
            self._transport.write_eof()

    def write(self, data: bytes, more: bytes = b"") -> None:
        if len(more) > COPY_BELOW:
            self.out.write_both(data, more)
        else:
            self.out.write(data + more if more else data)

    async def drain(self) -> None:
        await self.out.drain()

    def sweep(self, now: float) -> None:
        """Drop whoever has taken too long."""
        limits, waited = self._server.limits, now - self.since
        self.out.sweep(now, limits.write_timeout)
        if self._ending:
            if not self.out.waiting and waited > LINGER:
                self.abort()
        elif self.current is not None or self.queue:
            return
        elif self._reader.reading:
            if waited > (limits.head_timeout if self._reader.in_head else limits.body_timeout):
                self.refuse(408)
        elif waited > (limits.keep_alive if self.used else limits.head_timeout):
            self.close()

    @property
    def spare(self) -> bool:
        """It is missed least: nothing of it is being answered, and for a while nothing whole has
        come."""
        if self.current is not None or self.queue or self._ending:
            return False
        return self._server.now - self.since > (
            RESTED if self.used and not self._reader.reading else SPARED
        )

    def close_if_idle(self) -> None:
        if self.current is None and not self.queue and not self._reader.reading:
            self.close()

    def close(self) -> None:
        """After what is written has gone out."""
        self._ending = self._reader.deaf = True
        self.since = self._server.now
        self.queue.clear()
        self._transport.close()

    def abort(self) -> None:
        self._reader.deaf = True
        self._transport.abort()

    def give_away(self) -> tuple[asyncio.Transport, bytes, Budget]:
        tail, self._reader.tail = bytes(self._reader.tail or b"") + self.intake.let_go(), None
        self.current = None
        self._ending = self._reader.deaf = True
        self._server.adopt(self._transport)
        self._server.forget(self)
        return self._transport, tail, self._server.budget


def _unheard(data: bytes) -> None:
    """What comes after the end."""


def _address(transport: asyncio.BaseTransport, which: str) -> tuple[str, int] | None:
    address: Any = transport.get_extra_info(which)
    return (str(address[0]), int(address[1])) if address else None
