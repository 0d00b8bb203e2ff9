"""hot: what one call costs. Latency, throughput and CPU of small calls, and answers of a megabyte,
on four pairs of transports and in both eras."""

import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.gateway import Gateway, Unable, Upstreams
from bench.systems import ERAS, Pair
from bench.tables import Figures, median_of, table
from bench.turns import TEXT, Plan, Row, Turn, bring_up, echo, entries, rotated, share, turn
from bench.upstream import Json

MEGABYTE = 1_000_000
SERVERS = 3
WIDTHS = (1, 16, 64)
OVERTIME = 8
"""A system that needs so many times its turn to answer what it was asked in it has no second
one."""


@dataclass(frozen=True, slots=True)
class Effort:
    rounds: int
    seconds: float
    """Of one system's turn."""
    calls: int
    """Small calls in a turn, at most."""
    large: int
    warm: int


EFFORTS = {
    "full": Effort(rounds=8, seconds=0.25, calls=50_000, large=3, warm=200),
    "quick": Effort(rounds=2, seconds=0.15, calls=50_000, large=3, warm=100),
    "smoke": Effort(rounds=1, seconds=5.0, calls=10, large=1, warm=1),
}


@dataclass(slots=True)
class HotRow(Row):
    pair: str = ""
    small: dict[str, list[Turn]] = field(
        default_factory=lambda: {str(width): [] for width in WIDTHS}
    )
    large: list[Turn] = field(default_factory=list[Turn])
    p95_ms: float = 0.0
    """Over all rounds, like p99: of one client that waits for each answer."""
    p99_ms: float = 0.0


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    rows: list[HotRow] = []
    for pair in plan.pairs:
        since = time.perf_counter()
        rows += await _pair(plan, pair, effort)
        plan.say(f"hot, {pair}: {time.perf_counter() - since:.0f} s")
    return {"effort": asdict(effort), "rows": [asdict(row) for row in rows]}


async def _pair(plan: Plan, pair: Pair, effort: Effort) -> list[HotRow]:
    rows: list[HotRow] = []
    with tempfile.TemporaryDirectory(prefix="mcpx-bench-") as name:
        async with (
            Upstreams(pair.upstream, Path(name), servers=SERVERS, tools=5) as upstreams,
            AsyncExitStack() as stack,
        ):
            up: list[tuple[Gateway, HotRow]] = []
            for system, era in entries(plan, eras=ERAS):
                row = HotRow(system.name, era, pair=str(pair))
                try:
                    gateway = await bring_up(stack, row, system, era, pair, upstreams)
                except Unable:
                    continue
                rows.append(row)
                if gateway is not None:
                    up.append((gateway, row))
            await _take_turns(up, effort)
    return rows


async def _take_turns(up: Sequence[tuple[Gateway, HotRow]], effort: Effort) -> None:
    single: dict[int, list[float]] = {}
    for gateway, row in up:
        single[id(row)] = []
        await turn(
            gateway,
            partial(echo, gateway),
            row,
            width=16,
            seconds=effort.seconds,
            calls=effort.warm,
        )
    for number in range(effort.rounds):
        for width in WIDTHS:
            for gateway, row in rotated(up, number):
                turns = row.small[str(width)]
                if turns and turns[-1].seconds > OVERTIME * effort.seconds:
                    continue
                ask, took = partial(echo, gateway), single[id(row)] if width == 1 else None
                turns.append(
                    await turn(
                        gateway,
                        ask,
                        row,
                        width=width,
                        seconds=effort.seconds,
                        calls=effort.calls,
                        took=took,
                    )
                )
        for gateway, row in rotated([one for one in up if one[0].system.whole], number):
            ask = partial(echo, gateway, times=MEGABYTE // TEXT)
            row.large.append(
                await turn(gateway, ask, row, seconds=effort.seconds, calls=effort.large)
            )
    for _, row in up:
        ordered = sorted(single[id(row)])
        row.p95_ms, row.p99_ms = 1000 * share(ordered, 0.95), 1000 * share(ordered, 0.99)


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    pairs = dict.fromkeys(row["pair"] for row in found["rows"])
    return "\n".join(
        _table(pair, [row for row in found["rows"] if row["pair"] == pair]) for pair in pairs
    )


def _table(pair: str, rows: Sequence[Json]) -> str:
    calls = [
        *(
            "system",
            "era",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "p50 ×direct",
            "p50 ×floor",
            "calls/s @16",
            "calls/s @64",
        ),
        *(
            "CPU s/1k @1",
            "CPU s/1k @16",
            "CPU ×floor @16",
            "1 MB ms",
            "1 MB ×floor",
            "1 MB CPU ms",
            "notes",
        ),
    ]
    return f"### {pair}\n\n{table(calls, [_cells(Figures(row, rows)) for row in rows])}"


def _cells(row: Figures) -> list[Any]:
    found, measured = row.found, not row.found["problem"]
    return [
        *(found["name"], found["era"]),
        *(row.p50(), found["p95_ms"] if measured else None, found["p99_ms"] if measured else None),
        *(row.times("p50_ms", "1", row.direct), row.times("p50_ms", "1", row.floor)),
        *(
            row.rate(16),
            row.rate(64),
            row.cpu(1),
            row.cpu(16),
            row.times("cpu_ms", "16", row.floor),
        ),
        *(
            median_of(found["large"], "p50_ms"),
            row.times("p50_ms", "large", row.floor),
            row.large_cpu(),
        ),
        row.note(),
    ]
