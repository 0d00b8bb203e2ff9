"""All that watches a gateway, as its configuration wants it; taken up anew with each configuration.

What nobody asked for is neither imported nor made: without metrics, trail and anybody who looks, a
call is not even timed. Over stdio nothing is counted, for nobody could ask.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.base.aio import Tasks
from mcpx.config import Audit, Config
from mcpx.core.gateway import Gateway
from mcpx.model.call import Caller, Json
from mcpx.model.events import ClientCounts

if TYPE_CHECKING:
    from mcpx.telemetry.activity import Activity
    from mcpx.telemetry.audit import AuditLog
    from mcpx.telemetry.exporter import Exporter
    from mcpx.telemetry.metrics import Metrics
    from mcpx.telemetry.trail import Redacts, Trail
    from mcpx.telemetry.watching import Watching
    from mcpx.wire.fetch import Fetcher

log = logging.getLogger(__name__)


class Telemetry:
    def __init__(
        self,
        gateway: Gateway,
        *,
        state: Path | None,
        env: str | None = None,
        counts: Callable[[], ClientCounts | None] | None = None,
        redactor: "Redacts | None" = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`counts`: None without an HTTP server. `redactor` knows what must not be written.
        `environ` has `MCPX_KEY` and the name of the replica."""
        self._gateway = gateway
        self._environ = environ
        self._sink: Exporter | None = None
        """Sends the rows of the audit log to a collector, if the configuration has one."""
        self._tasks = Tasks("telemetry")
        self._state = state
        self._env = env
        self._counts = counts
        self._redactor = redactor
        self._metrics: Metrics | None = None
        self._audit: AuditLog | None = None
        self._finishing: list[Trail] = []
        """Trails that nobody writes to any more; they may not be at their end."""

    def take_up(self, config: Config) -> None:
        """Watch as this configuration wants it."""
        counts = self._counts if config.server.metrics else None
        if counts is not None and self._metrics is None:
            from mcpx.telemetry.metrics import Metrics

            self._metrics = Metrics(self._gateway, counts, lambda: self.rows_lost)
        elif counts is None and self._metrics is not None:
            self._metrics.end()
            self._metrics = None
        self._keep_trail(config)

    def _keep_trail(self, config: Config) -> None:
        how = config.global_.audit
        if how is None and self._audit is None:
            return
        from mcpx.telemetry.audit import AuditLog, trail_file

        file = trail_file(config, self._state, self._env)
        if self._audit is not None:
            if (file, how) == (self._audit.file, self._audit.how):
                return
            self._finishing = [trail for trail in self._finishing if trail.is_writing]
            self._gateway.relay.before_sending = None
            trail = self._audit.close()
            self._finishing.append(trail)
            self._audit = None
            if self._sink is not None:
                self._tasks.start(_finish(trail, self._sink))
                self._sink = None
        if how is not None and file is None:
            log.warning(
                "no audit trail is kept: there is no folder for it; name a file in "
                "global.audit.file"
            )
        elif how is not None and file is not None:
            self._sink = self._make_sink(how)
            self._audit = AuditLog(
                self._gateway.bus,
                file,
                how,
                self._redactor,
                environ=self._environ,
                sink=None if self._sink is None else self._sink.add,
            )
            if how.begins:
                self._gateway.relay.before_sending = self._audit.begin

    def _make_sink(self, how: Audit) -> "Exporter | None":
        if how.sink is None:
            return None
        from mcpx.telemetry.audit_sink import make_exporter

        sink = make_exporter(how.sink, how.sink_headers, lambda: self._fetcher)
        sink.start()
        return sink

    async def close(self) -> None:
        """At the very end: also what was cut off is told of."""
        if "watching" in vars(self):
            self.watching.end()
        if self._metrics is not None:
            await self._metrics.close()
        if self._audit is not None:
            self._finishing.append(self._audit.close())
        for trail in self._finishing:
            trail.wait()
        if self._sink is not None:
            await asyncio.sleep(0)  # For the rows that the thread has handed over.
            await self._sink.close()
        await self._tasks.close()
        if "_fetcher" in vars(self):
            await self._fetcher.close()

    @cached_property
    def _fetcher(self) -> "Fetcher":
        """For rows that are sent after the gateway has closed its own."""
        from mcpx.wire.fetch import Fetcher

        return Fetcher(self._environ or {})

    # For whoever asks
    # ----------------------------------------------------------------------------------------------

    @property
    def rows_lost(self) -> int | None:
        """Rows of the trail that are nowhere; None where none is kept."""
        return None if self._audit is None else self._audit.lost

    def metrics_for(self, caller: Caller) -> tuple[bytes, str] | None:
        """All figures that this caller may know, and the type of the text; None while nothing is
        counted."""
        return None if self._metrics is None else self._metrics.page(self._gateway.sight(caller))

    @cached_property
    def activity(self) -> "Activity":
        from mcpx.telemetry.activity import Activity

        return Activity(self._gateway.bus)

    @cached_property
    def watching(self) -> "Watching":
        """For people who look: whoever asks for it has everything counted and kept from then on."""
        from mcpx.telemetry.watching import Watching

        return Watching(self._gateway, self.activity)

    async def tell_activity(self, request: Json) -> Json:
        """The control verb `activity`: the calls behind `after`, at most `limit`."""
        after, limit = request.get("after"), request.get("limit")
        wanted = {"after": after if isinstance(after, int) else 0}
        if isinstance(limit, int):
            wanted["limit"] = limit
        return {"ok": True, **self.activity.look(**wanted)}


async def _finish(trail: "Trail", sink: "Exporter") -> None:
    """End the exporter of an audit log that is not written any more, after its last rows."""
    await asyncio.to_thread(trail.wait)
    await sink.close()
