"""Whose turn it is to start a gateway in a place: a lock on a file beside it, which ends with its
holder.

A lock that cannot be had (no such folder, a file system without locks) holds nobody up: what
follows is decided by who binds first.
"""

import os
import time
from pathlib import Path

POLL = 0.02


class Lock:
    def __init__(self, path: Path) -> None:
        """`path`: the place that it is about."""
        self._file = path.with_suffix(".lock")
        self._handle: int | None = None

    @property
    def handle(self) -> int | None:
        """A process that inherits it holds the lock too."""
        return self._handle

    def acquire(self, timeout: float) -> bool:
        """Wait for it. False: another holds it after so many seconds, or it cannot be had."""
        try:
            flags = (
                os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
            )
            handle = os.open(self._file, flags, 0o600)
        except OSError:
            return False
        deadline = time.monotonic() + timeout
        while not _try(handle):
            if time.monotonic() > deadline:
                os.close(handle)
                return False
            time.sleep(POLL)
        self._handle = handle
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _try(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks here
    return True
