"""What every transport needs to open a conversation, and conversations over one ordered carrier."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcpx.model.call import Json
from mcpx.model.errors import SERVER_DOWN, SERVER_TIMEOUT, Unavailable
from mcpx.processes.environment import running_inside
from mcpx.processes.stderrlog import Overhear
from mcpx.wire.address import BadAddress
from mcpx.wire.era import ParamHeaders
from mcpx.wire.http_client import Pool
from mcpx.wire.peer import Inbound, Meanwhile, Peer

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials, Proof
    from mcpx.transports.proving import Proving

VIA = "mcpx-via"
EACH_SAYS = frozenset({"accept", "accept-encoding", "content-type"})
"""Headers that differ from request to request."""


UNTOLD = "; what it said is in the log and in `mcpx servers`"
"""Stands in an error where the server's own words would."""


@dataclass(frozen=True, slots=True)
class Dial:
    name: str
    """The server's configured name; it stands in every error and log line."""
    inbound: Inbound
    timeout: float
    """Seconds to reach the server."""
    limit: int
    """Largest message taken from the server, in bytes (`max_message`)."""
    environ: Mapping[str, str]
    """The gateway's own environment: proxies, certificates, what a child may inherit."""
    annotations: Mapping[str, ParamHeaders]
    """`x-mcp-header` annotations by tool name, a live view: a modern HTTP server checks the headers
    they ask for."""
    credentials: "Credentials | None" = None
    """What proves the gateway to the server; a child process needs none."""
    itself: str = ""
    """What marks this gateway to itself, should what it dials turn out to be the gateway; empty:
    nothing does."""

    confide: Callable[[str], bool] = lambda words: False
    """Takes what a server said to nobody in particular, before it is told; whether it must not be
    told to clients. It may be about any of them."""

    overhear: Overhear | None = None
    """Hears every line a process writes to standard error; nobody does unless somebody looks after
    servers."""

    output_began: Callable[[], None] = lambda: None
    """Called when a process has written its first byte to standard output."""

    def quoting(self, words: str, said: str) -> str:
        """What to put behind a complaint: `said`, which has these words in it, or where they are to
        be found."""
        return said if not words or not self.confide(words) else UNTOLD

    @property
    def via(self) -> tuple[tuple[str, str], ...]:
        """The header that tells an HTTP server which gateways a request came through; none without
        a mark."""
        return (
            ((VIA, ", ".join((*running_inside(self.environ), self.itself))),) if self.itself else ()
        )

    def headers(
        self, own: Mapping[str, str], proof: "Proof | None" = None
    ) -> list[tuple[bytes, bytes]]:
        """What goes with every request, for `header_lines`."""
        pairs = self.named_headers(own, proof)
        return [(name.encode(), value.encode("latin-1", "replace")) for name, value in pairs]

    def named_headers(
        self, own: Mapping[str, str], proof: "Proof | None" = None
    ) -> list[tuple[str, str]]:
        """The configured ones, ours, and those of the proof, which take the place of configured
        ones. Of those that a request says itself there must not be two; many people's files have
        them, copied from an example."""
        proved = () if proof is None else proof.headers
        taken = EACH_SAYS.union([name.lower() for name, _ in proved]) if proved else EACH_SAYS
        named = [(name, value) for name, value in own.items() if name.lower() not in taken]
        return [*named, *[pair for pair in proved if pair[0].lower() not in EACH_SAYS], *self.via]

    def proving(self, took: "Callable[[Proof], None]") -> "Proving | None":
        """What sees to the proofs of a conversation; None where it needs none."""
        if self.credentials is None:
            return None
        from mcpx.transports.proving import Proving  # who has no credentials does without

        return Proving(self.name, self.credentials, took)

    def pool(self, url: str) -> Pool:
        """Connections to this address, or to the proxy before it. Raises Unavailable for one that
        cannot be."""
        try:
            return Pool(url, connect_timeout=self.timeout, environ=self.environ)
        except BadAddress as error:
            raise Unavailable(self.name, SERVER_DOWN, f"cannot connect: {error}") from None


class Carried:
    """A conversation over a carrier that moves whole messages in order: stdio, WebSocket, SSE."""

    def __init__(self, dial: Dial, transmit: Callable[[bytes], None]) -> None:
        """`transmit` sends one message; it never blocks and never fails."""
        self._dial = dial
        self._peer = Peer(dial.name, transmit, dial.inbound)

    def _backlog(self) -> Awaitable[None] | None:
        """What to wait for before more is sent: that the server reads what it was sent. None: it
        does."""
        return None

    def request(
        self,
        method: str,
        params: Json,
        *,
        meanwhile: Meanwhile | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, Json]:
        sent = self._peer.request(method, params, meanwhile=meanwhile, timeout=timeout)
        backlog = self._backlog()
        return sent if backlog is None else self._when_read(backlog, sent, timeout)

    async def _when_read(
        self, backlog: Awaitable[None], sent: Coroutine[Any, Any, Json], timeout: float | None
    ) -> Json:
        """A server that stops reading must not grow our memory: wait for it, inside the request's
        own time."""
        try:
            async with asyncio.timeout(timeout):
                waiting: Awaitable[None] | None = backlog
                while waiting is not None:  # those that waited with this one may have been quicker
                    await waiting
                    waiting = self._backlog()
        except BaseException as error:
            sent.close()
            if isinstance(error, TimeoutError):
                problem = Unavailable(
                    self._dial.name, SERVER_TIMEOUT, "does not read what it is sent"
                )
                problem.unsent = True
                raise problem from None
            raise
        return await sent

    def notify(self, method: str, params: Json | None) -> None:
        self._peer.notify(method, params)

    def agreed(self, version: str) -> None:
        """Nothing changes with the revision."""

    def memory(self) -> int:
        return 0

    async def close(self) -> None:
        await self._peer.close()
