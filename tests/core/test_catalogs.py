"""The catalog as each caller finds it: SUR-1, NAM-1."""

from typing import Any

from fixtures.parts import Line, Toy, modern, older, run, turns, until
from mcpx.config import Config, Global, Naming, Server
from mcpx.core.gateway import Gateway
from mcpx.model.call import Call, Caller, Json


def choosy(*eras: str) -> Toy:
    """A server that shows `secret` only to those who can be asked."""

    async def lists(line: Line, params: Json) -> Json:
        told = next((given for method, given in line.heard if method == "initialize"), params.get("_meta") or {})
        able = "elicitation" in str(told)
        return {"tools": [{"name": name, "inputSchema": {}} for name in ("plain", *(["secret"] if able else []))]}

    return Toy(*eras, tools=("plain", "secret"), answers={"tools/list": lists})


def config(*servers: Server, **fields: Any) -> Config:
    return Config(mcp_servers=servers, global_=Global(startup_wait=5.0), **fields)


async def names(gateway: Gateway, caller: Caller) -> list[str]:
    return [tool["name"] for tool in (await gateway.handle(Call("tools/list", {}, caller)))["tools"]]


def test_all_callers_share_one_catalog_until_a_server_tells_them_apart() -> None:
    """SUR-1."""

    async def main() -> None:
        gateway = Gateway(config(Toy().server("a")), {})
        gateway.start()
        try:
            await names(gateway, older())
            await names(gateway, older("able", askable=True))
            assert gateway.catalogs.of(older("able", askable=True)) is gateway.catalogs.shared
        finally:
            await gateway.close()

    run(main())


def test_a_caller_that_can_be_asked_finds_more_and_others_do_not() -> None:
    """SUR-1: found out with the first list, or with the first call that misses."""

    async def main() -> None:
        gateway = Gateway(config(choosy("older").server("a")), {})
        gateway.start()
        try:
            able = older("able", askable=True)
            await gateway.handle(Call("tools/call", {"name": "secret", "arguments": {}}, able))
            assert await names(gateway, able) == ["plain", "secret"]
            assert await names(gateway, older("other")) == ["plain"]
            assert await names(gateway, modern(askable=True)) == ["plain", "secret"]
            special = gateway.catalogs.of(able)
            assert special is gateway.catalogs.of(able)
            assert special is not gateway.catalogs.shared
            assert gateway.catalogs.of(older("solo", askable=True, solo=True)) is gateway.catalogs.shared
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
                able = older(f"s{number}", askable=True)
                assert await names(gateway, able) == ["plain", "secret"]
                await gateway.end_session(f"s{number}")
            assert not any(str(key).startswith("s") for key in gateway.catalogs._special)
        finally:
            await gateway.close()

    run(main())


def test_names_stay_except_those_the_user_has_changed() -> None:
    """NAM-1: a prefix of one server renames that server alone; another naming renames all."""

    async def main() -> None:
        one, two = Toy(), Toy()
        gateway = Gateway(config(one.server("one"), two.server("two")), {})
        gateway.start()
        try:
            await until(lambda: all(u.settled.is_set() for u in gateway.generation.upstreams.values()))
            assert await names(gateway, older()) == ["echo", "two_echo"]
            await gateway.apply(config(one.server("one", prefix="x"), two.server("two")))
            assert await names(gateway, older()) == ["x_echo", "two_echo"]
            await gateway.apply(config(two.server("two"), one.server("one", prefix="x")))
            assert await names(gateway, older()) == ["two_echo", "x_echo"]
            await gateway.apply(config(two.server("two"), one.server("one"), naming=Naming(prefix="always")))
            assert await names(gateway, older()) == ["two_echo", "one_echo"]
            await turns()
            assert len(one.lines) == len(two.lines) == 1
        finally:
            await gateway.close()

    run(main())
