"""Counts, error rates, and durations of calls for the admin API (ADM-4).

Servers, tools, and clients are counted separately, up to a limit each. Names that clients chose are
cut. Servers that have left the configuration are forgotten. A denied call counts for its client and
in the total, but not for the server, which did not receive it.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Final, Literal, NamedTuple

from mcpx.model.call import Caller
from mcpx.model.events import Bus, CallFinished, ToolsListed
from mcpx.telemetry.call_series import STEP_SECONDS, STEPS_KEPT, MinuteRate, Series, Tally

Range = Literal["15m", "1h", "24h", "7d"]
LEVELS: Final[dict[Range, int]] = {"15m": 0, "1h": 1, "24h": 2, "7d": 3}
HOUR: Final = LEVELS["1h"]
MAX_SERVERS = 1_000
MAX_CLIENTS = 200
MAX_TOOLS = 2_000
MAX_NAME_CHARACTERS: Final = 100


class Summary(NamedTuple):
    """The calls of a server in the last hour, or of a tool since the gateway started."""

    calls_per_minute: float
    calls: int
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
    key: ClientKey
    version: str | None
    protocol: str
    modern: bool
    calls: int
    calls_per_minute: float
    last_seen: float


@dataclass(slots=True)
class _ServerCounts:
    series: Series = field(default_factory=Series)
    rate: MinuteRate = field(default_factory=MinuteRate)
    last_call: float = 0.0


@dataclass(slots=True)
class _ToolCounts:
    tally: Tally = field(default_factory=Tally)
    rate: MinuteRate = field(default_factory=MinuteRate)
    last_call: float = 0.0


@dataclass(slots=True)
class _ClientCounts:
    version: str | None
    protocol: str
    modern: bool
    calls: int = 0
    rate: MinuteRate = field(default_factory=MinuteRate)
    last_seen: float = 0.0


def client_key(caller: Caller) -> ClientKey:
    name = caller.client.get("name")
    if not isinstance(name, str):
        name = ""
    principal = caller.principal[:MAX_NAME_CHARACTERS]
    return ClientKey(name[:MAX_NAME_CHARACTERS], principal, caller.profile)


class CallStatistics:
    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._clock = clock
        self.since = clock()
        self._all = _ServerCounts()
        self._servers: dict[str, _ServerCounts] = {}
        self._tools: dict[tuple[str, str], _ToolCounts] = {}
        self._clients: dict[ClientKey, _ClientCounts] = {}
        self.changes = 0
        """Incremented for each client that was not known."""
        bus.subscribe(self._finished, CallFinished)
        bus.subscribe(self._listed, ToolsListed)

    def end(self) -> None:
        self._bus.unsubscribe(self._finished)
        self._bus.unsubscribe(self._listed)

    def keep(self, servers: Iterable[str]) -> None:
        """Forget all other servers, because they have left the configuration."""
        kept = set(servers)
        self._servers = {name: counts for name, counts in self._servers.items() if name in kept}
        self._tools = {key: counts for key, counts in self._tools.items() if key[0] in kept}

    # Counting
    # ----------------------------------------------------------------------------------------------

    def _finished(self, event: CallFinished) -> None:
        passage, outcome = event.passage, event.outcome
        now = self._clock()
        second = int(now)
        is_denied = outcome == "denied"
        is_error = is_denied or outcome == "error" or outcome == "tool_error"
        seconds = None if is_denied else event.seconds

        client = self._client(passage.call.caller)
        client.calls += 1
        client.rate.add(second)
        client.last_seen = now

        self._all.series.add(now, seconds, is_error)
        self._all.rate.add(second)
        if is_denied:
            return
        server = self._server(passage.server)
        if server is not None:
            server.series.add(now, seconds, is_error)
            server.rate.add(second)
            server.last_call = now
        tool = None if passage.offer is None else self._tool(passage.server, passage.name)
        if tool is not None:
            tool.tally.add(seconds, is_error)
            tool.rate.add(second)
            tool.last_call = now

    def _listed(self, event: ToolsListed) -> None:
        self._client(event.caller).last_seen = self._clock()

    def _client(self, caller: Caller) -> _ClientCounts:
        key = client_key(caller)
        counts = self._clients.get(key)
        if counts is None:
            if len(self._clients) >= MAX_CLIENTS:
                oldest = min(self._clients, key=lambda known: self._clients[known].last_seen)
                del self._clients[oldest]
            version = caller.client.get("version")
            if isinstance(version, str):
                version = version[:MAX_NAME_CHARACTERS]
            else:
                version = None
            counts = _ClientCounts(version, caller.version, caller.modern)
            self._clients[key] = counts
            self.changes += 1
        return counts

    def _server(self, name: str) -> _ServerCounts | None:
        counts = self._servers.get(name)
        if counts is None and len(self._servers) < MAX_SERVERS:
            counts = self._servers[name] = _ServerCounts()
        return counts

    def _tool(self, server: str, name: str) -> _ToolCounts | None:
        counts = self._tools.get((server, name))
        is_new = counts is None
        if is_new and len(self._tools) < MAX_TOOLS and len(name) <= 2 * MAX_NAME_CHARACTERS:
            counts = self._tools[server, name] = _ToolCounts()
        return counts

    # Reading
    # ----------------------------------------------------------------------------------------------

    def server(self, name: str) -> Summary | None:
        """Return the calls of the last hour, or None if the server was never called."""
        counts = self._servers.get(name)
        if counts is None:
            return None
        now = self._clock()
        hour = counts.series.total(HOUR, now)
        return _summary(counts.rate.at(int(now)), hour, counts.last_call)

    def tool(self, server: str, name: str) -> Summary | None:
        """Return the calls of a tool, by the server's name for it, since the gateway started."""
        counts = self._tools.get((server, name))
        if counts is None:
            return None
        rate = counts.rate.at(int(self._clock()))
        return _summary(rate, counts.tally, counts.last_call)

    def points(self, range: Range, server: str | None = None) -> tuple[int, list[Point]]:
        """Return the length of a step in seconds and all steps of the range, the newest last."""
        level = LEVELS[range]
        now = self._clock()
        counts = self._all if server is None else self._servers.get(server)
        steps = {} if counts is None else counts.series.steps(level, now)
        length, kept = STEP_SECONDS[level], STEPS_KEPT[level]
        newest = int(now) // length * length
        oldest = newest - (kept - 1) * length
        points: list[Point] = []
        for begin in islice(count(oldest, length), kept):
            tally = steps.get(begin) or Tally()
            p50, p95 = tally.percentile_ms(0.5), tally.percentile_ms(0.95)
            points.append(Point(begin, tally.calls, tally.errors, p50, p95))
        return length, points

    def minute(self) -> tuple[int, float | None]:
        """Return the calls of the last minute and the 95th percentile in milliseconds."""
        now = self._clock()
        calls = self._all.rate.at(int(now))
        if not calls:
            return 0, None
        recent = self._all.series.total(0, now, since=now - 60 - STEP_SECONDS[0])
        return calls, recent.percentile_ms(0.95)

    def per_minute(self) -> dict[str, int]:
        """Return the calls of the last minute of each server that was called."""
        second = int(self._clock())
        return {name: counts.rate.at(second) for name, counts in self._servers.items()}

    def errors_last_hour(self) -> int:
        return self._all.series.total(HOUR, self._clock()).errors

    def clients(self) -> list[Client]:
        second = int(self._clock())
        return [
            Client(
                key,
                counts.version,
                counts.protocol,
                counts.modern,
                counts.calls,
                counts.rate.at(second),
                counts.last_seen,
            )
            for key, counts in self._clients.items()
        ]


def _summary(rate: int, tally: Tally, last_call: float) -> Summary:
    p50, p95 = tally.percentile_ms(0.5), tally.percentile_ms(0.95)
    return Summary(rate, tally.calls, tally.errors, p50, p95, last_call)
