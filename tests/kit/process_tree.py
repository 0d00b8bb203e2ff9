"""Processes on Linux: descendants, peak memory, and `ProcessWatch`, which waits until processes
have ended."""

import contextlib
import os
import select
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self


class ProcessWatch:
    """Follows processes that are not children of the test. A new process with an old PID is not
    taken for it."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._open: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._open[os.pidfd_open(pid)] = pid

    def left(self, seconds: float) -> list[int]:
        """Wait until all processes have ended, for at most `seconds`. Return those that still
        run."""
        deadline = time.monotonic() + seconds
        waiting = select.poll()
        for descriptor in self._open:
            waiting.register(descriptor, select.POLLIN)
        left = dict(self._open)
        while left and (rest := deadline - time.monotonic()) > 0:
            for descriptor, _ in waiting.poll(rest * 1000):
                waiting.unregister(descriptor)
                del left[descriptor]
        return sorted(left.values())

    def __len__(self) -> int:
        return len(self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open:
            os.close(descriptor)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError):
                stat = Path("/proc", entry, "stat").read_text(errors="replace")
                yield int(entry), int(stat.rpartition(")")[2].split()[1])


def descendants(pid: int) -> set[int]:
    """All descendants of this process, including the keeper process."""
    parents = dict(_parents())
    found: set[int] = set()
    fresh = {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def peak_memory(pid: int) -> int:
    """The peak resident memory of a process in bytes."""
    status = Path("/proc", str(pid), "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
