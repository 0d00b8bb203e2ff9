"""ADM-2, section 6: somebody signs in to a server, and out of it, by way of the API."""

from auth.authserver import AuthServer, open_as_browser
from kit.admin_api import AdminApi
from kit.gateway import Gateway
from kit.until import wait_until


def test_a_server_is_signed_in_to_and_out_of() -> None:
    with AuthServer() as site:
        server = {"name": "guarded", "connection": {"type": "http", "url": site.url}}
        with Gateway({"mcp_servers": [server]}, admin=True) as gateway:
            api = AdminApi(gateway)
            wait_until(lambda: api.status("guarded") == "needs_auth")
            detail = api.server("guarded")
            assert "who asks" in detail["cause"] and "sign in" in detail["fix"]
            asked = api.ask("POST", "/api/mcp-servers/guarded/sign-in").json
            assert asked["state"] == "sign_in_needed" and asked["auth_url"].startswith(
                f"{site.issuer}/authorize?"
            )
            tried = api.ask("POST", "/api/mcp-servers/guarded/test").json
            assert not tried["ok"] and tried["auth_url"] == asked["auth_url"]
            assert open_as_browser(asked["auth_url"])[0] == 200
            wait_until(lambda: api.status("guarded") == "connected")
            assert api.ask("POST", "/api/mcp-servers/guarded/sign-in").json["state"] == "signed_in"
            assert api.ask("POST", "/api/mcp-servers/guarded/test").json["ok"]
            assert (
                api.ask("DELETE", "/api/mcp-servers/guarded/sign-in").json["state"] != "signed_in"
            )
            wait_until(lambda: api.status("guarded") == "needs_auth")
            told = (
                api.ask("GET", "/api/mcp-servers/guarded").body
                + api.ask("GET", "/api/mcp-servers/guarded/logs").body
            )
            assert not [
                secret for secret in (*site.tokens, *site.refresh_tokens) if secret.encode() in told
            ]
