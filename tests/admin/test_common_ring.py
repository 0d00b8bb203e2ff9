"""ADM-4, SCA-1: the events of all replicas on a real store, each replica's ring in one process."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kit.loop import run
from kit.replicas import RedisServer
from kit.until import until
from mcpx.admin import events as module
from mcpx.admin.common_ring import CommonRing
from mcpx.admin.events import Events
from mcpx.admin.shapes.events import ApprovalsEvent
from mcpx.config import Config
from mcpx.core.gateway import Gateway
from mcpx.replicas.address import parse
from mcpx.replicas.replicas import Replicas


@pytest.fixture
def store() -> Iterator[RedisServer]:
    with RedisServer() as store:
        yield store


@asynccontextmanager
async def joined(store: RedisServer, name: str) -> AsyncIterator[Replicas]:
    replicas = Replicas(parse(store.url), {"MCPX_REPLICA": name}, "test")
    replicas.start()
    try:
        async with asyncio.timeout(10):
            await replicas.joined.wait()
        replicas.members.start()
        yield replicas
    finally:
        await replicas.close()


@asynccontextmanager
async def ring(store: RedisServer, name: str, wanted: list[str]) -> AsyncIterator[CommonRing]:
    async with joined(store, name) as replicas:
        made = CommonRing(replicas, lambda: None, lambda: wanted.append(name))
        try:
            await (
                made._store.settled()
            )  # it has heard that the store is there, and begun anew for that
            yield made
        finally:
            await made.close()


def test_whoever_ceased_to_tell_begins_again_when_somebody_listens_again(
    store: RedisServer,
) -> None:
    """ADM-4, SCA-2: the listener's replica was paused, or its machine was, for longer than its word
    is good."""

    async def main() -> None:
        wanted: list[str] = []
        async with ring(store, "listens", []) as listening, ring(store, "tells", wanted) as telling:
            listening.listen()
            await until(lambda: wanted)
            numbers = telling._replicas.members._numbers
            await until(
                lambda: numbers.get("events") == int(store.cli("HGET", "{mcpx}:numbers", "events"))
            )
            store.cli("DEL", "{mcpx}:events:heard")
            assert not await telling.is_wanted()
            wanted.clear()
            listening.say_so()
            await until(lambda: wanted, 10)
            before = store.cli("HGET", "{mcpx}:numbers", "events")
            for _ in range(3):  # it is no news while it was said before
                listening.say_so()
            await listening._store.settled()
            assert store.cli("HGET", "{mcpx}:numbers", "events") == before

    run(main(), 30)


def test_two_listeners_that_come_back_at_once_hear_nothing_twice(store: RedisServer) -> None:
    """ADM-4: one was away for longer; both look into the stream at the same time."""

    async def main() -> None:
        async with ring(store, "tells", []) as telling, ring(store, "listens", []) as listening:
            for pending in range(6):
                telling.add("approvals", ApprovalsEvent(pending=pending))
            await telling._store.settled()
            ids = [id for id, _ in await telling._entries("-", 10)]
            assert len(ids) == 6
            further, later = await asyncio.gather(
                listening.settle(ids[0]), listening.settle(ids[3])
            )
            assert further is not None and later is not None
            for id, number, missed in ((ids[0], further, 5), (ids[3], later, 2)):
                _, frames = listening.after(number)
                assert frames.count(b"event: approvals") == missed
                assert listening.id(number) == id

    run(main())


def test_a_listener_who_comes_while_it_is_asked_whether_there_are_any_is_told_what_happens(
    store: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADM-4: the answer is of the moment before."""
    monkeypatch.setattr(module, "TICK", 0.01)
    monkeypatch.setattr(module, "LINGER", 0.0)

    async def main() -> None:
        async with joined(store, "one") as replicas:
            gateway = Gateway(Config(), {}, replicas=replicas)
            desk: Any = SimpleNamespace(
                gateway=gateway, recording=None, statistics=None, store=None
            )
            people: Any = SimpleNamespace(rows=list, sessions=0)
            events = Events(desk, people, lambda: asyncio.sleep(0, "etag"))
            assert events._common is not None
            await events._common._store.settled()
            asked, answers = asyncio.Event(), asyncio.Event()

            async def is_wanted() -> bool:
                asked.set()
                await answers.wait()
                return False

            monkeypatch.setattr(events._common, "is_wanted", is_wanted)
            events._begin()  # somebody listens at another replica
            try:
                await asked.wait()
                stream = events.listen(None)
                answers.set()
                asked.clear()
                ticked = asyncio.Event()
                monkeypatch.setattr(events, "_look_at_rates", ticked.set)
                async with asyncio.timeout(5):
                    await ticked.wait()
                assert events._on and events._common._reading is not None
                stream._on_end()
                async with asyncio.timeout(5):
                    await asked.wait()
                await until(lambda: not events._on)
            finally:
                await events.close()
                await gateway.close()

    run(main())
