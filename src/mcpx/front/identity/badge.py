"""The values of who is who: a badge for whoever may come in, a refusal for whoever may not."""

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from mcpx.model.call import Json
from mcpx.wire.exchange import Exchange, Headers

NEVER: Final = float("inf")
LONGEST: Final = 16 << 10
"""Bytes of a token that is looked at."""


@dataclass(frozen=True, slots=True)
class Badge:
    """What somebody showed, once it was found to be good. Never the secret itself."""

    principal: str
    doors: tuple[str, ...] = ()
    """Profiles that it opens, the one at `/mcp` first; empty: everything, and profiles that name
    nobody."""
    expires: float = NEVER
    """By the clock on the wall."""
    digest: bytes = field(default=b"", repr=False)
    """Of the token: tells one from another that has the same name."""
    key: str | None = None
    """A signed one: which key signed it."""
    scopes: frozenset[str] = frozenset()
    """A signed one: what its issuer gave it."""
    audience: tuple[str, ...] = ()
    """A signed one: whom it is meant for."""


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    text: str
    error: str | None = None
    """As OAuth calls it; None: nothing was shown."""
    scopes: tuple[str, ...] = ()
    """Of which one would do."""
    retry_after: int | None = None


NO_TOKEN: Final = Refusal(401, "a bearer token is required")
WRONG_TOKEN: Final = Refusal(
    401, "a bearer token is required, and this one is not good", "invalid_token"
)


class Identity(Protocol):
    """One way of telling who somebody is."""

    def admit(self, exchange: Exchange) -> Badge | Refusal | Coroutine[Any, Any, Badge | Refusal]:
        """Who this is. Only what cannot be known yet is waited for."""
        ...

    def current(self, badge: Badge) -> Badge | None:
        """One that was good, as it counts now; None: it is not good any more."""
        ...

    def expect(self, ends: float) -> None:
        """Somebody is here whom another replica has let in, until then."""
        ...

    def knows(self, principal: str) -> bool:
        """Whether they may come in again, by whichever token."""
        ...

    def look(self) -> bool:
        """Whether some of those that were good may not be any more; asked several times a
        second."""
        ...

    def looked(self, ends: float) -> None:
        """Everybody who had to leave has left. `ends`: when the first of those who stayed must
        (`NEVER`)."""
        ...

    def metadata(self, resource: str) -> Json | None:
        """What is published about it (RFC 9728); None: nothing."""
        ...


def shown(headers: Headers) -> bytes | None:
    """The token that a request brings, if it brings exactly one."""
    given = headers.all("authorization")
    if len(given) != 1 or given[0][:7].lower() != "bearer ":
        return None
    return (
        given[0][7:].strip(" \t").encode("latin-1") or None
    )  # as it was decoded: the bytes that came
