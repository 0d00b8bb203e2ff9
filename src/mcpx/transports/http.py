"""A server over streamable HTTP, both eras: a POST for each message, its reply as JSON or as a stream of its own.

Because each request has its own stream, what comes before a reply (progress, logs, questions) is known to belong
to that request. An older server may close a stream in mid-call and be polled (GET + `Last-Event-ID`), and has one
more stream for what belongs to no request. Redirects are reported, never followed: they would carry the user's
headers elsewhere.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mcpx.model.call import Json
from mcpx.model.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_GARBAGE,
    SERVER_TIMEOUT,
    SERVER_TOO_LARGE,
    RpcError,
    Unavailable,
)
from mcpx.transports.dial import Dial
from mcpx.transports.refusals import refusal
from mcpx.wire import codec, era, jsonrpc
from mcpx.wire.exchange import Headers
from mcpx.wire.http_client import Abortable, ConnectionLost
from mcpx.wire.peer import Conversation, Meanwhile, Wait, Waiting
from mcpx.wire.sse import SseEvent, SseReader
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

RETRY_MS = 1000
"""How long to wait before a stream is resumed when the server named no `retry`."""
SHORTEST_RETRY_MS = 500
LONGEST_RETRY_MS = 30_000
"""Between these a server may choose: it cannot make us poll it without a pause, nor wait for ever."""
AROUND = 65536
"""Bytes of comments, ids and names that may come with an event beside its data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    type: ClassVar[str] = "http"

    url: str
    """Address of its MCP endpoint."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers sent with every request."""

    async def open(self, dial: Dial) -> Conversation:
        return HttpConversation(self, dial)


class HttpConversation:
    """The client side of streamable HTTP. It starts without an era; whoever negotiates sets it."""

    def __init__(self, spec: Http, dial: Dial) -> None:
        self.name = dial.name
        self.limit = dial.limit
        self.inbound = dial.inbound
        self.waiting = Waiting(dial.name)
        self.tasks = Tasks(dial.name)
        self.annotations = dial.annotations
        self.modern = False
        self._version: str | None = None
        self._session: str | None = None
        self._own = dial.headers(spec.headers)
        self.secrets = tuple(spec.headers.values())
        self._pool = dial.pool(spec.url)
        self._target = self._pool.target
        self._ready: asyncio.Future[None] | None = None
        self._answering: dict[str | int, asyncio.Task[Any]] = {}
        """Questions of the server, by its ids."""
        self._lost: str | None = None
        self._headers: tuple[tuple[bytes, bytes], ...] = ()
        self._set_headers()

    def agreed(self, version: str) -> None:
        """The negotiated revision; an older one also opens the stream for what belongs to no request."""
        self._version = version
        self.modern = version in era.MODERN
        self._set_headers()
        if not self.modern:
            self.tasks.start(self._listen())

    def memory(self) -> int:
        return 0

    def _set_headers(self) -> None:
        both = b"application/json, text/event-stream"
        headers = [*self._own, (b"content-type", b"application/json"), (b"accept", both)]
        if self._session is not None:
            headers.append((b"mcp-session-id", self._session.encode()))
        if self._version is not None and not self.modern and self._version >= "2025-06-18":
            headers.append((b"mcp-protocol-version", self._version.encode()))
        self._headers = tuple(headers)

    def _headers_for(self, method: str, params: Json) -> tuple[tuple[bytes, bytes], ...]:
        if not self.modern and method != "server/discover":
            return self._headers
        extra = [("mcp-protocol-version", era.LATEST_MODERN), ("mcp-method", method)]
        key = era.NAME_PARAM.get(method)
        if key is not None and isinstance(name := params.get(key), str):
            extra.append(("mcp-name", era.encode_header(name)))
            if method == "tools/call" and name in self.annotations:
                extra += era.headers_for(self.annotations[name], params.get("arguments"))
        return (*self._headers, *((k.encode(), v.encode()) for k, v in extra))

    # Requests ----------------------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Json, *, meanwhile: Meanwhile | None = None, timeout: float | None = None
    ) -> Json:
        if self._lost is not None:
            raise unsent(self.name, self._lost)
        if self._ready is not None and not self._ready.done():
            await asyncio.wait([self._ready], timeout=timeout)
        rid, wait, message = self.waiting.open(method, params, meanwhile, timeout)
        try:
            body = codec.dump(message)
        except codec.Unencodable as error:
            self.waiting.drop(rid)
            raise RpcError(INVALID_REQUEST, f"the message cannot be sent: {error}") from None
        reply = _Reply(self, rid, wait)
        reply.carrier = self._pool.start("POST", self._target, self._headers_for(method, params), body, reply)
        try:
            result = await wait.future
        except (asyncio.CancelledError, Unavailable) as error:
            # Closing the POST is the cancellation in the modern era; the older one says it in words.
            gave_up = isinstance(error, asyncio.CancelledError) or error.code == SERVER_TIMEOUT
            if gave_up and not self.modern and method not in ("initialize", "server/discover") and not self._lost:
                self.notify("notifications/cancelled", {"requestId": rid, "reason": "the caller gave up"})
            raise
        finally:
            self.waiting.drop(rid)
            reply.leave()
        if method == "initialize" and reply.session is not None:
            self._session = reply.session
            self._set_headers()
        return result

    def notify(self, method: str, params: Json | None) -> None:
        if self._lost is not None or self.modern:
            return  # the modern era has no notifications from client to server over HTTP
        done = _Delivery(self)
        if method == "notifications/initialized":
            self._ready = done.future  # nothing may overtake it on another connection
        self._post(jsonrpc.notification(method, params), done)

    def answer(self, message: Json) -> None:
        self._post(message, _Delivery(self))

    def _post(self, message: Json, sink: "_Delivery") -> None:
        try:
            body = codec.dump(message)
        except codec.Unencodable as error:
            if "id" not in message:
                return
            problem = RpcError(INTERNAL_ERROR, f"Unencodable reply: {error}")
            body = codec.dump(jsonrpc.failure(message["id"], problem))
        sink.carrier = self._pool.start("POST", self._target, self._headers, body, sink)

    # What the server says ------------------------------------------------------------------------------------

    def hear(self, raw: bytes, meanwhile: Meanwhile | None) -> None:
        """One message from any stream of the server; `meanwhile` is the request whose stream it was."""
        try:
            message = codec.load(raw)
        except codec.BadJson:
            self.waiting.noise += 1
            return
        match jsonrpc.classify(message):
            case "response":
                self.waiting.resolve(message)
            case "notification":
                self._notified(message["method"], jsonrpc.params_of(message), meanwhile)
            case "request":
                rid = message["id"]
                self._answering[rid] = task = self.tasks.start(self._asked(message, meanwhile))
                task.add_done_callback(lambda _: self._answering.pop(rid, None))
            case "invalid":
                self.waiting.noise += 1

    def _notified(self, method: str, params: Json, meanwhile: Meanwhile | None) -> None:
        if method == "notifications/progress":
            self.waiting.progressed(params)  # the request its token names, or nobody
        elif method == "notifications/cancelled":
            rid = params.get("requestId")
            if jsonrpc.is_id(rid) and rid in self._answering:
                self._answering[rid].cancel()
        elif meanwhile is not None:
            meanwhile.notification(method, params)
        else:
            self.inbound.notification(method, params)

    async def _asked(self, message: Json, meanwhile: Meanwhile | None) -> None:
        rid, method = message["id"], message["method"]
        try:
            if method == "ping" or meanwhile is None:
                value = {} if method == "ping" else await self.inbound.request(message)
            else:
                value = await meanwhile.question(method, message.get("params"))
            reply = jsonrpc.result(rid, value)
        except RpcError as error:
            reply = jsonrpc.failure(rid, error)
        except Exception:
            log.exception("[%s] answering %s failed", self.name, method)
            reply = jsonrpc.failure(rid, RpcError(INTERNAL_ERROR, "Internal error"))
        self.answer(reply)

    def poll(self, reply: "_Reply", last_id: str) -> None:
        """Ask for the rest of a stream that an older server closed before its response."""
        headers = [*self._headers, (b"last-event-id", last_id.encode())]
        reply.carrier = self._pool.start("GET", self._target, headers, b"", reply)

    async def _listen(self) -> None:
        """Keep the stream open on which an older server sends what belongs to no request."""
        last_id: str | None = None
        delay = RETRY_MS / 1000
        if self._ready is not None:
            await asyncio.shield(self._ready)
        while self._lost is None:
            headers = [h for h in self._headers if h[0] != b"accept"] + [(b"accept", b"text/event-stream")]
            if last_id is not None:
                headers.append((b"last-event-id", last_id.encode()))
            stream = _StandingStream(self)
            carrier = self._pool.start("GET", self._target, headers, b"", stream)
            try:
                offered = await stream.ended
            finally:
                carrier.abort()
            if not offered:
                return
            last_id = stream.last_id or last_id
            delay = RETRY_MS / 1000 if stream.heard else min(delay * 2, LONGEST_RETRY_MS / 1000)
            await asyncio.sleep(stream.retry_ms / 1000 if stream.retry_ms is not None and stream.heard else delay)

    # The end -------------------------------------------------------------------------------------------------

    def end_session(self) -> None:
        """404 on a session: the server has forgotten it, and did not act on the request."""
        self._lose("the server ended the session")

    def unreachable(self, error: ConnectionLost) -> Unavailable:
        """No connection could be made: nothing more is sent on this conversation. What is under way on connections
        that stand is left alone; a server that is being replaced stops listening first and answers that last."""
        reason = f"cannot connect: {error}"
        self._retire(reason)
        return unsent(self.name, reason)

    def _lose(self, reason: str) -> None:
        self.waiting.fail_all(SERVER_DIED, reason)
        self._retire(reason)

    def _retire(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            self.inbound.closed(reason)

    @property
    def in_session(self) -> bool:
        return self._session is not None

    async def close(self) -> None:
        """Ends what is under way too, except after a loss: that was not what the loss was about, and each request ends
        by its own deadline."""
        if self._lost is not None:
            self._pool.retire()
            await self.tasks.close()
            return
        if self._session is not None:
            goodbye = _Delivery(self)
            self._pool.start("DELETE", self._target, self._headers, b"", goodbye)
            await asyncio.wait([goodbye.future], timeout=1.0)
        self._lose("closed by the gateway")
        await self.tasks.close()
        await self._pool.close()


def unsent(name: str, reason: str) -> Unavailable:
    error = Unavailable(name, SERVER_DOWN, reason)
    error.unsent = True
    return error


def bounded_retry(retry: int) -> int:
    return max(SHORTEST_RETRY_MS, min(retry, LONGEST_RETRY_MS))


def _ignore(size: int, reason: str, head: bytes) -> None:
    """Too large an event on a stream nobody waits for."""


class _Reply:
    """The stream of one request: a JSON body, or events up to the response, resumed where the server allows it."""

    def __init__(self, talk: HttpConversation, rid: str | int, wait: Wait) -> None:
        self._talk = talk
        self._rid = rid
        self._wait = wait
        self.carrier: Abortable | None = None
        self.session: str | None = None
        self._left = False
        self._polling: asyncio.TimerHandle | None = None
        self._status = 0
        self._headers = Headers({})
        self._events: SseReader | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._finished = False
        self._last_id: str | None = None
        self._retry_ms = RETRY_MS

    def head(self, status: int, headers: Headers) -> None:
        self._status, self._headers, self._finished, self._size = status, headers, False, 0
        self.session = headers.get("mcp-session-id") or self.session
        if status == 200 and (headers.get("content-type") or "").startswith("text/event-stream"):
            self._events = SseReader(self._event, limit=self._talk.limit, on_skipped=self._skipped)
        else:
            self._events = None

    def body(self, data: bytes) -> None:
        self._size += len(data)
        if self._events is None:
            self._chunks.append(data)
            allowed = self._talk.limit
        else:
            self._events.feed(data)
            allowed = self._talk.limit + AROUND  # since the last event: one without end must not be waited for
        if self._size > allowed:
            self._fail(SERVER_TOO_LARGE, f"the answer is larger than {self._talk.limit:,} bytes")
            self._chunks.clear()
            self.leave()

    def _event(self, event: SseEvent) -> None:
        self._size = 0
        if event.id:
            self._last_id = event.id
        if event.retry is not None:
            self._retry_ms = bounded_retry(event.retry)
        if event.data and event.event == "message":
            self._talk.hear(event.data, self._wait.meanwhile)

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        self._fail(SERVER_TOO_LARGE, f"the answer is larger than {self._talk.limit:,} bytes")

    def end(self) -> None:
        self._finished = True
        if self._events is not None:
            self._broken("the answer ended before the result", deliberate=True)
            return
        raw = b"".join(self._chunks)
        self._chunks.clear()
        if self._status == 404 and self._talk.in_session:
            error = Unavailable(self._talk.name, SERVER_DIED, "the server ended the session")
            error.unsent = self._last_id is None  # a 404 to a resumed stream says nothing of the request itself
            self._talk.waiting.fail(self._rid, error)
            self._talk.end_session()
        elif self._status >= 300:
            error = refusal(self._talk.name, self._status, self._headers, raw, self._talk.secrets, other_type="sse")
            self._talk.waiting.fail(self._rid, error)
        else:
            self._answered(raw)

    def _answered(self, raw: bytes) -> None:
        try:
            message = codec.load(raw)
        except codec.BadJson:
            message = None
        if jsonrpc.classify(message) == "response" and message is not None:
            self._talk.waiting.resolve({**message, "id": self._rid})
        else:
            kind = (self._headers.get("content-type") or "").partition(";")[0].strip().lower()
            what = "HTML, a page for people," if kind == "text/html" else "something that is"
            self._fail(SERVER_GARBAGE, f"answered with {what} no JSON-RPC response")

    def failed(self, error: Exception) -> None:
        self._finished = True
        if isinstance(error, ConnectionLost) and not error.sent:
            problem = self._talk.unreachable(error)
            problem.unsent = self._last_id is None  # else it was polled for, and sent long ago
            self._talk.waiting.fail(self._rid, problem)
        else:
            self._broken(str(error) or "the connection broke", deliberate=False)

    def _broken(self, reason: str, *, deliberate: bool) -> None:
        """The stream is over without a response: poll it if the server gave event ids, else the request failed."""
        if self._wait.future.done() or self._left:
            return
        if self._last_id is not None and not self._talk.modern and self._status == 200:
            if deliberate and self._wait.meanwhile is not None:
                self._wait.meanwhile.paused(self._retry_ms)
            loop = asyncio.get_running_loop()
            self._polling = loop.call_later(self._retry_ms / 1000, self._talk.poll, self, self._last_id)
        else:
            self._fail(SERVER_DIED, reason)

    def _fail(self, code: int, reason: str) -> None:
        self._talk.waiting.fail(self._rid, Unavailable(self._talk.name, code, reason))

    def leave(self) -> None:
        """The request is over for its caller; whatever the stream still carries is not wanted."""
        self._left = True
        if self._polling is not None:
            self._polling.cancel()
        if self.carrier is not None and not self._finished:
            self.carrier.abort()


class _Delivery:
    """A message that wants no reply, on its way."""

    def __init__(self, talk: HttpConversation) -> None:
        self._talk = talk
        self.carrier: Abortable | None = None
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def head(self, status: int, headers: Headers) -> None:
        if status >= 400:
            log.debug("[%s] answered a notification with HTTP %d", self._talk.name, status)

    def body(self, data: bytes) -> None:
        pass

    def end(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def failed(self, error: Exception) -> None:
        if isinstance(error, ConnectionLost) and not error.sent:
            self._talk.unreachable(error)
        self.end()


class _StandingStream:
    """The stream of an older server that belongs to no request. `ended` tells whether the server offers one."""

    def __init__(self, talk: HttpConversation) -> None:
        self._talk = talk
        self._reader: SseReader | None = None
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.last_id: str | None = None
        self.retry_ms: int | None = None
        self.heard = False
        self._passing = False  # the server has a trouble of its own; whether it offers the stream is not said

    def head(self, status: int, headers: Headers) -> None:
        if status == 200 and (headers.get("content-type") or "").startswith("text/event-stream"):
            self._reader = SseReader(self._event, limit=self._talk.limit, on_skipped=_ignore)
        elif status == 404 and self._talk.in_session:
            self._talk.end_session()
        self._passing = status >= 500 or status in (408, 429)

    def body(self, data: bytes) -> None:
        if self._reader is not None:
            self._reader.feed(data)

    def _event(self, event: SseEvent) -> None:
        self.heard = True
        self.last_id = event.id or self.last_id
        if event.retry is not None:
            self.retry_ms = bounded_retry(event.retry)
        if event.data and event.event == "message":
            self._talk.hear(event.data, None)

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(self._reader is not None or self._passing)

    def failed(self, error: Exception) -> None:
        if isinstance(error, ConnectionLost) and not error.sent:
            self._talk.unreachable(error)
        if not self.ended.done():
            self.ended.set_result(True)
