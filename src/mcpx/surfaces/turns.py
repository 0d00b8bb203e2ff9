"""Long work of many small steps on the loop, in which others have their turn now and then."""

import asyncio
import time

TURN = 0.003
"""Seconds of work before others have their turn."""


class Turns:
    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.monotonic() + TURN

    async def step(self) -> None:
        """After each step. Gives way only when the time is up: what is little is done at once."""
        if time.monotonic() > self._until:
            await asyncio.sleep(0)
            self._until = time.monotonic() + TURN
