"""What servers and clients can fill is bounded (SEC-6): chatter, questions, subscriptions, waiting
calls, names."""

import asyncio
import logging
from typing import Any

import pytest

from kit.callers import modern_caller, older_caller
from kit.clock import Clock
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer, echo
from kit.until import until
from mcpx.model.call import Json
from mcpx.model.errors import OVERLOADED, RpcError, Unavailable
from mcpx.upstreams import bridges, link, link_owner, links, subscriptions
from mcpx.upstreams.link_owner import Chatter
from mcpx.upstreams.negotiate import LARGEST_ABOUT_ITSELF, LONGEST_INSTRUCTIONS
from mcpx.upstreams.wishes import LONGEST, told_name
from mcpx.wire.peer import Waiting
from upstreams.test_upstream import Running, fine

# --- chatter


def test_a_server_may_say_a_good_deal_at_once_and_then_so_much_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    talk = Chatter("toy", lambda *_: None, clock)
    with caplog.at_level(logging.WARNING):
        assert sum(talk.admits({"data": "x"}) for _ in range(5_000)) == link_owner.BURST
    assert len(caplog.records) == 1 and "left out" in caplog.text
    clock.advance(1)
    assert sum(talk.admits({"data": "x"}) for _ in range(5_000)) == link_owner.RATE


def test_chatter_is_bounded_in_bytes_too() -> None:
    talk = Chatter("toy", lambda *_: None, lambda: 0.0)
    assert sum(talk.admits({"data": "x" * 2**20}) for _ in range(100)) <= 5
    assert not Chatter("toy", lambda *_: None).admits({"data": "x" * int(link_owner.BURST_BYTES)})


def test_of_many_changes_of_one_resource_the_latest_is_told_to_all_who_want_it() -> None:
    """PRO-4."""

    async def main() -> None:
        told: list[tuple[Json, frozenset[str]]] = []
        talk = Chatter("toy", lambda params, to: told.append((params, to)), lambda: 0.0)
        for number in range(2_000):
            talk.updated({"uri": f"x:{number % 2}", "n": number}, frozenset({f"s{number % 4}"}))
        assert len(told) == link_owner.BURST
        await until(lambda: len(told) == link_owner.BURST + 2)
        assert [params["n"] for params, _ in told[-2:]] == [1998, 1999]
        assert told[-2][1] == {"s0", "s2"}
        talk.updated({"uri": "x:1"}, frozenset({"s"}))
        talk.close()

    run(main())


def test_a_storm_of_messages_does_not_reach_the_gateway_whole() -> None:
    async def main() -> None:
        async with Running(ScriptedServer("older")) as on:
            for number in range(3_000):
                on.toy.lines[0].say("notifications/message", {"level": "info", "data": number})
            await yield_to_loop(100)
            await until(lambda: len(on.hub.words) >= link_owner.BURST)
            assert len(on.hub.words) < 2 * link_owner.BURST

    run(main())


# --- lists


def test_a_server_that_never_stops_announcing_changes_is_read_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_owner, "DEBOUNCE", 0.001)
    monkeypatch.setattr(link_owner, "REST", 0.02)

    async def main() -> None:
        toy = ScriptedServer("older")
        async with Running(toy):
            line, end = toy.lines[0], asyncio.get_running_loop().time() + 1.0
            while asyncio.get_running_loop().time() < end:
                line.say("notifications/tools/list_changed")
                await asyncio.sleep(0)
            # 0.02 x 1.5^n: nine readings in a second; without a floor there would be hundreds.
            assert 2 <= line.methods().count("tools/list") <= 12
            toy.tools["late"] = echo
            line.say("notifications/tools/list_changed")
            await until(lambda: line.methods()[-1] == "tools/list" and len(toy.tools) == 2)

    run(main())


def test_changes_of_one_session_s_lists_are_read_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_owner, "REST", 0.05)

    async def main() -> None:
        toy = ScriptedServer("older")
        async with Running(toy, isolation="per_session") as on:
            await on.call(older_caller("one", askable=True))
            own = toy.lines[-1]
            assert own is not toy.lines[0]
            for _ in range(200):
                own.say("notifications/tools/list_changed")
            await until(lambda: "tools/list" in own.methods())
            await yield_to_loop(50)
            for _ in range(200):
                own.say("notifications/tools/list_changed")
            await yield_to_loop(50)
            assert own.methods().count("tools/list") == 1
            await until(lambda: own.methods().count("tools/list") == 2)

    run(main())


def test_what_is_left_out_is_said_once_and_shown_as_long_as_it_is_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """NAM-6."""
    monkeypatch.setattr("mcpx.upstreams.listing.ITEMS", 2)
    monkeypatch.setattr(link_owner, "REST", 0.01)

    async def main() -> None:
        toy = ScriptedServer("older", tools=("a", "b", "c"))
        async with Running(toy) as on:
            notes = ["its tools are cut after 2: more than 2"]
            assert on.upstream.describe()["notes"] == notes
            for _ in range(3):
                count = len(on.hub.changes)
                toy.lines[0].say("notifications/tools/list_changed")
                await until(lambda count=count: len(on.hub.changes) > count)
            assert on.upstream.describe()["notes"] == notes
            del toy.tools["c"]
            toy.lines[0].say("notifications/tools/list_changed")
            await until(lambda: on.upstream.describe()["notes"] == [])

    with caplog.at_level(logging.WARNING):
        run(main())
    assert caplog.text.count("are cut") == 1


# --- what a server says about itself


def test_what_a_server_says_about_itself_is_bounded_and_its_capabilities_still_count() -> None:
    async def main() -> None:
        async def greet(line: ScriptedConnection, params: Json) -> Json:
            line.era = "older"
            able = {
                "tools": {"listChanged": True, "x": {}},
                "experimental": {str(n): {} for n in range(50_000)},
            }
            about = {"name": "n" * 1_000_000, "version": {"deep": [1] * 100_000}}
            greeting = {"protocolVersion": "2025-06-18", "capabilities": able, "serverInfo": about}
            return {**greeting, "instructions": "i" * 5_000_000}

        async with Running(ScriptedServer("older", answers={"initialize": greet})) as on:
            assert len(on.upstream.instructions) == LONGEST_INSTRUCTIONS
            (only,) = on.upstream.links
            assert only.terms.capabilities["tools"] == {"listChanged": True}
            assert len(str(only.terms)) < LARGEST_ABOUT_ITSELF + LONGEST_INSTRUCTIONS
            assert len(on.upstream.definitions["tools"]) == 1

    run(main())


# --- questions


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_questions_that_wait_for_an_answer_are_bounded_in_number_and_bytes(size: int) -> None:
    async def main() -> None:
        outcomes: list[Any] = []

        async def many(line: ScriptedConnection, params: Json) -> Json:
            async def ask() -> None:
                try:
                    await line.ask("elicitation/create", {"message": "q" * size})
                except RpcError as error:
                    outcomes.append(error.code)

            tasks = [
                asyncio.create_task(ask())
                for _ in range(link.MOST_QUESTIONS + 10 if size < 100 else 20)
            ]
            await asyncio.wait(tasks)
            return {}

        async with Running(ScriptedServer("older", tools={"many": many})) as on:
            caller = older_caller(askable=True)
            assert caller.voice is not None
            caller.voice.ask = never_return
            call = asyncio.create_task(on.call(caller, "many"))
            waiting = link.MOST_QUESTIONS if size < 100 else link.QUESTION_BYTES // size
            asked = link.MOST_QUESTIONS + 10 if size < 100 else 20
            await until(lambda: len(outcomes) == asked - waiting)
            assert set(outcomes) == {OVERLOADED}
            call.cancel()
            await asyncio.wait([call])

    run(main())


def test_a_modern_server_has_so_many_questions_in_a_round() -> None:
    async def main() -> None:
        async def ask(line: ScriptedConnection, params: Json) -> Json:
            questions = {
                str(n): {"method": "roots/list"} for n in range(bridges.QUESTIONS_AT_ONCE + 1)
            }
            return {"resultType": "input_required", "inputRequests": questions}

        async with Running(ScriptedServer("modern", tools={"ask": ask})) as on:
            with pytest.raises(Unavailable, match="65 questions at once"):
                await on.call(older_caller(askable=True), "ask")

    run(main())


# --- clients


def test_subscriptions_of_one_client_and_of_all_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_ONE", 3)
    monkeypatch.setattr(subscriptions, "MOST", 5)
    monkeypatch.setattr(subscriptions, "MOST_CHARACTERS", 1_000)

    async def main() -> None:
        answers = {"resources/subscribe": fine, "resources/unsubscribe": fine}
        async with Running(
            ScriptedServer(
                "older", capabilities={"resources": {"subscribe": True}}, answers=answers
            )
        ) as on:
            one, two, three = older_caller("one"), older_caller("two"), older_caller("three")
            for number in range(3):
                await on.upstream.subscribe(one, f"x:{number}", {})
            await on.upstream.subscribe(one, "x:1", {})  # has it already
            with pytest.raises(Unavailable, match="one client may have 3"):
                await on.upstream.subscribe(one, "x:3", {})
            with pytest.raises(Unavailable, match="too many subscriptions"):
                await on.upstream.subscribe(two, "x:" + "u" * 1_000, {})
            for number in range(2):
                await on.upstream.subscribe(two, f"y:{number}", {})
            with pytest.raises(Unavailable, match="too many subscriptions") as caught:
                await on.upstream.subscribe(three, "z", {})
            assert caught.value.code == OVERLOADED
            await on.upstream.end_session("one")
            await on.upstream.subscribe(three, "z", {})

    run(main())


def test_calls_that_wait_for_a_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_WAITING", 3)

    async def main() -> None:
        async with Running(
            ScriptedServer("older", tools={"hang": never_return}),
            isolation="per_session",
            max_links=2,
        ) as on:
            calls = [
                asyncio.create_task(on.call(older_caller(f"s{n}", askable=True), "hang"))
                for n in range(10)
            ]
            await until(lambda: sum(call.done() for call in calls) >= 6)
            refused = [call.exception() for call in calls if call.done()]
            assert all(
                isinstance(error, Unavailable) and error.code == OVERLOADED for error in refused
            )
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)

    run(main())


def test_what_clients_call_themselves_is_kept_in_brief() -> None:
    long, other = {"name": "n" * 1_000_000}, {"name": "n" * 999_999}
    assert len(told_name(long)) < 2 * LONGEST
    assert told_name(long) != told_name(other)
    assert told_name({"name": "short"}) == "short"


def test_nothing_is_kept_of_callers_that_had_their_turn_long_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "TURNS", 4)

    async def main() -> None:
        async with Running(ScriptedServer("older")) as on:
            book = on.upstream.links
            for number in range(20):
                wish = book.wishes.of(modern_caller(askable=True))._replace(name=str(number))
                book._turns[wish] = float(number)
            assert len(book._turns) == 4

    run(main())


# --- timers


def test_a_conversation_that_is_over_has_no_timer_once_nothing_waits() -> None:
    """LIF-6: the deadline of a call does not outlive it."""

    async def main() -> None:
        waiting = Waiting("toy")
        one, _, _ = waiting.open("tools/call", {}, None, 300.0)
        two, _, _ = waiting.open("tools/call", {}, None, 300.0)
        waiting.drop(one)
        waiting.wind_down()
        assert waiting._timer is not None  # one still waits, and has its deadline
        waiting.drop(two)
        assert waiting._timer is None
        idle = Waiting("toy")
        idle.drop(idle.open("tools/call", {}, None, 300.0)[0])
        idle.wind_down()
        assert idle._timer is None

    run(main())
