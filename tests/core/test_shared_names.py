"""NAM-1, NAM-5, SCA-1: names that one replica gave are the names of all, over a real store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.callers import older_caller
from kit.loop import run, yield_to_loop
from kit.replicas import RedisServer
from kit.server import ScriptedServer
from kit.until import until
from mcpx.config import Config, Global, Naming, Server
from mcpx.core.catalogs import _Special
from mcpx.core.gateway import Gateway
from mcpx.core.shared_names import Owner
from mcpx.model.call import Call, Caller
from mcpx.model.events import OffersChanged
from mcpx.replicas.address import parse
from mcpx.replicas.replicas import Replicas


@pytest.fixture
def store() -> Iterator[RedisServer]:
    with RedisServer() as store:
        yield store


def config(*servers: Server, **fields: Any) -> Config:
    return Config(
        mcp_servers=servers, global_=Global(startup_wait=0.0, first_start_wait=0.0), **fields
    )


@asynccontextmanager
async def replica(store: RedisServer, config: Config) -> AsyncIterator[Gateway]:
    replicas = Replicas(parse(store.url), {}, "test")
    gateway = Gateway(config, {}, replicas=replicas)
    replicas.start()
    gateway.start()
    try:
        yield gateway
    finally:
        await gateway.close()
        await replicas.close()


async def names(gateway: Gateway, caller: Caller | None = None) -> list[str]:
    return [
        tool["name"]
        for tool in (await gateway.handle(Call("tools/list", {}, caller or older_caller())))[
            "tools"
        ]
    ]


async def public(gateway: Gateway) -> dict[str, str]:
    """Server → the name of its tool, as a list shows it."""
    await names(gateway)
    return {offer.server: offer.public for offer in gateway.catalog.offers["tools"]}


async def settled(*gateways: Gateway) -> None:
    """All that was shown was told, and what is in the store is known to everybody."""
    for gateway in gateways:
        shared = gateway.catalogs.names
        assert shared is not None
        await until(lambda shared=shared: shared.is_settled)


async def agreed(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await holds():  # noqa: ASYNC110 - each look is a list of its own
            await asyncio.sleep(0.05)


async def shows(gateway: Gateway, expected: dict[str, str]) -> None:
    async def does() -> bool:
        return await public(gateway) == expected

    await agreed(does)


async def come(gateway: Gateway, *servers: str) -> None:
    await until(
        lambda: all(gateway.generation.upstreams[name].settled.is_set() for name in servers)
    )
    await until(lambda: all(gateway.catalog.count(name, "tools") for name in servers))


def pair() -> tuple[ScriptedServer, ScriptedServer, Config]:
    """Two servers with a tool of the same name, neither up yet."""
    one, two = ScriptedServer(), ScriptedServer()
    one.opening.clear()
    two.opening.clear()
    return one, two, config(one.server("one"), two.server("two"))


def test_servers_that_come_up_in_opposite_orders_end_with_the_same_names() -> None:
    """NAM-1, SCA-1: what was shown first counts, be its owner there or not."""

    async def main() -> None:
        with RedisServer() as store:
            one, two, common = pair()
            uno, due, other = pair()
            async with replica(store, common) as first, replica(store, other) as second:
                two.opening.set()
                await come(first, "two")
                assert await names(first) == ["echo"]  # of two
                await settled(first)
                uno.opening.set()
                await come(second, "one")
                await shows(second, {"one": "one_echo"})  # though two is not there
                one.opening.set()
                due.opening.set()
                await come(first, "one", "two")
                await come(second, "one", "two")
                for gateway in (first, second):
                    await shows(gateway, {"one": "one_echo", "two": "echo"})
                await settled(first, second)
                assert (
                    await public(first)
                    == await public(second)
                    == {"one": "one_echo", "two": "echo"}
                )

    run(main(), 30)


def test_both_show_in_the_same_instant_and_one_counts() -> None:
    """NAM-1: each name is settled atomically."""

    async def main() -> None:
        with RedisServer() as store:
            one, two, common = pair()
            uno, due, other = pair()
            async with replica(store, common) as first, replica(store, other) as second:
                await settled(first, second)
                one.opening.set()
                due.opening.set()
                await come(first, "one")
                await come(second, "two")
                await asyncio.gather(names(first), names(second))
                two.opening.set()
                uno.opening.set()
                await come(first, "two")
                await come(second, "one")

                async def same() -> bool:
                    found = await public(first), await public(second)
                    await settled(first, second)
                    return found[0] == found[1] and set(found[0].values()) in (
                        {"echo", "one_echo"},
                        {"echo", "two_echo"},
                    )

                await agreed(same)

    run(main(), 30)


def test_a_replica_that_starts_has_the_names_before_its_first_answer(store: RedisServer) -> None:
    """NAM-1, SCA-1: by the order of the configuration alone they would be others."""

    async def main() -> None:
        one, two, common = pair()
        async with replica(store, common) as first:
            two.opening.set()
            await come(first, "two")
            await public(first)
            one.opening.set()
            await come(first, "one")
            assert await public(first) == {"one": "one_echo", "two": "echo"}
            await settled(first)
        one, two, common = pair()
        one.opening.set()
        two.opening.set()
        async with replica(store, common) as again:
            assert again.catalogs.names is not None and again.catalogs.names.loading is not None
            await names(again)
            assert again.catalogs.names.loading is None
            await come(again, "one", "two")
            assert await public(again) == {"one": "one_echo", "two": "echo"}

    run(main(), 30)


def test_without_the_store_names_are_given_here_and_nobody_waits_long() -> None:
    """NAM-1, SCA-2: on its return they are told to it, what was given twice is settled, and clients
    hear of it."""

    async def main() -> None:
        with RedisServer() as store:
            store.kill()
            one, two, common = pair()
            uno, due, other = pair()
            async with replica(store, common) as first, replica(store, other) as second:
                two.opening.set()
                uno.opening.set()
                async with asyncio.timeout(5):
                    await come(first, "two")
                    await come(second, "one")
                    assert await names(first) == await names(second) == ["echo"]
                one.opening.set()
                due.opening.set()
                await come(first, "one")
                await come(second, "two")
                assert await public(first) == {"one": "one_echo", "two": "echo"}
                assert await public(second) == {"one": "echo", "two": "two_echo"}
                heard: list[tuple[str, list[str]]] = []

                def listen(told: str, gateway: Gateway) -> None:
                    def changed(event: OffersChanged) -> None:
                        heard.append(
                            (told, [offer.public for offer in gateway.catalog.offers["tools"]])
                        )

                    gateway.bus.subscribe(changed, OffersChanged)

                listen("first", first)
                listen("second", second)
                store.start()

                async def same() -> bool:
                    return await public(first) == await public(second)

                await agreed(same)
                settled_on = await public(first)
                await settled(first, second)
                loser = "second" if settled_on["two"] == "echo" else "first"
                await until(lambda: (loser, list(settled_on.values())) in heard)
                assert await public(first) == await public(second) == settled_on

    run(main(), 40)


def test_a_store_that_was_emptied_learns_the_names_again() -> None:
    """NAM-1, SCA-2: of those who know them, also of what only others have shown."""

    async def main() -> None:
        with RedisServer() as store:
            one, two, common = pair()
            async with replica(store, common) as first:
                two.opening.set()
                await come(first, "two")
                await names(first)
                one.opening.set()
                await come(first, "one")
                assert await public(first) == {"one": "one_echo", "two": "echo"}
                await settled(first)
                uno, due, other = pair()
                uno.opening.set()
                due.opening.set()
                async with replica(store, other) as second:
                    await settled(second)
                    store.kill()
                    assert first.replicas is not None and second.replicas is not None
                    down = (first.replicas.store, second.replicas.store)
                    await until(lambda: not any(each.up for each in down))
                    store.start()
                    await until(lambda: all(each.up for each in down))
                    await settled(first, second)
                    await until(lambda: "names" in store.cli("--scan"))
                    uno, due, third = pair()
                    uno.opening.set()
                    due.opening.set()
                    async with replica(store, third) as newest:
                        await names(newest)
                        await come(newest, "one", "two")
                        assert await public(newest) == {"one": "one_echo", "two": "echo"}

    run(main(), 40)


def test_names_that_the_user_has_changed_begin_anew_everywhere(store: RedisServer) -> None:
    """NAM-1, CFG-5: as in one process; a prefix is its server's alone, another naming is
    everybody's."""

    async def main() -> None:
        one, two, common = pair()
        uno, due, other = pair()
        async with replica(store, common) as first, replica(store, other) as second:
            two.opening.set()
            await come(first, "two")
            await names(first)
            await settled(first)
            for toy in (one, uno, due):
                toy.opening.set()
            for gateway in (first, second):
                await come(gateway, "one", "two")
                await shows(gateway, {"one": "one_echo", "two": "echo"})
            for gateway, a, b in ((first, one, two), (second, uno, due)):
                await gateway.apply(config(a.server("one"), b.server("two", prefix="x")))
                assert await public(gateway) == {"one": "one_echo", "two": "x_echo"}
                await settled(gateway)
                assert await public(gateway) == {"one": "one_echo", "two": "x_echo"}
            for gateway, a, b in ((first, one, two), (second, uno, due)):
                await gateway.apply(
                    config(a.server("one"), b.server("two"), naming=Naming(prefix="always"))
                )
                await settled(gateway)
                assert await public(gateway) == {"one": "one_echo", "two": "two_echo"}

    run(main(), 40)


def test_a_name_is_free_again_once_its_server_is_not_configured_any_more(
    store: RedisServer,
) -> None:
    """NAM-1: and what was given meanwhile stays."""

    async def main() -> None:
        one, two, common = pair()
        one.opening.set()
        two.opening.set()
        async with replica(store, common) as first:
            await come(first, "one", "two")
            assert await public(first) == {"one": "echo", "two": "two_echo"}
            await settled(first)
            three = ScriptedServer()
            await first.apply(config(two.server("two"), three.server("three")))
            await come(first, "three")
            assert await public(first) == {"two": "two_echo", "three": "echo"}
            await settled(first)
            assert await public(first) == {"two": "two_echo", "three": "echo"}

    run(main(), 30)


def test_odd_names_of_servers_are_shared_as_they_are(store: RedisServer) -> None:
    """NAM-5: whatever characters they have, and however long they are."""

    async def main() -> None:
        odd = ["a b", "a:b", "ä", "\ud800", "x" * 900, "y" * 5_000, "a\0b"]
        plain, other = ScriptedServer(tools=odd), ScriptedServer(tools=odd)
        async with replica(store, config(plain.server("one"))) as first:
            await come(first, "one")
            shown = await names(first)
            await settled(first)
            async with replica(store, config(other.server("one"))) as second:
                await come(second, "one")
                assert await names(second) == shown
                known = second.catalogs.names
                assert known is not None
                assert set(known.settled.values()) == set(shown) - {
                    first.catalog.offers["tools"][5].public
                }

    run(main(), 30)


def test_many_names_are_told_in_pieces_and_found_whole(store: RedisServer) -> None:
    """NAM-1: a large catalog is built in slices, by the names that count."""

    async def main() -> None:
        tools = [f"t{number}" for number in range(2_500)]

        async def as_given(gateway: Gateway) -> bool:
            await names(gateway)
            found = {(o.server, o.name): o.public for o in gateway.catalog.offers["tools"]}
            return all(
                found["two", tool] == tool and found["one", tool] == f"one_{tool}" for tool in tools
            )

        mine, theirs, again = (
            ScriptedServer(tools=tools),
            ScriptedServer(tools=tools),
            ScriptedServer(tools=tools),
        )
        mine.opening.clear()
        async with replica(store, config(mine.server("one"), theirs.server("two"))) as first:
            await come(first, "two")
            assert set(await names(first)) == set(tools)
            await settled(first)
            mine.opening.set()
            other = config(ScriptedServer(tools=tools).server("one"), again.server("two"))
            async with replica(store, other) as second:
                await come(second, "one", "two")
                for gateway in (first, second):
                    await come(gateway, "one", "two")
                    await agreed(lambda gateway=gateway: as_given(gateway))

    run(main(), 60)


@pytest.mark.parametrize("whose", ["everybody's", "of some"])
def test_names_that_are_settled_while_a_catalog_is_built_in_slices_count_in_it(
    store: RedisServer, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """NAM-1: they were compared with the catalog before that one, and nobody proposes what is
    settled already."""
    monkeypatch.setattr("mcpx.base.aio.SLICE_SECONDS", 0.0)
    tools = [f"t{number}" for number in range(600)]

    async def main() -> None:
        async with replica(
            store,
            config(
                ScriptedServer(tools=tools).server("one"), ScriptedServer(tools=tools).server("two")
            ),
        ) as first:
            await come(first, "one", "two")
            await settled(first)
            catalogs, shared = first.catalogs, first.catalogs.names
            assert shared is not None and catalogs.shared.names()["tools", "one", "t0"] == "t0"
            special = _Special(())
            catalogs._shared = catalogs._recipe = None  # nothing is found yet that could contradict
            if whose == "of some":
                recipe = catalogs._cook(None)
                building = special.building = asyncio.create_task(
                    catalogs._build_special(special, recipe)
                )
            else:
                _ = catalogs.shared
                building = catalogs._building
                assert building is not None
            await yield_to_loop(3)  # it has begun, and has copied the names that count
            assert not building.done()
            theirs: dict[Owner, str] = {
                ("tools", server, tool): name
                for server, tool, name in (("one", "t0", "one_t0"), ("two", "t0", "t0"))
            }
            shared._set(theirs)
            shared._changed()
            await building
            await catalogs.ready()
            found = special.catalog or catalogs.shared
            assert (found.names()["tools", "one", "t0"], found.names()["tools", "two", "t0"]) == (
                "one_t0",
                "t0",
            )

    run(main(), 30)


def test_nothing_of_names_stays_for_ever(store: RedisServer) -> None:
    """SCA-1"""

    async def main() -> None:
        async with replica(store, config(ScriptedServer().server("one"))) as first:
            await come(first, "one")
            await names(first)
            await settled(first)
            keys = store.cli("--scan", "--pattern", "*:names2:*").split()
            assert len(keys) == 2
            assert all(int(store.cli("PTTL", key)) > 0 for key in keys)

    run(main())
