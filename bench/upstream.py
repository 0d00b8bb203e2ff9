"""The upstream: a tiny MCP server whose answers can be checked, over stdio or streamable HTTP, in one era.

    python -I -S upstream.py --tools 5 --era older              stdio
    python -I -S upstream.py --tools 5 --era modern --port 9001 streamable HTTP

Standard library only, so that it starts at once. Every tool answers with its `text`, repeated `times` times: an
answer tells which question it belongs to. A server of one era refuses the other, so nobody negotiates by chance.
"""

import sys
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
    },
    "required": ["text"],
}


def tool(number: int) -> Json:
    about = f"Echo tool number {number}: " + "it answers what it is told. " * 4
    return {"name": f"t{number:04}", "description": about, "inputSchema": SCHEMA}


class Echo:
    def __init__(self, tools: int, era: str) -> None:
        self.era = era
        self.tools = [tool(n) for n in range(tools)]
        self.names = {tool["name"] for tool in self.tools}

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
        if method == "tools/call" and params["name"] in self.names:
            arguments = params["arguments"]
            text = arguments["text"] * arguments.get("times", 1)
            return {"content": [{"type": "text", "text": text}], "isError": False}
        if method == "tools/list":
            return {"tools": self.tools} | ({"ttlMs": 0, "cacheScope": "private"} if self.era == "modern" else {})
        about: Json = {"capabilities": {"tools": {}}}
        if method == "initialize" and self.era == "older":
            return about | {"protocolVersion": VERSION["older"], "serverInfo": {"name": "echo", "version": "1"}}
        if method == "server/discover" and self.era == "modern":
            return about | {"supportedVersions": [VERSION["modern"]], "ttlMs": 0, "cacheScope": "private"}
        raise LookupError(f"unknown method or tool: {method}")


def encoded(message: Json) -> bytes:
    return dumps(message, separators=(",", ":")).encode()


def serve_stdio(echo: Echo) -> None:
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        reply = echo.answer(loads(line))
        if reply is not None:
            out.write(encoded(reply) + b"\n")
            out.flush()


async def serve_http(echo: Echo, port: int) -> None:
    import asyncio

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
            if not head.startswith(b"post /mcp "):
                return self.reply(b"200 OK" if head.startswith(b"delete") else b"405 Method Not Allowed")
            message = loads(body)
            begins = message["method"] == "initialize"
            if echo.era == "older" and not begins and SESSION.strip() not in head:
                return self.reply(b"400 Bad Request" if message["method"] == "server/discover" else b"404 Not Found")
            if echo.era == "modern" and b"mcp-method: " + message["method"].lower().encode() not in head:
                return self.reply(b"400 Bad Request")
            answer = echo.answer(message)
            if answer is None:
                return self.reply(b"202 Accepted")
            self.reply(b"200 OK", encoded(answer), SESSION if begins else b"")

        def reply(self, status: bytes, body: bytes = b"", extra: bytes = b"") -> None:
            kind = b"content-type: application/json\r\n" if body else b""
            head = b"HTTP/1.1 %b\r\n%b%bcontent-length: %d\r\n\r\n" % (status, kind, extra, len(body))
            self.transport.write(head + body)

    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port, backlog=512)
    await server.serve_forever()


def main() -> None:
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    echo = Echo(int(options["--tools"]), options["--era"])
    if "--port" not in options:
        return serve_stdio(echo)
    import asyncio

    asyncio.run(serve_http(echo, int(options["--port"])))


if __name__ == "__main__":
    main()
