"""memory: of all processes of a gateway with ten upstreams, idle, after many calls, and with a
thousand sessions."""

import asyncio
import itertools
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.client import Client, Refused
from bench.gateway import Gateway, Unable, Upstreams
from bench.http_client import HttpClient
from bench.systems import ERAS, Pair
from bench.tables import note, table
from bench.turns import Plan, Row, bring_up, echo, entries, turn
from bench.upstream import Json

PAIR = Pair("http", "stdio")
SERVERS = 10
AT_A_TIME = 32
SETTLE = 0.5
"""Seconds for what was let go to be let go."""


@dataclass(frozen=True, slots=True)
class Effort:
    warm: int
    calls: int
    sessions: int
    seconds: float
    """At most, for the calls and again for the sessions."""


EFFORTS = {
    "full": Effort(warm=1_000, calls=10_000, sessions=1_000, seconds=20.0),
    "quick": Effort(warm=500, calls=5_000, sessions=1_000, seconds=2.0),
    "smoke": Effort(warm=10, calls=40, sessions=10, seconds=20.0),
}


@dataclass(slots=True)
class MemoryRow(Row):
    idle_mb: float = 0.0
    warm_mb: float = 0.0
    after_mb: float = 0.0
    after_calls: int = 0
    sessions: int = 0
    session_kb: float | None = None
    """Each, with its connection kept open."""
    session_cpu_ms: float | None = None
    """To open one: `initialize`, `initialized` and one call, on a connection of its own."""
    session_seconds: float | None = None
    burst_mb: float | None = None
    """After a call of all of them at once."""
    ended_mb: float | None = None
    """After all sessions were ended."""


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    rows: list[MemoryRow] = []
    for system, era in entries(plan, eras=ERAS):
        if system.build is None or not system.whole:
            continue
        row = MemoryRow(system.name, era)
        with tempfile.TemporaryDirectory(prefix="mcpx-bench-") as name:
            async with (
                Upstreams("stdio", Path(name), servers=SERVERS, tools=5) as upstreams,
                AsyncExitStack() as stack,
            ):
                try:
                    gateway = await bring_up(stack, row, system, era, PAIR, upstreams)
                except Unable:
                    continue
                if gateway is not None:
                    await _calls(gateway, row, effort)
                    await _sessions(gateway, row, effort)
        rows.append(row)
        plan.say(f"memory, {row.name} ({era}): {row.problem or 'done'}")
    return {"effort": asdict(effort), "rows": [asdict(row) for row in rows]}


async def _calls(gateway: Gateway, row: MemoryRow, effort: Effort) -> None:
    tools = itertools.cycle(sorted(gateway.names))

    def ask() -> Any:
        return echo(gateway, next(tools))

    await asyncio.sleep(SETTLE)
    row.idle_mb = gateway.rss()
    await turn(gateway, ask, row, width=16, seconds=effort.seconds, calls=effort.warm)
    row.warm_mb = gateway.rss()
    row.after_calls = (
        await turn(gateway, ask, row, width=16, seconds=effort.seconds, calls=effort.calls)
    ).calls
    row.after_mb = gateway.rss()


async def _sessions(gateway: Gateway, row: MemoryRow, effort: Effort) -> None:
    """Many clients, each with a session (in the modern era with nothing but its connection)."""
    opened: list[Client] = []
    count = (
        effort.sessions if gateway.system.many else max(10, effort.sessions // 10)
    )  # a bridge may start a process each
    began, cpu, rss = time.perf_counter(), gateway.cpu(), gateway.rss()

    async def client() -> None:
        while (
            len(opened) < count and time.perf_counter() - began < effort.seconds and not row.problem
        ):
            one = gateway.another_client()
            opened.append(one)
            try:
                await one.open()
                await echo(gateway, client=one)
                row.calls += 1
            except Refused as error:
                row.errors.append(str(error))
                return

    try:
        async with asyncio.timeout(effort.seconds + 30):
            await asyncio.gather(*(client() for _ in range(AT_A_TIME)))
        row.session_seconds = (time.perf_counter() - began) / len(opened)
        row.session_cpu_ms = 1000 * (gateway.cpu() - cpu) / len(opened)
        row.sessions = len(opened)
        await asyncio.sleep(SETTLE)
        row.session_kb = 1024 * (gateway.rss() - rss) / len(opened)
        async with asyncio.timeout(
            30
        ):  # all at once: none was forgotten, and none has another's answer
            await asyncio.gather(*(echo(gateway, client=one) for one in opened))
        row.burst_mb = gateway.rss()
        await _end(gateway, opened)
        row.ended_mb = gateway.rss()
    except (Refused, TimeoutError) as error:
        row.errors.append(repr(error)[:300])
    finally:
        for one in opened:
            await one.close()


async def _end(gateway: Gateway, opened: list[Client]) -> None:
    for one in opened:
        if isinstance(one, HttpClient) and gateway.era == "older":
            await one.end_session()
        await one.close()
    await asyncio.sleep(SETTLE)


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    head = [
        *(
            "system",
            "era",
            "RSS idle MB",
            "RSS warm MB",
            "RSS after MB",
            "of calls",
            "sessions",
            "KB each",
        ),
        *("CPU ms to open", "ms to open", "RSS after a burst MB", "RSS ended MB", "notes"),
    ]
    return table(head, [_cells(row) for row in found["rows"]])


def _cells(row: Json) -> list[Any]:
    if row["problem"]:
        return [row["name"], row["era"], *[None] * 10, note(row)]
    opening = None if row["session_seconds"] is None else 1000 * row["session_seconds"]
    return [
        *(
            row["name"],
            row["era"],
            row["idle_mb"],
            row["warm_mb"],
            row["after_mb"],
            row["after_calls"],
        ),
        *(row["sessions"], row["session_kb"], row["session_cpu_ms"], opening),
        *(row["burst_mb"], row["ended_mb"], note(row)),
    ]
