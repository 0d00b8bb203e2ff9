"""Server-sent events over ASGI: frames, and an answer that is a stream of them.

Promise: a stream ends when its reader goes, when what let the reader in ends, and when its source
ends; whatever ends it, the source is closed. A reader that does not read holds one frame and what
the connection buffers, until the connection is cut for it (`connection`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcpx.admin.attending import gone
from mcpx.base.aio import Tasks

FAREWELL: Final = 1.0
"""Seconds for the end of the stream to be sent."""
BEAT: Final = 15.0
"""Seconds of silence after which a comment is sent, so that both sides notice a dead connection."""
COMMENT: Final = b":\n\n"


def frame(event: str, data: BaseModel, id: str | None = None) -> bytes:
    return framed(event, data.model_dump_json(), id)


def framed(event: str, text: str, id: str | None = None) -> bytes:
    """`text`: one line of JSON."""
    head = f"event: {event}\n" if id is None else f"id: {id}\nevent: {event}\n"
    return f"{head}data: {text}\n\n".encode()


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncGenerator[bytes], on_end: Callable[[], object] = lambda: None
    ) -> None:
        """`on_end` is called however it ends, also where nobody read anything."""
        self._frames = frames
        self._on_end = on_end
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(headers=headers)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = Tasks("event stream")
        pump = tasks.start(self._pump(send), awaited=True)
        left = tasks.start(gone(receive), awaited=True)
        try:
            await asyncio.wait((pump, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await tasks.close()
            await self._frames.aclose()
            self._on_end()
        if pump.done() and not pump.cancelled():
            pump.result()  # a mistake of ours is answered for above
        try:
            async with asyncio.timeout(FAREWELL):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # the connection is cut, for its answer is not whole

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for frame in self._frames:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
