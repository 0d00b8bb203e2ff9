"""What is kept of a sign-in: the tokens, whose they are, what for, and as whom they were got.

It belongs together: a refresh token goes to the issuer that gave it, from the client it was given
to, and nowhere else.
"""

from dataclasses import dataclass
from typing import Any

from mcpx.auth.flow.clients import Client, is_document
from mcpx.auth.flow.tokens import Tokens
from mcpx.model.call import Json, as_object


@dataclass(frozen=True, slots=True)
class Grant:
    issuer: str
    resource: str
    token: str
    """Where it is renewed."""
    revoke: str | None
    redirect: str
    client: Client
    asked: str
    """The scopes that were asked for."""
    tokens: Tokens | None
    """None: they were refused; somebody has to sign in again."""

    @property
    def scopes(self) -> str:
        """Asked for or granted."""
        return self.asked if self.tokens is None else f"{self.asked} {self.tokens.scope}"

    def to_json(self) -> Json:
        client = {**self.client.to_json(), "registered": self.client.registered}
        if not self.client.registered:
            client["secret"] = ""  # it stands in the config, and nowhere else
        return {
            "issuer": self.issuer,
            "resource": self.resource,
            "token_endpoint": self.token,
            "revocation_endpoint": self.revoke,
            "redirect_uri": self.redirect,
            "client": client,
            "asked": self.asked,
            "tokens": None if self.tokens is None else self.tokens.to_json(),
        }


def kept_grant(kept: Any, client_id: str, client_secret: str) -> Grant | None:
    """As it was kept, if it was got as the client that the config names now."""
    match kept:
        case {
            "issuer": str(issuer),
            "resource": str(resource),
            "token_endpoint": str(token),
            "revocation_endpoint": str() | None as revoke,
            "redirect_uri": str(redirect),
            "client": {"registered": bool(registered)},
            "asked": str(asked),
        }:
            pass
        case _:
            return None
    client = Client.from_json(as_object(kept["client"]))
    if client is None:
        return None
    if not registered:
        if client.id != client_id or (client.method != "none") != bool(client_secret):
            return None
        client = Client(client.id, client_secret, client.method)
    elif client_id and (client_secret or not is_document(client_id)):
        return None
    return Grant(
        issuer,
        resource,
        token,
        revoke,
        redirect,
        client,
        asked,
        Tokens.from_json(kept.get("tokens")),
    )
