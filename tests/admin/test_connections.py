"""Bounds that uvicorn lacks, over real sockets and with short times: heads, bodies, waiting, how
many there are."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config as UvicornConfig

from kit.until import until
from mcpx.admin.connection import Connection, Limits, State

QUICK = Limits(
    head_timeout=0.4, body_timeout=0.4, keep_alive=0.6, write_timeout=0.5, connections=4, sweep=0.05
)
BOUND = 10.0
GET = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/body":
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    if scope["path"] == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    chunks = 1000 if scope["path"] == "/large" else 1
    for _ in range(chunks):
        await send(
            {
                "type": "http.response.body",
                "body": b"x" * 65536 if chunks > 1 else b"ok",
                "more_body": True,
            }
        )
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def served(limits: Limits = QUICK) -> AsyncIterator[tuple[State, Connect]]:
    settings = UvicornConfig(
        app, http=Connection, ws="none", lifespan="off", interface="asgi3", log_config=None
    )
    settings.load()
    state = State(limits)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(settings, state), "127.0.0.1", 0)
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Streams:
        reader, writer = await asyncio.open_connection(
            *server.sockets[0].getsockname(), limit=2**20
        )
        opened.append(writer)
        return reader, writer

    try:
        async with asyncio.timeout(BOUND):
            yield state, connect
    finally:
        server.close()
        for connection in list(state.held):
            connection.abort()
        state.close()
        for writer in opened:
            writer.close()
        await asyncio.sleep(0)


def run(work: Callable[[State, Connect], Awaitable[Any]], limits: Limits = QUICK) -> Any:
    async def within() -> Any:
        async with served(limits) as (state, connect):
            return await work(state, connect)

    return asyncio.run(within())


async def all_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b"reset"


def test_a_connection_that_says_nothing_is_closed() -> None:
    async def work(state: State, connect: Connect) -> bytes:
        reader, _ = await connect()
        return await all_of(reader)

    assert run(work) == b""


def test_a_head_that_drips_is_refused_though_bytes_keep_coming() -> None:
    """Slow loris."""

    async def work(state: State, connect: Connect) -> bytes:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")

        async def drip() -> None:
            while True:
                writer.write(b"a: b\r\n")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        try:
            return await all_of(reader)
        finally:
            dripping.cancel()

    assert run(work).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 700_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 101 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 100_000,
    ],
    ids=["target", "header", "endless header", "many headers", "endless headers"],
)
def test_a_head_that_is_too_large_is_refused(head: bytes) -> None:
    async def work(state: State, connect: Connect) -> tuple[bytes, int]:
        reader, writer = await connect()
        writer.write(head)
        answer = await all_of(reader)
        await until(lambda: not state.held)
        return answer, len(state.tasks)

    answer, tasks = run(work, Limits(sweep=0.05))
    assert (
        answer.startswith(b"HTTP/1.1 431 ")
        and b"x-content-type-options: nosniff" in answer
        and tasks == 0
    )


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def work(state: State, connect: Connect) -> bytes:
        reader, writer = await connect()
        writer.write(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
        return await all_of(reader)

    assert b"200" not in run(work)


def test_a_body_that_nobody_wants_is_passed_over_to_a_bound() -> None:
    """Its sender can read the answer; one that goes on for ever is cut off."""

    async def work(state: State, connect: Connect) -> tuple[bytes, int]:
        reader, writer = await connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        try:
            while sent < 100 * 2**20:
                writer.write(chunk)
                await writer.drain()
                sent += 65536
        except (ConnectionResetError, BrokenPipeError):
            pass
        return await all_of(reader), sent

    answer, sent = run(work, Limits(unread_bytes=2**20))
    assert answer.startswith(b"HTTP/1.1 200 ") or answer == b"reset"
    assert sent < 20 * 2**20


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async def work(state: State, connect: Connect) -> tuple[bytes, bool, int]:
        idle, busy = await connect(), await connect()
        busy[1].write(GET % b"wait")
        idle[1].write(GET % b"")
        answer = await all_of(idle[0])
        return answer, busy[0].at_eof(), len(state.held)

    answer, ended, held = run(work)
    assert answer.startswith(b"HTTP/1.1 200 ") and not ended and held == 1


def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    async def work(state: State, connect: Connect) -> int:
        reader, writer = await connect()
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(GET % b"large")
        await until(lambda: state.tasks)
        await until(lambda: not state.held and not state.tasks)
        return len(state.held)

    assert run(work) == 0


def test_a_newcomer_takes_the_place_of_one_that_waits_for_its_client() -> None:
    """Connections that are only held open do not keep anybody out."""

    async def work(state: State, connect: Connect) -> tuple[bytes, int]:
        for _ in range(12):
            await connect()
        reader, writer = await connect()
        writer.write(GET % b"")
        answer = await reader.readuntil(b"\r\n")
        return answer, len(state.held)

    answer, held = run(work, Limits(connections=4))
    assert answer.startswith(b"HTTP/1.1 200 ") and held <= 4


def test_when_all_are_being_answered_a_newcomer_is_told_to_come_again() -> None:
    async def work(state: State, connect: Connect) -> bytes:
        for _ in range(4):
            _, writer = await connect()
            writer.write(GET % b"wait")
        await until(lambda: len(state.tasks) == 4)
        reader, _ = await connect()
        return await all_of(reader)

    answer = run(work)
    assert answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in answer


def test_nothing_ticks_while_nobody_is_there() -> None:
    async def work(state: State, connect: Connect) -> Any:
        reader, writer = await connect()
        writer.write(GET % b"")
        await reader.readuntil(b"\r\n")
        writer.close()
        await until(lambda: vars(state)["_timer"] is None)
        return len(state.held)

    assert run(work) == 0


def test_requests_on_one_connection_are_answered_in_order() -> None:
    async def work(state: State, connect: Connect) -> bytes:
        reader, writer = await connect()
        writer.write((GET % b"") * 20)
        return await all_of(reader)

    assert run(work).count(b"HTTP/1.1 200 ") == 20


def test_whoever_leaves_with_several_requests_unanswered_is_missed_by_none_of_them() -> None:
    """Else one of them would be answered into a socket that is closed."""

    async def work(state: State, connect: Connect) -> tuple[int, list[Any]]:
        surprises: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: surprises.append(context)
        )
        _, writer = await connect()
        writer.write((GET % b"wait") * 3)
        await until(lambda: state.tasks)
        writer.close()
        await until(lambda: not state.tasks and not state.held)
        return len(state.tasks), surprises

    assert run(work) == (0, [])
