"""replicas: what it costs to be one of several, and what several carry.

Two replicas on one store (`valkey-server`, else `redis-server`) and a gateway without one run side
by side and take turns:

* *no store*: a gateway by itself;
* *owner*: a call that comes to the replica of its session (modern: to any; there is nothing to
  find);
* *foreign*: a call that comes to the other replica, which passes it on; CPU is that of both.

Then what two carry against one. The calls are searches in a catalog of many tools, which the
gateway answers itself: they cost it much and their client little, so that the two processors are
for the replicas. The store's own count of commands tells how many a call needs, those of the beats
taken off.
"""

import asyncio
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from bench.client import Client, Era, Refused
from bench.gateway import Gateway, free_port, listening
from bench.guard import WIDTHS, GuardRow, ratios
from bench.http_client import HttpClient
from bench.processes import UPSTREAM, Started
from bench.tables import median_of, ratio_of, table
from bench.turns import TEXT, Plan, Row, Turn, rotated, turn
from bench.upstream import Json

SERVERS = ("valkey-server", "redis-server")
SEARCHERS = 16
"""Searches in flight, of all replicas together."""
PLAIN = "no store"


@dataclass(frozen=True, slots=True)
class Effort:
    rounds: int
    seconds: float
    calls: int
    tools: int
    """In the catalog that is searched."""
    watched: float
    """Seconds in which the store's commands are counted, with calls and without."""


EFFORTS = {
    "full": Effort(rounds=10, seconds=0.8, calls=20_000, tools=3_000, watched=10.0),
    "quick": Effort(rounds=4, seconds=0.5, calls=20_000, tools=3_000, watched=5.0),
    "smoke": Effort(rounds=1, seconds=5.0, calls=10, tools=40, watched=0.5),
}


@dataclass(slots=True)
class ReplicaRow(GuardRow):
    store_commands: float | None = None
    """Of a call."""


@dataclass(slots=True)
class CarryRow(Row):
    turns: dict[str, list[Turn]] = field(default_factory=lambda: {str(SEARCHERS): []})


@dataclass(slots=True)
class Asker:
    """A client with the gateways that work for it; their CPU counts together."""

    row: GuardRow | CarryRow
    clients: Sequence[Client]
    gateways: Sequence[Started]
    asked: int = 0

    def cpu(self) -> float:
        return sum(gateway.cpu() for gateway in self.gateways)

    async def echo(self) -> float:
        self.asked += 1
        text = f"{self.asked} ".ljust(TEXT, "x")
        began = time.perf_counter()
        result = await self._next().request(
            "tools/call", {"name": "u0_s0t0", "arguments": {"text": text}}
        )
        took = time.perf_counter() - began
        if result.get("isError") or result["content"][0]["text"] != text:
            raise Refused(f"a wrong answer: {str(result)[:300]}")
        return took

    async def search(self) -> float:
        """For a tool by its name and what all of them do; no two searches are the same for long."""
        self.asked += 1
        wanted = f"s0t{self.asked % 40}"
        query = f"{wanted} echoes a text number {self.asked}"
        began = time.perf_counter()
        result = await self._next().request(
            "tools/call", {"name": "mcp_search_tools", "arguments": {"query": query}}
        )
        took = time.perf_counter() - began
        if result.get("isError") or wanted not in str(result["content"]):
            raise Refused(f"a wrong answer: {str(result)[:300]}")
        return took

    def _next(self) -> Client:
        return self.clients[self.asked % len(self.clients)]


class Bed:
    """The store, and the gateways on it; all end with the stack."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._numbers = itertools.count()
        self.store_port = 0

    async def start_store(self) -> str:
        """Why there is none; empty: it runs."""
        found = [path for name in SERVERS if (path := shutil.which(name)) is not None]
        if not found:
            return f"needs {' or '.join(SERVERS)}"
        self.store_port = free_port()
        words = [
            "--port",
            str(self.store_port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        store = await Started.start([found[0], *words], self._folder)
        self._stack.push_async_callback(store.stop)
        await listening(self.store_port, store)
        return ""

    async def gateway(
        self, era: Era, *, tools: int, shared: str | None, mode: str = "direct"
    ) -> tuple[Started, int]:
        """`shared`: the prefix of its keys; those with the same are replicas of each other."""
        home = self._folder / str(next(self._numbers))
        os.mkdir(home)
        command = [
            sys.executable,
            "-I",
            "-S",
            UPSTREAM,
            "--era",
            era,
            "--tools",
            str(tools),
            "--id",
            "0",
        ]
        connection = {"type": "stdio", "command": command[0], "args": command[1:]}
        server = {"name": "u0", "prefix": "u0", "connection": connection}
        front: Json = {"metrics": False, "drain": 0}
        if shared is not None:
            front["store"] = f"redis://127.0.0.1:{self.store_port}/0?prefix={shared}"
        file, port = home / "mcpx.json", free_port()
        file.write_text(
            json.dumps({"mode": mode, "server": front, "mcp_servers": [server]}), encoding="utf-8"
        )
        process = await Started.start(
            [sys.executable, "-m", "mcpx", str(file), "--port", str(port)], home
        )
        self._stack.push_async_callback(process.stop)
        await listening(port, process)
        await _ready(port)
        return process, port

    async def client(self, era: Era, port: int) -> HttpClient:
        client = HttpClient(era, port)
        self._stack.push_async_callback(client.close)
        await client.open()
        await client.request("tools/list", {})
        return client

    async def commands(self) -> int:
        """All that the store was asked so far."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.store_port)
        try:
            writer.write(b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n")
            size = int((await reader.readline())[1:])
            told = (await reader.readexactly(size)).decode()
        finally:
            writer.close()
        return int(told.partition("total_commands_processed:")[2].split()[0])


async def _ready(port: int) -> None:
    """Until it takes requests: a replica does once it has joined the others."""
    deadline = time.monotonic() + 30
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        head = await reader.readline()
        writer.close()
        if b" 200 " in head:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"a replica did not get ready: {head!r}")
        await asyncio.sleep(0.05)


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpx-bench-")))
        bed = Bed(stack, folder)
        if problem := await bed.start_store():
            return {
                "effort": asdict(effort),
                "rows": [asdict(ReplicaRow("owner", "older", problem=problem))],
            }
        askers = [*await _older(bed), *await _modern(bed)]
        await _rounds(askers, effort)
        for asker in askers:
            if asker.row.name != PLAIN:
                cast(ReplicaRow, asker.row).store_commands = await _commands_a_call(
                    bed, asker, effort
                )
        carriers = await _carriers(bed, effort)
        await _rounds(carriers, effort)
        return {
            "effort": asdict(effort),
            "rows": [asdict(asker.row) for asker in (*askers, *carriers)],
        }


async def _older(bed: Bed) -> list[Asker]:
    alone, port = await bed.gateway("older", tools=10, shared=None)
    one, first = await bed.gateway("older", tools=10, shared="older")
    other, second = await bed.gateway("older", tools=10, shared="older")
    plain, owner, foreign = [await bed.client("older", each) for each in (port, first, first)]
    foreign.move(second)
    return [
        Asker(ReplicaRow(PLAIN, "older"), [plain], [alone]),
        Asker(ReplicaRow("owner", "older"), [owner], [one]),
        Asker(ReplicaRow("foreign", "older"), [foreign], [one, other]),
    ]


async def _modern(bed: Bed) -> list[Asker]:
    alone, port = await bed.gateway("modern", tools=10, shared=None)
    one, first = await bed.gateway("modern", tools=10, shared="modern")
    return [
        Asker(ReplicaRow(PLAIN, "modern"), [await bed.client("modern", port)], [alone]),
        Asker(ReplicaRow("owner", "modern"), [await bed.client("modern", first)], [one]),
    ]


async def _carriers(bed: Bed, effort: Effort) -> list[Asker]:
    """Both replicas are there all the time; half of the clients are at the other one, or none."""
    started = [
        await bed.gateway("modern", tools=effort.tools, shared="carry", mode="search")
        for _ in ("one", "the other")
    ]
    clients = [await bed.client("modern", port) for _, port in started]
    gateways = [process for process, _ in started]
    return [
        Asker(CarryRow("one replica", "modern"), clients[:1], gateways),
        Asker(CarryRow("two replicas", "modern"), clients, gateways),
    ]


async def _rounds(askers: Sequence[Asker], effort: Effort) -> None:
    for asker in askers:
        await _turn(asker, 16, effort)  # warm
        for turns in asker.row.turns.values():
            turns.clear()
    for number in range(effort.rounds):
        for width in WIDTHS if str(WIDTHS[0]) in askers[0].row.turns else (SEARCHERS,):
            for asker in rotated(askers, number):
                await _turn(asker, width, effort)


async def _turn(asker: Asker, width: int, effort: Effort) -> None:
    gateway = cast(Gateway, asker)  # all that a turn looks at is its CPU
    ask = asker.search if isinstance(asker.row, CarryRow) else asker.echo
    took = await turn(
        gateway, ask, asker.row, width=width, seconds=effort.seconds, calls=effort.calls
    )
    asker.row.turns[str(width)].append(took)


async def _commands_a_call(bed: Bed, asker: Asker, effort: Effort) -> float | None:
    """Beside what the store is asked in the same time when nobody calls."""
    before = await bed.commands()
    began = time.perf_counter()
    calls = 0
    while time.perf_counter() - began < effort.watched:
        try:
            await asker.echo()
        except Refused as error:
            asker.row.errors.append(str(error))
            return None
        calls += 1
    took, busy = time.perf_counter() - began, await bed.commands() - before
    await asyncio.sleep(took)
    idle = await bed.commands() - before - busy
    return (busy - idle) / calls


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    calls = [row for row in found["rows"] if "store_commands" in row]
    carried = {row["name"]: row for row in found["rows"] if "store_commands" not in row}
    head = [
        "era",
        "a call",
        "p50 ms @1",
        f"× {PLAIN}",
        "ms more",
        "CPU ms a call @16",
        f"× {PLAIN}",
    ]
    head += ["× owner @1", "× owner @16"]
    lines: list[list[Any]] = []
    for era in dict.fromkeys(row["era"] for row in calls):
        rows = {row["name"]: row for row in calls if row["era"] == era}
        lines += [_cells(row, rows) for row in rows.values()]
    told = table([*head, "store commands a call", "notes"], lines)
    if carried:
        head = ["searches", f"calls/s @{SEARCHERS}", "× one", "CPU ms a call", "notes"]
        told += (
            f"\n{table(head, [_carried(row, carried['one replica']) for row in carried.values()])}"
        )
    return told


def _cells(row: Json, rows: dict[str, Json]) -> list[Any]:
    base, owner = rows.get(PLAIN, row), rows.get("owner", row)
    p50, times, cpu, cpu_times = ratios(row, base)
    owners = median_of(owner["turns"]["1"], "p50_ms")
    more = None if row["name"] != "foreign" or p50 is None or owners is None else p50 - owners
    beside = [
        ratio_of(row["turns"][width], owner["turns"][width], "cpu_ms") for width in ("1", "16")
    ]
    if row["name"] != "foreign":
        beside = [None, None]
    notes = row["problem"] or "; ".join(row["errors"][:1])
    return [
        row["era"],
        row["name"],
        p50,
        times,
        more,
        cpu,
        cpu_times,
        *beside,
        row["store_commands"],
        notes,
    ]


def _carried(row: Json, base: Json) -> list[Any]:
    turns, first = row["turns"][str(SEARCHERS)], base["turns"][str(SEARCHERS)]
    times = ratio_of(turns, first, "rate")
    return [
        row["name"],
        median_of(turns, "rate"),
        times,
        median_of(turns, "cpu_ms"),
        "; ".join(row["errors"][:1]),
    ]
