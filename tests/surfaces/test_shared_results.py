"""SUR-11, SCA-1: large results over a real store, as several replicas in one process see it."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from kit.loop import run
from kit.replicas import RedisServer
from kit.until import until
from mcpx.replicas.address import parse
from mcpx.replicas.replicas import Replicas
from mcpx.surfaces.large.kept import Kept, pack
from mcpx.surfaces.large.shared import MAX_SHARED_BYTES, SharedResults

KB = 1024
WAIT = 10.0


@pytest.fixture
def store() -> Iterator[RedisServer]:
    with RedisServer() as store:
        yield store


@asynccontextmanager
async def joined(store: RedisServer, key: str = "") -> AsyncIterator[Replicas]:
    replicas = Replicas(parse(store.url), {"MCPX_KEY": key} if key else {}, "test")
    replicas.start()
    try:
        async with asyncio.timeout(WAIT):
            await replicas.joined.wait()
        yield replicas
    finally:
        await replicas.close()


@asynccontextmanager
async def several(
    store: RedisServer, count: int = 2, **bounds: float
) -> AsyncIterator[list[SharedResults]]:
    async with AsyncExitStack() as stack:
        made: list[SharedResults] = []
        for _ in range(count):
            replicas = await stack.enter_async_context(joined(store))
            made.append(SharedResults(replicas, **bounds))
            stack.push_async_callback(made[-1].close)
        yield made


async def written(results: SharedResults) -> None:
    await until(lambda: not results._writes)
    await results._store.settled()


def body(number: int, size: int) -> bytes:
    """Nothing that could be packed."""
    return random.Random(number).randbytes(size)


def text(kept: Kept | None) -> bytes | None:
    return None if kept is None else kept.text()


@pytest.mark.parametrize("size", [0, 10, 1_000_000, MAX_SHARED_BYTES * 99 // 100])
def test_what_one_replica_kept_every_other_reads(store: RedisServer, size: int) -> None:
    """SUR-11: whole, and at once."""

    async def main() -> None:
        async with several(store, 3) as (one, two, three):
            kept = pack(body(1, size))
            handle = one.keep("ann", kept)
            for other in (two, three):
                found = await other.find("ann", handle)
                assert found == kept

    run(main(), 30)


def test_to_anybody_else_a_handle_is_unknown_everywhere(store: RedisServer) -> None:
    """SUR-11: by the same path and without a difference."""

    async def main() -> None:
        async with several(store) as (one, two):
            handle = one.keep("ann", pack(b"secret"))
            assert text(await two.find("ann", handle)) == b"secret"
            for stranger in ("bob", "", "ann ", f"ann{handle[0]}"):
                assert await two.find(stranger, handle) is None
                assert await one.find(stranger, handle) is None
            assert await two.find("ann", "x" * len(handle)) is None
            assert await two.find("ann", "x" * 1_000_000) is None

    run(main())


def test_what_stands_in_the_store_is_encrypted_and_ends_with_its_time(store: RedisServer) -> None:
    """SUR-11, SEC-6: nothing of owner, handle or text is to be seen there, and nothing stays for
    ever."""

    async def main() -> None:
        async with several(store) as (one, _):
            handle = one.keep("ann@example", pack(b"the secret of ann " * 9))
            await written(one)
            everything = b""
            for key in store.cli("--scan", "--pattern", "*:result*").split():
                left = await one._store.ask("PTTL", key)
                assert 0 < left <= 900_000
                everything += key.encode() + await one._store.ask("DUMP", key)
            assert everything and b"ann" not in everything and handle.encode() not in everything

    run(main())


def test_nothing_outlives_its_time_anywhere(store: RedisServer) -> None:
    """SUR-11: counted from the moment it was kept, also of what was copied on the way."""

    async def main() -> None:
        async with several(store, seconds=3.0) as (one, two):
            handle = one.keep("ann", pack(b"x"))
            assert text(await two.find("ann", handle)) == b"x"
            await until(lambda: one.get("ann", handle) is None)
            assert await two.find("ann", handle) is None
            await until(
                lambda: "result" not in store.cli("--scan")
            )  # the list of them is as old as the write

    run(main())


def test_what_one_lets_go_of_for_want_of_room_goes_from_the_store(store: RedisServer) -> None:
    """SUR-11: each replica holds so much there, and no more."""

    async def main() -> None:
        async with several(store, owner_bytes=42 * KB, total_bytes=84 * KB) as (one, two):
            handles = [one.keep("ann", pack(body(number, 10 * KB))) for number in range(30)]
            await written(one)
            found = [await two.find("ann", handle) for handle in handles[:2]]
            assert found == [None, None]
            assert text(await two.find("ann", handles[-1])) == body(29, 10 * KB)
            assert store.cli("--scan", "--pattern", "*:result:*").count("result") == len(one) == 4

    run(main())


def test_a_session_that_ends_takes_its_results_along(store: RedisServer) -> None:
    """SUR-11: those of its replica, and of no other owner."""

    async def main() -> None:
        async with several(store) as (one, two):
            handle = one.keep("session", pack(b"1"))
            other = one.keep("ann", pack(b"2"))
            await written(one)
            assert text(await two.find("session", handle)) == b"1"
            one.forget("session")
            await written(one)
            assert await two.find("session", handle) is None
            assert text(await two.find("ann", other)) == b"2"
            assert store.cli("--scan", "--pattern", "*:result:*").count("result") == 1

    run(main())


def test_a_result_that_is_too_large_for_the_store_stays_at_its_replica(store: RedisServer) -> None:
    """SUR-11"""

    async def main() -> None:
        async with several(store) as (one, two):
            large = body(1, MAX_SHARED_BYTES + 1)
            handle = one.keep("ann", pack(large))
            await written(one)
            assert text(await one.find("ann", handle)) == large
            assert await two.find("ann", handle) is None

    run(main())


def test_what_is_forgotten_while_it_is_written_does_not_come_back(store: RedisServer) -> None:
    """SUR-11: both happen at once."""

    async def main() -> None:
        async with several(store) as (one, two):
            handle = one.keep("session", pack(body(1, MAX_SHARED_BYTES // 2)))
            for _ in range(3):
                await asyncio.sleep(0)
            one.forget("session")
            await written(one)
            assert await two.find("session", handle) is None
            assert "result:" not in store.cli("--scan")

    run(main())


def test_after_letting_go_nothing_that_was_kept_before_is_read(store: RedisServer) -> None:
    """SUR-11, SEC-2: each replica applies a new configuration. No other replica's result is read
    then, not even one of a replica that has ended."""

    async def main() -> None:
        async with several(store, 3) as (one, two, three):
            handles = [one.keep("ann", pack(b"1")), two.keep("ann", pack(b"2"))]
            await written(one)
            await written(two)
            for each in (two, three):
                each.let_go()
                await written(each)
            for each in (two, three):
                assert [await each.find("ann", handle) for handle in handles] == [None, None]
            await asyncio.sleep(0.002)  # The time of writing counts in milliseconds.
            later = two.keep("ann", pack(b"3"))
            assert text(await three.find("ann", later)) == b"3"

    run(main())


def test_what_is_kept_is_found_elsewhere_though_its_replica_has_ended(store: RedisServer) -> None:
    """SUR-11, SCA-2: what is not written yet is written at the end."""

    async def main() -> None:
        async with several(store) as (_, two):
            async with joined(store) as replicas:
                leaving = SharedResults(replicas)
                handle = leaving.keep("ann", pack(body(1, MAX_SHARED_BYTES // 2)))
                await leaving.close()
            assert text(await two.find("ann", handle)) == body(1, MAX_SHARED_BYTES // 2)

    run(main())


def test_without_the_store_a_result_is_read_where_it_is(store: RedisServer) -> None:
    """SUR-11, SCA-2"""

    async def main() -> None:
        async with several(store) as (one, two):
            before = one.keep("ann", pack(b"before"))
            await written(one)
            store.kill()
            await until(lambda: not one._store.up and not two._store.up)
            during = one.keep("ann", pack(b"during"))
            assert text(await one.find("ann", before)) == b"before"
            assert text(await one.find("ann", during)) == b"during"
            assert await two.find("ann", during) is None

    run(main(), 30)


def test_a_result_before_the_store_was_ever_reached_is_written_when_it_is(
    store: RedisServer,
) -> None:
    """SUR-11, SCA-2"""

    async def main() -> None:
        store.kill()
        replicas = Replicas(parse(store.url), {}, "test")
        replicas.start()
        early = SharedResults(replicas)
        try:
            handle = early.keep("ann", pack(b"early"))
            assert text(await early.find("ann", handle)) == b"early"
            assert await early.find("ann", "x" * 12) is None
            store.start()
            async with several(store, 1) as (other,):
                await written(early)
                assert text(await other.find("ann", handle)) == b"early"
        finally:
            await early.close()
            await replicas.close()

    run(main(), 30)


def test_a_result_that_was_damaged_in_the_store_reads_as_unknown(store: RedisServer) -> None:
    """SUR-11, SEC-6"""

    async def main() -> None:
        async with several(store) as (one, two):
            handle = one.keep("ann", pack(b"x"))
            await written(one)
            store.cli("SET", one._name(("ann", handle)), "nonsense")
            assert await two.find("ann", handle) is None

    run(main())
