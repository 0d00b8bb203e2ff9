"""How much may be used at a time, and how often: of a client, a profile, a server (SEC-6).

Promise: a call passes when every limit that concerns it lets it: that of its client (a principal at
an address), of its profile, of its server, always in this order, so that no two calls wait for each
other. Nothing is counted of a call that one of them refuses at once. A place is given back on every
way out; waiting for one ends with the call, and when the call's own time would be over. Who is
refused is told which limit it was, and when to come again.

No promise: limits of what passes outside of calls (lists, greetings, connections): those are the
front's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from mcpx.config import Config
from mcpx.config.sections import Limits
from mcpx.model.call import Json
from mcpx.model.errors import Denied, overloaded
from mcpx.model.events import Passage
from mcpx.policy.counters import NO_BOUND, Bound, Counter, Counters, Displaced
from mcpx.policy.state import PolicyState
from mcpx.wire.address import place_of

SOON: Final = 1.0
"""Seconds after which a place may well be free; how long calls take is not known."""
REMEMBERED: Final = 4_096
LONGEST: Final = 1_024
"""Pairs of caller and server of which it is remembered what they meet, and characters of a
principal of whom it is."""
FREE: Final = frozenset({"resources/unsubscribe"})
"""What gives something back is never refused."""


def limiter(config: Config, state: PolicyState) -> "Limiter | None":
    """The limits of a configuration from this moment on; None when it has none, and then nothing is
    counted."""
    client = _bound(config.server.limits, "client", "server.limits", "this client", 429)
    profiles = {
        each.name: bound
        for each in config.profiles
        if (
            bound := _bound(
                each.limits, "profile", f"profiles.{each.name}.limits", f"profile {each.name}", 429
            )
        )
    }
    servers = {
        each.name: bound
        for each in config.mcp_servers
        if (
            bound := _bound(
                each.limits, "server", f"mcp_servers.{each.name}.limits", f"server {each.name}", 503
            )
        )
    }
    limited = client is not None or bool(profiles or servers)
    if limited or "counters" in vars(state):
        state.counters.take_up(client or NO_BOUND, profiles, servers)
    if not limited:
        return None
    patience = {each.name: each.call_timeout for each in config.mcp_servers}
    if state.replicas is not None:
        from mcpx.policy.shared_limits import shared_limiter

        return shared_limiter(config, state.counters, client is not None, patience)
    return Limiter(state.counters, client is not None, patience, config.global_.call_timeout)


def _bound(limits: Limits | None, kind: str, path: str, whose: str, status: int) -> Bound | None:
    if limits is None or (limits.in_flight is None and limits.per_minute is None):
        return None
    return Bound(kind, path, whose, status, limits.in_flight, limits.per_minute, limits.queue)


class Limiter:
    """The limits of one configuration, on the counters of all of them."""

    def __init__(
        self, counters: Counters, of_clients: bool, patience: dict[str, float], otherwise: float
    ) -> None:
        self._counters = counters
        self._of_clients = of_clients
        """Each client has a limit; which one, the counters know: a call may have begun before a
        reload."""
        self._patience = patience
        self._otherwise = otherwise
        self._known: dict[tuple[str, str, str | None, str], tuple[Hashable, list[Counter]]] = {}
        """Who a caller counts as, and which counters a call of theirs meets at a server."""
        self._edition = counters.edition
        """Of the counters, when that was so."""

    def passing(
        self,
        passage: Passage,
        forward: Callable[[], Awaitable[Json]],
        again: Callable[[Passage], None],
    ) -> Awaitable[Json]:
        """Forward when the limits allow it. Raises `Denied`; nothing was forwarded then. `again`:
        looks at a call that has waited. One that need not wait has its `places` from now on."""
        if passage.call.method in FREE:
            return forward()
        who, met = self._meets(passage)
        now = self._counters.clock()
        for place, counter in enumerate(met):
            if not counter.enter(now):
                for passed in met[:place]:
                    passed.take_back()
                return self._later(passage, forward, again, who, met)
        passage.places = met
        return forward()

    def _meets(self, passage: Passage) -> tuple[Hashable, list[Counter]]:
        """Who it counts as, and the counters that it meets. Raises `Denied`."""
        caller = passage.call.caller
        if self._edition != self._counters.edition:
            self._known.clear()
            self._edition = self._counters.edition
        key = (caller.principal, caller.address, caller.profile, passage.server)
        known = self._known.get(key)
        return self._looked_up(passage, key) if known is None else known

    def _looked_up(
        self, passage: Passage, key: tuple[str, str, str | None, str]
    ) -> tuple[Hashable, list[Counter]]:
        who = (key[0], place_of(key[1]))
        met = who, self._met(passage, who)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        if self._edition == self._counters.edition and len(key[0]) <= LONGEST:
            self._known[key] = met
        return met

    async def _later(
        self,
        passage: Passage,
        forward: Callable[[], Awaitable[Json]],
        again: Callable[[Passage], None],
        who: Hashable,
        met: list[Counter],
    ) -> Json:
        """One of them does not let it pass at once: it is refused, or waits for its turn."""
        self._look(met, who)
        spent = [counter for counter in met if counter.bound.per_minute is not None]
        for counter in spent:
            counter.spend(1)
        for counter in met:
            counter.coming += 1
        until = asyncio.get_running_loop().time() + self._patience.get(
            passage.server, self._otherwise
        )
        held = 0
        try:
            for counter in met:
                if not counter.take():
                    await self._wait(counter, until, who, spent)
                held += 1
            again(passage)
            return await forward()
        finally:
            for counter in met:
                counter.coming -= 1
            for counter in met[:held]:
                counter.leave()

    def _met(self, passage: Passage, who: Hashable) -> list[Counter]:
        """The counters that this call meets, in the order in which their places are taken."""
        counters = self._counters
        met: list[Counter] = []
        if self._of_clients:
            counter = counters.client(who)
            if counter is None:
                counters.refused["gateway.clients"] += 1
                raise refusal(
                    "too many clients make calls at the moment; try again later",
                    "server.limits",
                    503,
                    SOON,
                )
            met.append(counter)
        profile = passage.caller.profile
        if profile is not None and (counter := counters.profiles.get(profile)) is not None:
            met.append(counter)
        if (counter := counters.servers.get(passage.server)) is not None:
            met.append(counter)
        return met

    def _look(self, met: list[Counter], who: Hashable) -> None:
        """Whether all of them let it pass, now or after a while."""
        now = self._counters.clock()
        for counter in met:
            bound = counter.bound
            if (seconds := counter.wait_for_rate(now)) > 0:
                raise self._refused(counter, "per_minute", too_often(bound, seconds), seconds)
            if not counter.has_room(who):
                raise self._full(counter)

    async def _wait(
        self, counter: Counter, until: float, who: Hashable, spent: list[Counter]
    ) -> None:
        """`spent`: where the call was counted as one of a minute's."""
        try:
            if not counter.has_room(who):  # others came while it waited for the place before
                raise self._full(counter)
            try:
                async with asyncio.timeout_at(until):
                    await counter.wait(who)
            except TimeoutError:
                raise self._too_late(counter) from None
            except Displaced:
                raise self._full(counter) from None
        except Denied:
            for each in spent:  # a call that was not made
                each.spend(-1)
            raise

    def _full(self, counter: Counter) -> Denied:
        return self._refused(
            counter, "in_flight", full(counter.bound, counter.running, counter.waiting), SOON
        )

    def _too_late(self, counter: Counter) -> Denied:
        text = (
            f"no place was free for a call of {counter.bound.whose} in the time a call may "
            "take; try again later"
        )
        return self._refused(counter, "in_flight", text, SOON)

    def _refused(self, counter: Counter, what: str, text: str, retry_after: float) -> Denied:
        bound = counter.bound
        self._counters.refused[f"{bound.kind}.{what}"] += 1
        return refusal(text, f"{bound.path}.{what}", bound.status, retry_after)


def refusal(text: str, limit: str, status: int, retry_after: float) -> Denied:
    return overloaded(f"{text} ({limit})", status=status, retry_after=retry_after, limit=limit)


def too_often(bound: Bound, seconds: float) -> str:
    return (
        f"{bound.whose} may make {bound.per_minute:,} calls a minute; try again in {_told(seconds)}"
    )


def full(bound: Bound, running: int, waiting: int) -> str:
    text = f"{running:,} calls of {bound.whose} are in flight"
    return f"{text} and {waiting:,} wait, no more are taken; wait for some to end"


def _told(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
