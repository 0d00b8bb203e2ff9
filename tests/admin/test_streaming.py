"""A stream of events ends in order, whoever ends it, and its source is closed."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from mcpx.admin.streaming import EventStream
from mcpx.wire.exchange import Exchange, Headers
from mcpx.wire.http_connection import Connection


class Line:
    """A connection that remembers what was written to it."""

    def __init__(self) -> None:
        self.sent = b""
        self.begun = asyncio.Event()
        self.clear = asyncio.Event()
        self.clear.set()
        self.gone = asyncio.Event()
        self.whole = False
        self.exchange = Exchange(cast(Connection, self), "GET", "/", Headers({}), b"", True, False)

    def write(self, data: bytes, more: bytes = b"") -> None:
        self.sent += data + more
        if b"\r\na\r\n" in self.sent:
            self.begun.set()

    def answered(self, keep: bool) -> None:
        self.whole = True

    async def drain(self) -> None:
        await self.clear.wait()


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
        await source.stream().send(line.exchange, [], line.gone)


def run(work: Any) -> None:
    asyncio.run(work())


def test_a_source_that_ends_ends_the_stream() -> None:
    async def test() -> None:
        source, line = Source(b"a", b"b"), Line()
        await served(source, line)
        head, _, body = line.sent.partition(b"\r\n\r\n")
        assert body == b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n" and line.whole and source.ended == 1
        assert b"content-type: text/event-stream; charset=utf-8" in head

    run(test)


def test_a_reader_that_goes_ends_the_source() -> None:
    async def test() -> None:
        source, line = Source(b"a", endless=True), Line()
        task = asyncio.create_task(served(source, line))
        await line.begun.wait()
        line.gone.set()
        await task
        assert line.whole and source.ended == 1

    run(test)


def test_a_reader_that_does_not_read_is_left_when_it_goes() -> None:
    async def test() -> None:
        source, line = Source(b"a", b"b", endless=True), Line()
        line.clear.clear()
        task = asyncio.create_task(served(source, line))
        await line.begun.wait()
        line.gone.set()
        await task
        assert b"\r\nb\r\n" not in line.sent and source.ended == 1

    run(test)


def test_a_mistake_of_the_source_is_not_passed_off_as_an_end() -> None:
    async def failing() -> AsyncGenerator[bytes]:
        yield b"a"
        raise RuntimeError("ours")

    async def test() -> None:
        line = Line()
        with pytest.raises(RuntimeError, match="ours"):
            await EventStream(failing()).send(line.exchange, [], line.gone)
        assert not line.whole

    run(test)
