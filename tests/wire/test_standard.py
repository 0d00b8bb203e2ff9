"""PRO-1: standard input and output as transports, also by threads, as on Windows."""

import asyncio
import os
from collections.abc import Callable

import pytest

from mcpx.wire.stdio_pipes import HIGH, ThreadReader, ThreadWriter


class Heard(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.said: list[str] = []
        self.news = asyncio.Event()

    def _say(self, what: str) -> None:
        self.said.append(what)
        self.news.set()

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.news.set()

    def eof_received(self) -> None:
        self._say("end")

    def connection_lost(self, exc: Exception | None) -> None:
        self._say("lost" if exc is None else type(exc).__name__)

    def pause_writing(self) -> None:
        self._say("full")

    def resume_writing(self) -> None:
        self._say("room")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.news.clear()
                await self.news.wait()


def test_what_is_read_comes_in_order_and_its_end_after_it() -> None:
    async def main() -> None:
        out, into = os.pipe()
        heard = Heard()
        with os.fdopen(out, "rb", 0) as source:
            reader = ThreadReader(asyncio.get_running_loop(), source, heard)
            sent = os.urandom(300_000)

            def send() -> None:
                with os.fdopen(into, "wb") as sink:
                    sink.write(sent)

            await asyncio.to_thread(send)
            await heard.until(lambda: heard.said == ["end", "lost"])
            assert heard.data == sent and reader.is_closing() and not reader.is_reading()

    asyncio.run(main())


def test_nothing_is_handed_on_while_reading_is_paused() -> None:
    async def main() -> None:
        out, into = os.pipe()
        heard = Heard()
        with os.fdopen(out, "rb", 0) as source:
            reader = ThreadReader(asyncio.get_running_loop(), source, heard)
            reader.pause_reading()
            os.write(into, b"early")
            os.close(into)
            await heard_nothing(reader)
            assert heard.data == b"" and heard.said == []
            reader.resume_reading()
            await heard.until(lambda: heard.said == ["end", "lost"])
            assert heard.data == b"early"

    async def heard_nothing(reader: ThreadReader) -> None:
        async with asyncio.timeout(20):
            while reader._piece is None:  # noqa: ASYNC110 - it was read, by a thread that tells nobody
                await asyncio.sleep(0.005)
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(main())


def test_a_reader_that_is_closed_says_so_once_and_hands_on_nothing_more() -> None:
    async def main() -> None:
        out, into = os.pipe()
        heard = Heard()
        with os.fdopen(out, "rb", 0) as source:
            reader = ThreadReader(asyncio.get_running_loop(), source, heard)
            reader.close()
            reader.close()
            os.write(into, b"late")
            os.close(into)
            await heard.until(lambda: heard.said == ["lost"])
            await asyncio.to_thread(reader._taken.wait)
            assert heard.data == b""

    asyncio.run(main())


def test_what_is_written_is_out_before_the_end_is_told_and_fullness_is_told_meanwhile() -> None:
    async def main() -> None:
        out, into = os.pipe()
        heard = Heard()
        writer = ThreadWriter(asyncio.get_running_loop(), os.fdopen(into, "wb"), heard)
        sent = os.urandom(4 * HIGH)
        writer.write(sent)
        assert heard.said == ["full"] and writer.get_write_buffer_size() == len(sent)

        def receive() -> bytes:
            with os.fdopen(out, "rb") as source:
                return source.read()

        writer.write(b"last")
        writer.close()
        writer.write(b"too late")
        assert await asyncio.to_thread(receive) == sent + b"last"
        await heard.until(lambda: heard.said[-1:] == ["lost"])
        assert heard.said in (["full", "room", "lost"], ["full", "lost"]) and writer.is_closing()

    asyncio.run(main())


@pytest.mark.parametrize("abort", [False, True])
def test_a_writer_whose_reader_is_gone_or_that_is_cut_off_ends(abort: bool) -> None:
    async def main() -> None:
        out, into = os.pipe()
        heard = Heard()
        sink = os.fdopen(into, "wb")
        writer = ThreadWriter(asyncio.get_running_loop(), sink, heard)
        if abort:
            writer.abort()
        else:
            os.close(out)
            writer.write(b"x")
        await heard.until(lambda: bool(heard.said))
        assert heard.said == ["lost" if abort else "BrokenPipeError"]
        writer.write(b"y")
        if abort:
            os.close(out)
        sink.close()

    asyncio.run(main())
