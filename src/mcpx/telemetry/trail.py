"""A file of JSON lines that grows, is turned over by size, and never holds up whoever writes to it.

Promised: `write` only remembers; a thread of the trail's own takes rows to the disk, many at a time. What waits is
bounded in bytes: rows beyond that, and rows that the disk did not take, are dropped, counted, and told of in the trail
by a row `dropped`. The file and its older ones (`FILE.1` is the latest of them) are readable by their owner only.
`wait` is bounded. Several processes may write to one trail: each row stays whole.

Not promised: that a row survives the machine's crash, or this process's within `GATHER` seconds.
"""

import asyncio
import contextlib
import logging
import os
import stat
import threading
from pathlib import Path
from queue import SimpleQueue
from time import gmtime, strftime
from typing import Any, Protocol

from mcpx.model.call import Json, as_object
from mcpx.wire import codec
from mcpx.wire.folders import private_folder

try:
    import fcntl
except ImportError:  # Windows, where whoever comes second does not turn the file
    fcntl = None

log = logging.getLogger(__name__)

GATHER = 0.1
"""Seconds for which rows are gathered before they are written."""
MOST_WAITING = 8 << 20
"""Bytes of rows that wait for the disk."""
AT_ONCE = 64
"""Rows that are looked through for secrets together."""
LAST_WORDS = 2.0
"""Seconds that writing the rest may take at the end."""


class Redacts(Protocol):
    """Knows what must not be said. Asked in the thread of the trail, too."""

    @property
    def edition(self) -> int:
        """Another one when it knows of other secrets."""
        ...

    def redact(self, text: str) -> str: ...

    def redact_json(self, value: Any) -> Any: ...


class _Unread(bytes):
    """A row that was not looked through for secrets."""


class Trail:
    def __init__(
        self, file: Path, max_bytes: int, keep: int, redactor: Redacts | None = None, *, private: bool = False
    ) -> None:
        """`private`: its folder must let nobody else in; one that the user chose may."""
        self._redactor = redactor
        self.file = file
        self._private = private
        self._max_bytes = max_bytes
        self._keep = keep
        self._gathered: list[bytes] = []
        self._taken = 0
        """Bytes handed in; the thread counts those that are done with, so that neither needs a lock."""
        self._done = 0
        self._timer: asyncio.TimerHandle | None = None
        self._dropped = 0
        """Of rows that found no room, since it was last told."""
        self._unwritten = 0
        """Of rows that the disk did not take, since it was last told; the thread's own."""
        self._lost = [0, 0]
        """Rows that are nowhere, of all time: for want of room, and by the thread."""
        self._batches: SimpleQueue[list[bytes] | None] = SimpleQueue()
        self._handle: int | None = None
        self._torn = False
        """The last line may have no end."""
        self._failing = self._stuck = False
        self._thread = threading.Thread(target=self._run, name="mcpx-trail", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Rows that are nowhere, of all time."""
        return sum(self._lost)

    @property
    def is_writing(self) -> bool:
        return self._thread.is_alive()

    # On the loop -------------------------------------------------------------------------------------------------

    def write(self, row: Json) -> None:
        try:
            line = codec.dump(row) + b"\n"
        except codec.Unencodable:
            line = codec.dump({"time": _now(), "event": "unwritable"}) + b"\n"
        self.add(line, False)

    def add(self, line: bytes, clean: bool) -> None:
        """A row as it is written. `clean`: it has no secret in it."""
        if not clean and self._redactor is not None:
            line = _Unread(line)
        if self._taken - self._done + len(line) > MOST_WAITING:
            self._dropped += 1
            self._lost[0] += 1
            return
        if self._dropped:
            told = _dropped(self._dropped)
            self._gathered.append(told)
            self._taken += len(told)
            self._dropped = 0
        self._gathered.append(line)
        self._taken += len(line)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER, self._hand_over)

    def _hand_over(self) -> None:
        self._timer = None
        if self._gathered:
            self._batches.put(self._gathered)
            self._gathered = []

    def finish(self) -> None:
        """Nothing more comes: the thread writes the rest, and ends."""
        if self._timer is not None:
            self._timer.cancel()
        self._hand_over()
        self._batches.put(None)

    def wait(self) -> None:
        """Until the rest is written, at the end of the process; not for ever."""
        self._thread.join(LAST_WORDS)
        if self._thread.is_alive():
            log.warning("the audit trail %s could not be written to its end: the disk is too slow", self.file)

    # In the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                self._put(batch if self._redactor is None else _without_secrets(batch, self._redactor))
            except Exception:
                log.exception("rows of the audit trail could not be written")
                self._lose(len(batch))
            self._done += sum(map(len, batch))
        if self._handle is not None:
            os.close(self._handle)

    def _put(self, batch: list[bytes]) -> None:
        try:
            handle = self._opened()
            rows = batch
            if self._unwritten:
                rows = [_dropped(self._unwritten), *batch]
            data = memoryview((b"\n" if self._torn else b"") + b"".join(rows))
            self._torn = True
            while data:
                data = data[os.write(handle, data) :]
            self._torn = False
            self._unwritten = 0
            if self._failing:
                self._failing = False
                log.warning("the audit trail %s is written again", self.file)
            if os.fstat(handle).st_size >= self._max_bytes:
                self._try_to_turn(handle)
        except OSError as error:
            self._lose(len(batch))
            self._let_go()
            if not self._failing:
                self._failing = True
                why = error.strerror or str(error)
                log.error("the audit trail %s cannot be written: %s. Calls go on, unrecorded", self.file, why)

    def _lose(self, rows: int) -> None:
        self._unwritten += rows
        self._lost[1] += rows

    def _opened(self) -> int:
        """The file as it is now: another process may have turned it over, somebody may have moved it."""
        if self._handle is not None:
            if _is_at(self._handle, self.file):
                return self._handle
            self._let_go()
        if self._private or not self.file.parent.is_dir():
            private_folder(self.file.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(self.file, flags, 0o600)
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            os.close(handle)
            raise OSError(f"{self.file} is not a plain file")
        if found.st_mode & 0o077:
            os.fchmod(handle, 0o600)  # one that was there already
        self._handle, self._torn = handle, _is_torn(handle, found.st_size)
        return handle

    def _try_to_turn(self, handle: int) -> None:
        """Where that cannot be (an append-only file, say) this one grows on: nothing is lost, and it is said once."""
        try:
            self._turn(handle)
            self._stuck = False
        except OSError as error:
            self._let_go()
            if not self._stuck:
                self._stuck = True
                why = error.strerror or str(error)
                log.error("the audit trail %s cannot be turned over: %s. It grows on", self.file, why)

    def _turn(self, handle: int) -> None:
        """Begin a new file. Whoever else wants the same waits here, then finds it done."""
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(handle, self.file):
            self._shift() if self._keep else os.unlink(self.file)
            for number in range(self._keep + 1, self._keep + 100):  # fewer may be kept than before
                try:
                    os.unlink(older(self.file, number))
                except FileNotFoundError:
                    break
        self._let_go()

    def _shift(self) -> None:
        """Each becomes the next older one, the file itself last: until then nobody begins another. All or none."""
        moved: list[int] = []
        try:
            for number in range(self._keep, 1, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(older(self.file, number - 1), older(self.file, number))
                    moved.append(number)
            os.replace(self.file, older(self.file, 1))
        except OSError:
            for number in reversed(moved):
                os.replace(older(self.file, number), older(self.file, number - 1))
            raise

    def _let_go(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def _without_secrets(batch: list[bytes], redactor: Redacts) -> list[bytes]:
    """Nearly always there are none, and one look at many rows is enough; not at all of them, for meanwhile no other
    thread runs."""
    unread = [at for at, line in enumerate(batch) if type(line) is _Unread]
    if not unread:
        return batch
    clean = list(batch)
    for start in range(0, len(unread), AT_ONCE):
        places = unread[start : start + AT_ONCE]
        text = b"".join([batch[at] for at in places]).decode()
        if redactor.redact(text) != text:
            for at in places:
                clean[at] = redacted(batch[at], redactor)
    return clean


def redacted(line: bytes, redactor: Redacts) -> bytes:
    """A row, or part of one, without what must not be said."""
    text = line.decode()
    if redactor.redact(text) == text:
        return line
    row = as_object(codec.load(line))
    # The names of a row are ours: one that sounds like a secret's (`session`) holds none.
    told = {key: redactor.redact(it) if isinstance(it, str) else redactor.redact_json(it) for key, it in row.items()}
    return codec.dump(told) + (b"\n" if line.endswith(b"\n") else b"")


def _dropped(count: int) -> bytes:
    return codec.dump({"time": _now(), "event": "dropped", "count": count}) + b"\n"


def _now() -> str:
    return strftime("%Y-%m-%dT%H:%M:%S.000Z", gmtime())


def older(file: Path, number: int) -> Path:
    return file.with_name(f"{file.name}.{number}")


def _is_at(handle: int, file: Path) -> bool:
    try:
        there = os.stat(file, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(handle))


def _is_torn(handle: int, size: int) -> bool:
    """Whether somebody was cut off in the middle of a line."""
    if size == 0:
        return False
    os.lseek(handle, -1, os.SEEK_END)
    return os.read(handle, 1) != b"\n"
