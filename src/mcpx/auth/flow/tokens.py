"""What a sign-in brings: an access token, and often one to renew it with.

Promised: a token fits into a header; what is said of its end is believed within reason; nothing of
it is in a `repr`.
"""

import re
import time
from dataclasses import dataclass, field
from typing import Any

from mcpx.auth.flow.clients import Client
from mcpx.auth.flow.discovery import Issuer
from mcpx.auth.flow.web import Refused, Web, checked
from mcpx.base.text import one_line
from mcpx.model.call import Json
from mcpx.model.errors import Unproved
from mcpx.model.redaction import without

LONGEST = 32_768
"""Characters of a token."""
MARGIN = 60.0
"""Seconds before its end from which a token is renewed; of a short one a fifth of its life."""
LONGEST_LIFE = 10 * 365 * 86_400.0
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Tokens:
    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    scope: str = ""
    """As granted."""
    expires: float | None = None
    """Seconds since 1970; None: not said."""
    renew: float | None = None
    """From when on it is renewed."""

    def to_json(self) -> Json:
        return {
            "access_token": self.access,
            "refresh_token": self.refresh,
            "scope": self.scope,
            "expires": self.expires,
            "renew": self.renew,
        }

    @classmethod
    def from_json(cls, kept: Any) -> "Tokens | None":
        match kept:
            case {
                "access_token": str(access),
                "refresh_token": str(refresh),
                "scope": str(scope),
                "expires": int() | float() | None as expires,
                "renew": int() | float() | None as renew,
            } if _TOKEN.fullmatch(access):
                return cls(access, refresh, scope, expires, renew)
            case _:
                return None


async def exchange(
    web: Web,
    issuer: Issuer,
    client: Client,
    code: str,
    verifier: str,
    redirect: str,
    resource: str,
    scope: str,
) -> Tokens:
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect,
        "code_verifier": verifier,
        "resource": resource,
    }
    return await _ask(web, issuer.token, client, fields, "the sign-in", Tokens("", scope=scope))


async def renewed(web: Web, place: str, client: Client, old: Tokens, resource: str) -> Tokens:
    """The same grant again; a server that does not give another refresh token lets us keep ours."""
    fields = {"grant_type": "refresh_token", "refresh_token": old.refresh, "resource": resource}
    return await _ask(web, place, client, fields, "to renew a token", old)


async def revoke(web: Web, place: str, client: Client, token: str, hint: str) -> None:
    own, authorization = client.proof()
    fields = {"token": token, "token_type_hint": hint, **own}
    await web.form(place, fields, authorization, "to revoke a token", client.secrets)


async def _ask(
    web: Web, place: str, client: Client, fields: dict[str, str], what: str, before: Tokens
) -> Tokens:
    own, authorization = client.proof()
    secrets = (*fields.values(), *client.secrets)
    given = await web.form(place, {**fields, **own}, authorization, what, secrets)
    host = checked(place).host
    if given.get("error"):  # some say so with 200
        error = str(given["error"])
        raise Refused(f"{host} refused {what}: {one_line(without(secrets, error))}", error)
    access, kind = given.get("access_token"), given.get("token_type", "bearer")
    if not isinstance(access, str) or len(access) > LONGEST or not _TOKEN.fullmatch(access):
        raise Unproved(f"{host} gave no token that could be sent")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise Unproved(
            f"{host} gave a token of a type that mcpx does not know: "
            f"{one_line(without(secrets, str(kind)))}"
        )
    refresh, scope = given.get("refresh_token"), given.get("scope")
    refresh = (
        refresh if isinstance(refresh, str) and 0 < len(refresh) <= LONGEST else before.refresh
    )
    scope = (
        scope if isinstance(scope, str) and len(scope) <= LONGEST else before.scope
    )  # RFC 6749, 5.1
    life = _seconds(given.get("expires_in"))
    if life is None:
        return Tokens(access, refresh, scope)
    now = time.time()
    return Tokens(access, refresh, scope, now + life, now + life - min(MARGIN, life / 5))


def _seconds(value: Any) -> float | None:
    """`expires_in`: a number, or one in quotes."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return float(min(value, LONGEST_LIFE))
