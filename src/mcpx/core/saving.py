"""Config files replaced as a whole.

Promised: whoever reads the file finds the old text or the new one, also after a loss of power; it
is for its owner alone (0600), unless its mode is to be kept, and keeps its owner where that may be
given; a link stays and what it leads to is replaced. A text that somebody else saved in the same
moment is not lost: it stays, and `Overtaken` is raised. What cannot be written is said in words
(`Unwritable`). Of several files none is changed alone.
"""

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.config.load import Texts
from mcpx.config.watch import Print, print_of
from mcpx.core.temporary_files import remove_leftovers, temporary_file
from mcpx.model.errors import McpxError
from mcpx.wire.folders import CHILDLESS, exchange, private_folder
from mcpx.wire.system import WINDOWS

if TYPE_CHECKING:
    from mcpx.config.written import Written


class Unwritable(McpxError):
    """A file that cannot be written: what, why, and what to do."""


class Overtaken(Exception):
    """The file is no longer as it was."""


def texts_of(written: "Written") -> Mapping[str, str]:
    """As the history keeps them."""
    return {str(sheet.path): sheet.text for sheet in written.sheets}


def write_all(written: "Written", texts: Texts) -> dict[Path, Print]:
    """The files as `texts` has them, if they still are as `written` has them. Raises `Overtaken`,
    `Unwritable`."""
    left: dict[Path, Print] = {}
    done: list[tuple[Path, bytes, bytes]] = []
    try:
        for path, text in texts.items():
            sheet = next((sheet for sheet in written.sheets if sheet.path == path), None)
            data = text.encode() if sheet is None else sheet.bytes_of(text)
            if sheet is None:
                _make_room(path.parent)
            left[path] = replace_file(path, data, None if sheet is None else sheet.data)
            if sheet is not None:
                done.append((path, sheet.data, data))
    except (Overtaken, Unwritable):
        for path, before, data in done:
            replace_file(path, before, data)
        raise
    return left


def _make_room(folder: Path) -> None:
    try:
        if not folder.exists():
            private_folder(folder)
    except OSError as error:
        raise Unwritable(f"the folder {folder} cannot be made: {error.strerror or error}") from None


def replace_file(path: Path, data: bytes, before: bytes | None, mode: int | None = 0o600) -> Print:
    """`before`: what it holds as far as is known; None: it is not there. `mode`: None keeps the one
    it has. What tells the new one from others."""
    target = Path(os.path.realpath(path))
    try:
        return _replaced(target, data, before, mode)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Unwritable(f"{path} cannot be written: {reason}. {_advice(target, error)}") from None


def refuse_unwritable(path: Path) -> None:
    """Raises `Unwritable` for a file that could not be replaced; nothing is changed by asking."""
    target = Path(os.path.realpath(path))
    try:
        with temporary_file(target.parent):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Unwritable(f"{path} cannot be written: {reason}. {_advice(target, error)}") from None
    if _is_mounted(target):
        told = "it is mounted by itself, and such a file cannot be replaced"
        raise Unwritable(f"{path} cannot be written: {told}. Mount the folder it lies in")


def _is_mounted(target: Path) -> bool:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            return any(line.split(" ", 5)[4] == str(target) for line in mounts)
    except (OSError, IndexError):  # not Linux
        return False


def _advice(target: Path, error: OSError) -> str:
    if isinstance(error, PermissionError) or error.errno == 30:  # a read-only file system
        return (
            f"mcpx must be able to write into {target.parent}: give it that right, or edit the "
            "file by hand"
        )
    return "nothing was changed; mend that and save again"


def _replaced(target: Path, data: bytes, before: bytes | None, mode: int | None) -> Print:
    remove_leftovers(target.parent)
    with temporary_file(target.parent) as (file, name):
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        inode = os.fstat(file.fileno()).st_ino
        if WINDOWS:
            file.close()  # An open file cannot be renamed there.
        _keep_owner(target, name)
        if mode != 0o600:  # which it has
            os.chmod(name, stat.S_IMODE(os.stat(target).st_mode) if mode is None else mode)
        _exchange(target, name, before)
    _settle(target.parent)
    found = print_of(target)
    return found if found and inode in found else None  # else it is somebody else's by now


def _keep_owner(target: Path, name: str) -> None:
    with contextlib.suppress(OSError):  # it may be somebody else's, or not there yet
        found = os.stat(target)
        if not WINDOWS and (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(name, found.st_uid, found.st_gid)


def _exchange(target: Path, name: str, before: bytes | None) -> None:
    if before is None:
        _appear(target, name)
        return
    try:
        old = os.open(target, os.O_RDONLY | CHILDLESS)
    except FileNotFoundError:
        raise Overtaken from None
    try:
        if _all(old) != before:
            raise Overtaken
        if WINDOWS:  # what is open is not replaced there
            os.close(old)
            old = -1
            exchange(name, target)
            return
        os.replace(name, target)
        if (now := _all(old)) != before:
            # Somebody wrote into the old file between the look and the exchange: theirs stays.
            _put_back(target, now)
            raise Overtaken
    finally:
        if old >= 0:
            os.close(old)


def _appear(target: Path, name: str) -> None:
    """A new file. Unlike a rename a link fails where something is by now."""
    try:
        os.link(name, target)
    except FileExistsError:
        raise Overtaken from None
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise Overtaken from None
        os.replace(name, target)
        return
    os.unlink(name)


def remove_leftovers_of(config: Path) -> None:
    """Delete what interrupted saves have left next to a config file, or in a config folder."""
    target = Path(os.path.realpath(config))
    remove_leftovers(target if target.is_dir() else target.parent)


def _put_back(target: Path, data: bytes) -> None:
    with temporary_file(target.parent) as (file, name):
        file.write(data)
        file.flush()
        os.replace(name, target)


def _all(handle: int) -> bytes:
    os.lseek(handle, 0, os.SEEK_SET)
    parts: list[bytes] = []
    while part := os.read(handle, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _settle(folder: Path) -> None:
    """The new name, too, outlives a loss of power."""
    if WINDOWS:
        return  # a folder cannot be opened there
    with contextlib.suppress(OSError):  # some file systems cannot
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
