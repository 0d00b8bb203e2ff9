"""OBS-1: what is counted of calls, and that there is an end to it."""

import time

from prometheus_client.parser import text_string_to_metric_families

from mcpx.model.call import Call, Caller
from mcpx.model.errors import DENIED, SERVER_TIMEOUT
from mcpx.model.events import CallFinished, Outcome, Passage
from mcpx.model.offer import Offer
from mcpx.telemetry.call_metrics import (
    MAX_TIMED_TOOLS,
    MOST,
    MOST_OF_ONE,
    MOST_RULES,
    OTHER,
    PROMOTION_INTERVAL,
    CallMetrics,
)
from mcpx.telemetry.prometheus import Text


def over(
    server: str = "s",
    name: str = "t",
    outcome: Outcome = "ok",
    code: int | None = None,
    rule: str | None = None,
    method: str = "tools/call",
    seconds: float = 0.002,
    profile: str | None = None,
) -> CallFinished:
    kind = "prompts" if method == "prompts/get" else "tools"
    offer = None if method == "resources/read" else Offer(kind, server, name, name, {})
    call = Call(method, {}, Caller(profile=profile))
    return CallFinished(Passage(server, name, offer, call, {}, rule), seconds, outcome, code)


def scraped(calls: CallMetrics) -> list[tuple[str, dict[str, str], float]]:
    text = Text()
    calls.write(text, lambda server: True, lambda server, tool: True)
    families = text_string_to_metric_families(text.encoded().decode())
    found = [
        (sample.name, sample.labels, sample.value)
        for family in families
        for sample in family.samples
    ]
    assert len({(name, tuple(sorted(labels.items()))) for name, labels, _ in found}) == len(
        found
    ), "a series twice"
    return found


def total(calls: CallMetrics, name: str, **labels: str) -> float:
    return sum(
        value for its, has, value in scraped(calls) if its == name and labels.items() <= has.items()
    )


def test_calls_are_told_apart_by_server_tool_method_and_outcome() -> None:
    calls = CallMetrics()
    for event in (
        over(),
        over(),
        over(outcome="tool_error"),
        over(name="u"),
        over(method="prompts/get", name="p"),
    ):
        calls.finished(event)
    assert total(calls, "mcpx_calls_total", tool="t", outcome="ok") == 2
    assert total(calls, "mcpx_calls_total", tool="t", outcome="tool_error") == 1
    assert total(calls, "mcpx_calls_total", method="prompts/get", tool="p") == 1
    assert total(calls, "mcpx_call_duration_seconds_count", server="s") == 5


def test_a_uri_is_never_a_label() -> None:
    calls = CallMetrics()
    for number in range(10_000):
        calls.finished(over(name=f"file:///{number}?token=s3cr3t", method="resources/read"))
    found = scraped(calls)
    assert sum(1 for name, _, _ in found if name == "mcpx_calls_total") == 1
    assert "s3cr3t" not in str(found)


def test_a_server_that_renames_its_tools_for_ever_takes_no_room_of_others() -> None:
    calls = CallMetrics()
    for number in range(3 * MOST):
        calls.finished(over("hostile", f"tool-{number}"))
    calls.finished(over("good", "tool"))
    series = [labels for name, labels, _ in scraped(calls) if name == "mcpx_calls_total"]
    assert len(series) <= MOST_OF_ONE + 2
    assert total(calls, "mcpx_calls_total", server="hostile") == 3 * MOST
    assert total(calls, "mcpx_calls_total", server="good", tool="tool") == 1
    assert len(calls._known) <= MOST


def test_there_is_an_end_to_series_of_all_servers() -> None:
    calls = CallMetrics()
    for number in range(MOST + 500):
        calls.finished(over(f"s{number % 10}", f"tool-{number}"))
    series = [labels for name, labels, _ in scraped(calls) if name == "mcpx_calls_total"]
    assert len(series) <= MOST + 10
    assert total(calls, "mcpx_calls_total") == MOST + 500


def test_names_that_are_cut_alike_are_one_series() -> None:
    calls = CallMetrics()
    for end in "abc":
        calls.finished(over(name="x" * 500 + end))
    assert total(calls, "mcpx_calls_total") == 3
    assert sum(1 for name, _, _ in scraped(calls) if name == "mcpx_calls_total") == 1


def test_codes_that_nobody_knows_are_one() -> None:
    calls = CallMetrics()
    calls.finished(over(outcome="error", code=SERVER_TIMEOUT))
    for code in range(1, 1000):
        calls.finished(over(outcome="error", code=code))
    assert total(calls, "mcpx_errors_total", code=str(SERVER_TIMEOUT)) == 1
    assert total(calls, "mcpx_errors_total", code="other") == 999
    assert sum(1 for name, _, _ in scraped(calls) if name == "mcpx_errors_total") == 2


def test_a_refused_call_is_counted_by_its_rule_and_is_no_time_of_the_server() -> None:
    calls = CallMetrics()
    calls.finished(over(outcome="denied", code=DENIED, rule="policy.rules[3]"))
    assert total(calls, "mcpx_denied_total", rule="policy.rules[3]", code=str(DENIED)) == 1
    assert total(calls, "mcpx_calls_total", outcome="denied") == 1
    assert total(calls, "mcpx_call_duration_seconds_count") == 0
    for number in range(1000):
        calls.finished(over(outcome="denied", code=DENIED, rule=f"rule {number}"))
    assert sum(1 for name, _, _ in scraped(calls) if name == "mcpx_denied_total") <= MOST_RULES + 1
    assert total(calls, "mcpx_denied_total") == 1001


def test_what_left_the_configuration_is_forgotten_and_what_stays_goes_on() -> None:
    calls = CallMetrics()
    for server in ("stays", "goes"):
        calls.finished(over(server, outcome="error", code=SERVER_TIMEOUT))
    calls.keep(["stays"])
    calls.finished(over("stays", outcome="error", code=SERVER_TIMEOUT))
    assert total(calls, "mcpx_calls_total", server="stays") == 2
    assert total(calls, "mcpx_errors_total", server="stays") == 2
    assert "goes" not in str(scraped(calls))


def test_whoever_may_not_know_of_it_is_not_told_of_it() -> None:
    calls = CallMetrics()
    for server, tool in (("open", "shown"), ("open", "hidden"), ("closed", "any")):
        calls.finished(over(server, tool, outcome="error", code=SERVER_TIMEOUT))
    text = Text()
    calls.write(text, lambda server: server == "open", lambda server, tool: tool == "shown")
    body = text.encoded().decode()
    assert "shown" in body and "hidden" not in body and "closed" not in body


def test_counting_is_cheap_and_so_is_telling() -> None:
    """A microsecond or two each on this machine; the bounds are for a busy one. A scrape of 2,000
    series: 20 ms."""
    calls = CallMetrics()
    events = [over("s", f"tool-{number}") for number in range(1000)]
    for event in events:
        calls.finished(event)
    best = min(_seconds(lambda: [calls.finished(event) for event in events]) for _ in range(5))
    assert best / 1000 < 10e-6
    assert min(_seconds(lambda: scrape(calls)) for _ in range(5)) < 0.1


def scrape(calls: CallMetrics) -> bytes:
    text = Text()
    calls.write(text, lambda server: True, lambda server, tool: True)
    return text.encoded()


def _seconds(work: object) -> float:
    began = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - began


def test_the_most_used_tools_have_a_histogram_and_the_others_share_one() -> None:
    """OBS-1: no histogram ever shrinks, because Prometheus takes that for a restart."""
    calls = CallMetrics()
    name = "mcpx_tool_duration_seconds_count"
    tools = [f"t{number}" for number in range(MAX_TIMED_TOOLS + 50)]
    for tool in tools:
        for _ in range(2):
            calls.finished(over(name=tool))
    timed = {labels["tool"] for series, labels, _ in scraped(calls) if series == name}
    assert timed == {*tools[:MAX_TIMED_TOOLS], OTHER} and total(calls, name, tool=OTHER) == 100

    for _ in range(PROMOTION_INTERVAL):
        calls.finished(over(name=tools[-1]))
    timed = {labels["tool"] for series, labels, _ in scraped(calls) if series == name}
    assert tools[-1] in timed and len(timed) == MAX_TIMED_TOOLS + 1
    before_promotion = (
        PROMOTION_INTERVAL - 3
    )  # Two calls were made above, and the last one is its own already.
    assert total(calls, name, tool=OTHER) == 100 + before_promotion
    assert total(calls, name, tool=tools[-1]) == 3


def test_latency_is_told_apart_by_profile_which_only_readers_without_one_see() -> None:
    """OBS-1, SEC-3"""
    calls = CallMetrics()
    for profile in (None, "small", "small"):
        calls.finished(over(profile=profile))
    assert total(calls, "mcpx_profile_duration_seconds_count", profile="small") == 2
    assert total(calls, "mcpx_profile_duration_seconds_count", profile="") == 1
    text = Text()
    calls.write(text, lambda server: True, lambda server, tool: True, profiles=False)
    assert b"profile" not in text.encoded()
    calls.keep(["s"], ["other"])
    assert total(calls, "mcpx_profile_duration_seconds_count", profile="small") == 0
