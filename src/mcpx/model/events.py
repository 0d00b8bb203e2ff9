"""Facts the middle publishes, and the bus they travel on. Listeners observe; they never change a
call."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from mcpx.model.call import Call, Caller, Json
from mcpx.model.offer import Kind, Offer
from mcpx.model.requests import Span

log = logging.getLogger(__name__)

Viewer = tuple[str | None, str]
"""The profile and the principal of a caller: who has both alike sees the same."""


@dataclass(frozen=True, slots=True)
class ClientCounts:
    """Clients of a gateway at one moment, for metrics."""

    sessions: Mapping[str, int]
    """Sessions by transport."""
    connections: int
    session_room: int
    """Sessions that can begin without an eviction."""
    sessions_evicted: int
    """Sessions that ended since the start because another one needed their place."""


@dataclass(frozen=True, slots=True)
class OffersChanged:
    """The lists of these kinds are not what they were."""

    kinds: frozenset[Kind]
    session: str | None = None
    """The only one it concerns; None concerns everybody."""
    server: str | None = None
    """The server whose lists they are; None when there are several."""
    modes: frozenset[str | None] | None = None
    """Only clients in these modes see a difference (None among them: the configured one); absent:
    everybody."""
    viewers: frozenset[Viewer] | None = None
    """Only these see a difference; absent: all who see everything."""
    client_kind: frozenset[str] | None = None
    """The kind of the clients that see a difference (`upstreams.traits.Kind`), or None for all
    clients."""


@dataclass(frozen=True, slots=True)
class ResourceUpdated:
    server: str
    params: Json
    """As the server sent them; `uri` is its own."""
    to: frozenset[str]
    """Who is subscribed where it was heard: sessions, and listenings of modern clients."""


SEVERAL = object()
"""More than one client."""


@dataclass(frozen=True, slots=True)
class ServerSaid:
    """A log message or any other notification that belongs to no call."""

    server: str
    method: str
    params: Json
    owner: object | None
    """The one client it concerns; None concerns everybody."""
    callers: object | None = None
    """Whose calls may have caused it: one client, SEVERAL, or None if there were no calls. Of
    another client's calls, a client hears only if it has set a log level."""


@dataclass(frozen=True, slots=True)
class UpstreamChanged:
    server: str


class Place(Protocol):
    def leave(self) -> None:
        """Somebody else may have it."""
        ...


@dataclass(slots=True)
class Passage:
    """One call, read, subscription or completion on its way through the middle; made only where
    somebody guards or listens."""

    server: str
    """Its configured name; `mcpx` for what the gateway answers itself."""
    name: str
    """The tool, prompt or URI as its own server calls it."""
    offer: Offer | None
    """What is called; None for a URI, and for what the gateway answers itself."""
    call: Call
    params: Json
    """As they go to the server: the real target's, not those of a surface's tool that led to it."""
    rule: str | None = None
    """What decided whether it may pass, as `mcpx explain` names it; None: nothing had to be
    decided."""
    span: Span | None = None
    """Its place in a trace, where one is made."""
    places: "Sequence[Place]" = ()
    """Those it takes up while it runs, where something limits it; whoever made it gives them
    back."""
    audit_id: str = ""
    """Joins the two rows of the call in the audit log. Empty if only one row is written."""
    answer: Json | None = None
    """What it ended with, once it is over; as it came, so it may be large."""
    error: str | None = None
    """The words of the error it ended with instead."""

    @property
    def caller(self) -> Caller:
        return self.call.caller

    @property
    def method(self) -> str:
        return self.call.method


@dataclass(frozen=True, slots=True)
class CallBegins:
    """One call, read, subscription or completion is about to be made; told in the context it is
    made in."""

    passage: Passage


class CallFinished(NamedTuple):
    """One call, read, subscription or completion is over, however it ended. A tuple, for it is made
    for every call."""

    passage: Passage
    seconds: float
    outcome: "Outcome"
    code: int | None = None
    """Of the JSON-RPC error it ended with."""


@dataclass(frozen=True, slots=True)
class ApprovalChanged:
    """A call waits for somebody to approve it, or waits no more."""

    id: str
    state: "ApprovalState"
    server: str
    name: str
    principal: str
    profile: str | None
    rule: str
    by: str = ""
    """Who decided, where somebody has."""
    elsewhere: bool = False
    """It happened at another replica, in whose trail it stands."""


ApprovalState = Literal["pending", "approved", "denied", "used", "expired"]


@dataclass(frozen=True, slots=True)
class ToolsListed:
    """A client was shown the tools, or a page of them; made only where somebody listens."""

    mode: str
    """The surface it was shown."""
    tools: Sequence[Json]
    catalog: object
    """What they were made of, the same object until something is different."""
    offers: Sequence[Offer]
    """All tools that this client may see."""
    whole: bool
    """They are the tools themselves, under their own names: not a menu of them."""
    caller: Caller
    shown: str
    """The mode it came to: what `auto` chose."""


@dataclass(frozen=True, slots=True)
class DoorRefused:
    """A request over the network was not let in."""

    reason: Literal["host", "origin", "loop", "token"]
    address: str
    """Of the machine it came from."""


@dataclass(frozen=True, slots=True)
class ConfigApplied:
    """Somebody proposed a configuration."""

    by: str
    """Who: the file, a signal, somebody who asked."""
    ok: bool
    """Whether it was taken up."""
    plan: str
    """What it changed, in words; of one that was refused, how many mistakes it has."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What is no call and belongs into the trail: an approval, a pinned definition, a revoked
    token."""

    what: str
    """In one word: `approval_pending`, `approval_decided`, `pins_approved`."""
    facts: Mapping[str, str | int | float | bool | None]
    """Short, and without secrets; under the names that rows of calls have (`principal`, `server`,
    `name`, `rule`)."""


Outcome = Literal["ok", "tool_error", "error", "cancelled", "denied"]
"""`denied`: a rule, a person or a limit refused it, so no server heard of it."""
Event = (
    OffersChanged
    | ResourceUpdated
    | ServerSaid
    | UpstreamChanged
    | CallBegins
    | CallFinished
    | ToolsListed
    | DoorRefused
    | ConfigApplied
    | ApprovalChanged
    | Noted
)
Listener = Callable[[Any], None]


class Bus:
    def __init__(self) -> None:
        self.listeners: dict[type, list[Listener]] = {}
        """By kind: what nobody hears need not be made."""

    def subscribe(self, listener: Listener, *kinds: type) -> None:
        """`listener` hears every event of these kinds."""
        for kind in kinds:
            self.listeners.setdefault(kind, []).append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        for kind, listeners in list(self.listeners.items()):
            rest = [other for other in listeners if other != listener]
            if rest:
                self.listeners[kind] = rest
            else:
                del self.listeners[kind]

    def heard(self, kind: type) -> bool:
        """Whether anybody listens for that: what nobody hears need not be made."""
        return kind in self.listeners

    def publish(self, event: Event) -> None:
        for listener in self.listeners.get(type(event), ()):
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on %s", type(event).__name__)
