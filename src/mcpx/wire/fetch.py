"""HTTP requests to anywhere: over pooled connections, through proxies, with redirects, unpacked, and within bounds.

Promised: nothing is reached that may not be (`allow_private`), whatever a name resolves to and wherever a redirect
leads; what proves us (`private` headers) goes to the origin it was meant for and to no other; an answer is bounded in
bytes, packed and unpacked, and in time.
No promise: HTTP/2, cookies, caching, retries (the caller knows what may be repeated).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcpx.wire.exchange import Headers

TIMEOUT = 30.0
LIMIT = 10 * 2**20
REDIRECTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """One request."""

    url: str = field(repr=False)
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)
    private: frozenset[str] = frozenset()
    """Names of headers, in lower case, that go to the origin of `url` only; `authorization`, `cookie` and
    `proxy-authorization` always do."""
    timeout: float = TIMEOUT
    """Seconds for all of it, redirects included."""
    limit: int = LIMIT
    """Bytes of a body, packed and unpacked."""
    redirects: int = REDIRECTS
    """How many are followed."""
    allow_private: bool = False
    """Whether loopback, private, link-local and metadata addresses may be reached."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Headers
    body: bytes = field(repr=False)
    """Unpacked."""
    url: str = field(repr=False)
    """Where it came from in the end."""


class FetchFailed(Exception):
    """There is no answer; says why in words that hold nothing of the URL but its host."""

    def __init__(self, reason: str, *, sent: bool, timed_out: bool = False, forbidden: bool = False) -> None:
        super().__init__(reason)
        self.sent = sent
        """The server may have acted on the request."""
        self.timed_out = timed_out
        self.forbidden = forbidden
        """It may not be reached: a private address, an odd redirect."""


class Fetcher:
    """All of a gateway's connections to APIs."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """`environ` may name proxies."""
        self._environ = environ

    async def fetch(self, request: Fetch) -> Answer:
        """Raises `FetchFailed`; `ValueError` for what cannot be sent (a line break in a header)."""
        raise NotImplementedError

    async def close(self) -> None:
        pass
