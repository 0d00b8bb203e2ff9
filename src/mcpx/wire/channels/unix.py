"""A Unix socket that only its owner may open."""

import contextlib
import os
import socket
from collections.abc import Generator
from pathlib import Path

from mcpx.wire.channels import Door, closes, mark_of

BACKLOG = 128


def listen(path: Path) -> Door:
    """The folder lets nobody else in; the socket is 0600 all the same, without touching the umask,
    which other threads use too."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(OSError):  # only on Linux does it hold for the file that is made
            os.fchmod(made.fileno(), 0o600)
        with _short(path) as address:
            made.bind(address)
        os.chmod(path, 0o600)
        made.listen(BACKLOG)
        made.setblocking(False)
        return Door(made, closes(path, mark_of(path)))
    except BaseException:
        made.close()
        raise


def dial(path: Path, timeout: float) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        with _short(path) as address:
            made.connect(address)
        return made
    except BaseException:
        made.close()
        raise


@contextlib.contextmanager
def _short(path: Path) -> Generator[str]:
    """A Unix socket's address has about 100 bytes; through its folder's descriptor any path is
    short enough."""
    if len(os.fsencode(path)) < 100 or not os.path.isdir("/proc/self/fd"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
