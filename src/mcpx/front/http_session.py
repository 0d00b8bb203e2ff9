"""One client of streamable HTTP: an older one's session, and the ways back to a client while its
call runs."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from mcpx.front.audience import Session
from mcpx.front.notices import DROPPABLE, Notice, Parcel
from mcpx.front.streams import PostStream, PushStream, Shelf
from mcpx.front.turns import Turns
from mcpx.front.visitor import Visitor
from mcpx.model.call import Json
from mcpx.model.errors import INTERNAL_ERROR, OVERLOADED, RpcError
from mcpx.wire import jsonrpc
from mcpx.wire.exchange import Exchange

if TYPE_CHECKING:
    from mcpx.front.sessions import Client

KEPT_STREAMS = 32
"""Finished event streams a session keeps for a client that lost its connection."""
READ_BYTES: Final = 1 << 20
UNREAD_BYTES: Final = 16 << 20
"""What it keeps of those whose answer was written to a connection, whether or not the client still
had it, and of those whose client was away; always the last one of either."""


MOST_QUESTIONS: Final = 100
"""Questions that may wait for one client's answer."""


class Journal(Protocol):
    """What another gateway would need to know of the streams of a session."""

    def begun(self, stream: str, request: str | int) -> None:
        """The answer to a request is an event stream now."""
        ...

    def event(
        self, stream: str, request: str | int | None, number: int, parcel: Parcel, *, last: bool
    ) -> None: ...

    def pushed(self, number: int, parcel: Parcel | None, sent: int) -> None:
        """On the GET stream: an event, if there is one, and up to which number they were written to
        a connection."""
        ...


@dataclass(slots=True)
class Told:
    """One stream as it was written down elsewhere."""

    events: list[tuple[int, Parcel]] = field(default_factory=list[tuple[int, Parcel]])
    request: str | int | None = None
    """The request that it answers; None: that is not known any more."""
    done: bool = False


class HttpSession:
    """One older client over streamable HTTP (a `Keeper` of its streams)."""

    __slots__ = (
        *(
            "_ended",
            "_finished",
            "_streams_made",
            "calls",
            "client",
            "fresh",
            "journal",
            "life",
            "lost",
            "moved",
        ),
        *(
            "pushes",
            "questions",
            "running",
            "seen",
            "session",
            "shelf",
            "streams",
            "taken_up",
            "visitor",
            "weight",
        ),
    )

    def __init__(
        self,
        visitor: Visitor,
        client: "Client",
        shelf: Shelf,
        weight: int = 0,
        id: str | None = None,
    ) -> None:
        self.visitor = visitor
        self.client = client
        self.shelf = shelf
        self.weight = weight
        """What the client said of itself and is kept, in bytes."""
        self.session = Session(self._push, id)
        self.journal: Journal | None = None
        """Where others find what it takes to go on with it; None: nobody else could."""
        self.life = 0
        """How often it was gone on with elsewhere."""
        self.lost = False
        """Another gateway has it now, and thinks that this one is gone."""
        self.taken_up: asyncio.Task[None] | None = None
        """Tells servers what the client had asked of them, where another gateway began it."""
        self.pushes = PushStream(shelf, self._noted_push)
        self.running: dict[str | int, asyncio.Task[None]] = {}
        self.streams: dict[str, PostStream] = {}
        """Event streams by the name in their event ids; plain JSON replies are not among them."""
        self._finished: dict[str, PostStream] = {}
        """Those of them that are over, in the order in which they ended."""
        self.questions: dict[str, asyncio.Future[Json]] = {}
        self.seen = self.moved = asyncio.get_running_loop().time()
        """When it was last used, and when its place among all was last seen to."""
        self.fresh = True
        """The client has sent nothing since `initialize`."""
        self.calls = 0
        """Calls of tools, prompts, and resources since the session began."""
        self._streams_made = 0
        self._ended = False

    def _push(self, notice: Notice) -> None:
        if (parcel := notice.parcel) is not None:
            self.pushes.send(parcel)

    @property
    def primed(self) -> bool:
        """Older clients choke on the empty event that lets 2025-11-25 resume a stream from its
        beginning."""
        return self.session.caller.version >= "2025-11-25"

    def stream(self, exchange: Exchange, request: str | int) -> PostStream:
        self._streams_made += 1
        # Another gateway may have made streams of this session, and the names of those last are not
        # known.
        if self.life:
            name = f"s{self.life}x{self._streams_made}"
        else:
            name = f"s{self._streams_made}"
        return PostStream(exchange, name, primed=self.primed, request=request, keeper=self)

    def begun(self, stream: PostStream) -> None:
        if not self._ended:
            self.streams[stream.name] = stream
            if self.journal is not None and stream.request is not None:
                self.journal.begun(stream.name, stream.request)

    def noted(self, stream: PostStream, number: int, parcel: Parcel) -> None:
        if self.journal is not None:
            self.journal.event(stream.name, stream.request, number, parcel, last=stream.done)

    def _noted_push(self, number: int, parcel: Parcel | None, sent: int) -> None:
        if self.journal is not None:
            self.journal.pushed(number, parcel, sent)

    def finished(self, stream: PostStream) -> None:
        if stream.name not in self.streams:  # it outlived its session
            stream.let_go()
            return
        self._finished[stream.name] = stream
        for delivered, most in ((True, READ_BYTES), (False, UNREAD_BYTES)):
            alike = [kept for kept in self._finished.values() if kept.delivered is delivered]
            size = sum([kept.size for kept in alike])
            for kept in alike[:-1]:
                if size > most:
                    size -= kept.size
                    self._forget(kept)
        if len(self._finished) > KEPT_STREAMS:
            over = self._finished.values()
            self._forget(next((kept for kept in over if kept.delivered), next(iter(over))))

    def put_back(self, life: int, streams: Mapping[str, Told], sent: int) -> list[PostStream]:
        """Make it what it was elsewhere. Streams whose calls were cut off, and have to be
        answered."""
        self.life = life
        self.session.go_on_asking(life << 32)
        cut: list[PostStream] = []
        pushed: list[tuple[int, Parcel]] = []
        for name, told in streams.items():
            if name == "push":
                pushed = told.events
                continue
            stream = PostStream(None, name, primed=self.primed, request=told.request, keeper=self)
            lost = not told.done and told.request is not None
            stream.put_back(told.events, done=not lost)
            if lost:
                cut.append(stream)
        # Numbers that were given out last may not have been written down: the next are far from
        # them.
        self.pushes.put_back(pushed, sent, life << 32)
        return cut

    def tend(self, unread: float, read: float) -> None:
        """Keep a silent GET stream open. Drop finished streams that nobody came back for within so
        many seconds."""
        now = time.monotonic()
        self.pushes.tend(now)
        for stream in list(self._finished.values()):
            if not stream.taken:
                stream.finished_at = now
            elif now - stream.finished_at >= (read if stream.delivered else unread):
                self._forget(stream)

    def _forget(self, stream: PostStream) -> None:
        stream.let_go()
        self._finished.pop(stream.name, None)
        self.streams.pop(stream.name, None)

    @property
    def busy(self) -> bool:
        """Something runs, or the client listens."""
        return bool(self.running) or self.pushes.attached

    def end(self) -> None:
        self._ended = True
        self.pushes.end()
        for stream in list(self.streams.values()):
            self._forget(stream)
        for future in self.questions.values():
            future.cancel()
        Turns().do(map(_cancel, list(self.running.values())))
        # we hold each other: what the client said of itself would wait for the collector
        self.session.close()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


class PostVoice:
    """The way back to an older client, on the stream of the call that caused it
    (`model.call.Voice`); without one, or when it is done, on its GET stream."""

    __slots__ = ("_owner", "_stream")

    def __init__(self, owner: HttpSession, stream: PostStream | None = None) -> None:
        self._owner = owner
        self._stream = stream

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        owner = self._owner
        if len(owner.questions) >= MOST_QUESTIONS:
            raise RpcError(
                OVERLOADED,
                f"{MOST_QUESTIONS} questions wait for this client's answer, no more are put",
            )
        rid = owner.session.question_id(server)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        owner.questions[rid] = answer
        self._send(jsonrpc.request(rid, method, params))
        try:
            return await answer
        except asyncio.CancelledError:
            self._send(jsonrpc.notification("notifications/cancelled", {"requestId": rid}))
            raise
        finally:
            owner.questions.pop(rid, None)

    def tell(self, method: str, params: Json) -> None:
        if method not in DROPPABLE or self._stream is None or not self._stream.congested:
            self._send(jsonrpc.notification(method, params))

    def pause(self, retry_ms: int) -> None:
        if self._stream is not None:
            self._stream.pause(retry_ms)

    def _send(self, message: Json) -> None:
        if self._stream is None or self._stream.done:
            self._owner.pushes.send(Parcel.of(message))
        else:
            self._stream.send(message)


class ModernVoice:
    """The way back to a modern client: notifications on its own request's stream, and no
    questions."""

    __slots__ = ("_stream",)

    def __init__(self, stream: PostStream) -> None:
        self._stream = stream

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        raise RpcError(INTERNAL_ERROR, "modern clients are asked through results")

    def tell(self, method: str, params: Json) -> None:
        if method not in DROPPABLE or not self._stream.congested:
            self._stream.send(jsonrpc.notification(method, params))

    def pause(self, retry_ms: int) -> None:
        """The modern era has no resuming; its stream stays open."""
