"""The catalog as each caller finds it: SUR-1, NAM-1."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kit.callers import modern_caller, older_caller
from kit.loop import run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.config import Config, Global, Naming, Server
from mcpx.core import catalogs as module
from mcpx.core.gateway import Gateway
from mcpx.model.call import Call, Caller, Json
from mcpx.upstreams.context import ListsRead, ListsVary


def choosy(*eras: str, more: tuple[str, ...] = ("secret",)) -> ScriptedServer:
    """A server that shows `more` only to those who can be asked."""

    async def lists(line: ScriptedConnection, params: Json) -> Json:
        told = next(
            (given for method, given in line.heard if method == "initialize"),
            params.get("_meta") or {},
        )
        able = "elicitation" in str(told)
        return {
            "tools": [
                {"name": name, "inputSchema": {}} for name in ("plain", *(more if able else ()))
            ]
        }

    return ScriptedServer(*eras, tools=("plain", "secret"), answers={"tools/list": lists})


def config(*servers: Server, **fields: Any) -> Config:
    return Config(mcp_servers=servers, global_=Global(startup_wait=5.0), **fields)


async def names(gateway: Gateway, caller: Caller) -> list[str]:
    return [
        tool["name"] for tool in (await gateway.handle(Call("tools/list", {}, caller)))["tools"]
    ]


def test_all_callers_share_one_catalog_until_a_server_tells_them_apart() -> None:
    """SUR-1."""

    async def main() -> None:
        gateway = Gateway(config(ScriptedServer().server("a")), {})
        gateway.start()
        try:
            await names(gateway, older_caller())
            await names(gateway, older_caller("able", askable=True))
            assert (
                gateway.catalogs.of(older_caller("able", askable=True)) is gateway.catalogs.shared
            )
        finally:
            await gateway.close()

    run(main())


def test_a_caller_that_can_be_asked_finds_more_and_others_do_not() -> None:
    """SUR-1: found out with the first list, or with the first call that misses."""

    async def main() -> None:
        gateway = Gateway(config(choosy("older").server("a")), {})
        gateway.start()
        try:
            able = older_caller("able", askable=True)
            await gateway.handle(Call("tools/call", {"name": "secret", "arguments": {}}, able))
            assert await names(gateway, able) == ["plain", "secret"]
            assert await names(gateway, older_caller("other")) == ["plain"]
            assert await names(gateway, modern_caller(askable=True)) == ["plain", "secret"]
            special = gateway.catalogs.of(able)
            assert special is gateway.catalogs.of(able)
            assert special is not gateway.catalogs.shared
            assert (
                gateway.catalogs.of(older_caller("solo", askable=True, solo=True))
                is gateway.catalogs.shared
            )
        finally:
            await gateway.close()

    run(main())


def test_nothing_is_kept_for_a_session_that_is_over() -> None:
    """SUR-1, LIF-9: a thousand sessions are not a thousand catalogs."""

    async def main() -> None:
        gateway = Gateway(config(choosy("older").server("a")), {})
        gateway.start()
        try:
            for number in range(10):
                able = older_caller(f"s{number}", askable=True)
                assert await names(gateway, able) == ["plain", "secret"]
                await gateway.sessions.end_session(f"s{number}")
            assert len(gateway.catalogs._special) <= 1
        finally:
            await gateway.close()

    run(main())


def test_names_stay_except_those_the_user_has_changed() -> None:
    """NAM-1: a prefix of one server renames that server alone; another naming renames all."""

    async def main() -> None:
        one, two = ScriptedServer(), ScriptedServer()
        gateway = Gateway(config(one.server("one"), two.server("two")), {})
        gateway.start()
        try:
            await until(
                lambda: all(u.settled.is_set() for u in gateway.generation.upstreams.values())
            )
            assert await names(gateway, older_caller()) == ["echo", "two_echo"]
            await gateway.apply(config(one.server("one", prefix="x"), two.server("two")))
            assert await names(gateway, older_caller()) == ["x_echo", "two_echo"]
            await gateway.apply(config(two.server("two"), one.server("one", prefix="x")))
            assert await names(gateway, older_caller()) == ["two_echo", "x_echo"]
            await gateway.apply(
                config(two.server("two"), one.server("one"), naming=Naming(prefix="always"))
            )
            assert await names(gateway, older_caller()) == ["two_echo", "one_echo"]
            await yield_to_loop()
            assert len(one.lines) == len(two.lines) == 1
        finally:
            await gateway.close()

    run(main())


@pytest.mark.parametrize("more", [(), ("other",)])
def test_what_some_are_offered_is_found_out_again_of_a_server_that_was_replaced(
    more: tuple[str, ...],
) -> None:
    """SUR-1, CFG-5: by one that offers the same to everybody else."""

    async def main() -> None:
        before, after = choosy("older"), choosy("older", more=more)
        gateway = Gateway(config(before.server("a")), {})
        gateway.start()
        try:
            able = older_caller("able", askable=True)
            assert await names(gateway, able) == ["plain", "secret"]
            await gateway.apply(config(after.server("a")))
            assert (
                await names(gateway, able)
                == await names(gateway, older_caller("one", askable=True))
                == ["plain", *more]
            )
        finally:
            await gateway.close()

    run(main(), 20)


# --- large ones


def large(count: int = 3_000, era: str = "older") -> ScriptedServer:
    """A server with many tools, which it changes from list to list."""
    lists = [0]

    async def many(line: ScriptedConnection, params: Json) -> Json:
        lists[0] += 1
        return {
            "tools": [{"name": f"t{n}", "n": lists[0], "inputSchema": {}} for n in range(count)]
        }

    return ScriptedServer(era, answers={"tools/list": many})


def test_a_large_catalog_is_built_in_slices_and_a_list_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SUR-1: what clients find is whole, and nobody else waits for it."""
    monkeypatch.setattr("mcpx.base.aio.SLICE_SECONDS", 0.0)

    async def main() -> None:
        gateway = Gateway(config(ScriptedServer().server("small"), large().server("large")), {})
        gateway.start()
        try:
            assert len(await names(gateway, older_caller())) == 3_001
            before = gateway.catalog
            gateway.catalogs.changed()
            assert gateway.catalog is before and not gateway.catalogs._stale  # nothing has changed
            upstream = gateway.generation.upstreams["large"]
            upstream.book.common = {
                **upstream.definitions,
                "tools": [{"name": f"u{n}"} for n in range(2_000)],
            }
            gateway.catalogs.changed()
            assert gateway.catalog is before  # until the next one is built
            between = 0
            building = asyncio.create_task(gateway.catalogs.ready())
            while not building.done():
                between += 1
                await asyncio.sleep(0)
            assert between > 50
            assert len(gateway.catalog.offers["tools"]) == 2_001
            assert await gateway.catalogs.ready() is False
        finally:
            await gateway.close()

    run(main())


def test_a_tool_is_found_though_the_catalog_that_has_it_is_only_being_built() -> None:
    async def main() -> None:
        gateway = Gateway(config(large().server("large")), {})
        gateway.start()
        try:
            await gateway.generation.upstreams["large"].settled.wait()
            offer = await gateway.view(older_caller()).find("tools", "t2999")
            assert offer.name == "t2999"
            assert (await gateway.describe())["servers"][0]["tools"] == 3_000
        finally:
            await gateway.close()

    run(main())


# --- what is kept


def test_names_that_nobody_has_are_not_kept() -> None:
    """SEC-6."""

    async def main() -> None:
        gateway = Gateway(config(ScriptedServer("older").server("a")), {})
        gateway.start()
        try:
            await names(gateway, older_caller())
            for number in range(100):
                assert gateway.access.param_headers(f"nobody_{number}", modern_caller()) is None
            gateway.access.param_headers("echo", modern_caller())
            assert list(gateway.annotations._known) == ["echo"]
        finally:
            await gateway.close()

    run(main())


def test_names_that_were_given_are_bounded_in_number_and_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NAM-1: a name stays with its owner, but not for ever with owners that are gone."""
    monkeypatch.setattr(module, "MOST_GIVEN", 50)
    monkeypatch.setattr(module, "GIVEN_CHARACTERS", 10_000)

    async def main() -> None:
        gateway = Gateway(config(ScriptedServer("older").server("a")), {})
        gateway.start()
        try:
            await names(gateway, older_caller())
            book = gateway.generation.upstreams["a"].book
            for number in range(100):
                long = "x" * (3_000 if number > 50 else 1)
                book.common = {
                    **book.common,
                    "tools": [{"name": f"n{number}_{at}_{long}"} for at in range(5)],
                }
                gateway.catalogs.changed()
                assert len(await names(gateway, older_caller())) == 5
                given = gateway.catalogs._given
                assert len(given) <= 50 + 5
                assert sum(len(key[2]) for key in given) <= 10_000 + 5 * 3_100
        finally:
            await gateway.close()

    run(main())


def test_catalogs_of_some_callers_are_shared_by_their_like_and_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SUR-1, SEC-6: a thousand sessions of one kind are one catalog."""
    monkeypatch.setattr(module, "MOST_SPECIAL", 3)

    async def main() -> None:
        gateway = Gateway(config(choosy("older").server("a")), {})
        gateway.start()
        try:
            found = set()
            for number in range(10):
                able = older_caller(f"s{number}", askable=True)
                assert await names(gateway, able) == ["plain", "secret"]
                found.add(id(gateway.catalogs.of(able)))
            assert len(found) == 1 and len(gateway.catalogs._special) == 1
            book = gateway.generation.upstreams["a"].book
            for number in range(10):
                book._by_session[f"s{number}"] = {
                    **book.common,
                    "tools": [{"name": f"own{number}"}],
                }
                assert await names(gateway, older_caller(f"s{number}", askable=True)) == [
                    f"own{number}"
                ]
                assert len(gateway.catalogs._special) <= 3
            assert len(gateway.catalogs._shown) <= 4
        finally:
            await gateway.close()

    run(main())


# --- what changes while a large one is built


class Slow:
    """A gateway whose catalogs of more than two tools are built in slices; one server, whose tools
    a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "AT_ONCE", 2)
        monkeypatch.setattr("mcpx.base.aio.SLICE_SECONDS", 0.0)
        self.gateway = Gateway(config(ScriptedServer("older", tools=()).server("a")), {})

    async def __aenter__(self) -> "Slow":
        self.gateway.start()
        await until(lambda: self.gateway.generation.upstreams["a"].known)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.close()

    def offer(self, tools: str) -> None:
        """Each letter is a tool."""
        book = self.gateway.generation.upstreams["a"].book
        book.common = {
            **book.common,
            "tools": [{"name": name, "inputSchema": {}} for name in tools],
        }
        self.gateway.reports.publish(ListsRead("a", ("tools",), True))

    def look(self, caller: Caller) -> str:
        return "".join(offer.name for offer in self.gateway.catalogs.of(caller).offers["tools"])

    async def listed(self, caller: Caller) -> str:
        while await self.gateway.catalogs.ready(caller):
            pass
        return self.look(caller)


def test_what_changes_before_a_building_has_begun_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SUR-1: two servers answer in the same turn of the loop, and somebody looks in between."""

    async def main() -> None:
        async with Slow(monkeypatch) as on:
            on.offer("abc")
            on.look(older_caller())
            on.offer("abcd")
            assert await on.listed(older_caller()) == "abcd"

    run(main(), 10)


@pytest.mark.parametrize("then", ["abc", "ab", ""])
def test_a_building_that_was_overtaken_is_shown_to_nobody(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SUR-1: while what is offered now is built, it becomes what it was before; or little, which is
    built at once."""

    async def main() -> None:
        async with Slow(monkeypatch) as on:
            on.offer("abc")
            assert await on.listed(older_caller()) == "abc"
            on.offer("abcdefgh")
            on.look(older_caller())
            await yield_to_loop(2)
            on.offer(then)
            on.look(older_caller())
            await yield_to_loop(50)
            assert on.look(older_caller()) == await on.listed(older_caller()) == then

    run(main(), 10)


def test_nor_does_it_stay_with_those_who_are_offered_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Slow(monkeypatch) as on:
            able = older_caller("able", askable=True)
            other = ScriptedServer("older", tools=("x",)).server("b")
            before = on.gateway.generation.config
            await on.gateway.apply(replace(before, mcp_servers=(*before.mcp_servers, other)))
            book = on.gateway.generation.upstreams["b"].book
            on.offer("abc")
            book._by_session["able"] = {**book.common, "tools": [{"name": "y", "inputSchema": {}}]}
            on.gateway.reports.publish(ListsVary("b", ("tools",), "able"))
            assert await on.listed(older_caller()) == "abcx"
            on.offer("abcdefgh")
            on.look(able)
            await yield_to_loop(2)
            on.offer("abc")
            on.look(older_caller())
            await yield_to_loop(50)
            assert await on.listed(able) == "abcy"

    run(main(), 10)
