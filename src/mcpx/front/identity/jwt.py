"""Tokens that an authorization server signs (a resource server of OAuth 2: RFC 9068, RFC 8707).

Promised: only asymmetric signatures by a key that the issuer publishes; `iss`, `aud` and `exp` are
always judged, `nbf` with a little leeway. A token that was found good is not verified again until
it ends, the keys change, or it is crowded out; nothing is waited for but keys that are not known
yet.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from mcpx.config import FrontAuth
from mcpx.front.identity.badge import LONGEST, NEVER, NO_TOKEN, WRONG_TOKEN, Badge, Refusal, shown
from mcpx.front.identity.doors import Doors
from mcpx.front.identity.keys import AGAIN, FITS, Keys
from mcpx.model.call import RESERVED_PRINCIPALS, Json, as_list
from mcpx.wire.exchange import Exchange

log = logging.getLogger(__name__)

LEEWAY: Final = 30.0
"""Seconds by which an issuer's clock may be ahead of ours."""
REMEMBERED: Final = 4096
"""Tokens that were found good."""
LONGEST_NAME: Final = 255
PROFILE: Final = "profile:"
"""What a scope begins with that gives a profile, where the configuration does not say."""
RESERVED_SUBJECT: Final = Refusal(
    401, "the subject of the token is a reserved name of the gateway", "invalid_token"
)
NOT_YET: Final = Refusal(
    503, "tokens cannot be judged: the issuer's keys are not known yet", retry_after=int(AGAIN)
)


class Jwt:
    def __init__(
        self,
        auth: FrontAuth,
        doors: Doors,
        keys: Keys,
        origins: Callable[[Exchange], Collection[str]],
    ) -> None:
        """`origins`: of this gateway, for a token that must be meant for it."""
        import jwt  # here, so that the first request need not wait for it

        self._jwt = jwt
        self._auth = auth
        self._doors = doors
        self._keys = keys
        self._origins = origins
        issuer = auth.issuer or ""
        bare = issuer.rstrip("/")
        if urlsplit(issuer).path in ("", "/"):
            self._issuers = {issuer, bare, f"{bare}/"}
        else:
            self._issuers = {issuer}
        self._good: dict[bytes, Badge] = {}
        self._version = self._looked_at = keys.version
        self._ends = NEVER
        """When the first of those who are here must leave."""

    def admit(self, exchange: Exchange) -> Badge | Refusal | Coroutine[Any, Any, Badge | Refusal]:
        token = shown(exchange.headers)
        if token is None:
            return NO_TOKEN
        if len(token) > LONGEST:
            return WRONG_TOKEN
        digest = hashlib.sha256(token).digest()
        if self._version != self._keys.version:
            self._good.clear()
            self._version = self._keys.version
        badge = self._good.get(digest)
        if badge is None:
            found = self._judge(token, digest)
            if found is None:
                if self._keys.may_ask:
                    return self._once_keys_came(exchange, token, digest)
                return self._unknown()
            if isinstance(found, Refusal):
                return found
            badge = found
        return self._fit(badge, exchange)

    async def _once_keys_came(
        self, exchange: Exchange, token: bytes, digest: bytes
    ) -> Badge | Refusal:
        await self._keys.renew()
        found = self._judge(token, digest)
        if found is None:
            return self._unknown()
        if isinstance(found, Refusal):
            return found
        return self._fit(found, exchange)

    def _unknown(self) -> Refusal:
        if self._keys:
            return WRONG_TOKEN
        return NOT_YET

    def _fit(self, badge: Badge, exchange: Exchange) -> Badge | Refusal:
        """What is judged with every request: the time, the address it is meant for, what it
        gives."""
        if badge.expires <= time.time():
            self._good.pop(badge.digest, None)
            return WRONG_TOKEN
        self._ends = min(self._ends, badge.expires)
        if not self._is_for_us(badge.audience, exchange):
            log.debug("a token was refused: it is meant for somebody else")
            return WRONG_TOKEN
        if self._auth.scopes is not None and not badge.doors:
            return Refusal(
                403,
                "the token has no scope that lets in here",
                "insufficient_scope",
                (*self._auth.scopes,),
            )
        return badge

    def _is_for_us(self, audience: tuple[str, ...], exchange: Exchange) -> bool:
        if self._auth.audience is not None:
            return self._auth.audience in audience
        path = exchange.path
        if path.endswith("/messages"):  # the way back of what `/sse` is the way out of
            path = path.removesuffix("messages") + "sse"
        for origin in self._origins(exchange):
            if not {
                origin,
                f"{origin}/",
                f"{origin}/mcp",
                origin + exchange.path,
                origin + path,
            }.isdisjoint(audience):
                return True
        return False

    def _judge(self, token: bytes, digest: bytes) -> Badge | Refusal | None:
        """None: it is signed with a key that is not known."""
        try:
            header = self._jwt.get_unverified_header(token)
        except (self._jwt.PyJWTError, ValueError, RecursionError):
            return WRONG_TOKEN
        algorithm, kid = header.get("alg"), header.get("kid")
        if (
            not isinstance(algorithm, str)
            or algorithm not in FITS
            or "crit" in header
            or not isinstance(kid, str | None)
        ):
            return WRONG_TOKEN
        keys = self._keys.fitting(kid, algorithm)
        if not keys:
            return None
        for key in keys:
            try:
                claims = self._jwt.decode(
                    token,
                    key.key,
                    algorithms=[algorithm],
                    issuer=self._issuers,
                    leeway=LEEWAY,
                    options={
                        "require": ["exp", "iss"],
                        "verify_aud": False,
                        "verify_sub": False,
                        "verify_jti": False,
                    },
                )
            except self._jwt.InvalidSignatureError:
                continue
            except (
                self._jwt.PyJWTError,
                ValueError,
                TypeError,
                OverflowError,
                RecursionError,
            ) as problem:
                log.debug("a token was refused: %s", problem)
                return WRONG_TOKEN
            return self._read(claims, digest, key.mark)
        return WRONG_TOKEN

    def _read(self, claims: Json, digest: bytes, mark: str) -> Badge | Refusal:
        try:
            expires = float(claims["exp"])
        except OverflowError:  # a number of four hundred digits
            return WRONG_TOKEN
        principal = claims.get("sub") or claims.get("client_id") or claims.get("azp")
        if (
            not isinstance(principal, str)
            or len(principal) > LONGEST_NAME
            or not principal.isprintable()
        ):
            log.debug("a token was refused: it does not say whose it is")
            return WRONG_TOKEN
        if principal.strip().casefold() in RESERVED_PRINCIPALS:
            log.warning(
                "a token was refused: its subject %r is a name that the gateway gives itself",
                principal,
            )
            return RESERVED_SUBJECT
        aud: Any = claims.get("aud")
        audience = tuple(
            text
            for text in ([aud] if isinstance(aud, str) else as_list(aud))
            if isinstance(text, str)
        )
        if expires <= time.time():
            return WRONG_TOKEN
        scopes = frozenset((*_words(claims.get("scope")), *_words(claims.get("scp"))))
        badge = Badge(principal, self._opened_by(scopes), expires, digest, mark, scopes, audience)
        if len(self._good) >= REMEMBERED:
            del self._good[next(iter(self._good))]
        self._good[digest] = badge
        return badge

    def _opened_by(self, scopes: frozenset[str]) -> tuple[str, ...]:
        given = self._auth.scopes
        if given is None:
            return self._doors.in_order(
                scope[len(PROFILE) :] for scope in scopes if scope.startswith(PROFILE)
            )
        return self._doors.in_order(profile for scope, profile in given.items() if scope in scopes)

    def current(self, badge: Badge) -> Badge | None:
        if badge.expires <= time.time():
            return None
        if badge.key is None or badge.key not in self._keys:
            return None
        if self._auth.audience is not None and self._auth.audience not in badge.audience:
            return None
        doors = self._opened_by(badge.scopes)
        if self._auth.scopes is not None and not doors:
            return None
        return replace(badge, doors=doors)

    def expect(self, ends: float) -> None:
        self._ends = min(self._ends, ends)

    def knows(self, principal: str) -> bool:
        return True  # their next token may be on its way

    def look(self) -> bool:
        self._keys.tend()
        return self._looked_at != self._keys.version or self._ends <= time.time()

    def looked(self, ends: float) -> None:
        self._ends = ends
        self._looked_at = self._keys.version

    def metadata(self, resource: str) -> Json:
        """Whom to ask for tokens; tells of no profile."""
        about: Json = {
            "resource": resource,
            "authorization_servers": [self._auth.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "mcpx",
        }
        return about | ({"scopes_supported": [*self._auth.scopes]} if self._auth.scopes else {})


def _words(value: Any) -> list[str]:
    """Scopes stand in one text, or in a list."""
    if isinstance(value, str):
        return value.split()
    return [word for word in as_list(value) if isinstance(word, str)]
