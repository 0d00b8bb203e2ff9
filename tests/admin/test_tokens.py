"""Tokens over the admin API, through the real program (ADM-2, SEC-1)."""

import json
from collections.abc import Iterator

import pytest

from kit.admin_api import AdminApi
from kit.client import Session
from kit.gateway import Gateway, GatewayProcess
from kit.messages import Json
from kit.until import wait_until

FIXED: Json = {"name": "fixed", "token": "canary-71ab99", "expires": "2020-01-31"}
CONFIG: Json = {
    "mcp_servers": [],
    "profiles": [{"name": "team"}],
    "server": {"auth": {"type": "bearer", "tokens": [FIXED]}},
}


@pytest.fixture
def api() -> Iterator[AdminApi]:
    with GatewayProcess(CONFIG, admin=True) as gateway:
        yield AdminApi(gateway)


def test_a_token_that_is_made_lets_in_and_one_that_is_revoked_ends_its_sessions() -> None:
    """SEC-1: as with `mcpx token`."""
    with Gateway(CONFIG, admin=True) as gateway:
        api = AdminApi(gateway)
        made = api.post("/api/tokens", {"name": "laptop", "expires_in_days": 30}, 201)
        bearer = {"Authorization": f"Bearer {made['token']}"}
        client = wait_until(lambda: _session(gateway, bearer))
        assert client.tools() == []
        rows = {row["name"]: row for row in api.get("/api/tokens")["tokens"]}
        assert (
            rows["laptop"]["kept_in"] == "state"
            and rows["laptop"]["created"] < rows["laptop"]["expires"]
        )
        assert made["token"] not in json.dumps(rows)
        assert api.ask("DELETE", "/api/tokens/laptop").json == {"ok": True}
        wait_until(lambda: _session(gateway, bearer) is None or None)
        assert api.refused("DELETE", "/api/tokens/laptop") == (404, "not_found")


def _session(gateway: Gateway, headers: dict[str, str]) -> Session | None:
    try:
        return Session(gateway.port, headers=headers)
    except AssertionError:
        return None


def test_tokens_of_the_configuration_are_named_and_stay(api: AdminApi) -> None:
    told = api.get("/api/tokens")
    assert told["required"] is True and told["type"] == "bearer"
    (row,) = told["tokens"]
    assert row == {
        "name": "fixed",
        "profile": None,
        "created": None,
        "expires": "2020-01-31T00:00:00.000Z",
        "expired": True,
        "kept_in": "config",
    }
    assert "canary" not in json.dumps(told)
    assert api.refused("DELETE", "/api/tokens/fixed") == (409, "in_config")


def test_what_is_no_token_is_refused_with_what_is_wrong(api: AdminApi) -> None:
    def made(**body: object) -> tuple[int, str]:
        return api.refused("POST", "/api/tokens", body)

    assert made(name="fixed") == (409, "exists")
    assert (
        made(name=" padded")
        == made(name="a\nb")
        == made(name="x" * 65)
        == made(name="")
        == (422, "invalid")
    )
    assert made(name="a", profile="teem") == (422, "invalid")
    assert (
        made(name="a", expires_in_days=-1)
        == made(name="a", expires_in_days=1e9)
        == (422, "invalid")
    )
    assert made(name="a", surprise=1) == (422, "invalid")
    api.post("/api/tokens", {"name": "a/b", "profile": "team"}, 201)
    assert made(name="a/b") == (409, "exists")
    assert api.ask("DELETE", "/api/tokens/a%2Fb").status == 200
    answer = api.ask("POST", "/api/tokens", {"name": "c"})
    assert answer.status == 201 and answer.headers["cache-control"] == "no-store"
