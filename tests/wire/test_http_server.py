"""The HTTP server against raw sockets, a stock client, and clients that mean harm."""

import asyncio
import contextlib
import gc
import http
import http.client
import logging
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpx.wire import http_connection
from mcpx.wire.http_server import Exchange, Headers, HttpServer, Limits

Run = Callable[[Coroutine[Any, Any, None]], None]
HOST = b"Host: here\r\n"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def on(main: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, 20))

    return on


def echo(exchange: Exchange) -> None:
    text = f"{exchange.method} {exchange.path} {exchange.query} ".encode() + exchange.body
    exchange.reply(200, text, "text/plain", [("x-client", str(exchange.client is not None))])


@asynccontextmanager
async def serving(handler: Callable[[Exchange], None] = echo, **limits: Any):
    server = HttpServer(handler, Limits(**limits))
    port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.close(0)


class RawConnection:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *data: bytes) -> None:
        for piece in data:
            self.writer.write(piece)

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def answer(self) -> tuple[int, bytes]:
        head = await self.head()
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(head.split(b" ")[1]), await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        return await self.reader.read()


@asynccontextmanager
async def dialled(port: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def ask(port: int, *data: bytes) -> bytes:
    async with dialled(port) as client:
        client.send(*data)
        return await client.rest()


# --- requests


def test_an_exchange_tells_what_was_asked_and_by_whom(run: Run) -> None:
    seen: list[Exchange] = []
    facts: list[Any] = []

    def handler(exchange: Exchange) -> None:
        seen.append(exchange)
        facts.extend([exchange.client, exchange.server, exchange.scheme])
        exchange.reply(202)

    async def main() -> None:
        async with serving(handler) as port, dialled(port) as client:
            client.send(
                b"POST /a%20b?c=d&e HTTP/1.1\r\n",
                HOST,
                b"X-Two: 1 \r\nX-TWO:  2\r\nContent-Length: 3\r\n\r\nabc",
            )
            assert await client.head() == b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
            ours = client.writer.get_extra_info("sockname")
            assert facts == [ours, ("127.0.0.1", port), "http"]

    run(main())
    [exchange] = seen
    assert (exchange.method, exchange.path, exchange.query, exchange.body) == (
        "POST",
        "/a%20b",
        "c=d&e",
        b"abc",
    )
    assert exchange.headers.get("x-two") == "1"
    assert exchange.headers.all("x-two") == ["1", "2"]
    assert "host" in exchange.headers and "x-three" not in exchange.headers
    assert exchange.headers.get("x-three") is None
    assert exchange.closed


def test_headers_of_one_request_do_not_leak_into_the_last(run: Run) -> None:
    seen: list[Headers] = []

    def handler(exchange: Exchange) -> None:
        seen.append(exchange.headers)
        exchange.reply(200)

    async def main() -> None:
        async with serving(handler) as port, dialled(port) as client:
            client.send(b"GET /1 HTTP/1.1\r\n", HOST, b"\r\n")
            await client.head()
            client.send(b"GET /2 HTTP/1.1\r\n", HOST, b"a: 1\r\na: 2\r\n\r\n")
            await client.head()

    run(main())
    assert [h.all("a") for h in seen] == [[], ["1", "2"]]


def test_a_request_in_single_bytes_is_the_same_request(run: Run) -> None:
    async def main() -> None:
        async with serving() as port, dialled(port) as client:
            sock: socket.socket = client.writer.get_extra_info("socket")
            for byte in b"POST /path?query HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody":
                client.send(bytes([byte]))
                await client.writer.drain()
                assert sock.fileno() > 0
            assert await client.answer() == (200, b"POST /path query body")

    run(main())


def test_a_chunked_body_arrives_whole(run: Run) -> None:
    async def main() -> None:
        async with serving() as port, dialled(port) as client:
            client.send(b"POST / HTTP/1.1\r\n", HOST, b"Transfer-Encoding: chunked\r\n\r\n")
            client.send(*[b"1;ext=x\r\n%c\r\n" % c for c in b"chunked"], b"0\r\nTrailer: t\r\n\r\n")
            assert await client.answer() == (200, b"POST /  chunked")
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            assert await client.answer() == (200, b"GET /  ")

    run(main())


def test_a_target_with_a_host_is_understood_as_a_path(run: Run) -> None:
    async def main() -> None:
        async with serving() as port, dialled(port) as client:
            client.send(b"GET http://here/p?q HTTP/1.1\r\n", HOST, b"\r\n")
            assert await client.answer() == (200, b"GET /p q ")

    run(main())


def test_continue_is_sent_to_those_who_wait_for_it(run: Run) -> None:
    async def main() -> None:
        async with serving() as port, dialled(port) as client:
            client.send(
                b"POST / HTTP/1.1\r\n", HOST, b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
            )
            assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send(b"ok")
            assert await client.answer() == (200, b"POST /  ok")

    run(main())


def test_an_offer_of_http2_is_declined_and_the_body_read(run: Run) -> None:
    async def main() -> None:
        async with serving() as port, dialled(port) as client:
            offer = (
                b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "
                b"AAMAAABkAAQ\r\n"
            )
            client.send(b"POST /java HTTP/1.1\r\n", HOST, offer, b"Content-Length: 4\r\n\r\nbo")
            await asyncio.sleep(0)
            client.send(b"dy")
            assert await client.answer() == (200, b"POST /java  body")
            assert await client.reader.read() == b""  # the connection's last request

    run(main())


def test_a_head_of_very_many_small_fields_is_refused(run: Run) -> None:
    async def main() -> None:
        async with serving() as port:
            whole = b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"x%d:\r\n" % n for n in range(300))
            assert b" 431 " in await ask(port, whole, b"\r\n")
            assert b" 431 " in await ask(port, whole)  # it need not come to an end

    run(main())


def test_of_many_offers_in_one_packet_the_first_is_answered_and_the_connection_closed(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving() as port, dialled(port) as client:
            offer = (
                b"GET /many HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
            )
            client.send(offer * 1000)
            assert await client.answer() == (200, b"GET /many  ")
            assert await client.reader.read() == b""

    run(main())
    assert not caplog.records


def test_a_client_that_leaves_with_a_request_behind_a_slow_one_is_noticed_at_once(run: Run) -> None:
    async def main() -> None:
        left = asyncio.Event()

        def handler(exchange: Exchange) -> None:
            exchange.on_disconnect = left.set

        async with serving(handler) as port, dialled(port) as client:
            client.send((b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n") * 3)
            await client.writer.drain()
            client.writer.close()
            async with asyncio.timeout(5):
                await left.wait()

    run(main())


def test_while_a_client_does_not_read_none_of_its_requests_is_begun(run: Run) -> None:
    async def main() -> None:
        begun = 0

        def handler(exchange: Exchange) -> None:
            nonlocal begun
            begun += 1
            exchange.reply(200, bytes(2**20))

        async with serving(handler) as port, dialled(port) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send((b"GET / HTTP/1.1\r\n" + HOST + b"\r\n") * 1000)
            settled = 0
            async with asyncio.timeout(10):
                while begun == 0 or begun != settled:
                    settled = begun
                    await asyncio.sleep(0.2)
            assert begun < 30  # the buffers of the sockets hold a few megabytes

    run(main())


# --- answers


def test_head_and_body_leave_in_one_write(run: Run) -> None:
    async def main() -> None:
        async with serving() as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            whole = await client.reader.read(65536)
            assert whole.endswith(b"\r\n\r\nGET /  ")

    run(main())


def test_a_large_answer_arrives_whole(run: Run) -> None:
    body = bytes(range(256)) * 8192

    async def main() -> None:
        async with serving(lambda e: e.reply(200, body)) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            assert await client.answer() == (200, body)

    run(main())


def test_a_head_request_gets_the_length_but_no_body(run: Run) -> None:
    async def main() -> None:
        async with serving() as port, dialled(port) as client:
            client.send(b"HEAD / HTTP/1.1\r\n", HOST, b"\r\n", b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            assert b"content-length: 8\r\n" in await client.head()
            assert await client.answer() == (200, b"GET /  ")

    run(main())


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_may_not_have_a_body_has_none(run: Run, status: int) -> None:
    async def main() -> None:
        async with serving(lambda e: e.reply(status, b"body")) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n", b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            for _ in range(2):
                head = await client.head()
                assert head.startswith(b"HTTP/1.1 %d" % status)
                assert b"content-length" not in head

    run(main())


def test_close_is_asked_for_and_given(run: Run) -> None:
    async def main() -> None:
        async with serving() as port:
            answer = await ask(
                port, b"GET / HTTP/1.1\r\n", HOST, b"Connection: close\r\n\r\nGET /ignored"
            )
            assert b"connection: close\r\n" in answer
            assert answer.endswith(b"GET /  ")

    run(main())


def test_http_1_0_closes_unless_asked_to_keep_alive(run: Run) -> None:
    async def main() -> None:
        async with serving() as port:
            assert (await ask(port, b"GET / HTTP/1.0\r\n\r\n")).endswith(b"GET /  ")
            async with dialled(port) as client:
                for _ in range(2):
                    client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                    head = await client.head()
                    assert b"connection: keep-alive\r\n" in head
                    await client.reader.readexactly(len("GET /  "))

    run(main())


def stream(exchange: Exchange) -> None:
    exchange.stream(200, [("content-type", "text/event-stream")])
    exchange.write(b"one")
    exchange.write(b"")
    exchange.write(b"two")
    exchange.end()


def test_a_stream_is_chunked_with_its_head_in_the_first_write(run: Run) -> None:
    async def main() -> None:
        async with serving(stream) as port, dialled(port) as client:
            for _ in range(2):
                client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
                assert b"transfer-encoding: chunked\r\n" in await client.head()
                assert await client.reader.readexactly(21) == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"

    run(main())


def test_a_stream_for_http_1_0_ends_with_the_connection(run: Run) -> None:
    async def main() -> None:
        async with serving(stream) as port:
            head, _, body = (await ask(port, b"GET / HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
            assert b"transfer-encoding" not in head
            assert body == b"onetwo"

    run(main())


def test_an_empty_write_sends_the_head_of_a_stream(run: Run) -> None:
    async def main() -> None:
        open_: asyncio.Queue[Exchange] = asyncio.Queue()

        def handler(exchange: Exchange) -> None:
            exchange.stream(200, [])
            open_.put_nowait(exchange)

        async with serving(handler) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            exchange = await open_.get()
            exchange.write(b"")
            assert (await client.head()).endswith(b"chunked\r\n\r\n")
            exchange.end()
            assert await client.reader.readexactly(5) == b"0\r\n\r\n"

    run(main())


def test_a_header_cannot_carry_a_line_break(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def handler(exchange: Exchange) -> None:
        exchange.reply(200, b"", None, [("x", "a\r\nset-cookie: b")])

    async def main() -> None:
        async with serving(handler) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            assert (await client.answer())[0] == 500

    run(main())


def test_answering_twice_is_an_error_only_while_it_matters(run: Run) -> None:
    outcome: list[Any] = []

    def handler(exchange: Exchange) -> None:
        exchange.stream(200, [])
        for wrong in (lambda: exchange.reply(200), lambda: exchange.stream(200, [])):
            with pytest.raises(RuntimeError):
                wrong()
        exchange.end()
        exchange.reply(200)
        exchange.write(b"late")
        exchange.end()
        outcome.append(exchange.closed)

    async def main() -> None:
        async with serving(handler) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            await client.reader.readuntil(b"0\r\n\r\n")

    run(main())
    assert outcome == [True]


def test_a_handler_that_raises_gives_500_without_details(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(exchange: Exchange) -> None:
        if exchange.path == "/stream":
            exchange.stream(200, [])
            exchange.write(b"some")
        raise RuntimeError("secret")

    async def main() -> None:
        async with serving(handler) as port, dialled(port) as client:
            for _ in range(2):
                client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
                status, body = await client.answer()
                assert status == 500
                assert b"secret" not in body
            client.send(b"GET /stream HTTP/1.1\r\n", HOST, b"\r\n")
            assert b"0\r\n\r\n" not in await client.rest(), (
                "a stream that broke must not look complete"
            )

    with caplog.at_level(logging.ERROR):
        run(main())
    assert len(caplog.records) == 3


# --- pipelining


def test_pipelined_requests_are_answered_in_order_one_at_a_time(run: Run) -> None:
    open_: list[Exchange] = []

    async def main() -> None:
        arrived = asyncio.Event()

        def handler(exchange: Exchange) -> None:
            open_.append(exchange)
            arrived.set()

        async with serving(handler) as port, dialled(port) as client:
            client.send(b"".join(b"GET /%d HTTP/1.1\r\n" % i + HOST + b"\r\n" for i in range(5)))
            for i in range(5):
                await arrived.wait()
                arrived.clear()
                assert [e.path for e in open_] == [f"/{n}" for n in range(i + 1)]
                open_[-1].reply(200, b"%d" % i)
                assert await client.answer() == (200, b"%d" % i)
            client.send(b"GET /5 HTTP/1.1\r\n", HOST, b"\r\n")
            await arrived.wait()

    run(main())


def test_thousands_of_pipelined_requests_in_one_chunk_do_no_harm(run: Run) -> None:
    first: list[Exchange] = []

    async def main() -> None:
        arrived = asyncio.Event()

        def handler(exchange: Exchange) -> None:
            if not first:
                first.append(exchange)
                arrived.set()
            else:
                exchange.reply(200, exchange.path.encode())

        async with serving(handler) as port, dialled(port) as client:
            client.send(b"".join(b"GET /%d HTTP/1.1\r\n" % i + HOST + b"\r\n" for i in range(3000)))
            await arrived.wait()
            first[0].reply(200, b"/0")
            for i in range(3000):
                assert await client.answer() == (200, b"/%d" % i)

    run(main())


def test_nonsense_behind_a_request_is_refused_after_its_answer(run: Run) -> None:
    async def main() -> None:
        arrived = asyncio.Event()
        open_: list[Exchange] = []

        def handler(exchange: Exchange) -> None:
            open_.append(exchange)
            arrived.set()

        async with serving(handler) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\nnonsense\r\n\r\n")
            await arrived.wait()
            open_[0].reply(200, b"first")
            assert await client.answer() == (200, b"first")
            assert (await client.answer())[0] == 400
            assert await client.rest() == b""

    run(main())


# --- refusals


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nbad name: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/0.9\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n",
            400,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: "
            b"4\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n",
            413,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"
            + b"x" * 1001,
            413,
        ),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 3000 + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 3000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ],
)
def test_a_bad_request_is_refused_and_the_connection_closed(
    run: Run, head: bytes, status: int
) -> None:
    called: list[Exchange] = []

    async def main() -> None:
        async with serving(called.append, body_bytes=1000, header_bytes=2000) as port:
            answer = await ask(port, head)
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert b"connection: close\r\n" in answer

    run(main())
    assert called == []


def test_a_refused_client_that_goes_on_sending_still_reads_its_answer(run: Run) -> None:
    async def main() -> None:
        async with serving(body_bytes=1000) as port, dialled(port) as client:
            client.send(
                b"POST / HTTP/1.1\r\n", HOST, b"Content-Length: 8000000\r\n\r\n", b"x" * 8_000_000
            )
            assert (await client.answer())[0] == 413

    run(main())


@pytest.mark.parametrize("where", ["header", "trailer"])
def test_an_endless_header_is_cut_off(run: Run, where: str) -> None:
    async def main() -> None:
        async with serving(header_bytes=5000) as port, dialled(port) as client:
            client.send(b"POST / HTTP/1.1\r\n", HOST)
            client.send(
                b"X: "
                if where == "header"
                else b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: "
            )
            answer = asyncio.create_task(client.head())
            while not answer.done():
                client.send(b"y" * 500)
                await client.writer.drain()
            assert answer.result().startswith(b"HTTP/1.1 431 ")

    run(main())


def test_a_large_head_behind_a_large_body_is_not_taken_for_too_large(run: Run) -> None:
    async def main() -> None:
        async with serving(header_bytes=5000) as port, dialled(port) as client:
            body = b"x" * 150_000
            client.send(
                b"POST / HTTP/1.1\r\n"
                + HOST
                + b"Content-Length: 150000\r\n\r\n"
                + body
                + b"GET / HTTP/1.1\r\n"
            )
            assert await client.answer() == (200, b"POST /  " + body)
            client.send(HOST, b"X: " + b"y" * 4000 + b"\r\n\r\n")
            assert await client.answer() == (200, b"GET /  ")

    run(main())


def test_clients_over_the_limit_get_503_while_all_others_are_in_use(run: Run) -> None:
    """SEC-6."""

    async def main() -> None:
        begun: list[Exchange] = []
        async with (
            serving(begun.append, connections=2) as port,
            dialled(port) as one,
            dialled(port) as two,
        ):
            for client in (one, two):
                client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            while len(begun) < 2:  # noqa: ASYNC110 - under the bound of every test here
                await asyncio.sleep(0.001)
            async with dialled(port) as three:
                head = await three.head()
                assert head.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: 1\r\n" in head
            one.writer.transport.abort()
            while len(begun) == 2:  # until the server has noticed
                async with dialled(port) as four:
                    four.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
                    with contextlib.suppress(
                        ConnectionError, TimeoutError, asyncio.IncompleteReadError
                    ):
                        async with asyncio.timeout(0.1):
                            await four.answer()

    run(main())


def test_a_client_that_does_nothing_for_a_while_makes_room_for_another(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-6: idle connections, however many, keep nobody out."""
    monkeypatch.setattr(http_connection, "RESTED", -1.0)

    async def main() -> None:
        async with serving(connections=2) as port, dialled(port) as one, dialled(port) as two:
            for client in (one, two):
                client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
                await client.answer()
            async with dialled(port) as three:
                three.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
                assert (await three.answer())[0] == 200
                assert await one.rest() == b""
                two.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
                assert (await two.answer())[0] == 200

    run(main())


# --- time


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (b"G", 408),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: y", 408),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf", 408),
    ],
)
def test_a_client_that_stops_half_way_is_cut_off(run: Run, sent: bytes, status: int | None) -> None:
    async def main() -> None:
        async with serving(head_timeout=0.5, body_timeout=0.5) as port:
            answer = await ask(port, sent)
            assert answer == b"" if status is None else answer.startswith(b"HTTP/1.1 %d " % status)

    run(main())


def test_dripping_bytes_does_not_buy_time(run: Run) -> None:
    async def main() -> None:
        async with serving(head_timeout=0.2) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST)
            answer = asyncio.create_task(client.head())
            while not answer.done():
                client.send(b"X: y\r\n")
                await asyncio.wait({answer}, timeout=0.02)
            assert answer.result().startswith(b"HTTP/1.1 408 ")

    run(main())


def test_an_idle_connection_is_closed_after_keep_alive(run: Run) -> None:
    async def main() -> None:
        async with serving(keep_alive=0.1) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            assert (await client.answer())[0] == 200
            assert await client.rest() == b""

    run(main())


def test_an_exchange_may_take_as_long_as_it_likes(run: Run) -> None:
    async def main() -> None:
        def handler(exchange: Exchange) -> None:
            asyncio.get_running_loop().call_later(0.4, exchange.reply, 200, b"late")

        quick = {"head_timeout": 0.1, "body_timeout": 0.1, "keep_alive": 0.1}
        async with serving(handler, **quick) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            assert await client.answer() == (200, b"late")

    run(main())


# --- clients that go away, or do not read


def test_a_client_that_goes_away_is_reported_once(run: Run) -> None:
    async def main() -> None:
        open_: list[Exchange] = []
        arrived, gone = asyncio.Event(), asyncio.Event()
        calls: list[bool] = []

        def handler(exchange: Exchange) -> None:
            exchange.on_disconnect = lambda: (calls.append(exchange.closed), gone.set())[0]
            open_.append(exchange)
            arrived.set()

        async with serving(handler) as port:
            async with dialled(port) as client:
                client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
                await arrived.wait()
                assert not open_[0].closed
            await gone.wait()
            assert calls == [True]
            open_[0].reply(200)
            open_[0].end()
            await open_[0].drain()

    run(main())


def test_a_finished_exchange_hears_no_disconnect(run: Run) -> None:
    calls: list[int] = []

    def handler(exchange: Exchange) -> None:
        exchange.on_disconnect = lambda: calls.append(1)
        exchange.reply(200)

    async def main() -> None:
        async with serving(handler) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            await client.head()

    run(main())
    assert calls == []


def test_drain_waits_for_the_reader_and_ends_with_it(run: Run) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[int]] = []
        arrived = asyncio.Event()

        async def pour(exchange: Exchange) -> int:
            exchange.stream(200, [])
            chunks = 0
            while not exchange.closed:
                exchange.write(b"x" * 65536)
                await exchange.drain()
                await asyncio.sleep(0)
                chunks += 1
            return chunks

        def handler(exchange: Exchange) -> None:
            tasks.append(asyncio.create_task(pour(exchange)))
            arrived.set()

        async with serving(handler) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            await arrived.wait()
            done, _ = await asyncio.wait({tasks[0]}, timeout=0.3)
            assert not done
            client.writer.transport.abort()
            assert await tasks[0] < 1000, "the writer must have been held back"

    run(main())


def test_a_reader_that_takes_nothing_is_dropped(run: Run) -> None:
    async def main() -> None:
        gone = asyncio.Event()

        def handler(exchange: Exchange) -> None:
            exchange.on_disconnect = gone.set
            exchange.stream(200, [])
            exchange.write(b"x" * 30_000_000)

        async with serving(handler, write_timeout=0.3) as port, dialled(port) as client:
            client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
            await client.head()
            await gone.wait()

    run(main())


# --- shutdown


def test_close_lets_running_exchanges_finish_and_drops_the_rest(run: Run) -> None:
    async def main() -> None:
        open_: dict[str, Exchange] = {}
        arrived: asyncio.Queue[str] = asyncio.Queue()

        def handler(exchange: Exchange) -> None:
            if exchange.path == "/quick":
                exchange.reply(200)
            else:
                open_[exchange.path] = exchange
                arrived.put_nowait(exchange.path)

        server = HttpServer(handler)
        port = await server.start("127.0.0.1", 0)
        async with dialled(port) as idle, dialled(port) as good, dialled(port) as bad:
            for client, path in ((idle, b"quick"), (good, b"good"), (bad, b"bad")):
                client.send(b"GET /%b HTTP/1.1\r\n" % path, HOST, b"\r\n")
            await idle.head()
            assert {await arrived.get(), await arrived.get()} == {"/good", "/bad"}
            closing = asyncio.create_task(server.close(0.3))
            assert await idle.rest() == b""
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", port)
            open_["/good"].reply(200, b"done")
            assert await good.answer() == (200, b"done")
            assert await good.rest() == b""
            await closing
            assert await bad.rest() == b""
            assert open_["/bad"].closed

    run(main())


@pytest.mark.parametrize("turns", range(8))
def test_close_leaves_no_socket_behind_whenever_a_client_comes(run: Run, turns: int) -> None:
    async def main() -> None:
        server = HttpServer(echo)
        port = await server.start("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close(0)

    run(main())
    gc.collect()  # a socket left open would warn here, and warnings are errors


# --- upgrade


def test_upgrade_hands_over_the_socket_and_what_came_behind_the_head(run: Run) -> None:
    async def main() -> None:
        class Raw(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.transport = cast(asyncio.Transport, transport)

            def data_received(self, data: bytes) -> None:
                self.transport.write(b"raw:" + data)

        def handler(exchange: Exchange) -> None:
            transport, rest, _ = exchange.upgrade()
            protocol = Raw()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + rest)
            assert exchange.closed

        async with serving(handler) as port, dialled(port) as client:
            client.send(
                b"GET / HTTP/1.1\r\n"
                + HOST
                + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly"
            )
            await client.head()
            assert await client.reader.readexactly(5) == b"early"
            client.send(b"late")
            assert await client.reader.readexactly(8) == b"raw:late"

    run(main())


def test_an_upgrade_behind_another_request_can_be_read(run: Run) -> None:
    async def main() -> None:
        open_: asyncio.Queue[Exchange] = asyncio.Queue()
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        class Raw(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                heard.put_nowait(data)

        async with serving(open_.put_nowait) as port, dialled(port) as client:
            upgrade = (
                b"GET / HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
            client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n" + upgrade)
            (await open_.get()).reply(200)
            await client.head()
            transport, rest, _ = (await open_.get()).upgrade()
            transport.set_protocol(Raw())
            assert rest == b""
            client.send(b"raw")
            assert await heard.get() == b"raw"

    run(main())


def test_an_upgrade_that_is_answered_instead_ends_the_connection(run: Run) -> None:
    async def main() -> None:
        async with serving() as port:
            answer = await ask(
                port,
                b"GET / HTTP/1.1\r\n",
                HOST,
                b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            )
            assert answer.endswith(b"GET /  ")

    run(main())


# --- stock clients


def in_thread(work: Callable[[int], Any]) -> Callable[[int], Awaitable[Any]]:
    return lambda port: asyncio.to_thread(work, port)


def test_the_standard_library_is_served(run: Run) -> None:
    def work(port: int) -> list[tuple[int, bytes]]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        answers: list[tuple[int, bytes]] = []
        for method, body in (
            ("GET", None),
            ("POST", b"x" * 1000),
            ("HEAD", None),
            ("PUT", iter([b"a", b"b"])),
        ):
            connection.request(method, "/path", body=body, encode_chunked=method == "PUT")
            response = connection.getresponse()
            answers.append((response.status, response.read()))
        connection.close()
        return answers

    async def main() -> None:
        async with serving() as port:
            answers = await in_thread(work)(port)
            assert answers == [
                (200, b"GET /path  "),
                (200, b"POST /path  " + b"x" * 1000),
                (200, b""),
                (200, b"PUT /path  ab"),
            ]

    run(main())


def test_tls_is_served(run: Run, tmp_path: Path) -> None:
    key, cert = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def work(port: int) -> tuple[bytes, bytes]:
        trusting = ssl.create_default_context(cafile=str(cert))
        connection = http.client.HTTPSConnection("localhost", port, timeout=10, context=trusting)
        connection.request("GET", "/")
        first = connection.getresponse().read()
        connection.request("POST", "/", b"x" * 2_000_000)
        second = connection.getresponse().read()
        connection.close()
        return first, second

    async def main() -> None:
        server = HttpServer(lambda e: e.reply(200, e.scheme.encode()), Limits(body_bytes=1000))
        port = await server.start("127.0.0.1", 0, ssl=context)
        try:
            assert await asyncio.to_thread(work, port) == (
                b"https",
                http.HTTPStatus(413).phrase.encode(),
            )
        finally:
            await server.close(0)

    run(main())


def certificate(folder: Path) -> tuple[Path, Path]:
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
        "/CN=localhost",
    ]
    command += [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl")
    return key, cert


def test_answers_are_not_delayed_by_nagle(run: Run) -> None:
    flags: list[int] = []

    def handler(exchange: Exchange) -> None:
        transport, _, _ = exchange.upgrade()
        sock = transport.get_extra_info("socket")
        flags.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        transport.abort()

    async def main() -> None:
        async with serving(handler) as port:
            try:
                await ask(
                    port,
                    b"GET / HTTP/1.1\r\n",
                    HOST,
                    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                )
            except ConnectionError:
                pass

    run(main())
    assert flags and flags[0]


# --- whatever they send


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from([b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HT", b"\r\n"])
    )
)
def test_no_bytes_stop_the_server(pieces: list[bytes]) -> None:
    async def main() -> None:
        async with serving(head_timeout=10.0, body_timeout=10.0) as port:
            async with dialled(port) as client:
                client.send(*pieces)
                client.writer.write_eof()
                try:
                    await client.rest()
                except ConnectionError:
                    pass
            async with dialled(port) as client:
                client.send(b"GET / HTTP/1.1\r\n", HOST, b"\r\n")
                assert (await client.answer())[0] == 200

    uvloop.run(main())
