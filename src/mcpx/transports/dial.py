"""What every transport is told when it is to open a conversation."""

from collections.abc import Mapping
from dataclasses import dataclass

from mcpx.transports.environment import running_inside
from mcpx.wire.era import ParamHeaders
from mcpx.wire.peer import Inbound

VIA = "mcpx-via"


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
    """`x-mcp-header` annotations by tool name, a live view: a modern HTTP server checks the headers they ask for."""
    itself: str = ""
    """What marks this gateway to itself, should what it dials turn out to be the gateway; empty: nothing does."""

    @property
    def via(self) -> tuple[tuple[str, str], ...]:
        """The header that tells an HTTP server which gateways a request came through; none without a mark."""
        return ((VIA, ", ".join((*running_inside(self.environ), self.itself))),) if self.itself else ()
