"""The floor: what a relay in Python cannot go below. It gives each request an id of its own and forwards the rest.

    python floor.py CONFIG.json               stdio front
    python floor.py CONFIG.json --port 9100   streamable HTTP front

One orjson parse and one dump for each message, callbacks all the way, no task for a call. Not a gateway: one
upstream, no catalog, no reconnecting, no cancellation, no questions, no limits.
"""

import asyncio
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import orjson
import uvloop

Json = dict[str, Any]
MODERN = "2026-07-28"
NAMED = {"tools/call": "name"}


class Relay:
    """Between a front, which brings requests with a way to answer them, and an upstream, which only `send`s."""

    def __init__(self) -> None:
        self.send: Callable[[Json], None]
        self._pending: dict[int, tuple[Any, Callable[[Json], None]]] = {}
        self._ids = itertools.count(1)

    def asked(self, message: Json, reply: Callable[[Json], None]) -> None:
        if "id" in message:
            own, message["id"] = message["id"], next(self._ids)
            self._pending[message["id"]] = own, reply
        self.send(message)

    def answered(self, raw: bytes) -> None:
        message = orjson.loads(raw)
        if message.get("id") in self._pending:
            message["id"], reply = self._pending.pop(message["id"])
            reply(message)


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


# Upstreams ---------------------------------------------------------------------------------------------------


class Child(asyncio.SubprocessProtocol):
    """A server on the pipes of a child process."""

    def __init__(self, relay: Relay) -> None:
        self._lines = Lines(relay.answered)

    @classmethod
    async def start(cls, relay: Relay, command: list[str]) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.subprocess_exec(lambda: cls(relay), *command, stderr=None)
        pipe = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
        relay.send = lambda message: pipe.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._lines.feed(data)


class Origin:
    """A server over HTTP: as many kept connections as there are requests at the same time."""

    def __init__(self, relay: Relay, url: str) -> None:
        self.relay = relay
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
        relay.send = self.send

    def send(self, message: Json) -> None:
        body = orjson.dumps(message)
        own = self.session or self._modern_headers(message)
        request = b"%b%bcontent-length: %d\r\n\r\n%b" % (self._head, own, len(body), body)
        if self.idle:
            self.idle.pop().transport.write(request)
        else:
            task = asyncio.create_task(self._open(request))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: Reply(self), self._host, self._port)
        transport.write(request)

    def _modern_headers(self, message: Json) -> bytes:
        method = message["method"]
        name = message["params"][NAMED[method]] if method in NAMED else ""
        lines = f"mcp-protocol-version: {MODERN}\r\nmcp-method: {method}\r\n" + (name and f"mcp-name: {name}\r\n")
        return b"" if method == "initialize" else lines.encode()


class Reply(Http):
    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def message(self, head: bytes, body: bytes) -> None:
        if b"\r\nmcp-session-id:" in head:
            session = head.partition(b"\r\nmcp-session-id:")[2].split(b"\r\n")[0].strip()
            self._origin.session = b"mcp-session-id: %b\r\nmcp-protocol-version: 2025-06-18\r\n" % session
        self._origin.idle.append(self)
        if body:
            self._origin.relay.answered(body)


# Fronts ------------------------------------------------------------------------------------------------------


class Request(Http):
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def message(self, head: bytes, body: bytes) -> None:
        message = orjson.loads(body)
        if "id" not in message:
            self.transport.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        self._relay.asked(message, self._reply)

    def _reply(self, message: Json) -> None:
        body = orjson.dumps(message)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
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
        lambda: Input(lambda line: relay.asked(orjson.loads(line), reply), ended), os.fdopen(0, "rb", 0)
    )
    await ended.wait()


async def main(upstream: Json, port: int | None) -> None:
    relay = Relay()
    if "url" in upstream:
        Origin(relay, upstream["url"])
    else:
        await Child.start(relay, [upstream["command"], *upstream["args"]])
    if port is None:
        await serve_stdio(relay)
    else:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Request(relay), "127.0.0.1", port, backlog=512)
        await server.serve_forever()


if __name__ == "__main__":
    (only,) = orjson.loads(Path(sys.argv[1]).read_bytes())["mcpServers"].values()
    uvloop.run(main(only, int(sys.argv[3]) if "--port" in sys.argv else None))
