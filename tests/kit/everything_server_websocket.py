"""The WebSocket transport of the test server (RFC 6455): one JSON-RPC message per text frame,
subprotocol `mcp`."""

import base64
import hashlib
import json

from everything_server_features import Everything
from everything_server_http import Disconnected, HttpRequest, HttpResponse, SocketReader
from everything_server_protocol import Json, StreamConnection, encode

PATH = "/ws"
SUBPROTOCOL = "mcp"
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# RFC 6455, sections 1.3, 5.2, and 7.4.1.
ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION = 0x0
TEXT = 0x1
BINARY = 0x2
CLOSE = 0x8
PING = 0x9
PONG = 0xA
FINAL_BIT = 0x80
MASK_BIT = 0x80
PROTOCOL_ERROR = 1002
MESSAGE_TOO_BIG = 1009


class WebSocketClosed(Exception):
    """The connection ends. `code` is the status of the close frame to send."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class WebSocketTransport:
    """Accepts connections on one path. Each connection is one client."""

    def __init__(self, everything: Everything, era: str) -> None:
        self._everything = everything
        self._dispatcher = everything.dispatcher()
        self._era = era

    def handle(self, request: HttpRequest, response: HttpResponse) -> None:
        key = request.header("sec-websocket-key")
        offered = [
            item.strip() for item in (request.header("sec-websocket-protocol") or "").split(",")
        ]
        if (request.header("upgrade") or "").lower() != "websocket" or key is None:
            response.send(426, headers=[("upgrade", "websocket")])
            return
        if request.path != PATH or SUBPROTOCOL not in offered:
            response.send(403)
            return
        digest = hashlib.sha1((key + ACCEPT_GUID).encode()).digest()
        response.upgrade(
            [
                ("upgrade", "websocket"),
                ("connection", "Upgrade"),
                ("sec-websocket-accept", base64.b64encode(digest).decode()),
                ("sec-websocket-protocol", SUBPROTOCOL),
            ]
        )
        self._serve(WebSocket(response))
        raise Disconnected

    def _serve(self, client: "WebSocket") -> None:
        connection = StreamConnection(
            self._dispatcher, self._everything.sessions, self._era, client.send
        )
        try:
            while True:
                text = client.receive().decode("utf-8", "replace")
                try:
                    message = json.loads(text)
                except (ValueError, RecursionError):
                    continue
                connection.receive(message)
        except WebSocketClosed as closed:
            client.close(closed.code)
        finally:
            connection.close()


class WebSocket:
    """The frames of one connection. One thread receives. Any thread may send."""

    def __init__(self, response: HttpResponse) -> None:
        self._response = response
        self._reader: SocketReader = response.reader

    def send(self, message: Json) -> None:
        self._send_frame(TEXT, encode(message))

    def close(self, code: int) -> None:
        self._send_frame(CLOSE, code.to_bytes(2, "big"))

    def receive(self) -> bytes:
        """Return the next message. Raise WebSocketClosed after a close frame or an invalid
        frame."""
        fragments: list[bytes] = []
        size = 0
        while True:
            is_final, opcode, payload = self._read_frame(MAX_MESSAGE_BYTES - size)
            if opcode == PING:
                self._send_frame(PONG, payload)
            elif opcode == CLOSE:
                raise WebSocketClosed(int.from_bytes(payload[:2], "big") or 1000)
            elif opcode in (CONTINUATION, TEXT, BINARY):
                fragments.append(payload)
                size += len(payload)
                if is_final:
                    return b"".join(fragments)
            elif opcode != PONG:
                raise WebSocketClosed(PROTOCOL_ERROR)

    def _read_frame(self, max_bytes: int) -> tuple[bool, int, bytes]:
        first, second = self._reader.read_exactly(2)
        length = second & 0x7F
        if length == 126:
            length = int.from_bytes(self._reader.read_exactly(2), "big")
        elif length == 127:
            length = int.from_bytes(self._reader.read_exactly(8), "big")
        if not second & MASK_BIT:
            raise WebSocketClosed(PROTOCOL_ERROR)
        if length > max_bytes:
            raise WebSocketClosed(MESSAGE_TOO_BIG)
        mask = self._reader.read_exactly(4)
        payload = apply_mask(self._reader.read_exactly(length), mask)
        return bool(first & FINAL_BIT), first & 0x0F, payload

    def _send_frame(self, opcode: int, payload: bytes) -> None:
        length = len(payload)
        if length < 126:
            size = bytes([length])
        elif length < 1 << 16:
            size = bytes([126]) + length.to_bytes(2, "big")
        else:
            size = bytes([127]) + length.to_bytes(8, "big")
        self._response.write_raw(bytes([FINAL_BIT | opcode]) + size + payload)


def apply_mask(data: bytes, mask: bytes) -> bytes:
    """XOR the data with the repeated mask. One operation on large integers is much faster than a
    loop over bytes."""
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    masked = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
    return masked.to_bytes(len(data), "big")
