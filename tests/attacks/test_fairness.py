"""One peer, whatever it sends and however fast, takes its turn like everybody else.

The promise is that of SRC-8 and SEC-6: a client of another server is answered as before, and as
quickly. What is sent is cheap to make and dear to read: units of a few bytes, as many as a
connection carries.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from attacks.harness import (
    CONTINUATION,
    LASTING,
    MIB,
    PING,
    PONG,
    Attackers,
    Hostile,
    Siege,
    WebSocket,
    connected,
    frame,
    http_request,
)
from kit.client import Session
from kit.messages import notification, request

POURED = [
    ("http", "stream", "newlines"),
    ("http", "stream", "empty events"),
    ("http", "stream", "tiny chunks"),
    ("http", "stream", "notifications"),
    ("http", "reply", "newlines"),
    ("http", "reply", "comments"),
    ("http", "reply", "tiny chunks"),
    ("sse", "stream", "newlines"),
    ("websocket", "stream", "tiny"),
    ("websocket", "stream", "empty"),
    ("websocket", "stream", "pings"),
    ("websocket", "stream", "pongs"),
    ("websocket", "stream", "fragments"),
    ("websocket", "stream", "notifications"),
    ("stdio", "stream", "newlines"),
    ("stdio", "stream", "notifications"),
]


@pytest.mark.parametrize(("kind", "where", "what"), POURED)
def test_a_server_that_pours_slows_no_client_of_another(kind: str, where: str, what: str) -> None:
    """SRC-8, SEC-6: noise down the stream a server has to us, or down its reply to a call."""
    with Hostile() as hostile, Siege([hostile.server("bad", kind=kind)]) as siege:
        session = Session(siege.port)
        begun: list[Any] = []

        def pour() -> None:
            begun.append(session.start_call("bad_pour", where=where, what=what, seconds=LASTING))

        try:
            siege.stays_fair(pour)
        finally:
            for stream in begun:
                stream.cut()


# ---- clients

Work = Callable[[threading.Event], None]


def sends(port: int, block: bytes, opening: bytes = b"") -> Work:
    """A connection that sends the same again and again, as fast as it is taken, and reads
    nothing."""

    def work(ending: threading.Event) -> None:
        with contextlib.closing(connected(port)) as connection:
            pours(connection, opening, block, ending)

    return work


def pours(connection: socket.socket, opening: bytes, block: bytes, ending: threading.Event) -> None:
    connection.settimeout(0.2)
    left = opening
    while not ending.is_set():
        left = left or block
        with contextlib.suppress(
            TimeoutError
        ):  # it is not read at the moment, which is what is wished
            left = left[connection.send(left) :]


def bursts(port: int, block: bytes) -> Work:
    """Connection after connection: all of it at once, then the answers are thrown away and it
    leaves."""

    def work(ending: threading.Event) -> None:
        with contextlib.closing(connected(port)) as connection:
            reading = threading.Thread(target=_read_all, args=(connection,), daemon=True)
            reading.start()
            try:
                connection.sendall(block)
                connection.shutdown(socket.SHUT_WR)
            finally:
                reading.join(5)

    return work


def _read_all(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(1 << 18):
            pass


def frames(port: int, block: bytes, opening: bytes = b"") -> Work:
    def work(ending: threading.Event) -> None:
        with WebSocket(port) as websocket:
            websocket.greet()
            pours(websocket.socket, opening, block, ending)

    return work


def repeated(unit: bytes, size: int = 1 << 16) -> bytes:
    return unit * max(1, size // len(unit))


def chunked(port: int) -> bytes:
    return http_request(
        port, body=None, content_type="application/json", transfer_encoding="chunked"
    )


ping = json.dumps(request("ping")).encode()

BY_CLIENTS: dict[str, Callable[[int], Work]] = {
    "a burst of requests with a wrong Host": lambda port: bursts(
        port, repeated(http_request(port, "GET", host="evil.example"), 8 * MIB)
    ),
    "a burst of requests for nothing": lambda port: bursts(
        port, repeated(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 8 * MIB)
    ),
    "a burst of requests without a session": lambda port: bursts(
        port, repeated(http_request(port, body=ping), 8 * MIB)
    ),
    "a burst of notifications": lambda port: bursts(
        port, repeated(http_request(port, body=json.dumps(notification("x")).encode()), 8 * MIB)
    ),
    "empty lines before a request": lambda port: sends(port, repeated(b"\r\n")),
    "a body of tiny chunks": lambda port: sends(port, repeated(b"1\r\n \r\n"), chunked(port)),
    "tiny frames": lambda port: frames(port, repeated(frame(b"1"))),
    "empty frames": lambda port: frames(port, repeated(frame())),
    "pings": lambda port: frames(port, repeated(frame(opcode=PING))),
    "pongs": lambda port: frames(port, repeated(frame(opcode=PONG))),
    "empty fragments": lambda port: frames(
        port, repeated(frame(opcode=CONTINUATION, fin=False)), frame(b'{"jsonrpc"', fin=False)
    ),
    "small notifications in frames": lambda port: frames(
        port, repeated(frame(json.dumps(notification("x")).encode()))
    ),
    "small requests in frames": lambda port: frames(port, repeated(frame(ping))),
}


@pytest.mark.parametrize("what", BY_CLIENTS)
def test_a_client_that_sends_without_end_slows_no_other(what: str) -> None:
    """SEC-6: cheap units from one connection, as fast as it is read, most of them without ever
    reading an answer."""
    with Siege() as siege, attacking(BY_CLIENTS[what](siege.port)) as attack:
        siege.stays_fair(attack)


@contextlib.contextmanager
def attacking(work: Work, number: int = 1) -> Iterator[Callable[[], None]]:
    """What starts the attackers when it is called; they end with the block."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(Attackers(work, number)) and None


def test_several_that_pour_at_once_slow_nobody_else() -> None:
    """SRC-8, SEC-6: servers of each kind and clients of each kind, all at the same time."""
    kinds = [
        (kind, where, what)
        for kind, where, what in POURED
        if what in ("newlines", "pings", "empty")
    ]
    with contextlib.ExitStack() as stack:
        hostile = stack.enter_context(Hostile())
        servers = [
            hostile.server(f"bad{number}", f"pour{number}", kind)
            for number, (kind, *_) in enumerate(kinds)
        ]
        siege = stack.enter_context(Siege(servers))
        session = Session(siege.port)
        clients = [
            BY_CLIENTS[what](siege.port)
            for what in ("pings", "empty frames", "a burst of notifications")
        ]

        def attack() -> None:
            for number, (_, where, what) in enumerate(kinds):
                call = session.start_call(
                    f"bad{number}_pour", where=where, what=what, seconds=LASTING
                )
                stack.callback(call.cut)
            for client in clients:
                stack.enter_context(Attackers(client))

        siege.stays_fair(attack)
