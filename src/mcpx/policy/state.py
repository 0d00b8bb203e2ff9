"""What of policy outlives a reload: pins, approvals, counters of limits. Each is made when it is first needed."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpx.policy.counters import Counters


class PolicyState:
    def __init__(self, folder: Path | None) -> None:
        """`folder`: where what must outlive the process is kept; None keeps nothing."""
        self.folder = folder

    @cached_property
    def counters(self) -> "Counters":
        """What limits count."""
        from mcpx.policy.counters import Counters

        return Counters()

    def lift_limits(self) -> None:
        """The configuration of now has none: who waits comes in."""
        if "counters" in vars(self):
            from mcpx.policy.counters import NO_BOUND

            self.counters.take_up(NO_BOUND, {}, {})
