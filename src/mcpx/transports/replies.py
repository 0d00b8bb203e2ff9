"""What becomes of the replies of a streamable HTTP server: one sink for each kind of request, for `transports.http`.

Promise: a reply counts only under the id that was asked on its very request; anything else fails that request and ends
the connection, which may be out of step. Whatever comes that is no message is bounded in bytes, and what wants no reply
in time too.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from mcpx.model.call import Json
from mcpx.model.errors import (
    OVERLOADED,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_GARBAGE,
    SERVER_TOO_LARGE,
    Unavailable,
)
from mcpx.transports.refusals import BODY, refusal
from mcpx.wire import codec, jsonrpc
from mcpx.wire.exchange import Headers
from mcpx.wire.framing import Patience
from mcpx.wire.http_client import Abortable, ConnectionLost, Crowded, Pool
from mcpx.wire.peer import Wait
from mcpx.wire.sse import SseEvent, SseReader

if TYPE_CHECKING:
    from mcpx.transports.http import HttpConversation

log = logging.getLogger(__name__)

RETRY_MS = 1000
"""How long to wait before a stream is resumed when the server named no `retry`."""
SHORTEST_RETRY_MS = 500
LONGEST_RETRY_MS = 30_000
"""Between these a server may choose: it cannot make us poll it without a pause, nor wait for ever."""
NOISE = 2**20
"""Bytes of comments, ids, blank lines and nonsense that a stream may carry from one message to the next."""


def unsent(name: str, reason: str, code: int = SERVER_DOWN) -> Unavailable:
    error = Unavailable(name, code, reason)
    error.unsent = True
    return error


def bounded_retry(retry: int) -> int:
    return max(SHORTEST_RETRY_MS, min(retry, LONGEST_RETRY_MS))


def loaded(raw: bytes | bytearray) -> Any:
    """What it says, if that is JSON."""
    try:
        return codec.load(raw)
    except codec.BadJson:
        return None


def is_stream(status: int, headers: Headers) -> bool:
    return status == 200 and (headers.get("content-type") or "").startswith("text/event-stream")


_NO_HEADERS = Headers({})


class Reply:
    """The stream of one request: a JSON body, or events up to the response, resumed where the server allows it."""

    __slots__ = (
        *("_body", "_events", "_finished", "_headers", "_in_step", "_last_id", "_left", "_message", "_patience"),
        *("_polling", "_retry_ms", "_rid", "_status", "_talk", "_wait", "carrier", "meanwhile", "session"),
    )

    def __init__(self, talk: "HttpConversation", rid: str | int, wait: Wait) -> None:
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
            self._message = loaded(self._body)
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


class Delivery:
    """A message that wants no reply, on its way: for so long, and to so many words in return."""

    def __init__(self, talk: "HttpConversation") -> None:
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


class StandingStream:
    """The stream of an older server that belongs to no request. `ended` tells whether the server offers one."""

    meanwhile = None

    def __init__(self, talk: "HttpConversation", patience: Patience) -> None:
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
