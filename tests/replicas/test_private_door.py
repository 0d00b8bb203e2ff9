"""SEC-6, SEC-8, SCA-1: the port for replicas accepts requests from replicas of the same store
only."""

import json
import time

import pytest

from kit.client import ACCEPT_BOTH, Session, post
from kit.http_client import fetch, send_bytes
from kit.http_pair import StreamedReply
from kit.loop import run
from kit.messages import initialize_request
from mcpx.front.identity.badge import Badge
from mcpx.front.neighbours.papers import PAPER, Papers
from mcpx.front.visitor import ANONYMOUS, Visitor
from mcpx.replicas import channel
from mcpx.replicas.seals import Seals
from mcpx.wire.http_client import ConnectionLost, Pool
from replicas.conftest import Trio
from replicas.looking import place_of, seals_of


def identity(visitor: Visitor) -> str:
    return Papers().write(visitor).decode()


SOMEBODY = identity(Visitor(ANONYMOUS, None, "127.0.0.1"))


def forwarded(door: int, seals: Seals, target: str, identity: str) -> StreamedReply:
    """An `initialize` request that a replica with these keys forwards to the replica `target`."""

    async def main() -> StreamedReply:
        pool = Pool(f"http://127.0.0.1:{door}", secure=channel.connecting_to(target, seals))
        lines = (
            f"content-type: application/json\r\naccept: {ACCEPT_BOTH}\r\n{PAPER}: {identity}\r\n"
        )
        reply = StreamedReply()
        pool.start("POST", "/mcp", lines.encode(), json.dumps(initialize_request()).encode(), reply)
        await reply.over.wait()
        await pool.close()
        return reply

    return run(main())


def test_a_replica_of_the_same_store_is_answered(trio: Trio) -> None:
    """SCA-1: without this test, the refusals below would prove nothing."""
    _, door, id = place_of(trio.store, trio.replicas[0])
    assert forwarded(door, seals_of(trio.store), id, SOMEBODY).status == 200


@pytest.mark.parametrize("what", ["another key", "another replica"])
def test_no_request_is_sent_to_a_replica_that_proves_something_else(trio: Trio, what: str) -> None:
    """SEC-8: the client of a connection checks the proof before it sends a request."""
    _, door, id = place_of(trio.store, trio.replicas[0])
    _, _, other = place_of(trio.store, trio.replicas[1])
    keys = Seals() if what == "another key" else seals_of(trio.store)
    reply = forwarded(door, keys, other if what == "another replica" else id, SOMEBODY)
    assert isinstance(reply.broken, ConnectionLost) and not reply.broken.sent


@pytest.mark.parametrize("wrong", ["", "AAAA", "é", "e30="])
def test_a_request_without_an_identity_is_refused(trio: Trio, wrong: str) -> None:
    """SEC-6: also on a connection of a replica."""
    _, door, id = place_of(trio.store, trio.replicas[0])
    assert forwarded(door, seals_of(trio.store), id, wrong).status == 400


def test_http_without_a_handshake_is_not_answered(trio: Trio) -> None:
    """SEC-6, SCA-1: with the id of a session and the identity of its owner, for each path."""
    _, door, _ = place_of(trio.store, trio.replicas[0])
    session = Session(trio.port(0))
    lines = "".join(
        f"{name}: {value}\r\n" for name, value in (*session.headers.items(), (PAPER, SOMEBODY))
    )
    for path in ("/mcp", "/sse", "/messages", "/ws", "/health", "/ready", "/metrics", "/"):
        request = f"GET {path} HTTP/1.1\r\nhost: x\r\n{lines}\r\n"
        assert send_bytes(f"http://127.0.0.1:{door}", request.encode()) == b""
    large = b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n" + b"x" * 150_000
    assert send_bytes(f"http://127.0.0.1:{door}", large) == b""


def test_an_identity_whose_token_has_expired_is_refused(trio: Trio) -> None:
    """SEC-1, SCA-1: an identity whose token is valid is accepted."""
    _, door, id = place_of(trio.store, trio.replicas[0])
    for expires, status in ((time.time() - 1, 401), (time.time() + 600, 200)):
        badge = Badge("ann", expires=expires)
        ann = identity(Visitor("ann", None, "127.0.0.1", badge))
        assert forwarded(door, seals_of(trio.store), id, ann).status == status


def test_an_identity_in_a_header_means_nothing_at_the_port_for_clients(trio: Trio) -> None:
    """SEC-6, SCA-1: nor does the header by which replicas hand over sessions."""
    session = Session(trio.port(0))
    headers = {**session.headers, PAPER: SOMEBODY, "mcpx-take": "1"}
    for number in range(3):
        assert post(trio.port(number), initialize_request(), {PAPER: SOMEBODY}).status == 200
        assert fetch(trio.port(number), "/nowhere", "DELETE", headers.items()).status == 404
    assert session.delete().status == 200
