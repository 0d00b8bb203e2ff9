"""JSON-RPC 2.0 messages as plain dicts: what they are, and how to make one.

MCP narrows JSON-RPC: ids are strings or integers, params are objects, batches are refused in every revision.
"""

from typing import Any, Literal, TypeGuard

from mcpx.model.call import Json
from mcpx.model.errors import RpcError

MessageKind = Literal["request", "notification", "response", "invalid"]


def classify(message: Any) -> MessageKind:
    """What kind of message this is. Only the envelope is looked at, never params or result beyond their type."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":  # pyright: ignore[reportUnknownMemberType]
        return "invalid"
    if "method" in message:
        method, params = message["method"], message.get("params")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if not isinstance(method, str) or not (params is None or isinstance(params, dict)):
            return "invalid"
        if "id" not in message:
            return "notification"
        return "request" if is_id(message["id"]) else "invalid"
    if "id" in message and ("result" in message or "error" in message):
        return "response"
    return "invalid"


def params_of(message: Json) -> Json:
    """The params of a classified message; absent ones are empty."""
    return message.get("params") or {}


def is_id(value: Any) -> TypeGuard[str | int]:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def request(id: str | int, method: str, params: Json | None) -> Json:
    if params is None:
        return {"jsonrpc": "2.0", "id": id, "method": method}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification(method: str, params: Json | None) -> Json:
    if params is None:
        return {"jsonrpc": "2.0", "method": method}
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(id: str | int, value: Json) -> Json:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def failure(id: str | int | None, error: RpcError) -> Json:
    return {"jsonrpc": "2.0", "id": id, "error": error.to_json()}
