"""The one value that travels through the middle of mcpx, and who sent it.

Everything that can answer a `Call` has the same shape, `async (Call) -> dict`. Params and results
are raw JSON as it came off the wire: what only passes through is neither validated nor re-modelled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeGuard, cast

if TYPE_CHECKING:
    from mcpx.model.requests import Request

ANONYMOUS: Final = "anonymous"
"""The principal of callers without a credential, where none is required."""
LOCAL: Final = "local"
"""The principal of clients over stdio and of programs that use mcpx as a library."""
ADMIN: Final = "admin"
"""The principal of calls from the admin UI and API."""
RESERVED_PRINCIPALS: Final = frozenset((ANONYMOUS, LOCAL, ADMIN))
"""Names that the gateway gives. No credential from outside may stand for one of them."""

Json = dict[str, Any]
Value = Json | list[Any] | str | int | float | bool | None
"""Anything that JSON can say."""


def as_object(value: Any) -> Json:
    """`value` if it is a JSON object, else an empty one: what strangers send may be anything."""
    return cast(Json, value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """`value` if it is a JSON array, else an empty one."""
    return value if is_array(value) else []


def is_object(value: object) -> TypeGuard[Json]:
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


class Voice(Protocol):
    """The way back to whoever made a call, while the call is running.

    `ask` puts a question (sampling, elicitation, roots) to exactly that client; `tell` sends a
    notification that belongs to the call (progress, log messages). `tell` never blocks and never
    fails.
    """

    async def ask(self, server: str, method: str, params: Json | None) -> Json: ...

    def tell(self, method: str, params: Json) -> None: ...

    def pause(self, retry_ms: int) -> None:
        """The server wants to be polled: a client that can poll is told to come back for the
        rest."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. Built by the front edge once per session (older protocol) or per request
    (modern)."""

    principal: str = ANONYMOUS
    profile: str | None = None
    """The named view they came in through; None: everything."""
    address: str = ""
    """Of the machine they call from; empty where there is no network between."""
    client: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`clientInfo` as the client sent it; empty when unknown."""
    version: str = "2025-11-25"
    """Protocol revision this caller speaks."""
    modern: bool = False
    """2026-07-28 or later: no session, no questions pushed to the client."""
    mode: str | None = None
    """The surface this caller asked for; None: the configured one."""
    session: str | None = None
    """Older protocol only: what tells this conversation from the others."""
    solo: bool = False
    """The front has exactly one client (stdio), so every link is private to it already."""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log_level: str | None = None
    voice: Voice | None = None
    """The way back to this caller outside of any one call; of a modern one, to its request."""
    since: float = 0.0
    """When this caller's first message came, by the monotonic clock."""

    @property
    def answers(self) -> Mapping[str, Any]:
        """The capabilities by which this caller can be asked something back."""
        if not self.capabilities:
            return self.capabilities
        return {
            key: self.capabilities[key] for key in QUESTION_CAPABILITIES if key in self.capabilities
        }


QUESTION_CAPABILITIES = ("sampling", "elicitation", "roots")


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    params: Json
    """Raw, as it came; unknown fields survive."""
    caller: Caller
    own_voice: Voice | None = None
    """Where each call has a stream of its own: the way back on that."""
    request: "Request | None" = None
    """The client's request that it belongs to, where requests are followed."""

    @property
    def id(self) -> str | None:
        """By which people find the request in logs; None where requests are not followed."""
        return None if self.request is None else self.request.id

    @property
    def voice(self) -> Voice | None:
        """The way back to whoever waits for this call."""
        return self.caller.voice if self.own_voice is None else self.own_voice
