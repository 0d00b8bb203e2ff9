"""What becomes of the replies of a streamable HTTP server: one sink for each kind of request, for
`transports.http`.

Promise: a reply counts only under the id that was asked on its very request; anything else fails
that request and ends the connection, which may be out of step. Whatever comes that is no message is
bounded in bytes, and what wants no reply in time too.
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
    RpcError,
    Unavailable,
)
from mcpx.transports.refusals import BODY, refusal, unexpected
from mcpx.wire import codec, jsonrpc
from mcpx.wire.exchange import Headers
from mcpx.wire.framing import Patience
from mcpx.wire.http_client import Abortable, ConnectionLost, Crowded
from mcpx.wire.peer import Wait
from mcpx.wire.sse import SseEvent, SseReader
from mcpx.wire.words import MAX_REDACTED_BYTES

if TYPE_CHECKING:
    from mcpx.auth.credentials import Proof
    from mcpx.transports.http import HttpConversation

log = logging.getLogger(__name__)

RETRY_MS = 1000
"""How long to wait before a stream is resumed when the server named no `retry`."""
SHORTEST_RETRY_MS = 500
LONGEST_RETRY_MS = 30_000
"""Between these a server may choose: it cannot make us poll it without a pause, nor wait for
ever."""
NOISE = 2**20
"""Bytes of comments, ids, blank lines and nonsense that a stream may carry from one message to the
next."""


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
    """The stream of one request: a JSON body, or events up to the response, resumed where the
    server allows it."""

    __slots__ = (
        *(
            "_body",
            "_events",
            "_finished",
            "_headers",
            "_in_step",
            "_last_id",
            "_left",
            "_message",
            "_noise",
        ),
        *("_patience",),
        *(
            "_polling",
            "_retry_ms",
            "_rid",
            "_status",
            "_talk",
            "_wait",
            "asked",
            "carrier",
            "meanwhile",
        ),
        *("pending", "proof", "repeated", "session"),
    )

    def __init__(self, talk: "HttpConversation", rid: str | int, wait: Wait) -> None:
        self._talk = talk
        self._rid = rid
        self._wait = wait
        self.meanwhile = wait.meanwhile
        self.carrier: Abortable | None = None
        self.session: str | None = None
        self.proof: Proof | None = None
        self.repeated = False
        self.pending: asyncio.Task[Any] | None = None
        self.asked: tuple[str, Json, Json, bytes] = ("", {}, {}, b"")
        """Method, params and message, where it may have to be sent again with another proof."""
        self._left = False
        self._polling: asyncio.TimerHandle | None = None
        self._status = 0
        self._headers = _NO_HEADERS
        self._events: SseReader | None = None
        self._patience: Patience | None = None
        self._body: bytes | bytearray = b""
        self._message: Any = None
        self._noise = b""
        """The first event on the stream that is not a message."""
        self._finished = False
        self._in_step = True
        """Nothing came but what belongs to this request."""
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
            self._events = SseReader(self._event, limit=self._talk.limit, on_skipped=self._skipped)
            self._patience = self._patience or Patience(NOISE)
            self.repeated = False  # this proof was taken; the stream may outlive it

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
        elif (
            self._status >= 300 and len(self._body) > BODY and not self._is_json()
        ):  # a page, and a long one
            carrier = self.carrier
            self.end()
            if carrier is not None:
                carrier.abort()

    def _is_json(self) -> bool:
        return "json" in (self._headers.get("content-type") or "").lower()

    def _event(self, event: SseEvent) -> None:
        if self._left:
            return
        if event.id:
            self._last_id = event.id
        if event.retry is not None:
            self._retry_ms = bounded_retry(event.retry)
        if not event.data or event.event != "message":
            return
        if not self._talk.hear(event.data, self):
            self._noise = self._noise or bytes(event.data[:MAX_REDACTED_BYTES])
        elif self._patience:
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
                self._in_step = jsonrpc.classify(self._message) == "response" and _is_answer(
                    self._message, self._rid
                )
            else:
                self._in_step = not _is_anothers(self._message, self._rid)
        return self._in_step

    def end(self) -> None:
        self._finished = True
        if self._events is not None:
            reason = "the answer ended before the result"
            self._broken(
                f"{reason}; it {self._unexpected(self._noise)}" if self._noise else reason,
                deliberate=True,
            )
            return
        raw, self._body = self._body, b""
        if self._status == 404 and self._talk.in_session:
            error = Unavailable(self._talk.name, SERVER_DIED, "the server ended the session")
            error.unsent = (
                self._last_id is None
            )  # a 404 to a resumed stream says nothing of the request itself
            self._talk.waiting.fail(self._rid, error)
            self._talk.end_session()
        elif self._in_step and self._status >= 300:
            error = refusal(
                self._talk.name,
                self._status,
                self._headers,
                bytes(raw),
                self._talk.secrets,
                other_type="sse",
            )
            proving = self._talk.proving
            if proving is None or self._left or not proving.refused(self, error):
                self._talk.waiting.fail(self._rid, error)
            else:
                self.carrier = None  # nothing was done about it
        elif self._in_step:
            self._message["id"] = self._rid
            self._talk.waiting.resolve(self._message)
        elif jsonrpc.classify(self._message) == "response":
            self._fail(SERVER_GARBAGE, "answered another request than the one it was asked")
        else:
            self._fail(SERVER_GARBAGE, self._unexpected(raw))

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
            problem.unsent = self._last_id is None  # else it was polled for, and sent long ago
            self._talk.waiting.fail(self._rid, problem)
        else:
            self._broken(str(error) or "the connection broke", deliberate=False)

    def _broken(self, reason: str, *, deliberate: bool) -> None:
        """The stream is over without a response: poll it if the server gave event ids, else the
        request failed."""
        if self._wait.future.done() or self._left:
            return
        if self._last_id is not None and not self._talk.modern and self._status == 200:
            if deliberate and self._wait.meanwhile is not None:
                self._wait.meanwhile.paused(self._retry_ms)
            self._polling = asyncio.get_running_loop().call_later(self._retry_ms / 1000, self._poll)
        else:
            self._fail(SERVER_DIED, reason)

    def _poll(self) -> None:
        if self._talk.proving is None:
            self.send()
        else:
            self._talk.proving.start(self)

    def send(self) -> None:
        """Once more: the request, or what is left of its answer."""
        self._finished = False
        again = (
            self._talk.repeat(self)
            if self._last_id is None
            else self._talk.get(self._last_id, self)
        )
        self.carrier = again

    def unproved(self, error: RpcError) -> None:
        self._talk.waiting.fail(self._rid, error)

    def _fail(self, code: int, reason: str) -> None:
        self._talk.waiting.fail(self._rid, Unavailable(self._talk.name, code, reason))

    def leave(self) -> None:
        """The request is over for its caller; whatever the stream still carries is not wanted."""
        self._left = True
        if self._polling is not None:
            self._polling.cancel()
        if self.pending is not None:
            self.pending.cancel()
        if self.carrier is not None and not self._finished:
            self.carrier.abort()


def _is_answer(message: Json, rid: str | int) -> bool:
    """Whether a response is the one to this request: by its id, which only an error may leave
    open."""
    id = message["id"]
    return (type(id) is type(rid) and id == rid) or (
        id is None and message.get("error") is not None
    )


def _is_anothers(message: Any, rid: str | int) -> bool:
    """Whether what came with an HTTP error bears the id of another request. Servers that never
    looked at the message put words there (`server-error`): ours are all numbers."""
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
        self._method, self._body = "POST", b""
        self._answer = 0
        self._refused: RpcError | None = None
        self.proof: Proof | None = None
        self.repeated = False
        self.pending: asyncio.Task[Any] | None = None
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, method: str, body: bytes) -> None:
        self._method, self._body = method, body
        self._timer = asyncio.get_running_loop().call_later(self._talk.timeout, self._give_up)
        if self._talk.proving is None:
            self.send()
        else:
            self._talk.proving.start(self)

    def send(self) -> None:
        self._refused = None
        self._carrier = self._talk.deliver(self._method, self._body, self)

    def unproved(self, error: RpcError) -> None:
        log.debug("[%s] a notification was not sent: %s", self._talk.name, error.message)
        self._over()

    def _give_up(self) -> None:
        if self._carrier is not None:
            self._carrier.abort()
        if self.pending is not None:
            self.pending.cancel()
        self._over()

    def head(self, status: int, headers: Headers) -> None:
        if status >= 400:
            log.debug("[%s] answered a notification with HTTP %d", self._talk.name, status)
            self._refused = refusal(self._talk.name, status, headers, b"")

    def body(self, data: bytes) -> None:
        self._answer += len(data)
        if self._answer > BODY:
            self._give_up()

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        proving = self._talk.proving
        if self._refused is None or proving is None or not proving.refused(self, self._refused):
            self._over()

    def _over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.future.done():
            self.future.set_result(None)
            self._talk.taken(len(self._body))

    def failed(self, error: Exception) -> None:
        if isinstance(error, ConnectionLost) and not error.sent:
            self._talk.unreachable(error)
        self._over()
