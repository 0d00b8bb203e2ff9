"""Large results, kept for whoever got them until they have read enough (SUR-11).

Promise: a result is read back by its owner only; to anybody else its handle reads as unknown, by the same path and
without a difference. Memory and disk are bounded: beyond `memory_bytes` the oldest results move to files, beyond
`disk_bytes` the oldest files of whoever has most there go. Nothing outlives `seconds`, counted from the moment it was
kept. `keep` never fails: where the disk does, results stay in memory and the oldest go sooner. Files are ours alone
(0600 in a folder with 0700), are gone after `close`, and those of a run that was killed are removed by the next one
that needs the disk.

No promise: a result larger than a quarter of the room is whole; its first part is kept, and its last line says so.
Nor that files vanish on the minute: what is too old goes at the next `keep` or `get`. Not for use from two threads.
"""

import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

log = logging.getLogger("mcpx.results")

SMALLEST = 4096
"""What a result counts at least: it bounds their number, and no file takes less."""
FOLDER = "mcpx-results-"
"""Before the process id in the name of a folder."""


class KeptResults(Protocol):
    """Where large results wait. In this process by default; a store that several processes share fits as well."""

    def keep(self, owner: str, text: bytes) -> str:
        """Keep `text` for `owner`; the handle to read it by."""
        ...

    def get(self, owner: str, handle: str) -> bytes | None:
        """What was kept; `None` when the handle is unknown, too old, or somebody else's, whichever it is."""
        ...


@dataclass(slots=True)
class _Kept:
    until: float
    size: int
    text: bytes | None
    """`None` once it lies in a file."""
    file: Path | None


class ResultStore:
    """Memory first, then files in a private folder below `folder` (else the system's temporary one)."""

    def __init__(
        self,
        *,
        memory_bytes: int = 16 << 20,
        disk_bytes: int = 256 << 20,
        seconds: float = 900.0,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._disk_bytes = disk_bytes
        self._seconds = seconds
        self._parent = folder
        self._clock = clock
        # By owner and handle together, so that another's handle is exactly as unknown as an invented one. Oldest first.
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._in_memory = 0
        self._on_disk = 0
        self._disk_of = Counter[str]()
        self._files_of: dict[str, dict[str, None]] = defaultdict(dict)
        """The handles of each owner, oldest first."""
        self._folder: _PrivateFolder | None = None
        self._complained = False

    def keep(self, owner: str, text: bytes) -> str:
        self._forget_old()
        handle = secrets.token_urlsafe(9)
        text = _cut(text, max(self._memory_bytes, self._disk_bytes) // 4)
        file = self._write(owner, handle, text) if len(text) > self._memory_bytes else None
        if file is None and len(text) > self._memory_bytes:
            text = _cut(text, self._memory_bytes // 4)
        size = _counted(text)
        until = self._clock() + self._seconds
        if file is None:
            self._in_memory += size
            self._kept[owner, handle] = _Kept(until, size, text, None)
        else:
            self._kept[owner, handle] = _Kept(until, size, None, file)
        self._make_room()
        return handle

    def get(self, owner: str, handle: str) -> bytes | None:
        self._forget_old()
        entry = self._kept.get((owner, handle))
        if entry is None:
            return None
        if entry.file is None:
            return entry.text
        try:
            return entry.file.read_bytes()
        except OSError as error:  # somebody cleaned up: it is gone, as if it were too old
            self._complain(error)
            self._drop((owner, handle))
            return None

    def close(self) -> None:
        """Forget everything and remove the files; from here on nothing is written any more."""
        self._kept.clear()
        self._disk_of.clear()
        self._files_of.clear()
        self._in_memory = self._on_disk = self._disk_bytes = 0
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _forget_old(self) -> None:
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest].until > now:
                return
            self._drop(oldest)

    def _make_room(self) -> None:
        """The oldest in memory move to files; where that fails, they go."""
        if self._in_memory <= self._memory_bytes:
            return
        for key, entry in [item for item in self._kept.items() if item[1].text is not None]:
            file = self._write(*key, entry.text or b"")
            if file is None:
                self._drop(key)
            else:
                entry.text, entry.file = None, file
                self._in_memory -= entry.size
            if self._in_memory <= self._memory_bytes:
                return

    def _write(self, owner: str, handle: str, text: bytes) -> Path | None:
        """Put a text into a file, for which older files go; `None` when there is no room or no disk."""
        size = _counted(text)
        if size > self._disk_bytes:
            return None
        while self._on_disk + size > self._disk_bytes:
            most = max(self._disk_of, key=self._disk_of.__getitem__)
            self._drop((most, next(iter(self._files_of[most]))))
        for _ in range(2):  # once more should the folder have been removed under us
            try:
                if self._folder is None:
                    self._folder = _PrivateFolder(self._parent or Path(tempfile.gettempdir()))
                file = self._folder.write(text)
            except FileNotFoundError as error:
                self._complain(error)
                if self._folder is not None:
                    self._folder.remove()
                    self._folder = None
            except OSError as error:
                self._complain(error)
                return None
            else:
                self._on_disk += size
                self._disk_of[owner] += size
                self._files_of[owner][handle] = None
                return file
        return None

    def _drop(self, key: tuple[str, str]) -> None:
        entry = self._kept.pop(key)
        if entry.file is None:
            self._in_memory -= entry.size
            return
        self._on_disk -= entry.size
        owner, handle = key
        self._disk_of[owner] -= entry.size
        del self._files_of[owner][handle]
        if not self._files_of[owner]:
            del self._disk_of[owner], self._files_of[owner]
        try:
            entry.file.unlink(missing_ok=True)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        """Once: a full disk would otherwise fill the log as well."""
        if not self._complained:
            self._complained = True
            log.warning("kept results: no use of the disk, fewer of them are kept: %s", error)


class _PrivateFolder:
    """A folder of this process alone, locked while it lives: the lock tells the next run whose folder is whose."""

    def __init__(self, parent: Path) -> None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_leftovers(parent)
        self.path = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=parent))  # 0700
        self._lock = _lock(self.path)

    def write(self, text: bytes) -> Path:
        file = self.path / secrets.token_hex(8)
        try:
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(text)
        except OSError:
            file.unlink(missing_ok=True)  # half of it is no use to anybody
            raise
        return file

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock(folder: Path) -> int | None:
    """An exclusive lock on the folder that the system lets go of when the process ends; `None` if it cannot be had."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_leftovers(parent: Path) -> None:
    """Remove the folders of runs that are gone.

    Two signs must agree, since each alone can lie: no process has the id in the name (or it is ours: in a container
    every run may have the same one), and nobody holds the lock (a process of another container has no id here).
    """
    if sys.platform == "win32":  # no such lock, and asking for a process there ends it
        return
    for path in parent.glob(f"{FOLDER}*-*"):
        pid = path.name.removeprefix(FOLDER).partition("-")[0]
        try:
            if not pid.isdecimal() or path.lstat().st_uid != os.getuid():
                continue
            if int(pid) != os.getpid() and _is_alive(int(pid)):
                continue
            lock = _lock(path)
        except (OSError, ValueError):
            continue
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is there, and not ours
        pass
    return True


def _counted(text: bytes) -> int:
    return max(len(text), SMALLEST)


def _cut(text: bytes, most: int) -> bytes:
    """`text`, or as much of its beginning as `most` allows, whole characters only, and a line that says so."""
    if len(text) <= most:
        return text
    end = max(most - 100, 0)
    while end and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end] + f"\n[cut by mcpx: the first {end:,} of {len(text):,} bytes were kept]".encode()
