"""What happens is told to whoever listens, at once and from one ring, and nobody who listens is in
anybody's way."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from kit.admin_api import AdminApi, browser_session
from kit.admin_events import WAIT, AdminEvents
from kit.client import Session
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import fetch
from kit.servers import raw_server


@pytest.fixture(scope="module")
def watched() -> Iterator[Gateway]:
    with GatewayProcess(
        {"mode": "direct", "mcp_servers": [raw_server("one"), raw_server("two")]}, admin=True
    ) as started:
        session = Session(started.port)
        assert session.call("one_echo", text="ready")["result"]
        assert session.call("two_echo", text="ready")["result"]
        yield started


def read(gateway: Gateway, path: str) -> Any:
    answer = fetch(gateway.admin_url, path, headers=gateway.admin_headers)
    assert answer.status == 200, answer.body
    return answer.json


def test_a_stream_begins_with_hello_and_tells_of_a_call_within_a_second(watched: Gateway) -> None:
    """ADM-4"""
    session = Session(watched.port)
    with AdminEvents(watched) as events:
        hello = events.wait_for("hello")
        assert (
            hello.data["run"]
            and hello.id is not None
            and hello.id.startswith(hello.data["run"] + "-")
        )
        session.call("one_echo", text="hello")
        call = events.wait_for("call", lambda data: data["public_name"] == "one_echo")
        assert (
            call.data["outcome"] == "ok"
            and call.data["client"] == "raw"
            and call.data["server"] == "one"
        )
        assert call.data["bytes_out"] > 0 and "hello" not in json.dumps(call.data)


def test_a_failed_call_is_told_with_its_error_in_one_line(watched: Gateway) -> None:
    """ADM-4"""
    session = Session(watched.port)
    with AdminEvents(watched) as events:
        events.wait_for("hello")
        session.call("one_fail", message="first\nsecond  line")
        call = events.wait_for("call", lambda data: data["name"] == "fail")
    assert (call.data["outcome"], call.data["code"]) == ("error", -32000)
    assert call.data["error"] == "first second line"


def test_rates_and_clients_come_while_something_is_called(watched: Gateway) -> None:
    """ADM-4"""
    with AdminEvents(watched) as events:
        events.wait_for("hello")
        session = Session(watched.port)
        session.call("two_echo", text="x")
        rates = events.wait_for(
            "rates", lambda data: any(one["name"] == "two" for one in data["servers"])
        )
        assert rates.data["calls_per_minute"] >= 1 and rates.id is None
        clients = events.wait_for(
            "clients", lambda data: any(one["name"] == "raw" for one in data["clients"])
        )
        mine = next(one for one in clients.data["clients"] if one["name"] == "raw")
        assert mine["mode"] == "direct" and mine["why"] == "the configuration says so"
        assert mine["protocol"] == "2025-11-25" and clients.data["sessions"] >= 1


def test_after_a_break_a_reader_goes_on_without_loss_and_nothing_comes_twice(
    watched: Gateway,
) -> None:
    """ADM-4"""
    session = Session(watched.port)
    with AdminEvents(watched) as events:
        events.wait_for("hello")
        session.call("one_echo", text="before")
        events.wait_for("call")
        last = events.last_id
    for number in range(5):
        session.call("one_fail", message=f"missed {number}")
    with AdminEvents(watched, headers={"Last-Event-ID": last}) as again:
        again.wait_for("call", lambda data: data["error"] == "missed 4")
        session.call("one_fail", message="live")
        again.wait_for("call", lambda data: data["error"] == "live")
        told = [event.data["error"] for event in again.named("call")]
        numbers = [
            event.id for event in again.all if event.id is not None and event.name != "hello"
        ]
    assert told == [*(f"missed {number}" for number in range(5)), "live"]
    assert len(set(numbers)) == len(numbers) and not again.named("reset")
    with AdminEvents(watched, f"/api/events?last_event_id={again.last_id}") as third:
        third.wait_for("hello")
        session.call("one_fail", message="third")
        third.wait_for("call", lambda data: data["error"] == "third")
        assert [event.data["error"] for event in third.named("call")] == ["third"]


@pytest.mark.parametrize("last", ["deadbeef-3", "nonsense", "-", "deadbeef-999999999999999999999"])
def test_who_cannot_be_resumed_is_told_to_begin_anew(watched: Gateway, last: str) -> None:
    """ADM-4"""
    with AdminEvents(watched, headers={"Last-Event-ID": last}) as events:
        events.wait_for("reset")
        assert [event.name for event in events.all[:2]] == ["hello", "reset"]


def test_a_server_that_dies_and_comes_back_is_told(watched: Gateway) -> None:
    """ADM-4"""
    session = Session(watched.port)
    with AdminEvents(watched) as events:
        events.wait_for("hello")
        pid = session.call("two_whoami")["result"]["structuredContent"]["pid"]
        os.kill(pid, signal.SIGKILL)
        first = events.wait_for("status", lambda data: data["name"] == "two")
        assert (
            first.data["last_error"] or first.data["status"] == "connected"
        )  # back before anybody could be told
        assert session.call("two_echo", text="again")[
            "result"
        ]  # which brings the next attempt forward
        events.wait_for(
            "status", lambda data: data["name"] == "two" and data["status"] == "connected"
        )


def test_a_changed_configuration_is_told_with_the_servers_and_tools_that_come_and_go() -> None:
    """ADM-4"""
    config: Any = {
        "mode": "direct",
        "global": {"hot_reload_interval": 0.1},
        "mcp_servers": [raw_server("one")],
    }
    with Gateway(config, admin=True) as gateway, AdminEvents(gateway) as events:
        assert "one_echo" in Session(gateway.port).tools()
        config["mcp_servers"] = [raw_server("other")]
        gateway.file.write_text(json.dumps(config), encoding="utf-8")
        told = events.wait_for("config")
        assert told.data["ok"] and told.data["revision"] == 2 and "other" in told.data["summary"]
        assert told.data["etag"] == AdminApi(gateway).etag
        gone = events.wait_for("status", lambda data: data["gone"])
        assert gone.data["name"] == "one"
        events.wait_for(
            "status", lambda data: data["name"] == "other" and data["status"] == "connected"
        )
        events.wait_for(
            "catalog", lambda data: data["server"] == "other" and "tools" in data["kinds"]
        )
        gateway.file.write_text("{", encoding="utf-8")
        refused = events.wait_for("config", lambda data: not data["ok"])
        assert refused.data["problems"] >= 1 and refused.data["revision"] == 2


def test_a_call_that_waits_for_approval_is_told() -> None:
    """ADM-4"""
    policy = {"rules": [{"effect": "ask", "tools": ["one.fail"]}]}
    with Gateway(
        {"mode": "direct", "mcp_servers": [raw_server("one")], "policy": policy}, admin=True
    ) as gateway:
        session = Session(gateway.port)
        with AdminEvents(gateway) as events:
            events.wait_for("hello")
            session.call("one_fail")
            assert events.wait_for("approvals").data["pending"] == 1
        waiting = read(gateway, "/api/overview")["waiting"]
        assert [one["kind"] for one in waiting] == ["call"] and waiting[0]["title"] == "one: fail"


def test_many_calls_a_second_are_told_in_part_and_the_others_are_counted(watched: Gateway) -> None:
    """ADM-4: none is lost without a word."""
    session = Session(watched.port)
    with AdminEvents(watched) as events:
        events.wait_for("hello")
        before = read(watched, "/api/activity")["last"]
        for _ in range(200):
            session.call("one_echo", text="x")
        last = read(watched, "/api/activity")["last"]
        assert last >= before + 200
        events.wait_for("call", lambda data: data["number"] == last)
        calls = [call.data for call in events.named("call")]
        # What the first one says may have been skipped before this stream began; all that follow
        # account for each call.
        assert calls[0]["number"] - calls[0]["skipped"] <= before + 1
        assert calls[0]["number"] + sum(1 + call["skipped"] for call in calls[1:]) == last


def test_no_more_streams_than_a_bound_and_each_that_ends_makes_room(watched: Gateway) -> None:
    """ADM-4"""
    streams = [AdminEvents(watched) for _ in range(64)]
    try:
        for stream in streams:
            stream.__enter__()
            assert stream.status == 200
        with AdminEvents(watched) as refused:
            assert refused.status == 503 and refused.error["code"] == "too_many_streams"
        streams.pop().close()
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            with AdminEvents(watched) as another:
                if another.status == 200:
                    break
        else:
            raise AssertionError("a stream that was closed keeps its place")
    finally:
        for stream in streams:
            stream.close()


def test_a_reader_that_never_reads_holds_nobody_up_and_costs_nothing() -> None:
    """ADM-4"""
    with Gateway({"mode": "direct", "mcp_servers": [raw_server("one")]}, admin=True) as gateway:
        session = Session(gateway.port)
        session.call("one_echo", text="ready")
        before = read(gateway, "/api/about")["memory_mb"]
        url = urlsplit(gateway.admin_url)
        head = (
            f"GET /api/events HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer "
            f"{gateway.admin_token}\r\n\r\n"
        )
        deaf = []
        try:
            for _ in range(10):
                one = socket.socket()
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.connect((url.hostname, url.port))
                one.sendall(head.encode())
                deaf.append(one)
            with AdminEvents(gateway) as events:
                events.wait_for("hello")
                for number in range(400):
                    session.call("one_fail", message=f"{number} " + "x" * 280)
                events.wait_for("call", lambda data: (data["error"] or "").startswith("399 "))
            assert read(gateway, "/api/about")["memory_mb"] - before < 12
        finally:
            for one in deaf:
                one.close()


def test_logging_out_ends_the_streams_of_that_session_only(watched: Gateway) -> None:
    """ADM-6"""
    session = browser_session(watched)
    with (
        AdminEvents(watched, headers={**session, "Authorization": None}) as mine,
        AdminEvents(watched) as other,
    ):
        mine.wait_for("hello")
        other.wait_for("hello")
        out = fetch(watched.admin_url, "/api/logout", "POST", headers=session)
        assert out.status == 204
        mine.wait_for_end()
        assert not other.ended


def test_streams_end_with_the_gateway() -> None:
    """LIF-8"""
    with Gateway({"mcp_servers": []}, admin=True) as gateway:
        events = AdminEvents(gateway).__enter__()
        events.wait_for("hello")
    events.wait_for_end()
    events.close()
