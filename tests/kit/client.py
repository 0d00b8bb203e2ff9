"""Clients that send any message and see what an SDK hides: bytes, statuses, headers, and event
streams.

`Session` is an older client over streamable HTTP, `post_modern` a client of 2026-07-28, and
`StdioClient` a client that starts mcpx itself. Each wait is bounded by `WAIT_SECONDS`.
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kit.http_client import Headers, Reply, fetch
from kit.messages import Json, initialize_request, modern_headers, notification, request
from kit.process import Output
from kit.until import wait_until

WAIT_SECONDS = 15.0
"""Bound for an expected event on a busy machine. A test that requires a short time measures it
itself."""

ACCEPT_BOTH = "application/json, text/event-stream"


class Stream:
    """One request whose response is read event by event. `cut` closes the connection as a network
    failure does."""

    def __init__(
        self, port: int, method: str, path: str, headers: Headers = (), body: bytes | None = None
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        self._connection.connect()
        self._socket: socket.socket = self._connection.sock
        self._response: http.client.HTTPResponse | None = None
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        self._connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if not any(name.lower() == "host" for name, _ in pairs):
            self._connection.putheader("Host", f"127.0.0.1:{port}")
        for name, value in pairs:
            self._connection.putheader(name, value)
        if body is not None:
            self._connection.putheader("Content-Length", str(len(body)))
        with contextlib.suppress(OSError):  # The server has replied before the end of the request.
            self._connection.endheaders(body)

    @property
    def response(self) -> http.client.HTTPResponse:
        # A `cached_property` has one lock for all instances before Python 3.12.
        if self._response is None:
            self._response = self._connection.getresponse()
        return self._response

    @property
    def status(self) -> int:
        return self.response.status

    def data(self) -> Any:
        """The data of the next event. Fails at the end of the stream."""
        event = self.event()
        assert event is not None, "the stream has ended"
        return event["data"]

    def event(self) -> Json | None:
        """The next event, with its data parsed if it is a JSON object. None at the end. Comments
        are skipped."""
        event: Json = {}
        while line := self._line():
            if line == b"\n":
                if event:
                    return event
            elif not line.startswith(b":"):
                name, _, value = line.decode().rstrip("\n").partition(": ")
                event[name.rstrip(":")] = (
                    json.loads(value) if name == "data" and value.startswith("{") else value
                )
        return None

    def events(self) -> list[Json]:
        """All events until the end of the stream."""
        return list(iter(self.event, None))

    def comment(self) -> bytes:
        """The next line, which must be a comment. The server sends one when the stream is open."""
        line = self._line()
        assert line.startswith(b":"), line
        return line

    def _line(self) -> bytes:
        try:
            return self.response.readline()
        except http.client.IncompleteRead:
            return b""

    def patience(self, seconds: float) -> None:
        """Set the time after which reading raises TimeoutError."""
        self._socket.settimeout(seconds)

    def reply(self) -> Reply:
        with self:
            response = self.response
            return Reply(response.status, response.headers, response.read())

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._response is not None:
            self._response.close()
        self._socket.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()


def post(
    port: int, message: Any, headers: Mapping[str, str] | None = None, path: str = "/mcp"
) -> Reply:
    """Send a POST with the usual headers. `headers` replaces some of them. An empty value removes a
    header."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    usual = {"Content-Type": "application/json", "Accept": ACCEPT_BOTH, **(headers or {})}
    pairs = [(name, value) for name, value in usual.items() if value]
    return fetch(port, path, "POST", [*pairs, ("Content-Length", str(len(body)))], body)


def post_modern(port: int, message: Json, **more: str) -> Reply:
    return post(port, message, modern_headers(message, **more))


class Session:
    """An older client over streamable HTTP that sends one message at a time."""

    def __init__(
        self,
        port: int,
        version: str = "2025-11-25",
        capabilities: Json | None = None,
        headers: Mapping[str, str] | None = None,
        path: str = "/mcp",
        client: Json | None = None,
    ) -> None:
        self.port = port
        self.path = path
        self.own = dict(headers or {})
        self._count = 0
        greeting = post(
            port, initialize_request(version, capabilities, client=client), self.own, path
        )
        assert greeting.status == 200, greeting
        self.greeting = greeting.message["result"]
        self.id = greeting.get("mcp-session-id") or ""
        self.headers = {**self.own, "Mcp-Session-Id": self.id, "MCP-Protocol-Version": version}
        assert self.post(notification("notifications/initialized")).status == 202

    def post(self, message: Any) -> Reply:
        return post(self.port, message, self.headers, self.path)

    def next_id(self) -> int:
        self._count += 1
        return self._count

    def request(self, method: str, params: Json | None = None) -> Json:
        return self.post(request(method, params, self.next_id())).message

    def call(self, tool: str, **arguments: Any) -> Json:
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def start(self, method: str, params: Json | None = None, id: Any = None) -> Stream:
        """Send a request whose response is read event by event."""
        body = json.dumps(request(method, params, self.next_id() if id is None else id)).encode()
        headers = [
            ("Content-Type", "application/json"),
            ("Accept", ACCEPT_BOTH),
            *self.headers.items(),
        ]
        return Stream(self.port, "POST", self.path, headers, body)

    def start_call(
        self, tool: str, id: Any = None, progress: Any = None, **arguments: Any
    ) -> Stream:
        meta = {} if progress is None else {"_meta": {"progressToken": progress}}
        return self.start("tools/call", {"name": tool, "arguments": arguments, **meta}, id)

    def listen(self, last: str | None = None) -> Stream:
        """Open the GET stream. `last` is the id of the last event that was received."""
        headers = [("Accept", "text/event-stream"), *self.headers.items()]
        return Stream(
            self.port, "GET", self.path, [*headers, *([("Last-Event-ID", last)] if last else [])]
        )

    def delete(self) -> Reply:
        return fetch(self.port, self.path, "DELETE", self.headers)

    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.request("tools/list")["result"]["tools"]]


def health(port: int) -> Json:
    return fetch(port, "/health").json


def wait_until_settled(port: int, *names: str) -> Json:
    """Wait until no server (of `names`, if given) is connecting. Return the states of all
    servers."""

    def states() -> Json | None:
        servers = health(port)["servers"]
        return (
            None
            if any(servers[name]["status"] == "connecting" for name in names or servers)
            else servers
        )

    return wait_until(states)


class StdioClient:
    """A client that starts mcpx and uses its standard streams. Output that is not a message fails
    the test."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        framing: str = "newline",
        **popen: Any,
    ) -> None:
        self.framing = framing
        self.process = subprocess.Popen(
            list(command),
            **{"stdin": subprocess.PIPE, **popen},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            cwd=cwd,
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.stderr = Output(self.process.stderr)
        self.output = b""
        """Everything that mcpx has written to standard output."""
        self._at = 0
        self._early: dict[Any, Json] = {}
        self._others: list[Json] = []
        self._ended = False
        self._count = 0
        self._news = threading.Condition()
        self._thread = threading.Thread(
            target=self._read, args=(self.process.stdout.fileno(),), daemon=True
        )
        self._thread.start()

    def _read(self, pipe: int) -> None:
        while data := os.read(pipe, 1 << 20):
            with self._news:
                self.output += data
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def send(self, message: Json | bytes) -> None:
        """Send a message in the framing of this client. Bytes are sent unchanged."""
        assert self.process.stdin is not None
        if not isinstance(message, bytes):
            body = json.dumps(message).encode()
            header = b"Content-Length: %d\r\n\r\n" % len(body)
            message = body + b"\n" if self.framing == "newline" else header + body
        self.process.stdin.write(message)
        self.process.stdin.flush()

    def greet(self, version: str = "2025-11-25", capabilities: Json | None = None) -> Json:
        """Initialize the connection and return the result."""
        self.send(initialize_request(version, capabilities, "greet"))
        self.send(notification("notifications/initialized"))
        return self.reply("greet")["result"]

    def start(self, method: str, params: Json | None = None) -> int:
        """Send a request and return its id."""
        self._count += 1
        self.send(request(method, params, self._count))
        return self._count

    def request(self, method: str, params: Json | None = None) -> Json:
        return self.reply(self.start(method, params))

    def start_call(self, tool: str, **arguments: Any) -> int:
        return self.start("tools/call", {"name": tool, "arguments": arguments})

    def call(self, tool: str, **arguments: Any) -> Json:
        return self.reply(self.start_call(tool, **arguments))

    def message(self, seconds: float = WAIT_SECONDS) -> Json:
        """The next message, in the order of arrival."""
        raw = self._next(seconds)
        assert raw is not None, f"no message; stderr:\n{self.stderr.text}"
        return json.loads(raw)

    def reply(self, id: Any, seconds: float = WAIT_SECONDS) -> Json:
        """The response with this id. Other responses are kept for later calls of `reply`."""
        while id not in self._early:
            message = self.message(seconds)
            if "method" in message:
                self._others.append(message)
            else:
                assert message["id"] is None or message["id"] not in self._early, (
                    f"answered twice: {message}"
                )
                self._early[message["id"]] = message
        return self._early.pop(id)

    def rest(self) -> list[Json]:
        """All responses that `reply` has not returned, until the end of the output. mcpx must be
        ending."""
        while (raw := self._next(WAIT_SECONDS)) is not None:
            message = json.loads(raw)
            if "method" not in message:
                assert message["id"] is None or message["id"] not in self._early, (
                    f"answered twice: {message}"
                )
                self._early[message["id"]] = message
        return list(self._early.values())

    def _next(self, seconds: float) -> bytes | None:
        """None at the end of the output."""
        deadline = time.monotonic() + seconds
        with self._news:
            while (raw := self._cut_out()) is None:
                left = deadline - time.monotonic()
                if self._ended:
                    assert self._at == len(self.output), (
                        f"half a message at the end: {self.output[self._at :][:200]!r}"
                    )
                    return None
                assert left > 0, (
                    f"nothing on standard output for {seconds:g} s; stderr:\n{self.stderr.text}"
                )
                self._news.wait(left)
            return raw

    def _cut_out(self) -> bytes | None:
        """The next complete message in `output`, or None."""
        if self.framing == "newline":
            end = self.output.find(b"\n", self._at)
            if end < 0:
                return None
            raw, self._at = self.output[self._at : end], end + 1
            return raw
        end = self.output.find(b"\r\n\r\n", self._at)
        if end < 0:
            return None
        header = self.output[self._at : end].decode()
        name, _, length = header.partition(": ")
        assert name == "Content-Length" and length.isdigit(), (
            f"one header, Content-Length: {header!r}"
        )
        start = end + 4
        if len(self.output) < start + int(length):
            return None
        self._at = start + int(length)
        return self.output[start : self._at]

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        return self.process.wait(seconds)

    def finish(self) -> int:
        """Close standard input and return the exit code."""
        self.end_input()
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(WAIT_SECONDS)
            if error is None:
                raise
        finally:
            self._thread.join(WAIT_SECONDS)
            self.stderr.close()
            assert self.process.stdout is not None
            self.process.stdout.close()
        if error is None:
            assert "Traceback" not in self.stderr.text, self.stderr.text
