"""Overview, statistics, activity, savings, client programs: what the screens that watch are told
(ADM-4, ADM-5)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.client import Session, post
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import Reply, fetch
from kit.messages import initialize_request, modern_headers, modern_request
from kit.servers import raw_server
from kit.until import wait_until

SECRET = "hunter2-but-much-longer"


@pytest.fixture(scope="module")
def watched() -> Iterator[Gateway]:
    server = raw_server("one", connection={"env": {"API_KEY": SECRET}})
    config = {
        "mode": "direct",
        "mcp_servers": [server],
        "profiles": [{"name": "dev", "servers": ["one"]}],
    }
    with GatewayProcess(config, admin=True) as started:
        session = Session(started.port)
        assert "one_echo" in session.tools()
        assert read(started, "/api/activity")["calls"] == []  # from here on what is said is kept
        session.call("one_echo", text="hello", password="open sesame")
        session.call("one_echo", text=f"{SECRET} in the middle")
        session.call("one_fail", message="it\nbroke")
        session.call("one_fail", message="it\nbroke")
        session.call("one_big", bytes=100_000)
        wait_until(lambda: read(started, "/api/activity")["last"] == 5)
        wait_until(lambda: read(started, "/api/activity/5")["kept"])
        yield started


def get(gateway: Gateway, path: str) -> Reply:
    return fetch(gateway.admin_url, path, headers=gateway.admin_headers)


def read(gateway: Gateway, path: str) -> Any:
    answer = get(gateway, path)
    assert answer.status == 200, answer.body
    return answer.json


def test_the_overview_tells_of_clients_gateway_servers_and_errors(watched: Gateway) -> None:
    """ADM-4"""
    session = Session(watched.port)
    assert session.tools()
    told = read(watched, "/api/overview")
    mine = next(one for one in told["clients"] if one["name"] == "raw")
    assert (
        mine["sessions"] >= 2
        and mine["version"] == "1"
        and mine["why"] == "the configuration says so"
    )
    assert told["gateway"]["url"] == watched.url and told["gateway"]["mode"] == "direct"
    assert told["gateway"]["tools"] == 8 and told["gateway"]["tools_tokens"] > 100
    assert [(one["name"], one["status"], one["quarantined"]) for one in told["servers"]] == [
        ("one", "connected", False)
    ]
    assert [(one["what"], one["count"]) for one in told["errors"]] == [("it broke", 2)]
    assert (
        told["errors_last_hour"] == 2
        and told["revisions"][0]["number"] == 1
        and not told["first_run"]
    )


def test_calls_of_local_commands_go_to_a_target_of_their_own() -> None:
    """ADM-4: what clients call is as much as what is called."""
    http = {"url": "http://127.0.0.1:9/", "allow_private": True, "max_retries": 0}
    config = {
        "mcp_servers": [raw_server("one")],
        "commands": [{"name": "look", "type": "http", "http": http}],
    }
    with Gateway(config, admin=True) as gateway:
        session = Session(gateway.port)
        assert {"look", "one_echo"} <= set(session.tools())
        session.call("one_echo", text="hello")
        for _ in range(2):
            session.call("look")
        told = read(gateway, "/api/overview")
        assert (told["local"]["name"], told["local"]["calls_per_minute"]) == ("commands", 2)
        assert [one["name"] for one in told["servers"]] == ["one"]
        targets = [*told["servers"], told["local"]]
        assert (
            sum(one["calls_per_minute"] for one in targets)
            == told["gateway"]["calls_per_minute"]
            == 3
        )
        assert sum(one["calls_per_minute"] for one in told["clients"]) == 3


def test_who_is_shown_what_and_why_is_told(watched: Gateway) -> None:
    """SUR-5: the choice and its reason are visible."""
    auto, search = (
        Session(watched.port, path="/mcp/auto"),
        Session(watched.port, path="/mcp/search"),
    )
    assert auto.tools() and search.tools()
    why = {one["why"] for one in read(watched, "/api/overview")["clients"]}
    assert why & {"it asked for it by its path"} or any("budget" in each for each in why)


def test_a_modern_client_is_told_of_by_its_calls(watched: Gateway) -> None:
    """ADM-4: it has no session."""
    message = modern_request("tools/call", {"name": "one_echo", "arguments": {"text": "x"}})
    message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] = {
        "name": "modern-one",
        "version": "7",
    }
    assert post(watched.port, message, modern_headers(message)).status == 200
    told = read(watched, "/api/overview")["clients"]
    mine = next(one for one in told if one["name"] == "modern-one")
    assert (
        mine["sessions"] == 0 and mine["protocol"] == "2026-07-28" and mine["calls_per_minute"] == 1
    )


@pytest.mark.parametrize(
    ("range", "step", "count"),
    [("15m", 15, 60), ("1h", 60, 60), ("24h", 900, 96), ("7d", 7200, 84)],
)
def test_statistics_have_every_step_of_their_range(
    watched: Gateway, range: str, step: int, count: int
) -> None:
    """ADM-4"""
    told = read(watched, f"/api/statistics?range={range}&server=one")
    assert told["step"] == step and len(told["points"]) == count
    assert {
        b["at"] - a["at"] for a, b in zip(told["points"], told["points"][1:], strict=False)
    } == {step}
    assert sum(point["calls"] for point in told["points"]) >= 5
    assert sum(point["errors"] for point in told["points"]) >= 2
    assert all(point["p95_ms"] >= point["p50_ms"] > 0 for point in told["points"] if point["calls"])


def test_statistics_of_no_server_are_not_found(watched: Gateway) -> None:
    assert get(watched, "/api/statistics?server=nobody").status == 404
    assert get(watched, "/api/statistics?range=9y").status == 422


def test_activity_is_filtered(watched: Gateway) -> None:
    """ADM-5"""
    numbers = [one["number"] for one in read(watched, "/api/activity?limit=5")["calls"]]
    assert numbers == sorted(numbers)
    failed = read(watched, "/api/activity?outcome=error")["calls"]
    assert {one["name"] for one in failed} == {"fail"} and failed[0]["error"] == "it broke"
    assert read(watched, "/api/activity?q=BROKE")["calls"] == failed
    assert read(watched, "/api/activity?server=nobody")["calls"] == []
    assert {one["client"] for one in read(watched, "/api/activity?client=raw")["calls"]} == {"raw"}
    assert read(watched, "/api/activity?after=3&limit=500")["calls"][0]["number"] == 4
    for bad in ("limit=0", "limit=501", "after=-1", "outcome=never", "after=x"):
        assert get(watched, f"/api/activity?{bad}").status == 422


def test_what_was_said_is_kept_without_secrets_and_short(watched: Gateway) -> None:
    """Secrets are known ones, and what stands under a name that says so."""
    first, second, big = (read(watched, f"/api/activity/{number}") for number in (1, 2, 5))
    assert (
        first["arguments"] == {"text": "hello", "password": "***"}
        and first["kept"]
        and first["replayable"]
    )
    assert first["result"]["content"][0]["text"] == "hello" and not first["shortened"]
    assert (
        second["arguments"]["text"] == second["result"]["content"][0]["text"] == "*** in the middle"
    )
    assert (
        big["shortened"] and len(json.dumps(big["result"])) < 20_000 and big["bytes_out"] > 99_000
    )
    assert SECRET not in get(watched, "/api/activity").body.decode()


def test_a_call_that_is_not_known_is_not_found(watched: Gateway) -> None:
    assert get(watched, "/api/activity/99999").code == "not_found"
    assert get(watched, "/api/activity/x").status == 422
    replayed = fetch(watched.admin_url, "/api/activity/99999/replay", "POST", watched.admin_headers)
    assert replayed.status == 404


def test_a_call_is_made_again_with_the_very_same_arguments_by_the_owner(watched: Gateway) -> None:
    """ADM-5"""
    answer = fetch(watched.admin_url, "/api/activity/1/replay", "POST", watched.admin_headers)
    assert answer.status == 200 and answer.json["ok"], answer.body
    assert answer.json["result"]["content"][0]["text"] == "hello"
    wait_until(lambda: read(watched, "/api/activity?client=mcpx%20admin")["calls"])
    again = read(watched, "/api/activity?client=mcpx%20admin")["calls"][-1]
    assert again["principal"] == "admin" and again["public_name"] == "one_echo"


def test_savings_are_counted_by_client_and_mode_with_the_method_told(watched: Gateway) -> None:
    """ADM-5: what was really served, nothing else."""
    before = read(watched, "/api/savings")
    search = Session(watched.port, path="/mcp/search")
    assert search.tools()
    rows = json.dumps([{"name": f"row {number}", "value": number} for number in range(40)])
    search.call("mcp_execute_tool", tool_name="one_echo", arguments={"text": rows})
    wait_until(lambda: read(watched, "/api/savings")["lists"] == before["lists"] + 1)
    told = read(watched, "/api/savings")
    assert told["catalog_tools"] == 8 and told["menus"]["direct"] == told["catalog_tokens"]
    assert set(told["menus"]) == {"direct", "inspect", "describe", "search"}
    mine = next(
        one for one in told["by_client"] if one["mode"] == "search" and one["client"] == "raw"
    )
    assert (
        mine["tokens_direct"] >= told["catalog_tokens"]
        and mine["tokens_shown"] >= told["menus"]["search"]
    )
    plain = [one for one in told["by_client"] if one["mode"] == "direct"]
    assert all(one["tokens_shown"] == one["tokens_direct"] for one in plain)
    raw, given = (told[key] - before[key] for key in ("result_tokens_raw", "result_tokens_given"))
    assert 0 < given < raw
    assert told["by_server"][0]["server"] == "one" and told["by_server"][0]["calls"] >= 5
    assert len(told["top_tools"]) == 8 and "estimated" in told["method"]


def test_about_and_diagnostics_tell_everything_but_secrets(watched: Gateway) -> None:
    about = read(watched, "/api/about")
    assert (
        about["url"] == watched.url
        and about["admin_url"] == watched.admin_url
        and about["auth"] == "none"
    )
    assert (
        about["config"] == str(watched.file)
        and about["pid"] == watched.process.pid
        and about["memory_mb"] > 10
    )
    assert fetch(watched.port, "/health").status == 200 and about["links"]["health"].endswith(
        "/health"
    )
    told = get(watched, "/api/diagnostics")
    assert told.json["status"]["servers"][0]["name"] == "one" and told.json["packages"]["pydantic"]
    assert SECRET not in told.body.decode() and watched.admin_token not in told.body.decode()


def test_each_client_program_is_told_what_to_paste(watched: Gateway) -> None:
    """ADM-5"""
    told = read(watched, "/api/clients")
    programs = {one["id"]: one for one in told["clients"]}
    assert {
        "claude-code",
        "claude-desktop",
        "cursor",
        "vscode",
        "codex",
        "gemini-cli",
        "windsurf",
        "zed",
    } <= set(programs)
    assert programs["claude-desktop"]["transport"] == "stdio" and programs["claude-desktop"]["why"]
    assert watched.url in programs["claude-code"]["snippets"][0]["text"]
    assert told["profiles"] == ["dev"] and told["url"] == watched.url
    dev = read(watched, "/api/clients?profile=dev")
    assert dev["url"].endswith("/p/dev/mcp")
    assert get(watched, "/api/clients?profile=nobody").status == 404


def test_a_client_program_that_has_come_is_marked(watched: Gateway) -> None:
    message = initialize_request()
    message["params"]["clientInfo"]["name"] = "claude-code"
    assert post(watched.port, message).status == 200
    seen = {one["id"] for one in read(watched, "/api/clients")["clients"] if one["seen"]}
    assert seen == {"claude-code"}


def test_nothing_is_counted_without_the_admin_ui() -> None:
    """ADM-1: nobody listens for calls, and nothing of it is loaded."""
    with GatewayProcess(
        {"mode": "direct", "mcp_servers": [raw_server("one")], "server": {"metrics": False}}
    ) as gateway:
        session = Session(gateway.port)
        session.call("one_echo", text="x")
        pid = gateway.process.pid
        loaded = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    assert "orjson" in loaded and "pydantic_core" not in loaded
