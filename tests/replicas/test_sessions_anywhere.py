"""SCA-1: a request of an older session through a replica that is not its owner, while the owner
lives."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from behaviour.test_leases import URI, seen
from kit.client import ACCEPT_BOTH, WAIT_SECONDS, Session, Stream, post
from kit.messages import META, Json, modern_headers, modern_request, notification, request, text_of
from kit.replicas import RedisServer, program
from kit.until import wait_until
from replicas.conftest import Trio
from replicas.looking import connections, messages, peak_memory, place_of, record_of

ABLE: Json = {"elicitation": {}, "sampling": {}, "roots": {}}
ANSWERS: dict[str, Json] = {
    "elicitation/create": {"action": "accept", "content": {"name": "ada"}},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "yes"},
        "model": "m",
    },
    "roots/list": {"roots": [{"uri": "file:///home/ada"}]},
}


def begun(trio: Trio, at: int = 0, **more: Any) -> Session:
    """A session of one replica; `through` sends its requests to another."""
    return Session(trio.port(at), **more)


def through(session: Session, trio: Trio, number: int) -> Session:
    session.port = trio.port(number)
    return session


def test_progress_comes_step_by_step_and_a_question_is_answered_through_a_third(
    trio: Trio, tmp_path: Path
) -> None:
    """SCA-1, PRO-4, PRO-5: each step is read before the server is let on to the next."""
    session, go = begun(trio, capabilities=ABLE), tmp_path / "go"
    stream = messages(through(session, trio, 1).start_call("s_steps", progress="p", until=str(go)))
    assert next(stream)["params"]["progress"] == 1
    question = next(stream)
    assert question["method"] == "elicitation/create"
    go.touch()
    assert next(stream)["params"]["progress"] == 2
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": ANSWERS["elicitation/create"]}
    assert through(session, trio, 2).post(answer).status == 202
    assert next(stream)["params"]["progress"] == 3
    assert text_of(next(stream)) == "done"
    assert list(stream) == []


@pytest.mark.parametrize("method", ANSWERS)
def test_every_kind_of_question_is_put_through_one_replica_and_answered_through_another(
    trio: Trio, method: str
) -> None:
    """SCA-1, PRO-5."""
    session = begun(trio, capabilities=ABLE)
    stream = messages(through(session, trio, 1).start_call("s_ask", method=method, text="well?"))
    question = next(stream)
    assert question["method"] == method
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": ANSWERS[method]}
    assert through(session, trio, 2).post(answer).status == 202
    assert json.loads(text_of(next(stream))) == ANSWERS[method]


def test_a_call_that_is_cancelled_through_a_third_replica_is_cancelled_at_the_server(
    trio: Trio, tmp_path: Path
) -> None:
    """SCA-1, LIF-6."""
    session, never = begun(trio), tmp_path / "never"
    stream = through(session, trio, 1).start_call(
        "s_wait", id="the one", text="mine", until=str(never)
    )
    call = wait_until(
        lambda: [
            m
            for m in seen(trio.record, "tools/call")
            if m["params"]["arguments"].get("until") == str(never)
        ]
    )[0]
    assert (
        through(session, trio, 2)
        .post(notification("notifications/cancelled", {"requestId": "the one"}))
        .status
    )
    wait_until(
        lambda: [
            m
            for m in seen(trio.record, "notifications/cancelled")
            if (m["pid"], m["params"]["requestId"]) == (call["pid"], call["id"])
        ]
    )
    assert "error" in stream.reply().message
    never.touch()


def test_a_get_stream_is_resumed_at_another_replica_without_loss_and_without_anything_twice(
    trio: Trio,
) -> None:
    """SCA-1: what came while the client was away, and what was sent and not read."""
    session = begun(trio)
    session.request("resources/subscribe", {"uri": URI})
    door = place_of(trio.store, trio.replicas[0])[1]
    before = connections(door)
    with through(session, trio, 1).listen() as stream:
        stream.comment()
        listening = connections(door) - before
        session.call("s_touch")
        first = stream.event()
        assert first is not None and first["data"]["params"]["uri"] == URI
        session.call("s_touch")  # it is sent, and nobody reads it
    wait_until(lambda: not listening & connections(door))
    session.call("s_touch")
    with through(session, trio, 2).listen(first["id"]) as stream:
        found = [stream.event() for _ in range(2)]
        session.call("s_touch")
        found.append(stream.event())
        numbers = [int(event["id"].split("-")[1]) for event in (first, *found) if event]
        assert numbers == [numbers[0] + n for n in range(4)]


def test_the_owner_notices_that_a_client_left_through_another_replica(trio: Trio) -> None:
    """SCA-1: what comes then is kept for it, though it names no event when it is back."""
    session = begun(trio)
    session.request("resources/subscribe", {"uri": URI})
    door = place_of(trio.store, trio.replicas[0])[1]
    before = connections(door)
    with through(session, trio, 1).listen() as stream:
        stream.comment()
        listening = connections(door) - before
        assert listening
    wait_until(lambda: not listening & connections(door))
    session.call("s_touch")
    with through(session, trio, 2).listen() as stream:
        assert stream.data()["params"]["uri"] == URI


def test_a_modern_client_that_leaves_through_another_replica_cancels_its_call(
    trio: Trio, tmp_path: Path
) -> None:
    """SCA-1, LIF-6: its question was answered there, and the call goes on where it was put."""
    never = tmp_path / "never"
    call: Json = {"name": "s_ask", "arguments": {"text": "sure?", "after": str(never)}}
    asked = modern_request("tools/call", call, capabilities=ABLE)
    question = post(trio.port(0), asked, modern_headers(asked)).message["result"]
    assert question["resultType"] == "input_required"
    answers = dict.fromkeys(question["inputRequests"], ANSWERS["elicitation/create"])
    again = modern_request(
        "tools/call",
        {**call, "requestState": question["requestState"], "inputResponses": answers},
        capabilities=ABLE,
    )
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers = [*usual.items(), *modern_headers(again).items()]
    with Stream(trio.port(1), "POST", "/mcp", headers, json.dumps(again).encode()):
        wait_until(lambda: seen(trio.record, "answered")[-1:])
        [sent] = [
            m
            for m in seen(trio.record, "tools/call")
            if m["params"]["arguments"].get("after") == str(never)
        ]
    wait_until(
        lambda: [
            m
            for m in seen(trio.record, "notifications/cancelled")
            if (m["pid"], m["params"]["requestId"]) == (sent["pid"], sent["id"])
        ]
    )
    never.touch()


def test_delete_at_any_replica_ends_the_session_everywhere(trio: Trio) -> None:
    """SCA-1."""
    session = begun(trio)
    assert text_of(through(session, trio, 1).call("s_echo", text="here")) == "here"
    assert session.delete().status == 200
    for number in range(3):
        assert (
            through(session, trio, number).post(notification("notifications/initialized")).status
            == 404
        )
        assert session.delete().status == 404


def test_ids_that_nobody_here_made_are_unknown_everywhere_and_ask_the_store_nothing(
    trio: Trio,
) -> None:
    """SCA-1, SEC-6: random ones, one with a letter changed, and one that replicas of another store
    made."""
    real = begun(trio)
    with Monitor(trio.store) as monitor:
        last = "A" if real.id[-1] != "A" else "B"
        owner = real.id.partition(".")[0]
        foreign = f"{owner}.abcdefghijklmnopqrstuvwx.{real.id.rpartition('.')[2]}"
        for forged in ("", "x", "..", real.id[:-1] + last, foreign, "é.ü.ß", "a" * 5_000):
            for number in range(3):
                headers = {"Mcp-Session-Id": forged} if forged else {"Mcp-Session-Id": "0"}
                assert (
                    post(trio.port(number), notification("notifications/x"), headers).status == 404
                )
        assert real.delete().status == 200
        gone = through(real, trio, 1).post(
            notification("notifications/x")
        )  # was sealed here: the store is asked
        assert gone.status == 404
        record = record_of(trio.store, real.id)
        wait_until(
            lambda: monitor.about(record), what="the monitor has seen the one that was asked for"
        )
        assert {
            line for line in monitor.lines if ":session:" in line and record not in line
        } == set()
        assert [line for line in monitor.lines if real.id in line] == []


class Monitor:
    """What the store is asked, by anybody."""

    def __init__(self, store: RedisServer) -> None:
        self._command = [program("valkey-cli", "redis-cli"), "-p", str(store.port), "monitor"]

    def __enter__(self) -> "Monitor":
        from kit.process import Child

        self._child = Child(self._command).__enter__()
        wait_until(lambda: "OK" in self._child.stdout.text, what="the monitor listens")
        return self

    @property
    def lines(self) -> list[str]:
        return self._child.stdout.text.splitlines()

    def about(self, record: str) -> bool:
        return any(record in line for line in self.lines)

    def __exit__(self, *_: object) -> None:
        self._child.end()


def said_everything(session: Session) -> None:
    """The server works off one call after the other: it has said all of the one before when it
    answers this one."""
    with session.start_call("f_flood", count=0, size=0, result=0) as stream:
        stream.patience(60)
        assert "result" in stream.reply().message


def test_a_reader_that_does_not_read_through_another_replica_costs_neither_of_them_much(
    trio: Trio,
) -> None:
    """SCA-1, SEC-6: 64 MiB of progress are told to somebody who does not read; then they read, and
    get the answer."""
    session = begun(trio)
    session.request("tools/list")
    before = [peak_memory(trio.replicas[number]) for number in (0, 1)]
    with through(session, trio, 1).start_call(
        "f_flood", progress="p", count=128, size=1 << 19, result=10
    ) as stream:
        assert stream.status == 200
        said_everything(through(session, trio, 2))
        grown = [
            peak_memory(trio.replicas[number]) - start
            for number, start in zip((0, 1), before, strict=True)
        ]
        assert max(grown) < 32 << 20, grown
        told = list(messages(stream))
    assert text_of(told[-1]) == "r" * 10


def test_a_large_answer_on_a_stream_reaches_a_slow_reader_through_another_replica_whole(
    trio: Trio,
) -> None:
    """SCA-1: larger than what may wait for one reader."""
    session = begun(trio)
    size = 12 << 20
    with through(session, trio, 1).start_call(
        "f_flood", progress="p", count=1, size=10, result=size
    ) as stream:
        stream.event()  # 2025-11-25 is told where the stream begins
        assert stream.data()["params"]["progress"] == 1
        said_everything(through(session, trio, 2))
        assert len(text_of(stream.data())) == size


def test_a_level_that_was_set_through_one_replica_counts_for_calls_through_another(
    trio: Trio,
) -> None:
    """SCA-1, PRO-4."""
    session = begun(trio)
    through(session, trio, 1).request("logging/setLevel", {"level": "error"})
    told = list(messages(through(session, trio, 2).start_call("s_log", level="info", text="quiet")))
    assert [m.get("method") for m in told] == [None]
    with through(session, trio, 1).listen() as stream:
        stream.comment()
        told = list(
            messages(through(session, trio, 2).start_call("s_log", level="error", text="loud"))
        )
        said = [m for m in told if m.get("method") == "notifications/message"] or [stream.data()]
    assert [m["params"]["data"] for m in said] == ["loud"]


STATES = (
    *(
        f"{META}x",
        "no such state",
        "mcpx-at.0123456789.x",
        "mcpx-at.",
        "mcpx-at..",
        "mcpx-at.x",
        "mcpx-at.0123456789.",
    ),
    *(
        "mcpx-at.{here}.x",
        "mcpx-at.{there}.x",
        "mcpx-at.{there}.",
        "mcpx-at.{there}.mcpx-at.{here}.x",
        "mcpx-at.é.x",
    ),
)


@pytest.mark.parametrize("wanted", STATES)
def test_a_state_that_nobody_gave_out_is_judged_and_makes_no_call(trio: Trio, wanted: str) -> None:
    """SCA-1, SEC-6: made up, given out by one that is gone, or naming one that knows nothing of
    it."""
    here, there = (place_of(trio.store, trio.replicas[number])[2] for number in (1, 2))
    state = wanted.format(here=here, there=there)
    call = modern_request(
        "tools/call", {"name": "s_ask", "arguments": {}, "requestState": state}, capabilities=ABLE
    )
    reply = post(trio.port(1), call, modern_headers(call)).message
    assert reply["error"]["message"] == "requestState is unknown or has expired"


def test_what_comes_right_behind_a_delete_finds_no_session(trio: Trio) -> None:
    """SCA-1: in the same packet, so that it is looked for before the store has been told of the
    end."""
    for _ in range(10):
        session = Session(trio.port(0))
        head = "".join(f"{name}: {value}\r\n" for name, value in session.headers.items())
        body = json.dumps(request("tools/list", id="late")).encode()
        usual = f"Host: 127.0.0.1\r\nAccept: {ACCEPT_BOTH}\r\nContent-Type: application/json\r\n"
        end = f"DELETE /mcp HTTP/1.1\r\n{usual}{head}\r\n".encode()
        late = (
            f"POST /mcp HTTP/1.1\r\n{usual}{head}Connection: close\r\nContent-Length: "
            f"{len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", trio.port(0)), WAIT_SECONDS) as connection:
            connection.sendall(end + late.encode() + body)
            told = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"404"], told
        assert session.post(request("ping")).status == 404
