"""How log lines go out: one line each, as plain text or JSON, and of each kind no more than
somebody would read.

Promise: what a peer put into a value begins no line of its own and steers no terminal (`Plain`, and
`AsJson`, where every line is one JSON object whatever is logged); a kind of line, which is its
wording and the server it tells of, is limited in rate, and what was left out is counted (`Outlet`).
So no caller of `log` has to think of either. Our own words (`OURS`) may have several lines, and are
never left out. An outlet that was given a way to redact lets no text out that did not go through
it: messages before they are cut, and the whole line once more, with its traceback, whatever formats
it.
"""

import asyncio
import logging
import logging.handlers
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from mcpx.base.aio import TokenBucket
from mcpx.base.text import visible
from mcpx.model.requests import REQUEST, Request

OURS: Final = {"ours": True}
"""`extra` of a record that holds our own words, or what was limited and cleaned already."""

BURST, RATE = 20, 0.5
"""Lines of a kind that are logged at once, and lines a second after that."""
LOUD_BURST, LOUD_RATE = 200, 20.0
"""The same at DEBUG."""
LOOK = 10.0
FULL = 10 << 20
"""Seconds between two looks at a log that is standard error, and the bytes it may have."""
COUNTING = 10.0
"""Seconds after which the lines that were left out are counted, if none of the kind comes
before."""
KINDS = 1000
"""Kinds that are remembered; there are as many as wordings times servers."""
LONGEST = 8_000
"""Characters of a line."""
LONGEST_TRACEBACK = 20_000
LONGEST_NAME = 200
"""Characters of a server's name, in a field of its own."""


class Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if len(message) > LONGEST:
            message = message[:LONGEST] + "…"
        ours = getattr(record, "ours", False)
        shown = "\n    ".join(map(visible, message.splitlines())) if ours else visible(message)
        text = f"{self.formatTime(record, self.datefmt)} {record.levelname} {shown}"
        if record.exc_info and record.exc_info[1] is not None:
            text += _told(record.exc_info[1], getattr(record, "redact", str))
        return text


class AsJson(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`; `server`, `request_id`, `trace_id`, `error` where
    there is one."""

    def format(self, record: logging.LogRecord) -> str:
        try:
            message = record.getMessage()
        except Exception as error:  # noqa: BLE001 - a line of others that does not fit its values
            message = f"{record.msg} ({type(error).__name__} in its values)"
        line: dict[str, str] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
        }
        server = server_of(record)
        if server is not None:
            line["server"] = visible(server[:LONGEST_NAME])
            message = message.removeprefix(f"[{server}] ")
        if len(message) > LONGEST:
            message = message[:LONGEST] + "…"
        ours = getattr(record, "ours", False)
        line["message"] = (
            "\n".join(map(visible, message.splitlines())) if ours else visible(message)
        )
        request = getattr(record, "request", None) or _asking()
        if request is not None and not getattr(record, "counts", False):
            line["request_id"] = request.id
            if request.trace_id is not None:
                line["trace_id"] = request.trace_id
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _told(record.exc_info[1]).removeprefix("\n    ").replace("\n    ", "\n")
        return orjson.dumps(line).decode()


def _asking() -> Request | None:
    """The request that a line belongs to. Not one that is over, though what it began goes on; nor
    for what is called back by the loop, for that is called for everybody who uses a connection or a
    timer."""
    request = REQUEST.get()
    if request is None or request.over:
        return None
    try:
        if asyncio.current_task() is None:
            return None
    except RuntimeError:
        pass  # in a thread of the request's
    return request


def server_of(record: logging.LogRecord) -> str | None:
    """Whom a line of ours is about."""
    if "server" in vars(record):
        return vars(record)["server"]
    wording, args = record.msg, record.args
    ours = record.name.startswith("mcpx") and isinstance(wording, str)
    return (
        str(args[0])
        if ours and wording.startswith("[%s]") and isinstance(args, tuple) and args
        else None
    )


def _told(error: BaseException, redact: Callable[[str], str] = str) -> str:
    """A traceback, indented, so that none of it looks like a line of the log; what the error says
    is one line."""
    told: list[str] = []
    for part in map(redact, traceback.format_exception(error)):
        is_frame = part.lstrip(" |+-").startswith(
            'File "'
        )  # its code is ours, the rest may quote a peer
        told += part.splitlines() if is_frame else [part.strip("\n")] if part.strip() else []
    text = "".join(f"\n    {visible(line[:LONGEST])}" for line in told)
    if len(text) > LONGEST_TRACEBACK:
        half = LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n    …\n    {text[-half:]}"
    return text


def set_limits(bucket: TokenBucket, logger: logging.Logger, burst: float, rate: float) -> None:
    """Set the limits that apply at the present log level."""
    if logger.isEnabledFor(logging.DEBUG):
        burst, rate = LOUD_BURST, LOUD_RATE
    bucket.burst, bucket.rate = burst, rate


class _Kind:
    def __init__(self, record: logging.LogRecord, server: str | None) -> None:
        self.allowance = TokenBucket(LOUD_BURST, LOUD_RATE)
        self.left_out = 0
        self.name, self.level = record.name, record.levelno
        self._server, self._wording = server, str(record.msg)[:100]

    def count(self) -> logging.LogRecord:
        left_out, self.left_out = self.left_out, 0
        text = f"… and {left_out:,} more like {self._wording!r}"
        of_server = self._server is not None
        wording, args = ("[%s] %s", (self._server, text)) if of_server else ("%s", (text,))
        record = logging.LogRecord(self.name, self.level, "", 0, wording, args, None)
        record.counts = True  # of several requests
        return record


class _Redacted(logging.Formatter):
    """What another makes of a record, without what must not be said."""

    def __init__(self, form: logging.Formatter, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._form, self._redact = form, redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(self._form.format(record))


class Outlet(logging.Handler):
    """The one handler of the log: limits, redacts, then hands on."""

    def __init__(
        self, targets: Sequence[logging.Handler], redact: Callable[[str], str] | None = None
    ) -> None:
        """`redact` takes out of a text what must not be said."""
        super().__init__()
        self.targets = tuple(targets)
        self._redact = redact
        for target in targets:
            self.write_as(target, target.formatter or Plain())
        self._kinds: dict[tuple[str, str, str | None], _Kind] = {}
        self._timer: asyncio.TimerHandle | None = None

    def write_as(self, target: logging.Handler, form: logging.Formatter) -> None:
        """Have a target's lines formatted so."""
        target.setFormatter(form if self._redact is None else _Redacted(form, self._redact))

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "ours", False):
            self._hand_on(record)
            return
        kind = self._kind(record)
        set_limits(kind.allowance, logging.getLogger("mcpx"), BURST, RATE)
        if kind.allowance.take():
            if kind.left_out:
                self._hand_on(kind.count())
            self._hand_on(record)
            return
        kind.left_out += 1
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(COUNTING, self.count)
            except RuntimeError:
                pass  # in a thread: it is counted with the next line of the kind, or at the end

    def count(self) -> None:
        """Say what was left out so far."""
        self.acquire()
        try:
            self._timer = None
            for kind in self._kinds.values():
                if kind.left_out:
                    self._hand_on(kind.count())
        finally:
            self.release()

    def close(self) -> None:
        self.count()
        super().close()

    def _kind(self, record: logging.LogRecord) -> _Kind:
        wording = record.msg
        ours = record.name.startswith("mcpx") and isinstance(wording, str)
        # What others log may be worded anew each time.
        whose = server_of(record)
        key = (record.name, wording if ours else "", whose)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(record, whose)
            if len(self._kinds) > KINDS:
                oldest = self._kinds.pop(next(iter(self._kinds)))
                if oldest.left_out:
                    self._hand_on(oldest.count())
        return kind

    def _hand_on(self, record: logging.LogRecord) -> None:
        if self._redact is not None:
            vars(record)["server"] = server_of(record)  # of a text nobody can tell any more
            record.msg, record.args = self._redact(record.getMessage()), ()
            record.redact = self._redact
        for target in self.targets:
            if record.levelno >= target.level:
                target.handle(record)


def hear_the_unheard() -> None:
    """What nobody caught, in any thread, becomes a line of the log like all others: Python would
    write it to standard error as it is."""
    log = logging.getLogger("mcpx")

    def uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        log.critical("mcpx failed", exc_info=(kind, error, trace))

    def in_thread(args: Any) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            log.error("a thread failed", exc_info=args.exc_value)

    def unraisable(args: Any) -> None:
        if args.exc_value is not None:
            log.error(
                "%s", args.err_msg or "an error where none could be raised", exc_info=args.exc_value
            )

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, in_thread, unraisable


class LogFile(logging.handlers.RotatingFileHandler):
    """Only its owner may read it, from its first moment and after every turn of the file."""

    _complained = -1e9

    def _open(self) -> Any:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk, or no descriptor left: said, but not for each line; the next line tries
        again."""
        if time.monotonic() - self._complained > 60:
            self._complained = time.monotonic()
            why = visible(str(sys.exc_info()[1])[:200])
            said = f"mcpx: the log file {self.baseFilename} cannot be written: {why}"
            if isinstance(self.formatter, AsJson):
                said = self.formatter.format(
                    logging.makeLogRecord({"name": "mcpx", "levelname": "ERROR", "msg": said})
                )
            sys.stderr.write(said + "\n")


def start(
    level: str, form: str, file: Path | None, redact: Callable[[str], str] | None = None
) -> None:
    """Where lines go, for the whole process, whoever writes them: stderr, and the file if there is
    one. Raises OSError."""
    targets: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if file is not None:
        targets.append(LogFile(file, maxBytes=10 * 2**20, backupCount=2, encoding="utf-8"))
        os.chmod(file, 0o600)  # one that was there already
    outlet = Outlet(targets, redact)
    for name in ("", "mcpx", "asyncio"):
        root = logging.getLogger(name)
        root.propagate = False
        root.handlers[:] = [outlet]
    hear_the_unheard()
    set_format(form)
    set_level(level)


async def keep_small(file: Path) -> None:
    """Where standard error is a file that nobody else looks after: begin anew when it is full, and
    keep one."""
    while True:
        await asyncio.sleep(LOOK)
        try:
            if os.fstat(2).st_size > FULL:
                begin_anew(file)
        except OSError:
            pass  # the next look tries again


def begin_anew(file: Path) -> None:
    """Raises OSError."""
    try:
        os.replace(file, f"{file}.1")
        fresh = os.open(
            file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600
        )
    except OSError:
        os.ftruncate(2, 0)  # somebody removed it: what nobody can read is not kept
        return
    os.dup2(fresh, 2)
    os.close(fresh)


def set_format(name: str) -> None:
    for outlet in _outlets():
        for target in outlet.targets:
            datefmt = None if isinstance(target, LogFile) else "%H:%M:%S"
            outlet.write_as(target, AsJson() if name == "json" else Plain(datefmt=datefmt))


def set_level(name: str) -> None:
    """With a log file the console keeps to what is serious."""
    level = getattr(logging, name)
    logging.getLogger("mcpx").setLevel(level)
    for outlet in _outlets():
        console, *files = outlet.targets
        console.setLevel(max(level, logging.WARNING) if files else level)


def _outlets() -> list[Outlet]:
    return [outlet for outlet in logging.getLogger("mcpx").handlers if isinstance(outlet, Outlet)]
