"""SEC-2 where it cannot be tried from outside: who shares what, who waits for whom, who hears
what."""

import asyncio
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest

from kit.callers import modern_caller, older_caller
from kit.core_gateway import CoreGateway
from kit.loop import run
from kit.server import ScriptedServer
from kit.until import until
from mcpx.base.aio import at_once
from mcpx.catalog.catalog import Catalog, Source
from mcpx.catalog.naming import Naming, wrap_uri
from mcpx.catalog.narrowed import Blank, Narrowed
from mcpx.config import Config, Global, Policy, Profile
from mcpx.core import reports
from mcpx.front.audience import Session
from mcpx.front.dispatch import Dispatcher
from mcpx.front.notices import Notice
from mcpx.model.call import Call, Caller
from mcpx.model.errors import NotFound, RpcError
from mcpx.model.offer import KINDS, Offer
from mcpx.policy.rules import Rules
from mcpx.policy.sight import NOTHING
from mcpx.policy.sights import SeenThrough, Sights


class HidingRules(Rules):
    """Hide a server from guests, and one tool from everybody."""

    def __init__(self) -> None:
        super().__init__(Policy(), lambda server: True)

    def principal_class(self, principal: str) -> Hashable:
        return principal.startswith("guest")

    def hidden(self, profile: str | None, principal: str, offer: Offer) -> bool:
        return offer.name == "secret" or self.hidden_server(profile, principal, offer.server)

    def hidden_server(self, profile: str | None, principal: str, server: str) -> bool:
        return principal.startswith("guest") and server == "vault"

    def hidden_resource(self, profile: str | None, principal: str, server: str, uri: str) -> bool:
        return self.hidden_server(profile, principal, server)


def catalog(**servers: Any) -> Catalog:
    return Catalog.build([Source(name, None, offers) for name, offers in servers.items()], Naming())


def narrowed(whole: Catalog, **fields: Any) -> Narrowed:
    return at_once(Narrowed.narrowing(whole, SeenThrough(Profile(name="p", **fields))))


def tools(*names: str) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}


# --- sights


def test_callers_who_see_the_same_share_one_sight() -> None:
    profiles = (Profile(name="p", tools=("a",)), Profile(name="all"))
    alone = Sights(profiles, None)
    assert alone.of("p", "ada") is alone.of("p", "bob") is not None
    assert alone.of("all", "ada") is alone.of(None, "ada") is None
    assert alone.of("gone", "ada") is NOTHING
    ruled = Sights(profiles, HidingRules())
    assert ruled.of("p", "guest-1") is ruled.of("p", "guest-2")
    assert ruled.of("p", "guest-1") is not ruled.of("p", "ada")
    assert ruled.of(None, "guest-1") is not ruled.of("p", "guest-1")


def test_what_a_rule_hides_is_not_seen_through_any_profile() -> None:
    sights = Sights((Profile(name="p", tools=("*",)),), HidingRules())
    secret, plain = (Offer("tools", "vault", name, name, {}) for name in ("secret", "plain"))
    guest, ada = sights.of("p", "guest"), sights.of("p", "ada")
    assert guest is not None
    assert ada is not None
    assert [guest.offer(plain), guest.server("vault"), guest.resource("vault", "x:y")] == [
        False
    ] * 3
    assert [
        ada.offer(plain),
        ada.offer(secret),
        ada.server("vault"),
        ada.resource("vault", "x:y"),
    ] == [
        True,
        False,
        True,
        True,
    ]


# --- narrowed catalogs


def test_a_narrowed_catalog_finds_nothing_else_in_any_way() -> None:
    whole = catalog(a=tools("find", "drop"), b=tools("find", "keep"))
    some = narrowed(whole, tools=("a.find", "keep"))
    assert [offer.public for offer in some.offers["tools"]] == ["find", "keep"]
    assert (
        some.find("tools", "drop")
        is some.native("tools", "a", "drop")
        is some.find("tools", "b_find")
        is None
    )
    assert [offer.server for offer in some.tools_named("find")] == ["a"]
    assert (some.count("a", "tools"), some.count("b", "tools")) == (1, 1)
    hits = some.index.search("find")
    assert (hits.total, [some.offers["tools"][hit.position].server for hit in hits.hits]) == (
        1,
        ["a"],
    )
    assert some.index.search("drop").total == 0
    assert some.index.search("").total == 2
    assert [tool["name"] for tool in some.page("tools")[0]] == ["find", "keep"]


def test_a_server_of_which_nothing_is_seen_is_not_known() -> None:
    whole = catalog(a=tools("find"), b=tools("drop"), c={})
    some = narrowed(whole, tools=("find",))
    assert [some.knows(server) for server in "abc"] == [True, False, True]
    assert not narrowed(whole, servers=("a",)).knows("c")


def test_a_uri_is_its_server_s_that_is_seen() -> None:
    uri, other = "file:///same", "file:///other"
    whole = catalog(
        a={"resources": [{"uri": uri, "name": "a"}]},
        b={
            "resources": [{"uri": other, "name": "b"}],
            "templates": [{"uriTemplate": "note:///{id}", "name": "t"}],
        },
    )
    assert narrowed(whole, servers=("b",)).resolve_uri(uri) is None
    some = narrowed(whole, resources=("*", "!*{id}"))
    assert some.resolve_uri(other) == ("b", other)
    assert some.resolve_uri("note:///1") is some.resolve_uri(wrap_uri("b", "note:///1")) is None
    assert whole.resolve_uri("note:///1") == ("b", "note:///1")
    assert narrowed(whole, resources=("!note:///1",)).resolve_uri("note:///1") is None
    assert narrowed(whole, resources=("!note:///1",)).resolve_uri("note:///2") == ("b", "note:///2")


def test_what_comes_after_the_same_of_a_hidden_server_is_seen() -> None:
    """Templates have no other name than their URI: of two servers the first has it, unless it is
    hidden."""
    same = {"templates": [{"uriTemplate": "note:///{id}", "name": "t"}], **tools("find")}
    whole = catalog(a=same, b=same, c=same)
    assert [offer.server for offer in whole.offers["templates"]] == ["a"]
    assert whole.resolve_uri("note:///1") == ("a", "note:///1")
    some = narrowed(whole, servers=("b", "c"))
    assert [offer.server for offer in some.offers["templates"]] == ["b"]
    assert some.count("b", "templates") == 1
    found = some.find("templates", "note:///{id}")
    assert found is not None and found.server == "b" and some.sees(found)
    assert some.resolve_uri("note:///1") == ("b", "note:///1")
    picky = narrowed(whole, resources=("note:*",))
    assert [offer.server for offer in picky.offers["templates"]] == ["a"]
    for server in "abc":
        assert picky.resolve_uri(wrap_uri(server, "note:///1")) == (server, "note:///1")
    nothing = narrowed(whole, resources=("other:*",))
    assert nothing.offers["templates"] == ()
    assert nothing.resolve_uri("note:///1") is nothing.find("templates", "note:///{id}") is None


def test_until_it_is_known_what_is_seen_nothing_is_listed_and_what_is_named_is_looked_at_by_itself() -> (
    None
):
    """A call that runs may have to ask its client something just then, and what a client listens to
    may change."""
    notes = {**tools("hide"), "resources": [{"uri": "note:///1"}, {"uri": "note:///2"}]}
    whole = catalog(a=tools("find"), b=tools("find", "hide"), c=tools("hide"), d=notes)
    fields: Any = {"tools": ("a.find", "b.find"), "resources": ("*1",)}
    nothing = Blank.of(whole, SeenThrough(Profile(name="p", **fields)))
    done = narrowed(whole, **fields)
    assert all(not nothing.offers[kind] for kind in KINDS) and not nothing.tools_named("hide")
    assert not nothing.index.search("find").hits
    for seen in (nothing, done):
        assert [seen.knows(server) for server in "abcde"] == [True, True, False, True, True]
        assert [seen.may_read("d", f"note:///{number}") for number in "123"] == [True, False, False]
        assert not seen.may_read("c", "note:///1")
        assert [seen.find("tools", name) is not None for name in ("find", "b_find", "hide")] == [
            True,
            True,
            False,
        ]


# --- through the gateway


class ProfileGateway(CoreGateway):
    """A gateway with scripted servers and one profile."""

    def __init__(
        self, profile: Profile, *, first_start_wait: float = 0.0, **toys: ScriptedServer
    ) -> None:
        self.toys = toys
        servers = tuple(toy.server(name) for name, toy in toys.items())
        waits = Global(startup_wait=0.0, first_start_wait=first_start_wait)
        self.config = Config(mcp_servers=servers, global_=waits, profiles=(profile,))
        super().__init__(self.config)
        self.dispatcher = Dispatcher(self.gateway)

    async def settled(self, *names: str) -> None:
        """Without names, wait for the servers that may connect."""
        await super().settled(
            *(names or [name for name, toy in self.toys.items() if toy.opening.is_set()])
        )

    def joined(self, caller: Caller) -> list[tuple[str, Any]]:
        heard: list[tuple[str, Any]] = []

        def hear(notice: Notice) -> None:
            heard.append((notice.method, notice.params))

        session = Session(hear)
        session.caller = replace(caller, session=session.id)
        self.dispatcher.audience.join(session)
        return heard


@pytest.mark.parametrize("name", ["unseen_tool", "unseen.tool", "whatever"])
def test_nobody_waits_for_a_server_that_is_not_seen(name: str) -> None:
    async def main() -> None:
        unseen = ScriptedServer(tools=("tool",))
        unseen.opening.clear()
        profile = Profile(name="p", servers=("!unseen",))
        async with ProfileGateway(
            profile, first_start_wait=50.0, shown=ScriptedServer(), unseen=unseen
        ) as on:
            caller = older_caller(profile="p")
            async with asyncio.timeout(20):
                assert await on.names(caller) == ["echo"]
                with pytest.raises(NotFound):
                    await on.gateway.handle(Call("tools/call", {"name": name}, caller))
                for mode in ("inspect", "describe", "search"):
                    menu = await on.gateway.handle(
                        Call("tools/list", {}, replace(caller, mode=mode))
                    )
                    assert "unseen" not in str(menu)

    run(main())


def test_a_change_of_what_is_not_seen_is_told_to_nobody_who_does_not_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "GAP", 0.01)

    async def main() -> None:
        shown, unseen = ScriptedServer("older"), ScriptedServer("older", tools=("tool",))
        async with ProfileGateway(
            Profile(name="p", servers=("shown",)), shown=shown, unseen=unseen
        ) as on:
            await on.settled()
            everything, narrow = on.joined(older_caller()), on.joined(older_caller(profile="p"))
            await on.names(older_caller())
            assert await on.names(older_caller(profile="p")) == ["echo"]
            unseen.tools["more"] = unseen.tools["tool"]
            unseen.lines[0].say("notifications/tools/list_changed")
            unseen.lines[0].say("notifications/message", {"level": "error", "data": "words"})
            await until(lambda: len(everything) == 2)
            assert narrow == []
            shown.tools["more"] = shown.tools["echo"]
            shown.lines[0].say("notifications/tools/list_changed")
            shown.lines[0].say("notifications/message", {"level": "error", "data": "words"})
            await until(lambda: len(narrow) == 2)
            assert {params["_meta"]["proxy"]["server"] for _, params in narrow} == {"shown"}

    run(main())


def test_what_a_client_says_goes_to_the_servers_it_sees() -> None:
    async def main() -> None:
        toys = {
            name: ScriptedServer("older", capabilities={"tools": {}, "logging": {}})
            for name in ("shown", "unseen")
        }
        async with ProfileGateway(Profile(name="p", servers=("shown",)), **toys) as on:
            await on.settled()
            await on.gateway.sessions.set_level(older_caller(profile="p"), "debug")
            await until(lambda: "logging/setLevel" in toys["shown"].lines[0].methods())
            assert "logging/setLevel" not in toys["unseen"].lines[0].methods()

    run(main())


def test_headers_of_a_tool_that_is_not_seen_are_not_checked() -> None:
    async def listed(line: Any, params: Any) -> Any:
        schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
        return {"tools": [{"name": "echo", "inputSchema": schema}]}

    async def main() -> None:
        async with ProfileGateway(
            Profile(name="p", tools=("!echo",)), toy=ScriptedServer(answers={"tools/list": listed})
        ) as on:
            await on.settled()
            assert on.gateway.access.param_headers("echo", modern_caller())
            assert on.gateway.access.param_headers("echo", modern_caller(profile="p")) is None

    run(main())


def test_of_health_a_caller_learns_what_it_sees() -> None:
    async def main() -> None:
        down = ScriptedServer()
        down.down = "broken"
        async with ProfileGateway(
            Profile(name="p", servers=("!unseen",)), shown=ScriptedServer(), unseen=down
        ) as on:
            await on.settled()
            assert on.gateway.health()["status"] == "degraded"
            seen = on.gateway.health(older_caller(profile="p"))
            assert (seen["status"], list(seen["servers"])) == ("ok", ["shown"])

    run(main())


def test_without_any_profile_left_those_who_came_through_one_see_nothing() -> None:
    async def main() -> None:
        async with ProfileGateway(Profile(name="p"), toy=ScriptedServer()) as on:
            await on.settled()
            caller = older_caller(profile="p")
            assert await on.names(caller) == ["echo"]
            await on.gateway.apply(replace(on.config, profiles=()))
            assert await on.names(caller) == []
            with pytest.raises(RpcError):
                await on.gateway.handle(Call("tools/call", {"name": "echo"}, caller))
            assert await on.names(older_caller()) == ["echo"]

    run(main())


def test_a_large_catalog_is_narrowed_beside_everything_else() -> None:
    async def main() -> None:
        names = [f"tool_{number}" for number in range(4_000)]
        async with ProfileGateway(
            Profile(name="p", tools=("*", "!*_1*")),
            first_start_wait=20.0,
            toy=ScriptedServer(tools=names),
        ) as on:
            caller = older_caller(profile="p")
            # Whoever calls before anybody has listed waits for it, and finds what it sees.
            await on.names(older_caller())
            result = await on.gateway.handle(Call("tools/call", {"name": "tool_2"}, caller))
            assert result["content"]
            with pytest.raises(NotFound):
                await on.gateway.handle(Call("tools/call", {"name": "tool_10"}, caller))

    run(main())
