"""How the gateway proves itself to servers and APIs. One class per way: its config fields and its
behaviour.

A part is what the file says; `credentials` sets it to work. Nothing of a way that nobody uses is
imported.
"""

from typing import TYPE_CHECKING, ClassVar, Protocol

from mcpx.model.family import Family

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials, Purpose


class Auth(Protocol):
    """A frozen dataclass, whose fields are its keys in a config file."""

    type: ClassVar[str]

    @property
    def per_server(self) -> bool:
        """Whether each server that refers to it has credentials of its own; else all share them."""
        ...

    def credentials(self, purpose: "Purpose") -> "Credentials": ...


AUTHS: Family[Auth] = Family(
    "mcpx.auth",
    "mcpx.auth",
    beside=(
        "callback",
        "credentials",
        "keychain",
        "keyring_advice",
        "renewal",
        "ring",
        "sealing",
        "shared",
        "vault",
    ),
    needs=("per_server", "credentials"),
    keys=True,
)
"""What `auth_configs` may name."""

__all__ = ["AUTHS", "Auth"]
