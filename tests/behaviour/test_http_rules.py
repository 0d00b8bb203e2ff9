"""PRO-1, SEC-1, SEC-6: mcpx over HTTP, status by status: both eras, guards, limits, streams,
health."""

import contextlib
import json
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from kit.client import (
    ACCEPT_BOTH,
    WAIT_SECONDS,
    Session,
    Stream,
    health,
    post,
    post_modern,
    wait_until_settled,
)
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import Reply, fetch
from kit.messages import (
    META,
    MODERN,
    Json,
    initialize_request,
    modern_headers,
    modern_request,
    notification,
    request,
    structured_content,
    text_of,
)
from kit.process_tree import peak_memory
from kit.servers import odd_server, raw_server, recorded_messages, stdio_server
from kit.until import wait_until

MIB = 1024 * 1024
ROUTES = ["/mcp", "/mcp/direct", "/sse", "/messages", "/ws", "/health", "/ready"]
JSON_HEADERS = [("Content-Type", "application/json"), ("Accept", ACCEPT_BOTH)]
EVENTS = [("Accept", "text/event-stream")]
CLOSE = b"\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("http") / "record"


@pytest.fixture(scope="module")
def gateway(record: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        {"mcp_servers": [raw_server("good"), odd_server("odd", record)]}
    ) as running:
        wait_until_settled(running.port)
        yield running


@pytest.fixture(scope="module")
def port(gateway: GatewayProcess) -> int:
    return gateway.port


@pytest.fixture(scope="module", autouse=True)
def slow_sender(port: int) -> Iterator[socket.socket]:
    """Half a head, sent before all other tests of this module and looked at after them."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as sender:
        sender.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-")
        yield sender


@pytest.fixture
def client(port: int) -> Session:
    return Session(port)


def running(record: Path, tool: str) -> list[Json]:
    """The calls of a tool that have reached the odd server so far."""
    return [
        message
        for message in recorded_messages(record, "tools/call")
        if message["params"]["name"] == tool
    ]


def speak(port: int, data: bytes) -> bytes:
    """Bytes as they are, and all that comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as raw:
        with contextlib.suppress(OSError):
            raw.sendall(data)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := raw.recv(65536):
                answer += piece
        return answer


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])


# ---- the older era: a table


def test_initialize_makes_a_session_with_an_unguessable_id(port: int) -> None:
    """PRO-1: visible ASCII, never the same, and only `initialize` gives one."""
    replies = [post(port, initialize_request()) for _ in range(20)]
    ids = [reply.get("mcp-session-id") or "" for reply in replies]
    assert len(set(ids)) == 20
    assert all(
        len(one) >= 22 and one.isascii() and one.isprintable() and " " not in one for one in ids
    )
    assert all(
        reply.status == 200 and reply.get("content-type") == "application/json" for reply in replies
    )
    assert Session(port).post(request("ping")).get("mcp-session-id") is None


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("nonsense", "2025-11-25"),
    ],
)
def test_initialize_answers_with_a_version_of_its_era(port: int, asked: str, answered: str) -> None:
    """SRC-2: a modern date in the body alone is still a handshake."""
    assert post(port, initialize_request(asked)).json["result"]["protocolVersion"] == answered


def test_a_request_in_a_session_is_200_and_so_is_its_error(client: Session) -> None:
    """PRO-1: JSON, unless something must go out before the result."""
    for message, key in (
        (request("ping"), "result"),
        (request("no/such"), "error"),
        (request("shut"), "error"),
    ):
        reply = client.post(message)
        assert (reply.status, reply.get("content-type"), key in reply.json) == (
            200,
            "application/json",
            True,
        )
    assert client.request("no/such")["error"]["code"] == -32601


@pytest.mark.parametrize(
    "message",
    [
        notification("notifications/initialized"),
        notification("notifications/odd", {"x": 1}),
        {"jsonrpc": "2.0", "id": "nobody:1", "result": {}},
        {"jsonrpc": "2.0", "id": 77, "error": {"code": 1, "message": "no"}},
    ],
    ids=["initialized", "unknown", "response", "error"],
)
def test_what_needs_no_answer_is_202_with_an_empty_body(client: Session, message: Json) -> None:
    """PRO-1: with its length, so that nothing is chunked."""
    reply = client.post(message)
    assert (reply.status, reply.body, reply.get("content-length")) == (202, b"", "0")
    assert reply.get("transfer-encoding") is None


def without_session(port: int, headers: dict[str, str]) -> Iterator[Reply]:
    """Every kind of request of the older era."""
    for message in (
        request("tools/list", id=5),
        notification("notifications/odd"),
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ):
        yield post(port, message, headers)
    yield fetch(port, "/mcp", "GET", [*EVENTS, *headers.items()])
    yield fetch(port, "/mcp", "DELETE", headers.items())


def test_no_session_id_is_400(port: int) -> None:
    """PRO-1: -32600 with id null, and no session id on the reply."""
    for reply in without_session(port, {}):
        assert reply.rpc_error == (400, None, -32600)
        assert reply.get("mcp-session-id") is None


@pytest.mark.parametrize(
    "unknown", ["unknown", "x" * 1000, "é".encode().decode("latin-1"), "../../etc"]
)
def test_an_unknown_session_id_is_404(port: int, unknown: str) -> None:
    """PRO-1: it tells the client to initialise again."""
    for reply in without_session(port, {"Mcp-Session-Id": unknown}):
        assert reply.rpc_error == (404, None, -32600)
        assert reply.get("mcp-session-id") is None


def test_a_deleted_session_is_404(client: Session) -> None:
    """PRO-1: for everything, DELETE included; other sessions live on."""
    other = Session(client.port)
    assert client.delete().status == 200
    for reply in without_session(client.port, {"Mcp-Session-Id": client.id}):
        assert reply.rpc_error == (404, None, -32600)
    assert other.request("ping")["result"] == {}


def test_shutdown_over_http_ends_its_own_session_only(client: Session) -> None:
    """LIF-8."""
    other = Session(client.port)
    assert client.request("shutdown")["result"] == {}
    assert client.post(request("ping")).status == 404
    assert other.request("ping")["result"] == {}


def test_a_second_initialize_in_a_session_is_refused(client: Session) -> None:
    """PRO-1."""
    reply = client.post(initialize_request(id="again"))
    assert reply.rpc_error == (200, "again", -32600)
    assert reply.get("mcp-session-id") is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"pi\xffng"}', -32700),
        (b"[" * 100_000 + b"]" * 100_000, -32700),
        (b"1" * 10_000, -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b"42", -32600),
        (b'"text"', -32600),
        (b"null", -32600),
        (b"{}", -32600),
        (b'{"method":"ping","id":null}', -32600),
        (b'{"jsonrpc":"1.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    ],
    ids=lambda value: str(value[:45]) if isinstance(value, bytes) else str(value),
)
@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_body_that_is_not_one_message_is_400_with_id_null(
    client: Session, era: str, body: bytes, code: int
) -> None:
    """PRO-1: batches too, in every revision; the session goes on."""
    headers = client.headers if era == "older" else {"MCP-Protocol-Version": MODERN}
    assert post(client.port, body, headers).rpc_error == (400, None, code)
    assert client.request("ping")["result"] == {}


@pytest.mark.parametrize("params", [[], [1], "text", 5, True])
def test_params_that_are_no_object_are_400(client: Session, params: Any) -> None:
    """PRO-1."""
    reply = client.post({**request("tools/list"), "params": params})
    assert (reply.status, reply.json["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        (ACCEPT_BOTH, 200),
        ("text/event-stream, application/json", 200),
        ("application/json;q=0.5,text/event-stream; charset=utf-8", 200),
        ("*/*", 200),
        ("application/*, text/*", 200),
        ("", 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/html", 406),
        ("application/jsonp, text/event-stream", 406),
    ],
)
def test_accept_must_allow_both_kinds_of_answer(client: Session, accept: str, status: int) -> None:
    """PRO-1: its absence harms nobody."""
    reply = post(client.port, request("ping"), {**client.headers, "Accept": accept})
    assert reply.status == status
    assert status == 200 or reply.rpc_error == (406, None, -32600)


@pytest.mark.parametrize(("accept", "status"), [("application/json", 406), ("text/html", 406)])
def test_get_must_accept_events(client: Session, accept: str, status: int) -> None:
    """PRO-1."""
    reply = fetch(client.port, "/mcp", "GET", [*client.headers.items(), ("Accept", accept)])
    assert reply.rpc_error == (status, None, -32600)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("APPLICATION/JSON", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data", 415),
        ("application/jsonp", 415),
        ("", 415),
    ],
)
def test_a_body_must_say_that_it_is_json(client: Session, kind: str, status: int) -> None:
    """PRO-1: what a browser's form can send without asking is refused."""
    assert (
        post(client.port, request("ping"), {**client.headers, "Content-Type": kind}).status
        == status
    )


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        *(
            (verb, path, {"POST", "GET", "DELETE"})
            for verb in ("PUT", "PATCH", "OPTIONS", "HEAD")
            for path in ROUTES[:2]
        ),
        ("POST", "/sse", {"GET"}),
        ("DELETE", "/sse", {"GET"}),
        ("GET", "/messages", {"POST"}),
        ("POST", "/health", {"GET", "HEAD"}),
        ("DELETE", "/ready", {"GET", "HEAD"}),
    ],
)
def test_another_verb_is_405_with_what_is_allowed(
    port: int, method: str, path: str, allow: set[str]
) -> None:
    """PRO-1."""
    reply = fetch(port, path, method)
    assert reply.status == 405
    assert set((reply.get("allow") or "").split(", ")) == allow


@pytest.mark.parametrize(
    "path", ["/", "/mcp/", "/mcp/no-such-mode", "/MCP", "/mcp/../mcp", "//mcp", "/%6dcp", "/admin"]
)
def test_an_unknown_path_is_404(port: int, path: str) -> None:
    """PRO-1."""
    assert (
        fetch(port, path, "POST", JSON_HEADERS, json.dumps(initialize_request()).encode()).status
        == 404
    )


def test_the_direct_path_serves_the_same(port: int) -> None:
    """SUR-6: with sessions of the same gateway; a query does not matter."""
    client = Session(port, path="/mcp/direct?from=test")
    assert client.tools() == Session(port).tools()


# ---- who may talk to us


def everywhere(port: int, headers: list[tuple[str, str]]) -> dict[str, int]:
    """The status of an otherwise good request on every route."""
    opening = json.dumps(initialize_request()).encode()
    upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", "mcp"),
    ]
    found = {
        path: fetch(port, path, "POST", [*JSON_HEADERS, *headers], opening).status
        for path in ("/mcp", "/mcp/direct", "/messages")
    }
    found |= {path: fetch(port, path, "GET", headers).status for path in ("/health", "/ready")}
    for path, more in (("/sse", EVENTS), ("/ws", upgrade)):
        with Stream(port, "GET", path, [*more, *headers]) as stream:
            found[path] = stream.status
    return found


def test_every_route_answers_a_good_request(port: int) -> None:
    """The counterpart of the refusals below: without it they would prove nothing."""
    expected = {
        "/mcp": 200,
        "/mcp/direct": 200,
        "/sse": 200,
        "/messages": 404,
        "/ws": 101,
        "/health": 200,
        "/ready": 200,
    }
    assert everywhere(port, []) == expected


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.2",
        "",
        "@",
        "a b",
    ],
)
def test_a_foreign_host_is_421_on_every_route(port: int, host: str) -> None:
    """SEC-1: against DNS rebinding."""
    assert set(everywhere(port, [("Host", host)]).values()) == {421}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:80"])
def test_the_names_of_this_machine_are_good_hosts(port: int, host: str) -> None:
    """SEC-1."""
    assert 421 not in everywhere(port, [("Host", host)]).values()


def test_two_hosts_are_refused(port: int) -> None:
    """SEC-1: whichever of them another program would believe."""
    found = everywhere(port, [("Host", "127.0.0.1"), ("Host", "evil.example")])
    assert set(found.values()) <= {400, 421}


@pytest.mark.parametrize(
    "origins",
    [
        ["null"],
        ["https://evil.example"],
        ["http://127.0.0.1.evil.example"],
        ["http://localhost@evil.example"],
        ["file://"],
        ["http://127.0.0.1/path"],
        ["http://localhost", "https://evil.example"],
        ["http://localhost", "http://localhost"],
        ["http://localhost, https://evil.example"],
        [""],
    ],
    ids=" + ".join,
)
def test_a_foreign_origin_is_403_on_every_route(port: int, origins: list[str]) -> None:
    """SEC-1: `null` and two of them included."""
    assert set(everywhere(port, [("Origin", origin) for origin in origins]).values()) == {403}


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_pages_that_came_from_us_may_talk_to_us(port: int, name: str) -> None:
    """SEC-1."""
    assert 403 not in everywhere(port, [("Origin", f"http://{name}:{port}")]).values()


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:6274", "http://127.0.0.1", "https://127.0.0.1:{port}", "http://[::1]:3000"],
)
def test_other_pages_of_this_machine_are_403_on_every_route(port: int, origin: str) -> None:
    """SEC-1: the WebSocket too; whatever else runs here must not use the gateway behind its user's
    back."""
    assert set(everywhere(port, [("Origin", origin.format(port=port))]).values()) == {403}


@pytest.mark.parametrize("path", ["/health", "/mcp", "/ws", "/sse", "", "?x=/health"])
def test_a_target_in_absolute_form_decides_the_host(port: int, path: str) -> None:
    """SEC-1: RFC 9112, 3.2.2: whatever `Host` says."""

    def asked(host: str, header: str) -> bytes:
        return speak(port, f"GET http://{host}{path} HTTP/1.1\r\nHost: {header}".encode() + CLOSE)

    assert status_of(asked("evil.example", "localhost")) == 421
    assert status_of(asked("localhost@evil.example", "localhost")) == 421
    if path != "/sse":
        assert status_of(asked(f"localhost:{port}", "evil.example")) in (
            200,
            404,
            405,
            406,
            400,
            426,
        )


# ---- the modern era: a ladder


ECHO = {"name": "good_echo", "arguments": {"text": "hi"}}


def test_a_modern_call_needs_no_session_and_gets_none(port: int) -> None:
    """SRC-2: one that comes in is ignored."""
    for more in ({}, {"Mcp-Session-Id": "whatever"}):
        reply = post_modern(port, modern_request("tools/call", ECHO, "m"), **more)
        assert (reply.status, reply.json["id"], text_of(reply.json)) == (200, "m", "hi")
        assert reply.json["result"]["resultType"] == "complete"
        assert reply.get("mcp-session-id") is None


def test_discover_says_what_is_supported(port: int) -> None:
    """SRC-2, PRO-3: the same versions as the refusal of an unknown one names."""
    result = post_modern(port, modern_request("server/discover")).json["result"]
    assert result["supportedVersions"] == [MODERN]
    assert {"capabilities", "instructions", "ttlMs", "cacheScope"} <= set(result)
    assert result["_meta"][META + "serverInfo"]["name"] == "mcpx"
    refused = modern_request("tools/list", {"_meta": {META + "protocolVersion": "1900-01-01"}})
    reply = post(port, refused, {**modern_headers(refused), "MCP-Protocol-Version": "1900-01-01"})
    assert reply.rpc_error == (400, 1, -32022)
    supported = {
        "supported": [MODERN],
        "requested": "1900-01-01",
        "request_id": reply.get("mcpx-request-id"),
    }
    assert reply.json["error"]["data"] == supported


NO_CAPABILITIES = request("tools/list", {"_meta": {META + "protocolVersion": MODERN}})
NO_VERSION = request("tools/list", {"_meta": {META + "clientCapabilities": {}}})


@pytest.mark.parametrize(
    ("message", "headers", "code"),
    [
        (request("tools/list"), {}, -32602),
        (request("tools/list", {}), {}, -32602),
        (request("tools/list", {"_meta": []}), {}, -32602),
        (request("tools/list", {"_meta": None}), {}, -32602),
        (NO_CAPABILITIES, {}, -32602),
        (NO_VERSION, {}, -32602),
        (NO_VERSION, {"Mcp-Method": "wrong"}, -32602),
        (modern_request("tools/list"), {"Mcp-Method": ""}, -32020),
        (modern_request("tools/list"), {"Mcp-Method": "tools/call"}, -32020),
        (modern_request("tools/list"), {"Mcp-Method": "Tools/List"}, -32020),
        (modern_request("tools/list"), {"MCP-Protocol-Version": "1900-01-01"}, -32020),
        (modern_request("tools/list"), {"MCP-Protocol-Version": "nonsense"}, -32020),
        (modern_request("tools/call", ECHO), {"Mcp-Name": ""}, -32020),
        (modern_request("tools/call", ECHO), {"Mcp-Name": "good_Echo"}, -32020),
        (modern_request("tools/call", ECHO), {"Mcp-Name": "=?base64?!!!?="}, -32020),
        (modern_request("prompts/get", {"name": "x"}), {"Mcp-Name": "y"}, -32020),
        (modern_request("resources/read", {"uri": "a:b"}), {"Mcp-Name": "a:c"}, -32020),
        (modern_request("tools/call", {"name": "nobody_has_this"}), {}, -32602),
        (modern_request("tools/call", {}), {}, -32602),
        (modern_request("resources/read", {"uri": "a:b"}), {}, -32602),
    ],
)
def test_the_modern_ladder_is_400_with_the_id_and_the_first_failure(
    port: int, message: Json, headers: dict[str, str], code: int
) -> None:
    """SRC-2: envelope, then headers, then version, then what was asked for."""
    message = {**message, "id": "rung"}
    usual = modern_headers({**message, "params": message.get("params", {})})
    assert post(port, message, {**usual, **headers}).rpc_error == (400, "rung", code)


@pytest.mark.parametrize("doubled", ["Mcp-Method", "MCP-Protocol-Version", "Mcp-Name"])
def test_a_doubled_routing_header_is_a_mismatch(port: int, doubled: str) -> None:
    """SRC-2: even when both say the same."""
    message = modern_request("tools/call", ECHO)
    headers = [*JSON_HEADERS, *modern_headers(message).items()]
    headers += [(name, value) for name, value in headers if name == doubled]
    assert fetch(port, "/mcp", "POST", headers, json.dumps(message).encode()).rpc_error == (
        400,
        1,
        -32020,
    )


def test_header_values_are_trimmed_and_may_be_wrapped(port: int) -> None:
    """SRC-2: blanks at the edges, base64 for what is not plain."""
    message = modern_request("tools/call", ECHO)
    for name in ("  good_echo\t", "=?base64?Z29vZF9lY2hv?="):
        assert post(port, message, {**modern_headers(message), "Mcp-Name": name}).status == 200


@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "no/such",
    ],
)
def test_a_method_the_modern_era_does_not_have_is_404(port: int, method: str) -> None:
    """SRC-2."""
    assert post_modern(port, modern_request(method, {"level": "info"}, "m")).rpc_error == (
        404,
        "m",
        -32601,
    )


@pytest.mark.parametrize("verb", ["GET", "DELETE", "PUT"])
def test_the_modern_era_knows_post_only(port: int, verb: str) -> None:
    """SRC-2."""
    reply = fetch(port, "/mcp", verb, [*EVENTS, ("MCP-Protocol-Version", MODERN)])
    assert (reply.status, reply.get("allow")) == (405, "POST")


def test_modern_notifications_are_202_and_responses_are_refused(port: int) -> None:
    """SRC-2."""
    headers = {"MCP-Protocol-Version": MODERN}
    reply = post(port, notification("notifications/odd"), headers)
    assert (reply.status, reply.get("content-length")) == (202, "0")
    assert post(port, {"jsonrpc": "2.0", "id": 1, "result": {}}, headers).rpc_error == (
        400,
        None,
        -32600,
    )


def test_a_modern_body_without_the_header_is_an_older_request_without_session(port: int) -> None:
    """SRC-2: the header tells the era."""
    assert post(port, modern_request("tools/call", ECHO)).rpc_error == (400, None, -32600)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (-32602, 400),
        (-32600, 400),
        (-32021, 400),
        (-32601, 404),
        (-32603, 200),
        (-32000, 200),
        (7, 200),
    ],
)
def test_an_error_of_the_server_has_the_status_of_its_code(
    port: int, code: int, status: int
) -> None:
    """SRC-2, PRO-6: in the older era it is always 200; code, message and data are the server's
    own."""
    call = {"name": "good_fail", "arguments": {"code": code, "message": "on demand"}}
    reply = post_modern(port, modern_request("tools/call", call, "f"))
    assert reply.rpc_error == (status, "f", code)
    assert (
        reply.json["error"]["message"] == "on demand" and "x-unknown" in reply.json["error"]["data"]
    )
    assert Session(port).post(request("tools/call", call)).status == 200


def test_a_modern_listener_is_acknowledged_first(port: int) -> None:
    """PRO-4: on a stream, under the id of its request."""
    message = modern_request(
        "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "ear"
    )
    headers = [*JSON_HEADERS, *modern_headers(message).items()]
    with Stream(port, "POST", "/mcp", headers, json.dumps(message).encode()) as stream:
        event = stream.event()
    assert event is not None and "id" not in event
    assert event["data"]["method"] == "notifications/subscriptions/acknowledged"
    assert event["data"]["params"]["_meta"][META + "subscriptionId"] == "ear"


# ---- streams, and connections that break


def open_call(client: Session, tool: str, **arguments: Any) -> Stream:
    return client.start_call(f"odd_{tool}", progress="p", **arguments)


def test_a_stream_of_2025_11_25_begins_with_a_priming_event(port: int) -> None:
    """PRO-1: an id, a retry and no data; every later event has an id as well."""
    with open_call(Session(port), "tick") as stream:
        assert stream.response.getheader("content-type") == "text/event-stream"
        first, *rest = stream.events()
    assert first["data"] == "" and first["id"] and int(first["retry"]) > 0
    assert len(rest) == 3 and len({first["id"], *(event["id"] for event in rest)}) == 4


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_earlier_streams_have_no_priming_event(port: int, version: str) -> None:
    """PRO-1: their clients choke on empty data."""
    with open_call(Session(port, version), "tick") as stream:
        events = stream.events()
    assert [event["data"].get("method", "result") for event in events] == [
        "notifications/progress",
        "notifications/progress",
        "result",
    ]


def test_progress_comes_under_the_clients_own_token_with_the_servers_name(client: Session) -> None:
    """PRO-4."""
    with client.start_call("odd_tick", progress="mine") as stream:
        events = stream.events()
    notices = [
        event["data"]["params"] for event in events if event["data"] and "method" in event["data"]
    ]
    assert [notice["progressToken"] for notice in notices] == ["mine", "mine"]
    assert all(notice["_meta"]["proxy"] == {"server": "odd"} for notice in notices)


@pytest.mark.parametrize("since", ["the priming event", "the first progress"])
def test_a_call_whose_connection_was_cut_is_taken_up_again(
    client: Session, record: Path, since: str
) -> None:
    """PRO-1: older era: the call goes on; what was missed is replayed, what is still to come
    follows live."""
    began = len(recorded_messages(record, "notifications/cancelled"))
    stream = open_call(client, "tick", seconds=0.5)
    primed, ticked = stream.event(), stream.event()
    assert primed is not None and ticked is not None
    stream.cut()
    with client.listen(primed["id"] if since == "the priming event" else ticked["id"]) as resumed:
        rest = resumed.events()
    missed = 1 if since == "the priming event" else 0
    assert [event["data"].get("method", "result") for event in rest] == [
        "notifications/progress"
    ] * (missed + 1) + ["result"]
    assert text_of(rest[-1]["data"]) == "ticked"
    assert len(recorded_messages(record, "notifications/cancelled")) == began


def test_a_call_that_ended_while_the_client_was_away_is_replayed(
    client: Session, record: Path
) -> None:
    """PRO-1: and the stream ends with the result."""
    stream = open_call(client, "tick", seconds=0.2)
    primed = stream.event()
    assert primed is not None
    stream.cut()
    other = open_call(
        client, "tick", seconds=0.4
    )  # begun later, over later: by then the first is over as well
    assert text_of(other.events()[-1]["data"]) == "ticked"
    other.cut()
    for _ in range(2):  # and once more
        with client.listen(primed["id"]) as resumed:
            rest = resumed.events()
        assert text_of(rest[-1]["data"]) == "ticked" and len(rest) == 3


def test_nobody_can_take_up_the_stream_of_another_session(client: Session) -> None:
    """SEC-1: event ids of one session mean nothing in another."""
    stream = open_call(client, "tick", seconds=0.3)
    primed = stream.event()
    assert primed is not None
    stranger = Session(client.port)
    with stranger.listen(primed["id"]) as other:
        other.comment()
        assert text_of(stream.events()[-1]["data"]) == "ticked"
        stranger.delete()  # ends its GET stream
        assert other.events() == []
    stream.cut()


@pytest.mark.parametrize(
    "last", ["nonsense", "s1-", "-1", "s999-5", "push-99999999999", "s1--1", "é"]
)
def test_an_odd_last_event_id_harms_nobody(client: Session, last: str) -> None:
    """PRO-1: it is a plain GET stream then."""
    with client.listen(last.encode().decode("latin-1")) as stream:
        assert stream.status == 200
        stream.comment()
        assert client.delete().status == 200
        assert stream.events() == []


def test_an_older_client_that_goes_away_cancels_nothing(client: Session, record: Path) -> None:
    """PRO-1: a broken connection is not a cancellation in that era."""
    before = len(running(record, "sleep"))
    cancelled = len(recorded_messages(record, "notifications/cancelled"))
    stream = client.start_call("odd_sleep", seconds=0.3)
    wait_until(lambda: len(running(record, "sleep")) > before)
    stream.cut()
    assert text_of(client.call("odd_sleep", seconds=0.4)) == "slept"
    assert len(recorded_messages(record, "notifications/cancelled")) == cancelled


def test_a_modern_client_that_goes_away_cancels_its_call(port: int, record: Path) -> None:
    """LIF-6: in that era closing the connection is the cancellation; it reaches the server under
    its own id."""
    before = len(running(record, "sleep"))
    message = modern_request("tools/call", {"name": "odd_sleep", "arguments": {"seconds": 30}})
    stream = Stream(
        port,
        "POST",
        "/mcp",
        [*JSON_HEADERS, *modern_headers(message).items()],
        json.dumps(message).encode(),
    )
    sent = wait_until(lambda: running(record, "sleep")[before:])[0]["id"]
    stream.cut()
    wait_until(
        lambda: (
            sent
            in [
                m["params"]["requestId"]
                for m in recorded_messages(record, "notifications/cancelled")
            ]
        )
    )


def test_a_cancelled_call_ends_its_post_and_is_cancelled_upstream(
    client: Session, record: Path
) -> None:
    """PRO-2, LIF-6: -32800 for the POST that waits."""
    before = len(running(record, "sleep"))
    stream = client.start_call("odd_sleep", id="c", seconds=30)
    sent = wait_until(lambda: running(record, "sleep")[before:])[0]["id"]
    assert client.post(notification("notifications/cancelled", {"requestId": "c"})).status == 202
    reply = stream.reply()
    assert reply.rpc_error == (200, "c", -32800)
    wait_until(
        lambda: (
            sent
            in [
                m["params"]["requestId"]
                for m in recorded_messages(record, "notifications/cancelled")
            ]
        )
    )


def test_one_session_cannot_cancel_the_call_of_another(client: Session, record: Path) -> None:
    """SEC-1: both use the same id."""
    before = len(running(record, "sleep"))
    stream = client.start_call("odd_sleep", id="same", seconds=0.5)
    wait_until(lambda: len(running(record, "sleep")) > before)
    assert (
        Session(client.port)
        .post(notification("notifications/cancelled", {"requestId": "same"}))
        .status
        == 202
    )
    assert text_of(stream.reply().message) == "slept"


def test_an_id_in_flight_cannot_be_used_again(client: Session, record: Path) -> None:
    """PRO-1: the second is refused and never sent; another session may use the same."""
    before = len(running(record, "sleep"))
    first = client.start_call("odd_sleep", id="same", seconds=3)
    wait_until(lambda: len(running(record, "sleep")) > before)
    assert client.start_call("odd_sleep", id="same", seconds=0).reply().rpc_error == (
        200,
        "same",
        -32600,
    )
    assert Session(client.port).start_call("odd_sleep", id="same", seconds=0).reply().status == 200
    assert text_of(first.reply().message) == "slept"
    assert len(running(record, "sleep")) == before + 2


def test_the_newest_get_stream_wins(client: Session) -> None:
    """PRO-1: a half-dead old one must not block the client."""
    client.request("logging/setLevel", {"level": "info"})
    with client.listen() as first:
        first.comment()
        with client.listen() as second:
            second.comment()
            assert first.events() == []
            assert text_of(client.call("odd_log", text="which?")) == "logged"
            event = second.event()
    assert event is not None and event["data"]["params"]["data"] == "which?"


def test_what_was_said_before_the_get_stream_is_not_lost(port: int) -> None:
    """PRO-4: and after a cut, Last-Event-ID brings what was missed, once."""
    client = Session(port, capabilities={"roots": {}})
    client.request("logging/setLevel", {"level": "info"})
    for number in range(3):
        assert text_of(client.call("odd_log", text=f"early {number}")) == "logged"
    with client.listen() as stream:
        first = stream.event()
        assert first is not None
        said = [each["params"]["data"] for each in (first["data"], stream.data(), stream.data())]
    assert said == ["early 0", "early 1", "early 2"]
    with client.listen(first["id"]) as stream:
        missed = [stream.event(), stream.event()]
    assert [event["data"]["params"]["data"] for event in missed if event is not None] == [
        "early 1",
        "early 2",
    ]


def test_sessions_never_see_each_others_notifications(port: int) -> None:
    """PRO-4: with links of their own, a log line or progress of one is no word to the other."""
    first, second = (Session(port, capabilities={"roots": {}}) for _ in range(2))
    for session in (first, second):
        session.request("logging/setLevel", {"level": "info"})
    with first.listen() as ours, second.listen() as theirs:
        ours.comment()
        theirs.comment()
        assert text_of(first.call("odd_log", text="for the first")) == "logged"
        with open_call(first, "tick") as stream:
            assert len(stream.events()) == 4
        assert text_of(second.call("odd_log", text="for the second")) == "logged"
        heard = [ours.event(), theirs.event()]
        for client, stream in ((first, ours), (second, theirs)):
            client.delete()
            assert stream.events() == []
    said = [event["data"]["params"] for event in heard if event is not None]
    assert [one["data"] for one in said] == ["for the first", "for the second"]
    assert all(one["_meta"]["proxy"] == {"server": "odd"} for one in said)


# ---- limits


def test_a_body_over_4_mib_is_413(client: Session) -> None:
    """SEC-6: by its declared length, or counted while it comes in chunks."""
    assert client.post(b"x" * (5 * MIB)).status == 413
    head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    assert status_of(speak(client.port, head + chunk * 80 + b"0\r\n\r\n")) == 413
    assert client.request("ping")["result"] == {}


def test_a_body_just_under_4_mib_is_taken(client: Session) -> None:
    """SEC-6."""
    size = 4 * MIB - 1000
    assert (
        len(
            structured_content(client.call("good_whoami", text="x" * size))["params"]["arguments"][
                "text"
            ]
        )
        == size
    )


def test_a_declared_length_is_refused_before_the_body_is_sent(port: int) -> None:
    """SEC-6: nobody waits for four gigabytes."""
    head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000000000\r\n\r\n"
    assert status_of(speak(port, head)) == 413


@pytest.mark.parametrize("fields", [1, 2000], ids=["one long", "many short"])
def test_headers_over_64_kib_are_431(port: int, fields: int) -> None:
    """SEC-6."""
    value = b"x" * (100_000 // fields)
    head = (
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        + b"X-Filler: %b\r\n" % value * fields
        + b"\r\n"
    )
    assert status_of(speak(port, head)) == 431
    assert health(port)["status"] == "ok"


@pytest.mark.parametrize(
    ("attack", "statuses"),
    [
        (b"what is this?\r\n\r\n", {400}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400}),
        (b"GET /health HTTP/1.1\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nBad Header\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n folded: x\r\n\r\n", {400}),
        (
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: "
            b"6\r\n\r\nhello",
            {400},
        ),
        (b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n", {400}),
        (
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n",
            {400},
        ),
        (b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n", {400, 501}),
        (
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            {400},
        ),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n", {400, 405, 421}),
        (b"GET /health HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n", {400, 505}),
    ],
    ids=lambda value: str(value[:60]) if isinstance(value, bytes) else "",
)
def test_what_is_not_http_is_refused_and_the_connection_closed(
    port: int, attack: bytes, statuses: set[int]
) -> None:
    """SEC-6: nothing that two programs could read differently is read at all."""
    answer = speak(port, attack)
    assert status_of(answer) in statuses
    assert answer.count(b"HTTP/1.1 ") == 1
    assert health(port)["status"] == "ok"


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    """PRO-1: on one connection that stays open until the last."""
    asks = [
        b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ] * 10
    last = b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    answer = speak(port, b"".join(asks) + last)
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 404] * 10 + [200]


def test_expect_continue_is_answered_before_the_body(client: Session) -> None:
    """PRO-1: as curl sends every body over a megabyte."""
    body = json.dumps(request("ping")).encode()
    head = [
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\nExpect: "
        "100-continue"
    ]
    head += [f"{name}: {value}" for name, value in [*JSON_HEADERS, *client.headers.items()]]
    with socket.create_connection(("127.0.0.1", client.port), timeout=WAIT_SECONDS) as raw:
        raw.sendall("\r\n".join([*head, "", ""]).encode())
        assert raw.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(body)
        assert status_of(raw.recv(1000)) == 200


def test_hundreds_of_idle_connections_hold_up_nobody(port: int) -> None:
    """SEC-6: not one of them had to be closed first."""
    with contextlib.ExitStack() as stack:
        closed = select.poll()
        for _ in range(300):
            idle = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
            closed.register(stack.enter_context(contextlib.closing(idle)), select.POLLIN)
        assert text_of(Session(port).call("good_echo", text="in time")) == "in time"
        assert closed.poll(0) == []


def test_the_sessions_are_bounded_and_those_that_nobody_used_go_first() -> None:
    """SEC-6: 10,000 of them; a client whose session went initialises again."""
    with GatewayProcess({"mcp_servers": [raw_server("good")]}) as gateway:
        unused = post(gateway.port, initialize_request()).get("mcp-session-id") or ""
        used, kept = Session(gateway.port), Session(gateway.port)
        body = json.dumps(initialize_request()).encode()
        fields = "".join(f"{name}: {value}\r\n" for name, value in JSON_HEADERS).encode()
        head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n%bContent-Length: %d\r\n\r\n" % (
            fields,
            len(body),
        )
        before = peak_memory(gateway.process.pid)
        with kept.listen() as stream:
            stream.comment()  # whoever listens is not idle
            for _ in range(50):
                answer = speak(
                    gateway.port, (head + body) * 200 + head.replace(b"\r\n\r\n", CLOSE) + body
                )
                assert answer.count(b"HTTP/1.1 200") == 201
            assert post(gateway.port, request("ping"), {"Mcp-Session-Id": unused}).status == 404
            assert used.request("ping")["result"] == {}
            assert kept.request("ping")["result"] == {}
        assert peak_memory(gateway.process.pid) - before < 128 * MIB


# ---- HTTP+SSE of 2024-11-05, and WebSocket


@contextlib.contextmanager
def legacy(port: int, headers: tuple[tuple[str, str], ...] = ()) -> Iterator[tuple[Stream, str]]:
    """The event stream, and where to post."""
    with Stream(port, "GET", "/sse", [*EVENTS, *headers]) as stream:
        event = stream.event()
        assert event is not None and event["event"] == "endpoint"
        assert event["data"].startswith("/messages?")
        yield stream, event["data"]


def test_the_transport_of_2024_11_05_answers_on_its_stream(port: int) -> None:
    """PRO-1: every POST is 202, every reply an event; garbage is answered there too."""
    with legacy(port) as (stream, path):
        for body in (
            json.dumps(initialize_request("2024-11-05")).encode(),
            b"garbage",
            b"[]",
            json.dumps(request("ping")).encode(),
        ):
            assert post(port, body, path=path).status == 202
        events = [stream.event() for _ in range(4)]
    messages = [
        event["data"] for event in events if event is not None and event["event"] == "message"
    ]
    assert messages[0]["result"]["protocolVersion"] == "2024-11-05"
    assert [message["error"]["code"] for message in messages[1:3]] == [-32700, -32600]
    assert messages[3]["result"] == {}


@pytest.mark.parametrize("query", ["", "?session=", "?session=unknown", "?other=1"])
def test_a_message_for_an_unknown_stream_is_404(port: int, query: str) -> None:
    """PRO-1."""
    assert post(port, initialize_request(), path=f"/messages{query}").status == 404


def test_a_stream_of_2024_11_05_that_was_cut_is_gone(port: int) -> None:
    """PRO-1: with its session."""
    with legacy(port) as (stream, path):
        assert post(port, initialize_request("2024-11-05"), path=path).status == 202
        assert stream.event() is not None
    wait_until(lambda: post(port, request("ping"), path=path).status == 404)


@contextlib.contextmanager
def websocket(port: int, **more: Any) -> Iterator[ClientConnection]:
    with connect(
        f"ws://127.0.0.1:{port}/ws",
        subprotocols=[Subprotocol("mcp")],
        open_timeout=WAIT_SECONDS,
        **more,
    ) as opened:
        assert opened.subprotocol == "mcp"
        yield opened


def tell(opened: ClientConnection, message: Json | str) -> Json:
    opened.send(message if isinstance(message, str) else json.dumps(message))
    return json.loads(opened.recv(WAIT_SECONDS))


def test_websocket_rules_are_those_of_a_pipe(port: int) -> None:
    """PRO-1: order, refusals and the end of one conversation are the same on each front."""
    with websocket(port) as opened:
        assert tell(opened, request("tools/list"))["error"]["code"] == -32600
        assert tell(opened, initialize_request())["result"]["protocolVersion"] == "2025-11-25"
        assert tell(opened, initialize_request(id="again"))["error"]["code"] == -32600
        assert tell(opened, "garbage")["error"]["code"] == -32700
        assert tell(opened, "[]")["error"]["code"] == -32600
        assert tell(opened, request("no/such"))["error"]["code"] == -32601
        assert text_of(tell(opened, request("tools/call", ECHO))) == "hi"
        assert text_of(tell(opened, modern_request("tools/call", ECHO))) == "hi"
        assert tell(opened, modern_request("ping"))["error"]["code"] == -32601
        with websocket(port) as other:
            assert tell(opened, request("shutdown"))["result"] == {}
            with pytest.raises(ConnectionClosed):
                opened.recv(WAIT_SECONDS)
            assert tell(other, request("ping"))["result"] == {}


def test_a_websocket_message_over_the_limit_is_refused(port: int) -> None:
    """SEC-6: with the close code for it, and nobody else notices."""
    with websocket(port, max_size=None) as opened, pytest.raises(ConnectionClosed) as closed:
        opened.send("x" * (5 * MIB))
        opened.recv(WAIT_SECONDS)
    assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
    assert health(port)["status"] == "ok"


def test_a_plain_request_to_the_websocket_path_is_refused(port: int) -> None:
    """PRO-1."""
    assert fetch(port, "/ws").status in (400, 426)
    assert fetch(port, "/ws", "POST").status in (400, 405, 426)


def test_a_websocket_that_goes_away_takes_its_call_with_it(port: int, record: Path) -> None:
    """LIF-6: nobody could be answered."""
    before = len(running(record, "sleep"))
    with websocket(port) as opened:
        tell(opened, initialize_request())
        opened.send(
            json.dumps(request("tools/call", {"name": "odd_sleep", "arguments": {"seconds": 30}}))
        )
        sent = wait_until(lambda: running(record, "sleep")[before:])[0]["id"]
    wait_until(
        lambda: (
            sent
            in [
                m["params"]["requestId"]
                for m in recorded_messages(record, "notifications/cancelled")
            ]
        )
    )


# ---- health and readiness


def test_health_tells_the_state_of_every_server(port: int) -> None:
    """LIF-3: since when, and the last error. A connected server may be in the middle of a new
    attempt."""
    wait_until(lambda: all(entry["phase"] is None for entry in health(port)["servers"].values()))
    found = health(port)
    assert set(found) == {"status", "version", "servers"} and found["status"] == "ok"
    assert set(found["servers"]) == {"good", "odd"}
    for entry in found["servers"].values():
        assert set(entry) == {
            *("status", "since", "last_error", "phase", "phase_s"),
            *("restarts", "latency_ms", "processes", "links", "notes"),
        }
        assert (entry["status"], entry["last_error"], entry["phase"]) == ("connected", None, None)
        assert time.strptime(entry["since"], "%Y-%m-%dT%H:%M:%SZ")
    head = fetch(port, "/health", "HEAD")
    assert (head.status, head.body) == (200, b"")


def test_a_server_that_is_down_degrades_health_and_leaves_us_ready() -> None:
    """LIF-3, SRC-8: ready from the first moment, with servers that hang or are not there at all."""
    servers = [
        raw_server("hung", "--hang-initialize"),
        stdio_server("absent", ["no-such-command-anywhere"]),
        {**raw_server("off"), "enabled": False},
    ]
    with Gateway({"mcp_servers": servers}) as gateway:
        assert fetch(gateway.port, "/ready").status == 200
        states = wait_until_settled(gateway.port, "absent")
        assert {name: entry["status"] for name, entry in states.items()} == {
            "hung": "connecting",
            "absent": "disconnected",
            "off": "disabled",
        }
        assert health(gateway.port)["status"] == "degraded"
        assert fetch(gateway.port, "/ready").status == 200


def test_while_it_ends_it_is_not_ready_and_calls_in_flight_finish(tmp_path: Path) -> None:
    """LIF-8: `/ready` answers 404, so that a load balancer sends no new requests. All transports
    deliver results."""
    record = tmp_path / "record"
    with (
        GatewayProcess({"mcp_servers": [odd_server("odd", record)]}) as gateway,
        contextlib.ExitStack() as stack,
    ):
        port = gateway.port
        wait_until_settled(port)
        call = {"name": "odd_sleep", "arguments": {"seconds": 2}}  # the grace is 3 s
        older = stack.enter_context(Session(port).start("tools/call", call))
        message = modern_request("tools/call", call)
        headers = [*JSON_HEADERS, *modern_headers(message).items()]
        newer = stack.enter_context(
            Stream(port, "POST", "/mcp", headers, json.dumps(message).encode())
        )
        listen = modern_request(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "ear"
        )
        headers = [*JSON_HEADERS, *modern_headers(listen).items()]
        ear = stack.enter_context(
            Stream(port, "POST", "/mcp", headers, json.dumps(listen).encode())
        )
        assert ear.event() is not None
        events, path = stack.enter_context(legacy(port))
        opened = stack.enter_context(websocket(port))
        assert post(port, initialize_request(), path=path).status == 202
        assert events.event() is not None
        assert post(port, request("tools/call", call), path=path).status == 202
        tell(opened, initialize_request())
        opened.send(json.dumps(request("tools/call", call)))
        wait_until(lambda: len(running(record, "sleep")) == 4)
        gateway.process.send_signal(signal.SIGTERM)
        wait_until(lambda: fetch(port, "/ready").status == 404)
        ended = ear.event()
        assert (
            ended is not None and ended["data"]["result"]["_meta"][META + "subscriptionId"] == "ear"
        )
        assert text_of(older.reply().message) == "slept"
        assert text_of(newer.reply().message) == "slept"
        answer = events.event()
        assert answer is not None and text_of(answer["data"]) == "slept"
        assert text_of(json.loads(opened.recv(WAIT_SECONDS))) == "slept"
        with pytest.raises(ConnectionClosed) as closed:
            opened.recv(WAIT_SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
        assert events.event() is None
        assert gateway.process.wait(WAIT_SECONDS) == 0
        assert "Traceback" not in gateway.stderr()


# ---- tokens


ALICE, BOB = {"Authorization": "Bearer alice-s3cret"}, {"Authorization": "Bearer bob-s3cret"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Gateway]:
    tokens = [{"name": "alice", "token": "alice-s3cret"}, {"name": "bob", "token": "bob-s3cret"}]
    config = {
        "server": {"auth": {"type": "bearer", "tokens": tokens}},
        "mcp_servers": [raw_server("good")],
    }
    with Gateway(config) as running:
        yield running
        assert "s3cret" not in running.stderr()


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer wrong")],
        [("Authorization", "Bearer alice-s3cret2")],
        [("Authorization", "Bearer alice")],
        [("Authorization", "Basic YWxpY2U6YWxpY2UtczNjcmV0")],
        [("Authorization", "alice-s3cret")],
        [("Authorization", "Bearer alice-s3cret, Bearer bob-s3cret")],
        [("Authorization", "Bearer alice-s3cret"), ("Authorization", "Bearer bob-s3cret")],
        [("Authorization", "Bearer \xe9")],
        [("Cookie", "token=alice-s3cret")],
    ],
    ids=str,
)
def test_without_a_good_token_everything_but_health_is_401(
    guarded: Gateway, headers: list[tuple[str, str]]
) -> None:
    """SEC-1: health tells its status and no more; who looks after the process may know that."""
    found = everywhere(guarded.port, headers)
    assert found == {**dict.fromkeys(found, 401), "/health": 200, "/ready": 200}
    assert set(fetch(guarded.port, "/health", "GET", headers).json) == {"status"}
    for verb in ("GET", "DELETE", "PUT"):
        reply = fetch(guarded.port, "/mcp", verb, [*EVENTS, *headers])
        assert (reply.status, reply.get("www-authenticate")) == (401, "Bearer")
    assert fetch(guarded.port, "/anything", "GET", headers).status == 401


def test_a_token_in_the_address_is_no_token(guarded: Gateway) -> None:
    """SEC-1: it would be in every log on the way."""
    assert (
        post(
            guarded.port,
            initialize_request(),
            path="/mcp?access_token=alice-s3cret&token=alice-s3cret",
        ).status
        == 401
    )


def test_a_guard_stands_before_the_token(guarded: Gateway) -> None:
    """SEC-1: a page of another origin is refused though its browser has the token."""
    assert (
        post(guarded.port, initialize_request(), {**ALICE, "Origin": "https://evil.example"}).status
        == 403
    )
    assert post(guarded.port, initialize_request(), {**ALICE, "Host": "evil.example"}).status == 421


def test_with_a_token_every_front_serves(guarded: Gateway) -> None:
    """SEC-1: the scheme in any case."""
    client = Session(guarded.port, headers={"Authorization": "bearer  alice-s3cret "})
    assert text_of(client.call("good_echo", text="hi")) == "hi"
    message = modern_request("tools/call", ECHO)
    assert post(guarded.port, message, {**modern_headers(message), **BOB}).status == 200
    assert set(fetch(guarded.port, "/health", "GET", ALICE.items()).json) == {
        "status",
        "version",
        "servers",
    }
    with websocket(guarded.port, additional_headers=ALICE) as opened:
        assert tell(opened, initialize_request())["result"]
    with pytest.raises(InvalidStatus) as refused, websocket(guarded.port):
        pass
    assert refused.value.response.status_code == 401


def test_a_session_belongs_to_the_token_that_made_it(guarded: Gateway) -> None:
    """SEC-1: to anybody else it does not exist, in exactly the words of one that never did."""
    alice = Session(guarded.port, headers=ALICE)
    bob = {**BOB, "X-Request-Id": "the-same"}
    never = list(without_session(guarded.port, {**bob, "Mcp-Session-Id": "never"}))
    stolen = list(without_session(guarded.port, {**bob, "Mcp-Session-Id": alice.id}))
    assert [reply.rpc_error for reply in stolen] == [(404, None, -32600)] * 5
    assert [reply.body for reply in stolen] == [reply.body for reply in never]
    assert alice.request("ping")["result"] == {}


def test_a_stream_of_2024_11_05_belongs_to_the_token_that_opened_it(guarded: Gateway) -> None:
    """SEC-1."""
    with legacy(guarded.port, tuple(ALICE.items())) as (stream, path):
        assert post(guarded.port, initialize_request(), BOB, path).status == 404
        assert post(guarded.port, initialize_request(), ALICE, path).status == 202
        assert stream.event() is not None


def test_the_clients_token_never_reaches_a_server(guarded: Gateway) -> None:
    """SEC-1."""
    assert "s3cret" not in json.dumps(Session(guarded.port, headers=ALICE).call("good_whoami"))


# ---- last, for it takes its time


def test_a_slow_sender_is_dropped(slow_sender: socket.socket, port: int) -> None:
    """SEC-6: half a head; ten seconds after it began it is refused, and meanwhile it held up
    nobody."""
    slow_sender.settimeout(WAIT_SECONDS)
    answer = b""
    while piece := slow_sender.recv(1000):
        answer += piece
    assert status_of(answer) == 408
    assert health(port)["status"] == "ok"


def test_a_check_that_names_no_host_learns_what_strangers_do(guarded: Gateway) -> None:
    """SCA-2: load balancers ask so (HTTP/1.0), no browser does; nothing else answers it."""

    def asked(path: str) -> bytes:
        with socket.create_connection(("127.0.0.1", guarded.port), WAIT_SECONDS) as line:
            line.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            answer = b""
            while part := line.recv(65536):
                answer += part
        return answer

    assert asked("/ready").startswith(b"HTTP/1.1 200")
    assert b'{"status":' in asked("/health")
    assert b"servers" not in asked("/health")
    assert all(
        asked(path).startswith(b"HTTP/1.1 421") for path in ("/mcp", "/metrics", "/ws", "/nothing")
    )
