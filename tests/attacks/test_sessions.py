"""SEC-1, SEC-6: what clients of streamable HTTP may cost: what is kept for them, what they leave
running, how many they are, and which web pages are among them. Each beside a client that wants
nothing special and gets it."""

import contextlib
import json
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from kit.client import ACCEPT_BOTH, WAIT_SECONDS, Session, post, wait_until_settled
from kit.gateway import GatewayProcess
from kit.messages import Json, initialize_request, notification, request, text_of
from kit.servers import raw_server, stdio_server
from kit.until import wait_until

MIB = 1 << 20
CHATTY = [sys.executable, "-I", "-S", str(Path(__file__).with_name("chatty_server.py"))]
OVERLOADED = -33006


def memory(gateway: GatewayProcess) -> int:
    """What the gateway holds, in bytes."""
    status = Path("/proc", str(gateway.process.pid), "status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    servers = [raw_server("good"), stdio_server("chatty", CHATTY)]
    with GatewayProcess({"global": {"log_level": "ERROR"}, "mcp_servers": servers}) as running:
        wait_until_settled(running.port)
        yield running
        assert "Traceback" not in running.stderr()


def is_well(client: Session) -> bool:
    return text_of(client.call("good_echo", text="hi")) == "hi"


def test_results_that_were_read_are_not_kept(gateway: GatewayProcess) -> None:
    """SEC-6: sixty of two megabytes, each on an event stream that could be come back for."""
    clients, healthy = [Session(gateway.port) for _ in range(3)], Session(gateway.port)

    def read(count: int) -> None:
        for n in range(count):
            with clients[n % 3].start_call("chatty_large", progress="p", bytes=2 * MIB) as stream:
                assert len(text_of(stream.events()[-1]["data"])) == 2 * MIB

    read(10)  # what its memory needs in any case
    before = memory(gateway)
    read(60)
    assert is_well(healthy)
    assert memory(gateway) - before < 48 * MIB


def logging_session(port: int) -> Session:
    """A session with a log level. Others do not receive messages that name no call."""
    session = Session(port)
    session.request("logging/setLevel", {"level": "debug"})
    return session


def test_the_log_of_a_server_is_not_kept_for_each_idle_session(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    """SEC-6: 500 sessions without a stream, a megabyte of log: each keeps the newest few, and they
    share them."""
    with ThreadPoolExecutor(8) as pool:
        idle = list(pool.map(lambda _: logging_session(gateway.port), range(500)))
    healthy = Session(gateway.port)
    before = memory(gateway)
    done = tmp_path / "done"
    assert text_of(healthy.call("chatty_pour", count=1100, bytes=1000, done=str(done))) == "pouring"
    wait_until(done.exists, 60)
    assert is_well(healthy)
    assert memory(gateway) - before < 48 * MIB
    with idle[-1].listen() as stream:
        first = stream.event()
    assert first is not None and first["data"]["method"] == "notifications/message"


def test_a_get_stream_that_nobody_reads_costs_little(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    """SEC-6: twenty of them, and three megabytes of log for each: what may be missed is."""
    deaf = [logging_session(gateway.port) for _ in range(20)]
    healthy = Session(gateway.port)
    streams = [client.listen() for client in deaf]
    try:
        for stream in streams:
            stream.comment()
        before = memory(gateway)
        done = tmp_path / "done"
        healthy.call("chatty_pour", count=3000, bytes=3000, done=str(done))
        wait_until(done.exists, 60)
        assert is_well(healthy)
        assert memory(gateway) - before < 48 * MIB
    finally:
        for stream in streams:
            stream.cut()


def leave_running(client: Session, id: int) -> None:
    """A call that hangs, and a client that goes away: no cancellation in the older era."""
    message = request("tools/call", {"name": "good_hang", "arguments": {}}, id)
    body = json.dumps(message).encode()
    fields = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": ACCEPT_BOTH,
        **client.headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with socket.create_connection(("127.0.0.1", client.port), WAIT_SECONDS) as raw:
        raw.sendall(
            f"POST /mcp HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )


def test_calls_in_flight_are_bounded_and_their_end_holds_nobody_up(gateway: GatewayProcess) -> None:
    """SEC-6: a thousand of one session; the next is refused at once, in words, and taken again when
    some have ended."""
    client, healthy = Session(gateway.port), Session(gateway.port)
    for id in range(1000):
        leave_running(client, 10_000 + id)

    def refused() -> Json | None:
        answer = client.request("tools/call", {"name": "good_echo", "arguments": {"text": "hi"}})
        return answer.get("error")

    error = wait_until(refused)
    assert error["code"] == OVERLOADED
    assert "1,000 calls of this session" in error["message"] and "cancel" in error["message"]
    assert is_well(healthy)
    assert client.post(notification("notifications/cancelled", {"requestId": 10_000})).status == 202
    wait_until(lambda: refused() is None)
    assert client.delete().status == 200
    assert is_well(healthy)
    assert client.post(request("ping")).status == 404


def test_a_flood_of_initialize_ends_no_session_in_use(gateway: GatewayProcess) -> None:
    """SEC-6: 10,500 of them without a token; those that said no more go first, the oldest of
    them."""
    busy, silent = Session(gateway.port), Session(gateway.port)
    assert is_well(silent)
    body = json.dumps(initialize_request()).encode()
    fields = (
        "Host: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: "
        f"{ACCEPT_BOTH}\r\nContent-Length: {len(body)}"
    )
    piece = f"POST /mcp HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body
    last = piece.replace(b"Host:", b"Connection: close\r\nHost:", 1)
    before = memory(gateway)
    first = post(gateway.port, initialize_request()).get("mcp-session-id") or ""
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", gateway.port), WAIT_SECONDS) as raw:
            raw.sendall(piece * 209 + last)
            answer = b"".join(iter(lambda raw=raw: raw.recv(1 << 16), b""))
        assert answer.count(b"HTTP/1.1 200") == 210
        assert is_well(busy)
    assert is_well(silent)
    assert post(gateway.port, request("ping"), {"Mcp-Session-Id": first}).status == 404
    assert memory(gateway) - before < 128 * MIB


def test_large_greetings_cannot_fill_the_memory(gateway: GatewayProcess) -> None:
    """SEC-6: what a client says of itself is kept with its session, so it may not be much; nor for
    all together."""
    healthy = Session(gateway.port)
    huge = initialize_request(capabilities={"experimental": {"x": "y" * 3 * MIB}})
    before = memory(gateway)
    for _ in range(30):
        assert post(gateway.port, huge).json["error"]["code"] == -32602
    heavy = json.dumps(
        initialize_request(capabilities={"experimental": {"x": [{}] * 15_000}})
    ).encode()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: post(gateway.port, heavy).status, range(300))) == {200}
    assert is_well(healthy)
    assert memory(gateway) - before < 160 * MIB


def test_an_odd_position_is_none_and_tells_nothing_of_others(gateway: GatewayProcess) -> None:
    """SEC-1, SEC-6: and no traceback (the fixture looks)."""
    other = Session(gateway.port)
    with other.start_call("chatty_large", progress="p", bytes=100) as stream:
        first = stream.event()
        assert first is not None
        for last in (
            first["id"],
            "s1-²",
            "push-²",
            "push-" + "9" * 4000,
            "s1-٣",
            "²",
            "s1-1_0",
            "--",
            "push-0x1",
        ):
            client = Session(gateway.port)
            with client.listen(last.encode().decode("latin-1")) as odd:
                assert odd.status == 200
                odd.comment()
                assert client.delete().status == 200
                assert odd.events() == []


def test_web_pages_come_in_only_from_our_own_port_or_by_name() -> None:
    """SEC-1: over the WebSocket too, where browsers ask nobody."""
    config = {
        "server": {"allowed_origins": ["https://app.example:8443"]},
        "mcp_servers": [raw_server("good")],
    }
    with GatewayProcess(config) as gateway:
        port = gateway.port

        def over_websocket(origin: str) -> int:
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(connect(f"ws://127.0.0.1:{port}/ws", origin=origin))  # type: ignore[arg-type]
                except InvalidStatus as error:
                    return error.response.status_code
                return 101

        def over_http(origin: str) -> int:
            return post(port, initialize_request(), {"Origin": origin}).status

        for origin in (
            f"http://127.0.0.1:{port}",
            f"http://localhost:{port}",
            "https://app.example:8443",
        ):
            assert (over_websocket(origin), over_http(origin)) == (101, 200)
        for origin in (
            f"http://localhost:{port + 1}",
            "http://localhost",
            "https://app.example",
            "null",
        ):
            assert (over_websocket(origin), over_http(origin)) == (403, 403)
