"""The sessions of older clients over streamable HTTP: found by id, bounded in number and in how long they say nothing.

They live in this process. This is the one place that knows so: replicas that share their sessions need another
`Sessions`, and nothing else of the front.
"""

import asyncio
from collections.abc import Callable, Iterator

from mcpx.front.http_session import HttpSession

MOST = 10_000
IDLE = 1800.0
"""SEC-6: so many sessions, and so long without a word."""


class Sessions:
    def __init__(self, on_end: Callable[[HttpSession], object]) -> None:
        self._open: dict[str, HttpSession] = {}
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        """Kept, for asking for it is a system call (getpid) in Python 3.11."""

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._open.values()))

    def begin(self, principal: str) -> HttpSession | None:
        """A new session; None when there are too many and all are in use."""
        if len(self._open) >= MOST and not self._drop_longest_idle():
            return None
        owner = HttpSession(principal)
        self._open[owner.session.id] = owner
        return owner

    def find(self, id: str, principal: str) -> HttpSession | None:
        """The session of that id, if it is this principal's; it is in use from now on."""
        owner = self._open.get(id)
        if owner is None or owner.principal != principal:
            return None
        owner.seen = self._loop.time()
        return owner

    def end(self, owner: HttpSession) -> None:
        if self._open.pop(owner.session.id, None) is not None:
            owner.end()
            self._on_end(owner)

    def end_idle(self) -> None:
        now = self._loop.time()
        for owner in self:
            if owner.busy:
                owner.seen = now
            elif now - owner.seen > IDLE:
                self.end(owner)

    def _drop_longest_idle(self) -> bool:
        idle = [owner for owner in self if not owner.busy]
        if idle:
            self.end(min(idle, key=lambda owner: owner.seen))
        return bool(idle)
