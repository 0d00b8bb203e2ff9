"""Limits of calls per client, profile, and server: concurrency and rate (SEC-6).

A call passes if all its limits allow it. They are taken in the order client, profile, server, so
that two calls never wait for each other. A refused call is not counted, and the error names the
limit and the time after which the client can try again. A call that waits does so for at most the
time that a call may take. Lists, greetings, and connections are limited by `front`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Final

from mcpx.base.aio import QueueFull
from mcpx.config import Config, Profile, Server
from mcpx.config.sections import Limits
from mcpx.model.call import Json
from mcpx.model.errors import Denied, overloaded
from mcpx.model.events import Passage
from mcpx.policy.counters import NO_BOUND, Bound, Counter, Counters
from mcpx.policy.state import PolicyState
from mcpx.wire.address import place_of

RETRY_SECONDS: Final = 1.0
"""Suggested to a client that found all slots taken: how long calls take is not known."""
MAX_CACHED_CALLERS: Final = 4_096
MAX_CACHED_PRINCIPAL: Final = 1_024
UNLIMITED_METHODS: Final = frozenset({"resources/unsubscribe"})
"""Methods that release something are never refused."""

Forward = Callable[[], Awaitable[Json]]
Recheck = Callable[[Passage], None]
CallerKey = tuple[str, str, str | None, str]
"""Principal, address, profile, and server."""


def limiter(config: Config, state: PolicyState) -> "Limiter | None":
    """Apply the limits of a configuration. Return None if it has none: calls are not counted."""
    client = _bound(config.server.limits, "client", "server.limits", "this client")
    profiles = _bounds("profile", "profiles", config.profiles)
    servers = _bounds("server", "mcp_servers", config.mcp_servers)
    is_limited = client is not None or bool(profiles or servers)
    if is_limited or "counters" in vars(state):
        state.counters.rebind(client or NO_BOUND, profiles, servers)
    if not is_limited:
        return None
    if state.replicas is None:
        return Limiter(config, state.counters)
    from mcpx.policy.shared_limits import SharedLimiter

    return SharedLimiter(config, state.shared_limits)


def _bounds(kind: str, section: str, entries: Iterable[Profile | Server]) -> dict[str, Bound]:
    bounds: dict[str, Bound] = {}
    for entry in entries:
        path = f"{section}.{entry.name}.limits"
        bound = _bound(entry.limits, kind, path, f"{kind} {entry.name}")
        if bound is not None:
            bounds[entry.name] = bound
    return bounds


def _bound(limits: Limits | None, kind: str, path: str, subject: str) -> Bound | None:
    if limits is None or (limits.in_flight is None and limits.per_minute is None):
        return None
    status = {"server": 503}.get(kind, 429)
    return Bound(kind, path, subject, status, limits.in_flight, limits.per_minute, limits.queue)


class Limiter:
    """The limits of one configuration, on the counters of all of them."""

    def __init__(self, config: Config, counters: Counters) -> None:
        self._counters = counters
        limits = config.server.limits
        self._limits_clients = _bound(limits, "client", "", "") is not None
        self._timeouts = {each.name: each.call_timeout for each in config.mcp_servers}
        self._default_timeout = config.global_.call_timeout
        self._cache: dict[CallerKey, tuple[Hashable, list[Counter]]] = {}
        """The client of a caller, and the counters of the caller's calls to a server."""
        self._cache_edition = counters.edition

    def passing(self, passage: Passage, forward: Forward, recheck: Recheck) -> Awaitable[Json]:
        """Forward the call when its limits allow it. Raises `Denied`.

        `recheck` is called before a call that has waited is forwarded. A call that passes at once
        gets its counters in `places`, and the caller releases them.
        """
        if passage.call.method in UNLIMITED_METHODS:
            return forward()
        client, counters = self._counters_of(passage)
        for index, counter in enumerate(counters):
            if not counter.try_pass():
                for passed in counters[:index]:
                    passed.undo_pass()
                return self._wait_and_forward(passage, forward, recheck, client, counters)
        passage.places = counters
        return forward()

    def _counters_of(self, passage: Passage) -> tuple[Hashable, list[Counter]]:
        """Return the client, and the counters in the order in which they are taken."""
        caller = passage.call.caller
        if self._cache_edition != self._counters.edition:
            self._cache.clear()
            self._cache_edition = self._counters.edition
        key = (caller.principal, caller.address, caller.profile, passage.server)
        return self._cache.get(key) or self._look_up(key)

    def _look_up(self, key: CallerKey) -> tuple[Hashable, list[Counter]]:
        principal, address, profile, server = key
        client = (principal, place_of(address))
        found = [self._counters.profiles.get(profile or ""), self._counters.servers.get(server)]
        if self._limits_clients:
            found.insert(0, self._client_counter(client))
        counters = [counter for counter in found if counter is not None]
        if len(self._cache) >= MAX_CACHED_CALLERS:
            self._cache.clear()
        if self._cache_edition == self._counters.edition and len(principal) <= MAX_CACHED_PRINCIPAL:
            self._cache[key] = client, counters
        return client, counters

    def _client_counter(self, client: Hashable) -> Counter:
        counter = self._counters.client(client)
        if counter is None:
            self._counters.refused["gateway.clients"] += 1
            text = "too many clients make calls at the moment; try again later"
            raise refusal(text, "server.limits", 503, RETRY_SECONDS)
        return counter

    async def _wait_and_forward(
        self,
        passage: Passage,
        forward: Forward,
        recheck: Recheck,
        client: Hashable,
        counters: list[Counter],
    ) -> Json:
        self._check(counters, client)
        rates = [counter for counter in counters if counter.bound.per_minute is not None]
        for counter in rates:
            counter.spend()
        for counter in counters:
            counter.pending += 1
        deadline = self._deadline(passage)
        taken: list[Counter] = []
        try:
            try:
                for counter in counters:
                    await self._enter(counter, client, deadline)
                    taken.append(counter)
            except Denied:
                for counter in rates:
                    counter.refund()
                raise
            recheck(passage)
            return await forward()
        finally:
            for counter in counters:
                counter.pending -= 1
            for counter in taken:
                counter.leave()

    def _deadline(self, passage: Passage) -> float:
        timeout = self._timeouts.get(passage.server, self._default_timeout)
        return asyncio.get_running_loop().time() + timeout

    def _check(self, counters: list[Counter], client: Hashable) -> None:
        """Refuse the call if a rate is exceeded, or if it could not even wait."""
        for counter in counters:
            seconds = counter.seconds_until_rate_allows()
            if seconds > 0:
                raise self._too_often(counter, seconds)
            if not counter.has_room(client):
                raise self._full(counter)

    async def _enter(self, counter: Counter, client: Hashable, deadline: float) -> None:
        remaining = deadline - asyncio.get_running_loop().time()
        try:
            await counter.enter(client, timeout=remaining)
        except QueueFull:
            raise self._full(counter) from None
        except TimeoutError:
            raise self._too_late(counter) from None

    def _too_often(self, counter: Counter, seconds: float) -> Denied:
        bound = counter.bound
        text = f"{bound.subject} may make {bound.per_minute:,} calls a minute"
        text = f"{text}; try again in {seconds:.1f} s"
        return self._refused(counter, "per_minute", text, seconds)

    def _full(self, counter: Counter) -> Denied:
        running, waiting = counter.total_running, counter.queued
        text = f"{running:,} calls of {counter.bound.subject} are in flight and {waiting:,} wait"
        text = f"{text}, no more are taken; wait for some to end"
        return self._refused(counter, "in_flight", text, RETRY_SECONDS)

    def _too_late(self, counter: Counter) -> Denied:
        subject = counter.bound.subject
        text = f"no place was free for a call of {subject} in the time a call may take"
        return self._refused(counter, "in_flight", f"{text}; try again later", RETRY_SECONDS)

    def _refused(self, counter: Counter, limit: str, text: str, retry_after: float) -> Denied:
        bound = counter.bound
        self._counters.refused[f"{bound.kind}.{limit}"] += 1
        return refusal(text, f"{bound.path}.{limit}", bound.status, retry_after)


def refusal(text: str, limit: str, status: int, retry_after: float) -> Denied:
    return overloaded(f"{text} ({limit})", status=status, retry_after=retry_after, limit=limit)
