"""Whatever a peer sends, asks for or does not read, what is kept of it has a bound in bytes and in
time (SEC-6).

Bounds of memory are many times what mcpx should need, and a fraction of what it would grow to
without them.
"""

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from attacks.harness import (
    MIB,
    Attackers,
    Hostile,
    Siege,
    WebSocket,
    connected,
    frame,
    http_request,
    read_head,
)
from kit.client import Session, Stream
from kit.messages import initialize_request, notification, request
from kit.until import wait_until

MUCH = 64.0
"""MiB that an attack of a few seconds may cost: caches, buffers of sockets, what the allocator
keeps."""


# ---- headers


def test_event_ids_of_a_server_are_not_kept_whole() -> None:
    """SEC-6, SRC-8: a server that ends its stream at once, again and again, each time behind
    another huge event id."""
    with Hostile() as hostile, Siege([hostile.server("bad")]) as siege:
        session = Session(siege.port)
        with siege.peak() as peak:
            with contextlib.ExitStack() as stack:
                for _ in range(6):
                    stack.enter_context(session.start_call("bad_ids", bytes=3 * MIB))
                figures = siege.healthy.during(3.0)
            assert peak() < MUCH, f"{peak():.0f} MiB"
        assert not figures.bad(), figures.bad()


def test_values_that_become_headers_are_not_kept() -> None:
    """SEC-6: one client that calls a tool with an argument mirrored in a header (`x-mcp-header`),
    each time another."""
    with Hostile() as hostile, Siege([hostile.server("bad", "pour.modern")]) as siege:
        session = Session(siege.port)
        answers: list[Any] = []

        def attack() -> None:
            values = (f"{number:06}-" + "r" * 30_000 for number in range(1500))
            answers.extend(session.call("bad_headed", region=value) for value in values)

        with siege.peak() as peak:
            attack()
            assert peak() < 24, f"{peak():.0f} MiB for {len(answers)} calls"
        assert all(
            "result" in answer or "bad" in answer["error"]["message"] for answer in answers
        ), answers[-1]


def test_a_short_value_still_becomes_a_header() -> None:
    """PRO-6: what is capped is what no server means."""
    with Hostile() as hostile, Siege([hostile.server("bad", "pour.modern")]) as siege:
        reply = Session(siege.port).call("bad_headed", region="eu-west")
        assert reply["result"]["content"][0]["text"] == "eu-west", reply


# ---- streams and bodies without end

CUT = 25.0
"""Seconds within which noise that never stops is cut off."""


@pytest.mark.parametrize(
    ("kind", "where", "what"),
    [
        ("http", "stream", "newlines"),
        ("http", "reply", "comments"),
        ("sse", "stream", "newlines"),
        ("websocket", "stream", "empty"),
        ("websocket", "stream", "pings"),
    ],
)
def test_a_stream_that_carries_only_noise_is_cut_and_that_is_said(
    kind: str, where: str, what: str
) -> None:
    """SEC-6, SRC-8: a stream that pours for ever is ended, and the log names the server."""
    with Hostile() as hostile, Siege([hostile.server("bad", kind=kind)]) as siege:
        said = len(siege.said())
        with Session(siege.port).start_call("bad_pour", where=where, what=what, seconds=60):
            cut = hostile.told(r"poured .*", CUT)
            assert cut is not None and cut[0].endswith("cut"), f"{cut} {siege.said()[-1000:]}"
            wait_until(lambda: "[bad]" in siege.said()[said:])


def test_a_body_behind_a_notification_is_not_read_for_ever() -> None:
    """SEC-6, SRC-8: a server that answers `notifications/cancelled` with a body without end."""
    with Hostile() as hostile, Siege([hostile.server("bad", "endless")]) as siege:
        session = Session(siege.port)

        def attack() -> None:
            with session.start_call("bad_hang", id="hanging"):
                cancel = {"method": "notifications/cancelled", "params": {"requestId": "hanging"}}
                assert session.post({"jsonrpc": "2.0", **cancel}).status == 202

        with siege.peak() as peak:
            siege.stays_fair(attack, seconds=1.0, rounds=1)
            cut = hostile.told(r"poured endless body.*", CUT)
            assert cut is not None and cut[0].endswith("cut"), cut
            assert peak() < MUCH, f"{peak():.0f} MiB"


# ---- asking without reading

BIG = 200_000
"""Bytes of each answer that is asked for and not read."""


GREETING = initialize_request("2024-11-05")


def big_call(number: int) -> bytes:
    params = {"name": "bad_big", "arguments": {"bytes": BIG}}
    return json.dumps(request("tools/call", params, number)).encode()


def trickle(connection: socket.socket, ending: threading.Event) -> None:
    """Ten bytes now and then: not so idle that a time-out of silence would notice."""
    while not ending.wait(0.25):
        with contextlib.suppress(OSError):
            connection.recv(10)


def asks_by_http(port: int, reads: bool) -> Callable[[threading.Event], None]:
    def work(ending: threading.Event) -> None:
        session = Session(port)
        calls = (
            http_request(port, body=big_call(number), **session.headers)
            for number in itertools.count()
        )
        with contextlib.closing(connected(port, 0.5, 4096)) as connection:
            pushes(connection, calls, connection if reads else None, ending)

    return work


def asks_by_websocket(port: int, reads: bool) -> Callable[[threading.Event], None]:
    def work(ending: threading.Event) -> None:
        with WebSocket(port, receive_buffer=4096) as websocket:
            websocket.greet()
            websocket.socket.settimeout(0.5)
            calls = (frame(big_call(number)) for number in itertools.count())
            pushes(websocket.socket, calls, websocket.socket if reads else None, ending)

    return work


def sse_stream(port: int) -> tuple[socket.socket, str]:
    """The stream of a client of HTTP+SSE, and where it has to post."""
    stream = connected(port, 5, 4096)
    stream.sendall(http_request(port, "GET", "/sse", None, accept="text/event-stream"))
    data = b""
    while b"data: /" not in data or not data.endswith(b"\n\n\r\n"):
        data += stream.recv(1000)
    return stream, data.rpartition(b"data: ")[2].split()[0].decode()


def asks_by_sse(port: int, reads: bool) -> Callable[[threading.Event], None]:
    def work(ending: threading.Event) -> None:
        stream, path = sse_stream(port)
        with contextlib.closing(stream), contextlib.closing(connected(port, 0.5)) as posts:
            posts.sendall(http_request(port, target=path, body=json.dumps(GREETING).encode()))
            assert read_head(posts)[0] == 202
            calls = (
                http_request(port, target=path, body=big_call(number))
                for number in itertools.count()
            )
            reading = threading.Thread(target=_answers, args=(posts, ending), daemon=True)
            reading.start()
            pushes(posts, calls, stream if reads else None, ending)
            reading.join(5)

    return work


def _answers(connection: socket.socket, ending: threading.Event) -> None:
    """Those to the posts themselves are read: it is the stream that is not."""
    while not ending.is_set():
        try:
            if not connection.recv(65536):
                return
        except TimeoutError:
            continue
        except OSError:
            return


def pushes(
    connection: socket.socket,
    calls: Iterator[bytes],
    trickled: socket.socket | None,
    ending: threading.Event,
) -> None:
    """Call behind call, as long as it is read; `trickled` is read a little."""
    if trickled is not None:
        threading.Thread(target=trickle, args=(trickled, ending), daemon=True).start()
    block = b""
    while not ending.is_set():
        block = block or b"".join(itertools.islice(calls, 50))
        with contextlib.suppress(TimeoutError):  # it is not read any more, which is what is wished
            block = block[connection.send(block) :]


ASKING = {"HTTP": asks_by_http, "WebSocket": asks_by_websocket, "HTTP+SSE": asks_by_sse}


@pytest.mark.parametrize(
    "reads", [False, True], ids=["reads nothing", "reads ten bytes now and then"]
)
@pytest.mark.parametrize("front", ASKING)
def test_who_asks_and_does_not_read_is_not_answered_into_memory(front: str, reads: bool) -> None:
    """SEC-6: nothing more is read from a connection whose answers wait to be read."""
    servers = [Hostile().server("bad", kind="stdio")]
    with Siege(servers) as siege, siege.peak() as peak, Attackers(ASKING[front](siege.port, reads)):
        figures = siege.healthy.during(4.0)
        assert peak() < 48, f"{peak():.0f} MiB"
        assert not figures.bad(), figures.bad()


@pytest.mark.parametrize("front", ["HTTP", "WebSocket", "HTTP+SSE"])
def test_who_never_reads_what_servers_tell_is_not_told_into_memory(front: str) -> None:
    """SEC-6: ten clients that never read their streams, and a server that logs as fast as it
    can."""
    with contextlib.ExitStack() as stack:
        siege = stack.enter_context(Siege([Hostile().server("bad", kind="stdio")]))
        for _ in range(10):
            stack.enter_context(contextlib.closing(DEAF[front](siege.port, [])))
        session = Session(siege.port)
        with siege.peak() as peak:
            session.call("bad_pour", where="stream", what="logs", seconds=2)
            figures = siege.healthy.during(2.0)
            assert peak() < MUCH, f"{peak():.0f} MiB"
            assert not figures.bad(), figures.bad()


@pytest.mark.parametrize("front", ["HTTP", "WebSocket", "HTTP+SSE"])
def test_progress_that_nobody_reads_is_not_kept_in_memory(front: str) -> None:
    """SEC-6: ten clients with a call whose server tells its progress as fast as it can, and none
    that listens."""
    with contextlib.ExitStack() as stack:
        hostile = stack.enter_context(Hostile())
        siege = stack.enter_context(Siege([hostile.server("bad")]))
        given = {"where": "reply", "what": "progress", "bytes": 50_000, "seconds": 20}
        params = {"name": "bad_pour", "arguments": given, "_meta": {"progressToken": "t"}}
        with siege.peak() as peak:
            for _ in range(10):
                stack.enter_context(
                    contextlib.closing(
                        DEAF[front](siege.port, [request("tools/call", params, "call")])
                    )
                )
            figures = siege.healthy.during(3.0)
            assert peak() < MUCH, f"{peak():.0f} MiB"
            assert not figures.bad(), figures.bad()


def deaf_by_http(port: int, messages: list[Any]) -> socket.socket:
    """A client with its ear to the stream, which it does not read: that of its first message, or
    the GET stream."""
    session = Session(port)
    connection = connected(port, 5, 4096)
    for message in messages:
        connection.sendall(http_request(port, body=json.dumps(message).encode(), **session.headers))
    if not messages:
        connection.sendall(
            http_request(port, "GET", "/mcp", None, accept="text/event-stream", **session.headers)
        )
    return connection


def deaf_by_websocket(port: int, messages: list[Any]) -> socket.socket:
    websocket = WebSocket(port, receive_buffer=4096)
    websocket.greet()
    for message in messages:
        websocket.send(message)
    return websocket.socket


def deaf_by_sse(port: int, messages: list[Any]) -> socket.socket:
    connection, path = sse_stream(port)
    for message in (GREETING, notification("notifications/initialized"), *messages):
        with Stream(
            port, "POST", path, [("Content-Type", "application/json")], json.dumps(message).encode()
        ) as posted:
            assert posted.status == 202
    return connection


DEAF = {"HTTP": deaf_by_http, "WebSocket": deaf_by_websocket, "HTTP+SSE": deaf_by_sse}


# ---- calls in flight


def test_calls_in_flight_of_one_client_are_counted_and_ending_them_holds_up_nobody() -> None:
    """SEC-6: 20,000 calls that hang on one socket: those over the cap get an error at once, and the
    end is spread."""
    total = 20_000
    with Siege() as siege, WebSocket(siege.port) as websocket:
        websocket.greet()
        refused: list[Any] = []

        def ask() -> None:
            params = {"name": "well_hang", "arguments": {}}
            for start in range(0, total, 500):
                calls = (
                    request("tools/call", params, f"h{number}")
                    for number in range(start, start + 500)
                )
                websocket.socket.sendall(
                    b"".join(frame(json.dumps(call).encode()) for call in calls)
                )

        asking = threading.Thread(target=ask, daemon=True)

        def attack() -> None:
            asking.start()
            refused.append(websocket.message())
            asking.join(30)

        with siege.peak() as peak:
            reading = threading.Thread(target=_until_closed, args=(websocket, refused), daemon=True)
            siege.stays_fair(attack, seconds=1.0, rounds=1)
            reading.start()
            siege.stays_fair(websocket.socket.close, seconds=1.5, rounds=1)
            reading.join(10)
            assert peak() < 2 * MUCH, f"{peak():.0f} MiB"
        assert "error" in refused[0] and refused[0]["id"].startswith("h"), refused[0]
        assert any(
            word in refused[0]["error"]["message"]
            for word in ("at a time", "in flight", "too many")
        ), refused[0]


def _until_closed(websocket: WebSocket, messages: list[Any]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while True:
            messages.append(websocket.message())
