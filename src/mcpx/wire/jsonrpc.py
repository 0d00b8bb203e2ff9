"""JSON-RPC 2.0 messages as plain dicts: what they are, and how to make one.

MCP narrows JSON-RPC: ids are strings or integers, params are objects, batches are refused in every
revision.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeGuard, cast

from mcpx.model.call import Json
from mcpx.model.errors import INTERNAL_ERROR, RpcError

MessageKind = Literal["request", "notification", "response", "invalid"]


def classify(message: Any) -> MessageKind:
    """What kind of message this is. Only the envelope is looked at, never params or result beyond
    their type."""
    if not isinstance(message, dict):
        return "invalid"
    fields: Json = message  # pyright: ignore[reportUnknownVariableType]
    if fields.get("jsonrpc") != "2.0":
        return "invalid"
    if "method" in fields:
        params = fields.get("params")
        if not isinstance(fields["method"], str) or not isinstance(params, dict | None):
            return "invalid"
        if "id" not in fields:
            return "notification"
        return "request" if is_id(fields["id"]) else "invalid"
    if "id" in fields and ("result" in fields or "error" in fields):
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


def failure(
    id: str | int | None, error: RpcError, request_id: Callable[[], str] | None = None
) -> Json:
    """`request_id`: by which people find the request in logs; an error of ours tells it, in `data`
    where that has room for it. Somebody else's stays as it is (PRO-6)."""
    told = error.to_json()
    if request_id is not None and not error.foreign:
        data = told.get("data")
        if data is None or isinstance(data, dict):
            told["data"] = {**cast(Json, data or {}), "request_id": request_id()}
    return {"jsonrpc": "2.0", "id": id, "error": told}


def broken(id: str | int, request_id: str) -> Json:
    """The answer to a request that met a bug of ours; the log says more, under that id."""
    return failure(
        id, RpcError(INTERNAL_ERROR, f"Internal error (request {request_id})"), lambda: request_id
    )
