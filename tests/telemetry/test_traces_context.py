"""What peers say of the trace they are in: read strictly, handed on with our own place in it."""

import asyncio
import json
import logging
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.model.requests import MOST_STATE, Request, Span, Trace, clean, new_id
from mcpx.telemetry.request_tracker import Tracker
from mcpx.wire.logs import AsJson

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_trace_context_is_read() -> None:
    read = Trace.read(GOOD, "a=b, c@d=e ,")
    assert read is not None
    assert (read.trace_id, read.span_id, read.sampled, read.state) == (
        TRACE,
        SPAN,
        True,
        "a=b,c@d=e",
    )
    later = Trace.read(f"cc-{TRACE}-{SPAN}-02-what-comes-later")
    assert later is not None and not later.sampled


@pytest.mark.parametrize(
    "bad",
    [
        "a",
        "=b",
        "a=",
        "A=b",
        "a=b\nc=d",
        "a=b,,,x",
        "a=é",
        ",".join(["a=b"] * 33),
        "a=" + "b" * MOST_STATE,
    ],
)
def test_a_malformed_state_is_left_out_and_the_trace_is_kept(bad: str) -> None:
    read = Trace.read(GOOD, bad)
    assert read is not None and read.state == ""


def test_two_headers_say_nothing() -> None:
    assert Trace.of_headers([GOOD, GOOD], []) is None
    read = Trace.of_headers([GOOD], ["a=b", "c=d"])
    assert read is not None and read.state == "a=b,c=d"


@given(st.one_of(st.text(max_size=80), st.text(string.hexdigits + "-", min_size=50, max_size=60)))
def test_whatever_is_read_can_be_written_again(text: str) -> None:
    read = Trace.read(text, text)
    assert read is None or Trace.read(f"00-{read.trace_id}-{read.span_id}-00") is not None


def test_a_server_is_told_our_place_and_keeps_what_else_it_was_told() -> None:
    span = Span(TRACE, "1" * 16, True, "a=b")
    params = {
        "name": "x",
        "_meta": {
            "progressToken": 1,
            "traceparent": "old",
            "tracestate": "old=1",
            "baggage": "c=d",
        },
    }
    told = span.told(params)
    here = f"00-{TRACE}-1111111111111111-01"
    assert told["_meta"] == {
        "progressToken": 1,
        "traceparent": here,
        "tracestate": "a=b",
        "baggage": "c=d",
    }
    assert params["_meta"]["traceparent"] == "old", "what came is not changed"
    assert Span(TRACE, "1" * 16, False).told({}) == {"_meta": {"traceparent": here[:-2] + "00"}}
    assert span.told({"_meta": 5}) == {"_meta": 5}


def test_ids_are_unique_and_made_once() -> None:
    request = Request()
    assert request.id == request.id
    assert len({new_id() for _ in range(10_000)}) == 10_000
    assert Request("Mine").id == "Mine" and Request("not mine").id != "not mine"
    assert clean("a" * 65) is None and clean("") is None and clean("a\n") is None


@pytest.mark.parametrize("attends", [True, False])
def test_no_line_of_a_log_names_a_request_that_is_over(attends: bool) -> None:
    """Also one that nobody attended to, for logs came to be written as JSON only after it."""

    async def main() -> None:
        end, lines = asyncio.Event(), list[str]()

        async def goes_on() -> None:
            await end.wait()
            lines.append(
                AsJson().format(
                    logging.LogRecord("mcpx", logging.INFO, "", 0, "a server spoke", None, None)
                )
            )

        async def work() -> dict[str, Any]:
            started.append(asyncio.ensure_future(goes_on()))
            return {}

        started: list[asyncio.Task[None]] = []
        tracker = Tracker(attends=attends)
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        await asyncio.create_task(tracker.follow(message, None, "stdio", work()))
        end.set()
        await started[0]
        assert "request_id" not in json.loads(lines[0])

    asyncio.run(main())
