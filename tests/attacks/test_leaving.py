"""Who leaves is noticed, who is in use stays, and a server that does not work is not called
connected."""

import contextlib
import json
import socket
import sys
import time
from pathlib import Path

from attacks.harness import Hostile, Siege, connected, http_request, read_head
from kit.client import Session, health, wait_until_settled
from kit.messages import initialize_request, modern_headers, modern_request
from kit.servers import odd_server, recorded_messages, stdio_server
from kit.until import wait_until


def test_a_client_that_leaves_with_a_request_behind_its_stream_is_noticed_at_once(
    tmp_path: Path,
) -> None:
    """LIF-6, PRO-2: its modern call is cancelled, though a second request waited on the connection
    when it went."""
    record = tmp_path / "record"
    with Siege([odd_server("slow", record)]) as siege:
        given = {"seconds": 600, "times": 2}
        call = modern_request(
            "tools/call",
            {"name": "slow_tick", "arguments": given, "_meta": {"progressToken": "p"}},
            1,
        )
        one = http_request(siege.port, body=json.dumps(call).encode(), **modern_headers(call))
        with contextlib.closing(connected(siege.port, 10)) as connection:
            connection.sendall(one)
            assert read_head(connection)[0] == 200
            connection.sendall(http_request(siege.port, "GET", "/health", None))
            connection.shutdown(socket.SHUT_WR)
        began = time.monotonic()
        wait_until(lambda: recorded_messages(record, "notifications/cancelled"))
        assert time.monotonic() - began < 2.0


def test_strangers_who_greet_ten_thousand_times_do_not_put_out_who_is_in_use() -> None:
    """SEC-6: sessions are capped for each principal and address: a crowd from one puts out its own,
    idle ones first."""
    with Siege() as siege:
        thinking, listening, calling = (Session(siege.port) for _ in range(3))
        assert thinking.call("well_echo", text="and now I think about it")["result"]
        greeting = http_request(siege.port, body=json.dumps(initialize_request()).encode())
        with contextlib.ExitStack() as stack:
            stack.enter_context(listening.listen())
            stack.enter_context(calling.start_call("well_hang"))
            crowd = socket.create_connection(
                ("127.0.0.1", siege.port), 10, source_address=("127.0.0.2", 0)
            )
            stack.enter_context(contextlib.closing(crowd))
            for _ in range(105):
                crowd.sendall(greeting * 100)
                count = 0
                while count < 100:
                    more = crowd.recv(1 << 18)
                    assert more, "the connection has ended"
                    count += more.count(b"HTTP/1.1 ")
            for session in (thinking, listening, calling):
                assert session.call("well_echo", text="in use")["result"]
        figures = siege.healthy.during(0.3)
        assert not figures.bad(), figures.bad()


def test_a_line_without_end_ends_the_server_that_writes_it() -> None:
    """SEC-6, SRC-8, LIF-4: the connection is reset, its calls fail with its name, and it is there
    again afterwards."""
    with Siege(
        [Hostile().server("bad", kind="stdio")], config={"global": {"max_message": 1 << 20}}
    ) as siege:
        session = Session(siege.port)
        with session.start_call("bad_hang") as hanging:
            session.call("bad_pour", where="stream", what="endless line", seconds=60)
            message = hanging.reply().message
            assert "error" in message and "bad" in message["error"]["message"], message
        wait_until(lambda: health(siege.port)["servers"]["bad"]["restarts"] > 0)
        wait_until(lambda: "result" in session.call("bad_echo", text="again"))


MUTE = """
import os, time
os.write(1, b"")
time.sleep(600)
"""

DEAF = """
import json, sys, time
def answer(result):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **result}) + "\\n")
    sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        info = {"name": "deaf", "version": "1"}
        answer({"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}})
        break
    if "id" in message:
        answer({"error": {"code": -32601, "message": "no"}})
time.sleep(600)
"""


def test_a_server_that_reads_nothing_is_not_called_connected() -> None:
    """LIF-3, SRC-8: one that never answers, and one that stops reading after it was greeted."""
    keys = {"timeout": 1.5, "max_retries": 0}
    servers = [
        stdio_server(name, [sys.executable, "-I", "-S", "-c", text], **keys)
        for name, text in PROGRAMS.items()
    ]
    with Siege(
        servers, config={"global": {"startup_wait": 0.1, "first_start_wait": 0.1}}, wait=False
    ) as siege:
        states = wait_until_settled(siege.port)
        for name in PROGRAMS:
            assert states[name]["status"] != "connected", states[name]
            assert states[name]["last_error"], states[name]


PROGRAMS = {"mute": MUTE, "deaf": DEAF}
