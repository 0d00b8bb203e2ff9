"""SEC-6, SCA-1: limits count over all replicas, behind a load balancer that knows nothing of it;
places of a replica that dies come back; while the store is away each counts for itself, or nobody
is let in."""

import asyncio
import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from behaviour.load import Wire, call_of, connected, greeted
from kit.client import Session, Stream, post_modern
from kit.gateway import Gateway
from kit.http_client import fetch
from kit.messages import Json, modern_headers, modern_request
from kit.replicas import RedisServer, Replicas
from kit.servers import stdio_server
from kit.until import wait_until

SERVER = Path(__file__).parents[1] / "behaviour" / "asking_server.py"
QUICK = {"startup_wait": 10, "first_start_wait": 10, "hot_reload_interval": 0.05}
GONE = 8.0
"""Seconds in which places of a dead replica are free: 3.5, and what a busy machine takes."""


class Place:
    """Some replicas before a server whose calls last until the test lets them go."""

    def __init__(self, store: RedisServer, replicas: Replicas, record: Path) -> None:
        self.store = store
        self.replicas = replicas
        self.record = record
        self.let_go = record.with_name("let_go")
        self.streams: list[Stream] = []

    def calls(self, tool: str) -> int:
        """How many of them a server has heard of, whichever replica's."""
        lines = self.record.read_bytes().splitlines() if self.record.exists() else []
        heard = [each for each in map(json.loads, lines) if each.get("method") == "tools/call"]
        return sum(each["params"]["name"] == tool for each in heard)

    def start(self, replica: Gateway, era: str = "modern", until: Path | None = None) -> Stream:
        """A call that is left running."""
        until = until or self.let_go
        if era == "older":
            stream = Session(replica.port).start_call("s_wait", until=str(until))
        else:
            message = modern_request(
                "tools/call", {"name": "s_wait", "arguments": {"until": str(until)}}
            )
            headers = {
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
            }
            body = json.dumps(message).encode()
            stream = Stream(
                replica.port, "POST", "/mcp", {**headers, **modern_headers(message)}.items(), body
            )
        self.streams.append(stream)
        return stream

    def waiting(self) -> int:
        """Calls in the queues of all replicas that live."""
        return sum(
            metric(each, "mcpx_queued_calls")
            for each in self.replicas
            if each.process.poll() is None
        )


def metric(replica: Gateway, name: str) -> int:
    text = fetch(replica.port, "/metrics").body.decode()
    return sum(
        int(float(number)) for number in re.findall(rf"^{name}\{{.*}} (\S+)$", text, re.MULTILINE)
    )


def echo(replica: Gateway) -> Any:
    return post_modern(
        replica.port, modern_request("tools/call", {"name": "s_echo", "arguments": {"text": "hi"}})
    )


@contextmanager
def place(folder: Path, its: Json | None = None, **server: Any) -> Iterator[Place]:
    record = folder / "record"
    entry = stdio_server(
        "s", [sys.executable, "-I", "-S", str(SERVER), str(record), "--era", "dual"], **(its or {})
    )
    config = {"global": QUICK, "mcp_servers": [entry], "server": {"metrics": True, **server}}
    with RedisServer() as store, Replicas(store, config) as replicas:
        at = Place(store, replicas, record)
        try:
            yield at
        finally:
            at.let_go.touch()  # nobody is left waiting for it
            for stream in at.streams:
                stream.cut()


def test_a_minutes_calls_are_exact_over_three_replicas_and_both_eras(tmp_path: Path) -> None:
    """SEC-6: of 300 calls, in sessions and without, through any replica, 100 pass, and as many more
    as the rate allows while they are made."""

    async def run(port: int) -> tuple[Counter[int], float]:
        wires = [await connected(port) for _ in range(30)]
        sessions = [
            await greeted(port, wire) if number % 2 else "" for number, wire in enumerate(wires)
        ]
        answers: Counter[int] = Counter()

        async def client(wire: Wire, session: str) -> None:
            for turn in range(10):
                era = "older" if session else "modern"
                answer = await wire.send(call_of(port, era, session, "s_echo", f"t{turn}"))
                answers[int(answer[9:12])] += 1

        began = time.monotonic()
        await asyncio.gather(*map(client, wires, sessions))
        seconds = time.monotonic() - began
        for wire in wires:
            wire.transport.abort()
        await asyncio.sleep(0)  # they are closed in the next turn
        return answers, seconds

    with place(tmp_path, limits={"per_minute": 100}) as at:
        answers, seconds = asyncio.run(run(at.replicas.port))
        assert answers.total() == 300 and set(answers) == {200, 429}
        refilled = seconds * 100 / 60
        assert 100 <= answers[200] <= 101 + refilled
        assert at.calls("echo") == answers[200]
        refused = [metric(each, "mcpx_limited_total") for each in at.replicas]
        assert sum(refused) == answers[429] and all(refused)


@pytest.mark.parametrize("era", ["older", "modern"])
def test_no_more_run_at_a_time_than_allowed_over_three_replicas(era: str, tmp_path: Path) -> None:
    """SEC-6: three calls run, and one waits at each of two replicas. A slot that becomes free at the
    third replica is given to one of them. A refusal names the calls in flight of all replicas."""
    with place(tmp_path, {"limits": {"in_flight": 3, "queue": 1}}) as at:
        first = tmp_path / "first"
        streams = [
            at.start(replica, era, until)
            for replica, until in zip(at.replicas, (None, None, first), strict=True)
        ]
        wait_until(lambda: at.calls("wait") == 3)
        streams += [at.start(at.replicas[0], era), at.start(at.replicas[1], era)]
        wait_until(lambda: at.waiting() == 2)
        refused = echo(at.replicas[0])
        assert refused.status == 503 and refused.get("retry-after") == "1"
        assert "3 calls of server s are in flight and 1 wait" in refused.json["error"]["message"]
        first.touch()  # at the third replica, where nobody waits
        wait_until(lambda: at.calls("wait") == 4)
        assert at.waiting() == 1
        at.let_go.touch()
        assert [stream.reply().status for stream in streams] == [200] * 5
        assert at.calls("wait") == 5
        assert echo(at.replicas[0]).status == 200


def test_places_of_a_killed_replica_come_back(tmp_path: Path) -> None:
    """SEC-6, SCA-1: kill -9 of one that has all places: who waits elsewhere comes in within
    seconds."""
    with place(tmp_path, {"limits": {"in_flight": 2, "queue": 5}}) as at:
        at.start(at.replicas[0])
        at.start(at.replicas[0])
        wait_until(lambda: at.calls("wait") == 2)
        waits = [at.start(at.replicas[1]), at.start(at.replicas[2])]
        wait_until(lambda: at.waiting() == 2)
        at.replicas[0].process.kill()
        wait_until(lambda: at.calls("wait") == 4, what="those who waited come in", seconds=GONE)
        at.let_go.touch()
        assert [stream.reply().status for stream in waits] == [200, 200]


def test_what_a_replica_has_that_stood_still_counts_again(tmp_path: Path) -> None:
    """SEC-6, SCA-1: it counts as gone, and its places are given away; when it goes on, it counts
    again with all it has, and nobody comes in until there are fewer than allowed."""
    with place(tmp_path, {"limits": {"in_flight": 1, "queue": 0}}) as at:
        held = at.start(at.replicas[0])
        wait_until(lambda: at.calls("wait") == 1)
        assert echo(at.replicas[1]).status == 503
        at.replicas[0].process.send_signal(signal.SIGSTOP)
        try:
            wait_until(
                lambda: echo(at.replicas[1]).status == 200, what="its place is free", seconds=GONE
            )
        finally:
            at.replicas[0].process.send_signal(signal.SIGCONT)
        wait_until(lambda: echo(at.replicas[1]).status == 503, what="it counts again", seconds=GONE)
        at.let_go.touch()
        assert held.reply().status == 200
        wait_until(
            lambda: echo(at.replicas[2]).status == 200,
            what="it has given its place back",
            seconds=GONE,
        )


@pytest.mark.parametrize("without", ["open", "closed"])
def test_the_store_is_killed(without: str, tmp_path: Path) -> None:
    """SEC-6, SCA-2: `open`: each replica counts for itself. `closed`: nobody is let in, and is told
    why; calls that no limit concerns go on. When the store is back, all count together again, what
    runs since before included."""
    its = {"limits": {"in_flight": 2, "queue": 0}}
    with place(tmp_path, its, limits={"without_store": without}) as at:
        held = [at.start(at.replicas[0]), at.start(at.replicas[1])]
        wait_until(lambda: at.calls("wait") == 2)
        assert [echo(each).status for each in at.replicas] == [503] * 3
        at.store.kill()
        if without == "open":
            wait_until(
                lambda: all(echo(each).status == 200 for each in at.replicas),
                what="each counts for itself",
            )
        else:
            wait_until(
                lambda: all(is_closed(each) for each in at.replicas), what="nobody is let in"
            )
        assert all("Traceback" not in each.stderr() for each in at.replicas)
        at.store.start()
        wait_until(
            lambda: all(is_full(each) for each in at.replicas), what="all count together again"
        )
        at.let_go.touch()
        assert [stream.reply().status for stream in held] == [200, 200]
        wait_until(
            lambda: all(echo(each).status == 200 for each in at.replicas),
            what="places were given back",
        )
        assert all("Traceback" not in each.stderr() for each in at.replicas)


def is_closed(replica: Gateway) -> bool:
    reply = echo(replica)
    if reply.status != 503 or reply.json["error"]["data"]["limit"] != "server.limits.without_store":
        return False
    return reply.get("retry-after") == "1" and "is away" in reply.json["error"]["message"]


def is_full(replica: Gateway) -> bool:
    reply = echo(replica)
    return (
        reply.status == 503
        and reply.json["error"]["data"]["limit"] == "mcp_servers.s.limits.in_flight"
    )


def test_a_reload_of_each_replica_counts_at_once_for_what_runs(tmp_path: Path) -> None:
    """SEC-6, CFG-5: who waits comes in when there is room for more, at whichever replica."""
    with place(tmp_path, {"limits": {"in_flight": 1, "queue": 5}}) as at:
        streams = [at.start(replica) for replica in at.replicas]
        wait_until(lambda: at.calls("wait") == 1 and at.waiting() == 2)
        for replica in at.replicas:
            config: Any = json.loads(replica.file.read_bytes())
            config["mcp_servers"][0]["limits"]["in_flight"] = 3
            file = replica.file.with_suffix(".new")
            file.write_text(json.dumps(config), encoding="utf-8")
            file.chmod(0o600)
            file.rename(replica.file)
        wait_until(lambda: at.calls("wait") == 3)
        at.let_go.touch()
        assert [stream.reply().status for stream in streams] == [200] * 3
