"""What every front does alike: greetings, calls in the client's era, subscriptions, listening."""

import asyncio
from typing import Any

import pytest

from kit.callers import RecordingChannel, modern_caller, older_caller
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.config import Config, Global
from mcpx.core.gateway import Gateway
from mcpx.front import dispatch
from mcpx.front.audience import ListenStream, Session
from mcpx.front.dispatch import Dispatcher
from mcpx.front.visitor import Visitor
from mcpx.model.call import Json
from mcpx.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, OVERLOADED, RpcError
from mcpx.wire import era


async def fine(line: ScriptedConnection, params: Json) -> Json:
    return {}


async def resources(line: ScriptedConnection, params: Json) -> Json:
    return {"resources": [{"uri": "x:1", "name": "x"}, {"uri": "x:2", "name": "y"}]}


SUBSCRIBABLE: Json = {"resources": {"subscribe": True}}


def library(*eras: str, **answers: Any) -> ScriptedServer:
    """A server with resources to subscribe to."""
    methods = {
        "resources/list": resources,
        "resources/subscribe": fine,
        "resources/unsubscribe": fine,
        **answers,
    }
    return ScriptedServer(*eras, capabilities=SUBSCRIBABLE, answers=methods)


class Office:
    """A dispatcher, its gateway, and one older client."""

    def __init__(self, **toys: ScriptedServer) -> None:
        servers = tuple(toy.server(name) for name, toy in toys.items())
        self.gateway = Gateway(
            Config(mcp_servers=servers, global_=Global(startup_wait=0.0, first_start_wait=0.0)), {}
        )
        self.dispatcher = Dispatcher(self.gateway)
        self.heard: list[tuple[str, Json]] = []
        self.session = Session(lambda notice: self.heard.append((notice.method, notice.params)))

    async def __aenter__(self) -> "Office":
        self.gateway.start()
        for upstream in self.gateway.generation.upstreams.values():
            await upstream.settled.wait()
        self.greet()
        self.dispatcher.audience.join(self.session)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.gateway.close()

    def greet(self, **params: Any) -> Json:
        return self.dispatcher.greet(
            params, self.session, Visitor("ann"), RecordingChannel(), solo=False
        )

    async def ask(self, method: str, **params: Any) -> Json:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.dispatcher.serve_older(message, self.session)

    def updates(self) -> list[str]:
        return [
            params["uri"]
            for method, params in self.heard
            if method == "notifications/resources/updated"
        ]


# --- greetings


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        *((version, version) for version in era.OLDER),
        ("2026-07-28", "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_initialize_is_answered_before_any_server_is_up(asked: str | None, answered: str) -> None:
    """LIF-1 and PRO-3: everything is declared at once."""

    async def main() -> None:
        hangs = ScriptedServer()
        hangs.opening.clear()
        office = Office(hangs=hangs)
        result = office.greet(
            protocolVersion=asked, clientInfo={"name": "c"}, capabilities={"roots": {}}
        )
        assert result["protocolVersion"] == answered
        assert result["capabilities"] == {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "completions": {},
            "logging": {},
        }
        caller = office.session.caller
        assert (caller.principal, caller.session, caller.modern) == (
            "ann",
            office.session.id,
            False,
        )
        assert (caller.client, caller.capabilities, caller.version) == (
            {"name": "c"},
            {"roots": {}},
            answered,
        )
        await office.gateway.close()

    run(main())


@pytest.mark.parametrize("odd", [None, [], "x", 5])
def test_a_greeting_with_odd_fields_is_taken_as_one_without(odd: Any) -> None:
    async def main() -> None:
        office = Office()
        office.greet(protocolVersion=odd, clientInfo=odd, capabilities=odd)
        assert office.session.caller.client == office.session.caller.capabilities == {}

    run(main())


@pytest.mark.parametrize("name", ["s{:03}", "服务器{:03}", "é" * 50 + "{:03}"])
def test_instructions_name_the_servers_in_at_most_two_kilobytes(name: str) -> None:
    """PRO-3: bytes, whatever the names are written in."""

    async def main() -> None:
        for count in (0, 1, 3, 30, 500):
            office = Office(**{name.format(n): ScriptedServer() for n in range(count)})
            text: str = office.greet()["instructions"]
            assert len(text.encode()) <= 2048
            listed = text.partition(": ")[2].removesuffix(".").removesuffix(", …")
            names = [part for part in listed.split(", ") if part]
            assert names == [
                name.format(n) for n in range(len(names))
            ]  # whole names, from the first on
            assert len(names) == count or len(text.encode()) > 1700
            assert office.dispatcher.discover(modern_caller())["instructions"] == text

    run(main())


def test_a_disabled_server_is_not_named() -> None:
    async def main() -> None:
        config = Config(
            mcp_servers=(
                ScriptedServer().server("on"),
                ScriptedServer().server("off", enabled=False),
            )
        )
        dispatcher = Dispatcher(Gateway(config, {}))
        assert "on" in dispatcher.discover(modern_caller())["instructions"].split(": ")[1]
        assert "off" not in dispatcher.discover(modern_caller())["instructions"]

    run(main())


@pytest.mark.parametrize(
    ("level", "taken"), [("debug", "debug"), ("loud", None), (None, None), (5, None), ([], None)]
)
def test_a_modern_caller_is_what_its_own_envelope_says(level: Any, taken: str | None) -> None:
    async def main() -> None:
        meta = {
            era.VERSION_KEY: "2026-07-28",
            era.CAPABILITIES_KEY: {"roots": {}},
            era.LEVEL_KEY: level,
        }
        voice = RecordingChannel()
        caller = Office().dispatcher.modern_caller(
            {"params": {"_meta": meta}}, Visitor("bob"), voice, solo=False
        )
        assert (caller.principal, caller.modern, caller.session) == ("bob", True, None)
        assert (caller.capabilities, caller.client, caller.log_level) == ({"roots": {}}, {}, taken)
        assert caller.voice is voice

    run(main())


# --- requests


def test_who_came_first_is_remembered_by_a_name_of_bounded_length() -> None:
    """SEC-6."""

    async def main() -> None:
        async with Office() as office:
            for name in ("x" * 1_000_000, ["x"] * 1_000_000, None):
                meta = {era.CLIENT_KEY: {"name": name}}
                office.dispatcher.modern_caller(
                    {"params": {"_meta": meta}}, Visitor("ann"), RecordingChannel(), solo=False
                )
            known = office.dispatcher._seen  # pyright: ignore[reportPrivateUsage]
            assert sorted(len(name) for _, name in known) == [0, 200]

    run(main())


def test_a_modern_result_is_shaped_and_an_older_one_left_alone() -> None:
    async def main() -> None:
        async with Office(a=ScriptedServer("older")) as office:
            assert await office.ask("ping") == {}
            assert (await office.ask("tools/list")).keys() == {"tools"}
            message = {"method": "tools/list", "params": {}}
            shaped = await office.dispatcher.serve_modern(message, modern_caller())
            assert shaped.keys() == {"tools", "resultType", "ttlMs", "cacheScope"}
            for method in era.REMOVED:
                with pytest.raises(RpcError) as caught:
                    await office.dispatcher.serve_modern(
                        {"method": method, "params": {}}, modern_caller()
                    )
                assert caught.value.code == METHOD_NOT_FOUND

    run(main())


@pytest.mark.parametrize("level", [None, "loud", 5, [], {}])
def test_a_level_that_is_none_is_refused(level: Any) -> None:
    async def main() -> None:
        async with Office() as office:
            with pytest.raises(RpcError) as caught:
                await office.ask("logging/setLevel", level=level)
            assert caught.value.code == INVALID_PARAMS
            assert office.session.caller.log_level is None

    run(main())


def test_a_level_holds_for_the_session_from_then_on() -> None:
    """PRO-2."""

    async def main() -> None:
        toy = ScriptedServer(
            "older", capabilities={"logging": {}}, answers={"logging/setLevel": fine}
        )
        async with Office(toy=toy) as office:
            assert await office.ask("logging/setLevel", level="error") == {}
            await until(lambda: "logging/setLevel" in toy.lines[0].methods())
            for level in ("info", "error"):
                toy.lines[0].say("notifications/message", {"level": level})
            await until(lambda: office.heard)
            assert [params["level"] for _, params in office.heard] == ["error"]

    run(main())


@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/cancelled"])
def test_what_is_between_the_client_and_us_goes_no_further(method: str) -> None:
    async def main() -> None:
        toy = ScriptedServer("older")
        async with Office(toy=toy) as office:
            office.session.caller = older_caller(office.session.id, solo=True)
            office.dispatcher.notification(office.session, method, {})
            office.dispatcher.notification(office.session, "notifications/roots/list_changed", {})
            await until(lambda: "notifications/roots/list_changed" in toy.lines[0].methods())
            assert toy.lines[0].methods().count(method) == (
                1 if method == "notifications/initialized" else 0
            )

    run(main())


# --- subscriptions of older clients


def test_an_update_that_comes_together_with_the_answer_is_heard() -> None:
    """PRO-4: some servers tell the present state at once."""

    async def main() -> None:
        async def eager(line: ScriptedConnection, params: Json) -> Json:
            line.say("notifications/resources/updated", {"uri": params["uri"]})
            return {}

        async with Office(lib=library("older", **{"resources/subscribe": eager})) as office:
            await office.ask("resources/subscribe", uri="x:1")
            assert office.updates() == ["x:1"]

    run(main())


def test_a_refused_subscription_hears_nothing() -> None:
    async def main() -> None:
        async def refuse(line: ScriptedConnection, params: Json) -> Json:
            raise RpcError(-32602, "no")

        lib = library("older", **{"resources/subscribe": refuse})
        async with Office(lib=lib) as office:
            with pytest.raises(RpcError, match="no"):
                await office.ask("resources/subscribe", uri="x:1")
            lib.lines[0].say("notifications/resources/updated", {"uri": "x:1"})
            await yield_to_loop()
            assert office.updates() == []
            assert office.session.subscriptions == {}

    run(main())


def test_updates_come_in_each_form_that_is_still_subscribed() -> None:
    """NAM-4: the server stays subscribed for as long as one form is."""

    async def main() -> None:
        lib = library("older")
        async with Office(lib=lib) as office:
            wrapped = (await office.ask("resources/list"))["resources"][0]["uri"]
            line = lib.lines[0]

            async def told() -> list[str]:
                office.heard.clear()
                line.say("notifications/resources/updated", {"uri": "x:1"})
                await yield_to_loop()
                return sorted(office.updates())

            await office.ask("resources/subscribe", uri="x:1")
            await office.ask("resources/subscribe", uri=wrapped)
            assert await told() == sorted([wrapped, "x:1"])
            await office.ask("resources/unsubscribe", uri="x:1")
            assert await told() == [wrapped]
            assert "resources/unsubscribe" not in line.methods()
            await office.ask("resources/unsubscribe", uri=wrapped)
            assert await told() == []
            assert line.methods().count("resources/unsubscribe") == 1
            assert office.session.subscriptions == {}

    run(main())


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
@pytest.mark.parametrize("uri", [None, 5, [], "nobody:s"])
def test_a_subscription_to_nothing_is_refused(method: str, uri: Any) -> None:
    async def main() -> None:
        async with Office(lib=library("older")) as office:
            with pytest.raises(RpcError):
                await office.ask(method, uri=uri)
            assert office.session.subscriptions == {}

    run(main())


def test_a_client_that_leaves_is_unsubscribed() -> None:
    async def main() -> None:
        lib = library("older")
        async with Office(lib=lib) as office:
            await office.ask("resources/subscribe", uri="x:1")
            await office.dispatcher.leave(office.session)
            assert lib.lines[0].methods()[-1] == "resources/unsubscribe"
            lib.lines[0].say("notifications/resources/updated", {"uri": "x:1"})
            await yield_to_loop()
            assert office.updates() == []

    run(main())


def test_no_more_can_be_subscribed_to_than_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6: by number, and by what the URIs take; what is subscribed to may be subscribed to
    again."""

    async def main() -> None:
        async with Office(lib=library("older")) as office:
            for name, most in (("SUBSCRIPTIONS", 1), ("SUBSCRIBED_BYTES", 5)):
                with monkeypatch.context() as bound:
                    bound.setattr(dispatch, name, most)
                    for _ in range(2):
                        await office.ask("resources/subscribe", uri="x:1")
                    with pytest.raises(RpcError, match="unsubscribe") as refused:
                        await office.ask("resources/subscribe", uri="x:2")
                    assert refused.value.code == OVERLOADED
                    assert office.session.forms() == ["x:1"]
            await office.ask("resources/subscribe", uri="x:2")

    run(main())


def test_a_subscription_that_is_taken_back_while_others_are_made_anew_is_not_made() -> None:
    """SCA-1: of a conversation that goes on here; and the rest goes on."""

    async def main() -> None:
        slowly = asyncio.Event()

        async def slow(line: ScriptedConnection, params: Json) -> Json:
            await slowly.wait()
            return {}

        lib = library("older", **{"resources/subscribe": slow})
        async with Office(lib=lib) as office:
            office.session.subscriptions.update({("lib", "x:1"): {"x:1"}, ("lib", "x:2"): {"x:2"}})
            going_on = asyncio.create_task(office.dispatcher.go_on(office.session))
            await until(lambda: "resources/subscribe" in lib.lines[0].methods())
            await office.ask("resources/unsubscribe", uri="x:2")
            slowly.set()
            await going_on
            assert lib.lines[0].methods().count("resources/subscribe") == 1

    run(main())


# --- listening of modern clients


class Listening:
    """One `subscriptions/listen`."""

    def __init__(self, office: Office, **wanted: Any) -> None:
        self.frames: list[tuple[str, Json]] = []
        self.end = asyncio.Event()
        stream = ListenStream(
            "id", wanted, lambda method, params: self.frames.append((method, params))
        )
        self.task = asyncio.create_task(office.dispatcher.listen(stream, modern_caller(), self.end))

    async def acknowledged(self) -> Json:
        await until(lambda: self.frames)
        assert self.frames[0][0] == "notifications/subscriptions/acknowledged"
        return self.frames[0][1]["notifications"]


def test_servers_are_subscribed_before_a_listener_is_acknowledged_and_unsubscribed_at_its_end() -> (
    None
):
    async def main() -> None:
        lib = library("older")
        async with Office(lib=lib) as office:
            on = Listening(office, resourceSubscriptions=["x:1", "nobody:s", "x:2"])
            assert await on.acknowledged() == {"resourceSubscriptions": ["x:1", "x:2"]}
            assert lib.lines[0].methods().count("resources/subscribe") == 2
            lib.lines[0].say("notifications/resources/updated", {"uri": "x:2"})
            await until(lambda: len(on.frames) == 2)
            assert on.frames[1][1]["uri"] == "x:2"
            on.end.set()
            assert (await on.task)["_meta"] == {era.SUBSCRIPTION_KEY: "id"}
            assert lib.lines[0].methods().count("resources/unsubscribe") == 2

    run(main())


def test_a_listener_that_wants_too_much_is_refused() -> None:
    """SEC-6."""

    async def main() -> None:
        lib = library("older")
        async with Office(lib=lib) as office:
            for uris in (["x:1"] * 1001, ["x:1", "y" * 300_000]):
                with pytest.raises(RpcError) as refused:
                    await Listening(office, resourceSubscriptions=uris).task
                assert refused.value.code == OVERLOADED
            assert "resources/subscribe" not in lib.lines[0].methods()

    run(main())


def test_a_resource_that_cannot_be_subscribed_is_not_honoured() -> None:
    async def main() -> None:
        async def refuse(line: ScriptedConnection, params: Json) -> Json:
            raise RpcError(METHOD_NOT_FOUND, "no")

        async with Office(lib=library("older", **{"resources/subscribe": refuse})) as office:
            on = Listening(office, resourceSubscriptions=["x:1"], toolsListChanged=True)
            assert await on.acknowledged() == {"toolsListChanged": True}
            on.task.cancel()
            await asyncio.wait([on.task])

    run(main())


def test_a_cancelled_listener_is_forgotten_and_its_servers_told() -> None:
    async def main() -> None:
        lib = library("older")
        async with Office(lib=lib) as office:
            on = Listening(office, resourceSubscriptions=["x:1"])
            await on.acknowledged()
            on.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await on.task
            assert lib.lines[0].methods()[-1] == "resources/unsubscribe"
            lib.lines[0].say("notifications/resources/updated", {"uri": "x:1"})
            await yield_to_loop()
            assert len(on.frames) == 1

    run(main())


def test_the_end_of_a_listener_does_not_wake_a_server_that_is_down() -> None:
    async def main() -> None:
        lib = library("older")
        async with Office(lib=lib) as office:
            on = Listening(office, resourceSubscriptions=["x:1"])
            await on.acknowledged()
            lib.lines[0].die()
            await yield_to_loop()
            on.end.set()
            await on.task
            assert lib.attempts == 1

    run(main())


def test_a_listener_cancelled_while_a_server_is_asked_leaves_no_subscription_behind() -> None:
    async def main() -> None:
        lib = library("older", **{"resources/subscribe": never_return})
        async with Office(lib=lib) as office:
            on = Listening(office, resourceSubscriptions=["x:1"])
            await until(lambda: "resources/subscribe" in lib.lines[0].methods())
            on.task.cancel()
            await asyncio.wait([on.task])
            assert not office.gateway.generation.upstreams["lib"].health.is_busy()
            assert on.frames == []

    run(main())


def test_what_servers_say_of_themselves_is_told_where_every_tool_is_shown() -> None:
    """PRO-3: `direct`, and `auto` while it comes to that; compact menus have it already."""

    async def hello(line: ScriptedConnection, params: Json) -> Json:
        return {
            "protocolVersion": era.LATEST_OLDER,
            "capabilities": {"tools": {}},
            "instructions": "Be kind.",
        }

    async def main() -> None:
        async with Office(toy=ScriptedServer("older", answers={"initialize": hello})) as office:
            for mode, told in (
                ("direct", True),
                ("auto", True),
                ("search", False),
                ("inspect", False),
                (None, True),
            ):
                text: str = office.dispatcher.discover(modern_caller(mode=mode))["instructions"]
                assert text.endswith("\n\ntoy: Be kind.") == told, mode
                greeting = office.dispatcher.greet(
                    {}, office.session, Visitor("ann"), RecordingChannel(), solo=False, mode=mode
                )
                assert greeting["instructions"] == text

    run(main())


@pytest.mark.parametrize(("budget", "told"), [(10_000, True), (1, False)])
def test_with_auto_it_is_told_what_the_client_will_be_shown(budget: int, told: bool) -> None:
    """PRO-3, SUR-5: as far as that is known before its first list."""

    async def hello(line: ScriptedConnection, params: Json) -> Json:
        return {
            "protocolVersion": era.LATEST_OLDER,
            "capabilities": {"tools": {}},
            "instructions": "Be kind.",
        }

    async def main() -> None:
        toy = ScriptedServer("older", answers={"initialize": hello})
        config = Config(
            mcp_servers=(toy.server("toy"),), mode="auto", global_=Global(auto_budget=budget)
        )
        gateway = Gateway(config, {})
        try:
            gateway.start()
            await gateway.generation.upstreams["toy"].settled.wait()
            assert (
                "Be kind." in Dispatcher(gateway).discover(modern_caller())["instructions"]
            ) == told
        finally:
            await gateway.close()

    run(main())
