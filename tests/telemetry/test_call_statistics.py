"""Calls over time: counted at a fixed cost, kept in bounds, told for each range."""

import sys
from dataclasses import dataclass, field

import pytest

from kit.clock import Clock
from mcpx.model.call import Call, Caller
from mcpx.model.events import Bus, CallFinished, Outcome, Passage, ToolsListed
from mcpx.model.offer import Offer
from mcpx.telemetry import call_statistics
from mcpx.telemetry.call_series import EDGES, MinuteRate, Series, Tally
from mcpx.telemetry.call_statistics import LEVELS, CallStatistics, Range

BEGIN = 1_800_000_000.0


@dataclass
class Counted:
    clock: Clock = field(default_factory=lambda: Clock(BEGIN))
    bus: Bus = field(default_factory=Bus)

    def __post_init__(self) -> None:
        self.statistics = CallStatistics(self.bus, self.clock)

    def call(
        self,
        server: str = "one",
        seconds: float = 0.01,
        outcome: Outcome = "ok",
        *,
        tool: str = "echo",
        caller: Caller | None = None,
    ) -> None:
        offer = Offer("tools", server, tool, f"{server}_{tool}", {})
        call = Call("tools/call", {}, caller or Caller(client={"name": "tester", "version": "3"}))
        self.bus.publish(CallFinished(Passage(server, tool, offer, call, {}), seconds, outcome))


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_a_percentile_is_right_to_about_a_tenth() -> None:
    tally = Tally()
    for number in range(1, 1001):
        tally.add(number / 1000, False)
    for share, wanted in ((0.5, 0.5), (0.95, 0.95), (0.1, 0.1)):
        found = tally.percentile(share)
        assert found is not None and abs(found - wanted) / wanted < 0.12
    assert Tally().percentile(0.5) is None


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.00005, 3600.0])
def test_what_is_quicker_or_slower_than_all_edges_has_a_place(seconds: float) -> None:
    tally = Tally()
    tally.add(seconds, False)
    found = tally.percentile(0.95)
    assert found is not None and 0 <= found <= EDGES[-1]


@pytest.mark.parametrize("range", list(LEVELS))
def test_no_call_is_lost_or_counted_twice_as_steps_go_by(counted: Counted, range: Range) -> None:
    """However calls fall on steps, every range has all that are not older than it."""
    made: list[float] = []
    for number in [*[7] * 300, *[613] * 60, *[4001] * 40]:
        counted.clock.advance(number)
        counted.call()
        made.append(counted.clock.now)
    step, points = counted.statistics.points(range)
    assert len({point.at for point in points}) == len(points)
    first = points[0].at
    assert points[-1].at <= counted.clock.now < points[-1].at + step
    assert sum(point.calls for point in points) == sum(at >= first for at in made)


def test_a_clock_that_is_put_back_loses_nothing(counted: Counted) -> None:
    counted.call()
    counted.clock.now -= 500
    counted.call()
    counted.clock.advance(1000)
    counted.call()
    assert sum(point.calls for point in counted.statistics.points("1h")[1]) == 3


def test_a_rate_is_that_of_the_last_minute() -> None:
    rate = MinuteRate()
    for second in range(100, 130):
        rate.add(second)
    assert rate.at(130) == 30 and rate.at(159) == 30
    assert rate.at(165) == 24 and rate.at(189) == 0
    rate.add(1000)
    assert rate.at(1000) == 1
    rate.add(990)  # a clock that was put back
    assert rate.at(1000) == 2


def test_a_server_is_summed_up_for_its_last_hour(counted: Counted) -> None:
    assert counted.statistics.server("one") is None
    counted.call(outcome="error")
    counted.clock.advance(4000)
    for _ in range(8):
        counted.call(seconds=0.02)
    counted.call(seconds=2.0, outcome="tool_error")
    told = counted.statistics.server("one")
    assert told is not None and (told.calls, told.errors, told.calls_per_minute) == (9, 1, 9)
    assert told.p50_ms == pytest.approx(20, rel=0.15) and told.p95_ms == pytest.approx(
        2000, rel=0.2
    )
    assert told.last_call == counted.clock.now
    counted.clock.advance(4000)
    later = counted.statistics.server("one")
    assert later is not None and (later.calls, later.p50_ms, later.calls_per_minute) == (0, None, 0)


def test_a_refused_call_counts_for_who_made_it_and_not_for_the_server(counted: Counted) -> None:
    counted.call(outcome="denied")
    assert counted.statistics.server("one") is None and counted.statistics.errors_last_hour() == 1
    assert [client.calls for client in counted.statistics.clients()] == [1]
    assert counted.statistics.minute() == (1, None)


def test_a_call_that_was_cancelled_is_no_error(counted: Counted) -> None:
    counted.call(outcome="cancelled")
    assert counted.statistics.errors_last_hour() == 0


def test_a_tool_is_counted_since_the_beginning(counted: Counted) -> None:
    counted.call(tool="a")
    counted.clock.advance(100_000)
    counted.call(tool="a", outcome="error")
    told = counted.statistics.tool("one", "a")
    assert told is not None and (told.calls, told.errors, told.calls_per_minute) == (2, 1, 1)
    assert counted.statistics.tool("one", "b") is None


def test_what_left_the_configuration_is_forgotten(counted: Counted) -> None:
    counted.call("one")
    counted.call("two")
    counted.statistics.keep(["two"])
    assert (
        counted.statistics.server("one") is None and counted.statistics.tool("one", "echo") is None
    )
    assert counted.statistics.server("two") is not None
    assert sum(point.calls for point in counted.statistics.points("15m")[1]) == 2


def test_clients_are_told_apart_up_to_a_bound_and_what_they_say_is_cut(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_statistics, "MAX_CLIENTS", 3)
    for number in range(10):
        counted.clock.advance(1)
        counted.call(caller=Caller(client={"name": f"{number}" * 1000, "version": ["odd"]}))
    clients = counted.statistics.clients()
    assert [client.key.name[0] for client in clients] == ["7", "8", "9"]
    assert all(len(client.key.name) == 100 and client.version is None for client in clients)
    counted.call(caller=Caller(client={"name": {"odd": 1}}))
    assert counted.statistics.clients()[-1].key.name == ""


def test_servers_and_tools_are_bounded(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_statistics, "MAX_SERVERS", 2)
    monkeypatch.setattr(call_statistics, "MAX_TOOLS", 2)
    for number in range(5):
        counted.call(f"s{number}", tool=f"t{number}")
    told = [counted.statistics.server(f"s{number}") is not None for number in range(5)]
    tools = [counted.statistics.tool(f"s{number}", f"t{number}") is not None for number in range(5)]
    assert told == tools == [True, True, False, False, False]
    assert counted.statistics.minute()[0] == 5


def test_a_client_that_only_lists_is_seen(counted: Counted) -> None:
    caller = Caller(client={"name": "lister"})
    counted.bus.publish(ToolsListed("direct", [], object(), [], True, caller, "direct"))
    (client,) = counted.statistics.clients()
    assert (client.key.name, client.calls, client.last_seen) == ("lister", 0, BEGIN)


def test_nothing_is_heard_any_more_after_the_end(counted: Counted) -> None:
    counted.statistics.end()
    assert not counted.bus.listeners


def test_a_week_of_calls_takes_little_room() -> None:
    """However many calls, a server takes at most some hundred kilobytes."""
    series, now = Series(), BEGIN
    for number in range(50_000):
        now += 12
        series.add(now, 0.001 * (number % 300), False)
    tallies = [tally for steps in series._levels for _, tally in steps]
    assert sum(sys.getsizeof(tally.slots) + 100 for tally in tallies) < 300_000
