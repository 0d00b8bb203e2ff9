"""What of policy outlives a reload: pins, approvals, counters of limits. Each is made when it is first needed."""

from pathlib import Path


class PolicyState:
    def __init__(self, folder: Path | None) -> None:
        """`folder`: where what must outlive the process is kept; None keeps nothing."""
        self.folder = folder
