"""Figures for whoever watches the gateway: `/metrics`, in the form of Prometheus (OBS-1).

Counters are counted where things happen (`calls` for calls; lists, reloads and refused requests
here); everything that is a state is looked at when somebody asks. Whoever does not see everything
is shown the figures of what they see.

Tokens saved are counted at each `tools/list` of a compact mode: the estimated tokens of all tools
that this client may see, each definition as `direct` lists it, less those of what it was shown
instead. Nothing else is counted as saved.
"""

import asyncio
import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping

from mcpx import __version__
from mcpx.base.aio import Tasks
from mcpx.core.gateway import Gateway
from mcpx.core.relay import OURS
from mcpx.model.events import CallFinished, ClientCounts, ConfigApplied, DoorRefused, ToolsListed
from mcpx.policy.sight import Sight
from mcpx.telemetry import guarding, process, replication
from mcpx.telemetry.calls import Calls
from mcpx.telemetry.prometheus import CONTENT_TYPE, Histogram, Text, label, labelled
from mcpx.telemetry.weighing import Weighing, tokens_of
from mcpx.upstreams.upstream import Upstream

LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds by which a timer was late."""
LOOK = 1.0
"""Seconds between two looks at how late timers are."""
UP = ("connected", "degraded")


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
        self._calls = Calls()
        self._lists: dict[str, int] = {}
        self._shown: dict[str, int] = {}
        self._direct: dict[str, int] = {}
        self._saved: dict[str, int] = {}
        self._reloads = {True: 0, False: 0}
        self._last_reload = (True, time.time())
        self._refused: dict[str, int] = {}
        self._lag = Histogram(LAGS)
        self._tasks = Tasks("metrics")
        self._weighing = Weighing(self._tasks)
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
            due = loop.time() + LOOK
            await asyncio.sleep(LOOK)
            late = max(0.0, loop.time() - due)
            self._lag.sum += late
            self._lag.counts[bisect_left(LAGS, late)] += 1

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
        self._weighing.weigh(
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
        text.family("mcpx_build_info", "gauge", "Which mcpx this is.", [(version, 1)])
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
        guarding.write(text, self._gateway)
        self._write_kept(text)
        replication.write(text, self._gateway)
        self._write_lists(text)
        self._write_reloads(text)
        text.one(
            "mcpx_audit_lost_total",
            "counter",
            "Rows of the audit trail that were not written.",
            self._rows_lost(),
        )
        text.histogram(
            "mcpx_loop_lag_seconds",
            "How late a timer of the event loop was, looked at each second.",
            {"": self._lag},
        )
        process.write(text)
        return text.encoded(), CONTENT_TYPE

    def _write_servers(self, text: Text, may_know: Callable[[str], bool]) -> None:
        generation, catalog = self._gateway.generation, self._gateway.catalog
        servers: dict[str, Upstream] = {}
        for name, upstream in generation.upstreams.items():
            if may_know(name):
                servers.setdefault(label(name), upstream)  # names that are cut may meet
        known = [(labelled(server=name), name, upstream) for name, upstream in servers.items()]
        text.family(
            "mcpx_upstream_up",
            "gauge",
            "Whether the server is connected; one that sleeps or is switched off is not.",
            [(labels, int(u.status.state in UP)) for labels, _, u in known],
        )
        text.family(
            "mcpx_upstream_state",
            "gauge",
            "1 for the state that the server is in now.",
            [(labelled(server=name, state=u.status.state), 1) for _, name, u in known],
        )
        text.family(
            "mcpx_upstream_restarts_total",
            "counter",
            "Lives of the server that ended unasked, each followed by another attempt.",
            [(labels, u.restarts) for labels, _, u in known],
        )
        text.family(
            "mcpx_upstream_links",
            "gauge",
            "Connections to the server.",
            [(at, u.link_count) for at, _, u in known],
        )
        text.family(
            "mcpx_upstream_processes",
            "gauge",
            "Processes of the server that the gateway started.",
            [(labels, u.process_count) for labels, _, u in known],
        )
        text.family(
            "mcpx_upstream_probe_seconds",
            "gauge",
            "Time the last health probe of the server took.",
            [(labels, u.latency) for labels, _, u in known if u.latency is not None],
        )
        text.family(
            "mcpx_upstream_tools",
            "gauge",
            "Tools that the server offers to everybody.",
            [(labels, catalog.count(u.name, "tools")) for labels, _, u in known],
        )
        running: list[tuple[str, float]] = [(labels, u.running) for labels, _, u in known]
        if (local := generation.local) is not None and may_know(local.name):
            running.append((labelled(server=local.name), sum(tool.running for tool in local.tools)))
        text.family(
            "mcpx_calls_in_flight",
            "gauge",
            "Calls that a server or command has not answered yet.",
            running,
        )

    def _write_clients(self, text: Text) -> None:
        counts = self._counts()
        if counts is not None:
            text.family(
                "mcpx_sessions",
                "gauge",
                "Sessions of clients, by transport; modern clients have none.",
                [
                    (labelled(transport=transport), count)
                    for transport, count in counts.sessions.items()
                ],
            )
            text.one(
                "mcpx_sessions_room",
                "gauge",
                "Sessions that can begin without an eviction.",
                counts.session_room,
            )
            text.one(
                "mcpx_sessions_evicted_total",
                "counter",
                "Sessions that ended because another one needed their place.",
                counts.sessions_evicted,
            )
            text.one(
                "mcpx_client_connections",
                "gauge",
                "Open connections of clients.",
                counts.connections,
            )
        text.family(
            "mcpx_refused_requests_total",
            "counter",
            "Requests that were not let in: foreign host or origin, no valid token, the gateway "
            "itself.",
            [
                (labelled(reason=reason), self._refused.get(reason, 0))
                for reason in ("host", "origin", "loop", "token")
            ],
        )

    def _write_kept(self, text: Text) -> None:
        figures = self._gateway.figures()
        text.one(
            "mcpx_kept_results", "gauge", "Large results kept for reading on.", figures["kept"]
        )
        text.one("mcpx_kept_results_bytes", "gauge", "Bytes that they take.", figures["kept_bytes"])
        given, made, size = figures["cached"]
        text.one(
            "mcpx_cache_hits_total",
            "counter",
            "Calls answered from an earlier or a running one.",
            given,
        )
        text.one(
            "mcpx_cache_misses_total",
            "counter",
            "Calls under a cache_ttl that had to be made.",
            made,
        )
        text.one(
            "mcpx_cache_bytes", "gauge", "Bytes of answers that are kept to be given again.", size
        )

    def _write_lists(self, text: Text) -> None:
        def by_mode(counts: Mapping[str, int]) -> list[tuple[str, float]]:
            return [(labelled(mode=label(mode)), count) for mode, count in counts.items()]

        text.family(
            "mcpx_tool_lists_total",
            "counter",
            "Lists of tools that clients were shown.",
            by_mode(self._lists),
        )
        text.family(
            "mcpx_listed_tokens_total",
            "counter",
            "Estimated tokens of the lists of tools that compact modes showed.",
            by_mode(self._shown),
        )
        text.family(
            "mcpx_direct_tokens_total",
            "counter",
            "Estimated tokens that the same lists take in direct mode, with every tool.",
            by_mode(self._direct),
        )
        text.family(
            "mcpx_tokens_saved_total",
            "counter",
            "Estimated tokens that compact modes saved in lists of tools against direct mode.",
            by_mode(self._saved),
        )

    def _write_reloads(self, text: Text) -> None:
        results = ((True, "applied"), (False, "refused"))
        text.family(
            "mcpx_config_reloads_total",
            "counter",
            "Configurations that were proposed while it runs, the first one left out.",
            [(labelled(result=word), self._reloads[ok]) for ok, word in results],
        )
        ok, at = self._last_reload
        text.one(
            "mcpx_config_last_reload_ok",
            "gauge",
            "0 while the last proposed configuration was refused.",
            int(ok),
        )
        text.one(
            "mcpx_config_last_reload_timestamp_seconds",
            "gauge",
            "When that was; else the start.",
            at,
        )
