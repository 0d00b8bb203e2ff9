"""Many clients at once: nobody is forgotten, nobody slow is in the way of others, too much is
refused and not collapsed under (SEC-6)."""

import asyncio
import http.client
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from behaviour.load import Score, Wire, call_of, connected, crowd, encoded, greeted, left, memory_of
from kit.client import WAIT_SECONDS, wait_until_settled
from kit.gateway import GatewayProcess
from kit.messages import Json, initialize_request
from kit.servers import stdio_server
from kit.until import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

UPSTREAM = Path(__file__).parents[2] / "bench" / "upstream.py"
SERVERS = 5
TOOLS = [f"s{number}t0" for number in range(SERVERS)]


def upstream(number: int, **keys: Any) -> Json:
    command = [
        sys.executable,
        "-I",
        "-S",
        str(UPSTREAM),
        "--era",
        "older",
        "--tools",
        "1",
        "--id",
        str(number),
    ]
    entry = stdio_server(f"u{number}", command, **keys)
    return {key: value for key, value in entry.items() if key != "prefix"}


@contextmanager
def gateway(servers: list[Json] | None = None, **more: Any) -> Iterator[GatewayProcess]:
    servers = servers or [upstream(number) for number in range(SERVERS)]
    config = {
        "global": {"startup_wait": 10, "first_start_wait": 10},
        "mcp_servers": servers,
        **more,
    }
    with GatewayProcess(config) as running:
        wait_until_settled(running.port, *(server["name"] for server in servers))
        yield running


# ---- many sessions


async def visit(port: int, era: str, number: int, calls: int) -> None:
    """One client: it comes, calls, and goes. Every answer is its own."""
    wire = await connected(port)
    try:
        session = await greeted(port, wire) if era == "older" else ""
        for turn in range(calls):
            text = f"client {number} call {turn}."
            answer = await wire.send(
                call_of(port, era, session, TOOLS[(number + turn) % SERVERS], text)
            )
            assert answer.startswith(b"HTTP/1.1 200") and text.encode() in answer, answer
        if era == "older":
            await left(port, wire, session)
    finally:
        wire.transport.abort()


async def visits(port: int, era: str, clients: int, calls: int) -> None:
    await asyncio.gather(*(visit(port, era, number, calls) for number in range(clients)))


# 10,000 calls that leave 1 KiB each would exceed it. The sessions of 500 clients take 1 MiB.
MAX_GROWTH_MIB = 8.0


@pytest.mark.parametrize("era", ["older", "modern"])
def test_five_hundred_clients_with_twenty_calls_each_and_the_memory_is_given_back(era: str) -> None:
    with gateway() as running:
        # As many clients as below: how much memory the first visit takes depends on how many are
        # there at a time.
        uvloop.run(visits(running.port, era, 500, 5))
        before = memory_of(running.process.pid)
        began = time.monotonic()
        uvloop.run(visits(running.port, era, 500, 20))
        took = time.monotonic() - began
        after: list[float] = []

        def is_back() -> bool:
            after.append(memory_of(running.process.pid))
            return after[-1] <= before + MAX_GROWTH_MIB

        try:
            wait_until(is_back, 30)
        except AssertionError:
            raise AssertionError(f"{before:.1f} MiB before, {after[-1]:.1f} after") from None
        assert took < 60


# ---- too much


class Doctor(threading.Thread):
    """Asks all the time how the gateway is, from outside of the crowd's loop."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.waits: list[float] = []
        self._port = port
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(0.05):
            began = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            connection.close()
            self.waits.append(time.monotonic() - began)

    def __enter__(self) -> "Doctor":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()


def told(peak: Score, much: Score) -> str:
    return f"peak {peak}: {peak.rate:.0f}/s, too much {much}: {much.rate:.0f}/s"


def test_ten_times_too_many_clients_get_as_many_answers_and_health_is_told_meanwhile() -> None:
    """At least 80 % of the best, measured in what the gateway spends on an answer."""
    with gateway() as running:
        port, pid = running.port, running.process.pid
        uvloop.run(crowd(port, pid, 64, TOOLS, 1, 30))
        peak = uvloop.run(crowd(port, pid, 64, TOOLS, 3, 30))
        with Doctor(port) as doctor:
            much = uvloop.run(crowd(port, pid, 640, TOOLS, 4, 30))
        assert much.late == 0, told(peak, much)
        assert much.economy >= 0.5 * peak.economy or much.rate >= 0.5 * peak.rate, told(
            peak, much
        )  # no collapse
        assert sorted(doctor.waits)[len(doctor.waits) // 2] < 1, doctor.waits


SERIAL = """
import json, sys, time
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "serial"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "s0t0", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        time.sleep(0.005)
        result = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    elif method == "ping":
        result = {}
    else:
        result = None
    reply = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
"""


def test_a_server_that_does_one_thing_at_a_time_is_kept_useful_by_its_limits() -> None:
    """Its clients have little patience: without limits it would work for those who have left."""
    entry = stdio_server(
        "one", [sys.executable, "-I", "-S", "-c", SERIAL], limits={"in_flight": 4, "queue": 8}
    )
    del entry["prefix"]
    with gateway([entry]) as running:
        port, pid = running.port, running.process.pid
        peak = uvloop.run(crowd(port, pid, 4, ["s0t0"], 3, 1))
        much = uvloop.run(crowd(port, pid, 40, ["s0t0"], 3, 1))
        assert much.rate >= 0.5 * peak.rate, told(peak, much)  # no collapse
        assert much.refused.keys() == {503} and much.late == 0, told(peak, much)


# ---- slow ones

SLOW = 200


async def drip(port: int, kind: int, begun: asyncio.Semaphore, ending: asyncio.Event) -> None:
    """Sends a byte now and then, or reads nothing of what it asked for."""
    wire = Wire()
    await asyncio.get_running_loop().create_connection(lambda: wire, "127.0.0.1", port)
    message = encoded(port, initialize_request(), {})
    head = message.index(b"\r\n\r\n")
    sent = (0, head + 20, len(message))[kind]
    wire.transport.write(message[:sent])
    if kind == 2:  # and asks for much more than it reads
        wire.transport.pause_reading()
        big = call_of(port, "modern", "", TOOLS[0], "x" * 1000, times=1000)
        for _ in range(4):
            wire.transport.write(big)
    begun.release()
    while not ending.is_set() and not wire.transport.is_closing():
        if kind < 2:
            wire.transport.write(message[sent : sent + 1])
            sent += 1
        try:
            await asyncio.wait_for(ending.wait(), 0.5)
        except TimeoutError:
            continue
    wire.transport.abort()


async def beside_slow_ones(port: int) -> list[float]:
    ending = asyncio.Event()
    begun = asyncio.Semaphore(0)
    slow = [asyncio.ensure_future(drip(port, number % 3, begun, ending)) for number in range(SLOW)]
    async with asyncio.timeout(WAIT_SECONDS):
        for _ in slow:
            await begun.acquire()
    wire = await connected(port)
    session = await greeted(port, wire)
    waits: list[float] = []
    try:
        for turn in range(300):
            began = time.monotonic()
            answer = await wire.send(
                call_of(port, "older", session, TOOLS[1 + turn % 4], f"turn {turn}.")
            )
            waits.append(time.monotonic() - began)
            assert f"turn {turn}.".encode() in answer
            await asyncio.sleep(0.005)
    finally:
        ending.set()
        await asyncio.gather(*slow)
        wire.transport.abort()
    return sorted(waits)


def test_two_hundred_slow_clients_are_in_nobodys_way() -> None:
    """Heads and bodies that come byte by byte, and answers that nobody reads."""
    with gateway() as running:
        waits = uvloop.run(beside_slow_ones(running.port))
        assert waits[len(waits) // 2] < 0.1 and waits[-1] < 2, (waits[len(waits) // 2], waits[-1])
