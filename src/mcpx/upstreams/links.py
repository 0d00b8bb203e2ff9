"""Which connection a call goes over, and how many there are.

The rule behind it all: a question of an older server must have exactly one possible addressee
(decision 0004). What it costs is kept to what is needed; one connection (with stdio: one process) a
server is the aim. Who needs which link is said in `wishes`; here they are opened, lent and let go.

`main` is the link the catalog is read from. A link nobody uses any more makes way when another is
opened. All of it stays within `max_links`: then the link that was idle longest goes, and if none is
idle a call waits its turn.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from mcpx.base.aio import Tasks
from mcpx.config import Server
from mcpx.model.call import QUESTION_CAPABILITIES, Call, Caller, Json
from mcpx.model.errors import OVERLOADED, SERVER_DOWN, RpcError, Unavailable
from mcpx.upstreams.dialling import Dialler
from mcpx.upstreams.lease import Lease, client_of
from mcpx.upstreams.link import Link
from mcpx.upstreams.negotiate import Era, is_refusal
from mcpx.upstreams.owner import Owner
from mcpx.upstreams.traits import NOBODY, Traits
from mcpx.upstreams.wishes import Wish, Wishes

if TYPE_CHECKING:
    from mcpx.upstreams.bridges import Parked

log = logging.getLogger(__name__)

QUESTIONED = frozenset(QUESTION_CAPABILITIES)

PATIENCE = 0.1
"""Seconds without a turn after which a client that waits for a lent link has another one opened."""
LASTING = 10
"""So many times as long as others a link is kept that a session must not lose: not every client
says when it goes."""
OPENINGS_OF_ONE = 2
OPENINGS = 4
"""Links that are opened at a time: for callers of one kind, and in all."""
MOST_WAITING = 1_000
"""Calls that wait for a link; more are refused at once."""
TURNS = 256
"""Kinds of callers of which is known when they last had a turn."""


class _Waiter:
    """A call that waits for a link."""

    __slots__ = ("call", "client", "future", "parked", "since", "wish")

    def __init__(
        self, call: Call, client: object, parked: "Parked | None", wish: Wish, now: float
    ) -> None:
        self.call = call
        self.client = client
        self.parked = parked
        self.wish = wish
        self.since = now
        self.future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()


class Links:
    def __init__(
        self, server: Server, owner: Owner, dialler: Dialler, tasks: Tasks, traits: Traits
    ) -> None:
        self.main: Link | None = None
        self._server = server
        self._owner = owner
        self._dialler = dialler
        self._tasks = tasks
        self._traits = traits
        self._open: list[Link] = []
        self._openings: dict[asyncio.Task[None], Wish] = {}
        self._waiters: list[_Waiter] = []
        self._turns: dict[Wish, float] = {}
        """When a lent link last changed hands: while it does, nobody needs another."""
        self._wishes = Wishes(server, traits)
        self._closing: set[asyncio.Task[None]] = set()
        """Links on their way out. Nothing but their own end stops them: a process may hang on
        each."""
        self._over: str | None = None
        self._pressing: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    def __iter__(self):
        return iter(tuple(self._open))

    @property
    def opening(self) -> bool:
        return bool(self._openings)

    # Choosing
    # ----------------------------------------------------------------------------------------------

    def take_now(self, call: Call, parked: "Parked | None" = None) -> Lease | None:
        """A lease on a link that is open and free: the way almost every call goes."""
        caller = call.caller
        main = self.main
        if (
            main is not None
            and main.alive
            and self._server.isolation == "shared"
            and main.owner is None
        ):
            # Without a look at anything else where everybody may have the main link.
            own_era = main.modern == caller.modern or self._bridged(caller)
            if own_era and (
                main.modern or caller.solo or (not main.needs.kind and not caller.answers)
            ):
                return Lease(main, call, client_of(caller), parked)
        return self._take(call, client_of(caller), parked, self._wishes.of(caller))

    def _bridged(self, caller: Caller) -> bool:
        return (self._wishes.era_for(caller) == "modern") is not caller.modern

    def _take(
        self, call: Call, client: object, parked: "Parked | None", wish: Wish
    ) -> Lease | None:
        best: Link | None = None
        for link in self._open:
            if self._wishes.suits(link, wish, client) and self._wishes.is_free(link, wish, client):
                if link.owner is not None or link.needs == wish.needs:
                    return Lease(link, call, client, parked)
                best = best or link
        return None if best is None else Lease(best, call, client, parked)

    async def take(self, call: Call, parked: "Parked | None" = None) -> Lease:
        """A lease, for which a link is opened or waited for if need be."""
        if self._over is not None:
            raise Unavailable(self._server.name, SERVER_DOWN, self._over)
        caller, client = call.caller, client_of(call.caller)
        wish = self._wishes.of(caller)
        if (lease := self._take(call, client, parked, wish)) is not None:
            return lease
        if len(self._waiters) >= MOST_WAITING:
            raise Unavailable(
                self._server.name,
                OVERLOADED,
                f"{MOST_WAITING:,} calls wait for a connection already",
            )
        waiter = _Waiter(call, client, parked, wish, asyncio.get_running_loop().time())
        self._waiters.append(waiter)
        self._provide()
        try:
            async with asyncio.timeout(self._server.timeout):
                return await waiter.future
        except TimeoutError:
            self._give_back(waiter)
            full = f"all {self._server.max_links} connections (max_links) are in use"
            slow = f"no connection was free within {self._server.timeout:g} s"
            raise Unavailable(
                self._server.name, OVERLOADED, full if self._is_full() else slow
            ) from None
        except asyncio.CancelledError:
            self._give_back(waiter)
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    @staticmethod
    def _give_back(waiter: _Waiter) -> None:
        """The lease may have come together with the end of the wait."""
        future = waiter.future
        if future.done() and not future.cancelled() and future.exception() is None:
            future.result().end()

    # Providing
    # ----------------------------------------------------------------------------------------------

    def _provide(self) -> None:
        """Hand out what is free to those who wait, in their order; open what is missing."""
        if self._over is not None or not self._waiters:
            return
        now = asyncio.get_running_loop().time()
        unserved: dict[Wish, list[_Waiter]] = {}
        for waiter in list(self._waiters):
            if waiter.future.done():
                continue
            if waiter.wish.use != "call":
                waiter.wish = self._wishes.of(waiter.call.caller)
            wish = waiter.wish
            lease = self._take(waiter.call, waiter.client, waiter.parked, wish)
            if lease is None:
                unserved.setdefault(wish, []).append(waiter)
            else:
                if wish.use == "lent":
                    self._note_turn(wish, now)
                waiter.future.set_result(lease)
        soonest: float | None = None
        for wish, waiting in unserved.items():
            opening = sum(1 for other in self._openings.values() if other == wish)
            if not opening and not any(self._awaits(link, wish) for link in self._open):
                self._begin(wish, waiting[0].call.caller)
                continue
            turn = self._turns.get(wish, 0.0)
            impatient = [waiter for waiter in waiting if now - max(waiter.since, turn) >= PATIENCE]
            while opening < min(len(impatient), OPENINGS_OF_ONE) and self._begin(
                wish, waiting[0].call.caller
            ):
                opening += 1
            if len(impatient) < len(waiting):
                oldest = min(
                    max(waiter.since, turn) for waiter in waiting if waiter not in impatient
                )
                soonest = min(soonest or oldest, oldest)
        if soonest is not None and self._pressing is None:
            self._pressing = asyncio.get_running_loop().call_at(soonest + PATIENCE, self._press)

    def _note_turn(self, wish: Wish, when: float) -> None:
        self._turns.pop(wish, None)
        self._turns[wish] = when
        if len(self._turns) > TURNS:
            del self._turns[next(iter(self._turns))]

    def _press(self) -> None:
        self._pressing = None
        self._provide()

    def _awaits(self, link: Link, wish: Wish) -> bool:
        """Whether a link suits such callers, and may become free for one of them."""
        return self._wishes.suits(link, wish) and not (link.ghosts and not link.leases)

    def _begin(self, wish: Wish, caller: Caller) -> bool:
        """Open a link in the background; False when there is no place for one."""
        if len(self._openings) >= OPENINGS:
            return False  # when one of them is over, this is looked at again
        self._make_way(wish)
        if self._is_full() and not self._takes_the_place_of_main(wish):
            self._drop_longest_idle()
            return False  # its place is free when it has ended, and that is looked at again
        task = self._tasks.start(self._dial(wish, caller))
        self._openings[task] = wish
        task.add_done_callback(self._dialled)
        return True

    async def _dial(self, wish: Wish, caller: Caller) -> None:
        try:
            link = await self._connect(wish, caller)
        except RpcError as error:
            self._failed(wish, error)
        else:
            self._add(link)
            if link.use == "session":
                self._owner.bound(link)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self._openings.pop(task, None)
        self._provide()
        for link in [link for link in self._open if link.use == "call" and not link.calls]:
            self.retire(link)  # whoever wanted it has gone

    def _add(self, link: Link) -> None:
        self._open.append(link)
        self._sweep_soon()

    def _unite(self) -> None:
        """Let a link that has proved itself and serves all that the main one does be the main one
        in its place.

        Not where the server asks: who cannot be asked needs one that declares nothing, and the
        lists are read there."""
        main = self.main
        if main is None or main.modern or main.leases or self._traits.asks or self._owner.varies():
            return
        haunted = bool(main.ghosts) and not self._traits.quiet
        for link in self._open:
            proved = link.use == "lent" and link.calls and not link.leases and not link.ghosts
            more = link.needs != main.needs and link.needs.covers(
                main.needs if main.needs.kind else NOBODY
            )
            if link is not main and link.alive and proved and (more or haunted):
                self.main = link
                self._traits.declares = {
                    key: link.who.capabilities[key] for key in link.needs.kind & QUESTIONED
                }
                self._owner.main_changed(link)
                if more:
                    self.retire(main)
                return

    def _failed(self, wish: Wish, error: RpcError) -> None:
        if any(self._awaits(link, wish) for link in self._open):
            # It was to be one more: those who wait go on waiting for what there is, and it is not
            # tried at once again.
            self._note_turn(wish, asyncio.get_running_loop().time() + 1.0)
            log.info(
                "[%s] one more connection could not be opened: %s", self._server.name, error.message
            )
            return
        for waiter in self._waiters:
            if waiter.wish == wish and not waiter.future.done():
                if waiter.wish.use != "call" and self._wishes.of(waiter.call.caller) != wish:
                    # the server does not speak this era after all; the next round takes the other
                    continue
                waiter.future.set_exception(error)

    # Opening
    # ----------------------------------------------------------------------------------------------

    async def first(self, solo: Caller | None) -> Link:
        """The main link, in place of the one there was. `solo` is the one client of a stdio
        front."""
        link = await self._dialler.main(solo)
        self._wishes.greeted("modern" if link.modern else "older", link.terms.refused)
        self.main, old = link, self.main
        self._open.insert(0, link)
        if old is not None:
            self.retire(old)
        return link

    async def _connect(self, wish: Wish, caller: Caller, *, exact: bool = False) -> Link:
        """One link for such callers. What the server says of the era is noted, also when it
        refuses."""
        try:
            link = await self._dialler.dial(wish, caller, self._open, exact=exact)
        except RpcError as error:
            if is_refusal(error) and self._wishes.does_not_speak(wish.era):
                log.info(
                    "[%s] speaks only the other protocol era; calls are bridged", self._server.name
                )
            raise
        self._wishes.speaks(wish.era)
        return link

    async def for_learning(self, caller: Caller, *, exact: bool) -> Link:
        """A link like those of this caller, to find out what it is offered. `learnt` ends it, or
        puts it to use."""
        wish = self._wishes.of(caller)
        for link in self._open:
            if (
                self._awaits(link, wish)
                and link.needs.kind
                and (not exact or link.needs == wish.needs)
            ):
                return link
        if self._is_full():
            raise Unavailable(self._server.name, OVERLOADED, "there is no connection to spare")
        task = asyncio.current_task()
        assert task is not None
        self._openings[task] = wish
        try:
            link = await self._connect(wish._replace(use="learning"), caller, exact=exact)
        finally:
            del self._openings[task]
        self._add(link)
        return link

    async def learnt(self, link: Link, caller: Caller, *, usable: bool) -> None:
        """The lists are read. The link stays only where somebody waits for one, or it can be the
        main one."""
        if link.use != "learning":
            return
        wish = self._wishes.of(caller)
        link.use = wish.use
        if usable and link.alive and link.owner == wish.owner:
            self._provide()
            link.calls += 1  # it has proved that it answers
            self._unite()
        if link is not self.main and not link.leases:
            self.retire(link)
        if self._closing:
            await asyncio.wait(self._closing)

    # Bounds
    # ----------------------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return len(self._open) + len(self._openings) + len(self._closing) >= self._server.max_links

    def _takes_the_place_of_main(self, wish: Wish) -> bool:
        """Whether such a link will be the main one, so that it needs no place beside it."""
        main = self.main
        alone = main is not None and self._open == [main] and not self._openings and not main.leases
        return alone and wish.use == "lent" and not self._traits.asks

    def _spare(self, link: Link) -> bool:
        """Whether nothing is lost by closing it now."""
        return (
            link is not self.main
            and link.use != "learning"
            and not link.leases
            and not link.subscribers
        )

    def _make_way(self, wish: Wish) -> None:
        """Links of clients that are gone, and such as the main one can stand in for, are not kept
        beside a new one."""
        for link in tuple(self._open):
            if (
                self._spare(link)
                and not self._awaits(link, wish)
                and (link.unused or self._is_covered(link))
            ):
                self.retire(link)

    def _is_covered(self, link: Link) -> bool:
        main = self.main
        lends = (
            main is not None
            and main.use == link.use == "lent"
            and link.owner is None
            and not self._traits.asks
        )
        return lends and main is not None and main.needs.covers(link.needs)

    def _drop_longest_idle(self) -> None:
        idle = [link for link in self._open if self._spare(link)]
        if idle and len(self._closing) < OPENINGS:
            self.retire(min(idle, key=lambda link: link.rested_at))

    def retire(self, link: Link) -> asyncio.Task[None]:
        """Let a link go, and close it whatever else happens."""
        self.forget(link)
        task = asyncio.get_running_loop().create_task(link.close())
        self._closing.add(task)
        task.add_done_callback(self._closed)
        self._owner.retired(link)
        return task

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        self._provide()

    def _sweep_soon(self) -> None:
        """Look again when the first of them has been idle for long."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        first = min(
            (self._rests_until(link) for link in self._open if link is not self.main), default=None
        )
        if first is not None:
            self._sweeping = asyncio.get_running_loop().call_at(first, self._sweep)

    def _rests_until(self, link: Link) -> float:
        now = asyncio.get_running_loop().time()
        return max(now + 0.05, (now if link.leases else link.rested_at) + self._patience_with(link))

    def _patience_with(self, link: Link) -> float:
        """Seconds it is kept without a call: longer where the server would lose what it has for a
        session."""
        return self._server.link_idle * (LASTING if link.lasting else 1)

    def _sweep(self) -> None:
        """Close what was idle for long."""
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for link in tuple(self._open):
            if self._spare(link) and now - link.rested_at >= self._patience_with(link):
                log.debug("[%s] a connection that was idle goes", self._server.name)
                self.retire(link)
        self._sweep_soon()

    def rested(self, link: Link) -> None:
        """A link carries no call any more: it may serve whoever waits, unless nobody can be lent
        it."""
        lost_for_all = None in link.ghosts and not self._traits.quiet
        if link.use == "call" or (lost_for_all and link in self._open):
            self._spoil(link)
        self._provide()
        self._unite()

    def _spoil(self, link: Link) -> None:
        """Of no use to anybody any more."""
        if link is self.main:
            self._owner.spoilt(link)
        else:
            self.retire(link)

    # Ends
    # ----------------------------------------------------------------------------------------------

    def update(self, server: Server) -> None:
        self._server = self._wishes.server = self._dialler.server = server
        for link in self._open:
            link.server = server

    def rethink(self) -> None:
        """Something was learnt about the server that changes who needs what."""
        self._wishes.rethink()

    def lends_to(self, caller: Caller) -> bool:
        """Whether this caller's calls may go over another link than the main one, call after
        call."""
        return self._wishes.of(caller).use in ("session", "lent")

    def era_for(self, caller: Caller) -> Era:
        """In which era this caller's calls reach the server."""
        return self._wishes.era_for(caller)

    def forget(self, link: Link) -> None:
        """A link that was lost or is closed serves nobody any more."""
        if link in self._open:
            self._open.remove(link)
        if link is self.main:
            self.main = None
        self._provide()

    def of_session(self, session: str) -> list[Link]:
        return [link for link in self._open if link.owner == session]

    def end_session(self, session: str) -> None:
        """Close what is private to a session, also what is only being opened."""
        self._wishes.forget(session)
        for task, wish in list(self._openings.items()):
            if wish.owner == session:
                task.cancel()
        for waiter in self._waiters:
            if waiter.call.caller.session == session and not waiter.future.done():
                waiter.future.set_exception(
                    Unavailable(self._server.name, SERVER_DOWN, "the session is over")
                )
        for link in tuple(self._open):
            link.users.discard(session)
            if link.owner == session:
                self._spoil(link)
            elif session in link.ghosts:
                link.ghosts.discard(session)
                if not self._traits.quiet:
                    link.ghosts.add(None)  # nobody is left whom the server may ask about that call
                    if not link.leases:
                        self._spoil(link)

    async def close(self, over: str | None = None) -> None:
        """Close every link. `over`: for good, and why."""
        self._over = over
        for timer in (self._pressing, self._sweeping):
            if timer is not None:
                timer.cancel()
        self._pressing = self._sweeping = None
        for waiter in self._waiters if over is not None else ():
            if not waiter.future.done():
                waiter.future.set_exception(Unavailable(self._server.name, SERVER_DOWN, over or ""))
        openings = [task for task in self._openings if task is not asyncio.current_task()]
        for task in openings:
            task.cancel()
        if openings:
            await asyncio.wait(openings)
        for link in tuple(self._open):
            self.retire(link)
        while self._closing:
            await asyncio.wait(self._closing)

    def describe(self) -> list[Json]:
        """Every link, for people: who has it, and why it is there."""
        now = asyncio.get_running_loop().time()
        return [
            {
                "use": link.use,
                "why": "it serves everybody" if link.use == "shared" else link.why,
                "version": link.terms.version,
                "calls": len(link.leases),
                "idle_s": None if link.leases else round(now - link.rested_at, 1),
            }
            for link in self._open
        ]
