"""Server-sent events over ASGI, and work that ends when its client disconnects.

A stream ends when its reader disconnects, when the reader's access ends, and when its source ends.
In each case the source is closed. A reader that does not read holds one frame and what the
connection buffers, until the server closes the connection.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcpx.admin.errors import ApiError
from mcpx.base.aio import Tasks

T = TypeVar("T")

STREAM: Final = "text/event-stream"
SCHEMA: Final = "#/components/schemas/{model}"
FAREWELL: Final = 1.0
"""Seconds for sending the end of the stream."""
BEAT: Final = 15.0
"""Seconds of silence after which a comment is sent, so that both sides notice a dead connection."""
COMMENT: Final = b":\n\n"


def streams(shapes: type[BaseModel], description: str) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: the data of its events, by their names."""
    schema = {"$ref": SCHEMA.format(model=shapes.__name__)}
    return {200: {"description": description, "content": {STREAM: {"schema": schema}}}}


def frame(event: str, data: BaseModel, id: str | None = None) -> bytes:
    return framed(event, data.model_dump_json(), id)


def framed(event: str, text: str, id: str | None = None) -> bytes:
    """`text` is one line of JSON."""
    head = f"event: {event}\n"
    if id is not None:
        head = f"id: {id}\n{head}"
    return f"{head}data: {text}\n\n".encode()


async def attended(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """The result of `work`. It is cancelled when the client disconnects or loses its access."""
    tasks = Tasks("a request")
    task: asyncio.Task[T] = tasks.start(work, awaited=True)
    try:
        await _until_gone(tasks, task, receive)
        if not task.done():
            raise ApiError(408, "cancelled", "whoever asked has gone before it was over")
        return task.result()
    finally:
        await tasks.close()


async def _until_gone(tasks: Tasks, task: "asyncio.Task[Any]", receive: Receive) -> None:
    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    left = tasks.start(gone(), awaited=True)
    await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)


class EventStream(Response):
    media_type = STREAM

    def __init__(
        self, frames: AsyncGenerator[bytes], on_end: Callable[[], object] = lambda: None
    ) -> None:
        """`on_end` is called when the stream has ended, also if no client read it."""
        self._frames = frames
        self._on_end = on_end
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = Tasks("event stream")
        pump = tasks.start(self._pump(send), awaited=True)
        try:
            await _until_gone(tasks, pump, receive)
        finally:
            await tasks.close()
            await self._frames.aclose()
            self._on_end()
        if pump.done() and not pump.cancelled():
            pump.result()  # `Errors` handles its exception.
        try:
            async with asyncio.timeout(FAREWELL):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # The server aborts the connection, because its response is incomplete.

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for frame in self._frames:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
