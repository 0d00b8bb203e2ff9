"""LIF-9: what read-only tools answered is given again, to those who could have been given it, and
identical calls at one time are one. Over toy servers in this process; `behaviour/test_caching.py`
is the same through the program."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kit.callers import RecordingChannel, modern_caller, older_caller
from kit.clock import LoopClock
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.config import Config, Global
from mcpx.core import caching
from mcpx.core.gateway import Gateway
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import RpcError, Unavailable
from mcpx.model.events import CallFinished


def said(text: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": text}], **more}


class Counter:
    """A server that counts its calls and, told to, holds them until it is told to answer."""

    def __init__(
        self, *eras: str, answer: Callable[[Json], Json] | None = None, read_only: object = True
    ) -> None:
        self.calls: list[Json] = []
        self.lines: list[ScriptedConnection] = []
        self.open = asyncio.Event()
        self.open.set()
        self.answer = answer
        self.annotations = {"readOnlyHint": read_only}
        self.toy = ScriptedServer(
            *eras, tools={"look": self._look}, answers={"tools/list": self._list}
        )

    async def _list(self, line: ScriptedConnection, params: Json) -> Json:
        tool = {"name": "look", "inputSchema": {"type": "object"}, "annotations": self.annotations}
        return {"tools": [tool]}

    async def _look(self, line: ScriptedConnection, params: Json) -> Json:
        self.calls.append(params)
        self.lines.append(line)
        number = len(self.calls)
        await self.open.wait()
        return said(str(number)) if self.answer is None else self.answer(params)

    @property
    def cancelled(self) -> int:
        return sum(len(line.cancelled) for line in self.toy.lines)


class Desk:
    """A gateway in front of one counter."""

    def __init__(self, counter: Counter, cache_ttl: float | None = 60.0, **fields: Any) -> None:
        self.counter = counter
        self.fields = fields
        self.gateway = Gateway(self.config(cache_ttl), {})
        self.finished: list[CallFinished] = []
        self.gateway.bus.subscribe(self.finished.append, CallFinished)

    def config(self, cache_ttl: float | None, **more: Any) -> Config:
        server = self.counter.toy.server("desk", cache_ttl=cache_ttl, **{**self.fields, **more})
        return Config(mcp_servers=(server,), global_=Global(startup_wait=0.0, first_start_wait=0.0))

    async def __aenter__(self) -> "Desk":
        self.gateway.start()
        await self.gateway.generation.upstreams["desk"].life.connected_once.wait()
        await yield_to_loop()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.gateway.close()

    async def look(self, caller: Caller | None = None, arguments: Any = None, **params: Any) -> str:
        given = {"name": "look", "arguments": {} if arguments is None else arguments, **params}
        result = await self.gateway.handle(Call("tools/call", given, caller or older_caller()))
        return result["content"][0]["text"] if "content" in result else str(result)

    def begin(self, caller: Caller | None = None, **params: Any) -> asyncio.Task[str]:
        return asyncio.get_running_loop().create_task(self.look(caller, **params))


def with_desk(test: Callable[[Desk], Any], *eras: str, **options: Any) -> None:
    """Run a test at a desk."""
    counter = {key: options.pop(key) for key in ("answer", "read_only") if key in options}

    async def main() -> None:
        async with Desk(Counter(*eras, **counter), **options) as desk:
            await test(desk)

    run(main())


# --- given again


@pytest.mark.parametrize("era", ["older", "modern"])
@pytest.mark.parametrize("caller", [older_caller, modern_caller])
def test_an_answer_is_given_again_and_recorded_for_whoever_asked(caller: Any, era: str) -> None:
    async def test(desk: Desk) -> None:
        assert [await desk.look(caller()), await desk.look(caller())] == ["1", "1"]
        assert len(desk.counter.calls) == 1
        assert [(event.passage.name, event.outcome) for event in desk.finished] == [
            ("look", "ok")
        ] * 2

    with_desk(test, era)


def test_after_its_time_it_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(desk: Desk) -> None:
        clock = LoopClock(monkeypatch)
        assert await desk.look() == "1"
        await clock.advance(0.9)
        assert await desk.look() == "1"
        await clock.advance(0.2)
        assert await desk.look() == "2"
        assert len(desk.gateway.provisions.answers._order) == 1

    with_desk(test, cache_ttl=1.0)


@pytest.mark.parametrize(
    ("ttl", "read_only"), [(None, True), (60.0, False), (60.0, "yes"), (60.0, None), (60.0, 1)]
)
def test_nothing_is_kept_unless_both_sides_say_so(ttl: float | None, read_only: object) -> None:
    async def test(desk: Desk) -> None:
        assert [await desk.look(), await desk.look()] == ["1", "2"]
        assert "answers" not in vars(desk.gateway)

    with_desk(test, cache_ttl=ttl, read_only=read_only)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": 5}, {"n": 5.0}),
        ({"n": 1}, {"n": True}),
        ({"n": 0}, {"n": None}),
        ({"n": "1"}, {"n": 1}),
        ({"n": 0.0}, {"n": -0.0}),
        ({}, {"n": None}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": "x" * 5000}, {"a": "x" * 4999 + "y"}),
    ],
)
def test_arguments_that_differ_as_json_are_different_calls(one: Json, other: Json) -> None:
    async def test(desk: Desk) -> None:
        told = [
            await desk.look(arguments=one),
            await desk.look(arguments=other),
            await desk.look(arguments=one),
        ]
        assert told == ["1", "2", "1"]

    with_desk(test)


def test_the_order_of_keys_makes_no_difference() -> None:
    async def test(desk: Desk) -> None:
        assert await desk.look(arguments={"a": 1, "b": {"c": 1, "d": 2}}) == "1"
        assert await desk.look(arguments={"b": {"d": 2, "c": 1}, "a": 1}) == "1"

    with_desk(test)


@pytest.mark.parametrize(
    "params",
    [
        {"inputResponses": {"a": {}}},
        {"requestState": "s"},
        {"task": {"ttl": 1}},
        {"somethingNew": 1},
        {"_meta": "odd"},
        {"arguments": {"n": 2**70}},
        {"arguments": {"n": "\ud83d"}},
    ],
)
def test_a_call_that_says_what_cannot_be_judged_is_never_kept(params: Json) -> None:
    async def test(desk: Desk) -> None:
        assert [await desk.look(**params), await desk.look(**params)] == ["1", "2"]

    with_desk(test)


def test_what_else_a_call_says_of_itself_counts_unless_it_only_names_the_request() -> None:
    async def test(desk: Desk) -> None:
        passing = [{"progressToken": 7}, {"traceparent": "00-1"}, {"claudecode/toolUseId": "t1"}]
        assert [await desk.look(_meta=meta) for meta in ({}, *passing)] == ["1"] * 4
        assert await desk.look(_meta={"com.example/tenant": "a"}) == "2"
        assert await desk.look(_meta={"com.example/tenant": "b"}) == "3"
        assert await desk.look(_meta={"com.example/tenant": "a"}) == "2"

    with_desk(test)


# --- who shares


def test_sessions_that_are_alike_share_answers() -> None:
    async def test(desk: Desk) -> None:
        assert [await desk.look(older_caller("a")), await desk.look(older_caller("b"))] == [
            "1",
            "1",
        ]

    with_desk(test)


@pytest.mark.parametrize(
    "other",
    [
        lambda: older_caller("a", principal="eve"),
        lambda: older_caller("a", version="2025-06-18"),
        lambda: Caller(session="a", client={"name": "another"}),
        lambda: older_caller("a", askable=True),
        lambda: modern_caller("older"),
    ],
)
def test_callers_that_differ_do_not(other: Callable[[], Caller]) -> None:
    async def test(desk: Desk) -> None:
        assert [await desk.look(older_caller("a")), await desk.look(other())] == ["1", "2"]

    with_desk(test)


@pytest.mark.parametrize("isolation", ["per_session", "per_call"])
def test_where_sessions_have_servers_of_their_own_they_have_answers_of_their_own(
    isolation: str,
) -> None:
    async def test(desk: Desk) -> None:
        assert [await desk.look(older_caller(name)) for name in "abab"] == ["1", "2", "1", "2"]

    with_desk(test, isolation=isolation)


def test_who_can_be_asked_shares_with_nobody() -> None:
    """The answer may rest on what the server asked that client; one that never asks is found out in
    time."""

    async def test(desk: Desk) -> None:
        assert [await desk.look(older_caller(name, askable=True)) for name in "abab"] == [
            "1",
            "2",
            "1",
            "2",
        ]
        desk.gateway.generation.upstreams["desk"].traits._unasked = 50
        assert [await desk.look(older_caller(name, askable=True)) for name in "cd"] == ["3", "3"]

    with_desk(test)


# --- what is not kept


@pytest.mark.parametrize(
    "answer",
    [
        said("no", isError=True),
        said("?", resultType="input_required"),
        said("x" * (1 << 20)),
        {"structuredContent": {"a": ["x" * 1000] * 1100}, "content": []},
    ],
    ids=["error", "question", "large text", "large data"],
)
def test_what_is_no_answer_or_too_large_is_not_kept(answer: Json) -> None:
    async def test(desk: Desk) -> None:
        call = Call("tools/call", {"name": "look", "arguments": {}}, modern_caller())
        assert [await desk.gateway.handle(call), await desk.gateway.handle(call)][
            0
        ].keys() >= answer.keys()
        assert len(desk.counter.calls) == 2
        assert desk.gateway.provisions.answers.size == 0

    with_desk(test, "modern", answer=lambda _: answer)


def test_a_task_is_an_error_that_is_not_kept() -> None:
    async def test(desk: Desk) -> None:
        for _ in range(2):
            with pytest.raises(RpcError, match="returned a task"):
                await desk.look(modern_caller())
        assert len(desk.counter.calls) == 2
        assert desk.gateway.provisions.answers.size == 0

    with_desk(test, "modern", answer=lambda _: {"resultType": "task", "taskId": "t"})


def test_errors_are_given_to_all_who_wait_and_not_kept() -> None:
    async def test(desk: Desk) -> None:
        def refuse(_: Json) -> Json:
            raise RpcError(-32000, "not now")

        desk.counter.answer = refuse
        desk.counter.open.clear()
        waiting = [desk.begin() for _ in range(3)]
        await until(lambda: desk.counter.calls)
        await yield_to_loop()
        desk.counter.open.set()
        for task in waiting:
            with pytest.raises(RpcError, match="not now"):
                await task
        assert len(desk.counter.calls) == 1
        desk.counter.answer = None
        assert await desk.look() == "2"
        assert [event.outcome for event in desk.finished] == ["error"] * 3 + ["ok"]

    with_desk(test)


def test_what_was_asked_for_longest_ago_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "IN_ALL", 3 * (caching.BESIDE + 1200))

    async def test(desk: Desk) -> None:
        for n in (1, 2, 3):
            await desk.look(arguments={"n": n})
        await desk.look(arguments={"n": 1})  # used again
        await desk.look(arguments={"n": 4})
        assert desk.gateway.provisions.answers.size <= caching.IN_ALL
        before = len(desk.counter.calls)
        for n in (1, 3, 4):
            await desk.look(arguments={"n": n})
        assert len(desk.counter.calls) == before
        await desk.look(arguments={"n": 2})
        assert len(desk.counter.calls) == before + 1

    with_desk(test, answer=lambda _: said("x" * 1000))


def test_whoever_changes_an_answer_changes_only_its_own() -> None:
    async def test(desk: Desk) -> None:
        call = Call("tools/call", {"name": "look", "arguments": {}}, older_caller())
        for _ in range(3):
            result = await desk.gateway.handle(call)
            assert result["content"][0]["text"] == "1"
            if desk.finished[1:]:
                result["content"][0]["text"] = "spoilt"

    with_desk(test)


# --- merged


@pytest.mark.parametrize("caller", [older_caller, modern_caller])
def test_identical_calls_at_one_time_are_one_call(caller: Any) -> None:
    async def test(desk: Desk) -> None:
        desk.counter.open.clear()
        waiting = [desk.begin(caller()) for _ in range(50)]
        await until(lambda: desk.counter.calls)
        await yield_to_loop()
        desk.counter.open.set()
        assert await asyncio.gather(*waiting) == ["1"] * 50
        assert len(desk.counter.calls) == 1 and len(desk.finished) == 50

    with_desk(test)


def test_whoever_leaves_leaves_the_others_alone_and_with_the_last_the_call_ends() -> None:
    async def test(desk: Desk) -> None:
        desk.counter.open.clear()
        first, second, third = (desk.begin() for _ in range(3))
        await until(lambda: desk.counter.calls)
        await yield_to_loop()
        first.cancel()
        second.cancel()
        await yield_to_loop()
        assert first.cancelled() and second.cancelled() and not desk.counter.cancelled
        third.cancel()
        await until(lambda: desk.counter.cancelled == 1)
        late = desk.begin()  # does not join what has ended
        await until(lambda: len(desk.counter.calls) == 2)
        desk.counter.open.set()
        assert await late == "2"
        assert [event.outcome for event in desk.finished] == ["cancelled"] * 3 + ["ok"]

    with_desk(test)


def test_the_first_may_leave_and_the_others_get_the_answer() -> None:
    async def test(desk: Desk) -> None:
        desk.counter.open.clear()
        first, second = desk.begin(older_caller("a")), desk.begin(older_caller("b"))
        await until(lambda: desk.counter.calls)
        await yield_to_loop()
        first.cancel()
        await yield_to_loop()
        await desk.gateway.sessions.end_session("a")
        desk.counter.open.set()
        assert await second == "1"
        assert await desk.look() == "1"

    with_desk(test)


def test_one_that_wants_progress_joins_nobody_and_may_be_joined() -> None:
    async def test(desk: Desk) -> None:
        desk.counter.open.clear()
        waiting = [desk.begin(), desk.begin(_meta={"progressToken": 1})]
        await until(lambda: len(desk.counter.calls) == 2)
        desk.counter.open.set()
        assert sorted(await asyncio.gather(*waiting)) == ["1", "2"]

        desk.counter.open.clear()
        tape = RecordingChannel()
        leads = desk.begin(
            older_caller("a", voice=tape), arguments={"n": 1}, _meta={"progressToken": "mine"}
        )
        await until(lambda: len(desk.counter.calls) == 3)
        joins = desk.begin(arguments={"n": 1})
        await yield_to_loop()
        token = desk.counter.calls[-1]["_meta"]["progressToken"]
        desk.counter.lines[-1].say(
            "notifications/progress", {"progressToken": token, "progress": 1}
        )
        await until(lambda: tape.told)
        assert tape.told[0][1]["progressToken"] == "mine"
        desk.counter.open.set()
        assert await asyncio.gather(leads, joins) == ["3", "3"]

    with_desk(test, "older")


def test_modern_clients_that_can_be_asked_are_not_merged() -> None:
    """Each would come back with its own answers to the same question."""

    async def test(desk: Desk) -> None:
        desk.counter.open.clear()
        waiting = [desk.begin(modern_caller(askable=True)) for _ in range(2)]
        await until(lambda: len(desk.counter.calls) == 2)
        desk.counter.open.set()
        assert sorted(await asyncio.gather(*waiting)) == ["1", "2"]

    with_desk(test, "modern")


def test_a_question_in_a_merged_call_is_asked_of_one_who_still_waits() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        counter = Counter("older")

        async def tool(line: ScriptedConnection, params: Json) -> Json:
            counter.calls.append(params)
            await gate.wait()
            answer = await line.ask(
                "elicitation/create", {"message": "who?", "requestedSchema": {"type": "object"}}
            )
            return said(answer["content"]["name"])

        counter.toy.tools["look"] = tool
        async with Desk(counter) as desk:
            gone, there = (
                RecordingChannel(create={"action": "accept", "content": {"name": name}})
                for name in ("gone", "there")
            )
            caller = older_caller("a", askable=True)
            given: Json = {"name": "look", "arguments": {}}
            calls = [Call("tools/call", given, caller, voice) for voice in (gone, there)]
            first, second = (asyncio.ensure_future(desk.gateway.handle(call)) for call in calls)
            await until(lambda: counter.calls)
            await yield_to_loop()
            first.cancel()
            await yield_to_loop()
            gate.set()
            assert (await second)["content"][0]["text"] == "there"
            assert len(counter.calls) == 1 and not gone.asked

    run(main())


def test_what_is_on_its_way_ends_with_the_gateway() -> None:
    async def main() -> None:
        async with Desk(Counter()) as desk:
            desk.counter.open.clear()
            waiting = desk.begin()
            await until(lambda: desk.counter.calls)
        with pytest.raises(Unavailable, match="ending"):
            await waiting

    run(main())


# --- what ends it


@pytest.mark.parametrize(
    "more",
    [{"description": "another"}, {"isolation": "per_session"}, {"call_timeout": 7.0}],
    ids=str,
)
def test_after_a_reload_that_changed_the_server_nothing_old_is_given(more: Json) -> None:
    async def test(desk: Desk) -> None:
        assert await desk.look() == "1"
        await desk.gateway.apply(desk.config(60.0, **more))
        assert await desk.look() == "2"
        assert len(desk.gateway.provisions.answers._order) == 1

    with_desk(test)


def test_what_is_answered_after_its_server_was_replaced_is_not_kept() -> None:
    async def test(desk: Desk) -> None:
        desk.counter.open.clear()
        old = desk.begin()
        await until(lambda: desk.counter.calls)
        await desk.gateway.apply(desk.config(60.0, isolation="per_session"))
        desk.counter.open.set()
        assert await old == "1"
        assert desk.gateway.provisions.answers.size == 0
        assert await desk.look() == "2"

    with_desk(test)


def test_a_reload_that_did_not_change_the_server_changes_nothing() -> None:
    async def test(desk: Desk) -> None:
        assert await desk.look() == "1"
        config = desk.gateway.generation.config
        await desk.gateway.apply(
            Config(mcp_servers=config.mcp_servers, global_=config.global_, mode="search")
        )
        assert (
            await desk.look(Caller(session="one", client=older_caller().client, mode="direct"))
            == "1"
        )

    with_desk(test)


@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_server_that_says_that_it_changed_is_asked_anew(era: str) -> None:
    async def test(desk: Desk) -> None:
        assert await desk.look() == "1"
        desk.counter.open.clear()
        on_its_way = desk.begin(arguments={"n": 1})
        await until(lambda: len(desk.counter.calls) == 2)
        (line,) = desk.counter.toy.alive
        line.say("notifications/tools/list_changed", {})
        await until(lambda: desk.gateway.provisions.answers.size == 0)
        desk.counter.open.set()
        assert await on_its_way == "2"
        assert [await desk.look(), await desk.look(arguments={"n": 1})] == ["3", "4"]

    with_desk(test, era)


def test_a_server_that_was_started_anew_is_asked_anew() -> None:
    async def test(desk: Desk) -> None:
        assert await desk.look() == "1"
        desk.counter.toy.alive[0].die()
        await until(lambda: desk.gateway.provisions.answers.size == 0)
        assert await desk.look() == "2"

    with_desk(test, retry_delay=0.0)


async def _never(*_: Any) -> Json:
    return await never_return()


def test_a_server_that_does_not_answer_fails_all_who_wait_in_its_time() -> None:
    async def test(desk: Desk) -> None:
        desk.counter.toy.tools["look"] = _never
        told = await asyncio.gather(*(desk.look() for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in told] == [Unavailable] * 3

    with_desk(test, call_timeout=0.05)
