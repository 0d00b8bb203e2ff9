"""An HTTP server of `mcpx.wire` on a real socket, and a client of it in the same event loop."""

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

from mcpx.model.call import Json
from mcpx.wire.http_client import Abortable, Pool, header_lines
from mcpx.wire.http_server import Exchange, Headers, HttpServer
from mcpx.wire.sse import SseEvent, SseReader


class StreamedReply:
    """The response to one request while it arrives (`wire.http_client.Sink`)."""

    def __init__(self) -> None:
        self.status = 0
        self.headers = Headers({})
        self.events: asyncio.Queue[SseEvent | None] = asyncio.Queue()
        self.begun = asyncio.Event()
        self.over = asyncio.Event()
        self.broken: Exception | None = None
        self.carrier: Abortable | None = None
        self._body = b""
        self._reader = SseReader(self.events.put_nowait, limit=1 << 24, on_skipped=lambda *_: None)

    def head(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        self.begun.set()

    def body(self, data: bytes) -> None:
        self._body += data
        if self.streams:
            self._reader.feed(data)

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        self.events.put_nowait(None)
        self.over.set()
        self.begun.set()

    def failed(self, error: Exception) -> None:
        self.broken = error
        self.end()

    @property
    def streams(self) -> bool:
        return (self.headers.get("content-type") or "").startswith("text/event-stream")

    async def text(self) -> bytes:
        await self.over.wait()
        return self._body

    async def json(self) -> Any:
        return json.loads(await self.text())

    async def event(self) -> SseEvent:
        event = await self.events.get()
        assert event is not None, "the stream has ended"
        return event

    async def message(self) -> Any:
        """The next event with data, parsed."""
        while not (event := await self.event()).data:
            pass
        return json.loads(event.data)

    def abort(self) -> None:
        assert self.carrier is not None
        self.carrier.abort()


class HttpClient:
    """A client of one server on this machine."""

    def __init__(self, port: int) -> None:
        self._pool = Pool(f"http://127.0.0.1:{port}/")

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Json | None = None
    ) -> StreamedReply:
        reply = StreamedReply()
        lines = header_lines(
            [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        )
        reply.carrier = self._pool.start(method, path, lines, body, reply)
        return reply

    async def close(self) -> None:
        await self._pool.close()


@asynccontextmanager
async def serving_http(handler: Callable[[Exchange], None]):
    """Start a server with one handler. The value is a client of it."""
    server = HttpServer(handler)
    client = HttpClient(await server.start("127.0.0.1", 0))
    try:
        yield client
    finally:
        await client.close()
        await server.close(0.0)
