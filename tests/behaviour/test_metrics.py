"""OBS-1: `/metrics` of a running gateway, read by the parser of Prometheus itself."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kit.client import WAIT_SECONDS, Session, StdioClient
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import fetch
from kit.messages import Json
from kit.servers import raw_server, stdio_server
from kit.until import wait_until

ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "examples" / "observability"
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
with_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is missing: apt-get install prometheus, or set PROMTOOL"
)
SOMETIMES = {"mcpx_denied_total", "mcpx_limited_total", "mcpx_upstream_probe_seconds"}
"""Left out of a scrape until there is something to tell."""
REPLICAS = {
    *("mcpx_store_up", "mcpx_store_failures_total", "mcpx_replicas"),
    *("mcpx_forwarded_total", "mcpx_sessions_adopted_total"),
}
"""Only where there is a store."""

CALM: Json = {"startup_wait": 10, "first_start_wait": 10}

Samples = dict[str, list[tuple[dict[str, str], float]]]


def scrape(port: int, *headers: tuple[str, str]) -> Samples:
    reply = fetch(port, "/metrics", "GET", headers)
    assert reply.status == 200, reply
    assert reply.get("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    found: Samples = {}
    for family in text_string_to_metric_families(reply.body.decode()):
        assert family.documentation and family.type != "unknown", family
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def total(samples: Samples, name: str, **labels: str) -> float:
    return sum(value for has, value in samples.get(name, ()) if labels.items() <= has.items())


def bases(samples: Samples) -> set[str]:
    """Names of families: those of a histogram's parts are one."""
    histograms = {name.removesuffix("_bucket") for name in samples if name.endswith("_bucket")}
    parts = {f"{name}{end}" for name in histograms for end in ("_bucket", "_sum", "_count")}
    return (set(samples) - parts) | histograms


@pytest.fixture(scope="module")
def busy() -> Iterator[Gateway]:
    """A gateway that has had calls of all kinds; its audit trail is on."""
    config = {
        "global": {**CALM, "audit": {}},
        "mcp_servers": [raw_server("one", cache_ttl=60), raw_server("two")],
    }
    with GatewayProcess(config) as gateway:
        session = Session(gateway.port)
        session.tools()
        for _ in range(3):
            session.call("one_echo", text="x")
        session.call("two_fail")
        session.call("no such tool")
        session.request("resources/read", {"uri": "file:///nowhere"})
        compact = Session(gateway.port, path="/mcp/search")
        compact.tools()
        compact.call("mcp_execute_tool", tool_name="two_echo", arguments={"text": "y"})
        wait_until(lambda: total(scrape(gateway.port), "mcpx_tokens_saved_total") > 0)
        yield gateway


def test_calls_are_counted_under_the_tool_that_was_really_called(busy: Gateway) -> None:
    """OBS-1: also through a compact mode; latency, sessions, states, links and processes beside
    them."""
    found = scrape(busy.port)
    assert (
        total(
            found, "mcpx_calls_total", server="one", tool="echo", method="tools/call", outcome="ok"
        )
        == 3
    )
    assert total(found, "mcpx_calls_total", server="two", tool="echo", outcome="ok") == 1
    assert total(found, "mcpx_calls_total", server="two", tool="fail") == 1
    assert total(found, "mcpx_call_duration_seconds_count", server="one") == 3
    assert total(found, "mcpx_tool_duration_seconds_count", server="two", tool="echo") == 1
    assert total(found, "mcpx_profile_duration_seconds_count", profile="") >= 5
    assert total(found, "mcpx_sessions_room") == 10_000 - 2
    assert total(found, "mcpx_sessions", transport="http") == 2
    assert total(found, "mcpx_upstream_up") == 2
    assert total(found, "mcpx_upstream_state", server="one", state="connected") == 1
    assert (
        total(found, "mcpx_upstream_processes", server="two")
        == total(found, "mcpx_upstream_links", server="two")
        > 0
    )
    assert total(found, "mcpx_calls_in_flight") == 0
    assert total(found, "mcpx_client_connections") >= 1


def test_the_process_tells_of_itself(busy: Gateway) -> None:
    """OBS-1: under the names that every dashboard knows."""
    found = scrape(busy.port)
    assert 10e6 < total(found, "process_resident_memory_bytes") < 500e6
    assert 0 < total(found, "process_cpu_seconds_total") < 60
    assert 5 < total(found, "process_open_fds") < total(found, "process_max_fds")
    assert abs(total(found, "process_start_time_seconds") - time.time()) < 300
    assert total(found, "mcpx_build_info") == 1


def test_tokens_saved_are_the_difference_to_the_list_of_all_tools(busy: Gateway) -> None:
    """OBS-1: the baseline is what `direct` lists, in estimated tokens; a list in direct mode saves
    nothing."""
    found = scrape(busy.port)
    shown, direct = (
        total(found, "mcpx_listed_tokens_total"),
        total(found, "mcpx_direct_tokens_total"),
    )
    assert total(found, "mcpx_tokens_saved_total", mode="search") == direct - shown > 0
    assert total(found, "mcpx_tool_lists_total", mode="direct") == 1
    assert not [
        labels for labels, _ in found["mcpx_tokens_saved_total"] if labels["mode"] == "direct"
    ]
    tools = Session(busy.port).request("tools/list")["result"]["tools"]
    expected = sum(
        -(-len(json.dumps(tool, separators=(",", ":"), ensure_ascii=False).encode()) // 4)
        for tool in tools
    )
    assert abs(direct - expected) < 0.05 * expected


@with_promtool
def test_promtool_finds_nothing_to_say(busy: Gateway) -> None:
    """OBS-1: the linter of Prometheus itself."""
    assert PROMTOOL is not None
    body = fetch(busy.port, "/metrics").body
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"],
        input=body,
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@with_promtool
def test_the_example_rules_are_good(busy: Gateway) -> None:
    """OBS-1."""
    assert PROMTOOL is not None
    rules = str(OBSERVABILITY / "alerts.yml")
    done = subprocess.run(
        [PROMTOOL, "check", "rules", rules], capture_output=True, timeout=WAIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_use_only_what_is_told(busy: Gateway) -> None:
    """OBS-1: every metric of the dashboard and the alert rules is in a scrape, with the labels they
    use."""
    known = bases(scrape(busy.port)) | SOMETIMES | REPLICAS | {"up"}
    dashboard = json.loads((OBSERVABILITY / "grafana.json").read_text())
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    texts += [str(each.get("query")) for each in dashboard["templating"]["list"]]
    texts += re.findall(
        r"expr:(.*?)(?=\n +(?:for|labels):)", (OBSERVABILITY / "alerts.yml").read_text(), re.DOTALL
    )
    used = {name for text in texts for name in re.findall(r"\b(?:mcpx|process)_\w+", text)}
    used = {name.removesuffix("_bucket") for name in used}
    assert len(used) > 20 and used - known == set()


def test_every_metric_is_in_the_docs_and_the_docs_have_no_other(busy: Gateway) -> None:
    """OBS-1."""
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `((?:mcpx|process)_\w+)`", page, re.MULTILINE))
    without = bases(scrape(busy.port)) | SOMETIMES
    assert not without & REPLICAS
    assert told == without | REPLICAS


def test_only_who_is_let_in_may_ask() -> None:
    """OBS-1, SEC-1: behind the same token as everything else; nobody else learns whether there is
    such a page."""
    auth = {"type": "bearer", "tokens": [{"name": "prometheus", "token": "a-token-of-its-own"}]}
    with Gateway({"server": {"auth": auth}, "mcp_servers": []}) as gateway:
        assert fetch(gateway.port, "/metrics").status == 401
        assert (
            fetch(gateway.port, "/metrics", "GET", [("Authorization", "Bearer wrong")]).status
            == 401
        )
        assert fetch(gateway.port, "/metrics", "GET", [("Host", "evil.example")]).status == 421
        right = ("Authorization", "Bearer a-token-of-its-own")
        found = scrape(gateway.port, right)
        assert total(found, "mcpx_refused_requests_total", reason="token") == 2
        assert total(found, "mcpx_refused_requests_total", reason="host") == 1
        assert fetch(gateway.port, "/metrics", "POST", [right], b"").status == 405
        assert fetch(gateway.port, "/metrics", "HEAD", [right]).body == b""
        assert "a-token-of-its-own" not in str(found)


def test_figures_can_be_switched_off_and_on_while_it_runs() -> None:
    """OBS-1: `server.metrics`; nothing is counted meanwhile."""
    off = {"server": {"metrics": False}, "global": CALM, "mcp_servers": [raw_server("one")]}
    with Gateway(off) as gateway:
        session = Session(gateway.port)
        session.call("one_echo", text="x")
        assert fetch(gateway.port, "/metrics").status == 404
        gateway.reload({**off, "server": {"metrics": True}})
        session.call("one_echo", text="x")
        assert total(scrape(gateway.port), "mcpx_calls_total", server="one") == 1
        gateway.reload(off)
        assert fetch(gateway.port, "/metrics").status == 404


def test_reloads_are_counted_and_a_refused_one_shows() -> None:
    """OBS-1, CFG-5; servers that are gone are told of no more."""
    config = {"global": CALM, "mcp_servers": [raw_server("stays"), raw_server("goes")]}
    with Gateway(config) as gateway:
        session = Session(gateway.port)
        for server in ("stays", "goes"):
            session.call(f"{server}_echo", text="x")
        gateway.reload({"mcp_servers": [{"name": 5}]})
        found = wait_until(
            lambda: (
                refused
                if total(refused := scrape(gateway.port), "mcpx_config_reloads_total")
                else 0
            )
        )
        assert total(found, "mcpx_config_reloads_total", result="refused") >= 1
        assert total(found, "mcpx_config_last_reload_ok") == 0
        gateway.reload({**config, "mcp_servers": [raw_server("stays")]})
        found = scrape(gateway.port)
        assert total(found, "mcpx_config_last_reload_ok") == 1
        assert total(found, "mcpx_calls_total", server="stays") == 1
        assert "goes" not in str(found)


def test_a_scrape_of_a_thousand_tools_is_quick() -> None:
    """OBS-1: 20 ms on a machine of its own; here the bound is for a busy one."""
    many = [
        sys.executable,
        "-I",
        "-S",
        str(Path(__file__).with_name("many_tools_server.py")),
        "1000",
    ]
    with Gateway({"global": CALM, "mcp_servers": [stdio_server("many", many)]}) as gateway:
        session = Session(gateway.port)
        assert session.call("many_tool-1")["result"]
        times: list[float] = []
        for _ in range(10):
            began = time.perf_counter()
            found = scrape_raw(gateway.port)
            times.append(time.perf_counter() - began)
        assert min(times) < 0.05
        assert b'mcpx_upstream_tools{server="many"} 1000' in found


def scrape_raw(port: int) -> bytes:
    return fetch(port, "/metrics").body


def test_the_latest_calls_can_be_looked_at_by_the_owner() -> None:
    """OBS-1: over the control socket; kept from the first look on."""
    with Gateway({"global": CALM, "mcp_servers": [raw_server("one")]}) as gateway:
        session = Session(gateway.port)
        session.call("one_echo", text="before")
        assert gateway.control("activity")["calls"] == []
        session.call("one_echo", text="s3cr3t")
        told = gateway.control("activity")
        (call,) = told["calls"]
        assert (call["server"], call["name"], call["outcome"], call["client"]) == (
            "one",
            "echo",
            "ok",
            "raw",
        )
        assert "s3cr3t" not in str(told)
        assert gateway.control("activity", after=told["last"])["calls"] == []


def test_over_stdio_nothing_is_counted() -> None:
    """OBS-1: nobody could ask; not even the modules are there."""
    config = {"global": CALM, "mcp_servers": [raw_server("one")]}
    with (
        GatewayProcess(config, transport="stdio", env={"PYTHONPROFILEIMPORTTIME": "1"}) as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as pipe,
    ):
        pipe.greet()
        assert pipe.call("one_echo", text="x")["result"]
        assert pipe.finish() == 0
        imported = pipe.stderr.text
    assert "mcpx.core.relay" in imported
    assert not [
        part
        for part in ("metrics", "audit", "activity", "trail")
        if f"mcpx.telemetry.{part}" in imported
    ]
