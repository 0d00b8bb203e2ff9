"""What proves the gateway to a server, by its config; and what is said when the server does not
take it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcpx.base.aio import Tasks
from mcpx.config import Server
from mcpx.model.errors import Unavailable
from mcpx.transports.refusals import about_us
from mcpx.upstreams.surroundings import Surroundings

if TYPE_CHECKING:
    from mcpx.auth import Auth
    from mcpx.auth.credentials import Credentials
    from mcpx.upstreams.signing import Signing

Named = tuple[str, "Auth"]
"""An auth config and its name."""


def address_of(server: Server) -> str:
    """Where it is; a WebSocket's as that of the HTTP server it begins with, and none of a
    program."""
    url: str = getattr(server.connection, "url", "")
    return f"http{url[2:]}" if url[:2].lower() == "ws" else url


def proofs_of(
    server: Server, auth: Named | None, around: Surroundings, tasks: Tasks
) -> "tuple[Credentials | None, Signing | None]":
    """Its credentials; the same once more where people sign in to it."""
    url = address_of(server)
    if not url or around.ring is None or not server.enabled:
        return None, None
    given = None if auth is None else around.ring().of(*auth, server.name, url)
    headers: Mapping[str, str] = getattr(server.connection, "headers", {})
    if given is None and any(name.lower() == "authorization" for name in headers):
        return None, None
    from mcpx.auth.credentials import signs_in  # for servers elsewhere only
    from mcpx.upstreams.signing import Signing

    if given is not None and signs_in(given) is None:
        return given, None
    signing = Signing(server.name, url, around.ring, signs_in(given), tasks, around.asks)
    return signing, signing


def wants_sign_in(error: Unavailable, signing: "Signing | None", auth: Named | None) -> bool:
    """Whether it was about what proves us; then the error says what to do."""
    if not about_us(error):
        return False
    if signing is not None:
        signing.tell(error)
        return True
    what = "the Authorization header in its config" if auth is None else f"its auth {auth[0]!r}"
    if what not in error.message:
        error.message = f"{error.message}; {what} is not taken"
    return True
