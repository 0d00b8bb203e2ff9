"""A process has so many descriptors; clients get some of them, and there are always some left for
servers (SEC-6)."""

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

from attacks.harness import (
    Hostile,
    Program,
    Siege,
    WebSocket,
    connected,
    frame,
    http_request,
    read_head,
)
from kit.client import Session
from kit.messages import request
from kit.servers import raw_server
from kit.until import wait_until

FEW = 256
"""What some systems give a process."""


def limit_of(program: Program) -> int:
    limits = Path(f"/proc/{program.process.pid}/limits").read_text()
    return int(limits.partition("Max open files")[2].split()[0])


def test_the_soft_limit_is_raised_at_the_start() -> None:
    """SEC-6: a shell that gives 256 and allows 4,096 is no reason to turn clients away."""
    with Siege(nofile=(FEW, 4096)) as siege:
        assert limit_of(siege) > FEW
        with contextlib.ExitStack() as stack:
            for _ in range(FEW + 50):
                stack.enter_context(contextlib.closing(connected(siege.port)))
            assert Session(siege.port).call("well_echo", text="still here")["result"]


def test_when_descriptors_run_out_the_next_client_is_told_and_servers_still_start() -> None:
    """SEC-6, SRC-8, LIF-5: 256 and no more: 503 for who comes too late, and a server that sleeps
    can still be woken."""
    lazy = raw_server("lazy", "--era", "older", lazy=True)
    with Siege([lazy], nofile=FEW) as siege, contextlib.ExitStack() as stack:
        session = Session(siege.port)
        kept = connected(siege.port, 15)
        stack.enter_context(contextlib.closing(kept))
        assert _call(kept, siege.port, session, "well_echo", 1) == 200
        siege.healthy.begin()
        crowd = [
            stack.enter_context(contextlib.closing(connected(siege.port, 15)))
            for _ in range(2 * FEW)
        ]
        late = crowd[-1]
        late.sendall(http_request(siege.port, "GET", "/health", None))
        status, head, _ = read_head(late)
        assert status == 503, f"a client too many got {status or 'a bare end'}: {head!r}"
        for name in ("well_echo", "lazy_echo"):
            assert _call(kept, siege.port, session, name, 2) == 200
        figures = siege.healthy.end()
        assert not figures.bad(), figures.bad()
        for connection in crowd:
            connection.close()
        wait_until(lambda: siege.descriptors() < 60)
        assert Session(siege.port).call("well_echo", text="again")["result"]


def _call(connection: socket.socket, port: int, session: Session, tool: str, number: int) -> int:
    """The status of a call on a connection that is there already; its answer must be a result."""
    params = {"name": tool, "arguments": {"text": "x"}}
    body = json.dumps(request("tools/call", params, number)).encode()
    connection.sendall(http_request(port, body=body, **session.headers))
    status, head, rest = read_head(connection)
    if b"chunked" in head:
        while not rest.endswith(b"0\r\n\r\n"):
            rest += connection.recv(65536)
    else:
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(rest) < length:
            rest += connection.recv(65536)
    assert status != 200 or b'"result"' in rest, rest
    return status


def test_calls_to_a_server_that_hangs_do_not_take_all_descriptors() -> None:
    """SEC-6, SRC-8: 1,000 calls on one WebSocket to an HTTP server that answers none: its
    connections are bounded."""
    with (
        Hostile() as hostile,
        Siege([hostile.server("bad")], nofile=FEW) as siege,
        WebSocket(siege.port) as websocket,
    ):
        websocket.greet()
        params: dict[str, Any] = {"name": "bad_hang", "arguments": {}}

        def attack() -> None:
            calls = (
                json.dumps(request("tools/call", params, number)).encode() for number in range(1000)
            )
            websocket.socket.sendall(b"".join(map(frame, calls)))

        siege.stays_fair(attack, rounds=1)
        assert siege.descriptors() < FEW - 20, siege.descriptors()
        assert Session(siege.port).call("well_echo", text="a new client")["result"]
