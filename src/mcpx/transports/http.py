"""A server over streamable HTTP, both eras: a POST for each message, its reply as JSON or as a stream of its own.

Because each request has its own stream, what comes before a reply (progress, logs, questions) is known to belong
to that request. An older server may close a stream in mid-call and be polled (GET + `Last-Event-ID`), and has one
more stream for what belongs to no request. Redirects are reported, never followed: they would carry the user's
headers elsewhere.

A reply counts only under the id that was asked on its very request; anything else fails that request and ends the
connection, which may be out of step. Whatever a server sends that is no message is bounded in bytes, and what wants no
reply in time too.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mcpx.model.call import Json
from mcpx.model.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    OVERLOADED,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_GARBAGE,
    SERVER_TIMEOUT,
    SERVER_TOO_LARGE,
    RpcError,
    Unavailable,
)
from mcpx.transports.dial import Dial
from mcpx.transports.refusals import BODY, refusal
from mcpx.wire import codec, era, jsonrpc
from mcpx.wire.exchange import Headers
from mcpx.wire.framing import Patience
from mcpx.wire.http_client import Abortable, ConnectionLost, Crowded, Pool, header_lines
from mcpx.wire.peer import Conversation, Meanwhile, Wait, Waiting
from mcpx.wire.sse import SseEvent, SseReader
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

RETRY_MS = 1000
"""How long to wait before a stream is resumed when the server named no `retry`."""
SHORTEST_RETRY_MS = 500
LONGEST_RETRY_MS = 30_000
"""Between these a server may choose: it cannot make us poll it without a pause, nor wait for ever."""
NOISE = 2**20
"""Bytes of comments, ids, blank lines and nonsense that a stream may carry from one message to the next."""
LONGEST_SESSION = 1024
"""Characters of a session id."""
QUESTIONS = 256
"""Questions of one server that are being answered at a time."""
METHODS = 32
"""Methods whose headers are kept."""
MOST_UNTAKEN = 16 * 2**20
"""Bytes of answers and notifications that a server has yet to take."""

_ids = itertools.count(random.randrange(1, 2**30))
"""The ids of our requests, one row for all conversations: if a server, or a proxy in front of several, mixes up the
replies to two of them, the id is not the one that was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    type: ClassVar[str] = "http"

    url: str
    """Address of its MCP endpoint; credentials go into `headers`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers sent with every request; `Host`, `Connection`, `Content-Length`, `Mcp-*` and the like are set by mcpx."""

    async def open(self, dial: Dial) -> Conversation:
        try:
            return HttpConversation(self, dial)
        except ValueError as error:
            raise Unavailable(dial.name, SERVER_DOWN, f"cannot connect: {error}") from None


class HttpConversation:
    """The client side of streamable HTTP. It starts without an era; whoever negotiates sets it."""

    def __init__(self, spec: Http, dial: Dial) -> None:
        self.name = dial.name
        self.limit = dial.limit
        self.inbound = dial.inbound
        self.timeout = dial.timeout
        self.waiting = Waiting(dial.name, _ids)
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
        self._untaken = 0
        """Bytes of messages without a reply that are on their way."""
        self._warned = False
        self._lost: str | None = None
        self._lines = self._stream_lines = b""
        """The headers of every POST, and of every GET."""
        self._lines_by_method: dict[str, bytes] = {}
        """In the modern era, those of a POST without what is said in it."""
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
        headers = [*self._own, (b"content-type", b"application/json")]
        if self._session is not None:
            headers.append((b"mcp-session-id", self._session.encode()))
        if self._version is not None and not self.modern and self._version >= "2025-06-18":
            headers.append((b"mcp-protocol-version", self._version.encode()))
        self._lines = header_lines([*headers, (b"accept", both)])
        self._stream_lines = header_lines([*headers, (b"accept", b"text/event-stream")])
        self._lines_by_method = {}

    def _headers_for(self, method: str, params: Json) -> bytes:
        if not self.modern and method != "server/discover":
            return self._lines
        lines = self._lines_by_method.get(method)
        if lines is None:
            extra = [("mcp-protocol-version", era.LATEST_MODERN), ("mcp-method", method)]
            lines = self._lines + header_lines([(k.encode(), v.encode()) for k, v in extra])
            if len(self._lines_by_method) < METHODS and len(method) < 100:
                self._lines_by_method[method] = lines
        key = era.NAME_PARAM.get(method)
        if key is not None and isinstance(name := params.get(key), str):
            lines += b"mcp-name: %b\r\n" % era.bounded_header(name, key).encode()
            if method == "tools/call" and name in self.annotations:
                mirrored = era.headers_for(self.annotations[name], params.get("arguments"))
                lines += header_lines([(k.encode(), v.encode()) for k, v in mirrored])
        return lines

    # Requests ----------------------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Json, *, meanwhile: Meanwhile | None = None, timeout: float | None = None
    ) -> Json:
        if self._lost is not None:
            raise unsent(self.name, self._lost)
        if self._ready is not None and not self._ready.done():
            await asyncio.wait([self._ready], timeout=timeout)
        try:
            lines = self._headers_for(method, params)
        except RpcError as error:
            raise RpcError(error.code, f"{self.name}: {error.message}") from None
        rid, wait, message = self.waiting.open(method, params, meanwhile, timeout)
        try:
            body = codec.dump(message)
        except codec.Unencodable as error:
            self.waiting.drop(rid)
            raise RpcError(INVALID_REQUEST, f"the message cannot be sent: {error}") from None
        reply = _Reply(self, rid, wait)
        reply.carrier = self._pool.start("POST", self._target, lines, body, reply)
        try:
            result = await wait.future
        except (asyncio.CancelledError, Unavailable) as error:
            # Closing the POST is the cancellation in the modern era; the older one says it in words.
            gave_up = isinstance(error, asyncio.CancelledError) or error.code == SERVER_TIMEOUT
            if gave_up and reply.unsent:
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise unsent(self.name, f"could not be sent within {timeout:g} s", SERVER_TIMEOUT) from None
            if gave_up and not self.modern and method not in ("initialize", "server/discover") and not self._lost:
                self.notify("notifications/cancelled", {"requestId": rid, "reason": "the caller gave up"})
            raise
        finally:
            self.waiting.drop(rid)
            reply.leave()
        if method == "initialize" and reply.session is not None:
            self._begin_session(reply.session)
        return result

    def _begin_session(self, session: str) -> None:
        if len(session) > LONGEST_SESSION or not all("!" <= c <= "~" for c in session):
            what = (
                f"longer than {LONGEST_SESSION:,} characters" if len(session) > LONGEST_SESSION else "no visible ASCII"
            )
            raise Unavailable(self.name, SERVER_GARBAGE, f"gave a session id that is {what}")
        self._session = session
        self._set_headers()

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
        if self._untaken > MOST_UNTAKEN:
            self._lose("does not take what it is sent")
        elif self._lost is None:
            self._untaken += len(body)
            sink.start(self._pool, "POST", self._target, self._lines, body)

    def taken(self, size: int) -> None:
        self._untaken -= size

    # What the server says ------------------------------------------------------------------------------------

    def hear(self, raw: bytes, stream: "_Reply | _StandingStream") -> bool:
        """One message from any stream of the server. False: it was none."""
        message = _loaded(raw)
        match jsonrpc.classify(message):
            case "response":
                stream.answered(message)
            case "notification":
                self._notified(message["method"], jsonrpc.params_of(message), stream.meanwhile)
            case "request":
                self._ask(message, stream.meanwhile)
            case "invalid":
                self.waiting.noise += 1
                return False
        return True

    def _ask(self, message: Json, meanwhile: Meanwhile | None) -> None:
        rid = message["id"]
        if rid in self._answering:
            refused = RpcError(INVALID_REQUEST, "a request with this id is already in flight")
        elif len(self._answering) >= QUESTIONS:
            refused = RpcError(OVERLOADED, f"{QUESTIONS} requests are being answered already")
        else:
            self._answering[rid] = task = self.tasks.start(self._asked(message, meanwhile))
            task.add_done_callback(lambda _: self._answering.pop(rid, None))
            return
        self.answer(jsonrpc.failure(rid, refused))

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
        lines = self._stream_lines + header_lines([(b"last-event-id", last_id.encode())])
        reply.carrier = self._pool.start("GET", self._target, lines, b"", reply)

    async def _listen(self) -> None:
        """Keep the stream open on which an older server sends what belongs to no request."""
        last_id: str | None = None
        delay = RETRY_MS / 1000
        patience = Patience(NOISE)
        noisy = False
        if self._ready is not None:
            await asyncio.shield(self._ready)
        while self._lost is None:
            lines = self._stream_lines
            if last_id is not None:
                lines += header_lines([(b"last-event-id", last_id.encode())])
            stream = _StandingStream(self, patience)
            stream.carrier = self._pool.start("GET", self._target, lines, b"", stream)
            try:
                offered = await stream.ended
            finally:
                stream.leave()
            if not offered:
                return
            last_id = stream.last_id or last_id
            if stream.spoiled:
                self.warn(f"its stream of notifications {stream.spoiled}; it is opened again, now and then")
            noisy = bool(stream.spoiled) or (noisy and not stream.spoke)
            fine = stream.heard and not noisy
            delay = RETRY_MS / 1000 if fine else min(delay * 2, LONGEST_RETRY_MS / 1000)
            await asyncio.sleep(stream.retry_ms / 1000 if stream.retry_ms is not None and fine else delay)

    def warn(self, what: str) -> None:
        """Say it, the first time."""
        if not self._warned:
            self._warned = True
            log.warning("[%s] %s", self.name, what)

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
            self.waiting.wind_down()
            self._pool.retire()
            await self.tasks.close()
            return
        if self._session is not None:
            goodbye = _Delivery(self)
            goodbye.start(self._pool, "DELETE", self._target, self._lines, b"")
            await asyncio.wait([goodbye.future], timeout=1.0)
        self._lose("closed by the gateway")
        await self.tasks.close()
        await self._pool.close()


def unsent(name: str, reason: str, code: int = SERVER_DOWN) -> Unavailable:
    error = Unavailable(name, code, reason)
    error.unsent = True
    return error


def bounded_retry(retry: int) -> int:
    return max(SHORTEST_RETRY_MS, min(retry, LONGEST_RETRY_MS))


def _loaded(raw: bytes | bytearray) -> Any:
    """What it says, if that is JSON."""
    try:
        return codec.load(raw)
    except codec.BadJson:
        return None


def is_stream(status: int, headers: Headers) -> bool:
    return status == 200 and (headers.get("content-type") or "").startswith("text/event-stream")


_NO_HEADERS = Headers({})


class _Reply:
    """The stream of one request: a JSON body, or events up to the response, resumed where the server allows it."""

    __slots__ = (
        *("_body", "_events", "_finished", "_headers", "_in_step", "_last_id", "_left", "_message", "_patience"),
        *("_polling", "_retry_ms", "_rid", "_status", "_talk", "_wait", "carrier", "meanwhile", "session"),
    )

    def __init__(self, talk: HttpConversation, rid: str | int, wait: Wait) -> None:
        self._talk = talk
        self._rid = rid
        self._wait = wait
        self.meanwhile = wait.meanwhile
        self.carrier: Abortable | None = None
        self.session: str | None = None
        self._left = False
        self._polling: asyncio.TimerHandle | None = None
        self._status = 0
        self._headers = _NO_HEADERS
        self._events: SseReader | None = None
        self._patience: Patience | None = None
        self._body: bytes | bytearray = b""
        self._message: Any = None
        self._finished = False
        self._in_step = True
        """Nothing came but what belongs to this request."""
        self._last_id: str | None = None
        self._retry_ms = RETRY_MS

    @property
    def unsent(self) -> bool:
        """Whether the request certainly did not reach the server."""
        return self._last_id is None and self.carrier is not None and not self.carrier.sent

    def head(self, status: int, headers: Headers) -> None:
        self._status, self._headers, self._finished, self._body = status, headers, False, b""
        self.session = headers.get("mcp-session-id") or self.session
        self._events = None
        if is_stream(status, headers):
            self._events = SseReader(self._event, limit=self._talk.limit, on_skipped=self._skipped)
            self._patience = self._patience or Patience(NOISE)

    def body(self, data: bytes) -> None:
        events, patience = self._events, self._patience
        if events is not None and patience is not None:
            events.feed(data)
            pending = events.unfinished
            if pending > self._talk.limit:
                self._skipped(pending, "", b"")
                self.leave()
            elif patience.lost(len(data), pending):
                what = f"the answer carries nothing but noise, {NOISE:,} bytes of it"
                self._talk.warn(what)
                self._fail(SERVER_GARBAGE, what)
                self.leave()
            return
        # Joined at once: many small pieces must not become many objects.
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytearray):
            self._body += data
        else:
            self._body = bytearray(self._body) + data
        if len(self._body) > self._talk.limit:
            self._skipped(len(self._body), "", b"")
            self._body = b""
            self.leave()
        elif self._status >= 300 and len(self._body) > BODY and not self._is_json():  # a page, and a long one
            self.end()
            self._finished = False
            self.leave()

    def _is_json(self) -> bool:
        return "json" in (self._headers.get("content-type") or "").lower()

    def _event(self, event: SseEvent) -> None:
        if self._left:
            return
        if event.id:
            self._last_id = event.id
        if event.retry is not None:
            self._retry_ms = bounded_retry(event.retry)
        if event.data and event.event == "message" and self._talk.hear(event.data, self) and self._patience:
            self._patience.message()

    def answered(self, message: Json) -> None:
        """A response came on the stream."""
        if self._wait.future.done():
            self._in_step = False
        elif _is_answer(message, self._rid):
            message["id"] = self._rid
            self._talk.waiting.resolve(message)
        else:
            self._fail(SERVER_GARBAGE, "answered another request than the one it was asked")
            self.leave()

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        self._fail(SERVER_TOO_LARGE, f"the answer is larger than {self._talk.limit:,} bytes")

    def trusted(self) -> bool:
        if self._events is None:
            self._message = _loaded(self._body)
            if self._status < 300:
                self._in_step = jsonrpc.classify(self._message) == "response" and _is_answer(self._message, self._rid)
            else:
                self._in_step = not _is_anothers(self._message, self._rid)
        return self._in_step

    def end(self) -> None:
        self._finished = True
        if self._events is not None:
            self._broken("the answer ended before the result", deliberate=True)
            return
        raw, self._body = self._body, b""
        if self._status == 404 and self._talk.in_session:
            error = Unavailable(self._talk.name, SERVER_DIED, "the server ended the session")
            error.unsent = self._last_id is None  # a 404 to a resumed stream says nothing of the request itself
            self._talk.waiting.fail(self._rid, error)
            self._talk.end_session()
        elif self._in_step and self._status >= 300:
            error = refusal(
                self._talk.name, self._status, self._headers, bytes(raw), self._talk.secrets, other_type="sse"
            )
            self._talk.waiting.fail(self._rid, error)
        elif self._in_step:
            self._message["id"] = self._rid
            self._talk.waiting.resolve(self._message)
        elif jsonrpc.classify(self._message) == "response":
            self._fail(SERVER_GARBAGE, "answered another request than the one it was asked")
        else:
            kind = (self._headers.get("content-type") or "").partition(";")[0].strip().lower()
            what = "HTML, a page for people," if kind == "text/html" else "something that is"
            self._fail(SERVER_GARBAGE, f"answered with {what} no JSON-RPC response")

    def failed(self, error: Exception) -> None:
        self._finished = True
        if isinstance(error, Crowded):
            self._talk.waiting.fail(self._rid, unsent(self._talk.name, str(error), OVERLOADED))
        elif isinstance(error, ConnectionLost) and not error.sent:
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


def _is_answer(message: Json, rid: str | int) -> bool:
    """Whether a response is the one to this request: by its id, which only an error may leave open."""
    id = message["id"]
    return (type(id) is type(rid) and id == rid) or (id is None and message.get("error") is not None)


def _is_anothers(message: Any, rid: str | int) -> bool:
    """Whether what came with an HTTP error bears the id of another request. Servers that never looked at the message
    put words there (`server-error`): ours are all numbers."""
    if jsonrpc.classify(message) != "response":
        return False
    id = message["id"]
    return isinstance(id, int | float) and not (type(id) is type(rid) and id == rid)


class _Delivery:
    """A message that wants no reply, on its way: for so long, and to so many words in return."""

    def __init__(self, talk: HttpConversation) -> None:
        self._talk = talk
        self._carrier: Abortable | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._size = 0
        self._answer = 0
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, pool: Pool, method: str, target: str, lines: bytes, body: bytes) -> None:
        self._size = len(body)
        self._timer = asyncio.get_running_loop().call_later(self._talk.timeout, self._give_up)
        self._carrier = pool.start(method, target, lines, body, self, brief=True)

    def _give_up(self) -> None:
        if self._carrier is not None:
            self._carrier.abort()
        self.end()

    def head(self, status: int, headers: Headers) -> None:
        if status >= 400:
            log.debug("[%s] answered a notification with HTTP %d", self._talk.name, status)

    def body(self, data: bytes) -> None:
        self._answer += len(data)
        if self._answer > BODY:
            self._give_up()

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.future.done():
            self.future.set_result(None)
            self._talk.taken(self._size)

    def failed(self, error: Exception) -> None:
        if isinstance(error, ConnectionLost) and not error.sent:
            self._talk.unreachable(error)
        self.end()


class _StandingStream:
    """The stream of an older server that belongs to no request. `ended` tells whether the server offers one."""

    meanwhile = None

    def __init__(self, talk: HttpConversation, patience: Patience) -> None:
        self._talk = talk
        self._patience = patience
        self._reader: SseReader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answer = 0
        self.carrier: Abortable | None = None
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.last_id: str | None = None
        self.retry_ms: int | None = None
        self.heard = False
        """There was an event,"""
        self.spoke = False
        """... with a message in it."""
        self.spoiled = ""
        """Why it was cut off."""
        self._passing = False  # the server has a trouble of its own; whether it offers the stream is not said

    def head(self, status: int, headers: Headers) -> None:
        if is_stream(status, headers):
            self._reader = SseReader(self._event, limit=self._talk.limit, on_skipped=self._skipped)
            return
        self._timer = asyncio.get_running_loop().call_later(self._talk.timeout, self.end)
        if status == 404 and self._talk.in_session:
            self._talk.end_session()
        self._passing = status >= 500 or status in (408, 429)

    def body(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:
            self._answer += len(data)
            if self._answer > BODY:
                self.end()
        elif not self.spoiled:
            reader.feed(data)
            pending = reader.unfinished
            if pending > self._talk.limit:
                self._skipped(pending, "", b"")
            elif self._patience.lost(len(data), pending):
                self._spoil("carries nothing but noise")

    def _event(self, event: SseEvent) -> None:
        if self.spoiled:
            return
        self.heard = True
        self.last_id = event.id or self.last_id
        if event.retry is not None:
            self.retry_ms = bounded_retry(event.retry)
        if event.data and event.event == "message" and self._talk.hear(event.data, self):
            self.spoke = True
            self._patience.message()

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        self._spoil(f"carries an event of more than {self._talk.limit:,} bytes")

    def answered(self, message: Json) -> None:
        """A response came, and there is no request here that it could answer."""
        self._talk.waiting.strays += 1
        self._spoil("carries answers, which belong on the streams of their requests")

    def _spoil(self, why: str) -> None:
        self.spoiled = self.spoiled or why
        self.end()

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(self._reader is not None or self._passing)
        self.leave()

    def failed(self, error: Exception) -> None:
        if isinstance(error, ConnectionLost) and not error.sent:
            self._talk.unreachable(error)
        if not self.ended.done():
            self.ended.set_result(True)
        self.leave()

    def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.carrier is not None:
            self.carrier.abort()
