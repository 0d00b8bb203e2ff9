"""ADM-4 over several replicas: what happens at any of them is heard at each."""

import time
from collections.abc import Iterator

import pytest

from kit.admin_events import AdminEvents
from kit.client import post_modern
from kit.gateway import Gateway
from kit.http_client import fetch
from kit.messages import modern_request
from kit.replicas import RedisServer, Replicas
from kit.servers import raw_server
from kit.until import wait_until

CONFIG = {"mode": "direct", "mcp_servers": [raw_server("raw")]}


@pytest.fixture(scope="module")
def store() -> Iterator[RedisServer]:
    with RedisServer() as started:
        yield started


@pytest.fixture(scope="module")
def two(store: RedisServer) -> Iterator[Replicas]:
    with Replicas(store, CONFIG, 2, admin=True, balanced=False) as replicas:
        for replica in replicas:
            wait_until(lambda replica=replica: called(replica, "ready"), what="its server is there")
        yield replicas


def called(replica: Gateway, text: str) -> bool:
    call = modern_request("tools/call", {"name": "raw_echo", "arguments": {"text": text}})
    return "result" in post_modern(replica.port, call).message


def name_of(replica: Gateway) -> str:
    rows = fetch(replica.admin_url, "/api/replicas", headers=replica.admin_headers).json["replicas"]
    return next(row["name"] for row in rows if row["me"])


def heard(events: AdminEvents, replica: Gateway, name: str) -> int:
    """Calls at a replica until one is told: others begin to tell a moment after somebody begins to
    listen."""
    calls = 0

    def one() -> bool:
        nonlocal calls
        calls += called(replica, "x")
        return any(each.data["replica"] == name for each in events.named("call"))

    wait_until(one, what="told at another replica")
    return calls


def test_a_call_at_one_replica_is_told_at_another_within_a_second(two: Replicas) -> None:
    """ADM-4, SCA-1: marked with the replica it was made at; own ones too."""
    names = [name_of(replica) for replica in two]
    with AdminEvents(two[0]) as events:
        assert events.wait_for("hello").data["replica"] == names[0]
        heard(events, two[1], names[1])
        before = len(events.all)
        began = time.monotonic()
        assert called(two[1], "y")
        call = events.wait_for("call", lambda data: data["replica"] == names[1], before)
        assert (
            call.at - began < 3 and call.data["public_name"] == "raw_echo"
        )  # a second, on a machine that is not busy
        before = len(events.all)
        assert called(two[0], "z")
        events.wait_for("call", lambda data: data["replica"] == names[0], before)


def test_a_listener_goes_on_at_its_replica_and_begins_anew_at_another(two: Replicas) -> None:
    """ADM-4, SCA-1: `Last-Event-ID` of a replica is good there: what was missed comes, nothing
    twice."""
    names = [name_of(replica) for replica in two]
    with AdminEvents(two[0]) as events:
        events.wait_for("hello")
        heard(events, two[1], names[1])
        assert called(two[0], "marked")
        last = events.wait_for("call", lambda data: data["replica"] == names[0])
        seen = [each.id for each in events.all]
    for replica in two:
        assert called(replica, "missed")
    assert last.id is not None
    with AdminEvents(two[0], headers={"Last-Event-ID": last.id}) as again:
        again.wait_for("call", lambda data: data["replica"] == names[0])
        again.wait_for("call", lambda data: data["replica"] == names[1])
        ids = [each.id for each in again.all if each.name not in ("hello", "rates", "clients")]
        assert not again.named("reset") and len(ids) == len(set(ids))
        assert not set(ids) & set(seen[: seen.index(last.id) + 1])
    with AdminEvents(two[1], headers={"Last-Event-ID": last.id}) as elsewhere:
        elsewhere.wait_for("reset")


def test_without_the_store_own_events_are_told_and_then_it_begins_anew(
    store: RedisServer, two: Replicas
) -> None:
    """ADM-4, SCA-2: a listener hears of its own replica; when the store is back it is told to read
    everything again."""
    names = [name_of(replica) for replica in two]
    with AdminEvents(two[0]) as events:
        events.wait_for("hello")
        heard(events, two[1], names[1])
        store.kill()
        before = len(events.all)
        wait_until(
            lambda: (
                called(two[0], "alone") and any(each.name == "call" for each in events.all[before:])
            ),
            what="own calls are told",
            seconds=20,
        )
        last = events.last_id
        store.start()
        events.wait_for_end()
    with AdminEvents(two[0], headers={"Last-Event-ID": last}) as again:
        again.wait_for("reset")
        heard(again, two[1], names[1])
