"""The open links of one server: which of them is idle, and how they are closed."""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcpx.model.call import Json
from mcpx.transports import starts_process
from mcpx.upstreams.link import Link

if TYPE_CHECKING:
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

LASTING = 10
"""Factor for the idle time of a link that its session must not lose. Not every client ends its
session."""
CLOSINGS = 4
"""Links that are closed at a time to make room."""


class LinkPool:
    def __init__(self, upstream: "Upstream") -> None:
        self.open: list[Link] = []
        self.closing: set[asyncio.Task[None]] = set()
        """Nothing stops the closing of a link, because a process may depend on it."""
        self._upstream = upstream
        self._sweeping: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self.open))

    @property
    def process_count(self) -> int:
        return len(self.open) * starts_process(self._upstream.server.connection)

    def add(self, link: Link) -> None:
        self.open.append(link)
        self._sweep_soon()

    def retire(self, link: Link) -> asyncio.Task[None]:
        """Remove a link and close it."""
        if link in self.open:
            self.open.remove(link)
        task = asyncio.get_running_loop().create_task(link.close())
        self.closing.add(task)
        task.add_done_callback(self._closed)
        self._upstream.owner.retired(link)
        return task

    def _closed(self, task: asyncio.Task[None]) -> None:
        self.closing.discard(task)
        self._upstream.links.provide()

    def is_spare(self, link: Link) -> bool:
        """Whether the link can be closed now without a loss."""
        is_used = link.leases or link.listening.subscribers or link.use == "learning"
        return link is not self._upstream.links.main and not is_used

    def drop_longest_idle(self) -> None:
        idle = [link for link in self.open if self.is_spare(link)]
        if idle and len(self.closing) < CLOSINGS:
            self._upstream.links.retire(min(idle, key=lambda link: link.rested_at))

    def _sweep_soon(self) -> None:
        """Look again when the first link has been idle for long."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        main = self._upstream.links.main
        ends = [self._idle_end(link) for link in self.open if link is not main]
        if ends:
            self._sweeping = asyncio.get_running_loop().call_at(min(ends), self._sweep)

    def _idle_end(self, link: Link) -> float:
        now = asyncio.get_running_loop().time()
        since = now if link.leases else link.rested_at
        return max(now + 0.05, since + self._idle_seconds(link))

    @staticmethod
    def _idle_seconds(link: Link) -> float:
        return link.server.link_idle * (LASTING if link.lasting else 1)

    def _sweep(self) -> None:
        """Close links that have been idle for long."""
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for link in self:
            if self.is_spare(link) and now - link.rested_at >= self._idle_seconds(link):
                log.debug("[%s] a connection that was idle goes", link.name)
                self._upstream.links.retire(link)
        self._sweep_soon()

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for link in self:
            self._upstream.links.retire(link)
        while self.closing:
            await asyncio.wait(self.closing)

    def describe(self) -> list[Json]:
        """Each link for the administrator."""
        now = asyncio.get_running_loop().time()
        rows: list[Json] = []
        for link in self.open:
            row: Json = {"use": link.use, "why": link.why, "version": link.terms.version}
            row |= {"calls": len(link.leases), "idle_s": None}
            if link.use == "shared":
                row["why"] = "it serves everybody"
            if not link.leases:
                row["idle_s"] = round(now - link.rested_at, 1)
            rows.append(row)
        return rows
