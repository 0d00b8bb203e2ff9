"""faults: a server is killed (`kill -9`) with a call in flight. How soon is it back, how soon does
the caller of that call know, do other servers notice, and was the call run a second time?"""

import asyncio
import itertools
import os
import signal
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.client import Refused
from bench.gateway import Gateway, Unable, Upstreams, check, running
from bench.peers import PEERS
from bench.systems import DIRECT, MCPX, PAIRS, System
from bench.tables import note, table
from bench.turns import Plan, Row, able, echo, entries
from bench.upstream import Json

BY_STDIO = [pair for pair in reversed(PAIRS) if pair.upstream == "stdio"]
VICTIM, OTHER = (0, 0), (1, 0)
LONG = 5_000
"""Milliseconds the call in flight would take."""
PATIENCE = 8.0
"""Seconds after which a server counts as gone for good."""


@dataclass(frozen=True, slots=True)
class Effort:
    kills: int
    starts: int
    """Of the server alone, to know what its own start takes."""


EFFORTS = {
    "full": Effort(kills=5, starts=5),
    "quick": Effort(kills=2, starts=2),
    "smoke": Effort(kills=1, starts=1),
}


@dataclass(slots=True)
class Kill:
    back: float | None
    """Seconds until a tool of the killed server answered again; None: not in time."""
    told: float | None
    """Seconds until the caller of the call in flight had an error; None: never, or it had an
    answer."""
    runs: int
    """How often that call was run."""
    others: int
    """Calls of another server meanwhile."""
    others_failed: int
    others_worst: float
    """Seconds the slowest of them took."""


@dataclass(slots=True)
class FaultRow(Row):
    front: str = ""
    kills: list[Kill] = field(default_factory=list[Kill])


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    rows: list[FaultRow] = []
    for system, era in entries(plan, eras=("older", "modern")):
        if not system.many or system not in (MCPX, *PEERS):
            continue
        row = FaultRow(system.name, era)
        try:
            await _system(system, row, effort)
        except Unable:
            continue
        except (Refused, TimeoutError) as error:
            row.problem = repr(error)[:300]
        rows.append(row)
        plan.say(f"faults, {row.name} ({era}): {row.problem or 'done'}")
    own = [await _own_start() for _ in range(effort.starts)]
    return {
        "effort": asdict(effort),
        "own_start": median(own),
        "rows": [asdict(row) for row in rows],
    }


async def _own_start() -> float:
    """Seconds from exec of the server to its first answered call, without a gateway."""
    with tempfile.TemporaryDirectory(prefix="mcpx-bench-") as name:
        upstreams = Upstreams("stdio", Path(name), servers=1, tools=5)
        began = time.perf_counter()
        async with running(DIRECT, "older", BY_STDIO[0], upstreams) as gateway:
            await echo(gateway)
            return time.perf_counter() - began


async def _system(system: System, row: FaultRow, effort: Effort) -> None:
    with tempfile.TemporaryDirectory(prefix="mcpx-bench-") as name:
        runs = Path(name) / "runs.txt"
        runs.touch()
        upstreams = Upstreams("stdio", Path(name), servers=3, tools=5)
        upstreams.extra[VICTIM[0]] = ["--runs", str(runs)]
        async with AsyncExitStack() as stack:
            era = "modern" if row.era == "modern" else "older"
            gateway, pair = await able(stack, row, system, era, BY_STDIO, upstreams)
            row.front = pair.front
            if gateway is None:
                return
            for number in range(effort.kills):
                await echo(gateway, VICTIM)
                await echo(gateway, OTHER)
                kill = await _kill(gateway, runs, number)
                row.kills.append(kill)
                row.calls += kill.others - kill.others_failed
                if kill.back is None:
                    return  # it does not come back: there is nothing more to kill


async def _kill(gateway: Gateway, runs: Path, number: int) -> Kill:
    assert gateway.process is not None
    text = f"in flight {number}"
    began = time.perf_counter()
    told = asyncio.create_task(_told(gateway, text))
    while not _runs(runs, text):
        await asyncio.sleep(0.005)
        if time.perf_counter() - began > PATIENCE:
            raise Refused("the call in flight never reached its server")
    killed = time.perf_counter()
    others: list[float | None] = []
    load = asyncio.create_task(_others(gateway, others))
    for pid in gateway.process.upstreams(VICTIM[0]):
        os.kill(pid, signal.SIGKILL)
    back = await _back(gateway, killed, number)
    at = await told
    load.cancel()
    await asyncio.wait([load])
    return Kill(
        back=back,
        told=None if at is None else max(0.0, began + at - killed),
        runs=_runs(runs, text),
        others=len(others),
        others_failed=others.count(None),
        others_worst=max((took for took in others if took is not None), default=0.0),
    )


def _runs(file: Path, text: str) -> int:
    return file.read_text(encoding="utf-8").splitlines().count(text)


async def _told(gateway: Gateway, text: str) -> float | None:
    """Seconds from the question to the error; None when there was none."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE + LONG / 1000):
            result = await gateway.call(VICTIM, {"text": text, "wait_ms": LONG})
    except Refused:
        return time.perf_counter() - began
    except TimeoutError:
        return None
    return time.perf_counter() - began if result.get("isError") else None


async def _others(gateway: Gateway, took: list[float | None]) -> None:
    """Calls of another server, one after the other, until cancelled."""
    while True:
        try:
            took.append(await echo(gateway, OTHER))
        except Refused:
            took.append(None)
        await asyncio.sleep(0.005)


async def _back(gateway: Gateway, killed: float, number: int) -> float | None:
    """Seconds until a call of the killed server is answered; what fails is asked again."""
    for attempt in itertools.count():
        text = f"after kill {number}, attempt {attempt}"
        try:
            async with asyncio.timeout(PATIENCE):
                check(await gateway.call(VICTIM, {"text": text}), text)
            return time.perf_counter() - killed
        except (Refused, TimeoutError):
            if time.perf_counter() - killed > PATIENCE:
                return None
            await asyncio.sleep(0.005)
    return None


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    head = [
        *(
            "system",
            "era",
            "front",
            "kills",
            "back s",
            "back s, worst",
            "less the server's own start s",
        ),
        *(
            "error in flight s",
            "runs of that call",
            "other servers: calls",
            "failed",
            "slowest ms",
            "notes",
        ),
    ]
    rows = table(head, [_cells(row, found["own_start"]) for row in found["rows"]])
    return f"{rows}\nThe server's own start, without a gateway: {found['own_start']:.3g} s.\n"


def _cells(row: Json, own: float) -> list[Any]:
    kills: list[Json] = row["kills"]
    if not kills:
        return [row["name"], row["era"], row["front"], *[None] * 9, note(row)]
    back = [kill["back"] for kill in kills if kill["back"] is not None]
    told = [kill["told"] for kill in kills if kill["told"] is not None]
    gone = len(back) < len(kills)
    return [
        *(row["name"], row["era"], row["front"], len(kills)),
        *(("never", "never", "–") if gone else (median(back), max(back), median(back) - own)),
        *(
            max(told) if len(told) == len(kills) else "none came",
            max(kill["runs"] for kill in kills),
        ),
        *(sum(kill["others"] for kill in kills), sum(kill["others_failed"] for kill in kills)),
        *(1000 * max(kill["others_worst"] for kill in kills), note(row)),
    ]
