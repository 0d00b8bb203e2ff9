"""One HTTP request and the reading of its response, for `wire.http_client`, which see for the
promise."""

import asyncio
import logging
from typing import Final, NoReturn, Protocol

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)

from mcpx.wire.exchange import Headers

__all__ = ["Abortable", "BadResponse", "ConnectionLost", "Crowded", "Forbidden", "Request", "Sink"]

log = logging.getLogger(__name__)

HEADER_BYTES: Final = 65536
"""Bound on a response's head, as on the server's side."""


class ConnectionLost(ConnectionError):
    """No complete reply. With `sent` the server may have acted on the request: it must not be
    repeated. `ours`: there was no connection for a want of our own, which says nothing of the
    server. `vague`: there was none in time, or no address for its name; a loop that stood still for
    as long finds the same."""

    def __init__(
        self, message: str, *, sent: bool, ours: bool = False, vague: bool = False
    ) -> None:
        super().__init__(message)
        self.sent = sent
        self.ours = ours
        self.vague = vague


class Crowded(ConnectionError):
    """Too much waits for a connection to this server already: the request was not even put in
    line."""


class Forbidden(ConnectionError):
    """The host may not be reached: nothing was sent to it. Says which one, and what to do."""


class BadResponse(ConnectionError):
    """What came back is not the HTTP that was asked for."""


class Sink(Protocol):
    """Where a reply goes."""

    def head(self, status: int, headers: Headers) -> None: ...
    def body(self, data: bytes) -> None: ...

    def trusted(self) -> bool:
        """The reply is complete: whether it is what was asked for. If not, the connection may be
        out of step, and is ended; asked once, before `end`."""
        ...

    def end(self) -> None: ...
    def failed(self, error: Exception) -> None: ...


class Abortable(Protocol):
    """A request under way."""

    @property
    def sent(self) -> bool:
        """Whether any of it may have reached the server; not while it waits for a connection."""
        ...

    def abort(self) -> None:
        """Drop it, and its connection; the sink hears nothing more."""

    def hold(self, held: bool) -> None:
        """Whether the sink wants nothing for the moment: then the server is not read from, and
        notices."""


class Line(Protocol):
    """The connection a request was sent on."""

    def release(self, keep: bool) -> None:
        """The reply is complete; `keep`: the connection can carry another."""

    def drop(self) -> None: ...

    def hold(self, held: bool) -> None: ...


class Keeper(Protocol):
    """Who gave a request its place."""

    def over(self, request: "Request") -> None:
        """It needs its place no more, nor waits for one."""


class _Stop(Exception):
    """Leaves the parser from inside a callback."""


class Request:
    """One request: its bytes until they are sent, then the parser of its response.

    A parser of its own, with itself as the target: so what a server sends behind a response is
    never taken for the response to the connection's next request.
    """

    __slots__ = (
        *(
            "_bare",
            "_complete",
            "_error",
            "_fields",
            "_in_head",
            "_keep",
            "_more",
            "_packed",
            "_parser",
        ),
        *("_surplus", "_until_eof", "brief", "connection", "keeper", "request", "sink", "task"),
    )

    def __init__(
        self, request: bytes, sink: Sink, bare: bool, brief: bool, packed: bool = False
    ) -> None:
        self.request = request
        self.brief = brief
        self.keeper: Keeper | None = None
        self.sink: Sink | None = sink
        """None once it has had its last call."""
        self.task: asyncio.Task[None] | None = None
        self.connection: Line | None = None
        self._bare = bare  # the answer to HEAD has no body, whatever its head says
        self._packed = packed  # the sink unpacks
        self._parser: HttpResponseParser | None = None
        self._in_head = True
        self._fields: dict[bytes, bytes] = {}
        self._more: list[tuple[bytes, bytes]] = []
        self._surplus = 0  # bytes that brought neither the end of the head nor body
        self._until_eof = False
        self._complete = False
        self._keep = False
        self._error: Exception | None = None

    # --- for the caller

    @property
    def sent(self) -> bool:
        return not self.request

    def abort(self) -> None:
        self.sink = None
        connection = self._detach()
        if connection is not None:
            connection.drop()
        elif self.task is not None:
            self.task.cancel()
        self._over()

    def hold(self, held: bool) -> None:
        if self.connection is not None:
            self.connection.hold(held)

    # --- for the connection

    def sent_on(self, connection: "Line") -> None:
        self.connection = connection
        self.request = b""
        self._parser = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            return
        self._surplus += len(data)
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            self._error = BadResponse("switched protocols unasked")
            self._complete = False
        except HttpParserCallbackError as e:
            self._error = self._error or e
        except HttpParserError as e:
            self._error = BadResponse(f"not an HTTP response: {e}")
        if self._complete:
            self.finish(self._keep and self._error is None)
        elif self._error is not None:
            self.fail(self._error)
        elif self._surplus > HEADER_BYTES:
            self.fail(BadResponse(f"headers of more than {HEADER_BYTES} bytes"))

    def finish(self, keep: bool) -> None:
        sink, self.sink = self.sink, None
        trusted = False
        if sink is not None:
            try:
                trusted = sink.trusted()
            except Exception:
                log.exception("a sink failed to judge a reply")
        connection = self._detach()
        if connection is not None:
            connection.release(keep and trusted)
        self._over()
        if sink is not None:
            try:
                sink.end()
            except Exception:
                log.exception("a sink failed at the end of a reply")

    def fail(self, error: Exception) -> None:
        connection = self._detach()
        if connection is not None:
            connection.drop()
        self._over()
        sink, self.sink = self.sink, None
        if sink is not None:
            try:
                sink.failed(error)
            except Exception:
                log.exception("a sink failed at a failure")

    def lost(self, clean: bool) -> None:
        if self._until_eof and clean:
            self.finish(False)
        else:
            when = "before a reply" if self._in_head else "in the middle of a reply"
            self.fail(ConnectionLost(f"the server closed the connection {when}", sent=True))

    def _detach(self) -> "Line | None":
        self._parser = None  # they refer to each other
        connection, self.connection = self.connection, None
        return connection

    def _over(self) -> None:
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            keeper.over(self)

    # --- the parser

    def on_message_begin(self) -> None:
        if self._complete:  # something behind the response
            self._keep = False
            raise _Stop
        self._fields = {}
        self._more = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer
            name = name.lower()
            if name in self._fields:
                self._more.append((name, value))
            else:
                self._fields[name] = value

    def on_headers_complete(self) -> None:
        parser, fields = self._parser, self._fields
        if parser is None or self.sink is None:
            raise _Stop
        status = parser.get_status_code()
        if status < 200:
            return
        if self._surplus > HEADER_BYTES:
            size = sum(
                [len(name) + len(value) + 4 for name, value in (*fields.items(), *self._more)]
            )
            if size > HEADER_BYTES:
                self._stop(f"headers of more than {HEADER_BYTES} bytes")
        self._surplus = 0
        encoding = fields.get(b"content-encoding", b"identity").strip().lower()
        transfer = fields.get(b"transfer-encoding", b"chunked").strip().lower()
        if (encoding not in (b"identity", b"") and not self._packed) or transfer != b"chunked":
            self._stop("the body is compressed, though this was not asked for")
        self._in_head = False
        self._until_eof = b"content-length" not in fields and b"transfer-encoding" not in fields
        try:
            self.sink.head(status, Headers(fields, self._more))
        except Exception as e:
            log.exception("a sink failed at the head of a reply")
            self._error = e
            raise _Stop from None
        if self._bare:
            self._complete = True
            raise _Stop

    def on_body(self, body: bytes) -> None:
        if self.sink is None:
            raise _Stop
        self._surplus = 0
        try:
            self.sink.body(body)
        except Exception as e:
            log.exception("a sink failed in the body of a reply")
            self._error = e
            raise _Stop from None

    def on_message_complete(self) -> None:
        if not self._in_head and self._parser is not None:  # else it was a 1xx, or the call is over
            self._complete = True
            self._keep = self._parser.should_keep_alive()

    def _stop(self, why: str) -> NoReturn:
        self._error = BadResponse(why)
        raise _Stop
