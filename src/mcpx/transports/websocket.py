"""A server over a WebSocket: both eras, as on stdio, one text frame a message, subprotocol
`mcp`."""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, RpcError, Unavailable
from mcpx.model.redaction import without
from mcpx.transports.dial import Carried, Dial
from mcpx.transports.refusals import about_us, refusal
from mcpx.wire import websocket
from mcpx.wire.address import parse
from mcpx.wire.framing import Patience
from mcpx.wire.peer import Conversation

if TYPE_CHECKING:
    from mcpx.auth.credentials import Proof

T = TypeVar("T")

NOISE = 2**20
"""Bytes of frames that are no messages of ours, from one message to the next."""
FRAME = 16
"""Bytes as which a frame counts that holds next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Websocket:
    type: ClassVar[str] = "websocket"

    url: str = field(repr=False)
    """Address, `ws://` or `wss://`; credentials go into `headers`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers sent with every request; `Host`, `Connection`, `Content-Length`, `Mcp-*` and the like
    are set by mcpx."""

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
        proving = self._dial.proving(lambda proof: None)
        if proving is None:
            await self._connect(spec, None)
            return
        proof = await self._in_time(proving.get())
        try:
            await self._connect(spec, proof)
        except RpcError as error:
            if not about_us(error) or not await self._in_time(proving.renewed(proof, error)):
                raise
            await self._connect(spec, proving.proof)

    async def _in_time(self, proved: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._dial.timeout):
                return await proved
        except TimeoutError:
            what = (
                f"not connected within {self._dial.timeout:g} s; the gateway still waited for "
                "its credentials"
            )
            raise Unavailable(self._dial.name, SERVER_DOWN, what) from None

    async def _connect(self, spec: Websocket, proof: "Proof | None") -> None:
        name, url = self._dial.name, spec.url
        secrets = (
            spec.headers.values() if proof is None else (*spec.headers.values(), *proof.secrets)
        )
        if proof is not None and proof.query:
            url = _with_query(url, proof)
        try:
            self._socket = await websocket.connect(
                url,
                self._dial.named_headers(spec.headers, proof),
                limit=self._dial.limit,
                subprotocol="mcp",
                timeout=self._dial.timeout,
                on_message=self._received,
                on_close=self._closed,
            )
        except websocket.Refused as answer:
            raise refusal(name, answer.status, answer.headers, answer.body, secrets) from None
        except (OSError, TimeoutError) as error:
            said = without(secrets, str(error)) or "no answer"
            raise Unavailable(name, SERVER_DOWN, f"cannot connect: {said}") from None

    def _closed(self, reason: str) -> None:
        words = "" if self._socket is None else self._socket.parting
        if words and reason.endswith(words):
            reason = reason.removesuffix(words).rstrip() + self._dial.quoting(words, f" {words}")
        self._peer.lose(reason or "the connection was closed", SERVER_DIED)

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


def _with_query(url: str, proof: "Proof") -> str:
    from mcpx.transports.proving import with_query

    address = parse(url, ("ws", "wss"))
    return replace(address, target=with_query(address.target, proof.query)).url
