"""Decides which link of a server a call uses, and lets calls wait for a link.

A question of an older server must have exactly one possible addressee (decision 0004). `wishes`
says which link a caller needs. Lending keeps the number of links small: one connection (with stdio:
one process) per server is the aim. The lists are read over the link `main`.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcpx.base.caching import Lru
from mcpx.config import Server
from mcpx.model.call import QUESTION_CAPABILITIES, Call, Caller, Json
from mcpx.model.errors import OVERLOADED, SERVER_DOWN, RpcError, Unavailable
from mcpx.transports import starts_process
from mcpx.upstreams.bridges import Lease, client_of
from mcpx.upstreams.link import Link
from mcpx.upstreams.traits import NOBODY
from mcpx.upstreams.wishes import Wish, Wishes

if TYPE_CHECKING:
    from mcpx.upstreams.bridges import Parked
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

LASTING = 10
"""Factor for the idle time of a link that its session must not lose. Not every client ends its
session."""
CLOSINGS = 4
"""Links that are closed at a time to make room."""


class LinkPool:
    def __init__(self, upstream: "Upstream") -> None:
        self.open: list[Link] = []
        self.closing: set[asyncio.Task[None]] = set()
        """Nothing stops the closing of a link, because a process may depend on it."""
        self._upstream = upstream
        self._sweeping: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self.open))

    @property
    def process_count(self) -> int:
        return len(self.open) * starts_process(self._upstream.server.connection)

    def add(self, link: Link) -> None:
        self.open.append(link)
        self._sweep_soon()

    def retire(self, link: Link) -> asyncio.Task[None]:
        """Remove a link and close it."""
        if link in self.open:
            self.open.remove(link)
        task = asyncio.get_running_loop().create_task(link.close())
        self.closing.add(task)
        task.add_done_callback(self._closed)
        self._upstream.owner.retired(link)
        return task

    def _closed(self, task: asyncio.Task[None]) -> None:
        self.closing.discard(task)
        self._upstream.links.provide()

    def is_spare(self, link: Link) -> bool:
        """Whether the link can be closed now without a loss."""
        is_used = link.leases or link.listening.subscribers or link.use == "learning"
        return link is not self._upstream.links.main and not is_used

    def drop_longest_idle(self) -> None:
        idle = [link for link in self.open if self.is_spare(link)]
        if idle and len(self.closing) < CLOSINGS:
            self._upstream.links.retire(min(idle, key=lambda link: link.rested_at))

    def _sweep_soon(self) -> None:
        """Look again when the first link has been idle for long."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        main = self._upstream.links.main
        ends = [self._idle_end(link) for link in self.open if link is not main]
        if ends:
            self._sweeping = asyncio.get_running_loop().call_at(min(ends), self._sweep)

    def _idle_end(self, link: Link) -> float:
        now = asyncio.get_running_loop().time()
        since = now if link.leases else link.rested_at
        return max(now + 0.05, since + self._idle_seconds(link))

    @staticmethod
    def _idle_seconds(link: Link) -> float:
        return link.server.link_idle * (LASTING if link.lasting else 1)

    def _sweep(self) -> None:
        """Close links that have been idle for long."""
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for link in self:
            if self.is_spare(link) and now - link.rested_at >= self._idle_seconds(link):
                log.debug("[%s] a connection that was idle goes", link.name)
                self._upstream.links.retire(link)
        self._sweep_soon()

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for link in self:
            self._upstream.links.retire(link)
        while self.closing:
            await asyncio.wait(self.closing)

    def describe(self) -> list[Json]:
        """Each link for the administrator."""
        now = asyncio.get_running_loop().time()
        rows: list[Json] = []
        for link in self.open:
            row: Json = {"use": link.use, "why": link.why, "version": link.terms.version}
            row |= {"calls": len(link.leases), "idle_s": None}
            if link.use == "shared":
                row["why"] = "it serves everybody"
            if not link.leases:
                row["idle_s"] = round(now - link.rested_at, 1)
            rows.append(row)
        return rows


QUESTIONED = frozenset(QUESTION_CAPABILITIES)

PATIENCE = 0.1
"""Seconds without a turn after which another link is opened for a client that waits for a lent
one."""
OPENINGS_OF_ONE = 2
"""Links that are opened at a time for callers of one kind."""
MOST_WAITING = 1_000
"""Calls that wait for a link. More are rejected."""
TURNS = 256
"""Kinds of callers whose last turn is known."""


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

    def fail(self, error: RpcError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Links:
    def __init__(self, upstream: "Upstream") -> None:
        self.main: Link | None = None
        self.pool = LinkPool(upstream)
        self.wishes = Wishes(upstream.server, upstream.traits)
        self._upstream = upstream
        self._server = upstream.server
        self._dialler = upstream.dialler
        self._traits = upstream.traits
        self._waiters: list[_Waiter] = []
        self._turns: Lru[Wish, float] = Lru(TURNS)
        """When a lent link last changed hands. Then its clients need no other."""
        self._over: str | None = None
        self._pressing: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Link]:
        return iter(self.pool)

    @property
    def opening(self) -> bool:
        return bool(self._dialler.openings)

    # Choice
    # ----------------------------------------------------------------------------------------------

    def take_now(self, call: Call, parked: "Parked | None" = None) -> Lease | None:
        """A lease on a link that is open and free, as almost always."""
        caller = call.caller
        main = self.main
        shared = self._server.isolation == "shared"
        if shared and main is not None and main.alive and main.owner is None:
            modern = main.terms.modern
            # All clients may use the main link if it is modern, or if nobody can be asked.
            is_common = modern or caller.solo or (not main.needs.kind and not caller.answers)
            if is_common and (modern == caller.modern or self._bridged(caller)):
                return Lease(main, call, client_of(caller), parked)
        return self._take(call, client_of(caller), parked, self.wishes.of(caller))

    def _bridged(self, caller: Caller) -> bool:
        return (self.wishes.era_for(caller) == "modern") is not caller.modern

    def _take(
        self, call: Call, client: object, parked: "Parked | None", wish: Wish
    ) -> Lease | None:
        best: Link | None = None
        for link in self.pool.open:
            if self.wishes.suits(link, wish, client) and self.wishes.is_free(link, wish, client):
                if link.owner is not None or link.needs == wish.needs:
                    return Lease(link, call, client, parked)
                best = best or link
        if best is None:
            return None
        return Lease(best, call, client, parked)

    async def take(self, call: Call, parked: "Parked | None" = None) -> Lease:
        """A lease. Opens a link, or waits for one."""
        name = self._server.name
        if self._over is not None:
            raise Unavailable(name, SERVER_DOWN, self._over)
        client, wish = client_of(call.caller), self.wishes.of(call.caller)
        lease = self._take(call, client, parked, wish)
        if lease is not None:
            return lease
        if len(self._waiters) >= MOST_WAITING:
            reason = f"{MOST_WAITING:,} calls wait for a connection already"
            raise Unavailable(name, OVERLOADED, reason)
        waiter = _Waiter(call, client, parked, wish, asyncio.get_running_loop().time())
        self._waiters.append(waiter)
        self.provide()
        try:
            async with asyncio.timeout(self._server.timeout):
                return await waiter.future
        except TimeoutError:
            self._give_back(waiter)
            reason = f"no connection was free within {self._server.timeout:g} s"
            if self._dialler.is_full:
                reason = f"all {self._server.max_links} connections (max_links) are in use"
            raise Unavailable(name, OVERLOADED, reason) from None
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

    # Supply
    # ----------------------------------------------------------------------------------------------

    def provide(self) -> None:
        """Give free links to the waiting calls, in their order, and open missing links."""
        if self._over is not None or not self._waiters:
            return
        now = asyncio.get_running_loop().time()
        unserved: dict[Wish, list[_Waiter]] = {}
        for waiter in list(self._waiters):
            if waiter.future.done():
                continue
            if waiter.wish.use != "call":
                waiter.wish = self.wishes.of(waiter.call.caller)
            wish = waiter.wish
            lease = self._take(waiter.call, waiter.client, waiter.parked, wish)
            if lease is None:
                unserved.setdefault(wish, []).append(waiter)
                continue
            if wish.use == "lent":
                self._turns[wish] = now
            waiter.future.set_result(lease)
        due = [self._open_missing(wish, waiting, now) for wish, waiting in unserved.items()]
        times = [each for each in due if each is not None]
        if times and self._pressing is None:
            self._pressing = asyncio.get_running_loop().call_at(min(times), self._press)

    def _open_missing(self, wish: Wish, waiting: list[_Waiter], now: float) -> float | None:
        """Open links for calls that have waited too long. Returns when the next one has."""
        caller = waiting[0].call.caller
        opening = sum(other == wish for other in self._dialler.openings.values())
        if not opening and not any(self.may_serve(link, wish) for link in self.pool.open):
            self._dialler.begin(wish, caller)
            return None
        turn = self._turns.get(wish, 0.0)
        due = [max(waiter.since, turn) + PATIENCE for waiter in waiting]
        impatient = sum(time <= now for time in due)
        while opening < min(impatient, OPENINGS_OF_ONE) and self._dialler.begin(wish, caller):
            opening += 1
        return min((time for time in due if time > now), default=None)

    def _press(self) -> None:
        self._pressing = None
        self.provide()

    def may_serve(self, link: Link, wish: Wish) -> bool:
        """Whether a link suits such callers, and may become free for one of them."""
        return self.wishes.suits(link, wish) and not (link.ghosts and not link.leases)

    def opening_failed(self, wish: Wish, error: RpcError) -> None:
        if any(self.may_serve(link, wish) for link in self.pool.open):
            # It was an additional link. The calls wait for the others, and it is not tried again
            # at once.
            self._turns[wish] = asyncio.get_running_loop().time() + 1.0
            told = "[%s] one more connection could not be opened: %s"
            log.info(told, self._server.name, error.message)
            return
        for waiter in self._waiters:
            if waiter.wish == wish:
                if wish.use != "call" and self.wishes.of(waiter.call.caller) != wish:
                    continue  # The server does not speak this era. The next round uses the other.
                waiter.fail(error)

    # Main link
    # ----------------------------------------------------------------------------------------------

    async def first(self, solo: Caller | None) -> Link:
        """Open the main link, in place of the old one. `solo`: the client of a stdio front."""
        link = await self._dialler.main(solo)
        self.wishes.greeted("modern" if link.modern else "older", link.terms.refused)
        self.main, old = link, self.main
        self.pool.open.insert(0, link)
        if old is not None:
            self.retire(old)
        return link

    def unite(self) -> None:
        """Replace the main link by one that works and serves all clients of the main link.

        Not if the server asks: clients that cannot be asked then need a link that declares nothing,
        and the lists are read there.
        """
        main = self.main
        if main is None or main.modern or main.leases or self._traits.asks:
            return
        if self._upstream.book.varies_by_kind:
            return
        haunted = bool(main.ghosts) and not self._traits.quiet
        needed = main.needs if main.needs.kind else NOBODY
        for link in self.pool.open:
            is_idle = link.calls and not link.leases and not link.ghosts
            if link is main or not link.alive or link.use != "lent" or not is_idle:
                continue
            serves_more = link.needs != main.needs and link.needs.covers(needed)
            if serves_more or haunted:
                self.main = link
                self._traits.declares = {
                    key: link.who.capabilities[key] for key in link.needs.kind & QUESTIONED
                }
                self._upstream.owner.main_changed(link)
                if serves_more:
                    self.retire(main)
                return

    # Ends
    # ----------------------------------------------------------------------------------------------

    def retire(self, link: Link) -> asyncio.Task[None]:
        """Remove a link and close it."""
        if link is self.main:
            self.main = None
        task = self.pool.retire(link)
        self.provide()
        return task

    def rested(self, link: Link) -> None:
        """A link carries no call any more. Waiting calls may use it."""
        lost_for_all = None in link.ghosts and not self._traits.quiet
        if link.use == "call" or (lost_for_all and link in self.pool.open):
            self._spoil(link)
        self.provide()
        self.unite()

    def _spoil(self, link: Link) -> None:
        """No client can use the link any more."""
        if link is self.main:
            self._upstream.owner.spoilt(link)
        else:
            self.retire(link)

    def update(self, server: Server) -> None:
        self._server = self.wishes.server = server
        for link in self.pool.open:
            link.server = server

    def lends_to(self, caller: Caller) -> bool:
        """Whether the calls of this caller may use another link than the main one."""
        return self.wishes.of(caller).use in ("session", "lent")

    def end_session(self, session: str) -> None:
        """Close the links of a session, and those that are being opened for it."""
        self.wishes.forget(session)
        for task, wish in list(self._dialler.openings.items()):
            if wish.owner == session:
                task.cancel()
        for waiter in self._waiters:
            if waiter.call.caller.session == session:
                waiter.fail(Unavailable(self._server.name, SERVER_DOWN, "the session is over"))
        for link in self:
            link.users.discard(session)
            if link.owner == session:
                self._spoil(link)
            elif session in link.ghosts:
                link.ghosts.discard(session)
                if not self._traits.quiet:
                    link.ghosts.add(None)  # The server may ask about a call of no client.
                    if not link.leases:
                        self._spoil(link)

    async def close(self, over: str | None = None) -> None:
        """Close all links. `over`: why no link is opened again."""
        self._over = over
        if self._pressing is not None:
            self._pressing.cancel()
            self._pressing = None
        if over is not None:
            for waiter in self._waiters:
                waiter.fail(Unavailable(self._server.name, SERVER_DOWN, over))
        current = asyncio.current_task()
        openings = [task for task in self._dialler.openings if task is not current]
        for task in openings:
            task.cancel()
        if openings:
            await asyncio.wait(openings)
        await self.pool.close()
