"""Limits as clients meet them (SEC-6): over HTTP a status and `Retry-After`, elsewhere our code;
what was taken is given back on every way out; a reload counts at once and forgets nothing."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from behaviour.compact import MODES, meta_call
from kit.client import WAIT_SECONDS, Session, StdioClient, Stream, post, post_modern
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import Reply, fetch
from kit.messages import (
    Json,
    initialize_request,
    modern_headers,
    modern_request,
    notification,
    request,
    text_of,
)
from kit.servers import stdio_server
from kit.until import wait_until

OVERLOADED = -33006
SCRIPT = Path(__file__).with_name("asking_server.py")
QUICK = {"hot_reload_interval": 0.05, "startup_wait": 10, "first_start_wait": 10}
CAN_ANSWER = {"elicitation": {"form": {}}}
ERAS = ("older", "modern")


class Place:
    """A gateway before one server whose calls last until the test lets them go."""

    def __init__(self, gateway: Gateway, record: Path) -> None:
        self.gateway = gateway
        self.port = gateway.port
        self._record = record

    def calls(self, tool: str = "wait") -> int:
        """How often the server has heard of it."""
        lines = self._record.read_bytes().splitlines() if self._record.exists() else []
        heard = [each for each in map(json.loads, lines) if each.get("method") == "tools/call"]
        return sum(each["params"]["name"] == tool for each in heard)

    def change(self, **config: Any) -> None:
        """Another configuration, taken up."""
        said = self.gateway.stderr().count("reloaded: ")
        file = self.gateway.file.with_suffix(".new")
        file.write_text(json.dumps({**self.gateway.config, **config}), encoding="utf-8")
        file.chmod(0o600)
        file.rename(self.gateway.file)
        wait_until(lambda: self.gateway.stderr().count("reloaded: ") > said)


def config_of(record: Path, its: Json | None = None, **more: Any) -> Json:
    """`its`: more keys of the server."""
    entry = stdio_server("s", [sys.executable, "-I", "-S", str(SCRIPT), str(record)], **(its or {}))
    return {"global": QUICK, "mcp_servers": [entry], **more}


@contextmanager
def place(folder: Path, its: Json | None = None, **more: Any) -> Iterator[Place]:
    record = folder / "record"
    with Gateway(config_of(record, its, **more)) as gateway:
        yield Place(gateway, record)


def call(
    port: int, era: str, tool: str = "s_echo", session: Session | None = None, **arguments: Any
) -> Reply:
    params = {"name": tool, "arguments": arguments}
    if era == "modern":
        return post_modern(port, modern_request("tools/call", params))
    session = session or Session(port)
    return session.post(request("tools/call", params, session.next_id()))


def start(port: int, era: str, **arguments: Any) -> Stream:
    """A call that is left running."""
    if era == "older":
        return Session(port).start_call("s_wait", **arguments)
    message = modern_request("tools/call", {"name": "s_wait", "arguments": arguments})
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    body = json.dumps(message).encode()
    return Stream(port, "POST", "/mcp", {**headers, **modern_headers(message)}.items(), body)


def refusal(reply: Reply, status: int) -> Json:
    """The error of a refusal, which tells when to come again, in both places alike."""
    assert reply.status == status, (reply.status, reply.body)
    error = reply.json["error"]
    assert error["code"] == OVERLOADED
    assert reply.get("retry-after") == str(error["data"]["retry_after"])
    return error


# ---- what is told


@pytest.mark.parametrize("era", ERAS)
def test_over_http_a_client_that_calls_too_often_gets_429_and_when_to_come_again(
    era: str, tmp_path: Path
) -> None:
    with place(tmp_path, server={"limits": {"per_minute": 3}}) as at:
        session = Session(at.port) if era == "older" else None
        for _ in range(3):
            assert call(at.port, era, session=session, text="hi").status == 200
        error = refusal(call(at.port, era, session=session), 429)
        assert 18 <= error["data"]["retry_after"] <= 20
        assert error["data"]["limit"] == "server.limits.per_minute"
        assert "3 calls a minute" in error["message"] and "try again in" in error["message"]
        assert at.calls("echo") == 3
        if session is not None:  # it goes on: what is no call is not counted
            assert len(session.tools()) == 9
        assert fetch(at.port, "/health").status == 200


@pytest.mark.parametrize("carrier", ["websocket", "sse", "stdio"])
def test_on_other_carriers_our_code_tells_the_same(carrier: str, tmp_path: Path) -> None:
    config = config_of(tmp_path / "record", its={"limits": {"per_minute": 1}})
    params: Json = {"name": "s_echo", "arguments": {}}
    if carrier == "stdio":
        with (
            GatewayProcess(config, transport="stdio") as gateway,
            StdioClient(gateway.stdio_command, gateway.env) as pipe,
        ):
            pipe.greet()
            replies = [pipe.request("tools/call", params) for _ in range(2)]
            assert pipe.finish() == 0
    else:
        with GatewayProcess(config) as gateway:
            replies = (
                by_websocket(gateway.port, params)
                if carrier == "websocket"
                else by_sse(gateway.port, params)
            )
    assert "result" in replies[0]
    error = replies[1]["error"]
    assert error["code"] == OVERLOADED
    assert 59 <= error["data"]["retry_after"] <= 60
    assert error["data"]["limit"] == "mcp_servers.s.limits.per_minute"


def by_websocket(port: int, params: Json) -> list[Json]:
    with connect(
        f"ws://127.0.0.1:{port}/ws", subprotocols=["mcp"], open_timeout=WAIT_SECONDS
    ) as socket:  # type: ignore[list-item]
        socket.send(json.dumps(initialize_request()))
        socket.recv(WAIT_SECONDS)
        replies: list[Json] = []
        for id in (1, 2):
            socket.send(json.dumps(request("tools/call", params, id)))
            replies.append(json.loads(socket.recv(WAIT_SECONDS)))
        return replies


def by_sse(port: int, params: Json) -> list[Json]:
    with Stream(port, "GET", "/sse", [("Accept", "text/event-stream")]) as stream:
        path = stream.data()
        assert post(port, initialize_request("2024-11-05"), path=path).status == 202
        stream.data()
        replies: list[Json] = []
        for id in (1, 2):
            assert post(port, request("tools/call", params, id), path=path).status == 202
            replies.append(stream.data())
        return replies


@pytest.mark.parametrize("mode", MODES)
def test_a_compact_surface_is_no_way_round(mode: Any, tmp_path: Path) -> None:
    """The limit is met by the call that the surface's own tool leads to; what it looks up itself is
    not counted."""
    with place(tmp_path, its={"limits": {"per_minute": 2}}, mode=mode) as at:
        session = Session(at.port)
        name, arguments = meta_call(mode, "s", "echo", {"text": "hi"})
        for _ in range(2):
            assert "hi" in json.dumps(session.call(name, **arguments))
        told = session.post(request("tools/call", {"name": name, "arguments": arguments}, "last"))
        assert "2 calls a minute" in told.body.decode()
        assert at.calls("echo") == 2


def test_several_calls_of_one_turn_are_limited_each(tmp_path: Path) -> None:
    with place(tmp_path, its={"limits": {"per_minute": 2}}) as at:
        session = Session(at.port, path="/mcp/describe")
        calls = [{"method": "s.echo", "arguments": {"text": f"n{n}"}} for n in range(3)]
        told = json.dumps(session.call("call", calls=calls, **{"continue": True}))
        assert "n0" in told and "n1" in told and "2 calls a minute" in told
        assert at.calls("echo") == 2


# ---- who waits, and what is given back


@pytest.mark.parametrize("era", ERAS)
def test_a_server_gets_no_more_at_a_time_and_who_is_too_many_gets_503_at_once(
    era: str, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with (
        place(tmp_path, its={"limits": {"in_flight": 2, "queue": 1}}) as at,
        ThreadPoolExecutor(2) as pool,
    ):
        running = [start(at.port, era, until=str(go)) for _ in range(2)]
        wait_until(lambda: at.calls() == 2)
        more = [pool.submit(call, at.port, era, "s_wait", until=str(go)) for _ in range(2)]
        done, waiting = wait(more, WAIT_SECONDS, FIRST_COMPLETED)
        error = refusal(done.pop().result(), 503)
        assert error["data"]["limit"] == "mcp_servers.s.limits.in_flight"
        assert "2 calls of server s are in flight and 1 wait" in error["message"]
        assert at.calls() == 2 and len(waiting) == 1
        go.touch()
        assert waiting.pop().result(WAIT_SECONDS).status == 200
        assert [stream.reply().status for stream in running] == [200, 200]
        assert call(at.port, era).status == 200


def test_a_modern_client_that_leaves_gives_its_place_back(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with place(tmp_path, server={"limits": {"in_flight": 1, "queue": 0}}) as at:
        running = start(at.port, "modern", until=str(go))
        wait_until(lambda: at.calls() == 1)
        refusal(call(at.port, "modern"), 429)
        running.cut()
        wait_until(lambda: call(at.port, "modern").status == 200)
        go.touch()


def test_an_older_client_that_cancels_gives_its_place_back(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with place(tmp_path, its={"limits": {"in_flight": 1, "queue": 0}}) as at:
        session = Session(at.port)
        with session.start_call("s_wait", id="long", until=str(go)):
            wait_until(lambda: at.calls() == 1)
            refusal(call(at.port, "older"), 503)
            assert (
                session.post(notification("notifications/cancelled", {"requestId": "long"})).status
                == 202
            )
            wait_until(lambda: call(at.port, "older").status == 200)
        go.touch()


def test_a_call_that_times_out_gives_its_place_back(tmp_path: Path) -> None:
    with place(tmp_path, its={"limits": {"in_flight": 1, "queue": 0}, "call_timeout": 0.2}) as at:
        assert call(at.port, "modern", "s_wait", seconds=60).json["error"]["code"] == -33002
        assert call(at.port, "modern").status == 200


def test_a_call_whose_client_is_asked_gives_its_place_back_meanwhile(tmp_path: Path) -> None:
    """A modern client's call to an older server is kept running while its client thinks; nobody
    else waits for that."""
    with place(tmp_path, its={"limits": {"in_flight": 1, "queue": 0}}) as at:
        params: Json = {"name": "s_ask", "arguments": {}}
        asked = post_modern(
            at.port, modern_request("tools/call", params, capabilities=CAN_ANSWER)
        ).json["result"]
        assert asked["resultType"] == "input_required"
        assert call(at.port, "modern").status == 200
        answers = {key: {"action": "decline"} for key in asked["inputRequests"]}
        again = {**params, "requestState": asked["requestState"], "inputResponses": answers}
        assert "decline" in text_of(
            post_modern(at.port, modern_request("tools/call", again, capabilities=CAN_ANSWER)).json
        )
        assert call(at.port, "modern").status == 200


def test_reads_count_like_calls(tmp_path: Path) -> None:
    with place(tmp_path, its={"limits": {"per_minute": 2}}) as at:
        session = Session(at.port)
        assert "result" in session.request("resources/read", {"uri": "asking://one"})
        assert "result" in session.request("resources/subscribe", {"uri": "asking://one"})
        assert (
            session.request("resources/read", {"uri": "asking://one"})["error"]["code"]
            == OVERLOADED
        )
        assert "result" in session.request("resources/unsubscribe", {"uri": "asking://one"})


def test_the_callers_of_a_profile_share_its_limits(tmp_path: Path) -> None:
    profiles = [{"name": "team", "limits": {"per_minute": 2}}, {"name": "home"}]
    with place(tmp_path, profiles=profiles) as at:
        team = [Session(at.port, path="/p/team/mcp") for _ in range(3)]
        echo: Json = {"name": "s_echo", "arguments": {}}
        replies = [each.post(request("tools/call", echo)) for each in team]
        assert [reply.status for reply in replies] == [200, 200, 429]
        assert refusal(replies[2], 429)["data"]["limit"] == "profiles.team.limits.per_minute"
        assert Session(at.port, path="/p/home/mcp").post(request("tools/call", echo)).status == 200


# ---- reloads


def test_a_reload_changes_limits_at_once_and_keeps_what_was_counted(tmp_path: Path) -> None:
    """CFG-5: `server.limits` needs no restart."""
    with place(tmp_path, server={"limits": {"per_minute": 3}}) as at:
        for _ in range(3):
            assert call(at.port, "modern").status == 200
        refusal(call(at.port, "modern"), 429)
        at.change(server={"limits": {"per_minute": 5}})
        assert [call(at.port, "modern").status for _ in range(3)] == [200, 200, 429]
        assert "needs a restart" not in at.gateway.stderr()
        at.change(server={})
        assert [call(at.port, "modern").status for _ in range(10)] == [200] * 10
        at.change(server={"limits": {"per_minute": 5}})
        refusal(call(at.port, "modern"), 429)


def test_who_waits_is_let_in_by_a_reload_that_makes_room(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with place(tmp_path, server={"limits": {"in_flight": 1}}) as at:
        calls = [start(at.port, "modern", until=str(go)) for _ in range(3)]
        wait_until(lambda: at.calls() == 1)
        at.change(server={})
        wait_until(lambda: at.calls() == 3)
        go.touch()
        assert [stream.reply().status for stream in calls] == [200] * 3


# ---- sessions


def test_no_more_sessions_than_the_configuration_allows_of_every_kind(tmp_path: Path) -> None:
    """A new one takes the place of one that nobody uses; where all are in use it is refused."""
    with place(tmp_path, server={"limits": {"sessions": 3}}) as at:
        first, second = Session(at.port), Session(at.port)
        with first.listen() as one, second.listen() as two:
            one.comment()
            two.comment()
            third = Session(at.port)
            fourth = Session(at.port)  # the third was not in use
            assert third.post(request("ping")).status == 404
            assert fourth.post(request("ping")).status == 200
            with connect(
                f"ws://127.0.0.1:{at.port}/ws", subprotocols=["mcp"], open_timeout=WAIT_SECONDS
            ):  # type: ignore[list-item]
                assert fourth.post(request("ping")).status == 404
                error = refusal(post(at.port, initialize_request()), 503)
                assert (
                    error["data"]["limit"] == "server.limits.sessions"
                    and "too many sessions" in error["message"]
                )
                with pytest.raises(InvalidStatus) as refused:
                    connect(f"ws://127.0.0.1:{at.port}/ws", subprotocols=["mcp"])  # type: ignore[list-item]
                assert refused.value.response.status_code == 503
                assert fetch(at.port, "/sse").status == 503
                assert first.post(request("ping")).status == 200
                at.change(server={"limits": {"sessions": 4}})
                assert post(at.port, initialize_request()).status == 200
