"""Folders and files that are ours alone.

Promise: `private_folder` gives a folder that only this user can have put something into, or says
why it does not; `replace_private` changes a file at once or not at all; `read_small` reads a plain
file and waits for nothing. None changes the umask, which belongs to the whole process. No promise
on Windows that a folder which was there already is this user's alone: there the profile's folders
are, and who may write elsewhere is not looked at.
"""

import contextlib
import os
import stat
import time
from pathlib import Path

from mcpx.wire.system import WINDOWS

CHILDLESS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_BINARY", "O_NOINHERIT"))
"""How a file is opened: no child inherits it, no line end is changed."""
OURS = CHILDLESS | getattr(os, "O_NOFOLLOW", 0)
"""How a file of ours is opened: no link is followed either."""
AT_ONCE: int = getattr(os, "O_NONBLOCK", 0)
"""Nothing is waited for: a pipe may have nobody at its other end."""
BUSY = 2.0
"""Seconds in which somebody who reads a file should be done. Windows does not replace what somebody
has open."""


def private_folder(folder: Path) -> None:
    """Make it, with all above it that is not there, for this user alone. Raises an OSError that
    says what is wrong with one that is there: whoever can write into it could stand in for us."""
    missing = [folder]
    while not os.path.lexists(missing[-1]) and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    for path in reversed(missing[:-1]):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass  # somebody else was quicker: it is looked at below
    require_private(folder)


def require_private(folder: Path) -> None:
    """Raises an OSError unless the folder is there and this user's alone."""
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
    above = os.stat(folder.parent)
    if above.st_uid not in (os.geteuid(), 0) or (
        above.st_mode & 0o002 and not above.st_mode & stat.S_ISVTX
    ):
        raise PermissionError(
            f"{folder.parent} can be written by other users; chmod 700 it or set MCPX_STATE_DIR"
        )


def write_private(file: Path, text: str) -> None:
    """A file that only this user may read, from its first moment."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OURS, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(text)


def replace_private(file: Path, content: bytes) -> None:
    """The same, in the place of one that may be there: whoever reads it finds the old or the new,
    never a part."""
    import tempfile  # who only looks into a folder does without

    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".new-")  # 0600
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        exchange(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def exchange(fresh: str | Path, file: Path) -> None:
    """Put one file in the place of another; where somebody reads that one, once he is done."""
    deadline = time.monotonic() + BUSY
    while True:
        try:
            os.replace(fresh, file)
            return
        except PermissionError:
            if not WINDOWS or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def read_small(file: Path, most: int) -> bytes:
    """The first bytes of a plain file. OSError for anything else: a pipe may have no beginning, a
    device no end."""
    handle = os.open(file, os.O_RDONLY | AT_ONCE | OURS)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{file} is not a plain file")
        return os.read(handle, most)
    finally:
        os.close(handle)
