"""What all upstreams of a gateway share."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mcpx.upstreams.budget import Budget
from mcpx.upstreams.life import Gate
from mcpx.upstreams.snapshot import Snapshots

if TYPE_CHECKING:
    from mcpx.auth.ring import Ring
    from mcpx.config import Server
    from mcpx.model.call import Caller
    from mcpx.processes.stderrlog import Overhear
    from mcpx.upstreams.admission import Admission

LEARN_AT_ONCE = 2
"""Links that are opened at a time, for all servers, only to find out what a kind of client is
offered."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    environ: Mapping[str, str]
    snapshots: Snapshots
    gate: Gate
    ring: "Callable[[], Ring] | None" = None
    """All credentials; made when first needed."""
    asks: bool = True
    """Whether people are asked to sign in."""
    itself: str = ""
    """What marks this gateway to itself, should a server turn out to be the gateway."""
    learning: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LEARN_AT_ONCE))
    budget: Budget = field(default_factory=Budget)
    """Of what all of them offer."""
    redact: Callable[[str], str] = str
    """Takes out of a text what must not be said."""
    admission: "Callable[[Server], Admission | None]" = lambda server: None
    """Whether what a server says of itself may be shown; None: all of it."""
    may_ask: "Callable[[str, Caller], bool]" = lambda server, caller: True
    """Whether a server may ask a client something between calls: not if the client must not know of
    it."""
    overhear: "Callable[[str], Overhear | None]" = lambda server: None
    """Who hears what a server's process writes to standard error; asked for each process."""
    apart: Callable[[], bool] = lambda: False
    """Whether clients are told apart, so that what a server says of one is not told to another."""
