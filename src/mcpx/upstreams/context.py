"""What the upstreams of a gateway share, and the events that they publish."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mcpx.base.aio import Work
from mcpx.model.events import ResourceUpdated, ServerSaid, UpstreamChanged
from mcpx.model.offer import Kind, Offers
from mcpx.upstreams.life import Gate
from mcpx.upstreams.listing import Budget
from mcpx.upstreams.snapshot import Snapshots
from mcpx.upstreams.traits import Kind as ClientKind

if TYPE_CHECKING:
    from mcpx.auth.ring import Ring
    from mcpx.config import Server
    from mcpx.model.call import Caller
    from mcpx.processes.stderrlog import Overhear

LEARN_AT_ONCE = 2
"""Links that are opened at a time, for all servers, only to read the lists for a kind of client."""


@dataclass(frozen=True, slots=True)
class ListsRead:
    """The common lists of a server were read."""

    server: str
    kinds: tuple[Kind, ...]
    announced: bool
    """Whether the server announced that they have changed."""


@dataclass(frozen=True, slots=True)
class ListsVary:
    """Some callers are offered something else than before."""

    server: str
    kinds: tuple[Kind, ...] = ()
    session: str | None = None
    """The session that is to be told."""


@dataclass(frozen=True, slots=True)
class KindListed:
    """The lists for a kind of client were read."""

    server: str
    client_kind: ClientKind
    changed: tuple[Kind, ...]
    """The lists that differ from those before."""
    announce: bool
    """Whether clients of this kind may have received the lists before."""


UpstreamEvent = ListsRead | ListsVary | KindListed | ResourceUpdated | ServerSaid | UpstreamChanged


class Admission(Protocol):
    """Whether the definitions of a server may be shown (SEC-5).

    A server with `trust: open` has none. All lists and the instructions of a server pass it.
    """

    @property
    def shown(self) -> bool:
        """Whether clients may know the server."""
        ...

    @property
    def seen(self) -> bool:
        """Whether there are approvals. If not, the lists of an earlier run do not count."""
        ...

    @property
    def held(self) -> int:
        """Definitions that are withheld."""
        ...

    @property
    def notes(self) -> list[str]:
        """For the administrator."""
        ...

    def admitted(self, offers: Offers) -> Offers:
        """The lists without what is withheld. Returns the same object if nothing is withheld."""
        ...

    def instructions(self, text: str) -> str: ...

    def studying(self, offers: Offers) -> Work[None]:
        """The slow part of the judgement, before a new list is judged."""
        ...

    def look(
        self, offers: Offers, instructions: str, told: Collection[Kind], some: Iterable[Offers] = ()
    ) -> None:
        """Judge the common lists, those of them that were read (`told`), and other lists."""
        ...


@dataclass(frozen=True, slots=True)
class UpstreamContext:
    environ: Mapping[str, str]
    snapshots: Snapshots
    gate: Gate
    publish: Callable[[UpstreamEvent], None] = lambda event: None
    ring: "Callable[[], Ring] | None" = None
    """All credentials, created on first use."""
    asks: bool = True
    """Whether users are asked to sign in."""
    own_id: str = ""
    """Identifies this gateway, to detect a server entry that points back to the gateway."""
    learning: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LEARN_AT_ONCE))
    budget: Budget = field(default_factory=Budget)
    redact: Callable[[str], str] = str
    admission: "Callable[[Server], Admission | None]" = lambda server: None
    may_ask: "Callable[[str, Caller], bool]" = lambda server, caller: True
    """Whether a server may ask a client something between calls."""
    overhear: "Callable[[str], Overhear | None]" = lambda server: None
    """Receives the standard error of a server's process. Called for each process."""
    apart: Callable[[], bool] = lambda: False
    """Whether clients must not see what a server says about other clients."""
