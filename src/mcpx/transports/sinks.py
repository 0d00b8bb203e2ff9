"""Parts of the sinks that receive HTTP responses of a server: for streamable HTTP and for HTTP+SSE.

A response that nobody waits for is limited in time and bytes. An event stream is limited in the
size of an event and in the bytes between two messages.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpx.model.errors import SERVER_DOWN, SERVER_TIMEOUT, RpcError, Unavailable
from mcpx.transports.refusals import BODY
from mcpx.wire.exchange import Headers
from mcpx.wire.framing import Patience
from mcpx.wire.http_client import Abortable, ConnectionLost
from mcpx.wire.sse import SseEvent, SseReader

if TYPE_CHECKING:
    from mcpx.auth.credentials import Proof
    from mcpx.transports.proving import Proving

MAX_NOISE_BYTES: Final = 2**20
"""Bytes of comments, ids, blank lines, and unusable data that a stream may carry between two
messages."""


class SentRequest:
    """One HTTP request. It may wait for credentials, and be repeated with other credentials."""

    __slots__ = ("carrier", "pending", "proof", "proving", "repeated")

    def __init__(self, proving: "Proving | None") -> None:
        """`proving` is None if the server needs no credentials."""
        self.proving = proving
        self.carrier: Abortable | None = None
        self.proof: Proof | None = None
        """The credentials that it was last sent with."""
        self.repeated = False
        self.pending: asyncio.Task[Any] | None = None
        """The task that waits for credentials."""

    def start(self) -> None:
        if self.proving is None:
            self.send()
        else:
            self.proving.start(self)

    def send(self) -> None:
        """Send it with the current headers of the conversation."""
        raise NotImplementedError

    def unproved(self, error: RpcError) -> None:
        """There are no credentials, so it is not sent, or not sent again."""
        raise NotImplementedError

    def is_repeated_after(self, error: RpcError) -> bool:
        """Return True if the server refused the credentials and the request is sent again."""
        return self.proving is not None and self.proving.refused(self, error)

    def abort(self) -> None:
        if self.pending is not None and self.pending is not asyncio.current_task():
            self.pending.cancel()
        if self.carrier is not None:
            self.carrier.abort()

    def trusted(self) -> bool:
        return True


class ErrorBody:
    """The beginning of a response that is not the expected one."""

    def __init__(self, status: int, headers: Headers) -> None:
        self.status = status
        self.headers = headers
        self.content = b""

    def add(self, data: bytes) -> None:
        self.content += data[: BODY - len(self.content)]


class Uploader(Protocol):
    """A conversation that sends messages to which the server does not respond with a message."""

    @property
    def name(self) -> str: ...

    @property
    def timeout(self) -> float: ...

    def post(self, upload: "Upload") -> Abortable: ...

    def refused(self, response: ErrorBody) -> RpcError: ...

    def uploaded(self, upload: "Upload", problem: RpcError | None) -> None:
        """Called once for each upload."""
        ...

    def unreachable(self, error: ConnectionLost) -> Unavailable:
        """No connection could be made. Called after `uploaded`."""
        ...


class Upload(SentRequest):
    """A message whose response has no content, for example a notification."""

    def __init__(
        self, talk: Uploader, proving: "Proving | None", body: bytes, method: str = "POST"
    ) -> None:
        super().__init__(proving)
        self.method = method
        self.body_sent = body
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._talk = talk
        self._timer: asyncio.TimerHandle | None = None
        self._is_taken = False
        self._refusal: ErrorBody | None = None
        self._answer_bytes = 0

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._talk.timeout, self._expire)
        super().start()

    def send(self) -> None:
        self._is_taken, self._refusal, self._answer_bytes = False, None, 0
        self.carrier = self._talk.post(self)

    def unproved(self, error: RpcError) -> None:
        self._finish(error)

    def head(self, status: int, headers: Headers) -> None:
        self._is_taken = True
        if status >= 300:
            self._refusal = ErrorBody(status, headers)

    def body(self, data: bytes) -> None:
        self._answer_bytes += len(data)
        if self._refusal is not None:
            self._refusal.add(data)
        if self._answer_bytes > BODY:
            if self.carrier is not None:
                self.carrier.abort()
            self.end()

    def end(self) -> None:
        problem = self._problem()
        if problem is None or not self.is_repeated_after(problem):
            self._finish(problem)

    def failed(self, error: Exception) -> None:
        reason = str(error) or "the connection broke"
        problem = Unavailable(self._talk.name, SERVER_DOWN, reason)
        if not isinstance(error, ConnectionLost) or error.sent:
            self._finish(problem)
            return
        problem.unsent = True
        self._finish(problem)
        self._talk.unreachable(error)

    def _expire(self) -> None:
        self.abort()
        problem = self._problem()
        if not self._is_taken:
            what = f"did not take the message within {self._talk.timeout:g} s"
            problem = Unavailable(self._talk.name, SERVER_TIMEOUT, what)
        self._finish(problem)

    def _problem(self) -> RpcError | None:
        return self._talk.refused(self._refusal) if self._refusal is not None else None

    def _finish(self, problem: RpcError | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.done.done():
            self.done.set_result(None)
            self._talk.uploaded(self, problem)


class EventFeed:
    """Reads an event stream within its limits."""

    def __init__(
        self,
        on_event: Callable[[SseEvent], bool],
        on_too_large: Callable[[int, bytes], bool | None],
        on_noise: Callable[[], None],
        limit: int,
        *,
        patience: Patience | None = None,
        endless: int = 0,
    ) -> None:
        """`on_event` returns True for a message. `on_too_large` receives the size and the beginning
        of an event over the limit, and returns True if it was a message. The size is 0 if the event
        has `endless` bytes more than the limit and has not ended."""
        self._on_event = on_event
        self._on_too_large = on_too_large
        self._on_noise = on_noise
        self._max_bytes = limit + endless
        self._patience = patience or Patience(MAX_NOISE_BYTES)
        self._reader = SseReader(self._event, limit=limit, on_skipped=self._skipped)

    def feed(self, data: bytes) -> None:
        self._reader.feed(data)
        pending = self._reader.unfinished
        if pending > self._max_bytes:
            self._on_too_large(0, b"")
        elif self._patience.lost(len(data), pending):
            self._on_noise()

    def _event(self, event: SseEvent) -> None:
        if self._on_event(event):
            self._patience.message()

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        if self._on_too_large(size, head):
            self._patience.message()
