"""A stream of events ends in order, whoever ends it, and its source is closed."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from mcpx.admin import streaming
from mcpx.admin.streaming import EventStream

Message = dict[str, Any]


class Line:
    """A connection as the application sees it."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self.clear = asyncio.Event()
        self.clear.set()
        self.begun = asyncio.Event()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.clear.wait()
        self.sent.append(dict(message))
        if message.get("body"):
            self.begun.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def is_whole(self) -> bool:
        return self.sent[-1].get("more_body") is False


class Source:
    def __init__(self, *frames: bytes, endless: bool = False) -> None:
        self._frames, self._endless = frames, endless
        self.ended = 0

    def stream(self) -> EventStream:
        return EventStream(self._told(), self._end)

    def _end(self) -> None:
        self.ended += 1

    async def _told(self) -> AsyncGenerator[bytes]:
        for frame in self._frames:
            yield frame
        if self._endless:
            await asyncio.Event().wait()


async def served(source: Source, line: Line) -> None:
    async with asyncio.timeout(10):
        await source.stream()({"type": "http"}, line.receive, line.send)


def test_a_source_that_ends_ends_the_stream() -> None:
    async def test() -> None:
        source, line = Source(b"a", b"b"), Line()
        await served(source, line)
        assert line.body == b"ab" and line.is_whole and source.ended == 1
        headers = dict(line.sent[0]["headers"])
        assert (
            headers[b"content-type"] == b"text/event-stream; charset=utf-8"
            and b"content-length" not in headers
        )

    asyncio.run(test())


def test_a_reader_that_goes_ends_the_source() -> None:
    async def test() -> None:
        source, line = Source(b"a", endless=True), Line()
        task = asyncio.create_task(served(source, line))
        await line.begun.wait()
        line.gone.set()
        await task
        assert line.is_whole and source.ended == 1

    asyncio.run(test())


def test_a_reader_that_does_not_read_is_left_when_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "FAREWELL", 0.01)

    async def test() -> None:
        source, line = Source(b"a", endless=True), Line()
        line.clear.clear()
        line.gone.set()
        await served(source, line)
        assert line.sent == [] and source.ended == 1

    asyncio.run(test())


def test_a_mistake_of_the_source_is_not_passed_off_as_an_end() -> None:
    async def failing() -> AsyncGenerator[bytes]:
        yield b"a"
        raise RuntimeError("ours")

    async def test() -> None:
        line = Line()
        with pytest.raises(RuntimeError, match="ours"):
            await EventStream(failing())({"type": "http"}, line.receive, line.send)
        assert not line.is_whole

    asyncio.run(test())
