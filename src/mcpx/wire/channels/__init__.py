"""How programs of one user reach a gateway that runs on this machine: one file per kind of channel.

Promise: only this user gets in, and only a gateway of this user is talked to. A Unix socket where
there is one; else a port on loopback, whose number and words stand in a file that only its owner
reads. `MCPX_CHANNEL=loopback` takes the latter everywhere (for a file system that holds no
sockets). Imports next to nothing: a bridge starts with it.

Not done here: what is said (`front.control`, `bridge`).
"""

import importlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mcpx.base import PORTABLE

__all__ = ["Door", "clear", "closes", "dial", "is_taken", "listen", "mark_of", "socket_path"]


class Door(NamedTuple):
    """Where a gateway listens."""

    listening: socket.socket
    clear: Callable[[], bool]
    """Leaves the place, unless another gateway has taken it. Whether it was still this one's."""
    knock: bytes | None = None
    """The first line that whoever comes in has to say; None: the file system keeps strangers
    out."""
    welcome: bytes = b""
    """What it is answered with."""


def socket_path(state: Path, config: Path, env: str | None) -> Path:
    """One place for each config and overlay, by whatever name its folder is reached. A link to the
    file itself is another config: it has other files beside it."""
    config = Path(os.path.realpath(config.parent), config.name)
    name = _sha256()(f"{config}\0{env or ''}".encode()).hexdigest()[:16]
    return state / "control" / f"{name}.sock"


def _sha256() -> Any:
    """Python's own: `hashlib` brings four megabytes of OpenSSL along, a third of what a bridge
    takes."""
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            return importlib.import_module(name).sha256
        except ImportError:
            continue
    raise AssertionError("hashlib is always there")


def _on_loopback() -> bool:
    return (
        PORTABLE or not hasattr(socket, "AF_UNIX") or os.environ.get("MCPX_CHANNEL") == "loopback"
    )


def is_taken(path: Path) -> bool:
    """Whether somebody listens there, or did and left something behind."""
    if _on_loopback():
        from mcpx.wire.channels import loopback

        path = loopback.file_of(path)
    return os.path.lexists(path)


def clear(path: Path) -> None:
    """Take away what somebody left behind."""
    if _on_loopback():
        from mcpx.wire.channels import loopback

        path = loopback.file_of(path)
    path.unlink(missing_ok=True)


def listen(path: Path) -> Door:
    """Take the place, which is free and lies in a folder that is this user's alone. Raises
    OSError."""
    if _on_loopback():
        from mcpx.wire.channels import loopback

        return loopback.listen(path)
    from mcpx.wire.channels import unix

    return unix.listen(path)


def dial(path: Path, timeout: float) -> socket.socket:
    """A connection to the gateway that listens there. Raises OSError; a timeout is one."""
    if _on_loopback():
        from mcpx.wire.channels import loopback

        return loopback.dial(path, timeout)
    from mcpx.wire.channels import unix

    return unix.dial(path, timeout)


def closes(path: Path, mark: tuple[int, int]) -> Callable[[], bool]:
    """Removes a file as long as it is the one that was made. Whether it was."""

    def clear() -> bool:
        try:
            if mark_of(path) != mark:
                return False
            path.unlink()
        except OSError:
            return False
        return True

    return clear


def mark_of(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
