"""`/metrics` in the text format of Prometheus (OBS-1).

Events are counted when they happen. Gauges are read from the gateway at each scrape. A reader with
a limited view gets only the metrics of the servers and tools in this view.

Saved tokens are counted at each `tools/list` of a compact mode: the estimated tokens of all tools
that the client may see, minus the tokens of the list that it received.
"""

import asyncio
import os
import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

from mcpx import __version__
from mcpx.base.aio import Tasks
from mcpx.core.gateway import Gateway
from mcpx.core.relay import OURS
from mcpx.model.events import CallFinished, ClientCounts, ConfigApplied, DoorRefused, ToolsListed
from mcpx.policy.sight import Sight
from mcpx.telemetry.call_metrics import CallMetrics
from mcpx.telemetry.prometheus import CONTENT_TYPE, Histogram, Text, label, labelled
from mcpx.telemetry.token_savings import CatalogTokens, tokens_of
from mcpx.upstreams.upstream import Upstream
from mcpx.wire import descriptors

if TYPE_CHECKING:
    from mcpx.policy.approvals import Approvals
    from mcpx.policy.counters import Counters
    from mcpx.policy.pins.pinned import Pins

LAG_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LAG_PROBE_SECONDS = 1.0
STATES_UP: Final = ("connected", "degraded")
REFUSAL_REASONS: Final = ("host", "origin", "loop", "token")


class Metrics:
    def __init__(
        self,
        gateway: Gateway,
        counts: Callable[[], ClientCounts | None],
        rows_lost: Callable[[], int | None],
    ) -> None:
        """`counts`: None until the gateway serves; `rows_lost`: of the audit trail, if there is
        one."""
        self._rows_lost = rows_lost
        self._gateway = gateway
        self._counts = counts
        self._calls = CallMetrics()
        self._lists: dict[str, int] = {}
        self._shown: dict[str, int] = {}
        self._direct: dict[str, int] = {}
        self._saved: dict[str, int] = {}
        self._reloads = {True: 0, False: 0}
        self._last_reload = (True, time.time())
        self._refused: dict[str, int] = {}
        self._lag = Histogram(LAG_BUCKETS)
        self._tasks = Tasks("metrics")
        self._catalog_tokens = CatalogTokens(self._tasks)
        self._tasks.start(self._watch())
        bus = gateway.bus
        self._listeners = (
            (self._calls.finished, CallFinished),
            (self._listed, ToolsListed),
            (self._reloaded, ConfigApplied),
            (self._turned_away, DoorRefused),
        )
        for listener, kind in self._listeners:
            bus.subscribe(listener, kind)

    def end(self) -> None:
        for listener, _ in self._listeners:
            self._gateway.bus.unsubscribe(listener)
        self._tasks.cancel()

    async def close(self) -> None:
        self.end()
        await self._tasks.close()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_PROBE_SECONDS
            await asyncio.sleep(LAG_PROBE_SECONDS)
            late = max(0.0, loop.time() - due)
            self._lag.sum += late
            self._lag.counts[bisect_left(LAG_BUCKETS, late)] += 1

    # What happens
    # ----------------------------------------------------------------------------------------------

    def _reloaded(self, event: ConfigApplied) -> None:
        self._reloads[event.ok] += 1
        self._last_reload = (event.ok, time.time())
        if event.ok:
            generation = self._gateway.generation
            servers = [OURS, *(source.name for source in generation.sources)]
            self._calls.keep(servers, [profile.name for profile in generation.config.profiles])

    def _turned_away(self, event: DoorRefused) -> None:
        self._refused[event.reason] = self._refused.get(event.reason, 0) + 1

    def _listed(self, event: ToolsListed) -> None:
        self._lists[event.mode] = self._lists.get(event.mode, 0) + 1
        if event.whole:
            return
        mode, shown = event.mode, sum(map(tokens_of, event.tools))
        self._catalog_tokens.count(
            event.catalog, event.offers, lambda direct: self._save(mode, shown, direct)
        )

    def _save(self, mode: str, shown: int, direct: int) -> None:
        self._shown[mode] = self._shown.get(mode, 0) + shown
        self._direct[mode] = self._direct.get(mode, 0) + direct
        self._saved[mode] = self._saved.get(mode, 0) + max(0, direct - shown)

    # What is asked
    # ----------------------------------------------------------------------------------------------

    def page(self, sight: Sight | None) -> tuple[bytes, str]:
        """All figures of now, as somebody with this sight may know them."""
        text = Text()
        version = labelled(version=__version__, python=platform.python_version())
        text.gauge("mcpx_build_info", "Which mcpx this is.", [(version, 1)])
        catalog = self._gateway.catalog

        def may_know(server: str) -> bool:
            return sight is None or server == OURS or sight.server(server)

        def may_see(server: str, tool: str) -> bool:
            if sight is None or server == OURS:
                return True
            offers = (
                catalog.native("tools", server, tool),
                catalog.native("prompts", server, tool),
            )
            return any(offer is not None and sight.offer(offer) for offer in offers)

        self._calls.write(text, may_know, may_see, profiles=sight is None)
        self._write_servers(text, may_know)
        self._write_clients(text)
        self._write_policy(text)
        self._write_kept(text)
        self._write_replicas(text)
        self._write_lists(text)
        self._write_reloads(text)
        text.counter(
            "mcpx_audit_lost_total",
            "Rows of the audit trail that were not written.",
            self._rows_lost(),
        )
        text.histogram(
            "mcpx_loop_lag_seconds",
            "How late a timer of the event loop was, looked at each second.",
            {"": self._lag},
        )
        _write_process(text)
        return text.encoded(), CONTENT_TYPE

    def _write_servers(self, text: Text, may_know: Callable[[str], bool]) -> None:
        generation, catalog = self._gateway.generation, self._gateway.catalog
        servers: dict[str, Upstream] = {}
        for name, upstream in generation.upstreams.items():
            if may_know(name):
                servers.setdefault(label(name), upstream)  # names that are cut may meet
        known = [(labelled(server=name), name, upstream) for name, upstream in servers.items()]
        text.gauge(
            "mcpx_upstream_up",
            "Whether the server is connected; one that sleeps or is switched off is not.",
            [(labels, int(u.status.state in STATES_UP)) for labels, _, u in known],
        )
        text.gauge(
            "mcpx_upstream_state",
            "1 for the state that the server is in now.",
            [(labelled(server=name, state=u.status.state), 1) for _, name, u in known],
        )
        text.counter(
            "mcpx_upstream_restarts_total",
            "Lives of the server that ended unasked, each followed by another attempt.",
            [(labels, u.life.recovery.restarts) for labels, _, u in known],
        )
        text.gauge(
            "mcpx_upstream_links",
            "Connections to the server.",
            [(at, len(u.links.pool.open)) for at, _, u in known],
        )
        text.gauge(
            "mcpx_upstream_processes",
            "Processes of the server that the gateway started.",
            [(labels, u.links.pool.process_count) for labels, _, u in known],
        )
        text.gauge(
            "mcpx_upstream_probe_seconds",
            "Time the last health probe of the server took.",
            [(labels, u.health.latency) for labels, _, u in known if u.health.latency is not None],
        )
        text.gauge(
            "mcpx_upstream_tools",
            "Tools that the server offers to everybody.",
            [(labels, catalog.count(u.name, "tools")) for labels, _, u in known],
        )
        running: list[tuple[str, float]] = [(labels, u.calls.running) for labels, _, u in known]
        if (local := generation.local) is not None and may_know(local.name):
            running.append((labelled(server=local.name), sum(tool.running for tool in local.tools)))
        text.gauge(
            "mcpx_calls_in_flight",
            "Calls that a server or command has not answered yet.",
            running,
        )

    def _write_clients(self, text: Text) -> None:
        counts = self._counts()
        if counts is not None:
            text.gauge(
                "mcpx_sessions",
                "Sessions of clients, by transport; modern clients have none.",
                counts.sessions,
                label="transport",
            )
            text.gauge(
                "mcpx_sessions_room",
                "Sessions that can begin without an eviction.",
                counts.session_room,
            )
            text.counter(
                "mcpx_sessions_evicted_total",
                "Sessions that ended because another one needed their place.",
                counts.sessions_evicted,
            )
            text.gauge(
                "mcpx_client_connections",
                "Open connections of clients.",
                counts.connections,
            )
        text.counter(
            "mcpx_refused_requests_total",
            "Requests that were not let in: foreign host or origin, no valid token, the gateway "
            "itself.",
            [(labelled(reason=reason), self._refused.get(reason, 0)) for reason in REFUSAL_REASONS],
        )

    def _write_kept(self, text: Text) -> None:
        figures = self._gateway.figures()
        text.gauge("mcpx_kept_results", "Large results kept for reading on.", figures["kept"])
        text.gauge("mcpx_kept_results_bytes", "Bytes that they take.", figures["kept_bytes"])
        given, made, size = figures["cached"]
        text.counter(
            "mcpx_cache_hits_total",
            "Calls answered from an earlier or a running one.",
            given,
        )
        text.counter(
            "mcpx_cache_misses_total",
            "Calls under a cache_ttl that had to be made.",
            made,
        )
        text.gauge("mcpx_cache_bytes", "Bytes of answers that are kept to be given again.", size)

    def _write_lists(self, text: Text) -> None:
        text.counter(
            "mcpx_tool_lists_total",
            "Lists of tools that clients were shown.",
            self._lists,
            label="mode",
        )
        text.counter(
            "mcpx_listed_tokens_total",
            "Estimated tokens of the lists of tools that compact modes showed.",
            self._shown,
            label="mode",
        )
        text.counter(
            "mcpx_direct_tokens_total",
            "Estimated tokens that the same lists take in direct mode, with every tool.",
            self._direct,
            label="mode",
        )
        text.counter(
            "mcpx_tokens_saved_total",
            "Estimated tokens that compact modes saved in lists of tools against direct mode.",
            self._saved,
            label="mode",
        )

    def _write_reloads(self, text: Text) -> None:
        results = ((True, "applied"), (False, "refused"))
        text.counter(
            "mcpx_config_reloads_total",
            "Configurations that were proposed while it runs, the first one left out.",
            [(labelled(result=word), self._reloads[ok]) for ok, word in results],
        )
        ok, at = self._last_reload
        text.gauge(
            "mcpx_config_last_reload_ok",
            "0 while the last proposed configuration was refused.",
            int(ok),
        )
        text.gauge(
            "mcpx_config_last_reload_timestamp_seconds",
            "When that was; else the start.",
            at,
        )

    def _write_policy(self, text: Text) -> None:
        """Report the limits, approvals, and pins that were needed so far."""
        provisions = self._gateway.provisions
        created = vars(provisions.policy_state) if "policy_state" in vars(provisions) else {}
        counters = cast("Counters | None", created.get("counters"))
        queued: Mapping[str, int] = {"client": 0, "profile": 0, "server": 0}
        refused: Mapping[str, int] = {}
        if counters is not None:
            queued, refused = counters.depth(), counters.refused
        text.gauge(
            "mcpx_queued_calls",
            "Calls that wait for their turn, by the kind of limit they wait under.",
            queued,
            label="limit",
        )
        text.counter(
            "mcpx_limited_total", "Calls that a limit refused, by limit.", refused, label="limit"
        )
        approvals = cast("Approvals | None", created.get("approvals"))
        text.gauge(
            "mcpx_approvals_pending",
            "Calls that wait for a person to approve them.",
            0 if approvals is None else len(approvals.pending()),
        )
        pins = cast("Pins | None", created.get("pins"))
        text.gauge(
            "mcpx_held_definitions",
            "Definitions of servers held back until they are approved.",
            0 if pins is None else sum(pinned.held for pinned in pins.servers.values()),
        )

    def _write_replicas(self, text: Text) -> None:
        replicas = self._gateway.replicas
        if replicas is None:
            return
        store = replicas.store
        text.gauge(
            "mcpx_store_up",
            "Whether the store that replicas share can be used.",
            int(store.up),
        )
        text.counter("mcpx_store_failures_total", "How often the store went away.", store.failures)
        text.gauge(
            "mcpx_replicas",
            "Replicas that this one knows of.",
            len(replicas.members.others) + 1,
        )
        text.counter(
            "mcpx_forwarded_total",
            "Requests that were passed to the replica of their session, by outcome.",
            [
                (labelled(outcome=label(outcome)), count)
                for outcome, count in sorted(replicas.forwarded.items())
            ],
        )
        text.counter(
            "mcpx_sessions_adopted_total",
            "Sessions of replicas that are gone or leaving, which go on at this one.",
            replicas.adopted,
        )


def _write_process(text: Text) -> None:
    times = os.times()
    text.counter(
        "process_cpu_seconds_total",
        "Processor time of the gateway itself.",
        times.user + times.system,
    )
    pages = _pages()
    if pages is not None:
        virtual, resident = pages
        text.gauge("process_virtual_memory_bytes", "Address space of the gateway itself.", virtual)
        text.gauge("process_resident_memory_bytes", "Memory of the gateway itself.", resident)
    text.gauge("process_open_fds", "Files and sockets that are open.", _open_descriptors())
    text.gauge("process_max_fds", "How many may be open.", descriptors.soft_limit())
    text.gauge("process_start_time_seconds", "When the gateway was started.", _started())


def _pages() -> tuple[int, int] | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = file.read().split()[:2]
    except OSError:
        return None
    size = os.sysconf("SC_PAGE_SIZE")
    return int(virtual) * size, int(resident) * size


def _open_descriptors() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # One of them is the open folder.
    except OSError:
        return None


def _started() -> float | None:
    try:
        with open("/proc/self/stat", "rb") as file:
            # The process name, in parentheses, may contain spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        ticks = int(fields[19])
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return round(booted + ticks / os.sysconf("SC_CLK_TCK"), 1)
    except (OSError, ValueError, IndexError, AttributeError):
        return None
