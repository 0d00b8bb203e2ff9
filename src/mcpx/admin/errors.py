"""Every error of the API in one shape: `{"error": {"code", "message", "path", "hint", "errors"?}}`.

Promise: whatever goes wrong, the answer has this shape and no traceback; what nobody expected is a
500 with an id that stands in the log beside the traceback. Values that were sent are not repeated:
they may be secret, or not even text.
"""

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

import orjson

from mcpx.admin.sentences import said
from mcpx.model.errors import ConfigError, Unavailable

log = logging.getLogger(__name__)

CODES: dict[int, tuple[str, str]] = {
    400: ("bad_request", "The request is not what it should be."),
    401: ("unauthorized", "No token, or one that is not known."),
    403: ("forbidden", "The address, the host, or the origin of the request is not allowed."),
    404: ("not_found", "There is no such thing."),
    405: ("method_not_allowed", "The path is known, this method is not."),
    408: (
        "too_slow",
        "The request did not arrive in time, or whoever asked had gone before it was over.",
    ),
    409: ("conflict", "It does not go with how things are now."),
    412: ("stale", "The configuration has changed since it was read."),
    413: ("too_large", "The body is larger than 4 MiB."),
    415: ("unsupported_media_type", "The body is not JSON."),
    421: ("wrong_host", "The request was meant for another host."),
    422: ("invalid", "What was sent is not valid."),
    428: ("precondition_required", "If-Match is missing."),
    429: ("too_many_attempts", "Too many attempts; Retry-After says when to come again."),
    431: ("headers_too_large", "The head is too large."),
    500: ("internal", "A mistake in mcpx; its id stands in the log."),
    502: ("bad_gateway", "A server did not do what was asked of it."),
    503: ("unavailable", "Not now."),
    504: ("timeout", "A server took too long."),
}
"""The code that goes with a status where nobody says another one, and what the API's document says
of it."""


class ApiError(Exception):
    """An answer that is an error; raised anywhere below a route."""

    def __init__(
        self,
        status: int,
        code: str | None,
        message: str,
        path: str | None = None,
        hint: str | None = None,
        *,
        errors: Sequence[Mapping[str, Any]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`code` None is that of the status."""
        super().__init__(message)
        self.status = status
        self.code = code or CODES[status][0]
        self.message = message
        self.path = path
        self.hint = hint
        self.errors = errors
        self.headers = headers or {}

    def body(self) -> bytes:
        told: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "path": self.path,
            "hint": self.hint,
        }
        if self.errors is not None:
            told["errors"] = list(self.errors)
        if found := said({"message": self.message, "hint": self.hint}):
            told["said"] = {name: asdict(sentence) for name, sentence in found.items()}
        return orjson.dumps(plain({"error": told}))


def of_config_error(error: ConfigError, status: int = 422) -> ApiError:
    """What is wrong with a configuration, as its reader said it."""
    mistakes = [{"path": None, "message": problem} for problem in error.problems]
    first = error.problems[0] if error.problems else "the configuration is not valid"
    return ApiError(status, "invalid_config", first, errors=mistakes)


def error_of(error: Exception, method: str, path: str) -> ApiError:
    """The response to an exception of a route."""
    match error:
        case ApiError():
            return error
        case ConfigError():
            return of_config_error(error)
        case Unavailable():
            return ApiError(502, "server_unavailable", str(error))
        case RecursionError():
            return ApiError(422, "too_deep", "what was sent is nested too deeply")
        case _:
            return _unexpected(error, method, path)


def _unexpected(error: Exception, method: str, path: str) -> ApiError:
    id = secrets.token_hex(4)
    log.error("admin: %s %s failed [%s]", method, path, id, exc_info=error)
    hint = f"the log of the gateway says more: look for {id}"
    return ApiError(500, None, f"something went wrong inside of mcpx [{id}]", hint=hint)


def field_path(location: Sequence[str | int]) -> str | None:
    """`servers[2].name` in the body, otherwise `query.name`, `path.name`, or `header.name`."""
    steps = list(location)
    if steps[:1] == ["body"]:
        del steps[0]
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".") or None


def moment(seconds: float | None) -> str | None:
    """RFC 3339, with milliseconds."""
    return None if seconds is None else told_at(seconds)


def told_at(seconds: float) -> str:
    whole, part = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{part:03d}Z"


def quoted(etag: str) -> str:
    """As it stands in headers, and so everywhere."""
    return f'"{etag}"'


def plain(value: Any) -> Any:
    """The same without halves of surrogate pairs, which no encoder takes; nearly always the very
    same object."""
    try:
        orjson.dumps(value)
        return value
    except TypeError:
        return _mended(value)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_mended(key): _mended(its) for key, its in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_mended(its) for its in cast("list[Any]", value)]
    if isinstance(value, float) and value - value != 0:
        return None  # an infinity, which JSON cannot say
    return value
