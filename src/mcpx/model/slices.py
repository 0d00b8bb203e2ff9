"""Long work on the loop, done in slices: whoever else has something to do comes in between.

The work is a generator that yields every now and then, wherever it may be interrupted; what it
returns is the outcome. Not in a thread: work in pure Python holds the interpreter there as well,
five milliseconds at a time.
"""

import asyncio
from collections.abc import Generator
from time import perf_counter
from typing import TypeVar

SLICE = 0.003
"""Seconds after which others have their turn."""

Outcome = TypeVar("Outcome")
Work = Generator[None, None, Outcome]


async def in_slices(work: Work[Outcome]) -> Outcome:
    """Do it beside everything else."""
    began = perf_counter()
    try:
        while True:
            next(work)
            if perf_counter() - began >= SLICE:
                await asyncio.sleep(0)
                began = perf_counter()
    except StopIteration as end:
        return end.value


class Pace:
    """The same for a coroutine: it says where it may be interrupted."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    async def step(self) -> None:
        """After each step. Gives way only when the time is up: what is little is done at once."""
        if perf_counter() - self._began >= SLICE:
            await asyncio.sleep(0)
            self._began = perf_counter()


def at_once(work: Work[Outcome]) -> Outcome:
    """Do it now, to the end: where nobody waits, or it is known to be little."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        return end.value
