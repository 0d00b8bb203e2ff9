"""ADM-6: what `server.admin` says of who may come, by which names, from which pages, and over
TLS."""

import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kit.admin_api import AdminApi, browser_session, session_headers
from kit.command import mcpx, mcpx_process
from kit.gateway import Gateway
from kit.http_client import Reply, fetch

PAGE = "https://app.example"


def config(**admin: Any) -> dict[str, Any]:
    return {"mcp_servers": [], "server": {"admin": admin}}


def test_only_the_addresses_that_are_named_come_in_and_a_change_counts_at_once() -> None:
    with Gateway(config(allowed_ips=["192.0.2.0/24", "2001:db8::/32"]), admin=True) as gateway:
        for path in ("/", "/login", "/api/session", "/api/about"):
            answer = fetch(gateway.admin_url, path, headers=gateway.admin_headers)
            assert (answer.status, answer.code) == (403, "forbidden_address")
        forged = {"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1"}
        assert fetch(gateway.admin_url, "/api/session", headers=forged).status == 403
        assert (
            "server.admin.allowed_ips"
            in gateway.reload(config(allowed_ips=["127.0.0.0/8"]))["plan"]
        )
        assert fetch(gateway.admin_url, "/api/session").status == 200


def test_a_change_that_would_shut_out_whoever_makes_it_is_refused_unless_it_is_meant() -> None:
    """ADM-6: a list of addresses, names or pages without one's own; a token that is taken away."""
    hosts = config(allowed_hosts=["mcpx.example"], cors_origins=[PAGE])
    with Gateway(hosts, admin=True) as gateway:
        api = AdminApi(gateway)

        def write(wanted: Any, query: str = "", **headers: str) -> Reply:
            return api.ask(
                "POST", f"/api/config{query}", {"text": json.dumps(wanted)}, if_match="*", **headers
            )

        for wanted, headers, path in (
            (config(allowed_ips=["192.0.2.0/24"]), {}, "server.admin.allowed_ips"),
            (config(cors_origins=[PAGE]), {"host": "mcpx.example"}, "server.admin.allowed_hosts"),
            (config(allowed_hosts=["mcpx.example"]), {"origin": PAGE}, "server.admin.cors_origins"),
        ):
            refused = write(wanted, **headers)
            assert (refused.status, refused.code, refused.error["path"]) == (
                409,
                "would_lock_you_out",
                path,
            )
            for look in (
                write(wanted, "?dry_run=true", **headers),
                api.ask("POST", "/api/config/plan", {"text": json.dumps(wanted)}, **headers),
            ):
                (warning,) = look.json["problems"]
                assert look.json["ok"] and (warning["severity"], warning["path"]) == (
                    "warning",
                    path,
                )
            assert json.loads(gateway.file.read_text()) == hosts
        assert write(config(allowed_ips=["127.0.0.1"])).status == 200
        assert write(config(allowed_ips=["192.0.2.0/24"]), "?force=true").status == 200
        assert fetch(gateway.admin_url, "/api/session").status == 403


def test_a_token_that_is_taken_away_or_changed_is_told_before_it_is_saved() -> None:
    """ADM-6"""

    def tokens(token: str | None) -> dict[str, Any]:
        return {"mcp_servers": [], "server": {"admin_token": token} if token else {}}

    first, second = "first-of-the-tokens-7", "second-of-the-tokens-8"
    with Gateway(tokens(first), admin=True, env={"MCPX_ADMIN_TOKEN": ""}) as gateway:
        gateway.admin_token = first
        api = AdminApi(gateway)
        refused = api.ask("POST", "/api/config", {"text": json.dumps(tokens(None))}, if_match="*")
        assert (refused.code, refused.error["path"]) == ("would_lock_you_out", "server.admin_token")
        look = api.ask("POST", "/api/config/plan", {"text": json.dumps(tokens(second))})
        assert ["log in with the new one" in one["message"] for one in look.json["problems"]] == [
            True
        ]
        assert (
            api.ask(
                "POST", "/api/config", {"text": json.dumps(tokens(second))}, if_match="*"
            ).status
            == 200
        )
        assert api.ask("GET", "/api/about").status == 401


def test_names_it_is_called_by_are_told_and_a_proxy_before_it_may_speak_tls() -> None:
    with Gateway(config(allowed_hosts=["mcpx.example", "*.lan.example"]), admin=True) as gateway:
        for host in ("mcpx.example", "MCPX.example:8443", "a.lan.example", "a.b.lan.example:1"):
            for scheme in ("http", "https"):
                headers = {"Host": host, "Origin": f"{scheme}://{host.lower()}"}
                assert fetch(gateway.admin_url, "/api/session", headers=headers).status == 200
        for host in ("lan.example", ".lan.example", "xlan.example", "mcpx.example.evil.example"):
            assert fetch(gateway.admin_url, "/api/session", headers={"Host": host}).status in (
                400,
                403,
            )
        mixed = {"Host": "mcpx.example", "Origin": "https://a.lan.example"}
        assert fetch(gateway.admin_url, "/api/session", headers=mixed).code == "forbidden_origin"


def test_another_page_that_is_named_uses_the_api_with_the_token_and_never_with_a_session() -> None:
    with Gateway(config(cors_origins=[PAGE]), admin=True) as gateway:
        asked = {
            "Origin": PAGE,
            "Access-Control-Request-Method": "PUT",
            "Sec-Fetch-Site": "cross-site",
        }
        before = fetch(gateway.admin_url, "/api/config", "OPTIONS", headers=asked)
        assert (before.status, before.headers["access-control-allow-origin"]) == (204, PAGE)
        assert "PUT" in before.headers["access-control-allow-methods"]
        assert "authorization" in before.headers["access-control-allow-headers"]
        assert (
            before.headers["access-control-allow-credentials"] is None
            and before.headers["vary"] == "origin"
        )

        page = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}
        told = fetch(gateway.admin_url, "/api/session", headers={**page, **gateway.admin_headers})
        assert told.json["by"] == "token" and told.headers["access-control-allow-origin"] == PAGE
        assert (
            fetch(gateway.admin_url, "/api/about", headers=page).headers[
                "access-control-allow-origin"
            ]
            == PAGE
        )

        with_cookie = {**page, **browser_session(gateway)}
        assert fetch(gateway.admin_url, "/api/about", headers=with_cookie).status == 401
        assert (
            fetch(gateway.admin_url, "/api/config/reload", "POST", headers=with_cookie).status
            == 401
        )
        for other in (
            "https://app.example:444",
            "http://app.example",
            "https://evil.example",
            "null",
        ):
            answer = fetch(gateway.admin_url, "/api/session", headers={**page, "Origin": other})
            assert answer.status == 403 and answer.headers["access-control-allow-origin"] is None
        login = gateway.login_url.removeprefix(gateway.admin_url)
        assert fetch(gateway.admin_url, login, headers=page).headers["set-cookie"] is None


def certificate(folder: Path) -> tuple[Path, Path]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl")
    return cert, key


def test_over_tls_the_cookie_is_for_tls_only(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with Gateway(config(tls={"cert": str(cert), "key": str(key)}), admin=True) as gateway:
        assert gateway.admin_url.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        origin = {"Origin": gateway.admin_url}
        body = {"token": gateway.admin_token}
        login = fetch(
            gateway.admin_url, "/api/login", "POST", headers=origin, body=body, context=context
        )
        assert login.headers["set-cookie"].startswith("__Host-mcpx-admin-")
        assert "; Secure" in login.headers["set-cookie"]
        session = session_headers(login)
        assert (
            fetch(gateway.admin_url, "/api/session", headers=session, context=context).json["by"]
            == "cookie"
        )
        plain = {"Origin": gateway.admin_url.replace("https", "http")}
        assert (
            fetch(gateway.admin_url, "/api/session", headers=plain, context=context).status == 403
        )


@pytest.mark.parametrize(
    "made", [{}, {"cert": "", "key": ""}, {"cert": "no certificate", "key": "no key"}]
)
def test_certificates_that_cannot_be_used_are_told(tmp_path: Path, made: dict[str, str]) -> None:
    for name, text in made.items():
        (tmp_path / f"{name}.pem").write_text(text, encoding="ascii")
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps(config(tls={"cert": "cert.pem", "key": "key.pem"})), encoding="utf-8"
    )
    done = mcpx_process(tmp_path, str(file), "--port", "0", "--admin-port", "0")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert (
        "the certificate of the admin UI cannot be used" in done.stderr
        and "server.admin.tls" in done.stderr
    )


@pytest.mark.parametrize(
    ("admin", "place"),
    [
        ({"allowed_ips": ["example.com"]}, "server.admin.allowed_ips"),
        ({"allowed_hosts": ["http://x"]}, "server.admin.allowed_hosts"),
        ({"cors_origins": ["*"]}, "server.admin.cors_origins"),
        ({"cors_origins": ["https://x/path"]}, "server.admin.cors_origins"),
        ({"host": ""}, "server.admin.host"),
        ({"hosts": ["x"]}, "hosts"),
    ],
)
def test_mistakes_in_it_are_told_with_their_place(
    tmp_path: Path, admin: dict[str, Any], place: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config(**admin)), encoding="utf-8")
    done = mcpx(tmp_path, "check", str(file))
    assert done.returncode == 2 and place in done.stderr
