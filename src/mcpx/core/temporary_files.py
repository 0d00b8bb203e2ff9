"""Temporary files next to a config file, which a save renames into place.

A writer holds a lock on its file until the file has its final name. The system releases the lock of
a writer that was killed, so its file can be told from one in use, and `remove_leftovers` deletes it
at once. Leftovers contain secrets.

Without such locks (Windows, some network file systems), a file counts as a leftover after
`MAX_WRITE_SECONDS`.
"""

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from mcpx.wire.folders import AT_ONCE, OURS

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PREFIX, SUFFIX = ".mcpx-", ".new"
MAX_WRITE_SECONDS = 60.0


@contextlib.contextmanager
def temporary_file(folder: Path) -> Generator[tuple[BinaryIO, str]]:
    """A new hidden file (mode 0600) and its name. It is deleted unless it was renamed."""
    file, name = _locked_file(folder)
    try:
        yield file, name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
        file.close()


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of writers that have ended."""
    for path in folder.glob(f"{PREFIX}*{SUFFIX}"):
        with contextlib.suppress(OSError):
            _remove_unused(path)


def _locked_file(folder: Path) -> tuple[BinaryIO, str]:
    while True:
        handle, name = tempfile.mkstemp(dir=folder, prefix=PREFIX, suffix=SUFFIX)
        file = os.fdopen(handle, "wb")
        if fcntl is None:
            return file, name
        with contextlib.suppress(OSError):  # The file system has no locks.
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(Path(name), handle):
            return file, name
        file.close()  # Before it was locked, another process took it for a leftover.


def _remove_unused(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | AT_ONCE | OURS)
    try:
        is_leftover = (
            stat.S_ISREG(os.fstat(handle).st_mode)
            and not _is_in_use(handle)
            and _is_at(path, handle)
        )
        if is_leftover and fcntl is not None:
            path.unlink()  # While the lock is held: a writer that waits for it takes another file.
    finally:
        os.close(handle)
    if is_leftover and fcntl is None:
        path.unlink()  # Windows does not delete an open file.


def _is_in_use(handle: int) -> bool:
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass  # The file system has no locks.
        else:
            return False
    return time.time() - os.fstat(handle).st_mtime < MAX_WRITE_SECONDS


def _is_at(path: Path, handle: int) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False
