"""A server over HTTP+SSE, the transport of 2024-11-05: one GET stream down, a POST for each message
up.

What the server has not taken yet is bounded in bytes, each POST in time and in what is said to it,
the stream in what it carries that is no message.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urljoin, urlsplit

from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, SERVER_TIMEOUT, RpcError, Unavailable
from mcpx.transports.carried import Carried
from mcpx.transports.dial import Dial
from mcpx.transports.refusals import BODY, refusal, unexpected
from mcpx.wire import codec
from mcpx.wire.address import target_of
from mcpx.wire.exchange import Headers
from mcpx.wire.framing import Patience
from mcpx.wire.http_client import Abortable, ConnectionLost, header_lines
from mcpx.wire.peer import Conversation
from mcpx.wire.sse import SseEvent, SseReader
from mcpx.wire.words import MAX_REDACTED_BYTES, without

if TYPE_CHECKING:
    from mcpx.auth.credentials import Proof

NOISE = 2**20
"""Bytes of comments, blank lines and nonsense that the stream may carry from one message to the
next."""
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
        self._stream: Abortable | None = None
        self._outbox: deque[bytes] = deque()
        self._waiting = 0
        """Bytes in it."""
        self._room = asyncio.Event()
        self._room.set()
        self._posting: _Post | None = None

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

    def open_stream(self, sink: "_Down") -> None:
        target = self._proved(self._pool.target)
        self._stream = self._pool.start("GET", target, self._stream_lines, b"", sink)

    def leave_stream(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    def post(self, raw: bytes, sink: "_Post") -> Abortable:
        return self._pool.start(
            "POST", self._proved(self._endpoint.result()), self._lines, raw, sink
        )

    async def start(self) -> None:
        stream = _Down(self, self._dial.limit)
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
        self.leave_stream()

    def refused(self, status: int, headers: Headers, body: bytes) -> RpcError:
        other = "" if self._endpoint.done() else "http"
        return refusal(self._dial.name, status, headers, body, self._secrets, other_type=other)

    def describe_unexpected(self, status: int, headers: Headers, body: bytes) -> str:
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
        self._posting = _Post(self, raw)
        self._posting.start()

    def posted(self, raw: bytes, problem: RpcError | None) -> None:
        if problem is not None:
            message = codec.load(raw)
            if (
                "method" in message and "id" in message
            ):  # else it is an answer, under an id of the server's
                self._peer.waiting.fail(message["id"], problem)
        self._post_next()

    def post_late(self, raw: bytes) -> None:
        what = f"did not take the message within {self._dial.timeout:g} s"
        self.posted(raw, Unavailable(self._dial.name, SERVER_TIMEOUT, what))

    def post_failed(self, raw: bytes, error: Exception) -> None:
        problem = Unavailable(self._dial.name, SERVER_DOWN, str(error) or "the connection broke")
        problem.unsent = isinstance(error, ConnectionLost) and not error.sent
        self.posted(raw, problem)
        if problem.unsent:
            self.down(
                f"cannot connect: {error}"
            )  # the stream may stand, but nothing can be said any more

    async def close(self) -> None:
        await super().close()
        if self.proving is not None:
            await self.proving.close()
        self.leave_stream()
        await self._pool.close()


class _Down:
    """The GET stream."""

    def __init__(self, talk: SseConversation, limit: int) -> None:
        self._talk = talk
        self._limit = limit
        self._patience = Patience(NOISE)
        self._reader = SseReader(self._event, limit=limit, on_skipped=self._skipped)
        self._refused: _Refused | None = None
        self._other: _Refused | None = None
        """A success that is not an event stream."""
        self.proof: Proof | None = None
        self.repeated = False
        self.pending: asyncio.Task[Any] | None = None

    @property
    def unexpected(self) -> str:
        """Describes the response that came instead of an event stream. Empty for an event
        stream."""
        return "" if self._other is None else self._other.unexpected(self._talk)

    def start(self) -> None:
        if self._talk.proving is None:
            self.send()
        else:
            self._talk.proving.start(self)

    def send(self) -> None:
        self._refused = None
        self._talk.open_stream(self)

    def unproved(self, error: RpcError) -> None:
        self._talk.down("the event stream was refused", error)

    def head(self, status: int, headers: Headers) -> None:
        if status >= 300:
            self._refused = _Refused(status, headers)
        elif status != 200 or not (headers.get("content-type") or "").startswith(
            "text/event-stream"
        ):
            self._other = _Refused(status, headers)

    def body(self, data: bytes) -> None:
        if self._other is not None:
            self._other.take(data)
            if self._other.size >= MAX_REDACTED_BYTES:
                self._talk.down(self.unexpected)
            return
        if self._refused is not None:
            if self._refused.take(data):
                self._talk.leave_stream()
                self.end()
            return
        self._reader.feed(data)
        pending = self._reader.unfinished
        if pending > self._limit + ENDLESS:
            self._talk.down("the event stream carries an event without end")
        elif self._patience.lost(len(data), pending):
            self._talk.down(f"the event stream carries nothing but noise, {NOISE:,} bytes of it")

    def _event(self, event: SseEvent) -> None:
        if self._talk.event(event):
            self._patience.message()

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        if self._talk.skipped(head):
            self._patience.message()

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        if self._refused is None:
            self._talk.down(self.unexpected or "the event stream ended")
            return
        problem = self._refused.problem(self._talk)
        if self._talk.proving is None or not self._talk.proving.refused(self, problem):
            self._talk.down("the event stream was refused", problem)

    def failed(self, error: Exception) -> None:
        self._talk.down(str(error) or "the event stream broke")


class _Post:
    """One message up, for so long, and to so many words in return."""

    def __init__(self, talk: SseConversation, raw: bytes) -> None:
        self._talk = talk
        self._raw = raw
        self._refused: _Refused | None = None
        self._taken = self._over = False
        self._answer = 0
        self._carrier: Abortable | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.proof: Proof | None = None
        self.repeated = False
        self.pending: asyncio.Task[Any] | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._talk.timeout, self._late)
        if self._talk.proving is None:
            self.send()
        else:
            self._talk.proving.start(self)

    def send(self) -> None:
        self._refused, self._taken, self._answer = None, False, 0
        self._carrier = self._talk.post(self._raw, self)

    def unproved(self, error: RpcError) -> None:
        if not self._over:
            self._stop()
            self._talk.posted(self._raw, error)

    def _late(self) -> None:
        self._abort()
        if self._taken:
            self._finish(None if self._refused is None else self._refused.problem(self._talk))
        else:
            self._stop()
            self._talk.post_late(self._raw)

    def _abort(self) -> None:
        if self._carrier is not None:
            self._carrier.abort()

    def head(self, status: int, headers: Headers) -> None:
        if status >= 300:
            self._refused = _Refused(status, headers)
        self._taken = True

    def body(self, data: bytes) -> None:
        self._answer += len(data)
        if self._refused is not None:
            self._refused.take(data)
        if self._answer > BODY:
            self._abort()
            self.end()

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        problem = None if self._refused is None else self._refused.problem(self._talk)
        proving = self._talk.proving
        if problem is not None and proving is not None and proving.refused(self, problem):
            self._taken = False  # the server did nothing about it
        else:
            self._finish(problem)

    def _finish(self, problem: RpcError | None) -> None:
        self._stop()
        self._talk.posted(self._raw, problem)

    def failed(self, error: Exception) -> None:
        self._stop()
        self._talk.post_failed(self._raw, error)

    def _stop(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self.pending is not None:
            self.pending.cancel()


class _Refused:
    """An answer that is no success, as far as it is worth reading."""

    def __init__(self, status: int, headers: Headers) -> None:
        self._status = status
        self._headers = headers
        self._body = bytearray()

    def take(self, data: bytes) -> bool:
        """Whether that was more than is worth reading."""
        self._body += data[: BODY - len(self._body)]
        return len(self._body) >= BODY

    @property
    def size(self) -> int:
        return len(self._body)

    def unexpected(self, talk: SseConversation) -> str:
        return talk.describe_unexpected(self._status, self._headers, bytes(self._body))

    def problem(self, talk: SseConversation) -> RpcError:
        return talk.refused(self._status, self._headers, bytes(self._body))
