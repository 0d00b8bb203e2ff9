"""Streams and bodies through the door, over a real socket, with an application that stands for the
API."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.admin_api import bare_desk
from kit.until import until
from mcpx.admin import application
from mcpx.admin import server as module
from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.door import MAX_ANONYMOUS_BODY_BYTES, Door
from mcpx.admin.server import LIMITS, AdminServer
from mcpx.admin.streaming import EventStream
from mcpx.config import Config
from mcpx.wire.http_server import Limits

TOKEN = "a-token-that-cannot-be-guessed"
BOUND = 20.0
END = b"0\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Routes:
    """`/api/events` sends one event and goes on; `/api/x` tells how large its body was."""

    def __init__(self) -> None:
        self.open = 0
        self.router = Router("/api", "Test")
        self.router.get("/events")(self.events)
        self.router.post("/x")(self.size)
        self.router.post("/login")(self.size)

    async def size(self, request: ApiRequest) -> str:
        return str(len(request.body) + 2)

    async def events(self, request: ApiRequest) -> EventStream:
        return EventStream(self._events())

    async def _events(self) -> AsyncGenerator[bytes]:
        self.open += 1
        try:
            yield b"data: hello\n\n"
            await asyncio.Event().wait()
        finally:
            self.open -= 1


class AdminConnections:
    def __init__(self, server: AdminServer, api: Routes) -> None:
        self.server = server
        self.api = api
        self.door: Door = vars(server)["_running"].door
        self._opened: list[asyncio.StreamWriter] = []

    async def send(self, head: str, *more: str, body: bytes = b"") -> Streams:
        host = self.server.url.removeprefix("http://")
        name, _, port = host.rpartition(":")
        reader, writer = await asyncio.open_connection(name, int(port))
        self._opened.append(writer)
        writer.write("\r\n".join([head, f"Host: {host}", *more, "", ""]).encode() + body)
        return reader, writer

    async def stream(self, *more: str) -> asyncio.StreamReader:
        reader, _ = await self.send("GET /api/events HTTP/1.1", *more)
        await reader.readuntil(b"hello\n\n")
        return reader

    def close(self) -> None:
        for writer in self._opened:
            writer.close()


@asynccontextmanager
async def admin_connections() -> AsyncIterator[AdminConnections]:
    routes = Routes()
    server = AdminServer("127.0.0.1", 0, TOKEN, Config())
    server.bind()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "ROUTERS", [routes.router])
        await server.start(bare_desk)
    made = AdminConnections(server, routes)
    try:
        async with asyncio.timeout(BOUND):
            yield made
    finally:
        made.close()
        await server.close()


def run(work: Callable[[AdminConnections], Awaitable[Any]]) -> Any:
    async def within() -> Any:
        async with admin_connections() as made:
            return await work(made)

    return asyncio.run(within())


BEARER = f"Authorization: Bearer {TOKEN}"


def session_of(made: AdminConnections) -> tuple[list[str], Any]:
    sessions = made.door.keys.sessions
    id, secret = sessions.begin_in_browser()
    session = sessions.find_in_browser(id.encode(), secret.encode())
    port = made.server.url.rpartition(":")[2]
    return [f"Cookie: mcpx-admin-{port}={id}", f"X-Mcpx-Session: {secret}"], session


def test_a_session_that_ends_takes_its_streams_along_and_no_others() -> None:
    async def work(made: AdminConnections) -> int:
        headers, session = session_of(made)
        mine, by_token = await made.stream(*headers), await made.stream(BEARER)
        assert len(session.open) == 1
        made.door.keys.sessions.end(session)
        await mine.readuntil(END)
        await until(lambda: made.api.open == 1)
        assert not by_token.at_eof()
        return len(session.open)

    assert run(work) == 0


def test_another_token_ends_every_stream() -> None:
    async def work(made: AdminConnections) -> int:
        headers, _ = session_of(made)
        streams = [await made.stream(*headers), await made.stream(BEARER)]
        made.door.keys.take_up("another-token-that-cannot-be-guessed")
        for reader in streams:
            await reader.readuntil(END)
        await until(lambda: not made.api.open)
        return made.api.open

    assert run(work) == 0


def test_a_client_that_leaves_ends_its_stream() -> None:
    async def work(made: AdminConnections) -> int:
        await made.stream(BEARER)
        made.close()
        await until(lambda: not made.api.open)
        return made.api.open

    assert run(work) == 0


def test_the_end_of_the_gateway_ends_streams_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mcpx.admin.server.ENDING", 600.0
    )  # those that do not hear are not waited for

    async def work(made: AdminConnections) -> None:
        streams = [await made.stream(BEARER) for _ in range(20)]
        await made.server.close()
        for reader in streams:
            await reader.read()
        assert made.api.open == 0

    run(work)


def post(*more: str) -> tuple[str, ...]:
    return (
        "POST /api/x HTTP/1.1",
        BEARER,
        "Content-Type: application/json",
        "Connection: close",
        *more,
    )


def test_a_body_of_four_mebibytes_is_taken_and_one_byte_more_is_not() -> None:
    async def work(made: AdminConnections) -> list[bytes]:
        told: list[bytes] = []
        for size in (LIMITS.body_bytes, LIMITS.body_bytes + 1):
            text = b'"' + b"x" * (size - 2) + b'"'
            reader, writer = await made.send(*post(f"Content-Length: {size}"), body=text)
            told.append(await reader.read())
            writer.close()
        return told

    taken, refused = run(work)
    assert taken.endswith(b'"%d"' % LIMITS.body_bytes) and refused.startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_say_how_large_it_is_is_bounded_too() -> None:
    async def work(made: AdminConnections) -> bytes:
        chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
        reader, _ = await made.send(
            *post("Transfer-Encoding: chunked"), body=chunk * 5 + b"0\r\n\r\n"
        )
        return await reader.read()

    assert run(work).startswith(b"HTTP/1.1 413 ")


def test_somebody_unknown_is_refused_before_the_body_is_read() -> None:
    async def work(made: AdminConnections) -> bytes:
        reader, _ = await made.send(
            "POST /api/x HTTP/1.1", "Content-Length: 4000000", "Expect: 100-continue"
        )
        return await reader.readuntil(b"\r\n\r\n")

    assert run(work).startswith(b"HTTP/1.1 401 ")


def test_a_body_before_the_login_is_small() -> None:
    async def work(made: AdminConnections) -> list[bytes]:
        told: list[bytes] = []
        for size in (MAX_ANONYMOUS_BODY_BYTES, MAX_ANONYMOUS_BODY_BYTES + 1, 100_000):
            head = ("Content-Type: application/json", f"Content-Length: {size}")
            text = b'"' + b"x" * (size - 2) + b'"'
            reader, writer = await made.send(
                "POST /api/login HTTP/1.1", *head, "Connection: close", body=text
            )
            told.append((await reader.read())[:13])
            writer.close()
        return told

    assert run(work) == [b"HTTP/1.1 200 ", b"HTTP/1.1 413 ", b"HTTP/1.1 413 "]


@pytest.mark.parametrize(
    ("limits", "sent", "status"),
    [
        (Limits(body_timeout=0.2), b'"x', b"408"),
        (Limits(head_timeout=0.2), None, b"408"),
        (Limits(bodies_bytes=20_000), b'"' + b"x" * 99_999, b"503"),
    ],
)
def test_the_limits_of_the_port_answer_in_the_shape_of_the_api(
    monkeypatch: pytest.MonkeyPatch, limits: Limits, sent: bytes | None, status: bytes
) -> None:
    monkeypatch.setattr(module, "LIMITS", limits)

    async def work(made: AdminConnections) -> bytes:
        if sent is None:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(made.server.url.rpartition(":")[2])
            )
            writer.write(b"GET / HTTP/1.1\r\n")
        else:
            reader, writer = await made.send(*post("Content-Length: 100001"), body=sent)
        answer = await reader.read()
        writer.close()
        return answer

    answer = run(work)
    assert answer.startswith(b"HTTP/1.1 " + status) and b'{"error":' in answer
    assert b"x-content-type-options: nosniff" in answer


def test_requests_on_one_connection_are_answered_in_order() -> None:
    async def work(made: AdminConnections) -> list[bytes]:
        requests = b"".join(
            b"POST /api/x HTTP/1.1\r\nHost: %b\r\n%b\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b"
            % (made.server.url[7:].encode(), BEARER.encode(), size, b'"' + b"x" * (size - 2) + b'"')
            for size in range(2, 10)
        )
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(made.server.url.rpartition(":")[2])
        )
        writer.write(requests)
        bodies: list[bytes] = []
        for _ in range(2, 10):
            await reader.readuntil(b"\r\n\r\n")
            bodies.append(await reader.readexactly(3))
        writer.close()
        return bodies

    assert run(work) == [b'"%d"' % size for size in range(2, 10)]
