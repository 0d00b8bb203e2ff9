"""Local channels, by which programs of one user reach a gateway on the same machine.

Only this user can connect, and a program connects only to a gateway of this user. The channel is a
Unix socket if the system has these. Otherwise it is a port on loopback. To that port, everybody on
the machine can connect, so both sides prove that they have read the same file, which only its owner
can read: `PORT KNOCK WELCOME`. The client sends KNOCK first. A program that took over the port of
an ended gateway therefore receives a useless word, and it cannot answer.

`MCPX_CHANNEL=loopback` forces loopback, for file systems without sockets. This module imports
little, because each bridge loads it.
"""

import contextlib
import importlib
import os
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

from mcpx.base import PORTABLE

BACKLOG = 128
LOOPBACK = "127.0.0.1"
MAX_LINE_BYTES = 256
"""Of the file, and of a line of the other side before it has proved itself."""
MAX_ADDRESS_BYTES = 100
"""Of a Unix socket's path."""


class Door(NamedTuple):
    """A listening socket."""

    listening: socket.socket
    clear: Callable[[], bool]
    """Removes the file, unless another gateway has replaced it. Returns whether it was removed."""
    knock: bytes | None = None
    """The first line that a client must send. None for a Unix socket."""
    welcome: bytes = b""
    """The response to it."""


def socket_path(state: Path, config: Path, env: str | None) -> Path:
    """Return one path for each config and overlay, by whatever name their folder is reached.

    A link to a config file is another config, because it has other files beside it.
    """
    config = Path(os.path.realpath(config.parent), config.name)
    name = _sha256()(f"{config}\0{env or ''}".encode()).hexdigest()[:16]
    return state / "control" / f"{name}.sock"


def _sha256() -> Any:
    """`hashlib` loads 4 MB of OpenSSL, a third of the memory of a bridge."""
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            return importlib.import_module(name).sha256
        except ImportError:
            continue
    raise AssertionError("hashlib is always there")


def is_taken(path: Path) -> bool:
    """Return whether a gateway listens there, or has left its file there."""
    return os.path.lexists(_file_of(path))


def clear(path: Path) -> None:
    """Remove the file of an ended gateway."""
    _file_of(path).unlink(missing_ok=True)


def listen(path: Path) -> Door:
    """Listen at a free path in a private folder. Raises OSError."""
    if _uses_loopback():
        return _listen_on_loopback(_file_of(path))
    return _listen_on_socket(path)


def dial(path: Path, timeout: float) -> socket.socket:
    """Connect to the gateway that listens there. Raises OSError."""
    if _uses_loopback():
        return _dial_loopback(_file_of(path), timeout)
    with _closed_on_error(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as made:
        made.settimeout(timeout)
        with _short(path) as address:
            made.connect(address)
        return made


def mark_of(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _uses_loopback() -> bool:
    if PORTABLE or not hasattr(socket, "AF_UNIX"):
        return True
    return os.environ.get("MCPX_CHANNEL") == "loopback"


def _file_of(path: Path) -> Path:
    return path.with_suffix(".port") if _uses_loopback() else path


def _clear_own(path: Path) -> Callable[[], bool]:
    """Return a function that removes the file if it is still the present one."""
    mark = mark_of(path)

    def clear() -> bool:
        try:
            if mark_of(path) != mark:
                return False
            path.unlink()
        except OSError:
            return False
        return True

    return clear


@contextlib.contextmanager
def _closed_on_error(made: socket.socket) -> Generator[socket.socket]:
    try:
        yield made
    except BaseException:
        made.close()
        raise


def _listen_on_socket(path: Path) -> Door:
    """The socket is 0600, although its folder is private. The umask is not changed, because it
    belongs to the whole process."""
    with _closed_on_error(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as made:
        with contextlib.suppress(OSError):  # Only Linux applies it to the file.
            os.fchmod(made.fileno(), 0o600)
        with _short(path) as address:
            made.bind(address)
        os.chmod(path, 0o600)
        made.listen(BACKLOG)
        made.setblocking(False)
        return Door(made, _clear_own(path))


@contextlib.contextmanager
def _short(path: Path) -> Generator[str]:
    """A path by the descriptor of its folder is always short enough."""
    if len(os.fsencode(path)) < MAX_ADDRESS_BYTES or not os.path.isdir("/proc/self/fd"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _listen_on_loopback(file: Path) -> Door:
    import secrets

    from mcpx.base.files import replace_private

    with _closed_on_error(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as made:
        made.bind((LOOPBACK, 0))
        made.listen(BACKLOG)
        made.setblocking(False)
        knock, welcome = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        replace_private(file, f"{made.getsockname()[1]} {knock} {welcome}\n".encode())
        return Door(made, _clear_own(file), knock.encode(), welcome.encode())


def _dial_loopback(file: Path, timeout: float) -> socket.socket:
    from hmac import compare_digest

    port, knock, welcome = _read_loopback_file(file)
    with _closed_on_error(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as made:
        made.settimeout(timeout)
        made.connect((LOOPBACK, port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.sendall(knock + b"\n")
        heard = b""
        while not heard.endswith(b"\n") and len(heard) < MAX_LINE_BYTES:
            byte = made.recv(1)  # The bytes after the line are for the caller.
            if not byte:
                break
            heard += byte
        if not compare_digest(heard, welcome + b"\n"):
            raise ConnectionRefusedError(
                "the program that listens there is no gateway of this user"
            )
        return made


def _read_loopback_file(file: Path) -> tuple[int, bytes, bytes]:
    from mcpx.base.files import read_small

    if os.name == "posix":
        found = os.lstat(file)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise PermissionError(f"{file} can be read or written by other users")
    words = read_small(file, MAX_LINE_BYTES).split()
    if len(words) != 3 or not words[0].isdigit() or not 0 < int(words[0]) < 65536:
        raise ConnectionRefusedError(f"{file} is damaged")
    port, knock, welcome = words
    return int(port), knock, welcome
