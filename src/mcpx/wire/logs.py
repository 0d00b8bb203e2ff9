"""Log output: plain lines or JSON, safe for terminals, redacted, and limited in rate.

A value from a peer cannot begin a line or control a terminal. Lines of one kind (the same wording
about the same server) are limited in rate, and the number of suppressed lines is logged. Callers of
`log` need not care about either. Records with `OURS` may have several lines and are never
suppressed. With `redact`, no text leaves unredacted: messages are redacted before they are cut, and
whole lines with their tracebacks once more.
"""

import asyncio
import logging
import logging.handlers
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from mcpx.base.aio import TokenBucket
from mcpx.base.files import CLOEXEC, NOFOLLOW
from mcpx.base.text import cut, visible
from mcpx.model.requests import REQUEST, Request

OURS: Final = {"ours": True}
"""`extra` of a record with text of mcpx, or text that was limited and cleaned before."""

BURST, RATE = 20, 0.5
"""Lines of one kind: at once, and per second."""
LOUD_BURST, LOUD_RATE = 200, 20.0
"""The same at level DEBUG."""
COUNTING = 10.0
"""Seconds after which suppressed lines are reported, if no other line of their kind comes."""
KINDS = 1000
LONGEST = 8_000
"""Characters of a line."""
LONGEST_TRACEBACK = 20_000
LONGEST_NAME = 200
CHECK_SECONDS = 10.0
MAX_STDERR_BYTES = 10 << 20
"""If standard error is a log file of the gateway."""
COMPLAINT_SECONDS = 60.0


# Formats


class Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = _cleaned(record, record.getMessage(), "\n    ")
        text = f"{self.formatTime(record, self.datefmt)} {record.levelname} {message}"
        redact = getattr(record, "redact", str)
        return text + "".join([f"\n    {line}" for line in _traceback_lines(record, redact)])


class AsJson(logging.Formatter):
    """One object per line: `time` (UTC), `level`, `logger`, `message`, and if known `server`,
    `request_id`, `trace_id`, `error`."""

    def format(self, record: logging.LogRecord) -> str:
        try:
            message = record.getMessage()
        except Exception as error:  # noqa: BLE001 - a record of a library whose values do not fit
            message = f"{record.msg} ({type(error).__name__} in its values)"
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
        }
        server = server_of(record)
        if server is not None:
            line["server"] = visible(server[:LONGEST_NAME])
            message = message.removeprefix(f"[{server}] ")
        line["message"] = _cleaned(record, message, "\n")
        request = _request_of(record)
        if request is not None:
            line["request_id"] = request.id
            if request.trace_id is not None:
                line["trace_id"] = request.trace_id
        error = "\n".join(_traceback_lines(record))
        if error:
            line["error"] = error
        return orjson.dumps(line).decode()


def _cleaned(record: logging.LogRecord, message: str, line_end: str) -> str:
    message = cut(message, LONGEST)
    if getattr(record, "ours", False):
        return line_end.join(map(visible, message.splitlines()))
    return visible(message)


def _traceback_lines(
    record: logging.LogRecord, redact: Callable[[str], str] = str
) -> Sequence[str]:
    """Return the lines of the traceback. The text of an exception is one line."""
    if not record.exc_info or record.exc_info[1] is None:
        return ()
    lines: list[str] = []
    for part in map(redact, traceback.format_exception(record.exc_info[1])):
        if part.lstrip(" |+-").startswith('File "'):  # Code of mcpx. Other parts may quote a peer.
            lines += part.splitlines()
        elif part.strip():
            lines.append(part.strip("\n"))
    lines = [visible(line[:LONGEST]) for line in lines]
    text = "\n".join(lines)
    if len(text) > LONGEST_TRACEBACK:
        half = LONGEST_TRACEBACK // 2
        return [*text[:half].split("\n"), "…", *text[-half:].split("\n")]
    return lines


def _request_of(record: logging.LogRecord) -> Request | None:
    """Return the request that the record belongs to.

    Callbacks of the event loop belong to none: a connection or a timer serves many requests.
    """
    if getattr(record, "counts", False):
        return None
    if (given := getattr(record, "request", None)) is not None:
        return given
    request = REQUEST.get()
    if request is None or request.over:
        return None
    try:
        return request if asyncio.current_task() is not None else None
    except RuntimeError:  # A thread of the request.
        return request


def server_of(record: logging.LogRecord) -> str | None:
    """Return the server that a record of mcpx is about."""
    if hasattr(record, "server"):
        return vars(record)["server"]
    args = record.args
    if _has_fixed_wording(record) and record.msg.startswith("[%s]") and isinstance(args, tuple):
        return str(args[0]) if args else None
    return None


def _has_fixed_wording(record: logging.LogRecord) -> bool:
    """Libraries may build another wording for each record."""
    return record.name.startswith("mcpx") and isinstance(record.msg, str)


class _Redacted(logging.Formatter):
    """Redacts the lines of another formatter."""

    def __init__(self, form: logging.Formatter, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._form, self._redact = form, redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(self._form.format(record))


# Handlers


def set_limits(bucket: TokenBucket, logger: logging.Logger, burst: float, rate: float) -> None:
    """Set the limits that apply at the present log level."""
    if logger.isEnabledFor(logging.DEBUG):
        burst, rate = LOUD_BURST, LOUD_RATE
    bucket.burst, bucket.rate = burst, rate


class _Kind:
    def __init__(self, record: logging.LogRecord, server: str | None) -> None:
        self.bucket = TokenBucket(LOUD_BURST, LOUD_RATE)
        self.suppressed = 0
        self._name, self._level = record.name, record.levelno
        self._server, self._wording = server, str(record.msg)[:100]

    def report(self) -> Iterator[logging.LogRecord]:
        """A record with the number of suppressed lines, if there are any."""
        count, self.suppressed = self.suppressed, 0
        if not count:
            return
        text = f"… and {count:,} more like {self._wording!r}"
        wording, args = "%s", (text,)
        if self._server is not None:
            wording, args = "[%s] %s", (self._server, text)
        record = logging.LogRecord(self._name, self._level, "", 0, wording, args, None)
        record.counts = True
        yield record


class Outlet(logging.Handler):
    """The only handler of the log. Limits and redacts records, then passes them to its targets."""

    def __init__(
        self, targets: Sequence[logging.Handler], redact: Callable[[str], str] | None = None
    ) -> None:
        super().__init__()
        self.targets = tuple(targets)
        self._redact = redact
        for target in targets:
            self.set_format(target, target.formatter or Plain())
        self._kinds: dict[tuple[str, str, str | None], _Kind] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set_format(self, target: logging.Handler, form: logging.Formatter) -> None:
        if self._redact is not None:
            form = _Redacted(form, self._redact)
        target.setFormatter(form)

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "ours", False):
            self._pass_on(record)
            return
        kind = self._kind_of(record)
        set_limits(kind.bucket, logging.getLogger("mcpx"), BURST, RATE)
        if kind.bucket.take():
            self._pass_on(*kind.report(), record)
            return
        kind.suppressed += 1
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except (
                RuntimeError
            ):  # A thread: reported with the next line of the kind, or at the end.
                return
            self._timer = loop.call_later(COUNTING, self._report)

    def _report(self) -> None:
        self.acquire()
        try:
            self._timer = None
            for kind in self._kinds.values():
                self._pass_on(*kind.report())
        finally:
            self.release()

    def close(self) -> None:
        self._report()
        super().close()

    def _kind_of(self, record: logging.LogRecord) -> _Kind:
        server = server_of(record)
        wording = record.msg if _has_fixed_wording(record) else ""
        key = (record.name, wording, server)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(record, server)
            if len(self._kinds) > KINDS:
                oldest = self._kinds.pop(next(iter(self._kinds)))
                self._pass_on(*oldest.report())
        return kind

    def _pass_on(self, *records: logging.LogRecord) -> None:
        for record in records:
            if self._redact is not None:
                record.server = server_of(record)  # It cannot be found in the redacted text.
                record.msg, record.args = self._redact(record.getMessage()), ()
                record.redact = self._redact
            for target in self.targets:
                if record.levelno >= target.level:
                    target.handle(record)


class LogFile(logging.handlers.RotatingFileHandler):
    """A log file that only its owner can read, also after rotation."""

    _complained_at = -COMPLAINT_SECONDS

    def _open(self) -> Any:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Report that the file cannot be written, at most every `COMPLAINT_SECONDS`.

        Each line tries to open the file again.
        """
        if time.monotonic() - self._complained_at < COMPLAINT_SECONDS:
            return
        self._complained_at = time.monotonic()
        why = str(sys.exc_info()[1])[:200]
        text = f"mcpx: the log file {self.baseFilename} cannot be written: {visible(why)}"
        if isinstance(self.formatter, AsJson):
            values = {"name": "mcpx", "levelname": "ERROR", "msg": text}
            text = self.formatter.format(logging.makeLogRecord(values))
        sys.stderr.write(text + "\n")


# The process


def start(
    level: str, form: str, file: Path | None, redact: Callable[[str], str] | None = None
) -> None:
    """Send all log lines of the process to standard error and the file. Raises OSError."""
    targets: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if file is not None:
        targets.append(LogFile(file, maxBytes=10 * 2**20, backupCount=2, encoding="utf-8"))
        os.chmod(file, 0o600)  # An existing file may have another mode.
    outlet = Outlet(targets, redact)
    for name in ("", "mcpx", "asyncio"):
        root = logging.getLogger(name)
        root.propagate = False
        root.handlers[:] = [outlet]
    log_uncaught_exceptions()
    set_format(form)
    set_level(level)


def log_uncaught_exceptions() -> None:
    """Log exceptions that Python would write to standard error, also those of threads."""
    log = logging.getLogger("mcpx")

    def uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.critical("mcpx failed", exc_info=(kind, error, trace))

    def in_thread(args: Any) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            log.error("a thread failed", exc_info=args.exc_value)

    def unraisable(args: Any) -> None:
        if args.exc_value is not None:
            message = args.err_msg or "an error where none could be raised"
            log.error("%s", message, exc_info=args.exc_value)

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, in_thread, unraisable


async def keep_small(file: Path) -> None:
    """Rotate standard error if it is a file that no other program rotates. Keep one backup."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        try:
            if os.fstat(2).st_size > MAX_STDERR_BYTES:
                rotate_stderr(file)
        except OSError:
            pass  # Try again after the next pause.


def rotate_stderr(file: Path) -> None:
    """Raises OSError."""
    try:
        os.replace(file, f"{file}.1")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | CLOEXEC | NOFOLLOW
        fd = os.open(file, flags, 0o600)
    except OSError:
        os.ftruncate(2, 0)  # The file was removed, so its content cannot be read.
        return
    os.dup2(fd, 2)
    os.close(fd)


def set_format(name: str) -> None:
    for outlet in _outlets():
        for target in outlet.targets:
            form: logging.Formatter = AsJson()
            if name != "json":
                form = Plain(datefmt=None if isinstance(target, LogFile) else "%H:%M:%S")
            outlet.set_format(target, form)


def set_level(name: str) -> None:
    """With a log file, standard error gets warnings and errors only."""
    level = getattr(logging, name)
    logging.getLogger("mcpx").setLevel(level)
    for outlet in _outlets():
        console, *files = outlet.targets
        if files:
            level = max(level, logging.WARNING)
        console.setLevel(level)


def _outlets() -> list[Outlet]:
    return [outlet for outlet in logging.getLogger("mcpx").handlers if isinstance(outlet, Outlet)]
