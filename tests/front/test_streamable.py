"""Streamable HTTP towards clients, in both eras, over a real socket: sessions, streams, and what
races on them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kit.callers import CLIENT_CAPABILITIES
from kit.http_pair import HttpClient, StreamedReply, serving_http
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer, asking_tool, echo
from kit.until import until
from mcpx.base.aio import Tasks
from mcpx.config import Config, Global
from mcpx.core.gateway import Gateway
from mcpx.front import http_session, sessions
from mcpx.front import streamable as module
from mcpx.front.dispatch import Dispatcher
from mcpx.front.http_session import HttpSession
from mcpx.front.streamable import Streamable
from mcpx.front.visitor import Visitor
from mcpx.model.call import Json
from mcpx.model.errors import (
    GATEWAY_ENDING,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVERLOADED,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    RpcError,
)
from mcpx.wire import era
from mcpx.wire.exchange import Exchange
from mcpx.wire.http_client import header_lines

POST = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


class StreamableClient:
    """A client of streamable HTTP with a chosen identity and session."""

    def __init__(self, web: HttpClient, who: str = "ann") -> None:
        self.web = web
        self.who = who
        self.session: str | None = None
        self._ids = 0

    def _headers(self, more: Json) -> Json:
        headers = {"x-who": self.who, **POST, **more}
        if self.session is not None:
            headers.setdefault("mcp-session-id", self.session)
        return {name: value for name, value in headers.items() if value is not None}

    def post(self, message: Any, **headers: str | None) -> StreamedReply:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.web.send(
            "POST",
            "/mcp",
            body,
            self._headers({k.replace("_", "-"): v for k, v in headers.items()}),
        )

    def get(self, last: str | None = None, **headers: str | None) -> StreamedReply:
        more = {
            "accept": "text/event-stream",
            **headers,
            **({"last-event-id": last} if last else {}),
        }
        return self.web.send("GET", "/mcp", b"", self._headers(more))

    def ask(self, method: str, id: Any = None, **params: Any) -> StreamedReply:
        self._ids += 1
        return self.post(
            {
                "jsonrpc": "2.0",
                "id": self._ids if id is None else id,
                "method": method,
                "params": params,
            }
        )

    def call(self, name: str, id: Any = None, **params: Any) -> StreamedReply:
        return self.ask("tools/call", id, name=name, **params)

    def notify(self, method: str, **params: Any) -> StreamedReply:
        return self.post({"jsonrpc": "2.0", "method": method, "params": params})

    async def greet(
        self, version: str = "2025-11-25", capabilities: Json | None = None
    ) -> "StreamableClient":
        reply = self.ask(
            "initialize",
            protocolVersion=version,
            capabilities=capabilities or {},
            clientInfo={"name": self.who, "version": "1"},
        )
        result = await reply.json()
        assert reply.status == 200, result
        self.session = reply.headers.get("mcp-session-id")
        assert self.session
        return self

    def modern(
        self, method: str, id: Any = 1, meta: Json | None = None, **params: Any
    ) -> StreamedReply:
        envelope = {era.VERSION_KEY: era.LATEST_MODERN, era.CAPABILITIES_KEY: {}, **(meta or {})}
        headers = {"mcp-protocol-version": era.LATEST_MODERN, "mcp-method": method}
        if "name" in params:
            headers["mcp-name"] = era.encode_header(params["name"])
        message = {
            "jsonrpc": "2.0",
            "id": id,
            "method": method,
            "params": {**params, "_meta": envelope},
        }
        return self.post(message, **headers)


class Front:
    """The front, the gateway behind it, and clients of it."""

    def __init__(self, web: HttpClient, streamable: Streamable, gateway: Gateway) -> None:
        self.web = web
        self.streamable = streamable
        self.gateway = gateway

    def client(self, who: str = "ann") -> StreamableClient:
        return StreamableClient(self.web, who)

    @property
    def sessions(self) -> int:
        return len(list(self.streamable.sessions))

    @property
    def open(self) -> int:
        return len(self.streamable._open)  # pyright: ignore[reportPrivateUsage]


@asynccontextmanager
async def front(toy: ScriptedServer | None = None) -> AsyncGenerator[Front]:
    toy = toy or ScriptedServer()
    gateway = Gateway(
        Config(mcp_servers=(toy.server(),), global_=Global(startup_wait=2.0, first_start_wait=2.0)),
        {},
    )
    tasks = Tasks("front")
    streamable = Streamable(Dispatcher(gateway), tasks)

    def handle(exchange: Exchange) -> None:
        streamable.handle(exchange, Visitor(exchange.headers.get("x-who") or ""))

    gateway.start()
    async with serving_http(handle) as web:
        try:
            yield Front(web, streamable, gateway)
        finally:
            await streamable.close(0.05)
            await tasks.close()
            await gateway.close()


async def says(line: ScriptedConnection, params: Json) -> Json:
    """A tool that says something before its result."""
    line.say(
        "notifications/progress", {"progressToken": params["_meta"]["progressToken"], "progress": 1}
    )
    return {"content": []}


def error_of(message: Json) -> int:
    return message["error"]["code"]


# --- before there is a session


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{", {}, 400, PARSE_ERROR),
        (b"\xff", {}, 400, PARSE_ERROR),
        (b"", {}, 400, PARSE_ERROR),
        (b"[" * 100_000, {}, 400, PARSE_ERROR),
        (b"[]", {}, 400, INVALID_REQUEST),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', {}, 400, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', {}, 400, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', {}, 400, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', {}, 400, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {}, 400, INVALID_REQUEST),  # no session
        (b'{"jsonrpc":"2.0","method":"notifications/x"}', {}, 400, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', {}, 400, INVALID_REQUEST),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
            {"mcp_session_id": "made-up"},
            404,
            INVALID_REQUEST,
        ),
        (b"{}", {"content_type": "text/plain"}, 415, INVALID_REQUEST),
        (b"{}", {"content_type": None}, 415, INVALID_REQUEST),
        (b"{}", {"accept": "application/json"}, 406, INVALID_REQUEST),
        (b"{}", {"accept": "text/event-stream"}, 406, INVALID_REQUEST),
        (b"{}", {"accept": "text/html"}, 406, INVALID_REQUEST),
    ],
)
def test_what_is_wrong_is_refused_with_the_status_the_protocol_names(
    body: bytes, headers: Json, status: int, code: int
) -> None:
    """PRO-1: batches too."""

    async def main() -> None:
        async with front() as at:
            reply = at.client().post(body, **headers)
            assert error_of(await reply.json()) == code
            assert reply.status == status
            assert reply.headers.get("mcp-session-id") is None
            assert at.sessions == 0

    run(main())


@pytest.mark.parametrize(
    "accept",
    ["*/*", None, "text/*, application/*", "APPLICATION/JSON;q=0.5 , text/event-stream;q=0.1"],
)
def test_whoever_takes_both_kinds_of_reply_is_served(accept: str | None) -> None:
    async def main() -> None:
        async with front() as at:
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
            reply = at.client().post(
                message, accept=accept, content_type="application/json; charset=utf-8"
            )
            assert (await reply.json())["result"]["serverInfo"]["name"] == "mcpx"

    run(main())


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "HEAD"])
def test_other_verbs_are_told_which_there_are(method: str) -> None:
    async def main() -> None:
        async with front() as at:
            reply = at.web.send(method, "/mcp")
            await reply.over.wait()
            assert (reply.status, reply.headers.get("allow")) == (405, "POST, GET, DELETE")
            reply = at.web.send("GET", "/mcp", b"", {"mcp-protocol-version": era.LATEST_MODERN})
            await reply.over.wait()
            assert (reply.status, reply.headers.get("allow")) == (405, "POST")

    run(main())


# --- sessions


def test_a_session_belongs_to_who_began_it() -> None:
    """SEC-1: to anybody else it does not exist."""

    async def main() -> None:
        async with front() as at:
            ann = await at.client("ann").greet()
            bob = at.client("bob")
            bob.session = ann.session
            for reply in (bob.ask("ping"), bob.notify("notifications/x"), bob.get()):
                await reply.over.wait()
                assert reply.status == 404
            assert (await ann.ask("ping").json())["result"] == {}

    run(main())


def test_a_deleted_session_is_gone_with_all_that_ran_in_it() -> None:
    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return})
        async with front(toy) as at:
            ann = await at.client().greet()
            stream = ann.get()
            await stream.begun.wait()
            hanging = ann.call("hang")
            await until(lambda: toy.lines and toy.lines[0].calls())
            deleted = at.web.send(
                "DELETE", "/mcp", b"", {"mcp-session-id": ann.session or "", "x-who": "ann"}
            )
            await deleted.over.wait()
            assert deleted.status == 200
            assert error_of(await hanging.json()) == REQUEST_CANCELLED
            await stream.over.wait()
            await until(lambda: toy.lines[0].cancelled)
            after = ann.ask("ping")
            await after.over.wait()
            assert after.status == 404
            assert (at.sessions, at.open) == (0, 0)

    run(main())


def test_shutdown_ends_that_session_only() -> None:
    """LIF-8."""

    async def main() -> None:
        async with front() as at:
            ann, bob = await at.client("ann").greet(), await at.client("bob").greet()
            assert (await ann.ask("shutdown").json())["result"] == {}
            after = ann.ask("ping")
            await after.over.wait()
            assert after.status == 404
            assert (await bob.ask("ping").json())["result"] == {}

    run(main())


def test_a_session_is_greeted_once() -> None:
    async def main() -> None:
        async with front() as at:
            ann = await at.client().greet()
            assert error_of(await ann.ask("initialize").json()) == INVALID_REQUEST
            assert (await ann.ask("ping").json())["result"] == {}
            assert at.sessions == 1

    run(main())


def test_with_all_sessions_taken_the_one_silent_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6."""
    monkeypatch.setattr(sessions, "MOST", 2)

    async def main() -> None:
        async with front() as at:
            one, two = await at.client().greet(), await at.client().greet()
            await one.ask("ping").over.wait()
            three = await at.client().greet()
            statuses = []
            for client in (one, two, three):
                reply = client.ask("ping")
                await reply.over.wait()
                statuses.append(reply.status)
            assert statuses == [200, 404, 200]

    run(main())


def test_with_all_sessions_busy_a_new_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6."""
    monkeypatch.setattr(sessions, "MOST", 2)

    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return})
        async with front(toy) as at:
            calling, listening = await at.client().greet(), await at.client().greet()
            calling.call("hang")
            await listening.get().begun.wait()
            await until(lambda: toy.lines and toy.lines[0].calls())
            refused = at.client().ask("initialize")
            await refused.over.wait()
            assert refused.status == 503
            assert at.sessions == 2

    run(main())


def test_a_session_nobody_uses_ends_and_one_in_use_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6."""

    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return})
        async with front(toy) as at:
            idle, calling, listening = [await at.client().greet() for _ in range(3)]
            hanging = calling.call("hang")
            await listening.get().begun.wait()
            await until(lambda: toy.lines and toy.lines[0].calls())
            at.streamable.tend()
            assert at.sessions == 3
            monkeypatch.setattr(sessions, "UNUSED", 0.05)
            await asyncio.sleep(0.1)  # time itself is what is tested
            at.streamable.tend()
            assert at.sessions == 2
            reply = idle.ask("ping")
            await reply.over.wait()
            assert reply.status == 404
            hanging.abort()

    run(main())


def test_a_client_that_says_too_much_of_itself_gets_no_session() -> None:
    """SEC-6: what it says is kept as long as its session."""

    async def main() -> None:
        async with front() as at:
            reply = await at.client().ask("initialize", clientInfo={"name": "x" * 70_000}).json()
            assert error_of(reply) == INVALID_PARAMS
            assert at.sessions == 0

    run(main())


@pytest.mark.parametrize("bound", ["MOST_RUNNING", "MOST_OF_ONE"])
def test_no_more_calls_are_taken_than_so_many_at_a_time(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-6: of one session, and of all sessions of one client; the next is told so at once."""
    monkeypatch.setattr(module, bound, 3)

    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return, "echo": echo})
        async with front(toy) as at:
            ann, other, bob = (
                await at.client().greet(),
                await at.client().greet(),
                await at.client("bob").greet(),
            )
            hanging = [ann.call("hang", n) for n in range(3)]
            await until(lambda: toy.lines and len(toy.lines[0].calls()) == 3)
            refused = await ann.call("echo").json()
            assert error_of(refused) == OVERLOADED
            assert refused["error"]["message"].startswith("3 calls of ")
            assert "result" in await bob.call("echo").json()
            assert ("result" in await other.call("echo").json()) == (bound == "MOST_RUNNING")
            ann.notify("notifications/cancelled", requestId=0)
            await hanging[0].over.wait()
            assert "result" in await ann.call("echo").json()

    run(main())


# --- requests of the older era


def test_a_reply_is_json_unless_something_goes_first() -> None:
    async def main() -> None:
        async with front(ScriptedServer("older", tools={"echo": echo, "says": says})) as at:
            ann = await at.client().greet()
            plain = ann.call("echo")
            assert (await plain.json())["result"]["content"]
            assert not plain.streams
            stream = ann.call("says", 7, _meta={"progressToken": "mine"})
            progress = await stream.message()
            assert progress["params"]["progressToken"] == "mine"
            assert (await stream.message())["id"] == 7

    run(main())


@pytest.mark.parametrize(
    ("version", "primed"),
    [("2024-11-05", False), ("2025-03-26", False), ("2025-06-18", False), ("2025-11-25", True)],
)
def test_only_clients_of_2025_11_25_get_the_priming_event(version: str, primed: bool) -> None:
    async def main() -> None:
        async with front(ScriptedServer("older", tools={"says": says})) as at:
            ann = await at.client().greet(version)
            first = await ann.call("says", _meta={"progressToken": 1}).event()
            assert (not first.data) == primed

    run(main())


def test_an_id_in_flight_cannot_be_used_twice() -> None:
    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return})
        async with front(toy) as at:
            ann = await at.client().greet()
            first = ann.call("hang", "same")
            await until(lambda: toy.lines and toy.lines[0].calls())
            second = await ann.call("hang", "same").json()
            assert error_of(second) == INVALID_REQUEST
            assert not first.over.is_set()
            ann.notify("notifications/cancelled", requestId="same")
            assert error_of(await first.json()) == REQUEST_CANCELLED
            await until(lambda: toy.lines[0].cancelled)

    run(main())


def test_a_cancellation_that_arrives_with_its_request_still_ends_the_post() -> None:
    """On two connections both may be read in the same turn, before the call has begun."""

    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return})
        async with front(toy) as at:
            ann = await at.client().greet()
            await ann.ask("ping").over.wait()
            handle = at.streamable.handle
            held: list[Exchange] = []
            at.streamable.handle = lambda exchange, visitor: held.append(exchange)  # type: ignore[method-assign]
            hanging = ann.call("hang", 5)
            await until(lambda: len(held) == 1)
            ann.notify("notifications/cancelled", requestId=5)
            await until(lambda: len(held) == 2)
            at.streamable.handle = handle  # type: ignore[method-assign]
            for exchange in held:
                handle(exchange, Visitor("ann"))
            assert error_of(await hanging.json()) == REQUEST_CANCELLED
            assert at.open == 0

    run(main())


def test_an_id_used_again_after_its_cancellation_can_be_cancelled_again() -> None:
    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return})
        async with front(toy) as at:
            ann = await at.client().greet()
            for round in (1, 2, 3):
                hanging = ann.call("hang", "same")
                await until(lambda round=round: toy.lines and len(toy.lines[0].calls()) == round)
                await ann.notify("notifications/cancelled", requestId="same").over.wait()
                assert error_of(await hanging.json()) == REQUEST_CANCELLED
                await until(lambda round=round: len(toy.lines[0].cancelled) == round)

    run(main())


def test_a_broken_connection_is_no_cancellation_in_the_older_era() -> None:
    """LIF-6: the client comes back for the rest."""

    async def main() -> None:
        gate = asyncio.Event()

        async def slow(line: ScriptedConnection, params: Json) -> Json:
            line.say(
                "notifications/progress",
                {"progressToken": params["_meta"]["progressToken"], "progress": 1},
            )
            await gate.wait()
            return {"content": [], "late": True}

        toy = ScriptedServer("older", tools={"slow": slow})
        async with front(toy) as at:
            ann = await at.client().greet()
            call = ann.call("slow", 3, _meta={"progressToken": 1})
            await call.message()
            call.abort()
            await yield_to_loop()
            gate.set()
            again = ann.get("s1-1")
            assert (await again.message())["result"]["late"]
            await again.over.wait()
            assert toy.lines[0].cancelled == []

    run(main())


def test_a_call_kept_alive_by_signs_of_life_can_be_come_back_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client has seen an event id, so it may come back with it."""
    monkeypatch.setattr(module, "SILENT_FOR", 0.0)

    async def main() -> None:
        gate = asyncio.Event()

        async def slow(line: ScriptedConnection, params: Json) -> Json:
            await gate.wait()
            return {"content": [], "late": True}

        toy = ScriptedServer("older", tools={"slow": slow})
        async with front(toy) as at:
            ann = await at.client().greet()
            call = ann.call("slow", 3)
            await until(lambda: toy.lines and toy.lines[0].calls())
            at.streamable.tend()
            primer = await call.event()
            assert primer.id == "s1-0"
            call.abort()
            await yield_to_loop()
            gate.set()
            again = ann.get(primer.id)
            assert (await again.message())["result"]["late"]

    run(main())


def test_a_finished_stream_is_kept_for_a_while_and_then_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6."""
    monkeypatch.setattr(module, "READ_FOR", 0.05)

    async def main() -> None:
        async with front(ScriptedServer("older", tools={"says": says})) as at:
            ann = await at.client().greet()
            await ann.call("says", 3, _meta={"progressToken": 1}).over.wait()
            at.streamable.tend()
            again = ann.get("s1-1")
            assert (await again.message())["id"] == 3
            await again.over.wait()
            await asyncio.sleep(0.1)  # time itself is what is tested
            at.streamable.tend()
            gone = ann.get("s1-1")  # now an ordinary GET
            await gone.begun.wait()
            await yield_to_loop()
            assert gone.events.empty() and not gone.over.is_set()

    run(main())


def test_no_more_finished_streams_are_kept_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6."""
    monkeypatch.setattr(http_session, "KEPT_STREAMS", 3)

    async def main() -> None:
        async with front(ScriptedServer("older", tools={"says": says})) as at:
            ann = await at.client().greet()
            for n in range(5):
                await ann.call("says", n, _meta={"progressToken": 1}).over.wait()
            [session] = at.streamable.sessions
            assert len(session.streams) <= 3

    run(main())


def test_a_position_nobody_gave_opens_the_stream_of_what_belongs_to_no_request() -> None:
    async def main() -> None:
        toy = ScriptedServer("older")
        async with front(toy) as at:
            ann = await at.client().greet()
            for last in (
                "s99-1",
                "nonsense",
                "-",
                "push-x",
                "s1-" + "9" * 50,
                "push-99999999999",
                "s1-²",
                "push-²",
            ):
                stream = ann.get(last)
                await stream.begun.wait()
                assert stream.status == 200
            toy.lines[0].say("notifications/tools/list_changed")
            assert (await stream.message())["method"] == "notifications/tools/list_changed"

    run(main())


# --- questions to an older client


ELICIT = ("elicitation/create", {"message": "who?"})


def test_a_question_travels_on_the_stream_of_its_call_and_the_answer_goes_back() -> None:
    """PRO-5: with an id of `<server>:<number>`."""

    async def main() -> None:
        async with front(ScriptedServer("older", tools={"ask": asking_tool(ELICIT, ELICIT)})) as at:
            ann = await at.client().greet(capabilities=CLIENT_CAPABILITIES)
            call = ann.call("ask")
            for n in (1, 2):
                question = await call.message()
                assert (question["id"], question["method"]) == (f"toy:{n}", "elicitation/create")
                answer = ann.post({"jsonrpc": "2.0", "id": question["id"], "result": {"n": n}})
                await answer.over.wait()
                assert answer.status == 202
            assert (await call.message())["result"]["structuredContent"] == {
                "answers": [{"n": 1}, {"n": 2}]
            }

    run(main())


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -1, "message": "closed"}},
        {"error": None},
        {"result": None},
        {"result": []},
    ],
)
def test_an_answer_that_is_none_ends_the_call_and_not_the_session(answer: Json) -> None:
    async def main() -> None:
        async with front(ScriptedServer("older", tools={"ask": asking_tool(ELICIT)})) as at:
            ann = await at.client().greet(capabilities=CLIENT_CAPABILITIES)
            call = ann.call("ask")
            question = await call.message()
            ann.post({"jsonrpc": "2.0", "id": question["id"], **answer})
            assert "error" in await call.message()
            assert (await ann.ask("ping").json())["result"] == {}

    run(main())


def test_answers_to_nothing_and_answers_of_another_session_are_ignored() -> None:
    """PRO-5."""

    async def main() -> None:
        async with front(ScriptedServer("older", tools={"ask": asking_tool(ELICIT)})) as at:
            ann = await at.client("ann").greet(capabilities=CLIENT_CAPABILITIES)
            bob = await at.client("bob").greet(capabilities=CLIENT_CAPABILITIES)
            call = ann.call("ask")
            question = await call.message()
            for who, id in ((bob, question["id"]), (ann, "toy:99"), (ann, 1), (ann, None)):
                reply = who.post({"jsonrpc": "2.0", "id": id, "result": {"wrong": True}})
                await reply.over.wait()
                assert reply.status == 202
            for _ in range(2):
                await ann.post(
                    {"jsonrpc": "2.0", "id": question["id"], "result": {"right": True}}
                ).over.wait()
            assert (await call.message())["result"]["structuredContent"] == {
                "answers": [{"right": True}]
            }

    run(main())


def test_a_server_puts_no_more_questions_than_so_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6."""
    monkeypatch.setattr(http_session, "MOST_QUESTIONS", 3)

    async def main() -> None:
        async def pester(line: ScriptedConnection, params: Json) -> Json:
            asked = [asyncio.ensure_future(line.ask(*ELICIT)) for _ in range(5)]
            done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            while len(done) < 2:
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            codes = [error.code for task in done if isinstance(error := task.exception(), RpcError)]
            for task in waiting:
                task.cancel()
            return {"content": [], "structuredContent": {"codes": codes}}

        async with front(ScriptedServer("older", tools={"pester": pester})) as at:
            ann = await at.client().greet(capabilities=CLIENT_CAPABILITIES)
            call = ann.call("pester")
            while "result" not in (told := await call.message()):
                assert told["method"] in ("elicitation/create", "notifications/cancelled")
            assert told["result"]["structuredContent"] == {"codes": [OVERLOADED, OVERLOADED]}

    run(main())


def test_a_cancelled_call_takes_its_question_back() -> None:
    async def main() -> None:
        async with front(ScriptedServer("older", tools={"ask": asking_tool(ELICIT)})) as at:
            ann = await at.client().greet(capabilities=CLIENT_CAPABILITIES)
            call = ann.call("ask", 9)
            question = await call.message()
            ann.notify("notifications/cancelled", requestId=9)
            told = [await call.message()]
            while "error" not in told[-1]:
                told.append(await call.message())
            assert error_of(told[-1]) == REQUEST_CANCELLED
            late = ann.post({"jsonrpc": "2.0", "id": question["id"], "result": {}})
            await late.over.wait()
            assert late.status == 202

    run(main())


def test_a_session_that_ends_while_it_is_asked_leaves_no_question_open() -> None:
    async def main() -> None:
        toy = ScriptedServer("older", tools={"ask": asking_tool(ELICIT)})
        async with front(toy) as at:
            ann = await at.client().greet(capabilities=CLIENT_CAPABILITIES)
            call = ann.call("ask")
            await call.message()
            gone = at.web.send(
                "DELETE", "/mcp", b"", {"mcp-session-id": ann.session or "", "x-who": "ann"}
            )
            await gone.over.wait()
            await until(lambda: toy.lines[1].closed_by_gateway)
            await call.over.wait()

    run(main())


# --- the modern era


def test_a_modern_request_needs_no_session_and_gets_none() -> None:
    async def main() -> None:
        async with front() as at:
            reply = at.client().modern("server/discover")
            result = (await reply.json())["result"]
            assert result["supportedVersions"] == ["2026-07-28"]
            assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == (
                "complete",
                0,
                "private",
            )
            assert reply.headers.get("mcp-session-id") is None
            assert at.sessions == 0

    run(main())


@pytest.mark.parametrize("method", sorted(era.REMOVED))
def test_what_the_modern_era_no_longer_has_is_not_found(method: str) -> None:
    async def main() -> None:
        async with front() as at:
            reply = at.client().modern(method)
            message = await reply.json()
            assert (reply.status, message["id"], error_of(message)) == (404, 1, METHOD_NOT_FOUND)

    run(main())


@pytest.mark.parametrize("header", ["mcp-protocol-version", "mcp-method", "mcp-name"])
def test_a_header_that_comes_twice_is_a_mismatch(header: str) -> None:
    async def main() -> None:
        async with front() as at:
            params = {
                "name": "echo",
                "_meta": {era.VERSION_KEY: era.LATEST_MODERN, era.CAPABILITIES_KEY: {}},
            }
            body = json.dumps(
                {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": params}
            ).encode()
            values = {
                "mcp-protocol-version": era.LATEST_MODERN,
                "mcp-method": "tools/call",
                "mcp-name": "echo",
            }
            lines = [*{**POST, **values}.items(), (header, values[header])]
            reply = StreamedReply()
            pool = at.web._pool  # pyright: ignore[reportPrivateUsage]
            pool.start(
                "POST",
                "/mcp",
                header_lines([(k.encode(), v.encode()) for k, v in lines]),
                body,
                reply,
            )
            message = await reply.json()
            assert (reply.status, message["id"], error_of(message)) == (400, 4, -32020)

    run(main())


def test_a_closed_connection_is_the_cancellation_in_the_modern_era() -> None:
    """LIF-6."""

    async def main() -> None:
        toy = ScriptedServer("modern", tools={"hang": never_return})
        async with front(toy) as at:
            call = at.client().modern("tools/call", name="hang")
            await until(lambda: toy.lines and toy.lines[0].calls())
            call.abort()
            await until(lambda: toy.lines[0].cancelled)
            await until(lambda: at.open == 0)

    run(main())


def test_a_connection_closed_in_the_same_turn_leaves_nothing_behind() -> None:
    async def main() -> None:
        toy = ScriptedServer("modern", tools={"hang": never_return})
        async with front(toy) as at:
            await at.client().modern("ping").over.wait()
            handle = at.streamable.handle
            handled = asyncio.Event()

            def handle_and_hang_up(exchange: Exchange, visitor: Visitor) -> None:
                handle(exchange, visitor)
                exchange.lost()  # as the connection tells it
                handled.set()

            at.streamable.handle = handle_and_hang_up  # type: ignore[method-assign]
            at.client().modern("tools/call", name="hang")
            await handled.wait()
            await yield_to_loop()
            assert at.open == 0

    run(main())


def test_what_belongs_to_a_modern_request_comes_on_its_own_stream() -> None:
    """PRO-4: progress under the client's token, logs at the level it asked for; and never a
    question."""

    async def main() -> None:
        async def busy(line: ScriptedConnection, params: Json) -> Json:
            await says(line, params)
            line.say("notifications/message", {"level": "info"})
            return {"content": []}

        async with front(ScriptedServer("modern", tools={"busy": busy})) as at:
            stream = at.client().modern("tools/call", 9, {"progressToken": "mine"}, name="busy")
            progress = await stream.message()
            assert progress["params"]["progressToken"] == "mine"
            assert (await stream.message())["id"] == 9
            assert stream.status == 200

    run(main())


@pytest.mark.parametrize("modern", [True, False])
def test_a_bug_is_an_internal_error_that_tells_nothing_but_where_to_look(
    modern: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with front() as at:

            async def bug(*_: Any) -> Json:
                raise KeyError("secret")

            monkeypatch.setattr(at.gateway, "handle", bug)
            ann = at.client() if modern else await at.client().greet()
            reply = ann.modern("tools/list") if modern else ann.ask("tools/list")
            message = await reply.json()
            (which,) = message["error"].pop("data").values()
            assert message["error"] == {
                "code": -32603,
                "message": f"Internal error (request {which})",
            }
            assert f"answering tools/list failed (request {which})" in caplog.text
            assert reply.status == 200
            assert at.open == 0

    run(main())


def test_modern_notifications_are_taken_and_ignored_and_answers_refused() -> None:
    async def main() -> None:
        async with front() as at:
            ann = at.client()
            note = {"jsonrpc": "2.0", "method": "notifications/x"}
            taken = ann.post(note, mcp_protocol_version=era.LATEST_MODERN)
            await taken.over.wait()
            assert taken.status == 202
            unknown = ann.post(note, mcp_protocol_version="2030-01-01")
            assert error_of(await unknown.json()) == -32022
            assert unknown.status == 400
            answer = ann.post(
                {"jsonrpc": "2.0", "id": 1, "result": {}}, mcp_protocol_version=era.LATEST_MODERN
            )
            assert error_of(await answer.json()) == INVALID_REQUEST
            assert answer.status == 400

    run(main())


def test_arguments_that_travel_as_headers_must_agree_with_them() -> None:
    async def main() -> None:
        async def tools(line: ScriptedConnection, params: Json) -> Json:
            return {"tools": [{"name": "echo", "inputSchema": {"properties": {"n": HEADED}}}]}

        async with front(ScriptedServer(answers={"tools/list": tools})) as at:
            await at.client().modern("tools/list").over.wait()
            ann = at.client()

            async def status(value: bytes, header: str | None) -> int:
                meta = json.dumps(
                    {era.VERSION_KEY: era.LATEST_MODERN, era.CAPABILITIES_KEY: {}}
                ).encode()
                body = (
                    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
                    b'{"name":"echo","arguments":{"n":%b},"_meta":%b}}' % (value, meta)
                )
                reply = ann.post(
                    body,
                    mcp_protocol_version=era.LATEST_MODERN,
                    mcp_method="tools/call",
                    mcp_name="echo",
                    mcp_param_n=header,
                )
                await reply.over.wait()
                return reply.status

            assert await status(b"5", "5.0") == 200
            assert await status(b"5", "6") == 400
            assert await status(b"5", None) == 400
            assert await status(b"null", None) == 200
            assert await status(b"1e400", "5") == 400
            assert await status(b"NaN", "5") == 400

    run(main())


HEADED: Json = {"type": "integer", "x-mcp-header": "N"}


def test_a_listener_is_acknowledged_hears_what_it_asked_for_and_is_told_the_end() -> None:
    """PRO-4: every frame carries the id of the request as the client sent it."""

    async def main() -> None:
        toy = ScriptedServer("modern")
        async with front(toy) as at:
            wanted = {"toolsListChanged": True, "promptsListChanged": False, "unknown": True}
            stream = at.client().modern("subscriptions/listen", "my id", notifications=wanted)
            ack = await stream.message()
            assert ack["method"] == "notifications/subscriptions/acknowledged"
            assert ack["params"]["notifications"] == {"toolsListChanged": True}
            toy.lines[0].say("notifications/tools/list_changed")
            notice = await stream.message()
            assert notice["method"] == "notifications/tools/list_changed"
            closing = asyncio.create_task(at.streamable.close(1.0))
            end = await stream.message()
            assert end["id"] == "my id"
            for frame in (ack["params"], notice["params"], end["result"]):
                assert frame["_meta"][era.SUBSCRIPTION_KEY] == "my id"
            await closing

    run(main())


# --- the end


def test_what_runs_may_finish_within_the_grace() -> None:
    """LIF-8."""

    async def main() -> None:
        gate = asyncio.Event()

        async def slow(line: ScriptedConnection, params: Json) -> Json:
            await gate.wait()
            return {"content": [], "done": True}

        toy = ScriptedServer(tools={"slow": slow, "hang": never_return})
        async with front(toy) as at:
            ann = await at.client().greet()
            call, hanging = ann.call("slow"), ann.call("hang")
            await until(lambda: sum(len(line.calls()) for line in toy.lines) == 2)
            closing = asyncio.create_task(at.streamable.close(0.2))
            await yield_to_loop()
            gate.set()
            assert (await call.json())["result"]["done"]
            await closing
            assert error_of(await hanging.json()) == GATEWAY_ENDING

    run(main())


class Elsewhere:
    """Other replicas, one of which has every session that is not here."""

    leaving = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def take(
        self, exchange: Exchange, visitor: Visitor, mode: str | None, id: str, *, passed: bool
    ) -> bool:
        self.asked.append((id, passed))
        exchange.reply(200, b'"answered elsewhere"')
        return True

    def ended(self, owner: HttpSession) -> None: ...

    def give_away(self, owner: HttpSession) -> None: ...


@pytest.mark.parametrize(
    "lost", [True, False], ids=["by the word of another replica", "by its client"]
)
def test_a_call_whose_session_goes_is_told_why(lost: bool) -> None:
    """SCA-1: what another replica has taken up nobody has cancelled, and the call may have had an
    effect."""

    async def main() -> None:
        toy = ScriptedServer("older", tools={"hang": never_return})
        async with front(toy) as at:
            client = await at.client().greet()
            hanging = client.call("hang")
            await until(lambda: toy.lines and toy.lines[0].calls())
            (owner,) = at.streamable.sessions
            owner.lost = lost
            at.streamable.sessions.end(owner)
            assert error_of(await hanging.json()) == (GATEWAY_ENDING if lost else REQUEST_CANCELLED)

    run(main())


def test_a_session_that_is_given_away_while_a_call_of_it_stands_in_line_is_not_unknown() -> None:
    """SCA-2: the call goes where the session went; it is not told to begin anew."""

    async def main() -> None:
        async with front() as at:
            client = await at.client().greet()
            elsewhere = Elsewhere()
            at.streamable.neighbours = cast(Any, elsewhere)
            admission = at.streamable._admission  # pyright: ignore[reportPrivateUsage]
            line_up = admission.line_up

            def given_away(*entry: Any) -> None:
                line_up(*entry)
                owner = at.streamable.sessions.get(client.session or "")
                assert owner is not None
                at.streamable.sessions.end(owner)

            admission.line_up = given_away
            admission.running += 64  # so that it has to stand in line
            assert await client.call("echo").json() == "answered elsewhere"
            admission.running -= 64
            assert elsewhere.asked == [(client.session, False)]

    run(main())
