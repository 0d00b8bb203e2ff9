"""How much is called, how often it fails and how long it takes, for people who look (ADM-4).

There is one only while somebody may look (`--admin`). Promised: a call costs a few lookups and additions; servers,
clients and tools are told apart up to a bound each, and what strangers call themselves is cut. What left the
configuration is forgotten. Refused calls count for whoever made them, not for the server, which heard nothing of them.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mcpx.model.call import Caller
from mcpx.model.events import Bus, CallFinished, ToolsListed
from mcpx.telemetry.series import FINEST, KEPT, STEPS, Rate, Series, Tally, slot_of

Range = Literal["15m", "1h", "24h", "7d"]
LEVELS: dict[Range, int] = {"15m": 0, "1h": 1, "24h": 2, "7d": 3}
HOUR = LEVELS["1h"]
MOST_SERVERS = 1_000
MOST_CLIENTS = 200
MOST_TOOLS = 2_000
MOST_SESSIONS = 1_000
"""Whose client is remembered."""
LONGEST = 100
"""Characters of what a client says of itself."""

_FAILED = frozenset(("error", "tool_error", "denied"))


class Summary(NamedTuple):
    """What a server, or a tool, was called for."""

    calls_per_minute: float
    calls: int
    """Of a server: in the last hour; of a tool: since counting began."""
    errors: int
    p50_ms: float | None
    p95_ms: float | None
    last_call: float
    """Seconds since 1970."""


class Point(NamedTuple):
    at: int
    calls: int
    errors: int
    p50_ms: float | None
    p95_ms: float | None


class ClientKey(NamedTuple):
    name: str
    principal: str
    profile: str | None


@dataclass(frozen=True, slots=True)
class Client:
    """Who called, as far as it is known."""

    key: ClientKey
    version: str | None
    protocol: str
    modern: bool
    calls: int
    calls_per_minute: float
    last_seen: float


class _Server:
    __slots__ = ("last", "rate", "series", "summary", "summed")

    def __init__(self) -> None:
        self.series = Series()
        self.rate = Rate()
        self.last = 0.0
        self.summary: Summary | None = None
        self.summed: tuple[float, int] = (0.0, -1)
        """For which last call and which minute the summary was made."""


class _Tool:
    __slots__ = ("last", "rate", "tally")

    def __init__(self) -> None:
        self.tally = Tally()
        self.rate = Rate()
        self.last = 0.0


class _Client:
    __slots__ = ("calls", "last", "modern", "protocol", "rate", "version")

    def __init__(self) -> None:
        self.calls = 0
        self.rate = Rate()
        self.last = 0.0
        self.version: str | None = None
        self.protocol = ""
        self.modern = False


def client_key(caller: Caller) -> ClientKey:
    """Who this is, in words that may be kept."""
    name = caller.client.get("name")
    name = name if isinstance(name, str) else ""
    if len(name) > LONGEST:
        name = name[:LONGEST]
    principal = caller.principal
    return ClientKey(name, principal if len(principal) <= LONGEST else principal[:LONGEST], caller.profile)


class Statistics:
    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._clock = clock
        self.since = clock()
        self._all = Series()
        self._rate = Rate()
        self._servers: dict[str, _Server] = {}
        self._tools: dict[tuple[str, str], _Tool] = {}
        self._clients: dict[ClientKey, _Client] = {}
        self._by_session: dict[str | None, _Client] = {}
        """The same by the session they call in, so that who calls again is found at once."""
        self.changes = 0
        """How often a client came that was not known."""
        bus.subscribe(self._finished, CallFinished)
        bus.subscribe(self._listed, ToolsListed)

    def end(self) -> None:
        self._bus.unsubscribe(self._finished)
        self._bus.unsubscribe(self._listed)

    # What happens ------------------------------------------------------------------------------------------------

    def _finished(self, event: CallFinished) -> None:
        passage, seconds, outcome, _ = event
        now = self._clock()
        second, failed = int(now), outcome in _FAILED
        slot = None if outcome == "denied" else slot_of(seconds)
        self._all.add(second, slot, failed)
        self._rate.add(second)
        caller = passage.call.caller
        client = self._by_session.get(caller.session) or self._client(caller)
        client.calls += 1
        client.rate.add(second)
        client.last = now
        if slot is None:
            return
        name = passage.server
        server = self._servers.get(name) or self._server(name)
        if server is not None:
            server.series.add(second, slot, failed)
            server.rate.add(second)
            server.last = now
        if passage.offer is not None:
            key = (name, passage.name)
            tool = self._tools.get(key) or self._tool(key)
            if tool is not None:
                tool.tally.add(slot, failed)
                tool.rate.add(second)
                tool.last = now

    def _listed(self, event: ToolsListed) -> None:
        self._client(event.caller).last = self._clock()

    def _client(self, caller: Caller) -> _Client:
        key = self.key_of(caller)
        found = self._clients.get(key)
        if found is None:
            if len(self._clients) >= MOST_CLIENTS:
                del self._clients[min(self._clients, key=lambda one: self._clients[one].last)]
                self._by_session.clear()
            found = self._clients[key] = _Client()
            version = caller.client.get("version")
            found.version = version[:LONGEST] if isinstance(version, str) else None
            found.protocol, found.modern = caller.version, caller.modern
            self.changes += 1
        if caller.session is not None:
            if len(self._by_session) >= MOST_SESSIONS:
                self._by_session.clear()
            self._by_session[caller.session] = found
        return found

    def _server(self, name: str) -> _Server | None:
        if len(self._servers) >= MOST_SERVERS:
            return None
        found = self._servers[name] = _Server()
        return found

    def _tool(self, key: tuple[str, str]) -> _Tool | None:
        if len(self._tools) >= MOST_TOOLS or len(key[1]) > 2 * LONGEST:
            return None
        found = self._tools[key] = _Tool()
        return found

    def keep(self, servers: Iterable[str]) -> None:
        """Forget all others: they left the configuration."""
        present = set(servers)
        self._servers = {name: its for name, its in self._servers.items() if name in present}
        self._tools = {key: its for key, its in self._tools.items() if key[0] in present}

    def key_of(self, caller: Caller) -> ClientKey:
        """By which a caller is told from others here."""
        return client_key(caller)

    # What is asked -----------------------------------------------------------------------------------------------

    def server(self, name: str) -> Summary | None:
        """Of the last hour; None: it was not called since counting began."""
        found = self._servers.get(name)
        if found is None:
            return None
        now = self._clock()
        minute = (found.last, int(now) // STEPS[HOUR])
        if found.summary is None or found.summed != minute:
            whole = found.series.over(HOUR, now)
            found.summary = Summary(0, whole.calls, whole.errors, whole.p50_ms, whole.p95_ms, found.last)
            found.summed = minute
        return found.summary._replace(calls_per_minute=found.rate.at(int(now)))

    def tool(self, server: str, name: str) -> Summary | None:
        """One tool by its server's own name for it, since counting began."""
        found = self._tools.get((server, name))
        if found is None:
            return None
        tally, rate = found.tally, found.rate.at(int(self._clock()))
        return Summary(rate, tally.calls, tally.errors, tally.p50_ms, tally.p95_ms, found.last)

    def points(self, range: Range, server: str | None = None) -> tuple[int, list[Point]]:
        """The length of a step in seconds, and every step of the range, the latest last."""
        level, now = LEVELS[range], self._clock()
        step = STEPS[level]
        series = self._all if server is None else None
        if server is not None and (found := self._servers.get(server)) is not None:
            series = found.series
        steps = {} if series is None else dict(series.steps(level, now))
        last = int(now) // step * step
        points: list[Point] = []
        for at in _until(last, step, KEPT[level]):
            tally = steps.get(at)
            points.append(
                Point(at, 0, 0, None, None)
                if tally is None
                else Point(at, tally.calls, tally.errors, tally.p50_ms, tally.p95_ms)
            )
        return step, points

    def minute(self) -> tuple[int, float | None]:
        """Calls of the last minute, and the 95th percentile of about that time, in milliseconds."""
        now = self._clock()
        calls = self._rate.at(int(now))
        return calls, self._all.over(0, now, latest=60 // FINEST).p95_ms if calls else None

    def per_minute(self) -> dict[str, int]:
        """Calls of the last minute, of each server that was called."""
        second = int(self._clock())
        return {name: its.rate.at(second) for name, its in self._servers.items()}

    def errors_last_hour(self) -> int:
        return self._all.over(HOUR, self._clock()).errors

    def clients(self) -> list[Client]:
        second = int(self._clock())
        return [
            Client(key, its.version, its.protocol, its.modern, its.calls, its.rate.at(second), its.last)
            for key, its in self._clients.items()
        ]


def _until(last: int, step: int, count: int) -> Iterable[int]:
    return (last - step * back for back in range(count - 1, -1, -1))
