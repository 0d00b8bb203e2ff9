"""Small clients that say what no SDK would, and see what an SDK hides: bytes, statuses, headers, processes.

`Session` and `ask` speak HTTP, `Pipe` speaks to mcpx's standard input and output, `Watch` follows processes by
descriptors that name them for good. Nothing here sleeps to synchronise; every wait is bounded by `WAIT`.
"""

import contextlib
import http.client
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kit.process import Output, stdio_command
from kit.waiting import wait_until

Json = dict[str, Any]
Headers = Iterable[tuple[str, str]]

WAIT = 15.0
"""Seconds for what must come, on a busy machine. What has to come *at once* is measured by the test itself."""

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
BOTH = "application/json, text/event-stream"

MCPX = [sys.executable, "-m", "mcpx"]


# ---- servers for a config


def stdio_server(name: str, command: Sequence[str], **keys: Any) -> Json:
    """An entry of `mcp_servers`; its tools are called `<name>_<tool>`."""
    connection = {"type": "stdio", "command": command[0], "args": list(command[1:]), **keys.pop("connection", {})}
    return {"name": name, "prefix": name, "connection": connection, **keys}


def raw_server(name: str, *flags: str, **keys: Any) -> Json:
    return stdio_server(name, stdio_command("raw_server.py", *flags), **keys)


def everything(name: str, *flags: str, **keys: Any) -> Json:
    return stdio_server(name, stdio_command("everything.py", "--transport", "stdio", *flags), **keys)


def odd_server(name: str, record: Path, *flags: str, **keys: Any) -> Json:
    """A server that keeps every message it reads in a file, for `recorded`."""
    script = str(Path(__file__).with_name("odd_server.py"))
    return stdio_server(name, [sys.executable, "-I", "-S", script, str(record), *flags], **keys)


def recorded(record: Path, method: str) -> list[Json]:
    """The messages of a method that an odd server has read so far."""
    lines = record.read_bytes().splitlines() if record.exists() else []
    return [message for message in map(json.loads, lines) if message["method"] == method]


# ---- messages


def request(method: str, params: Json | None = None, id: Any = 1) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params})


def notification(method: str, params: Json | None = None) -> Json:
    return {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})


def initialize(
    version: str = "2025-11-25", capabilities: Json | None = None, id: Any = 0, client: Json | None = None
) -> Json:
    client = client or {"name": "raw", "version": "1"}
    params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": client}
    return request("initialize", params, id)


def modern(method: str, params: Json | None = None, id: Any = 1, capabilities: Json | None = None) -> Json:
    """A request of 2026-07-28 with its envelope."""
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": capabilities or {}}
    return request(method, {**(params or {}), "_meta": {**meta, **(params or {}).get("_meta", {})}}, id)


def text_of(message: Json) -> str:
    """The text of a tool's result."""
    assert "result" in message, message
    return message["result"]["content"][0]["text"]


def told(message: Json) -> Json:
    """What `whoami` or `ident` answered."""
    assert "result" in message, message
    return message["result"]["structuredContent"]


# ---- HTTP


@dataclass(frozen=True)
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, Any, int]:
        """Status, id and code of a refusal."""
        return self.status, self.json["id"], self.json["error"]["code"]

    @property
    def message(self) -> Json:
        """The response, whether it came as JSON or as the last event of a stream."""
        if not (self.get("content-type") or "").startswith("text/event-stream"):
            return self.json
        return json.loads([line for line in self.body.splitlines() if line.startswith(b"data: {")][-1][6:])


class Stream:
    """One request and its answer, as it comes. `cut` is what a lost network looks like to the other side."""

    def __init__(self, port: int, method: str, path: str, headers: Headers = (), body: bytes | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
        self._connection.connect()
        self._socket: socket.socket = self._connection.sock
        self._response: http.client.HTTPResponse | None = None
        headers = list(headers)
        self._connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if not any(name.lower() == "host" for name, _ in headers):
            self._connection.putheader("Host", f"127.0.0.1:{port}")
        for name, value in headers:
            self._connection.putheader(name, value)
        if body is not None:
            self._connection.putheader("Content-Length", str(len(body)))
        try:
            self._connection.endheaders(body)
        except OSError:  # refused before it had sent everything: the answer is there
            pass

    @property
    def response(self) -> http.client.HTTPResponse:
        # Not a `cached_property`: before Python 3.12 that has all streams wait for the answer of one.
        if self._response is None:
            self._response = self._connection.getresponse()
        return self._response

    @property
    def status(self) -> int:
        return self.response.status

    def data(self) -> Any:
        """What the next event carries; there must be one."""
        event = self.event()
        assert event is not None, "the stream has ended"
        return event["data"]

    def event(self) -> Json | None:
        """The next event, its `data` parsed when there is any; None at the end. Comments are left out."""
        event: Json = {}
        while line := self._line():
            if line == b"\n":
                if event:
                    return event
            elif not line.startswith(b":"):
                name, _, value = line.decode().rstrip("\n").partition(": ")
                event[name.rstrip(":")] = json.loads(value) if name == "data" and value.startswith("{") else value
        return None

    def events(self) -> list[Json]:
        """All that is left, up to the end of the stream."""
        return list(iter(self.event, None))

    def comment(self) -> bytes:
        """The next line, which must be a sign of life: from here on the stream is open."""
        line = self._line()
        assert line.startswith(b":"), line
        return line

    def _line(self) -> bytes:
        try:
            return self.response.readline()
        except http.client.IncompleteRead:
            return b""

    def patience(self, seconds: float) -> None:
        """How long the next event may take; then a TimeoutError says that there was none."""
        self._socket.settimeout(seconds)

    def reply(self) -> Reply:
        with self:
            response = self.response
            return Reply(response.status, response.getheaders(), response.read())

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


def ask(port: int, method: str, path: str, headers: Headers = (), body: bytes | None = None) -> Reply:
    """One request on a connection of its own, nothing added but Host and the length."""
    return Stream(port, method, path, headers, body).reply()


def post(port: int, message: Any, headers: Mapping[str, str] | None = None, path: str = "/mcp") -> Reply:
    """A POST as a good client sends it; `headers` replace the usual ones, and an empty value leaves one out."""
    usual = {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})}
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return ask(port, "POST", path, [(name, value) for name, value in usual.items() if value], body)


def modern_headers(message: Json, **more: str) -> dict[str, str]:
    """What a client of 2026-07-28 repeats in its headers."""
    params = message["params"]
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
    name = params.get("uri") if message["method"] == "resources/read" else params.get("name")
    return headers | ({"Mcp-Name": name} if name is not None else {}) | more


def post_modern(port: int, message: Json, **more: str) -> Reply:
    return post(port, message, modern_headers(message, **more))


class Session:
    """An older client over streamable HTTP, one message at a time."""

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
        greeting = post(port, initialize(version, capabilities, client=client), self.own, path)
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
        """A request whose answer is read as it comes."""
        body = json.dumps(request(method, params, self.next_id() if id is None else id)).encode()
        headers = [("Content-Type", "application/json"), ("Accept", BOTH), *self.headers.items()]
        return Stream(self.port, "POST", self.path, headers, body)

    def start_call(self, tool: str, id: Any = None, progress: Any = None, **arguments: Any) -> Stream:
        meta = {} if progress is None else {"_meta": {"progressToken": progress}}
        return self.start("tools/call", {"name": tool, "arguments": arguments, **meta}, id)

    def listen(self, last: str | None = None) -> Stream:
        """The GET stream."""
        headers = [("Accept", "text/event-stream"), *self.headers.items()]
        return Stream(self.port, "GET", self.path, [*headers, *([("Last-Event-ID", last)] if last else [])])

    def delete(self) -> Reply:
        return ask(self.port, "DELETE", self.path, self.headers.items())

    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.request("tools/list")["result"]["tools"]]


def health(port: int) -> Json:
    return ask(port, "GET", "/health").json


def settled(port: int, *names: str) -> Json:
    """The states of the servers once none of them is starting any more."""

    def look() -> Json | None:
        servers = health(port)["servers"]
        return None if any(servers[name]["status"] == "connecting" for name in names or servers) else servers

    return wait_until(look)


# ---- standard input and output


class Pipe:
    """A client that started mcpx itself. Whatever is on standard output and not a message fails the test."""

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
        """All that came on standard output."""
        self._at = 0
        self._early: dict[Any, Json] = {}
        self._others: list[Json] = []
        self._ended = False
        self._count = 0
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(self.process.stdout.fileno(),), daemon=True)
        self._thread.start()

    def _read(self, pipe: int) -> None:
        while data := os.read(pipe, 1 << 20):
            with self._news:
                self.output += data
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    # -- talking

    def send(self, message: Json | bytes) -> None:
        """A message in this pipe's framing; bytes go as they are."""
        assert self.process.stdin is not None
        if not isinstance(message, bytes):
            body = json.dumps(message).encode()
            header = b"Content-Length: %d\r\n\r\n" % len(body)
            message = body + b"\n" if self.framing == "newline" else header + body
        self.process.stdin.write(message)
        self.process.stdin.flush()

    def greet(self, version: str = "2025-11-25", capabilities: Json | None = None) -> Json:
        self.send(initialize(version, capabilities, "greet"))
        self.send(notification("notifications/initialized"))
        return self.reply("greet")["result"]

    def start(self, method: str, params: Json | None = None) -> int:
        self._count += 1
        self.send(request(method, params, self._count))
        return self._count

    def request(self, method: str, params: Json | None = None) -> Json:
        return self.reply(self.start(method, params))

    def start_call(self, tool: str, **arguments: Any) -> int:
        return self.start("tools/call", {"name": tool, "arguments": arguments})

    def call(self, tool: str, **arguments: Any) -> Json:
        return self.reply(self.start_call(tool, **arguments))

    # -- listening

    def message(self, seconds: float = WAIT) -> Json:
        """The next message, in the order of arrival."""
        raw = self._next(seconds)
        assert raw is not None, f"no message; stderr:\n{self.stderr.text}"
        return json.loads(raw)

    def reply(self, id: Any, seconds: float = WAIT) -> Json:
        """The response with this id; responses before it are kept for their own `reply`."""
        while id not in self._early:
            message = self.message(seconds)
            if "method" in message:
                self._others.append(message)
            else:
                assert message["id"] is None or message["id"] not in self._early, f"answered twice: {message}"
                self._early[message["id"]] = message
        return self._early.pop(id)

    def rest(self) -> list[Json]:
        """Every response nobody asked for, up to the end of the output. mcpx must be ending."""
        while (raw := self._next(WAIT)) is not None:
            message = json.loads(raw)
            if "method" not in message:
                assert message["id"] is None or message["id"] not in self._early, f"answered twice: {message}"
                self._early[message["id"]] = message
        return list(self._early.values())

    def _next(self, seconds: float) -> bytes | None:
        """None at the end of the output."""
        deadline = time.monotonic() + seconds
        with self._news:
            while (raw := self._cut_out()) is None:
                left = deadline - time.monotonic()
                if self._ended:
                    assert self._at == len(self.output), f"half a message at the end: {self.output[self._at :][:200]!r}"
                    return None
                assert left > 0, f"nothing on standard output for {seconds:g} s; stderr:\n{self.stderr.text}"
                self._news.wait(left)
            return raw

    def _cut_out(self) -> bytes | None:
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
        assert name == "Content-Length" and length.isdigit(), f"one header, Content-Length: {header!r}"
        start = end + 4
        if len(self.output) < start + int(length):
            return None
        self._at = start + int(length)
        return self.output[start : self._at]

    # -- ending

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self, seconds: float = WAIT) -> int:
        return self.process.wait(seconds)

    def finish(self) -> int:
        """EOF, as a client that leaves; the exit code."""
        self.end_input()
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(WAIT)
            if error is None:
                raise
        finally:
            self._thread.join(WAIT)
            self.stderr.close()
            assert self.process.stdout is not None
            self.process.stdout.close()
        if error is None:
            assert "Traceback" not in self.stderr.text, self.stderr.text


# ---- processes


class Watch:
    """Processes that are to go away, whoever's children they are and whoever gets their numbers afterwards."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._open: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._open[os.pidfd_open(pid)] = pid

    def left(self, seconds: float) -> list[int]:
        """Those still there after so many seconds; returns as soon as there are none."""
        deadline = time.monotonic() + seconds
        waiting = select.poll()
        for descriptor in self._open:
            waiting.register(descriptor, select.POLLIN)
        left = dict(self._open)
        while left and (rest := deadline - time.monotonic()) > 0:
            for descriptor, _ in waiting.poll(rest * 1000):
                waiting.unregister(descriptor)
                del left[descriptor]
        return sorted(left.values())

    def __len__(self) -> int:
        return len(self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open:
            os.close(descriptor)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError):
                stat = Path("/proc", entry, "stat").read_text(errors="replace")
                yield int(entry), int(stat.rpartition(")")[2].split()[1])


def descendants(pid: int) -> set[int]:
    """Every process below this one, the keeper too."""
    parents = dict(_parents())
    found: set[int] = set()
    fresh = {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def peak_memory(pid: int) -> int:
    """The most memory a process ever had, in bytes."""
    status = Path("/proc", str(pid), "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
