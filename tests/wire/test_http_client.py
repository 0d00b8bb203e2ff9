"""The HTTP client against servers that behave, that break off, and that lie."""

import asyncio
import logging
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.ports import closed_port
from kit.until import until
from mcpx.wire import http_client
from mcpx.wire.http_client import BadResponse, ConnectionLost, Crowded, Pool, header_lines
from mcpx.wire.http_reply import HEADER_BYTES
from mcpx.wire.http_server import Exchange, Headers, HttpServer

Run = Callable[[Coroutine[Any, Any, None]], None]
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def on(main: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, 20))

    return on


class Recorder:
    """A sink that remembers; `done` is set by its last call."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers | None = None
        self.bodies: list[bytes] = []
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.trusts = True
        self.done = asyncio.Event()
        self.begun = asyncio.Event()

    def head(self, status: int, headers: Headers) -> None:
        self.calls.append("head")
        self.status = status
        self.headers = headers
        self.begun.set()

    def body(self, data: bytes) -> None:
        self.calls.append("body")
        self.bodies.append(data)

    def trusted(self) -> bool:
        return self.trusts

    def end(self) -> None:
        self.calls.append("end")
        self.done.set()

    def failed(self, error: Exception) -> None:
        self.calls.append("failed")
        self.error = error
        self.done.set()


async def fetch(
    pool: Pool,
    target: str = "/",
    body: bytes = b"",
    method: str = "POST",
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> Recorder:
    sink = Recorder()
    pool.start(method, target, header_lines(headers), body, sink)
    assert sink.calls == [], "never from inside start"
    await sink.done.wait()
    assert sink.calls[-1] in ("end", "failed")
    return sink


@asynccontextmanager
async def scripted(script: Script, **options: Any) -> AsyncIterator[Pool]:
    """A server that runs `script` for each connection, and a pool towards it."""
    tasks: set[asyncio.Task[Any]] = set()

    async def on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(on, "127.0.0.1", 0)
    pool = Pool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", **options)
    try:
        yield pool
    finally:
        await pool.close()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.lower().find(b"content-length:")
    length = int(head[at + 15 :].partition(b"\r\n")[0]) if at >= 0 else 0
    return head + await reader.readexactly(length)


def answering(*answers: bytes, then_close: bool = False) -> Script:
    """Each request on a connection gets the next answer."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_request(reader)
            writer.write(answer)
        if not then_close:
            await reader.read()

    return script


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


# --- requests and replies


def test_a_request_and_its_reply_pass_whole(run: Run) -> None:
    seen: list[Exchange] = []

    def handler(exchange: Exchange) -> None:
        seen.append(exchange)
        exchange.reply(201, exchange.body[::-1], headers=[("x-answer", "42")])

    async def main() -> None:
        server = HttpServer(handler)
        port = await server.start("127.0.0.1", 0)
        pool = Pool(f"http://127.0.0.1:{port}/mcp?x=1")
        assert pool.target == "/mcp?x=1"
        sink = await fetch(pool, pool.target, b"abc", headers=[(b"x-question", b"6*7")])
        assert sink.calls == ["head", "body", "end"]
        assert (sink.status, sink.bodies) == (201, [b"cba"])
        assert sink.headers is not None and sink.headers.get("x-answer") == "42"
        [exchange] = seen
        assert (exchange.method, exchange.path, exchange.query, exchange.body) == (
            "POST",
            "/mcp",
            "x=1",
            b"abc",
        )
        assert dict(exchange.headers.items()) == {
            "host": f"127.0.0.1:{port}",
            "accept-encoding": "identity",
            "x-question": "6*7",
            "content-length": "3",
        }
        await fetch(pool, "/", b"", "GET")
        assert "content-length" not in seen[-1].headers
        await pool.close()
        await server.close(0)

    run(main())


@pytest.mark.parametrize(
    ("answer", "bodies"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n2\r\nok\r\n3;x=y\r\nabc\r\n0\r\nTrailer: t\r\n\r\n",
            b"okabc",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (
            b"HTTP/1.1 307 Elsewhere\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
            b"",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"ok"),
    ],
)
def test_every_kind_of_reply_is_read_to_its_end(run: Run, answer: bytes, bodies: bytes) -> None:
    async def main() -> None:
        async with scripted(answering(answer, then_close=True)) as pool:
            sink = await fetch(pool)
            assert sink.error is None
            assert b"".join(sink.bodies) == bodies
            assert sink.calls[0] == "head" and sink.calls.count("head") == 1
            assert sink.headers is not None and "link" not in sink.headers

    run(main())


def test_a_reply_in_single_bytes_is_the_same_reply(run: Run) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        head = (
            b"HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n"
        )
        for byte in head + b"2\r\nok\r\n0\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async def main() -> None:
        async with scripted(script) as pool:
            sink = await fetch(pool)
            assert (sink.status, b"".join(sink.bodies), sink.error) == (200, b"ok", None)

    run(main())


def test_the_answer_to_head_has_no_body(run: Run) -> None:
    async def main() -> None:
        async with scripted(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")) as pool:
            sink = await fetch(pool, method="HEAD")
            assert sink.calls == ["head", "end"]

    run(main())


# --- the pool


def counting(connections: list[int], *answers: bytes) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(0)
        mine = len(connections) - 1
        while True:
            await read_request(reader)
            connections[mine] += 1
            writer.write(answers[0] if answers else OK)

    return script


def test_a_connection_is_used_again_also_from_inside_end(run: Run) -> None:
    connections: list[int] = []

    async def main() -> None:
        async with scripted(counting(connections)) as pool:
            second = Recorder()

            class First(Recorder):
                def end(self) -> None:
                    pool.start("POST", "/", b"", b"", second)
                    super().end()

            pool.start("POST", "/", b"", b"", First())
            await second.done.wait()
            await fetch(pool)

    run(main())
    assert connections == [3]


class Slow(Recorder):
    """Wants nothing more from its first bytes on, until it is let go."""

    request: http_client.Abortable

    def body(self, data: bytes) -> None:
        super().body(data)
        if len(self.bodies) == 1:
            self.request.hold(True)


def test_a_sink_that_wants_nothing_for_the_moment_is_read_nothing_for(run: Run) -> None:
    """The server notices; then all of it comes, and the connection carries the next request."""
    size = 16 << 20
    sent: list[int] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            sent.append(0)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
            for _ in range(size >> 16):
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent[-1] += 1 << 16

    async def main() -> None:
        async with scripted(script) as pool:
            sink = Slow()
            sink.request = pool.start("GET", "/", b"", b"", sink)
            await until(lambda: bool(sink.bodies))
            before = -1
            while before != sent[0]:  # what the system takes is a few megabytes
                before = sent[0]
                await asyncio.sleep(0.1)
            assert sent[0] < size and sum(map(len, sink.bodies)) < 1 << 20
            sink.request.hold(False)
            await sink.done.wait()
            assert sum(map(len, sink.bodies)) == size
            again = await fetch(pool, method="GET")
            assert sum(map(len, again.bodies)) == size and len(sent) == 2

    run(main())


def test_parallel_requests_never_share_a_connection(run: Run) -> None:
    async def main() -> None:
        def handler(exchange: Exchange) -> None:
            delay = int(exchange.body) % 7 / 200
            asyncio.get_running_loop().call_later(delay, exchange.reply, 200, exchange.body)

        server = HttpServer(handler)
        port = await server.start("127.0.0.1", 0)
        pool = Pool(f"http://127.0.0.1:{port}")
        for _ in range(3):
            sinks = await asyncio.gather(*(fetch(pool, body=b"%d" % i) for i in range(200)))
            assert [b"".join(s.bodies) for s in sinks] == [b"%d" % i for i in range(200)]
        await pool.close()
        await server.close(0)

    run(main())


def test_an_idle_connection_is_dropped_before_the_server_would(run: Run) -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(OK)
            await reader.read()
            ended.set()

        async with scripted(script, idle=0.1) as pool:
            await fetch(pool)
            await ended.wait()

    run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        OK + b"nonsense",
    ],
)
def test_a_connection_that_cannot_be_trusted_is_not_used_again(run: Run, answer: bytes) -> None:
    connections: list[int] = []

    async def main() -> None:
        async with scripted(counting(connections, answer)) as pool:
            for _ in range(2):
                sink = await fetch(pool)
                assert (sink.status, b"".join(sink.bodies), sink.error) == (200, b"ok", None)

    run(main())
    assert connections == [1, 1]


def test_words_from_an_idle_server_end_the_connection(run: Run) -> None:
    async def main() -> None:
        talk, ended = asyncio.Event(), asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(OK)
            await talk.wait()
            writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            await reader.read()
            ended.set()

        async with scripted(script) as pool:
            await fetch(pool)
            talk.set()
            await ended.wait()

    run(main())


def test_words_that_came_but_were_not_read_yet_end_the_connection_before_it_is_used_again(
    run: Run,
) -> None:
    """They lie in the system's buffer when the next request is made, and would be taken for its
    reply."""
    connections: list[asyncio.StreamWriter] = []

    async def main() -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(writer)
            while True:
                await read_request(reader)
                writer.write(OK)

        async with scripted(script) as pool:
            await fetch(pool)
            sink = Recorder()
            socket = connections[0].get_extra_info("socket")
            os.write(socket.fileno(), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
            pool.start("POST", "/", b"", b"", sink)
            await sink.done.wait()
            assert (b"".join(sink.bodies), len(connections)) == (b"ok", 2)

    run(main())


def test_a_reply_that_its_sink_does_not_trust_ends_the_connection(run: Run) -> None:
    connections: list[int] = []

    async def main() -> None:
        async with scripted(counting(connections)) as pool:
            for trusts in (False, True, True):
                sink = Recorder()
                sink.trusts = trusts
                pool.start("POST", "/", b"", b"", sink)
                await sink.done.wait()
                assert sink.calls == ["head", "body", "end"]

    run(main())
    assert connections == [1, 2]


# --- more requests than connections


class Holding:
    """A server that answers each request when it is told to."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.connections = 0
        self._go: list[asyncio.Event] = []

    async def script(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            request = await read_request(reader)
            self.asked.append(request.partition(b"\r\n\r\n")[2])
            go = asyncio.Event()
            self._go.append(go)
            await go.wait()
            writer.write(OK)

    def answer(self, number: int) -> None:
        self._go[number].set()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of two connections."""
    for name in ("FEWEST_CONNECTIONS", "MOST_CONNECTIONS"):
        monkeypatch.setattr(http_client, name, 2)


@pytest.mark.usefixtures("two")
def test_so_many_connections_and_no_more_and_the_others_wait_in_order(run: Run) -> None:
    async def main() -> None:
        server = Holding()
        async with scripted(server.script) as pool:
            sinks = [Recorder() for _ in range(6)]
            calls = [pool.start("POST", "/", b"", b"%d" % n, sink) for n, sink in enumerate(sinks)]
            await until(lambda: len(server.asked) == 2)
            calls[3].abort()  # it leaves the line, and was never sent
            assert [call.sent for call in calls] == [True, True, False, False, False, False]
            for n in range(5):
                await until(lambda n=n: len(server.asked) > n)
                server.answer(n)
            await until(lambda: all(sink.done.is_set() for n, sink in enumerate(sinks) if n != 3))
            assert sorted(server.asked[:2]) == [b"0", b"1"]
            assert server.asked[2:] == [b"2", b"4", b"5"]
            assert server.connections == 2
            assert sinks[3].calls == []

    run(main())


@pytest.mark.usefixtures("two")
def test_what_is_brief_does_not_wait_for_what_hangs(run: Run) -> None:
    async def main() -> None:
        server = Holding()
        async with scripted(server.script) as pool:
            for _ in range(5):
                pool.start("POST", "/", b"", b"hangs", Recorder())
            await until(lambda: len(server.asked) == 2)
            for _ in range(http_client.BRIEF + 3):
                pool.start("POST", "/", b"", b"brief", Recorder(), brief=True)
            await until(lambda: len(server.asked) == 2 + http_client.BRIEF)
            assert server.connections == 2 + http_client.BRIEF
            server.answer(2)
            await until(lambda: len(server.asked) == 3 + http_client.BRIEF)
            assert server.asked[2:] == [b"brief"] * (http_client.BRIEF + 1)

    run(main())


@pytest.mark.usefixtures("two")
def test_a_place_is_free_again_however_its_request_ended(run: Run) -> None:
    async def main() -> None:
        times = 0

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal times
            await read_request(reader)
            times += 1
            if times % 3 == 0:
                writer.write(b"no HTTP")
            elif times % 3 == 1:
                writer.write(OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))

        async with scripted(script) as pool:
            sinks = await asyncio.gather(*(fetch(pool) for _ in range(30)))
            assert sum(sink.error is None for sink in sinks) == 10
            aborted = [pool.start("POST", "/", b"", b"", Recorder()) for _ in range(9)]
            await asyncio.sleep(0)
            for call in aborted:
                call.abort()
            assert len((await fetch(pool)).calls) > 0

        with closed_port() as port:
            gone = Pool(f"http://127.0.0.1:{port}")
            sinks = await asyncio.gather(*(fetch(gone) for _ in range(9)))
        assert all(isinstance(sink.error, ConnectionLost) and not sink.error.sent for sink in sinks)

    run(main())


@pytest.mark.usefixtures("two")
def test_what_waits_when_the_pool_is_retired_was_not_sent(run: Run) -> None:
    async def main() -> None:
        server = Holding()
        async with scripted(server.script) as pool:
            sinks = [Recorder() for _ in range(4)]
            for sink in sinks:
                pool.start("POST", "/", b"", b"", sink)
            await until(lambda: len(server.asked) == 2)
            pool.retire()
            for sink in sinks[2:]:
                await sink.done.wait()
                assert isinstance(sink.error, ConnectionLost)
                assert not sink.error.sent
            assert not sinks[0].done.is_set()

    run(main())


@pytest.mark.usefixtures("two")
def test_the_line_is_bounded_in_number_and_in_bytes(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "MOST_WAITING", 3)
    monkeypatch.setattr(http_client, "MOST_BYTES_WAITING", 3000)

    async def main() -> None:
        for size, fitting in ((0, 3), (1000, 2)):
            server = Holding()
            async with scripted(server.script) as pool:
                sinks = [Recorder() for _ in range(2 + fitting + 1)]
                for sink in sinks:
                    pool.start("POST", "/", b"", b"x" * size, sink)
                await sinks[-1].done.wait()
                assert isinstance(sinks[-1].error, Crowded)
                assert not any(sink.done.is_set() for sink in sinks[:-1])

    run(main())


def test_connections_are_a_share_of_what_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, most in ((40, 16), (256, 64), (1024, 256), (65_536, 256)):
        monkeypatch.setattr(http_client.descriptors, "soft_limit", lambda allowed=allowed: allowed)
        pool = Pool("http://127.0.0.1:1")
        assert pool._calls.most == most  # pyright: ignore[reportPrivateUsage]


# --- failures


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 O",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
def test_a_reply_that_breaks_off_says_that_the_request_was_sent(run: Run, answer: bytes) -> None:
    async def main() -> None:
        async with scripted(answering(answer, then_close=True)) as pool:
            sink = await fetch(pool)
            assert isinstance(sink.error, ConnectionLost)
            assert sink.error.sent
            assert "end" not in sink.calls

    run(main())


def test_a_request_is_never_sent_twice(run: Run) -> None:
    requests: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK)
        requests.append(await read_request(reader))

    async def main() -> None:
        async with scripted(script) as pool:
            assert (await fetch(pool, "/1")).error is None
            assert isinstance((await fetch(pool, "/2")).error, ConnectionLost)

    run(main())
    assert [r.split(b" ")[1] for r in requests] == [b"/1", b"/2"]


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"\x00\xff\xfe",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (HEADER_BYTES + 1) + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (HEADER_BYTES * 2),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
        + b"y" * (HEADER_BYTES * 8),
        b"HTTP/1.1 102 Processing\r\n\r\n" * (HEADER_BYTES // 10),
    ],
)
def test_what_is_no_proper_reply_fails_clearly(run: Run, answer: bytes) -> None:
    async def main() -> None:
        async with scripted(answering(answer)) as pool:
            sink = await fetch(pool)
            assert isinstance(sink.error, BadResponse)

    run(main())


def test_nobody_there_says_that_nothing_was_sent(run: Run) -> None:
    async def main() -> None:
        async with scripted(answering()) as pool:
            port = pool.port
        pool = Pool(f"http://127.0.0.1:{port}")
        sink = await fetch(pool)
        assert isinstance(sink.error, ConnectionLost)
        assert not sink.error.sent
        assert f"127.0.0.1:{port}" in str(sink.error)
        await pool.close()

    run(main())


def test_a_server_that_never_finishes_connecting_is_given_up(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with scripted(script) as silent:
            pool = Pool(f"https://127.0.0.1:{silent.port}", connect_timeout=0.2)
            sink = await fetch(pool)
            assert isinstance(sink.error, ConnectionLost)
            assert not sink.error.sent
            await pool.close()

    run(main())


@pytest.mark.parametrize("where", ["head", "body", "end", "failed"])
def test_a_sink_that_raises_fails_alone(
    run: Run, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        class Broken(Recorder):
            pass

        def raising(*_: Any) -> None:
            sink.calls.append(where)
            if where in ("end", "failed"):
                sink.done.set()
            raise RuntimeError("a bug")

        answer = b"nonsense" if where == "failed" else OK
        async with scripted(answering(answer)) as pool:
            sink = Broken()
            setattr(sink, where, raising)
            pool.start("POST", "/", b"", b"", sink)
            await sink.done.wait()
            if where in ("head", "body"):
                assert isinstance(sink.error, RuntimeError)
                assert sink.calls[-1] == "failed"

    with caplog.at_level(logging.ERROR):
        run(main())
    assert len(caplog.records) == 1


# --- aborting, pausing, closing


def test_abort_drops_the_connection_and_silences_the_sink(run: Run) -> None:
    async def main() -> None:
        asked, ended = asyncio.Event(), asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
            asked.set()
            try:
                await reader.read()
            finally:
                ended.set()

        async with scripted(script) as pool:
            sink = Recorder()
            call = pool.start("POST", "/", b"", b"", sink)
            await sink.begun.wait()
            before = list(sink.calls)
            call.abort()
            call.abort()
            await ended.wait()
            assert sink.calls == before

    run(main())


@pytest.mark.parametrize("turns", range(6))
def test_abort_while_connecting_is_silent_and_sends_nothing(run: Run, turns: int) -> None:
    async def main() -> None:
        received: list[bytes] = []

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.append(await reader.read())

        async with scripted(script) as pool:
            sink = Recorder()
            call = pool.start("POST", "/", b"", b"", sink)
            for _ in range(turns):
                await asyncio.sleep(0)
            call.abort()
            if turns == 0:
                with closed_port() as port:
                    assert (await fetch(Pool(f"http://127.0.0.1:{port}"))).error is not None
                assert not any(received)
            assert sink.calls == []

    run(main())


def test_abort_from_inside_the_sink_is_obeyed(run: Run) -> None:
    async def main() -> None:
        async with scripted(answering(OK, OK)) as pool:
            calls: list[Any] = []

            class Impatient(Recorder):
                def head(self, status: int, headers: Headers) -> None:
                    super().head(status, headers)
                    calls[0].abort()

            sink = Impatient()
            calls.append(pool.start("POST", "/", b"", b"", sink))
            await sink.begun.wait()
            assert (await fetch(pool)).error is None
            assert sink.calls == ["head"]

    run(main())


def test_abort_after_the_end_does_not_touch_the_next_call(run: Run) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(OK)
            await read_request(reader)
            await go.wait()
            writer.write(OK)
            await reader.read()

        async with scripted(script) as pool:
            first, second = Recorder(), Recorder()
            call = pool.start("POST", "/", b"", b"", first)
            await first.done.wait()
            pool.start("POST", "/", b"", b"", second)
            call.abort()
            go.set()
            await second.done.wait()
            assert second.error is None

    run(main())


def test_a_retired_pool_takes_no_more_but_finishes_what_is_under_way(run: Run) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            await go.wait()
            writer.write(OK)
            assert await reader.read() == b""  # the connection ends with its call

        async with scripted(script) as pool:
            under_way, later = Recorder(), Recorder()
            pool.start("POST", "/", b"", b"", under_way)
            pool.retire()
            pool.start("POST", "/", b"", b"", later)
            await later.done.wait()
            assert isinstance(later.error, ConnectionLost)
            assert not later.error.sent
            assert not under_way.done.is_set()
            go.set()
            await under_way.done.wait()
            assert under_way.error is None

    run(main())


def test_close_fails_what_is_under_way(run: Run) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            asked.set()
            await reader.read()

        async with scripted(script) as pool:
            waiting, connecting, late = Recorder(), Recorder(), Recorder()
            pool.start("POST", "/", b"", b"", waiting)
            await asked.wait()
            pool.start("POST", "/", b"", b"", connecting)
            await pool.close()
            pool.start("POST", "/", b"", b"", late)
            for sink, sent in ((waiting, True), (connecting, False), (late, False)):
                await sink.done.wait()
                assert sink.calls == ["failed"]
                assert isinstance(sink.error, ConnectionLost)
                assert sink.error.sent is sent

    run(main())


# --- addresses


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "target"),
    [
        ("http://Example.com", "example.com", 80, "example.com", "/"),
        ("https://example.com/a?b", "example.com", 443, "example.com", "/a?b"),
        ("https://example.com:8443/", "example.com", 8443, "example.com:8443", "/"),
        ("http://[::1]:9000/x", "::1", 9000, "[::1]:9000", "/x"),
        ("http://[::1]/x", "::1", 80, "[::1]", "/x"),
        ("http://bücher.example/", "xn--bcher-kva.example", 80, "xn--bcher-kva.example", "/"),
    ],
)
def test_a_url_is_taken_apart(url: str, host: str, port: int, authority: str, target: str) -> None:
    pool = Pool(url)
    assert (pool.host, pool.port, pool.authority, pool.target) == (host, port, authority, target)


@pytest.mark.parametrize(
    "url", ["ftp://a/", "http://", "nonsense", "http://a:b@c/", "http://a@c/", "http://a:99999/"]
)
def test_a_url_that_makes_no_sense_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        Pool(url)
    assert "b@c" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("no-slash", ()),
        ("/a b", ()),
        ("/a\r\nx: y", ()),
        ("/ä", ()),
        ("/", [(b"x", b"a\r\ny: b")]),
        ("/", [(b"x\n", b"a")]),
        ("/", [(b"x", b"\0")]),
    ],
)
def test_a_request_cannot_be_split(run: Run, target: str, headers: Any) -> None:
    async def main() -> None:
        pool = Pool("http://127.0.0.1:1")
        with pytest.raises(ValueError):
            pool.start("POST", target, header_lines(headers), b"", Recorder())

    run(main())


def test_an_ipv6_server_is_reached(run: Run) -> None:
    async def main() -> None:
        server = HttpServer(lambda e: e.reply(200, (e.headers.get("host") or "").encode()))
        try:
            port = await server.start("::1", 0)
        except OSError:
            pytest.skip("no IPv6")
        pool = Pool(f"http://[::1]:{port}")
        assert (await fetch(pool)).bodies == [b"[::1]:%d" % port]
        await pool.close()
        await server.close(0)

    run(main())


# --- TLS and proxies


def certificate(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
    ]
    command += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(cert)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl")
    return key, cert


@asynccontextmanager
async def tls_server(
    folder: Path, name: str = "localhost"
) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    key, cert = certificate(folder, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = HttpServer(lambda e: e.reply(200, e.scheme.encode() + e.body))
    port = await server.start("127.0.0.1", 0, ssl=context)
    try:
        yield port, ssl.create_default_context(cafile=str(cert))
    finally:
        await server.close(0)


def test_tls_is_spoken_and_certificates_are_checked(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with tls_server(tmp_path) as (port, trusting):
            pool = Pool(f"https://localhost:{port}", ssl_context=trusting)
            for body in (b"1", b"x" * 300_000):
                sink = await fetch(pool, body=body)
                assert b"".join(sink.bodies) == b"https" + body
            await pool.close()
            wary = Pool(f"https://localhost:{port}")
            sink = await fetch(wary)
            assert isinstance(sink.error, ConnectionLost)
            assert not sink.error.sent
            assert "certificate" in str(sink.error).lower()
            await wary.close()

    run(main())


async def proxy_script(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
) -> None:
    """A proxy that connects everything to one local port."""
    head = await reader.readuntil(b"\r\n\r\n")
    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
    if head.startswith(b"CONNECT"):
        if b"proxy-authorization: Basic dXNlcjpwYTpzcw==" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            inner_writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        inner_writer.write(head)

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
        finally:
            sink.close()

    await asyncio.gather(
        copy(reader, inner_writer), copy(inner_reader, writer), return_exceptions=True
    )


def test_https_goes_through_a_proxy_by_a_tunnel(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        ports: list[int] = []

        def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Awaitable[None]:
            return proxy_script(reader, writer, ports[0])

        async with (
            tls_server(tmp_path, "far.example") as (port, trusting),
            scripted(script) as proxy,
        ):
            ports.append(port)
            environ = {"https_proxy": f"http://user:pa%3Ass@127.0.0.1:{proxy.port}"}
            pool = Pool("https://far.example", ssl_context=trusting, environ=environ)
            for _ in range(2):
                sink = await fetch(pool, body=b"!")
                assert sink.error is None
                assert sink.bodies == [b"https!"]
            await pool.close()
            pool = Pool("https://far.example", environ={"HTTPS_PROXY": f"127.0.0.1:{proxy.port}"})
            sink = await fetch(pool)
            assert "407" in str(sink.error)
            await pool.close()

    run(main())


def test_http_goes_through_a_proxy_with_the_whole_url(run: Run) -> None:
    requests: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK)
        await reader.read()

    async def main() -> None:
        async with scripted(script) as proxy:
            pool = Pool(
                "http://far.example:81",
                environ={"http_proxy": f"http://u:p@127.0.0.1:{proxy.port}/"},
            )
            assert (await fetch(pool, "/x")).bodies == [b"ok"]
            await pool.close()

    run(main())
    assert requests[0].startswith(
        b"POST http://far.example:81/x HTTP/1.1\r\nhost: far.example:81\r\n"
    )
    assert b"proxy-authorization: Basic dTpw\r\n" in requests[0]


@pytest.mark.parametrize(
    ("url", "environ", "proxied"),
    [
        ("http://a.example", {"http_proxy": "http://p:1"}, True),
        ("http://a.example", {"https_proxy": "http://p:1"}, False),
        ("http://a.example", {"http_proxy": ""}, False),
        ("http://localhost:1", {"http_proxy": "http://p:1"}, False),
        ("http://x.localhost:1", {"http_proxy": "http://p:1"}, False),
        ("http://127.0.0.9:1", {"http_proxy": "http://p:1"}, False),
        ("http://[::1]:1", {"http_proxy": "http://p:1"}, False),
        ("http://a.example", {"http_proxy": "http://p:1", "no_proxy": "*"}, False),
        (
            "http://a.example",
            {"http_proxy": "http://p:1", "no_proxy": "b.example, .example"},
            False,
        ),
        ("http://a.example", {"http_proxy": "http://p:1", "NO_PROXY": "a.example"}, False),
        ("http://ba.example", {"http_proxy": "http://p:1", "no_proxy": "a.example"}, True),
        ("http://a.example:81", {"http_proxy": "http://p:1", "no_proxy": "a.example:81"}, False),
        ("http://a.example:82", {"http_proxy": "http://p:1", "no_proxy": "a.example:81"}, True),
    ],
)
def test_the_environment_chooses_the_proxy(
    url: str, environ: dict[str, str], proxied: bool
) -> None:
    pool: Any = Pool(url, environ=environ)
    assert (pool._proxy is not None) == proxied


def test_a_kind_of_proxy_we_do_not_speak_is_an_error_at_once() -> None:
    with pytest.raises(ValueError):
        Pool("http://a.example", environ={"http_proxy": "socks5://p:1"})


# --- whatever they send


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from([OK, OK[:20], b"HTTP/1.1 100 C\r\n\r\n", b"\r\n"]),
        max_size=6,
    )
)
def test_whatever_comes_back_there_is_one_last_call(pieces: list[bytes]) -> None:
    async def main() -> None:
        async with scripted(answering(b"".join(pieces), then_close=True)) as pool:
            sink = await fetch(pool)
            assert sink.calls.count("end") + sink.calls.count("failed") == 1

    uvloop.run(main())
