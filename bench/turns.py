"""Turns: systems run side by side and take turns, so that a busy moment hits them alike.

Every turn is bounded in calls and in seconds. Every answer is checked against its question; a wrong
one is an error, and errors are reported, never left out.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from bench.client import Client, Era, Refused
from bench.gateway import Broken, Gateway, Tool, Unable, Upstreams, check, running
from bench.systems import Pair, System

TEXT = 100
PATIENCE = 20.0
"""Seconds after the end of a turn until what is still unanswered counts as lost."""
ERRORS = 20
"""A turn with so many is given up."""

Length = Literal["full", "quick", "smoke"]
Item = TypeVar("Item")

Ask = Callable[[], Awaitable[float]]
"""Asks one question, checks the answer, and tells how many seconds it took to come."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how long."""

    length: Length
    systems: Sequence[System]
    pairs: Sequence[Pair]
    say: Callable[[str], None]


@dataclass(slots=True)
class Row:
    """What was found out about one system; each section adds its own."""

    name: str
    era: str
    calls: int = 0
    """Answers, all of them right."""
    errors: list[str] = field(default_factory=list[str])
    problem: str = ""
    """Why there is nothing to tell: not installed, does not start."""


@dataclass(slots=True)
class Turn:
    calls: int
    seconds: float
    cpu_seconds: float
    p50_ms: float


async def echo(
    gateway: Gateway, tool: Tool = (0, 0), times: int = 1, client: Client | None = None
) -> float:
    """One call with an answer that no other question has."""
    gateway.asked += 1
    text = f"{gateway.asked} ".ljust(TEXT, "x")
    began = time.perf_counter()
    result = await gateway.call(
        tool, {"text": text, "times": times} if times > 1 else {"text": text}, client
    )
    took = time.perf_counter() - began
    check(result, text * times)
    return took


async def turn(
    gateway: Gateway,
    ask: Ask,
    row: Row,
    *,
    width: int = 1,
    seconds: float,
    calls: int,
    took: list[float] | None = None,
) -> Turn:
    """`width` clients ask one question after the other until the calls or the seconds are used up.
    `took` gets every single time."""
    times: list[float] = []
    errors: list[str] = []
    tickets = itertools.count()
    cpu = gateway.cpu()
    began = time.perf_counter()
    deadline = began + seconds

    async def client() -> None:
        while time.perf_counter() < deadline and next(tickets) < calls and len(errors) < ERRORS:
            try:
                times.append(await ask())
            except Refused as error:
                errors.append(str(error))

    try:
        async with asyncio.timeout(seconds + PATIENCE):
            await asyncio.gather(*(client() for _ in range(width)))
    except TimeoutError:
        errors.append(f"no answer for {PATIENCE:g} s")
    seconds = time.perf_counter() - began
    cpu = gateway.cpu() - cpu
    row.calls += len(times)
    row.errors += errors
    if took is not None:
        took += times
    return Turn(len(times), seconds, cpu, 1000 * share(sorted(times), 0.5))


def share(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def rotated(items: Sequence[Item], number: int) -> Iterator[Item]:
    """In another order each round, so that nobody always comes after the same one."""
    first = number % len(items) if items else 0
    return iter([*items[first:], *items[:first]])


async def bring_up(
    stack: AsyncExitStack,
    row: Row,
    system: System,
    era: Era,
    pair: Pair,
    upstreams: Upstreams,
    home: Path | None = None,
) -> Gateway | None:
    """A system that serves all of its tools; None when it does not, with the reason in its row. May
    raise `Unable`."""
    row.problem = system.lacks()
    if row.problem:
        return None
    try:
        return await stack.enter_async_context(running(system, era, pair, upstreams, home=home))
    except Broken as error:
        row.problem = " ".join(str(error).split())[:300]
        return None


def entries(plan: Plan, *, eras: Sequence[Era]) -> Iterator[tuple[System, Era]]:
    for era in eras:
        for system in plan.systems:
            if era in system.eras:
                yield system, era


async def able(
    stack: AsyncExitStack,
    row: Row,
    system: System,
    era: Era,
    pairs: Sequence[Pair],
    upstreams: Upstreams,
) -> tuple[Gateway | None, Pair]:
    """Like `bring_up`, by the first of the pairs that the system was made for; `Unable` when there
    is none."""
    for pair in pairs:
        try:
            return await bring_up(stack, row, system, era, pair, upstreams), pair
        except Unable:
            continue
    raise Unable
