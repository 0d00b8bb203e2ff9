"""The upstream: a tiny MCP server whose answers can be checked, over stdio or streamable HTTP, in
one era.

    python -I -S upstream.py --era older --tools 5                              stdio
    python -I -S upstream.py --era modern --tools 5 --port 9001 --servers 100   streamable HTTP, at /0/mcp … /99/mcp

Standard library only, so that it starts at once. Tool 4 of server 2 is called `s2t4`, whatever a
gateway puts before it. Every tool answers with its `text`, repeated `times` times: an answer tells
which question it belongs to. With `wait_ms` it answers later. A server of one era refuses the
other, so nobody negotiates by chance. `--id N` is the number of the first server, `--start-delay S`
makes it late, and `--runs FILE` has every call leave its text in a file, so that a call that was
run twice is found out.
"""

import sys
from collections.abc import Callable
from json import dumps, loads
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

Json = dict[str, Any]

VERSION = {"older": "2025-06-18", "modern": "2026-07-28"}
SESSION = b"mcp-session-id: bench-session\r\n"
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "What to answer with"},
        "times": {"type": "integer", "description": "How often to repeat it"},
        "wait_ms": {"type": "integer", "description": "How long to wait before"},
    },
    "required": ["text"],
}


def tool(server: int, number: int) -> Json:
    about = f"Echo tool number {number} of server {server}: " + "it answers what it is told. " * 4
    return {"name": f"s{server}t{number}", "description": about, "inputSchema": SCHEMA}


class Echo:
    def __init__(self, server: int, tools: int, era: str, runs: str = "") -> None:
        self.era = era
        self.server = server
        self.tools = tools
        self._names = {f"s{server}t{number}" for number in range(tools)}
        self._runs = runs

    def answer(self, message: Json) -> Json | None:
        """The reply to a request; None for a notification."""
        if "id" not in message:
            return None
        try:
            result = self._result(message["method"], message.get("params") or {})
        except LookupError as error:
            failure = {"code": -32601, "message": str(error)}
            return {"jsonrpc": "2.0", "id": message["id"], "error": failure}
        if self.era == "modern":
            result["resultType"] = "complete"
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def _result(self, method: str, params: Json) -> Json:
        if method == "tools/call" and params["name"] in self._names:
            return self._call(params["arguments"])
        if method == "tools/list":
            tools = [tool(self.server, number) for number in range(self.tools)]
            return {"tools": tools} | (
                {"ttlMs": 0, "cacheScope": "private"} if self.era == "modern" else {}
            )
        about: Json = {"capabilities": {"tools": {}}}
        if method == "initialize" and self.era == "older":
            return about | {
                "protocolVersion": VERSION["older"],
                "serverInfo": {"name": "echo", "version": "1"},
            }
        if method == "server/discover" and self.era == "modern":
            return about | {
                "supportedVersions": [VERSION["modern"]],
                "ttlMs": 0,
                "cacheScope": "private",
            }
        if method == "ping" and self.era == "older":
            return {}
        raise LookupError(f"unknown method or tool: {method}")

    def _call(self, arguments: Json) -> Json:
        if self._runs:
            with open(self._runs, "a", encoding="utf-8") as runs:
                runs.write(arguments["text"] + "\n")
        text = arguments["text"] * (arguments.get("times") or 1)
        return {"content": [{"type": "text", "text": text}], "isError": False}


def wait_of(message: Json) -> float:
    """Seconds to wait with the answer."""
    return (message.get("params", {}).get("arguments", {}).get("wait_ms") or 0) / 1000


def encoded(message: Json) -> bytes:
    return dumps(message, separators=(",", ":")).encode()


def serve_stdio(echo: Echo) -> None:
    out = sys.stdout.buffer

    def send(data: bytes) -> None:
        out.write(data)
        out.flush()

    for line in sys.stdin.buffer:
        message = loads(line)
        reply = echo.answer(message)
        if reply is None:
            continue
        data = encoded(reply) + b"\n"
        if b'"wait_ms"' in line and (wait := wait_of(message)):
            _later(wait, send, data)
        else:
            send(data)


def _later(wait: float, send: Callable[[bytes], None], data: bytes) -> None:
    import threading

    timer = threading.Timer(wait, send, (data,))
    timer.daemon = True  # nobody waits for the answer once standard input is closed
    timer.start()


async def serve_http(servers: dict[bytes, Echo], port: int) -> None:
    import asyncio

    loop = asyncio.get_running_loop()

    class Connection(asyncio.Protocol):
        """One client, one request at a time, everything with a content-length."""

        def connection_made(self, transport: "asyncio.BaseTransport") -> None:
            self.transport: Any = transport
            self.buffer = b""

        def data_received(self, data: bytes) -> None:
            self.buffer += data
            head, found, body = self.buffer.partition(b"\r\n\r\n")
            head = head.lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if found and len(body) >= length:
                self.buffer = body[length:]
                self.answer(head, body[:length])

        def answer(self, head: bytes, body: bytes) -> None:
            method, path, _ = head.split(b" ", 2)
            echo = servers.get(path)
            if echo is None or method != b"post":
                return self.reply(b"200 OK" if method == b"delete" else b"405 Method Not Allowed")
            message = loads(body)
            begins = message["method"] == "initialize"
            if echo.era == "older" and not begins and SESSION.strip() not in head:
                return self.reply(
                    b"400 Bad Request"
                    if message["method"] == "server/discover"
                    else b"404 Not Found"
                )
            if (
                echo.era == "modern"
                and b"mcp-method: " + message["method"].lower().encode() not in head
            ):
                return self.reply(b"400 Bad Request")
            answer = echo.answer(message)
            if answer is None:
                return self.reply(b"202 Accepted")
            if b'"wait_ms"' in body and (wait := wait_of(message)):
                loop.call_later(wait, self.reply, b"200 OK", encoded(answer))
            else:
                self.reply(b"200 OK", encoded(answer), SESSION if begins else b"")

        def reply(self, status: bytes, body: bytes = b"", extra: bytes = b"") -> None:
            kind = b"content-type: application/json\r\n" if body else b""
            head = b"HTTP/1.1 %b\r\n%b%bcontent-length: %d\r\n\r\n" % (
                status,
                kind,
                extra,
                len(body),
            )
            self.transport.write(head + body)

    server = await loop.create_server(Connection, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    first, tools, era = int(options.get("--id", "0")), int(options["--tools"]), options["--era"]
    if delay := float(options.get("--start-delay", "0")):
        import time

        time.sleep(delay)
    if "--port" not in options:
        return serve_stdio(Echo(first, tools, era, options.get("--runs", "")))
    import asyncio

    numbers = range(first, first + int(options.get("--servers", "1")))
    servers = {f"/{number}/mcp".encode(): Echo(number, tools, era) for number in numbers}
    asyncio.run(serve_http(servers, int(options["--port"])))


if __name__ == "__main__":
    main()
