"""Section 6 of the specification: how the gateway proves itself to servers, through the real
program."""

import base64
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from kit.client import health, post_modern
from kit.command import run_command
from kit.gateway import Gateway, GatewayProcess
from kit.messages import Json, modern_request, text_of
from kit.process_tree import descendants
from kit.protected_server import ProtectedServer
from kit.servers import raw_server
from kit.until import wait_until
from mcpx.config import load

CANARY = "canary-8f3e51d0"
CALM = {"hot_reload": False, "startup_wait": 5, "first_start_wait": 5, "log_level": "debug"}
WAYS = ("http", "sse", "websocket")
BASIC = "Basic " + base64.b64encode(f"user:{CANARY}".encode()).decode()

FIXED: dict[str, tuple[Json, Callable[[Json, Json], bool]]] = {
    "api_key-header": (
        {"type": "api_key", "api_key": {"name": "X-Key", "value": CANARY}},
        lambda headers, query: headers.get("x-key") == CANARY,
    ),
    "api_key-query": (
        {
            "type": "api_key",
            "api_key": {"location": "query", "name": "key", "value": f"{CANARY} &"},
        },
        lambda headers, query: query.get("key") == f"{CANARY} &",
    ),
    "bearer_token": (
        {"type": "bearer_token", "bearer_token": {"token": CANARY}},
        lambda headers, query: headers.get("authorization") == f"Bearer {CANARY}",
    ),
    "basic_auth": (
        {"type": "basic_auth", "basic_auth": {"username": "user", "password": CANARY}},
        lambda headers, query: headers.get("authorization") == BASIC,
    ),
    "custom_header": (
        {"type": "custom_header", "custom_header": {"headers": {"X-One": CANARY, "X-Two": "2"}}},
        lambda headers, query: headers.get("x-one") == CANARY and headers.get("x-two") == "2",
    ),
}


@pytest.fixture
def guarded() -> Iterator[ProtectedServer]:
    with ProtectedServer() as server:
        server.secret = CANARY
        server.token_mark = f"-{CANARY}"
        yield server


def oauth2(server: ProtectedServer, **fields: Any) -> Json:
    given = {
        "client_id": "client",
        "client_secret": CANARY,
        "token_url": server.token_url,
        **fields,
    }
    return {"type": "oauth2", "oauth2": given}


def config(server: ProtectedServer, auth: Json, *ways: str, **more: Any) -> Json:
    servers = [
        {
            "name": way,
            "prefix": way,
            "connection": {"type": way, "url": server.url(way)},
            "auth": {"ref": "key"},
            "timeout": 5,
            "retry_delay": 0.2,
        }
        for way in ways
    ]
    return {
        "global": CALM,
        "mcp_servers": servers,
        "auth_configs": [{"name": "key", **auth}],
        **more,
    }


def state(gateway: Gateway, name: str = "http") -> str:
    return health(gateway.port)["servers"][name]["status"]


def echo(gateway: Gateway, text: str, name: str = "http") -> Json:
    call = modern_request("tools/call", {"name": f"{name}_echo", "arguments": {"text": text}})
    return post_modern(gateway.port, call).message


def run(gateway: Gateway, *command: str) -> str:
    """What a command says to whoever types it."""
    done = run_command([*command, str(gateway.file)], gateway.folder, gateway.env)
    return done.stdout + done.stderr


def assert_keeps_its_secrets(gateway: Gateway, *told: Json) -> None:
    """Not in its log, in what clients get or commands print, in what it writes down or in how
    processes are called."""
    said = gateway.stderr() + json.dumps(told)
    said += run(gateway, "servers", "--json")
    for file in Path(gateway.env["MCPX_STATE_DIR"]).rglob("*"):
        if file.is_file():
            said += file.read_bytes().decode("utf-8", "replace")
    for pid in (gateway.pid, *descendants(gateway.pid)):
        said += Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    said += repr(load(gateway.file, os.environ))
    for spelled in (CANARY, base64.b64encode(f"user:{CANARY}".encode()).decode(), "token-"):
        assert spelled not in said, said[max(0, said.index(spelled) - 300) :][:600]


# --- what arrives


@pytest.mark.parametrize("kind", FIXED)
def test_what_an_auth_config_says_reaches_servers_of_every_kind_and_nobody_else(
    guarded: ProtectedServer, kind: str
) -> None:
    """Section 6: each type and place, over http, sse and websocket; and again when the server
    refuses it."""
    auth, guarded.admits = FIXED[kind]
    more = config(guarded, auth, *WAYS)
    more["mcp_servers"].append(raw_server("child"))
    with Gateway(more) as gateway:
        for way in WAYS:
            assert text_of(echo(gateway, f"through {way}", way)) == f"through {way}"
        assert {seen.path for seen in guarded.seen} == {"/mcp", "/sse", "/messages", "/ws"}
        assert all(seen.admitted for seen in guarded.seen if seen.verb != "WS")
        environment = echo(gateway, "", "child")
        guarded.admits = lambda headers, query: False
        shown = {"basic_auth": f"{BASIC} {CANARY}", "api_key-query": f"{CANARY} &"}.get(
            kind, CANARY
        )
        guarded.refusal = (401, [("WWW-Authenticate", f"Bearer {CANARY}")], f"not {shown}".encode())
        refused = echo(gateway, "refused")
        assert "wants the gateway to sign in" in refused["error"]["message"]
        assert state(gateway) == "needs_auth"
        assert_keeps_its_secrets(gateway, refused, environment, health(gateway.port))


@pytest.mark.parametrize("style", ["basic", "post"])
def test_client_credentials_reach_servers_of_every_kind_by_one_token(
    guarded: ProtectedServer, style: str
) -> None:
    guarded.styles = {style}
    with Gateway(config(guarded, oauth2(guarded, client_auth=style, scope="s"), *WAYS)) as gateway:
        for way in WAYS:
            assert text_of(echo(gateway, f"through {way}", way)) == f"through {way}"
        assert len(guarded.token_requests) == 1
        assert all(seen.admitted for seen in guarded.seen)
        assert_keeps_its_secrets(gateway)


# --- renewal


def test_fifty_calls_at_the_end_of_a_token_make_one_request_for_another(
    guarded: ProtectedServer,
) -> None:
    guarded.token_life = 1
    with Gateway(config(guarded, oauth2(guarded), "http")) as gateway:
        wait_until(lambda: state(gateway) == "connected")
        over = monotonic() + 1
        guarded.token_life = 3600
        wait_until(lambda: monotonic() > over)
        before = len(guarded.token_requests)
        with ThreadPoolExecutor(50) as pool:
            told = list(pool.map(lambda number: text_of(echo(gateway, str(number))), range(50)))
        assert told == [str(number) for number in range(50)]
        assert len(guarded.token_requests) - before <= 1 and len(guarded.token_requests) == 2
        assert all(seen.admitted for seen in guarded.seen)
        assert_keeps_its_secrets(gateway)


def test_fifty_calls_with_a_token_that_was_revoked_are_sent_once_more_with_another(
    guarded: ProtectedServer,
) -> None:
    with Gateway(config(guarded, oauth2(guarded), "http")) as gateway:
        wait_until(lambda: state(gateway) == "connected")
        guarded.revoke_all()
        with ThreadPoolExecutor(50) as pool:
            told = list(pool.map(lambda number: text_of(echo(gateway, str(number))), range(50)))
        assert told == [str(number) for number in range(50)]
        assert len(guarded.token_requests) == 2
        assert len([seen for seen in guarded.calls() if seen.admitted]) == 50
        assert state(gateway) == "connected"


@pytest.mark.parametrize("way", ["sse", "websocket"])
def test_a_link_that_is_opened_with_a_token_that_was_revoked_gets_another(
    guarded: ProtectedServer, way: str
) -> None:
    with Gateway(config(guarded, oauth2(guarded), way, "http")) as gateway:
        wait_until(lambda: state(gateway, way) == "connected")
        wait_until(lambda: state(gateway) == "connected")
        assert len(guarded.token_requests) == 1
        guarded.revoke_all()
        if way == "sse":
            guarded.end_stream(next(name for name in guarded.streams if name.isdigit()))
            wait_until(lambda: len(guarded.token_requests) == 2)
        assert text_of(echo(gateway, "again", way)) == "again"


def test_a_server_that_refuses_every_token_wants_somebody_to_look_after_it(
    guarded: ProtectedServer,
) -> None:
    """Each call is sent twice at most, and the token server is not asked with every call."""
    guarded.admits = lambda headers, query: False
    with Gateway(config(guarded, oauth2(guarded), "http")) as gateway:
        wait_until(lambda: state(gateway) == "needs_auth")
        told = [echo(gateway, str(number)) for number in range(10)]
        assert all("error" in each for each in told)
        assert len(guarded.token_requests) <= 4
        assert_keeps_its_secrets(gateway, *told)


# --- what goes wrong


def test_wrong_client_credentials_are_told_in_the_token_servers_words(
    guarded: ProtectedServer,
) -> None:
    guarded.secret = "another"
    with Gateway(config(guarded, oauth2(guarded), "http")) as gateway:
        told = echo(gateway, "hello")
        message = told["error"]["message"]
        assert message.startswith(
            f"http: auth config 'key': the token server 127.0.0.1:{guarded.port} refuses: "
        )
        assert "invalid_client: no such client, or another secret (HTTP 401)" in message
        assert state(gateway) == "disconnected"
        assert guarded.seen == []
        assert_keeps_its_secrets(gateway, told, health(gateway.port))


def test_a_token_server_that_is_down_is_told_and_serves_again_when_it_is_back(
    guarded: ProtectedServer,
) -> None:
    tokens = ProtectedServer()
    tokens.secret, tokens.token_mark = CANARY, f"-{CANARY}"
    with tokens:
        port = tokens.port
    guarded.admits = lambda headers, query: headers.get("authorization", "").startswith(
        "Bearer token-"
    )
    auth = oauth2(guarded, token_url=f"http://127.0.0.1:{port}/token")
    given = config(guarded, auth, "http")
    given["mcp_servers"][0] |= {"retry_delay": 0.1, "max_retries": 20}
    with Gateway(given) as gateway:
        told = echo(gateway, "hello")
        assert f"the token server 127.0.0.1:{port} cannot be asked" in told["error"]["message"]
        assert guarded.seen == []
        back = ProtectedServer()
        back.secret, back.token_mark = CANARY, f"-{CANARY}"
        back.port = port
        with back:
            wait_until(lambda: state(gateway) == "connected")
            assert text_of(echo(gateway, "back")) == "back"
            assert_keeps_its_secrets(gateway, told)


# --- changes


def test_a_changed_auth_config_is_taken_up_by_the_servers_and_commands_that_use_it(
    guarded: ProtectedServer,
) -> None:
    """CFG-5."""
    given = {"value": CANARY}
    guarded.admits = lambda headers, query: headers.get("x-key", "none") in ("none", given["value"])
    before = config(guarded, FIXED["api_key-header"][0], "http")
    before["mcp_servers"].append(raw_server("child"))
    request = {
        "url": guarded.url("http"),
        "method": "DELETE",
        "auth": {"ref": "key"},
        "allow_private": True,
    }
    before["commands"] = [{"name": "ask", "type": "http", "http": request}]
    with GatewayProcess(before) as gateway:
        assert text_of(echo(gateway, "old")) == "old"
        assert (
            "result"
            in post_modern(
                gateway.port, modern_request("tools/call", {"name": "ask", "arguments": {}})
            ).message
        )
        children = descendants(gateway.process.pid)
        given["value"] = "another value"
        after = json.loads(json.dumps(before).replace(CANARY, "another value"))
        gateway.file.write_text(json.dumps(after), encoding="utf-8")
        assert "1 restarted (http)" in run(gateway, "reload")
        assert text_of(echo(gateway, "new")) == "new"
        assert guarded.calls()[-1].headers["x-key"] == "another value"
        asked = post_modern(
            gateway.port, modern_request("tools/call", {"name": "ask", "arguments": {}})
        ).message
        assert (
            not asked["result"].get("isError")
            and guarded.seen[-1].headers["x-key"] == "another value"
        )
        assert descendants(gateway.process.pid) == children
