"""One auth config at work: what it adds to a request, and what is done when that is not taken.

Promised: `now` costs a look; it gives the same object until something has changed, so that whoever
makes header lines of it makes them once. Secrets stay out of every `repr`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from mcpx.model.call import Json

if TYPE_CHECKING:
    from mcpx.auth.callback import Callback
    from mcpx.auth.shared import Shared
    from mcpx.auth.vault import Vault
    from mcpx.wire.fetch import Fetcher

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """What goes with a request."""

    headers: Pairs = field(default=(), repr=False)
    query: Pairs = field(default=(), repr=False)
    body: Pairs = field(default=(), repr=False)
    """Fields of a JSON or form body."""
    also: tuple[str, ...] = field(default=(), repr=False)
    """What can be read out of these."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be said to anybody."""
        return (*[value for _, value in (*self.headers, *self.query, *self.body)], *self.also)


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a server said that a proof, or its absence, is not enough."""

    status: int
    challenge: str = ""
    """`WWW-Authenticate`."""


class Credentials(Protocol):
    def now(self) -> Proof | None:
        """What proves us at this moment; None: `get` has to be waited for."""
        ...

    async def get(self) -> Proof:
        """The same, fetched or renewed if need be, once for all that wait. Raises `Unproved`."""
        ...

    async def refused(self, proof: Proof, refusal: Refusal) -> bool:
        """A server did not take this proof. True: one more try, with what `get` gives then, is
        worth it. Asked by many at once for one proof, it renews once."""
        ...

    async def close(self) -> None: ...


def _absent() -> NoReturn:
    raise RuntimeError("these credentials were made for something that nobody signs in to")


@dataclass(frozen=True, slots=True)
class Purpose:
    """What credentials are made for."""

    name: str
    """Who uses them, for messages: the auth config, or the server where it has its own."""
    environ: Mapping[str, str]
    fetcher: "Callable[[], Fetcher]"
    """The client for whatever has to be asked for; made when first needed."""
    url: str | None = None
    """The server they are for, where each has its own."""
    changed: Callable[[], None] = lambda: None
    """To be called when somebody has signed in or out, or has to."""
    vault: "Callable[[], Vault]" = _absent
    """Where what a sign-in brings is kept."""
    callback: "Callable[[], Callback]" = _absent
    """Where a browser comes back to."""
    learn: Callable[[Iterable[str]], None] = lambda _: None
    """To be told the secrets that are got at run time, all that hold now, before they are used."""
    shared: "Shared | None" = None
    """What is renewed for other replicas, too; None: there are none."""


class SignIn(Credentials, Protocol):
    """Credentials that a person gets for us, in a browser."""

    @property
    def auth_url(self) -> str | None:
        """Where to sign in; None when nobody has to, or it is not known yet."""
        ...

    @property
    def problem(self) -> str | None:
        """Why it cannot even be asked for."""
        ...

    async def begin(self, refusal: Refusal | None = None) -> str:
        """Find out where to sign in, as it was refused, and wait for it there. Raises
        `Unproved`."""
        ...

    async def forget(self) -> None:
        """Sign out: nothing is kept of it."""
        ...

    def look_again(self) -> None:
        """Somebody else has signed in or out, or renewed what was kept."""
        ...

    def describe(self) -> Json:
        """Issuer, scopes, when it ends: nothing secret."""
        ...


def signs_in(credentials: Credentials | None) -> SignIn | None:
    """These credentials, if a person gets them."""
    return cast(SignIn, credentials) if hasattr(credentials, "begin") else None


class Fixed:
    """Credentials that never change; one that refuses them will do so again."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof

    def now(self) -> Proof | None:
        return self._proof

    async def get(self) -> Proof:
        return self._proof

    async def refused(self, proof: Proof, refusal: Refusal) -> bool:
        return False

    async def close(self) -> None:
        pass
