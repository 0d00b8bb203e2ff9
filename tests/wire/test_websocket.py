"""WebSockets against the library's own client and server, and against raw sockets."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvloop
import websockets
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect as library_connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as library_serve
from websockets.utils import accept_key

from mcpx.wire import websocket
from mcpx.wire.http_server import Exchange, HttpServer
from mcpx.wire.websocket import WebSocket, accept, connect

Run = Callable[[Coroutine[Any, Any, None]], None]
MCP = websockets.Subprotocol("mcp")
UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
VERSION = b"Sec-WebSocket-Version: 13\r\n"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def on(main: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, 20))

    return on


class Side:
    """What one of our sockets heard."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed: asyncio.Queue[str] = asyncio.Queue()
        self.sockets: asyncio.Queue[WebSocket | None] = asyncio.Queue()


@asynccontextmanager
async def ours(echo: bool = True, limit: int = 1000) -> AsyncIterator[tuple[int, Side]]:
    """Our server; it sends every message back."""
    side = Side()

    def handler(exchange: Exchange) -> None:
        def on_message(text: bytes) -> None:
            side.messages.put_nowait(text)
            if text == b"raise":
                raise RuntimeError("a bug")
            if echo and socket is not None:
                socket.send(text)

        on_close = side.closed.put_nowait
        socket = accept(
            exchange, limit=limit, subprotocol="mcp", on_message=on_message, on_close=on_close
        )
        side.sockets.put_nowait(socket)

    server = HttpServer(handler)
    port = await server.start("127.0.0.1", 0)
    try:
        yield port, side
    finally:
        await server.close(0)


@asynccontextmanager
async def theirs(handler: Callable[[ServerConnection], Any], **options: Any) -> AsyncIterator[str]:
    """The library's server."""
    async with library_serve(handler, "127.0.0.1", 0, subprotocols=[MCP], **options) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/path?query"


async def dial(
    url: str, side: Side, limit: int = 1000, timeout: float = 5, headers: Any = ()
) -> WebSocket:
    on_message, on_close = side.messages.put_nowait, side.closed.put_nowait
    return await connect(
        url,
        headers,
        limit=limit,
        subprotocol="mcp",
        timeout=timeout,
        on_message=on_message,
        on_close=on_close,
    )


# --- our server


def test_text_and_binary_are_messages_and_answers_are_text(run: Run) -> None:
    async def main() -> None:
        async with (
            ours() as (port, side),
            library_connect(f"ws://127.0.0.1:{port}", subprotocols=[MCP]) as client,
        ):
            assert client.subprotocol == "mcp"
            assert client.protocol.extensions == [], "no compression, though it was offered"
            for message in ("{}", "größer", b"binary", ["in ", "three ", "parts"]):
                await client.send(message)
                whole = "".join(cast(list[str], message)) if isinstance(message, list) else message
                expected = whole.encode() if isinstance(whole, str) else whole
                assert await client.recv() == expected.decode()
                assert await side.messages.get() == expected
        assert "1000" in await side.closed.get()

    run(main())


def test_a_client_without_the_subprotocol_is_welcome(run: Run) -> None:
    async def main() -> None:
        async with ours() as (port, _), library_connect(f"ws://127.0.0.1:{port}") as client:
            assert client.subprotocol is None
            await client.send("{}")
            assert await client.recv() == "{}"

    run(main())


def test_pings_are_answered(run: Run) -> None:
    async def main() -> None:
        async with ours() as (port, _), library_connect(f"ws://127.0.0.1:{port}") as client:
            await (await client.ping())

    run(main())


def test_a_message_over_the_limit_closes_with_1009(run: Run) -> None:
    async def main() -> None:
        async with ours() as (port, side), library_connect(f"ws://127.0.0.1:{port}") as client:
            await client.send("x" * 1000)
            assert len(await client.recv()) == 1000
            await client.send(["x" * 600, "x" * 600])
            with pytest.raises(websockets.ConnectionClosedError) as caught:
                await client.recv()
            assert caught.value.rcvd is not None and caught.value.rcvd.code == 1009
            assert "1009" in await side.closed.get()
            assert side.closed.empty()

    run(main())


def test_a_handler_that_raises_closes_with_1011(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with ours() as (port, side), library_connect(f"ws://127.0.0.1:{port}") as client:
            await client.send("raise")
            with pytest.raises(websockets.ConnectionClosedError) as caught:
                await client.recv()
            assert caught.value.rcvd is not None and caught.value.rcvd.code == 1011
            await side.closed.get()

    with caplog.at_level(logging.ERROR):
        run(main())
    assert len(caplog.records) == 1


def test_our_close_is_a_proper_one_and_later_sends_do_nothing(run: Run) -> None:
    async def main() -> None:
        async with ours() as (port, side), library_connect(f"ws://127.0.0.1:{port}") as client:
            socket = await side.sockets.get()
            assert socket is not None and not socket.closed
            socket.close(1001, "going away " + "ü" * 100)
            assert socket.closed
            socket.send(b"late")
            socket.close()
            with pytest.raises(websockets.ConnectionClosedOK) as caught:
                await client.recv()
            assert caught.value.rcvd is not None and caught.value.rcvd.code == 1001
            assert "1001" in await side.closed.get()
            await socket.drain()

    run(main())


def test_a_peer_that_vanishes_is_reported_once(run: Run) -> None:
    async def main() -> None:
        async with ours() as (port, side):
            client = await library_connect(f"ws://127.0.0.1:{port}")
            client.transport.abort()
            assert "lost" in await side.closed.get()
            assert side.closed.empty()
            await client.wait_closed()

    run(main())


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 426),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 426),
        (UPGRADE + b"\r\n", 400),
        (UPGRADE + KEY + b"\r\n", 400),
        (UPGRADE + VERSION + b"\r\n", 400),
        (UPGRADE + VERSION + b"Sec-WebSocket-Key: short\r\n\r\n", 400),
        (UPGRADE + VERSION + KEY + KEY + b"\r\n", 400),
        (UPGRADE + KEY + b"Sec-WebSocket-Version: 8\r\n\r\n", 400),
    ],
)
def test_a_bad_handshake_is_answered(run: Run, request_: bytes, status: int) -> None:
    async def main() -> None:
        async with ours() as (port, side):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 %d " % status)
            assert await side.sockets.get() is None
            writer.close()
            await writer.wait_closed()

    run(main())


def test_a_frame_sent_together_with_the_handshake_is_not_lost(run: Run) -> None:
    async def main() -> None:
        async with ours() as (port, side):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UPGRADE + KEY + VERSION + b"\r\n" + b"\x81\x82\0\0\0\0{}")
            assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(4) == b"\x81\x02{}"
            assert await side.messages.get() == b"{}"
            writer.transport.abort()
            await side.closed.get()

    run(main())


def test_drain_waits_for_the_reader_and_ends_with_it(run: Run) -> None:
    async def main() -> None:
        async with ours() as (port, side):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            writer.write(UPGRADE + KEY + VERSION + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            socket = await side.sockets.get()
            assert socket is not None
            sent = 0

            async def pour() -> None:
                nonlocal sent
                while not socket.closed:
                    socket.send(b"x" * 65536)
                    await socket.drain()
                    await asyncio.sleep(0)
                    sent += 1

            pouring = asyncio.create_task(pour())
            done, _ = await asyncio.wait({pouring}, timeout=0.3)
            assert not done
            assert sent < 1000
            writer.transport.abort()
            await pouring

    run(main())


def test_a_client_that_stops_talking_and_reads_nothing_is_let_go(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_TIMEOUT", 0.3)
    monkeypatch.setattr(websocket, "PING_EVERY", 0.05)

    async def main() -> None:
        async with ours() as (port, side):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            writer.write(UPGRADE + KEY + VERSION + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            socket = await side.sockets.get()
            assert socket is not None
            while not socket.congested:
                socket.send(bytes(2**20))
            writer.write_eof()
            async with asyncio.timeout(5):
                await side.closed.get()
            writer.transport.abort()

    run(main())
    assert not caplog.records


def test_nothing_is_taken_from_a_client_that_does_not_read(run: Run) -> None:
    async def main() -> None:
        async with ours(limit=2**20) as (port, side):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            writer.write(UPGRADE + KEY + VERSION + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            large = (
                b"\x82\xff" + (2**19).to_bytes(8, "big") + bytes(4 + 2**19)
            )  # each comes back as an echo
            for _ in range(100):
                writer.write(large)
            socket = await side.sockets.get()
            assert socket is not None
            before = -1
            while before != side.messages.qsize():
                before = side.messages.qsize()
                await asyncio.sleep(0.2)
            assert socket.congested
            assert before < 50
            writer.transport.abort()

    run(main())


def test_one_who_pings_without_reading_is_dropped(run: Run) -> None:
    async def main() -> None:
        async with ours() as (port, side):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            writer.write(UPGRADE + KEY + VERSION + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            ping = b"\x89\xfd\0\0\0\0" + b"p" * 125
            closed = asyncio.create_task(side.closed.get())
            while not closed.done():
                try:
                    writer.write(ping * 500)
                    await writer.drain()
                except ConnectionError:
                    break
                await asyncio.sleep(0)
            assert "frames without end" in await closed
            writer.transport.abort()

    run(main())


def test_a_silent_peer_is_dropped_and_a_living_one_kept(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "PING_EVERY", 0.05)

    async def main() -> None:
        async with ours() as (port, side):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UPGRADE + KEY + VERSION + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            async with library_connect(f"ws://127.0.0.1:{port}") as client:
                assert "ping" in await side.closed.get(), "the mute one"
                await client.send("{}")
                assert await client.recv() == "{}"
            writer.transport.abort()

    run(main())


def test_a_peer_that_does_not_finish_closing_is_cut_off(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_TIMEOUT", 0.05)

    async def main() -> None:
        async with ours() as (port, side):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UPGRADE + KEY + VERSION + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            socket = await side.sockets.get()
            assert socket is not None
            socket.close()
            assert "1000" in await side.closed.get()
            writer.transport.abort()

    run(main())


# --- our client


def test_the_client_speaks_with_the_librarys_server(run: Run) -> None:
    requests: list[Any] = []

    async def handler(connection: ServerConnection) -> None:
        requests.append(connection.request)
        await connection.send("hello")
        async for message in connection:
            await connection.send(message)

    async def main() -> None:
        async with theirs(handler) as url:
            side = Side()
            socket = await dial(url, side, headers=[("authorization", "Bearer x")])
            assert await side.messages.get() == b"hello"
            for text in (b"{}", "größer".encode(), b"x" * 1000):
                socket.send(text)
                assert await side.messages.get() == text
            await socket.drain()
            assert not socket.closed
            socket.close()
            assert "1000" in await side.closed.get()
        assert requests[0].path == "/path?query"
        assert requests[0].headers["authorization"] == "Bearer x"
        assert requests[0].headers["sec-websocket-protocol"] == "mcp"
        assert "sec-websocket-extensions" not in requests[0].headers

    run(main())


def test_the_servers_close_is_reported_with_its_reason(run: Run) -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.send("last words")
        await connection.close(4001, "enough")

    async def main() -> None:
        async with theirs(handler) as url:
            side = Side()
            socket = await dial(url, side)
            reason = await side.closed.get()
            assert "4001" in reason and "enough" in reason
            assert await side.messages.get() == b"last words"
            assert socket.closed

    run(main())


def test_a_message_over_the_limit_ends_the_clients_socket(run: Run) -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.send("x" * 2000)
        await connection.wait_closed()

    async def main() -> None:
        async with theirs(handler) as url:
            side = Side()
            await dial(url, side)
            assert "1009" in await side.closed.get()
            assert side.messages.empty()

    run(main())


def test_a_server_that_vanishes_is_reported_once(run: Run) -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        connection.transport.abort()

    async def main() -> None:
        async with theirs(handler) as url:
            side = Side()
            socket = await dial(url, side)
            socket.send(b"go")
            assert "lost" in await side.closed.get()
            assert side.closed.empty()

    run(main())


def test_a_refusal_says_why(run: Run) -> None:
    async def handler(connection: ServerConnection) -> None: ...

    def refuse(connection: ServerConnection, request: Any) -> Any:
        return connection.respond(401, "no entry\n")  # pyright: ignore[reportArgumentType]

    async def main() -> None:
        async with theirs(handler, process_request=refuse) as url:
            side = Side()
            with pytest.raises(ConnectionError, match="401"):
                await dial(url, side)
            assert side.closed.empty()

    run(main())


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""]
)
def test_what_is_no_websocket_server_is_an_error(run: Run, answer: bytes) -> None:
    async def on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(on, "127.0.0.1", 0)
        with pytest.raises(ConnectionError):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", Side())
        server.close()

    run(main())


def test_a_mute_server_is_given_up_in_time(run: Run) -> None:
    async def main() -> None:
        done, closed = asyncio.Event(), asyncio.Event()

        async def on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await done.wait()
            writer.close()
            closed.set()

        server = await asyncio.start_server(on, "127.0.0.1", 0)
        with pytest.raises(TimeoutError, match="no WebSocket"):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", Side(), timeout=0.5)
        done.set()
        await closed.wait()
        server.close()

    run(main())


@pytest.mark.parametrize("url", ["http://a/", "nonsense", "ws://user:secret@a/", "ws://"])
def test_a_url_that_makes_no_sense_is_refused_without_its_secrets(run: Run, url: str) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionError) as caught:
            await dial(url, Side())
        assert "secret" not in str(caught.value)

    run(main())


def test_nobody_there_is_an_os_error(run: Run) -> None:
    async def main() -> None:
        async with ours() as (port, _):
            pass
        with pytest.raises(OSError):
            await dial(f"ws://127.0.0.1:{port}", Side())

    run(main())


# --- both ours, and whatever they send


def test_our_client_and_our_server_understand_each_other(run: Run) -> None:
    async def main() -> None:
        async with ours(limit=2**24) as (port, there):
            here = Side()
            socket = await dial(f"ws://127.0.0.1:{port}", here, limit=2**24)
            for text in (b"{}", b"x" * 5_000_000):
                socket.send(text)
                assert await here.messages.get() == text
            socket.close()
            assert await here.closed.get()
            assert await there.closed.get()

    run(main())


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.binary(max_size=30)
        | st.sampled_from([b"\x81\x82\0\0\0\0{}", b"\x88\x80\0\0\0\0", b"\x01\x80\0\0\0\0"])
    )
)
def test_no_bytes_stop_the_server(pieces: list[bytes]) -> None:
    async def main() -> None:
        async with ours() as (port, side):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UPGRADE + KEY + VERSION + b"\r\n" + b"".join(pieces))
            writer.write_eof()
            try:
                await reader.read()
            except ConnectionError:
                pass
            writer.transport.abort()
            assert await side.closed.get()
            assert side.closed.empty()

    uvloop.run(main())


def test_a_server_whose_first_frame_is_wrong_is_told_goodbye_and_nothing_more(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()
            answer = (
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            )
            answer += f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n"
            writer.write(answer.encode() + b"\x80\x00")  # a continuation of nothing
            await reader.read(100)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            side = Side()
            socket = await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", side)
            assert socket.closed
            socket.send(b"{}")
            async with asyncio.timeout(5):
                assert "1002" in await side.closed.get()

    run(main())
    assert not caplog.records
