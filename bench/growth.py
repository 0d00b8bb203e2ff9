"""growth: what a call costs as servers, tools and sessions become many. HTTP in front of HTTP; all
servers of a case are addresses of one process."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.client import Client, Era, Refused
from bench.gateway import Gateway, Upstreams
from bench.systems import ERAS, FLOOR, MCPX, Pair, System
from bench.tables import median_of, note, ratio_of, table
from bench.turns import Plan, Row, Turn, bring_up, echo, entries, rotated, turn
from bench.upstream import Json

PAIR = Pair("http", "http")
WIDTH = 16
AT_A_TIME = 32


@dataclass(frozen=True, slots=True)
class Case:
    """Many of something; the first case is what the others are compared with."""

    title: str
    servers: int
    tools: int
    """Of each server."""
    sessions: int = 0
    """Open beside; the calls come from all of them."""


@dataclass(frozen=True, slots=True)
class Effort:
    cases: tuple[Case, ...]
    rounds: int
    seconds: float
    calls: int


CASES = (
    Case("10 servers", 10, 1),
    Case("100 servers", 100, 1),
    Case("1,000 servers", 1_000, 1),
    Case("10 servers, 10,000 tools", 10, 1_000),
    Case("10 servers, 1,000 sessions", 10, 1, 1_000),
)
SMALL = (
    Case("2 servers", 2, 1),
    Case("4 servers", 4, 1),
    Case("2 servers, 20 tools", 2, 10),
    Case("5 sessions", 2, 1, 5),
)
EFFORTS = {
    "full": Effort(CASES, rounds=6, seconds=0.5, calls=50_000),
    "quick": Effort(CASES, rounds=2, seconds=0.3, calls=50_000),
    "smoke": Effort(SMALL, rounds=1, seconds=5.0, calls=20),
}


@dataclass(slots=True)
class GrowthRow(Row):
    case: str = ""
    turns: list[Turn] = field(default_factory=list[Turn])
    start_seconds: float = 0.0
    """From exec until all tools were listed."""
    rss_mb: float = 0.0
    """After the calls."""


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    rows: list[GrowthRow] = []
    for system, era in entries(plan, eras=ERAS):
        if system in (FLOOR, MCPX):
            rows += await _system(system, era, effort)
            plan.say(f"growth, {system.name} ({era}): done")
    return {"effort": asdict(effort), "rows": [asdict(row) for row in rows]}


async def _system(system: System, era: Era, effort: Effort) -> list[GrowthRow]:
    """All cases of one system at the same time, taking turns."""
    rows: list[GrowthRow] = []
    up: list[tuple[Gateway, GrowthRow, list[Client]]] = []
    with tempfile.TemporaryDirectory(prefix="mcpx-bench-") as folder:
        async with AsyncExitStack() as stack:
            for case in effort.cases:
                if case.sessions and era == "modern":
                    continue  # there are none
                row = GrowthRow(system.name, era, case=case.title)
                rows.append(row)
                served = Upstreams(
                    "http", Path(folder), servers=case.servers, tools=case.tools, show_all=True
                )
                upstreams = await stack.enter_async_context(served)
                began = time.perf_counter()
                gateway = await bring_up(stack, row, system, era, PAIR, upstreams)
                row.start_seconds = time.perf_counter() - began
                if gateway is not None:
                    clients = [gateway.another_client() for _ in range(case.sessions)]
                    stack.push_async_callback(_close, clients)
                    try:
                        await _open(clients)
                    except Refused as error:
                        row.problem = str(error)
                        continue
                    up.append((gateway, row, clients or [gateway.client]))
            await _take_turns(up, effort)
    return rows


async def _take_turns(
    up: Sequence[tuple[Gateway, GrowthRow, list[Client]]], effort: Effort
) -> None:
    asks = {id(row): _asks(gateway, clients) for gateway, row, clients in up}
    for gateway, row, _ in up:  # every server once, so that each has its connection
        calls = max(effort.calls // 10, len(gateway.names))
        await turn(
            gateway, asks[id(row)], row, width=WIDTH, seconds=2 * effort.seconds, calls=calls
        )
    for number in range(effort.rounds):
        for gateway, row, _ in rotated(up, number):
            got = await turn(
                gateway, asks[id(row)], row, width=WIDTH, seconds=effort.seconds, calls=effort.calls
            )
            row.turns.append(got)
    for gateway, row, _ in up:
        row.rss_mb = gateway.rss()


def _asks(gateway: Gateway, clients: Sequence[Client]) -> Any:
    """Each call is for another server, another tool, and from another client."""
    tools = itertools.cycle(sorted(gateway.names, key=lambda tool: (tool[1], tool[0])))
    senders = itertools.cycle(clients)
    return lambda: echo(gateway, next(tools), client=next(senders))


async def _open(clients: Sequence[Client]) -> None:
    for some in range(0, len(clients), AT_A_TIME):
        await asyncio.gather(*(client.open() for client in clients[some : some + AT_A_TIME]))


async def _close(clients: Sequence[Client]) -> None:
    for client in clients:
        await client.close()


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    head = [
        *("system", "era", "with", f"CPU s/1k @{WIDTH}", "× the first case", f"calls/s @{WIDTH}"),
        *("all tools listed s", "RSS MB", "notes"),
    ]
    first = found["effort"]["cases"][0]["title"]
    bases = {
        (row["name"], row["era"]): row["turns"] for row in found["rows"] if row["case"] == first
    }
    return table(head, [_cells(row, bases[row["name"], row["era"]]) for row in found["rows"]])


def _cells(row: Json, base: Sequence[Json]) -> list[Any]:
    if row["problem"]:
        return [row["name"], row["era"], row["case"], *[None] * 5, note(row)]
    return [
        *(row["name"], row["era"], row["case"], median_of(row["turns"], "cpu_ms")),
        *(ratio_of(row["turns"], base, "cpu_ms"), median_of(row["turns"], "rate")),
        *(row["start_seconds"], row["rss_mb"], note(row)),
    ]
