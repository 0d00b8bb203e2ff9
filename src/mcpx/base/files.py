"""Private files and folders, atomic replacement, and locks between processes.

Files and folders are for this user only from their first moment. Nothing here changes the umask,
which belongs to the whole process. On Windows, the rights of an existing folder are not checked,
because the folders of a user's profile are private there.
"""

import contextlib
import os
import stat
import time
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO, Final

from mcpx.base import WINDOWS

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

CLOEXEC: Final = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_BINARY", "O_NOINHERIT"))
"""Flags of every file that mcpx opens: children do not inherit it, and line ends do not change."""
NOFOLLOW: Final[int] = CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
"""Opening a named pipe must not wait for its other end."""

PREFIX: Final = ".mcpx-"
SUFFIX: Final = ".new"
MAX_WRITE_SECONDS: Final = 60.0
MAX_READ_SECONDS: Final = 2.0
"""On Windows, a file cannot be replaced while another process reads it."""
POLL_SECONDS: Final = 0.02


def private_folder(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700. Raises OSError.

    An existing folder is checked like in `require_private`.
    """
    missing = [folder]
    while not os.path.lexists(missing[-1]) and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    for path in reversed(missing[:-1]):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    require_private(folder)


def require_private(folder: Path) -> None:
    """Raise an OSError unless the folder exists and only this user can write to it."""
    found = os.lstat(folder)
    if WINDOWS:
        return
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(
            f"{folder} is not a folder but something else, perhaps a link; remove it"
        )
    if found.st_uid != os.geteuid():
        raise PermissionError(
            f"{folder} belongs to another user (id {found.st_uid}); remove it or set MCPX_STATE_DIR"
        )
    if found.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by other users; chmod 700 it")
    parent = os.stat(folder.parent)
    is_open = parent.st_mode & 0o002 and not parent.st_mode & stat.S_ISVTX
    if is_open or parent.st_uid not in (os.geteuid(), 0):
        raise PermissionError(
            f"{folder.parent} can be written by other users; chmod 700 it or set MCPX_STATE_DIR"
        )


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file with mode 0600. Readers see the old or the new content, never a part."""
    with temporary_file(path.parent) as (file, name):
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        if WINDOWS:
            file.close()  # Windows cannot rename an open file.
        rename_over(name, path)


def rename_over(source: str | Path, target: Path) -> None:
    """Rename a file, even if the target exists. On Windows, wait for readers of the target."""
    deadline = time.monotonic() + MAX_READ_SECONDS
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if not WINDOWS or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)


def read_small(path: Path, max_bytes: int) -> bytes:
    """Return the first bytes of a regular file. Raises OSError for pipes, devices, and links."""
    fd = os.open(path, os.O_RDONLY | NONBLOCK | NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is not a plain file")
        return file.read(max_bytes)


# Temporary files


@contextlib.contextmanager
def temporary_file(folder: Path) -> Generator[tuple[BinaryIO, str]]:
    """A new hidden file (mode 0600) and its name. It is deleted unless it was renamed.

    The writer holds a lock on the file. The system releases the lock of a writer that was killed,
    so `remove_leftovers` can tell its file from one in use. Without such locks (Windows, some
    network file systems), a file counts as a leftover after `MAX_WRITE_SECONDS`.
    """
    file, name = _locked_file(folder)
    try:
        yield file, name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
        file.close()


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of writers that have ended. They may contain secrets."""
    for path in folder.glob(f"{PREFIX}*{SUFFIX}"):
        with contextlib.suppress(OSError):
            _remove_unused(path)


def is_at(path: Path, fd: int) -> bool:
    """Return whether the path still names the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _locked_file(folder: Path) -> tuple[BinaryIO, str]:
    import tempfile  # Commands that only read do not need it.

    while True:
        fd, name = tempfile.mkstemp(dir=folder, prefix=PREFIX, suffix=SUFFIX)
        file = os.fdopen(fd, "wb")
        if fcntl is None:
            return file, name
        with contextlib.suppress(OSError):  # The file system has no locks.
            fcntl.flock(fd, fcntl.LOCK_EX)
        if is_at(Path(name), fd):
            return file, name
        file.close()  # Before it was locked, another process deleted it as a leftover.


def _remove_unused(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | NONBLOCK | NOFOLLOW)
    try:
        is_regular = stat.S_ISREG(os.fstat(fd).st_mode)
        is_leftover = is_regular and not _is_in_use(fd) and is_at(path, fd)
        if is_leftover and fcntl is not None:
            path.unlink()  # While the lock is held: a writer that waits for it takes another file.
    finally:
        os.close(fd)
    if is_leftover and fcntl is None:
        path.unlink()  # Windows does not delete an open file.


def _is_in_use(fd: int) -> bool:
    if fcntl is not None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass  # The file system has no locks.
        else:
            return False
    return time.time() - os.fstat(fd).st_mtime < MAX_WRITE_SECONDS


# Locks


class FileLock:
    """Lock between processes. It ends with the process that holds it.

    On a file system without locks, every process gets the lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fd: int | None = None
        """A process that inherits it holds the lock too."""

    def acquire(self, timeout: float) -> bool:
        """Wait for the lock. Return False after `timeout` seconds. Raises OSError."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o600)
        deadline = time.monotonic() + timeout
        while not _try_to_lock(fd):
            if time.monotonic() > deadline:
                os.close(fd)
                return False
            time.sleep(POLL_SECONDS)
        self.fd = fd
        return True

    def release(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    @contextlib.contextmanager
    def held(self, timeout: float) -> Generator[None]:
        """Hold the lock. Raises OSError if another process keeps it."""
        if not self.acquire(timeout):
            raise OSError(f"another process has held {self._path} for {timeout:g} s")
        try:
            yield
        finally:
            self.release()


def _try_to_lock(fd: int) -> bool:
    if fcntl is None:
        import msvcrt

        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # The file system has no locks.
    return True
