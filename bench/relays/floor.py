"""The floor: what a relay in Python cannot go below. It finds the upstream of a tool, gives the
request an id of its own and forwards the rest.

    python floor.py CONFIG.json --era older               stdio front
    python floor.py CONFIG.json --era older --port 9100   streamable HTTP front

One orjson parse and one dump for each message, callbacks all the way, no task for a call, the list
kept as bytes. Not a gateway: names must not clash, and there is no reconnecting, no cancellation,
no question back, no limit.
"""

import asyncio
import itertools
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import orjson
import uvloop

Json = dict[str, Any]
Reply = Callable[[Json], None]
OLDER, MODERN = "2025-06-18", "2026-07-28"
ABOUT = {"name": "floor", "version": "1"}
GREETING: Json = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": ABOUT}
ENVELOPE: Json = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": ABOUT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Upstream(ABC):
    """One server: requests go out under ids of our own, answers find their way back by them."""

    def __init__(self) -> None:
        self._pending: dict[int, tuple[Any, Reply]] = {}
        self._ids = itertools.count(1)

    @abstractmethod
    def send(self, message: Json) -> None: ...

    def ask(self, message: Json, reply: Reply) -> None:
        own, message["id"] = message["id"], next(self._ids)
        self._pending[message["id"]] = own, reply
        self.send(message)

    def answered(self, raw: bytes) -> None:
        message = orjson.loads(raw)
        if message.get("id") in self._pending:
            message["id"], reply = self._pending.pop(message["id"])
            reply(message)

    async def request(self, method: str, params: Json) -> Json:
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self.ask({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}, answer.set_result)
        return (await answer)["result"]

    async def tools(self, era: str) -> list[Json]:
        if era == "modern":
            return (await self.request("tools/list", {"_meta": ENVELOPE}))["tools"]
        await self.request("initialize", GREETING)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return (await self.request("tools/list", {}))["tools"]


class Relay:
    """Between a front, which brings requests with a way to answer them, and the upstreams."""

    def __init__(self, era: str) -> None:
        self._era = era
        self._routes: dict[str, Upstream] = {}
        self._tools: orjson.Fragment

    async def connect(self, servers: dict[str, Json]) -> None:
        found = await asyncio.gather(*(self._one(server) for server in servers.values()))
        for upstream, tools in found:
            self._routes.update((tool["name"], upstream) for tool in tools)
        more = (
            {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            if self._era == "modern"
            else {}
        )
        self._tools = orjson.Fragment(
            orjson.dumps({"tools": [tool for _, tools in found for tool in tools], **more})
        )

    async def _one(self, server: Json) -> tuple[Upstream, list[Json]]:
        upstream = (
            Origin(server["url"])
            if "url" in server
            else await Child.start([server["command"], *server["args"]])
        )
        return upstream, await upstream.tools(self._era)

    def asked(self, message: Json, reply: Reply) -> None:
        """`reply` is called with the answer, now or later; never for a notification."""
        if "id" not in message:
            return
        if message["method"] == "tools/call":
            return self._routes[message["params"]["name"]].ask(message, reply)
        result: Any = self._tools
        if message["method"] == "initialize":
            result = {"protocolVersion": OLDER, "capabilities": {"tools": {}}, "serverInfo": ABOUT}
        reply({"jsonrpc": "2.0", "id": message["id"], "result": result})


class Lines:
    """Bytes in, whole lines out."""

    def __init__(self, line: Callable[[bytes], None]) -> None:
        self._line = line
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._parts, whole[0]])
            self._parts.clear()
        if rest:
            self._parts.append(rest)
        for line in whole:
            if line:
                self._line(line)


class Http(asyncio.Protocol):
    """Either side of an HTTP connection: whole messages with a content-length, one at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if len(self._buffer) >= end + length:
            body = bytes(self._buffer[end : end + length])
            del self._buffer[: end + length]
            self.message(head, body)

    def message(self, head: bytes, body: bytes) -> None:
        raise NotImplementedError


# Upstreams
# --------------------------------------------------------------------------------------------------


class Child(Upstream, asyncio.SubprocessProtocol):
    """A server on the pipes of a child process."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = Lines(self.answered)
        self._pipe: asyncio.WriteTransport

    @classmethod
    async def start(cls, command: list[str]) -> "Child":
        transport, child = await asyncio.get_running_loop().subprocess_exec(
            cls, *command, stderr=None
        )
        child._pipe = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
        return child

    def send(self, message: Json) -> None:
        self._pipe.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._lines.feed(data)


class Origin(Upstream):
    """A server over HTTP: as many kept connections as there are requests at the same time."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.idle: list[Http] = []
        self.session = b""
        authority, _, path = url.removeprefix("http://").partition("/")
        self._host, port = authority.split(":")
        self._port = int(port)
        self._head = b"POST /%b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n" % (
            path.encode(),
            authority.encode() + b"\r\naccept: application/json, text/event-stream",
        )
        self._opening: set[asyncio.Task[None]] = set()

    def send(self, message: Json) -> None:
        body = orjson.dumps(message)
        own = self.session or _modern_headers(message)
        request = b"%b%bcontent-length: %d\r\n\r\n%b" % (self._head, own, len(body), body)
        if self.idle:
            self.idle.pop().transport.write(request)
        else:
            task = asyncio.create_task(self._open(request))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: Answer(self), self._host, self._port)
        transport.write(request)


def _modern_headers(message: Json) -> bytes:
    method = message["method"]
    if method == "initialize":
        return b""
    name = f"mcp-name: {message['params']['name']}\r\n" if method == "tools/call" else ""
    return f"mcp-protocol-version: {MODERN}\r\nmcp-method: {method}\r\n{name}".encode()


class Answer(Http):
    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def message(self, head: bytes, body: bytes) -> None:
        if b"\r\nmcp-session-id:" in head:
            session = head.partition(b"\r\nmcp-session-id:")[2].split(b"\r\n")[0].strip()
            self._origin.session = (
                b"mcp-session-id: %b\r\nmcp-protocol-version: 2025-06-18\r\n" % session
            )
        self._origin.idle.append(self)
        if body:
            self._origin.answered(body)


# Fronts
# --------------------------------------------------------------------------------------------------


class Request(Http):
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def message(self, head: bytes, body: bytes) -> None:
        if not head.startswith(b"post "):
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return
        message = orjson.loads(body)
        if "id" not in message:
            self.transport.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        self._relay.asked(message, self._reply)

    def _reply(self, message: Json) -> None:
        body = orjson.dumps(message)
        head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % len(body)
        )
        self.transport.write(head + body)


class Input(asyncio.Protocol):
    def __init__(self, line: Callable[[bytes], None], ended: asyncio.Event) -> None:
        self._ended = ended
        self.data_received = Lines(line).feed

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


async def serve_stdio(relay: Relay) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    output, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(1, "wb", 0))

    def reply(message: Json) -> None:
        output.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    await loop.connect_read_pipe(
        lambda: Input(lambda line: relay.asked(orjson.loads(line), reply), ended),
        os.fdopen(0, "rb", 0),
    )
    await ended.wait()


async def main(servers: dict[str, Json], era: str, port: int | None) -> None:
    relay = Relay(era)
    await relay.connect(servers)
    if port is None:
        return await serve_stdio(relay)
    server = await asyncio.get_running_loop().create_server(
        lambda: Request(relay), "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    entries = orjson.loads(Path(sys.argv[1]).read_bytes())["mcpServers"]
    uvloop.run(
        main(entries, options["--era"], int(options["--port"]) if "--port" in options else None)
    )
