"""The sessions of older clients over streamable HTTP: found by id, bounded in number and in how long they say nothing.

Where there are too many, one goes: never one that is busy; one that was never used before one that was, the one that
has been silent longest, and of whoever asks for another, or holds most, before anybody else's.

They live in this process. Where there are replicas, each session is one of theirs at a time, and another one takes it
up when that is gone (`neighbours`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator

from mcpx.front.http_session import HttpSession
from mcpx.front.streams import Shelf
from mcpx.front.visitor import Visitor
from mcpx.wire.address import place_of

MOST = 10_000
IDLE = 1800.0
"""SEC-6: so many sessions unless `server.limits.sessions` says otherwise, and so long without a word."""
UNUSED = 60.0
"""Seconds until the word after `initialize`; clients say it at once."""
MOST_WEIGHT = 64 << 20
"""What all clients together may have said of themselves, in bytes."""
SHARE = 10
"""Who holds more than one in so many pays before others do."""
LOOKS = 256
"""Busy sessions looked at for one that may go: what one `initialize` costs does not depend on how many there are."""
SETTLED = 1.0
"""Seconds in which the order of use need not be told more exactly."""

Queue = OrderedDict[HttpSession, None]
"""Sessions in the order in which they were last used."""


class Client:
    """Who sessions belong to: a principal at an address."""

    __slots__ = ("fresh", "key", "running", "used")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.fresh: Queue = OrderedDict()
        self.used: Queue = OrderedDict()
        self.running = 0
        """Calls in flight, of all of its sessions."""

    @property
    def holds(self) -> int:
        return len(self.fresh) + len(self.used)


class Sessions:
    def __init__(
        self,
        on_end: Callable[[HttpSession], object],
        most: Callable[[], int | None] = lambda: None,
        beside: Callable[[], int] = lambda: 0,
        mint: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`most`: what the configuration of now allows; None: `MOST`. `beside`: conversations on carriers of their
        own, which count too. `mint`: makes ids; None: any will do."""
        self._mint = mint
        self._most = most
        self._beside = beside
        self._open: dict[str, HttpSession] = {}
        self._fresh: Queue = OrderedDict()
        self._used: Queue = OrderedDict()
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
        """A new session, or one that another gateway began and that has its id; None when there are too many and all
        are in use."""
        client = self._client_of(visitor)
        if not self._has_room(client, weight):
            return None
        owner = HttpSession(visitor, client, self._shelf, weight, self._mint() if id is None else id)
        self._open[owner.session.id] = owner
        self._clients[client.key] = client
        self._weight += weight
        if id is None:
            client.fresh[owner] = self._fresh[owner] = None
        else:  # its client has said a word elsewhere, and may have left before it was heard here
            owner.fresh = False
            client.used[owner] = self._used[owner] = None
        self._measure(client)
        return owner

    def room_beside(self, visitor: Visitor) -> bool:
        """Whether one more conversation may begin that is none of these."""
        return self._has_room(self._client_of(visitor), 0)

    def _client_of(self, visitor: Visitor) -> Client:
        key = (visitor.principal, place_of(visitor.address))
        return self._clients.get(key) or Client(key)

    @property
    def most(self) -> int:
        return self._most() or MOST

    def _has_room(self, client: Client, weight: int) -> bool:
        """For one more; another one goes for it if need be."""
        for _ in range(LOOKS):
            if len(self._open) + self._beside() < self.most and self._weight + weight <= MOST_WEIGHT:
                return True
            if not self._make_room(client):
                break
        return False

    def find(self, id: str, visitor: Visitor) -> HttpSession | None:
        """The session of that id, if it is this visitor's; it is in use from now on."""
        owner = self._open.get(id)
        if owner is None or not visitor.owns(owner.visitor):
            return None
        if owner.visitor.badge is not visitor.badge:
            owner.visitor = visitor  # they showed another token since: the session is as good as that
        owner.seen = now = self._loop.time()
        if owner.fresh:
            owner.fresh = False
            del self._fresh[owner], owner.client.fresh[owner]
            self._used[owner] = owner.client.used[owner] = None
        elif now - owner.moved > SETTLED:
            self._move(owner, now)
        return owner

    def _move(self, owner: HttpSession, now: float) -> None:
        owner.seen = owner.moved = now
        self._used.move_to_end(owner)
        owner.client.used.move_to_end(owner)

    def end(self, owner: HttpSession) -> None:
        if self._open.pop(owner.session.id, None) is None:
            return
        client = owner.client
        for queue in (self._fresh, self._used, client.fresh, client.used):
            queue.pop(owner, None)
        self._weight -= owner.weight
        self._measure(client)
        if not client.holds:
            self._clients.pop(client.key, None)
        owner.end()
        self._on_end(owner)

    def end_if_idle(self, owner: HttpSession) -> None:
        now = self._loop.time()
        if owner.busy:
            owner.seen = now
        elif now - owner.seen > (min(UNUSED, IDLE) if owner.fresh else IDLE):
            self.end(owner)

    def _measure(self, client: Client) -> None:
        if client.holds > self.most // SHARE:
            self._large.add(client)
        else:
            self._large.discard(client)

    def _make_room(self, client: Client) -> bool:
        """End the session that is missed least; whether there was one."""
        largest = max(self._large, key=lambda large: large.holds, default=client)
        large = client in self._large
        for queue in (
            client.fresh,
            *([client.used] if large else ()),
            self._fresh,
            client.used,
            largest.used,
            self._used,
        ):
            if (idle := self._idle(queue)) is not None:
                self.end(idle)
                return True
        return False

    def _idle(self, queue: Queue) -> HttpSession | None:
        """The one that was not used for longest; those that are busy are in use."""
        now = self._loop.time()
        for _ in range(min(LOOKS, len(queue))):
            owner = next(iter(queue))
            if not owner.busy:
                return owner
            self._move(owner, now)
        return None
