"""SCA-1, SCA-2: more than one thing goes wrong with a session: its owner was only away, the store
answers too late, somebody else sits at the owner's address, or a replica ends while it waits for
another's answer."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from behaviour.test_leases import seen
from kit.client import Session, post
from kit.gateway import GatewayProcess
from kit.messages import modern_headers, modern_request, notification, request, text_of
from kit.replicas import RedisServer, Replicas, health
from kit.until import wait_until
from mcpx.replicas.members import Member
from replicas.conftest import Trio, nothing_broke, three
from replicas.crowd import Crowd, journal, twice
from replicas.looking import KEYS, messages, place_of, record_of, seals_of, told_in
from replicas.test_sessions_adopted import ABLE, at, kill

ENDING = -33007
"""The code of what a call is told that was cut off."""


def peers(replica: GatewayProcess) -> set[str]:
    """Those that it knows."""
    return {peer["id"] for peer in health(replica)["peers"]}


def id_of(replica: GatewayProcess) -> str:
    return health(replica)["replica"]["id"]


def owner_of(trio: Trio, session: Session) -> str:
    return trio.store.cli("HGET", record_of(trio.store, session.id), "owner")


def pause_until_gone(trio: Trio, number: int) -> str:
    """Nothing is heard of that one for so long that it counts as gone; its id."""
    id = id_of(trio.replicas[number])
    trio.replicas[number].process.send_signal(signal.SIGSTOP)
    others = [replica for n, replica in enumerate(trio.replicas) if n != number]
    wait_until(lambda: all(id not in peers(each) for each in others), what="it counts as gone")
    return id


def go_on(trio: Trio, number: int, id: str) -> None:
    trio.replicas[number].process.send_signal(signal.SIGCONT)
    others = [
        replica
        for n, replica in enumerate(trio.replicas)
        if n != number and replica.process.poll() is None
    ]
    wait_until(lambda: all(id in peers(each) for each in others), what="it is back")


def calls(trio: Trio) -> int:
    return len(seen(trio.record, "tools/call"))


def test_one_that_was_away_for_a_moment_is_not_robbed_ever_after(tmp_path: Path) -> None:
    """SCA-1: it counted as gone once, and is back: what it takes up then is its own, and its calls
    run to their end."""
    go = tmp_path / "go"
    with three(tmp_path) as trio:
        session = Session(trio.port(2))
        wait_until(lambda: owner_of(trio, session) != "", what="it is written down")
        go_on(trio, 0, pause_until_gone(trio, 0))
        kill(trio, 2)
        assert text_of(at(session, trio, 0).call("s_echo", text="here")) == "here"
        waits = session.start_call("s_wait", id="waits", text="whole", until=str(go))
        wait_until(lambda: calls(trio) == 2)
        assert text_of(at(session, trio, 1).call("s_echo", text="through")) == "through"
        assert owner_of(trio, session) == id_of(trio.replicas[0])
        go.touch()
        assert text_of(waits.reply().message) == "whole"


def test_an_answer_of_the_store_that_comes_too_late_leaves_no_session_without_an_owner(
    tmp_path: Path,
) -> None:
    """SCA-1, SCA-2: a replica took it up and never heard that it did: others find it there."""
    with three(tmp_path) as trio:
        session = Session(trio.port(0))
        wait_until(
            lambda: owner_of(trio, session) == id_of(trio.replicas[0]), what="it is written down"
        )
        kill(trio, 0)
        trio.store.pause()
        assert at(session, trio, 1).post(notification("notifications/x")).status == 503
        refused = at(session, trio, 1).post(request("tools/list", {}, "the id of a request"))
        assert (refused.status, refused.json["id"]) == (503, "the id of a request")
        trio.store.go_on()
        wait_until(
            lambda: owner_of(trio, session) == id_of(trio.replicas[1]),
            what="the store has done it all the same",
        )
        wait_until(
            lambda: all(health(trio.replicas[n])["store"]["state"] == "up" for n in (1, 2)),
            what="it is back",
        )
        assert text_of(at(session, trio, 2).call("s_echo", text="found")) == "found"
        assert owner_of(trio, session) == id_of(trio.replicas[1])


def test_a_session_that_was_ended_elsewhere_stays_so_when_its_first_owner_is_back(
    tmp_path: Path,
) -> None:
    """SCA-1: also where that has missed that it went on elsewhere."""
    with three(tmp_path) as trio:
        session = Session(trio.port(0))
        wait_until(lambda: owner_of(trio, session) != "", what="it is written down")
        id = pause_until_gone(trio, 0)
        trio.store.cli(
            "CLIENT", "KILL", "TYPE", "pubsub"
        )  # what it is told from now on does not reach it
        wait_until(
            lambda: trio.store.cli("PUBSUB", "NUMSUB", f"{KEYS}news").split()[-1] == "2",
            what="the others listen",
        )
        assert text_of(at(session, trio, 1).call("s_echo", text="here")) == "here"
        assert session.delete().status == 200
        wait_until(
            lambda: owner_of(trio, session) != id_of(trio.replicas[1]),
            what="that it has ended is written down",
        )
        go_on(trio, 0, id)
        wait_until(
            lambda: "went on at other replicas" in trio.replicas[0].stderr(),
            what="it has looked over what it has",
        )
        for number in range(3):
            assert at(session, trio, number).post(notification("notifications/x")).status == 404


def test_a_session_that_ended_while_the_store_was_away_is_nobodys_to_take_up(
    tmp_path: Path,
) -> None:
    """SCA-1, SCA-2."""
    with three(tmp_path) as trio:
        session = Session(trio.port(0))
        wait_until(lambda: owner_of(trio, session) != "", what="it is written down")
        trio.store.pause()
        wait_until(
            lambda: health(trio.replicas[0])["store"]["state"] == "down", what="it is noticed"
        )
        assert session.delete().status == 200
        trio.store.go_on()
        wait_until(lambda: owner_of(trio, session) == "", what="the store has heard of it")
        kill(trio, 0)
        for number in (1, 2):
            assert at(session, trio, number).post(notification("notifications/x")).status == 404


def test_another_process_at_the_address_of_a_dead_replica_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    """SCA-1, SCA-2: restarted on the same port before anybody has noticed: its sessions are looked
    for."""
    with three(tmp_path) as trio:
        host, port, _ = place_of(trio.store, trio.replicas[0])
        seals = seals_of(trio.store)
        ghost = Member("ghost", "ghost", host, port).write(seals).decode()
        later = int(time.time() + 600) * 1000
        trio.store.cli("HSET", f"{KEYS}members", "ghost", ghost)
        trio.store.cli("ZADD", f"{KEYS}alive", str(later), "ghost")
        wait_until(
            lambda: all("ghost" in peers(each) for each in trio.replicas), what="all count it in"
        )
        unknown = {"Mcp-Session-Id": seals.mint("ghost")}
        assert post(trio.port(1), notification("notifications/x"), unknown).status == 404
        state = modern_request(
            "tools/call", {"name": "s_ask", "requestState": "mcpx-at.ghost.x"}, capabilities=ABLE
        )
        reply = post(trio.port(2), state, modern_headers(state)).message
        assert reply["error"]["message"] == "requestState is unknown or has expired"
        trio.store.cli("ZREM", f"{KEYS}alive", "ghost")


def test_a_call_through_a_replica_that_ends_has_the_time_that_calls_have(tmp_path: Path) -> None:
    """SCA-2: whoever waits for it waits at the one that ends."""
    with three(tmp_path) as trio:
        session = Session(trio.port(0))
        waits = at(session, trio, 1).start_call("s_wait", text="whole", seconds=1.5)
        wait_until(lambda: calls(trio) == 1)
        trio.replicas[1].process.terminate()
        assert text_of(waits.reply().message) == "whole"


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "on a stream"])
@pytest.mark.parametrize("ends", [0, 1], ids=["its owner ends", "the one it went through ends"])
def test_a_call_that_takes_longer_is_told_that_it_may_have_had_an_effect(
    tmp_path: Path, ends: int, streamed: bool
) -> None:
    """SCA-2: not that it was cancelled, which nobody asked for."""
    with three(tmp_path) as trio:
        session = Session(trio.port(0), capabilities=ABLE)
        at(session, trio, 1)
        if streamed:
            stream = messages(session.start_call("s_ask", id="one", text="well?"))
            assert next(stream)["method"] == "elicitation/create"
        else:
            stream = messages(session.start_call("s_wait", id="one", until=str(tmp_path / "never")))
        wait_until(lambda: calls(trio) == 1)
        trio.replicas[ends].process.terminate()
        told = list(stream)[-1]
        assert (told["id"], told["error"]["code"]) == ("one", ENDING)
        assert text_of(at(session, trio, 2).call("s_echo", text="goes on")) == "goes on"


def test_what_an_owner_that_is_not_one_any_more_says_is_not_written_down(tmp_path: Path) -> None:
    """SCA-1: it was away, and has a word to say before it looks over what it still has."""
    with three(tmp_path) as trio:
        session = Session(trio.port(0))
        wait_until(lambda: owner_of(trio, session) != "", what="it is written down")
        with session.listen() as stream:
            stream.comment()
            trio.store.cli(
                "HSET", record_of(trio.store, session.id), "owner", "somebody", "life", "1"
            )
            session.request("logging/setLevel", {"level": "error"})
            list(messages(session.start_call("s_log", level="error", text="loud")))
            session.call("s_touch")
            assert told_in(trio.store, session.id) == 0


def test_a_replica_that_was_only_paused_makes_no_call_twice_and_no_session_is_lost(
    tmp_path: Path,
) -> None:
    """SCA-1, SCA-2: under load, for longer than it takes to count as gone; what others took up
    meanwhile is theirs."""
    file = tmp_path / "journal"
    clients = 60

    async def main(replicas: Replicas, store: RedisServer) -> None:
        crowd = Crowd(replicas.port)
        there = await crowd.come(clients)
        async with asyncio.TaskGroup() as group:
            for number, (wire, session) in enumerate(there):
                group.create_task(crowd.call(number, wire, session, 0.25))
            for _ in range(2):
                paused = replicas[0].process
                id = id_of(replicas[0])
                paused.send_signal(signal.SIGSTOP)
                await asyncio.to_thread(
                    wait_until, lambda id=id: id not in peers(replicas[1]), what="it counts as gone"
                )
                await asyncio.sleep(1)  # of calls for the sessions that it had
                paused.send_signal(signal.SIGCONT)
                await asyncio.to_thread(
                    wait_until, lambda id=id: id in peers(replicas[1]), what="it is back"
                )
                before = crowd.good
                await asyncio.to_thread(
                    wait_until,
                    lambda before=before: crowd.good > before + clients,
                    what="all goes on",
                )
            crowd.stop.set()
        assert [how for _, _, how in crowd.failed if "unknown or expired" in how] == []
        assert len(store.cli("KEYS", "*:session:*").split()) == clients

    with RedisServer() as store, Replicas(store, {"mcp_servers": [journal(file)]}) as replicas:
        asyncio.run(main(replicas, store))
        nothing_broke(replicas)
    assert twice(file) == []
