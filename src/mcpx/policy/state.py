"""What of policy outlives a reload: pins, approvals, counters of limits. Each is made when it is first needed."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpx.policy.pins.store import Pins


class PolicyState:
    def __init__(self, folder: Path | None) -> None:
        """`folder`: where what must outlive the process is kept; None keeps nothing."""
        self.folder = folder

    @cached_property
    def pins(self) -> "Pins":
        """What was approved of servers that are not trusted as they come."""
        from mcpx.policy.pins.store import Pins

        return Pins(self.folder)
