"""The streams of streamable HTTP: a reply that becomes an event stream only when it must, and can
be taken up again.

Nothing here awaits: whoever has something to say writes it, and a client that is not connected at
the moment finds it when it comes back with `Last-Event-ID` (older era).

What is kept for that is bounded, for each stream and for all of them together, and let go once the
client has said that it has it. What waits to be written is bounded too: a reader that falls behind
misses progress and log messages first; one that goes on like that loses its connection, and comes
back for what is kept.
"""

import heapq
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from mcpx.front.notices import Parcel, encoded
from mcpx.front.visitor import Visitor
from mcpx.model.call import Json
from mcpx.model.errors import Denied, RpcError
from mcpx.wire import era
from mcpx.wire.exchange import Exchange, Line
from mcpx.wire.sse import sse_frame

EVENT_STREAM: Final = (
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
)
REQUEST_ID: Final = "mcpx-request-id"
NAMED: Final = REQUEST_ID.encode() + b": %b\r\n"
"""The header that tells the id of a request."""
PING: Final = b": ping\n\n"
RETRY_MS: Final = 500
"""How soon a client may poll again for a stream that was closed in mid-call, where the server named
no time."""
KEPT_BYTES: Final = 1 << 20
KEPT_EVENTS: Final = 1000
"""What one stream keeps for a client that is away for a moment; always its last event."""
FEW_BYTES: Final = 64 << 10
FEW_EVENTS: Final = 16
"""What is kept for a client that has no GET stream, and did not lose it just now."""
KEPT_BY_ALL: Final = 64 << 20
"""What all streams keep together; beyond it whoever keeps most keeps less."""
SLACK: Final = 1 << 20
"""So much is freed at a time: finding out who keeps most is not done for every event."""
ENTRY: Final = 128
"""What an event weighs in a log beside its bytes, which it may share with others."""
KEPT_FOR: Final = 60.0
"""Seconds within which a client that lost its GET stream comes back; and after which what was
written to it has come through."""
MOST_WAITING: Final = 4 << 20
"""Bytes that may wait to be written to one reader when another event comes; then it is cut off."""


class Shelf:
    """What all logs keep together: bytes that several share are counted once."""

    __slots__ = ("_logs", "size")

    def __init__(self) -> None:
        self.size = 0
        """In bytes."""
        self._logs: dict[EventLog, None] = {}
        """Those that hold something, whoever began first."""

    def put(self, log: "EventLog", parcel: Parcel) -> None:
        self._logs[log] = None
        if not parcel.holders:
            self.size += len(parcel.data)
        parcel.holders += 1
        self.size += ENTRY
        if self.size > KEPT_BY_ALL:
            self._shrink()

    def take(self, log: "EventLog", parcel: Parcel) -> None:
        parcel.holders -= 1
        if not parcel.holders:
            self.size -= len(parcel.data)
        self.size -= ENTRY
        if not log.size:
            self._logs.pop(log, None)

    def _shrink(self) -> None:
        """The oldest of whoever keeps most goes first."""
        largest = [(-log.size, n, log) for n, log in enumerate(self._logs)]
        heapq.heapify(largest)
        while largest and self.size > KEPT_BY_ALL - SLACK:
            _, n, log = largest[0]
            log.drop_oldest()
            if log.size:
                heapq.heapreplace(largest, (-log.size, n, log))
            else:
                heapq.heappop(largest)


class EventLog:
    """Numbered events of one stream, the newest of them kept; what may be missed makes room for the
    rest."""

    __slots__ = ("_chatter", "_kept", "_shelf", "count", "name", "size")

    def __init__(self, name: str, shelf: Shelf) -> None:
        self.name = name
        self.count = 0
        self.size = 0
        """In bytes, of all that is kept, shared or not."""
        self._shelf: Shelf | None = shelf
        self._kept: list[tuple[int, Parcel]] | None = None
        self._chatter: list[tuple[int, Parcel]] | None = None
        """Made with the first event: most sessions never have one."""

    def __len__(self) -> int:
        return len(self._kept or ()) + len(self._chatter or ())

    def add(self, parcel: Parcel, events: int, size: int) -> None:
        """The next event. No more than so many events and bytes are kept with it, but for the last
        one."""
        self.count += 1
        if self._shelf is None:
            return
        if parcel.droppable:
            if self._chatter is None:
                self._chatter = []
            self._chatter.append((self.count, parcel))
        else:
            if self._kept is None:
                self._kept = []
            self._kept.append((self.count, parcel))
        self.size += len(parcel.data) + ENTRY
        self._shelf.put(self, parcel)
        self.trim(events, size)

    def put_back(self, number: int, parcel: Parcel) -> None:
        """An event that was written down elsewhere, with the number it had."""
        self.count = number - 1
        self.add(parcel, KEPT_EVENTS, KEPT_BYTES)

    def newest(self, parcel: Parcel) -> bytes:
        """The event that was just added, as it goes out."""
        return self._frame(self.count, parcel)

    def replay(self, position: int, exchange: Exchange) -> None:
        """Tell what is kept of the events after that one; a reader that does not keep up may miss
        some again."""
        events = sorted(
            [*(self._kept or ()), *(self._chatter or ())]
        )  # no two have the same number
        for number, parcel in events:
            if number > position and not (parcel.droppable and exchange.congested):
                exchange.write(self._frame(number, parcel))

    def release(self, position: int) -> None:
        """Whoever listens has everything up to that one."""
        for events in (self._kept, self._chatter):
            while events and events[0][0] <= position:
                self._drop(events)

    def trim(self, events: int, size: int) -> None:
        while (self.size > size or len(self) > events) and len(self) > 1:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        events = self._chatter or self._kept
        if events:
            self._drop(events)

    def close(self) -> None:
        """Nobody will come for it: nothing is kept from here on."""
        self.release(self.count)
        self._shelf = None

    def _drop(self, events: list[tuple[int, Parcel]]) -> None:
        parcel = events.pop(0)[1]
        self.size -= len(parcel.data) + ENTRY
        if self._shelf is not None:
            self._shelf.take(self, parcel)

    def _frame(self, number: int, parcel: Parcel) -> bytes:
        return sse_frame(parcel.data, id=f"{self.name}-{number}")


def _sent(exchange: Exchange, event: bytes) -> bool:
    """False: its reader is so far behind that its connection was broken off instead."""
    if exchange.congested and exchange.waiting > MOST_WAITING:
        exchange.abort()
        return False
    exchange.write(event)
    return True


def _part(exchange: Exchange) -> None:
    """End a stream whose client has another; what it does not read is not left waiting for it."""
    if exchange.congested:
        exchange.on_disconnect = None
        exchange.abort()
    elif not exchange.closed:
        exchange.end()


class Keeper(Protocol):
    """Whoever keeps streams for clients that come back."""

    shelf: Shelf

    def begun(self, stream: "PostStream") -> None:
        """It is an event stream now, and so can be come back for."""
        ...

    def finished(self, stream: "PostStream") -> None: ...

    def noted(self, stream: "PostStream", number: int, parcel: Parcel) -> None:
        """An event was added to it."""
        ...


class PostStream:
    """One POSTed request: what goes out before the answer, the answer, and whoever reads them at
    the moment."""

    __slots__ = (
        *(
            "_exchange",
            "_keeper",
            "_line",
            "_log",
            "_primed",
            "delivered",
            "done",
            "finished_at",
            "name",
            "opened_at",
        ),
        *("request", "request_id", "started", "visitor"),
    )

    def __init__(
        self,
        exchange: Exchange | None,
        name: str,
        *,
        primed: bool = False,
        request: str | int | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        """`name` is what a client comes back with; the modern era has no resuming, and streams
        without one."""
        self.name = name
        self.request = request
        """The id of the request that is answered here."""
        self.visitor: Visitor | None = None
        """Who waits for it, where it belongs to no session."""
        self.request_id: str | None = None
        """By which people find it in logs; told in a header where it is known in time."""
        self.done = exchange is None
        self.started = False
        """It is an event stream now; before that it may still become a plain JSON reply."""
        self.delivered = False
        """The answer was written to a connection, whole."""
        self.opened_at = time.monotonic()
        self.finished_at = 0.0
        self._exchange = exchange
        self._line: Line | None = None
        self._log: EventLog | None = None
        self._primed = primed
        self._keeper = keeper

    @property
    def attached(self) -> bool:
        return self._exchange is not None and not self._exchange.closed

    @property
    def congested(self) -> bool:
        """Its reader does not keep up."""
        return self._exchange is not None and self._exchange.congested

    @property
    def size(self) -> int:
        """What is kept of it, in bytes."""
        if self._log is None:
            return 0
        return self._log.size

    @property
    def taken(self) -> bool:
        """The socket has all of a delivered answer, or is gone."""
        if self._line is not None and not self._line.waiting:
            self._line = None
        return self._line is None

    def detach(self) -> None:
        self._exchange = None

    def send(self, message: Json) -> None:
        """Something that must go out before the answer."""
        if self.done:
            return
        self._start()
        self._write(Parcel.of(message))

    def finish(self, reply: Json, error: RpcError | None = None) -> None:
        """`error`: the one that the reply tells, if it does."""
        if self.done:
            return
        self.done = True
        if (
            not self.started
        ):  # a client that has left knows of no stream that it could come back for
            exchange, self._exchange = self._exchange, None  # they hold each other
            if exchange is None:
                pass
            elif isinstance(error, Denied) and error.http_status is not None:
                refuse(exchange, reply, error, self._named())
            else:
                # An id is made of letters and digits (`model.requests`), so it can stand in a
                # header as it is.
                if self.request_id is None:
                    line = b""
                else:
                    line = NAMED % self.request_id.encode()
                exchange.reply(200 if self.name else _status(reply), encoded(reply), line=line)
            return
        self._write(Parcel(encoded(reply)))
        self._end()
        if self._keeper is not None:
            self._keeper.finished(self)

    def ping(self) -> None:
        """Keep a silent stream open through proxies that close what is idle."""
        if not self.done and self.attached and not self.congested:
            self._start()
            if self._exchange is not None:
                self._exchange.write(PING)

    def pause(self, retry_ms: int) -> None:
        """Close the stream in mid-call; the client polls for the rest. Only 2025-11-25 knows
        this."""
        if not self.done and self._primed and self.attached:
            self._start(retry_ms)
            assert self._exchange is not None
            self._exchange.end()
            self._exchange = None

    def resume(self, exchange: Exchange, position: int) -> None:
        """A client that came back; what it has by its own word is let go."""
        if self._exchange is not None:
            _part(self._exchange)
        self._exchange = exchange
        exchange.stream(200, EVENT_STREAM)
        if self._log is not None:
            self._log.release(position)
            self._log.replay(position, exchange)
        if self.done:
            self._end()
        else:
            exchange.write(PING)

    def put_back(self, events: Iterable[tuple[int, Parcel]], *, done: bool) -> None:
        """Make it what it was elsewhere; if it was not `done` there, it still is not."""
        self._log = EventLog(self.name, Shelf() if self._keeper is None else self._keeper.shelf)
        for number, parcel in events:
            self._log.put_back(number, parcel)
        self.done, self.started = done, True
        self.finished_at = time.monotonic()
        if self._keeper is not None:
            self._keeper.begun(self)
            if done:
                self._keeper.finished(self)

    def let_go(self) -> None:
        """Nobody can come back for it any more."""
        if self._log is not None:
            self._log.close()

    def _start(self, retry_ms: int = RETRY_MS) -> None:
        if self.started:
            return
        self.started = True
        if self._keeper is not None:
            self._keeper.begun(self)
        if self._exchange is not None:
            self._exchange.stream(200, (*EVENT_STREAM, *self._named()))
            if self._primed:
                self._exchange.write(sse_frame(b"", id=f"{self.name}-0", retry=retry_ms))

    def _named(self) -> Sequence[tuple[str, str]]:
        if self.request_id is None:
            return ()
        return ((REQUEST_ID, self.request_id),)

    def _write(self, parcel: Parcel) -> None:
        if self.name and self._log is None:
            self._log = EventLog(self.name, Shelf() if self._keeper is None else self._keeper.shelf)
        if self._log is not None:
            self._log.add(parcel, KEPT_EVENTS, KEPT_BYTES)
            if self._keeper is not None:
                self._keeper.noted(self, self._log.count, parcel)
        exchange = self._exchange
        if exchange is None or exchange.closed:
            return
        if not _sent(
            exchange, sse_frame(parcel.data) if self._log is None else self._log.newest(parcel)
        ):
            self._exchange = None
            if self.name:  # else it is how a modern call hears that its client is gone
                exchange.on_disconnect = None

    def _end(self) -> None:
        self.finished_at = time.monotonic()
        exchange = self._exchange
        if exchange is not None and not exchange.closed:
            self.delivered = True
            self._line = exchange.line
            exchange.end()


def refuse(
    exchange: Exchange, reply: Json, denied: Denied, headers: Sequence[tuple[str, str]] = ()
) -> None:
    """In either era: 429 or 503, and when to come again."""
    seconds = str(max(1, math.ceil(denied.retry_after or 0)))
    exchange.reply(
        denied.http_status or 503, encoded(reply), headers=[("retry-after", seconds), *headers]
    )


def _status(reply: Json) -> int:
    """Modern era: an error travels under the HTTP status of its code."""
    if "error" in reply:
        return era.HTTP_STATUS.get(reply["error"]["code"], 200)
    return 200


def _unnoted(number: int, parcel: Parcel | None, sent: int) -> None:
    """Nobody else could go on with this session."""


class PushStream:
    """What belongs to no request: on the client's GET stream when there is one, a little kept when
    there is not."""

    __slots__ = ("_exchange", "_listened", "_log", "_marked", "_marked_at", "_noted", "_sent")

    def __init__(
        self, shelf: Shelf, noted: Callable[[int, Parcel | None, int], None] = _unnoted
    ) -> None:
        """`noted` hears of each event: its number, and up to which number they were written to a
        connection; also when only the latter has changed."""
        self._log = EventLog("push", shelf)
        self._noted = noted
        self._sent = 0
        self._marked = 0
        self._marked_at = 0.0
        """What was written by then."""
        self._listened = 0.0
        """When there last was somebody; never, most often."""
        self._exchange: Exchange | None = None

    @property
    def attached(self) -> bool:
        return self._exchange is not None and not self._exchange.closed

    def send(self, parcel: Parcel) -> None:
        exchange = self._exchange
        if exchange is None or exchange.closed:
            self._exchange = None
            if self._listened and time.monotonic() - self._listened < KEPT_FOR:
                self._log.add(parcel, KEPT_EVENTS, KEPT_BYTES)
            else:
                self._log.add(parcel, FEW_EVENTS, FEW_BYTES)
            self._noted(self._log.count, parcel, self._sent)
            return
        if parcel.droppable and exchange.congested:
            return
        self._listened = time.monotonic()
        self._log.add(parcel, KEPT_EVENTS, KEPT_BYTES)
        if _sent(exchange, self._log.newest(parcel)):
            self._sent = self._log.count
        else:
            self._exchange = None
        self._noted(self._log.count, parcel, self._sent)

    def put_back(self, events: Iterable[tuple[int, Parcel]], sent: int, onwards: int) -> None:
        """What was said elsewhere, and how much of it was written; the next number is greater than
        `onwards`."""
        for number, parcel in events:
            self._log.put_back(number, parcel)
        self._sent = sent
        self._log.count = max(self._log.count, onwards)
        self._listened = time.monotonic()

    def attach(self, exchange: Exchange, position: int | None) -> None:
        """The newest GET wins: a half-dead old one must not block the client for minutes."""
        self.close()
        self._exchange = exchange
        self._listened = time.monotonic()
        exchange.stream(200, EVENT_STREAM)
        exchange.write(PING)
        if position is None:
            position = self._sent
        else:
            self._log.release(position)
        self._log.replay(position, exchange)
        self._sent = self._log.count
        self._noted(self._log.count, None, self._sent)

    def tend(self, now: float) -> None:
        """A sign of life to who is there; nothing old is kept for them, and not much for who is
        not."""
        exchange = self._exchange
        if exchange is None or exchange.closed:
            self._exchange = None
            if now - self._listened >= KEPT_FOR:
                self._log.trim(FEW_EVENTS, FEW_BYTES)
            return
        self._listened = now
        if not exchange.congested:
            exchange.write(PING)
            if self._log.size and now - self._marked_at >= KEPT_FOR:
                self._log.release(self._marked)
                self._marked, self._marked_at = self._sent, now

    def close(self) -> None:
        if self._exchange is not None:
            _part(self._exchange)
        self._exchange = None

    def end(self) -> None:
        """Nobody can come for it any more."""
        self.close()
        self._log.close()
        self._noted = (
            _unnoted  # A method of the session, which would otherwise be part of a reference cycle.
        )
