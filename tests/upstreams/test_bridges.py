"""Questions from one era to the other: asked and called again, or parked and resumed. Races
included."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from kit.callers import CLIENT_CAPABILITIES, RecordingChannel, modern_caller, older_caller
from kit.clock import LoopClock
from kit.loop import never_return, run, yield_to_loop
from kit.until import until
from mcpx.base.aio import Tasks
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, OVERLOADED, RpcError, Unavailable
from mcpx.upstreams import bridges
from mcpx.upstreams.bridges import Lease, Parked, Parking, answer_for_older

ELICIT: Json = {"method": "elicitation/create", "params": {"message": "who?"}}
SAMPLE: Json = {"method": "sampling/createMessage", "params": {"messages": []}}
ROOTS: Json = {"method": "roots/list"}


def call_of(caller: Caller, **params: Any) -> Call:
    return Call("tools/call", {"name": "t", "arguments": {"a": 1}, **params}, caller)


def questions(**asked: Json) -> Json:
    return {"resultType": "input_required", "inputRequests": asked, "requestState": "state"}


class Held:
    """What a lease needs of its link."""

    name = "srv"

    def hold(self, lease: Lease) -> None:
        pass

    @property
    def questions(self) -> "Held":
        return self

    def counted(self, params: Json | None) -> nullcontext[None]:
        return nullcontext()

    def asked(self, method: str) -> None:
        pass

    def bind(self, caller: Caller, why: str) -> None:
        pass


def lease_of(call: Call, parked: Parked | None = None) -> Lease:
    return Lease(Held(), call, "client", parked)  # pyright: ignore[reportArgumentType]


class Modern:
    """A modern server: gives the results in turn, keeps what it was called with."""

    def __init__(self, *results: Json) -> None:
        self.results = list(results)
        self.calls: list[Json] = []

    async def __call__(self, params: Json) -> Json:
        self.calls.append(params)
        return self.results.pop(0)


# --- older client, modern server


def asker(**answers: Any) -> tuple[Caller, RecordingChannel]:
    tape = RecordingChannel(**answers)
    return older_caller(askable=True, voice=tape), tape


def test_a_result_without_a_question_comes_back_without_modern_fields() -> None:
    async def main() -> None:
        caller, tape = asker()
        send = Modern({"resultType": "complete", "content": [], "future": 1})
        assert await answer_for_older(call_of(caller), "srv", send, {"name": "t"}) == {
            "content": [],
            "future": 1,
        }
        assert tape.asked == []

    run(main())


def test_each_question_is_put_to_the_client_and_the_call_made_again_with_the_answers() -> None:
    """PRO-5: everything else of the call stays, the state goes back as it came."""

    async def main() -> None:
        caller, tape = asker(
            create={"action": "accept"}, createMessage={"role": "assistant"}, list={"roots": []}
        )
        send = Modern(
            questions(a=ELICIT, b=SAMPLE, c=ROOTS), {"resultType": "complete", "done": True}
        )
        params = {"name": "t", "arguments": {"a": 1}, "_meta": {"x": 1}, "future": 2}
        assert await answer_for_older(call_of(caller), "srv", send, params) == {"done": True}
        assert send.calls == [
            params,
            {
                **params,
                "requestState": "state",
                "inputResponses": {
                    "a": {"action": "accept"},
                    "b": {"role": "assistant"},
                    "c": {"roots": []},
                },
            },
        ]
        assert sorted(tape.asked, key=str) == sorted(
            [
                ("srv", "elicitation/create", {"message": "who?"}),
                ("srv", "sampling/createMessage", {"messages": []}),
                ("srv", "roots/list", None),
            ],
            key=str,
        )

    run(main())


def test_several_questions_are_asked_at_once_and_each_answer_finds_its_key() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        slow: asyncio.Future[Json] = loop.create_future()
        caller, tape = asker(create=slow, createMessage={"quick": True})
        send = Modern(questions(a=ELICIT, b=SAMPLE), {"resultType": "complete"})
        task = asyncio.create_task(answer_for_older(call_of(caller), "srv", send, {}))
        await until(lambda: len(tape.asked) == 2)
        slow.set_result({"slow": True})
        await task
        assert send.calls[1]["inputResponses"] == {"a": {"slow": True}, "b": {"quick": True}}

    run(main())


def test_answers_and_state_of_one_round_are_not_sent_in_the_next() -> None:
    async def main() -> None:
        caller, _ = asker(create={"n": 1}, list={"n": 2})
        send = Modern(
            {"resultType": "input_required", "inputRequests": {"a": ELICIT}, "requestState": "one"},
            {"resultType": "input_required", "inputRequests": {"b": ROOTS}},
            {"resultType": "complete"},
        )
        await answer_for_older(call_of(caller), "srv", send, {"name": "t"})
        assert send.calls[1:] == [
            {"name": "t", "inputResponses": {"a": {"n": 1}}, "requestState": "one"},
            {"name": "t", "inputResponses": {"b": {"n": 2}}},
        ]

    run(main())


def test_a_server_with_a_state_and_no_question_is_called_again_after_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        pauses: list[float] = []
        sleep = asyncio.sleep

        async def slept(seconds: float) -> None:
            pauses.append(seconds)
            await sleep(0)

        monkeypatch.setattr(bridges.asyncio, "sleep", slept)
        caller, tape = asker()
        states = [{"resultType": "input_required", "requestState": str(n)} for n in range(6)]
        send = Modern(*states, {"resultType": "complete"})
        await answer_for_older(call_of(caller), "srv", send, {"name": "t"})
        assert pauses == [0.05, 0.1, 0.2, 0.25, 0.25, 0.25]
        assert send.calls[1:] == [{"name": "t", "requestState": str(n)} for n in range(6)]
        assert tape.asked == []

    run(main())


def test_a_server_that_never_has_enough_is_stopped_after_ten_rounds() -> None:
    """The client is asked ten times and not once in vain."""

    async def main() -> None:
        caller, tape = asker(create={"action": "accept"})
        send = Modern(*[questions(a=ELICIT)] * 50)
        with pytest.raises(Unavailable, match=r"^srv: .*10 times"):
            await answer_for_older(call_of(caller), "srv", send, {})
        assert len(tape.asked) == 10
        assert len(send.calls) == 11

    run(main())


def test_ten_rounds_are_allowed() -> None:
    async def main() -> None:
        caller, _ = asker(create={"action": "accept"})
        send = Modern(*[questions(a=ELICIT)] * 10, {"resultType": "complete", "done": True})
        assert await answer_for_older(call_of(caller), "srv", send, {}) == {"done": True}

    run(main())


def test_an_error_of_the_client_ends_the_call() -> None:
    async def main() -> None:
        caller, _ = asker(
            create=RpcError(-1, "the user closed the window", {"x": 1}), createMessage={}
        )
        send = Modern(questions(a=ELICIT, b=SAMPLE))
        with pytest.raises(RpcError, match="closed the window") as caught:
            await answer_for_older(call_of(caller), "srv", send, {})
        assert caught.value.to_json() == {
            "code": -1,
            "message": "the user closed the window",
            "data": {"x": 1},
        }
        assert len(send.calls) == 1

    run(main())


def test_an_error_of_the_client_ends_the_call_while_another_question_is_still_open() -> None:
    async def main() -> None:
        never: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        caller, _ = asker(create=RpcError(-1, "no"), createMessage=never)
        with pytest.raises(RpcError, match="no"):
            await answer_for_older(
                call_of(caller), "srv", Modern(questions(a=SAMPLE, b=ELICIT)), {}
            )
        assert never.cancelled()  # so the client is told that the other one is off

    run(main())


@pytest.mark.parametrize("odd", [None, 5, [], {}, {"method": 5}, {"method": None, "params": {}}])
def test_a_question_that_is_no_request_ends_the_call(odd: Any) -> None:
    async def main() -> None:
        caller, tape = asker()
        with pytest.raises(Unavailable, match=r"^srv: "):
            await answer_for_older(call_of(caller), "srv", Modern(questions(a=odd)), {})
        assert tape.asked == []

    run(main())


@pytest.mark.parametrize("method", ["tools/call", "ping", "", "elicitation/Create"])
def test_only_the_three_questions_reach_a_client(method: str) -> None:
    async def main() -> None:
        caller, tape = asker()
        with pytest.raises(RpcError) as caught:
            await answer_for_older(
                call_of(caller), "srv", Modern(questions(a={"method": method})), {}
            )
        assert caught.value.code == METHOD_NOT_FOUND
        assert tape.asked == []

    run(main())


def test_a_client_is_not_asked_what_it_did_not_offer() -> None:
    async def main() -> None:
        tape = RecordingChannel(create={})
        caller = Caller(session="s", capabilities={"roots": {}}, voice=tape)
        with pytest.raises(RpcError) as caught:
            await answer_for_older(call_of(caller), "srv", Modern(questions(a=ELICIT)), {})
        assert caught.value.code == METHOD_NOT_FOUND
        assert tape.asked == []

    run(main())


def test_cancelled_while_the_client_is_asked_takes_the_question_back() -> None:
    async def main() -> None:
        open_question: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        caller, tape = asker(create=open_question)
        task = asyncio.create_task(
            answer_for_older(call_of(caller), "srv", Modern(questions(a=ELICIT)), {})
        )
        await until(lambda: tape.asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert open_question.cancelled()

    run(main())


# --- what a running call hears


def test_progress_and_logs_are_marked_with_their_server() -> None:
    """PRO-4."""
    tape = RecordingChannel()
    lease = lease_of(
        call_of(older_caller(voice=tape, log_level="warning"), _meta={"progressToken": "t"})
    )
    lease.progress({"progressToken": "t", "progress": 1, "_meta": {"a": 1}})
    lease.notification("notifications/message", {"level": "info", "data": 1})
    lease.notification("notifications/message", {"level": "error", "data": 2})
    lease.notification("notifications/other", {})
    lease.paused(70)
    mark = {"proxy": {"server": "srv"}}
    assert tape.told == [
        (
            "notifications/progress",
            {"progressToken": "t", "progress": 1, "_meta": {"a": 1, **mark}},
        ),
        ("notifications/message", {"level": "error", "data": 2, "_meta": mark}),
        ("notifications/other", {"_meta": mark}),
    ]
    assert tape.pauses == [70]


def test_logs_without_a_word_from_the_client_reach_older_ones_and_no_modern_one() -> None:
    for caller, heard in (
        (older_caller(), 1),
        (modern_caller(), 0),
        (modern_caller(log_level="info"), 1),
    ):
        assert isinstance(caller.voice, RecordingChannel)
        lease_of(call_of(caller)).notification("notifications/message", {"level": "info"})
        assert len(caller.voice.told) == heard


def test_a_call_without_a_way_back_hears_in_silence() -> None:
    async def main() -> None:
        lease = lease_of(call_of(Caller(capabilities=CLIENT_CAPABILITIES, voice=None)))
        lease.progress({})
        lease.notification("notifications/message", {})
        lease.paused(1)
        with pytest.raises(RpcError):
            await lease.question("roots/list", None)

    run(main())


def test_a_modern_client_is_never_asked_directly() -> None:
    async def main() -> None:
        caller = modern_caller(askable=True)
        with pytest.raises(RpcError) as caught:
            await lease_of(call_of(caller)).question("roots/list", None)
        assert caught.value.code == METHOD_NOT_FOUND

    run(main())


# --- modern client, older server: parked calls

Run = Callable[[Lease], Awaitable[Json]]


class Lot:
    """A parking lot and the tasks on it."""

    def __init__(self) -> None:
        self.tasks = Tasks("srv")
        self.parking = Parking("srv", self.tasks)

    async def __aenter__(self) -> "Lot":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.tasks.close()

    async def begin(self, run: Run, caller: Caller | None = None, **params: Any) -> Json:
        call = call_of(caller or modern_caller(askable=True), **params)

        async def work(parked: Parked) -> Json:
            parked.lease = lease_of(call, parked)
            return await run(parked.lease)

        return await self.parking.begin(call, call.params, work)

    async def resume(
        self, state: Any, answers: Any = None, caller: Caller | None = None, **params: Any
    ) -> Json:
        call = call_of(
            caller or modern_caller(askable=True),
            requestState=state,
            inputResponses=answers,
            **params,
        )
        return await self.parking.resume(call, call.params)


async def asks_once(lease: Lease) -> Json:
    return {"answer": await lease.question("elicitation/create", {"message": "who?"})}


def test_a_call_without_a_question_is_not_parked() -> None:
    async def main() -> None:
        async with Lot() as lot:

            async def quick(lease: Lease) -> Json:
                return {"content": []}

            assert await lot.begin(quick) == {"content": []}

            async def fails(lease: Lease) -> Json:
                raise RpcError(-5, "theirs", {"d": 1})

            with pytest.raises(RpcError, match="theirs"):
                await lot.begin(fails)

    run(main())


def test_a_question_becomes_a_result_and_the_answer_goes_back_into_the_running_call() -> None:
    """PRO-5."""

    async def main() -> None:
        async with Lot() as lot:
            asked = await lot.begin(asks_once)
            assert asked == {
                "resultType": "input_required",
                "inputRequests": {"q1": ELICIT},
                "requestState": asked["requestState"],
            }
            answered = await lot.resume(
                asked["requestState"], {"q1": {"action": "accept", "content": {}}}
            )
            assert answered == {"answer": {"action": "accept", "content": {}}}

    run(main())


def test_several_questions_at_once_are_one_result_and_may_be_answered_in_parts() -> None:
    async def main() -> None:
        async with Lot() as lot:

            async def asks_three(lease: Lease) -> Json:
                return {
                    "answers": await asyncio.gather(
                        lease.question("elicitation/create", {"n": 1}),
                        lease.question("sampling/createMessage", {"n": 2}),
                        lease.question("roots/list", None),
                    )
                }

            first = await lot.begin(asks_three)
            assert set(first["inputRequests"]) == {"q1", "q2", "q3"}
            assert first["inputRequests"]["q3"] == {"method": "roots/list"}
            second = await lot.resume(first["requestState"], {"q2": {"a": 2}, "q9": {"a": 9}})
            assert set(second["inputRequests"]) == {"q1", "q3"}
            third = await lot.resume(second["requestState"], {"q1": {"a": 1}, "q3": {"a": 3}})
            assert third == {"answers": [{"a": 1}, {"a": 2}, {"a": 3}]}

    run(main())


def test_one_question_after_the_other_is_one_round_each() -> None:
    async def main() -> None:
        async with Lot() as lot:

            async def asks_twice(lease: Lease) -> Json:
                first = await lease.question("elicitation/create", {"n": 1})
                second = await lease.question("elicitation/create", {"n": 2})
                return {"answers": [first, second]}

            one = await lot.begin(asks_twice)
            two = await lot.resume(one["requestState"], {"q1": {"a": 1}})
            assert set(two["inputRequests"]) == {"q2"}
            assert await lot.resume(two["requestState"], {"q2": {"a": 2}}) == {
                "answers": [{"a": 1}, {"a": 2}]
            }

    run(main())


@pytest.mark.parametrize("answers", [None, [], "x", {"q1": None}, {"q1": "x"}, {"q1": []}, {}])
def test_a_retry_without_a_usable_answer_is_asked_again(answers: Any) -> None:
    async def main() -> None:
        async with Lot() as lot:
            asked = await lot.begin(asks_once)
            again = await lot.resume(asked["requestState"], answers)
            assert again["inputRequests"] == asked["inputRequests"]
            assert await lot.resume(again["requestState"], {"q1": {"a": 1}}) == {"answer": {"a": 1}}

    run(main())


@pytest.mark.parametrize("state", ["", "mcpx-", "mcpx-AAAA", None, 5, [], {}, ["mcpx-"]])
def test_an_unknown_state_is_refused(state: Any) -> None:
    async def main() -> None:
        async with Lot() as lot:
            await lot.begin(asks_once)
            assert not lot.parking.holds(call_of(modern_caller(), requestState=state))
            with pytest.raises(RpcError) as caught:
                await lot.resume(state, {"q1": {}})
            assert caught.value.code == INVALID_PARAMS

    run(main())


def test_a_state_is_good_once() -> None:
    async def main() -> None:
        async with Lot() as lot:
            state = (await lot.begin(asks_once))["requestState"]
            tampered = state[:-1] + ("A" if state[-1] != "A" else "B")
            with pytest.raises(RpcError):
                await lot.resume(tampered, {"q1": {}})
            outcomes = await asyncio.gather(
                *(lot.resume(state, {"q1": {"n": n}}) for n in range(3)), return_exceptions=True
            )
            assert outcomes[0] == {"answer": {"n": 0}}
            assert [e.code for e in outcomes[1:] if isinstance(e, RpcError)] == [INVALID_PARAMS] * 2

    run(main())


@pytest.mark.parametrize(
    ("who", "params"),
    [
        (modern_caller("another", askable=True), {}),
        (modern_caller(askable=True, principal="somebody else"), {}),
        (modern_caller(askable=True), {"name": "another tool"}),
    ],
)
def test_nobody_but_its_owner_resumes_a_parked_call(who: Caller, params: Json) -> None:
    """PRO-5: and who tries is told no more than for a state that never was."""

    async def main() -> None:
        async with Lot() as lot:
            state = (await lot.begin(asks_once))["requestState"]
            with pytest.raises(RpcError) as theirs:
                await lot.resume(state, {"q1": {"stolen": True}}, who, **params)
            with pytest.raises(RpcError) as nothing:
                await lot.resume("mcpx-none", {}, who, **params)
            assert theirs.value.to_json() == nothing.value.to_json()
            assert await lot.resume(state, {"q1": {"mine": True}}) == {"answer": {"mine": True}}

    run(main())


def test_a_parked_call_that_nobody_comes_back_for_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bridges, "PARKED_FOR", 0.02)

    async def main() -> None:
        async with Lot() as lot:
            given_up = asyncio.Event()

            async def asks(lease: Lease) -> Json:
                try:
                    return await asks_once(lease)
                except asyncio.CancelledError:
                    given_up.set()  # where the server is told
                    raise

            state = (await lot.begin(asks))["requestState"]
            await given_up.wait()
            with pytest.raises(RpcError) as caught:
                await lot.resume(state, {"q1": {}})
            assert caught.value.code == INVALID_PARAMS

    run(main())


def test_the_time_of_a_parked_call_begins_anew_with_every_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        clock = LoopClock(monkeypatch)
        async with Lot() as lot:
            asked = await lot.begin(asks_once)
            for _ in range(4):
                await clock.advance(0.9 * bridges.PARKED_FOR)
                asked = await lot.resume(asked["requestState"])
            assert await lot.resume(asked["requestState"], {"q1": {}}) == {"answer": {}}

    run(main(), seconds=10_000)


def test_no_more_than_so_many_calls_are_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6: the one too many is given up, the others stay."""
    monkeypatch.setattr(bridges, "PARKED_AT_MOST", 2)

    async def main() -> None:
        async with Lot() as lot:
            states = [(await lot.begin(asks_once))["requestState"] for _ in range(2)]
            ended = asyncio.Event()

            async def asks(lease: Lease) -> Json:
                try:
                    return await asks_once(lease)
                finally:
                    ended.set()

            with pytest.raises(Unavailable, match=r"^srv: ") as caught:
                await lot.begin(asks)
            assert caught.value.code == OVERLOADED
            await ended.wait()
            for state in states:
                assert await lot.resume(state, {"q1": {}}) == {"answer": {}}
            assert (await lot.begin(asks_once))["resultType"] == "input_required"

    run(main())


def test_cancelled_before_its_first_question_the_call_is_given_up() -> None:
    async def main() -> None:
        async with Lot() as lot:
            started, ended = asyncio.Event(), asyncio.Event()

            async def works(lease: Lease) -> Json:
                started.set()
                try:
                    return await never_return()
                finally:
                    ended.set()

            task = asyncio.create_task(lot.begin(works))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()

    run(main())


def test_cancelled_while_a_resumed_call_runs_the_call_is_given_up() -> None:
    async def main() -> None:
        async with Lot() as lot:
            resumed, ended = asyncio.Event(), asyncio.Event()

            async def works(lease: Lease) -> Json:
                await lease.question("roots/list", None)
                resumed.set()
                try:
                    return await never_return()
                finally:
                    ended.set()

            state = (await lot.begin(works))["requestState"]
            task = asyncio.create_task(lot.resume(state, {"q1": {}}))
            await resumed.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()
            with pytest.raises(RpcError):
                await lot.resume(state, {})

    run(main())


def test_a_result_that_arrives_together_with_a_question_wins() -> None:
    """PRO-5: and the server is told that nobody is asked."""

    async def main() -> None:
        async with Lot() as lot:
            asking: list[asyncio.Task[Json]] = []

            async def asks_and_is_done(lease: Lease) -> Json:
                asking.append(
                    asyncio.create_task(lease.question("elicitation/create", {"message": "who?"}))
                )
                await asyncio.sleep(0)
                return {"done": True}

            assert await lot.begin(asks_and_is_done) == {"done": True}
            with pytest.raises(RpcError, match="nobody here can be asked elicitation/create"):
                await asking[0]

    run(main())


def test_a_question_that_is_taken_back_as_the_result_arrives_is_put_to_nobody() -> None:
    async def main() -> None:
        async with Lot() as lot:

            async def asks_and_is_done(lease: Lease) -> Json:
                asking = asyncio.create_task(lease.question("roots/list", None))
                await asyncio.sleep(0)
                asking.cancel()
                return {"done": True}

            assert await lot.begin(asks_and_is_done) == {"done": True}
            await yield_to_loop()

    run(main())


@pytest.mark.parametrize(
    "outcome", [{"done": True}, RpcError(-7, "no such folder")], ids=["result", "error"]
)
def test_a_question_for_roots_that_arrives_together_with_the_outcome_is_asked_before_it(
    outcome: Any,
) -> None:
    """PRO-5: they are asked for once, and not for that call."""

    async def main() -> None:
        async with Lot() as lot:
            asking: list[asyncio.Task[Json]] = []

            async def asks_and_is_done(lease: Lease) -> Json:
                asking.append(asyncio.create_task(lease.question("roots/list", None)))
                await asyncio.sleep(0)
                if isinstance(outcome, RpcError):
                    raise outcome
                return outcome

            asked = await lot.begin(asks_and_is_done)
            assert asked["inputRequests"] == {"q1": ROOTS}
            answered = lot.resume(asked["requestState"], {"q1": {"roots": []}})
            if isinstance(outcome, RpcError):
                with pytest.raises(RpcError, match="no such folder"):
                    await answered
            else:
                assert await answered == outcome
            assert await asking[0] == {"roots": []}

    run(main())


def test_a_question_of_a_call_that_is_given_up_is_refused() -> None:
    async def main() -> None:
        async with Lot() as lot:
            asking: list[asyncio.Task[Json]] = []

            async def asks_beside(lease: Lease) -> Json:
                asking.append(asyncio.create_task(lease.question("roots/list", None)))
                return await never_return()

            await lot.begin(asks_beside)
            lot.parking.see_off(lambda principal: False)
            with pytest.raises(RpcError, match="nobody here can be asked roots/list"):
                await asking[0]

    run(main())


def test_a_call_that_ends_while_parked_gives_its_outcome_to_who_comes_back() -> None:
    async def main() -> None:
        async with Lot() as lot:
            for outcome in ({"done": True}, RpcError(-7, "gave up waiting")):
                late = asyncio.Event()

                async def impatient(
                    lease: Lease, late: asyncio.Event = late, outcome: Any = outcome
                ) -> Json:
                    asking = asyncio.create_task(lease.question("roots/list", None))
                    await late.wait()
                    asking.cancel()
                    if isinstance(outcome, RpcError):
                        raise outcome
                    return outcome

                state = (await lot.begin(impatient))["requestState"]
                late.set()
                await yield_to_loop()
                if isinstance(outcome, RpcError):
                    with pytest.raises(RpcError, match="gave up"):
                        await lot.resume(state, {"q1": {}})
                else:
                    assert await lot.resume(state, {"q1": {}}) == {"done": True}

    run(main())


def test_what_the_server_says_after_the_answer_goes_to_the_request_that_waits() -> None:
    """PRO-4: under that request's own token."""

    async def main() -> None:
        async with Lot() as lot:

            async def works(lease: Lease) -> Json:
                lease.progress({"progressToken": "wire", "progress": 1})
                await lease.question("roots/list", None)
                lease.progress({"progressToken": "wire", "progress": 2})
                lease.notification("notifications/message", {"level": "error"})
                return {}

            first, second = (
                modern_caller(askable=True),
                modern_caller(askable=True, log_level="info"),
            )
            assert isinstance(first.voice, RecordingChannel) and isinstance(
                second.voice, RecordingChannel
            )
            state = (await lot.begin(works, first, _meta={"progressToken": "one"}))["requestState"]
            await lot.resume(state, {"q1": {}}, second, _meta={"progressToken": "two"})
            assert [(m, p.get("progressToken")) for m, p in first.voice.told] == [
                ("notifications/progress", "one")
            ]
            assert [(m, p.get("progressToken")) for m, p in second.voice.told] == [
                ("notifications/progress", "two"),
                ("notifications/message", None),
            ]

    run(main())


def test_what_the_server_says_while_the_client_is_away_with_a_question_is_told_when_it_comes_back() -> (
    None
):
    """PRO-4: no step of the progress is lost between two requests of one call."""

    async def main() -> None:
        async with Lot() as lot:
            away = asyncio.Event()
            said = asyncio.Event()

            async def works(lease: Lease) -> Json:
                question = asyncio.ensure_future(lease.question("roots/list", None))
                await away.wait()
                lease.progress({"progressToken": "wire", "progress": 1})
                lease.notification("notifications/message", {"level": "error"})
                said.set()
                await question
                lease.progress({"progressToken": "wire", "progress": 2})
                return {}

            first, second = (
                modern_caller(askable=True),
                modern_caller(askable=True, log_level="info"),
            )
            assert isinstance(first.voice, RecordingChannel) and isinstance(
                second.voice, RecordingChannel
            )
            state = (await lot.begin(works, first, _meta={"progressToken": "one"}))["requestState"]
            away.set()
            await said.wait()
            await lot.resume(state, {"q1": {}}, second, _meta={"progressToken": "two"})
            assert first.voice.told == []
            assert [
                (m, p.get("progressToken"), p.get("progress")) for m, p in second.voice.told
            ] == [
                ("notifications/progress", "two", 1),
                ("notifications/message", None, None),
                ("notifications/progress", "two", 2),
            ]

    run(main())


@pytest.mark.parametrize(
    ("size", "kept"), [(1, bridges.HELD_BACK), (20_000, 3), (bridges.HELD_BACK_BYTES + 1, 0)]
)
def test_what_is_held_back_for_a_client_that_is_away_is_bounded(size: int, kept: int) -> None:
    """SEC-7: in number and in bytes; the newest stay."""

    async def main() -> None:
        async with Lot() as lot:
            parked = None

            async def works(lease: Lease) -> Json:
                nonlocal parked
                parked = lease.parked
                return await asks_once(lease)

            back = modern_caller(askable=True)
            assert isinstance(back.voice, RecordingChannel)
            state = (await lot.begin(works, _meta={"progressToken": "one"}))["requestState"]
            assert parked is not None
            numbers = range(10 * bridges.HELD_BACK)
            for number in numbers:
                assert parked.hold_back(
                    "notifications/progress", {"progress": number, "message": "x" * size}
                )
            await lot.resume(state, {"q1": {}}, back)
            told = [params["progress"] for _, params in back.voice.told]
            assert told == list(numbers)[len(numbers) - kept :]

    run(main())
