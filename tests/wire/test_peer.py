"""One side of a conversation, with the other side under the test's control, message by message."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.clock import LoopClock
from kit.loop import never_return, run, yield_to_loop
from kit.until import until
from mcpx.model.call import Json
from mcpx.model.errors import (
    GATEWAY_ENDING,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    SERVER_DIED,
    SERVER_GARBAGE,
    SERVER_TIMEOUT,
    SERVER_TOO_LARGE,
    RpcError,
    Unavailable,
)
from mcpx.wire import peer as peer_module
from mcpx.wire.peer import Peer


class Other:
    """The other side: keeps what was sent to it, and is the owner (`Inbound`) of the peer as
    well."""

    def __init__(self, answer: Callable[[Json], Any] | None = None, **options: Any) -> None:
        self.got: list[Json] = []
        self.heard: list[tuple[str, Json]] = []
        self.reasons: list[str] = []
        self._answer = answer
        self.peer = Peer("srv", self._take, self, **options)

    def _take(self, raw: bytes) -> None:
        self.got.append(json.loads(raw))

    async def request(self, message: Json) -> Json:
        assert self._answer is not None
        return await self._answer(message)

    def notification(self, method: str, params: Json) -> None:
        self.heard.append((method, params))

    def closed(self, reason: str) -> None:
        self.reasons.append(reason)

    def send(self, **message: Any) -> None:
        self.peer.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def asked(self, count: int) -> list[Json]:
        """The first so many messages, once they are there."""
        await until(lambda: len(self.got) >= count)
        return self.got[:count]


class Heard:
    """An meanwhile that keeps what it hears."""

    def __init__(self) -> None:
        self.steps: list[Json] = []

    def progress(self, params: Json) -> None:
        self.steps.append(params)

    def notification(self, method: str, params: Json) -> None:
        raise AssertionError(method)

    async def question(self, method: str, params: Json | None) -> Json:
        raise AssertionError(method)

    def paused(self, retry_ms: int) -> None:
        raise AssertionError(retry_ms)


# --- replies


def test_replies_out_of_order_find_their_requests() -> None:
    async def main() -> None:
        other = Other()
        calls = [asyncio.create_task(other.peer.request("m", {"n": n})) for n in range(200)]
        asked = await other.asked(200)
        assert len({message["id"] for message in asked}) == 200
        for message in sorted(asked, key=lambda m: hash((m["id"] * 7919) % 201)):
            other.send(id=message["id"], result={"n": message["params"]["n"]})
        assert [(await call)["n"] for call in calls] == list(range(200))
        assert len(other.peer.waiting) == 0

    run(main())


def test_a_result_and_an_error_arrive_as_they_are() -> None:
    """PRO-6: unknown fields, code, message and data."""

    async def main() -> None:
        other = Other()
        good = asyncio.create_task(other.peer.request("m", {}))
        bad = asyncio.create_task(other.peer.request("m", {}))
        await other.asked(2)
        result = {"content": [], "_meta": {"x/y": [1, None]}, "future": {"a": 1}}
        error = {"code": -32099, "message": "no", "data": {"why": []}, "retryable": True}
        other.send(id=2, error=error)
        other.send(id=1, result=result)
        assert await good == result
        with pytest.raises(RpcError) as caught:
            await bad
        assert caught.value.to_json() == error
        assert not isinstance(caught.value, Unavailable)

    run(main())


@pytest.mark.parametrize("id", [99, "1", None, 1.0, True, [1], {"a": 1}])
def test_a_reply_to_nothing_that_waits_is_counted_and_harms_nobody(id: Any) -> None:
    async def main() -> None:
        other = Other()
        call = asyncio.create_task(other.peer.request("m", {}))
        await other.asked(1)
        other.send(id=id, result={"wrong": True})
        other.send(id=id, error={"code": 1, "message": "wrong"})
        assert other.peer.waiting.strays == 2
        other.send(id=1, result={"right": True})
        assert await call == {"right": True}

    run(main())


def test_the_first_of_two_replies_counts() -> None:
    async def main() -> None:
        other = Other()
        call = asyncio.create_task(other.peer.request("m", {}))
        await other.asked(1)
        other.send(id=1, result={"first": True})
        other.send(id=1, error={"code": 1, "message": "second"})
        assert await call == {"first": True}
        other.send(id=1, result={"third": True})
        assert other.peer.waiting.strays == 2

    run(main())


def test_a_result_that_is_no_object_is_an_error_that_names_the_server() -> None:
    """SRC-8."""

    async def main() -> None:
        other = Other()
        for result in (None, [], "x", 5):
            call = asyncio.create_task(other.peer.request("m", {}))
            await yield_to_loop()
            other.send(id=other.got[-1]["id"], result=result)
            with pytest.raises(Unavailable, match=r"^srv: ") as caught:
                await call
            assert caught.value.code == SERVER_GARBAGE

    run(main())


# --- giving up


def test_a_cancelled_request_is_cancelled_at_the_other_side_once_and_its_late_reply_ignored() -> (
    None
):
    """LIF-6: and nothing else on that connection is disturbed."""

    async def main() -> None:
        other = Other()
        call = asyncio.create_task(other.peer.request("m", {}))
        beside = asyncio.create_task(other.peer.request("m", {}))
        await other.asked(2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        cancelled = [m for m in other.got if m.get("method") == "notifications/cancelled"]
        assert [m["params"]["requestId"] for m in cancelled] == [1]
        other.send(id=1, result={"late": True})
        assert other.peer.waiting.strays == 1
        other.send(id=2, result={})
        assert await beside == {}
        await other.peer.close()
        assert len(other.got) == 3

    run(main())


def test_a_request_out_of_time_is_cancelled_at_the_other_side_once_and_its_late_reply_ignored() -> (
    None
):
    """LIF-6."""

    async def main() -> None:
        other = Other()
        with pytest.raises(Unavailable, match=r"^srv: no answer within 0\.01 s$") as caught:
            await other.peer.request("m", {}, timeout=0.01)
        assert caught.value.code == SERVER_TIMEOUT
        assert [m.get("method") for m in other.got] == ["m", "notifications/cancelled"]
        assert other.got[1]["params"]["requestId"] == other.got[0]["id"]
        other.send(id=1, result={"late": True})
        other.peer.lose("gone")
        assert other.peer.waiting.strays == 1
        assert len(other.got) == 2

    run(main())


def test_initialize_is_never_cancelled_in_words() -> None:
    """The protocol forbids it."""

    async def main() -> None:
        other = Other()
        with pytest.raises(Unavailable):
            await other.peer.request("initialize", {}, timeout=0.01)
        assert [m.get("method") for m in other.got] == ["initialize"]

    run(main())


def test_an_error_of_the_server_that_looks_like_our_time_out_cancels_nothing() -> None:
    async def main() -> None:
        other = Other()
        call = asyncio.create_task(other.peer.request("m", {}))
        await other.asked(1)
        other.send(id=1, error={"code": SERVER_TIMEOUT, "message": "theirs"})
        with pytest.raises(RpcError, match="theirs"):
            await call
        assert len(other.got) == 1

    run(main())


def test_progress_starts_the_deadline_anew_but_not_beyond_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIF-6."""

    async def main() -> None:
        clock = LoopClock(monkeypatch)
        other, meanwhile = Other(), Heard()
        params = {"_meta": {"progressToken": "mine"}}
        call = asyncio.create_task(
            other.peer.request("m", params, meanwhile=meanwhile, timeout=300.0)
        )
        [asked] = await other.asked(1)
        token = asked["params"]["_meta"]["progressToken"]
        for step in range(13):
            await clock.advance(270)
            other.send(
                method="notifications/progress", params={"progressToken": token, "progress": step}
            )
            assert not call.done()
        await clock.advance(
            80
        )  # 13 × 270 + 80 s: within five minutes of the last progress, still within the hour
        assert not call.done()
        await clock.advance(11)
        with pytest.raises(Unavailable) as caught:
            await call
        assert caught.value.code == SERVER_TIMEOUT
        assert [step["progress"] for step in meanwhile.steps] == list(range(13))

    run(main(), seconds=10_000)


def test_progress_of_another_request_moves_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        clock = LoopClock(monkeypatch)
        other = Other()
        calls = [
            asyncio.create_task(
                other.peer.request(
                    "m", {"_meta": {"progressToken": 1}}, meanwhile=Heard(), timeout=300.0
                )
            )
            for _ in range(2)
        ]
        asked = await other.asked(2)
        await clock.advance(200)
        token = asked[0]["params"]["_meta"]["progressToken"]
        other.send(method="notifications/progress", params={"progressToken": token})
        await clock.advance(150)
        assert [call.done() for call in calls] == [False, True]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    run(main(), seconds=10_000)


# --- progress


def test_two_callers_with_the_same_token_each_hear_their_own_progress() -> None:
    """PRO-4: tokens are ours on the way out, the caller's own on the way back."""

    async def main() -> None:
        other = Other()
        errands = [Heard(), Heard()]
        params = {"_meta": {"progressToken": "same", "other": 1}, "name": "x"}
        calls = [
            asyncio.create_task(other.peer.request("m", params, meanwhile=meanwhile))
            for meanwhile in errands
        ]
        asked = await other.asked(2)
        for message in asked:
            assert message["params"]["_meta"]["other"] == 1
            token = message["params"]["_meta"]["progressToken"]
            other.send(
                method="notifications/progress",
                params={"progressToken": token, "progress": message["id"]},
            )
        assert [meanwhile.steps for meanwhile in errands] == [
            [{"progressToken": "same", "progress": message["id"]}] for message in asked
        ]
        assert params["_meta"]["progressToken"] == "same"
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    run(main())


@pytest.mark.parametrize("token", [None, 1.0, [], {}, "1", 77])
def test_progress_for_nothing_that_runs_goes_to_the_owner(token: Any) -> None:
    async def main() -> None:
        other, meanwhile = Other(), Heard()
        call = asyncio.create_task(
            other.peer.request("m", {"_meta": {"progressToken": 1}}, meanwhile=meanwhile)
        )
        await other.asked(1)
        other.send(method="notifications/progress", params={"progressToken": token})
        assert meanwhile.steps == []
        assert other.heard == [("notifications/progress", {"progressToken": token})]
        call.cancel()
        await asyncio.wait([call])

    run(main())


# --- requests of the other side


def test_requests_of_the_other_side_are_answered_as_they_finish() -> None:
    async def main() -> None:
        gates = {1: asyncio.Event(), 2: asyncio.Event()}

        async def answer(message: Json) -> Json:
            await gates[message["id"]].wait()
            return {"n": message["id"]}

        other = Other(answer)
        other.send(id=1, method="a")
        other.send(id=2, method="b", params={})
        gates[2].set()
        await other.asked(1)
        gates[1].set()
        await other.asked(2)
        assert other.got == [{"jsonrpc": "2.0", "id": n, "result": {"n": n}} for n in (2, 1)]

    run(main())


def test_a_cancelled_incoming_request_is_stopped_and_never_answered() -> None:
    async def main() -> None:
        stopped = asyncio.Event()

        async def answer(message: Json) -> Json:
            if message["id"] != "slow":
                return {}
            try:
                return await never_return()
            finally:
                stopped.set()

        other = Other(answer)
        other.send(id="slow", method="a")
        await yield_to_loop()
        other.send(method="notifications/cancelled", params={"requestId": "slow"})
        await stopped.wait()
        other.send(id="next", method="a")
        assert await other.asked(1) == [{"jsonrpc": "2.0", "id": "next", "result": {}}]
        assert other.heard == []

    run(main())


def test_a_request_cancelled_in_the_same_breath_never_starts() -> None:
    async def main() -> None:
        started: list[Any] = []

        async def answer(message: Json) -> Json:
            started.append(message["id"])
            return {}

        other = Other(answer)
        other.send(id=1, method="a")
        other.send(method="notifications/cancelled", params={"requestId": 1})
        await yield_to_loop()
        assert started == []
        assert other.got == []
        other.send(id=1, method="a")  # the id is free again
        await other.asked(1)
        assert started == [1]

    run(main())


def test_an_id_used_again_after_its_cancellation_can_be_cancelled_again() -> None:
    async def main() -> None:
        stopped: list[str] = []

        async def answer(message: Json) -> Json:
            try:
                return await never_return()
            finally:
                stopped.append(message["method"])

        other = Other(answer)
        other.send(id=1, method="first")
        await yield_to_loop()
        other.send(method="notifications/cancelled", params={"requestId": 1})
        other.send(id=1, method="second")  # before the first has come to its end
        await yield_to_loop()
        assert stopped == ["first"]
        other.send(method="notifications/cancelled", params={"requestId": 1})
        await yield_to_loop()
        assert stopped == ["first", "second"]
        assert other.got == []

    run(main())


@pytest.mark.parametrize("id", [None, 1.0, True, [], {}, "unknown", 5])
def test_a_cancellation_of_nothing_is_harmless(id: Any) -> None:
    async def main() -> None:
        other = Other()
        other.send(method="notifications/cancelled", params={"requestId": id})
        await yield_to_loop()
        assert other.got == []

    run(main())


def test_an_id_in_flight_cannot_be_used_twice() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def answer(message: Json) -> Json:
            await gate.wait()
            return {"method": message["method"]}

        other = Other(answer)
        other.send(id=1, method="first")
        other.send(id=1, method="second")
        [refused] = await other.asked(1)
        assert refused["error"]["code"] == INVALID_REQUEST
        gate.set()
        await other.asked(2)
        assert other.got[1]["result"] == {"method": "first"}

    run(main())


def test_a_bug_in_an_answer_is_an_internal_error_that_tells_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async def answer(message: Json) -> Json:
            raise KeyError("secret")

        other = Other(answer)
        other.send(id=1, method="a")
        [reply] = await other.asked(1)
        assert reply["error"] == {"code": INTERNAL_ERROR, "message": "Internal error"}

    with caplog.at_level(logging.ERROR):
        run(main())
    assert "answering a failed" in caplog.text


def test_an_error_raised_for_the_other_side_reaches_it_unchanged() -> None:
    async def main() -> None:
        async def answer(message: Json) -> Json:
            raise RpcError(-5, "no", {"a": 1})

        other = Other(answer)
        other.send(id=1, method="a")
        [reply] = await other.asked(1)
        assert reply["error"] == {"code": -5, "message": "no", "data": {"a": 1}}

    run(main())


@pytest.mark.parametrize(
    "value", [{"a": object()}, {"a": {1, 2}}, {1: "number as a key", "a": float}]
)
def test_a_reply_that_cannot_be_written_is_answered_with_an_error(value: Any) -> None:
    async def main() -> None:
        async def answer(message: Json) -> Json:
            return value

        other = Other(answer)
        other.send(id=1, method="a")
        [reply] = await other.asked(1)
        assert reply["id"] == 1
        assert reply["error"]["code"] == INTERNAL_ERROR

    run(main())


def test_a_number_no_json_has_is_refused_in_each_direction_and_hangs_nobody() -> None:
    """What `1e400` of a peer becomes inside cannot be written again."""

    async def main() -> None:
        async def answer(message: Json) -> Json:
            return message["params"]

        other = Other(answer)
        other.peer.receive(b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1e400}}')
        [reply] = await other.asked(1)
        assert reply["error"]["code"] == INTERNAL_ERROR
        call = asyncio.create_task(other.peer.request("m", {}))
        await other.asked(2)
        other.peer.receive(b'{"jsonrpc":"2.0","id":1,"result":{"x":1e400}}')
        infinite = await call
        with pytest.raises(RpcError, match="cannot be sent"):
            await other.peer.request("m", infinite)
        assert len(other.peer.waiting) == 0
        other.peer.notify("n", infinite)  # nobody waits for it, and nothing fails
        assert len(other.got) == 2

    run(main())


# --- garbage


@pytest.mark.parametrize(
    ("raw", "code", "id"),
    [
        (b"not json", PARSE_ERROR, None),
        (b"\xff\xfe", PARSE_ERROR, None),
        (b"[" * 5000, PARSE_ERROR, None),
        (b"[]", INVALID_REQUEST, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', INVALID_REQUEST, None),
        (b'{"id":7,"method":"ping"}', INVALID_REQUEST, 7),
        (b'{"jsonrpc":"2.0","id":"x","method":"ping","params":[]}', INVALID_REQUEST, "x"),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST, None),
        (b"5", INVALID_REQUEST, None),
    ],
)
def test_garbage_of_a_client_is_answered_and_of_a_server_counted(
    raw: bytes, code: int, id: Any
) -> None:
    """PRO-1: batches too."""

    async def main() -> None:
        client = Other(answer_garbage=True)
        client.peer.receive(raw)
        [reply] = client.got
        assert (reply["id"], reply["error"]["code"]) == (id, code)
        server = Other()
        server.peer.receive(raw)
        assert server.got == []
        assert client.peer.waiting.noise == server.peer.waiting.noise == 1

    run(main())


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.fixed_dictionaries(
            {"jsonrpc": st.just("2.0")},
            optional={
                "id": st.sampled_from([1, 2, "1", None, 1.5, True, [], {}]),
                "method": st.sampled_from(
                    ["m", "notifications/progress", "notifications/cancelled", 5, None]
                ),
                "params": st.sampled_from(
                    [{}, [], None, {"requestId": []}, {"progressToken": {}}, {"requestId": 1}]
                ),
                "result": st.sampled_from([{}, [], None]),
                "error": st.sampled_from([{}, [], None, {"code": "x"}]),
            },
        ).map(lambda message: json.dumps(message).encode()),
        max_size=12,
    )
)
def test_whatever_the_other_side_sends_the_next_request_still_works(sent: list[bytes]) -> None:
    async def main() -> None:
        async def answer(message: Json) -> Json:
            return {}

        other = Other(answer, answer_garbage=True)
        for raw in sent:
            other.peer.receive(raw)
        await yield_to_loop()
        call = asyncio.create_task(other.peer.request("m", {}))
        await yield_to_loop(3)
        other.send(id=other.got[-1]["id"], result={"fine": True})
        assert await call == {"fine": True}
        await other.peer.close()

    run(main())


# --- the end


def test_losing_the_carrier_fails_everything_that_waits_once() -> None:
    """SRC-8: with the server's name and what is known of the reason."""

    async def main() -> None:
        stopped: list[int] = []

        async def answer(message: Json) -> Json:
            try:
                return await never_return()
            finally:
                stopped.append(1)

        other = Other(answer)
        calls = [asyncio.create_task(other.peer.request("m", {}, timeout=60)) for _ in range(5)]
        await other.asked(5)
        other.send(id="q", method="question")
        await yield_to_loop()
        other.peer.lose("the process exited with code 3")
        other.peer.lose("again")
        for call in calls:
            with pytest.raises(
                Unavailable, match=r"^srv: the process exited with code 3$"
            ) as caught:
                await call
            assert caught.value.code == SERVER_DIED
        await yield_to_loop()
        assert stopped == [1]
        assert other.reasons == ["the process exited with code 3"]
        assert len(other.got) == 5  # nothing is said into a carrier that is gone
        with pytest.raises(Unavailable, match="code 3"):
            await other.peer.request("m", {})
        other.peer.notify("n", None)
        other.peer.send({"jsonrpc": "2.0", "id": 1, "result": {}})
        assert len(other.got) == 5
        assert len(other.peer.waiting) == 0

    run(main())


def test_closing_ends_what_is_being_answered_and_tells_the_owner_once() -> None:
    async def main() -> None:
        async def answer(message: Json) -> Json:
            return await never_return()

        other = Other(answer)
        other.send(id=1, method="a")
        await yield_to_loop()
        await other.peer.close()
        await other.peer.close()
        assert other.got == []
        assert len(other.reasons) == 1

    run(main())


def test_finishing_lets_answers_out_within_the_grace() -> None:
    """LIF-8."""

    async def main() -> None:
        gate = asyncio.Event()

        async def answer(message: Json) -> Json:
            await (gate.wait() if message["method"] == "quick" else never_return())
            return {}

        other = Other(answer)
        other.send(id=1, method="quick")
        await yield_to_loop()
        finishing = asyncio.create_task(other.peer.finish(5.0))
        await yield_to_loop()
        assert not finishing.done()
        gate.set()
        await finishing
        assert [m["id"] for m in other.got] == [1]
        other.send(id=2, method="endless")
        await yield_to_loop()
        await other.peer.finish(0.01)
        assert (other.got[-1]["id"], other.got[-1]["error"]["code"]) == (2, GATEWAY_ENDING)
        await other.peer.close()
        assert len(other.got) == 2

    run(main())


# --- messages over the limit


@pytest.mark.parametrize(
    "head",
    [
        b'{"jsonrpc":"2.0","id":2,"result":{"content":[',
        b'{"id": 2, "jsonrpc": "2.0", "result": {"id": 1',
        b' {\n "jsonrpc" : "2.0" ,\r\n "id" : 2 ,"error":{"code":1,"id":1',
    ],
)
def test_an_answer_over_the_limit_fails_its_own_request(head: bytes) -> None:
    """SEC-6 and SRC-8."""

    async def main() -> None:
        other = Other()
        calls = [asyncio.create_task(other.peer.request("m", {})) for _ in range(3)]
        await other.asked(3)
        other.peer.waiting.too_large(head, 16_000_000)
        with pytest.raises(
            Unavailable, match=r"^srv: the answer is larger than 16,000,000 bytes$"
        ) as caught:
            await calls[1]
        assert caught.value.code == SERVER_TOO_LARGE
        other.send(id=1, result={})
        other.send(id=3, result={})
        assert await asyncio.gather(calls[0], calls[2]) == [{}, {}]

    run(main())


@pytest.mark.parametrize(
    "head",
    [
        # Node servers write the result before the id
        b'{"result":{"rows":[{"id":1,"name":"x"},{"id":2',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"id":1,',
        b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{',
        b'{"jsonrpc":"2.0","id":77,"result":{',
        b"",
    ],
)
def test_a_message_over_the_limit_that_answers_nobody_known_fails_nobody(head: bytes) -> None:
    async def main() -> None:
        other = Other()
        calls = [asyncio.create_task(other.peer.request("m", {})) for _ in range(2)]
        await other.asked(2)
        other.peer.waiting.too_large(head, 10)
        assert other.peer.waiting.strays == 1
        await yield_to_loop()
        assert not any(call.done() for call in calls)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)

    run(main())


@pytest.mark.parametrize("head", [b"", b'{"result":{"rows":[{"id":5,"name":"x"}'])
def test_alone_in_flight_a_request_is_the_one_that_was_answered(head: bytes) -> None:
    async def main() -> None:
        other = Other()
        call = asyncio.create_task(other.peer.request("m", {}))
        await other.asked(1)
        other.peer.waiting.too_large(head, 10)
        with pytest.raises(Unavailable) as caught:
            await call
        assert caught.value.code == SERVER_TOO_LARGE

    run(main())


@pytest.mark.parametrize(
    "head",
    [
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"',
        b'{"method":"notifications/message","params":{"data":"',
        b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{',
    ],
)
def test_a_message_over_the_limit_that_is_no_answer_does_not_fail_the_one_call_there_is(
    head: bytes,
) -> None:
    async def main() -> None:
        other = Other()
        call = asyncio.create_task(other.peer.request("m", {}))
        await other.asked(1)
        other.peer.waiting.too_large(head, 10)
        other.send(id=1, result={"fine": True})
        assert await call == {"fine": True}

    run(main())


def test_an_answer_that_is_no_json_fails_its_own_request() -> None:
    """SRC-8: and not after the whole time-out."""

    async def main() -> None:
        other = Other()
        calls = [asyncio.create_task(other.peer.request("m", {})) for _ in range(2)]
        await other.asked(2)
        other.peer.receive(b'{"jsonrpc":"2.0","id":2,"result":{"text": "cut of')
        with pytest.raises(Unavailable, match=r"^srv: ") as caught:
            await calls[1]
        assert caught.value.code == SERVER_GARBAGE
        assert other.peer.waiting.noise == 1
        other.peer.receive(b'warning: {"id":1,"result":{}')
        other.send(id=1, result={})
        assert await calls[0] == {}

    run(main())


def test_the_cap_on_a_call_is_an_hour() -> None:
    """LIF-6."""
    assert peer_module.LONGEST_CALL == 3600.0
