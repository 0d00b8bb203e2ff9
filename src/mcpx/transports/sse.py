"""A server over HTTP+SSE, the transport of 2024-11-05: one GET stream down, a POST for each message up."""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import urljoin, urlsplit

from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, RpcError, Unavailable
from mcpx.transports.carried import Carried
from mcpx.transports.dial import Dial
from mcpx.transports.refusals import BODY, refusal
from mcpx.wire import codec
from mcpx.wire.address import target_of
from mcpx.wire.exchange import Headers
from mcpx.wire.http_client import Abortable, ConnectionLost
from mcpx.wire.peer import Conversation
from mcpx.wire.sse import SseEvent, SseReader

SHOWN = 200
"""Characters of an address that is complained of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sse:
    type: ClassVar[str] = "sse"

    url: str
    """Address of its event stream."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers sent with every request."""

    async def open(self, dial: Dial) -> Conversation:
        talk = SseConversation(self, dial)
        await talk.start()
        return talk


class SseConversation(Carried):
    def __init__(self, spec: Sse, dial: Dial) -> None:
        super().__init__(dial, self._transmit)
        self._spec = spec
        self._headers = dial.headers(spec.headers)
        self._pool = dial.pool(spec.url)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stream: Abortable | None = None
        self._outbox: deque[bytes] = deque()
        self._posting: _Post | None = None

    async def start(self) -> None:
        headers = [*self._headers, (b"accept", b"text/event-stream"), (b"cache-control", b"no-store")]
        self._stream = self._pool.start("GET", self._pool.target, headers, b"", _Down(self, self._dial.limit))
        try:
            async with asyncio.timeout(self._dial.timeout):
                await self._endpoint
        except TimeoutError:
            await self.close()
            raise Unavailable(self._dial.name, SERVER_DOWN, "sent no endpoint event in time") from None
        except BaseException:
            await self.close()
            raise

    def event(self, event: SseEvent) -> None:
        if event.event == "endpoint" and not self._endpoint.done():
            self._set_endpoint((event.data or b"").decode("utf-8", "replace"))
        elif event.event == "message" and event.data:
            self._peer.receive(event.data)

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

    def skipped(self, head: bytes) -> None:
        self._peer.waiting.too_large(head, self._dial.limit)

    def down(self, reason: str, problem: RpcError | None = None) -> None:
        """The stream is no more, or never was; `problem` is what is told if it never was."""
        if not self._endpoint.done():
            problem = problem or Unavailable(self._dial.name, SERVER_DOWN, f"cannot connect: {reason}")
            self._endpoint.set_exception(problem)
        self._peer.lose(reason, SERVER_DIED)

    def refused(self, status: int, headers: Headers, body: bytes) -> RpcError:
        other = "" if self._endpoint.done() else "http"
        return refusal(self._dial.name, status, headers, body, self._spec.headers.values(), other_type=other)

    def _transmit(self, raw: bytes) -> None:
        # One POST at a time: on several connections messages could overtake each other.
        self._outbox.append(raw)
        if self._posting is None:
            self._post_next()

    def _post_next(self) -> None:
        if not self._outbox or self._peer.lost is not None:
            self._posting = None
            return
        raw = self._outbox.popleft()
        self._posting = _Post(self, raw)
        headers = [*self._headers, (b"content-type", b"application/json"), (b"accept", b"application/json")]
        self._pool.start("POST", self._endpoint.result(), headers, raw, self._posting)

    def posted(self, raw: bytes, problem: RpcError | None) -> None:
        if problem is not None:
            message = codec.load(raw)
            if "method" in message and "id" in message:  # else it is an answer, under an id of the server's
                self._peer.waiting.fail(message["id"], problem)
        self._post_next()

    def post_failed(self, raw: bytes, error: Exception) -> None:
        problem = Unavailable(self._dial.name, SERVER_DOWN, str(error) or "the connection broke")
        problem.unsent = isinstance(error, ConnectionLost) and not error.sent
        self.posted(raw, problem)
        if problem.unsent:
            self.down(f"cannot connect: {error}")  # the stream may stand, but nothing can be said any more

    async def close(self) -> None:
        await super().close()
        if self._stream is not None:
            self._stream.abort()
        await self._pool.close()


class _Down:
    """The GET stream."""

    def __init__(self, talk: SseConversation, limit: int) -> None:
        self._talk = talk
        self._reader = SseReader(talk.event, limit=limit, on_skipped=lambda size, reason, head: talk.skipped(head))
        self._refused: _Refused | None = None

    def head(self, status: int, headers: Headers) -> None:
        if status >= 300:
            self._refused = _Refused(status, headers)
        elif status != 200 or not (headers.get("content-type") or "").startswith("text/event-stream"):
            self._talk.down(f"HTTP {status} where an event stream was expected")

    def body(self, data: bytes) -> None:
        if self._refused is not None:
            self._refused.take(data)
        else:
            self._reader.feed(data)

    def end(self) -> None:
        if self._refused is None:
            self._talk.down("the event stream ended")
        else:
            self._talk.down("the event stream was refused", self._refused.problem(self._talk))

    def failed(self, error: Exception) -> None:
        self._talk.down(str(error) or "the event stream broke")


class _Post:
    """One message up."""

    def __init__(self, talk: SseConversation, raw: bytes) -> None:
        self._talk = talk
        self._raw = raw
        self._refused: _Refused | None = None

    def head(self, status: int, headers: Headers) -> None:
        if status >= 300:
            self._refused = _Refused(status, headers)

    def body(self, data: bytes) -> None:
        if self._refused is not None:
            self._refused.take(data)

    def end(self) -> None:
        self._talk.posted(self._raw, None if self._refused is None else self._refused.problem(self._talk))

    def failed(self, error: Exception) -> None:
        self._talk.post_failed(self._raw, error)


class _Refused:
    """An answer that is no success, as far as it is worth reading."""

    def __init__(self, status: int, headers: Headers) -> None:
        self._status = status
        self._headers = headers
        self._body = b""

    def take(self, data: bytes) -> None:
        if len(self._body) < BODY:
            self._body += data[:BODY]

    def problem(self, talk: SseConversation) -> RpcError:
        return talk.refused(self._status, self._headers, self._body)
