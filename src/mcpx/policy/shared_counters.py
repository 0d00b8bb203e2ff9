"""Counters of limits that several replicas share: counted in the store, kept here only as far as
they are this one's.

Promised: exact over all replicas while the store is there. What this replica has to say goes to the
store in rounds, one after the other: places that are given back, calls that want in, lines that are
looked at. A call that is limited costs one request, shared with all that come while the round
before is under way; giving back is waited for by nobody. Whoever stands in line here is in turn as
ever (`counters`); between replicas the store gives places in turn.

A replica that does not know what the store has of it begins a new term (`tallies`) with what it has
itself: after the store was away, flushed or restarted, after it counted as gone, and after a
reload. While the store is away each replica counts for itself, going on from what it last heard, or
lets nobody in (`closed`).

Not promised: exactness over such a moment. What passed at several replicas without the store is
added up afterwards.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Awaitable, Hashable, Sequence
from typing import Any, Final, cast

from mcpx.base.aio import Tasks
from mcpx.policy.counters import Bound, Counters
from mcpx.policy.shared_counter import Ask, SharedCounter
from mcpx.policy.tallies import (
    DISPLACES,
    END_TERM,
    FULL,
    FULL_BY_NOW,
    KEPT,
    PASSES,
    ROUND,
    TELL_ANEW,
    TERMS_KEPT,
    WAITS,
)
from mcpx.replicas.members import GONE
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import StoreDown
from mcpx.wire import codec

log = logging.getLogger(__name__)

LOOK: Final = 0.25
"""Seconds between looks at the lines in which calls of this replica wait, should news be missed."""
CHECKED: Final = 1.0
"""Seconds after which the store hears of this replica, and this one whether its term still counts,
while it has something there; far less than `GONE`."""
TOUCHED: Final = 60.0
"""Seconds between touches of what this replica has; less than `KEPT`."""
CALLS: Final = 256
ROWS: Final = 256
"""Calls, and counters for other reasons, of one round: the store does nothing else meanwhile."""
TOLD: Final = 1_024
"""Counters that are told anew in one go."""
TROUBLE: Final = 1.0
"""Seconds for which a store is let alone that is there and does not do what it is asked."""
NEWS: Final = "places"


class _Owed:
    """What the store does not know yet."""

    __slots__ = ("left", "places", "unmade")

    def __init__(self) -> None:
        self.places = 0
        """Given back."""
        self.left = 0
        """Calls that wait no more, and were not given a place."""
        self.unmade = 0
        """Calls that were counted as one of a minute's, and were refused after all."""


NOTHING: Final = _Owed()


class SharedCounters(Counters):
    def __init__(self, replicas: Replicas) -> None:
        super().__init__()
        self.closed = False
        """Nobody is let in while the store is away."""
        self.lined: dict[str, SharedCounter] = {}
        """In which calls of this replica wait, or did until just now."""
        self._replicas = replicas
        self._store = replicas.store
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks("shared limits")
        self._term = 0
        self._told = False
        """Whether the store knows, under this term, what this replica has."""
        self._asks: deque[Ask] = deque()
        self._due: dict[str, SharedCounter] = {}
        """To be looked at in one of the next rounds."""
        self._owed: dict[str, _Owed] = {}
        self._working = False
        self._tick: asyncio.TimerHandle | None = None
        self._heard_at = self._touched_at = 0.0
        self._trouble_until = 0.0
        self._store.on_return(self._returned)
        self._store.hear(NEWS, self._news)
        self._tasks.start(self._join(), apart=True)

    async def _join(self) -> None:
        await self._replicas.joined.wait()
        self._tell_anew()

    async def _returned(self, fresh: bool) -> None:
        self._tell_anew()

    async def close(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        await self._tasks.close()
        self._count_alone()
        self._store.run_later(END_TERM, self._keys([]), [self._replicas.id, self._term])

    @property
    def counting(self) -> bool:
        """Over all replicas; else each counts for itself."""
        if not self._store.up or not self._replicas.joined.is_set() or self._tasks.closed:
            return False
        return not self._trouble_until or self._loop.time() > self._trouble_until

    @property
    def alone(self) -> bool:
        return not self.closed and not self.counting

    def _made(self, kind: str, whose: Hashable, bound: Bound) -> SharedCounter:
        name = (
            whose
            if isinstance(whose, str)
            else hashlib.sha256(repr(whose).encode()).hexdigest()[:32]
        )
        return SharedCounter(bound, self._store.key("limits", kind, name), self)

    def take_up(self, client: Bound, profiles: dict[str, Bound], servers: dict[str, Bound]) -> None:
        super().take_up(client, profiles, servers)
        self._tell_anew()  # whether places are counted may have become another matter

    # What others want
    # ----------------------------------------------------------------------------------------

    def enter(self, ask: Ask) -> Awaitable[list[int]]:
        """What becomes of a call, as `tallies` says it; its places are taken then. Raises
        `StoreDown`."""
        ask.answer = self._loop.create_future()
        self._asks.append(ask)
        self._soon()
        return ask.answer

    def owe(
        self, counter: SharedCounter, *, places: int = 0, left: int = 0, unmade: int = 0
    ) -> None:
        """Told to the store in the next round. What it does not know of a replica that begins a new
        term is no matter."""
        if self.counting:
            owed = self._owed.get(counter.key)
            if owed is None:
                owed = self._owed[counter.key] = _Owed()
            owed.places += places
            owed.left += left
            owed.unmade += unmade
            self._due[counter.key] = counter
            self._soon()

    def waits_in(self, counter: SharedCounter) -> None:
        """One more call stands in line there."""
        self.lined[counter.key] = counter
        self._look_later()

    def unspend(self, ask: Ask) -> None:
        """It is refused after all: a call that was not made."""
        for counter in ask.spent:
            counter.spend(-1)
            self.owe(counter, unmade=1)
        ask.spent = []

    def _tell_anew(self) -> None:
        self._told = False
        self._soon()

    def _news(self, data: bytes) -> None:
        """Places were given to those who wait."""
        mine = self._replicas.id
        for line in data.decode(errors="replace").split("\n"):
            id, _, key = line.partition(" ")
            if id == mine and (counter := self.lined.get(key)) is not None:
                self._due[key] = counter
        if self._due:
            self._soon()

    # Rounds
    # ----------------------------------------------------------------------------------------------

    def _soon(self) -> None:
        if not self._working and self.counting:
            self._working = True
            self._tasks.start(self._work(), apart=True)

    async def _work(self) -> None:
        try:
            while self.counting and (self._asks or self._due or not self._told):
                failures = self._store.failures
                try:
                    await (self._round() if self._told else self._begin_term())
                except StoreDown:
                    self._told = False
                    if (
                        failures == self._store.failures
                    ):  # it is there, and does not do what it is asked
                        self._trouble_until = self._loop.time() + TROUBLE
        except Exception:
            self._trouble_until = self._loop.time() + TROUBLE
            raise
        finally:
            self._working = False
            if not self.counting:
                self._count_alone()
            self._look_later()

    async def _begin_term(self) -> None:
        self._term += 1
        self._told = True
        for owed in self._owed.values():
            owed.places = owed.left = 0
        now = self.clock()
        rows = self._all_there_is(now)
        parts = [rows[start : start + TOLD] for start in range(0, len(rows) or 1, TOLD)]
        asked: list[asyncio.Future[Any]] = []
        for part in parts:
            told = codec.dump([row for _, row in part])
            arguments = [self._replicas.id, self._term, TERMS_KEPT, KEPT, told]
            asked.append(
                self._store.run(TELL_ANEW, self._keys([counter for counter, _ in part]), arguments)
            )
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for part, answer in zip(parts, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            if answer is None:
                self._told = False  # the store knows of a later term: so will be one of the next
                return
            for (counter, _), spent in zip(part, answer, strict=True):
                counter.hear(float(spent), now)
        self._heard_at = self._touched_at = now

    def _all_there_is(self, now: float) -> list[tuple[SharedCounter, list[float]]]:
        """What the store is told when a term begins. First what a term is about: before all of that
        has arrived others may think that there are places."""
        places: list[tuple[SharedCounter, list[float]]] = []
        rates: list[tuple[SharedCounter, list[float]]] = []
        for _, each in self.all():
            counter = cast(SharedCounter, each)
            bound = counter.bound
            heard, since = counter.unheard(now)
            running = 0 if bound.in_flight is None else counter.running
            row = (counter, [bound.per_minute or 0, heard, since, running, counter.waiting])
            if running or counter.waiting:
                places.append(row)
            elif heard or since:
                rates.append(row)
            if counter.waiting:
                self._due[counter.key] = counter
        return places + rates

    def _keys(self, counters: Sequence[SharedCounter]) -> list[str]:
        terms, heard = self._store.key("limits", "terms"), self._store.key("limits", "heard")
        return [terms, heard, *(each.key for each in counters)]

    async def _round(self) -> None:
        asks, rows, calls = self._taken_asks()
        for key in list(self._due)[:ROWS]:
            counter = self._due.pop(key)
            if key not in rows:
                rows[key] = (len(rows) + 1, counter)
        counters = [counter for _, counter in rows.values()]
        owes = [self._owed.pop(counter.key, NOTHING) for counter in counters]
        told: list[list[int]] = []
        for counter, owed in zip(counters, owes, strict=True):
            self._due.pop(counter.key, None)
            bound = counter.bound
            most, rate = -1 if bound.in_flight is None else bound.in_flight, bound.per_minute or 0
            told.append([most, rate, bound.room, owed.places, owed.left, owed.unmade])
        arguments = [self._replicas.id, self._term, GONE, KEPT, TERMS_KEPT]
        problem = StoreDown("the gateway is ending")
        try:
            asked = codec.dump({"counters": told, "calls": calls})
            answer = await self._store.run(ROUND, self._keys(counters), [*arguments, asked])
            if answer is None:  # it was flushed, or thinks that we are gone
                self._told = False
                self._asks.extendleft(reversed(asks))
                asks = []
                for counter, owed in zip(counters, owes, strict=True):
                    self.owe(counter, unmade=owed.unmade)
            else:
                self._take_up_round(asks, counters, answer)
        except StoreDown as error:
            problem = error
            raise
        finally:
            for ask in asks:
                _fail_ask(ask, problem)

    def _take_up_round(self, asks: list[Ask], counters: list[SharedCounter], answer: Any) -> None:
        now = self._heard_at = self.clock()
        for ask, said in zip(asks, answer[0], strict=True):
            self._answered(ask, said)
        for counter, (given, spent) in zip(counters, answer[1], strict=True):
            counter.hear(float(spent), now)
            if given and (over := counter.admit(given)):
                # Of those who left meanwhile: the store has let them out of its line when it gave
                # them the places.
                self.owe(counter, places=over, left=-over)
        if answer[2]:
            self._tell_others(counters, answer[2])

    def _taken_asks(
        self,
    ) -> "tuple[list[Ask], dict[str, tuple[int, SharedCounter]], list[list[int]]]":
        """The calls of a round, the counters that they meet, by their number, and how it is put to
        the store."""
        asks: list[Ask] = []
        calls: list[list[int]] = []
        rows: dict[str, tuple[int, SharedCounter]] = {}
        now = self._loop.time()
        while self._asks and len(asks) < CALLS:
            ask = self._asks.popleft()
            assert ask.answer is not None
            if ask.answer.done():
                continue
            if ask.until < now:
                ask.answer.set_exception(TimeoutError())
                continue
            call = [ask.held + 1, 0 if ask.counted else 1]
            for counter in ask.met:
                row = rows.get(counter.key)
                if row is None:
                    row = rows[counter.key] = (len(rows) + 1, counter)
                call += (row[0], int(counter.may_displace(ask.who)))
            asks.append(ask)
            calls.append(call)
        return asks, rows, calls

    def _answered(self, ask: Ask, said: list[int]) -> None:
        """The call has what the store says, or gives it back if nobody waits for it any more."""
        kind, number = said[0], said[1]
        refused = kind not in (PASSES, WAITS, DISPLACES, FULL_BY_NOW)
        held = ask.held if refused else len(ask.met) if kind == PASSES else number - 1
        taken = ask.met[ask.held : held]
        assert ask.answer is not None
        if ask.answer.done():
            for counter in taken:
                if counter.bound.in_flight is not None:
                    self.owe(counter, places=1)
            if kind == WAITS:
                self.owe(ask.met[held], left=1)
            return
        for counter in taken:
            counter.running += 1
        ask.held = held
        if not refused and not ask.counted:
            ask.count()
        if kind in (WAITS, DISPLACES):
            counter = ask.met[held]
            ask.turn = counter.line_up(ask.who, displacing=kind == DISPLACES)
            if ask.turn is None:
                said = [FULL, number, counter.running, counter.waiting]
            counter.let_in()  # its limit may have gone meanwhile
        ask.answer.set_result(said)

    def _tell_others(self, counters: list[SharedCounter], given: list[bytes]) -> None:
        lines: list[str] = []
        for each in given:
            id, _, number = each.decode().partition(" ")
            lines.append(f"{id} {counters[int(number) - 1].key}")
        self._store.tell(NEWS, "\n".join(dict.fromkeys(lines)).encode())

    # The store is away
    # ---------------------------------------------------------------------------------------

    def _count_alone(self) -> None:
        """Until the store is back and a new term has begun."""
        self._told = False
        self._due.clear()
        self._owed.clear()
        down = StoreDown(self._store.problem)
        while self._asks:
            _fail_ask(self._asks.popleft(), down)
        for counter in list(self.lined.values()):
            if self.closed:
                counter.send_away(down)
            else:
                counter.let_in()

    def _look_later(self) -> None:
        if self._tick is None and not self._tasks.closed:
            self._tick = self._loop.call_later(LOOK, self._look)

    def _look(self) -> None:
        """A few times a second, while calls of this replica run or wait."""
        self._tick = None
        for key, counter in list(self.lined.items()):
            if not counter.waiting:
                del self.lined[key]
        if self.counting:
            self._due |= self.lined
            self._due |= self._neglected()
            if self._due or not self._told:
                self._soon()
        elif not self._working:
            self._count_alone()
        if not self._working and (self.lined or any(each.running for _, each in self.all())):
            self._look_later()

    def _neglected(self) -> dict[str, SharedCounter]:
        """What this replica has in the store and has not touched for long; one of them, to see
        whether the store still knows of any."""
        now = self.clock()
        touch = now - self._touched_at > TOUCHED
        if not touch and now - self._heard_at < CHECKED:
            return {}
        every = (cast(SharedCounter, each) for _, each in self.all())
        held = {
            each.key: each for each in every if each.running and each.bound.in_flight is not None
        }
        if touch:
            self._touched_at = now
            return held
        return dict(list(held.items())[:1])


def _fail_ask(ask: Ask, error: Exception) -> None:
    if ask.answer is not None and not ask.answer.done():
        ask.answer.set_exception(error)
