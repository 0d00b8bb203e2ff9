"""One HTTP request and the way to answer it. What the front sees of HTTP; `wire.http_server` makes
them.

Promise: everything that answers is a no-op once the exchange is closed; header values cannot break
out of their line.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Protocol

from mcpx.wire.flow import Budget

__all__ = [
    "PHRASES",
    "Exchange",
    "Headers",
    "Line",
    "encode_headers",
    "retry_after",
    "status_line",
    "whole_number",
]

LONGEST_WISH = 86_400.0
"""Seconds of a `Retry-After` that are believed."""


class Line(Protocol):
    """The connection an exchange is answered on."""

    @property
    def congested(self) -> bool: ...

    @property
    def waiting(self) -> int:
        """Bytes that were written and that the socket has not taken yet."""
        ...

    @property
    def client(self) -> tuple[str, int] | None: ...

    @property
    def server(self) -> tuple[str, int] | None: ...

    @property
    def scheme(self) -> str: ...

    def write(self, data: bytes, more: bytes = b"") -> None: ...

    def answered(self, keep: bool) -> None: ...

    async def drain(self) -> None: ...

    def give_away(self) -> tuple[asyncio.Transport, bytes, Budget]: ...

    def abort(self) -> None: ...


class Headers:
    """Header fields, names in lower case; values are decoded (latin-1) and trimmed when asked
    for."""

    __slots__ = ("first", "more")

    def __init__(self, first: dict[bytes, bytes], more: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.first = first
        self.more = more
        """The second and further fields of a name."""

    @classmethod
    def of(cls, fields: Iterable[tuple[bytes, bytes]]) -> "Headers":
        first: dict[bytes, bytes] = {}
        more: list[tuple[bytes, bytes]] = []
        for name, value in fields:
            if name in first:
                more.append((name, value))
            else:
                first[name] = value
        return cls(first, more)

    def get(self, name: str) -> str | None:
        value = self.first.get(name.encode())
        return None if value is None else value.decode("latin-1").strip(" \t")

    def all(self, name: str) -> list[str]:
        key = name.encode()
        first = self.first.get(key)
        if first is None:
            return []
        if not self.more:
            return [first.decode("latin-1").strip(" \t")]
        values = [first, *[value for other, value in self.more if other == key]]
        return [value.decode("latin-1").strip(" \t") for value in values]

    def items(self) -> Iterator[tuple[str, str]]:
        for fields in (self.first.items(), self.more):
            for name, value in fields:
                yield name.decode("latin-1"), value.decode("latin-1").strip(" \t")

    def __contains__(self, name: str) -> bool:
        return name.encode() in self.first


def whole_number(text: str) -> int | None:
    """The number that a header says, if it says one in plain digits (`isdigit` alone would take a ²
    for one)."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def retry_after(headers: Headers) -> float | None:
    """The seconds for which a server does not want to be asked again; it says them, or the time of
    day."""
    text = headers.get("retry-after")
    if not text or len(text) > 64:
        return None
    seconds = whole_number(text)
    if seconds is None:
        from email.utils import mktime_tz, parsedate_tz  # seldom needed, and slow to import

        try:
            date = parsedate_tz(text)
            if date is None:
                return None
            seconds = max(
                0.0, mktime_tz((*date[:9], date[9] or 0)) - time.time()
            )  # without a zone it is GMT
        except (ValueError, OverflowError):
            return None
    return min(float(seconds), LONGEST_WISH)


def encode_headers(headers: Sequence[tuple[str, str]]) -> bytes:
    """Header lines as they go out. A line break would let a value write headers of its own:
    ValueError."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers) or "\0" in text:
        raise ValueError("a line break in a header")
    return text.encode("latin-1")


PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
_starts: dict[tuple[int, str | None], bytes] = {}


def status_line(status: int, content_type: str | None) -> bytes:
    """Status line and content type; the few there are in use are kept."""
    start = _starts.get((status, content_type))
    if start is None:
        start = b"HTTP/1.1 %d %b\r\n" % (status, PHRASES.get(status, b""))
        if content_type is not None:
            start += encode_headers([("content-type", content_type)])
        if len(_starts) < 256:
            _starts[status, content_type] = start
    return start


def _absolute(target: str) -> tuple[str, str]:
    """Host and path of a target in absolute form; the host is empty where the scheme is not
    ours."""
    scheme, _, rest = target.partition("://")
    ends = [at for at in (rest.find("/"), rest.find("?")) if at >= 0]
    end = min(ends, default=len(rest))
    host, path = rest[:end], rest[end:]
    if scheme.lower() not in ("http", "https"):
        host = ""
    return host, path if path.startswith("/") else "/" + path


class Exchange:
    """One request and the way to answer it. Everything that answers is a no-op once `closed`."""

    __slots__ = (
        *("_authority", "_connection", "_held", "_http10", "_keep", "_streaming"),
        *("body", "headers", "method", "on_disconnect", "path", "query"),
    )

    def __init__(
        self,
        connection: Line,
        method: str,
        target: str,
        headers: Headers,
        body: bytes,
        keep: bool,
        http10: bool,
    ) -> None:
        self._connection: Line | None = connection
        self._keep = keep
        self._http10 = http10
        self._streaming = False
        self._held = b""
        """The head of a stream, until its first chunk."""
        self.method = method
        self._authority: str | None = None
        if (
            not target.startswith("/") and "://" in target
        ):  # as sent to a proxy; servers must accept it
            self._authority, target = _absolute(target)
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.body = body
        self.on_disconnect: Callable[[], None] | None = None
        """Called once if the client goes away before the answer is complete."""

    @property
    def closed(self) -> bool:
        """The client is gone, the answer finished, or the socket taken away by `upgrade`."""
        return self._connection is None

    @property
    def host(self) -> str | None:
        """Whom the request is meant for: an absolute target says so whatever `Host` says (RFC 9112,
        3.2.2). None where nobody is named, or several are."""
        if self._authority is not None:
            return self._authority
        hosts = self.headers.all("host")
        return hosts[0] if len(hosts) == 1 else None

    @property
    def congested(self) -> bool:
        """The client does not read as fast as it is written to."""
        return self._connection is not None and self._connection.congested

    @property
    def waiting(self) -> int:
        """Bytes that were written and that the socket has not taken yet."""
        return self._connection.waiting if self._connection is not None else 0

    @property
    def line(self) -> Line | None:
        """The connection: it may still be writing when the exchange is over."""
        return self._connection

    @property
    def client(self) -> tuple[str, int] | None:
        return self._connection.client if self._connection else None

    @property
    def server(self) -> tuple[str, int] | None:
        """Where the socket is bound."""
        return self._connection.server if self._connection else None

    @property
    def scheme(self) -> str:
        return self._connection.scheme if self._connection else ""

    def reply(
        self,
        status: int,
        body: bytes = b"",
        content_type: str | None = "application/json",
        headers: Sequence[tuple[str, str]] = (),
        *,
        line: bytes = b"",
    ) -> None:
        """The whole answer. `line`: one more header, as it goes out."""
        connection = self._connection
        if connection is None:
            return
        if self._streaming:
            raise RuntimeError("the answer has already begun")
        head = status_line(status, content_type if body else None) + line
        if headers:
            head += encode_headers(headers)
        if not self._keep or self._http10:
            head += b"connection: %b\r\n" % (b"keep-alive" if self._keep else b"close")
        if status in (204, 304):  # these have no body, and 204 must not have a length
            head += b"\r\n"
            body = b""
        else:
            head += b"content-length: %d\r\n\r\n" % len(body)
        if self.method == "HEAD":
            body = b""
        self._connection = None
        connection.write(head, body)
        connection.answered(self._keep)

    def stream(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Begin an answer in chunks. Its head goes out with the first of them (an empty one will
        do)."""
        if self._connection is None:
            return
        if self._streaming:
            raise RuntimeError("the answer has already begun")
        if self._http10:  # knows no chunks: the body ends with the connection
            self._keep = False
        head = status_line(status, None) + encode_headers(headers)
        head += b"" if self._keep else b"connection: close\r\n"
        self._held = head + (b"\r\n" if self._http10 else b"transfer-encoding: chunked\r\n\r\n")
        self._streaming = True

    def write(self, data: bytes) -> None:
        """One chunk."""
        if self._connection is None:
            return
        if not self._streaming:
            raise RuntimeError("no stream")
        if data and not self._http10:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self.method == "HEAD":
            data = b""
        if self._held:
            data, self._held = self._held + data, b""
        if data:
            self._connection.write(data)

    def end(self) -> None:
        """The stream is complete."""
        connection = self._connection
        if connection is None:
            return
        if not self._streaming:
            raise RuntimeError("no stream")
        self._connection = None
        last = b"" if self._http10 or self.method == "HEAD" else b"0\r\n\r\n"
        if self._held or last:
            connection.write(self._held + last)
        connection.answered(self._keep)

    def abort(self) -> None:
        """Break the connection off, so that the answer does not look complete. The client counts as
        gone."""
        if self._connection is not None:
            self._connection.abort()

    async def drain(self) -> None:
        """Wait until the socket's buffer is below its mark, or the connection is gone."""
        if self._connection is not None:
            await self._connection.drain()

    def upgrade(self) -> tuple[asyncio.Transport, bytes, Budget]:
        """Take the socket away from HTTP, with the bytes that came after the head, and what counts
        the bytes that wait for clients. Set a protocol at once."""
        if self._connection is None:
            raise ConnectionError("the client is gone")
        connection, self._connection = self._connection, None
        return connection.give_away()

    def lost(self) -> None:
        """For the connection: the client has gone."""
        self._connection = None
        callback, self.on_disconnect = self.on_disconnect, None
        if callback is not None:
            callback()

    def failed(self) -> None:
        """For the connection: the handler raised. A stream is broken off, so as not to look
        complete."""
        if self._connection is not None and self._streaming:
            self._connection.abort()
        else:
            self.reply(500, b"Internal Server Error", "text/plain")
