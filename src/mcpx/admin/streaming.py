"""Server-sent events, and work that ends when its client disconnects.

A stream ends when its reader disconnects, when the reader's access ends, and when its source ends.
In each case the source is closed. A reader that does not read holds one frame and what the
connection buffers, until the server closes the connection.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel

from mcpx.admin.errors import ApiError
from mcpx.admin.pages import Headers, completed
from mcpx.base.aio import Tasks, first_of
from mcpx.wire.exchange import Exchange

T = TypeVar("T")

BEAT: Final = 15.0
"""Seconds of silence after which a comment is sent, so that both sides notice a dead connection."""
COMMENT: Final = b":\n\n"


def frame(event: str, data: BaseModel, id: str | None = None) -> bytes:
    return framed(event, data.model_dump_json(), id)


def framed(event: str, text: str, id: str | None = None) -> bytes:
    """`text` is one line of JSON."""
    head = f"event: {event}\n"
    if id is not None:
        head = f"id: {id}\n{head}"
    return f"{head}data: {text}\n\n".encode()


async def attended(work: Coroutine[Any, Any, T], gone: asyncio.Event) -> T:
    """The result of `work`. It is cancelled when the client disconnects or loses its access."""
    tasks = Tasks("a request")
    task = tasks.start(work, awaited=True)
    try:
        await first_of(task, gone.wait())
        if not task.done():
            raise ApiError(408, "cancelled", "whoever asked has gone before it was over")
        return task.result()
    finally:
        await tasks.close()


class EventStream:
    media_type: ClassVar = "text/event-stream"
    status: ClassVar = 200

    def __init__(
        self, frames: AsyncGenerator[bytes], on_end: Callable[[], object] = lambda: None
    ) -> None:
        """`on_end` is called when the stream has ended, also if no client read it."""
        self._frames = frames
        self._on_end = on_end

    async def send(self, exchange: Exchange, more: Headers, gone: asyncio.Event) -> None:
        own = {"content-type": f"{self.media_type}; charset=utf-8", "x-accel-buffering": "no"}
        exchange.stream(self.status, completed(own, more))
        exchange.write(b"")
        tasks = Tasks("event stream")
        pump = tasks.start(self._pump(exchange), awaited=True)
        try:
            await first_of(pump, gone.wait())
        finally:
            await tasks.close()
            await self._frames.aclose()
            self._on_end()
        if pump.done() and not pump.cancelled():
            pump.result()  # A truncated stream must not look complete.
        exchange.end()

    async def _pump(self, exchange: Exchange) -> None:
        async for frame in self._frames:
            exchange.write(frame)
            await exchange.drain()
