"""Spans on their way to a collector: what is sampled, kept, sent again and dropped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fixtures.collector import Collector, spans_in
from kit.loop import run
from kit.until import until
from mcpx.config.sections import Traces as Settings
from mcpx.model.call import Call, Caller
from mcpx.model.events import Bus, CallBegins, CallFinished, Passage
from mcpx.model.requests import SPAN, Request, Span, Trace
from mcpx.telemetry import exporter, otlp
from mcpx.telemetry.exporter import otlp_url
from mcpx.telemetry.targets import plain_uri
from mcpx.telemetry.traces import PATH, Traces
from mcpx.wire.fetch import Fetcher

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "BATCH_SECONDS", 0.01)
    monkeypatch.setattr(exporter, "RETRY_SECONDS", (0.01, 0.05))


@asynccontextmanager
async def tracing(collector: Collector, **settings: Any) -> AsyncIterator[tuple[Traces, Bus]]:
    fetcher, bus = Fetcher({}), Bus()
    made = Traces(Settings(endpoint=collector.url, **settings), lambda: fetcher)
    made.start(bus)
    try:
        yield made, bus
    finally:
        await made.close()
        await fetcher.close()


def ask(made: Traces, number: int = 1, parent: Trace | None = None) -> Span:
    """One request of a client, from its beginning to its end."""
    message = {**LIST, "id": number}
    request = Request(carrier="http")
    request.span = span = made.begin(message, parent)
    if span.sampled:
        made.answered(request, span, message, None)
    return span


def test_spans_go_out_together_and_arrive_once() -> None:
    async def main() -> None:
        with Collector() as collector:
            async with tracing(collector) as (made, _):
                for number in range(700):
                    ask(made, number)
                await until(lambda: len(collector.spans) == 700)
            assert [span.attributes["jsonrpc.request.id"] for span in collector.spans] == [
                str(n) for n in range(700)
            ]
            assert len({span.id for span in collector.spans}) == 700
            assert len(collector.seen) == 2

    run(main())


@pytest.mark.parametrize("status", [503, 429])
def test_what_the_collector_takes_later_is_sent_again_and_its_trouble_told_once(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with Collector(status, status, status) as collector:
            async with tracing(collector) as (made, _):
                ask(made)
                await until(lambda: len(collector.spans) == 1)
            assert len(collector.seen) == 4
        said = [
            record.getMessage() for record in caplog.records if record.name == exporter.__name__
        ]
        assert [line[:28] for line in said] == [
            "traces do not reach the coll",
            "traces reach the collector a",
        ]

    run(main())


def test_what_the_collector_will_never_take_is_dropped() -> None:
    async def main() -> None:
        with Collector(400) as collector:
            async with tracing(collector) as (made, _):
                ask(made)
                await until(lambda: len(collector.seen) == 1)
                again = ask(made)
                await until(lambda: bool(collector.spans))
            assert [span.id for span in collector.spans] == [again.span_id]

    run(main())


def test_what_waits_for_the_collector_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "MAX_RECORDS", 10)

    async def main() -> None:
        with Collector() as collector:
            async with tracing(collector) as (made, _):
                first = [ask(made, number).span_id for number in range(50)][:10]
            assert [span.id for span in collector.spans] == first

    run(main())


def test_the_end_waits_for_a_silent_collector_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "CLOSE_SECONDS", 0.1)

    async def main() -> None:
        begun = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            begun.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        fetcher = Fetcher({})
        made = Traces(Settings(endpoint=f"http://127.0.0.1:{port}"), lambda: fetcher)
        made.start(Bus())
        ask(made)
        await begun.wait()
        async with asyncio.timeout(5):
            await made.close()
        await fetcher.close()
        server.close()
        await server.wait_closed()

    run(main())


@pytest.mark.parametrize(
    ("sample", "least", "most"), [(0.0, 0, 0), (1.0, 1000, 1000), (0.25, 150, 350)]
)
def test_a_share_of_what_nobody_decided_on_is_recorded(
    sample: float, least: int, most: int
) -> None:
    async def main() -> None:
        with Collector() as collector:
            async with tracing(collector, sample=sample) as (made, _):
                spans = [made.begin(LIST, None) for _ in range(1000)]
        assert least <= sum(span.sampled for span in spans) <= most

    run(main())


def test_a_refused_call_and_one_of_our_own_tools_are_no_calls_to_a_server() -> None:
    async def main() -> None:
        with Collector() as collector:
            async with tracing(collector) as (made, bus):
                above = made.begin(LIST, None)
                SPAN.set(above)
                for server, outcome in (("a", "denied"), ("mcpx", "ok"), ("b", "ok")):
                    passage = Passage(server, "t", None, Call("tools/call", {}, Caller()), {})
                    bus.publish(CallBegins(passage))
                    bus.publish(CallFinished(passage, 0.1, outcome))
                    assert SPAN.get() is above
            assert [span.attributes["mcpx.server"] for span in collector.spans] == ["b"]

    run(main())


def test_a_span_reads_as_it_was_written() -> None:
    span = Span("ab" * 16, "cd" * 8, True, "a=b", "ef" * 8, remote=True)
    span.name, span.kind, span.began = "tools/call ü" + "x" * 300, otlp.CLIENT, 5_000_000_000
    span.attributes = [
        otlp.attribute("text", "é\ud800" + "y" * 400),
        otlp.attribute("number", 65_535),
    ]
    body = otlp.request(
        [otlp.span(span, 6_000_000_000, failed=True)], [("service.name", "mcpx")], ("mcpx", "1")
    )
    (read,) = spans_in(body)
    assert (read.trace_id, read.id, read.parent) == ("ab" * 16, "cd" * 8, "ef" * 8)
    assert (read.name, read.kind, read.raw.trace_state) == (span.name, "client", "a=b")
    assert (read.raw.start_time_unix_nano, read.raw.end_time_unix_nano) == (
        5_000_000_000,
        6_000_000_000,
    )
    assert read.attributes == {"text": "é?" + "y" * 254, "number": 65_535}
    assert read.failed and read.raw.flags == 0x301 and read.resource == {"service.name": "mcpx"}


@pytest.mark.parametrize(
    ("base", "full"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("https://otel.example/base/", "https://otel.example/base/v1/traces"),
        ("http://localhost:4318/v1/traces", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318?project=a", "http://localhost:4318/v1/traces?project=a"),
    ],
)
def test_spans_are_posted_below_the_collectors_address(base: str, full: str) -> None:
    assert otlp_url(base, PATH) == full


def test_of_a_uri_nothing_is_told_that_may_be_a_secret() -> None:
    assert plain_uri("https://ann:pw@host:1/a/b?key=k#f", "") == "https://host:1/a/b"
    assert plain_uri("file:///a/b") == "file:///a/b"
    assert plain_uri("mail:ann@example.com?x", "") == "mail:ann@example.com"
