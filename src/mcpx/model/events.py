"""Facts the middle publishes, and the bus they travel on. Listeners observe; they never change a call."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from mcpx.model.call import Json
from mcpx.model.offer import Kind

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OffersChanged:
    """The lists of these kinds are not what they were."""

    kinds: frozenset[Kind]
    session: str | None = None
    """The only one it concerns; None concerns everybody."""
    server: str | None = None
    """The server whose lists they are; None when there are several."""
    modes: frozenset[str | None] | None = None
    """Only clients in these modes see a difference (None among them: the configured one); absent: everybody."""


@dataclass(frozen=True, slots=True)
class ResourceUpdated:
    server: str
    params: Json
    """As the server sent them; `uri` is its own."""
    owner: str | None
    """The session whose private link it came over; None concerns every subscriber."""


@dataclass(frozen=True, slots=True)
class ServerSaid:
    """A log message or any other notification that belongs to no call."""

    server: str
    method: str
    params: Json
    owner: str | None


@dataclass(frozen=True, slots=True)
class UpstreamChanged:
    server: str


Event = OffersChanged | ResourceUpdated | ServerSaid | UpstreamChanged
Listener = Callable[[Event], None]


class Bus:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def publish(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on %s", type(event).__name__)
