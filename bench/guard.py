"""guard: what a call costs with everything that guards it, against a gateway that guards nothing.

Both run side by side in front of the same kind of upstream and take turns. *guarded* has three
profiles, fifty rules (some look at arguments, the one that lets the call pass is the last), a
pinned server, limits for the client, the profile and the server, `/metrics` and an audit trail;
*plain* has none of it, `/metrics` neither.
"""

import json
import os
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
from bench.http_client import HttpClient
from bench.processes import UPSTREAM, Started
from bench.tables import median_of, table
from bench.turns import TEXT, Plan, Row, Turn, rotated, turn
from bench.upstream import Json

WIDTHS = (1, 16)
TOKEN = "bench-token"
RULES = 50


@dataclass(frozen=True, slots=True)
class Effort:
    rounds: int
    seconds: float
    calls: int


EFFORTS = {
    "full": Effort(rounds=10, seconds=0.4, calls=20_000),
    "quick": Effort(rounds=4, seconds=0.3, calls=20_000),
    "smoke": Effort(rounds=1, seconds=5.0, calls=10),
}


@dataclass(slots=True)
class GuardRow(Row):
    turns: dict[str, list[Turn]] = field(
        default_factory=lambda: {str(width): [] for width in WIDTHS}
    )


@dataclass(slots=True)
class Asker:
    row: GuardRow
    client: Client
    process: Started
    asked: int = 0

    def cpu(self) -> float:
        return self.process.cpu()

    async def once(self) -> float:
        self.asked += 1
        text = f"{self.asked} ".ljust(TEXT, "x")
        began = time.perf_counter()
        result = await self.client.request(
            "tools/call", {"name": "s0t0", "arguments": {"text": text}}
        )
        took = time.perf_counter() - began
        if result.get("isError") or result["content"][0]["text"] != text:
            raise Refused(f"a wrong answer: {str(result)[:300]}")
        return took


def plain() -> Json:
    return {"server": {"metrics": False}}


def guarded() -> Json:
    """A call of `s0t0` through the profile `team` passes by the last rule; two before it look at
    its arguments."""
    rules: list[Json] = [
        {"effect": "deny", "servers": ["u0"], "arguments": {"text": "*rm -rf*"}, "reason": "no"},
        {
            "effect": "deny",
            "tools": ["s0t0"],
            "arguments": {"times": {"jmespath": "@ > `1000`"}},
            "reason": "too often",
        },
    ]
    rules += [
        {
            "effect": "deny",
            "profiles": ["audit"],
            "principals": [f"ci-{n}*"],
            "tools": [f"*delete{n}*"],
            "reason": "no",
        }
        for n in range(RULES - 3)
    ]
    rules.append({"effect": "allow", "principals": ["bench"], "servers": ["u*"]})
    limits = {"in_flight": 1_000, "per_minute": 10_000_000, "queue": 1_000}
    return {
        "server": {
            "auth": {"type": "bearer", "tokens": [{"name": "bench", "token": TOKEN}]},
            "limits": limits,
        },
        "profiles": [
            {
                "name": "team",
                "servers": ["u*"],
                "tools": ["*", "!s0t9"],
                "tokens": ["bench"],
                "limits": limits,
            },
            {"name": "audit", "read_only": True},
            {"name": "none", "servers": ["!*"]},
        ],
        "policy": {"default": "deny", "rules": rules},
        "global": {"audit": {"file": "audit.jsonl"}},
    }


CASES: dict[str, tuple[Json, str]] = {
    "plain": (plain(), "/mcp"),
    "guarded": (guarded(), "/p/team/mcp"),
}


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    eras: Sequence[Era] = ("older", "modern")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpx-bench-")))
        askers = [await _start(stack, folder, era, case) for era in eras for case in CASES]
        for asker in askers:
            await _turn(asker, 16, effort)
            for turns in asker.row.turns.values():
                turns.clear()
        for number in range(effort.rounds):
            for width in WIDTHS:
                for asker in rotated(askers, number):
                    await _turn(asker, width, effort)
        return {"effort": asdict(effort), "rows": [asdict(asker.row) for asker in askers]}


async def _turn(asker: Asker, width: int, effort: Effort) -> None:
    gateway = cast(Gateway, asker)  # all that a turn looks at is its CPU
    took = await turn(
        gateway, asker.once, asker.row, width=width, seconds=effort.seconds, calls=effort.calls
    )
    asker.row.turns[str(width)].append(took)


async def _start(stack: AsyncExitStack, folder: Path, era: Era, case: str) -> Asker:
    home = folder / f"{case}-{era}"
    os.mkdir(home)
    config, path = CASES[case]
    command = [sys.executable, "-I", "-S", UPSTREAM, "--era", era, "--tools", "10", "--id", "0"]
    server = {
        "name": "u0",
        "connection": {"type": "stdio", "command": command[0], "args": command[1:]},
    }
    if case == "guarded":
        server |= {"trust": "pin", "limits": {"in_flight": 1_000, "per_minute": 10_000_000}}
    file, port = home / "mcpx.json", free_port()
    file.write_text(json.dumps({**config, "mcp_servers": [server]}), encoding="utf-8")
    argv = [sys.executable, "-m", "mcpx", str(file), "--port", str(port)]
    process = await Started.start(argv, home)
    stack.push_async_callback(process.stop)
    await listening(port, process)
    client = HttpClient(era, port, path, token=TOKEN if case == "guarded" else None)
    stack.push_async_callback(client.close)
    await client.open()
    await client.request("tools/list", {})
    return Asker(GuardRow(case, era), client, process)


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    head = ["era", "gateway", "p50 ms @1", "× plain", "CPU ms a call @16", "× plain", "notes"]
    lines: list[list[Any]] = []
    for era in dict.fromkeys(row["era"] for row in found["rows"]):
        rows = {row["name"]: row for row in found["rows"] if row["era"] == era}
        lines += [_cells(row, rows["plain"]) for row in rows.values()]
    return table(head, lines)


def _cells(row: Json, base: Json) -> list[Any]:
    return [row["era"], row["name"], *ratios(row, base), "; ".join(row["errors"][:1])]


def ratios(row: Json, base: Json) -> list[float | None]:
    """The time of a call at one in flight and its CPU at sixteen, each with how many times that of
    the base it is."""
    p50, cpu = median_of(row["turns"]["1"], "p50_ms"), _cpu(row)
    first, least = median_of(base["turns"]["1"], "p50_ms"), _cpu(base)
    return [p50, p50 / first if p50 and first else None, cpu, cpu / least if least else None]


def _cpu(row: Json) -> float:
    """Milliseconds of CPU that the gateway needs for a call at 16 in flight."""
    turns = row["turns"]["16"]
    return 1000 * sum(t["cpu_seconds"] for t in turns) / max(1, sum(t["calls"] for t in turns))
