"""OBS-1: traces of calls, from the client through mcpx to its servers, as an OTLP receiver gets
them."""

import json
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fixtures.collector import Collector
from kit.client import Session, StdioClient, post_modern
from kit.gateway import Gateway, GatewayProcess
from kit.http_api import ApiRequest, ApiResponse, HttpApi
from kit.messages import modern_request, text_of
from kit.servers import odd_server, raw_server, recorded_messages
from kit.until import wait_until
from mcpx.telemetry.targets import session_mark

Json = dict[str, Any]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
UNSAMPLED = f"00-{TRACE}-00f067aa0ba902b7-00"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"


def config(
    collector: Collector, *servers: Json, commands: tuple[Json, ...] = (), **traces: Any
) -> Json:
    settings = {"traces": {"endpoint": collector.url, **traces}}
    return {"mcp_servers": list(servers), "commands": list(commands), "global": settings}


def call(tool: str, meta: Json | None = None, **arguments: Any) -> Json:
    return {"name": tool, "arguments": arguments, **({} if meta is None else {"_meta": meta})}


def heard(record: Path) -> list[Json]:
    """`_meta` of the calls that the server got."""
    return [
        message["params"].get("_meta", {}) for message in recorded_messages(record, "tools/call")
    ]


def mcp_server(api: HttpApi) -> Json:
    """A server over streamable HTTP whose every request can be looked at."""

    def answer(asked: ApiRequest) -> Any:
        message = asked.json
        if "id" not in message:
            return ApiResponse(status=202)
        results: Mapping[str, Json] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "api", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "seen"}]},
        }
        if message["method"] not in results:
            error = {"code": -32601, "message": "no such method"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
        return {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}

    api.on("POST", "/mcp", answer)
    api.on("GET", "/mcp", lambda _: ApiResponse(status=405))
    return {"name": "api", "prefix": "api", "connection": {"type": "http", "url": f"{api.url}/mcp"}}


def test_one_trace_goes_from_the_client_through_mcpx_to_the_server(tmp_path: Path) -> None:
    """OBS-1: by `_meta` of a request (SEP-414): the same trace, each span the child of the one
    before it."""
    record = tmp_path / "record"
    with Collector() as collector:
        with Gateway(config(collector, odd_server("odd", record))) as gateway:
            session = Session(gateway.port)
            reply = session.request(
                "tools/call",
                call(
                    "odd_echo",
                    {"traceparent": PARENT, "tracestate": STATE, "baggage": "a=b"},
                    text="x",
                ),
            )
            assert text_of(reply) == "x"
        of_client = collector.one("server", "tools/call odd_echo")
        of_server = collector.one("client", "tools/call echo")
    assert (of_client.trace_id, of_client.parent) == (TRACE, "00f067aa0ba902b7")
    assert (of_server.trace_id, of_server.parent) == (TRACE, of_client.id)
    assert of_client.raw.trace_state == of_server.raw.trace_state == STATE
    (meta,) = heard(record)
    assert meta == {
        "traceparent": f"00-{TRACE}-{of_server.id}-01",
        "tracestate": STATE,
        "baggage": "a=b",
    }
    told = of_client.attributes
    assert {key: told[key] for key in told if key != "mcpx.request_id"} == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "odd_echo",
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "jsonrpc.request.id": "1",
        "mcp.protocol.version": "2025-11-25",
        "mcpx.principal": "anonymous",
        "mcp.session.id": session_mark(session.id),
    }
    assert of_server.attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "echo",
        "gen_ai.operation.name": "execute_tool",
        "mcpx.server": "odd",
        "network.transport": "pipe",
    }
    assert of_client.resource["service.name"] == "mcpx"
    assert of_client.raw.start_time_unix_nano <= of_server.raw.start_time_unix_nano
    assert of_server.raw.end_time_unix_nano <= of_client.raw.end_time_unix_nano
    assert not of_client.failed and not of_server.failed


def test_what_http_headers_say_of_a_trace_counts_where_the_message_says_nothing(
    tmp_path: Path,
) -> None:
    """OBS-1: `traceparent` as a header of a client, both eras; `_meta` comes first."""
    record = tmp_path / "record"
    other = PARENT.replace("0af7", "1bf7")
    with Collector() as collector:
        with Gateway(config(collector, odd_server("odd", record))) as gateway:
            Session(gateway.port, headers={"traceparent": PARENT, "tracestate": STATE}).call(
                "odd_echo", text="x"
            )
            message = modern_request("tools/call", call("odd_echo", text="x"))
            assert post_modern(gateway.port, message, traceparent=PARENT).status == 200
            message = modern_request(
                "tools/call", call("odd_echo", {"traceparent": other}, text="x")
            )
            assert post_modern(gateway.port, message, traceparent=PARENT).status == 200
        traces = [span.trace_id for span in collector.of("client", "tools/call echo")]
    assert traces == [TRACE, TRACE, other[3:35]]
    assert [meta["traceparent"][3:35] for meta in heard(record)] == traces
    assert [meta.get("tracestate") for meta in heard(record)] == [STATE, None, None]


MALFORMED: tuple[Any, ...] = (
    *(
        "",
        "00-0-0-01",
        PARENT.upper(),
        PARENT + "-more",
        "ff" + PARENT[2:],
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
    ),
    *(5, {}, None, [PARENT]),
)


def test_a_malformed_trace_context_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    """OBS-1: the call goes on in a trace of its own, and nothing malformed is handed on."""
    record = tmp_path / "record"
    with Collector() as collector:
        with (
            GatewayProcess(
                config(collector, odd_server("odd", record)), transport="stdio"
            ) as gateway,
            StdioClient(gateway.stdio_command, gateway.env) as pipe,
        ):
            pipe.greet()
            for parent in MALFORMED:
                pipe.request(
                    "tools/call",
                    call("odd_echo", {"traceparent": parent, "tracestate": STATE}, text="x"),
                )
        spans = collector.of("server", "tools/call odd_echo")
    assert len(spans) == len({span.trace_id for span in spans}) == len(MALFORMED)
    assert {span.parent for span in spans} == {""} and TRACE not in {
        span.trace_id for span in spans
    }
    assert [meta["traceparent"][3:35] for meta in heard(record)] == [
        span.trace_id for span in spans
    ]
    assert not any("tracestate" in meta for meta in heard(record))
    assert {span.attributes["network.transport"] for span in spans} == {"pipe"}


def test_without_traces_a_trace_context_passes_through_as_it_came(tmp_path: Path) -> None:
    """OBS-1: nothing is added, nothing is taken away."""
    record, meta = (
        tmp_path / "record",
        {"traceparent": PARENT, "tracestate": "any thing", "baggage": "a=b"},
    )
    with Gateway({"mcp_servers": [odd_server("odd", record)]}) as gateway:
        session = Session(gateway.port, headers={"traceparent": UNSAMPLED})
        session.request("tools/call", call("odd_echo", meta, text="x"))
        session.call("odd_echo", text="x")
    assert heard(record) == [meta, {}]


def test_whether_a_trace_is_recorded_is_the_clients_decision_then_that_of_sample(
    tmp_path: Path,
) -> None:
    """OBS-1: one that is not recorded is still told to servers, as not recorded."""
    record = tmp_path / "record"
    with (
        Collector() as collector,
        Gateway(config(collector, odd_server("odd", record), sample=0)) as gateway,
    ):
        session = Session(gateway.port)
        for meta in ({"traceparent": PARENT}, {"traceparent": UNSAMPLED}, None):
            session.request("tools/call", call("odd_echo", meta, text="x"))
    assert [span.trace_id for span in collector.spans] == [TRACE, TRACE]
    told = [meta["traceparent"] for meta in heard(record)]
    assert [parent[-2:] for parent in told] == ["01", "00", "00"]
    assert [parent[3:35] == TRACE for parent in told] == [True, True, False]


def test_calls_that_share_a_connection_keep_their_traces_apart(tmp_path: Path) -> None:
    """OBS-1: fifty at once over one link."""
    record = tmp_path / "record"
    with Collector() as collector:
        with Gateway(config(collector, odd_server("odd", record))) as gateway:
            sessions = [Session(gateway.port) for _ in range(5)]

            def ask(number: int) -> None:
                meta = {"traceparent": f"00-{number + 1:032x}-{number + 1:016x}-01"}
                sessions[number % 5].request("tools/call", call("odd_echo", meta, text=str(number)))

            with ThreadPoolExecutor(10) as pool:
                list(pool.map(ask, range(50)))
        spans = {span.id: span for span in collector.of("client", "tools/call echo")}
    asked = recorded_messages(record, "tools/call")
    assert len(asked) == len(spans) == 50
    for message in asked:
        _, trace, span, _ = message["params"]["_meta"]["traceparent"].split("-")
        assert int(trace, 16) == int(message["params"]["arguments"]["text"]) + 1
        assert spans[span].trace_id == trace


def test_a_failed_call_is_a_failed_span_with_its_code_and_none_of_its_words(tmp_path: Path) -> None:
    """OBS-1: neither arguments nor what errors say leave in a trace."""
    with Collector() as collector:
        with Gateway(config(collector, raw_server("raw"))) as gateway:
            session = Session(gateway.port)
            session.call("raw_fail", text="canary-argument")
            session.call("nothing")
            session.request(
                "resources/read", {"uri": "file://ann:canary-secret@host/path?key=canary-key"}
            )
        failed = (
            collector.one("server", "tools/call raw_fail"),
            collector.one("client", "tools/call fail"),
        )
        unknown = collector.one("server", "tools/call nothing")
        read = collector.one("server", "resources/read")
        raw = b"".join(asked.body for asked in collector.seen)
    assert {span.attributes["error.type"] for span in failed} == {"-32000"}
    assert {span.attributes["rpc.response.status_code"] for span in failed} == {"-32000"}
    assert all(span.failed and not span.raw.status.message for span in (*failed, unknown, read))
    assert unknown.attributes["error.type"] == "-32602"
    assert read.attributes["mcp.resource.uri"] == "file://host/path"
    assert b"canary" not in raw


def test_servers_and_apis_over_http_get_the_trace_as_headers_too() -> None:
    """OBS-1: an MCP server over HTTP and an HTTP command."""
    with Collector() as collector, HttpApi() as api:
        api.on("GET", "/weather", lambda _: {"sunny": True})
        command = {
            "name": "weather",
            "type": "http",
            "http": {"url": f"{api.url}/weather", "allow_private": True},
        }
        with Gateway(config(collector, mcp_server(api), commands=(command,))) as gateway:
            session = Session(gateway.port)
            meta = {"traceparent": PARENT, "tracestate": STATE}
            session.request("tools/call", call("api_look", meta))
            session.request("tools/call", call("weather", meta))
        of_server = collector.one("client", "tools/call look")
        of_api = collector.one("client", "tools/call weather")
    posted = [asked for asked in api.seen if asked.method == "POST"]
    (called,) = [asked for asked in posted if asked.json["method"] == "tools/call"]
    (got,) = [asked for asked in api.seen if asked.path == "/weather"]
    assert (
        called.all("traceparent")
        == [f"00-{TRACE}-{of_server.id}-01"]
        == [called.json["params"]["_meta"]["traceparent"]]
    )
    assert got.all("traceparent") == [f"00-{TRACE}-{of_api.id}-01"]
    assert called.get("tracestate") == got.get("tracestate") == STATE
    assert all(asked.get("traceparent") is None for asked in posted if asked is not called)
    assert of_server.attributes["server.address"] == "127.0.0.1"
    assert of_server.attributes["server.port"] == api.port
    assert of_api.attributes["mcpx.server"] == "commands"


def test_a_collector_that_is_down_stops_nobody_and_is_told_of_once() -> None:
    """OBS-1: calls go on, the end comes in time, and its key is in no log."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    settings = {"traces": {"endpoint": endpoint, "headers": {"x-key": "canary-key"}}}
    with GatewayProcess(
        {"mcp_servers": [raw_server("raw")], "global": settings}, "--log-level", "DEBUG"
    ) as gateway:
        session = Session(gateway.port)
        assert [text_of(session.call("raw_echo", text="x")) for _ in range(3)] == ["x"] * 3
        wait_until(lambda: "traces do not reach the collector" in gateway.stderr())
        said = gateway.stderr
    assert said().count("traces do not reach the collector") == 1
    assert "spans did not reach the collector" in said()
    assert "canary" not in said()


def test_traces_can_be_switched_on_while_it_runs(tmp_path: Path) -> None:
    """OBS-1: by a reload of the file."""
    with Collector() as collector:
        settings = {"mcp_servers": [raw_server("raw")], "global": {"hot_reload_interval": 0.05}}
        with Gateway(settings) as gateway:
            session = Session(gateway.port)
            session.call("raw_echo", text="x")
            changed = {
                **settings,
                "global": {
                    **settings["global"],
                    "traces": {"endpoint": collector.url + "/v1/traces"},
                },
            }
            gateway.file.write_text(json.dumps(changed))
            wait_until(lambda: "reloaded" in gateway.stderr())
            session.call("raw_echo", text="x")
        assert len(collector.of("client", "tools/call echo")) == 1
