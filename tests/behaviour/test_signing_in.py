"""Section 6: a server that wants a sign-in is one click away, and stays signed in.

The authorization server and the MCP server behind it are real (`auth.authserver`), the gateway is
the program; for a browser stands whoever follows redirects.
"""

import contextlib
import socket
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from auth.authserver import PRM, AuthServer, Reply, Seen, open_as_browser
from behaviour.compact import next_notice, replace
from kit.client import Session, StdioClient, health
from kit.gateway import Gateway, GatewayProcess
from kit.messages import Json, text_of
from kit.until import wait_until

KEY = "a key for this test"


def entry(site: AuthServer, name: str = "guarded", **keys: Any) -> Json:
    return {"name": name, "prefix": name, "connection": {"type": "http", "url": site.url}, **keys}


def config(*servers: Json, **more: Any) -> Json:
    return {
        "mcp_servers": list(servers),
        "global": {"hot_reload_interval": 0.1, "log_level": "DEBUG"},
        **more,
    }


def told(gateway: Gateway, name: str = "guarded") -> Json:
    return next(server for server in gateway.control("status")["servers"] if server["name"] == name)


def where(gateway: Gateway, name: str = "guarded") -> str:
    """Where to sign in, as soon as the gateway says so."""
    wait_until(
        lambda: (
            (server := told(gateway, name))["status"] == "needs_auth"
            and server["auth_url"] is not None
        )
    )
    return told(gateway, name)["auth_url"]


def is_connected(gateway: Gateway, name: str = "guarded") -> Callable[[], bool]:
    return lambda: health(gateway.port)["servers"][name]["status"] == "connected"


def sign_in(gateway: Gateway, name: str = "guarded") -> None:
    status, page = open_as_browser(where(gateway, name))
    assert status == 200 and name in page, page
    wait_until(is_connected(gateway, name))


def state_of(gateway: Gateway) -> Path:
    return Path(gateway.env["MCPX_STATE_DIR"])


def kept(state: Path) -> bytes:
    """All that is in files."""
    return b"".join(file.read_bytes() for file in state.rglob("*") if file.is_file())


def secrets_of(site: AuthServer) -> list[str]:
    return [*site.tokens, *site.refresh_tokens, *site.codes]


def test_opening_where_a_server_wants_a_sign_in_connects_it_without_a_restart() -> None:
    """Section 6, LIF-3: `needs_auth` with an `auth_url`, then tools, and clients are told."""
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        client = Session(gateway.port)
        assert client.tools() == []
        url = where(gateway)
        assert url.startswith(f"{site.issuer}/authorize?")
        server = told(gateway)
        assert server["last_error"].endswith("; sign in: mcpx auth login guarded")
        with client.listen() as stream:
            stream.comment()
            status, page = open_as_browser(url)
            assert status == 200 and "guarded" in page
            assert next_notice(stream) == "notifications/tools/list_changed"
        assert client.tools() == ["guarded_whoami"]
        assert text_of(client.call("guarded_whoami")) == "signed in"
        server = told(gateway)
        assert (server["status"], server["auth_url"], server["last_error"]) == (
            "connected",
            None,
            None,
        )
        assert open_as_browser(url)[0] == 400  # a sign-in is answered once
        said = gateway.stderr()
        assert not [secret for secret in secrets_of(site) if secret in said]
        assert parse_qs(urlsplit(url).query)["state"][0] not in said


def test_a_call_meanwhile_fails_at_once_and_says_how_to_sign_in() -> None:
    """Section 6: and however many there are, the server is left alone."""
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        url = where(gateway)
        before = len(site.asked("/mcp"))
        client = Session(gateway.port)
        for _ in range(20):
            error = client.call("guarded_whoami")["error"]
            assert (
                error["message"].startswith("guarded: ")
                and "mcpx auth login guarded" in error["message"]
            )
            assert error["data"].pop("request_id")
            assert error["data"] == {"server": "guarded", "auth_url": url}
        assert len(site.asked("/mcp")) == before
        assert len(site.asked("/register")) == 1
        assert told(gateway)["auth_url"] == url  # somebody may have it open


def test_what_is_known_of_a_server_says_nothing_to_strangers() -> None:
    """Who opens an `auth_url` signs this gateway in, as whoever they are: `/health` does not tell
    it."""
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        where(gateway)
        assert "auth_url" not in str(health(gateway.port))
        assert "/authorize" not in str(health(gateway.port))


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
def test_a_restart_keeps_the_sign_in_in_files_of_the_users_own(
    tmp_path: Path, key: str | None
) -> None:
    """Section 6: 0600, and encrypted with `MCPX_KEY`."""
    env = {"MCPX_STATE_DIR": str(tmp_path / "state"), **({} if key is None else {"MCPX_KEY": key})}
    with AuthServer() as site:
        with Gateway(config(entry(site)), env=env) as gateway:
            sign_in(gateway)
            assert KEY not in gateway.stderr()
        folder = tmp_path / "state" / "auth"
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        found = [
            secret for secret in secrets_of(site) if secret.encode() in kept(tmp_path / "state")
        ]
        assert bool(found) == (key is None)
        signed_in = len(site.asked("/authorize"))
        with Gateway(config(entry(site)), env=env) as gateway:
            wait_until(is_connected(gateway))
            assert text_of(Session(gateway.port).call("guarded_whoami")) == "signed in"
            assert told(gateway)["auth_url"] is None
        assert len(site.asked("/authorize")) == signed_in
        if key is not None:
            with Gateway(config(entry(site)), env={**env, "MCPX_KEY": "another"}) as gateway:
                where(gateway)  # as if nobody had signed in
                assert "MCPX_KEY" in gateway.stderr()


def test_a_token_that_is_no_longer_taken_is_renewed_once_for_all_calls() -> None:
    """Section 6: twenty calls that wait, one renewal, nobody is asked."""
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        sign_in(gateway)
        clients = [Session(gateway.port) for _ in range(20)]
        before = len(site.asked("/token"))
        with site.lock:
            site.tokens.clear()
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda client: text_of(client.call("guarded_whoami")), clients))
        assert answers == ["signed in"] * 20
        assert len(site.asked("/token")) == before + 1
        assert is_connected(gateway)()


def test_when_renewing_is_refused_somebody_is_asked_again_and_the_calls_say_so() -> None:
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        sign_in(gateway)
        client = Session(gateway.port)
        with site.lock:
            site.tokens.clear()
            site.refresh_tokens.clear()
        assert "mcpx auth login guarded" in client.call("guarded_whoami")["error"]["message"]
        url = where(gateway)
        assert client.call("guarded_whoami")["error"]["data"]["auth_url"] == url
        sign_in(gateway)
        assert text_of(client.call("guarded_whoami")) == "signed in"


def test_calls_that_wait_while_somebody_signs_in_go_on() -> None:
    """A call that comes while the server is being connected waits for that."""
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        url = where(gateway)
        clients = [Session(gateway.port) for _ in range(20)]
        site.instead["/mcp"] = Reply(401, after=0.3)
        opened = threading.Thread(target=open_as_browser, args=(url,))
        opened.start()
        wait_until(lambda: health(gateway.port)["servers"]["guarded"]["status"] == "connecting")
        with ThreadPoolExecutor(20) as pool:
            calls = [pool.submit(client.call, "guarded_whoami") for client in clients]
            del site.instead["/mcp"]
            answers = [call.result() for call in calls]
        opened.join()
        assert [answer.get("result", answer.get("error")) for answer in answers] and {
            text_of(answer) for answer in answers if "result" in answer
        } <= {"signed in"}
        wait_until(is_connected(gateway))
        assert text_of(clients[0].call("guarded_whoami")) == "signed in"


def test_a_tool_that_needs_more_asks_for_more_while_others_go_on() -> None:
    """Section 6, step-up: the error says where; after the sign-in the call works."""
    with AuthServer(resource_scopes=["read"]) as site, Gateway(config(entry(site))) as gateway:
        site.needs = lambda method: "write" if method == "tools/call" else ""
        sign_in(gateway)
        client = Session(gateway.port)
        error = client.call("guarded_whoami")["error"]
        assert "mcpx auth login guarded" in error["message"]
        wait_until(lambda: told(gateway)["auth_url"] is not None)
        server = told(gateway)
        assert server["status"] == "needs_auth"
        assert set(parse_qs(urlsplit(server["auth_url"]).query)["scope"][0].split()) == {
            "read",
            "write",
        }
        assert client.request("tools/list")["result"][
            "tools"
        ]  # and nothing else has come to a stop
        assert len(site.asked("/token")) == 1
        assert open_as_browser(server["auth_url"])[0] == 200
        wait_until(
            lambda: told(gateway)["auth_url"] is None and told(gateway)["status"] == "connected"
        )
        assert text_of(client.call("guarded_whoami")).split() == ["read", "write"]


@pytest.mark.parametrize(
    "keys",
    [
        {"auth": {"ref": "mine"}},
        {"connection": {"type": "http", "headers": {"Authorization": "Bearer canary-1234"}}},
    ],
    ids=["auth", "header"],
)
def test_what_the_config_says_and_the_server_does_not_take_is_told_and_nobody_is_asked(
    keys: Json,
) -> None:
    """LIF-3: the way to sign in was chosen by the user."""
    with AuthServer() as site:
        server = entry(site)
        server["connection"].update(keys.pop("connection", {}))
        auths = [{"name": "mine", "type": "bearer_token", "bearer_token": {"token": "canary-1234"}}]
        with Gateway(config({**server, **keys}, auth_configs=auths)) as gateway:
            wait_until(lambda: told(gateway)["status"] == "needs_auth")
            found = told(gateway)
            assert found["auth_url"] is None and "is not taken" in found["last_error"]
            assert "canary-1234" not in str(gateway.control("status")) + gateway.stderr()
            assert (
                "is not taken" in Session(gateway.port).call("guarded_whoami")["error"]["message"]
            )
            assert not site.asked(f"{PRM}/mcp") and not site.asked("/register")


@pytest.mark.parametrize("kind", ["sse", "websocket"])
def test_servers_on_other_transports_say_where_to_sign_in_too(kind: str) -> None:
    with AuthServer() as site:
        url = site.url.replace("http", "ws") if kind == "websocket" else site.url
        with Gateway(config(entry(site, connection={"type": kind, "url": url}))) as gateway:
            assert where(gateway).startswith(f"{site.issuer}/authorize?")


def test_two_servers_at_one_address_are_two_sign_ins() -> None:
    """They may be two accounts."""
    with AuthServer() as site, Gateway(config(entry(site, "home"), entry(site, "work"))) as gateway:
        sign_in(gateway, "home")
        assert where(gateway, "work")
        client = Session(gateway.port)
        assert text_of(client.call("home_whoami")) == "signed in"
        sign_in(gateway, "work")
        assert text_of(client.call("work_whoami")) == "signed in"
        assert len(site.grants) == 2


def test_signing_out_ends_it_and_the_next_sign_in_begins_it_again() -> None:
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        sign_in(gateway)
        secrets = secrets_of(site)
        answer = gateway.control("auth.logout", name="guarded")
        assert (answer["ok"], answer["was"]) == (True, "signed_in")
        where(gateway)
        assert not [secret for secret in secrets if secret.encode() in kept(state_of(gateway))]
        wait_until(lambda: not site.tokens and not site.refresh_tokens)  # the issuer was told
        sign_in(gateway)
        assert text_of(Session(gateway.port).call("guarded_whoami")) == "signed in"


def test_a_reload_keeps_the_sign_in_and_one_that_is_under_way() -> None:
    """CFG-5: also where the server itself is started anew by it."""
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        url = where(gateway)
        changed = entry(site, isolation="per_session")
        replace(gateway, config(changed))
        wait_until(lambda: gateway.control("status")["revision"] == 2)
        status, page = open_as_browser(told(gateway)["auth_url"] or url)
        assert status == 200, page
        wait_until(is_connected(gateway))
        replace(gateway, config({**changed, "isolation": "shared", "description": "again"}))
        wait_until(lambda: gateway.control("status")["revision"] == 3)
        wait_until(is_connected(gateway))
        assert text_of(Session(gateway.port).call("guarded_whoami")) == "signed in"
        assert len(site.asked("/authorize")) == 1


def test_other_credentials_are_another_sign_in() -> None:
    """CFG-5: a changed `auth` starts the server anew, as somebody else."""
    with AuthServer(known_clients={"by-hand": ""}) as site, Gateway(config(entry(site))) as gateway:
        sign_in(gateway)
        auths = [
            {"name": "mine", "type": "oauth", "oauth": {"client_id": "by-hand", "scope": "read"}}
        ]
        replace(gateway, config(entry(site, auth={"ref": "mine"}), auth_configs=auths))
        wait_until(lambda: gateway.control("status")["revision"] == 2)
        sign_in(gateway)
        assert text_of(Session(gateway.port).call("guarded_whoami")) == "read"
        assert site.grants[-1].client == "by-hand"


def test_two_gateways_on_one_state_folder_share_a_sign_in(tmp_path: Path) -> None:
    """What one of them renews, the other uses."""
    env = {"MCPX_STATE_DIR": str(tmp_path / "state")}
    with AuthServer() as site, Gateway(config(entry(site)), env=env) as one:
        sign_in(one)
        with Gateway(config(entry(site)), env=env) as two:
            wait_until(is_connected(two))
            clients = [Session(one.port), Session(two.port)]
            before = len(site.asked("/token"))
            with site.lock:
                site.tokens.clear()
            assert [text_of(client.call("guarded_whoami")) for client in clients] == [
                "signed in"
            ] * 2
            assert len(site.asked("/token")) == before + 1


def test_an_end_in_the_middle_of_a_sign_in_leaves_nothing() -> None:
    """LIF-8: exit code 0, nobody listens any more."""
    with AuthServer() as site:
        with Gateway(config(entry(site))) as gateway:
            back = urlsplit(parse_qs(urlsplit(where(gateway)).query)["redirect_uri"][0])
            site.instead["/token"] = Reply(500, after=30)
            url = told(gateway)["auth_url"]

            def left_alone() -> None:
                with contextlib.suppress(OSError):
                    open_as_browser(url)

            opened = threading.Thread(target=left_alone, daemon=True)
            opened.start()
            wait_until(lambda: bool(site.asked("/token")))
        opened.join(10)
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", back.port or 0)) != 0


def test_a_client_on_stdio_is_told_when_somebody_has_signed_in() -> None:
    with (
        AuthServer() as site,
        GatewayProcess(config(entry(site)), transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as pipe,
    ):
        pipe.greet()
        assert pipe.request("tools/list")["result"]["tools"] == []
        assert open_as_browser(where(gateway))[0] == 200
        assert pipe.message()["method"] == "notifications/tools/list_changed"
        assert text_of(pipe.call("guarded_whoami")) == "signed in"


@pytest.mark.parametrize("trouble", ["no metadata", "the issuer is down", "no registration"])
def test_a_server_that_nobody_can_sign_in_to_says_why(trouble: str) -> None:
    with AuthServer() as site:
        match trouble:
            case "no metadata":
                site.prm_path = site.asm_path = None
                site.registers = False
            case "the issuer is down":
                site.instead["/register"] = Reply(503)
            case _:
                site.registers = False
        with Gateway(config(entry(site))) as gateway:
            wait_until(lambda: "nobody can sign in: " in (told(gateway)["last_error"] or ""))
            server = told(gateway)
            assert (server["status"], server["auth_url"]) == ("needs_auth", None)
            assert (
                "nobody can sign in"
                in Session(gateway.port).call("guarded_whoami")["error"]["message"]
            )


def test_a_refused_sign_in_is_said_and_can_be_tried_again() -> None:
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        url = where(gateway)
        back = parse_qs(urlsplit(url).query)
        status, page = open_as_browser(
            f"{back['redirect_uri'][0]}?error=access_denied&error_description=%3Cb%3Eno&state={back['state'][0]}"
        )
        assert status == 400 and "access_denied" in page and "<b>" not in page
        answer = gateway.control("auth.login", name="guarded")
        assert answer["ok"] and answer["auth_url"] != url
        assert open_as_browser(answer["auth_url"])[0] == 200
        wait_until(is_connected(gateway))


class Insatiable(AuthServer):
    """Wants another scope with every call."""

    def _mcp(self, one: Seen) -> Reply:
        if one.method == "POST" and one.json.get("method") == "tools/call":
            scope = f'scope="s{len(self.seen)}"'
            return Reply(403, {}, self._challenge('error="insufficient_scope"', scope))
        return super()._mcp(one)


def test_a_server_that_always_wants_other_rights_does_not_have_everybody_asked_without_end() -> (
    None
):
    """Each asking is a registration, and ends the page that somebody may have open."""
    with Insatiable() as site, Gateway(config(entry(site))) as gateway:
        sign_in(gateway)
        site.seen.clear()
        client = Session(gateway.port)
        for _ in range(100):
            assert "mcpx auth login guarded" in client.call("guarded_whoami")["error"]["message"]
        assert 1 <= len(site.asked("/register")) <= 4
        assert open_as_browser(told(gateway)["auth_url"])[0] == 200


def test_who_signs_out_is_told_when_it_will_not_last() -> None:
    with AuthServer() as site, Gateway(config(entry(site))) as gateway:
        sign_in(gateway)
        for file in (state_of(gateway) / "auth").glob("*.json"):
            file.unlink()
            (file / "in the way").mkdir(parents=True)  # which not even root may unlink
        answer = gateway.control("auth.logout", name="guarded")
        assert not answer["ok"] and "cannot be deleted" in answer["error"]
        assert "Traceback" not in gateway.stderr()
        where(gateway)


class Hall(AuthServer):
    """Greets everybody, and shows what it offers to who has signed in."""

    free = ("initialize", "notifications/initialized")

    def _mcp(self, one: Seen) -> Reply:
        if (
            one.method != "POST"
            or one.json.get("method") not in self.free
            or "authorization" in one.headers
        ):
            return super()._mcp(one)
        self.tokens[""] = ""  # for this one request
        try:
            return super()._mcp(one)
        finally:
            del self.tokens[""]


@pytest.mark.parametrize("free", [(), ("ping",)])
def test_a_server_that_greets_everybody_and_lists_nothing_needs_a_sign_in(
    free: tuple[str, ...],
) -> None:
    """LIF-3: it is not down, and not tried again and again."""
    with Hall() as site:
        site.free = (*Hall.free, *free)
        with Gateway(config(entry(site))) as gateway:
            url = where(gateway)
            server = told(gateway)
            assert server["last_error"].endswith("; sign in: mcpx auth login guarded")
            assert server["restarts"] == 0
            assert (
                len(
                    [
                        one
                        for one in site.asked("/mcp", "POST")
                        if one.json["method"] == "tools/list"
                    ]
                )
                == 1
            )
            assert open_as_browser(url)[0] == 200
            wait_until(is_connected(gateway))
            assert Session(gateway.port).tools() == ["guarded_whoami"]


@pytest.mark.parametrize(
    ("mode", "tool", "arguments"),
    [
        ("search", "mcp_list_services", {}),
        ("search", "mcp_search_tools", {"service_name": "guarded"}),
        ("search", "mcp_execute_tool", {"tool_name": "guarded_whoami", "arguments": {}}),
        ("inspect", "inspect", {"server_name": "guarded"}),
        ("describe", "describe", {"method": "guarded"}),
        ("describe", "call", {"method": "guarded.whoami", "arguments": {}}),
    ],
)
def test_a_model_that_asks_for_the_tools_of_a_server_is_told_how_to_sign_in(
    mode: str, tool: str, arguments: Json
) -> None:
    """SUR-9: whichever way it asks, the whole command is there to be passed on."""
    with (
        AuthServer() as site,
        Gateway(config(entry(site, description="Issues"), mode=mode)) as gateway,
    ):
        where(gateway)
        said = Session(gateway.port).call(tool, **arguments)
        assert "mcpx auth login guarded" in said["result"]["content"][0]["text"], said
