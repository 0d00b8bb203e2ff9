"""One live connection: what is said on it, in which era, and to whom its questions go."""

import asyncio
import json
from typing import Any

import pytest

from kit.callers import CLIENT_CAPABILITIES, RecordingChannel, modern_caller, older_caller
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer, asking_tool, echo
from kit.until import until
from mcpx.config import Server
from mcpx.model.call import Call, Caller, Json, Voice
from mcpx.model.errors import METHOD_NOT_FOUND, SERVER_TIMEOUT, RpcError, Unavailable
from mcpx.transports import Http
from mcpx.transports.dial import Dial
from mcpx.upstreams import link as module
from mcpx.upstreams.bridges import Lease, client_of
from mcpx.upstreams.link import PLAIN, Link, through
from mcpx.upstreams.link_owner import LinkOwner
from mcpx.upstreams.negotiate import Deadline, Era, Identity
from mcpx.upstreams.traits import Traits
from mcpx.wire import era
from mcpx.wire.http_server import Exchange, HttpServer
from mcpx.wire.sse import sse_frame


class Ears(LinkOwner):
    """The hearer of a link."""

    def __init__(self) -> None:
        self.notifications: list[tuple[str, Json]] = []
        self.losses: list[str] = []
        self.rests = 0

    def heard(self, link: Link, method: str, params: Json, owner: object | None) -> None:
        self.notifications.append((method, params))

    def lost(self, link: Link, reason: str) -> None:
        self.losses.append(reason)

    def retired(self, link: Link) -> None:
        pass

    def rested(self, link: Link) -> None:
        self.rests += 1

    def answered(self) -> None:
        pass

    def asked(self, method: str) -> None:
        pass

    def asked_late(self) -> None:
        pass

    def bound(self, link: Link) -> None:
        pass


async def open_link(link: Link, *openings: Era) -> None:
    server = link.server
    dial = Dial(server.name, link, server.timeout, server.max_message, {}, {})
    await link.open(openings, dial, Deadline(server.start_limit, server.timeout))


class Open:
    """An open link to a toy, as a context."""

    def __init__(
        self,
        toy: ScriptedServer,
        *openings: Era,
        owner: str | None = None,
        voice: Voice | None = None,
        **fields: Any,
    ) -> None:
        self.toy = toy
        self.ears = Ears()
        self.openings: tuple[Era, ...] = openings or ("modern", "older")
        me = Identity({"name": "me"}, {})
        self.link = Link(
            toy.server(**fields),
            self.ears,
            me,
            Traits(),
            PLAIN,
            use="shared",
            owner=owner,
            voice=voice,
        )

    async def __aenter__(self) -> "Open":
        await open_link(self.link, *self.openings)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.link.close()

    @property
    def line(self) -> ScriptedConnection:
        return self.toy.lines[-1]

    async def call(self, caller: Caller, name: str = "echo", **params: Any) -> Json:
        call = Call("tools/call", {"name": name, **params}, caller)
        lease = Lease(self.link, call, client_of(caller))
        return await lease.run(call.params)


# --- opening


def test_a_link_whose_negotiation_fails_leaves_no_connection_behind() -> None:
    async def main() -> None:
        async def refuse(line: ScriptedConnection, params: Json) -> Json:
            raise RpcError(-1, "no")

        opened = Open(ScriptedServer(answers={"initialize": refuse, "server/discover": refuse}))
        with pytest.raises(RpcError, match="no"):
            async with opened:
                raise AssertionError("not reached")
        assert opened.line.closed_by_gateway
        assert not opened.link.alive
        assert opened.ears.losses == []  # what never lived is not lost

    run(main())


def test_a_link_given_up_while_it_is_negotiated_leaves_no_connection_behind() -> None:
    async def main() -> None:
        opened = Open(ScriptedServer(answers={"server/discover": never_return}))
        task = asyncio.create_task(open_link(opened.link, "modern"))
        await until(lambda: opened.toy.lines and opened.line.heard)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert opened.line.closed_by_gateway

    run(main())


def test_a_link_tells_of_its_loss_once_and_not_of_its_closing() -> None:
    async def main() -> None:
        async with Open(ScriptedServer()) as lost:
            lost.line.die("gone")
            lost.line.die("again")
            assert lost.ears.losses == ["gone"]
            assert not lost.link.alive
        assert lost.ears.losses == ["gone"]
        async with Open(ScriptedServer()) as closed:
            pass
        assert closed.ears.losses == []

    run(main())


# --- calls in the era of the server

PARAMS: Json = {"arguments": {"text": "hi"}, "_meta": {"mine": 1}, "future": [1]}


def test_a_modern_server_gets_each_callers_own_envelope() -> None:
    """PRO-3: the caller's capabilities, and its name marked as coming through us."""

    async def main() -> None:
        async with Open(ScriptedServer("modern")) as on:
            await on.call(modern_caller("x", askable=True, log_level="debug"), **PARAMS)
            await on.call(older_caller(), **PARAMS)
            first, second = on.line.calls()
            assert first == {
                "name": "echo",
                "arguments": {"text": "hi"},
                "future": [1],
                "_meta": {
                    "mine": 1,
                    era.VERSION_KEY: "2026-07-28",
                    era.CLIENT_KEY: {"name": "x-through-proxy", "version": "1"},
                    era.CAPABILITIES_KEY: CLIENT_CAPABILITIES,
                    era.LEVEL_KEY: "debug",
                },
            }
            assert second["_meta"][era.CLIENT_KEY]["name"] == "older-through-proxy"
            assert second["_meta"][era.CAPABILITIES_KEY] == {}
            assert second["_meta"][era.LEVEL_KEY] == "info"

    run(main())


def test_an_older_server_gets_no_envelope() -> None:
    async def main() -> None:
        async with Open(ScriptedServer("older")) as on:
            envelope = {era.VERSION_KEY: "2026-07-28", era.CLIENT_KEY: {}, era.CAPABILITIES_KEY: {}}
            await on.call(modern_caller(), **{**PARAMS, "_meta": {"mine": 1, **envelope}})
            await on.call(older_caller(), **PARAMS)
            assert on.line.calls() == [{"name": "echo", **PARAMS}] * 2

    run(main())


def test_results_pass_in_the_callers_era() -> None:
    """PRO-6."""

    async def main() -> None:
        async def tool(line: ScriptedConnection, params: Json) -> Json:
            return {"content": [], "resultType": "complete", "future": 1}

        async with Open(ScriptedServer("modern", tools={"echo": tool})) as on:
            assert await on.call(modern_caller()) == {
                "content": [],
                "resultType": "complete",
                "future": 1,
            }
            assert await on.call(older_caller()) == {"content": [], "future": 1}

    run(main())


def test_the_hearer_is_told_when_the_last_call_is_over() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def slow(line: ScriptedConnection, params: Json) -> Json:
            await gate.wait()
            return {}

        async with Open(ScriptedServer(tools={"echo": slow, "quick": echo})) as on:
            slow_call = asyncio.create_task(on.call(modern_caller()))
            await until(lambda: on.link.leases)
            await on.call(modern_caller(), "quick")
            assert on.ears.rests == 0
            gate.set()
            await slow_call
            assert on.ears.rests == 1
            assert on.link.calls == 2

    run(main())


def test_a_call_without_an_answer_ends_after_its_own_time_out() -> None:
    """LIF-6."""

    async def main() -> None:
        async with Open(ScriptedServer(tools={"echo": never_return}), call_timeout=0.2) as on:
            with pytest.raises(Unavailable, match=r"^toy: ") as caught:
                await on.call(modern_caller())
            assert caught.value.code == SERVER_TIMEOUT
            await until(lambda: on.line.cancelled)
            assert not on.link.leases

    run(main())


# --- questions that no stream ties to a call


ROOTS = ("roots/list", None)


def test_a_question_on_a_private_link_goes_to_the_latest_call_of_its_owner() -> None:
    """PRO-5."""

    async def main() -> None:
        first, second = RecordingChannel(list={"n": 1}), RecordingChannel(list={"n": 2})
        async with Open(
            ScriptedServer("older", tools={"wait": never_return, "ask": asking_tool(ROOTS)}),
            owner="s",
        ) as on:
            waiting = asyncio.create_task(
                on.call(older_caller("s", askable=True, voice=first), "wait")
            )
            await until(lambda: on.line.calls())
            result = await on.call(older_caller("s", askable=True, voice=second), "ask")
            assert result["structuredContent"] == {"answers": [{"n": 2}]}
            assert first.asked == []
            waiting.cancel()
            await asyncio.wait([waiting])

    run(main())


def test_a_question_on_a_link_for_single_calls_goes_to_the_one_call_there_is() -> None:
    async def main() -> None:
        tape = RecordingChannel(list={"roots": []})
        async with Open(ScriptedServer("older", tools={"ask": asking_tool(ROOTS)})) as on:
            result = await on.call(older_caller(askable=True, voice=tape), "ask")
            assert result["structuredContent"] == {"answers": [{"roots": []}]}

    run(main())


def test_a_question_on_a_shared_link_with_several_calls_goes_to_nobody() -> None:
    """PRO-5: rather an error than somebody else's question."""

    async def main() -> None:
        tapes = [RecordingChannel(list={}), RecordingChannel(list={})]
        async with Open(
            ScriptedServer("older", tools={"wait": never_return, "ask": asking_tool(ROOTS)})
        ) as on:
            waiting = asyncio.create_task(
                on.call(older_caller("a", askable=True, voice=tapes[0]), "wait")
            )
            await until(lambda: on.line.calls())
            with pytest.raises(RpcError) as caught:
                await on.call(older_caller("b", askable=True, voice=tapes[1]), "ask")
            assert caught.value.code == METHOD_NOT_FOUND
            assert tapes[0].asked == tapes[1].asked == []
            waiting.cancel()
            await asyncio.wait([waiting])

    run(main())


def test_between_calls_the_owner_of_a_private_link_is_asked() -> None:
    async def main() -> None:
        tape = RecordingChannel(list={"roots": [1]})
        async with Open(ScriptedServer("older"), owner="s", voice=tape) as on:
            assert await on.line.ask("roots/list") == {"roots": [1]}
            assert tape.asked == [("toy", "roots/list", None)]

    run(main())


def test_a_question_a_moment_before_the_call_waits_for_the_call() -> None:
    async def main() -> None:
        tape = RecordingChannel(list={"roots": [1]})
        gate = asyncio.Event()

        async def slow(line: ScriptedConnection, params: Json) -> Json:
            await gate.wait()
            return {}

        async with Open(ScriptedServer("older", tools={"echo": slow})) as on:
            asking = asyncio.create_task(on.line.ask("roots/list"))
            await yield_to_loop()
            assert not asking.done()
            calling = asyncio.create_task(on.call(older_caller(askable=True, voice=tape)))
            assert await asking == {"roots": [1]}
            gate.set()
            await calling

    run(main())


def test_a_question_that_nobody_can_answer_is_refused_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        monkeypatch.setattr(module, "GREETING", 0.02)
        async with Open(ScriptedServer("older")) as on:
            with pytest.raises(RpcError) as caught:
                await on.line.ask("roots/list")
            assert caught.value.code == METHOD_NOT_FOUND

    run(main())


def test_ping_is_answered_where_it_arrives() -> None:
    async def main() -> None:
        async with Open(ScriptedServer("older")) as on:
            assert await on.line.ask("ping") == {}

    run(main())


# --- subscriptions


async def fine(line: ScriptedConnection, params: Json) -> Json:
    return {}


SUBSCRIBABLE: Json = {"resources": {"subscribe": True, "listChanged": True}}


def older_with_subscriptions(**answers: Any) -> ScriptedServer:
    methods = {"resources/subscribe": fine, "resources/unsubscribe": fine, **answers}
    return ScriptedServer("older", capabilities=SUBSCRIBABLE, answers=methods)


def test_an_older_server_is_subscribed_once_for_all_and_unsubscribed_after_the_last() -> None:
    async def main() -> None:
        async with Open(older_with_subscriptions()) as on:
            for who in ("a", "b"):
                assert (
                    await on.link.listening.subscribe(
                        "x:1", who, {"uri": "public", "_meta": {"k": 1}}
                    )
                    == {}
                )
            await on.link.listening.unsubscribe("x:1", "a", {})
            await on.link.listening.unsubscribe("x:1", "nobody", {})
            assert on.line.methods()[-1] == "resources/subscribe"
            await on.link.listening.unsubscribe("x:1", "b", {})
            await on.link.listening.unsubscribe("x:1", "b", {})
            told = [(m, p) for m, p in on.line.heard if m.startswith("resources/")]
            assert told == [
                ("resources/subscribe", {"uri": "x:1", "_meta": {"k": 1}}),
                ("resources/unsubscribe", {"uri": "x:1"}),
            ]
            assert on.link.listening.subscribers == {}

    run(main())


def test_a_refused_subscription_is_forgotten() -> None:
    async def main() -> None:
        async def refuse(line: ScriptedConnection, params: Json) -> Json:
            raise RpcError(-32602, "no such resource")

        async with Open(older_with_subscriptions(**{"resources/subscribe": refuse})) as on:
            for _ in range(2):
                with pytest.raises(RpcError, match="no such"):
                    await on.link.listening.subscribe("x:1", "a", {})
            assert on.link.listening.subscribers == {}
            assert on.line.methods().count("resources/subscribe") == 2

    run(main())


def test_a_subscription_given_up_half_way_does_not_stand_in_for_the_next() -> None:
    async def main() -> None:
        toy = older_with_subscriptions(**{"resources/subscribe": never_return})
        async with Open(toy) as on:
            task = asyncio.create_task(on.link.listening.subscribe("x:1", "a", {}))
            await until(lambda: "resources/subscribe" in on.line.methods())
            task.cancel()
            await asyncio.wait([task])
            assert on.link.listening.subscribers == {}
            toy.answers["resources/subscribe"] = fine
            await on.link.listening.subscribe("x:1", "b", {})
            assert on.line.methods().count("resources/subscribe") == 2

    run(main())


def wanted(line: ScriptedConnection) -> list[Json]:
    return [
        params["notifications"] for method, params in line.heard if method == "subscriptions/listen"
    ]


def test_a_modern_server_is_listened_to_for_what_it_announces_and_what_is_subscribed() -> None:
    async def main() -> None:
        capabilities = {
            "tools": {"listChanged": True},
            "prompts": {},
            "resources": {"subscribe": True},
        }
        async with Open(ScriptedServer("modern", capabilities=capabilities)) as on:
            await on.link.listening.listen()
            await on.link.listening.subscribe("x:2", "a", {})
            await on.link.listening.subscribe("x:1", "a", {})
            await on.link.listening.subscribe("x:1", "b", {})
            await on.link.listening.unsubscribe("x:1", "a", {})
            await on.link.listening.unsubscribe("x:2", "a", {})
            tools = {"toolsListChanged": True}
            assert wanted(on.line) == [
                tools,
                {**tools, "resourceSubscriptions": ["x:2"]},
                {**tools, "resourceSubscriptions": ["x:1", "x:2"]},
                {**tools, "resourceSubscriptions": ["x:1"]},
            ]
            # A new listening is acknowledged before the last one is ended, so that nothing is
            # missed.
            await until(lambda: len(on.line.cancelled) == 3)

    run(main())


def test_over_http_what_is_listened_for_comes_on_the_listenings_own_stream() -> None:
    """PRO-4: and nobody is asked anything there."""

    async def main() -> None:
        answers: list[Json] = []

        def handle(exchange: Exchange) -> None:
            message = json.loads(exchange.body)
            if message.get("method") == "server/discover":
                terms = {
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {"listChanged": True}},
                }
                exchange.reply(
                    200,
                    json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": terms}).encode(),
                )
            elif message.get("method") == "subscriptions/listen":
                exchange.stream(200, [("content-type", "text/event-stream")])
                for said in (
                    {"method": "notifications/subscriptions/acknowledged"},
                    {"method": "notifications/tools/list_changed"},
                    {"id": 1, "method": "roots/list"},
                ):
                    exchange.write(sse_frame(json.dumps({"jsonrpc": "2.0", **said}).encode()))
            else:
                answers.append(message)
                exchange.reply(202)

        server = HttpServer(handle)
        url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}/mcp"
        ears = Ears()
        me = Identity({"name": "me"}, {})
        link = Link(
            Server(name="toy", connection=Http(url=url)), ears, me, Traits(), PLAIN, use="shared"
        )
        await open_link(link, "modern")
        async with asyncio.timeout(2.0):  # acknowledged, so not after the three seconds it may take
            await link.listening.listen()
        await until(lambda: ears.notifications and answers)
        assert ears.notifications == [("notifications/tools/list_changed", {})]
        assert answers[0]["error"]["code"] == METHOD_NOT_FOUND
        await link.close()
        await server.close(0.0)

    run(main())


def test_a_modern_server_with_nothing_to_announce_is_not_listened_to() -> None:
    async def main() -> None:
        async with Open(ScriptedServer("modern", capabilities={"tools": {}})) as on:
            await on.link.listening.listen()
            assert wanted(on.line) == []

    run(main())


def test_a_server_that_never_acknowledges_or_refuses_holds_nobody_up() -> None:
    async def main() -> None:
        async def refuse(line: ScriptedConnection, params: Json) -> Json:
            raise RpcError(METHOD_NOT_FOUND, "no")

        for answer in (refuse, never_return):
            async with Open(
                ScriptedServer("modern", answers={"subscriptions/listen": answer}), timeout=0.5
            ) as on:
                await on.link.listening.listen()
                await yield_to_loop()
                assert len(wanted(on.line)) == 1

    run(main())


def test_a_listening_that_ends_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", (0.001,))

    async def main() -> None:
        async def ends(line: ScriptedConnection, params: Json) -> Json:
            line.say("notifications/subscriptions/acknowledged", {})
            return {"resultType": "complete"}

        async with Open(ScriptedServer("modern", answers={"subscriptions/listen": ends})) as on:
            await on.link.listening.listen()
            await until(lambda: len(wanted(on.line)) >= 3)

    run(main())


def test_an_older_server_announces_unasked() -> None:
    async def main() -> None:
        async with Open(ScriptedServer("older")) as on:
            await on.link.listening.listen()
            assert wanted(on.line) == []
            on.line.say("notifications/tools/list_changed")
            await until(lambda: on.ears.notifications)

    run(main())


# --- what the server says, and what is said to it


def test_late_progress_and_late_cancellations_are_nobodys_business() -> None:
    """PRO-4: they carry our ids, which mean something else, or nothing, to a client."""

    async def main() -> None:
        async def tool(line: ScriptedConnection, params: Json) -> Json:
            token = params["_meta"]["progressToken"]
            loop = asyncio.get_running_loop()
            loop.call_later(
                0.01, lambda: line.say("notifications/progress", {"progressToken": token})
            )
            loop.call_later(0.01, lambda: line.say("notifications/cancelled", {"requestId": 1}))
            loop.call_later(0.01, lambda: line.say("notifications/message", {"level": "info"}))
            return {}

        async with Open(ScriptedServer("older", tools={"echo": tool})) as on:
            await on.call(older_caller(), _meta={"progressToken": 1})
            await until(lambda: on.ears.notifications)
            assert on.ears.notifications == [("notifications/message", {"level": "info"})]

    run(main())


def test_the_log_level_is_set_once_and_only_where_there_is_one() -> None:
    async def main() -> None:
        toy = ScriptedServer(
            "older", capabilities={"logging": {}}, answers={"logging/setLevel": fine}
        )
        async with Open(toy) as on:
            for level in ("debug", "debug", "error"):
                await on.link.listening.set_level(level)
            assert [p for m, p in on.line.heard if m == "logging/setLevel"] == [
                {"level": "debug"},
                {"level": "error"},
            ]
        for silent in (
            ScriptedServer("older"),
            ScriptedServer("modern", capabilities={"logging": {}}),
        ):
            async with Open(silent) as on:
                await on.link.listening.set_level("debug")
                assert "logging/setLevel" not in on.line.methods()

    run(main())


def test_a_refused_log_level_harms_nobody() -> None:
    async def main() -> None:
        async with Open(ScriptedServer("older", capabilities={"logging": {}})) as on:
            await on.link.listening.set_level("debug")

    run(main())


def test_notifications_go_to_older_servers_that_live() -> None:
    async def main() -> None:
        async with Open(ScriptedServer("modern")) as on:
            on.link.notify("notifications/roots/list_changed", {})
        async with Open(ScriptedServer("older")) as older_one:
            older_one.link.notify("notifications/roots/list_changed", {"a": 1})
            await until(lambda: older_one.line.methods()[-1] == "notifications/roots/list_changed")
        older_one.link.notify("notifications/roots/list_changed", {})
        assert on.line.methods() == ["server/discover"]

    run(main())


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ({"name": "Claude", "version": "2", "title": "C"}, "Claude-through-proxy"),
        ({}, "mcpx-through-proxy"),
        ({"name": ""}, "mcpx-through-proxy"),
        ({"name": 5}, "mcpx-through-proxy"),
    ],
)
def test_a_client_goes_up_under_its_name_and_ours(client: Json, name: str) -> None:
    """PRO-3."""
    shown = through(client)
    assert shown["name"] == name
    assert isinstance(shown["version"], str)
    if name.startswith("Claude"):
        assert shown == {**client, "name": name}
