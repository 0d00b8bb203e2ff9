"""All that is counted and kept for people who look at a running gateway; made with `--admin`, never
otherwise."""

from collections.abc import Callable

from mcpx.core.gateway import Gateway
from mcpx.core.relay import OURS
from mcpx.model.events import ConfigApplied
from mcpx.telemetry.activity import Activity
from mcpx.telemetry.recording import Recording
from mcpx.telemetry.savings import SavingsCount
from mcpx.telemetry.statistics import Statistics


class Watching:
    def __init__(self, gateway: Gateway, activity: Activity) -> None:
        self._gateway = gateway
        self.statistics = Statistics(gateway.bus, activity)
        self.recording = Recording(activity, gateway.redactor)
        self.savings = SavingsCount(gateway.bus)
        gateway.hear_results(self.savings.shaped)
        gateway.bus.subscribe(self._reloaded, ConfigApplied)

    def _reloaded(self, event: ConfigApplied) -> None:
        if event.ok:
            self.statistics.keep(
                [OURS, *(source.name for source in self._gateway.generation.sources)]
            )

    def end(self) -> None:
        self._gateway.bus.unsubscribe(self._reloaded)
        self._gateway.hear_results(None)
        ends: tuple[Callable[[], None], ...] = (
            self.statistics.end,
            self.recording.end,
            self.savings.end,
        )
        for end in ends:
            end()
