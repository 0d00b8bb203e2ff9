"""Client credentials (`type: oauth2`) without `token_url`: where mcpx sends the secret, and where
not."""

import base64
from typing import Any

from auth.authserver import ASM, AuthServer
from kit.client import Session
from kit.gateway import Gateway
from kit.messages import Json

CLIENT, SECRET = "robot", "canary-51c7ab"


def config(site: AuthServer, **fields: Any) -> Json:
    oauth2 = {"client_id": CLIENT, "client_secret": SECRET, **fields}
    return {
        "global": {"startup_wait": 5, "first_start_wait": 5},
        "auth_configs": [{"name": "machine", "type": "oauth2", "oauth2": oauth2}],
        "mcp_servers": [
            {
                "name": "site",
                "connection": {"type": "http", "url": site.url},
                "auth": {"ref": "machine"},
            }
        ],
    }


def tools_of(gateway: Gateway) -> list[str]:
    return [tool["name"] for tool in Session(gateway.port).request("tools/list")["result"]["tools"]]


def token_forms(site: AuthServer) -> list[dict[str, str]]:
    pair = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
    requests = [one for one in site.seen if one.path.endswith("/token")]
    assert all(one.headers["authorization"] == pair for one in requests)
    return [one.form for one in requests]


def assert_has_no_secret(site: AuthServer) -> None:
    assert not any(SECRET in str((one.headers, one.form, one.body)) for one in site.seen)


def problem_of(gateway: Gateway) -> str:
    (server,) = gateway.control("status")["servers"]
    return server["last_error"]


def test_the_token_address_is_discovered_at_the_server() -> None:
    """PRO-7: from the metadata of the issuer that the server names. The token is for that server
    (RFC 8707)."""
    with AuthServer(
        known_clients={CLIENT: SECRET}, prefix="/tenant", asm_path=f"{ASM}/tenant"
    ) as site:
        with Gateway(config(site, scope="read")) as gateway:
            assert tools_of(gateway) == ["whoami"]
        assert token_forms(site) == [
            {"grant_type": "client_credentials", "scope": "read", "resource": site.url}
        ]


def test_a_server_cannot_direct_the_secret_to_another_host() -> None:
    """SEC-7: the error names the issuer and the key that allows it."""
    with AuthServer("localhost", known_clients={CLIENT: SECRET}) as other, AuthServer() as site:
        site.authorization_servers = [other.issuer]
        with Gateway(config(site)) as gateway:
            assert tools_of(gateway) == []
            problem = problem_of(gateway)
        assert problem.startswith("site: client credentials: the server names the issuer ")
        assert f"{other.issuer}, which is on another host" in problem
        assert "set 'issuer' to it in the auth config" in problem
        assert_has_no_secret(other)

        site.authorization_servers, site.extra_metadata = (
            None,
            {"token_endpoint": f"{other.issuer}/token"},
        )
        with Gateway(config(site)) as gateway:
            assert tools_of(gateway) == []
            assert f"the server names the token address {other.issuer}/token" in problem_of(gateway)
        assert_has_no_secret(other)
        assert_has_no_secret(site)


def test_an_issuer_in_the_configuration_counts_whatever_the_server_names() -> None:
    """SEC-7: the server names another one, which gets nothing. The issuer needs no address for
    sign-ins by people."""
    with AuthServer("localhost", known_clients={CLIENT: SECRET}) as issuer, AuthServer() as site:
        issuer.extra_metadata = {"authorization_endpoint": None}
        site.tokens = issuer.tokens
        with Gateway(config(site, issuer=issuer.issuer)) as gateway:
            assert tools_of(gateway) == ["whoami"]
        assert token_forms(issuer) == [{"grant_type": "client_credentials"}]
        assert_has_no_secret(site)


def test_metadata_of_another_issuer_are_refused() -> None:
    """RFC 8414, section 3.3."""
    with AuthServer(
        known_clients={CLIENT: SECRET}, metadata_issuer="https://login.example.com"
    ) as site:
        with Gateway(config(site)) as gateway:
            assert tools_of(gateway) == []
            assert "publishes metadata of another issuer: https://login.example.com" in problem_of(
                gateway
            )
        assert_has_no_secret(site)
