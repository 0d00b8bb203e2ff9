"""One configured server through its life: starting, serving, lost, back again; and what it tells
the gateway."""

import asyncio
import logging
from typing import Any

import pytest

from kit.callers import RecordingChannel, modern_caller, older_caller
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer, asking_tool, echo
from kit.until import until
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import INVALID_PARAMS, SERVER_DIED, SERVER_DOWN, RpcError, Unavailable
from mcpx.model.events import ResourceUpdated, ServerSaid, UpstreamChanged
from mcpx.model.offer import KINDS, Kind
from mcpx.upstreams import bridges
from mcpx.upstreams import link_owner as module
from mcpx.upstreams.context import ListsRead, UpstreamContext, UpstreamEvent
from mcpx.upstreams.life import Gate
from mcpx.upstreams.snapshot import Snapshots
from mcpx.upstreams.upstream import Upstream


class Hub:
    """The gateway, as far as an upstream sees it."""

    def __init__(self) -> None:
        self.changes: list[tuple[tuple[Kind, ...], bool]] = []
        self.updates: list[tuple[Json, frozenset[str]]] = []
        self.words: list[tuple[str, Json, object | None]] = []
        self.states: list[str] = []
        self.upstream: Upstream | None = None

    def publish(self, event: UpstreamEvent) -> None:
        if isinstance(event, ListsRead):
            self.changes.append((event.kinds, event.announced))
        elif isinstance(event, ResourceUpdated):
            self.updates.append((event.params, event.to))
        elif isinstance(event, ServerSaid):
            self.words.append((event.method, event.params, event.owner))
        elif isinstance(event, UpstreamChanged):
            assert self.upstream is not None
            self.states.append(self.upstream.status.state)


class Running:
    """An upstream over a toy, closed at the end."""

    def __init__(
        self, toy: ScriptedServer, *, start: bool = True, solo: Caller | None = None, **fields: Any
    ) -> None:
        self.toy = toy
        self.hub = Hub()
        context = UpstreamContext({}, Snapshots(None), Gate(8), self.hub.publish)
        self.upstream = Upstream(toy.server(**fields), context)
        self.hub.upstream = self.upstream
        self._start = start
        self._solo = solo

    async def __aenter__(self) -> "Running":
        if self._start:
            self.upstream.connection.start(self._solo)
            await self.upstream.settled.wait()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.upstream.close()

    async def call(self, caller: Caller, name: str = "echo", **params: Any) -> Json:
        given = {"name": name, **params}
        return await self.upstream.call(Call("tools/call", given, caller), given)

    @property
    def state(self) -> str:
        return self.upstream.status.state


async def fine(line: ScriptedConnection, params: Json) -> Json:
    return {}


# --- starting


def test_a_server_that_starts_is_connecting_then_connected_and_its_lists_are_published_together() -> (
    None
):
    """LIF-1."""

    async def main() -> None:
        async with Running(ScriptedServer(tools=("a", "b"))) as on:
            assert on.hub.states == ["connected"]
            assert on.hub.changes == [(KINDS, False)]
            assert [tool["name"] for tool in on.upstream.definitions["tools"]] == ["a", "b"]
            assert on.upstream.status.last_error is None

    run(main())


def test_a_server_that_cannot_be_reached_is_disconnected_with_its_reason_and_settled_all_the_same() -> (
    None
):
    """SRC-8."""

    async def main() -> None:
        toy = ScriptedServer()
        toy.down = "command not found: 'x'"
        async with Running(toy) as on:
            assert on.hub.states == ["disconnected"]
            assert on.upstream.status.last_error == "toy: command not found: 'x'"
            with pytest.raises(Unavailable, match=r"^toy: command not found: 'x'$") as caught:
                await on.call(modern_caller())
            assert caught.value.code == SERVER_DOWN

    run(main())


def test_a_bug_on_the_way_up_is_a_state_too_and_no_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        class Broken(ScriptedServer):
            async def open(self, dial: Any) -> ScriptedConnection:
                raise KeyError("bug")

        async with Running(Broken()) as on:
            assert on.state == "disconnected"
            assert on.upstream.status.last_error == "toy: KeyError"

    with caplog.at_level(logging.ERROR):
        run(main())
    assert "connecting failed" in caplog.text


def test_one_list_that_cannot_be_read_costs_the_others_nothing() -> None:
    """SRC-8."""

    async def main() -> None:
        async def broken(line: ScriptedConnection, params: Json) -> Json:
            raise RpcError(-32603, "oops")

        toy = ScriptedServer(
            capabilities={"tools": {}, "prompts": {}}, answers={"prompts/list": broken}
        )
        async with Running(toy) as on:
            assert on.state == "connected"
            assert len(on.upstream.definitions["tools"]) == 1
            assert on.upstream.definitions["prompts"] == []

    run(main())


def test_a_server_that_dies_while_it_is_listed_is_disconnected() -> None:
    async def main() -> None:
        async def dies(line: ScriptedConnection, params: Json) -> Json:
            line.die("the process exited with code 9")
            return await never_return()

        async with Running(ScriptedServer(answers={"tools/list": dies})) as on:
            assert on.state == "disconnected"
            assert "code 9" in (on.upstream.status.last_error or "")
            assert on.upstream.settled.is_set()

    run(main())


@pytest.mark.parametrize(
    "junk",
    [
        None,
        5,
        "tool",
        [],
        {},
        {"name": None},
        {"inputSchema": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
        {"name": [], "inputSchema": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
        {"inputSchema": {"x-mcp-header": "at the root"}},
        {"name": {}, "inputSchema": {"x-mcp-header": []}},
    ],
)
def test_junk_among_the_tools_costs_the_others_nothing(junk: Any) -> None:
    """SRC-8: the rest of the list stays."""

    async def main() -> None:
        async def tools(line: ScriptedConnection, params: Json) -> Json:
            return {"tools": [{"name": "good"}, junk, {"name": "also good"}]}

        for eras in ("modern", "older"):
            async with Running(ScriptedServer(eras, answers={"tools/list": tools})) as on:
                assert on.state == "connected"
                assert {"name": "good"} in on.upstream.definitions["tools"]
                assert {"name": "also good"} in on.upstream.definitions["tools"]

    run(main())


def test_a_modern_tool_that_asks_for_headers_wrongly_is_left_out_and_an_older_one_is_not() -> None:
    async def main() -> None:
        async def tools(line: ScriptedConnection, params: Json) -> Json:
            return {
                "tools": [{"name": "bad", "inputSchema": {"x-mcp-header": "x"}}, {"name": "good"}]
            }

        for eras, names in (("modern", ["good"]), ("older", ["bad", "good"])):
            async with Running(ScriptedServer(eras, answers={"tools/list": tools})) as on:
                assert [tool["name"] for tool in on.upstream.definitions["tools"]] == names

    run(main())


def test_which_arguments_travel_as_headers_follows_the_servers_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DEBOUNCE", 0.001)

    async def main() -> None:
        schema = {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
        schemas: dict[str, Json] = {"one": schema, "two": schema}

        async def tools(line: ScriptedConnection, params: Json) -> Json:
            return {
                "tools": [{"name": name, "inputSchema": given} for name, given in schemas.items()]
            }

        async with Running(ScriptedServer("modern", answers={"tools/list": tools})) as on:
            [line] = on.toy.lines
            assert line.dial.annotations == {
                name: {("a",): ("A", "string")} for name in ("one", "two")
            }
            schemas["one"] = {}
            line.say("notifications/tools/list_changed")
            await until(lambda: set(line.dial.annotations) == {"two"})

    run(main())


# --- calls to a server that is not up


def test_a_call_waits_for_a_server_that_is_still_starting() -> None:
    """LIF-1."""

    async def main() -> None:
        toy = ScriptedServer()
        toy.opening.clear()
        async with Running(toy, start=False) as on:
            on.upstream.connection.start()
            calls = [asyncio.create_task(on.call(modern_caller())) for _ in range(5)]
            await yield_to_loop()
            toy.opening.set()
            await asyncio.gather(*calls)
            assert toy.attempts == 1

    run(main())


def test_a_call_does_not_wait_longer_than_the_time_out() -> None:
    """LIF-6 and SRC-8."""

    async def main() -> None:
        toy = ScriptedServer()
        toy.opening.clear()
        async with Running(toy, start=False, timeout=0.5) as on:
            on.upstream.connection.start()
            with pytest.raises(Unavailable, match=r"^toy: not connected after 0\.5 s$") as caught:
                await on.call(modern_caller())
            assert caught.value.code == SERVER_DOWN
            toy.opening.set()  # what was begun goes on, for the next call
            await on.upstream.settled.wait()
            await on.call(modern_caller())

    run(main())


def test_calls_to_a_server_that_is_down_start_one_attempt_for_all() -> None:
    async def main() -> None:
        toy = ScriptedServer()
        toy.down = "no"
        async with Running(toy) as on:
            toy.opening.clear()
            calls = [asyncio.create_task(on.call(modern_caller())) for _ in range(10)]
            await yield_to_loop()
            toy.down = None
            toy.opening.set()
            await asyncio.gather(*calls)
            assert toy.attempts == 2

    run(main())


def test_one_caller_going_away_does_not_stop_the_attempt_for_the_others() -> None:
    async def main() -> None:
        toy = ScriptedServer()
        toy.opening.clear()
        async with Running(toy, start=False) as on:
            goes, stays = (asyncio.create_task(on.call(modern_caller())) for _ in range(2))
            await yield_to_loop()
            goes.cancel()
            await asyncio.wait([goes])
            toy.opening.set()
            await stays
            assert toy.attempts == 1

    run(main())


def test_a_disabled_server_is_never_dialled() -> None:
    async def main() -> None:
        toy = ScriptedServer()
        async with Running(toy, start=False, enabled=False) as on:
            assert on.state == "disabled"
            with pytest.raises(Unavailable, match="is disabled"):
                await on.call(modern_caller())
            assert toy.attempts == 0

    run(main())


# --- losing it


def test_a_server_that_dies_in_a_call_fails_that_call_at_once_and_is_not_sent_it_again() -> None:
    """SRC-8; the next call brings it back."""

    async def main() -> None:
        async def dies(line: ScriptedConnection, params: Json) -> Json:
            line.die("the process was ended by signal 9")
            return await never_return()

        async with Running(ScriptedServer(tools={"echo": echo, "die": dies})) as on:
            with pytest.raises(
                Unavailable, match=r"^toy: the process was ended by signal 9$"
            ) as caught:
                await on.call(modern_caller(), "die")
            assert caught.value.code == SERVER_DIED
            assert on.state == "disconnected"
            assert len(on.upstream.definitions["tools"]) == 2  # they stay listed
            assert [len(line.calls()) for line in on.toy.lines] == [1]
            await on.call(modern_caller())
            assert on.state == "connected"
            assert [len(line.calls()) for line in on.toy.lines] == [1, 1]
            await until(lambda: on.toy.lines[0].closed_by_gateway)

    run(main())


def test_losing_a_private_link_does_not_make_the_server_disconnected() -> None:
    async def main() -> None:
        async with Running(ScriptedServer("older"), isolation="per_session") as on:
            caller = older_caller(askable=True)
            await on.call(caller)
            on.toy.lines[1].die()
            await yield_to_loop()
            assert on.state == "connected"
            await on.call(caller)
            assert len(on.toy.lines) == 3

    run(main())


def test_what_certainly_was_not_sent_is_sent_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Running(ScriptedServer()) as on:
            line = on.toy.lines[0]
            failures = 1
            request = line.request

            async def unsent(method: str, params: Json, **options: Any) -> Json:
                nonlocal failures
                if method == "tools/call" and failures:
                    failures -= 1
                    error = Unavailable("toy", SERVER_DOWN, "cannot connect")
                    error.unsent = True
                    raise error
                return await request(method, params, **options)

            monkeypatch.setattr(line, "request", unsent)
            await on.call(modern_caller())
            assert len(line.calls()) == 1
            failures = 2
            with pytest.raises(Unavailable, match="cannot connect"):
                await on.call(modern_caller())
            assert len(line.calls()) == 1

    run(main())


# --- questions across the eras


ELICIT = ("elicitation/create", {"message": "who?"})


def test_a_modern_clients_call_to_an_older_server_is_parked_for_its_question_and_resumed() -> None:
    """PRO-5: on a link of its own, lent out for as long."""

    async def main() -> None:
        async with Running(
            ScriptedServer("older", tools={"ask": asking_tool(ELICIT, ELICIT)})
        ) as on:
            caller = modern_caller(askable=True)
            asked = await on.call(caller, "ask")
            for n in (1, 2):
                assert asked["resultType"] == "input_required"
                answers = {key: {"n": n} for key in asked["inputRequests"]}
                asked = await on.call(
                    caller, "ask", requestState=asked["requestState"], inputResponses=answers
                )
            assert asked["structuredContent"] == {"answers": [{"n": 1}, {"n": 2}]}
            assert len(on.toy.lines) == 2
            assert (
                len(on.toy.lines[1].calls()) == 1
            )  # the server was called once, whatever the client repeated

    run(main())


def test_parked_calls_of_many_clients_do_not_get_each_others_answers() -> None:
    """PRO-5."""

    async def main() -> None:
        async def ask_back(line: ScriptedConnection, params: Json) -> Json:
            answer = await line.ask("elicitation/create", {"message": params["arguments"]["me"]})
            return {"content": [], "structuredContent": {"me": params["arguments"]["me"], **answer}}

        async with Running(ScriptedServer("older", tools={"ask": ask_back})) as on:

            async def client(me: str) -> Json:
                caller = modern_caller(me, askable=True)
                asked = await on.call(caller, "ask", arguments={"me": me})
                [(key, question)] = asked["inputRequests"].items()
                assert question["params"]["message"] == me
                return await on.call(
                    caller,
                    "ask",
                    arguments={"me": me},
                    requestState=asked["requestState"],
                    inputResponses={key: {"answer": me}},
                )

            names = [f"client{n}" for n in range(10)]
            results = await asyncio.gather(*(client(name) for name in names))
            assert [r["structuredContent"] for r in results] == [
                {"me": name, "answer": name} for name in names
            ]

    run(main())


@pytest.mark.parametrize("state", ["mcpx-unknown", "something", "", 5, [], {"a": 1}])
def test_a_state_that_is_not_of_a_parked_call_is_refused_and_nothing_is_called(state: Any) -> None:
    """An older server knows no states: whatever comes is ours, and unknown, tampered with or
    expired."""

    async def main() -> None:
        async with Running(ScriptedServer("older", tools={"ask": asking_tool(ELICIT)})) as on:
            with pytest.raises(RpcError) as caught:
                await on.call(
                    modern_caller(askable=True),
                    "ask",
                    requestState=state,
                    inputResponses={"q1": {}},
                )
            assert caught.value.code == INVALID_PARAMS
            assert all(line.calls() == [] for line in on.toy.lines)

    run(main())


def test_a_parked_call_whose_time_is_over_is_cancelled_at_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIF-6."""
    monkeypatch.setattr(bridges, "PARKED_FOR", 0.02)

    async def main() -> None:
        async with Running(ScriptedServer("older", tools={"ask": asking_tool(ELICIT)})) as on:
            caller = modern_caller(askable=True)
            asked = await on.call(caller, "ask")
            line = on.toy.lines[1]
            await until(lambda: line.cancelled)
            with pytest.raises(RpcError) as caught:
                await on.call(
                    caller, "ask", requestState=asked["requestState"], inputResponses={"q1": {}}
                )
            assert caught.value.code == INVALID_PARAMS
            assert len(line.calls()) == 1

    run(main())


def test_a_modern_servers_state_passes_through_untouched() -> None:
    """PRO-5."""

    async def main() -> None:
        async def ask(line: ScriptedConnection, params: Json) -> Json:
            if "requestState" in params:
                return {"resultType": "complete", "state": params["requestState"]}
            return {
                "resultType": "input_required",
                "requestState": {"any": "thing"},
                "inputRequests": {},
            }

        async with Running(ScriptedServer("modern", tools={"ask": ask})) as on:
            asked = await on.call(modern_caller(askable=True), "ask")
            assert asked["requestState"] == {"any": "thing"}
            done = await on.call(
                modern_caller(askable=True), "ask", requestState=asked["requestState"]
            )
            assert done["state"] == {"any": "thing"}

    run(main())


def test_a_parked_call_of_a_server_that_goes_down_ends_with_its_error() -> None:
    async def main() -> None:
        async with Running(ScriptedServer("older", tools={"ask": asking_tool(ELICIT)})) as on:
            caller = modern_caller(askable=True)
            asked = await on.call(caller, "ask")
            on.toy.lines[1].die("the process exited with code 1")
            await yield_to_loop()
            with pytest.raises(Unavailable, match="code 1"):
                await on.call(
                    caller, "ask", requestState=asked["requestState"], inputResponses={"q1": {}}
                )

    run(main())


def test_an_older_client_is_asked_for_a_modern_server() -> None:
    """PRO-5."""

    async def main() -> None:
        async def ask(line: ScriptedConnection, params: Json) -> Json:
            if "inputResponses" in params:
                return {"resultType": "complete", "answers": params["inputResponses"]}
            return {
                "resultType": "input_required",
                "inputRequests": {"k": {"method": "roots/list"}},
            }

        async with Running(ScriptedServer("modern", tools={"ask": ask})) as on:
            tape = RecordingChannel(list={"roots": []})
            assert await on.call(older_caller(askable=True, voice=tape), "ask") == {
                "answers": {"k": {"roots": []}}
            }
            assert tape.asked == [("toy", "roots/list", None)]

    run(main())


# --- what the server announces


def test_a_storm_of_list_changes_costs_a_few_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEBOUNCE", 0.02)

    async def main() -> None:
        toy = ScriptedServer("older", tools=("a",))
        async with Running(toy) as on:
            line = toy.lines[0]
            before = line.methods().count("tools/list")
            toy.tools["b"] = echo
            for _ in range(500):
                line.say("notifications/tools/list_changed")
            await until(lambda: len(on.hub.changes) == 2)
            assert on.hub.changes[1] == (("tools",), True)
            assert [tool["name"] for tool in on.upstream.definitions["tools"]] == ["a", "b"]
            assert line.methods().count("tools/list") - before <= 2

    run(main())


def test_a_change_announced_while_the_lists_are_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DEBOUNCE", 0.001)

    async def main() -> None:
        toy = ScriptedServer("older", tools=("a",))
        async with Running(toy) as on:
            names, gate, reading = ["a"], asyncio.Event(), asyncio.Event()

            async def tools(line: ScriptedConnection, params: Json) -> Json:
                seen = list(names)
                reading.set()
                await gate.wait()
                return {"tools": [{"name": name} for name in seen]}

            toy.answers["tools/list"] = tools
            toy.lines[0].say("notifications/tools/list_changed")
            await reading.wait()
            names.append("b")
            toy.lines[0].say("notifications/tools/list_changed")
            await yield_to_loop()
            gate.set()
            await until(lambda: len(on.upstream.definitions["tools"]) == 2)

    run(main())


def test_resources_announce_their_templates_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEBOUNCE", 0.001)

    async def main() -> None:
        async with Running(ScriptedServer("older")) as on:
            on.toy.lines[0].say("notifications/resources/list_changed")
            await until(lambda: len(on.hub.changes) == 2)
            assert on.hub.changes[1] == (("resources", "templates"), True)

    run(main())


def test_lists_that_cannot_be_read_again_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEBOUNCE", 0.001)

    async def main() -> None:
        async with Running(ScriptedServer("older", tools=("a",))) as on:
            read = asyncio.Event()

            async def broken(line: ScriptedConnection, params: Json) -> Json:
                read.set()
                raise RpcError(-1, "oops")

            on.toy.answers["tools/list"] = broken
            on.toy.lines[0].say("notifications/tools/list_changed")
            await read.wait()
            await yield_to_loop()
            assert [tool["name"] for tool in on.upstream.definitions["tools"]] == ["a"]
            assert on.state == "connected"

    run(main())


def test_what_a_server_says_reaches_the_gateway_with_the_session_it_concerns() -> None:
    """PRO-4."""

    async def main() -> None:
        toy = ScriptedServer("older", answers={"resources/subscribe": fine})
        async with Running(toy, isolation="per_session") as on:
            await on.call(older_caller("mine", askable=True))
            shared, private = on.toy.lines
            await on.upstream.watch(older_caller("mine", askable=True), "x:1", "mine")
            await on.upstream.watch(
                older_caller("yours", solo=True), "x:1", "yours"
            )  # as one that is not kept apart
            for line in (shared, private):
                line.say("notifications/message", {"level": "info"})
                line.say("notifications/resources/updated", {"uri": "x:1"})
            await until(lambda: len(on.hub.updates) == 2)
            assert on.hub.words == [
                ("notifications/message", {"level": "info"}, None),
                ("notifications/message", {"level": "info"}, "mine"),
            ]
            assert on.hub.updates == [
                ({"uri": "x:1"}, frozenset({"yours"})),
                ({"uri": "x:1"}, frozenset({"mine"})),
            ]

    run(main())


# --- what reaches the server besides calls


def test_a_clients_notification_goes_over_its_own_links_and_no_other() -> None:
    """PRO-4."""

    async def main() -> None:
        async with Running(ScriptedServer("older"), isolation="per_session") as on:
            for session in ("one", "two"):
                await on.call(older_caller(session, askable=True))
            on.upstream.subscriptions.notify(
                older_caller("one", askable=True), "notifications/roots/list_changed", {}
            )
            on.upstream.subscriptions.notify(
                modern_caller(), "notifications/roots/list_changed", {}
            )
            await yield_to_loop()
            told = ["notifications/roots/list_changed" in line.methods() for line in on.toy.lines]
            assert told == [False, True, False]

    run(main())


def test_the_one_client_of_a_stdio_front_reaches_every_link() -> None:
    async def main() -> None:
        solo = older_caller(solo=True)
        async with Running(ScriptedServer("older"), solo=solo) as on:
            on.upstream.subscriptions.notify(solo, "notifications/roots/list_changed", {})
            await until(lambda: "notifications/roots/list_changed" in on.toy.lines[0].methods())

    run(main())


def levels(line: ScriptedConnection) -> list[str]:
    return [params["level"] for method, params in line.heard if method == "logging/setLevel"]


def logging_toy() -> ScriptedServer:
    return ScriptedServer(
        "older", capabilities={"tools": {}, "logging": {}}, answers={"logging/setLevel": fine}
    )


def test_shared_links_get_the_lowest_level_anybody_wants_and_private_ones_their_own() -> None:
    """PRO-2."""

    async def main() -> None:
        async with Running(logging_toy(), isolation="per_session") as on:
            await on.call(older_caller("one", askable=True))
            await on.call(older_caller("two", askable=True))
            await on.upstream.subscriptions.set_level(
                "debug", older_caller("one", askable=True, log_level="warning")
            )
            assert [levels(line) for line in on.toy.lines] == [["debug"], ["warning"], []]

    run(main())


def test_a_link_opened_after_the_level_was_set_is_told_it() -> None:
    """PRO-2: a client sets its level before its first call opens its private link."""

    async def main() -> None:
        async with Running(logging_toy(), isolation="per_session") as on:
            caller = older_caller("one", askable=True, log_level="error")
            await on.upstream.subscriptions.set_level("error", caller)
            await on.call(caller)
            await on.call(modern_caller(askable=True, log_level="debug"))
            assert [levels(line) for line in on.toy.lines] == [["error"], ["error"], ["debug"]]

    run(main())


def test_a_server_that_comes_back_is_told_the_level_again() -> None:
    async def main() -> None:
        async with Running(logging_toy()) as on:
            await on.upstream.subscriptions.set_level("debug", older_caller(log_level="debug"))
            on.toy.lines[0].die()
            await on.call(older_caller())
            assert levels(on.toy.lines[-1]) == ["debug"]

    run(main())


# --- the end


def test_the_end_of_a_session_takes_its_links_and_its_subscriptions_with_it() -> None:
    async def main() -> None:
        toy = ScriptedServer(
            "older",
            capabilities={"tools": {}, "resources": {"subscribe": True}},
            answers={"resources/subscribe": fine, "resources/unsubscribe": fine},
        )
        async with Running(toy, isolation="per_session") as on:
            for who, uri in (("one", "x:1"), ("two", "x:1"), ("one", "x:2")):
                await on.upstream.watch(older_caller(who, solo=True), uri, who)
            await on.call(older_caller("one", askable=True))
            await on.upstream.end_session("one")
            told = [(m, p["uri"]) for m, p in toy.lines[0].heard if m == "resources/unsubscribe"]
            assert told == [("resources/unsubscribe", "x:2")]
            await until(lambda: [line.closed_by_gateway for line in toy.lines] == [False, True])
            assert on.state == "connected"

    run(main())


@pytest.mark.parametrize("stage", ["opening", "greeting", "listing", "parked", "calling"])
def test_closing_at_any_moment_leaves_no_connection_and_no_task_behind(stage: str) -> None:
    """LIF-8."""

    async def main() -> None:
        answers: dict[str, Any] = {
            "greeting": {"initialize": never_return},
            "listing": {"tools/list": never_return},
        }.get(stage, {})
        toy = ScriptedServer(
            "older", tools={"ask": asking_tool(ELICIT), "wait": never_return}, answers=answers
        )
        on = Running(toy, start=False, timeout=600.0, call_timeout=600.0)
        if stage == "opening":
            toy.opening.clear()
        on.upstream.connection.start()
        call: asyncio.Task[Json] | None = None
        if stage in ("parked", "calling"):
            caller = modern_caller(askable=True)
            call = asyncio.create_task(on.call(caller, "ask" if stage == "parked" else "wait"))
            await until(lambda: len(toy.lines) == 2 and toy.lines[1].calls())
            if stage == "parked":
                await call
        else:
            await until(lambda: toy.attempts == 1)
            await yield_to_loop()
        await on.upstream.close()
        assert toy.alive == []
        if call is not None and stage == "calling":
            with pytest.raises((Unavailable, asyncio.CancelledError)):
                await call
        await yield_to_loop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_list_that_was_refused_for_now_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """LIF-4: a server that was busy for a moment is not without tools for good."""
    monkeypatch.setattr(module, "READ_AGAIN", (0.01, 0.01, 0.01))

    async def main() -> None:
        tries: list[int] = []

        async def busy(line: ScriptedConnection, params: Json) -> Json:
            tries.append(1)
            if len(tries) < 3:
                raise RpcError(-32603, "busy")
            return {"tools": [{"name": "late"}]}

        async with Running(ScriptedServer("older", answers={"tools/list": busy})) as on:
            await until(
                lambda: [tool["name"] for tool in on.upstream.definitions["tools"]] == ["late"]
            )

    run(main())


def test_a_session_that_leaves_with_the_main_link_leaves_the_server_usable() -> None:
    """LIF-2: a link may become everybody's while it is being found out that it is one session's
    own."""

    async def main() -> None:
        async with Running(ScriptedServer(tools={"echo": echo})) as on:
            caller = older_caller("leaving")
            link = on.upstream.links.main
            assert link is not None
            link.owner, link.use = caller.session, "session"
            assert caller.session is not None
            await on.upstream.end_session(caller.session)
            async with asyncio.timeout(5):
                await on.call(older_caller("next"))

    run(main())
