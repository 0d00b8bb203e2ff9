"""Limits that replicas share through the store (SEC-6, SCA-1).

One script checks all limits of a call and takes all of them, or none. A rate is kept as the time at
which the counter is empty again (GCRA). A call in flight is a lease in a sorted set. A replica
renews the leases of its calls, and the leases of a replica that dies expire. The store provides the
time.

Calls that wait stay in the queues of their replica. Only the first call of a queue asks the store
again. While the store is away, each replica counts for itself, or refuses calls
(`server.limits.without_store`).
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Hashable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, cast

from mcpx.base.aio import FairQueue, QueueFull, Tasks, first_of
from mcpx.config import Config
from mcpx.model.call import Json
from mcpx.model.events import Passage
from mcpx.policy.counters import Bound, Clock, Counter, Counters
from mcpx.policy.limits import (
    RETRY_SECONDS,
    UNLIMITED_METHODS,
    Forward,
    Limiter,
    Recheck,
    refusal,
)
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown, Word

POLL_SECONDS: Final = 0.25
"""A waiting call asks the store this often if it misses the notification of a free slot."""
LEASE_SECONDS: Final = 4.0
RENEWAL_SECONDS: Final = 1.0
FREED_TOPIC: Final = "limits"
WITHOUT_STORE: Final = "server.limits.without_store"

_TAKE: Final = Script("""
-- KEYS: one for each counter. ARGV: milliseconds of a lease, its id; then for each counter
-- per_minute (0: no limit) and in_flight (-1: no limit).
-- Answer: number of the counter that refuses (0: none), milliseconds until its rate allows the call
-- (-1: it has no free slot), calls in flight.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local lease = tonumber(ARGV[1])
local empty_at = {}
for i, key in ipairs(KEYS) do
  local rate = tonumber(ARGV[2 * i + 1])
  if rate > 0 then
    local at = tonumber(redis.call('GET', key .. ':rate') or 0)
    -- The second bound applies if the clock was set back.
    at = math.min(math.max(at, now), now + 60000) + 60000 / rate
    if at - now >= 60001 then return {i, math.ceil(at - now - 60000), 0} end
    empty_at[i] = at
  end
end
for i, key in ipairs(KEYS) do
  local slots = tonumber(ARGV[2 * i + 2])
  if slots >= 0 then
    redis.call('ZREMRANGEBYSCORE', key .. ':leases', '-inf', now)
    redis.call('ZREMRANGEBYSCORE', key .. ':leases', '(' .. now + lease, '+inf')
    local running = redis.call('ZCARD', key .. ':leases')
    if running >= slots then
      redis.call('SET', key .. ':wanted', 1, 'PX', lease)
      return {i, -1, running}
    end
  end
end
for i, key in ipairs(KEYS) do
  if empty_at[i] then
    redis.call('SET', key .. ':rate', empty_at[i], 'PX', math.ceil(empty_at[i] - now))
  end
  if tonumber(ARGV[2 * i + 2]) >= 0 then
    redis.call('ZADD', key .. ':leases', now + lease, ARGV[2])
    redis.call('PEXPIRE', key .. ':leases', lease)
  end
end
return {0, 0, 0}
""")
_RENEW: Final = Script("""
-- KEYS: a counter. ARGV: milliseconds of a lease, ids.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for i = 2, #ARGV do redis.call('ZADD', KEYS[1] .. ':leases', now + ARGV[1], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1] .. ':leases', ARGV[1])
return 0
""")
_RELEASE: Final = Script("""
-- KEYS: a counter, the channel of notifications. ARGV: notification, ids.
for i = 2, #ARGV do redis.call('ZREM', KEYS[1] .. ':leases', ARGV[i]) end
if redis.call('DEL', KEYS[1] .. ':wanted') == 1 then redis.call('PUBLISH', KEYS[2], ARGV[1]) end
return 0
""")


class SharedCounter(Counter):
    """`running` and the inherited queue count the calls of this replica."""

    def __init__(self, kind: str, name: Hashable, clock: Clock, limits: "SharedLimits") -> None:
        super().__init__(kind, name, clock)
        self._limits = limits
        self.key = limits.key_of(kind, name)
        self.line = FairQueue(1, 0)
        """Calls that wait for the store. The call that runs is the one that asks it."""
        self.freed = asyncio.Event()
        self.leases: list[str] = []
        """One for each running call. It does not matter which one a call releases."""
        self.seen_running = 0

    def rebind(self, bound: Bound) -> None:
        super().rebind(bound)
        self.line.max_waiting = max(0, bound.max_waiting - 1)
        self.freed.set()

    @property
    def total_running(self) -> int:
        return max(self.running, self.seen_running)

    @property
    def queued(self) -> int:
        return self.waiting + self.line.running + self.line.waiting

    def leave(self) -> None:
        super().leave()
        self.freed.set()
        if len(self.leases) > self.running:
            self._limits.release(self, [self.leases.pop()])


class SharedLimits:
    """The store's side of the limits of one replica."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._ids = count()
        self._tasks = Tasks("shared limits")
        self._renewing: asyncio.Task[None] | None = None
        self.counters = Counters(make=partial(SharedCounter, limits=self))
        self._store.on_return(self._returned)
        self._store.hear(FREED_TOPIC, self._slot_freed)

    @property
    def is_counting(self) -> bool:
        return self._store.up and self._replicas.joined.is_set() and not self._tasks.closed

    def key_of(self, kind: str, name: Hashable) -> str:
        if not isinstance(name, str):
            digest = hashlib.sha256(repr(name).encode())
            name = digest.hexdigest()[:32]
        return self._store.key("counter", kind, name)

    async def take(self, counters: Sequence[SharedCounter]) -> tuple[int, int, int]:
        """Answer of the script `_TAKE`. Raises `StoreDown`."""
        lease = self._new_id()
        words: list[Word] = [int(LEASE_SECONDS * 1000), lease]
        for counter in counters:
            bound, slots = counter.bound, -1
            if bound.in_flight is not None:
                slots = bound.in_flight
            words += [bound.per_minute or 0, slots]
        asked = self._store.run(_TAKE, [counter.key for counter in counters], words)
        try:
            number, milliseconds, running = await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(partial(self._release_unused, counters, lease))
            raise
        if number == 0:
            for counter in counters:
                counter.running += 1
                counter.spend()
                if counter.bound.in_flight is not None:
                    counter.leases.append(lease)
            self._renew_later()
        return int(number), int(milliseconds), int(running)

    def _release_unused(
        self, counters: Sequence[SharedCounter], lease: str, asked: "asyncio.Future[Any]"
    ) -> None:
        """The call was cancelled before the store had answered."""
        if not asked.cancelled() and asked.exception() is None and self.is_counting:
            for counter in counters:
                self.release(counter, [lease])

    def release(self, counter: SharedCounter, leases: Sequence[str]) -> None:
        if self._store.up:  # Otherwise, the leases expire.
            channel, message = self._store.message(FREED_TOPIC, counter.key.encode())
            self._store.run_later(_RELEASE, [counter.key, channel], [message, *leases])

    def renew(self) -> None:
        """Renew the leases of running calls, also of those that began without one."""
        if not self.is_counting:
            return
        for each in self.counters.all():
            counter = cast(SharedCounter, each)
            if counter.bound.in_flight is None or not counter.running:
                continue
            while len(counter.leases) < counter.running:
                counter.leases.append(self._new_id())
            words = [int(LEASE_SECONDS * 1000), *counter.leases]
            # In order with `take`: a new limit counts the running calls first.
            self._store.run(_RENEW, [counter.key], words)

    def _new_id(self) -> str:
        return f"{self._replicas.id}:{next(self._ids)}"

    def _renew_later(self) -> None:
        if self._renewing is None:
            self._renewing = self._tasks.start(self._renew_while_running(), apart=True)

    async def _renew_while_running(self) -> None:
        while any(counter.running for counter in self.counters.all()):
            await asyncio.sleep(RENEWAL_SECONDS)
            self.renew()
        self._renewing = None

    async def _returned(self, fresh: bool) -> None:
        await self._replicas.joined.wait()
        self.renew()
        self._renew_later()

    def _slot_freed(self, data: bytes) -> None:
        key = data.decode(errors="replace")
        for counter in self.counters.all():
            if cast(SharedCounter, counter).key == key:
                cast(SharedCounter, counter).freed.set()

    async def close(self) -> None:
        await self._tasks.close()
        for each in self.counters.all():
            counter = cast(SharedCounter, each)
            if counter.leases:
                self.release(counter, counter.leases)


class SharedLimiter(Limiter):
    def __init__(self, config: Config, limits: SharedLimits) -> None:
        super().__init__(config, limits.counters)
        self._limits = limits
        limits.renew()  # Calls may run that had no limit before.
        section = config.server.limits
        self._refuses_without_store = section is not None and section.without_store == "closed"

    def passing(self, passage: Passage, forward: Forward, recheck: Recheck) -> Awaitable[Json]:
        if passage.call.method in UNLIMITED_METHODS:
            return forward()
        client, counters = self._counters_of(passage)
        if not counters:
            return forward()
        if not self._limits.is_counting and not self._refuses_without_store:
            return super().passing(passage, forward, recheck)
        return self._wait_and_forward(passage, forward, recheck, client, counters)

    async def _wait_and_forward(
        self,
        passage: Passage,
        forward: Forward,
        recheck: Recheck,
        client: Hashable,
        counters: list[Counter],
    ) -> Json:
        shared = cast(list[SharedCounter], counters)
        for counter in shared:
            counter.pending += 1
        try:
            edition = self._counters.edition
            try:
                has_waited = await self._take(shared, client, self._deadline(passage))
            except StoreDown:
                return await self._pass_without_store(passage, forward, recheck, client, counters)
            try:
                if has_waited or edition != self._counters.edition:
                    recheck(passage)
                return await forward()
            finally:
                for counter in shared:
                    counter.leave()
        finally:
            for counter in shared:
                counter.pending -= 1

    async def _pass_without_store(
        self,
        passage: Passage,
        forward: Forward,
        recheck: Recheck,
        client: Hashable,
        counters: list[Counter],
    ) -> Json:
        if self._refuses_without_store:
            self._counters.refused["gateway.store"] += 1
            text = "calls are limited, and the store that counts them is away; try again later"
            raise refusal(text, WITHOUT_STORE, 503, RETRY_SECONDS)
        return await super()._wait_and_forward(passage, forward, recheck, client, counters)

    async def _take(self, counters: list[SharedCounter], client: Hashable, deadline: float) -> bool:
        """Wait until the store allows the call. Return whether it had to wait."""
        has_waited = False
        blocking = next((counter for counter in counters if counter.line.running), None)
        if blocking is None:
            blocking = await self._ask(counters)
        while blocking is not None:
            has_waited = True
            blocking = await self._wait_in_line(blocking, counters, client, deadline)
        return has_waited

    async def _ask(self, counters: list[SharedCounter]) -> SharedCounter | None:
        """Return the counter that has no free slot. Raises `Denied` and `StoreDown`."""
        if not self._limits.is_counting:
            raise StoreDown("the store is away")
        number, milliseconds, running = await self._limits.take(counters)
        if number == 0:
            return None
        counter = counters[number - 1]
        if milliseconds >= 0:
            raise self._too_often(counter, milliseconds / 1000)
        counter.seen_running = running
        return counter

    async def _wait_in_line(
        self,
        counter: SharedCounter,
        counters: list[SharedCounter],
        client: Hashable,
        deadline: float,
    ) -> SharedCounter | None:
        """Wait until the store takes the call, or until another counter blocks it."""
        if counter.bound.max_waiting == 0:
            raise self._full(counter)
        loop = asyncio.get_running_loop()
        try:
            await counter.line.enter(client, timeout=deadline - loop.time())
        except QueueFull:
            raise self._full(counter) from None
        except TimeoutError:
            raise self._too_late(counter) from None
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    counter.freed.clear()
                    blocking = await self._ask(counters)
                    if blocking is not counter:
                        return blocking
                    await first_of(counter.freed.wait(), timeout=POLL_SECONDS)
        except TimeoutError:
            raise self._too_late(counter) from None
        finally:
            counter.line.leave()
