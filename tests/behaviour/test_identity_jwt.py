"""SEC-1: tokens that a real issuer signs, over real HTTP: who is let in, where clients learn whom
to ask, and when keys change."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from kit.client import WAIT_SECONDS, Session, post
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import fetch
from kit.messages import Json, initialize_request, request, text_of
from kit.servers import odd_server, recorded_messages
from kit.token_issuer import TokenIssuer, make_key, published
from kit.until import wait_until

PROFILES: list[Json] = [{"name": "p"}, {"name": "q"}, {"name": "club", "tokens": ["ann"]}]
AUDIENCE = "https://gateway.example/mcp"
HANG = {"name": "odd_hang", "arguments": {}}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def config(issuer: TokenIssuer, record: Path, **auth: Any) -> Json:
    return {
        "server": {"auth": {"type": "jwt", "issuer": issuer.url, **auth}},
        "profiles": PROFILES,
        "global": {"hot_reload": False, "first_start_wait": WAIT_SECONDS},
        "mcp_servers": [odd_server("odd", record)],
    }


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jwt") / "record"


@pytest.fixture(scope="module")
def gateway(issuer: TokenIssuer, record: Path) -> Iterator[Gateway]:
    """One that says nothing of audience and scopes."""
    with Gateway(config(issuer, record)) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr()
        assert "eyJ" not in gateway.stderr(), "a token was logged"


def status(gateway: Gateway, token: str, path: str = "/mcp") -> int:
    return post(gateway.port, initialize_request(), bearer(token), path).status


def test_a_token_of_the_issuer_is_let_in(gateway: Gateway, issuer: TokenIssuer) -> None:
    """SEC-1: meant for this gateway's own address, or for its origin."""
    origin = f"http://127.0.0.1:{gateway.port}"
    for audience in (gateway.url, origin, f"{origin}/", ["elsewhere", gateway.url]):
        assert status(gateway, issuer.token(audience=audience)) == 200
    session = Session(gateway.port, headers=bearer(issuer.token(audience=gateway.url)))
    assert text_of(session.call("odd_echo", text="hi")) == "hi"


def test_a_token_for_one_path_is_good_there_and_nowhere_else(
    gateway: Gateway, issuer: TokenIssuer
) -> None:
    token = issuer.token(audience=f"http://127.0.0.1:{gateway.port}/p/p/mcp")
    assert status(gateway, token, "/p/p/mcp") == 200
    assert status(gateway, token) == 401
    assert status(gateway, token, "/p/q/mcp") == 401


def test_what_is_wrong_with_a_token_keeps_it_out(gateway: Gateway, issuer: TokenIssuer) -> None:
    """SEC-1: signature, algorithm, issuer, audience and times."""
    good: Json = {"audience": gateway.url}
    assert status(gateway, issuer.token(**good)) == 200
    head, body, tail = issuer.token(**good).split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"first"}').rstrip(b"=").decode()
    public = json.dumps(published(issuer.keys["first"][1]))
    now = int(time.time())
    wrong = {
        "another key": issuer.token(**good, key=make_key("ES256")),
        "no signature": f"{head}.{body}.",
        "alg none": f"{none}.{body}.",
        "alg none, signed": f"{none}.{body}.{tail}",
        "a shared secret": jwt.encode(
            {"iss": issuer.url, "sub": "ann", "aud": gateway.url, "exp": now + 60},
            public + "x" * 32,
            "HS256",
            headers={"kid": "first"},
        ),
        "another issuer": issuer.token(**good, iss="http://evil.example"),
        "an issuer that goes on": issuer.token(**good, iss=f"{issuer.url}.evil.example"),
        "no issuer": issuer.token(**{**good, "iss": None}),
        "another audience": issuer.token(audience="http://evil.example/mcp"),
        "another port": issuer.token(audience="http://127.0.0.1:1/mcp"),
        "another service here": issuer.token(audience=f"http://127.0.0.1:{gateway.port}/other"),
        "no audience": issuer.token(),
        "over": issuer.token(**good, life=-1),
        "without end": issuer.token(**good, exp=None),
        "not yet": issuer.token(**good, nbf=now + 300),
        "nobody's": issuer.token(None, **good),
        "the administrator's": issuer.token("admin", **good),
        "a local client's": issuer.token(" Local", **good),
        "everybody's": issuer.token("anonymous", **good),
        "the administrator's by its client": issuer.token(None, **good, client_id="admin"),
        "control characters": issuer.token("a\nb", **good),
        "critical": jwt.encode(
            {"iss": issuer.url, "sub": "ann", "aud": gateway.url, "exp": now + 60},
            issuer.keys["first"][1],
            "ES256",
            headers={"kid": "first", "crit": ["b64"], "b64": True},
        ),
        "no token at all": "s3cret",
        "nested": base64.urlsafe_b64encode(b"[" * 5000).decode() + "..",
        "long": "a" * 40_000,
    }
    assert {name: status(gateway, token) for name, token in wrong.items()} == dict.fromkeys(
        wrong, 401
    )
    assert status(gateway, issuer.token(**good, nbf=now + 5)) == 200, (
        "a clock may be a little ahead"
    )


def test_a_forged_host_does_not_make_a_token_ours(gateway: Gateway, issuer: TokenIssuer) -> None:
    """SEC-1: whom a token is meant for is not judged by what its bearer says."""
    token = issuer.token(audience=f"http://localhost.evil.example:{gateway.port}/mcp")
    host = f"localhost.evil.example:{gateway.port}"
    assert post(gateway.port, initialize_request(), {**bearer(token), "Host": host}).status == 421
    assert (
        post(gateway.port, initialize_request(), {**bearer(token), "X-Forwarded-Host": host}).status
        == 401
    )


def test_scopes_give_profiles(gateway: Gateway, issuer: TokenIssuer) -> None:
    """SEC-2: `profile:NAME` where the configuration does not say; whoever has one gets no other."""

    def opened(scope: Any) -> list[str]:
        token = issuer.token(audience=f"http://127.0.0.1:{gateway.port}", scope=scope)
        paths = ("/mcp", "/p/p/mcp", "/p/q/mcp", "/p/club/mcp", "/p/none/mcp")
        return [path for path in paths if status(gateway, token, path) == 200]

    assert opened(None) == ["/mcp", "/p/p/mcp", "/p/q/mcp"]
    assert opened("openid profile:q") == ["/mcp", "/p/q/mcp"]
    assert opened("profile:q profile:club") == ["/mcp", "/p/q/mcp", "/p/club/mcp"]
    assert opened("profile:none") == [], "one that there is not opens nothing, not everything"


def test_a_session_is_its_principals_and_goes_on_with_a_renewed_token(
    gateway: Gateway, issuer: TokenIssuer
) -> None:
    """SEC-1."""
    session = Session(gateway.port, headers=bearer(issuer.token(audience=gateway.url)))
    renewed = {"Mcp-Session-Id": session.id, **bearer(issuer.token(audience=gateway.url, jti="2"))}
    assert post(gateway.port, request("ping"), renewed).status == 200
    other = {"Mcp-Session-Id": session.id, **bearer(issuer.token("bob", audience=gateway.url))}
    assert post(gateway.port, request("ping"), other).status == 404


def test_a_token_that_ends_takes_its_calls_along_unless_it_was_renewed(
    gateway: Gateway, issuer: TokenIssuer, record: Path
) -> None:
    """SEC-1: within a second; a session that was used with another token since goes on."""
    before = len(recorded_messages(record, "tools/call"))
    until = int(time.time()) + 4
    ending, longer = (
        issuer.token("eve", audience=gateway.url, exp=until),
        issuer.token("eve", audience=gateway.url),
    )
    gone = Session(gateway.port, headers=bearer(ending))
    stays = Session(gateway.port, headers=bearer(ending))
    assert (
        post(gateway.port, request("ping"), {"Mcp-Session-Id": stays.id, **bearer(longer)}).status
        == 200
    )
    with gone.start("tools/call", HANG) as call, gone.listen() as listening:
        wait_until(lambda: len(recorded_messages(record, "tools/call")) > before)
        listening.comment()
        assert listening.event() is None
        assert "error" in call.reply().message
        assert until <= time.time() < until + 3
    assert gone.post(request("ping")).status == 401
    assert (
        post(gateway.port, request("ping"), {"Mcp-Session-Id": stays.id, **bearer(longer)}).status
        == 200
    )
    assert (
        post(gateway.port, request("ping"), {"Mcp-Session-Id": gone.id, **bearer(longer)}).status
        == 404
    )


def test_clients_learn_whom_to_ask_for_a_token(gateway: Gateway, issuer: TokenIssuer) -> None:
    """RFC 9728: from the refusal to the metadata, of every path that speaks MCP, whether there is
    such a profile or not."""
    origin = f"http://127.0.0.1:{gateway.port}"
    for path in ("/mcp", "/mcp/search", "/p/p/mcp", "/p/no-such/mcp", "/sse", "/p/p/ws"):
        refused = fetch(gateway.port, path)
        place = f"{origin}/.well-known/oauth-protected-resource{path}"
        assert (refused.status, refused.get("www-authenticate")) == (
            401,
            f'Bearer resource_metadata="{place}"',
        )
        about = fetch(gateway.port, place.removeprefix(origin)).json
        assert about["resource"] == origin + path
        assert about["authorization_servers"] == [issuer.url]
    assert fetch(gateway.port, "/.well-known/oauth-protected-resource").json["resource"] == origin
    wrong = (
        fetch(gateway.port, "/mcp", "GET", bearer("wrong").items()).get("www-authenticate") or ""
    )
    assert 'error="invalid_token"' in wrong
    for path in (
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
        "/.well-known/oauth-protected-resource/health",
        "/.well-known/oauth-protected-resource/p/p/other",
        "/.well-known/oauth-protected-resourceful",
        "/mcp/.well-known/openid-configuration",
    ):
        assert fetch(gateway.port, path).status == 404
    assert (
        fetch(gateway.port, "/.well-known/oauth-protected-resource", "POST", body=b"{}").status
        == 405
    )


def test_a_scope_that_is_missing_is_named(issuer: TokenIssuer, record: Path) -> None:
    """RFC 6750: with `scopes` configured nobody comes in without one; `audience` may be any
    name."""
    wanted = {"audience": AUDIENCE, "scopes": {"tools.read": "p", "tools.all": "q"}}
    with Gateway(config(issuer, record, **wanted)) as gateway:
        refused = post(
            gateway.port,
            initialize_request(),
            bearer(issuer.token(audience=AUDIENCE, scope="email")),
        )
        challenge = refused.get("www-authenticate") or ""
        assert refused.status == 403
        assert (
            'error="insufficient_scope"' in challenge
            and 'scope="tools.read tools.all"' in challenge
        )
        token = issuer.token(audience=AUDIENCE, scp=["email", "tools.all"])
        assert [status(gateway, token, path) for path in ("/mcp", "/p/q/mcp", "/p/p/mcp")] == [
            200,
            200,
            404,
        ]
        assert status(gateway, issuer.token(audience=gateway.url, scope="tools.all")) == 401
        about = fetch(gateway.port, "/.well-known/oauth-protected-resource/mcp").json
        assert about["scopes_supported"] == ["tools.read", "tools.all"]


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES384", "EdDSA"])
def test_every_asymmetric_signature_is_understood(record: Path, algorithm: str) -> None:
    with TokenIssuer("/.well-known/openid-configuration") as issuer:
        issuer.rotate("other", algorithm)
        with Gateway(config(issuer, record, audience=AUDIENCE)) as gateway:
            assert status(gateway, issuer.token(audience=AUDIENCE)) == 200
            assert status(gateway, issuer.token(audience=AUDIENCE, kid=None)) == 200


def test_a_new_key_is_asked_for_once_and_forged_names_do_not_flood_the_issuer(record: Path) -> None:
    """SEC-1: keys are fetched again for a name that is not known, within seconds at most once,
    whoever asks."""
    with (
        TokenIssuer() as issuer,
        Gateway(config(issuer, record, jwks_url=f"{issuer.url}/keys")) as gateway,
    ):
        old = issuer.token(audience=gateway.url)
        assert [status(gateway, old) for _ in range(3)] == [200] * 3
        assert issuer.asked == ["/keys"], "where the keys are was said; and they are kept"
        issuer.rotate("second", keep=True)
        new = issuer.token(audience=gateway.url)
        wait_until(lambda: status(gateway, new) == 200)
        asked = len(issuer.asked)
        for number in range(50):
            assert (
                status(gateway, issuer.token(audience=gateway.url, kid=f"forged-{number}")) == 401
            )
        assert len(issuer.asked) <= asked + 2
        assert (status(gateway, old), status(gateway, new)) == (200, 200)


def test_a_key_that_was_withdrawn_takes_its_sessions_along(record: Path) -> None:
    """SEC-1: noticed with the next fetch."""
    with TokenIssuer() as issuer, Gateway(config(issuer, record)) as gateway:
        session = Session(gateway.port, headers=bearer(issuer.token(audience=gateway.url)))
        with session.listen() as listening:
            listening.comment()
            issuer.rotate("second")
            wait_until(lambda: status(gateway, issuer.token(audience=gateway.url)) == 200)
            assert listening.event() is None
        assert session.post(request("ping")).status == 401


def test_an_issuer_that_is_down_keeps_nobody_out_whose_key_is_known(record: Path) -> None:
    """SEC-1: and where no key is known nobody is called a stranger for it."""
    with TokenIssuer() as issuer, Gateway(config(issuer, record)) as gateway:
        issuer.down = True
        refused = post(
            gateway.port, initialize_request(), bearer(issuer.token(audience=gateway.url))
        )
        assert (refused.status, refused.get("retry-after")) == (503, "5")
        issuer.down = False
        wait_until(lambda: status(gateway, issuer.token(audience=gateway.url)) == 200)
        issuer.down = True
        assert status(gateway, issuer.token("bob", audience=gateway.url)) == 200
        assert status(gateway, issuer.token("bob", audience=gateway.url, kid="other")) == 401


def test_bound_to_every_address_it_must_be_said_whom_tokens_are_meant_for(
    issuer: TokenIssuer, record: Path
) -> None:
    """SEC-1: else a client could name any service as this one."""
    anywhere = r"http://0\.0\.0\.0:(\d+)/mcp"
    with (
        pytest.raises(RuntimeError, match=r"server\.auth\.audience"),
        GatewayProcess(config(issuer, record), "--host", "0.0.0.0", listens=anywhere),
    ):
        pass
    with GatewayProcess(
        config(issuer, record, audience=AUDIENCE), "--host", "0.0.0.0", listens=anywhere
    ) as gateway:
        assert status(gateway, issuer.token(audience=AUDIENCE)) == 200
        assert status(gateway, issuer.token(audience=gateway.url)) == 401
