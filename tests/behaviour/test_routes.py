"""SEC-1: every route of the running program, with every method and every kind of visitor.

The table in `front.routes` is what is served: a route that is added there is judged here without
being named.
"""

import json
from collections.abc import Iterator

import pytest

from kit.client import ACCEPT_BOTH, Session, Stream
from kit.gateway import Gateway
from kit.http_client import Headers, fetch
from kit.messages import Json, initialize_request
from kit.token_issuer import TokenIssuer
from mcpx.front.routes import MODE, RESOURCE, ROUTES, Route
from mcpx.surfaces import SURFACES

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
UPGRADE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]
PROFILES: list[Json] = [{"name": "mine"}, {"name": "theirs"}, {"name": "club", "tokens": ["zed"]}]
TOKENS: list[Json] = [
    {"name": "ann", "token": "right"},
    {"name": "bound", "token": "foreign", "profile": "theirs"},
    {"name": "past", "token": "over", "expires": "2020-01-31"},
]
UNKNOWN = (
    *(
        "/",
        "/mcp/no-such",
        "/no-such/mcp",
        "/search/mcp/",
        "/mcp/mcp",
        "/mcp/",
        "/MCP",
        "//mcp",
        "/mcp%2f",
        "/admin",
    ),
    *("/p/mine", "/p/mine/health", "/p//mcp"),
)


def paths(route: Route) -> list[str]:
    found = (
        [route.path.replace(MODE, mode) for mode in SURFACES]
        if MODE in route.path
        else [route.path]
    )
    return [*found, *(f"/p/mine{path}" for path in found)] if route.profiles else found


EVERY = [(route, path) for route in ROUTES.values() for path in paths(route)]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    auth = {"type": "bearer", "tokens": TOKENS}
    with Gateway({"server": {"auth": auth}, "profiles": PROFILES, "mcp_servers": []}) as gateway:
        yield gateway.port
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


def status(port: int, method: str, path: str, headers: Headers = (), upgrade: bool = False) -> int:
    """Of a request that is good otherwise."""
    body = json.dumps(initialize_request()).encode() if method in ("POST", "PUT", "PATCH") else None
    usual = [("Content-Type", "application/json")] if body else []
    usual += UPGRADE if upgrade else [("Accept", ACCEPT_BOTH)]
    with Stream(port, method, path, [*usual, *headers], body) as stream:
        return stream.status


def bearer(token: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {token}")]


STRANGERS: dict[str, list[tuple[str, str]]] = {
    "nothing": [],
    "wrong": bearer("wrong"),
    "over": bearer("over"),
    "a name": bearer("ann"),
    "empty": bearer(""),
    "twice": [*bearer("right"), *bearer("right")],
    "another scheme": [("Authorization", "Basic cmlnaHQ=")],
    "in a cookie": [("Cookie", "Authorization=Bearer right")],
}


@pytest.mark.parametrize("mode", ["direct", "search"])
def test_an_address_that_ends_in_mcp_shows_the_same_as_the_mode_behind_it(mode: str) -> None:
    """SUR-6: some clients cut off what follows `/mcp`. Also below a profile."""
    command = {"name": "hello", "type": "http", "http": {"url": "http://127.0.0.1:9/"}}
    with Gateway(
        {"mode": "inspect", "commands": [command], "profiles": [{"name": "mine"}]}
    ) as gateway:
        paths = (f"/mcp/{mode}", f"/{mode}/mcp", f"/p/mine/mcp/{mode}", f"/p/mine/{mode}/mcp")
        listed = [
            Session(gateway.port, path=path).request("tools/list")["result"]["tools"]
            for path in paths
        ]
    shown = [[tool["name"] for tool in tools] for tools in listed]
    assert shown == [shown[0]] * 4
    assert ("mcp_search_tools" in shown[0]) == (mode == "search")


@pytest.mark.parametrize("who", STRANGERS)
def test_no_route_lets_a_stranger_in(port: int, who: str) -> None:
    """SEC-1: only what is marked open answers, and says no more than it says to anybody."""
    shown = STRANGERS[who]
    for route, path in EVERY:
        for method in METHODS:
            expected = 401 if not route.open else 200 if method in route.methods else 405
            assert status(port, method, path, shown) == expected, (method, path)
            assert status(port, method, f"{path}?access_token=right", shown) == expected, (
                method,
                path,
            )
        assert status(port, "GET", path, shown, upgrade=True) == (200 if route.open else 401), path
    for path in UNKNOWN:
        assert status(port, "GET", path, shown) == 401, path
    assert set(fetch(port, "/health", "GET", shown).json) == {"status"}


def test_every_route_answers_whoever_is_let_in(port: int) -> None:
    """The counterpart: without it the refusals would prove nothing."""
    for route, path in EVERY:
        for method in METHODS:
            found = status(port, method, path, bearer("right"))
            if route.path == "/metrics":
                assert found in (200, 404, 405)
            elif method not in route.methods:
                assert found in ((400, 426) if route.path == "/ws" else (405,)), (method, path)
            else:
                assert found not in (401, 403, 405, 421, 500), (method, path, found)
    assert status(port, "GET", "/ws", bearer("right"), upgrade=True) == 101
    assert status(port, "GET", "/p/mine/ws", bearer("right"), upgrade=True) == 101
    for path in UNKNOWN:
        assert status(port, "GET", path, bearer("right")) == 404, path


def test_a_foreign_profile_reads_as_one_that_does_not_exist(port: int) -> None:
    """SEC-2: on every route, with every method, to the byte."""
    for route, path in EVERY:
        if not path.startswith("/p/mine"):
            continue
        for method in route.methods:
            usual = [("Content-Type", "application/json"), ("Accept", ACCEPT_BOTH)]
            body = json.dumps(initialize_request()).encode() if method == "POST" else b""
            for token, foreign in (
                ("foreign", "/p/mine"),
                ("right", "/p/club"),
                ("foreign", "/p/club"),
            ):
                headers = [*usual, *bearer(token)]
                there = fetch(port, path.replace("/p/mine", foreign), method, headers, body)
                nowhere = fetch(port, path.replace("/p/mine", "/p/nowhere"), method, headers, body)
                assert (there.status, there.body) == (404, nowhere.body), (method, path)
                assert there.headers.items() == nowhere.headers.items(), (method, path)


@pytest.mark.parametrize(
    ("expected", "headers"),
    [
        (421, [("Host", "evil.example")]),
        (421, [("Host", "127.0.0.1.evil.example")]),
        (421, [("Host", "")]),
        (421, [("Host", "evil.example"), ("X-Forwarded-Host", "127.0.0.1")]),
        (403, [("Origin", "http://evil.example")]),
        (403, [("Origin", "null")]),
        (403, [("Origin", "http://127.0.0.1:1")]),
        (403, [("Origin", "http://evil.example"), ("X-Forwarded-Host", "evil.example")]),
        (403, [("Origin", "{own}"), ("Origin", "{own}")]),
        (403, [("Origin", "{own}"), ("Origin", "http://evil.example")]),
    ],
)
def test_no_route_answers_a_forged_host_or_origin(
    port: int, expected: int, headers: list[tuple[str, str]]
) -> None:
    """SEC-1: with the right token too, and for the upgrade to a WebSocket."""
    own = f"http://127.0.0.1:{port}"
    forged = [(name, value.replace("{own}", own)) for name, value in headers]
    for _, path in EVERY:
        for method in METHODS:
            assert status(port, method, path, [*bearer("right"), *forged]) == expected, (
                method,
                path,
            )
        assert status(port, "GET", path, [*bearer("right"), *forged], upgrade=True) == expected, (
            path
        )
    assert status(port, "GET", RESOURCE, forged) == expected
    assert status(port, "GET", "/ws", [*bearer("right"), ("Origin", own)], upgrade=True) == 101


@pytest.mark.parametrize("token", [None, "wrong", "right"])
def test_with_bearer_tokens_there_is_no_metadata_of_oauth(port: int, token: str | None) -> None:
    """SEC-1: a client that finds some would try to sign in."""
    for path in (
        RESOURCE,
        f"{RESOURCE}/mcp",
        f"{RESOURCE}/p/mine/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/mcp",
        "/mcp/.well-known/openid-configuration",
        "/p/mine/.well-known/oauth-protected-resource",
    ):
        for method in ("GET", "HEAD", "POST"):
            assert status(port, method, path, [] if token is None else bearer(token)) == 404, (
                method,
                path,
            )


def test_without_auth_there_is_no_metadata_and_every_profile_that_names_nobody() -> None:
    with Gateway({"profiles": PROFILES, "mcp_servers": []}) as gateway:
        assert status(gateway.port, "GET", f"{RESOURCE}/mcp") == 404
        assert status(gateway.port, "GET", "/.well-known/openid-configuration") == 404
        found = {
            name: status(gateway.port, "POST", f"/p/{name}/mcp")
            for name in ("mine", "theirs", "club", "none")
        }
        assert found == {"mine": 200, "theirs": 200, "club": 404, "none": 404}


def test_no_route_lets_in_what_an_issuer_did_not_sign_for_us() -> None:
    """SEC-1: the same table with signed tokens."""
    with (
        TokenIssuer() as issuer,
        Gateway(
            {"server": {"auth": {"type": "jwt", "issuer": issuer.url}}, "profiles": PROFILES}
        ) as gateway,
    ):
        origin = f"http://127.0.0.1:{gateway.port}"
        bad = [[], bearer("right"), bearer(issuer.token(audience="http://evil.example"))]
        bad += [bearer(issuer.token(audience=origin, life=-5))]
        right = bearer(issuer.token(audience=origin))
        assert status(gateway.port, "POST", "/mcp", right) == 200
        for route, path in EVERY:
            for method in route.methods:
                expected = 200 if route.open else 401
                assert [status(gateway.port, method, path, shown) for shown in bad] == [
                    expected
                ] * 4, (method, path)
                assert status(gateway.port, method, path, right) not in (401, 403, 500), (
                    method,
                    path,
                )
        foreign = bearer(issuer.token(audience=origin, scope="profile:theirs"))
        assert status(gateway.port, "POST", "/p/mine/mcp", foreign) == 404
        assert status(gateway.port, "POST", "/p/theirs/mcp", foreign) == 200
