"""SEC-8: a relay between two replicas, which sees and changes what they send, and does not know
their key."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from kit.http_pair import StreamedReply
from kit.loop import run
from mcpx.replicas import channel
from mcpx.replicas.channel import MAX_AGE_SECONDS, MAX_RECORD_BYTES
from mcpx.replicas.seals import Seals
from mcpx.wire.http_client import ConnectionLost, Pool
from mcpx.wire.http_server import Exchange, HttpServer

SECRET = b"the secret of the request"
ANSWER = b"the secret of the answer"

Change = Callable[[bytes], bytes]
"""From the bytes that the relay has read to those that it forwards."""


def unchanged(data: bytes) -> bytes:
    return data


@dataclass
class Relay:
    """Forwards the bytes of each connection, and records them."""

    target: int
    request: Change = unchanged
    answer: Change = unchanged
    seen: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    """The direction (`>` to the server) and the bytes of each chunk."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", self.target)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forward(b">", reader, outer))
            group.create_task(self._forward(b"<", inner, writer))

    async def _forward(
        self, way: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(1 << 20):
                self.seen.append((way, data))
                change = self.request if way == b">" else self.answer
                writer.write(change(data))
        except ConnectionError:
            pass
        writer.close()


@dataclass
class Pair:
    pool: Pool
    port: int
    relay: Relay
    handled: list[bytes]
    """Bodies of requests that the server has handled."""

    async def ask(self, body: bytes = SECRET) -> StreamedReply:
        reply = StreamedReply()
        self.pool.start("POST", "/mcp", b"mcpx-visitor: ann\r\n", body, reply)
        await reply.over.wait()
        return reply


@asynccontextmanager
async def relayed(seals: Seals | None = None) -> AsyncIterator[Pair]:
    """A client, a relay, and the replica `there`."""
    handled: list[bytes] = []

    def handle(exchange: Exchange) -> None:
        handled.append(exchange.body)
        exchange.reply(200, ANSWER + exchange.body)

    keys = Seals()
    server = HttpServer(handle, secure=channel.accepting(keys, "there"))
    relay = Relay(await server.start("127.0.0.1", 0))
    listener = await asyncio.start_server(relay.handle, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    pool = Pool(f"http://127.0.0.1:{port}", secure=channel.connecting_to("there", seals or keys))
    try:
        yield Pair(pool, relay.target, relay, handled)
    finally:
        await pool.close()
        listener.close()
        await server.close(0.0)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_relay_reads_nothing_and_one_connection_carries_many_requests() -> None:
    """SCA-1: one handshake for each connection, and no further messages for each request."""

    async def main() -> None:
        async with relayed() as pair:
            for _ in range(3):
                assert await (await pair.ask()).text() == ANSWER + SECRET
            seen = b"".join(data for _, data in pair.relay.seen)
            assert SECRET not in seen and ANSWER not in seen and b"mcpx-visitor" not in seen
            ways = b"".join(way for way, _ in pair.relay.seen)
            assert ways in (b"><" + b">><" + b"><" * 2, b"><" * 4), (
                "the proof may travel with the first request"
            )

    run(main())


def test_a_large_body_travels_in_several_records() -> None:
    """SEC-6: no record is larger than `MAX_RECORD_BYTES`."""

    async def main() -> None:
        async with relayed() as pair:
            body = bytes(range(256)) * (MAX_RECORD_BYTES // 100)
            assert await (await pair.ask(body)).text() == ANSWER + body

    run(main())


@pytest.mark.parametrize(
    ("tamper", "handled"),
    [
        (flipped, 0),
        (lambda data: b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", 0),
        (lambda data: data + data, 1),
    ],
    ids=["changed", "replaced", "repeated"],
)
def test_a_request_that_a_relay_tampers_with_is_not_handled(tamper: Change, handled: int) -> None:
    """SEC-8: and a request that the relay repeats is handled once."""

    async def main() -> None:
        async with relayed() as pair:
            assert (await pair.ask(b"first")).status == 200
            pair.relay.request = tamper
            await pair.ask()
            assert pair.handled.count(SECRET) == handled

    run(main())


@pytest.mark.parametrize(
    "tamper",
    [
        flipped,
        lambda data: data[:-1] + b"xx",
        lambda data: b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_an_answer_that_a_relay_tampers_with_is_not_delivered(tamper: Change) -> None:
    """SEC-8: the caller gets an error, because the call may have had an effect."""

    async def main() -> None:
        async with relayed() as pair:
            assert (await pair.ask(b"first")).status == 200
            pair.relay.answer = tamper
            reply = await pair.ask()
            assert isinstance(reply.broken, ConnectionLost) and reply.broken.sent
            assert reply.status == 0

    run(main())


def test_recorded_bytes_are_worth_nothing_on_another_connection() -> None:
    """SEC-8: a forwarded identity and its request are accepted once."""

    async def main() -> None:
        async with relayed() as pair:
            await pair.ask()
            recorded = b"".join(data for way, data in pair.relay.seen if way == b">")
            reader, writer = await asyncio.open_connection("127.0.0.1", pair.port)
            writer.write(recorded)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1 << 16)  # The server closes the connection.
            writer.close()
            assert pair.handled == [SECRET]

    run(main())


@pytest.mark.parametrize(
    ("age", "handled"), [(MAX_AGE_SECONDS - 1, True), (MAX_AGE_SECONDS + 1, False)]
)
def test_a_request_that_is_held_back_for_too_long_is_not_handled(
    monkeypatch: pytest.MonkeyPatch, age: float, handled: bool
) -> None:
    """SEC-8: a forwarded identity is valid for 10 seconds."""
    late = 0.0
    real = channel.monotonic
    monkeypatch.setattr(channel, "monotonic", lambda: real() + late)

    def hold(data: bytes) -> bytes:
        nonlocal late
        late = age  # Time passes between the client's write and the server's read.
        return data

    async def main() -> None:
        async with relayed() as pair:
            assert (await pair.ask(b"first")).status == 200
            pair.relay.request = hold
            reply = await pair.ask()
            assert (reply.status == 200) is handled
            assert (SECRET in pair.handled) is handled

    run(main())


def test_a_connection_that_is_used_for_days_stays_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCA-1: clocks of two machines run at different speeds; each answer corrects the client's."""
    skew = 0.0
    real = channel.monotonic
    monkeypatch.setattr(channel, "monotonic", lambda: real() + skew)

    def behind(data: bytes) -> bytes:
        nonlocal skew
        skew += MAX_AGE_SECONDS / 3
        return data

    async def main() -> None:
        async with relayed() as pair:
            pair.relay.request = behind
            for _ in range(10):
                assert (await pair.ask()).status == 200

    run(main())


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"mcpx/1" + bytes(200), b""])
def test_no_request_is_sent_to_a_process_without_the_key(says: bytes) -> None:
    """SEC-8: it listens where a replica was, or where the store says that one is."""

    async def main() -> None:
        heard = b""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal heard
            heard += await reader.read(1 << 16)
            writer.write(says)
            if not says:
                writer.close()
            heard += await reader.read(1 << 16)
            writer.close()

        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        pool = Pool(f"http://127.0.0.1:{port}", secure=channel.connecting_to("there", Seals()))
        reply = StreamedReply()
        pool.start("POST", "/mcp", b"", SECRET, reply)
        await reply.over.wait()
        assert isinstance(reply.broken, ConnectionLost) and not reply.broken.sent
        assert heard and SECRET not in heard and b"POST" not in heard
        await pool.close()
        listener.close()

    run(main())


def test_replicas_with_one_common_key_find_it() -> None:
    """SCA-2: the key of a store without MCPX_KEY changes when the store was emptied."""

    async def main() -> None:
        old, new = b"o" * 32, b"n" * 32
        for ours, theirs in (((old, new), (old,)), ((old,), (old, new))):
            keys, others = Seals(ours[0]), Seals(theirs[0])
            for seals, known in ((keys, ours), (others, theirs)):
                for key in known[1:]:
                    seals.take_up(key)
            server = HttpServer(
                lambda exchange: exchange.reply(200), secure=channel.accepting(others, "there")
            )
            port = await server.start("127.0.0.1", 0)
            pool = Pool(f"http://127.0.0.1:{port}", secure=channel.connecting_to("there", keys))
            reply = StreamedReply()
            pool.start("GET", "/", b"", b"", reply)
            await reply.over.wait()
            assert reply.status == 200
            await pool.close()
            await server.close(0.0)

    run(main())
