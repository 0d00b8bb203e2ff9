"""Requests handed to another replica, where that one is scripted: what its clients are told when it
breaks off, and who waits for whom."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.http_pair import HttpClient, StreamedReply, serving_http
from kit.loop import never_return, run
from kit.until import until
from mcpx.front.neighbours import passing
from mcpx.front.neighbours.papers import Papers
from mcpx.front.neighbours.passing import Passing
from mcpx.front.visitor import Visitor
from mcpx.replicas import channel
from mcpx.replicas.members import Member
from mcpx.replicas.seals import Seals
from mcpx.wire import http_client
from mcpx.wire.address import Address
from mcpx.wire.http_server import Exchange, HttpServer
from mcpx.wire.sse import sse_frame

CALL = b'{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"x"}}'


class Pair:
    """A client's side, and the other replica: requests as they come to it."""

    def __init__(
        self,
        web: HttpClient,
        door: "asyncio.Queue[Exchange]",
        over: Passing,
        lost: list[str],
        port: int,
    ) -> None:
        self.web, self.door, self.over, self.lost, self.port = web, door, over, lost, port
        self.again: list[str] = []

    def ask(self, body: bytes = CALL) -> StreamedReply:
        return self.web.send("POST", "/mcp", body)

    def listen(self) -> StreamedReply:
        return self.web.send("GET", "/mcp", b"")


@asynccontextmanager
async def pair(there: Seals | None = None) -> AsyncIterator[Pair]:
    """`there`: the keys of the other replica, if they differ."""
    door: asyncio.Queue[Exchange] = asyncio.Queue()
    seals = Seals()
    other = HttpServer(door.put_nowait, secure=channel.accepting(there or seals, "there"))
    member = Member("there", host="127.0.0.1", port=await other.start("127.0.0.1", 0))
    lost: list[str] = []
    over = Passing(Papers(), seals, lost.append)

    def hand(exchange: Exchange) -> None:
        def again() -> None:
            made.again.append(exchange.method)
            exchange.reply(500)

        over.hand(exchange, Visitor(), "/mcp", member, again)

    try:
        async with serving_http(hand) as web:
            made = Pair(web, door, over, lost, member.port)
            yield made
    finally:
        await over.close()
        await other.close(0.0)


@pytest.mark.parametrize("half", [b"data: {", b"data: {}", b"data: {}\n"])
def test_nothing_is_said_behind_half_a_message(half: bytes) -> None:
    """SCA-1: the other one died in the middle of it; the connection ends, so that the client comes
    back."""

    async def main() -> None:
        async with pair() as between:
            reply = between.ask()
            there = await between.door.get()
            there.stream(200, [("content-type", "text/event-stream")])
            there.write(sse_frame(b"{}", id="s1-1"))
            there.write(half)
            await reply.event()
            there.abort()
            await reply.over.wait()
            assert reply.broken is not None
            assert b"error" not in await reply.text()

    run(main())


def test_behind_a_whole_message_a_client_is_told_that_its_call_was_cut_off() -> None:
    """SCA-1: however it came in pieces."""

    async def main() -> None:
        async with pair() as between:
            reply = between.ask()
            there = await between.door.get()
            there.stream(200, [("content-type", "text/event-stream")])
            for size, piece in ((8, b"data: {}"), (9, b"\n"), (10, b"\n")):
                there.write(piece)
                await until(lambda size=size: len(reply._body) == size)  # pyright: ignore[reportPrivateUsage]
            there.abort()
            assert await reply.message() == {}
            assert (await reply.message())["error"]["code"] == -33007
            await reply.over.wait()
            assert reply.broken is None

    run(main())


def test_streams_leave_room_for_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6, SCA-1: however many listen through one replica, a call does not wait for them."""
    monkeypatch.setattr(passing, "MOST_STREAMS", 16)

    async def main() -> None:
        async with pair() as between:
            listening = [between.listen() for _ in range(passing.MOST_STREAMS + 5)]
            for _ in range(passing.MOST_STREAMS):
                await between.door.get()
            reply = between.ask()
            there = await between.door.get()
            assert there.method == "POST"
            there.reply(200, b"{}")
            assert await reply.json() == {}
            for each in listening:
                each.abort()

    run(main())


def test_a_process_that_does_not_prove_that_it_is_the_replica_gets_no_request() -> None:
    """SCA-1, SEC-8: the replica counts as gone, and the request is tried elsewhere."""

    async def main() -> None:
        async with pair(there=Seals()) as between:
            reply = between.ask()
            await reply.over.wait()
            assert (between.lost, between.again, between.door.qsize()) == (["there"], ["POST"], 0)

    run(main())


def test_who_ends_waits_for_calls_and_not_for_streams() -> None:
    """SCA-2: and tells those that take longer."""

    async def main() -> None:
        async with pair() as between:
            listening = between.listen()
            stream = await between.door.get()
            stream.stream(200, [("content-type", "text/event-stream")])
            stream.write(b": ping\n\n")
            quick, slow = between.ask(), between.ask()
            first = await between.door.get()
            await between.door.get()
            ending = asyncio.create_task(between.over.finish(1.0))
            first.reply(200, b"{}")
            assert await quick.json() == {}
            assert (await slow.json())["error"]["code"] == -33007
            await listening.over.wait()
            assert listening.broken is None
            await ending
            await between.over.finish(60.0)  # there is nothing left to wait for

    run(main())


@pytest.mark.parametrize("want", [errno.EMFILE, errno.EADDRNOTAVAIL], ids=["descriptors", "ports"])
def test_who_has_no_connections_left_does_not_take_others_for_dead(
    monkeypatch: pytest.MonkeyPatch, want: int
) -> None:
    """SCA-2: their sessions would be taken from them, and what they answer would be cut off."""

    async def main() -> None:
        async with pair() as between:
            earlier = between.ask()
            there = await between.door.get()
            dial, tried = http_client.dial, 0

            async def fails(address: Address, *more: Any) -> None:
                nonlocal tried
                if address.port != between.port:
                    return await dial(address, *more)
                tried += 1
                raise OSError(want, os.strerror(want))

            monkeypatch.setattr(http_client, "dial", fails)
            reply = between.ask()
            await reply.over.wait()
            assert (reply.status, tried, between.lost, between.again) == (503, 1, [], [])
            there.reply(200, b"{}")
            assert await earlier.json() == {}

    run(main())


def test_a_connection_that_is_not_made_in_time_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCA-1, SCA-2: here everything may have stood still for so long. What the other one answers is
    not cut off, and its sessions stay its own; unless it takes none again and again."""

    async def main() -> None:
        async with pair() as between:
            dial = http_client.dial

            async def hangs(address: Address, *more: Any) -> None:
                await (never_return() if address.port == between.port else dial(address, *more))

            async def late(count: int) -> None:
                asked = len(between.again)
                replies = [between.ask() for _ in range(count)]
                for reply in replies:
                    await reply.over.wait()
                assert len(between.again) == asked + count

            earlier = between.ask()
            there = await between.door.get()
            monkeypatch.setattr(http_client, "dial", hangs)
            monkeypatch.setattr(passing, "IN_A_ROW", 60.0)
            [pool] = between.over._pools.values()  # pyright: ignore[reportPrivateUsage]
            monkeypatch.setattr(pool, "_connect_timeout", 0.05)
            await late(3)
            await late(1)
            assert between.lost == []
            there.reply(200, b"{}")
            assert await earlier.json() == {}
            busy = between.ask()  # with the connection that there is
            await between.door.get()
            await late(1)
            await late(1)
            assert between.lost == []
            await late(1)
            assert between.lost == ["there"]
            busy.abort()

    run(main())
