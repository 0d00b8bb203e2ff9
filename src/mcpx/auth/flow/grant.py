"""The result of a sign-in: tokens, their issuer and resource, and the client that received them.

A refresh token is sent only to the issuer that issued it, by the client that received it.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcpx.auth.credentials import Proof, Purpose
from mcpx.auth.flow.clients import Client, is_document
from mcpx.auth.flow.tokens import Tokens
from mcpx.model.call import Json, as_object

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Grant:
    issuer: str
    resource: str
    token: str
    """The token endpoint."""
    revoke: str | None
    redirect: str
    client: Client
    asked: str
    """The scopes that were asked for."""
    tokens: Tokens | None
    """None if the issuer refused to renew them. The user has to sign in again."""

    @property
    def scopes(self) -> str:
        """Scopes that were requested or granted."""
        if self.tokens is None:
            return self.asked
        return f"{self.asked} {self.tokens.scope}"

    def to_json(self) -> Json:
        client = {**self.client.to_json(), "registered": self.client.registered}
        if not self.client.registered:
            client["secret"] = ""  # It is only in the configuration.
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


def saved_grant(saved: Any, client_id: str, client_secret: str) -> Grant | None:
    """Decode a grant, unless another client than the configured one received it."""
    match saved:
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
    client = Client.from_json(as_object(saved["client"]))
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
        Tokens.from_json(saved.get("tokens")),
    )


class HeldGrant:
    """The current grant of one server, in memory and in the vault.

    Another gateway with the same vault may replace or delete it at any time. `reload` notices that.
    """

    def __init__(self, purpose: Purpose, client_id: str, client_secret: str) -> None:
        self._purpose = purpose
        self._client_id = client_id
        self._client_secret = client_secret
        self._key = f"grant {purpose.name} {purpose.url}"
        self._saved: Json | None = None
        """The grant as it was last read or written."""
        self.grant: Grant | None = None
        self.proof: Proof | None = None
        """None if no user is signed in."""
        self.renew_at = NEVER

    @property
    def key(self) -> str:
        return self._key

    @property
    def is_saved(self) -> bool:
        return self._saved is not None

    def valid_proof(self) -> Proof | None:
        """Return None if the token has to be renewed first."""
        if self.renew_at is NEVER or time.time() < self.renew_at:
            return self.proof
        return None

    def describe(self) -> Json:
        grant = self.grant
        if grant is None:
            return {"signed_in": False}
        tokens = grant.tokens
        description: Json = {
            "signed_in": tokens is not None,
            "issuer": grant.issuer,
            "resource": grant.resource,
            "scope": grant.asked,
            "expires": None,
            "renewable": False,
            "client_id": grant.client.id,
        }
        if tokens is not None:
            description["scope"] = tokens.scope
            description["expires"] = tokens.expires
            description["renewable"] = bool(tokens.refresh)
        return description

    async def share(self) -> None:
        """Exchange the saved grant with other replicas."""
        if self._purpose.shared is not None:
            await self._purpose.shared.settle(self._key)

    async def reload(self, is_expected: Callable[[str], bool]) -> bool:
        """Read the saved grant. Return whether it is another one and has tokens.

        A grant of another issuer than expected is ignored.
        """
        await self.share()
        vault = self._purpose.vault()
        saved = await asyncio.to_thread(vault.read, self._key)
        if saved is None:
            self.notice_sign_out()
            return False
        if saved == self._saved:
            return False
        self._saved = saved
        grant = saved_grant(saved, self._client_id, self._client_secret)
        if grant is None or grant == self.grant or not is_expected(grant.issuer):
            return False
        self.take(grant)
        return grant.tokens is not None

    def notice_sign_out(self) -> bool:
        """Drop the grant if another gateway has deleted it. Return whether that is so."""
        if self._saved is None or not self._purpose.vault().is_absent(self._key):
            return False
        self.take(None)
        self._saved = None
        self._purpose.changed()
        return True

    async def save(self, grant: Grant) -> None:
        self.take(grant)
        self._saved = grant.to_json()
        await asyncio.to_thread(self._purpose.vault().write, self._key, self._saved)
        await self.share()

    async def delete(self) -> str | None:
        """Return why the file could not be deleted, or None."""
        self.take(None)
        self._saved = None
        problem = await asyncio.to_thread(self._purpose.vault().delete, self._key)
        await self.share()
        return problem

    def take(self, grant: Grant | None) -> None:
        self.grant = grant
        self.proof = None
        self.renew_at = NEVER
        if grant is None:
            return
        secrets = [grant.client.secret]
        tokens = grant.tokens
        if tokens is not None:
            secrets += [tokens.access, tokens.refresh]
            self.proof = Proof((("Authorization", f"Bearer {tokens.access}"),))
            if tokens.refresh and tokens.renew is not None:
                self.renew_at = tokens.renew
        self._purpose.learn(secrets)
