"""The limits of one configuration where replicas count together (SEC-6, SCA-1).

Promise: as `limits`, over all replicas: a call passes when every limit that concerns it lets it,
and nothing is counted of one that is refused. Nothing is asked of the store for a call that no
limit concerns. While the store is away each replica counts for itself, or refuses what is limited
(`server.limits.without_store`); counting over all goes on when it is back.

The queue of a limit is as long as the configuration says over all replicas. Who is in a full one
with most calls makes way for who has fewer, among those who wait at the same replica.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import cast

from mcpx.config import Config
from mcpx.model.call import Json
from mcpx.model.errors import Denied
from mcpx.model.events import Passage
from mcpx.policy.counters import Counter, Counters, Displaced
from mcpx.policy.limits import FREE, SOON, Limiter, full, refusal, too_often
from mcpx.policy.shared_counter import Ask, SharedCounter
from mcpx.policy.shared_counters import SharedCounters
from mcpx.policy.tallies import FULL, FULL_BY_NOW, TOO_OFTEN
from mcpx.replicas.store import StoreDown

WITHOUT = "server.limits.without_store"


def shared_limiter(
    config: Config, counters: Counters, of_clients: bool, patience: dict[str, float]
) -> Limiter:
    assert isinstance(counters, SharedCounters)
    limits = config.server.limits
    counters.closed = limits is not None and limits.without_store == "closed"
    return SharedLimiter(counters, of_clients, patience, config.global_.call_timeout)


class SharedLimiter(Limiter):
    def __init__(
        self,
        counters: SharedCounters,
        of_clients: bool,
        patience: dict[str, float],
        otherwise: float,
    ) -> None:
        super().__init__(counters, of_clients, patience, otherwise)
        self._shared = counters

    def passing(
        self,
        passage: Passage,
        forward: Callable[[], Awaitable[Json]],
        again: Callable[[Passage], None],
    ) -> Awaitable[Json]:
        if self._shared.alone or passage.call.method in FREE:
            return super().passing(passage, forward, again)
        who, met = self._meets(passage)
        return self._later(passage, forward, again, who, met) if met else forward()

    async def _later(
        self,
        passage: Passage,
        forward: Callable[[], Awaitable[Json]],
        again: Callable[[Passage], None],
        who: Hashable,
        met: list[Counter],
    ) -> Json:
        shared = self._shared
        until = asyncio.get_running_loop().time() + self._patience.get(
            passage.server, self._otherwise
        )
        ask = Ask(who, cast(list[SharedCounter], met), until)
        edition, waited = shared.edition, False
        for counter in met:
            counter.coming += 1
        try:
            try:
                while ask.held < len(met):
                    if await self._go_on(ask):
                        waited = True
            except Denied:
                shared.unspend(ask)  # a call that was not made
                raise
            if waited or edition != shared.edition:
                again(passage)
            return await forward()
        finally:
            for counter in met:
                counter.coming -= 1
            ask.end()

    async def _go_on(self, ask: Ask) -> bool:
        """Take the places that are left, or those before one that has to be waited for, and that
        one after a while. Whether it has waited; while it did, the store may have gone or come."""
        shared = self._shared
        try:
            if shared.counting:
                self._judge(ask, await shared.enter(ask))
            elif shared.closed:
                shared.refused["gateway.store"] += 1
                text = (
                    "calls are limited, and what counts them for all replicas is away; try "
                    "again later"
                )
                raise refusal(text, WITHOUT, 503, SOON)
            else:
                self._enter_alone(ask)
            if ask.turn is None:
                return False
            async with asyncio.timeout_at(ask.until):
                await ask.turn
            ask.turn = None
            ask.held += 1
            return True
        except StoreDown:
            ask.turn = None  # what it has so far it keeps
            return True
        except TimeoutError:
            raise self._too_late(ask.met[ask.held]) from None
        except Displaced:
            raise self._full(ask.met[ask.held]) from None

    def _judge(self, ask: Ask, said: list[int]) -> None:
        """Raises `Denied` if the store lets it neither pass nor wait."""
        kind, number, *about = said
        if kind == TOO_OFTEN:
            counter, seconds = ask.met[number - 1], about[0] / 1000
            raise self._refused(counter, "per_minute", too_often(counter.bound, seconds), seconds)
        if kind in (FULL, FULL_BY_NOW):
            counter = ask.met[number - 1]
            raise self._refused(counter, "in_flight", full(counter.bound, about[0], about[1]), SOON)

    def _enter_alone(self, ask: Ask) -> None:
        """The same without the store."""
        if not ask.counted:
            self._look(cast(list[Counter], ask.met), ask.who)
            ask.count()
            for counter in ask.spent:
                counter.spend(1)
        while ask.held < len(ask.met):
            counter = ask.met[ask.held]
            if not counter.take():
                if not counter.has_room(
                    ask.who
                ):  # others came while it waited for the place before
                    raise self._full(counter)
                crowded = counter.waiting >= counter.bound.room
                ask.turn = counter.line_up(
                    ask.who, displacing=crowded and counter.may_displace(ask.who)
                )
                return
            ask.held += 1
