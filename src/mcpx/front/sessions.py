"""Sessions of older clients over streamable HTTP, found by id and limited in number and idle time.

At the limit, a new session evicts another one, in this order:

1. a session whose client has not completed the handshake within its grace period
2. an idle session without a stream, then an idle session with one
3. if one client has very many handshakes in progress, the oldest of them
4. a session without a stream that was used a moment ago, or with one if its client holds most and
   more than its share

Within a step, sessions of the client that holds most come first if it holds more than its share.
Then the session that was unused for longest comes first. A session with a running call is never
evicted. In steps 2 to 4, a client that holds more than its share evicts only its own sessions, and
idle ones of the client that holds most. Conversations over other transports count for the share,
and are never evicted.

Sessions live in this process. With several replicas, each session belongs to one of them at a time,
and another replica takes over the sessions of a replica that has ended (`neighbours`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator

from mcpx.front.http_session import HttpSession
from mcpx.front.streams import Shelf
from mcpx.front.visitor import Visitor
from mcpx.wire.address import place_of

MOST = 10_000
"""Maximum number of sessions, unless `server.limits.sessions` has another one (SEC-6)."""
IDLE = 1800.0
"""Seconds after which an unused session ends (SEC-6)."""
FEW_CALLS = 3
SHORT_IDLE = 300.0
"""The same for a session without a stream and with at most `FEW_CALLS` calls. Most of these clients
do not return."""
UNUSED = 60.0
"""Seconds after which a session ends whose client sent nothing after `initialize`."""
GRACE = 10.0
"""Seconds that a client has for its handshake before its new session may be evicted."""
IDLE_AFTER = 10.0
"""Seconds without use after which a session counts as idle, and is evicted before handshakes in
progress."""
MOST_WEIGHT = 64 << 20
"""What all clients together may have said of themselves, in bytes."""
SHARE = 10
"""Who holds more than one in so many pays before others do."""
LOOKS = 256
"""Sessions inspected in one queue to find one to evict. It bounds the cost of one `initialize`."""
SETTLED = 1.0
"""Seconds in which repeated use does not move a session to the end of its queue."""

Queue = OrderedDict[HttpSession, None]
"""Sessions in the order in which they were last used."""


class Queues:
    """Sessions of one client, or of all clients, by state. Each session is in one of the queues."""

    __slots__ = ("fresh", "listening", "used")

    def __init__(self) -> None:
        self.fresh: Queue = OrderedDict()
        """The handshake is not completed."""
        self.used: Queue = OrderedDict()
        self.listening: Queue = OrderedDict()
        """Sessions that had an open stream when the last session to evict was searched."""

    def __len__(self) -> int:
        return len(self.fresh) + len(self.used) + len(self.listening)

    def remove(self, owner: HttpSession) -> None:
        for queue in (self.fresh, self.used, self.listening):
            queue.pop(owner, None)


class Client:
    """The owner of sessions: a principal at an address."""

    __slots__ = ("key", "queues", "running", "weight")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.queues = Queues()
        self.running = 0
        """Calls in flight, of all of its sessions."""
        self.weight = 0
        """The sum of its sessions' weights."""


class Sessions:
    def __init__(
        self,
        on_end: Callable[[HttpSession], object],
        most: Callable[[], int | None] = lambda: None,
        beside: Callable[[Client | None], int] = lambda _: 0,
        mint: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`most`: what the configuration of now allows; None: `MOST`. `beside`: conversations on
        carriers of their own, of a client or (None) of all, which count too. `mint`: makes ids;
        None: any will do."""
        self._mint = mint
        self._most = most
        self._beside = beside
        self.evicted = 0
        """Sessions that ended because another one needed their place."""
        self._open: dict[str, HttpSession] = {}
        self._queues = Queues()
        self._clients: dict[tuple[str, str], Client] = {}
        self._large: set[Client] = set()
        """Those that hold more than their share: never more than `SHARE`."""
        self._weight = 0
        self._shelf = Shelf()
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        """Kept, for asking for it is a system call (getpid) in Python 3.11."""

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, id: str) -> bool:
        return id in self._open

    def get(self, id: str) -> HttpSession | None:
        """Whoever's it is."""
        return self._open.get(id)

    def begin(self, visitor: Visitor, weight: int = 0, id: str | None = None) -> HttpSession | None:
        """A new session, or one that another gateway began and that has its id; None when there are
        too many and all are in use."""
        client = self._client_of(visitor)
        if not self._has_room(client, weight):
            return None
        owner = HttpSession(
            visitor, client, self._shelf, weight, self._mint() if id is None else id
        )
        self._open[owner.session.id] = owner
        self._clients[client.key] = client
        self._weight += weight
        client.weight += weight
        owner.fresh = id is None
        if (
            id is not None
        ):  # The client has completed its handshake elsewhere; how often it called is not known.
            owner.calls = FEW_CALLS + 1
        for queues in (client.queues, self._queues):
            if owner.fresh:
                queue = queues.fresh
            else:
                queue = queues.used
            queue[owner] = None
        self._measure(client)
        return owner

    def room_beside(self, visitor: Visitor) -> bool:
        """Whether one more conversation may begin that is none of these."""
        return self._has_room(self._client_of(visitor), 0)

    def _client_of(self, visitor: Visitor) -> Client:
        key = client_key(visitor)
        return self._clients.get(key) or Client(key)

    @property
    def most(self) -> int:
        return self._most() or MOST

    @property
    def room(self) -> int:
        """The number of sessions that can begin without an eviction."""
        return max(0, self.most - len(self._open) - self._beside(None))

    def _has_room(self, client: Client, weight: int) -> bool:
        """Whether one more session fits. Evicts others if necessary."""
        for _ in range(LOOKS):
            if self.room and self._weight + weight <= MOST_WEIGHT:
                return True
            evicted = self._find_evictable(client)
            if evicted is None:
                return False
            self.evicted += 1
            self.end(evicted)
        return False

    def find(self, id: str, visitor: Visitor) -> HttpSession | None:
        """The session of that id, if it is this visitor's; it is in use from now on."""
        owner = self._open.get(id)
        if owner is None or not visitor.owns(owner.visitor):
            return None
        if owner.visitor.badge is not visitor.badge:
            owner.visitor = (
                visitor  # they showed another token since: the session is as good as that
            )
        owner.seen = now = self._loop.time()
        if owner.fresh or now - owner.moved > SETTLED:
            self._mark_used(owner, now)
        return owner

    def _mark_used(self, owner: HttpSession, now: float) -> None:
        owner.fresh = False
        owner.seen = owner.moved = now
        for queues in (self._queues, owner.client.queues):
            queues.remove(owner)
            queues.used[owner] = None

    def end(self, owner: HttpSession) -> None:
        if self._open.pop(owner.session.id, None) is None:
            return
        client = owner.client
        self._queues.remove(owner)
        client.queues.remove(owner)
        self._weight -= owner.weight
        client.weight -= owner.weight
        self._measure(client)
        if not client.queues:
            self._clients.pop(client.key, None)
        owner.end()
        self._on_end(owner)

    def end_if_idle(self, owner: HttpSession) -> None:
        now = self._loop.time()
        if owner.busy:
            owner.seen = now
        elif now - owner.seen > _idle_limit(owner):
            self.end(owner)

    def _measure(self, client: Client) -> None:
        if len(client.queues) > self.most // SHARE or self._is_heavy(client):
            self._large.add(client)
        else:
            self._large.discard(client)

    @staticmethod
    def _is_heavy(client: Client) -> bool:
        return client.weight > MOST_WEIGHT // SHARE

    # Eviction
    # ----------------------------------------------------------------------------------------------

    def _find_evictable(self, newcomer: Client) -> HttpSession | None:
        """The session to evict for a new one of this client, in the order that the module docstring
        lists."""
        now = self._loop.time()
        everyone = self._queues
        oldest = next(iter(everyone.fresh), None)
        if oldest is not None and now - oldest.seen > GRACE:
            return oldest
        largest = max(self._large, key=lambda client: len(client.queues), default=None)
        if largest is None:
            first = everyone
        else:
            first = largest.queues
        rest = everyone
        held = len(newcomer.queues) + self._beside(newcomer)
        if is_large := newcomer in self._large or held > self.most // SHARE:
            rest = newcomer.queues
            if largest is None or held >= len(largest.queues) or self._is_heavy(newcomer):
                first = rest
        for queues in (first, rest):
            if (idle := self._oldest_used(queues, now, IDLE_AFTER)) is not None:
                return idle
        for queues in (first, rest):
            if (idle := self._oldest_listening(queues, now, IDLE_AFTER)) is not None:
                return idle
        if largest is not None:
            if is_large:
                payer = newcomer
            else:
                payer = largest
            first = payer.queues
            floods = len(first.fresh) > self.most // SHARE or self._is_heavy(payer)
            if floods and first.fresh:
                return next(iter(first.fresh))
            if (used := self._oldest_used(first, now, 0.0)) is not None:
                return used
            if not is_large and (used := self._oldest_listening(first, now, 0.0)) is not None:
                return used
        for queues in (newcomer.queues, rest):
            if (used := self._oldest_used(queues, now, 0.0)) is not None:
                return used
        return None

    def _oldest_used(self, queues: Queues, now: float, idle: float) -> HttpSession | None:
        """The session without a stream that was unused for longest, and at least for `idle`
        seconds."""
        for _ in range(min(LOOKS, len(queues.used))):
            owner = next(iter(queues.used))
            if owner.running:
                self._mark_used(owner, now)
            elif now - owner.seen < idle:
                return None
            elif owner.pushes.attached:
                self._mark_listening(owner)
            else:
                return owner
        return None

    def _oldest_listening(self, queues: Queues, now: float, idle: float) -> HttpSession | None:
        """The same for sessions with a stream."""
        for _ in range(min(LOOKS, len(queues.listening))):
            owner = next(iter(queues.listening))
            if not owner.running:
                if now - owner.seen >= idle:
                    return owner
                return None
            self._mark_used(owner, now)
        return None

    def _mark_listening(self, owner: HttpSession) -> None:
        for queues in (self._queues, owner.client.queues):
            queues.remove(owner)
            queues.listening[owner] = None


def client_key(visitor: Visitor) -> tuple[str, str]:
    return visitor.principal, place_of(visitor.address)


def _idle_limit(owner: HttpSession) -> float:
    """Seconds after which this session ends if it is not used."""
    if owner.fresh:
        return UNUSED
    if owner.calls <= FEW_CALLS:
        return SHORT_IDLE
    return IDLE
