"""LIF-3, LIF-4, SRC-8: servers over HTTP that stop, are busy for a moment, or want us to sign
in."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kit.client import health, post_modern
from kit.gateway import Gateway
from kit.messages import Json, modern_request, text_of
from kit.until import wait_until

MODERN = "2026-07-28"
CALM = {"hot_reload": False, "startup_wait": 1, "first_start_wait": 1}


class Remote:
    """A server of both eras, a connection for each request. `troubles` answers the first requests
    of a method."""

    def __init__(self) -> None:
        self.troubles: dict[str, list[tuple[int, dict[str, str], bytes]]] = {}
        self.seen: list[tuple[str, str | None]] = []
        """Method and `Mcp-Protocol-Version` of every message."""
        self._port = 0
        self.start()

    @property
    def server(self) -> Json:
        connection = {"type": "http", "url": f"http://127.0.0.1:{self._port}/mcp"}
        return {
            "name": "remote",
            "prefix": "remote",
            "connection": connection,
            "timeout": 5,
            "retry_delay": 0.2,
        }

    def versions(self, method: str) -> list[str | None]:
        return [version for seen, version in self.seen if seen == method]

    def start(self) -> None:
        """On the same port as before."""
        self._listener = _Listener(("127.0.0.1", self._port), _Handler)
        self._listener.remote = self
        self._port = self._listener.server_address[1]
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()

    def stop(self) -> None:
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()


class _Listener(ThreadingHTTPServer):
    remote: Remote

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early."""


class _Handler(BaseHTTPRequestHandler):
    server: _Listener

    def do_GET(self) -> None:
        self._answer(405, {}, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params = message.get("method", ""), message.get("params") or {}
        self.server.remote.seen.append((method, self.headers.get("mcp-protocol-version")))
        if self.server.remote.troubles.get(method):
            self._answer(*self.server.remote.troubles[method].pop(0))
        elif "id" not in message:
            self._answer(202, {}, b"")
        else:
            result = {
                "content": [
                    {"type": "text", "text": str((params.get("arguments") or {}).get("text"))}
                ]
            }
            offered: dict[str, Any] = {"capabilities": {"tools": {}}}
            if method == "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "serverInfo": {"name": "r", "version": "1"},
                    **offered,
                }
            elif method == "server/discover":
                result = {"supportedVersions": [MODERN], **offered}
            elif method == "tools/list":
                result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            modern_fields = (
                {"resultType": "complete"}
                if self.headers.get("mcp-protocol-version") == MODERN
                else {}
            )
            body = {"jsonrpc": "2.0", "id": message["id"], "result": {**result, **modern_fields}}
            self._answer(200, {}, json.dumps(body).encode())

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "content-type": "application/json",
            "content-length": str(len(body)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def remote() -> Iterator[Remote]:
    server = Remote()
    yield server
    server.stop()


def gateway(remote: Remote) -> Gateway:
    return Gateway({"global": CALM, "mcp_servers": [remote.server]})


def state(port: int) -> str:
    return health(port)["servers"]["remote"]["status"]


def echo(port: int, text: str) -> Json:
    call = modern_request("tools/call", {"name": "remote_echo", "arguments": {"text": text}})
    return post_modern(port, call).message


def test_a_server_that_stopped_is_not_called_connected_and_serves_again_when_it_is_back(
    remote: Remote,
) -> None:
    """LIF-3, LIF-4: the first call that cannot reach it tells."""
    with gateway(remote) as running:
        wait_until(lambda: state(running.port) == "connected")
        assert text_of(echo(running.port, "one")) == "one"
        remote.stop()
        assert "cannot connect" in echo(running.port, "lost")["error"]["message"]
        assert state(running.port) != "connected"
        remote.start()
        wait_until(lambda: state(running.port) == "connected")
        assert text_of(echo(running.port, "two")) == "two"


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_is_busy_at_the_opening_is_not_taken_for_an_older_one(
    remote: Remote, status: int
) -> None:
    """LIF-4: it is asked again when it said, and spoken to in its client's era."""
    remote.troubles["server/discover"] = [(status, {"Retry-After": "1"}, b'{"error":"slow down"}')]
    with gateway(remote) as running:
        wait_until(lambda: state(running.port) == "connected")
        assert text_of(echo(running.port, "hello")) == "hello"
        assert remote.versions("tools/call") == [MODERN]
        assert "initialize" not in [method for method, _ in remote.seen]


def test_a_server_that_wants_us_to_sign_in_is_told_in_its_own_words(remote: Remote) -> None:
    """LIF-3, SRC-8."""
    refused = (
        401,
        {"WWW-Authenticate": "Bearer"},
        b'{"error":"invalid_token","error_description":"sign in first"}',
    )
    for method in ("server/discover", "initialize"):
        remote.troubles[method] = [refused] * 100
    with gateway(remote) as running:
        wait_until(lambda: "sign in first" in running.stderr())
        assert "wants the gateway to sign in (HTTP 401): sign in first" in running.stderr()
        assert "not an object" not in running.stderr()
