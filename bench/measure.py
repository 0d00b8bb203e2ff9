"""The measurements: all systems of a pair run side by side and take turns, so that a busy moment hits them alike.

Every slot is bounded in calls and in seconds. Every answer is checked against its question; a wrong one is an error,
and errors are reported, never left out.
"""

import asyncio
import itertools
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.client import Refused
from bench.systems import Gateway, Pair, System, Upstreams, running
from bench.upstream import Json
from mcpx import __version__

TEXT = 100
MEGABYTE = 1_000_000
TOOLS = 1000
WIDTHS = (1, 16, 64)
PATIENCE = 20.0
"""Seconds after the end of a slot until what is still unanswered counts as lost."""
ERRORS = 20
"""A slot with so many is given up."""

Ask = Callable[[Gateway], Awaitable[float]]
"""Asks one question, checks the answer, and tells how many seconds it took to come."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    rounds: int
    slot: float
    """Seconds of one system's turn."""
    calls: int
    """Small calls in a turn, at most."""
    large: int
    lists: int
    starts: int
    memory: int
    """Calls before memory is read again, unless they take longer than `memory_seconds`."""
    memory_seconds: float


FULL = Effort(rounds=8, slot=0.25, calls=50_000, large=3, lists=3, starts=3, memory=10_000, memory_seconds=6.0)
QUICK = Effort(rounds=1, slot=0.15, calls=50_000, large=3, lists=3, starts=1, memory=1_000, memory_seconds=0.4)
SMOKE = Effort(rounds=1, slot=5.0, calls=10, large=1, lists=1, starts=1, memory=40, memory_seconds=5.0)


@dataclass(slots=True)
class Slot:
    """One system's turn."""

    calls: int
    seconds: float
    cpu_seconds: float
    p50_ms: float
    p95_ms: float


@dataclass(slots=True)
class Start:
    """From exec to the first `tools/list`, upstream included in `seconds` only."""

    seconds: float
    cpu_seconds: float
    rss_mb: float


@dataclass(slots=True)
class Findings:
    """All that was found out about one system on one pair."""

    name: str
    era: str
    small: dict[str, list[Slot]] = field(default_factory=lambda: {str(width): [] for width in WIDTHS})
    large: list[Slot] = field(default_factory=list[Slot])
    lists: list[Slot] = field(default_factory=list[Slot])
    starts: list[Start] = field(default_factory=list[Start])
    rss_idle_mb: float = 0.0
    rss_after_mb: float = 0.0
    calls: int = 0
    """Answered before `rss_after_mb` was read."""
    errors: list[str] = field(default_factory=list[str])


# Questions ---------------------------------------------------------------------------------------------------


async def small(gateway: Gateway) -> float:
    return await _call(gateway, times=1)


async def large(gateway: Gateway) -> float:
    return await _call(gateway, times=MEGABYTE // TEXT)


async def listing(gateway: Gateway) -> float:
    return await gateway.list_tools()


async def _call(gateway: Gateway, times: int) -> float:
    gateway.asked += 1
    text = f"{gateway.asked} ".ljust(TEXT, "x")  # no other question has this answer
    arguments = {"text": text} if times == 1 else {"text": text, "times": times}
    began = time.perf_counter()
    result = await gateway.client.request("tools/call", {"name": gateway.tool, "arguments": arguments})
    took = time.perf_counter() - began
    check(result, text * times)
    return took


def check(result: Mapping[str, Any], expected: str) -> None:
    content = result.get("content")
    if result.get("isError") or content != [{"type": "text", "text": expected}]:
        raise Refused(f"a wrong answer: {str(dict(result))[:300]}")


# Slots -------------------------------------------------------------------------------------------------------


async def slot(gateway: Gateway, ask: Ask, found: Findings, *, width: int, seconds: float, calls: int) -> Slot:
    """`width` clients ask one question after the other until the calls or the seconds are used up."""
    took: list[float] = []
    errors: list[str] = []
    tickets = itertools.count()
    cpu = gateway.cpu()
    began = time.perf_counter()
    deadline = began + seconds

    async def client() -> None:
        while time.perf_counter() < deadline and next(tickets) < calls and len(errors) < ERRORS:
            try:
                took.append(await ask(gateway))
            except Refused as error:
                errors.append(str(error))

    try:
        async with asyncio.timeout(seconds + PATIENCE):
            await asyncio.gather(*(client() for _ in range(width)))
    except TimeoutError:
        errors.append(f"no answer for {PATIENCE:g} s")
    seconds = time.perf_counter() - began
    found.calls += len(took)
    found.errors += errors
    took.sort()
    return Slot(len(took), seconds, gateway.cpu() - cpu, 1000 * _share(took, 0.5), 1000 * _share(took, 0.95))


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


# Runs --------------------------------------------------------------------------------------------------------


async def measure(pair: Pair, chosen: Sequence[System], effort: Effort) -> list[Findings]:
    """Everything about one pair."""
    findings = [Findings(system.name, system.era) for system in chosen]
    with tempfile.TemporaryDirectory(prefix="mcpx-bench-") as name:
        async with Upstreams(pair.upstream, Path(name), tools=5) as upstreams:
            for _ in range(effort.starts):
                for system, found in zip(chosen, findings, strict=True):
                    await _start(system, pair, upstreams, found)
        async with Upstreams(pair.upstream, Path(name), tools=TOOLS) as upstreams, AsyncExitStack() as stack:
            gateways = [await stack.enter_async_context(running(system, pair, upstreams)) for system in chosen]
            await _take_turns(list(zip(gateways, findings, strict=True)), effort)
    return findings


async def _start(system: System, pair: Pair, upstreams: Upstreams, found: Findings) -> None:
    if system.command is None and pair.upstream == "http":
        return  # nothing is started
    began = time.perf_counter()
    async with running(system, pair, upstreams) as gateway:
        found.starts.append(Start(time.perf_counter() - began, gateway.cpu(), gateway.rss()))


async def _take_turns(systems: list[tuple[Gateway, Findings]], effort: Effort) -> None:
    for gateway, found in systems:
        found.rss_idle_mb = gateway.rss()
        await slot(gateway, small, found, width=4, seconds=effort.slot, calls=20)  # fills caches; its time is not kept
    for turn in range(effort.rounds):
        first = turn % len(systems)
        order = systems[first:] + systems[:first]
        for width in WIDTHS:
            for gateway, found in order:
                got = await slot(gateway, small, found, width=width, seconds=effort.slot, calls=effort.calls)
                found.small[str(width)].append(got)
        for gateway, found in order:
            got = await slot(gateway, large, found, width=1, seconds=effort.slot, calls=effort.large)
            found.large.append(got)
        for gateway, found in order:
            got = await slot(gateway, listing, found, width=1, seconds=effort.slot, calls=effort.lists)
            found.lists.append(got)
    for gateway, found in systems:
        rest = max(0, effort.memory - found.calls)
        await slot(gateway, small, found, width=16, seconds=effort.memory_seconds, calls=rest)
        found.rss_after_mb = gateway.rss()


async def run(pairs: Sequence[Pair], chosen: Sequence[System], effort: Effort, say: Callable[[str], None]) -> Json:
    """All pairs, one after the other; the result is plain JSON."""
    began = time.time()
    loads = [os.getloadavg()[0]]
    found: dict[str, Any] = {}
    for pair in pairs:
        since = time.perf_counter()
        found[str(pair)] = [asdict(findings) for findings in await measure(pair, chosen, effort)]
        loads.append(os.getloadavg()[0])
        say(f"{pair}: {time.perf_counter() - since:.0f} s")
    return {
        "when": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "seconds": time.time() - began,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "mcpx": __version__,
        "loads": loads,
        "effort": asdict(effort),
        "pairs": found,
    }
