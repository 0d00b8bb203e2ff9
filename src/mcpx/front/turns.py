"""Long work in short turns: telling thousands of clients something, or ending them, keeps nobody
else waiting.

Promise: what is given first is done first; a little is done at once, the rest in slices of half a
millisecond between which everybody else has a turn. Work that fails is logged and given up; other
work goes on.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

log = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Steps that are done before the clock is looked at: few clients are served within the turn, as
they always were."""
SLICE: Final = 0.0005
"""Seconds of one turn."""
LOOK_EVERY: Final = 8
"""Steps between two looks at the clock."""


class Turns:
    def __init__(self) -> None:
        self._waiting: deque[Iterator[Any]] = deque()
        self._running = False

    def __len__(self) -> int:
        """Pieces of work that are not done yet."""
        return len(self._waiting)

    def do(self, steps: Iterable[Any]) -> None:
        """Work of which each step is short; the first steps at once, unless earlier work is still
        waiting."""
        self._waiting.append(iter(steps))
        if not self._running:
            self._running = True
            self._go(AT_ONCE)

    def _go(self, free: int) -> None:
        until = 0.0
        done = 0
        while self._waiting:
            try:
                for _ in self._waiting[0]:
                    done += 1
                    if done >= free and done % LOOK_EVERY == 0:
                        now = time.monotonic()
                        until = until or now + SLICE
                        if now >= until:
                            asyncio.get_running_loop().call_soon(self._go, 0)
                            return
            except Exception:
                log.exception("work in turns failed")
            self._waiting.popleft()
        self._running = False
