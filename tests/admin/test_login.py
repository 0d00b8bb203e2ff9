"""ADM-6: one-time URLs, sessions of browsers, tokens of scripts."""

import json
from typing import Any

import pytest

from kit.admin_api import browser_session, session_headers
from kit.command import mcpx
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import Reply, fetch


def follow(gateway: Gateway, url: str, **headers: str) -> Reply:
    return fetch(gateway.admin_url, url.removeprefix(gateway.admin_url), headers=headers)


def new_url(gateway: Gateway) -> str:
    return str(gateway.control("admin")["url"])


def token_of(url: str) -> str:
    return url.rpartition("=")[2]


def log_in(gateway: Gateway, token: str) -> Reply:
    return fetch(gateway.admin_url, "/api/login", "POST", body={"token": token})


def signed_in(gateway: Gateway, session: dict[str, str]) -> bool:
    return bool(fetch(gateway.admin_url, "/api/session", headers=session).json["signed_in"])


def test_the_printed_url_logs_a_browser_in_once() -> None:
    """The URL leads to the login screen, with the token in the fragment, and the screen posts the
    token."""
    with GatewayProcess({"mcp_servers": []}, admin=True) as gateway:
        login_url = gateway.control("admin")["url"]
        page = follow(gateway, login_url)
        token = token_of(login_url)
        assert (page.status, page.headers["location"]) == (303, f"/#/login?token={token}")
        assert (
            page.headers["referrer-policy"] == "no-referrer"
            and page.headers["cache-control"] == "no-store"
        )
        assert page.headers["set-cookie"] is None

        login = log_in(gateway, token)
        cookie = login.headers["set-cookie"]
        assert (
            "HttpOnly" in cookie
            and "SameSite=Strict" in cookie
            and "Path=/" in cookie
            and "Secure" not in cookie
        )
        assert gateway.admin_token not in cookie and token not in cookie
        assert signed_in(gateway, session_headers(login))
        assert log_in(gateway, token).status == 401


def test_looking_at_a_login_url_does_not_spend_it(gateway: Gateway) -> None:
    """A browser that looks ahead, a program that shows what is behind a link."""
    url = new_url(gateway)
    path = url.removeprefix(gateway.admin_url)
    assert fetch(gateway.admin_url, path, "HEAD").status == 204
    assert fetch(gateway.admin_url, path, "POST").status == 405
    assert follow(gateway, url, **{"Sec-Purpose": "prefetch;prerender"}).status == 204
    assert (
        fetch(gateway.admin_url, path + "&" + path.partition("?")[2]).headers["location"]
        == "/#/login"
    )
    assert follow(gateway, url).headers["set-cookie"] is None
    assert log_in(gateway, token_of(url)).status == 200


def test_a_script_may_go_on_with_the_token_of_a_login_url_that_nobody_used(
    gateway: Gateway,
) -> None:
    url = new_url(gateway)
    bearer = {"Authorization": f"Bearer {url.rpartition('=')[2]}"}
    for _ in range(3):
        assert fetch(gateway.admin_url, "/api/session", headers=bearer).json["by"] == "token"
    assert log_in(gateway, token_of(url)).status == 401
    spent = token_of(new_url(gateway))
    log_in(gateway, spent)
    bearer = {"Authorization": f"Bearer {spent}"}
    assert fetch(gateway.admin_url, "/api/session", headers=bearer).status == 401


def test_only_so_many_login_urls_are_good_at_a_time(gateway: Gateway) -> None:
    urls = [new_url(gateway) for _ in range(17)]
    assert log_in(gateway, token_of(urls[0])).status == 401
    assert log_in(gateway, token_of(urls[1])).status == 200


def test_a_browser_logs_in_with_the_token_and_out_again(gateway: Gateway) -> None:
    login = log_in(gateway, gateway.admin_token)
    told = login.json
    assert told == {
        "signed_in": True,
        "by": "cookie",
        "version": told["version"],
        "secret": told["secret"],
    }
    session = session_headers(login)
    assert signed_in(gateway, session)
    assert (
        fetch(gateway.admin_url, "/api/logout", "POST", headers={"Cookie": login.cookie}).status
        == 401
    )
    out = fetch(gateway.admin_url, "/api/logout", "POST", headers=session)
    assert (out.status, out.body) == (204, b"") and "Max-Age=0" in out.headers["set-cookie"]
    assert not signed_in(gateway, session)
    assert fetch(gateway.admin_url, "/api/about", headers=session).status == 401


def test_logging_in_again_ends_the_session_before(
    gateway: Gateway, session: dict[str, str]
) -> None:
    body = {"token": gateway.admin_token}
    login = fetch(gateway.admin_url, "/api/login", "POST", headers=session, body=body)
    assert signed_in(gateway, session_headers(login)) and not signed_in(gateway, session)


@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        ({"token": "wrong"}, 401, None),
        ({"token": ""}, 422, "token"),
        ({"token": "x" * 2000}, 422, "token"),
        ({"token": 1}, 422, "token"),
        ({}, 422, "token"),
        ([], 422, None),
        (None, 422, None),
        ({"token": "x" * 5000}, 413, None),
    ],
)
def test_a_login_that_is_wrong_is_told_how(
    gateway: Gateway, body: Any, status: int, path: str | None
) -> None:
    answer = fetch(gateway.admin_url, "/api/login", "POST", body=body)
    error = answer.json["error"]
    assert (answer.status, error["path"]) == (status, path) and error["message"]
    assert "xxxx" not in answer.body.decode()


@pytest.mark.parametrize(
    "body", [b"{", b'{"token": "\xff"}', b'{"token": "\\ud800"}', b"[" * 3000, b'{"token": NaN}']
)
def test_what_is_not_json_is_told_so(gateway: Gateway, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = fetch(gateway.admin_url, "/api/login", "POST", headers=headers, body=body)
    assert (answer.status, answer.code) == (400, "bad_json")


def test_another_token_in_the_file_counts_at_once_and_ends_what_came_from_the_one_before() -> None:
    config = {"mcp_servers": [], "server": {"admin_token": "the-first-token-of-them-all"}}
    with Gateway(config, admin=True, env={"MCPX_ADMIN_TOKEN": ""}) as gateway:
        first = {"Authorization": "Bearer the-first-token-of-them-all"}
        session = session_headers(log_in(gateway, token_of(gateway.login_url)))
        url = new_url(gateway)
        assert fetch(gateway.admin_url, "/api/session", headers=first).json["by"] == "token"

        config["server"] = {"admin_token": "the-second-token-of-them-all"}
        assert "server.admin_token" in gateway.reload(config)["plan"]
        assert fetch(gateway.admin_url, "/api/session", headers=first).status == 401
        assert not signed_in(gateway, session)
        assert log_in(gateway, token_of(url)).status == 401
        second = {"Authorization": "Bearer the-second-token-of-them-all"}
        assert fetch(gateway.admin_url, "/api/session", headers=second).json["by"] == "token"
        assert "of-them-all" not in gateway.stderr()


def test_the_token_of_the_environment_wins_and_is_not_shown_to_servers(gateway: Gateway) -> None:
    config = {"mcp_servers": [], "server": {"admin_token": "only-in-the-file-of-it"}}
    with Gateway(config, admin=True) as other:
        bearer = {"Authorization": "Bearer only-in-the-file-of-it"}
        assert fetch(other.admin_url, "/api/session", headers=bearer).status == 401
        assert (
            fetch(other.admin_url, "/api/session", headers=other.admin_headers).json["by"]
            == "token"
        )


def test_many_wrong_tokens_are_put_off_and_the_right_one_is_not_shut_out() -> None:
    with Gateway({"mcp_servers": []}, admin=True) as gateway:
        wrong = [
            fetch(
                gateway.admin_url, "/api/about", headers={"Authorization": f"Bearer guess-{number}"}
            ).status
            for number in range(13)
        ]
        assert wrong[:10] == [401] * 10 and wrong[11:] == [429] * 2
        put_off = fetch(gateway.admin_url, "/api/login", "POST", body={"token": "guess"})
        assert (put_off.status, put_off.code) == (429, "too_many_attempts")
        assert 1 <= int(put_off.headers["retry-after"]) <= 60
        assert (
            fetch(gateway.admin_url, "/api/session", headers=gateway.admin_headers).json["by"]
            == "token"
        )
        assert log_in(gateway, gateway.admin_token).cookie
        assert log_in(gateway, token_of(gateway.login_url)).cookie


def test_a_short_token_cannot_be_tried_on_and_its_owner_still_gets_in() -> None:
    """Whoever guesses must not find it in the end; a session and `mcpx admin` need no guess."""
    with Gateway({"mcp_servers": []}, admin=True, env={"MCPX_ADMIN_TOKEN": "sesame"}) as gateway:
        bearer = {"Authorization": "Bearer sesame"}
        session = browser_session(gateway, "sesame")
        for number in range(11):
            fetch(gateway.admin_url, "/api/about", headers={"Authorization": f"Bearer {number}"})
        assert fetch(gateway.admin_url, "/api/session", headers=bearer).status == 429
        assert signed_in(gateway, session)
        assert log_in(gateway, token_of(new_url(gateway))).cookie
        assert "is short" in gateway.stderr()


def test_mcpx_admin_prints_a_new_login_url(gateway: Gateway) -> None:
    done = mcpx(gateway.folder, "admin", str(gateway.file))
    assert (done.returncode, done.stderr) == (0, "")
    assert log_in(gateway, token_of(done.stdout.strip())).cookie


def test_mcpx_admin_says_what_is_missing(gateway: Gateway) -> None:
    with Gateway({"mcp_servers": []}) as without:
        done = mcpx(without.folder, "admin", str(without.file))
        assert (done.returncode, done.stdout) == (
            1,
            "",
        ) and "started without --admin" in done.stderr
        nobody = without.folder / "other.json"
        nobody.write_text(json.dumps({"mcp_servers": []}), encoding="utf-8")
        done = mcpx(without.folder, "admin", str(nobody))
        assert done.returncode == 3 and f"mcpx {nobody} --admin" in done.stderr
