"""What was said in calls is kept in bounds, made short at a bounded cost, and told without
secrets."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from mcpx.model.call import Call, Caller, Json
from mcpx.model.events import Bus, CallFinished, Outcome, Passage
from mcpx.model.offer import Offer
from mcpx.model.redaction import Redactor
from mcpx.telemetry import call_log as module
from mcpx.telemetry.call_log import MAX_CALLS, MAX_VALUE_BYTES, RecordedCallLog, record

SECRET = "hunter2-but-longer"


class Kept:
    """A recording, and a way to have calls in it; somebody looks, unless told otherwise."""

    def __init__(self, *, is_looked_at: bool = True) -> None:
        self.bus, self.redactor = Bus(), Redactor()
        self.redactor.learn("config", [SECRET])
        self.recording = RecordedCallLog(self.bus, self.redactor)
        if is_looked_at:
            self.recording.rows()

    def call(
        self,
        arguments: Any = None,
        answer: Json | None = None,
        outcome: Outcome = "ok",
        error: str | None = None,
        *,
        looked_for: bool = True,
    ) -> int:
        offer = Offer("tools", "one", "echo", "one_echo", {})
        params = {"name": "echo"} if arguments is None else {"name": "echo", "arguments": arguments}
        passage = Passage("one", "echo", offer, Call("tools/call", params, Caller()), params)
        passage.answer, passage.error = answer, error
        self.bus.publish(CallFinished(passage, 0.01, outcome))
        if looked_for:
            self.recording.failed()
        return self.recording.last

    def detail(self, number: int) -> Json:
        found = self.recording.detail(number)
        assert found is not None
        return found


def said(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


def run(test: Callable[[Kept], None]) -> None:
    async def begin() -> None:
        kept = Kept()
        test(kept)
        kept.recording.end()

    asyncio.run(begin())


def test_arguments_and_result_are_told_without_secrets() -> None:
    def test(kept: Kept) -> None:
        number = kept.call(
            {"q": f"x {SECRET}", "token": "abc", "deep": [{"password": 1}]}, said(SECRET)
        )
        told = kept.detail(number)
        assert told["arguments"] == {"q": "x ***", "token": "***", "deep": [{"password": "***"}]}
        assert told["result"] == said("***") and told["kept"] and not told["shortened"]

    run(test)


def test_a_secret_that_is_learnt_later_is_not_told_either() -> None:
    def test(kept: Kept) -> None:
        number = kept.call({"q": "the-later-secret"}, said("x"))
        kept.redactor.learn("late", ["the-later-secret"])
        assert kept.detail(number)["arguments"] == {"q": "***"}

    run(test)


def test_a_secret_on_the_edge_of_what_is_cut_is_not_told_in_part() -> None:
    redactor = Redactor()
    redactor.learn("config", [SECRET])
    for before in range(3_980, 4_010):
        short = record({"a": "x" * before + SECRET + "y" * 20_000}, redactor.redact)
        assert SECRET[:8] not in short.text.decode()


def test_a_call_is_made_again_with_what_was_really_said() -> None:
    def test(kept: Kept) -> None:
        assert kept.recording.again(kept.call({"token": SECRET})) == ("one_echo", {"token": SECRET})
        assert kept.recording.again(kept.call()) == ("one_echo", {})
        large = kept.call({"text": "x" * 100_000})
        assert kept.recording.again(large) is None and not kept.detail(large)["replayable"]
        assert kept.recording.again(12345) is None

    run(test)


def test_an_error_is_told_in_one_line() -> None:
    def test(kept: Kept) -> None:
        refused = kept.call(
            outcome="error", error=f"first\n\tsecond \x1b[31m{SECRET} " + "z" * 1000
        )
        error = kept.detail(refused)["error"]
        assert re.fullmatch(r"first second \[31m\*\*\* z+… \[\d+ more\]", error)
        failed = kept.call(answer={**said("it\nfailed"), "isError": True}, outcome="tool_error")
        assert kept.detail(failed)["error"] == "it failed"
        odd = kept.call(answer={"content": [7], "isError": True}, outcome="tool_error")
        assert kept.detail(odd)["error"] is None

    run(test)


def test_the_latest_are_kept_and_rows_outlive_what_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_CONTENT_BYTES", 50_000)

    def test(kept: Kept) -> None:
        for number in range(MAX_CALLS + 20):
            kept.call({"q": "x" * 1000}, said(str(number)))
        rows = kept.recording.rows()
        assert len(rows) == MAX_CALLS and rows[0]["number"] == 21
        assert not kept.detail(21)["kept"] and kept.detail(21)["arguments"] is None
        assert kept.detail(MAX_CALLS + 20)["kept"]
        assert kept.recording._content_bytes <= 50_000
        assert kept.recording.detail(20) is None

    run(test)


def test_somebody_hears_of_calls_once_they_can_be_told_of() -> None:
    async def begin() -> None:
        kept = Kept()
        heard: list[tuple[int, int]] = []
        came = asyncio.Event()

        def hear(first: int, last: int) -> None:
            heard.append((first, last))
            came.set()

        kept.recording.hear(hear)
        for _ in range(3):
            kept.bus.publish(_finished())
        async with asyncio.timeout(5):
            await came.wait()
        assert heard == [(1, 3)]
        kept.recording.end()
        assert not kept.bus.listeners

    asyncio.run(begin())


def test_of_a_storm_of_calls_only_the_latest_are_kept_with_what_was_said() -> None:
    def test(kept: Kept) -> None:
        heard: list[tuple[int, int]] = []
        kept.recording.hear(lambda first, last: heard.append((first, last)))
        for _ in range(100):
            kept.bus.publish(_finished())
        assert len(kept.recording.rows()) == 100 and heard == [(1, 100)]
        assert [number for number in range(1, 101) if kept.detail(number)["kept"]] == list(
            range(76, 101)
        )

    run(test)


def test_while_nobody_looks_only_rows_and_the_words_of_errors_are_kept() -> None:
    async def begin() -> None:
        kept = Kept(is_looked_at=False)
        fine, broken = (
            kept.call({"q": 1}, said("x")),
            kept.call({"q": 1}, outcome="error", error=f"no {SECRET}"),
        )
        later = kept.detail(fine)  # from here on somebody looks
        assert (later["public_name"], later["outcome"]) == ("one_echo", "ok")
        assert (later["kept"], later["arguments"], later["result"], later["replayable"]) == (
            False,
            None,
            None,
            False,
        )
        told = kept.detail(broken)
        assert (told["error"], told["kept"], told["arguments"]) == ("no ***", False, None)
        assert kept.detail(kept.call({"q": 1}, said("x")))["kept"]
        kept.recording.end()

    asyncio.run(begin())


def test_asking_only_for_what_failed_is_no_look() -> None:
    async def begin() -> None:
        kept = Kept(is_looked_at=False)
        kept.call(outcome="error", error="no")
        kept.call()
        assert [row["error"] for row in kept.recording.failed()] == ["no"]
        number = kept.call({"q": 1}, said("x"))
        assert not kept.detail(number)["kept"]
        kept.recording.end()

    asyncio.run(begin())


def test_what_was_said_is_forgotten_when_nobody_has_looked_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def test(kept: Kept) -> None:
        number = kept.call({"q": 1}, said("x"))
        kept.recording.hear(lambda first, last: None)
        monkeypatch.setattr(module, "WATCH_SECONDS", 0.0)
        kept.recording._stop_watching()
        assert kept.detail(number)["kept"], "a stream of events is open"
        kept.recording.hear(None)
        kept.recording._stop_watching()
        assert kept.recording._content_bytes == 0
        told = kept.detail(number)
        assert (told["kept"], told["arguments"], told["replayable"]) == (False, None, False)

    run(test)


def _finished() -> CallFinished:
    offer = Offer("tools", "one", "echo", "one_echo", {})
    return CallFinished(
        Passage("one", "echo", offer, Call("tools/call", {}, Caller()), {}), 0.01, "ok"
    )


@pytest.mark.parametrize(
    "value",
    [
        {"rows": [{"a": number, "text": "x" * 50} for number in range(100_000)]},
        "x" * 10_000_000,
        {f"key {number}": number for number in range(200_000)},
        [[[[[[[[[[[[[[[["deep"]]]]]]]]]]]]]]]] * 1000,
        {"x": "漢" * 100_000},
        {"cut": "\ud83d" * 10, "big": 10**30, "many": ["\ud83d"] * 5_000},
        ["\x00" * 10_000] * 50,
    ],
)
def test_however_large_it_is_little_is_kept_and_little_is_looked_at(value: Any) -> None:
    began = time.process_time()
    short = record(value, lambda text: text)
    assert time.process_time() - began < 0.5
    assert len(short.text) <= MAX_VALUE_BYTES and not short.whole
    json.loads(short.text)


@pytest.mark.parametrize(
    "value", [{}, [], "x", 0, None, {"a": [1, 2.5, True, None, "é"]}, 10**30, "\ud83d"]
)
def test_what_is_short_is_kept_as_it_is(value: Any) -> None:
    short = record(value, lambda text: text)
    assert short.whole and json.loads(short.text) == value and short.size == len(short.text)


def test_what_no_json_can_say_is_left_out() -> None:
    assert record({"a": object()}, lambda text: text).text == b"null"


def test_a_listener_that_asks_is_not_told_of_more_in_the_midst_of_it() -> None:
    """Else it would tell of a call twice, or count one that nobody was told of as told."""

    def test(kept: Kept) -> None:
        heard: list[tuple[int, int]] = []
        kept.recording.hear(lambda first, last: heard.append((first, last)))
        first = kept.call()
        second = kept.call(looked_for=False)
        assert [row["number"] for row in kept.recording.told_rows(first - 1)] == [first, second]
        assert heard == [(first, first)]
        kept.recording.rows()
        assert heard == [(first, first), (second, second)]

    run(test)
