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


class Connection(asyncio.Protocol):
    """One client. Parser callbacks fill the request being read; complete ones are answered in
    order."""

    __slots__ = (
        *(
            "_began",
            "_body",
            "_chunk",
            "_counted",
            "_current",
            "_deaf",
            "_ending",
            "_fields",
            "_http10",
            "_in_head",
        ),
        *(
            "_intake",
            "_keep",
            "_limits",
            "_more",
            "_out",
            "_parser",
            "_pumping",
            "_queue",
            "_reading",
            "_server",
        ),
        *(
            "_since",
            "_surplus",
            "_tail",
            "_transport",
            "_upgrade",
            "_url",
            "_used",
            "data_received",
        ),
    )

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._limits = server.limits
        self._parser = HttpRequestParser(self)
        self._transport = cast(asyncio.Transport, None)
        # The request being read.
        self._reading = False
        self._in_head = True
        self._url = b""
        self._fields: dict[bytes, bytes] = _NOTHING
        self._more: list[tuple[bytes, bytes]] = _NO_MORE
        self._body: bytes | bytearray = b""
        self._counted = 0  # bytes of the bodies that this connection holds, if that is much
        self._keep = True
        self._http10 = False
        self._upgrade = False
        self._chunk = 0  # size of the chunk being fed
        self._began = False  # the request began in that chunk
        self._surplus = (
            0  # bytes of earlier chunks that brought neither the end of the head nor body
        )
        # The requests being answered.
        self._used = False
        self._current: Exchange | None = None
        self._queue: list[
            Exchange | int
        ] = []  # complete requests, and a refusal's status as the last
        self._pumping = False
        self._deaf = False  # nothing more is parsed
        self._tail: bytearray | None = None  # what came after the head of an upgrade
        self._ending = False  # closing, or waiting for a refused client to stop sending
        self._since = server.now
        """When the present phase began, by the server's coarse clock."""
        self._intake = Intake(self._feed)
        self.data_received = self._intake.take
        self._out = cast(Outflow, None)

    # --- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._intake.read_from(self._transport)
        self._out = Outflow(self._transport, self._server.budget)
        if not self._server.admit(self):
            self._ending = self._deaf = True
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

    def _feed(self, data: bytes) -> None:
        if self._tail is not None:
            self._tail += data
            if len(self._tail) > self._limits.header_bytes:
                self.abort()
        while data and not self._deaf:
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
                self.abort()
        except HttpParserError:
            self._refuse(400)
        if self._reading and not self._began:
            if not self._in_head and len(self._body) != before:
                self._surplus = 0
            else:  # an endless header, or an endless trailer
                self._surplus += len(data)
                if self._surplus > self._limits.header_bytes:
                    self._refuse(431)
        if self._reading and len(self._fields) + len(self._more) > MOST_HEADERS:
            self._refuse(431)
        return b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        self._ending = self._deaf = True
        self._queue.clear()
        self._count(-self._counted)
        self._intake.end()
        self._out.resume()
        # We hold each other: what a connection takes would wait for the collector, which comes
        # rarely.
        self._parser = cast(HttpRequestParser, None)
        self.data_received = _unheard
        exchange, self._current = self._current, None
        if exchange is not None:
            try:
                exchange.lost()
            except Exception:
                log.exception("on_disconnect failed")

    @property
    def congested(self) -> bool:
        return self._out.congested

    @property
    def waiting(self) -> int:
        return self._out.waiting

    def pause_writing(self) -> None:
        self._out.pause()
        self._intake.hold(True)

    def resume_writing(self) -> None:
        self._out.resume()
        if not self._pumping:
            self._pump()

    # --- the parser

    def on_message_begin(self) -> None:
        self._began = self._reading = self._in_head = True
        self._url = b""
        self._fields, self._more = {}, []
        self._body = b""
        self._surplus = 0
        self._since = self._server.now

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer
            name = name.lower()
            if name in self._fields:
                self._more.append((name, value))
            else:
                self._fields[name] = value

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._since = self._server.now
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
        if b"expect" in fields and not self._http10:
            self._continue(fields[b"expect"])

    def _continue(self, expect: bytes) -> None:
        # Behind an unfinished answer it cannot be sent; clients go on by themselves after a second.
        if expect.strip().lower() == b"100-continue" and self._current is None and not self._queue:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        size = len(self._body) + len(body)
        if size > self._limits.body_bytes:
            self._stop(413)
        if size > LARGE:
            if len(self._body) <= LARGE and b"content-length" not in self._fields:
                self._forestall()
            self._count(len(body))
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
            self, method, target, Headers(self._fields, self._more), b"", False, self._http10
        )
        if (status := self._server.forestall(request)) is not None:
            self._stop(status)

    def _count(self, more: int) -> None:
        self._counted += more
        self._server.bodies += more

    def on_message_complete(self) -> None:
        self._reading = False
        if (
            not self._upgrade
        ):  # else it goes on in `_upgraded`, where the bytes that follow are known
            self._complete()

    def _upgraded(self, rest: bytes) -> bytes:
        upgrade = self._fields.get(b"upgrade", b"")
        if self._parser.get_method() == b"GET" and upgrade.strip().lower() == b"websocket":
            self._tail = bytearray(rest)
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

    # --- one request after the other

    def _complete(self) -> None:
        body, self._body = bytes(self._body), b""
        method, target = self._parser.get_method().decode(), self._url.decode()
        headers = Headers(self._fields, self._more or ())
        exchange = Exchange(self, method, target, headers, body, self._keep, self._http10)
        self._fields, self._more, self._url = (
            _NOTHING,
            _NO_MORE,
            b"",
        )  # an idle connection holds nothing
        self._used = True
        if not self._keep:
            self._deaf = True
        if self._current is None and not self._queue and not self._out.congested:
            self._begin(exchange)
        else:
            self._queue.append(exchange)
            self._intake.hold(True)

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        try:
            self._server.handler(exchange)
        except Exception:
            log.exception("the handler failed")
            exchange.failed()

    def answered(self, keep: bool) -> None:
        self._current = None
        if self._counted and not self._queue and not self._reading:
            self._count(-self._counted)
        self._since = self._server.now
        if not keep or self._server.closing:
            self.close()
        elif self._queue and not self._pumping:
            self._pump()

    def _pump(self) -> None:
        self._pumping = True  # a handler that answers at once comes back here
        while self._queue and self._current is None and not self._out.congested:
            following = self._queue.pop(0)
            if isinstance(following, int):
                self._sendrefusal(following)
            else:
                self._begin(following)
        self._pumping = False
        if not self._queue and not self._out.congested:
            self._intake.hold(False)

    def _stop(self, status: int) -> NoReturn:
        self._refuse(status)
        raise _Stop

    def _refuse(self, status: int) -> None:
        if self._deaf:
            return
        self._deaf = True
        self._reading = False
        if self._current is None and not self._queue:
            self._sendrefusal(status)
        else:
            self._queue.append(status)

    def _sendrefusal(self, status: int) -> None:
        self._ending = True
        self._since = self._server.now
        self.write(self._server.refusal(status))
        self._intake.hold(False)
        if (
            self._transport.can_write_eof()
        ):  # TLS cannot: such a client must go by `connection: close`
            self._transport.write_eof()

    # --- writing, waiting, ending

    def write(self, data: bytes, more: bytes = b"") -> None:
        if len(more) > COPY_BELOW:
            self._out.write_both(data, more)
        else:
            self._out.write(data + more if more else data)

    async def drain(self) -> None:
        await self._out.drain()

    def sweep(self, now: float) -> None:
        """Drop whoever has taken too long."""
        limits, waited = self._limits, now - self._since
        self._out.sweep(now, limits.write_timeout)
        if self._ending:
            if not self._out.waiting and waited > LINGER:
                self.abort()
        elif self._current is not None or self._queue:
            return
        elif self._reading:
            if waited > (limits.head_timeout if self._in_head else limits.body_timeout):
                self._refuse(408)
        elif waited > (limits.keep_alive if self._used else limits.head_timeout):
            self.close()

    @property
    def spare(self) -> bool:
        """It is missed least: nothing of it is being answered, and for a while nothing whole has
        come."""
        if self._current is not None or self._queue or self._ending:
            return False
        return self._server.now - self._since > (
            RESTED if self._used and not self._reading else SPARED
        )

    def close_if_idle(self) -> None:
        if self._current is None and not self._queue and not self._reading:
            self.close()

    def close(self) -> None:
        """After what is written has gone out."""
        self._ending = self._deaf = True
        self._since = self._server.now
        self._queue.clear()
        self._transport.close()

    def abort(self) -> None:
        self._deaf = True
        self._transport.abort()

    def give_away(self) -> tuple[asyncio.Transport, bytes, Budget]:
        tail, self._tail = bytes(self._tail or b"") + self._intake.let_go(), None
        self._current = None
        self._ending = self._deaf = True
        self._server.adopt(self._transport)
        self._server.forget(self)
        return self._transport, tail, self._server.budget


def _unheard(data: bytes) -> None:
    """What comes after the end."""


def _address(transport: asyncio.BaseTransport, which: str) -> tuple[str, int] | None:
    address: Any = transport.get_extra_info(which)
    return (str(address[0]), int(address[1])) if address else None
