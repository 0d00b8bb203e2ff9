"""`mcpx audit`: the audit log of a config, whether or not a gateway runs, through its older files.

`mcpx audit verify` reports whether rows are missing or were changed.
"""

import argparse
import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from mcpx.base.jsonl_file import backup_numbers, backup_path
from mcpx.base.text import UNSAFE_CLASS
from mcpx.cli.codes import DONE, FAILED, code_if
from mcpx.cli.logs import appended_lines, complete_lines
from mcpx.cli.output import Output, counted, plain, say
from mcpx.cli.running import mistake, warn
from mcpx.cli.target import Target
from mcpx.cli.token import UNITS
from mcpx.model.call import Json, as_object
from mcpx.telemetry.audit import trail_file
from mcpx.telemetry.audit_rows import BEGINS
from mcpx.telemetry.chain import OPENED, Line, Report, check, key_from, numbered
from mcpx.wire import codec

_ENDED = re.compile(rb'\{"time":"[^"]*","event":"call"(?:,"id":"[^"]*")?,"call":"([0-9a-f-]+)"')
"""The beginning of a call's second row. A client can choose members of `arguments`, which come
after it."""
_STEERING = re.compile(f"[{UNSAFE_CLASS}]")
_HEADS = ("TIME (UTC)", "WHO", "SERVER", "WHAT", "OUTCOME", "MS")
_MAX_WIDTHS = (23, 24, 24, 40, 14, 9)
_MIN_WIDTHS_TO_FOLLOW = (23, 10, 10, 16, 8, 5)
"""Rows that come later may be wider than those that are shown at first."""

Wanted = Callable[[Json], bool]


def run(options: argparse.Namespace) -> int:
    words = list[str](options.words)
    work = show
    if words[:1] == ["verify"]:
        work = verify
        del words[0]
    if len(words) > 1:
        raise mistake(f"mcpx audit takes one config file, not {len(words)}")
    options.config_file = next(iter(words), None)
    target, out = Target.required(options, "audit"), Output(options.json)
    file = trail_file(target.load(), target.state, target.env)
    if file is None:
        message = f"{target.path} keeps no audit log; put 'audit: {{}}' into its global section"
        return out.fail("no_trail", f"{message} to have one", FAILED)
    try:
        return work(file, options)
    except BrokenPipeError:
        raise  # `main` ends quietly.
    except OSError as error:
        message = f"the audit log {file} cannot be read: {error.strerror or error}"
        return out.fail("no_trail", message, FAILED)


def show(file: Path, options: argparse.Namespace) -> int:
    wanted = _wanted(options)
    found, position = _latest(file, wanted, _limit(options.limit))
    cells = [_cells(row) for row in found]
    widths = _widths([row for row, _ in cells], options.follow)

    def write(row: Json) -> None:
        if options.json:
            _write_json(row)
        else:
            _write_line(*_cells(row), widths)

    if not found and not options.follow:
        what = "nothing was written yet to"
        if file.exists():
            what = "nothing to show in"
        warn(f"{what} {file}")
    elif not options.json:
        _write_line(_HEADS, "WHY", widths)
    for row in found:
        write(row)
    sys.stdout.flush()
    if options.follow:
        for row in _rows(appended_lines(file, _reopened(file, position))):
            if row.get("event") not in (BEGINS, OPENED) and wanted(row):
                write(row)
    return DONE


def verify(file: Path, options: argparse.Namespace) -> int:
    """Report whether rows of the audit log are missing or were changed."""
    key = key_from(os.environ)
    report = check(_all_lines(file), key)
    facts = {
        "ok": not report.problems,
        "keyed": key is not None,
        "rows": report.rows,
        "chains": report.chains,
        "unprotected": report.unprotected,
        "has_earlier": report.has_earlier,
        "problems": list(report.problems),
        "more_problems": report.more_problems,
    }
    Output(options.json).result(facts, *_lines_of(file, report, has_key=key is not None))
    return code_if(report.problems, FAILED)


def _all_lines(file: Path) -> Iterator[Line]:
    """All lines of the log, from the oldest to the newest. The files are opened first, because they
    may be renamed."""
    with ExitStack() as stack:
        opened: dict[tuple[int, int], tuple[str, BinaryIO]] = {}
        for path in _files(file):
            try:
                lines = stack.enter_context(open(path, "rb"))
            except FileNotFoundError:
                continue
            found = os.fstat(lines.fileno())
            opened.setdefault((found.st_dev, found.st_ino), (path.name, lines))
        for name, lines in reversed(opened.values()):
            yield from numbered(name, lines)


def _lines_of(file: Path, report: Report, *, has_key: bool) -> Iterator[str]:
    yield from map(plain, report.problems)
    if report.more_problems:
        yield f"… and {report.more_problems} more problems"
    verdict = "no row is missing or was changed"
    if report.problems:
        verdict = "rows are missing, were changed, or cannot be checked"
    elif not report.rows:
        verdict = "there is nothing to check"
    rows, chains = counted(report.rows, "row"), counted(report.chains, "chain")
    yield f"{file}: {rows} in {chains}: {verdict}"
    if report.has_earlier:
        yield "rows before the oldest one are not there: retention, or a program, has deleted them"
    if report.unprotected:
        yield (
            f"{report.unprotected} rows at the beginning are of an earlier version and not "
            "protected"
        )
    if not has_key:
        yield "MCPX_KEY is not set: a program that changes rows could also compute the chain again"


# Which rows


def _wanted(options: argparse.Namespace) -> Wanted:
    fields = {
        "server": options.server,
        "name": options.tool,
        "principal": options.principal,
        "outcome": options.outcome,
    }
    same = {key: value for key, value in fields.items() if value is not None}
    since = ""
    if options.since is not None:
        since = moment(options.since, time.time())

    def wanted(row: Json) -> bool:
        is_same = all(row.get(key) == value for key, value in same.items())
        return is_same and str(row.get("time") or "") >= since

    return wanted


def moment(text: str, now: float) -> str:
    """A span before now (`1h`) or a date or time, in the format of the rows."""
    span = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    try:
        if span is not None:
            at = datetime.fromtimestamp(now - int(span[1]) * UNITS[span[2]], UTC)
        else:
            at = datetime.fromisoformat(text)
            if at.tzinfo is None:
                at = at.replace(tzinfo=UTC)
            at = at.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        hint = "say 1h, 30m, 2d, 2026-01-31 or 2026-01-31T12:00"
        raise mistake(f"--since {text!r} is neither a span nor a time; {hint}") from None
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _limit(text: str | int) -> int:
    try:
        limit = int(text)
    except ValueError:
        limit = 0
    if limit < 1:
        raise mistake(f"--limit {text!r} is not a number above 0")
    return limit


# Reading


def _files(file: Path) -> list[Path]:
    """The file and its older ones, the latest first."""
    return [file, *(backup_path(file, number) for number in backup_numbers(file))]


def _latest(file: Path, wanted: Wanted, limit: int) -> tuple[list[Json], tuple[int, int]]:
    """The last rows, and up to where the current file was read: its inode and the offset."""
    found: list[Json] = []
    ended: set[str] = set()
    position = (0, 0)
    for path in _files(file):
        try:
            opened = open(path, "rb")  # noqa: SIM115  Closed below.
        except FileNotFoundError:
            continue  # The file was just renamed, or nothing was written since.
        with opened:
            ended |= _ended(opened)
            rows = _joined(_rows(complete_lines(opened)), ended)
            found = [*deque(filter(wanted, rows), limit - len(found)), *found]
            if path == file:
                position = os.fstat(opened.fileno()).st_ino, opened.tell()
        if len(found) >= limit:
            break
    return found, position


def _reopened(file: Path, position: tuple[int, int]) -> BinaryIO | None:
    """The current file, behind the rows that were read."""
    inode, offset = position
    try:
        opened = open(file, "rb")  # noqa: SIM115  Read until Ctrl-C.
    except FileNotFoundError:
        return None
    if os.fstat(opened.fileno()).st_ino == inode:
        opened.seek(offset)
    return opened


def _ended(opened: BinaryIO) -> set[str]:
    """The calls of a file that have their second row. Leaves the file at its beginning."""
    matches = filter(None, map(_ENDED.match, opened))
    ended = {match[1].decode() for match in matches}
    opened.seek(0)
    return ended


def _joined(rows: Iterable[Json], ended: Collection[str]) -> Iterator[Json]:
    """One row for each call: the first row of a call is shown only if the second one is missing."""
    for row in rows:
        event = row.get("event")
        if event == BEGINS and row.get("call") not in ended:
            yield {**row, "event": "call", "outcome": "unfinished"}
        elif event not in (BEGINS, OPENED):
            yield row


def _rows(lines: Iterable[bytes]) -> Iterator[Json]:
    """The lines that are rows. Incomplete rows are skipped."""
    for line in lines:
        try:
            row = as_object(codec.load(line))
        except codec.BadJson:
            continue
        if row:
            yield row


# Output


def _write_json(row: Json) -> None:
    text = codec.dump(row).decode(errors="replace")
    say(_STEERING.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def _widths(rows: Sequence[Sequence[str]], follow: bool) -> list[int]:
    """Columns as wide as their content, so that most rows fit a terminal. A longer cell pushes the
    rest of its row aside."""
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    if follow:
        widths = list(map(max, widths, _MIN_WIDTHS_TO_FOLLOW))
    return list(map(min, widths, _MAX_WIDTHS))


def _write_line(cells: Sequence[str], last: str, widths: Sequence[int]) -> None:
    padded = map(str.ljust, cells, widths)
    say("  ".join([*padded, last]).rstrip())


def _cells(row: Json) -> tuple[list[str], str]:
    """The columns of a row, and its last column."""

    def text(key: str) -> str:
        if row.get(key) is None:
            return ""
        return plain(str(row[key]))

    stamp = text("time").replace("T", " ").removesuffix("Z")
    head = [stamp, text("principal"), text("server")]
    if row.get("event") != "call":
        shown = ("time", "event", "principal", "server", "name")
        rest = [f"{plain(key)}={text(key)}" for key in row if key not in shown]
        return [*head, text("name") or "-", text("event"), ""], " ".join(rest)
    what = text("name")
    if row.get("method") != "tools/call":
        what = f"{text('method')} {what}"
    why = [text("rule")]
    if "code" in row:
        why.insert(0, f"code {text('code')}")
    return [*head, what, text("outcome"), text("ms")], " ".join(filter(None, why))
