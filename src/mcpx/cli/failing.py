"""How commands that use tools fail: what is said, for people or programs, and the exit code."""

import json
import sys
from collections.abc import Sequence

from mcpx.cli.codes import FAILED, MISTAKE, PARTIAL, SIGN_IN, TIMED_OUT, WAITS
from mcpx.cli.terminal import plain, shown
from mcpx.model.call import Json
from mcpx.model.errors import (
    DENIED,
    NEEDS_APPROVAL,
    OVERLOADED,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_TIMEOUT,
    RpcError,
)

KINDS = {
    DENIED: ("denied", WAITS),
    NEEDS_APPROVAL: ("needs_approval", WAITS),
    OVERLOADED: ("overloaded", FAILED),
    SERVER_DOWN: ("server_down", PARTIAL),
    SERVER_DIED: ("server_down", PARTIAL),
    SERVER_TIMEOUT: ("timed_out", TIMED_OUT),
}


def failed(error: RpcError, servers: Sequence[Json], server: str, as_json: bool) -> int:
    """Of a request that has no result."""
    word, code = KINDS.get(error.code, ("failed", FAILED))
    message = error.message
    state = next((each.get("status") for each in servers if each.get("name") == server), None)
    if word == "server_down" and state == "needs_auth":
        word, code = "needs_sign_in", SIGN_IN
        message += f"\n  sign in: mcpx auth login {server}"
    return tell(word, message, code, as_json, rpc=error.to_json())


def unknown(message: str, as_json: bool) -> int:
    return tell("not_found", message, MISTAKE, as_json)


def missing(found: Json, target: str, as_json: bool) -> int:
    """A tool or a server that exists and is not offered. The reason is for the administrator, not
    for MCP clients.

    `target`: see `where.same_target`."""
    message = f"{found['message']}\n  {missing_hint(found, target)}"
    return tell("not_found", message, MISTAKE, as_json, reason=found["reason"])


def missing_hint(found: Json, target: str) -> str:
    # The hint ends with a command, except for a server that is starting.
    return str(found["hint"]) + ("" if found["reason"] == "starting" else target)


def tell(word: str, message: str, code: int, as_json: bool, **more: object) -> int:
    if as_json:
        sys.stderr.write(json.dumps({"error": {"code": word, "message": message, **more}}) + "\n")
    else:
        sys.stderr.write(f"error: {shown(message)}\n")
    return code


def down(server: Json, as_json: bool) -> int:
    """A server that could not be reached."""
    name = str(server.get("name"))
    if server.get("status") == "needs_auth":
        return tell(
            "needs_sign_in",
            f"{name} wants somebody to sign in: mcpx auth login {name}",
            SIGN_IN,
            as_json,
        )
    why = plain(str(server.get("last_error") or "it cannot be reached")).removeprefix(f"{name}: ")
    return tell("server_down", f"{name} is down: {why}", PARTIAL, as_json)
