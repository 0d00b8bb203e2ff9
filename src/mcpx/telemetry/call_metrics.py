"""Counting calls, for metrics: a lookup and a few additions each.

Promised: however servers name their tools, there are never more than `MOST` series of calls with a
tool, nor more than `MOST_OF_ONE` of one server: what comes beyond is counted under the tool
`other`. Nothing of what a caller says becomes a label. What is known of servers that left the
configuration is forgotten (`keep`).
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping

from mcpx.model import errors
from mcpx.model.events import CallFinished, Outcome
from mcpx.telemetry.prometheus import LONGEST, Histogram, Text, label, labelled

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds."""
MOST = 2_000
MOST_OF_ONE = 1_000
"""Series of calls in all, and of one server: a server that renames its tools for ever takes no room
of the others."""
MOST_RULES = 200
MAX_TIMED_TOOLS = 100
"""Tools with a histogram. Each histogram is 18 lines of a scrape, so only the tools with the most
calls have one."""
MAX_PROFILES = 200
PROMOTION_INTERVAL = 32
"""Calls of a tool without a histogram between two checks whether it is used more than a tool with
one."""
OTHER = "other"

_NAMED = frozenset(("tools/call", "prompts/get"))
"""Methods whose target is named in a label; a URI would be another one for each call."""
_CODES = frozenset(
    value
    for name, value in vars(errors).items()
    if name.isupper() and isinstance(value, int) and value < 0
)

_Key = tuple[str, str, str, Outcome]
"""Server, tool, method, outcome: as they come, and as labels."""


class _TimedTool:
    __slots__ = ("calls", "has_histogram", "server", "times", "tool")

    def __init__(self, server: str, tool: str, times: Histogram, *, has_histogram: bool) -> None:
        self.server = server
        self.tool = tool
        self.calls = 0
        self.times = times
        self.has_histogram = has_histogram
        """False: it shares the histogram `other` of its server."""


class _ToolTimes:
    """Histograms of the most used tools. All other tools of a server share the histogram `other`.

    A tool that overtakes the least used one takes its place and begins with an empty histogram.
    Counts are never moved from one histogram to another, so that each histogram only grows.
    """

    def __init__(self) -> None:
        self._tools: dict[tuple[str, str], _TimedTool] = {}
        self._others: dict[str, Histogram] = {}
        self._timed: set[_TimedTool] = set()

    def find(self, server: str, tool: str) -> _TimedTool:
        found = self._tools.get((server, tool))
        if found is None:
            has_histogram = tool != OTHER and len(self._timed) < MAX_TIMED_TOOLS
            times = Histogram(BUCKETS) if has_histogram else self._other(server)
            found = self._tools[server, tool] = _TimedTool(
                server, tool, times, has_histogram=has_histogram
            )
            if has_histogram:
                self._timed.add(found)
        return found

    def add(self, tool: _TimedTool, seconds: float, bucket: int) -> None:
        tool.calls += 1
        if not tool.has_histogram and tool.calls % PROMOTION_INTERVAL == 0 and tool.tool != OTHER:
            self._promote(tool)
        tool.times.sum += seconds
        tool.times.counts[bucket] += 1

    def _promote(self, tool: _TimedTool) -> None:
        least = min(self._timed, key=lambda timed: timed.calls)
        if tool.calls <= least.calls:
            return
        self._timed.remove(least)
        self._timed.add(tool)
        least.times = self._other(least.server)
        least.has_histogram = False
        tool.times = Histogram(BUCKETS)
        tool.has_histogram = True

    def _other(self, server: str) -> Histogram:
        return self._others.setdefault(server, Histogram(BUCKETS))

    def keep(self, servers: Collection[str]) -> None:
        self._tools = {key: tool for key, tool in self._tools.items() if key[0] in servers}
        self._others = {
            server: times for server, times in self._others.items() if server in servers
        }
        self._timed = {tool for tool in self._timed if tool.server in servers}

    def histograms(
        self, server: Callable[[str], bool], tool: Callable[[str, str], bool]
    ) -> Mapping[str, Histogram]:
        timed = sorted(self._timed, key=lambda each: (each.server, each.tool))
        shown = {
            labelled(server=each.server, tool=each.tool): each.times
            for each in timed
            if server(each.server) and tool(each.server, each.tool)
        }
        for name, times in self._others.items():
            if server(name):
                shown[labelled(server=name, tool=OTHER)] = times
        return shown


def _code_label(code: int | None) -> int | str:
    if code is None or code not in _CODES:
        return OTHER
    return code


class _Series:
    __slots__ = ("count", "labels", "timed_tool", "times", "tool")

    def __init__(
        self, labels: str, tool: str, times: Histogram, timed_tool: _TimedTool | None
    ) -> None:
        self.count = 0
        self.labels = labels
        self.tool = tool
        """As it is known to others; empty where none is named."""
        self.times = times
        self.timed_tool = timed_tool
        """None: the method names no tool."""


class CallMetrics:
    def __init__(self) -> None:
        self._known: dict[_Key, _Series] = {}
        """By what comes. Several may lead to one series: names are cut, and those beyond the bounds
        are one."""
        self._series: dict[_Key, _Series] = {}
        self._of: dict[str, int] = {}
        """Series of each server."""
        self._times: dict[str, Histogram] = {}
        self._tool_times = _ToolTimes()
        self._profile_times: dict[str, Histogram] = {}
        """Histograms by label. Several profiles may have the same label."""
        self._times_by_profile: dict[str | None, Histogram] = {}
        self._errors: dict[tuple[str, int | str], int] = {}
        self._denied: dict[tuple[str, int | str], int] = {}

    def finished(self, event: CallFinished) -> None:
        passage, outcome = event.passage, event.outcome
        name = "" if passage.offer is None else passage.name
        key = (passage.server, name, passage.call.method, outcome)
        series = self._known.get(key) or self._new(key)
        series.count += 1
        if outcome == "denied":
            self._denied_by_rule(passage.rule or "", event.code)
            return
        bucket = bisect_left(BUCKETS, event.seconds)
        profile = passage.call.caller.profile
        profile_times = self._times_by_profile.get(profile) or self._times_of_profile(profile)
        for times in (series.times, profile_times):
            times.sum += event.seconds
            times.counts[bucket] += 1
        if series.timed_tool is not None:
            self._tool_times.add(series.timed_tool, event.seconds, bucket)
        if event.code is not None:
            error = (label(passage.server), _code_label(event.code))
            self._errors[error] = self._errors.get(error, 0) + 1

    def _new(self, key: _Key) -> _Series:
        name, method, outcome = key[1:]
        server = label(key[0])
        tool = label(name) if method in _NAMED else ""
        series = self._series.get((server, tool, method, outcome))
        if series is None and tool and not self._has_room(server):
            tool = OTHER
            series = self._series.get((server, tool, method, outcome))
        if series is None:
            times = self._times.setdefault(server, Histogram(BUCKETS))
            labels = labelled(server=server, tool=tool, method=method, outcome=outcome)
            timed_tool = None
            if method == "tools/call" and tool:
                timed_tool = self._tool_times.find(server, tool)
            series = _Series(labels, tool, times, timed_tool)
            self._series[server, tool, method, outcome] = series
            self._of[server] = self._of.get(server, 0) + 1
        if len(name) <= LONGEST and len(self._known) < MOST:
            self._known[key] = series
        return series

    def _times_of_profile(self, profile: str | None) -> Histogram:
        name = label(profile or "")
        times = self._profile_times.get(name)
        if times is None:
            if len(self._profile_times) >= MAX_PROFILES:
                name = OTHER
            times = self._profile_times.setdefault(name, Histogram(BUCKETS))
        if len(self._times_by_profile) < MAX_PROFILES:
            self._times_by_profile[profile] = times
        return times

    def _has_room(self, server: str) -> bool:
        return len(self._series) < MOST and self._of.get(server, 0) < MOST_OF_ONE

    def _denied_by_rule(self, rule: str, code: int | None) -> None:
        key = (label(rule), _code_label(code))
        if key not in self._denied and len(self._denied) >= MOST_RULES:
            key = (OTHER, key[1])
        self._denied[key] = self._denied.get(key, 0) + 1

    def keep(self, servers: Iterable[str], profiles: Iterable[str] = ()) -> None:
        """Forget all others: they left the configuration."""
        present = {label(server) for server in servers}
        self._known.clear()
        self._series = {key: series for key, series in self._series.items() if key[0] in present}
        self._times = {server: times for server, times in self._times.items() if server in present}
        self._tool_times.keep(present)
        self._times_by_profile.clear()
        kept = {"", *map(label, profiles)}
        self._profile_times = {
            name: times for name, times in self._profile_times.items() if name in kept
        }
        self._errors = {key: count for key, count in self._errors.items() if key[0] in present}
        self._of = {server: sum(key[0] == server for key in self._series) for server in self._times}

    def write(
        self,
        text: Text,
        server: Callable[[str], bool],
        tool: Callable[[str, str], bool],
        *,
        profiles: bool = True,
    ) -> None:
        """`server`, `tool`, `profiles`: whether the reader of the metrics may see a server, a tool,
        and profiles."""
        shown: Collection[tuple[_Key, _Series]] = [
            (key, series)
            for key, series in self._series.items()
            if server(key[0])
            and (not series.tool or series.tool == OTHER or tool(key[0], series.tool))
        ]
        text.counter(
            "mcpx_calls_total",
            "Calls, reads, completions and subscriptions that are over, by how they ended.",
            [(series.labels, series.count) for _, series in shown],
        )
        text.counter(
            "mcpx_errors_total",
            "JSON-RPC errors that calls ended with, by code; those of no standard and not ours "
            "are 'other'.",
            [
                (labelled(server=name, code=str(code)), count)
                for (name, code), count in self._errors.items()
                if server(name)
            ],
        )
        text.counter(
            "mcpx_denied_total",
            "Calls that were refused before any server heard of them, by the rule or limit that "
            "did it.",
            [
                (labelled(rule=rule, code=str(code)), count)
                for (rule, code), count in self._denied.items()
            ],
        )
        text.histogram(
            "mcpx_call_duration_seconds",
            "Time from a call's arrival in the gateway to its answer, refused ones left out.",
            {labelled(server=name): times for name, times in self._times.items() if server(name)},
        )
        text.histogram(
            "mcpx_tool_duration_seconds",
            "Call duration by tool, for the tools with the most calls; 'other' has the other "
            "tools of a server.",
            self._tool_times.histograms(server, tool),
        )
        if profiles:
            text.histogram(
                "mcpx_profile_duration_seconds",
                "Call duration by profile; it is empty for clients without a profile.",
                {labelled(profile=name): times for name, times in self._profile_times.items()},
            )
