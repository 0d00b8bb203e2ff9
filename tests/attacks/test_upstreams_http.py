"""HTTP servers, or proxies before them, that are out of step, talk without end or take nothing:
nobody else pays."""

import contextlib
import json
import re
import socket
import socketserver
import threading
from collections.abc import Callable
from typing import Any, Self

import pytest

from kit.client import Session, health, wait_until_settled
from kit.gateway import GatewayProcess
from kit.until import wait_until

CALM = {"hot_reload": False, "startup_wait": 15, "first_start_wait": 15}
MINE_OR_NONE = (-33005, -33003)
"""A server that is out of step, or a connection that broke in the middle: no other error is due."""


class Upstream(socketserver.ThreadingTCPServer):
    """An older server on raw sockets: what it sends for a call, or for a GET, is up to the test."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, call: Callable[["_Connection", bytes], None], session: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.call = call
        self.session = session
        self.open = 0
        self.most = 0
        self.seen: list[str] = []
        self.lock = threading.Lock()
        self.before = b""
        self.ending = threading.Event()
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def entry(self, **keys: Any) -> dict[str, Any]:
        connection = {"type": "http", "url": f"http://127.0.0.1:{self.server_address[1]}/mcp"}
        return {"name": "odd", "prefix": "odd", "connection": connection, **keys}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """mcpx hangs up on what it does not want: that is what these tests are about."""


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class _Connection(socketserver.StreamRequestHandler):
    server: Upstream

    def handle(self) -> None:
        with self.server.lock:
            self.server.open += 1
            self.server.most = max(self.server.most, self.server.open)
        try:
            while head := self._head():
                self._answer(head)
        finally:
            with self.server.lock:
                self.server.open -= 1

    def _head(self) -> bytes:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:
                return b""
            head += line
        return head

    def _answer(self, head: bytes) -> None:
        length = re.search(rb"content-length: (\d+)", head)
        message: dict[str, Any] = json.loads(self.rfile.read(int(length[1])) if length else b"{}")
        method = message.get("method", head.split(b" ", 1)[0].decode())
        self.server.seen.append(method)
        if "id" not in message:
            self.request.sendall(http(b"", "405 No" if method == "GET" else "202 Accepted"))
        elif method == "tools/call":
            text = message["params"]["arguments"].get("text", "")
            content = {"content": [{"type": "text", "text": text}]}
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": content}
            self.server.call(self, http(json.dumps(reply).encode()))
        elif method == "server/discover":
            error = {"code": -32601, "message": "no"}
            self.request.sendall(
                http(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
            )
        else:
            result: dict[str, Any] = {
                "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]
            }
            headers: tuple[str, ...] = ()
            if method == "initialize":
                info = {"name": "odd", "version": "1"}
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
                headers = (f"Mcp-Session-Id: {self.server.session}",) if self.server.session else ()
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            self.request.sendall(http(json.dumps(reply).encode(), "200 OK", *headers))


# ---- another client's answer


def twice(connection: _Connection, reply: bytes) -> None:
    connection.request.sendall(reply + reply)


def twice_with_a_pause(connection: _Connection, reply: bytes) -> None:
    connection.request.sendall(reply)
    connection.server.ending.wait(0.002)
    connection.request.sendall(reply)


def one_behind(connection: _Connection, reply: bytes) -> None:
    """Each call gets the reply to the one before it, whosever that was."""
    server = connection.server
    with server.lock:
        before, server.before = server.before, reply
    connection.request.sendall(before or reply)


def surplus(connection: _Connection, reply: bytes) -> None:
    """Behind a reply, the one to another call."""
    server = connection.server
    with server.lock:
        before, server.before = server.before, reply
    connection.request.sendall(reply + before)


@pytest.mark.parametrize("habit", [twice, twice_with_a_pause, one_behind, surplus])
def test_twenty_clients_never_get_each_others_answers(
    habit: Callable[[_Connection, bytes], None],
) -> None:
    """SRC-8: a server that sends replies twice, off by one, or with more behind them."""
    wrong: list[Any] = []
    right: list[str] = []

    def client(port: int, number: int) -> None:
        session = Session(port)
        for turn in range(15):
            text = f"{number}-{turn}"
            message = session.call("odd_echo", text=text)
            if "error" in message:
                if message["error"]["code"] not in MINE_OR_NONE:
                    wrong.append(message)
            elif message["result"]["content"][0]["text"] != text:
                wrong.append((text, message))
            else:
                right.append(text)

    with (
        Upstream(habit) as odd,
        GatewayProcess({"global": CALM, "mcp_servers": [odd.entry()]}) as gateway,
    ):
        wait_until_settled(gateway.port)
        clients = [
            threading.Thread(target=client, args=(gateway.port, number)) for number in range(20)
        ]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
    assert not wrong, wrong[:3]
    assert right or habit is one_behind


# ---- more calls than connections


def test_hanging_calls_take_a_share_of_the_connections_and_leave_room_for_their_cancelling() -> (
    None
):
    """LIF-6 and SEC-6: 400 calls hang; when their client gives up, the server is told of those it
    was sent."""

    def hang(connection: _Connection, reply: bytes) -> None:
        connection.server.ending.wait(60)

    with (
        Upstream(hang, "s") as odd,
        GatewayProcess({"global": CALM, "mcp_servers": [odd.entry()]}) as gateway,
    ):
        wait_until_settled(gateway.port)
        session = Session(gateway.port)
        with contextlib.ExitStack() as stack:
            streams = [session.start_call("odd_echo", id=number) for number in range(400)]
            for stream in streams:
                stack.callback(stream.cut)
            wait_until(lambda: odd.seen.count("tools/call") == 256)
            cancelled = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": 0},
            }
            assert session.post(cancelled).status == 202
            wait_until(lambda: "notifications/cancelled" in odd.seen)
            wait_until(lambda: odd.seen.count("tools/call") == 257)
            assert odd.most <= 256 + 8 + 1


# ---- what a server must not give


def test_a_session_id_that_no_client_could_send_back_is_refused_and_said() -> None:
    """SEC-6 and SRC-8."""
    with (
        Upstream(twice, "x" * 5000) as odd,
        GatewayProcess({"global": CALM, "mcp_servers": [odd.entry(max_retries=0)]}) as gateway,
    ):
        server = wait_until_settled(gateway.port)["odd"]
        assert server["status"] == "disconnected"
        assert "session id" in server["last_error"]
        assert health(gateway.port)["status"]


def test_a_server_that_only_connects_is_told_as_one_that_does_not_answer() -> None:
    """LIF-3: it takes connections and says nothing, ever."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as mute:
        connection = {"type": "http", "url": f"http://127.0.0.1:{mute.getsockname()[1]}/mcp"}
        entry = {"name": "mute", "connection": connection, "timeout": 2, "max_retries": 0}
        with GatewayProcess(
            {"global": {**CALM, "startup_wait": 1, "first_start_wait": 1}, "mcp_servers": [entry]}
        ) as gateway:
            server = wait_until_settled(gateway.port)["mute"]
            assert server["status"] == "disconnected"
            assert "handshake" in server["last_error"]
