"""Tools over the admin API: lists, the search that models have, and calls through the guarded way
(ADM-5)."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from behaviour.load import cpu_of
from kit.admin_api import AdminApi
from kit.admin_events import AdminEvents
from kit.client import Session
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import Reply, fetch
from kit.servers import everything_server, raw_server
from kit.until import wait_until

SECRET = "hunter2-but-much-longer"


@pytest.fixture(scope="module")
def desk() -> Iterator[Gateway]:
    config = {
        "mode": "direct",
        "mcp_servers": [
            raw_server("raw", connection={"env": {"API_KEY": SECRET}}),
            everything_server("all", "--era", "older"),
        ],
        "profiles": [{"name": "some", "servers": ["raw"]}],
        "policy": {"rules": [{"effect": "ask", "tools": ["raw.die"]}]},
        "global": {"audit": {"file": "audit.jsonl"}},
    }
    with Gateway(config, admin=True) as started:
        session = Session(started.port)
        wait_until(lambda: {"raw_echo", "all_echo"} <= set(session.tools()))
        yield started


def get(gateway: Gateway, path: str) -> Reply:
    return fetch(gateway.admin_url, path, headers=gateway.admin_headers)


def read(gateway: Gateway, path: str) -> Any:
    answer = get(gateway, path)
    assert answer.status == 200, answer.body
    return answer.json


def call(gateway: Gateway, tool: str, **given: Any) -> Reply:
    return fetch(
        gateway.admin_url, f"/api/tools/{tool}/call", "POST", gateway.admin_headers, body=given
    )


def test_every_tool_is_listed_with_what_it_costs(desk: Gateway) -> None:
    """ADM-5"""
    told = read(desk, "/api/tools")
    tools = {tool["name"]: tool for tool in told["tools"]}
    assert told["total"] == len(tools) and told["tokens"] == sum(
        tool["tokens"] for tool in tools.values()
    )
    echo = tools["raw_echo"]
    assert (echo["server"], echo["tool"], echo["read_only"], echo["held"]) == (
        "raw",
        "echo",
        True,
        False,
    )
    assert echo["parameters"] == ["text"] and echo["tokens"] > 10
    only = read(desk, "/api/tools?server=raw")
    assert {tool["server"] for tool in only["tools"]} == {"raw"}
    assert {tool["server"] for tool in read(desk, "/api/tools?profile=some")["tools"]} == {"raw"}
    assert get(desk, "/api/tools?profile=nobody").status == 404


def test_one_tool_is_told_whole_with_its_signature(desk: Gateway) -> None:
    """ADM-5"""
    told = read(desk, "/api/tools/raw_echo")
    tools = Session(desk.port).request("tools/list")["result"]["tools"]
    (listed,) = [tool for tool in tools if tool["name"] == "raw_echo"]
    assert told["definition"] == listed
    assert told["signature"].startswith("raw_echo(") and told["signature_tokens"] < told["tokens"]
    assert get(desk, "/api/tools/nothing").code == "not_found"
    assert get(desk, "/api/tools/all_echo?profile=some").status == 404


def test_a_search_has_the_ranking_and_the_words_that_models_get(desk: Gateway) -> None:
    """SUR-4"""
    told = read(desk, "/api/search?q=who+am+i&limit=5")
    model = Session(desk.port, path="/mcp/search").call("mcp_search_tools", query="who am i")[
        "result"
    ]
    assert told["model_sees"] == model["content"][0]["text"] and told["model_tokens"] > 10
    found = [tool["display_name"] for tool in model["structuredContent"]["tools"]]
    assert [hit["name"] for hit in told["hits"]] == found[: len(told["hits"])]
    assert told["hits"][0]["name"] == "raw_whoami" and told["hits"][0]["score"] > 0
    for bad in ("limit=0&q=x", "limit=101&q=x", "limit=1"):
        assert get(desk, f"/api/search?{bad}").status == 422


def test_a_call_is_answered_as_the_server_gave_it_and_as_a_model_sees_it(desk: Gateway) -> None:
    """ADM-5"""
    rows = json.dumps([{"name": f"row {number}", "value": number} for number in range(40)])
    told = call(desk, "raw_echo", arguments={"text": rows}).json
    assert told["ok"] and told["ms"] > 0 and told["result"]["content"][0]["text"] == rows
    assert (
        told["model"]["mode"] == "search" and told["model"]["tokens"] < told["model"]["raw_tokens"]
    )
    assert "row 39" in told["model"]["text"]


def test_secrets_are_blotted_out_of_what_a_call_answers(desk: Gateway) -> None:
    answer = call(desk, "raw_whoami")
    assert answer.json["ok"] and "API_KEY" in answer.body.decode()
    assert SECRET not in answer.body.decode()


def test_a_call_that_fails_is_an_answer_with_its_error(desk: Gateway) -> None:
    told = call(desk, "raw_fail", arguments={"code": -32042, "message": "no"}).json
    assert not told["ok"] and told["result"] is None
    assert (told["error"]["code"], told["error"]["message"]) == (-32042, "no")
    unknown = call(desk, "nothing").json
    assert not unknown["ok"] and "nothing" in unknown["error"]["message"]
    assert call(desk, "raw_echo", profile="nobody").status == 404
    assert call(desk, "raw_echo", arguments=[1]).status == 422
    assert call(desk, "raw_echo", other=1).status == 422


def test_rules_and_the_audit_trail_count_for_the_owner_too(desk: Gateway) -> None:
    """SEC-7: there is no way round."""
    told = call(desk, "raw_die").json
    assert not told["ok"] and told["result"] is None
    trail = desk.folder / "audit.jsonl"

    def row() -> Any:
        lines = trail.read_text(encoding="utf-8").splitlines() if trail.exists() else []
        rows = [json.loads(line) for line in lines]
        mine = [row for row in rows if row["event"] == "call" and row["principal"] == "admin"]
        return next((row for row in mine if row["name"] == "die"), None)

    assert wait_until(row)["decision"] == "denied"


def test_progress_comes_as_events_and_the_result_last(desk: Gateway) -> None:
    """ADM-5"""
    body = {"arguments": {"steps": 3}}
    with AdminEvents(desk, "/api/tools/all_progress/call", method="POST", body=body) as events:
        result = events.wait_for("result")
        events.wait_for_end()
    assert [event.data["progress"] for event in events.named("progress")] == [1, 2, 3]
    assert (
        events.named("progress")[0].data["message"] == "step 1"
        and events.named("progress")[0].data["total"] == 3
    )
    assert result.data["ok"] and events.all[-1] is result


def test_a_question_is_declined_and_told(desk: Gateway) -> None:
    """ADM-5: of a server whose clients can be asked."""
    person = Session(desk.port, capabilities={"elicitation": {}})
    assert person.call("all_echo", text="x")["result"]
    body = {"arguments": {"message": "may I?"}}
    with AdminEvents(desk, "/api/tools/all_elicit/call", method="POST", body=body) as events:
        result = events.wait_for("result")
        question = events.wait_for("question")
    assert question.data == {
        "server": "all",
        "method": "elicitation/create",
        "message": "may I?",
        "answer": "decline",
    }
    assert "decline" in json.dumps(result.data["result"])


def test_a_call_is_cancelled_by_its_id(desk: Gateway) -> None:
    """ADM-5"""
    body = {"arguments": {"seconds": 60}, "call_id": "mine"}
    with AdminEvents(desk, "/api/tools/all_slow/call", method="POST", body=body) as events:
        events.wait_for("progress")
        assert call(desk, "raw_echo", call_id="mine").status == 409
        gone = fetch(desk.admin_url, "/api/calls/mine", "DELETE", desk.admin_headers)
        assert gone.status == 200
        result = events.wait_for("result")
        assert not result.data["ok"] and result.data["error"]["message"] == "the call was cancelled"
    assert fetch(desk.admin_url, "/api/calls/mine", "DELETE", desk.admin_headers).status == 404


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_call_ends_with_the_connection_it_was_asked_for_on(desk: Gateway, accept: str) -> None:
    """ADM-5"""

    def cancelled() -> int:
        return len(read(desk, "/api/activity?outcome=cancelled&q=all_slow")["calls"])

    before = cancelled()
    url = urlsplit(desk.admin_url)
    body = json.dumps({"arguments": {"seconds": 60}, "call_id": f"cut-{accept[:4]}"})
    head = (
        f"POST /api/tools/all_slow/call HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer "
        f"{desk.admin_token}\r\n"
        f"Accept: {accept}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.sendall((head + body).encode())
        wait_until(lambda: read(desk, "/api/overview")["gateway"]["in_flight"] == 1)
    wait_until(lambda: cancelled() == before + 1)


def test_no_more_calls_at_a_time_than_a_bound(desk: Gateway) -> None:
    """ADM-5"""
    answers: list[Reply] = []
    until = desk.folder / "until"

    def slow() -> None:
        answers.append(call(desk, "raw_sleep", arguments={"seconds": 60, "until": str(until)}))

    threads = [threading.Thread(target=slow) for _ in range(17)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: answers)
        assert (answers[0].status, answers[0].code) == (429, "too_many_calls")
    finally:
        until.touch()
        for thread in threads:
            thread.join()
    assert [answer.status for answer in answers[1:]] == [200] * 16


def test_a_result_that_is_too_large_is_said_to_be(desk: Gateway) -> None:
    told = call(desk, "raw_big", arguments={"bytes": 6_000_000})
    assert told.status == 200 and told.json["shortened"] and len(told.body) < 500_000
    assert told.json["model"]["tokens"] < 10_000 < told.json["model"]["raw_tokens"]


def test_a_held_tool_is_listed_as_such_and_cannot_be_called() -> None:
    """SEC-5"""
    with Gateway(
        {"mode": "direct", "mcp_servers": [raw_server("one", trust="quarantine")]}, admin=True
    ) as gateway:
        tools = wait_until(lambda: read(gateway, "/api/tools")["tools"])
        echo = next(tool for tool in tools if tool["tool"] == "echo")
        assert echo["held"] and echo["name"] == "one.echo"
        assert read(gateway, "/api/tools/one.echo")["held"]
        assert not call(gateway, "one.echo", arguments={"text": "x"}).json["ok"]
        overview = read(gateway, "/api/overview")
        assert overview["servers"][0]["quarantined"] and overview["waiting"][0]["kind"] == "server"


def test_a_thousand_tools_are_listed_quickly() -> None:
    """ADM-5"""
    server = raw_server("many", "--name-count", "1000")
    with GatewayProcess({"mode": "direct", "mcp_servers": [server]}, admin=True) as gateway:
        assert len(Session(gateway.port).tools()) >= 1000
        assert read(gateway, "/api/tools")["total"] >= 1000
        used = cpu_of(gateway.process.pid)
        read(gateway, "/api/tools")
        assert cpu_of(gateway.process.pid) - used < 1.0


def test_a_list_is_of_what_there_is_now_and_for_whom_it_was_asked() -> None:
    """ADM-5: a list is made once for each catalog, and never shown for another."""
    config = {
        "mcp_servers": [raw_server("one"), raw_server("two")],
        "profiles": [{"name": "few", "servers": ["two"]}],
    }
    with Gateway(config, admin=True) as gateway:
        api = AdminApi(gateway)

        def servers(query: str = "") -> set[str]:
            told = api.get(f"/api/tools{query}")
            assert told["total"] == len(told["tools"]) and told["tokens"] == sum(
                one["tokens"] for one in told["tools"]
            )
            return {one["server"] for one in told["tools"]}

        wait_until(lambda: servers() == {"one", "two"})
        for _ in range(2):
            assert (servers("?profile=few"), servers(), servers("?server=one")) == (
                {"two"},
                {"one", "two"},
                {"one"},
            )
        own = api.get("/api/mcp-servers/one/tools")
        assert own["tools"] == [
            one for one in api.get("/api/tools")["tools"] if one["server"] == "one"
        ]
        api.changed("PATCH", "/api/mcp-servers/one/toggle")
        assert (servers(), servers("?profile=few"), servers("?server=one")) == (
            {"two"},
            {"two"},
            set(),
        )
