"""SEC-1: who comes in by which token, what they get, and how soon somebody who has lost it is
gone."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from kit.client import ACCEPT_BOTH, WAIT_SECONDS, Session, Stream, post
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import fetch
from kit.messages import (
    Json,
    initialize_request,
    modern_headers,
    modern_request,
    notification,
    request,
    text_of,
)
from kit.protected_server import ProtectedServer
from kit.servers import odd_server, recorded_messages
from kit.until import wait_until
from mcpx.front.identity.store import TokenStore

SOON = 1.0
"""Seconds in which somebody who lost their token must be gone; what a busy machine takes is added
by the test."""
SLACK = 2.0

HANG = {"name": "odd_hang", "arguments": {}}
ECHO = {"name": "odd_echo", "arguments": {"text": "hi"}}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def config(auth: Json | None, record: Path, **more: Any) -> Json:
    server = {} if auth is None else {"auth": auth}
    return {
        "server": {**server, **more.pop("server", {})},
        "global": {"hot_reload": False, "first_start_wait": WAIT_SECONDS},
        "mcp_servers": [odd_server("odd", record)],
        **more,
    }


def store_of(gateway: Gateway) -> TokenStore:
    return TokenStore(gateway.folder / "state")


def reload(gateway: Gateway, changed: Json) -> None:
    """Have it read a changed file, and wait until it has."""
    assert gateway.reload(changed)["ok"]


class Presence:
    """One bearer with something open on every transport, a call in flight on each."""

    def __init__(self, port: int, token: str, stack: contextlib.ExitStack, record: Path) -> None:
        self.port, self.headers = port, bearer(token)
        before = len(recorded_messages(record, "tools/call"))
        self.session = Session(port, headers=self.headers)
        self.listening = stack.enter_context(self.session.listen())
        self.listening.comment()
        self.older = stack.enter_context(self.session.start("tools/call", HANG))
        self.modern = stack.enter_context(self._post_modern("tools/call", HANG))
        self.listen = stack.enter_context(
            self._post_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        )
        assert self.listen.event() is not None
        self.legacy = stack.enter_context(
            Stream(port, "GET", "/sse", [("Accept", "text/event-stream"), *self.headers.items()])
        )
        event = self.legacy.event()
        assert event is not None
        self.endpoint = event["data"]
        for message in (
            initialize_request("2024-11-05"),
            notification("notifications/initialized"),
        ):
            assert post(port, message, self.headers, self.endpoint).status == 202
        assert self.legacy.event() is not None
        assert post(port, request("tools/call", HANG, 7), self.headers, self.endpoint).status == 202
        self.socket: ClientConnection = stack.enter_context(
            connect(
                f"ws://127.0.0.1:{port}/ws",
                additional_headers=self.headers,
                open_timeout=WAIT_SECONDS,
            )
        )
        self.socket.send(json.dumps(initialize_request()))
        self.socket.recv(WAIT_SECONDS)
        self.socket.send(json.dumps(request("tools/call", HANG, 8)))
        wait_until(lambda: len(recorded_messages(record, "tools/call")) == before + 4)

    def _post_modern(self, method: str, params: Json) -> Stream:
        message = modern_request(method, params)
        headers = {
            "Content-Type": "application/json",
            "Accept": ACCEPT_BOTH,
            **modern_headers(message),
            **self.headers,
        }
        return Stream(self.port, "POST", "/mcp", headers.items(), json.dumps(message).encode())

    def ends(self) -> None:
        """Every one of them ends, with an error where an answer was waited for."""
        assert self.listening.event() is None
        assert "error" in self.older.reply().message
        assert "error" in self.modern.reply().message
        assert all("result" not in event.get("data", {}) for event in self.listen.events())
        assert all("result" not in event.get("data", {}) for event in self.legacy.events())
        with pytest.raises(ConnectionClosed) as closed:
            while "result" not in json.loads(self.socket.recv(WAIT_SECONDS)):
                pass
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        for method, path in (
            ("POST", "/mcp"),
            ("GET", "/sse"),
            ("GET", "/mcp"),
            ("POST", self.endpoint),
        ):
            assert fetch(self.port, path, method, self.headers.items(), b"{}").status == 401

    def goes_on(self) -> None:
        assert text_of(self.session.request("tools/call", ECHO)) == "hi"
        self.socket.send(json.dumps(request("ping", None, 9)))
        assert json.loads(self.socket.recv(WAIT_SECONDS))["id"] == 9
        assert post(self.port, request("ping", None, 10), self.headers, self.endpoint).status == 202
        assert self.legacy.data()["id"] == 10


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record"


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def test_a_revoked_token_ends_all_that_its_bearer_has_open_and_nobody_elses(
    record: Path, stack: contextlib.ExitStack
) -> None:
    """SEC-1: within a second, calls in flight included, on every transport; the calls are cancelled
    at the server."""
    gateway = stack.enter_context(GatewayProcess(config({"type": "bearer"}, record)))
    store = store_of(gateway)
    ann, bob = store.add("ann"), store.add("bob")
    wait_until(lambda: post(gateway.port, initialize_request(), bearer(bob)).status == 200)
    gone, stays = (
        Presence(gateway.port, ann, stack, record),
        Presence(gateway.port, bob, stack, record),
    )
    began = time.monotonic()
    assert store.revoke("ann")
    gone.ends()
    assert time.monotonic() - began < SOON + SLACK
    wait_until(lambda: len(recorded_messages(record, "notifications/cancelled")) == 4)
    stays.goes_on()


def test_a_token_that_expires_takes_its_sessions_along(
    record: Path, stack: contextlib.ExitStack
) -> None:
    """SEC-1."""
    gateway = stack.enter_context(Gateway(config({"type": "bearer"}, record)))
    until = float(int(time.time()) + 5)
    ann = store_of(gateway).add("ann", None, until)
    wait_until(lambda: post(gateway.port, initialize_request(), bearer(ann)).status == 200)
    gone = Presence(gateway.port, ann, stack, record)
    if time.time() >= until:
        pytest.skip("the machine took longer than the token lived")
    gone.ends()
    assert until <= time.time() < until + SOON + SLACK


@pytest.mark.parametrize(
    "how", ["removed", "changed", "over", "no auth", "signed", "bound elsewhere"]
)
def test_a_reload_ends_what_a_token_had_open_that_is_not_good_any_more(
    record: Path, stack: contextlib.ExitStack, how: str
) -> None:
    """SEC-1, CFG-5: `server.auth` is taken up without a restart."""
    bob = {"name": "bob", "token": "bbb"}
    before: Json = {"type": "bearer", "tokens": [{"name": "ann", "token": "aaa"}, bob]}
    after: dict[str, Json | None] = {
        "removed": {"type": "bearer", "tokens": [bob]},
        "changed": {"type": "bearer", "tokens": [{"name": "ann", "token": "aaaa"}, bob]},
        "over": {
            "type": "bearer",
            "tokens": [{"name": "ann", "token": "aaa", "expires": "2020-01-31"}, bob],
        },
        "no auth": None,
        "signed": {"type": "jwt", "issuer": "http://127.0.0.1:9"},
        "bound elsewhere": {
            "type": "bearer",
            "tokens": [{"name": "ann", "token": "aaa", "profile": "p"}, bob],
        },
    }
    profiles: Json = {"profiles": [{"name": "p", "servers": ["odd"]}]}
    gateway = stack.enter_context(Gateway(config(before, record, **profiles)))
    gone = Session(gateway.port, headers=bearer("aaa"))
    stays = Session(gateway.port, headers=bearer("bbb"))
    with gone.listen() as listening, gone.start("tools/call", HANG) as call:
        listening.comment()
        wait_until(lambda: recorded_messages(record, "tools/call"))
        reload(gateway, config(after[how], record, **profiles))
        assert listening.event() is None
        assert "error" in call.reply().message
    assert "needs a restart" not in gateway.stderr()
    refused = gone.post(request("ping")).status
    assert refused == {"no auth": 404, "bound elsewhere": 404}.get(how, 401)
    if after[how] is not None and how != "signed":
        assert stays.request("ping")["result"] == {}


def test_tokens_come_with_a_reload(record: Path) -> None:
    """CFG-5: those of the config; and asked for at all, where none were before."""
    with Gateway(config(None, record)) as gateway:
        anonymous = Session(gateway.port)
        reload(
            gateway, config({"type": "bearer", "tokens": [{"name": "ann", "token": "aaa"}]}, record)
        )
        assert anonymous.post(request("ping")).status == 401
        assert (
            text_of(Session(gateway.port, headers=bearer("aaa")).request("tools/call", ECHO))
            == "hi"
        )


def test_a_reload_does_not_open_the_tools_to_the_network(record: Path) -> None:
    """SEC-1: what is refused at the start is refused later too; a last token may go all the
    same."""
    auth: Json = {"type": "bearer", "tokens": [{"name": "ann", "token": "aaa"}]}
    with GatewayProcess(
        config(auth, record), "--host", "0.0.0.0", listens=r"http://0\.0\.0\.0:(\d+)/mcp"
    ) as gateway:
        gateway.file.write_text(json.dumps(config(None, record)), encoding="utf-8")
        gateway.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "nothing was changed" in gateway.stderr())
        assert post(gateway.port, initialize_request()).status == 401
        session = Session(gateway.port, headers=bearer("aaa"))
        reload(gateway, config({"type": "bearer"}, record))
        assert session.post(request("ping")).status == 401


def test_a_name_in_both_places_is_the_configs(record: Path) -> None:
    with Gateway(config({"type": "bearer"}, record)) as gateway:
        kept = store_of(gateway).add("ann")
        wait_until(lambda: post(gateway.port, initialize_request(), bearer(kept)).status == 200)
        reload(
            gateway, config({"type": "bearer", "tokens": [{"name": "ann", "token": "aaa"}]}, record)
        )
        assert post(gateway.port, initialize_request(), bearer(kept)).status == 401
        assert post(gateway.port, initialize_request(), bearer("aaa")).status == 200


def test_a_store_that_others_could_have_written_lets_nobody_in(record: Path) -> None:
    with Gateway(
        config({"type": "bearer", "tokens": [{"name": "ann", "token": "aaa"}]}, record)
    ) as gateway:
        kept = store_of(gateway).add("bob")
        wait_until(lambda: post(gateway.port, initialize_request(), bearer(kept)).status == 200)
        os.chmod(gateway.folder / "state" / "tokens" / "tokens.json", 0o666)
        wait_until(lambda: post(gateway.port, initialize_request(), bearer(kept)).status == 401)
        assert post(gateway.port, initialize_request(), bearer("aaa")).status == 200
        assert "can be written by other users" in gateway.stderr()


# ---- whose a session is, and what they get


PROFILES: list[Json] = [
    {"name": "p", "servers": ["odd"]},
    {"name": "q", "servers": ["odd"]},
    {"name": "club", "tokens": ["ann", "zed"]},
    {"name": "open"},
]
TOKENS: list[Json] = [
    {"name": "ann", "token": "aaa", "profile": "p"},
    {"name": "bob", "token": "bbb"},
    {"name": "zed", "token": "zzz"},
    {"name": "past", "token": "ppp", "expires": "2020-01-31T12:00:00Z"},
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    record = tmp_path_factory.mktemp("identity") / "record"
    with Gateway(
        config({"type": "bearer", "tokens": TOKENS}, record, profiles=PROFILES)
    ) as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("token", "path", "opens"),
    [
        ("aaa", "/mcp", True),
        ("aaa", "/p/p/mcp", True),
        ("aaa", "/p/club/mcp", True),
        ("aaa", "/p/open/mcp", False),
        ("aaa", "/p/q/mcp", False),
        ("bbb", "/mcp", True),
        ("bbb", "/p/open/mcp", True),
        ("bbb", "/p/club/mcp", False),
        ("bbb", "/p/none/mcp", False),
        ("zzz", "/mcp", True),
        ("zzz", "/p/club/mcp", True),
        ("zzz", "/p/open/mcp", False),
    ],
)
def test_a_token_opens_its_profiles_and_no_other(
    shared: Gateway, token: str, path: str, opens: bool
) -> None:
    """SEC-2: what is not theirs reads as a profile that does not exist."""
    found = post(shared.port, initialize_request(), bearer(token), path)
    unknown = post(shared.port, initialize_request(), bearer(token), "/p/no-such/mcp")
    assert (
        found.status == 200
        if opens
        else (found.status, found.body) == (unknown.status, unknown.body) == (404, unknown.body)
    )


def test_a_session_is_found_by_nobody_else_and_through_no_other_door(shared: Gateway) -> None:
    """SEC-1: somebody else's id, and one's own at another profile's path, read as unknown."""
    session = Session(shared.port, headers=bearer("bbb"))
    legacy = Stream(
        shared.port, "GET", "/sse", [("Accept", "text/event-stream"), *bearer("bbb").items()]
    )
    with legacy:
        endpoint = str((legacy.event() or {})["data"])
        known = {"Mcp-Session-Id": session.id}
        for token, path in (
            ("aaa", "/mcp"),
            ("zzz", "/mcp"),
            ("bbb", "/p/open/mcp"),
            ("bbb", "/p/p/mcp"),
        ):
            headers = {**bearer(token), **known}
            assert post(shared.port, request("ping"), headers, path).status == 404
            assert fetch(shared.port, path, "DELETE", headers.items()).status == 404
            events = [("Accept", "text/event-stream"), *headers.items()]
            assert fetch(shared.port, path, "GET", events).status == 404
            below = path.removesuffix("/mcp") + endpoint
            assert post(shared.port, request("ping"), bearer(token), below).status == 404
        assert session.request("ping")["result"] == {}
        assert post(shared.port, request("ping"), bearer("bbb"), endpoint).status == 202


def test_a_session_of_a_bound_token_is_the_same_at_its_profiles_path(shared: Gateway) -> None:
    session = Session(shared.port, headers=bearer("aaa"))
    assert post(shared.port, request("ping"), session.headers, "/p/p/mcp").status == 200
    assert post(shared.port, request("ping"), session.headers, "/p/club/mcp").status == 404


def test_health_tells_strangers_nothing_but_the_status(shared: Gateway) -> None:
    """SEC-1."""
    assert set(fetch(shared.port, "/health").json) == {"status"}
    assert set(fetch(shared.port, "/health", "GET", bearer("wrong").items()).json) == {"status"}
    assert set(fetch(shared.port, "/health", "GET", bearer("ppp").items()).json) == {"status"}
    assert "odd" in fetch(shared.port, "/health", "GET", bearer("bbb").items()).json["servers"]


@pytest.mark.parametrize("transport", ["http", "sse", "websocket"])
def test_what_a_client_shows_is_never_sent_to_a_server(transport: str) -> None:
    """SEC-1: a token is for the gateway alone, whatever header it may come in."""
    with ProtectedServer(lambda headers, query: True) as upstream:
        servers = [
            {"name": "up", "connection": {"type": transport, "url": upstream.url(transport)}}
        ]
        auth = {"type": "bearer", "tokens": [{"name": "ann", "token": "canary-secret"}]}
        with Gateway(
            {
                "server": {"auth": auth},
                "mcp_servers": servers,
                "global": {"first_start_wait": WAIT_SECONDS},
            }
        ) as gateway:
            session = Session(
                gateway.port, headers={**bearer("canary-secret"), "Cookie": "c=canary-cookie"}
            )
            assert text_of(session.call("echo", text="hi")) == "hi"
            message = modern_request("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
            assert (
                text_of(
                    post(
                        gateway.port,
                        message,
                        {**modern_headers(message), **bearer("canary-secret")},
                    ).message
                )
                == "hi"
            )
            said = gateway.stderr()
        assert upstream.seen
        assert "canary" not in repr(upstream.seen)
        assert "canary" not in said


# ---- the address it is bound to


def test_binding_to_the_network_wants_a_token_in_either_place(record: Path) -> None:
    """SEC-1: refused with both ways out; a kept token is one."""
    anywhere = r"http://0\.0\.0\.0:(\d+)/mcp"
    with (
        pytest.raises(RuntimeError, match=r"mcpx token new NAME.*server\.auth\.tokens"),
        GatewayProcess(config({"type": "bearer"}, record), "--host", "0.0.0.0", listens=anywhere),
    ):
        pass
    state = record.parent / "state"
    token = TokenStore(state).add("ann")
    env = {"MCPX_STATE_DIR": str(state)}
    with GatewayProcess(
        config({"type": "bearer"}, record), "--host", "0.0.0.0", listens=anywhere, env=env
    ) as gateway:
        assert post(gateway.port, initialize_request()).status == 401
        assert post(gateway.port, initialize_request(), bearer(token)).status == 200


def test_only_named_hosts_are_answered_where_some_are_named(record: Path) -> None:
    """SEC-1: `allowed_hosts`, wildcards below a name; taken up by a reload."""
    auth: Json = {"type": "bearer", "tokens": [{"name": "ann", "token": "aaa"}]}
    named = {"server": {"allowed_hosts": ["gw.example", "*.lan.example"]}}
    with GatewayProcess(
        config(auth, record), "--host", "0.0.0.0", listens=r"http://0\.0\.0\.0:(\d+)/mcp"
    ) as gateway:

        def status(host: str, origin: str | None = None) -> int:
            more = {"Host": host, **({"Origin": origin} if origin else {})}
            return post(gateway.port, initialize_request(), {**bearer("aaa"), **more}).status

        assert status("anything.example") == 200
        reload(gateway, config(auth, record, **named))
        assert [
            status(host) for host in ("gw.example", f"a.lan.example:{gateway.port}", "localhost")
        ] == [200] * 3
        assert [
            status(host)
            for host in ("anything.example", "lan.example", "xgw.example", ".lan.example")
        ] == [421] * 4
        assert status("gw.example", f"http://gw.example:{gateway.port}") == 200
        assert status("gw.example", f"http://other.example:{gateway.port}") == 403


def test_a_trusted_proxy_says_how_we_are_called_and_nobody_else_does(record: Path) -> None:
    """SEC-1: `trusted_proxies`; a stranger's word on hosts is ignored."""
    proxied = {"server": {"allowed_hosts": ["gw.example"], "trusted_proxies": ["127.0.0.0/8"]}}
    forwarded = {
        "X-Forwarded-Host": "gw.example",
        "X-Forwarded-Proto": "https",
        "Origin": "https://gw.example",
    }
    with Gateway(config(None, record, **proxied)) as gateway:
        assert post(gateway.port, initialize_request(), forwarded).status == 200
        assert (
            post(
                gateway.port, initialize_request(), {**forwarded, "Origin": "http://gw.example"}
            ).status
            == 403
        )
        assert (
            post(
                gateway.port,
                initialize_request(),
                {**forwarded, "X-Forwarded-Host": "evil.example"},
            ).status
            == 421
        )
        assert (
            post(gateway.port, initialize_request(), {**forwarded, "Host": "evil.example"}).status
            == 421
        )
        reload(
            gateway,
            config(
                None,
                record,
                server={"allowed_hosts": ["gw.example"], "trusted_proxies": ["10.0.0.1"]},
            ),
        )
        assert post(gateway.port, initialize_request(), forwarded).status == 403
