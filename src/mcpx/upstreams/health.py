"""Looks after a connection while it lives (LIF-3, LIF-5): is it there, is it wanted, is it too old
or too large.

A probe never disturbs a running call and does not count as one: while there is traffic, the traffic
is the proof.
"""

import asyncio
import time
from typing import Literal, Protocol

from mcpx.config import Server
from mcpx.model.errors import RpcError, Unavailable
from mcpx.upstreams.link import Link

THRESHOLD = 3
"""Probes in a row that may go unanswered before the connection is given up."""
PATIENCE = 10.0
"""Seconds a probe may take, or the interval if that is shorter."""

Verdict = Literal["lost", "sleep", "renew"]


class Patient(Protocol):
    """Whom it looks after."""

    server: Server

    def traffic(self) -> int:
        """Grows with every call."""
        ...

    def busy(self) -> bool:
        """Whether a call is running, or on its way."""
        ...

    def listened_to(self) -> bool:
        """Whether somebody waits to hear of a resource: probed, but neither put to sleep nor
        replaced."""
        ...

    def probed(self, latency: float | None, problem: str | None) -> None:
        """What a probe found; neither latency nor problem: calls were the proof."""
        ...


async def look_after(patient: Patient, link: Link) -> Verdict:
    """Until something must be done about the connection; what."""
    born = heard = time.monotonic()
    calls = patient.traffic()
    failures = 0
    while True:
        await asyncio.sleep(_next_look(patient.server))
        if not link.alive:
            return "lost"
        now = patient.server
        if patient.traffic() != calls or patient.busy():
            calls, heard, failures = patient.traffic(), time.monotonic(), 0
            patient.probed(None, None)
            continue
        if not patient.listened_to():
            if now.lazy and time.monotonic() - heard >= now.idle_timeout:
                return "sleep"
            if _worn(link, now, time.monotonic() - born):
                return "renew"
        if not now.health_check_enabled:
            continue
        began = time.monotonic()
        try:
            await link.probe(min(PATIENCE, now.health_check_interval))
        except Unavailable as error:
            if not link.alive:
                # of something else, and known: this probe says nothing of the next connection
                return "lost"
            failures += 1
            patient.probed(None, error.message)
            if failures >= THRESHOLD:
                return "lost"
            continue
        except RpcError:
            pass  # an error is an answer
        failures = 0
        patient.probed(time.monotonic() - began, None)


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
