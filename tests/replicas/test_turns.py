"""Work that is done by one replica for all: for as long as it takes, and no longer than its replica
lives."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.loop import run
from kit.replicas import RedisServer as Server
from mcpx.replicas.address import parse
from mcpx.replicas.once import Turns
from mcpx.replicas.store import Store, StoreDown, Word


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@asynccontextmanager
async def turns(server: Server, patience: float = 10.0) -> AsyncIterator[tuple[Turns, Store]]:
    store = Store(parse(server.url), patience)
    made = Turns(store)
    store.start()
    await store.there.wait()
    try:
        yield made, store
    finally:
        await made.close()
        await store.close()


def test_a_turn_that_is_extended_lasts_as_long_as_its_work(server: Server) -> None:
    """SCA-1: a token server may take longer than a replica may be gone."""

    async def main() -> None:
        async with turns(server) as (one, _), turns(server) as (other, _):
            order: list[str] = []
            begun = asyncio.Event()

            async def slow() -> None:
                async with one.turn("x", 1.5, extended=True) as waited:
                    assert not waited
                    begun.set()
                    await asyncio.sleep(3.5)  # the work
                    order.append("slow")

            async def next_one() -> None:
                await begun.wait()
                async with other.turn("x", 1.5, extended=True) as waited:
                    assert waited
                    order.append("next")

            await asyncio.gather(slow(), next_one())
            assert order == ["slow", "next"]

    run(main())


def test_a_replica_that_dies_in_its_turn_holds_up_the_others_for_a_moment_only(
    server: Server,
) -> None:
    """SCA-1, SCA-2"""

    async def main() -> None:
        async with turns(server) as (other, _), turns(server) as (one, store):
            held = asyncio.Event()

            async def work() -> None:
                async with one.turn("x", 1.0, extended=True):
                    held.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await held.wait()
            await store.close()  # nothing of it reaches the store any more
            async with asyncio.timeout(5), other.turn("x", 1.0) as waited:
                assert waited
            task.cancel()

    run(main())


def test_a_turn_that_the_store_gave_to_nobody_holds_nobody_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-2: it did what it was asked, and could not say so."""

    async def main() -> None:
        async with turns(server) as (one, store):
            ask = store.ask

            def unanswered(*words: Word) -> "asyncio.Future[Any]":
                async def answer() -> None:
                    await ask(*words)
                    raise StoreDown("it did not answer in time")

                return asyncio.ensure_future(answer())

            with monkeypatch.context() as patched:
                patched.setattr(store, "ask", unanswered)
                async with one.turn("x", 60):
                    pass  # for itself
            async with asyncio.timeout(10), one.turn("x", 60):
                assert server.cli("EXISTS", store.key("turn", "x")) == "1"

    run(main())


def test_a_turn_whose_end_the_store_was_not_told_holds_nobody_up(server: Server) -> None:
    """SCA-2: it was away when the work was over, and had forgotten nothing when it was back."""

    async def main() -> None:
        async with turns(server, 0.3) as (one, store):
            async with one.turn("x", 60):
                server.pause()
                with pytest.raises(StoreDown):
                    await store.ask("PING")
            store._queue.patience = 10.0  # from now on a busy machine is not a store that is away
            server.go_on()
            await store.there.wait()
            async with asyncio.timeout(10), one.turn("x", 60):
                assert store.up

    run(main())


def test_who_gives_up_in_the_moment_it_is_given_a_turn_does_not_keep_it(server: Server) -> None:
    async def main() -> None:
        async with turns(server) as (one, _), turns(server) as (other, _):

            async def work() -> None:
                async with one.turn("x", 60):
                    raise AssertionError("it had given up")

            task = asyncio.create_task(work())
            await asyncio.sleep(0)  # it has asked
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            async with asyncio.timeout(10), other.turn("x", 60):
                pass

    run(main())


def test_what_extends_a_turn_ends_with_its_owner(server: Server) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with turns(server) as (one, _):
            turn = one.turn("x", 60, extended=True)
            await turn.__aenter__()
        assert asyncio.all_tasks() == before

    run(main())
