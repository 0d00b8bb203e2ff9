"""Atomic replacement of config files.

A reader finds the old text or the new one, also after a loss of power. The new file has mode 0600
unless the old mode is to be kept, and the owner of the old file if possible. If the path is a link,
its target is replaced. If another program has saved the file in the same moment, its text stays,
and `Overtaken` is raised.
"""

import contextlib
import os
import stat
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.base import WINDOWS
from mcpx.base.files import CLOEXEC, private_folder, remove_leftovers, rename_over, temporary_file
from mcpx.config.load import Texts
from mcpx.config.watch import Print, print_of
from mcpx.model.errors import McpxError

if TYPE_CHECKING:
    from mcpx.config.written import Sheet, Written

READ_ONLY = 30
"""EROFS. Windows has no such error."""


class Unwritable(McpxError):
    """A file cannot be written. The message says which, why, and what to do."""


class Overtaken(Exception):
    """Another program has changed the file."""


def texts_of(written: "Written") -> Mapping[str, str]:
    """The texts in the form in which the history keeps them."""
    return {str(sheet.path): sheet.text for sheet in written.sheets}


def write_all(written: "Written", texts: Texts) -> dict[Path, Print]:
    """Write files that are still as in `written`, all or none. Returns their fingerprints.

    Raises `Overtaken` or `Unwritable`.
    """
    prints: dict[Path, Print] = {}
    done: list[tuple[Sheet, bytes]] = []
    try:
        for path, text in texts.items():
            sheet = next((sheet for sheet in written.sheets if sheet.path == path), None)
            if sheet is None:
                _make_folder(path.parent)
                prints[path] = replace_file(path, text.encode(), None)
            else:
                data = sheet.bytes_of(text)
                prints[path] = replace_file(path, data, sheet.data)
                done.append((sheet, data))
    except (Overtaken, Unwritable):
        for sheet, data in done:
            replace_file(sheet.path, sheet.data, data)
        raise
    return prints


def _make_folder(folder: Path) -> None:
    try:
        if not folder.exists():
            private_folder(folder)
    except OSError as error:
        raise Unwritable(f"the folder {folder} cannot be made: {error.strerror or error}") from None


def replace_file(path: Path, data: bytes, before: bytes | None, mode: int | None = 0o600) -> Print:
    """Replace a file with the content `before`, or create it if `before` is None.

    `mode` None keeps the mode. Returns the fingerprint of the new file, or None if it has already
    been replaced.
    """
    target = Path(os.path.realpath(path))
    with _explained(path, target):
        remove_leftovers(target.parent)
        with temporary_file(target.parent) as (file, name):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            inode = os.fstat(file.fileno()).st_ino
            if WINDOWS:
                file.close()  # Windows does not rename an open file.
            _copy_owner_and_mode(target, name, mode)
            if before is None:
                _create(target, name)
            else:
                _replace_unchanged(target, name, before)
        _sync_folder(target.parent)
        found = print_of(target)
    return found if found and inode in found else None


def refuse_unwritable(path: Path) -> None:
    """Raises `Unwritable` for a file that cannot be replaced. Changes nothing."""
    target = Path(os.path.realpath(path))
    with _explained(path, target), temporary_file(target.parent):
        if os.path.ismount(target):
            why = "it is mounted by itself, and such a file cannot be replaced"
            raise Unwritable(f"{path} cannot be written: {why}. Mount the folder it lies in")


@contextlib.contextmanager
def _explained(path: Path, target: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        advice = "nothing was changed; mend that and save again"
        if isinstance(error, PermissionError) or error.errno == READ_ONLY:
            advice = (
                f"mcpx must be able to write into {target.parent}: give it that right, or edit the "
                "file by hand"
            )
        raise Unwritable(f"{path} cannot be written: {reason}. {advice}") from None


def _copy_owner_and_mode(target: Path, name: str, mode: int | None) -> None:
    if mode is None:
        os.chmod(name, stat.S_IMODE(os.stat(target).st_mode))
    elif mode != 0o600:  # A temporary file has this mode.
        os.chmod(name, mode)
    with contextlib.suppress(OSError):  # The file does not exist, or belongs to another user.
        found = os.stat(target)
        if not WINDOWS and (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(name, found.st_uid, found.st_gid)


def _replace_unchanged(target: Path, name: str, before: bytes) -> None:
    try:
        old = os.fdopen(os.open(target, os.O_RDONLY | CLOEXEC), "rb")
    except FileNotFoundError:
        raise Overtaken from None
    with old:
        if old.read() != before:
            raise Overtaken
        if WINDOWS:  # Windows does not replace an open file.
            old.close()
            rename_over(name, target)
            return
        os.replace(name, target)
        old.seek(0)
        current = old.read()
        if current != before:  # Changed between the comparison and the replacement.
            with temporary_file(target.parent) as (file, restored):
                file.write(current)
                file.flush()
                os.replace(restored, target)
            raise Overtaken


def _create(target: Path, name: str) -> None:
    try:
        os.link(name, target)  # Unlike a rename, a link fails if the target exists.
    except FileExistsError:
        raise Overtaken from None
    except OSError:  # The file system has no links.
        if os.path.lexists(target):
            raise Overtaken from None
        os.replace(name, target)


def _sync_folder(folder: Path) -> None:
    if WINDOWS:
        return  # Windows does not open folders.
    with contextlib.suppress(OSError):  # Some file systems cannot sync a folder.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_leftovers_of(config: Path) -> None:
    """Delete the temporary files of interrupted saves of a config file or folder."""
    target = Path(os.path.realpath(config))
    remove_leftovers(target if target.is_dir() else target.parent)
