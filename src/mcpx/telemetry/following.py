"""Whether and how requests are followed, by the configuration of now: nobody does where nobody
wants to know."""

from collections.abc import Callable

from mcpx.config import Config
from mcpx.core.gateway import Gateway
from mcpx.telemetry.traces import Traces
from mcpx.telemetry.tracking import Tracker


def is_wanted(config: Config) -> bool:
    settings = config.global_
    return (
        settings.log_format == "json" or settings.audit is not None or settings.traces is not None
    )


class Following:
    def __init__(self, gateway: Gateway, set_tracker: Callable[[Tracker | None], None]) -> None:
        self._gateway = gateway
        self._set_tracker = set_tracker
        self._traces: Traces | None = None
        self._former: list[Traces] = []

    def take_up(self, config: Config) -> None:
        settings, traces = config.global_.traces, self._traces
        if settings is None and traces is not None:
            traces.stop(self._gateway.bus)
            self._former.append(traces)
            self._traces = None
        elif settings is not None:
            if traces is None:
                traces = self._traces = Traces(settings, lambda: self._gateway.provisions.fetcher)
                traces.start(self._gateway.bus)
            traces.take_up(settings, config.mcp_servers)
        attends = config.global_.log_format == "json" or self._traces is not None
        self._set_tracker(Tracker(self._traces, attends=attends) if is_wanted(config) else None)

    async def close(self) -> None:
        for traces in (*self._former, self._traces):
            if traces is not None:
                await traces.close()
