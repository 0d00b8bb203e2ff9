"""SEC-7: `ask` is put to the person at the client in the way of its era, or to whoever looks after
the gateway."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kit.loop import never_return, run
from kit.until import until
from mcpx.config import Config, Policy, PolicyRule
from mcpx.config.sections import FrontLimits, FrontServer
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import DENIED, NEEDS_APPROVAL, OVERLOADED, Denied, RpcError
from mcpx.model.events import Passage
from mcpx.policy import asking as module
from mcpx.policy.asking import KEY
from mcpx.policy.rules import Rule
from mcpx.policy.state import PolicyState
from mcpx.policy.warden import Warden

RULE = Rule(1, PolicyRule(effect="ask", reason="it deletes"))
YES: Json = {"action": "accept", "content": {"approve": True}}


class Voice:
    """Somebody at an older client."""

    def __init__(self, answer: Json | Exception | None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, Json | None]] = []
        self.heard = asyncio.Event()
        self.taken_back = False

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        self.asked.append((server, method, params))
        self.heard.set()
        if self.answer is None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.taken_back = True
                raise
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer

    def tell(self, method: str, params: Json) -> None: ...

    def pause(self, retry_ms: int) -> None: ...


class RecordingServer:
    def __init__(self, *results: Json | Exception) -> None:
        self.results = list(results)
        self.called: list[Json] = []


class Desk:
    def __init__(self) -> None:
        self.state = PolicyState(None)

    async def call(
        self, server: RecordingServer, caller: Caller, method: str = "tools/call", **params: Any
    ) -> Json:
        said: Json = {"name": "rm", "arguments": {"path": "/a"}, **params}
        outer = dict(said)
        passage = Passage("files", "rm", None, Call(method, outer, caller), said)

        async def forward() -> Json:
            assert outer.get("requestState") == said.get("requestState")
            server.called.append(said)
            result = server.results.pop(0) if server.results else {"content": []}
            if isinstance(result, Exception):
                raise result
            return result

        return await self.state.asking.pass_if_approved(
            passage, RULE, forward, lambda forward: forward()
        )


def older(answer: Json | Exception | None) -> tuple[Caller, Voice]:
    voice = Voice(answer)
    return Caller("ada", capabilities={"elicitation": {}}, voice=voice, session="s"), voice


MODERN = Caller("ada", modern=True, capabilities={"elicitation": {"form": {}}})
MUTE = Caller("ada")


def test_an_older_client_is_asked_and_its_yes_lets_the_call_pass() -> None:
    async def test() -> None:
        server, (caller, voice) = RecordingServer(), older(YES)
        await Desk().call(server, caller)
        assert len(server.called) == 1
        [(who, method, question)] = voice.asked
        assert (who, method) == ("mcpx", "elicitation/create") and question is not None
        assert all(word in question["message"] for word in ("files.rm", '"/a"', "it deletes"))

    run(test())


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept"},
        {"action": "accept", "content": {"approve": False}},
        {"action": "accept", "content": {"approve": "true"}},
        {"action": "accept", "content": [True]},
        {},
    ],
)
def test_all_but_a_clear_yes_is_a_no(answer: Json) -> None:
    async def test() -> None:
        server, (caller, _) = RecordingServer(), older(answer)
        with pytest.raises(Denied) as refused:
            await Desk().call(server, caller)
        assert refused.value.code == DENIED and server.called == []
        desk = Desk()
        question = await desk.call(server, MODERN)
        answers = {"requestState": question["requestState"], "inputResponses": {KEY: answer}}
        with pytest.raises(Denied):
            await desk.call(server, MODERN, **answers)
        assert server.called == []

    run(test())


def test_nobody_answers_in_time_is_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)

    async def test() -> None:
        server, (caller, voice) = RecordingServer(), older(None)
        with pytest.raises(Denied, match="nobody answered"):
            await Desk().call(server, caller)
        assert voice.taken_back and server.called == []

    run(test())


def test_a_call_that_is_given_up_takes_its_question_back() -> None:
    async def test() -> None:
        server, (caller, voice) = RecordingServer(), older(None)
        task = asyncio.ensure_future(Desk().call(server, caller))
        await voice.heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert voice.taken_back and server.called == []

    run(test())


def test_a_client_that_cannot_be_asked_after_all_has_to_wait_for_an_approval() -> None:
    async def test() -> None:
        caller, _ = older(RpcError(-32601, "no"))
        with pytest.raises(Denied) as refused:
            await Desk().call(RecordingServer(), caller)
        assert refused.value.code == NEEDS_APPROVAL

    run(test())


def test_a_modern_client_comes_back_with_a_yes_and_the_server_sees_nothing_of_it() -> None:
    async def test() -> None:
        desk, server = Desk(), RecordingServer()
        question = await desk.call(server, MODERN)
        assert question["resultType"] == "input_required" and server.called == []
        asked = question["inputRequests"][KEY]
        assert asked["method"] == "elicitation/create" and "files.rm" in asked["params"]["message"]
        answers = {"requestState": question["requestState"], "inputResponses": {KEY: YES}}
        await desk.call(server, MODERN, **answers)
        assert server.called == [{"name": "rm", "arguments": {"path": "/a"}}]
        again = await desk.call(server, MODERN, **answers)
        assert again["resultType"] == "input_required" and len(server.called) == 1

    run(test())


def test_a_yes_is_worth_nothing_for_another_call() -> None:
    async def test() -> None:
        desk, server = Desk(), RecordingServer()
        question = await desk.call(server, MODERN)
        answers = {"requestState": question["requestState"], "inputResponses": {KEY: YES}}
        others: list[tuple[Caller, Json]] = [
            (MODERN, {"arguments": {"path": "/b"}}),
            (Caller("bob", modern=True, capabilities={"elicitation": {}}), {}),
            (Caller("ada", "p", modern=True, capabilities={"elicitation": {}}), {}),
        ]
        for caller, more in others:
            result = await desk.call(server, caller, **answers, **more)
            assert result["resultType"] == "input_required"
        assert server.called == []

    run(test())


def test_a_servers_own_question_goes_on_without_being_asked_again_and_only_that() -> None:
    async def test() -> None:
        asks: Json = {
            "resultType": "input_required",
            "inputRequests": {"q": {}},
            "requestState": "theirs",
        }
        desk, server = Desk(), RecordingServer(asks, asks)
        question = await desk.call(server, MODERN)
        answers = {"requestState": question["requestState"], "inputResponses": {KEY: YES}}
        assert await desk.call(server, MODERN, **answers) == asks
        going_on: Json = {"requestState": "theirs", "inputResponses": {"q": {"action": "accept"}}}
        for other in ({"requestState": "other"}, {"arguments": {"path": "/b"}}):
            assert (
                KEY in (await desk.call(server, MODERN, **{**going_on, **other}))["inputRequests"]
            )
        assert await desk.call(server, MODERN, **going_on) == asks  # it asks once more
        assert (await desk.call(server, MODERN, **going_on)) == {"content": []}
        assert server.called[1]["requestState"] == server.called[2]["requestState"] == "theirs"
        assert KEY in (await desk.call(server, MODERN, **going_on))["inputRequests"]
        assert len(server.called) == 3

    run(test())


def approval_in(refused: Denied) -> str:
    assert refused.code == NEEDS_APPROVAL
    assert refused.data["approval"] in refused.message and "it deletes" in refused.message
    return refused.data["approval"]


@pytest.mark.parametrize(
    "caller", [MUTE, Caller("ada", modern=True, capabilities={"elicitation": {"url": {}}})]
)
def test_of_who_cannot_be_asked_an_approved_call_passes_exactly_once(caller: Caller) -> None:
    async def test() -> None:
        desk, server = Desk(), RecordingServer()
        with pytest.raises(Denied) as refused:
            await desk.call(server, caller)
        id = approval_in(refused.value)
        desk.state.approvals.decide(id, allow=True, by="eve")
        outcomes = await asyncio.gather(
            *(desk.call(server, caller) for _ in range(2)), return_exceptions=True
        )
        assert len(server.called) == 1
        [other] = [outcome for outcome in outcomes if isinstance(outcome, Denied)]
        assert approval_in(other) != id

    run(test())


def test_an_approval_is_worth_nothing_for_another_call() -> None:
    async def test() -> None:
        desk, server = Desk(), RecordingServer()
        with pytest.raises(Denied) as refused:
            await desk.call(server, MUTE)
        desk.state.approvals.decide(approval_in(refused.value), allow=True, by="")
        calls: list[tuple[Caller, Json]] = [
            (MUTE, {"arguments": {"path": "/b"}}),
            (Caller("bob"), {}),
            (Caller("ada", "p"), {}),
            (MUTE, {"task": {}}),
        ]
        for caller, more in calls:
            with pytest.raises(Denied):
                await desk.call(server, caller, **more)
        with pytest.raises(Denied):  # nor with answers to a question of another call
            await desk.call(server, Caller("ada", modern=True), requestState="theirs")
        assert server.called == []
        await desk.call(server, MUTE)
        assert len(server.called) == 1

    run(test())


def test_who_was_refused_is_told_so() -> None:
    async def test() -> None:
        desk, server = Desk(), RecordingServer()
        with pytest.raises(Denied) as refused:
            await desk.call(server, MUTE)
        desk.state.approvals.decide(approval_in(refused.value), allow=False, by="")
        with pytest.raises(Denied, match="was refused") as told:
            await desk.call(server, MUTE)
        assert told.value.code == DENIED and server.called == []

    run(test())


def test_an_approval_outlives_a_limit_that_was_in_the_way() -> None:
    async def test() -> None:
        desk, server = Desk(), RecordingServer(Denied(OVERLOADED, "later"))
        with pytest.raises(Denied) as refused:
            await desk.call(server, MUTE)
        desk.state.approvals.decide(approval_in(refused.value), allow=True, by="")
        with pytest.raises(Denied, match="later"):
            await desk.call(server, MUTE)
        assert await desk.call(server, MUTE) == {"content": []}

    run(test())


def test_completions_are_refused_and_nobody_is_asked_to_unsubscribe() -> None:
    async def test() -> None:
        desk, server, (caller, voice) = Desk(), RecordingServer(), older(YES)
        with pytest.raises(Denied):
            await desk.call(server, caller, "completion/complete")
        assert server.called == []
        await desk.call(server, caller, "resources/unsubscribe")
        assert len(server.called) == 1 and voice.asked == []
        with pytest.raises(Denied) as refused:  # a listening has no result that could be a question
            await desk.call(server, MODERN, "subscriptions/listen")
        assert refused.value.code == NEEDS_APPROVAL

    run(test())


def test_arguments_too_deep_to_be_shown_are_refused() -> None:
    async def test() -> None:
        deep: Any = "x"
        for _ in range(100_000):
            deep = [deep]
        with pytest.raises(Denied) as refused:
            await Desk().call(RecordingServer(), MUTE, arguments={"a": deep})
        assert refused.value.code == DENIED
        while isinstance(deep, list):
            deep = deep.pop()

    run(test())


def test_who_asks_without_end_takes_no_question_from_anybody_else() -> None:
    async def test() -> None:
        desk, server = Desk(), RecordingServer()
        asked = await desk.call(server, MODERN)
        answers: Json = {"requestState": asked["requestState"], "inputResponses": {KEY: YES}}
        crowd = Caller("eve", modern=True, capabilities=MODERN.capabilities)
        for number in range(5_000):
            await desk.call(server, crowd, arguments={"path": f"/{number}"})
        for number in range(50):
            other = Caller(f"user {number}", modern=True, capabilities=MODERN.capabilities)
            for path in "abc":
                await desk.call(server, other, arguments={"path": path})
        await desk.call(server, MODERN, **answers)
        assert len(server.called) == 1

    run(test())


def test_questions_stay_bounded_however_many_callers_there_are() -> None:
    async def test() -> None:
        store = PolicyState(None).book
        await store.expect("ada", b"call", 0)
        for number in range(40):
            await store.expect("eve", b"call", number)
        for number in range(5_000):
            await store.expect(f"user {number}", b"call", 0)
        assert not await store.redeem("ada", b"call", 0), "it was the oldest"
        assert not any([await store.redeem("eve", b"call", number) for number in range(40)])
        await store.expect("ada", b"call", 1)
        assert await store.redeem("ada", b"call", 1)

    run(test())


@pytest.mark.parametrize("caller", [MUTE, MODERN], ids=["its approval", "what its server asked"])
def test_a_call_that_is_given_up_while_it_waits_for_a_limit_leaves_what_lets_it_pass(
    caller: Caller,
) -> None:
    """Somebody said yes to it, and it was not made."""

    async def test() -> None:
        state, server = PolicyState(None), RecordingServer()
        asks = Policy(rules=(PolicyRule(effect="ask", servers=("files",)),))
        warden = Warden(
            Config(server=FrontServer(limits=FrontLimits(in_flight=1)), policy=asks), state
        )

        async def call(
            work: Callable[[], Awaitable[Json]], to: str = "files", **params: Any
        ) -> Json:
            said: Json = {"name": "rm", "arguments": {}, **params}
            passage = Passage(to, "rm", None, Call("tools/call", dict(said), caller), said)
            try:
                return await warden.guard(passage, work, lambda passage: None)
            finally:
                for place in passage.places:
                    place.leave()

        async def answer() -> Json:
            server.called.append({})
            return {"content": []}

        async def question() -> Json:
            return {
                "resultType": "input_required",
                "inputRequests": {"q": {}},
                "requestState": "theirs",
            }

        brings: Json = {}
        if caller.modern:
            asked = await call(answer)
            await call(question, requestState=asked["requestState"], inputResponses={KEY: YES})
            brings = {"requestState": "theirs", "inputResponses": {"q": {"action": "accept"}}}
        else:
            with pytest.raises(Denied) as refused:
                await call(answer)
            await state.book.decide(refused.value.data["approval"], allow=True, by="eve")
        runs = asyncio.ensure_future(call(never_return, to="other"))
        await until(lambda: [counter.running for counter in state.counters.clients.values()] == [1])
        waits = asyncio.ensure_future(call(answer, **brings))
        await until(lambda: state.counters.depth()["client"] == 1)
        for one in (waits, runs):
            one.cancel()
            await asyncio.wait([one])
        assert server.called == []
        assert await call(answer, **brings) == {"content": []}
        if caller.modern:
            assert KEY in (await call(answer, **brings))["inputRequests"]
        else:
            with pytest.raises(Denied):
                await call(answer)
        assert len(server.called) == 1, "it has passed once"

    run(test())
