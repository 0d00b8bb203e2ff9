"""A server over HTTP+SSE, the transport of 2024-11-05: one GET stream down, a POST for each message
up.

What the server has not taken yet is bounded in bytes, each POST in time and in what is said to it,
the stream in what it carries that is no message.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urljoin, urlsplit

from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, RpcError, Unavailable
from mcpx.model.redaction import MAX_REDACTED_BYTES, without
from mcpx.transports.dial import Carried, Dial
from mcpx.transports.refusals import BODY, refusal, unexpected
from mcpx.transports.replies import is_stream
from mcpx.transports.sinks import MAX_NOISE_BYTES, ErrorBody, EventFeed, SentRequest, Upload
from mcpx.wire import codec
from mcpx.wire.address import target_of
from mcpx.wire.exchange import Headers
from mcpx.wire.http_client import Abortable, ConnectionLost, header_lines
from mcpx.wire.peer import Conversation
from mcpx.wire.sse import SseEvent

if TYPE_CHECKING:
    from mcpx.auth.credentials import Proof

ENDLESS = 16 * 2**20
"""Bytes over the limit after which the end of an event is not waited for."""
HIGH_WATER = 256 * 1024
"""Bytes that may wait to be posted before requests wait, too."""
SHOWN = 200
"""Characters of an address that is complained of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sse:
    type: ClassVar[str] = "sse"

    url: str = field(repr=False)
    """Address of its event stream; credentials go into `headers`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers sent with every request; `Host`, `Connection`, `Content-Length`, `Mcp-*` and the like
    are set by mcpx."""

    async def open(self, dial: Dial) -> Conversation:
        try:
            talk = SseConversation(self, dial)
        except ValueError as error:
            raise Unavailable(dial.name, SERVER_DOWN, f"cannot connect: {error}") from None
        await talk.start()
        return talk


class SseConversation(Carried):
    def __init__(self, spec: Sse, dial: Dial) -> None:
        super().__init__(dial, self._transmit)
        self._spec = spec
        self._secrets = tuple(spec.headers.values())
        self._peer.waiting.redact = lambda text: without(self._secrets, text)
        self._set_headers(None)
        self.proving = dial.proving(self._take)
        """None: the server wants no proof."""
        self._pool = dial.pool(spec.url)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stream: _Down | None = None
        self._outbox: deque[bytes] = deque()
        self._waiting = 0
        """Bytes in it."""
        self._room = asyncio.Event()
        self._room.set()
        self._posting: Upload | None = None

    def _set_headers(self, proof: "Proof | None") -> None:
        own = self._dial.headers(self._spec.headers, proof)
        stream = [(b"accept", b"text/event-stream"), (b"cache-control", b"no-store")]
        self._stream_lines = header_lines([*own, *stream])
        self._lines = header_lines(
            [*own, (b"content-type", b"application/json"), (b"accept", b"application/json")]
        )

    def _take(self, proof: "Proof") -> None:
        """From now on requests go out with this proof."""
        before = (
            () if self.proving is None or self.proving.proof is None else self.proving.proof.secrets
        )
        self._set_headers(proof)
        self._secrets = (*self._spec.headers.values(), *proof.secrets, *before)

    def _proved(self, target: str) -> str:
        if self.proving is None or self.proving.proof is None:
            return target
        from mcpx.transports.proving import with_query

        return with_query(target, self.proving.proof.query)

    def open_stream(self, sink: "_Down") -> Abortable:
        target = self._proved(self._pool.target)
        return self._pool.start("GET", target, self._stream_lines, b"", sink)

    def post(self, upload: Upload) -> Abortable:
        target = self._proved(self._endpoint.result())
        return self._pool.start(upload.method, target, self._lines, upload.body_sent, upload)

    async def start(self) -> None:
        self._stream = stream = _Down(self, self._dial.limit)
        stream.start()
        try:
            async with asyncio.timeout(self._dial.timeout):
                await self._endpoint
        except TimeoutError:
            excuse = "" if self.proving is None else self.proving.excuse
            await self.close()
            reason = stream.unexpected or f"sent no endpoint event in time{excuse}"
            raise Unavailable(self._dial.name, SERVER_DOWN, reason) from None
        except BaseException:
            await self.close()
            raise

    @property
    def name(self) -> str:
        return self._dial.name

    @property
    def timeout(self) -> float:
        return self._dial.timeout

    def event(self, event: SseEvent) -> bool:
        """False: it carried no message."""
        if self._peer.lost is not None:
            return False
        if event.event == "endpoint" and not self._endpoint.done():
            self._set_endpoint((event.data or b"").decode("utf-8", "replace"))
            return True
        if event.event != "message" or not event.data:
            return False
        noise = self._peer.waiting.noise
        self._peer.receive(event.data)
        return self._peer.waiting.noise == noise

    def _set_endpoint(self, given: str) -> None:
        shown = repr(given[:SHOWN]) + "…" * (len(given) > SHOWN)
        here = urlsplit(self._spec.url)
        try:
            there = urlsplit(urljoin(self._spec.url, given))
            target = target_of(there)
        except ValueError:
            self.down(f"its endpoint {shown} is no address")
            return
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            # A server must not send our messages, and our headers, to somebody else.
            self.down(f"its endpoint {shown} is on another origin")
            return
        self._endpoint.set_result(target)

    def skipped(self, head: bytes) -> bool:
        """An event over the limit. False: no request was waiting for it."""
        return self._peer.waiting.too_large(head, self._dial.limit)

    def down(self, reason: str, problem: RpcError | None = None) -> None:
        """The stream is no more, or never was; `problem` is what is told if it never was."""
        if not self._endpoint.done():
            problem = problem or Unavailable(
                self._dial.name, SERVER_DOWN, f"cannot connect: {reason}"
            )
            self._endpoint.set_exception(problem)
        self._peer.lose(reason, SERVER_DIED)
        self._room.set()
        self._leave_stream()

    def _leave_stream(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    def refused(self, response: ErrorBody) -> RpcError:
        status, headers, body = response.status, response.headers, response.content
        other = "" if self._endpoint.done() else "http"
        return refusal(self._dial.name, status, headers, body, self._secrets, other_type=other)

    def describe_unexpected(self, response: ErrorBody) -> str:
        status, headers, body = response.status, response.headers, response.content
        return unexpected("an event stream", status, headers, body, self._secrets)

    def _transmit(self, raw: bytes) -> None:
        # One POST at a time: on several connections messages could overtake each other.
        if self._waiting > HIGH_WATER + self._dial.limit:
            self.down("does not take what it is sent")
            return
        self._outbox.append(raw)
        self._waiting += len(raw)
        if self._waiting > HIGH_WATER:
            self._room.clear()
        if self._posting is None:
            self._post_next()

    def _backlog(self) -> Awaitable[None] | None:
        return self._has_room() if self._waiting > HIGH_WATER and self._peer.lost is None else None

    async def _has_room(self) -> None:
        await self._room.wait()

    def _post_next(self) -> None:
        if not self._outbox or self._peer.lost is not None:
            self._posting = None
            return
        raw = self._outbox.popleft()
        self._waiting -= len(raw)
        if self._waiting <= HIGH_WATER:
            self._room.set()
        self._posting = Upload(self, self.proving, raw)
        self._posting.start()

    def uploaded(self, upload: Upload, problem: RpcError | None) -> None:
        if problem is not None:
            message = codec.load(upload.body_sent)
            if "method" in message and "id" in message:
                self._peer.waiting.fail(message["id"], problem)
        self._post_next()

    def unreachable(self, error: ConnectionLost) -> Unavailable:
        """The stream may still exist, but no message can be sent."""
        reason = f"cannot connect: {error}"
        self.down(reason)
        return Unavailable(self._dial.name, SERVER_DOWN, reason)

    async def close(self) -> None:
        await super().close()
        if self.proving is not None:
            await self.proving.close()
        self._leave_stream()
        await self._pool.close()


class _Down(SentRequest):
    """Sink of the GET stream."""

    def __init__(self, talk: SseConversation, limit: int) -> None:
        super().__init__(talk.proving)
        self._talk = talk
        self._events = EventFeed(
            talk.event, self._too_large, self._nothing_but_noise, limit, endless=ENDLESS
        )
        self._refusal: ErrorBody | None = None
        self._other: ErrorBody | None = None
        """A success that is not an event stream."""

    @property
    def unexpected(self) -> str:
        """Describes the response that came instead of an event stream, if any."""
        return self._talk.describe_unexpected(self._other) if self._other else ""

    def send(self) -> None:
        self._refusal = None
        self.carrier = self._talk.open_stream(self)

    def unproved(self, error: RpcError) -> None:
        self._talk.down("the event stream was refused", error)

    def head(self, status: int, headers: Headers) -> None:
        if status >= 300:
            self._refusal = ErrorBody(status, headers)
        elif not is_stream(status, headers):
            self._other = ErrorBody(status, headers)

    def body(self, data: bytes) -> None:
        if self._other is not None:
            self._other.add(data)
            if len(self._other.content) >= MAX_REDACTED_BYTES:
                self._talk.down(self.unexpected)
        elif self._refusal is not None:
            self._refusal.add(data)
            if len(self._refusal.content) >= BODY:
                self.abort()
                self.end()
        else:
            self._events.feed(data)

    def _too_large(self, size: int, head: bytes) -> bool:
        if not size:
            self._talk.down("the event stream carries an event without end")
        return self._talk.skipped(head)

    def _nothing_but_noise(self) -> None:
        self._talk.down(
            f"the event stream carries nothing but noise, {MAX_NOISE_BYTES:,} bytes of it"
        )

    def end(self) -> None:
        if self._refusal is None:
            self._talk.down(self.unexpected or "the event stream ended")
            return
        problem = self._talk.refused(self._refusal)
        if not self.is_repeated_after(problem):
            self._talk.down("the event stream was refused", problem)

    def failed(self, error: Exception) -> None:
        self._talk.down(str(error) or "the event stream broke")
