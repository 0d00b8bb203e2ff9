"""OBS-1: the latest calls, kept only while somebody looks."""

import sys

from kit.clock import Clock
from mcpx.model.call import Call, Caller
from mcpx.model.events import Bus, CallFinished, Passage
from mcpx.telemetry.call_log import IDLE_SECONDS, MAX_CALLS, CallLog

ALICE = Caller(principal="alice", client={"name": "c"})


def over(number: int = 0, caller: Caller = ALICE) -> CallFinished:
    call = Call("resources/read", {"uri": "x", "huge": ["x"] * 100}, caller)
    return CallFinished(
        Passage("s", f"file:///{number}?key=s3cr3t", None, call, call.params), 0.5, "ok"
    )


def test_nothing_is_kept_before_somebody_looks() -> None:
    bus = Bus()
    calls = CallLog(bus)
    assert not bus.heard(CallFinished)
    assert calls.look() == {"calls": [], "last": 0, "was_on": False}
    bus.publish(over())
    told = calls.look()
    assert told["was_on"] and told["last"] == 1
    (call,) = told["calls"]
    assert call.pop("time") > 0
    assert call == {
        "number": 1,
        "principal": "alice",
        "client": "c",
        "method": "resources/read",
        "server": "s",
        "name": "file:///0?…",
        "outcome": "ok",
        "ms": 500.0,
    }


def test_who_looks_again_gets_what_came_since() -> None:
    bus = Bus()
    calls = CallLog(bus)
    last = calls.look()["last"]
    for number in range(10):
        bus.publish(over(number))
    assert [call["number"] for call in calls.look(after=last)["calls"]] == list(range(1, 11))
    assert [call["number"] for call in calls.look(after=8)["calls"]] == [9, 10]
    assert [call["number"] for call in calls.look(limit=3)["calls"]] == [8, 9, 10]
    assert calls.look(limit=0)["calls"] == calls.look(after=99)["calls"] == []


def test_it_takes_no_more_than_a_bounded_room() -> None:
    bus = Bus()
    log = CallLog(bus)
    log.look()
    hostile = Caller(principal="p" * 99_999, client={"name": "n" * 99_999})
    for number in range(3 * MAX_CALLS):
        bus.publish(over(number, hostile))
    calls = log.look()["calls"]
    assert [call["number"] for call in calls] == list(range(2 * MAX_CALLS + 1, 3 * MAX_CALLS + 1))
    assert sum(sys.getsizeof(value) for call in calls for value in call.values()) < 1_000_000


def test_it_ends_when_nobody_has_looked_for_long() -> None:
    clock = Clock()
    bus = Bus()
    calls = CallLog(bus, clock=clock)
    calls.look()
    bus.publish(over())
    clock.advance(IDLE_SECONDS + 1)
    bus.publish(over())
    assert not bus.heard(CallFinished)
    assert calls.look() == {"calls": [], "last": 1, "was_on": False}
