"""Counts the calls of clients, profiles, and servers. Counters outlive a reload.

`limits` decides which counters a call meets, and how it is refused.
"""

import time
from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from mcpx.base.aio import FairQueue, TokenBucket

MAX_CLIENTS: Final = 4096
EVICTION_ATTEMPTS: Final = 16
"""Counters of clients that are checked for eviction when a new client comes."""
DEFAULT_QUEUE: Final = 20
"""Calls that may wait if `queue` is not set and `in_flight` is not larger."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Bound:
    """One `limits` section of the configuration."""

    kind: str = ""
    """`client`, `profile`, or `server`."""
    path: str = ""
    """Path of the section in the configuration."""
    subject: str = ""
    """Whose calls are limited, for messages: `this client`."""
    status: int = 429
    """HTTP status of a refusal."""
    in_flight: int | None = None
    per_minute: int | None = None
    queue: int | None = None

    @property
    def max_waiting(self) -> int:
        if self.queue is not None:
            return self.queue
        return max(DEFAULT_QUEUE, self.in_flight or 0)


NO_BOUND: Final = Bound()


class Counter(FairQueue):
    """Calls of one client, profile, or server.

    After a pause, `per_minute` calls may come at once, and then one each `60 / per_minute` seconds.
    """

    def __init__(self, kind: str, name: Hashable, clock: Clock) -> None:
        super().__init__(inf, 0)
        self.kind = kind
        self.name = name
        self.bound = NO_BOUND
        self.pending = 0
        """Calls that did not pass at once, and have not ended."""
        self._clock = clock
        self._bucket: TokenBucket | None = None

    def rebind(self, bound: Bound) -> None:
        """Apply a new bound. The counts do not change, and calls that now may run are admitted."""
        if bound.per_minute is not None:
            spent = self.spent
            self._bucket = TokenBucket(bound.per_minute, bound.per_minute / 60, self._clock)
            self._bucket.take(min(spent, bound.per_minute))
        self.bound = bound
        self.slots = inf
        if bound.in_flight is not None:
            self.slots = bound.in_flight
        self.max_waiting = bound.max_waiting
        self.admit()

    @property
    def spent(self) -> float:
        """Calls of the last minute that still count."""
        if self._bucket is None:
            return 0.0
        return self._bucket.burst - self._bucket.tokens

    @property
    def total_running(self) -> int:
        return self.running

    @property
    def queued(self) -> int:
        return self.waiting

    @property
    def is_idle(self) -> bool:
        return not self.is_busy and (self.bound.per_minute is None or not self.spent)

    @property
    def is_busy(self) -> bool:
        return bool(self.running or self.pending)

    def try_pass(self) -> bool:
        """Count one more call and return True if it passes at once."""
        if self.running >= self.slots or self.waiting:
            return False
        bucket = self._bucket
        if self.bound.per_minute is not None and bucket is not None and not bucket.take():
            return False
        self.running += 1
        return True

    def undo_pass(self) -> None:
        """Another counter refused the call."""
        self.running -= 1
        self.refund()

    def seconds_until_rate_allows(self) -> float:
        if self.bound.per_minute is None or self._bucket is None:
            return 0.0
        return self._bucket.seconds_until()

    def spend(self) -> None:
        if self.bound.per_minute is not None and self._bucket is not None:
            self._bucket.take_up_to(1)

    def refund(self) -> None:
        """Give back the rate of a call that was not made."""
        if self.bound.per_minute is not None and self._bucket is not None:
            self._bucket.give_back()


class Counters:
    """All counters of a gateway."""

    def __init__(
        self,
        clock: Clock = time.monotonic,
        make: Callable[[str, Hashable, Clock], Counter] = Counter,
    ) -> None:
        self._clock = clock
        self._make = make
        self.clients: OrderedDict[Hashable, Counter] = OrderedDict()
        self.profiles: dict[str, Counter] = {}
        self.servers: dict[str, Counter] = {}
        self._client_bound = NO_BOUND
        self.edition = 0
        """Changes when a counter is added or removed."""
        self.refused: Tally[str] = Tally()
        """Refused calls, by limit: `server.in_flight`."""

    def all(self) -> Iterator[Counter]:
        for group in (self.clients, self.profiles, self.servers):
            yield from group.values()

    def depth(self) -> dict[str, int]:
        """Calls that wait, by kind of limit."""
        depth = {"client": 0, "profile": 0, "server": 0}
        for counter in self.all():
            depth[counter.kind] += counter.queued
        return depth

    def client(self, name: Hashable) -> Counter | None:
        """Return the counter of a client, or None if there are too many busy clients."""
        counter = self.clients.get(name)
        if counter is None:
            if len(self.clients) >= MAX_CLIENTS and not self._evict_client():
                return None
            counter = self.clients[name] = self._made("client", name, self._client_bound)
        return counter

    def _made(self, kind: str, name: Hashable, bound: Bound) -> Counter:
        counter = self._make(kind, name, self._clock)
        counter.rebind(bound)
        return counter

    def _evict_client(self) -> bool:
        """Prefer idle clients to those that have spent some of their rate. Skip busy ones."""
        for only_idle in (True, False):
            for _ in range(min(EVICTION_ATTEMPTS, len(self.clients))):
                name, counter = next(iter(self.clients.items()))
                if counter.is_idle or not (only_idle or counter.is_busy):
                    del self.clients[name]
                    self.edition += 1
                    return True
                self.clients.move_to_end(name)
        return False

    def rebind(self, client: Bound, profiles: dict[str, Bound], servers: dict[str, Bound]) -> None:
        """Apply the limits of another configuration."""
        self.edition += 1
        self._client_bound = client
        for counter in self.clients.values():
            counter.rebind(client)
        self._rebind_group("profile", self.profiles, profiles)
        self._rebind_group("server", self.servers, servers)

    def _rebind_group(self, kind: str, group: dict[str, Counter], bounds: dict[str, Bound]) -> None:
        for name, counter in list(group.items()):
            if name not in bounds and counter.is_idle:
                del group[name]
            else:
                counter.rebind(bounds.get(name, NO_BOUND))
        for name in bounds.keys() - group.keys():
            group[name] = self._made(kind, name, bounds[name])
