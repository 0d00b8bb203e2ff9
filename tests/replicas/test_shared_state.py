"""SCA-1: tokens, sign-ins, approvals and what is known of servers, over three real replicas; one
renewal for all."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from auth.authserver import AuthServer, open_as_browser
from behaviour.test_pins import Changing, held, tool
from behaviour.test_signing_in import where
from kit.client import Session, health, post, post_modern
from kit.command import MCPX
from kit.gateway import GatewayProcess
from kit.messages import Json, modern_headers, modern_request, request, text_of
from kit.protected_server import ProtectedServer
from kit.replicas import RedisServer, Replicas, ready
from kit.servers import raw_server
from kit.until import wait_until

CALLS = 60
SOON = 1.0
"""Seconds in which what was changed on one replica counts on all; what a busy machine takes is
added."""
SLACK = 2.0
CALM = {"hot_reload": False, "first_start_wait": 15, "startup_wait": 15}
KEY = {"MCPX_KEY": "the same on all of them"}


@pytest.fixture
def store() -> Iterator[RedisServer]:
    with RedisServer() as store:
        yield store


def soon(holds: Callable[[], Any], what: str) -> None:
    wait_until(holds, what=what, seconds=SOON + SLACK)


def typed(gateway: GatewayProcess, *command: str) -> str:
    done = subprocess.run(
        [*MCPX, *command], env=gateway.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lets_in(gateway: GatewayProcess, token: str) -> bool:
    message = modern_request("tools/list")
    headers = {**modern_headers(message), "Authorization": f"Bearer {token}"}
    return post(gateway.port, message, headers).status == 200


def all_call(
    replicas: Replicas, tool: str, begun: list[int] | None = None, **arguments: Any
) -> list[Json]:
    """Sixty calls at once, twenty through each replica; those that have `begun` are told."""

    def call(number: int) -> Json:
        if begun is not None:
            begun.append(number)
        params = {"name": tool, "arguments": arguments}
        return post_modern(
            replicas[number % len(replicas)].port, modern_request("tools/call", params)
        ).message

    with ThreadPoolExecutor(CALLS) as pool:
        return list(pool.map(call, range(CALLS)))


# --- tokens


def test_a_token_made_or_revoked_on_one_replica_counts_on_all_and_ends_what_was_open(
    store: RedisServer,
) -> None:
    """SCA-1, SEC-1: within a second; a session that stands on another replica ends, and so does its
    stream."""
    config = {
        "global": CALM,
        "server": {"auth": {"type": "bearer"}},
        "mcp_servers": [raw_server("box")],
    }
    with Replicas(store, config, 3, balanced=False, env=KEY) as replicas:
        token = json.loads(
            typed(replicas[0], "token", "new", "ann", str(replicas[0].file), "--json")
        )["token"]
        soon(
            lambda: all(lets_in(each, token) for each in replicas), "the token is let in everywhere"
        )
        session = Session(replicas[2].port, headers={"Authorization": f"Bearer {token}"})
        with session.listen() as stream:
            stream.comment()
            typed(replicas[0], "token", "revoke", "ann")
            soon(
                lambda: not any(lets_in(each, token) for each in replicas),
                "the token is let in nowhere",
            )
            soon(
                lambda: session.post(request("ping", None, 9)).status in (401, 404),
                "its session has ended",
            )
            assert stream.events() == []
        with GatewayProcess(replicas[0].config, env=KEY) as fourth:
            wait_until(lambda: ready(fourth), what="it serves")
            assert not lets_in(fourth, token)


# --- client credentials


@pytest.fixture
def guarded() -> Iterator[ProtectedServer]:
    with ProtectedServer() as server:
        yield server


def client_credentials(server: ProtectedServer) -> Json:
    auth = {
        "client_id": "client",
        "client_secret": "secret",
        "token_url": server.token_url,
        "client_auth": "basic",
    }
    connection = {"type": "http", "url": server.url("http")}
    entry = {
        "name": "http",
        "prefix": "http",
        "connection": connection,
        "auth": {"ref": "key"},
        "timeout": 20,
    }
    return {
        "global": CALM,
        "mcp_servers": [entry],
        "auth_configs": [{"name": "key", "type": "oauth2", "oauth2": auth}],
    }


def test_sixty_calls_over_three_replicas_make_one_request_for_a_token(
    store: RedisServer, guarded: ProtectedServer
) -> None:
    """SCA-1, section 6: before there is one, and when it is refused; nobody reads it in the
    store."""
    guarded.holds_tokens = True
    with Replicas(store, client_credentials(guarded), 3, balanced=False, env=KEY) as replicas:
        for _ in range(2):
            with ThreadPoolExecutor(1) as pool:
                begun: list[int] = []
                calls = pool.submit(all_call, replicas, "http_echo", begun, text="hello")
                wait_until(
                    lambda b=begun: guarded.token_requests and len(b) == CALLS,
                    what="all wait for a token",
                )
                guarded.release_tokens()
                assert {text_of(answer) for answer in calls.result(60)} == {"hello"}
            assert len(guarded.token_requests) == 1
            kept = "".join(
                store.cli("--no-raw", "GET", key)
                for key in store.cli("KEYS", "*:token:*").splitlines()
            )
            assert kept and not [token for token in guarded.valid if token in kept]
            guarded.revoke_all()  # refused from now on: everybody needs another
            guarded.token_requests.clear()
            guarded.holds_tokens = True


def test_without_the_store_each_replica_asks_for_its_own_token(
    store: RedisServer, guarded: ProtectedServer
) -> None:
    """SCA-2"""
    with Replicas(store, client_credentials(guarded), 3, balanced=False, env=KEY) as replicas:
        assert {text_of(answer) for answer in all_call(replicas, "http_echo", text="a")} == {"a"}
        assert len(guarded.token_requests) == 1
        store.kill()
        guarded.revoke_all()
        assert {text_of(answer) for answer in all_call(replicas, "http_echo", text="b")} == {"b"}
        assert len(guarded.token_requests) == 1 + 3


# --- sign-ins


def sign_ins(site: AuthServer) -> Json:
    entry = {
        "name": "guarded",
        "prefix": "guarded",
        "connection": {"type": "http", "url": site.url},
    }
    return {"global": CALM, "mcp_servers": [entry]}


def statuses(replicas: Replicas) -> list[str]:
    return [health(each.port)["servers"]["guarded"]["status"] for each in replicas]


def renewals(site: AuthServer) -> int:
    return sum(one.form.get("grant_type") == "refresh_token" for one in site.asked("/token"))


def sign_in(replicas: Replicas) -> None:
    for each in replicas:
        where(each)  # everybody has asked for it
    status, page = open_as_browser(where(replicas[0]))
    assert status == 200, page
    wait_until(lambda: statuses(replicas) == ["connected"] * 3, what="one sign-in serves all")


@pytest.mark.parametrize("env", [KEY, {}], ids=["with a key", "without"])
def test_a_sign_in_on_one_replica_serves_all_and_is_renewed_once_for_all(
    store: RedisServer, env: dict[str, str]
) -> None:
    """SCA-1, section 6: also when the token is refused, and again; a sign-out ends all."""
    with (
        AuthServer() as site,
        Replicas(store, sign_ins(site), 3, balanced=False, env=env) as replicas,
    ):
        sign_in(replicas)
        site.slow["/token"] = 0.5
        with site.lock:
            site.tokens.clear()
        assert {text_of(answer) for answer in all_call(replicas, "guarded_whoami")} == {"signed in"}
        assert renewals(site) == 1
        assert len(site.refresh_tokens) == 1  # it rotates, and nobody has used an old one
        answer = replicas[1].control("auth.logout", name="guarded")
        assert answer["ok"], answer
        wait_until(lambda: statuses(replicas) == ["needs_auth"] * 3, what="one sign-out ends all")
        if env:
            kept = [
                store.cli("--no-raw", "GET", key)
                for key in store.cli("KEYS", "*:file:auth/*").splitlines()
            ]
            assert kept and not any("refresh-" in one or "access-" in one for one in kept)


def test_a_token_that_ends_is_renewed_once_for_all(store: RedisServer) -> None:
    """SCA-1, section 6: before its end, by whoever needs it first. All have it long before that,
    also on a machine that is busy."""
    with (
        AuthServer(expires_in=15) as site,
        Replicas(store, sign_ins(site), 3, balanced=False, env=KEY) as replicas,
    ):
        sign_in(replicas)
        signed_in = time.monotonic()
        site.expires_in = 3600
        site.slow["/token"] = 0.3
        wait_until(lambda: time.monotonic() - signed_in > 13, what="it is about to end")
        assert {text_of(answer) for answer in all_call(replicas, "guarded_whoami")} == {"signed in"}
        assert {text_of(answer) for answer in all_call(replicas, "guarded_whoami")} == {"signed in"}
        assert renewals(site) == 1


def test_a_server_that_takes_no_token_has_it_renewed_once_and_not_by_each_replica(
    store: RedisServer,
) -> None:
    """SCA-1: the guard against renewing in circles is everybody's."""
    with (
        AuthServer() as site,
        Replicas(store, sign_ins(site), 3, balanced=False, env=KEY) as replicas,
    ):
        sign_in(replicas)
        with site.lock:
            site.tokens.clear()
            site._issue = refuse_new(site)  # type: ignore[method-assign]
        answers = all_call(replicas, "guarded_whoami")
        assert all("error" in answer for answer in answers)
        assert renewals(site) == 1


def refuse_new(site: AuthServer) -> Any:
    issue = site._issue

    def issued(*args: Any, **keys: Any) -> Any:
        reply = issue(*args, **keys)
        site.tokens.clear()
        return reply

    return issued


# --- approvals, and what is known


def test_what_is_approved_on_one_replica_is_shown_by_all(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1, SEC-5: within a second; and a replica that comes later knows of it."""
    box = Changing(tmp_path, tools=[tool("read")])
    config = {"global": CALM, "mcp_servers": [box.entry(trust="quarantine")]}

    def tools(gateway: GatewayProcess) -> list[str]:
        return Session(gateway.port).tools()

    with Replicas(store, config, 3, balanced=False, env=KEY) as replicas:
        for each in replicas:
            wait_until(lambda each=each: held(each) == 1, what="it waits")
        typed(replicas[0], "approve", "box", "--yes", "--config", str(replicas[0].file))
        soon(lambda: all(tools(each) == ["box_read"] for each in replicas), "it is shown by all")
        with GatewayProcess(replicas[0].config, env=KEY) as fourth:
            wait_until(lambda: ready(fourth), what="it serves")
            wait_until(lambda: tools(fourth) == ["box_read"], what="a new one shows it")


def test_a_new_replica_lists_the_tools_of_servers_that_are_not_up_yet(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1: what others have learned of a server is there before it serves."""
    box = Changing(tmp_path, tools=[tool("read")])
    entry = box.entry()
    config = {"global": {**CALM, "first_start_wait": 0}, "mcp_servers": [{**entry, "lazy": True}]}
    with Replicas(store, config, 1, balanced=False, env=KEY) as replicas:
        Session(replicas[0].port).tools()
        Session(replicas[0].port).call("box_read")
        wait_until(lambda: store.cli("KEYS", "*:file:snapshots/*"), what="it was learned")
        with GatewayProcess(replicas[0].config, env=KEY) as second:
            wait_until(lambda: ready(second), what="it serves")
            assert Session(second.port).tools() == ["box_read"]
            assert health(second.port)["servers"]["box"]["status"] != "connected"


# --- the key


def test_a_replica_lets_nobody_in_while_the_others_have_another_key(store: RedisServer) -> None:
    """SCA-3, SEC-6: whether it comes to them, or they have changed theirs."""
    config = {"global": CALM, "mcp_servers": []}
    with (
        Replicas(store, config, 1, balanced=False, env=KEY) as replicas,
        GatewayProcess(replicas[0].config, env={"MCPX_KEY": "another"}) as other,
    ):
        wait_until(lambda: "another MCPX_KEY" in other.stderr(), what="it is told")
        assert ready(replicas[0]) and not ready(other)
        store.cli("DEL", "{mcpx}:fingerprint")
        wait_until(lambda: ready(other) and not ready(replicas[0]), what="the other key counts")
        assert post_modern(replicas[0].port, modern_request("tools/list")).status == 503
        assert "Traceback" not in replicas[0].stderr() + other.stderr()
