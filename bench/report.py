"""docs/performance.md, from the numbers of a run."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.sections import SECTIONS
from bench.tables import Figures, table
from bench.upstream import Json

BUSY = 1.5
"""Load average a core that the benchmark does not reach by itself: others were at work."""


def document(results: Json) -> str:
    sections = results["sections"]
    parts = [HEAD, _summary(sections), _method(sections), _machine(sections), LIMITS]
    for name, section in SECTIONS.items():
        found = sections.get(name)
        told = f"Not measured in this run: `bench --only {name}`.\n"
        if found:
            told = f"{ABOUT[name].format(**found['effort'])}\n{section.tables(found)}"
        parts.append(f"## {section.title}\n\n{told}")
    return "\n".join(parts)


def _rows(sections: Json, section: str, **wanted: str) -> list[Json]:
    """Of what was measured."""
    rows: list[Json] = sections[section]["rows"] if section in sections else []
    fitting = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return [row for row in fitting if not row["problem"]]


# In short
# --------------------------------------------------------------------------------------------------


def _summary(sections: Json) -> str:
    return f"## In short\n\n{SUMMARY}\n{_calls(sections)}\n{_rest(sections)}"


def _calls(sections: Json) -> str:
    head = [
        "front ← upstream",
        "added to p50, ms",
        "CPU ms a call @16",
        "× floor",
        "best peer × mcpx",
        "calls/s @64",
    ]
    lines: list[list[Any]] = []
    for pair in dict.fromkeys(row["pair"] for row in _rows(sections, "hot")):
        found = _rows(sections, "hot", pair=pair, era="older")
        by_name = {row["name"]: Figures(row, found) for row in found}
        mcpx, direct = by_name.get("mcpx"), by_name.get("direct")
        if mcpx is None or direct is None:
            continue
        added = (mcpx.p50() or 0.0) - (direct.p50() or 0.0)
        lines.append(
            [
                pair,
                added,
                mcpx.cpu(16),
                mcpx.times("cpu_ms", "16", mcpx.floor),
                _peer(by_name),
                mcpx.rate(64),
            ]
        )
    return table(head, lines)


def _peer(by_name: dict[str, Figures]) -> str:
    """The other gateway with the least CPU a call; those that come with the benchmark as yardsticks
    do not count."""
    ours = ("direct", "floor", "starlette", "mcpx", "mcpx-search")
    dearer = {
        name: ratio
        for name, figures in by_name.items()
        if name not in ours
        and (ratio := figures.times("cpu_ms", "16", by_name["mcpx"].found)) is not None
    }
    best = min(dearer, key=dearer.__getitem__, default="")
    return f"{dearer[best]:.3g} ({best})" if best else "–"


def _rest(sections: Json) -> str:
    lines: list[list[str]] = []
    for row in _rows(sections, "start", name="mcpx"):
        starts: dict[str, list[Json]] = row["starts"]
        for size in dict.fromkeys((next(iter(starts)), next(reversed(starts)))):
            took = median(start["whole"] for start in starts[size])
            lines.append([f"exec to all tools listed, stdio upstreams: {size}", f"{took:.2g} s"])
        lines.append(
            [
                "the other servers answer while one is still starting",
                f"{row['others_listed']:.2g} s",
            ]
        )
    for row in _rows(sections, "memory", name="mcpx", era="older"):
        lines.append(["memory with 10 upstreams, idle", f"{row['idle_mb']:.3g} MB"])
        lines.append([f"… after {row['after_calls']:,} calls", f"{row['after_mb']:.3g} MB"])
        lines.append(
            [
                "a client session over HTTP",
                f"{row['session_kb']:.2g} KB, {row['session_cpu_ms']:.2g} ms CPU",
            ]
        )
    for row in _rows(sections, "faults", name="mcpx", era="older"):
        kills: list[Json] = row["kills"]
        back = max(kill["back"] or 0.0 for kill in kills)
        lines.append(["a killed server serves again, its own start included", f"{back:.2g} s"])
    return table(["mcpx, older era", ""], lines) if lines else ""


# How and where
# -----------------------------------------------------------------------------------------------


def _method(sections: Json) -> str:
    rows = [row for section in SECTIONS for row in sections.get(section, {"rows": ()})["rows"]]
    wrong = sum(len(row["errors"]) for row in rows)
    ours = sum(len(row["errors"]) for row in rows if row["name"].startswith("mcpx"))
    told = (
        f"{wrong} were wrong or missing, {ours} of them with mcpx"
        if wrong
        else "none was wrong or missing"
    )
    return METHOD.format(answers=sum(row["calls"] for row in rows), wrong=told)


def _machine(sections: Json) -> str:
    lines: list[list[Any]] = []
    busy: list[str] = []
    for name in SECTIONS:
        if name not in sections:
            continue
        found: Json = sections[name]
        machine: Json = found["machine"]
        loads: Sequence[float] = found["loads"]
        if max(loads) > BUSY * machine["cores"]:
            busy.append(name)
        commit = machine.get("commit") or "–"  # Older numbers have none.
        facts = (
            found["when"],
            machine["mcpx"],
            commit,
            machine["python"],
            f"{machine['cores']}",
            found["length"],
        )
        lines.append(
            [name, *facts, found["seconds"] / 60, " → ".join(f"{load:.1f}" for load in loads)]
        )
    head = [
        "section",
        "day",
        "mcpx",
        "commit",
        "CPython",
        "cores",
        "length",
        "minutes",
        "load average",
    ]
    told = (
        f"**Others were at work on it during: {', '.join(busy)}.** Wall times suffer from "
        "that, CPU times less."
    )
    return f"## The machine\n\nLinux, shared, loopback only.\n\n{table(head, lines)}" + (
        f"\n{told}\n" if busy else ""
    )


HEAD = """\
# Performance

Made by `bench --write-docs` from the numbers of a run; not edited by hand. How to run it:
[bench/README.md](../bench/README.md).
"""

SUMMARY = """\
Older era (2025-06-18). *Added to p50*: by how much a call of 100 bytes takes longer through mcpx than without a
gateway. *CPU* is that of mcpx's own processes with 16 calls in flight: in milliseconds a call, as a multiple of a
relay that does nothing but forward (the floor), and what the cheapest other gateway takes as a multiple of mcpx.
"""

METHOD = """\
## Method

* **Systems**: `direct`, the client connected to the upstream itself, over the upstream's transport; `floor`, a
  hand-written asyncio and orjson relay that looks up the tool, rewrites the id and forwards the rest; `starlette`, the
  floor behind Starlette and uvicorn; `mcpx`, as a user starts it, with its defaults; `mcpx-search`, in the mode that
  shows three tools and calls the others through one of them; `sdk`, the floor's work on the session classes of the
  official SDK, in its faster setting (JSON replies). The others are gateways from PyPI and npm in the versions that
  `bench/peers.py` names. The upstream is a tiny echo server on the standard library.
* **Two eras**: *older* is 2025-06-18 with its handshake and session, *modern* is 2026-07-28, stateless. Client and
  upstream speak the same era; nothing is bridged. A peer without the modern era has rows for the older one.
* **One run, interleaved**: what is compared runs at the same time and takes turns, in another order each round.
  Figures are medians over the rounds; ratios are formed inside a round, then the median is taken.
* **CPU** is that of all processes of a gateway, mcpx's keeper included, upstreams and client left out; read from the
  kernel's clocks. `CPU s/1k` is seconds for 1,000 calls, which is milliseconds for one. **RSS** is of the same
  processes.
* **Every answer is checked** against its question: {answers:,} answers, and {wrong}.
"""

LIMITS = """\
## Limits

* Compare systems inside one table only. Differences below about 1.5 times in wall time are not established; CPU time
  is steadier.
* Client, gateway and upstreams share the cores, and the client is Python too: calls/s of the fastest systems at 16 and
  64 are a lower bound.
* Questions of 100 bytes, no TLS, no policy, no progress, no questions back.
* The floor leaves out what a gateway is for: limits, cancellation, sessions, reconnecting. It is a bound, not a goal.
  `sdk`, `fastmcp` and `fastmcp-mount` are scripts on those libraries (`bench/relays/`), as their documents have it.
* Bridges that put one server behind one endpoint (`mcp-proxy`, `mcp-proxy-npm`, `supergateway`) are measured with one.
* RSS counts a page that processes share once for each of them. Memory that a process has let go may stay with it.
"""

ABOUT = {
    "hot": """\
Three upstreams with five tools each; calls go to one of them. p50, p95 and p99 are of one client that waits for each
answer; `@16` and `@64` are 16 and 64 calls in flight. *1 MB* is an answer of a million bytes to a question of 100.
""",
    "start": """\
From exec to the answer of the first `tools/list`, and to one that holds all tools; the start of the upstreams, stdio
servers with five tools each, is in the seconds and not in CPU and RSS. `again` is with the snapshot of an earlier run.
*Late*: one of the upstreams takes {late:g} s to start. When has each of the others answered a call: of a client that
knows the tools already, and of one that lists them first?
""",
    "list": """\
A whole `tools/list` of 20 stdio upstreams. *KB a tool* is how much RSS grows from the smaller catalog to the larger.
""",
    "memory": """\
HTTP in front of 10 stdio upstreams. *Idle* is before the first call, *warm* after {warm:,}, *after* at the end of as
many more as the column says. Then {sessions:,} sessions, each on a connection of its own that stays open: *to open* is
`initialize`, `initialized` and one call. In the modern era there are no sessions, only connections.
""",
    "growth": """\
HTTP in front of HTTP, all upstreams in one process; each call is for the next server and the next tool, and from the
next session. *× the first case* compares CPU a call inside each round.
""",
    "commands": """\
One HTTP command against a local API that says a text back as JSON, and one script (`print(sys.argv[1])`). *Directly* is
the same request by aiohttp, and `asyncio.create_subprocess_exec` of the same script. *ms a call* is wall time by the
number of calls, CPU that of mcpx itself, without the scripts it starts.
""",
    "guard": """\
Streamable HTTP in front of one stdio upstream. *Guarded*: three profiles, fifty rules of which two look at the
arguments and the last lets the call pass, a pinned server, limits for the client, the profile and the server, a bearer
token, `/metrics` and an audit trail. *Plain*: none of them.
""",
    "admin": """\
Streamable HTTP in front of one stdio upstream. *Plain* was started without `--admin`, *admin* with it and nobody looks,
*watched* has ten streams of `/api/events` open. *Idle MB* is before the first call.
""",
    "replicas": """\
Streamable HTTP in front of one stdio upstream; two replicas on one store, and a gateway without. *Owner*: a call comes
to the replica of its session. *Foreign*: it comes to the other one, which passes it on; CPU is that of both, *ms more*
against the owner's. *Store commands a call* are the store's own count beside what it is asked when nobody calls. The
second table has searches in a catalog of {tools:,} tools, answered by the gateway itself: they cost it much and their
client little.
""",
    "faults": """\
Three stdio upstreams. One of them is killed (`kill -9`) while it runs a call. *Back*: until a tool of that server
answers again, the server's own start included. *Error in flight*: until the caller of that call knows. *Runs*: how
often that call was run; more than once would be a second run that nobody asked for.
""",
}
