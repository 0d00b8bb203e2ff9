"""Metrics, traces, audit log, and call log of one gateway, as its configuration wants them.

Parts that are not in use are neither imported nor created. Without metrics, audit log, and readers
of the call log, calls are not even timed.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpx.base.aio import Tasks
from mcpx.config import Audit, Config
from mcpx.core.gateway import Gateway
from mcpx.core.relay import OURS
from mcpx.model.call import Caller, Json
from mcpx.model.events import ClientCounts, ConfigApplied

if TYPE_CHECKING:
    from mcpx.base.jsonl_file import JsonlFile
    from mcpx.model.redaction import Redactor
    from mcpx.telemetry.audit import AuditLog
    from mcpx.telemetry.call_log import CallLog
    from mcpx.telemetry.exporter import Exporter
    from mcpx.telemetry.metrics import Metrics
    from mcpx.telemetry.request_tracker import Tracker
    from mcpx.telemetry.traces import Traces
    from mcpx.wire.fetch import Fetcher

log = logging.getLogger(__name__)


class AdminTelemetry:
    """Statistics, recorded calls, and token savings for the admin API."""

    def __init__(self, gateway: Gateway) -> None:
        from mcpx.telemetry.call_log import RecordedCallLog
        from mcpx.telemetry.call_statistics import CallStatistics
        from mcpx.telemetry.token_savings import TokenSavings

        self._gateway = gateway
        self.statistics = CallStatistics(gateway.bus)
        self.recording = RecordedCallLog(gateway.bus, gateway.redactor)
        self.savings = TokenSavings(gateway.bus)
        gateway.hear_results(self.savings.shaped)
        gateway.bus.subscribe(self._config_applied, ConfigApplied)

    def _config_applied(self, event: ConfigApplied) -> None:
        if event.ok:
            sources = self._gateway.generation.sources
            self.statistics.keep([OURS, *(source.name for source in sources)])

    def end(self) -> None:
        self._gateway.bus.unsubscribe(self._config_applied)
        self._gateway.hear_results(None)
        self.statistics.end()
        self.recording.end()
        self.savings.end()


class Telemetry:
    def __init__(
        self,
        gateway: Gateway,
        *,
        state: Path | None,
        set_tracker: "Callable[[Tracker | None], None]",
        env: str | None = None,
        counts: Callable[[], ClientCounts | None] | None = None,
        redactor: "Redactor | None" = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`counts` returns the clients of the HTTP server. `environ` has `MCPX_KEY` and the name of
        the replica."""
        self._gateway = gateway
        self._state = state
        self._set_tracker = set_tracker
        self._env = env
        self._counts = counts
        self._redactor = redactor
        self._environ = environ or {}
        self._tasks = Tasks("telemetry")
        self._metrics: Metrics | None = None
        self._traces: Traces | None = None
        self._audit: AuditLog | None = None
        self._audit_sink: Exporter | None = None
        self._ending_trails: list[JsonlFile] = []
        """Audit files whose thread may still be writing."""

    def take_up(self, config: Config) -> None:
        """Apply a configuration."""
        self._apply_metrics(config)
        self._apply_traces(config)
        self._apply_audit(config)

    def _apply_metrics(self, config: Config) -> None:
        counts = self._counts if config.server.metrics else None
        if counts is not None and self._metrics is None:
            from mcpx.telemetry.metrics import Metrics

            self._metrics = Metrics(self._gateway, counts, lambda: self.rows_lost)
        elif counts is None and self._metrics is not None:
            self._metrics.end()
            self._metrics = None

    def _apply_traces(self, config: Config) -> None:
        settings = config.global_.traces
        if settings is None and self._traces is not None:
            self._traces.stop(self._gateway.bus)
            self._tasks.start(self._traces.close())
            self._traces = None
        elif settings is not None:
            if self._traces is None:
                from mcpx.telemetry.traces import Traces

                self._traces = Traces(settings, lambda: self._fetcher)
                self._traces.start(self._gateway.bus)
            self._traces.take_up(settings, config.mcp_servers)
        logs_json = config.global_.log_format == "json"
        if not logs_json and settings is None and config.global_.audit is None:
            self._set_tracker(None)
            return
        from mcpx.telemetry.request_tracker import Tracker

        self._set_tracker(Tracker(self._traces, attends=logs_json or settings is not None))

    def _apply_audit(self, config: Config) -> None:
        settings = config.global_.audit
        if settings is None and self._audit is None:
            return
        from mcpx.telemetry.audit import AuditLog, trail_file

        file = trail_file(config, self._state, self._env)
        if self._audit is not None:
            if (file, settings) == (self._audit.file, self._audit.how):
                return
            self._end_audit(self._audit)
            self._audit = self._audit_sink = None
        if settings is None:
            return
        if file is None:
            log.warning(
                "no audit log is written: no folder for it is known; "
                "set global.audit.file to the path of a file"
            )
            return
        self._audit_sink = self._make_sink(settings)
        self._audit = AuditLog(
            self._gateway.bus,
            file,
            settings,
            self._redactor,
            environ=self._environ,
            sink=None if self._audit_sink is None else self._audit_sink.add,
        )
        if settings.begins:
            self._gateway.relay.before_sending = self._audit.begin

    def _end_audit(self, audit: "AuditLog") -> None:
        self._gateway.relay.before_sending = None
        self._ending_trails = [trail for trail in self._ending_trails if trail.is_writing]
        trail = audit.close()
        self._ending_trails.append(trail)
        if self._audit_sink is not None:
            self._tasks.start(_end_sink(trail, self._audit_sink))

    def _make_sink(self, settings: Audit) -> "Exporter | None":
        if settings.sink is None:
            return None
        from mcpx.telemetry.audit_sink import make_exporter

        sink = make_exporter(settings.sink, settings.sink_headers, lambda: self._fetcher)
        sink.start()
        return sink

    async def close(self) -> None:
        """End all parts, after the last calls of the gateway have ended."""
        if "admin" in vars(self):
            self.admin.end()
        if self._metrics is not None:
            await self._metrics.close()
        if self._audit is not None:
            self._ending_trails.append(self._audit.close())
        for trail in self._ending_trails:
            trail.join()
        exporters: list[Coroutine[Any, Any, None]] = []
        if self._traces is not None:
            exporters.append(self._traces.close())
        if self._audit_sink is not None:
            await asyncio.sleep(0)  # The thread of the audit log has handed over its last rows.
            exporters.append(self._audit_sink.close())
        await asyncio.gather(*exporters)
        await self._tasks.close()
        if "_fetcher" in vars(self):
            await self._fetcher.close()

    @cached_property
    def _fetcher(self) -> "Fetcher":
        """The client for collectors. It is closed after the gateway's client."""
        from mcpx.wire.fetch import Fetcher

        return Fetcher(self._environ)

    # Reading
    # ----------------------------------------------------------------------------------------------

    @property
    def rows_lost(self) -> int | None:
        """Rows of the audit log that were not written. None without an audit log."""
        return None if self._audit is None else self._audit.lost

    def metrics_for(self, caller: Caller) -> tuple[bytes, str] | None:
        """Return the metrics that this caller may see and their content type."""
        return (
            None
            if self._metrics is None
            else self._metrics.page(self._gateway.access.sight(caller))
        )

    @cached_property
    def admin(self) -> AdminTelemetry:
        return AdminTelemetry(self._gateway)

    @cached_property
    def _plain_call_log(self) -> "CallLog":
        from mcpx.telemetry.call_log import CallLog

        return CallLog(self._gateway.bus)

    async def tell_activity(self, request: Json) -> Json:
        """Answer the control verb `activity`: at most `limit` calls after the number `after`."""
        call_log = self.admin.recording if "admin" in vars(self) else self._plain_call_log
        after, limit = request.get("after"), request.get("limit")
        wanted = {"after": after if isinstance(after, int) else 0}
        if isinstance(limit, int):
            wanted["limit"] = limit
        return {"ok": True, **call_log.look(**wanted)}


async def _end_sink(trail: "JsonlFile", sink: "Exporter") -> None:
    """Close the exporter of an audit log that has ended, after its last rows."""
    await asyncio.to_thread(trail.join)
    await sink.close()
