"""SEC-8: an attacker who can read and write the store of replicas, and does not know `MCPX_KEY`."""

import contextlib
import json
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kit.client import Session
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import fetch
from kit.messages import request
from kit.process import Child
from kit.replicas import RedisServer, Replicas, program
from kit.servers import raw_server
from kit.until import wait_until
from mcpx.front import http
from mcpx.replicas.members import BEAT
from mcpx.wire import descriptors
from mcpx.wire.http_server import Limits

KEY = "the passphrase that only the replicas know"
TOKENS = {"ann": "a-token-for-ann-of-the-tests", "bob": "a-token-for-bob-of-the-tests"}
CONFIG: dict[str, Any] = {
    "mcp_servers": [raw_server("one")],
    "server": {
        "drain": 0,
        "auth": {
            "type": "bearer",
            "tokens": [{"name": name, "token": token} for name, token in TOKENS.items()],
        },
    },
}


class Listener:
    """A process of the attacker. It records what it receives, and answers like a server of HTTP."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.received = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                connection.settimeout(5)
                with connection, contextlib.suppress(OSError):
                    self.received += connection.recv(1 << 16)
                    body = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"forged"}]}}'
                    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
                    connection.sendall(b"%b%d\r\n\r\n%b" % (head, len(body), body))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@contextlib.contextmanager
def cluster() -> Iterator[tuple[RedisServer, Replicas]]:
    with (
        RedisServer() as store,
        Replicas(store, CONFIG, 2, balanced=False, env={"MCPX_KEY": KEY}) as replicas,
    ):
        wait_until(
            lambda: all(len(health(each)["peers"]) == 1 for each in replicas),
            what="all have joined",
        )
        yield store, replicas


def health(replica: GatewayProcess) -> Any:
    return fetch(replica.port, "/health", "GET", {"Authorization": f"Bearer {TOKENS['ann']}"}).json


def session_of(name: str, port: int) -> Session:
    return Session(port, headers={"Authorization": f"Bearer {TOKENS[name]}"})


def echoed(session: Session, text: str) -> tuple[int, bytes]:
    reply = session.post(request("tools/call", {"name": "one_echo", "arguments": {"text": text}}))
    return reply.status, reply.body


@pytest.mark.parametrize("how", ["unsigned", "signature kept"])
def test_a_rewritten_member_record_brings_the_attacker_no_request(
    listener: Listener, how: str
) -> None:
    """SEC-8: the record of a replica names the attacker's port. No request and no identity is sent
    there, and the client gets no forged answer."""
    with cluster() as (store, replicas):
        owner = health(replicas[0])["replica"]["id"]
        session = session_of("ann", replicas[0].port)
        session.port = replicas[1].port

        record = store.cli("HGET", "{mcpx}:members", owner)
        signature, _, text = record.partition("{")
        about = json.dumps({**json.loads("{" + text), "host": "127.0.0.1", "port": listener.port})
        forged = about if how == "unsigned" else signature + about
        replicas[0].process.send_signal(signal.SIGSTOP)  # It does not write its record again.
        try:
            until = time.monotonic() + 2 * BEAT

            def read_by_the_other() -> bool:
                store.cli("HSET", "{mcpx}:members", owner, forged)
                store.cli("ZADD", "{mcpx}:alive", store.cli("TIME").split()[0] + "000", owner)
                return time.monotonic() > until

            wait_until(read_by_the_other, what="the other replica has read the forged record")
            body = echoed(session, "who answers?")[1]
        finally:
            replicas[0].process.send_signal(signal.SIGCONT)
        assert listener.received == b""
        assert b"forged" not in body


@pytest.mark.parametrize("how", ["owner rewritten", "record copied"])
def test_a_client_with_access_to_the_store_cannot_take_over_a_session(how: str) -> None:
    """SEC-8: bob writes himself into the record of ann's session, whose replica then dies."""
    with cluster() as (store, replicas):

        def records() -> set[str]:
            return set(store.cli("KEYS", "{mcpx}:session:*").splitlines())

        ann = session_of("ann", replicas[0].port)
        wait_until(lambda: len(records()) == 1, what="the session is in the store")
        [hers] = records()
        bob = session_of("bob", replicas[1].port)
        wait_until(lambda: len(records()) == 2, what="both sessions are in the store")
        [his] = records() - {hers}
        replicas[0].process.kill()
        replicas[0].process.wait()
        if how == "owner rewritten":
            store.cli("HSET", hers, "who", store.cli("HGET", his, "who"), "owner", "")
        else:
            store.cli("COPY", hers, his, "REPLACE")
            store.cli("HSET", hers, "who", store.cli("HGET", his, "who"))
        thief = session_of("bob", replicas[1].port)
        thief.headers["Mcp-Session-Id"] = ann.id
        assert echoed(thief, "whose is it?")[0] == 404
        assert echoed(bob, "still mine")[0] == 200


def test_connections_without_a_handshake_leave_descriptors_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6: a replica listens on two ports. Connections to both of them get half of its
    descriptors."""
    allowed = 256
    monkeypatch.setattr(descriptors, "soft_limit", lambda: allowed)
    monkeypatch.setattr(http, "Limits", partial(Limits, head_timeout=600, keep_alive=600))
    with RedisServer() as store, contextlib.ExitStack() as stack:
        config = {**CONFIG, "server": {**CONFIG["server"], "store": store.url}}
        gateway = stack.enter_context(Gateway(config, env={"MCPX_KEY": KEY}))
        wait_until(lambda: store.cli("HVALS", "{mcpx}:members"), what="the replica has joined")
        record = store.cli("HVALS", "{mcpx}:members")
        replica_port = json.loads("{" + record.partition("{")[2])["port"]
        pending = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            for port in (replica_port, gateway.port)
            for _ in range(allowed)
        ]

        def count_open() -> int:
            return len(pending) - len(select.select(pending, [], [], 0)[0])

        wait_until(
            lambda: 0 < count_open() <= allowed // 2, what="the other connections are refused"
        )


def test_the_store_reveals_no_session_id() -> None:
    """SEC-8: neither names nor values of its keys, nor the news when a session continues on another
    replica."""
    with cluster() as (store, replicas):
        ann = session_of("ann", replicas[0].port)
        wait_until(
            lambda: store.cli("KEYS", "{mcpx}:session:*"), what="the session is in the store"
        )
        with Child(
            [program("valkey-cli", "redis-cli"), "-p", str(store.port), "monitor"]
        ) as monitor:
            wait_until(lambda: "OK" in monitor.stdout.text, what="the monitor listens")
            replicas[0].process.kill()
            replicas[0].process.wait()
            ann.port = replicas[1].port
            assert echoed(ann, "on another replica")[0] == 200
            wait_until(
                lambda: monitor.stdout.text.count("taken") > 1, what="the other replicas are told"
            )
            assert ann.id not in monitor.stdout.text
        assert ann.id not in store.contents()
