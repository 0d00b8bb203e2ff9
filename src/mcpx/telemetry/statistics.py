"""How much is called, how often it fails and how long it takes, for people who look (ADM-4).

There is one only while somebody may look (`--admin`). `activity` notes calls; here they are
counted, those of a second together, or when somebody asks. Servers, clients and tools are told
apart up to a bound each, and what strangers call themselves is cut. What left the configuration is
forgotten. Refused calls count for whoever made them, not for the server, which heard nothing of
them.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mcpx.model.call import Caller
from mcpx.model.events import Bus, ToolsListed
from mcpx.telemetry.activity import Activity, Line
from mcpx.telemetry.series import FINEST, KEPT, STEPS, Rate, Series, Tally, slot_of

Range = Literal["15m", "1h", "24h", "7d"]
LEVELS: dict[Range, int] = {"15m": 0, "1h": 1, "24h": 2, "7d": 3}
HOUR = LEVELS["1h"]
MOST_SERVERS = 1_000
MOST_CLIENTS = 200
MOST_TOOLS = 2_000
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
    return ClientKey(
        name, principal if len(principal) <= LONGEST else principal[:LONGEST], caller.profile
    )


class _Counters:
    """Where the calls of a line are counted."""

    __slots__ = ("client", "is_reached", "server", "tool")

    def __init__(self, client: _Client) -> None:
        self.client = client
        self.is_reached = False
        """Whether the server heard of any; `server` and `tool` are looked for then."""
        self.server: _Server | None = None
        self.tool: _Tool | None = None


class Statistics:
    def __init__(
        self, bus: Bus, activity: Activity, clock: Callable[[], float] = time.time
    ) -> None:
        self._bus = bus
        self._activity = activity
        self._clock = clock
        self.since = clock()
        self._all = Series()
        self._rate = Rate()
        self._servers: dict[str, _Server] = {}
        self._tools: dict[tuple[str, str], _Tool] = {}
        self._clients: dict[ClientKey, _Client] = {}
        self._changes = 0
        activity.count(self._count)
        bus.subscribe(self._listed, ToolsListed)

    def end(self) -> None:
        self._activity.end()
        self._bus.unsubscribe(self._listed)

    # What happens
    # ----------------------------------------------------------------------------------------------

    def _count(self, second: int, lines: list[Line]) -> None:
        for line in lines:
            slots = [slot_of(seconds) for seconds in line.times]
            failed = refused = 0
            for seconds, outcome in line.odd:
                if outcome == "denied":
                    refused += 1
                else:
                    failed += outcome in _FAILED
                    slots.append(slot_of(seconds))
            line.times.clear()
            line.odd.clear()
            self._all.add(second, slots, failed, refused)
            many = len(slots)
            self._rate.add(second, many + refused)
            its: _Counters = line.counters or self._counters(line)
            client, last = its.client, line.last
            client.calls += many + refused
            client.rate.add(second, many + refused)
            client.last = max(client.last, last)
            if not slots:
                continue
            if not its.is_reached:
                self._reach(its, line)
            if (server := its.server) is not None:
                server.series.add(second, slots, failed)
                server.rate.add(second, many)
                server.last = max(server.last, last)
            if (tool := its.tool) is not None:
                tool.tally.add(slots, failed)
                tool.rate.add(second, many)
                tool.last = max(tool.last, last)

    def _counters(self, line: Line) -> _Counters:
        key = ClientKey((line.client or "")[:LONGEST], line.principal[:LONGEST], line.profile)
        client = self._client(key, line.version, line.protocol, line.modern)
        line.counters = _Counters(client)
        return line.counters

    def _reach(self, its: _Counters, line: Line) -> None:
        its.is_reached = True
        its.server = self._servers.get(line.server) or self._server(line.server)
        if line.public is not None:
            key = (line.server, line.name)
            its.tool = self._tools.get(key) or self._tool(key)

    def _listed(self, event: ToolsListed) -> None:
        caller, version = event.caller, event.caller.client.get("version")
        version = version if isinstance(version, str) else None
        self._client(
            self.key_of(caller), version, caller.version, caller.modern
        ).last = self._clock()

    def _client(self, key: ClientKey, version: str | None, protocol: str, modern: bool) -> _Client:
        found = self._clients.get(key)
        if found is None:
            if len(self._clients) >= MOST_CLIENTS:
                del self._clients[min(self._clients, key=lambda one: self._clients[one].last)]
                self._activity.forget_lines()
            found = self._clients[key] = _Client()
            found.version = None if version is None else version[:LONGEST]
            found.protocol, found.modern = protocol, modern
            self._changes += 1
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
        self._activity.forget_lines()
        self._servers = {name: its for name, its in self._servers.items() if name in present}
        self._tools = {key: its for key, its in self._tools.items() if key[0] in present}

    def key_of(self, caller: Caller) -> ClientKey:
        """By which a caller is told from others here."""
        return client_key(caller)

    # What is asked
    # ----------------------------------------------------------------------------------------------

    def _now(self) -> float:
        """All that happened until then is counted."""
        self._activity.count_up()
        return self._clock()

    @property
    def changes(self) -> int:
        """How often a client came that was not known."""
        self._now()
        return self._changes

    def server(self, name: str) -> Summary | None:
        """Of the last hour; None: it was not called since counting began."""
        now = self._now()
        found = self._servers.get(name)
        if found is None:
            return None
        minute = (found.last, int(now) // STEPS[HOUR])
        if found.summary is None or found.summed != minute:
            whole = found.series.over(HOUR, now)
            found.summary = Summary(
                0, whole.calls, whole.errors, whole.p50_ms, whole.p95_ms, found.last
            )
            found.summed = minute
        return found.summary._replace(calls_per_minute=found.rate.at(int(now)))

    def tool(self, server: str, name: str) -> Summary | None:
        """One tool by its server's own name for it, since counting began."""
        now = self._now()
        found = self._tools.get((server, name))
        if found is None:
            return None
        tally, rate = found.tally, found.rate.at(int(now))
        return Summary(rate, tally.calls, tally.errors, tally.p50_ms, tally.p95_ms, found.last)

    def points(self, range: Range, server: str | None = None) -> tuple[int, list[Point]]:
        """The length of a step in seconds, and every step of the range, the latest last."""
        level, now = LEVELS[range], self._now()
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
        now = self._now()
        calls = self._rate.at(int(now))
        return calls, self._all.over(0, now, latest=60 // FINEST).p95_ms if calls else None

    def per_minute(self) -> dict[str, int]:
        """Calls of the last minute, of each server that was called."""
        second = int(self._now())
        return {name: its.rate.at(second) for name, its in self._servers.items()}

    def errors_last_hour(self) -> int:
        return self._all.over(HOUR, self._now()).errors

    def clients(self) -> list[Client]:
        second = int(self._now())
        return [
            Client(
                key, its.version, its.protocol, its.modern, its.calls, its.rate.at(second), its.last
            )
            for key, its in self._clients.items()
        ]


def _until(last: int, step: int, count: int) -> Iterable[int]:
    return (last - step * back for back in range(count - 1, -1, -1))
