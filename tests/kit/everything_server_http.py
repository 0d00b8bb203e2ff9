"""A threaded HTTP/1.1 server on sockets, for the network transports of the test server.

One thread per client connection reads the requests. A response is written by the thread that has
the data. It is one body, or a stream of server-sent events that stays open while a call runs.
"""

import json
import selectors
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from everything_server_protocol import Json, RpcError, encode

MAX_BODY_BYTES = 4 * 1024 * 1024
PING_SECONDS = 15.0
READ_BYTES = 1 << 16
BACKLOG = 512

Header = tuple[str, str]

JSON_TYPE: Header = ("content-type", "application/json")
EVENT_STREAM_HEADERS: tuple[Header, ...] = (
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("connection", "keep-alive"),
    ("x-accel-buffering", "no"),
)


class Disconnected(Exception):
    """The client has closed its connection."""


class BadRequest(Exception):
    """The bytes of a request are not HTTP."""


class HttpRequest:
    """A request with its whole body. Header names are lowercase."""

    def __init__(self, method: str, target: str, headers: list[Header], body: bytes) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.body = body

    def header(self, name: str) -> str | None:
        values = self.header_values(name)
        return values[0] if values else None

    def header_values(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header == name]

    def accepts(self) -> tuple[bool, bool]:
        """Return whether the client accepts JSON, and whether it accepts server-sent events."""
        listed = (self.header("accept") or "").split(",")
        types = {item.partition(";")[0].strip().lower() for item in listed}
        json_accepted = not types.isdisjoint({"*/*", "application/*", "application/json"})
        events_accepted = not types.isdisjoint({"*/*", "text/*", "text/event-stream"})
        return json_accepted, events_accepted

    def has_json_content(self) -> bool:
        return (self.header("content-type") or "").lower().startswith("application/json")

    def decode_body(self) -> Any:
        """Raise ValueError if the body is not JSON."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("The body is nested too deeply") from None


class SocketReader:
    """Buffered reads from a client's socket. Raises Disconnected at its end."""

    def __init__(self, client: socket.socket) -> None:
        self._socket = client
        self._buffer = bytearray()

    def read_line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            self._receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line.removesuffix(b"\r")

    def read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._receive()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def wait_for_data(self, timeout_seconds: float) -> bool:
        """Return False after the timeout. Raise Disconnected if the client has closed the
        connection."""
        if self._buffer:
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            if not selector.select(timeout_seconds):
                return False
        self._receive()
        return True

    def _receive(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError:
            raise Disconnected from None
        if not data:
            raise Disconnected
        self._buffer += data


class HttpResponse:
    """The response to one request. Its methods may be called by any thread."""

    def __init__(self, client: socket.socket, reader: SocketReader) -> None:
        self.reader = reader
        self.on_disconnect: Callable[[], None] = lambda: None
        self.finished = threading.Event()
        self.has_events = False
        self._socket = client
        self._lock = threading.Lock()

    def send(self, status: int, body: bytes = b"", headers: Sequence[Header] = ()) -> None:
        """Send a response with one body."""
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        head = "\r\n".join(lines) + "\r\n\r\n"
        with self._lock:
            self._write(head.encode("latin-1") + body)
            self.finished.set()

    def send_text(self, status: int, text: str) -> None:
        self.send(status, text.encode())

    def send_json(self, status: int, message: Json, headers: Sequence[Header] = ()) -> None:
        self.send(status, encode(message), [JSON_TYPE, *headers])

    def send_error(
        self, status: int, code: int, message: str, headers: Sequence[Header] = ()
    ) -> None:
        """Send a JSON-RPC error that belongs to no request."""
        self.send_json(status, RpcError(code, message).reply(None), headers)

    def start_events(self, headers: Sequence[Header] = ()) -> None:
        with self._lock:
            self._start_events(headers)

    def send_event(
        self, data: str, event: str | None = None, event_id: str | None = None, retry_ms: int = 0
    ) -> None:
        """Send a server-sent event. Start the stream first, if that has not happened yet."""
        lines = []
        if event_id is not None:
            lines.append(f"id: {event_id}")
        if event is not None:
            lines.append(f"event: {event}")
        lines.append(f"data: {data}")
        if retry_ms:
            lines.append(f"retry: {retry_ms}")
        text = "\r\n".join(lines) + "\r\n\r\n"
        with self._lock:
            self._start_events()
            self._write_chunk(text.encode("utf-8", "backslashreplace"))

    def send_message(self, message: Json, event_id: str | None = None) -> None:
        self.send_event(encode(message).decode(), "message", event_id)

    def end_events(self) -> None:
        with self._lock:
            if not self.finished.is_set():
                self._write(b"0\r\n\r\n")
                self.finished.set()

    def ping(self) -> None:
        """Send a comment, so that a proxy does not close an idle stream."""
        with self._lock:
            if not self.finished.is_set():
                self._start_events()
                self._write_chunk(b": ping\r\n\r\n")

    def upgrade(self, headers: Sequence[Header]) -> None:
        """Switch the connection to another protocol."""
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            *(f"{name}: {value}" for name, value in headers),
        ]
        self.write_raw(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def write_raw(self, data: bytes) -> None:
        with self._lock:
            self._write(data)

    def _start_events(self, headers: Sequence[Header] = ()) -> None:
        if self.has_events:
            return
        self.has_events = True
        lines = ["HTTP/1.1 200 OK", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in (*EVENT_STREAM_HEADERS, *headers)]
        self._write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def _write_chunk(self, data: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            # The thread that reads the connection sees the disconnect, and reports it.
            pass


HttpHandler = Callable[[HttpRequest, HttpResponse], None]


class HttpConnection:
    """Reads the requests of one client connection, one after the other."""

    def __init__(self, client: socket.socket, handle: HttpHandler) -> None:
        self._socket = client
        self._handle = handle
        self._reader = SocketReader(client)

    def serve(self) -> None:
        with self._socket:
            try:
                while self._serve_request():
                    pass
            except Disconnected:
                pass
            except BadRequest as error:
                HttpResponse(self._socket, self._reader).send_text(400, str(error))

    def _serve_request(self) -> bool:
        """Serve one request. Return whether the connection stays open."""
        request = self._read_request()
        response = HttpResponse(self._socket, self._reader)
        self._handle(request, response)
        try:
            while not response.finished.is_set():
                # A client that sends its next request early waits for the end of this one.
                if self._reader.wait_for_data(PING_SECONDS):
                    response.finished.wait()
                else:
                    response.ping()
        except Disconnected:
            response.on_disconnect()
            raise
        return (request.header("connection") or "").lower() != "close"

    def _read_request(self) -> HttpRequest:
        try:
            method, target, _ = self._reader.read_line().decode("latin-1").split(" ")
        except ValueError:
            raise BadRequest("Invalid request line") from None
        headers = []
        while line := self._reader.read_line().decode("latin-1"):
            name, _, value = line.partition(":")
            headers.append((name.strip().lower(), value.strip()))
        body = self._read_body(dict(headers))
        return HttpRequest(method, target, headers, body)

    def _read_body(self, headers: dict[str, str]) -> bytes:
        try:
            if headers.get("transfer-encoding", "").lower() == "chunked":
                return self._read_chunks()
            return self._reader.read_exactly(int(headers.get("content-length", "0")))
        except ValueError:
            raise BadRequest("Invalid body length") from None

    def _read_chunks(self) -> bytes:
        chunks = []
        while size := int(self._reader.read_line().partition(b";")[0], 16):
            chunks.append(self._reader.read_exactly(size))
            self._reader.read_line()
        while self._reader.read_line():
            pass
        return b"".join(chunks)


def serve_http(handle: HttpHandler, scheme: str, path: str, port: int) -> None:
    """Listen, write the ready line, and serve until the process ends."""
    with socket.create_server(("127.0.0.1", port), backlog=BACKLOG) as listener:
        sys.stdout.write(f"ready {scheme}://127.0.0.1:{listener.getsockname()[1]}{path}\n")
        sys.stdout.flush()
        while True:
            client, _ = listener.accept()
            # An answer must not wait for the acknowledgment of the one before.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=HttpConnection(client, handle).serve, daemon=True).start()
