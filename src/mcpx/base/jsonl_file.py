"""JSON Lines file with rotation by size and by day, written by a background thread.

Writing a row never blocks. Rows beyond `MAX_PENDING_BYTES` and rows that the disk rejects are
dropped, and a later `dropped` row reports their number. Rows stay whole if several processes
append to one file. Only the owner can read the file and its backups (`FILE.1` is the newest).
A crash of the process loses pending rows, usually those of the last `FLUSH_INTERVAL_SECONDS`.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Protocol

from mcpx.base import WINDOWS
from mcpx.base.files import NOFOLLOW, NONBLOCK, is_at, private_folder

try:
    import fcntl
except ImportError:  # Windows needs no lock, because it does not rename open files.
    fcntl = None

log = logging.getLogger(__name__)

FLUSH_INTERVAL_SECONDS = 0.1
MAX_PENDING_BYTES = 8 << 20
MAX_ROWS_PER_REDACTION: Final = 64  # The redactor holds the GIL while it checks them.
JOIN_TIMEOUT_SECONDS: Final = 2.0
SECONDS_PER_DAY: Final = 86_400
MAX_ROW_SEARCH_BYTES: Final = 64 << 10
"""Bytes at each end of a file in which its first and last rows are searched."""


class Redactor(Protocol):
    """Removes secrets. The writer thread calls it."""

    def redact(self, text: str) -> str: ...

    def redact_json(self, value: Any) -> Any: ...


class RowChain(Protocol):
    """Adds a proof to each row that no row was removed. The writer thread calls it."""

    def open(self, time: str, previous: str, continued: str = "") -> bytes:
        """Return the row that begins the chain in a file."""
        ...

    def add(self, row: bytes, after: str = "") -> bytes:
        """Return the row with its proof. `after` is the proof of another process's last row."""
        ...

    def proof_in(self, rows: Sequence[bytes]) -> str:
        """Return the proof of the last row that has one, or an empty text."""
        ...

    def restart(self) -> None:
        """Begin a new chain, because it is not known which rows were written."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    max_bytes: int
    backup_count: int
    max_days: int | None = None
    """If set, a new file begins each day (UTC), and backups older than this are deleted."""
    require_private_folder: bool = False
    redactor: Redactor | None = None
    build_chain: Callable[[], RowChain] | None = None
    """Called in the writer thread, because it may derive a key."""
    on_written: Callable[[bytes], object] | None = None
    """Called in the event loop with each row that was written."""


class _UnredactedRow(bytes):
    """Row that may contain secrets."""


@dataclass(frozen=True, slots=True)
class _Batch:
    rows: list[bytes]
    done: asyncio.Future[None] | None
    """Resolved after the rows were written or lost."""


class JsonlFile:
    """The side of the event loop. `_Writer` is the side of the thread."""

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self._is_redacted = options.redactor is None
        self._batches: SimpleQueue[_Batch | None] = SimpleQueue()
        self._buffer: list[bytes] = []
        self._flush_timer: asyncio.TimerHandle | None = None
        self._accepted_bytes = 0
        self._overflow_rows = 0
        self._unreported_overflow_rows = 0
        self._writer = _Writer(path, options)
        self._thread = threading.Thread(
            target=self._writer.run, args=(self._batches,), name="mcpx-jsonl", daemon=True
        )
        self._thread.start()

    @property
    def lost_rows(self) -> int:
        return self._overflow_rows + self._writer.failed_rows

    @property
    def pending_bytes(self) -> int:
        return self._accepted_bytes - self._writer.finished_bytes

    @property
    def is_writing(self) -> bool:
        return self._thread.is_alive()

    def write(self, row: bytes, *, is_redacted: bool) -> None:
        """Append an encoded row, which ends with a newline."""
        if not is_redacted and not self._is_redacted:
            row = _UnredactedRow(row)
        if self.pending_bytes + len(row) > MAX_PENDING_BYTES:
            self._overflow_rows += 1
            self._unreported_overflow_rows += 1
            return
        if self._unreported_overflow_rows:
            self._append(event_row("dropped", count=self._unreported_overflow_rows))
            self._unreported_overflow_rows = 0
        self._append(row)

    def write_now(self, row: bytes, *, is_redacted: bool) -> asyncio.Future[None]:
        """Append a row without waiting for others. The future resolves when it is on disk or
        lost."""
        self.write(row, is_redacted=is_redacted)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pass_to_writer(done)
        return done

    def _append(self, row: bytes) -> None:
        self._buffer.append(row)
        self._accepted_bytes += len(row)
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(FLUSH_INTERVAL_SECONDS, self._pass_to_writer)

    def _pass_to_writer(self, done: asyncio.Future[None] | None = None) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._buffer or done is not None:
            self._batches.put(_Batch(self._buffer, done))
            self._buffer = []

    def close(self) -> None:
        """Stop accepting rows. The writer thread writes the pending rows and then ends."""
        self._pass_to_writer()
        self._batches.put(None)

    def join(self) -> None:
        """Wait for the writer thread to end, at most `JOIN_TIMEOUT_SECONDS`."""
        self._thread.join(JOIN_TIMEOUT_SECONDS)
        if self.is_writing:
            log.warning("Cannot finish writing %s: the disk is too slow. Rows are lost.", self.path)


class _Writer:
    """Writes batches of rows in its thread."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path = path
        self._options = options
        self.finished_bytes = 0
        self.failed_rows = 0
        self._unreported_failed_rows = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        if options.on_written is not None:
            self._loop = asyncio.get_running_loop()
        self._chain: RowChain | None = None
        self._fd: int | None = None
        self._day = ""  # Of the first row of the file.
        self._written_at = ""
        self._end = 0
        """Size of the file after the last write. A larger file has rows of other processes."""
        self._needs_newline = False  # True if a crash or an error left a partial row.
        self._rotation_failed = False

    def run(self, batches: "SimpleQueue[_Batch | None]") -> None:
        if self._options.build_chain is not None:
            self._chain = self._options.build_chain()
        while (batch := batches.get()) is not None:
            size = sum(map(len, batch.rows))
            try:
                if self._options.redactor is not None:
                    _redact_rows(batch.rows, self._options.redactor)
                self._write_batch(batch.rows)
            except Exception:
                log.exception("Cannot write rows to %s", self._path)
                self._count_failed(batch.rows)
            self.finished_bytes += size
            if batch.done is not None:
                _call_in(batch.done.get_loop(), _resolve, batch.done)
        self._close_file()

    def _write_batch(self, batch: list[bytes]) -> None:
        try:
            fd = self._open_file()
            if self._options.max_days is not None and self._day < today():
                self._rotate(fd)
                fd = self._open_file()
            rows = batch
            if self._unreported_failed_rows:
                rows = [event_row("dropped", count=self._unreported_failed_rows), *batch]
            self._write_rows(fd, self._chained(fd, rows))
            if self._unreported_failed_rows:
                self._unreported_failed_rows = 0
                log.warning("Writing to %s works again.", self._path)
            if os.fstat(fd).st_size >= self._options.max_bytes:
                self._rotate(fd)
        except OSError as error:
            if not self._unreported_failed_rows:
                log.error(
                    "Cannot write %s: %s. New rows are lost until writing works again.",
                    self._path,
                    error.strerror or error,
                )
            if self._chain is not None:
                self._chain.restart()  # Some of the rows may be in the file.
            self._count_failed(batch)
            self._close_file()

    def _chained(self, fd: int, rows: list[bytes]) -> list[bytes]:
        if self._chain is None or not rows:
            return rows
        after = ""
        if os.fstat(fd).st_size != self._end:
            after = self._chain.proof_in(_last_rows(fd))
        return [self._chain.add(rows[0], after), *map(self._chain.add, rows[1:])]

    def _write_rows(self, fd: int, rows: list[bytes]) -> None:
        if self._needs_newline:
            rows = [b"\n", *rows]
        data = memoryview(b"".join(rows))
        self._needs_newline = True
        while data:
            data = data[os.write(fd, data) :]
        self._needs_newline = False
        self._end = os.lseek(fd, 0, os.SEEK_CUR)
        self._written_at = _now()
        if self._options.on_written is not None and self._loop is not None:
            _call_in(self._loop, _pass_on, self._options.on_written, rows)

    def _count_failed(self, rows: list[bytes]) -> None:
        self.failed_rows += len(rows)
        self._unreported_failed_rows += len(rows)

    def _open_file(self) -> int:
        """Return a descriptor of the current file.

        Reopens the file if another process has rotated or moved it.
        """
        if self._fd is not None:
            if is_at(self._path, self._fd):
                return self._fd
            self._close_file()
        if self._options.require_private_folder or not self._path.parent.is_dir():
            private_folder(self._path.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | NOFOLLOW | NONBLOCK
        fd = os.open(self._path, flags, 0o600)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise OSError(f"{self._path} is not a regular file")
        if status.st_mode & 0o077 and not WINDOWS:
            os.fchmod(fd, 0o600)
        self._fd = fd
        self._needs_newline = _lacks_final_newline(fd, status.st_size)
        self._begin_file(fd)
        return fd

    def _begin_file(self, fd: int) -> None:
        """Find the day of the file, delete old backups, and begin the chain in the file."""
        self._day = _day_of(_first_row(fd)) or today()
        if self._options.max_days is not None:
            _delete_backups_before(
                self._path, time.time() - self._options.max_days * SECONDS_PER_DAY
            )
        if self._chain is None:
            return
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_EX)  # Another process may begin the same file.
        previous = self._chain.proof_in(_last_rows(fd) or _last_rows_of(backup_path(self._path, 1)))
        self._write_rows(fd, [self._chain.open(_now(), previous, self._written_at)])
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _close_file(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _rotate(self, fd: int) -> None:
        """Start a new file. If the old one cannot be renamed, keep writing to it.

        An append-only file, for example, cannot be renamed.
        """
        try:
            if fcntl is not None:
                fcntl.flock(fd, fcntl.LOCK_EX)
            is_current = is_at(self._path, fd)  # Otherwise another process has rotated it.
            if WINDOWS:
                self._close_file()  # Windows cannot rename an open file.
            if is_current:
                _move_to_backups(self._path, self._options.backup_count)
            self._rotation_failed = False
        except OSError as error:
            if not self._rotation_failed:
                log.error(
                    "Cannot rotate %s: %s. The file continues to grow.",
                    self._path,
                    error.strerror or error,
                )
            self._rotation_failed = True
        self._close_file()


# Rows


def event_row(event: str, **fields: int) -> bytes:
    row = {"time": _now(), "event": event, **fields}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def redact_row(row: bytes, redactor: Redactor) -> bytes:
    """Return the encoded row (or part of a row) without secrets."""
    text = row.decode()
    if redactor.redact(text) == text:
        return row
    fields: dict[str, Any] = json.loads(text)
    # Keys are fixed field names. A key such as `session` does not mean that its value is secret.
    redacted = {key: _redacted(value, redactor) for key, value in fields.items()}
    end = b"\n" * row.endswith(b"\n")
    return json.dumps(redacted, separators=(",", ":")).encode() + end


def _redacted(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.redact(value)
    return redactor.redact_json(value)


def _redact_rows(rows: list[bytes], redactor: Redactor) -> None:
    """Redact rows in place. Most rows have no secrets, so many rows are checked at once."""
    unredacted = [i for i, row in enumerate(rows) if isinstance(row, _UnredactedRow)]
    for start in range(0, len(unredacted), MAX_ROWS_PER_REDACTION):
        indexes = unredacted[start : start + MAX_ROWS_PER_REDACTION]
        text = b"".join([rows[i] for i in indexes]).decode()
        if redactor.redact(text) != text:
            for i in indexes:
                rows[i] = redact_row(rows[i], redactor)


def _first_row(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    return os.read(fd, MAX_ROW_SEARCH_BYTES).partition(b"\n")[0]


def _last_rows(fd: int) -> list[bytes]:
    """Return the last whole rows."""
    os.lseek(fd, -min(MAX_ROW_SEARCH_BYTES, os.fstat(fd).st_size), os.SEEK_END)
    end = os.read(fd, MAX_ROW_SEARCH_BYTES)
    return end[: end.rfind(b"\n") + 1].splitlines()


def _last_rows_of(path: Path) -> list[bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | NOFOLLOW | NONBLOCK)
    except OSError:
        return []
    try:
        return _last_rows(fd)
    finally:
        os.close(fd)


def _lacks_final_newline(fd: int, size: int) -> bool:
    if size == 0:
        return False
    os.lseek(fd, -1, os.SEEK_END)
    return os.read(fd, 1) != b"\n"


def _day_of(row: bytes) -> str:
    try:
        return str(json.loads(row)["time"])[:10]
    except (ValueError, KeyError, TypeError):
        return ""


def today() -> str:
    return _now()[:10]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())


# Backups


def backup_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def backup_numbers(path: Path) -> list[int]:
    """Return the numbers of the existing backups, the newest first.

    A crash between two renames leaves a gap.
    """
    names = [each.name for each in path.parent.glob(f"{escape(path.name)}.*")]
    suffixes = [name[len(path.name) + 1 :] for name in names]
    return sorted({int(suffix) for suffix in suffixes if suffix.isascii() and suffix.isdigit()})


def _move_to_backups(path: Path, backup_count: int) -> None:
    if backup_count:
        _shift_backups(path, backup_count)
    else:
        os.unlink(path)
    # An earlier configuration may have kept more backups.
    with contextlib.suppress(FileNotFoundError):
        for number in itertools.count(backup_count + 1):
            os.unlink(backup_path(path, number))


def _shift_backups(path: Path, backup_count: int) -> None:
    """Rename each backup to the next number, and the current file to backup 1.

    If a rename fails, undo the others.
    """
    renamed: list[int] = []
    try:
        for number in range(backup_count, 1, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(backup_path(path, number - 1), backup_path(path, number))
                renamed.append(number)
        # Last, because other processes then start a new file.
        os.replace(path, backup_path(path, 1))
    except OSError:
        for number in reversed(renamed):
            os.replace(backup_path(path, number), backup_path(path, number - 1))
        raise


def _delete_backups_before(path: Path, oldest: float) -> None:
    for number in backup_numbers(path):
        backup = backup_path(path, number)
        with contextlib.suppress(OSError):
            if backup.stat().st_mtime < oldest:
                backup.unlink()


# Calls into the event loop


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *values: object) -> None:
    with contextlib.suppress(RuntimeError):  # The loop has ended.
        loop.call_soon_threadsafe(call, *values)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _pass_on(receive: Callable[[bytes], object], rows: list[bytes]) -> None:
    for row in rows:
        receive(row)
