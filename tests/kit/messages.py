"""JSON-RPC messages of clients: older requests, requests of 2026-07-28 with their headers, and
parts of results."""

from typing import Any

Json = dict[str, Any]

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
"""Prefix of the keys in `_meta`."""


def request(method: str, params: Json | None = None, id: Any = 1) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method} | (
        {} if params is None else {"params": params}
    )


def notification(method: str, params: Json | None = None) -> Json:
    return {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})


def initialize_request(
    version: str = "2025-11-25",
    capabilities: Json | None = None,
    id: Any = 0,
    client: Json | None = None,
) -> Json:
    client = client or {"name": "raw", "version": "1"}
    params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": client}
    return request("initialize", params, id)


def modern_request(
    method: str, params: Json | None = None, id: Any = 1, capabilities: Json | None = None
) -> Json:
    """A request of 2026-07-28. Its `_meta` has the protocol version and the client's
    capabilities."""
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": capabilities or {}}
    return request(
        method, {**(params or {}), "_meta": {**meta, **(params or {}).get("_meta", {})}}, id
    )


def modern_headers(message: Json, **more: str) -> dict[str, str]:
    """The HTTP headers of 2026-07-28 that repeat parts of the request."""
    params = message["params"]
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
    name = params.get("uri") if message["method"] == "resources/read" else params.get("name")
    return headers | ({"Mcp-Name": name} if name is not None else {}) | more


def text_of(message: Json) -> str:
    """The first text in the result of a tool call."""
    assert "result" in message, message
    return message["result"]["content"][0]["text"]


def structured_content(message: Json) -> Json:
    """The structured result of a tool call."""
    assert "result" in message, message
    return message["result"]["structuredContent"]
