"""list: what `tools/list` costs with 1,000 and with 10,000 tools, and how much memory a tool
takes."""

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.gateway import Gateway, Unable, Upstreams
from bench.systems import ERAS, PAIRS
from bench.tables import median_of, note, table
from bench.turns import Plan, Row, Turn, able, echo, entries, rotated, turn
from bench.upstream import Json

SERVERS = 20
BY_STDIO = [pair for pair in PAIRS if pair.upstream == "stdio"]


@dataclass(frozen=True, slots=True)
class Effort:
    sizes: tuple[int, ...]
    rounds: int
    lists: int
    seconds: float


EFFORTS = {
    "full": Effort(sizes=(1_000, 10_000), rounds=5, lists=3, seconds=2.0),
    "quick": Effort(sizes=(1_000, 10_000), rounds=2, lists=2, seconds=1.0),
    "smoke": Effort(sizes=(40, 80), rounds=1, lists=1, seconds=5.0),
}


@dataclass(slots=True)
class ListRow(Row):
    front: str = ""
    lists: dict[str, list[Turn]] = field(default_factory=dict[str, list[Turn]])
    """By the number of tools."""
    rss_mb: dict[str, float] = field(default_factory=dict[str, float])
    """After the lists."""


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    rows: dict[tuple[str, str], ListRow] = {}
    for size in effort.sizes:
        await _size(plan, size, effort, rows)
        plan.say(f"list, {size:,} tools: done")
    return {"effort": asdict(effort), "rows": [asdict(row) for row in rows.values()]}


async def _size(
    plan: Plan, size: int, effort: Effort, rows: dict[tuple[str, str], ListRow]
) -> None:
    with tempfile.TemporaryDirectory(prefix="mcpx-bench-") as name:
        upstreams = Upstreams(
            "stdio", Path(name), servers=SERVERS, tools=size // SERVERS, show_all=True
        )
        async with AsyncExitStack() as stack:
            up: list[tuple[Gateway, ListRow]] = []
            for system, era in entries(plan, eras=ERAS):
                row = rows.get((system.name, era)) or ListRow(system.name, era)
                if system.build is None or not (system.many and system.whole) or row.problem:
                    continue
                try:
                    gateway, pair = await able(stack, row, system, era, BY_STDIO, upstreams)
                except Unable:
                    continue
                rows[system.name, era], row.front = row, pair.front
                if gateway is not None and gateway.launch.wrapper is None:
                    up.append((gateway, row))
                    row.lists[str(size)] = []
            for number in range(effort.rounds):
                for gateway, row in rotated(up, number):
                    got = await turn(
                        gateway, gateway.list_tools, row, seconds=effort.seconds, calls=effort.lists
                    )
                    row.lists[str(size)].append(got)
            for gateway, row in up:
                row.rss_mb[str(size)] = gateway.rss()
                await turn(gateway, lambda g=gateway: echo(g), row, seconds=effort.seconds, calls=1)


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    sizes = [str(size) for size in found["effort"]["sizes"]]
    head = [
        *("system", "era", "front"),
        *(f"{int(size):,} tools: {what}" for size in sizes for what in ("ms", "CPU ms", "RSS MB")),
        *("KB a tool", "notes"),
    ]
    return table(
        head, [_cells(row, sizes) for row in found["rows"] if row["lists"] or row["problem"]]
    )


def _cells(row: Json, sizes: Sequence[str]) -> list[Any]:
    figures: list[Any] = []
    for size in sizes:
        turns = row["lists"].get(size, ())
        figures += [median_of(turns, "p50_ms"), median_of(turns, "cpu_ms"), row["rss_mb"].get(size)]
    few, many = sizes[0], sizes[-1]
    each = None
    if few in row["rss_mb"] and many in row["rss_mb"]:
        each = 1024 * (row["rss_mb"][many] - row["rss_mb"][few]) / (int(many) - int(few))
    return [row["name"], row["era"], row["front"], *figures, each, note(row)]
