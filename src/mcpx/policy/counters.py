"""What of limits is counted: how many calls run, wait, and were made lately. It outlives a reload.

Promise: exact, however many calls come at once, for nothing here waits between looking and
counting. Places are given in turn: to each client in the order in which its calls came, and to one
client after the other, so that who sends most does not wait least. Where the queue is full, one who
has fewer calls in it takes the last place of who has most. The number of counters is bounded: those
of clients that do nothing go.

Calls a minute: what was made leaks away evenly, so that after a pause as many as a minute allows
may come at once, and from then on one each `60 / per_minute` seconds.

No promise: deciding which limits a call meets, and in which words it is refused (`limits`).
"""

import asyncio
import time
from collections import Counter as Tally
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final

MOST_CLIENTS: Final = 4096
"""Clients that are counted; the next one takes the place of one that does nothing."""
LOOKS: Final = 16
"""Counters looked at for one that may go, at each newcomer."""
LEAST_QUEUE: Final = 20
"""Calls that may wait if nothing is said: as many as run at a time, and those of one turn at
least."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One `limits` section of the configuration of now."""

    kind: str = ""
    """What is counted by it: `client`, `profile`, `server`."""
    path: str = ""
    """Where it stands."""
    whose: str = ""
    """What it counts, in words: `this client`."""
    status: int = 429
    """Of HTTP, for who is refused."""
    in_flight: int | None = None
    per_minute: int | None = None
    queue: int | None = None

    @property
    def room(self) -> int:
        """Calls that may wait."""
        return max(LEAST_QUEUE, self.in_flight or 0) if self.queue is None else self.queue


NO_BOUND: Final = Bound()


class Displaced(Exception):
    """Somebody with fewer calls in the queue has taken the place."""


class Counter:
    """What one client, profile or server uses at the moment."""

    __slots__ = ("_lines", "at", "bound", "coming", "running", "spent", "waiting")

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.running: int = 0
        self.waiting: int = 0
        self.coming = 0
        """Calls that are not let through at once, whatever they wait for."""
        self.spent: float = 0.0
        """Calls of the last minute, as far as they have not leaked away."""
        self.at: float = 0.0
        """When that was so."""
        self._lines: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        """Who waits, by client; the first is next."""

    def idle(self, now: float) -> bool:
        rate = self.bound.per_minute
        unused = not self.running and not self.coming
        return unused and (rate is None or self.spent * 60 <= (now - self.at) * rate)

    def enter(self, now: float) -> bool:
        """Whether one more call passes at once; it is counted then."""
        bound = self.bound
        most, rate = bound.in_flight, bound.per_minute
        if most is not None and (self.running >= most or self.waiting):
            return False
        if rate is not None:
            left = self.spent - (now - self.at) * rate / 60
            if left < 0:
                left = 0.0
            passes = left + 1 <= rate
            self.spent, self.at = (left + 1 if passes else left), now
            if not passes:
                return False
        self.running += 1
        return True

    def take_back(self) -> None:
        """What has just entered does not pass, for another one does not let it: nothing of it is
        counted."""
        self.running -= 1
        self.spend(-1)

    # Calls a minute
    # ------------------------------------------------------------------------------------------

    def wait_for_rate(self, now: float) -> float:
        """Seconds until one more call is within the rate; 0: now."""
        rate = self.bound.per_minute
        if rate is None:
            return 0.0
        left = self.spent - (now - self.at) * rate / 60
        self.spent, self.at = (left if left > 0 else 0.0), now
        return max(0.0, (self.spent + 1 - rate) * 60 / rate)

    def spend(self, calls: int) -> None:
        """So many are made; or were not made after all."""
        if self.bound.per_minute is not None:
            self.spent = max(0.0, self.spent + calls)

    # Calls at a time
    # -----------------------------------------------------------------------------------------

    def has_room(self, who: Hashable) -> bool:
        """Whether one more call of that client may run or wait."""
        most = self.bound.in_flight
        if most is None or self.running < most or self.waiting < self.bound.room:
            return True
        return self._longest(who) is not None

    def take(self) -> bool:
        """A place, if one is free; nobody overtakes who waits."""
        most = self.bound.in_flight
        if most is not None and (self.running >= most or self.waiting):
            return False
        self.running += 1
        return True

    def line_up(self, who: Hashable, *, displacing: bool) -> "asyncio.Future[None] | None":
        """A turn to wait for. None: whose place it was to take is not there any more."""
        if displacing:
            if (longest := self._longest(who)) is None:
                return None
            last = self._lines[longest][-1]
            self._remove(longest, last)
            if not last.done():
                last.set_exception(Displaced())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(who, deque()).append(turn)
        self.waiting += 1
        return turn

    async def wait(self, who: Hashable) -> None:
        """For a place: there must be room. Raises `Displaced`. Whoever leaves meanwhile has no
        place."""
        crowded = self.waiting >= self.bound.room
        turn = self.line_up(who, displacing=crowded and self._longest(who) is not None)
        assert turn is not None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._remove(who, turn)
            elif turn.exception() is None:  # it came just then
                self.leave()
            raise

    def leave(self) -> None:
        """Give the place back."""
        self.running -= 1
        if self.waiting:
            self.let_in()

    def let_in(self) -> None:
        """Those whose turn it is."""
        most = self.bound.in_flight
        while self._lines and (most is None or self.running < most):
            turn = self._next()
            if (
                not turn.done()
            ):  # else it was cancelled in this very turn of the loop, and is on its way out
                turn.set_result(None)
                self.running += 1

    def _next(self) -> "asyncio.Future[None]":
        """Whose turn it is, and stands in line no more; after it one of another client's, if any
        wait."""
        who, line = next(iter(self._lines.items()))
        turn = line[0]
        self._remove(who, turn)
        if who in self._lines:
            self._lines.move_to_end(who)
        return turn

    def _remove(self, who: Hashable, turn: "asyncio.Future[None]") -> bool:
        """Whether it was still in line."""
        line = self._lines.get(who)
        if line is None or turn not in line:
            return False
        line.remove(turn)
        self.waiting -= 1
        if not line:
            del self._lines[who]
        return True

    def _longest(self, who: Hashable) -> Hashable | None:
        """The client that has more calls waiting than that one would have."""
        longest = max(self._lines, key=lambda each: len(self._lines[each]), default=None)
        mine = len(self._lines.get(who, ()))
        return longest if longest is not None and len(self._lines[longest]) > mine + 1 else None


class Counters:
    """All of a gateway."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.clients: OrderedDict[Hashable, Counter] = OrderedDict()
        self._client_bound = NO_BOUND
        self.profiles: dict[str, Counter] = {}
        self.servers: dict[str, Counter] = {}
        self.edition = 0
        """Another one when a counter has gone or come that was or was not there before."""
        self.refused: Tally[str] = Tally()
        """Calls that were refused, by limit: `server.in_flight`."""

    def all(self) -> Iterator[tuple[str, Counter]]:
        for kind, group in (
            ("client", self.clients),
            ("profile", self.profiles),
            ("server", self.servers),
        ):
            for counter in group.values():
                yield kind, counter

    def depth(self) -> dict[str, int]:
        """Calls that wait for their turn, by kind of limit."""
        told: dict[str, int] = {"client": 0, "profile": 0, "server": 0}
        for kind, counter in self.all():
            told[kind] += counter.waiting
        return told

    def client(self, who: Hashable) -> Counter | None:
        """That of a client; None: there are too many, and all of them are in use."""
        counter = self.clients.get(who)
        if counter is None:
            if len(self.clients) >= MOST_CLIENTS and not self._make_room():
                return None
            counter = self.clients[who] = self._made("client", who, self._client_bound)
        return counter

    def _made(self, kind: str, whose: Hashable, bound: Bound) -> Counter:
        return Counter(bound)

    def _make_room(self) -> bool:
        """One that does nothing goes, with what it has made of its minute if need be; never one
        that has calls."""
        now = self.clock()
        for spare in (False, True):
            for _ in range(min(LOOKS, len(self.clients))):
                who, counter = next(iter(self.clients.items()))
                if counter.idle(now) or (spare and not counter.running and not counter.coming):
                    del self.clients[who]
                    self.edition += 1
                    return True
                self.clients.move_to_end(who)
        return False

    def take_up(self, client: Bound, profiles: dict[str, Bound], servers: dict[str, Bound]) -> None:
        """The limits of another configuration, at once: what is counted stays, who may come in now
        comes in."""
        self.edition += 1
        groups = (("profile", self.profiles, profiles), ("server", self.servers, servers))
        for kind, group, bounds in groups:
            now = self.clock()
            for name in [
                name for name, each in group.items() if name not in bounds and each.idle(now)
            ]:
                del group[name]
            for name in bounds.keys() - group.keys():
                group[name] = self._made(kind, name, bounds[name])
            for name, counter in group.items():
                counter.bound = bounds.get(name, NO_BOUND)
        self._client_bound = client
        for counter in self.clients.values():
            counter.bound = client
        for _, counter in self.all():
            counter.let_in()
