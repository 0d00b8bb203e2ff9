"""How a link reaches a server. One class per way: its config fields and its behaviour.

A transport opens conversations; it knows nothing of eras, catalogs or callers.
"""

from mcpx.transports.http import Http
from mcpx.transports.sse import Sse
from mcpx.transports.stdio import Stdio
from mcpx.transports.websocket import Websocket

Transport = Stdio | Http | Sse | Websocket
TRANSPORTS: dict[str, type[Transport]] = {"stdio": Stdio, "http": Http, "sse": Sse, "websocket": Websocket}

__all__ = ["TRANSPORTS", "Http", "Sse", "Stdio", "Transport", "Websocket"]
