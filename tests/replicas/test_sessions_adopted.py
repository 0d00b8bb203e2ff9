"""SCA-1: an older session whose replica was killed goes on at whichever replica is asked next."""

import json
from pathlib import Path

from behaviour.test_leases import URI, seen
from kit.client import Session, Stream, post
from kit.messages import Json, modern_headers, modern_request, notification, text_of
from kit.replicas import ready
from kit.until import wait_until
from replicas.conftest import Trio, three
from replicas.looking import messages, nothing_more, told_in

CHANGED = "notifications/tools/list_changed"
CUT_OFF = "the replica that ran this call is gone"
ABLE: Json = {"elicitation": {}}
ANN, BOB = ({"Authorization": f"Bearer {token}"} for token in ("aaa", "bbb"))


def kill(trio: Trio, number: int) -> None:
    process = trio.replicas[number].process
    process.kill()
    process.wait()


def at(session: Session, trio: Trio, number: int) -> Session:
    session.port = trio.port(number)
    return session


def said(event: Json | None) -> Json:
    assert event is not None, "the stream has ended"
    return event["data"]


def test_a_session_goes_on_with_all_it_had(tmp_path: Path) -> None:
    """SCA-1, PRO-4: events that were sent and not read, none twice; one change of the tools; its
    subscriptions, its level, and what the client said of itself."""
    with three(tmp_path) as trio:
        session = Session(trio.port(0), capabilities=ABLE, client={"name": "ada", "version": "7"})
        session.request("resources/subscribe", {"uri": URI})
        session.request("logging/setLevel", {"level": "error"})
        with at(session, trio, 1).listen() as stream:
            stream.comment()
            session.call("s_touch")
            first = stream.event()
            assert said(first)["params"]["uri"] == URI
            session.call("s_touch")
            session.call("s_touch")  # two that nobody reads
            wait_until(
                lambda: told_in(trio.store, session.id) == 3, what="what was sent is written down"
            )
            kill(trio, 0)
            unread = (
                stream.events()
            )  # the stream ends: they were on their way to this client already
            assert [event["data"]["method"] for event in unread] == [
                "notifications/resources/updated"
            ] * 2
        assert first is not None
        subscribed = len(seen(trio.record, "resources/subscribe"))
        with at(session, trio, 2).listen(first["id"]) as stream:  # as if it had not got them
            found = [stream.event() for _ in range(3)]
            assert [said(event)["method"] for event in found] == [
                *["notifications/resources/updated"] * 2,
                CHANGED,
            ]
            assert [event["id"] for event in found if event][:2] == [
                event["id"] for event in unread
            ]
            wait_until(lambda: len(seen(trio.record, "resources/subscribe")) > subscribed)
            with at(session, trio, 1).start_call("s_log", level="info", text="too quiet") as quiet:
                assert "result" in quiet.reply().message
            session.call("s_touch")
            assert (
                said(stream.event())["method"] == "notifications/resources/updated"
            )  # and no second change before
            assert told_name(session) == "ada"
            told = list(messages(session.start_call("s_log", level="error", text="loud")))
            heard = [m for m in told if m.get("method") == "notifications/message"] or [
                said(stream.event())
            ]
            assert [m["params"]["data"] for m in heard] == ["loud"]
            assert nothing_more(stream)


def told_name(session: Session) -> str:
    """Whom the server was told that it serves."""
    greeting = session.call("s_who")["result"]["structuredContent"]["initialize"]
    return greeting["clientInfo"]["name"].removesuffix("-through-proxy")


def test_calls_that_were_cut_off_say_so_and_run_no_second_time(tmp_path: Path) -> None:
    """SCA-1, SCA-2: on the stream through another replica, on a stream that is resumed elsewhere; a
    question of the dead one is not mistaken for one of its heir."""
    with three(tmp_path) as trio:
        session = Session(trio.port(0), capabilities=ABLE)
        own = session.start_call("s_ask", id="own", text="one")
        own.event()  # 2025-11-25 is told where the stream begins
        asked = own.event()
        foreign = messages(at(session, trio, 1).start_call("s_ask", id="foreign", text="two"))
        old = next(foreign)["id"]
        silent = session.start_call("s_wait", id="silent", until=str(tmp_path / "never"))
        wait_until(lambda: len(seen(trio.record, "tools/call")) == 3)
        wait_until(
            lambda: told_in(trio.store, session.id) == 4, what="both streams are written down"
        )
        kill(trio, 0)
        assert CUT_OFF in next(foreign)["error"]["message"]
        assert list(foreign) == []
        assert CUT_OFF in silent.reply().message["error"]["message"]
        assert asked is not None
        for last, left in (("s1-0", ["elicitation/create", None]), (asked["id"], [None])):
            with at(session, trio, 2).listen(last) as stream:
                told = [event["data"] for event in stream.events()]
            assert [message.get("method") for message in told] == left
            assert told[-1]["id"] == "own" and CUT_OFF in told[-1]["error"]["message"]
        own.cut()
        assert len(seen(trio.record, "tools/call")) == 3
        again = messages(at(session, trio, 1).start_call("s_ask", text="three"))
        new = next(again)["id"]
        assert new not in (old, asked["data"]["id"])
        for number, (rid, name) in enumerate(
            ((old, "late"), (asked["data"]["id"], "late"), (new, "ada"))
        ):
            answer = {
                "jsonrpc": "2.0",
                "id": rid,
                "result": {"action": "accept", "content": {"name": name}},
            }
            assert at(session, trio, 1 + number % 2).post(answer).status == 202
        assert json.loads(text_of(next(again)))["content"] == {"name": "ada"}


def test_nobody_takes_up_what_is_anothers_and_a_dead_ones_session_can_be_ended(
    tmp_path: Path,
) -> None:
    """SCA-1, SEC-1: somebody else's token is no way to a session, at any replica, nor to one that
    nobody has."""
    tokens = [{"name": "ann", "token": "aaa"}, {"name": "bob", "token": "bbb"}]
    with three(tmp_path, server={"auth": {"type": "bearer", "tokens": tokens}}) as trio:
        first, second = (Session(trio.port(0), headers=ANN) for _ in range(2))
        for number in range(3):
            assert is_unknown(trio, number, first, BOB)
            assert text_of(at(first, trio, number).call("s_echo", text="mine")) == "mine"
        kill(trio, 0)
        for number in (1, 2):
            assert is_unknown(trio, number, first, BOB)
        assert at(second, trio, 2).delete().status == 200
        assert text_of(at(first, trio, 1).call("s_echo", text="still mine")) == "still mine"
        for number in (1, 2):
            assert is_unknown(trio, number, first, BOB)
            assert is_unknown(trio, number, second, ANN)
        assert text_of(at(first, trio, 2).call("s_echo", text="still mine")) == "still mine"


def test_a_stranger_who_asks_at_the_same_moment_is_in_nobodys_way(tmp_path: Path) -> None:
    """SCA-1, SEC-1: what the stranger is told of a session that is taken up is not what its owner
    is told."""
    tokens = [{"name": "ann", "token": "aaa"}, {"name": "bob", "token": "bbb"}]
    with three(tmp_path, server={"auth": {"type": "bearer", "tokens": tokens}}) as trio:
        sessions = [Session(trio.port(0), headers=ANN) for _ in range(10)]
        wait_until(
            lambda: len(trio.store.cli("KEYS", "*:session:*").split()) == 10,
            what="they are written down",
        )
        kill(trio, 0)
        trio.store.pause()  # all ask before anybody is told
        asked = [
            Stream(trio.port(1), "DELETE", "/mcp", {**each.headers, **who}.items())
            if who is BOB
            else at(each, trio, 1).start("ping")
            for each in sessions
            for who in (BOB, ANN)
        ]
        assert all(
            ready(trio.replicas[1]) for _ in range(3)
        )  # which reads them before this, and does not ask the store
        trio.store.go_on()
        assert [stream.reply().status for stream in asked] == [404, 200] * 10


def is_unknown(trio: Trio, number: int, session: Session, who: dict[str, str]) -> bool:
    """Whether all that can be asked of a session is answered as if there were none."""
    headers = {**session.headers, **who}
    statuses = [post(trio.port(number), notification("notifications/x"), headers).status]
    for method in ("GET", "DELETE"):
        with Stream(
            trio.port(number), method, "/mcp", [("Accept", "text/event-stream"), *headers.items()]
        ) as stream:
            statuses.append(stream.status)
    return statuses == [404, 404, 404]


def test_a_question_whose_replica_is_gone_is_answered_with_an_error_and_not_twice(
    tmp_path: Path,
) -> None:
    """SCA-1, SCA-2: a modern client's call that waited there is over; what it brings back is no new
    call."""
    with three(tmp_path) as trio:
        call: Json = {"name": "s_ask", "arguments": {"text": "sure?"}}
        first = modern_request("tools/call", call, capabilities=ABLE)
        asked = post(trio.port(0), first, modern_headers(first)).message["result"]
        kill(trio, 0)
        answers = {
            key: {"action": "accept", "content": {"name": "ada"}} for key in asked["inputRequests"]
        }
        params = {**call, "requestState": asked["requestState"], "inputResponses": answers}
        again = modern_request("tools/call", params, capabilities=ABLE)
        for number in (1, 2):
            reply = post(trio.port(number), again, modern_headers(again)).message
            assert reply["error"]["message"] == "requestState is unknown or has expired"
        assert len(seen(trio.record, "tools/call")) == 1
