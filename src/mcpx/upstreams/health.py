"""Health checks of a main link (LIF-3, LIF-5): whether it answers, is wanted, and is not too large.

A probe does not delay a running call and does not count as one. While there is traffic, no probe is
necessary.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Literal

from mcpx.config import Server
from mcpx.model.errors import RpcError, Unavailable
from mcpx.upstreams.link import Link

if TYPE_CHECKING:
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

THRESHOLD = 3
"""Unanswered probes in a row after which the connection counts as lost."""
PATIENCE = 10.0
"""Seconds a probe may take, or the interval if that is shorter."""

Verdict = Literal["lost", "sleep", "renew"]


class HealthMonitor:
    def __init__(self, upstream: "Upstream") -> None:
        self.latency: float | None = None
        """Seconds of the last probe."""
        self._upstream = upstream
        self._watcher: asyncio.Task[None] | None = None

    def watch(self, link: Link) -> None:
        """Look after this main link from now on."""
        self.stop()
        self._watcher = self._upstream.tasks.start(self._look_after(link))

    def stop(self) -> None:
        if self._watcher is not None and self._watcher is not asyncio.current_task():
            self._watcher.cancel()  # It would keep a dead link in memory until its next probe.

    async def _look_after(self, link: Link) -> None:
        upstream = self._upstream
        verdict = await self.verdict(link)
        if not link.alive or link is not upstream.links.main:
            return
        if verdict == "lost":
            upstream.owner.lost(link, "did not answer health probes")
            return
        what = "is started anew: old or large"
        if verdict == "sleep":
            what = "goes to sleep"
        log.info("[%s] %s", upstream.name, what)
        upstream.life.connection_closed(verdict)
        await upstream.links.close()

    @property
    def server(self) -> Server:
        return self._upstream.server

    def traffic(self) -> int:
        """Grows with every call."""
        return self._upstream.calls.made

    def is_busy(self) -> bool:
        """Whether a call is running or a link is being opened."""
        return self._upstream.calls.running > 0 or self._upstream.links.opening

    def has_listeners(self) -> bool:
        """Whether clients have subscriptions, which prevent sleep and replacement."""
        return bool(self._upstream.subscriptions)

    def probed(self, latency: float | None, problem: str | None) -> None:
        """The result of a probe. Both are None if there was traffic instead."""
        life = self._upstream.life
        if latency is not None:
            self.latency = latency
        if problem is not None:
            life.set_status("degraded", problem)
        elif life.status.state == "degraded":
            life.set_status("connected")

    async def verdict(self, link: Link) -> Verdict:
        """Wait until something must be done about the connection."""
        born = heard = time.monotonic()
        calls = self.traffic()
        failures = 0
        while True:
            await asyncio.sleep(_next_look(self.server))
            if not link.alive:
                return "lost"
            server = self.server
            if self.traffic() != calls or self.is_busy():
                calls, heard, failures = self.traffic(), time.monotonic(), 0
                self.probed(None, None)
                continue
            if not self.has_listeners():
                if server.lazy and time.monotonic() - heard >= server.idle_timeout:
                    return "sleep"
                if _worn(link, server, time.monotonic() - born):
                    return "renew"
            if not server.health_check_enabled:
                continue
            began = time.monotonic()
            try:
                await link.probe(min(PATIENCE, server.health_check_interval))
            except Unavailable as error:
                if not link.alive:
                    # Lost for another reason: the probe says nothing of the next connection.
                    return "lost"
                failures += 1
                self.probed(None, error.message)
                if failures >= THRESHOLD:
                    return "lost"
                continue
            except RpcError:
                pass  # An error is an answer.
            failures = 0
            self.probed(time.monotonic() - began, None)


def _next_look(server: Server) -> float:
    looks = [server.health_check_interval]
    if server.lazy:
        looks.append(server.idle_timeout / 2)
    if server.max_age is not None:
        looks.append(server.max_age / 2)
    return max(0.05, min(looks))


def _worn(link: Link, server: Server, age: float) -> bool:
    if server.max_age is not None and age >= server.max_age:
        return True
    return server.max_memory is not None and link.memory() > server.max_memory
