"""SEC-1: a signed token is accepted only for the audience that it names."""

import pytest

from front.test_identity import OPEN, showing
from kit.token_issuer import make_key
from mcpx.base.aio import Tasks
from mcpx.config import FrontAuth
from mcpx.front.identity.badge import WRONG_TOKEN, Badge
from mcpx.front.identity.jwt import Jwt
from mcpx.front.identity.keys import Key, Keys
from mcpx.wire.fetch import Fetcher

ISSUER = "https://issuer.example"
HERE = "https://gateway.example"


class KnownKeys(Keys):
    """Keys that need no request to the issuer."""

    def __init__(self, key: object) -> None:
        super().__init__(ISSUER, None, lambda: Fetcher({}), Tasks("keys"))
        self._keys = {"mark": Key("mark", "first", "EC", "P-256", None, key)}


@pytest.mark.parametrize("configured", ["our-service", None])
def test_a_token_without_our_audience_is_refused(configured: str | None) -> None:
    """SEC-1: also a token that names no audience, whether or not the configuration sets
    `audience`."""
    import jwt

    key = make_key("ES256")
    auth = FrontAuth(type="jwt", issuer=ISSUER, audience=configured)
    judge = Jwt(auth, OPEN, KnownKeys(key.public_key()), lambda exchange: [HERE])

    def admitted(**claims: object) -> object:
        claims = {"iss": ISSUER, "sub": "ann", "exp": 4_000_000_000, **claims}
        token = jwt.encode(claims, key, "ES256", headers={"kid": "first"})
        return judge.admit(showing(f"Bearer {token}"))

    good = configured or f"{HERE}/mcp"
    assert isinstance(admitted(aud=good), Badge)
    assert isinstance(admitted(aud=["elsewhere", good]), Badge)
    for audience in ({}, {"aud": []}, {"aud": ""}, {"aud": "elsewhere"}):
        assert admitted(**audience) is WRONG_TOKEN
