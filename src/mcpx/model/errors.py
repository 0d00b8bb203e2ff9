"""All errors of mcpx, as a tree, and the JSON-RPC codes that they are sent with.

    McpxError
    ├── RpcError               sent to a client as a JSON-RPC error
    │   ├── NotFound           a tool, prompt, or resource is unknown, or hidden from the caller
    │   ├── Denied             a rule, a person, or a limit denies the call
    │   ├── Unasked            no client could answer a server's request
    │   └── Unavailable        the server is down, timed out, died, or sent too much
    ├── Unproved               credentials for a request are not available
    ├── CommandFailed          a local command failed
    └── ConfigError            a mistake of the user in a file or on the command line; exit code 2
        └── Refused            (config/problems) in a file: also names the files to watch

`RpcError` is caught where a message is answered (front), `ConfigError` in `__main__`. Any other
exception that reaches the front is a bug, and is answered as an internal error.
"""

import math
from collections.abc import Sequence
from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""Older revisions only; from 2026-07-28 on an unknown resource is INVALID_PARAMS."""
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
REQUEST_CANCELLED = -32800

# Codes of our own, outside the range JSON-RPC reserves (-32768 … -32000).
SERVER_DOWN = -33001
SERVER_TIMEOUT = -33002
SERVER_DIED = -33003
SERVER_TOO_LARGE = -33004
SERVER_GARBAGE = -33005
OVERLOADED = -33006
GATEWAY_ENDING = -33007
DENIED = -33008
"""Policy refuses the call; its `reason` is in the message."""
NEEDS_APPROVAL = -33009
"""A person has to approve the call first; asked again after that, it passes."""

_PASSING = (SERVER_DOWN, SERVER_TIMEOUT, SERVER_DIED, OVERLOADED)
_NOT_NOW = (408, 425, 429)
_NEVER = (501, 505)
"""HTTP statuses that are about this moment though they are no 5xx; and 5xx that are not about this
moment."""


class McpxError(Exception):
    """Root of what mcpx raises on purpose."""


class RpcError(McpxError):
    """A JSON-RPC error: code, message and data, kept exactly as they are."""

    def __init__(
        self, code: int, message: str, data: Any = None, *, extra: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.extra = extra
        """Unknown fields of an upstream's error object; they survive."""
        self.http_status: int | None = None
        """The status of the HTTP answer it came with, if it was not a success."""
        self.foreign = False
        """Somebody else's own: it is passed on as it is."""

    @property
    def passing(self) -> bool:
        """The same request may well be taken later: "not now", as against "not at all"."""
        status = self.http_status
        return status is not None and (
            status in _NOT_NOW or (status >= 500 and status not in _NEVER)
        )

    def to_json(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        if self.extra:
            error.update(self.extra)
        return error

    @classmethod
    def from_json(cls, error: Any) -> "RpcError":
        if not isinstance(error, dict):
            return cls(INTERNAL_ERROR, "the server sent an error that is not an object")
        fields: dict[str, Any] = dict(error)  # pyright: ignore[reportUnknownArgumentType]
        code, message, data = (
            fields.pop("code", None),
            fields.pop("message", None),
            fields.pop("data", None),
        )
        made = cls(
            code if isinstance(code, int) else INTERNAL_ERROR,
            message if isinstance(message, str) else str(message),
            data,
            extra=fields or None,
        )
        made.foreign = True
        return made


def gateway_ending() -> RpcError:
    """What a call gets that did not finish within the grace of a shutdown."""
    return RpcError(
        GATEWAY_ENDING, "the gateway is ending; the call was cut off and may have had an effect"
    )


def cut_off() -> RpcError:
    """What a call gets whose replica went away while it ran."""
    text = (
        "the replica that ran this call is gone; the call was cut off, may have had an effect, "
        "and is not repeated"
    )
    return RpcError(GATEWAY_ENDING, text)


ECHOED = 2_000
"""Characters of a name that are said back."""


class NotFound(RpcError):
    """Nobody offers that name. A hidden tool reads exactly the same."""

    def __init__(self, noun: str, name: str, code: int = INVALID_PARAMS, *, hint: str = "") -> None:
        told = name if len(name) <= ECHOED else name[:ECHOED] + "…"
        said = f"Unknown {noun}: {told}. {hint}" if hint else f"Unknown {noun}: {told}"
        super().__init__(code, said, {"uri": told} if noun == "resource" else None)


class Denied(RpcError):
    """Not let through, and certainly not acted on: by a rule, a person, or a limit."""

    def __init__(
        self,
        code: int,
        message: str,
        data: dict[str, Any] | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        if retry_after is not None:
            data = {**(data or {}), "retry_after": math.ceil(retry_after)}
        super().__init__(code, message, data)
        self.retry_after = retry_after
        """Seconds after which it may well pass; over HTTP also a `Retry-After`."""


def overloaded(
    text: str, *, status: int, retry_after: float = 1.0, limit: str | None = None
) -> Denied:
    """More is asked for than is given: of one client (429), or of what all share (503)."""
    denied = Denied(
        OVERLOADED, text, None if limit is None else {"limit": limit}, retry_after=retry_after
    )
    denied.http_status = status
    return denied


class Unasked(RpcError):
    """A question of a server that was put to nobody, or to a call that was over before its client
    had answered."""

    def __init__(self, method: str) -> None:
        super().__init__(METHOD_NOT_FOUND, f"nobody here can be asked {method}")


class Unavailable(RpcError):
    """An error mcpx makes on a server's behalf; the message starts with the server's configured
    name."""

    def __init__(
        self,
        server: str,
        code: int,
        reason: str,
        *,
        http_status: int | None = None,
        challenge: str | None = None,
    ) -> None:
        super().__init__(code, f"{server}: {reason}", {"server": server})
        self.server = server
        self.http_status = http_status
        self.challenge = challenge
        """With a 401 or 403: how the server wants us to sign in (`WWW-Authenticate`), if it says
        so."""
        self.unsent = False
        """The server certainly did not act on the request, so it may be sent again."""
        self.retry_after: float | None = None
        """Seconds after which the server, which did not act on the request, wants to be asked
        again."""

    def say(self, message: str) -> None:
        """The same in other words."""
        self.message, self.args = message, (message,)

    @property
    def passing(self) -> bool:
        return super().passing or (self.http_status is None and self.code in _PASSING)


class Unproved(McpxError):
    """The gateway cannot prove itself: a token server is down or refuses, or somebody has to sign
    in first. The words hold no secret."""

    def __init__(self, reason: str, *, sign_in: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sign_in = sign_in
        """A person has to."""


class ConfigError(McpxError):
    """Something the user can mend. `problems` are ready to print, one per finding."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n\n".join(problems))
        self.problems = list(problems)
