"""SUR-5, SCA-1: what `auto` chose for clients without a session, over a real store."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from kit.loop import run
from kit.replicas import RedisServer
from kit.until import until
from mcpx.replicas.address import parse
from mcpx.replicas.replicas import Replicas
from mcpx.surfaces import choices
from mcpx.surfaces.choices import Choice
from mcpx.surfaces.shared import SharedChoices
from mcpx.surfaces.surface import Lasting

DIRECT = Choice("ann", "direct", "few tools")
SEARCH = Choice("ann", "search", "many tools")


@pytest.fixture
def store() -> Iterator[RedisServer]:
    with RedisServer() as store:
        yield store


@asynccontextmanager
async def several(store: RedisServer, count: int = 2) -> AsyncIterator[list[SharedChoices]]:
    async with AsyncExitStack() as stack:
        made: list[SharedChoices] = []
        for _ in range(count):
            replicas = Replicas(parse(store.url), {}, "test")
            replicas.start()
            stack.push_async_callback(replicas.close)
            made.append(SharedChoices(replicas))
            stack.push_async_callback(made[-1].close)
            async with asyncio.timeout(10):
                await made[-1]._joined.wait()
        yield made


def test_calls_at_another_replica_go_by_the_last_list(store: RedisServer) -> None:
    """SUR-5: whatever that one had chosen, and whatever it chose for want of knowing."""

    async def main() -> None:
        async with several(store) as (one, two):
            assert await two.find("ann") is None
            two.keep("ann", DIRECT)  # at a call
            one.keep("ann", SEARCH, everywhere=True)  # at a list
            await until(lambda: two.of("ann") is None)
            assert await two.find("ann") == SEARCH == two.of("ann")
            two.keep("ann", DIRECT, everywhere=True)
            await until(lambda: one.of("ann") is None)
            assert await one.find("ann") == DIRECT

    run(main())


@pytest.mark.parametrize("when", ["it is looked for", "it is chosen"])
def test_a_list_at_another_replica_counts_though_its_news_come_while(
    store: RedisServer, when: str
) -> None:
    """SUR-5: the news come before there is anything to forget."""

    async def main() -> None:
        async with several(store) as (one, two):
            heard: list[bytes] = []
            two._store.hear("choice", heard.append)
            ask = two._store.ask

            async def listed(choice: Choice) -> None:
                before = len(heard)
                one.keep("ann", choice, everywhere=True)
                await until(lambda: len(heard) > before)

            async def overtaken(*words: Any) -> Any:
                two._store.ask = ask
                answer = await ask(*words)
                await listed(SEARCH)
                return answer

            if when == "it is looked for":
                await listed(DIRECT)
                two._store.ask = overtaken  # type: ignore[method-assign]
                assert await two.find("ann") == SEARCH
            else:
                assert await two.find("ann") is None
                await listed(SEARCH)
                two.keep("ann", DIRECT)
                assert two.of("ann") is None
            assert await two.find("ann") == SEARCH == two.of("ann")
            await listed(DIRECT)
            assert two.of("ann") is None

    run(main())


def test_the_same_choice_at_two_replicas_is_no_news(store: RedisServer) -> None:
    async def main() -> None:
        async with several(store) as (one, two):
            one.keep("ann", SEARCH, everywhere=True)
            one.keep("bob", DIRECT, everywhere=True)
            await one._store.settled()
            two.keep("ann", SEARCH, everywhere=True)
            two.keep("bob", SEARCH, everywhere=True)
            await until(lambda: one.of("bob") is None)  # which was told after it
            assert one.of("ann") == SEARCH

    run(main())


def test_nothing_of_a_session_goes_to_the_store(store: RedisServer) -> None:
    """SUR-5: it has its choice with it."""

    async def main() -> None:
        async with several(store) as (one, _):
            one.keep("session", DIRECT)
            await one._store.settled()
            assert "choice" not in store.cli("--scan")
            await one._returned(False)
            assert one.of("session") == DIRECT

    run(main())


def test_what_was_chosen_while_the_store_was_away_is_told_on_its_return(store: RedisServer) -> None:
    """SUR-5, SCA-2: and what it has lost."""

    async def main() -> None:
        async with several(store) as (one, two):
            one.keep("ann", SEARCH, everywhere=True)
            await one._store.settled()
            store.kill()
            await until(lambda: not one._store.up and not two._store.up)
            one.keep("bob", DIRECT, everywhere=True)
            assert await two.find("ann") is None
            store.start()
            await until(lambda: one._store.up and two._store.up)
            await one._store.settled()
            await until(lambda: store.cli("--scan", "--pattern", "*:choice:*").count("choice") == 2)
            assert await two.find("ann") == SEARCH
            assert await two.find("bob") == DIRECT

    run(main(), 30)


def test_choices_are_bounded_in_the_store_and_end_there(
    store: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-1: clients may say they are anybody."""
    monkeypatch.setattr(choices, "REMEMBERED", 10)

    async def main() -> None:
        async with several(store, 1) as (one,):
            for number in range(50):
                one.keep(f"client {number}", SEARCH, everywhere=True)
            await one._store.settled()
            keys = store.cli("--scan", "--pattern", "*:choice:*").split()
            assert len(keys) == len(one._made) == len(one._owners) == len(one._mine) == 10
            assert all(int(store.cli("PTTL", key)) > 0 for key in keys)

    run(main())


def test_the_choice_of_a_session_is_taken_along() -> None:
    """SUR-5, SCA-1: and nothing else that somebody may have put there."""
    here, there = Lasting(), Lasting()
    assert here.choice_of("session") is None
    here.choices.keep("session", SEARCH)
    taken = here.choice_of("session")
    assert taken is not None
    there.take_choice("session", taken)
    assert there.choices.of("session") == SEARCH
    for odd in ({}, {"mode": "search"}, {**taken, "mode": 7}, {**taken, "mode": "no such mode"}):
        there.take_choice("other", odd)
    assert there.choices.of("other") is None
