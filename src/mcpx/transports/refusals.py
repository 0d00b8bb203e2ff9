"""Errors for HTTP responses that report a failure or have unexpected content.

Promise: the error names the server and the status and says in one short printable line what the
body says, whoever wrote it: an MCP server, a framework, a login page, a proxy. The gateway's own
credentials are not among its words. A JSON-RPC error in the body is the server's own and stays as
it is, except where the answer is not about the message at all but about us (401, or 403 for want of
a scope) or about the moment (429, 503).
"""

from collections.abc import Iterable
from typing import Any

from mcpx.base.text import one_line
from mcpx.model.call import as_object
from mcpx.model.errors import SERVER_DOWN, RpcError, Unavailable
from mcpx.model.redaction import excerpt, without
from mcpx.wire import codec
from mcpx.wire.exchange import Headers, retry_after

__all__ = ["BODY", "about_us", "refusal", "unexpected"]

BODY = 65536
"""Bytes of an error's body that are worth looking at."""


def refusal(
    name: str,
    status: int,
    headers: Headers,
    body: bytes,
    secrets: Iterable[str] = (),
    *,
    other_type: str = "",
) -> RpcError:
    """The error for an answer with this status; `secrets` are the values of what we sent,
    `other_type` is how a server is to be reached that is not found in this way."""
    if secrets := tuple(secrets):
        body = without(secrets, body.decode("utf-8", "replace")).encode()
    message = _loaded(body)
    own = message.get("error")
    challenge = ", ".join(headers.all("www-authenticate")) or None if status in (401, 403) else None
    ours = status in (401, 429, 503) or _wants_scope(status, challenge)
    if message.get("jsonrpc") == "2.0" and isinstance(own, dict) and not ours:
        own = as_object(own)
        if isinstance(told := own.get("message"), str):
            own["message"] = without(secrets, told)  # what the body spells with escapes
        error = RpcError.from_json(own)
        error.http_status = status
        return error
    said = one_line(without(secrets, _words(message, body)))
    reason = _meaning(status, headers, other_type, secrets) + (f": {said}" if said else "")
    problem = Unavailable(name, SERVER_DOWN, reason, http_status=status, challenge=challenge)
    if status in (429, 503):
        problem.retry_after = retry_after(headers)
    return problem


def unexpected(
    expected: str, status: int, headers: Headers, body: bytes, secrets: Iterable[str] = ()
) -> str:
    """The reason for a success with another content than `expected`: status, content type, and
    first bytes."""
    secrets = tuple(secrets)

    def redact(text: str) -> str:
        return without(secrets, text)

    kind = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    what = f"HTTP {status} and {one_line(redact(kind)) or 'no content type'}"
    begin = excerpt(body, redact)
    began = f"The body began: {begin}" if begin else "The body was empty."
    return f"answered with {what} instead of {expected}; check its URL. {began}"


def about_us(error: BaseException) -> bool:
    """Whether a server refused what proves us, and did not act on the message: another proof may
    help."""
    if not isinstance(error, Unavailable):
        return False
    return error.http_status == 401 or _wants_scope(error.http_status, error.challenge)


def _wants_scope(status: int | None, challenge: str | None) -> bool:
    return status == 403 and challenge is not None and "insufficient_scope" in challenge


def _meaning(status: int, headers: Headers, other_type: str, secrets: Iterable[str]) -> str:
    if status == 401:
        return "wants the gateway to sign in (HTTP 401)"
    if status == 403:
        return "does not let the gateway in with the credentials it has (HTTP 403)"
    if 300 <= status < 400:
        where = one_line(
            without(secrets, headers.get("location") or "")
        )  # it may hold the query that was asked with
        return f"redirects to {where}; put that address into the config"
    if status in (404, 405, 501):  # 501: what knows GET only
        return (
            "no MCP endpoint at this address (HTTP "
            f"{status}){f'; it may need type: {other_type}' * bool(other_type)}"
        )
    return f"answered with HTTP {status}"


def _loaded(body: bytes) -> dict[str, Any]:
    try:
        return as_object(codec.load(body)) if body else {}
    except codec.BadJson:
        return {}


def _words(message: dict[str, Any], body: bytes) -> str:
    """What an error's body says: a field that is meant for people, else the first line of what is
    no markup."""
    own = as_object(message.get("error"))
    for value in (
        *(
            message.get("error_description"),
            own.get("message"),
            message.get("message"),
            message.get("detail"),
        ),
        *(message.get("title"), message.get("error")),
    ):
        if isinstance(value, str) and value.strip():
            return value
    text = body.decode("utf-8", "replace").lstrip()
    return "" if message or text[:1] in ("<", "{", "[") else text.partition("\n")[0]
