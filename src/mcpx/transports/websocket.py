"""A server over a WebSocket: both eras, as on stdio, one text frame a message, subprotocol `mcp`."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, Unavailable
from mcpx.transports.carried import Carried
from mcpx.transports.dial import Dial
from mcpx.transports.refusals import refusal
from mcpx.wire import websocket
from mcpx.wire.framing import Patience
from mcpx.wire.peer import Conversation

NOISE = 2**20
"""Bytes of frames that are no messages of ours, from one message to the next."""
FRAME = 16
"""Bytes as which a frame counts that holds next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Websocket:
    type: ClassVar[str] = "websocket"

    url: str
    """Address, `ws://` or `wss://`; credentials go into `headers`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers sent with every request; `Host`, `Connection`, `Content-Length`, `Mcp-*` and the like are set by mcpx."""

    async def open(self, dial: Dial) -> Conversation:
        talk = SocketConversation(dial)
        await talk.start(self)
        return talk


class SocketConversation(Carried):
    def __init__(self, dial: Dial) -> None:
        super().__init__(dial, self._transmit)
        self._socket: websocket.WebSocket | None = None
        self._patience = Patience(NOISE)

    async def start(self, spec: Websocket) -> None:
        name = self._dial.name
        try:
            self._socket = await websocket.connect(
                spec.url,
                [*spec.headers.items(), *self._dial.via],
                limit=self._dial.limit,
                subprotocol="mcp",
                timeout=self._dial.timeout,
                on_message=self._received,
                on_close=lambda reason: self._peer.lose(reason or "the connection was closed", SERVER_DIED),
            )
        except websocket.Refused as answer:
            raise refusal(name, answer.status, answer.headers, answer.body, spec.headers.values()) from None
        except (OSError, TimeoutError) as error:
            raise Unavailable(name, SERVER_DOWN, f"cannot connect: {str(error) or 'no answer'}") from None

    def _received(self, raw: bytes) -> None:
        waiting = self._peer.waiting
        noise = waiting.noise
        self._peer.receive(raw)
        if waiting.noise == noise:
            self._patience.message()
        elif self._patience.lost(len(raw) + FRAME, 0):
            self._peer.lose(f"it sends nothing but noise, {NOISE:,} bytes of it", SERVER_DIED)
            if self._socket is not None:
                self._socket.close(1008, "these are no messages")

    def _transmit(self, raw: bytes) -> None:
        if self._socket is not None:
            self._socket.send(raw)

    def _backlog(self) -> Awaitable[None] | None:
        socket = self._socket
        return socket.drain() if socket is not None and socket.congested else None

    async def close(self) -> None:
        await super().close()
        if self._socket is not None:
            self._socket.close()
