"""One client on a carrier that keeps messages in order: both eras side by side, questions, and the
end."""

import asyncio
import json
from typing import Any

import pytest

from kit.callers import CLIENT_CAPABILITIES
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer, asking_tool
from kit.until import until
from mcpx.config import Config, Global
from mcpx.core.gateway import Gateway
from mcpx.front.conversation import ClientConversation
from mcpx.front.dispatch import Dispatcher
from mcpx.front.visitor import Visitor
from mcpx.model.call import Caller, Json
from mcpx.model.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    RpcError,
)
from mcpx.wire import codec, era
from mcpx.wire.peer import Peer


class PeerClient:
    """A client connected by a `Peer` to the conversation under test."""

    def __init__(self, *, solo: bool = True, start: bool = True, **toys: ScriptedServer) -> None:
        servers = tuple(toy.server(name) for name, toy in toys.items())
        self.gateway = Gateway(
            Config(mcp_servers=servers, global_=Global(startup_wait=2.0, first_start_wait=2.0)), {}
        )
        self.congested = False
        self.firsts: list[Caller] = []
        self.events: list[str] = []
        self.heard: list[tuple[str, Json]] = []
        self.questions: list[Json] = []
        self.answers: dict[str, Any] = {}
        self._start = start
        self.connection = ClientConversation(
            Dispatcher(self.gateway),
            self._received,
            visitor=Visitor("local"),
            solo=solo,
            congested=lambda: self.congested,
            on_first=self._first,
            on_shutdown=lambda: self.events.append("shutdown"),
        )
        self.peer = Peer("gateway", self.connection.peer.receive, self)

    def _received(self, raw: bytes) -> None:
        if "result" in json.loads(raw):
            self.events.append("reply")
        asyncio.get_running_loop().call_soon(self.peer.receive, raw)

    def _first(self, caller: Caller) -> None:
        self.firsts.append(caller)
        if self._start:
            self.gateway.start(caller)

    # `wire.peer.Inbound`

    async def request(self, message: Json) -> Json:
        self.questions.append(message)
        answer = self.answers[message["method"]]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, dict) else await answer()

    def notification(self, method: str, params: Json) -> None:
        self.heard.append((method, params))

    def closed(self, reason: str) -> None:
        pass

    async def __aenter__(self) -> "PeerClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.connection.close()
        await self.gateway.close()
        await self.peer.close()

    async def ask(self, method: str, **params: Any) -> Json:
        return await self.peer.request(method, params)

    async def greet(self, **capabilities: Any) -> Json:
        return await self.ask(
            "initialize",
            protocolVersion="2025-06-18",
            capabilities=capabilities,
            clientInfo={"name": "me"},
        )

    async def modern(self, method: str, capabilities: Json | None = None, **params: Any) -> Json:
        meta = {era.VERSION_KEY: era.LATEST_MODERN, era.CAPABILITIES_KEY: capabilities or {}}
        return await self.ask(method, _meta={**meta, **params.pop("_meta", {})}, **params)


def test_an_older_conversation_begins_with_initialize() -> None:
    async def main() -> None:
        async with PeerClient(a=ScriptedServer()) as client:
            assert await client.ask("ping") == {}
            for method in ("tools/list", "logging/setLevel", "nonsense"):
                with pytest.raises(RpcError, match="begins with initialize") as caught:
                    await client.ask(method)
                assert caught.value.code == INVALID_REQUEST
            assert client.firsts == []
            assert (await client.greet())["protocolVersion"] == "2025-06-18"
            assert len((await client.ask("tools/list"))["tools"]) == 1

    run(main())


def test_initialize_is_answered_once() -> None:
    async def main() -> None:
        async with PeerClient() as client:
            await client.greet()
            with pytest.raises(RpcError) as caught:
                await client.greet()
            assert caught.value.code == INVALID_REQUEST

    run(main())


def test_servers_start_with_the_first_message_that_tells_who_the_client_is() -> None:
    """LIF-1 and PRO-3."""

    async def main() -> None:
        async with PeerClient(a=ScriptedServer()) as client:
            await client.greet(**CLIENT_CAPABILITIES)
            await client.modern("server/discover")
            [caller] = client.firsts
            assert (caller.capabilities, caller.solo, caller.principal) == (
                CLIENT_CAPABILITIES,
                True,
                "local",
            )
        async with PeerClient(a=ScriptedServer()) as client:
            await client.modern("server/discover", {"roots": {}})
            await client.greet()
            [caller] = client.firsts
            assert caller.modern
            assert caller.capabilities == {"roots": {}}

    run(main())


def test_both_eras_may_be_spoken_on_one_carrier() -> None:
    """SRC-2."""

    async def main() -> None:
        async with PeerClient(a=ScriptedServer()) as client:
            await client.greet()
            assert (await client.ask("tools/call", name="echo")).keys() == {"content"}
            assert (await client.modern("tools/call", name="echo")).keys() == {
                "content",
                "resultType",
            }

    run(main())


def test_a_modern_message_climbs_the_ladder_without_headers() -> None:
    async def main() -> None:
        async with PeerClient() as client:
            for params, code in (
                ({}, INVALID_PARAMS),
                ({"_meta": {era.CAPABILITIES_KEY: {}}}, INVALID_PARAMS),
                (
                    {"_meta": {era.CAPABILITIES_KEY: {}, era.VERSION_KEY: "2030-01-01"}},
                    UNSUPPORTED_VERSION,
                ),
            ):
                with pytest.raises(RpcError) as caught:
                    await client.ask("server/discover", **params)
                assert caught.value.code == code
            assert client.firsts == []
            for method in era.REMOVED:
                with pytest.raises(RpcError) as caught:
                    await client.modern(method)
                assert caught.value.code == METHOD_NOT_FOUND

    run(main())


def test_the_reply_to_shutdown_is_on_its_way_before_the_end_begins() -> None:
    """LIF-8."""

    async def main() -> None:
        async with PeerClient() as client:
            assert await client.ask("shutdown") == {}
            await yield_to_loop()
            assert client.events == ["reply", "shutdown"]

    run(main())


def test_a_question_reaches_the_client_and_its_answer_the_server() -> None:
    """PRO-5."""

    async def main() -> None:
        toy = ScriptedServer(
            "older",
            tools={
                "ask": asking_tool(("roots/list", None), ("elicitation/create", {"message": "?"}))
            },
        )
        async with PeerClient(srv=toy) as client:
            client.answers = {
                "roots/list": {"roots": [1]},
                "elicitation/create": {"action": "accept"},
            }
            await client.greet(**CLIENT_CAPABILITIES)
            result = await client.ask("tools/call", name="ask")
            assert result["structuredContent"] == {
                "answers": [{"roots": [1]}, {"action": "accept"}]
            }
            assert [question["id"] for question in client.questions] == ["srv:1", "srv:2"]

    run(main())


def test_a_clients_refusal_to_answer_reaches_the_server_as_it_is() -> None:
    """PRO-6, the other way."""

    async def main() -> None:
        seen: list[RpcError] = []

        async def ask(line: ScriptedConnection, params: Json) -> Json:
            try:
                return await line.ask("roots/list")
            except RpcError as error:
                seen.append(error)
                return {"content": []}

        async with PeerClient(srv=ScriptedServer("older", tools={"ask": ask})) as client:
            client.answers = {"roots/list": RpcError(-1, "the user said no", {"x": 1})}
            await client.greet(**CLIENT_CAPABILITIES)
            await client.ask("tools/call", name="ask")
            assert [error.to_json() for error in seen] == [
                {"code": -1, "message": "the user said no", "data": {"x": 1}}
            ]

    run(main())


def test_a_server_that_takes_its_question_back_takes_it_back_at_the_client() -> None:
    """PRO-5."""

    async def main() -> None:
        stopped = asyncio.Event()

        async def endless() -> Json:
            try:
                return await never_return()
            finally:
                stopped.set()

        async def ask(line: ScriptedConnection, params: Json) -> Json:
            task = asyncio.create_task(line.ask("roots/list"))
            await until(lambda: client.questions)
            task.cancel()
            await stopped.wait()
            return {"content": []}

        client = PeerClient(srv=ScriptedServer("older", tools={"ask": ask}))
        async with client:
            client.answers = {"roots/list": endless}
            await client.greet(**CLIENT_CAPABILITIES)
            await client.ask("tools/call", name="ask")

    run(main())


def test_a_cancelled_call_is_cancelled_at_the_server_and_never_answered() -> None:
    """LIF-6."""

    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return})
        async with PeerClient(srv=toy) as client:
            await client.greet()
            call = asyncio.create_task(client.ask("tools/call", name="hang"))
            await until(lambda: toy.lines and toy.lines[0].calls())
            call.cancel()
            await asyncio.wait([call])
            await until(lambda: toy.lines[0].cancelled)
            assert await client.ask("ping") == {}
            assert client.peer.waiting.strays == 0

    run(main())


def test_a_client_that_does_not_read_misses_progress_and_logs_and_nothing_else() -> None:
    """SEC-6."""

    async def main() -> None:
        async with PeerClient() as client:
            await client.greet()
            client.congested = True
            for method in (
                "notifications/progress",
                "notifications/message",
                "notifications/tools/list_changed",
                "notifications/resources/updated",
            ):
                client.connection.tell(method, {})
            await yield_to_loop()
            assert [method for method, _ in client.heard] == [
                "notifications/tools/list_changed",
                "notifications/resources/updated",
            ]
            assert await client.ask("ping") == {}

    run(main())


def test_telling_never_fails() -> None:
    async def main() -> None:
        client = PeerClient()
        async with client:
            client.connection.tell("notifications/progress", codec.load(b'{"progress":1e400}'))
            client.connection.pause(5)
        client.connection.tell("notifications/message", {})
        assert client.heard == []

    run(main())


def test_a_clients_notification_reaches_its_servers_once_it_has_been_greeted() -> None:
    """PRO-4."""

    async def main() -> None:
        toy = ScriptedServer("older")
        async with PeerClient(srv=toy) as client:
            client.peer.notify("notifications/roots/list_changed", None)
            await client.greet()
            await client.ask("tools/list")
            client.peer.notify("notifications/initialized", None)
            client.peer.notify("notifications/roots/list_changed", {"n": 1})
            told = "notifications/roots/list_changed"
            await until(lambda: told in toy.lines[0].methods())
            assert [params for method, params in toy.lines[0].heard if method == told] == [{"n": 1}]
            assert toy.lines[0].methods().count("notifications/initialized") == 1  # our own

    run(main())


def test_a_listener_ends_with_a_result_when_the_conversation_is_finished() -> None:
    """LIF-8."""

    async def main() -> None:
        toy = ScriptedServer("modern")
        async with PeerClient(srv=toy) as client:
            listening = asyncio.create_task(
                client.modern("subscriptions/listen", notifications={"toolsListChanged": True})
            )
            await until(lambda: client.heard)
            await until(lambda: toy.lines)
            await client.modern("tools/list")
            toy.lines[0].say("notifications/tools/list_changed")
            await until(lambda: len(client.heard) == 2)
            marks = {params["_meta"][era.SUBSCRIPTION_KEY] for _, params in client.heard}
            await client.connection.finish(1.0)
            result = await listening
            assert {result["_meta"][era.SUBSCRIPTION_KEY]} == marks

    run(main())


def test_a_client_that_is_gone_is_told_nothing_and_its_calls_are_cancelled() -> None:
    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return})
        async with PeerClient(srv=toy) as client:
            await client.greet()
            call = asyncio.create_task(client.ask("tools/call", name="hang"))
            await until(lambda: toy.lines and toy.lines[0].calls())
            client.connection.peer.lose("the client closed the connection")
            await until(lambda: toy.lines[0].cancelled)
            toy.lines[0].say("notifications/tools/list_changed")
            await yield_to_loop()
            assert client.heard == []
            call.cancel()
            await asyncio.wait([call])

    run(main())
