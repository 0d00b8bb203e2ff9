"""What an HTTP answer that is no success means for the message that got it.

Promise: the error names the server and the status and says in one short printable line what the body says, whoever
wrote it: an MCP server, a framework, a login page, a proxy. The gateway's own credentials are not among its words.
A JSON-RPC error in the body is the server's own and stays as it is, except where the answer is not about the message
at all but about us (401) or about the moment (429, 503).
"""

from collections.abc import Iterable
from typing import Any

from mcpx.model.call import as_object
from mcpx.model.errors import SERVER_DOWN, RpcError, Unavailable
from mcpx.wire import codec
from mcpx.wire.exchange import Headers, retry_after

__all__ = ["BODY", "refusal"]

BODY = 65536
"""Bytes of an error's body that are worth looking at."""
REASON = 200
"""Characters of a server's own words."""


def refusal(
    name: str, status: int, headers: Headers, body: bytes, secrets: Iterable[str] = (), *, other_type: str = ""
) -> RpcError:
    """The error for an answer with this status; `secrets` are the values of the headers we sent, `other_type` is how
    a server is to be reached that is not found in this way."""
    message = _loaded(body)
    own = message.get("error")
    if message.get("jsonrpc") == "2.0" and isinstance(own, dict) and status not in (401, 429, 503):
        error = RpcError.from_json(own)
        error.http_status = status
        return error
    said = _printable(_without(secrets, _words(message, body)))
    reason = _meaning(status, headers, other_type) + (f": {said}" if said else "")
    challenge = ", ".join(headers.all("www-authenticate")) or None if status == 401 else None
    problem = Unavailable(name, SERVER_DOWN, reason, http_status=status, challenge=challenge)
    if status in (429, 503):
        problem.retry_after = retry_after(headers)
    return problem


def _meaning(status: int, headers: Headers, other_type: str) -> str:
    if status == 401:
        return "wants the gateway to sign in (HTTP 401)"
    if status == 403:
        return "does not let the gateway in with the credentials it has (HTTP 403)"
    if 300 <= status < 400:
        return f"redirects to {_printable(headers.get('location') or '')}; put that address into the config"
    if status in (404, 405, 501):  # 501: what knows GET only
        return (
            f"no MCP endpoint at this address (HTTP {status}){f'; it may need type: {other_type}' * bool(other_type)}"
        )
    return f"answered with HTTP {status}"


def _loaded(body: bytes) -> dict[str, Any]:
    try:
        return as_object(codec.load(body)) if body else {}
    except codec.BadJson:
        return {}


def _words(message: dict[str, Any], body: bytes) -> str:
    """What an error's body says: a field that is meant for people, else the first line of what is no markup."""
    own = as_object(message.get("error"))
    for value in (
        *(message.get("error_description"), own.get("message"), message.get("message"), message.get("detail")),
        *(message.get("title"), message.get("error")),
    ):
        if isinstance(value, str) and value.strip():
            return value
    text = body.decode("utf-8", "replace").lstrip()
    return "" if message or text[:1] in ("<", "{", "[") else text.partition("\n")[0]


def _printable(text: str) -> str:
    line = " ".join("".join([c if c.isprintable() else " " for c in text[: 4 * REASON]]).split())
    return line if len(line) <= REASON else line[:REASON] + "…"


def _without(secrets: Iterable[str], text: str) -> str:
    for secret in secrets:
        for part in (secret, secret.rpartition(" ")[2]):  # `Bearer x` may be said back as x
            if len(part) >= 6:
                text = text.replace(part, "***")
    return text
