"""Names, descriptions and errors of hostile servers stay text in every answer and event, and break
none of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kit.admin_events import AdminEvents
from kit.client import Session
from kit.gateway import Gateway
from kit.http_client import fetch
from kit.process import stdio_command
from kit.servers import stdio_server
from kit.until import wait_until

SCRIPT = "<img src=x onerror=alert(1)>"
ODD = [
    "\ud83d half",
    "a\nevent: config\ndata: {}\n\n",
    SCRIPT,
    "‮evil",
    "x" * 300,
    "-",
    "..",
    "日本語",
    "\x00\x1b[31m",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    file: Path = tmp_path_factory.mktemp("hostile") / "offers.json"
    odd_hints = {"readOnlyHint": "yes", "title": 7}
    tools: list[Any] = []
    for number, odd in enumerate(ODD):
        schema = {"type": "object", "properties": {odd: {}}}
        words = {"name": f"t{number}", "title": odd, "description": odd * 3}
        tools.append({**words, "inputSchema": schema, "annotations": odd_hints})
    tools += [{"name": odd, "inputSchema": {"type": "object"}} for odd in ODD]
    file.write_text(json.dumps({"tools": tools, "instructions": SCRIPT}), encoding="utf-8")
    server = stdio_server("odd", stdio_command("told_server.py", "--offers", str(file)))
    with Gateway({"mode": "direct", "mcp_servers": [server]}, admin=True) as started:
        session = Session(started.port)
        wait_until(lambda: "odd_t0" in session.tools())
        yield started


def read(gateway: Gateway, path: str) -> Any:
    answer = fetch(gateway.admin_url, path, headers=gateway.admin_headers)
    assert answer.status == 200, (path, answer.body)
    return answer.json


def test_every_hostile_tool_is_told_of_and_can_be_asked_for(hostile: Gateway) -> None:
    """ADM-5"""
    tools = read(hostile, "/api/tools")["tools"]
    assert len(tools) >= 2 * len(ODD) - 2
    for tool in tools:
        name = tool["name"].encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        if len(name) <= 200 and "\ufffd" not in name:
            assert read(hostile, f"/api/tools/{quote(name, safe='')}")["server"] == "odd"
    assert tools[4]["read_only"] is None


@pytest.mark.parametrize("query", [*ODD[1:], "", "'\"\\", "%", "a" * 1000])
def test_any_words_can_be_searched_for(hostile: Gateway, query: str) -> None:
    told = read(hostile, f"/api/search?q={quote(query)}")
    assert isinstance(told["model_sees"], str) and told["query"] == query


@pytest.mark.parametrize(
    "path", ["overview", "savings", "about", "diagnostics", "clients", "activity", "statistics"]
)
def test_no_answer_breaks(hostile: Gateway, path: str) -> None:
    read(hostile, f"/api/{path}")


def test_hostile_errors_clients_and_arguments_stay_data(hostile: Gateway) -> None:
    """ADM-4"""
    with AdminEvents(hostile) as events:
        events.wait_for("hello")
        session = Session(hostile.port)
        for odd in ODD:
            session.call("odd_refuse", error={"code": -32000, "message": odd})
            session.call(
                "odd_give",
                result={
                    "content": [{"type": "text", "text": odd}],
                    "structuredContent": {odd: odd},
                },
            )
        last = wait_until(lambda: read(hostile, "/api/activity")["last"])
        events.wait_for("call", lambda data: data["number"] == last)
        assert not events.named("config")
    for row in read(hostile, "/api/activity?limit=500")["calls"]:
        read(hostile, f"/api/activity/{row['number']}")
    read(hostile, "/api/overview")


@pytest.mark.parametrize(
    "path",
    [
        "activity?q=%ff",
        "activity?server=%00",
        f"tools?server={'x' * 201}",
        "search?q=x&limit=1e9",
        "activity/-1",
        "activity/99999999999999999999",
        "tools/%ff",
        "statistics?server=%ff",
        "clients?profile=%00",
        f"events?last_event_id={'x' * 101}",
    ],
)
def test_odd_requests_get_a_clear_answer(hostile: Gateway, path: str) -> None:
    answer = fetch(hostile.admin_url, f"/api/{path}", headers=hostile.admin_headers)
    assert answer.status in (200, 404, 422) and (answer.status == 200 or answer.code)
