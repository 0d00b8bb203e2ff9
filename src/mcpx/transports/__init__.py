"""How a link reaches a server. One class per way: its config fields and its behaviour.

A transport opens conversations; it knows nothing of eras, catalogs or callers.
"""

from mcpx.transports.http import Http
from mcpx.transports.memory import Memory
from mcpx.transports.sse import Sse
from mcpx.transports.stdio import Stdio
from mcpx.transports.websocket import Websocket

Transport = Stdio | Http | Sse | Websocket | Memory
TRANSPORTS: dict[str, type[Transport]] = {"stdio": Stdio, "http": Http, "sse": Sse, "websocket": Websocket}
"""What a config file may name."""

__all__ = ["TRANSPORTS", "Http", "Memory", "Sse", "Stdio", "Transport", "Websocket"]
