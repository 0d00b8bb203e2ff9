"""As whom mcpx comes to an authorization server: configured, by a document about it, or registered
(RFC 7591).

A registration is kept for its issuer and redirect address, and made anew when it has expired or is
refused.
"""

import asyncio
import time
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from mcpx.auth.flow.discovery import Issuer
from mcpx.auth.flow.web import Web, checked
from mcpx.base.text import one_line
from mcpx.model.call import Json
from mcpx.model.errors import Unproved

if TYPE_CHECKING:
    from mcpx.auth.vault import Vault

NAME = "mcpx"
METHODS = ("none", "client_secret_basic", "client_secret_post")
"""How we can prove ourselves, the best first for a program on a person's own machine."""
LONGEST = 4096
"""Characters of an id or a secret."""


@dataclass(frozen=True, slots=True)
class Client:
    id: str
    secret: str = field(default="", repr=False)
    method: str = "none"
    registered: bool = False
    """By us, and not written down in a config."""
    kept: bool = False
    """In an earlier run."""
    expires: float = 0.0
    """Seconds since 1970; 0: never."""
    scope: str = ""
    """What it was registered for: some issuers hold it to that."""

    def serves(self, scope: str) -> bool:
        """Whether this registration will do for these scopes, and for a while."""
        lasts = not self.expires or self.expires > time.time() + 60
        return lasts and set(scope.split()) <= set(self.scope.split())

    def proof(self) -> tuple[dict[str, str], str | None]:
        """Fields of a form, and a header `Authorization`."""
        if self.method == "client_secret_basic":
            pair = f"{quote(self.id, safe='')}:{quote(self.secret, safe='')}"  # RFC 6749, 2.3.1
            return {}, f"Basic {b64encode(pair.encode()).decode()}"
        if self.method == "client_secret_post":
            return {"client_id": self.id, "client_secret": self.secret}, None
        return {"client_id": self.id}, None

    @property
    def secrets(self) -> tuple[str, ...]:
        """In every form in which a server may say them back."""
        fields, authorization = self.proof()
        return (self.secret, *fields.values(), authorization or "") if self.secret else ()

    def to_json(self) -> Json:
        kept = {"id": self.id, "secret": self.secret, "method": self.method}
        return {**kept, "expires": self.expires, "scope": self.scope}

    @classmethod
    def from_json(cls, kept: Json) -> "Client | None":
        match kept:
            case {
                "id": str(name),
                "secret": str(secret),
                "method": str(method),
                "expires": int() | float() as expires,
            }:
                scope = str(kept.get("scope", ""))
                return cls(
                    name, secret, method, registered=True, kept=True, expires=expires, scope=scope
                )
            case _:
                return None


def is_document(client_id: str) -> bool:
    """Whether an id is the address of a document about the client."""
    parts = urlsplit(client_id)
    return parts.scheme == "https" and parts.path not in ("", "/")


def configured(issuer: Issuer, client_id: str, secret: str) -> Client | None:
    """The client a config names, as this issuer takes it; None: it has to be registered."""
    if not client_id:
        return None
    if is_document(client_id) and not secret:
        if issuer.documents or issuer.register is None:
            return Client(client_id)
        return None
    if not secret:
        return Client(client_id)
    methods = ("client_secret_basic",) if issuer.methods is None else issuer.methods  # RFC 8414, 2
    return Client(
        client_id,
        secret,
        next((one for one in METHODS[1:] if one in methods), "client_secret_basic"),
    )


async def registered(
    web: Web, vault: "Vault", issuer: Issuer, redirect: str, scope: str, *, anew: bool
) -> Client:
    """Raises `Unproved`."""
    key = _key(issuer.issuer, redirect)
    kept = None if anew else await asyncio.to_thread(vault.read, key)
    client = None if kept is None else Client.from_json(kept)
    if client is not None and client.serves(scope):
        return client
    if issuer.register is None:
        raise Unproved(
            f"{checked(issuer.issuer).host} does not register programs by itself: register mcpx "
            "there, with the "
            f"redirect address {redirect}, and name its client_id in auth_configs (type: oauth)"
        )
    client = await _register(web, issuer, issuer.register, redirect, scope)
    await asyncio.to_thread(vault.write, key, client.to_json())
    return client


async def drop(vault: "Vault", issuer: str, redirect: str) -> None:
    await asyncio.to_thread(vault.delete, _key(issuer, redirect))


def _key(issuer: str, redirect: str) -> str:
    return f"client {issuer} {redirect}"


async def _register(web: Web, issuer: Issuer, place: str, redirect: str, scope: str) -> Client:
    wanted = next((one for one in METHODS if issuer.methods is None or one in issuer.methods), None)
    host = checked(issuer.issuer).host
    if wanted is None:
        raise Unproved(f"{host} wants clients to prove themselves in a way that mcpx does not know")
    about: Json = {
        "client_name": NAME,
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
    }
    if scope:
        about["scope"] = scope
    given = await web.register(place, about)
    name, secret = given.get("client_id"), given.get("client_secret") or ""
    method, expires = (
        given.get("token_endpoint_auth_method") or wanted,
        given.get("client_secret_expires_at") or 0,
    )
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST:
        raise Unproved(f"{host} registered mcpx without giving it an id")
    if not isinstance(secret, str) or len(secret) > LONGEST:
        raise Unproved(f"{host} registered mcpx with a secret that cannot be one")
    if method not in METHODS or (method != "none" and not secret):
        raise Unproved(
            f"{host} registered mcpx so that it cannot prove itself: {one_line(str(method))}"
        )
    ends = (
        float(expires)
        if secret and isinstance(expires, int | float) and 0 < expires < 2**40
        else 0.0
    )
    return Client(
        name,
        secret if method != "none" else "",
        str(method),
        registered=True,
        expires=ends,
        scope=scope,
    )
