"""A server over a WebSocket: both eras, as on stdio, one text frame a message, subprotocol `mcp`."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mcpx.model.call import Json
from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, SERVER_TIMEOUT, Unavailable
from mcpx.transports.dial import Dial
from mcpx.wire import websocket
from mcpx.wire.peer import Conversation, Meanwhile, Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Websocket:
    type: ClassVar[str] = "websocket"

    url: str
    """Address, `ws://` or `wss://`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers sent with every request."""

    async def open(self, dial: Dial) -> Conversation:
        talk = SocketConversation(dial)
        await talk.start(self)
        return talk


class SocketConversation:
    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._socket: websocket.WebSocket | None = None
        self._peer = Peer(dial.name, self._transmit, dial.inbound)

    async def start(self, spec: Websocket) -> None:
        try:
            self._socket = await websocket.connect(
                spec.url,
                list(spec.headers.items()),
                limit=self._dial.limit,
                subprotocol="mcp",
                timeout=self._dial.timeout,
                on_message=self._peer.receive,
                on_close=lambda reason: self._peer.lose(reason or "the connection was closed", SERVER_DIED),
            )
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer"
            raise Unavailable(self._dial.name, SERVER_DOWN, f"cannot connect: {reason}") from None

    def _transmit(self, raw: bytes) -> None:
        if self._socket is not None:
            self._socket.send(raw)

    async def request(
        self, method: str, params: Json, *, meanwhile: Meanwhile | None = None, timeout: float | None = None
    ) -> Json:
        if self._socket is not None and self._socket.congested:
            try:
                async with asyncio.timeout(timeout):
                    await self._socket.drain()
            except TimeoutError:
                raise Unavailable(self._dial.name, SERVER_TIMEOUT, "does not read what it is sent") from None
        return await self._peer.request(method, params, meanwhile=meanwhile, timeout=timeout)

    def notify(self, method: str, params: Json | None) -> None:
        self._peer.notify(method, params)

    async def close(self) -> None:
        await self._peer.close()
        if self._socket is not None:
            self._socket.close()
