"""A streamable HTTP server of the older era inside the test's own process, whose tools break HTTP
in every way."""

import gzip
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

MIB = 1024 * 1024
BLOCK = b"x" * MIB


class OddHttpServer(ThreadingHTTPServer):
    """Leaving the block ends it, and whoever still waits for an answer with it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/mcp"
        self.ending = threading.Event()
        self.seen: list[tuple[str, str, str]] = []
        """Verb, path and method of the message, of every request."""
        self.sessions = 0
        self.session: str | None = None
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def calls(self, tool: str) -> int:
        return sum(what == f"tools/call {tool}" for _, _, what in self.seen)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle of an answer is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OddHttpServer

    def do_GET(self) -> None:
        self.server.seen.append(("GET", self.path, ""))
        self._answer(405, b"")

    def do_DELETE(self) -> None:
        self._answer(200, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params = message.get("method", ""), message.get("params") or {}
        tool = params.get("name", "")
        self.server.seen.append(("POST", self.path, f"{method} {tool}".strip()))
        self.id = message.get("id")
        if method == "initialize":
            self.server.sessions += 1
            self.server.session = f"session-{self.server.sessions}"
            info = {"name": "odd", "version": "1"}
            self._result(
                {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                },
                ("Mcp-Session-Id", self.server.session),
            )
        elif method == "server/discover":
            self._answer(
                400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"older only"}}'
            )
        elif self.headers.get("mcp-session-id") != self.server.session:
            self._answer(
                404,
                b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no such session"}}',
            )
        elif self.id is None:
            self._answer(202, b"")
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            self._result({"tools": tools})
        elif method == "tools/call":
            TOOLS[tool](self, params.get("arguments") or {})
        else:
            self._result({})

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: pytest's output is for the tests."""

    # -- answers

    def _answer(
        self, status: int, body: bytes, *headers: tuple[str, str], length: int | None = None
    ) -> None:
        self.send_response(status)
        kinds = {name.lower() for name, _ in headers}
        for name, value in (
            headers if "content-type" in kinds else (("Content-Type", "application/json"), *headers)
        ):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def _result(self, value: Any, *headers: tuple[str, str]) -> None:
        self._answer(
            200, json.dumps({"jsonrpc": "2.0", "id": self.id, "result": value}).encode(), *headers
        )

    def _chunked(self, kind: str) -> Callable[[bytes], None]:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        return lambda data: self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data)) and None

    @property
    def _head(self) -> bytes:
        return b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % self.id

    # -- the tools

    def echo(self, given: Any) -> None:
        self._result({"content": [{"type": "text", "text": given.get("text", "")}]})

    def huge(self, given: Any) -> None:
        """64 MB, and their length said beforehand."""
        tail = b'"}]}}'
        self._answer(200, self._head, length=len(self._head) + 64 * MIB + len(tail))
        for _ in range(64):
            self.wfile.write(BLOCK)
        self.wfile.write(tail)

    def endless(self, given: Any) -> None:
        """A body that never ends."""
        write = self._chunked("application/json")
        write(self._head)
        while not self.server.ending.is_set():
            write(BLOCK)

    def endless_event(self, given: Any) -> None:
        """An event that never ends."""
        write = self._chunked("text/event-stream")
        write(b"data: " + self._head)
        while not self.server.ending.is_set():
            write(BLOCK)

    def large_event(self, given: Any) -> None:
        """An event over the limit, then the end of the stream."""
        write = self._chunked("text/event-stream")
        write(b"event: message\ndata: " + self._head + BLOCK * 3 + b'"}]}}\n\n')
        write(b"")

    def bomb(self, given: Any) -> None:
        """64 MB that travel as 64 kB."""
        body = gzip.compress(self._head + b"x" * 64 * MIB + b'"}]}}', 1)
        self._answer(200, body, ("Content-Encoding", "gzip"))

    def html(self, given: Any) -> None:
        self._answer(
            200, b"<html>Welcome to the hotel's network</html>", ("Content-Type", "text/html")
        )

    def broken(self, given: Any) -> None:
        self._answer(200, b'{"jsonrpc":"2.0","id":')

    def nothing(self, given: Any) -> None:
        self._answer(200, b"")

    def cut(self, given: Any) -> None:
        """Half a body."""
        self._answer(200, self._head, length=100_000)
        self.close_connection = True

    def cut_stream(self, given: Any) -> None:
        """A stream that ends without an answer, and cannot be resumed."""
        write = self._chunked("text/event-stream")
        write(
            b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n\n'
        )
        write(b"")

    def hang_up(self, given: Any) -> None:
        self.close_connection = True

    def hang(self, given: Any) -> None:
        self.server.ending.wait()
        self.close_connection = True

    def not_http(self, given: Any) -> None:
        self.wfile.write(b"220 mail.example ESMTP\r\n" * 10)
        self.close_connection = True

    def long_head(self, given: Any) -> None:
        self._answer(200, b"{}", *((f"X-{number}", "x" * 60_000) for number in range(100)))
        self.close_connection = True

    def status(self, given: Any) -> None:
        self._answer(given["status"], b"", ("Location", "/elsewhere"))

    def forget(self, given: Any) -> None:
        """This and every later call of the session is refused: the server was restarted."""
        self.server.session = None
        self._answer(
            404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no such session"}}'
        )


TOOLS: dict[str, Callable[[_Handler, Any], None]] = {
    tool.__name__: tool
    for tool in (
        *(
            _Handler.echo,
            _Handler.huge,
            _Handler.endless,
            _Handler.endless_event,
            _Handler.large_event,
        ),
        *(
            _Handler.bomb,
            _Handler.html,
            _Handler.broken,
            _Handler.nothing,
            _Handler.cut,
            _Handler.cut_stream,
        ),
        *(
            _Handler.hang_up,
            _Handler.hang,
            _Handler.not_http,
            _Handler.long_head,
            _Handler.status,
            _Handler.forget,
        ),
    )
}
