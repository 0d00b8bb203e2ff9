"""The gateway over toy servers: names that stay, lists that do not wait, announcements that say
what changed."""

import asyncio
import logging
import time
from typing import Any

import pytest

from kit.callers import modern_caller, older_caller
from kit.core_gateway import CoreGateway
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer, echo
from kit.until import until
from mcpx.config import Config, Global, Naming
from mcpx.core import reports
from mcpx.model.call import Caller, Json
from mcpx.model.errors import INVALID_PARAMS, NotFound, RpcError, Unavailable
from mcpx.model.events import (
    CallFinished,
    Event,
    OffersChanged,
    ResourceUpdated,
    ServerSaid,
    UpstreamChanged,
)
from mcpx.model.offer import Kind
from mcpx.upstreams.life import BARREN_LIVES

KINDS_OF_EVENTS = (OffersChanged, ResourceUpdated, ServerSaid, UpstreamChanged, CallFinished)


class ScriptedGateway(CoreGateway):
    """A gateway with scripted servers, in the order given, that records its events."""

    def __init__(
        self,
        *,
        first_start_wait: float = 0.0,
        naming: Naming | None = None,
        **toys: ScriptedServer | Any,
    ) -> None:
        servers = [
            toy.server(name) if isinstance(toy, ScriptedServer) else toy[0].server(name, **toy[1])
            for name, toy in toys.items()
        ]
        config = Config(
            mcp_servers=tuple(servers),
            global_=Global(startup_wait=0.0, first_start_wait=first_start_wait),
            naming=naming or Naming(),
        )
        super().__init__(config)
        self.events: list[Event] = []
        self.gateway.bus.subscribe(self.events.append, *KINDS_OF_EVENTS)

    @property
    def announced(self) -> list[frozenset[Kind]]:
        return [event.kinds for event in self.events if isinstance(event, OffersChanged)]


def held(*eras: str, **options: Any) -> ScriptedServer:
    """A server that does not come up before the test says so."""
    toy = ScriptedServer(*eras, **options)
    toy.opening.clear()
    return toy


# --- names and order


def test_lists_come_in_the_order_of_the_config_whoever_connected_first() -> None:
    """NAM-6."""

    async def main() -> None:
        slow, quick = held(tools=("s1", "s2")), ScriptedServer(tools=("q2", "q1"))
        async with ScriptedGateway(slow=slow, quick=quick) as on:
            await on.settled("quick")
            assert await on.names() == ["q2", "q1"]
            slow.opening.set()
            await on.settled()
            assert await on.names() == ["s1", "s2", "q2", "q1"]

    run(main())


def test_a_name_that_was_given_stays_with_its_owner(caplog: pytest.LogCaptureFixture) -> None:
    """NAM-1: also against a server earlier in the config that comes up later; and a warning says
    so."""

    async def main() -> None:
        first, second = held(tools=("search", "other")), ScriptedServer(tools=("search",))
        async with ScriptedGateway(first=first, second=second) as on:
            await on.settled("second")
            assert await on.names() == ["search"]
            first.opening.set()
            await on.settled()
            assert await on.names() == ["first_search", "other", "search"]
            await on.ask("tools/call", name="search")
            assert [
                len(line.calls()) for toy in (first, second) for line in toy.lines if line.calls()
            ] == [1]
            assert second.lines[-1].calls()[0]["name"] == "search"
            await on.ask("tools/call", name="first_search")
            assert first.lines[-1].calls()[0]["name"] == "search"

    with caplog.at_level(logging.WARNING):
        run(main())
    assert caplog.text.count("first_search") == 1


def test_names_that_nobody_was_shown_follow_the_order_of_the_config() -> None:
    """NAM-1."""

    async def main() -> None:
        first, second = held(tools=("search",)), ScriptedServer(tools=("search",))
        async with ScriptedGateway(first=first, second=second) as on:
            await on.settled("second")
            first.opening.set()
            await on.settled()
            assert await on.names() == ["search", "second_search"]

    run(main())


def test_a_server_that_is_gone_and_comes_back_finds_its_names_again() -> None:
    """NAM-1: its tools stay listed meanwhile."""

    async def main() -> None:
        a, b = (
            ScriptedServer("older", tools=("search",)),
            ScriptedServer("older", tools=("search",)),
        )
        async with ScriptedGateway(a=a, b=b) as on:
            await on.settled()
            before = await on.names()
            a.lines[0].die()
            await yield_to_loop()
            assert await on.names() == before == ["search", "b_search"]
            await on.ask("tools/call", name="search")
            assert await on.names() == before
            assert len(a.lines) == 2

    run(main())


def test_pages_put_together_are_the_list() -> None:
    """NAM-6."""

    async def main() -> None:
        async with ScriptedGateway(a=ScriptedServer(tools=[f"t{n}" for n in range(7)])) as on:
            await on.settled()
            found: list[str] = []
            params: Json = {"limit": 3}
            while True:
                page = await on.ask("tools/list", **params)
                found += [tool["name"] for tool in page["tools"]]
                if "nextCursor" not in page:
                    break
                params = {"limit": 3, "cursor": page["nextCursor"]}
            assert found == [f"t{n}" for n in range(7)]
            with pytest.raises(RpcError) as caught:
                await on.ask("tools/list", cursor="nonsense")
            assert caught.value.code == INVALID_PARAMS

    run(main())


def test_a_disabled_server_is_neither_listed_nor_waited_for() -> None:
    async def main() -> None:
        off = ScriptedServer(tools=("off",))
        async with ScriptedGateway(
            first_start_wait=600.0, off=(off, {"enabled": False}), on=ScriptedServer(tools=("on",))
        ) as core:
            assert await core.names() == ["on"]
            assert off.attempts == 0

    run(main())


# --- waiting for servers that start


def test_a_list_waits_for_starting_servers_and_answers_as_soon_as_they_are_there() -> None:
    """LIF-1."""

    async def main() -> None:
        toy = held(tools=("late",))
        async with ScriptedGateway(first_start_wait=600.0, toy=toy) as on:
            asking = asyncio.create_task(on.names())
            await yield_to_loop()
            assert not asking.done()
            toy.opening.set()
            assert await asking == ["late"]

    run(main())


def test_a_list_waits_no_longer_than_first_start_wait_after_the_clients_first_message() -> None:
    """LIF-1: once, not with every list."""

    async def main() -> None:
        hangs = held(), {"timeout": 600.0}
        async with ScriptedGateway(
            first_start_wait=0.2, hangs=hangs, quick=ScriptedServer(tools=("q",))
        ) as on:
            await on.settled("quick")
            caller = older_caller()
            began = time.monotonic()
            assert await on.names(caller) == ["q"]
            assert time.monotonic() - began > 0.05
            for waited in (caller, Caller(since=time.monotonic() - 60)):
                again = asyncio.create_task(on.names(waited))
                await yield_to_loop()
                assert again.done() and await again == ["q"]

    run(main())


def test_a_server_that_fails_to_start_is_not_waited_for_any_longer() -> None:
    """SRC-8."""

    async def main() -> None:
        broken = ScriptedServer()
        broken.down = "no"
        async with ScriptedGateway(
            first_start_wait=600.0, broken=broken, good=ScriptedServer(tools=("good",))
        ) as on:
            assert await on.names() == ["good"]

    run(main())


def test_a_call_to_a_tool_of_a_server_that_is_still_starting_waits_for_it() -> None:
    """LIF-1."""

    async def main() -> None:
        late, hangs = held(tools=("late",)), held()
        async with ScriptedGateway(first_start_wait=60.0, late=late, hangs=hangs) as on:
            calling = asyncio.create_task(
                on.ask("tools/call", name="late", arguments={"text": "hi"})
            )
            await yield_to_loop()
            late.opening.set()
            assert (await calling)["content"][0]["text"] == "hi"  # while the other one still hangs

    run(main())


def test_a_name_that_nobody_offers_is_unknown_once_every_server_has_settled() -> None:
    async def main() -> None:
        late = held()
        async with ScriptedGateway(first_start_wait=60.0, late=late) as on:
            calls = [
                asyncio.create_task(on.ask("tools/call", name="nobody's")),
                asyncio.create_task(on.ask("resources/read", uri="nobody:s")),
            ]
            await yield_to_loop()
            assert not any(call.done() for call in calls)
            late.opening.set()
            for call in calls:
                with pytest.raises(NotFound):
                    await call

    run(main())


def test_a_server_that_never_came_up_is_tried_by_names_with_its_prefix_only_and_not_beyond_an_open_circuit() -> (
    None
):
    """LIF-4: names that a model makes up have nobody tried who has nothing to do with them."""

    async def main() -> None:
        absent, bare = ScriptedServer(tools=("echo",)), ScriptedServer()
        absent.down = bare.down = "not there"
        quiet = {"max_retries": 0}
        async with ScriptedGateway(
            absent=(absent, {"prefix": "x", **quiet}),
            bare=(bare, quiet),
            good=ScriptedServer(tools=("x_own",)),
        ) as on:
            await on.settled()
            for name in ("echo", "xecho", "absent_echo", "bare_echo"):
                with pytest.raises(NotFound):
                    await on.ask("tools/call", name=name)
            assert (await on.ask("tools/call", name="x_own"))["content"]
            assert absent.attempts == bare.attempts == 1
            for _ in range(BARREN_LIVES):
                with pytest.raises(Unavailable, match=r"^absent: not there"):
                    await on.ask("tools/call", name="x_echo")
            with pytest.raises(Unavailable, match="next try in"):
                await on.ask("tools/call", name="x_echo")
            with pytest.raises(Unavailable, match="next try in"):
                await on.gateway.view(older_caller()).pick("absent", "echo")
            assert (absent.attempts, bare.attempts) == (BARREN_LIVES, 1)
            with pytest.raises(Unavailable, match=r"^bare: not there"):
                await on.gateway.view(older_caller()).pick("bare", "echo")
            bare.down = None
            assert await on.gateway.view(older_caller()).pick("bare", "echo") is not None
            assert await on.gateway.view(older_caller()).pick("bare", "other") is None
            assert bare.attempts == 3

    run(main())


def test_a_call_to_a_server_that_is_still_starting_waits_for_that_attempt_and_starts_no_other() -> (
    None
):
    """LIF-4."""

    async def main() -> None:
        late = held()
        late.down = "not there"
        async with ScriptedGateway(late=(late, {"prefix": "late", "max_retries": 0})) as on:
            picking = asyncio.create_task(on.gateway.view(older_caller()).pick("late", "echo"))
            calling = asyncio.create_task(on.ask("tools/call", name="late_echo"))
            await yield_to_loop()
            late.opening.set()
            await asyncio.wait([picking, calling])
            assert str(picking.exception()) == str(calling.exception()) == "late: not there"
            assert late.attempts == 1

    run(main())


def test_a_resource_of_a_server_that_is_still_starting_is_found_when_it_is_there() -> None:
    async def main() -> None:
        async def resources(line: ScriptedConnection, params: Json) -> Json:
            return {"resources": [{"uri": "x:1", "name": "x"}]}

        async def read(line: ScriptedConnection, params: Json) -> Json:
            return {"contents": [{"uri": params["uri"]}]}

        late = held(
            capabilities={"resources": {}},
            answers={"resources/list": resources, "resources/read": read},
        )
        async with ScriptedGateway(first_start_wait=60.0, late=late) as on:
            reading = asyncio.create_task(on.ask("resources/read", uri="x:1"))
            await yield_to_loop()
            late.opening.set()
            assert await reading == {"contents": [{"uri": "x:1"}]}

    run(main())


@pytest.mark.parametrize("name", [None, 5, [], {}])
def test_a_name_that_is_no_string_is_a_mistake_in_the_params(name: Any) -> None:
    async def main() -> None:
        async with ScriptedGateway(a=ScriptedServer()) as on:
            with pytest.raises(RpcError) as caught:
                await on.ask("tools/call", name=name)
            assert caught.value.code == INVALID_PARAMS

    run(main())


# --- announcements


def test_servers_that_come_after_the_first_list_are_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIF-1: only the kinds that differ."""
    monkeypatch.setattr(reports, "GAP", 0.001)

    async def main() -> None:
        late = held(tools=("late",), capabilities={"tools": {}, "prompts": {}})
        async with ScriptedGateway(late=late, other=ScriptedServer()) as on:
            await on.settled("other")
            await on.names()
            assert on.announced == []
            late.opening.set()
            await on.settled()
            await until(lambda: on.announced)
            assert on.announced == [frozenset({"tools"})]
            assert await on.names() == ["late", "echo"]

    run(main())


def test_nothing_is_announced_before_anybody_has_listed() -> None:
    async def main() -> None:
        async with ScriptedGateway(a=ScriptedServer(), b=ScriptedServer()) as on:
            await on.settled()
            assert on.announced == []

    run(main())


def test_a_server_that_comes_back_with_the_same_tools_is_not_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "GAP", 0.001)

    async def main() -> None:
        toy = ScriptedServer("older")
        async with ScriptedGateway(toy=toy) as on:
            await on.settled()
            await on.names()
            toy.lines[0].die()
            await on.ask("tools/call", name="echo")
            looking = on.gateway.announcements._running  # pyright: ignore[reportPrivateUsage]
            assert looking is not None
            await until(looking.done)
            assert on.announced == []

    run(main())


def test_what_a_server_says_has_changed_is_announced_even_if_it_looks_the_same() -> None:
    """PRO-4."""

    async def main() -> None:
        toy = ScriptedServer("older")
        async with ScriptedGateway(toy=toy) as on:
            await on.settled()
            await on.names()
            toy.lines[0].say("notifications/tools/list_changed")
            await until(lambda: on.announced)
            assert on.announced == [frozenset({"tools"})]

    run(main())


def test_fifty_servers_that_start_together_are_not_fifty_announcements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gap = 0.1
    monkeypatch.setattr(reports, "GAP", gap)

    async def main() -> None:
        toys = {f"s{n}": held(tools=(f"t{n}",)) for n in range(50)}
        async with ScriptedGateway(**toys) as on:
            await on.names()
            began = time.monotonic()
            for toy in toys.values():
                toy.opening.set()
                await yield_to_loop(2)
            await on.settled()
            assert len(await on.names()) == 50
            known = on.gateway.catalog
            told = on.gateway.announcements._known  # pyright: ignore[reportPrivateUsage]
            await until(lambda: all(shown.catalog is known for shown in told.values()))
            assert 1 <= len(on.announced) <= (time.monotonic() - began) / gap + 1

    run(main())


def test_the_last_of_several_quick_changes_is_announced_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "GAP", 0.02)

    async def main() -> None:
        one, two = held(tools=("one",)), held(tools=("two",))
        async with ScriptedGateway(one=one, two=two) as on:
            await on.names()
            one.opening.set()
            await until(lambda: len(on.announced) == 1)
            two.opening.set()  # within the gap
            await until(lambda: len(on.announced) == 2)
            assert await on.names() == ["one", "two"]

    run(main())


# --- the rest


def test_one_broken_server_does_not_affect_another() -> None:
    """SRC-8."""

    async def main() -> None:
        async def dies(line: ScriptedConnection, params: Json) -> Json:
            line.die()
            return await never_return()

        hangs = ScriptedServer(tools={"hang": never_return})
        crashes = ScriptedServer(tools={"crash": dies})
        async with ScriptedGateway(
            hangs=hangs, crashes=crashes, good=ScriptedServer(tools={"good": echo})
        ) as on:
            await on.settled()
            hanging = asyncio.create_task(on.ask("tools/call", name="hang"))
            with pytest.raises(Unavailable, match=r"^crashes: "):
                await on.ask("tools/call", name="crash")
            assert (await on.ask("tools/call", name="good"))["content"]
            assert not hanging.done()
            hanging.cancel()
            await asyncio.wait([hanging])

    run(main())


def test_health_tells_each_servers_state_and_reason() -> None:
    async def main() -> None:
        broken = ScriptedServer()
        broken.down = "no such file"
        async with ScriptedGateway(
            broken=broken,
            good=ScriptedServer(),
            off=(ScriptedServer(), {"enabled": False}),
            hangs=held(),
        ) as on:
            await on.settled("broken", "good")
            health = on.gateway.health()
            assert health["status"] == "degraded"
            states = {name: server["status"] for name, server in health["servers"].items()}
            assert states == {
                "broken": "disconnected",
                "good": "connected",
                "off": "disabled",
                "hangs": "connecting",
            }
            assert health["servers"]["broken"]["last_error"] == "broken: no such file"
            assert health["servers"]["good"]["since"].endswith("Z")
        async with ScriptedGateway(
            good=ScriptedServer(), off=(ScriptedServer(), {"enabled": False})
        ) as on:
            await on.settled()
            assert on.gateway.health()["status"] == "ok"

    run(main())


def test_what_servers_say_is_published_with_their_name() -> None:
    """PRO-4."""

    async def main() -> None:
        async def resources(line: ScriptedConnection, params: Json) -> Json:
            return {"resources": [{"uri": "x:1", "name": "x"}]}

        answers = {"resources/list": resources, "resources/subscribe": fine}
        toy = ScriptedServer(
            "older", capabilities={"resources": {"subscribe": True}}, answers=answers
        )
        async with ScriptedGateway(toy=toy) as on:
            await on.settled()
            await on.ask("resources/subscribe", older_caller("one"), uri="x:1")
            toy.lines[0].say("notifications/message", {"level": "info", "data": "hi"})
            toy.lines[0].say("notifications/resources/updated", {"uri": "x:1"})
            await until(lambda: any(isinstance(event, ResourceUpdated) for event in on.events))
            assert (
                ServerSaid("toy", "notifications/message", {"level": "info", "data": "hi"}, None)
                in on.events
            )
            assert ResourceUpdated("toy", {"uri": "x:1"}, frozenset({"one"})) in on.events
            assert UpstreamChanged("toy") in on.events

    run(main())


def test_a_listener_that_fails_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with ScriptedGateway(toy=ScriptedServer()) as on:

            def fails(event: Event) -> None:
                raise KeyError("bug")

            later: list[Event] = []
            on.gateway.bus.subscribe(fails, UpstreamChanged)
            on.gateway.bus.subscribe(later.append, UpstreamChanged)
            await on.settled()
            assert later

    with caplog.at_level(logging.ERROR):
        run(main())
    assert "a listener failed" in caplog.text


async def fine(line: ScriptedConnection, params: Json) -> Json:
    return {}


def test_servers_are_asked_for_the_lowest_level_anybody_wants() -> None:
    """PRO-2."""

    async def main() -> None:
        toy = ScriptedServer(
            "older", capabilities={"logging": {}}, answers={"logging/setLevel": fine}
        )
        async with ScriptedGateway(toy=toy) as on:
            await on.settled()

            def levels() -> list[str]:
                return [p["level"] for m, p in toy.lines[0].heard if m == "logging/setLevel"]

            for session, level in (("a", "error"), ("b", "info"), ("a", "warning")):
                await on.gateway.sessions.set_level(older_caller(session, log_level=level), level)
                await yield_to_loop()
            assert levels() == ["error", "info"]
            await on.gateway.sessions.end_session("b")
            await on.gateway.sessions.set_level(older_caller("a", log_level="alert"), "alert")
            await until(lambda: levels() == ["error", "info", "alert"])

    run(main())


def test_a_server_slow_to_take_a_level_holds_no_client_up() -> None:
    async def main() -> None:
        toy = ScriptedServer(
            "older", capabilities={"logging": {}}, answers={"logging/setLevel": never_return}
        )
        async with ScriptedGateway(toy=toy) as on:
            await on.settled()
            setting = asyncio.create_task(on.gateway.sessions.set_level(older_caller(), "debug"))
            await yield_to_loop()
            assert setting.done()

    run(main())


def test_subscriptions_are_the_sessions_own_and_end_with_it() -> None:
    """PRO-2."""

    async def main() -> None:
        async def resources(line: ScriptedConnection, params: Json) -> Json:
            return {"resources": [{"uri": "x:1", "name": "x"}]}

        answers = {
            "resources/list": resources,
            "resources/subscribe": fine,
            "resources/unsubscribe": fine,
        }
        toy = ScriptedServer(
            "older", capabilities={"resources": {"subscribe": True}}, answers=answers
        )
        async with ScriptedGateway(toy=toy) as on:
            await on.settled()
            [resource] = (await on.ask("resources/list"))["resources"]
            for session in ("a", "b"):
                await on.ask("resources/subscribe", older_caller(session), uri=resource["uri"])
            await on.gateway.sessions.end_session("a")
            assert "resources/unsubscribe" not in toy.lines[0].methods()
            await on.ask("resources/unsubscribe", older_caller("b"), uri="x:1")
            told = [
                (m, p["uri"])
                for m, p in toy.lines[0].heard
                if m.startswith("resources/") and "uri" in p
            ]
            assert told == [("resources/subscribe", "x:1"), ("resources/unsubscribe", "x:1")]

    run(main())


def test_which_arguments_travel_as_headers_is_known_for_the_public_name() -> None:
    async def main() -> None:
        async def tools(line: ScriptedConnection, params: Json) -> Json:
            schema = {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
            return {"tools": [{"name": "t", "inputSchema": schema}, {"name": "plain"}]}

        toy = ScriptedServer(answers={"tools/list": tools})
        async with ScriptedGateway(naming=Naming(prefix="always"), toy=toy) as on:
            await on.settled()
            for _ in range(2):
                assert on.gateway.access.param_headers("toy_t", modern_caller()) == {
                    ("a",): ("A", "string")
                }
            assert on.gateway.access.param_headers("toy_plain", modern_caller()) is None
            assert on.gateway.access.param_headers("t", modern_caller()) is None

    run(main())


def test_two_hundred_calls_at_once_get_their_own_answers() -> None:
    """SRC-8: over two servers and both eras."""

    async def main() -> None:
        async def slow(line: ScriptedConnection, params: Json) -> Json:
            await yield_to_loop(hash(params["arguments"]["text"]) % 7)
            return await echo(line, params)

        patient = {
            "call_timeout": 60.0
        }  # all of them wait for the last one, and it for the machine
        toys = {
            "a": (ScriptedServer("older", tools={"x": slow}), patient),
            "b": (ScriptedServer("modern", tools={"y": slow}), patient),
        }
        async with ScriptedGateway(**toys) as on:
            await on.settled()

            async def one(n: int) -> None:
                caller = modern_caller() if n % 3 else older_caller(f"s{n % 5}")
                result = await on.ask(
                    "tools/call", caller, name="xy"[n % 2], arguments={"text": str(n)}
                )
                assert result["content"][0]["text"] == str(n)

            await asyncio.gather(*(one(n) for n in range(200)))

    run(main())


def test_closing_while_servers_start_leaves_nothing_behind() -> None:
    """LIF-8."""

    async def main() -> None:
        toys = [
            held(),
            ScriptedServer(answers={"server/discover": never_return}),
            ScriptedServer(answers={"tools/list": never_return}),
            ScriptedServer(),
        ]
        core = ScriptedGateway(**{f"s{n}": toy for n, toy in enumerate(toys)})
        async with core:
            await yield_to_loop()
        assert [toy.alive for toy in toys] == [[]] * 4
        await yield_to_loop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())
