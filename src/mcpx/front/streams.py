"""The streams of streamable HTTP: a reply that becomes an event stream only when it must, and can be taken up again.

Nothing here awaits: whoever has something to say writes it, and a client that is not connected at the moment
finds it when it comes back with `Last-Event-ID` (older era). What is kept for that is bounded.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from mcpx.model.call import Json
from mcpx.model.errors import INTERNAL_ERROR, RpcError
from mcpx.wire import codec, era, jsonrpc
from mcpx.wire.exchange import Exchange
from mcpx.wire.sse import sse_frame

EVENT_STREAM: Final = (
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
)
PING: Final = b": ping\n\n"
RETRY_MS: Final = 500
"""How soon a client may poll again for a stream that was closed in mid-call, where the server named no time."""
KEPT_BYTES: Final = 1 << 20
KEPT_EVENTS: Final = 1000
"""What one stream keeps for a client that is away."""


def encoded(message: Json) -> bytes:
    """A message as bytes. What cannot be written as JSON becomes an error, never silence."""
    try:
        return codec.dump(message)
    except codec.Unencodable as error:
        problem = RpcError(INTERNAL_ERROR, f"the answer cannot be written as JSON: {error}")
        return codec.dump(jsonrpc.failure(message.get("id"), problem))


class EventLog:
    """Numbered events of one stream, the newest of them kept."""

    __slots__ = ("_bytes", "_kept", "count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self._kept: deque[bytes] | None = None
        """Made with the first event: most sessions never have one."""
        self._bytes = 0

    def add(self, data: bytes) -> bytes:
        self.count += 1
        event = sse_frame(data, id=f"{self.name}-{self.count}")
        if self._kept is None:
            self._kept = deque()
        self._kept.append(event)
        self._bytes += len(event)
        while len(self._kept) > 1 and (self._bytes > KEPT_BYTES or len(self._kept) > KEPT_EVENTS):
            self._bytes -= len(self._kept.popleft())
        return event

    def after(self, position: int) -> list[bytes]:
        missing = max(0, self.count - max(position, 0))
        return list(self._kept)[-missing:] if missing and self._kept else []


class PostStream:
    """One POSTed request: what goes out before the answer, the answer, and whoever reads them at the moment."""

    __slots__ = (
        *("_exchange", "_log", "_on_start", "_primed", "done", "finished_at", "name", "opened_at", "request"),
        "started",
    )

    def __init__(
        self,
        exchange: Exchange | None,
        name: str,
        *,
        primed: bool = False,
        request: str | int | None = None,
        on_start: Callable[["PostStream"], None] = lambda stream: None,
    ) -> None:
        """`name` is what a client comes back with; the modern era has no resuming, and streams without one.
        `on_start` is told when it becomes an event stream, and so can be come back for."""
        self.name = name
        self.request = request
        """The id of the request that is answered here."""
        self.done = exchange is None
        self.started = False
        """It is an event stream now; before that it may still become a plain JSON reply."""
        self.opened_at = time.monotonic()
        self.finished_at = 0.0
        self._exchange = exchange
        self._log: EventLog | None = None
        self._primed = primed
        self._on_start = on_start

    @property
    def attached(self) -> bool:
        return self._exchange is not None and not self._exchange.closed

    @property
    def congested(self) -> bool:
        """Its reader does not keep up."""
        return self._exchange is not None and self._exchange.congested

    def detach(self) -> None:
        self._exchange = None

    def send(self, message: Json) -> None:
        """Something that must go out before the answer."""
        if self.done:
            return
        self._start()
        self._write(encoded(message))

    def finish(self, reply: Json) -> None:
        if self.done:
            return
        self.done = True
        body = encoded(reply)
        if not self.started and self._exchange is not None:
            self._exchange.reply(200 if self.name else _status(reply), body)
            return
        self._write(body)
        self.finished_at = time.monotonic()
        if self._exchange is not None:
            self._exchange.end()

    def ping(self) -> None:
        """Keep a silent stream open through proxies that close what is idle."""
        if not self.done and self.attached:
            self._start()
            if self._exchange is not None:
                self._exchange.write(PING)

    def pause(self, retry_ms: int) -> None:
        """Close the stream in mid-call; the client polls for the rest. Only 2025-11-25 knows this."""
        if not self.done and self._primed and self.attached:
            self._start(retry_ms)
            assert self._exchange is not None
            self._exchange.end()
            self._exchange = None

    def resume(self, exchange: Exchange, position: int) -> None:
        if self._exchange is not None and not self._exchange.closed:
            self._exchange.end()
        self._exchange = exchange
        exchange.stream(200, EVENT_STREAM)
        for event in self._log.after(position) if self._log is not None else ():
            exchange.write(event)
        if self.done:
            exchange.end()
        else:
            exchange.write(PING)

    def _start(self, retry_ms: int = RETRY_MS) -> None:
        if self.started:
            return
        self.started = True
        self._on_start(self)
        if self._exchange is not None:
            self._exchange.stream(200, EVENT_STREAM)
            if self._primed:
                self._exchange.write(sse_frame(b"", id=f"{self.name}-0", retry=retry_ms))

    def _write(self, data: bytes) -> None:
        if self.name and self._log is None:
            self._log = EventLog(self.name)
        event = self._log.add(data) if self._log is not None else sse_frame(data)
        if self._exchange is not None and not self._exchange.closed:
            self._exchange.write(event)


def _status(reply: Json) -> int:
    """Modern era: an error travels under the HTTP status of its code."""
    return era.HTTP_STATUS.get(reply["error"]["code"], 200) if "error" in reply else 200


class PushStream:
    """What belongs to no request: on the client's GET stream when there is one, kept for it when there is not."""

    __slots__ = ("_exchange", "_log", "_sent")

    def __init__(self) -> None:
        self._log = EventLog("push")
        self._sent = 0
        self._exchange: Exchange | None = None

    @property
    def attached(self) -> bool:
        return self._exchange is not None and not self._exchange.closed

    def send(self, message: Json) -> None:
        event = self._log.add(encoded(message))
        if self.attached and self._exchange is not None:
            self._exchange.write(event)
            self._sent = self._log.count

    def attach(self, exchange: Exchange, position: int | None) -> None:
        """The newest GET wins: a half-dead old one must not block the client for minutes."""
        self.close()
        self._exchange = exchange
        exchange.stream(200, EVENT_STREAM)
        exchange.write(PING)
        for event in self._log.after(self._sent if position is None else position):
            exchange.write(event)
        self._sent = self._log.count

    def ping(self) -> None:
        if self.attached and self._exchange is not None:
            self._exchange.write(PING)

    def close(self) -> None:
        if self.attached and self._exchange is not None:
            self._exchange.end()
        self._exchange = None
