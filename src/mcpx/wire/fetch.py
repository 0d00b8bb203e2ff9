"""HTTP requests to anywhere: over pooled connections, through proxies, with redirects, unpacked,
and within bounds.

Promised: nothing is reached that may not be (`allow_private`), whatever a name resolves to and
wherever a redirect leads; what proves us (`private` headers) goes to the origin it was meant for
and to no other; an answer is bounded in bytes, packed and unpacked, and in time. A request that is
given up, by its time-out or by whoever waits for it, ends at once with its connection. No promise:
HTTP/2, cookies, caching, retries (the caller knows what may be repeated).
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from mcpx import __version__
from mcpx.wire.address import LONGEST_TARGET, BadAddress, parse
from mcpx.wire.exchange import Headers
from mcpx.wire.fields import FRAMING, HEADER_NAME
from mcpx.wire.http_client import Forbidden, Pool
from mcpx.wire.reach import Guard
from mcpx.wire.receipt import ACCEPTED, Receipt, TooLarge

if TYPE_CHECKING:
    import ssl

__all__ = ["LIMIT", "REDIRECTS", "TIMEOUT", "Answer", "Fetch", "FetchFailed", "Fetcher"]

TIMEOUT = 30.0
LIMIT = 10 * 2**20
REDIRECTS = 5
MOST_POOLS: Final = 64
"""Origins that are kept; those in use beside them."""
PROOF: Final = frozenset(("authorization", "cookie", "proxy-authorization"))
"""Headers that go to no other origin, whoever set them."""

_ORDINARY: Final = re.compile(
    r"(https?://[a-z0-9.-]+(?::[0-9]+)?)"
    r"(/[A-Za-z0-9/?:@!$&'()*+,;=._~-]*(?:%[0-9A-Fa-f]{2}[A-Za-z0-9/?:@!$&'()*+,;=._~-]*)*)"
)
"""A URL that is asked for as it stands: its origin and the rest."""
_NAME: Final = re.compile(HEADER_NAME)
_OURS: Final = re.compile(FRAMING)
_LINES: Final = re.compile(r"(?:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*")
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_DEFAULTS: Final = (
    ("user-agent", f"user-agent: mcpx/{__version__}\r\n"),
    ("accept", "accept: */*\r\n"),
    ("accept-encoding", f"accept-encoding: {ACCEPTED}\r\n"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """One request."""

    url: str = field(repr=False)
    method: str = "GET"
    """In capital letters."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """`user-agent`, `accept` and `accept-encoding` are added where they are not given."""
    body: bytes = field(default=b"", repr=False)
    private: frozenset[str] = frozenset()
    """Names of headers, in lower case, that go to the origin of `url` only; `authorization`,
    `cookie` and `proxy-authorization` always do."""
    timeout: float = TIMEOUT
    """Seconds for all of it, redirects included."""
    limit: int = LIMIT
    """Bytes of a body, packed and unpacked."""
    redirects: int = REDIRECTS
    """How many are followed. With none a redirect is an answer like any other."""
    allow_private: bool = False
    """Whether loopback, private, link-local and metadata addresses may be reached."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Headers
    """As they came: `content-encoding` and `content-length` tell of the packed body."""
    body: bytes = field(repr=False)
    """Unpacked."""
    url: str = field(repr=False)
    """Where it came from in the end."""


class FetchFailed(Exception):
    """There is no answer; says why in words that hold nothing of the URL but its host."""

    def __init__(
        self,
        reason: str,
        *,
        sent: bool,
        timed_out: bool = False,
        forbidden: bool = False,
        too_large: bool = False,
    ) -> None:
        super().__init__(reason)
        self.sent = sent
        """The server may have acted on the request."""
        self.timed_out = timed_out
        self.forbidden = forbidden
        """It may not be reached: a private address, an odd redirect."""
        self.too_large = too_large
        """There is one, and it is larger than was allowed."""


class Fetcher:
    """All of a gateway's connections to APIs."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        guard: Guard | None = None,
        ssl_context: "ssl.SSLContext | None" = None,
    ) -> None:
        """`environ` may name proxies. `guard` and `ssl_context` replace the ordinary ones."""
        self._environ = environ
        self._guard = guard or Guard()
        self._ssl_context = ssl_context
        self._pools: OrderedDict[tuple[str, bool], Pool] = OrderedDict()
        """By origin and whether it may be private; the one used last at the end."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def fetch(self, request: Fetch) -> Answer:
        """Raises `FetchFailed`; `ValueError` for what cannot be sent (a line break in a header)."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout
        left, sent = request.redirects, False
        while True:
            lines = _header_lines(request)
            pool, target = self._where(request, sent)
            receipt = Receipt(
                loop.create_future(), request.limit, request.method == "HEAD", request.redirects > 0
            )
            timer = loop.call_at(deadline, receipt.expire)
            try:
                receipt.call = call = pool.start(
                    request.method, target, lines, request.body, receipt
                )
                await receipt.done
                if receipt.timed_out or receipt.error is not None:
                    raise _failure(receipt, pool.authority, request.timeout, sent or call.sent)
                if not receipt.redirects:
                    try:
                        body = await receipt.unpacked(deadline)
                    except (ConnectionError, TimeoutError) as error:
                        receipt.error, receipt.timed_out = error, isinstance(error, TimeoutError)
                        raise _failure(receipt, pool.authority, request.timeout, True) from None
                    return Answer(receipt.status, receipt.headers, body, request.url)
            finally:
                timer.cancel()
                if not receipt.done.done() or receipt.done.cancelled():
                    receipt.give_up()
            if not left:
                raise FetchFailed(
                    f"more than {request.redirects} redirects, the last from {pool.authority}",
                    sent=True,
                )
            left, sent = left - 1, True
            request = _redirected(request, pool.authority, receipt)

    async def close(self) -> None:
        """Requests under way fail."""
        self._closed = True
        pools = list(self._pools.values())
        self._pools.clear()
        await asyncio.gather(*[pool.close() for pool in pools])
        await self._guard.close()

    def _where(self, request: Fetch, sent: bool) -> tuple[Pool, str]:
        """The connections for a request, and what it asks for there."""
        if self._closed:
            raise FetchFailed("the gateway is closing", sent=sent)
        ordinary = _ORDINARY.fullmatch(request.url)
        if ordinary is not None and len(request.url) < LONGEST_TARGET:
            origin, target = ordinary.groups()
            key = (origin, request.allow_private)
            pool = self._pools.get(key)
            if pool is not None:
                self._pools.move_to_end(key)
                return pool, target
        try:
            address = parse(request.url)
            key = (f"{address.scheme}://{address.authority}", request.allow_private)
            pool = self._pools.get(key) or self._open(*key)
        except BadAddress as problem:
            raise FetchFailed(str(problem), sent=sent) from None
        self._pools.move_to_end(key)
        return pool, address.target

    def _open(self, origin: str, allow_private: bool) -> Pool:
        guard = None if allow_private else self._guard
        pool = Pool(
            origin, environ=self._environ, ssl_context=self._ssl_context, resolve=guard, packed=True
        )
        if len(self._pools) >= MOST_POOLS:
            for key in [key for key, old in self._pools.items() if not old.busy][
                : len(self._pools) - MOST_POOLS + 1
            ]:
                self._pools.pop(key).retire()
        self._pools[origin, allow_private] = pool
        return pool


def _header_lines(request: Fetch) -> bytes:
    """Raises ValueError, in words that hold no value."""
    if request.method not in _METHODS:
        raise ValueError("not a method that can be asked for")
    given: set[str] = set()
    parts: list[str] = []
    for name, value in request.headers:
        given.add(name.lower())
        parts.append(f"{name}: {value}\r\n")
        if not _NAME.fullmatch(name) or _OURS.fullmatch(name):
            raise ValueError("a header with a name that cannot be sent")
    for name, line in _DEFAULTS:
        if name not in given:
            parts.append(line)
    lines = "".join(parts)
    if lines.count("\n") != len(parts) or not _LINES.fullmatch(lines):
        raise ValueError("a line break or a control character in a header")
    try:
        return lines.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("a character in a header that is not latin-1") from None


def _failure(receipt: Receipt, host: str, timeout: float, sent: bool) -> FetchFailed:
    error = receipt.error
    if receipt.timed_out:
        return FetchFailed(f"{host} did not answer within {timeout:g} s", sent=sent, timed_out=True)
    if isinstance(error, Forbidden):
        return FetchFailed(str(error), sent=sent, forbidden=True)
    said = str(error) if host in str(error) else f"{host}: {error}"
    return FetchFailed(said, sent=sent, too_large=isinstance(error, TooLarge))


def _is_about_body(name: str) -> bool:
    return name.lower().startswith("content-")


def _redirected(request: Fetch, host: str, receipt: Receipt) -> Fetch:
    """The request to which an answer leads. Raises FetchFailed."""

    def odd(why: str) -> FetchFailed:
        return FetchFailed(f"{host} redirects {why}", sent=True, forbidden=True)

    location = receipt.headers.first[b"location"]
    try:
        before = parse(request.url)
        target = location.decode("utf-8", "replace").strip()
        to = parse(urljoin(before.url, target.replace(" ", "%20")))
    except ValueError:
        raise odd("to something that is no address of the web") from None
    method, headers, body = request.method, request.headers, request.body
    becomes_get = receipt.status == 303 or (receipt.status < 303 and method == "POST")
    if becomes_get and method not in ("GET", "HEAD"):
        method, body = "GET", b""
        headers = tuple([each for each in headers if not _is_about_body(each[0])])
    if (to.scheme, to.host, to.port) != (before.scheme, before.host, before.port):
        kept = tuple(
            header for header in headers if header[0].lower() not in PROOF | request.private
        )
        if before.tls and not to.tls and len(kept) < len(headers):
            raise odd("from https to http, where what proves us would be read by others")
        if body:
            raise odd(f"to {to.authority}, which would get a body that was not meant for it")
        headers = kept
    return replace(request, url=to.url, method=method, headers=headers, body=body)
