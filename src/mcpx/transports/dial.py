"""What every transport is told when it is to open a conversation."""

from collections.abc import Mapping
from dataclasses import dataclass

from mcpx.wire.era import ParamHeaders
from mcpx.wire.peer import Inbound


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
