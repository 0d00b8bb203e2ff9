"""What is remembered of what a caller finds does not outlive what it was made of, nor is it another
one's."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kit.callers import RecordingChannel, older_caller
from kit.loop import run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.config import Config, Global, Policy, PolicyRule, Profile
from mcpx.config.sections import FrontLimits, FrontServer, Limits
from mcpx.core.gateway import Gateway
from mcpx.front.audience import Session
from mcpx.front.dispatch import Dispatcher
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import Denied, NotFound
from mcpx.model.events import ResourceUpdated


def choosy(common: list[str]) -> ScriptedServer:
    """A server that shows `whisper` only to those who can be asked; `common` is shown to
    everybody."""

    async def lists(line: ScriptedConnection, params: Json) -> Json:
        told = next((given for method, given in line.heard if method == "initialize"), {})
        able = "elicitation" in str(told)
        return {
            "tools": [
                {"name": name, "inputSchema": {}}
                for name in (*common, *(["whisper"] if able else []))
            ]
        }

    return ScriptedServer("older", tools=(), answers={"tools/list": lists})


def config(*servers: Any, **fields: Any) -> Config:
    return Config(mcp_servers=servers, global_=Global(startup_wait=5.0), **fields)


async def names(gateway: Gateway, caller: Caller) -> list[str]:
    return [
        tool["name"] for tool in (await gateway.handle(Call("tools/list", {}, caller)))["tools"]
    ]


def found(gateway: Gateway, caller: Caller) -> list[str]:
    return [offer.name for offer in gateway.catalogs.of(caller).offers["tools"]]


def test_while_a_large_catalog_is_narrowed_nobody_finds_what_only_another_is_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SUR-1, SEC-2: until it is done callers find the one before, which was everybody's: not that
    of another client who sees with the same eyes."""
    monkeypatch.setattr("mcpx.core.narrowing.AT_ONCE", 0)
    monkeypatch.setattr("mcpx.base.aio.SLICE_SECONDS", 0.0)

    async def main() -> None:
        common = ["plain"]
        toy = choosy(common)
        gateway = Gateway(
            config(toy.server("a"), profiles=(Profile(name="p", tools=("*", "!no*")),)), {}
        )
        gateway.start()
        try:
            other, able = (
                older_caller("other", profile="p"),
                older_caller("able", askable=True, profile="p"),
            )
            assert await names(gateway, other) == ["plain"]
            assert await names(gateway, able) == ["plain", "whisper"]
            common.append("more")
            upstream = gateway.generation.upstreams["a"]
            main_link = upstream.links.main
            assert main_link is not None
            await upstream.book.read(main_link, ("tools",), announced=True)
            seen = [found(gateway, other)]
            while seen[-1] != ["plain", "more"]:
                await asyncio.sleep(0)
                seen.append(found(gateway, other))
            assert all("whisper" not in each for each in seen), seen
        finally:
            await gateway.close()

    run(main(), 10)


def test_who_sees_some_finds_something_though_the_catalog_changes_faster_than_it_is_narrowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-2, SEC-6: a server that says without end that its tools have changed does not keep the
    callers of a profile from finding anything."""
    monkeypatch.setattr("mcpx.core.narrowing.AT_ONCE", 0)
    monkeypatch.setattr("mcpx.core.catalogs.AT_ONCE", 10_000)
    monkeypatch.setattr("mcpx.base.aio.SLICE_SECONDS", 0.0)

    async def main() -> None:
        toy = ScriptedServer("older", tools=[f"t{number}" for number in range(900)])
        gateway = Gateway(
            config(toy.server("a"), profiles=(Profile(name="p", tools=("t1*",)),)), {}
        )
        gateway.start()
        try:
            caller = older_caller(profile="p")
            await until(lambda: gateway.generation.upstreams["a"].known)
            book = gateway.generation.upstreams["a"].book
            call = asyncio.ensure_future(gateway.handle(Call("tools/call", {"name": "t1"}, caller)))
            for number in range(200):
                if call.done():
                    break
                book.common = {
                    **book.common,
                    "tools": [*book.common["tools"], {"name": f"n{number}"}],
                }
                gateway.catalogs.changed()
                _ = gateway.catalog
                await yield_to_loop(10)
            assert call.done(), "200 changes, and it still waits"
            assert (await call)["content"]
        finally:
            await gateway.close()

    run(main(), 20)


def test_a_call_that_waited_is_not_made_when_the_last_profile_is_gone() -> None:
    """SEC-2: nothing is guarded any more, and who came in through a profile sees nothing, also if
    it came before."""

    async def main() -> None:
        going = asyncio.Event()

        async def slow(line: ScriptedConnection, params: Json) -> Json:
            await going.wait()
            return {"content": []}

        toy = ScriptedServer("older", tools={"slow": slow})
        limited = Profile(name="p", limits=Limits(in_flight=1))
        guarded = config(toy.server("a"), profiles=(limited,))
        gateway = Gateway(guarded, {})
        gateway.start()
        try:
            caller = older_caller(profile="p")
            assert await names(gateway, caller) == ["slow"]
            call = Call("tools/call", {"name": "slow"}, caller)
            first = asyncio.ensure_future(_made(gateway, call))
            await until(lambda: any(line.calls() for line in toy.lines))
            second = asyncio.ensure_future(_made(gateway, call))
            await yield_to_loop()
            await gateway.apply(replace(guarded, profiles=()))
            going.set()
            await first
            with pytest.raises(NotFound):
                await second
            assert sum(len(line.calls()) for line in toy.lines) == 1
        finally:
            await gateway.close()

    run(main(), 20)


def test_a_call_that_somebody_was_asked_about_meets_limits_that_came_meanwhile() -> None:
    """SEC-6: there were none when it was decided that somebody is asked."""

    async def main() -> None:
        toy, yes = ScriptedServer("older"), asyncio.get_running_loop().create_future()
        asks = config(toy.server("a"), policy=Policy(rules=(PolicyRule(effect="ask"),)))
        gateway = Gateway(asks, {})
        gateway.start()
        try:
            voice = RecordingChannel(create=yes)
            caller = older_caller(askable=True, voice=voice)
            assert await names(gateway, caller) == ["echo"]
            call = asyncio.ensure_future(
                _made(gateway, Call("tools/call", {"name": "echo"}, caller))
            )
            await until(lambda: voice.asked)
            limits = FrontLimits(per_minute=1)
            await gateway.apply(replace(asks, policy=Policy(), server=FrontServer(limits=limits)))
            await gateway.handle(Call("tools/call", {"name": "echo"}, older_caller("two")))
            yes.set_result({"action": "accept", "content": {"approve": True}})
            with pytest.raises(Denied):
                await call
            assert sum(len(line.calls()) for line in toy.lines) == 1
        finally:
            await gateway.close()

    run(main(), 20)


def test_a_server_may_ask_its_client_just_after_a_reload_though_it_is_not_narrowed_yet_what_that_sees() -> (
    None
):
    """CFG-5, SEC-2: a call that runs is not disturbed by a reload, however many tools there are."""

    async def main() -> None:
        asks = asyncio.Event()

        async def ask(line: ScriptedConnection, params: Json) -> Json:
            await asks.wait()
            answer = await line.ask(
                "elicitation/create", {"message": "?", "requestedSchema": {"type": "object"}}
            )
            return {"content": [{"type": "text", "text": answer["action"]}]}

        async def echoes(line: ScriptedConnection, params: Json) -> Json:
            return {"content": []}

        toy = ScriptedServer(
            "older", tools={"ask": ask, **{f"t{number}": echoes for number in range(400)}}
        )
        hidden = ScriptedServer("older", tools=["secret"])
        rules = Policy(
            rules=(
                PolicyRule(effect="deny", servers=("b",)),
                PolicyRule(effect="deny", tools=("t1",)),
            )
        )
        guarded = config(toy.server("a"), hidden.server("b"), policy=rules)
        gateway = Gateway(guarded, {})
        gateway.start()
        try:
            caller = older_caller(
                askable=True, voice=RecordingChannel(create={"action": "decline"})
            )
            await names(gateway, caller)
            call = asyncio.ensure_future(
                _made(gateway, Call("tools/call", {"name": "ask"}, caller))
            )
            await until(lambda: any(line.calls() for line in toy.lines))
            await gateway.apply(
                replace(guarded, policy=replace(rules, rules=(*rules.rules, rules.rules[0])))
            )
            assert gateway.catalogs.of(caller).blank
            assert gateway.access.knows(caller, "a") and not gateway.access.knows(caller, "b")
            asks.set()
            assert (await call)["content"][0]["text"] == "decline"
        finally:
            await gateway.close()

    run(main(), 20)


def test_who_listens_to_a_resource_hears_of_a_change_just_after_a_reload() -> None:
    """CFG-5, SEC-2: though it is not narrowed yet what they see; of what they do not see by now
    they hear nothing."""

    async def main() -> None:
        async def resources(line: ScriptedConnection, params: Json) -> Json:
            return {
                "resources": [{"uri": f"note:///{number}", "name": "n"} for number in range(2_000)]
            }

        toy = ScriptedServer(
            "older", capabilities={"resources": {}}, answers={"resources/list": resources}
        )
        profile = Profile(name="p", resources=("note:*", "!*3"))
        guarded = config(toy.server("a"), profiles=(profile,))
        gateway = Gateway(guarded, {})
        gateway.start()
        try:
            dispatcher, heard = Dispatcher(gateway), list[str]()
            session = Session(lambda notice: heard.append(notice.params["uri"]))
            session.caller = older_caller(session.id, profile="p")
            dispatcher.audience.join(session)
            await gateway.handle(Call("resources/list", {}, session.caller))
            for number in (1, 2, 3):
                session.subscriptions["a", f"note:///{number}"] = {f"note:///{number}"}
            await gateway.apply(
                replace(guarded, profiles=(replace(profile, resources=("note:*", "!*2", "!*3")),))
            )
            assert gateway.catalogs.of(session.caller).blank
            for number in (1, 2, 3):
                gateway.reports.publish(
                    ResourceUpdated("a", {"uri": f"note:///{number}"}, frozenset({session.id}))
                )
            await yield_to_loop()
            assert heard == ["note:///1"]
        finally:
            await gateway.close()

    run(main(), 20)


@pytest.mark.parametrize("way", ["starting", "down"])
def test_a_call_that_waits_for_its_server_finds_its_tool_however_long_it_takes_to_narrow(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-4, SEC-2: a server that is being started or tried again tells of hundreds of tools, and
    there are rules."""
    monkeypatch.setattr("mcpx.base.aio.SLICE_SECONDS", 0.0)

    async def main() -> None:
        toy = ScriptedServer("older", tools=[f"t{number}" for number in range(400)])
        toy.opening.clear()
        rules = Policy(rules=(PolicyRule(effect="deny", tools=("t1",)),))
        waits = Global(startup_wait=0.0, first_start_wait=20.0 if way == "starting" else 0.0)
        gateway = Gateway(
            Config(mcp_servers=(toy.server("a", prefix="a"),), global_=waits, policy=rules), {}
        )
        gateway.start()
        try:
            assert gateway.catalogs.of(older_caller()).offers["tools"] == ()
            call = asyncio.ensure_future(
                _made(gateway, Call("tools/call", {"name": "a_t2"}, older_caller()))
            )
            hidden = asyncio.ensure_future(
                _made(gateway, Call("tools/call", {"name": "a_t1"}, older_caller("two")))
            )
            await yield_to_loop()
            toy.opening.set()
            assert (await call)["content"]
            with pytest.raises(NotFound):
                await hidden
        finally:
            await gateway.close()

    run(main(), 20)


async def _made(gateway: Gateway, call: Call) -> Json:
    return await gateway.handle(call)
