"""What of policy outlives a reload: pins, approvals, counters of limits. Each is made when it is
first needed."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpx.model.events import Event
    from mcpx.policy.approvals import Approvals, ApprovalStore
    from mcpx.policy.asking import Asking
    from mcpx.policy.counters import Counters
    from mcpx.policy.limits import Limiter
    from mcpx.policy.pins.pinned import Pins
    from mcpx.policy.shared_limits import SharedLimits
    from mcpx.replicas.replicas import Replicas


class PolicyState:
    def __init__(
        self,
        folder: Path | None,
        publish: "Callable[[Event], None]" = lambda event: None,
        replicas: "Replicas | None" = None,
    ) -> None:
        """`folder`: where what must outlive the process is kept; None keeps nothing. `publish`:
        where it is told. `replicas`: with whom it is shared."""
        self.folder = folder
        self.replicas = replicas
        self._publish = publish
        self.limits: Limiter | None = None
        """Those of the configuration of now; None: it limits nothing."""
        if replicas is not None:
            _ = self.book  # from now on: what waits at other replicas is told here too

    @cached_property
    def counters(self) -> "Counters":
        """What limits count."""
        if self.replicas is not None:
            return self.shared_limits.counters
        from mcpx.policy.counters import Counters

        return Counters()

    @cached_property
    def shared_limits(self) -> "SharedLimits":
        from mcpx.policy.shared_limits import SharedLimits

        assert self.replicas is not None
        return SharedLimits(self.replicas)

    def lift_limits(self) -> None:
        """The configuration of now has none: who waits comes in."""
        self.limits = None
        if "counters" in vars(self):
            from mcpx.policy.counters import NO_BOUND

            self.counters.rebind(NO_BOUND, {}, {})

    @cached_property
    def approvals(self) -> "Approvals":
        """With replicas: the approvals that this replica knows."""
        from mcpx.policy.approvals import Approvals

        return Approvals(self._publish)

    @cached_property
    def asking(self) -> "Asking":
        from mcpx.policy.asking import Asking

        return Asking(self.book)

    @cached_property
    def book(self) -> "ApprovalStore":
        if self.replicas is not None:
            from mcpx.policy.cluster_approvals import ClusterApprovalStore

            return ClusterApprovalStore(self.replicas, self.approvals)
        from mcpx.policy.approvals import ApprovalStore

        return ApprovalStore(self.approvals)

    @cached_property
    def pins(self) -> "Pins":
        """What was approved of servers that are not trusted as they come."""
        from mcpx.policy.pins.pinned import Pins

        return Pins(self.folder)

    async def close(self) -> None:
        """Nothing more is told to other replicas."""
        if "book" in vars(self):
            await self.book.close()
        if "shared_limits" in vars(self):
            await self.shared_limits.close()
