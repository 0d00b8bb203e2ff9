"""Responses of a streamable HTTP server: to requests, and on the GET stream of an older server.

A response counts only under the id that was sent in its request. Any other response fails the
request and ends the connection, whose order can no longer be trusted. The GET stream carries
messages that belong to no request. It is opened again however it ended, as often as the server
allows within limits. A server that does not offer it is asked once.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from mcpx.model.call import Json
from mcpx.model.errors import (
    OVERLOADED,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_GARBAGE,
    SERVER_TOO_LARGE,
    RpcError,
    Unavailable,
)
from mcpx.model.redaction import MAX_REDACTED_BYTES
from mcpx.transports.refusals import BODY, about_us, refusal, unexpected
from mcpx.transports.sinks import MAX_NOISE_BYTES, EventFeed, SentRequest
from mcpx.wire import codec, jsonrpc
from mcpx.wire.exchange import Headers
from mcpx.wire.framing import Patience
from mcpx.wire.http_client import ConnectionLost, Crowded
from mcpx.wire.peer import Wait
from mcpx.wire.sse import SseEvent

if TYPE_CHECKING:
    from mcpx.transports.http import HttpConversation

RETRY_MS = 1000
"""Time after which a stream is resumed if the server sent no `retry`."""
SHORTEST_RETRY_MS = 500
LONGEST_RETRY_MS = 30_000


def unsent(name: str, reason: str, code: int = SERVER_DOWN) -> Unavailable:
    error = Unavailable(name, code, reason)
    error.unsent = True
    return error


def bounded_retry(retry: int) -> int:
    return max(SHORTEST_RETRY_MS, min(retry, LONGEST_RETRY_MS))


def loaded(raw: bytes | bytearray) -> Any:
    """Return the JSON value, or None."""
    try:
        return codec.load(raw)
    except codec.BadJson:
        return None


def is_stream(status: int, headers: Headers) -> bool:
    return status == 200 and (headers.get("content-type") or "").startswith("text/event-stream")


_NO_HEADERS = Headers({})


class Reply(SentRequest):
    """Sink of one request: a JSON body, or events up to the response, resumed if possible."""

    __slots__ = (
        *("_body", "_events", "_finished", "_headers", "_in_step", "_last_id", "_left"),
        *("_message", "_noise", "_patience", "_polling", "_retry_ms", "_rid", "_status"),
        *("_talk", "_wait", "asked", "meanwhile", "session"),
    )

    def __init__(self, talk: "HttpConversation", rid: str | int, wait: Wait) -> None:
        # In place of super().__init__: this is the hot path.
        self.proving = talk.proving
        self.carrier = None
        self.proof = None
        self.repeated = False
        self.pending = None
        self._talk = talk
        self._rid = rid
        self._wait = wait
        self.meanwhile = wait.meanwhile
        self.session: str | None = None
        self.asked: tuple[str, Json, Json, bytes] = ("", {}, {}, b"")
        """Method, params, message, and trace headers of a request that may have to be repeated."""
        self._left = False
        self._polling: asyncio.TimerHandle | None = None
        self._status = 0
        self._headers = _NO_HEADERS
        self._events: EventFeed | None = None
        self._patience: Patience | None = None
        self._body: bytes | bytearray = b""
        self._message: Any = None
        self._noise = b""
        """The first event on the stream that is not a message."""
        self._finished = False
        self._in_step = True
        """False after a message that belongs to another request."""
        self._last_id: str | None = None
        self._retry_ms = RETRY_MS

    @property
    def unsent(self) -> bool:
        """Whether the request certainly did not reach the server."""
        return self._last_id is None and (self.carrier is None or not self.carrier.sent)

    def head(self, status: int, headers: Headers) -> None:
        self._status, self._headers, self._finished, self._body = status, headers, False, b""
        self.session = headers.get("mcp-session-id") or self.session
        self._events = None
        if is_stream(status, headers):
            self._patience = self._patience or Patience(MAX_NOISE_BYTES)
            self._events = EventFeed(
                self._event,
                self._too_large,
                self._nothing_but_noise,
                self._talk.limit,
                patience=self._patience,
            )
            self.repeated = False  # The server has accepted these credentials.

    def body(self, data: bytes) -> None:
        if self._events is not None:
            self._events.feed(data)
            return
        # Join the parts at once: many small parts must not become many objects.
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytearray):
            self._body += data
        else:
            self._body = bytearray(self._body) + data
        if len(self._body) > self._talk.limit:
            self._too_large(0, b"")
            self._body = b""
        elif self._status >= 300 and len(self._body) > BODY and not self._is_json():
            carrier = self.carrier  # A long error page: its beginning is enough.
            self.end()
            if carrier is not None:
                carrier.abort()

    def _is_json(self) -> bool:
        return "json" in (self._headers.get("content-type") or "").lower()

    def _event(self, event: SseEvent) -> bool:
        if self._left:
            return False
        if event.id:
            self._last_id = event.id
        if event.retry is not None:
            self._retry_ms = bounded_retry(event.retry)
        if not event.data or event.event != "message":
            return False
        if self._talk.hear(event.data, self):
            return True
        self._noise = self._noise or bytes(event.data[:MAX_REDACTED_BYTES])
        return False

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

    def _too_large(self, size: int, head: bytes) -> None:
        self._fail(SERVER_TOO_LARGE, f"the answer is larger than {self._talk.limit:,} bytes")
        if not size:  # The stream cannot be used any longer.
            self.leave()

    def _nothing_but_noise(self) -> None:
        what = f"the answer carries nothing but noise, {MAX_NOISE_BYTES:,} bytes of it"
        self._talk.warn(what)
        self._fail(SERVER_GARBAGE, what)
        self.leave()

    def trusted(self) -> bool:
        if self._events is None:
            self._message = loaded(self._body)
            if self._status < 300:
                is_response = jsonrpc.classify(self._message) == "response"
                self._in_step = is_response and _is_answer(self._message, self._rid)
            else:
                self._in_step = not _is_of_another_request(self._message, self._rid)
        return self._in_step

    def end(self) -> None:
        self._finished = True
        if self._events is not None:
            reason = "the answer ended before the result"
            if self._noise:
                reason += f"; it {self._unexpected(self._noise)}"
            self._broken(reason, deliberate=True)
            return
        raw, self._body = self._body, b""
        if self._status == 404 and self._talk.in_session:
            error = Unavailable(self._talk.name, SERVER_DIED, "the server ended the session")
            # A 404 for a resumed stream says nothing about the request itself.
            error.unsent = self._last_id is None
            self._talk.waiting.fail(self._rid, error)
            self._talk.end_session()
        elif self._in_step and self._status >= 300:
            self._refused(bytes(raw))
        elif self._in_step:
            self._message["id"] = self._rid
            self._talk.waiting.resolve(self._message)
        elif jsonrpc.classify(self._message) == "response":
            self._fail(SERVER_GARBAGE, "answered another request than the one it was asked")
        else:
            self._fail(SERVER_GARBAGE, self._unexpected(raw))

    def _refused(self, body: bytes) -> None:
        talk = self._talk
        error = refusal(
            talk.name, self._status, self._headers, body, talk.secrets, other_type="sse"
        )
        if self._left or not self.is_repeated_after(error):
            talk.waiting.fail(self._rid, error)
        else:
            self.carrier = None  # The server did not act on the request.

    def _unexpected(self, raw: bytes | bytearray) -> str:
        return unexpected(
            "a JSON-RPC response", self._status, self._headers, bytes(raw), self._talk.secrets
        )

    def failed(self, error: Exception) -> None:
        self._finished = True
        if isinstance(error, Crowded):
            self._talk.waiting.fail(self._rid, unsent(self._talk.name, str(error), OVERLOADED))
        elif isinstance(error, ConnectionLost) and not error.sent:
            problem = self._talk.unreachable(error)
            problem.unsent = self._last_id is None  # Otherwise it was sent before.
            self._talk.waiting.fail(self._rid, problem)
        else:
            self._broken(str(error) or "the connection broke", deliberate=False)

    def _broken(self, reason: str, *, deliberate: bool) -> None:
        """The stream has ended without a response.

        Resume it if the server gave event ids. Otherwise the request has failed.
        """
        if self._wait.future.done() or self._left:
            return
        if self._last_id is not None and not self._talk.modern and self._status == 200:
            if deliberate and self._wait.meanwhile is not None:
                self._wait.meanwhile.paused(self._retry_ms)
            self._polling = asyncio.get_running_loop().call_later(self._retry_ms / 1000, self.start)
        else:
            self._fail(SERVER_DIED, reason)

    def send(self) -> None:
        """Send the request again, or ask for the rest of its response."""
        self._finished = False
        if self._last_id is None:
            self.carrier = self._talk.repeat(self)
        else:
            self.carrier = self._talk.get(self._last_id, self)

    def unproved(self, error: RpcError) -> None:
        self._talk.waiting.fail(self._rid, error)

    def _fail(self, code: int, reason: str) -> None:
        self._talk.waiting.fail(self._rid, Unavailable(self._talk.name, code, reason))

    def leave(self) -> None:
        """The request has ended for its caller. The rest of the stream is not needed."""
        self._left = True
        if self._polling is not None:
            self._polling.cancel()
        if self.pending is not None:
            self.pending.cancel()
        if self.carrier is not None and not self._finished:
            self.carrier.abort()


def _is_answer(message: Json, rid: str | int) -> bool:
    """Return whether a response has this id. Only an error may have none."""
    id = message["id"]
    if id is None:
        return message.get("error") is not None
    return type(id) is type(rid) and id == rid


def _is_of_another_request(message: Any, rid: str | int) -> bool:
    """Return whether an HTTP error has the id of another request.

    Ids of mcpx are numbers. Servers that did not read the message send words, such as
    `server-error`.
    """
    if jsonrpc.classify(message) != "response":
        return False
    id = message["id"]
    return isinstance(id, int | float) and not (type(id) is type(rid) and id == rid)


class GetStream(SentRequest):
    """Sink of one GET stream. `ended` is True if the server offers the stream."""

    meanwhile = None

    def __init__(self, talk: "HttpConversation", patience: Patience) -> None:
        super().__init__(talk.proving)
        self._talk = talk
        self._events: EventFeed | None = None
        self._patience = patience
        self._timer: asyncio.TimerHandle | None = None
        self._answer_bytes = 0
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.last_id: str | None = None
        self.retry_ms: int | None = None
        self.has_event = False
        self.has_message = False
        self.fault = ""
        """Why it was ended by the gateway."""
        self.refused: RpcError | None = None
        """The error if the server refused the credentials."""
        self._has_temporary_error = False

    def head(self, status: int, headers: Headers) -> None:
        if is_stream(status, headers):
            self._events = EventFeed(
                self._event,
                self._too_large,
                lambda: self._end_for("carries nothing but noise"),
                self._talk.limit,
                patience=self._patience,
            )
            return
        self._timer = asyncio.get_running_loop().call_later(self._talk.timeout, self.end)
        if status == 404 and self._talk.in_session:
            self._talk.end_session()
        self._has_temporary_error = status >= 500 or status in (408, 429)
        error = refusal(self._talk.name, status, headers, b"")
        if about_us(error):
            self.refused = error

    def body(self, data: bytes) -> None:
        if self._events is None:
            self._answer_bytes += len(data)
            if self._answer_bytes > BODY:
                self.end()
        elif not self.fault:
            self._events.feed(data)

    def _event(self, event: SseEvent) -> bool:
        if self.fault:
            return False
        self.has_event = True
        self.last_id = event.id or self.last_id
        if event.retry is not None:
            self.retry_ms = bounded_retry(event.retry)
        if not event.data or event.event != "message" or not self._talk.hear(event.data, self):
            return False
        self.has_message = True
        return True

    def _too_large(self, size: int, head: bytes) -> None:
        self._end_for(f"carries an event of more than {self._talk.limit:,} bytes")

    def answered(self, message: Json) -> None:
        """A response came, but the stream belongs to no request."""
        self._talk.waiting.strays += 1
        self._end_for("carries answers, which belong on the streams of their requests")

    def _end_for(self, fault: str) -> None:
        self.fault = self.fault or fault
        self.end()

    def end(self) -> None:
        self._end(self._events is not None or self._has_temporary_error)

    def failed(self, error: Exception) -> None:
        if isinstance(error, ConnectionLost) and not error.sent:
            self._talk.unreachable(error)
        self._end(True)

    def _end(self, is_offered: bool) -> None:
        if not self.ended.done():
            self.ended.set_result(is_offered)
        self.abort()

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().abort()


async def listen(talk: "HttpConversation", ready: asyncio.Future[None] | None) -> None:
    """Keep the GET stream of an older server open."""
    last_id: str | None = None
    delay = RETRY_MS / 1000
    patience = Patience(MAX_NOISE_BYTES)
    is_noisy = is_renewed = False
    if ready is not None:
        await asyncio.shield(ready)
    while not talk.lost:
        stream = GetStream(talk, patience)
        try:
            is_offered = await _open_stream(talk, stream, last_id)
            if not is_renewed and await _is_renewed(stream):
                is_renewed = True
                continue
        except Unavailable:  # There are no credentials at present.
            delay = min(delay * 2, LONGEST_RETRY_MS / 1000)
            await asyncio.sleep(delay)
            continue
        if not is_offered:
            return
        is_renewed = False
        last_id = stream.last_id or last_id
        if stream.fault:
            talk.warn(
                f"its stream of notifications {stream.fault}; it is opened again, now and then"
            )
        is_noisy = bool(stream.fault) or (is_noisy and not stream.has_message)
        if not stream.has_event or is_noisy:
            delay = min(delay * 2, LONGEST_RETRY_MS / 1000)
            await asyncio.sleep(delay)
            continue
        delay = RETRY_MS / 1000
        await asyncio.sleep((stream.retry_ms or RETRY_MS) / 1000)


async def _open_stream(talk: "HttpConversation", stream: GetStream, last_id: str | None) -> bool:
    if stream.proving is not None:
        if not stream.proving.ready():
            await stream.proving.get()
        stream.proof = stream.proving.proof
    stream.carrier = talk.get(last_id, stream)
    try:
        return await stream.ended
    finally:
        stream.abort()


async def _is_renewed(stream: GetStream) -> bool:
    """Return whether there are other credentials after a refusal."""
    if stream.refused is None or stream.proving is None or stream.proof is None:
        return False
    return await stream.proving.renewed(stream.proof, stream.refused)
