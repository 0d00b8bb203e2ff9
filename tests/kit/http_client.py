"""HTTP requests with arbitrary headers: `fetch` for one request, `send_bytes` for raw bytes."""

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

Headers = Mapping[str, str] | Iterable[tuple[str, str]]

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def get(self, name: str) -> str | None:
        """The first value of a header."""
        return self.headers.get(name)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The error object of the admin API or of JSON-RPC."""
        return self.json["error"]

    @property
    def code(self) -> Any:
        return self.error["code"]

    @property
    def rpc_error(self) -> tuple[int, Any, int]:
        """The HTTP status, the request id, and the code of a JSON-RPC error."""
        return self.status, self.json["id"], self.code

    @property
    def message(self) -> Any:
        """The JSON-RPC response: the body, or the last event if the body is an event stream."""
        if not (self.get("content-type") or "").startswith("text/event-stream"):
            return self.json
        return json.loads(
            [line for line in self.body.splitlines() if line.startswith(b"data: {")][-1][6:]
        )

    @property
    def cookie(self) -> str:
        """The cookie that a browser would send back."""
        return (self.get("set-cookie") or "").partition(";")[0]


def fetch(
    address: str | int,
    path: str = "/",
    method: str = "GET",
    headers: Headers = (),
    body: bytes | object = b"",
    context: ssl.SSLContext | None = None,
) -> Reply:
    """Send one request on a new connection. `address` is a URL or a port of this machine.

    A body that is not bytes is sent as JSON. Only Host and Content-Length are added, unless
    `headers` has them.
    """
    parts = urlsplit(f"http://127.0.0.1:{address}" if isinstance(address, int) else address)
    assert parts.hostname is not None
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = {name.lower() for name, _ in pairs}
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
        if "content-type" not in names:
            pairs.append(("Content-Type", "application/json"))
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=TIMEOUT_SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if "host" not in names:
            pairs.insert(0, ("Host", parts.netloc))
        if body and not {"content-length", "transfer-encoding"} & names:
            pairs.append(("Content-Length", str(len(body))))
        for name, value in pairs:
            connection.putheader(name, value)
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # The server has replied before the end.
            connection.endheaders(body or None)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


def send_bytes(url: str, *pieces: bytes) -> bytes:
    """Send bytes unchanged, and return the bytes received until the server closes the
    connection."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 80), TIMEOUT_SECONDS) as sock:
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # The server has replied before the end.
            for piece in pieces:
                sock.sendall(piece)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(65536):
                found += piece
        return found
