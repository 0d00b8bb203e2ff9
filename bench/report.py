"""From the numbers of a run to tables, and to docs/performance.md.

A figure is the median over the rounds. A ratio is formed inside each round, where both systems met the same
neighbours, and the median of the ratios is shown.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from bench.measure import WIDTHS
from bench.upstream import Json

Value = Callable[[Json], float]
"""One figure of a slot."""

BUSY = 1.5
"""Load average before the run from which on the document says that others were at work."""


def p50(slot: Json) -> float:
    return slot["p50_ms"]


def p95(slot: Json) -> float:
    return slot["p95_ms"]


def rate(slot: Json) -> float:
    return slot["calls"] / slot["seconds"]


def cpu_ms(slot: Json) -> float:
    """CPU milliseconds a call, which are CPU seconds for a thousand."""
    return 1000 * slot["cpu_seconds"] / max(1, slot["calls"])


class Row:
    """One system on one pair, and what it is compared with: the direct connection and the floor of its own era."""

    def __init__(self, found: Json, others: Sequence[Json]) -> None:
        self.found = found
        same = {other["name"]: other for other in others if other["era"] == found["era"]}
        self.direct, self.floor = same.get("direct"), same.get("floor")
        self.is_direct = found["name"] == "direct"

    def small(self, value: Value, width: int = 1) -> float | None:
        return _figure(self.found["small"][str(width)], value)

    def cpu(self, width: int) -> float | None:
        return None if self.is_direct else self.small(cpu_ms, width)

    def ratio(self, value: Value, base: Json | None, width: int = 1) -> float | None:
        if base is None or base is self.found or self.is_direct:
            return None
        rounds = zip(self.found["small"][str(width)], base["small"][str(width)], strict=True)
        ratios = [value(mine) / value(theirs) for mine, theirs in rounds if mine["calls"] and theirs["calls"]]
        return median(ratios) if ratios else None

    def of(self, kind: str, value: Value) -> float | None:
        """Of large answers (`large`) or of lists (`lists`)."""
        return None if self.is_direct and value is cpu_ms else _figure(self.found[kind], value)

    def start(self, key: str) -> float | None:
        starts = self.found["starts"]
        own = key == "seconds" or not self.is_direct
        return median(start[key] for start in starts) if starts and own else None

    def memory(self, key: str) -> float | None:
        return None if self.is_direct else self.found[key]


def _figure(slots: Sequence[Json], value: Value) -> float | None:
    answered = [value(slot) for slot in slots if slot["calls"]]
    return median(answered) if answered else None


def errors(results: Json) -> list[str]:
    return [
        f"{found['name']} ({found['era']}), {pair}: {error}"
        for pair, found in _all(results)
        for error in found["errors"]
    ]


def _all(results: Json) -> Iterator[tuple[str, Json]]:
    for pair, rows in results["pairs"].items():
        for found in rows:
            yield pair, found


# Tables ------------------------------------------------------------------------------------------------------


def tables(results: Json) -> str:
    return "\n".join(_pair(pair, rows) for pair, rows in results["pairs"].items())


def _pair(pair: str, found: Sequence[Json]) -> str:
    rows = [Row(one, found) for one in found]
    calls = [
        "system",
        "era",
        *("p50 ms", "p95 ms", "p50 ×direct", "p50 ×floor"),
        *(f"calls/s @{width}" for width in WIDTHS),
        *(f"CPU s/1k @{width}" for width in WIDTHS),
        "CPU ×floor @16",
    ]
    called = [
        [
            *(row.found["name"], row.found["era"]),
            *(row.small(p50), row.small(p95), row.ratio(p50, row.direct), row.ratio(p50, row.floor)),
            *(row.small(rate, width) for width in WIDTHS),
            *(row.cpu(width) for width in WIDTHS),
            row.ratio(cpu_ms, row.floor, 16),
        ]
        for row in rows
    ]
    rest = [
        *("system", "era", "1 MB p50 ms", "1 MB CPU ms", "1,000 tools ms", "1,000 tools CPU ms"),
        *("start s", "start CPU s", "start RSS MB", "RSS idle MB", "RSS after MB", "after calls", "errors"),
    ]
    others = [
        [
            *(row.found["name"], row.found["era"]),
            *(row.of("large", p50), row.of("large", cpu_ms), row.of("lists", p50), row.of("lists", cpu_ms)),
            *(row.start("seconds"), row.start("cpu_seconds"), row.start("rss_mb")),
            *(row.memory("rss_idle_mb"), row.memory("rss_after_mb")),
            *(row.found["calls"], str(len(row.found["errors"]))),
        ]
        for row in rows
    ]
    return f"### {pair}\n\n{_table(calls, called)}\n{_table(rest, others)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [head, *([_short(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    aligned = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    rule = "|".join(["", *("-" * (width + 2) for width in widths), ""])
    return "\n".join([f"{aligned[0]} |", rule, *(f"{line} |" for line in aligned[1:])]) + "\n"


def _short(value: Any) -> str:
    """Three figures are more than a shared machine supports."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# The document ------------------------------------------------------------------------------------------------


def document(results: Json) -> str:
    effort, loads = results["effort"], results["loads"]
    wrong = errors(results)
    busy = loads[0] >= BUSY
    return DOCUMENT.format(
        when=results["when"],
        cores=results["cores"],
        python=results["python"],
        version=results["mcpx"],
        minutes=results["seconds"] / 60,
        load=loads[0],
        high=max(loads),
        neighbours="Others were at work on it during the run; wall times suffer from that, CPU times little."
        if busy
        else "It was quiet when the run began.",
        rounds=effort["rounds"],
        slot=effort["slot"],
        large=effort["large"],
        starts=effort["starts"],
        answers=sum(found["calls"] for _, found in _all(results)),
        wrong=f"{len(wrong)} were wrong or missing: {wrong[0]}" if wrong else "none was wrong or missing",
        summary=_summary(results),
        tables=tables(results),
    )


def _summary(results: Json) -> str:
    head = ["front ← upstream", "added to p50, ms", "CPU ms a call @16", "× floor", "SDK × mcpx", "calls/s @64"]
    rows: list[list[Any]] = []
    for pair, found in results["pairs"].items():
        by_name = {one["name"]: Row(one, found) for one in found if one["era"] == "older"}
        mcpx, direct, sdk = (by_name.get(name) for name in ("mcpx", "direct", "sdk"))
        if mcpx is None or direct is None:
            continue
        added = (mcpx.small(p50) or 0.0) - (direct.small(p50) or 0.0)
        dearer = sdk.ratio(cpu_ms, mcpx.found, 16) if sdk is not None else None
        rows.append([pair, added, mcpx.cpu(16), mcpx.ratio(cpu_ms, mcpx.floor, 16), dearer, mcpx.small(rate, 64)])
    return _table(head, rows)


DOCUMENT = """\
# Performance

Made by `python -m bench --write-docs` from one full run; not edited by hand. How to run it:
[bench/README.md](../bench/README.md).

## In short

Older era (2025-06-18). *Added to p50*: by how much a call of 100 bytes takes longer through mcpx than without a
gateway. *CPU* is that of mcpx's own processes with 16 calls in flight: in milliseconds a call, as a multiple of a
relay that does nothing but forward (the floor), and what the same relay on the official Python SDK costs as a multiple
of mcpx.

{summary}
## Method

* **Four pairs**: how the client reaches the gateway ← how the gateway reaches its upstream.
* **Two eras**: *older* is 2025-06-18 with its handshake and session, *modern* is 2026-07-28, stateless. Client and
  upstream speak the same era; nothing is bridged.
* **Systems**: `direct`, the client connected to the upstream itself, over the upstream's transport; `floor`, a
  hand-written asyncio and orjson relay that rewrites ids and forwards the rest; `mcpx`, as a user starts it; `sdk`,
  the same relay on the session classes of `mcp` 2.3, in its faster setting (JSON replies). The upstream is a tiny
  echo server on the standard library.
* **One run, interleaved**: all systems of a pair run at the same time and take turns in rotating order, {rounds}
  rounds of {slot:g} s for each measurement. Figures are medians over the rounds; ratios are formed inside a round
  (against the direct connection and the floor of the same era), then the median is taken.
* **Latency** is one client that waits for each answer; `@16` and `@64` are 16 and 64 calls in flight.
* **CPU** is that of all processes of the gateway, mcpx's keeper included, upstreams and client left out; read from
  the kernel's clocks. `CPU s/1k` is seconds for 1,000 calls, which is milliseconds for one.
* **1 MB** is an answer of a million bytes to a question of 100, {large} in each round. **1,000 tools** is one
  `tools/list` of an upstream with 1,000 tools; the floor fetches it anew each time, the others keep it.
* **Start** is from exec to the first `tools/list` with all tools of one upstream that has 5 (median of {starts}); its
  seconds include the start of a stdio upstream, its CPU and RSS do not. **RSS idle** and **RSS after** are with 1,000
  tools in the catalog, before the first call and after the number of calls shown; a slow system gets fewer of them
  in its time.
* **Every answer is checked** against its question: {answers:,} answers, and {wrong}.

## The machine

{cores} cores, shared; Linux; CPython {python}; loopback only. mcpx {version}, {when}, {minutes:.1f} minutes. Load
average {load:.1f} before the run, at most {high:.1f} with the benchmark itself in it. {neighbours}

## Limits

* Compare systems inside one table only. Differences below about 1.5 times in wall time are not established; CPU time
  is steadier. There are too few calls here for a p99.
* Client, gateway and upstream share the cores, and the client is Python too: calls/s of the fastest systems at 16 and
  64 are a lower bound.
* One upstream, one tool, one client session, questions of 100 bytes. No TLS, no policy, no progress, no questions
  back.
* The floor leaves out what a gateway is for: a catalog, limits, cancellation, sessions, reconnecting. It is a bound,
  not a goal. The SDK relay is a script of this benchmark (`bench/relays/sdk.py`), not somebody's product.
* RSS counts a page that processes share once for each of them.

## Tables

{tables}"""
