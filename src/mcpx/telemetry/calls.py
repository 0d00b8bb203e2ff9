"""Counting calls, for metrics: a lookup and a few additions each.

Promised: however servers name their tools, there are never more than `MOST` series of calls with a tool, nor more than
`MOST_OF_ONE` of one server: what comes beyond is counted under the tool `other`. Nothing of what a caller says
becomes a label. What is known of servers that left the configuration is forgotten (`keep`).
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable

from mcpx.model import errors
from mcpx.model.events import CallFinished, Outcome, Passage
from mcpx.telemetry.prometheus import LONGEST, Histogram, Text, label, labelled

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds."""
MOST = 2_000
MOST_OF_ONE = 1_000
"""Series of calls in all, and of one server: a server that renames its tools for ever takes no room of the others."""
MOST_RULES = 200
OTHER = "other"

_NAMED = frozenset(("tools/call", "prompts/get"))
"""Methods whose target is named in a label; a URI would be another one for each call."""
_CODES = frozenset(
    value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int) and value < 0
)

_Key = tuple[str, str, str, Outcome]
"""Server, tool, method, outcome: as they come, and as labels."""


class _Series:
    __slots__ = ("count", "labels", "times", "tool")

    def __init__(self, labels: str, tool: str, times: Histogram) -> None:
        self.count = 0
        self.labels = labels
        self.tool = tool
        """As it is known to others; empty where none is named."""
        self.times = times


class Calls:
    def __init__(self) -> None:
        self._known: dict[_Key, _Series] = {}
        """By what comes. Several may lead to one series: names are cut, and those beyond the bounds are one."""
        self._series: dict[_Key, _Series] = {}
        self._of: dict[str, int] = {}
        """Series of each server."""
        self._times: dict[str, Histogram] = {}
        self._errors: dict[tuple[str, int | str], int] = {}
        self._denied: dict[tuple[str, int | str], int] = {}

    def finished(self, event: CallFinished) -> None:
        passage, outcome = event.passage, event.outcome
        key = (passage.server, "" if passage.offer is None else passage.name, passage.call.method, outcome)
        series = self._known.get(key)
        if series is None:
            series = self._new(key, passage)
        series.count += 1
        if outcome == "denied":
            self._refused(passage, event.code)
            return
        times = series.times
        times.sum += event.seconds
        times.counts[bisect_left(BUCKETS, event.seconds)] += 1
        if event.code is not None:
            code = (label(passage.server), event.code if event.code in _CODES else OTHER)
            self._errors[code] = self._errors.get(code, 0) + 1

    def _new(self, key: _Key, passage: Passage) -> _Series:
        server, name, method, outcome = key
        tool = label(name) if method in _NAMED else ""
        wanted: _Key = (label(server), tool, method, outcome)
        series = self._series.get(wanted)
        if series is None and tool and not self._has_room(wanted[0]):
            wanted = (wanted[0], OTHER, method, outcome)
            series = self._series.get(wanted)
        if series is None:
            times = self._times.setdefault(wanted[0], Histogram(BUCKETS))
            labels = labelled(server=wanted[0], tool=wanted[1], method=method, outcome=outcome)
            series = self._series[wanted] = _Series(labels, wanted[1], times)
            self._of[wanted[0]] = self._of.get(wanted[0], 0) + 1
        if len(name) <= LONGEST and len(self._known) < MOST:
            self._known[key] = series
        return series

    def _has_room(self, server: str) -> bool:
        return len(self._series) < MOST and self._of.get(server, 0) < MOST_OF_ONE

    def _refused(self, passage: Passage, code: int | None) -> None:
        key = (label(passage.rule or ""), OTHER if code is None or code not in _CODES else code)
        if key not in self._denied and len(self._denied) >= MOST_RULES:
            key = (OTHER, key[1])
        self._denied[key] = self._denied.get(key, 0) + 1

    def keep(self, servers: Iterable[str]) -> None:
        """Forget all others: they left the configuration."""
        present = {label(server) for server in servers}
        self._known.clear()
        self._series = {key: series for key, series in self._series.items() if key[0] in present}
        self._times = {server: times for server, times in self._times.items() if server in present}
        self._errors = {key: count for key, count in self._errors.items() if key[0] in present}
        self._of = {server: sum(key[0] == server for key in self._series) for server in self._times}

    def write(self, text: Text, server: Callable[[str], bool], tool: Callable[[str, str], bool]) -> None:
        """`server`, `tool` (of a server): whether whoever asks may know of it."""
        shown: Collection[tuple[_Key, _Series]] = [
            (key, series)
            for key, series in self._series.items()
            if server(key[0]) and (not series.tool or series.tool == OTHER or tool(key[0], series.tool))
        ]
        text.family(
            "mcpx_calls_total",
            "counter",
            "Calls, reads, completions and subscriptions that are over, by how they ended.",
            [(series.labels, series.count) for _, series in shown],
        )
        text.family(
            "mcpx_errors_total",
            "counter",
            "JSON-RPC errors that calls ended with, by code; those of no standard and not ours are 'other'.",
            [
                (labelled(server=name, code=str(code)), count)
                for (name, code), count in self._errors.items()
                if server(name)
            ],
        )
        text.family(
            "mcpx_denied_total",
            "counter",
            "Calls that were refused before any server heard of them, by the rule or limit that did it.",
            [(labelled(rule=rule, code=str(code)), count) for (rule, code), count in self._denied.items()],
        )
        text.histogram(
            "mcpx_call_duration_seconds",
            "Time from a call's arrival in the gateway to its answer, refused ones left out.",
            {labelled(server=name): times for name, times in self._times.items() if server(name)},
        )
