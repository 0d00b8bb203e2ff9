"""One client of streamable HTTP: an older one's session, and the ways back to a client while its call runs."""

import asyncio
import time

from mcpx.front.audience import Session
from mcpx.front.conversation import DROPPABLE
from mcpx.front.streams import PostStream, PushStream
from mcpx.model.call import Json
from mcpx.model.errors import INTERNAL_ERROR, RpcError
from mcpx.wire import jsonrpc
from mcpx.wire.exchange import Exchange

KEPT_STREAMS = 32
"""Event streams a session keeps for a client that lost its connection; each is bounded too."""


class HttpSession:
    """One older client over streamable HTTP."""

    __slots__ = ("_streams_made", "principal", "pushes", "questions", "running", "seen", "session", "streams")

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.session = Session(self._push)
        self.pushes = PushStream()
        self.running: dict[str | int, asyncio.Task[None]] = {}
        self.streams: dict[str, PostStream] = {}
        """Event streams by the name in their event ids, oldest first; plain JSON replies are not among them."""
        self.questions: dict[str, asyncio.Future[Json]] = {}
        self.seen = asyncio.get_running_loop().time()
        self._streams_made = 0

    def _push(self, method: str, params: Json) -> None:
        self.pushes.send(jsonrpc.notification(method, params or None))

    @property
    def primed(self) -> bool:
        """Older clients choke on the empty event that lets 2025-11-25 resume a stream from its beginning."""
        return self.session.caller.version >= "2025-11-25"

    def stream(self, exchange: Exchange, request: str | int) -> PostStream:
        self._streams_made += 1
        name = f"s{self._streams_made}"
        return PostStream(exchange, name, primed=self.primed, request=request, on_start=self._keep)

    def _keep(self, stream: PostStream) -> None:
        self.streams[stream.name] = stream
        if len(self.streams) > KEPT_STREAMS:
            self.forget_streams(0.0)

    def forget_streams(self, age: float) -> None:
        """Drop finished streams that nobody came back for within `age` seconds."""
        now = time.monotonic()
        for name in [name for name, kept in self.streams.items() if kept.done and now - kept.finished_at >= age]:
            del self.streams[name]

    @property
    def busy(self) -> bool:
        """Something runs, or the client listens."""
        return bool(self.running) or self.pushes.attached

    def end(self) -> None:
        self.pushes.close()
        for task in self.running.values():
            task.cancel()
        for future in self.questions.values():
            future.cancel()


class PostVoice:
    """The way back to an older client, on the stream of the call that caused it (`model.call.Voice`); without one, or
    when it is done, on its GET stream."""

    __slots__ = ("_owner", "_stream")

    def __init__(self, owner: HttpSession, stream: PostStream | None = None) -> None:
        self._owner = owner
        self._stream = stream

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        owner = self._owner
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
            self._owner.pushes.send(message)
        else:
            self._stream.send(message)


class ModernVoice:
    """The way back to a modern client: notifications on its own request's stream, and no questions."""

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
