"""start: from exec to the first `tools/list`, with 1, 10 and 50 stdio upstreams, and with one of
ten that is late."""

import asyncio
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from bench.client import Refused
from bench.gateway import Broken, Gateway, Unable, Upstreams, running
from bench.systems import MCPX, PAIRS, System
from bench.tables import note, table
from bench.turns import Plan, Row, echo, entries, rotated
from bench.upstream import Json

Result = TypeVar("Result")

BY_STDIO = [pair for pair in PAIRS if pair.upstream == "stdio"]
"""Where a system has a stdio front that is taken: it is how most clients start a gateway."""


@dataclass(frozen=True, slots=True)
class Effort:
    sizes: tuple[int, ...]
    starts: int
    among: int
    late: float
    """Seconds the late one takes to start."""


EFFORTS = {
    "full": Effort(sizes=(1, 10, 50), starts=3, among=10, late=12.0),
    "quick": Effort(sizes=(1, 10), starts=2, among=10, late=4.0),
    "smoke": Effort(sizes=(1, 2), starts=1, among=3, late=1.5),
}


@dataclass(slots=True)
class Start:
    first: float
    """Seconds from exec to the answer of the first `tools/list`, whatever it held."""
    whole: float
    """… to one that held all tools."""
    cpu_seconds: float
    rss_mb: float


@dataclass(slots=True)
class StartRow(Row):
    front: str = ""
    starts: dict[str, list[Start]] = field(default_factory=dict[str, list[Start]])
    """By the number of upstreams."""
    others_called: float | None = None
    """One of several servers is late: seconds from exec until a call of each of the others was
    answered."""
    others_listed: float | None = None
    """… until they were all in an answer to `tools/list`, and each of them was called."""


@dataclass(slots=True)
class Starter:
    """A system that is started again and again."""

    system: System
    row: StartRow
    again: bool
    """Every start has what the one before it left behind."""
    folder: Path

    def home(self, name: str) -> Path | None:
        if not self.again:
            return None
        home = self.folder / f"{self.system.name}-{name}"
        home.mkdir(exist_ok=True)
        return home


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    with tempfile.TemporaryDirectory(prefix="mcpx-bench-") as name:
        starters = list(_starters(plan, Path(name)))
        for size in effort.sizes:
            await _starts(starters, size, effort)
            plan.say(f"start, {size} upstreams: done")
        for starter in starters:
            if starter.system.many and not starter.row.problem:
                await _guarded(starter, _late(starter, effort))
        plan.say("start, one of them late: done")
    rows = [starter.row for starter in starters if starter.row.front or starter.row.problem]
    return {"effort": asdict(effort), "rows": [asdict(row) for row in rows]}


def _starters(plan: Plan, folder: Path) -> Iterator[Starter]:
    """mcpx twice: as at its first start ever, and with a snapshot from the last run."""
    for system, era in entries(plan, eras=("older",)):
        if system.build is not None and system.whole:
            yield Starter(system, StartRow(system.name, era, problem=system.lacks()), False, folder)
            if system is MCPX:
                yield Starter(system, StartRow(f"{system.name}, again", era), True, folder)


async def _starts(starters: Sequence[Starter], size: int, effort: Effort) -> None:
    for number in range(-1, effort.starts):
        for starter in rotated(starters, number):
            first_ever = number < 0
            if (
                starter.row.problem
                or (first_ever and not starter.again)
                or (size > 1 and not starter.system.many)
            ):
                continue
            upstreams = Upstreams("stdio", starter.folder, servers=size, tools=5, show_all=True)
            start = await _guarded(starter, _once(starter, upstreams, starter.home(str(size))))
            if start is not None and not first_ever:
                starter.row.starts.setdefault(str(size), []).append(start)


async def _guarded(starter: Starter, work: Coroutine[Any, Any, Result]) -> Result | None:
    """The result; what fails is told in the row, and that system is not started again."""
    try:
        return await work
    except Unable:
        starter.row.problem = "cannot do this"
    except (Broken, Refused, TimeoutError) as error:
        starter.row.problem = " ".join(repr(error).split())[:300]
    return None


async def _late(starter: Starter, effort: Effort) -> None:
    late = Upstreams("stdio", starter.folder, servers=effort.among, tools=5, show_all=True)
    late.extra[0] = ["--start-delay", str(effort.late)]
    row, home = starter.row, starter.home("late")
    if home is not None:
        await _once(starter, late, home)
    if starter.system is MCPX:
        row.others_called = await _others(starter, late, home, effort, listed=False)
    row.others_listed = await _others(starter, late, home, effort, listed=True)


async def _once(starter: Starter, upstreams: Upstreams, home: Path | None) -> Start:
    row = starter.row
    async with AsyncExitStack() as stack:
        began = time.perf_counter()
        gateway, row.front = await _able(stack, starter.system, upstreams, home)
        await gateway.list_tools(whole=False)
        first = time.perf_counter() - began
        await gateway.list_until_whole()
        whole, cpu = time.perf_counter() - began, gateway.cpu()
        await echo(
            gateway
        )  # RSS after it: a child between fork and exec would count as the gateway's
        row.calls += 1
        return Start(first, whole, cpu, gateway.rss())


async def _able(
    stack: AsyncExitStack, system: System, upstreams: Upstreams, home: Path | None
) -> tuple[Gateway, str]:
    for pair in BY_STDIO:
        try:
            running_one = running(system, "older", pair, upstreams, home=home, whole=False)
            return await stack.enter_async_context(running_one), pair.front
        except Unable:
            continue
    raise Unable


async def _others(
    starter: Starter, late: Upstreams, home: Path | None, effort: Effort, *, listed: bool
) -> float:
    """Seconds from exec until each server but the late one has answered a call."""
    async with AsyncExitStack() as stack, asyncio.timeout(effort.late + 30):
        began = time.perf_counter()
        gateway, _ = await _able(stack, starter.system, late, home)
        others = [(number, 0) for number in range(1, effort.among)]
        if not listed:  # a client that knows the names from an earlier day
            gateway.names = {tool: f"u{tool[0]}_s{tool[0]}t{tool[1]}" for tool in others}
        while not set(others) <= gateway.names.keys():
            await gateway.list_tools(whole=False)
        await asyncio.gather(*(echo(gateway, tool) for tool in others))
        starter.row.calls += len(others)
        return time.perf_counter() - began


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    effort, rows = found["effort"], found["rows"]
    sizes = [str(size) for size in effort["sizes"]]
    columns = ("first list s", "all tools s", "× floor", "CPU s", "RSS MB")
    head = [
        *("system", "front", *(f"{size}: {column}" for size in sizes for column in columns)),
        *(f"one of {effort['among']} late: others called s", "… listed and called s", "notes"),
    ]
    floor = next((row for row in rows if row["name"] == "floor"), None)
    return table(head, [_cells(row, floor, sizes) for row in rows])


def _cells(row: Json, floor: Json | None, sizes: Sequence[str]) -> list[Any]:
    figures: list[Any] = []
    for size in sizes:
        starts: list[Json] = row["starts"].get(size, [])
        base: list[Json] = (
            floor["starts"].get(size, []) if floor is not None and floor is not row else []
        )
        ratios = [one["whole"] / other["whole"] for one, other in zip(starts, base, strict=False)]
        ratio = median(ratios) if ratios else None
        first, whole, cpu, rss = (
            _median(starts, key) for key in ("first", "whole", "cpu_seconds", "rss_mb")
        )
        figures += [first, whole, ratio, cpu, rss]
    return [
        row["name"],
        row["front"],
        *figures,
        row["others_called"],
        row["others_listed"],
        note(row),
    ]


def _median(starts: Sequence[Json], key: str) -> float | None:
    return median(start[key] for start in starts) if starts else None
