"""SEC-6, SCA-1: the port where replicas hand requests to each other is for those of this store, and for nobody else."""

import socket
import time

import pytest

from kit.client import WAIT_SECONDS, Session, post
from kit.http_client import fetch
from kit.messages import initialize_request
from mcpx.front.identity.badge import Badge
from mcpx.front.neighbours.papers import GOOD_FOR, PAPER, Papers
from mcpx.front.visitor import ANONYMOUS, Visitor
from mcpx.replicas.seals import Seals
from replicas.conftest import Trio
from replicas.looking import KEYS, place_of


def papers(key: bytes, replica: str, ago: float = 0.0) -> dict[str, str]:
    """As a replica with this key makes them for another, or made them so many seconds ago."""
    made = Papers(Seals(key), "somebody", lambda: time.time() - ago)
    return {PAPER: made.write(Visitor(ANONYMOUS, None, "127.0.0.1"), replica).decode()}


@pytest.fixture(scope="module")
def key(trio: Trio) -> bytes:
    return bytes.fromhex(trio.store.cli("GET", f"{KEYS}secret"))


def test_papers_for_this_replica_are_good(trio: Trio, key: bytes) -> None:
    """SCA-1: without this, whatever is refused below proves nothing."""
    _, door, id = place_of(trio.store, trio.replicas[0])
    assert post(door, initialize_request(), papers(key, id)).status == 200


def test_papers_are_good_for_a_while_and_then_no_more() -> None:
    """SEC-6: also those that were read before; who writes them makes them anew in time."""
    clock = 1_000_000.0
    seals = Seals()
    writer, reader = (Papers(seals, me, lambda: clock) for me in ("one", "other"))
    visitor = Visitor("ann", None, "10.0.0.1")
    first = writer.write(visitor, "other")
    assert writer.write(visitor, "other") is first
    assert reader.read(first) == visitor
    clock += GOOD_FOR - 1
    assert reader.read(first) == visitor
    second = writer.write(visitor, "other")
    assert second != first
    clock += 2
    assert reader.read(first) is None
    assert reader.read(second) == visitor


def test_whoever_has_no_papers_is_refused(trio: Trio) -> None:
    """SEC-6, SCA-1: for a session that there is, too, and for every path."""
    _, door, _ = place_of(trio.store, trio.replicas[0])
    session = Session(trio.port(0))
    assert post(door, initialize_request()).status == 403
    assert post(door, initialize_request(), session.headers).status == 403
    for path in ("/mcp", "/sse", "/messages", "/ws", "/health", "/ready", "/metrics", "/"):
        assert fetch(door, path, "GET", session.headers.items()).status == 403


@pytest.mark.parametrize(
    "what", ["made up", "for another", "of another store", "changed", "made younger", "cut", "old", "of another day"]
)
def test_papers_that_were_not_made_just_now_for_this_replica_by_one_of_its_store_are_refused(
    trio: Trio, key: bytes, what: str
) -> None:
    """SEC-6, SCA-1."""
    _, door, id = place_of(trio.store, trio.replicas[0])
    _, _, other = place_of(trio.store, trio.replicas[1])
    good = papers(key, id)[PAPER]
    text, _, signature = good.rpartition(".")
    old, _, old_signature = papers(key, id, GOOD_FOR + 60)[PAPER].rpartition(".")
    shown = {
        "made up": f"{text}.{'A' * len(signature)}",
        "for another": papers(key, other)[PAPER],
        "of another store": papers(bytes(32), id)[PAPER],
        "changed": f"AAAA{text[4:]}.{signature}",
        "made younger": f"{old.rpartition('.')[0]}.{int(time.time())}.{old_signature}",
        "cut": text,
        "old": f"{old}.{old_signature}",
        "of another day": papers(key, id, -86_400)[PAPER],
    }[what]
    assert post(door, initialize_request(), {PAPER: shown}).status == 403


def test_papers_of_somebody_whose_token_has_ended_meanwhile_let_nobody_in(trio: Trio, key: bytes) -> None:
    """SEC-1, SCA-1: and those of somebody whose token is good still do."""
    _, door, id = place_of(trio.store, trio.replicas[0])
    made = Papers(Seals(key), "somebody", time.time)
    for expires, status in ((time.time() - 1, 401), (time.time() + 600, 200)):
        paper = made.write(Visitor("ann", None, "127.0.0.1", Badge("ann", expires=expires)), id)
        assert post(door, initialize_request(), {PAPER: paper.decode()}).status == status


def test_papers_are_worth_nothing_at_the_front_door(trio: Trio, key: bytes) -> None:
    """SEC-6, SCA-1: nor does the word by which replicas give sessions away."""
    _, _, id = place_of(trio.store, trio.replicas[0])
    session = Session(trio.port(0))
    headers = {**session.headers, **papers(key, id), "mcpx-take": "1"}
    for number in range(3):
        assert (
            post(trio.port(number), initialize_request(), papers(key, id)).status == 200
        )  # as anybody's, no token is asked
        assert fetch(trio.port(number), "/nowhere", "DELETE", headers.items()).status == 404
    assert session.delete().status == 200


def test_a_strangers_large_body_is_not_read(trio: Trio) -> None:
    """SEC-6, SCA-1: refused when there is too much of it."""
    _, door, _ = place_of(trio.store, trio.replicas[0])
    with socket.create_connection(("127.0.0.1", door), WAIT_SECONDS) as connection:
        # Of three million bytes that are announced, a twentieth is sent.
        connection.sendall(b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n" + b"x" * 150_000)
        assert connection.recv(12) == b"HTTP/1.1 403"
