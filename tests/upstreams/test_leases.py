"""Who is lent which connection, and for how long: the rule of decision 0004, and what it costs."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.callers import CLIENT_CAPABILITIES, RecordingChannel, modern_caller, older_caller
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer, asking_tool, echo
from kit.until import until
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import (
    METHOD_NOT_FOUND,
    OVERLOADED,
    SERVER_DOWN,
    SERVER_TIMEOUT,
    RpcError,
    Unavailable,
)
from mcpx.model.events import ServerSaid
from mcpx.upstreams import link, traits
from mcpx.upstreams import links as module
from mcpx.upstreams.context import KindListed, ListsVary, UpstreamContext, UpstreamEvent
from mcpx.upstreams.life import Gate
from mcpx.upstreams.snapshot import Snapshots
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.upstreams.traits import kind_of
from mcpx.upstreams.upstream import Upstream

ELICIT = ("elicitation/create", {"message": "who?"})


class Hub:
    """The gateway, as far as an upstream sees it."""

    def __init__(self) -> None:
        self.words: list[tuple[str, object]] = []
        self.varied: list[str | None] = []
        self.announced: list[ClientKind] = []

    def publish(self, event: UpstreamEvent) -> None:
        if isinstance(event, ListsVary):
            self.varied.append(event.session)
        elif isinstance(event, KindListed) and event.changed and event.announce:
            self.announced.append(event.client_kind)
        elif isinstance(event, ServerSaid):
            self.words.append((event.params.get("data", ""), event.owner))


class Process(ScriptedServer):
    """A toy that stands for a program: each conversation with it is a process."""

    starts_process = True


class On:
    """An upstream over a toy."""

    def __init__(
        self,
        toy: ScriptedServer,
        *,
        solo: Caller | None = None,
        state: Path | None = None,
        **fields: Any,
    ) -> None:
        self.toy = toy
        self.hub = Hub()
        self.solo = solo
        self.upstream = Upstream(
            toy.server(**fields),
            UpstreamContext({}, Snapshots(state), Gate(8), self.hub.publish),
        )

    async def __aenter__(self) -> "On":
        self.upstream.connection.start(self.solo)
        await self.upstream.life.connected_once.wait()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.upstream.close()
        assert self.toy.alive == []

    async def call(self, caller: Caller, name: str = "echo", **params: Any) -> Json:
        given = {"name": name, **params}
        return await self.upstream.call(Call("tools/call", given, caller), given)

    def begin(self, caller: Caller, name: str = "echo", **params: Any) -> "asyncio.Task[Json]":
        return asyncio.create_task(self.call(caller, name, **params))

    async def learn(self, caller: Caller) -> None:
        learning = self.upstream.kinds.learning(caller)
        if learning is not None and learning.task is not None:
            await learning.task

    async def alive(self, count: int) -> None:
        """Until so many connections are left: what goes takes a moment."""
        await until(lambda: len(self.toy.alive) == count)

    def uses(self) -> list[str]:
        return [link["use"] for link in self.upstream.describe()["links"]]


def greeting(line: ScriptedConnection) -> Json:
    return next(params for method, params in line.heard if method == "initialize")


class Held:
    """A tool that ends when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = 0

    async def __call__(self, line: ScriptedConnection, params: Json) -> Json:
        self.began += 1
        await self.go.wait()
        return {"content": []}


# --- one connection is the aim


def test_callers_of_a_modern_server_share_one_link_whatever_they_can_answer() -> None:
    """LIF-2."""

    async def main() -> None:
        async with On(ScriptedServer("modern")) as on:
            for caller in (
                modern_caller(),
                modern_caller(askable=True),
                older_caller("a", askable=True),
                older_caller("b"),
            ):
                await on.call(caller)
            assert len(on.toy.alive) == 1

    run(main())


def test_callers_that_cannot_be_asked_share_a_link_that_declares_nothing() -> None:
    """LIF-2, PRO-3: nobody is asked what nobody could answer; the client is the gateway itself."""

    async def main() -> None:
        async with On(ScriptedServer("older", tools={"wait": never_return, "echo": echo})) as on:
            waiting = on.begin(older_caller("a"), "wait")
            for caller in (older_caller("b"), modern_caller()):
                await on.call(caller)
            assert len(on.toy.lines) == 1
            assert greeting(on.toy.lines[0])["capabilities"] == {}
            assert greeting(on.toy.lines[0])["clientInfo"]["name"] == "mcpx-through-proxy"
            waiting.cancel()

    run(main())


def test_clients_that_can_be_asked_take_turns_on_one_link_of_a_server_that_never_asks() -> None:
    """LIF-2: ten clients in turn, of either era, and one connection; it was opened with what they
    can answer."""

    async def main() -> None:
        async with On(ScriptedServer("older")) as on:
            for number in range(5):
                await on.call(older_caller(f"s{number}", askable=True))
                await on.call(modern_caller(f"m{number}", askable=True))
            await on.alive(1)
            assert greeting(on.toy.alive[0])["capabilities"] == CLIENT_CAPABILITIES
            assert len(on.toy.lines) == 2  # the first one declared nothing, and made way unused
            await on.call(older_caller("plain"))
            await on.alive(1)

    run(main())


def test_clients_of_all_kinds_that_stay_share_one_link_of_a_server_that_never_asks() -> None:
    """LIF-2: whatever they can be asked, whichever revision they speak, some not to be asked at
    all."""

    async def main() -> None:
        async with On(ScriptedServer("older")) as on:
            kinds: list[Json] = [
                {"elicitation": {}},
                {"elicitation": {"form": {}}, "sampling": {}},
                {},
                {"roots": {}},
                {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}},
                {"sampling": {"tools": {}}},
            ]
            for number, capabilities in enumerate(kinds):
                caller = able_to(f"s{number}", **capabilities)
                await on.learn(caller)
                await on.call(caller)
                await on.alive(1)
            for version in ("2024-11-05", "2025-06-18", "2025-11-25"):
                await on.call(replace(able_to(version, **kinds[0]), version=version))
                await on.alive(1)
            opened = len(on.toy.lines)
            for number, capabilities in enumerate(kinds):
                await on.call(able_to(f"s{number}", **capabilities))
            assert len(on.toy.lines) == opened
            declared = greeting(on.toy.alive[0])["capabilities"]
            assert kind_of(declared) == frozenset().union(*(kind_of(able) for able in kinds))

    run(main())


def test_two_clients_at_once_are_kept_apart_and_the_second_link_goes_when_it_is_idle() -> None:
    """LIF-2, PRO-5."""

    async def main() -> None:
        held = Held()
        async with On(
            ScriptedServer("older", tools={"held": held, "echo": echo}), link_idle=0.2
        ) as on:
            await on.call(older_caller("a", askable=True))
            await on.alive(1)
            first = on.begin(older_caller("a", askable=True), "held")
            await until(lambda: held.began == 1)
            second = on.begin(older_caller("b", askable=True), "held")
            await until(lambda: held.began == 2)
            assert len(on.toy.alive) == 2
            held.go.set()
            await asyncio.gather(first, second)
            await on.alive(1)
            await on.call(older_caller("b", askable=True))
            assert len(on.toy.alive) == 1

    run(main())


def test_short_calls_of_many_clients_at_once_take_turns_instead_of_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIF-2: a link that changes hands quickly is waited for."""
    monkeypatch.setattr(module, "PATIENCE", 30.0)  # quickly, on however busy a machine

    async def main() -> None:
        async with On(ScriptedServer("older")) as on:
            await on.call(older_caller("first", askable=True))
            calls = [
                on.begin(older_caller(f"s{n}", askable=True), arguments={"text": n})
                for n in range(50)
            ]
            results = await asyncio.gather(*calls)
            assert [result["content"][0]["text"] for result in results] == [
                str(n) for n in range(50)
            ]
            assert len(on.toy.lines) == 2

    run(main())


def test_a_session_has_all_its_calls_on_one_link() -> None:
    async def main() -> None:
        held = Held()
        async with On(ScriptedServer("older", tools={"held": held})) as on:
            calls = [on.begin(older_caller("a", askable=True), "held") for _ in range(20)]
            await until(lambda: held.began == 20)
            assert len({id(line) for line in on.toy.lines if line.calls()}) == 1
            held.go.set()
            await asyncio.gather(*calls)

    run(main())


def test_the_one_client_of_a_stdio_front_has_the_link_to_itself_with_all_it_can_answer() -> None:
    """PRO-3."""

    async def main() -> None:
        solo = older_caller(askable=True, solo=True, version="2025-03-26")
        async with On(ScriptedServer(), solo=solo) as on:
            await on.call(solo)
            [line] = on.toy.lines
            assert greeting(line) == {
                "protocolVersion": "2025-03-26",
                "capabilities": CLIENT_CAPABILITIES,
                "clientInfo": {"name": "older-through-proxy", "version": "1"},
            }

    run(main())


def test_a_program_that_speaks_both_eras_is_started_once() -> None:
    """LIF-2: callers of the other era are bridged; a remote server has a link for each era
    instead."""

    async def main() -> None:
        async with On(Process("modern", "older")) as on:
            await on.call(older_caller("a", askable=True))
            await on.call(modern_caller(askable=True))
            assert [line.era for line in on.toy.lines] == ["modern"]
        async with On(ScriptedServer("modern", "older")) as on:
            await on.call(older_caller("a"))
            await on.call(modern_caller())
            assert sorted(line.era for line in on.toy.lines) == ["modern", "older"]

    run(main())


def test_a_server_that_first_asks_on_a_link_of_another_client_is_told_whom_it_asks_from_then_on() -> (
    None
):
    """PRO-3: the link was opened for somebody who left, and was lent to this one while nobody had
    been asked."""

    async def main() -> None:
        async with On(
            ScriptedServer("older", tools={"ask": asking_tool(("roots/list", None)), "echo": echo})
        ) as on:
            former = replace(
                older_caller("a", askable=True), client={"name": "former", "version": "1"}
            )
            await on.call(former, "echo")
            await on.upstream.end_session("a")
            voice = RecordingChannel(list={"roots": []})
            present = replace(
                older_caller("b", askable=True, voice=voice),
                client={"name": "present", "version": "1"},
            )
            await on.call(present, "ask")
            await on.call(present, "echo")
            [line] = [
                line
                for line in on.toy.lines
                if greeting(line)["clientInfo"]["name"] == "present-through-proxy"
            ]
            assert [params["name"] for params in line.calls()] == ["echo"]

    run(main())


# --- who is asked


def test_a_late_question_of_a_call_that_was_cancelled_is_put_to_nobody_else() -> None:
    """PRO-5: two users of the same program, which have no sessions."""

    async def main() -> None:
        release, answers = asyncio.Event(), list[Any]()

        async def late(line: ScriptedConnection, params: Json) -> Json:
            async def ask() -> None:
                await release.wait()
                try:
                    answers.append(await line.ask(*ELICIT))
                except RpcError as error:
                    answers.append(error.code)

            asking.append(asyncio.create_task(ask()))
            return await never_return()

        asking: list[asyncio.Task[None]] = []
        held = Held()
        async with On(ScriptedServer("older", tools={"late": late, "held": held})) as on:
            given_up = on.begin(modern_caller("same", askable=True), "late")
            await until(lambda: asking)
            given_up.cancel()
            await asyncio.wait([given_up])
            second = on.begin(modern_caller("same", askable=True), "held")
            await until(lambda: held.began)
            release.set()
            await asyncio.wait(asking)
            await yield_to_loop()
            assert not second.done()  # not asked anything
            held.go.set()
            assert await second == {"content": []}

    run(main())


def test_a_late_question_of_a_call_that_timed_out_is_put_to_nobody_else() -> None:
    """PRO-5, LIF-6."""

    async def main() -> None:
        lines: list[ScriptedConnection] = []

        async def hangs(line: ScriptedConnection, params: Json) -> Json:
            lines.append(line)
            return await never_return()

        mine, yours = (
            RecordingChannel(create={"mine": True}),
            RecordingChannel(create={"yours": True}),
        )
        held = Held()
        async with On(
            ScriptedServer("older", tools={"hangs": hangs, "held": held}), call_timeout=0.3
        ) as on:
            with pytest.raises(Unavailable) as caught:
                await on.call(older_caller("mine", askable=True, voice=mine), "hangs")
            assert caught.value.code == SERVER_TIMEOUT
            second = on.begin(older_caller("yours", askable=True, voice=yours), "held")
            await until(lambda: held.began)
            with pytest.raises(RpcError):
                await lines[0].ask(*ELICIT)
            assert yours.asked == []
            held.go.set()
            await second

    run(main())


def test_a_session_keeps_the_link_on_which_it_gave_a_call_up() -> None:
    """LIF-6: whatever the server holds for it (a browser, a login) is not lost by a cancelled
    call."""

    async def main() -> None:
        async with On(ScriptedServer("older", tools={"wait": never_return, "echo": echo})) as on:
            mine = older_caller("mine", askable=True)
            await on.call(mine)
            waiting = on.begin(mine, "wait")
            await until(
                lambda: any(
                    call["name"] == "wait" for line in on.toy.lines for call in line.calls()
                )
            )
            [line] = [line for line in on.toy.lines if line.calls()]
            waiting.cancel()
            await asyncio.wait([waiting])
            await on.call(mine)
            assert [call["name"] for call in line.calls()] == ["echo", "wait", "echo"]
            assert not line.closed_by_gateway

    run(main())


def test_several_calls_of_one_modern_client_are_asked_about_all_the_same() -> None:
    """PRO-5: the one client of a stdio front, one link, many calls in flight, an older server."""

    async def main() -> None:
        held = Held()
        solo = modern_caller(askable=True, solo=True)
        async with On(
            ScriptedServer("older", tools={"held": held, "ask": asking_tool(ELICIT)}), solo=solo
        ) as on:
            others = [on.begin(solo, "held") for _ in range(3)]
            await until(lambda: held.began == 3)
            asked = await on.call(solo, "ask")
            assert asked["resultType"] == "input_required"
            answers = {"q1": {"action": "accept"}}
            done = await on.call(
                solo, "ask", requestState=asked["requestState"], inputResponses=answers
            )
            assert done["structuredContent"] == {"answers": [{"action": "accept"}]}
            held.go.set()
            await asyncio.gather(*others)

    run(main())


def test_modern_clients_at_once_are_each_asked_their_own_question() -> None:
    """PRO-5: also with `isolation: per_session`, where two of the same program would share."""

    async def main() -> None:
        for isolation in ("shared", "per_session"):
            async with On(
                ScriptedServer("older", tools={"ask": asking_tool(ELICIT)}), isolation=isolation
            ) as on:
                callers = [modern_caller("same", askable=True) for _ in range(5)]
                asked = await asyncio.gather(*(on.call(caller, "ask") for caller in callers))
                assert [one["resultType"] for one in asked] == ["input_required"] * 5
                done = await asyncio.gather(
                    *(
                        on.call(
                            c,
                            "ask",
                            requestState=a["requestState"],
                            inputResponses={"q1": {"n": n}},
                        )
                        for n, (c, a) in enumerate(zip(callers, asked, strict=True))
                    )
                )
                assert [one["structuredContent"]["answers"] for one in done] == [
                    [{"n": n}] for n in range(5)
                ]

    run(main())


def test_what_a_lent_link_logs_is_for_who_has_it() -> None:
    """PRO-4: not for other sessions; also with a link of a modern client's own."""

    async def main() -> None:
        async def logs(line: ScriptedConnection, params: Json) -> Json:
            line.say(
                "notifications/message", {"level": "info", "data": params["arguments"]["text"]}
            )
            return {"content": []}

        for isolation in ("shared", "per_session"):
            async with On(ScriptedServer("older", tools={"logs": logs}), isolation=isolation) as on:
                tape = RecordingChannel()
                await on.call(
                    older_caller("mine", askable=True), "logs", arguments={"text": "older"}
                )
                mine = modern_caller(askable=True, voice=tape, log_level="debug")
                await on.call(mine, "logs", arguments={"text": "modern"})
                await yield_to_loop()
                assert on.hub.words == [("older", "mine")]
                assert [params["data"] for _, params in tape.told] == ["modern"]

    run(main())


def test_a_server_that_asks_has_a_main_link_that_declares_nothing() -> None:
    """LIF-2, PRO-3: who cannot be asked is not declared to be, once it is known to make a
    difference."""

    async def main() -> None:
        async with On(
            ScriptedServer("older", tools={"ask": asking_tool(ELICIT), "echo": echo})
        ) as on:
            await on.call(older_caller("a", askable=True))
            await on.alive(1)
            tape = RecordingChannel(create={"action": "accept"})
            result = await on.call(older_caller("a", askable=True, voice=tape), "ask")
            assert result["structuredContent"] == {"answers": [{"action": "accept"}]}
            await on.call(older_caller("plain"))
            [served] = [line for line in on.toy.alive if greeting(line)["capabilities"] == {}]
            assert len(served.calls()) == 1

    run(main())


# --- quiet servers


def test_a_server_that_never_asked_in_many_calls_is_shared_and_one_that_asks_after_all_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIF-2, PRO-5: answered while one client alone has calls in flight, else refused; and quiet no
    more."""
    monkeypatch.setattr(traits, "PROOF", 3)

    async def main() -> None:
        for alone in (True, False):
            held = Held()
            toy = ScriptedServer(
                "older", tools={"held": held, "ask": asking_tool(ELICIT), "echo": echo}
            )
            async with On(toy) as on:
                for number in range(3):
                    await on.call(older_caller(f"s{number}", askable=True))
                many = [
                    on.begin(older_caller(f"c{n}", askable=True), "held")
                    for n in range(0 if alone else 5)
                ]
                await until(lambda held=held, many=many: held.began == len(many))
                assert len(toy.alive) == 1
                tape = RecordingChannel(create={"action": "accept"})
                asking = on.begin(older_caller("asker", askable=True, voice=tape), "ask")
                if alone:
                    assert (await asking)["structuredContent"] == {
                        "answers": [{"action": "accept"}]
                    }
                else:
                    with pytest.raises(RpcError) as caught:
                        await asking
                    assert caught.value.code == METHOD_NOT_FOUND and tape.asked == []
                held.go.set()
                await asyncio.gather(*many)
                held.go.clear()
                held.began = 0
                two = [on.begin(older_caller(f"d{n}", askable=True), "held") for n in range(2)]
                await until(lambda held=held: held.began == 2)
                assert (
                    sum(
                        1
                        for line in toy.alive
                        if any(c["name"] == "held" for c in line.calls()[-1:])
                    )
                    == 2
                )
                held.go.set()
                await asyncio.gather(*two)

    run(main())


def test_what_a_server_is_like_is_remembered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LIF-2, LIF-1: that it is quiet, and the era it speaks, so that it is not asked in the other
    one first."""
    monkeypatch.setattr(traits, "PROOF", 3)

    async def main() -> None:
        async with On(ScriptedServer("older"), state=tmp_path) as on:
            for number in range(3):
                await on.call(older_caller(f"s{number}", askable=True))
        held = Held()
        async with On(ScriptedServer("older", tools={"held": held}), state=tmp_path) as on:
            assert "server/discover" not in on.toy.lines[0].methods()
            calls = [on.begin(older_caller(f"c{n}", askable=True), "held") for n in range(5)]
            await until(lambda: held.began == 5)
            assert len({id(line) for line in on.toy.alive if line.calls()}) == 1
            held.go.set()
            await asyncio.gather(*calls)

    run(main())


# --- links private to a session


def test_a_server_that_was_told_a_clients_roots_keeps_that_link_for_that_session() -> None:
    """LIF-2: and every session has its own from then on, which goes with it or when it was idle."""

    async def main() -> None:
        toy = ScriptedServer(
            "older", tools={"ask": asking_tool(("roots/list", None)), "echo": echo}
        )
        async with On(toy, link_idle=0.2) as on:
            tapes = {name: RecordingChannel(list={"roots": [name]}) for name in ("a", "b")}
            for name in ("a", "b", "a"):
                result = await on.call(older_caller(name, askable=True, voice=tapes[name]), "ask")
                assert result["structuredContent"] == {"answers": [{"roots": [name]}]}
            served = [line for line in toy.lines if line.calls()]
            assert [len(line.calls()) for line in served] == [2, 1]
            assert on.uses().count("session") == 2
            await on.upstream.end_session("a")
            await until(lambda: served[0].closed_by_gateway)
            await on.alive(1)

    run(main())


def test_a_server_that_asks_for_roots_a_moment_after_the_first_call_gets_them_with_the_next() -> (
    None
):
    """PRO-5: on a client's own link they can only be that client's; nothing else is kept for
    whoever comes next."""

    async def main() -> None:
        toy = ScriptedServer("older")
        async with On(toy, isolation="per_session") as on:
            caller = modern_caller("m", askable=True)
            await on.call(caller)
            (line,) = [line for line in toy.lines if line.calls()]
            asked = asyncio.ensure_future(line.ask("roots/list"))
            other = asyncio.ensure_future(
                line.ask("elicitation/create", {"message": "?", "requestedSchema": {}})
            )
            with pytest.raises(RpcError, match="nobody here"):
                await other
            assert not asked.done()
            result = await on.call(caller)
            assert result["resultType"] == "input_required"
            (question,) = result["inputRequests"].values()
            assert question["method"] == "roots/list"
            asked.cancel()

    run(main())


def the_only_one(**roots: Any) -> Caller:
    """The one client of a stdio front, modern: it can be asked by its calls and in no other way."""
    return replace(
        modern_caller("m", askable=True, solo=True),
        capabilities={**CLIENT_CAPABILITIES, "roots": roots},
    )


def test_a_question_for_roots_is_not_lost_to_a_call_that_is_answered_in_the_same_moment() -> None:
    """PRO-5: the server waits for nothing with its answer, and asks no second time."""

    async def main() -> None:
        asked: list[asyncio.Future[Json]] = []

        async def hasty(line: ScriptedConnection, params: Json) -> Json:
            asked.append(asyncio.ensure_future(line.ask("roots/list")))
            await asyncio.sleep(0)
            return {"content": []}

        caller = the_only_one()
        async with On(ScriptedServer("older", tools={"hasty": hasty}), solo=caller) as on:
            result = await on.call(caller, "hasty")
            (key,) = result["inputRequests"]
            answers = {key: {"roots": [{"uri": "file:///work"}]}}
            done = await on.call(
                caller, "hasty", requestState=result["requestState"], inputResponses=answers
            )
            assert done["content"] == []
            assert await asked[0] == answers[key]

    run(main())


def test_a_question_for_roots_that_was_given_up_with_its_call_is_put_to_the_next() -> None:
    """PRO-5."""

    async def main() -> None:
        caller = the_only_one()
        async with On(
            ScriptedServer("older", tools={"wait": never_return, "echo": echo}), solo=caller
        ) as on:
            (line,) = on.toy.lines
            waiting = on.begin(caller, "wait")
            await until(line.calls)
            asked = asyncio.ensure_future(line.ask("roots/list"))
            assert (await waiting)["resultType"] == "input_required"
            on.upstream.calls.see_off(lambda principal: False)
            await yield_to_loop()
            assert not asked.done()
            result = await on.call(caller)
            (key,) = result["inputRequests"]
            answers = {key: {"roots": []}}
            await on.call(caller, requestState=result["requestState"], inputResponses=answers)
            assert await asked == {"roots": []}

    run(main())


def test_a_server_that_asked_for_roots_long_before_the_first_call_is_told_with_it_to_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PRO-5: nobody could be asked for so long, and of itself it asks once; told once, it needs no
    telling."""
    monkeypatch.setattr(link, "GREETING", 0.02)
    changed = "notifications/roots/list_changed"

    async def main() -> None:
        for caller, told in ((the_only_one(listChanged=True), 1), (the_only_one(), 0)):
            async with On(ScriptedServer("older"), solo=caller) as on:
                (line,) = on.toy.lines
                with pytest.raises(RpcError, match="nobody here"):
                    await line.ask("roots/list")
                for _ in range(2):
                    await on.call(caller)
                methods = [method for method in line.methods() if method in (changed, "tools/call")]
                assert methods == [changed] * told + ["tools/call"] * 2

    run(main())


def test_only_what_may_be_answered_with_a_question_is() -> None:
    """PRO-5: a modern client's completion is answered, while the server's question waits for a call
    that may ask."""

    async def main() -> None:
        finish = asyncio.Event()

        async def complete(line: ScriptedConnection, params: Json) -> Json:
            await finish.wait()
            return {"completion": {"values": []}}

        toy = ScriptedServer("older", answers={"completion/complete": complete})
        async with On(toy, isolation="per_session") as on:
            caller = modern_caller("m", askable=True)
            await on.call(caller)
            (line,) = [line for line in toy.lines if line.calls()]
            asked = asyncio.ensure_future(line.ask("roots/list"))
            completion = Call(
                "completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}}, caller
            )
            asking = asyncio.ensure_future(on.upstream.call(completion, completion.params))
            await until(lambda: "completion/complete" in line.methods())
            meanwhile = asyncio.ensure_future(line.ask("roots/list"))
            await yield_to_loop()
            finish.set()
            assert (await asking)["completion"] == {"values": []}
            result = await on.call(caller)
            assert [question["method"] for question in result["inputRequests"].values()] == [
                "roots/list"
            ] * 2
            for question in (asked, meanwhile):
                question.cancel()

    run(main())


def test_per_session_gives_each_session_its_own_that_outlasts_other_links() -> None:
    """LIF-2."""

    async def main() -> None:
        async with On(ScriptedServer("older"), isolation="per_session", link_idle=1.0) as on:
            for session in ("a", "b", "a"):
                await on.call(older_caller(session))
            await on.call(modern_caller("m"))
            assert [len(line.calls()) for line in on.toy.lines] == [0, 2, 1, 1]
            await on.alive(3)  # a modern client has no session that could end
            await on.upstream.end_session("a")
            await on.alive(2)

    run(main())


def test_per_call_opens_a_link_for_every_call_and_closes_it_after() -> None:
    """LIF-2."""

    async def main() -> None:
        async with On(ScriptedServer("older"), isolation="per_call") as on:
            await asyncio.gather(*(on.call(older_caller("a")) for _ in range(3)))
            assert [len(line.calls()) for line in on.toy.lines] == [0, 1, 1, 1]
            await on.alive(1)

    run(main())


# --- opening, bounds, ends


def test_many_callers_wait_for_one_opening_and_one_of_them_going_away_leaves_it_to_the_others() -> (
    None
):
    async def main() -> None:
        async with On(ScriptedServer("older")) as on:
            on.toy.opening.clear()
            calls = [on.begin(older_caller("a", askable=True)) for _ in range(10)]
            await until(lambda: on.toy.attempts == 2)
            calls.pop().cancel()
            on.toy.opening.set()
            await asyncio.gather(*calls)
            assert on.toy.attempts == 2

    run(main())


def test_a_failed_opening_fails_all_that_wait_and_the_next_one_is_tried_anew() -> None:
    async def main() -> None:
        async with On(ScriptedServer("older")) as on:
            on.toy.down = "not now"
            calls = [on.begin(older_caller("a", askable=True)) for _ in range(3)]
            for call in calls:
                with pytest.raises(Unavailable, match=r"^toy: not now"):
                    await call
            on.toy.down = None
            await on.call(older_caller("a", askable=True))

    run(main())


@pytest.mark.parametrize("isolation", ["shared", "per_session", "per_call"])
def test_a_server_that_goes_while_a_link_is_opened_leaves_no_connection_and_tells_who_waits(
    isolation: str,
) -> None:
    """CFG-5: told what became of the server, not that the gateway is ending."""

    async def main() -> None:
        toy = ScriptedServer("older")
        on = On(toy, isolation=isolation)
        async with on:
            toy.opening.clear()
            call = on.begin(older_caller("a", askable=True))
            await until(lambda: toy.attempts == 2)
            draining = asyncio.create_task(on.upstream.drain(0.1))
            with pytest.raises(
                Unavailable, match=r"^toy: was removed from the configuration"
            ) as caught:
                await call
            assert caught.value.code == SERVER_DOWN
            toy.opening.set()
            await draining
            await yield_to_loop()
            assert toy.alive == []

    run(main())


def test_a_server_that_goes_lets_calls_that_wait_for_a_link_finish() -> None:
    """CFG-5."""

    async def main() -> None:
        toy = ScriptedServer("older")
        async with On(toy, isolation="per_call") as on:
            toy.opening.clear()
            call = on.begin(older_caller("a"), arguments={"text": "x"})
            await until(lambda: toy.attempts == 2)
            draining = asyncio.create_task(on.upstream.drain(30.0))
            await yield_to_loop()
            toy.opening.set()
            assert (await call)["content"][0]["text"] == "x"
            await draining

    run(main())


@pytest.mark.parametrize("isolation", ["shared", "per_session", "per_call"])
def test_a_call_given_up_while_its_link_is_opened_is_never_sent(isolation: str) -> None:
    """LIF-6."""

    async def main() -> None:
        toy = ScriptedServer("older")
        async with On(toy, isolation=isolation) as on:
            toy.opening.clear()
            call = on.begin(older_caller("a", askable=True))
            await until(lambda: toy.attempts == 2)
            call.cancel()
            await asyncio.wait([call])
            toy.opening.set()
            await until(lambda: len(toy.lines) == 2)
            await yield_to_loop()
            assert not any(line.calls() for line in toy.lines)
            if isolation == "per_call":
                await on.alive(1)

    run(main())


def test_the_links_of_a_server_stay_within_max_links_and_the_rest_wait_their_turn() -> None:
    """LIF-2."""

    async def main() -> None:
        held = Held()
        async with On(
            ScriptedServer("older", tools={"held": held}), max_links=3, isolation="per_session"
        ) as on:
            calls = [on.begin(older_caller(f"s{n}"), "held") for n in range(4)]
            await until(lambda: held.began == 2)
            await yield_to_loop(50)
            assert len(on.toy.lines) == 3
            held.go.set()
            await asyncio.gather(*calls)
            assert len(on.toy.alive) <= 3

    run(main())


def test_who_finds_no_place_in_time_is_told_why() -> None:
    async def main() -> None:
        held = Held()
        async with On(
            ScriptedServer("older", tools={"held": held}),
            max_links=2,
            isolation="per_session",
            timeout=0.5,
        ) as on:
            first = on.begin(older_caller("a"), "held")
            await until(lambda: held.began)
            with pytest.raises(Unavailable, match="max_links") as caught:
                await on.call(older_caller("b"))
            assert caught.value.code == OVERLOADED
            held.go.set()
            await first

    run(main())


def test_a_link_that_dies_costs_its_own_calls_only() -> None:
    """SRC-8."""

    async def main() -> None:
        held = Held()
        async with On(ScriptedServer("older", tools={"held": held, "echo": echo})) as on:
            calls = [on.begin(older_caller(name, askable=True), "held") for name in ("a", "b")]
            await until(lambda: held.began == 2)
            dying, other = [line for line in on.toy.lines if line.calls()]
            dying.die()
            with pytest.raises(Unavailable, match=r"^toy: died"):
                await calls[0]
            held.go.set()
            await calls[1]
            assert not other.closed_by_gateway
            await on.call(older_caller("a", askable=True))

    run(main())


# --- what clients are offered


def able_to(session: str, **capabilities: Any) -> Caller:
    return replace(older_caller(session), capabilities=capabilities)


def choosy(seen: list[Json]) -> Callable[[ScriptedConnection, Json], Awaitable[Json]]:
    """Lists one tool more to clients that can be asked for sampling."""

    async def lists(line: ScriptedConnection, params: Json) -> Json:
        able = greeting(line)["capabilities"]
        seen.append(able)
        return {
            "tools": [
                {"name": name} for name in (("echo", "sample") if "sampling" in able else ("echo",))
            ]
        }

    return lists


def test_what_a_kind_of_client_is_offered_is_learnt_once_and_no_connection_kept_for_it() -> None:
    """SUR-1: wordings that mean the same are one kind; sixty varied clients are not sixty
    connections."""

    async def main() -> None:
        seen: list[Json] = []
        async with On(ScriptedServer("older", answers={"tools/list": choosy(seen)})) as on:
            await on.call(older_caller("plain"))  # so that the main link stays as it is
            for number in range(60):
                able = [{}, {"form": {}}, {"form": {}, "x": number}][number % 3]
                await on.learn(able_to(f"s{number}", elicitation=able, experimental={"n": number}))
            assert len(seen) == 2
            assert on.hub.varied == []
            sampling = able_to("t", elicitation={}, sampling={})
            await on.learn(sampling)
            assert len(seen) == 3
            assert [tool["name"] for tool in on.upstream.offers(sampling)["tools"]] == [
                "echo",
                "sample",
            ]
            assert [tool["name"] for tool in on.upstream.offers(None)["tools"]] == ["echo"]
            await on.alive(1)

    run(main())


def test_capabilities_that_mean_the_same_are_one_kind() -> None:
    assert kind_of({"elicitation": {}}) == kind_of({"elicitation": {"form": {}}})
    assert kind_of({"elicitation": {"url": {}}}) != kind_of({"elicitation": {}})
    assert kind_of({"roots": {}}) == kind_of(
        {"roots": {"listChanged": True}, "experimental": {"a": 1}}
    )
    assert kind_of({"sampling": {"tools": {}}}) != kind_of({"sampling": {}})
    assert kind_of({"experimental": {}}) == kind_of({}) == frozenset()


def test_a_client_waits_a_moment_for_its_turn_before_another_link_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        monkeypatch.setattr(module, "PATIENCE", 600.0)
        held = Held()
        async with On(ScriptedServer("older", tools={"held": held, "echo": echo})) as on:
            first = on.begin(older_caller("a", askable=True), "held")
            await until(lambda: held.began)
            second = on.begin(older_caller("b", askable=True))
            await yield_to_loop(50)
            assert len(on.toy.lines) == 2 and not second.done()
            held.go.set()
            await asyncio.gather(first, second)
            assert len(on.toy.lines) == 2

    run(main())
