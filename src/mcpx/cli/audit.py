"""`mcpx audit`: read the trail of a config, whether or not a gateway runs; through files that were
turned over."""

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
from itertools import count
from pathlib import Path
from typing import BinaryIO

from mcpx.base.text import UNSAFE_CLASS
from mcpx.cli import failing
from mcpx.cli.codes import DONE, FAILED
from mcpx.cli.terminal import plain, print_json
from mcpx.cli.words import counted
from mcpx.config import Config
from mcpx.model.call import Json, as_object
from mcpx.model.errors import ConfigError
from mcpx.telemetry.audit import trail_file
from mcpx.telemetry.chain import OPENED, Line, Report, check, key_from, numbered
from mcpx.telemetry.rows import BEGINS
from mcpx.telemetry.trail import older, older_numbers
from mcpx.wire import codec

LOOK = 0.3
"""Seconds between two looks for new rows."""
TRIES = 10
"""To open a file that is turned over all the time."""
NO_TRAIL = 1
"""Exit code: none is kept."""

_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_ENDED = re.compile(rb'\{"time":"[^"]*","event":"call"(?:,"id":"[^"]*")?,"call":"([0-9a-f-]+)"')
"""The beginning of a call's second row. A client can choose members of `arguments`, which come
after it."""
_STEERING = re.compile(f"[{UNSAFE_CLASS}]")
"""What would speak to a terminal; JSON may have it spelled out."""
_HEADS = ("TIME (UTC)", "WHO", "SERVER", "WHAT", "OUTCOME", "MS")
_WIDEST = (23, 24, 24, 40, 14, 9)
_AHEAD = (23, 10, 10, 16, 8, 5)
"""Columns for what is still to come, with `--follow`."""

Wanted = Callable[[Json], bool]


def audit(config: Config, state: Path, env: str | None, options: argparse.Namespace) -> int:
    wanted, limit = _wanted(options), _limit(options.limit)
    file = trail_file(config, state, env)
    if file is None:
        return _no_trail(config, as_json=options.json)
    try:
        found, behind = _latest(file, wanted, limit)
        table = _Table(found, follow=options.follow)
        write = _write_json if options.json else table
        if not found and not options.follow:
            sys.stderr.write(
                f"nothing to show in {file}\n"
                if file.exists()
                else f"nothing was written yet to {file}\n"
            )
        elif not options.json:
            sys.stdout.write(table.head())
        for row in found:
            write(row)
        sys.stdout.flush()
        if options.follow:
            for row in filter(wanted, _following(file, behind)):
                if row.get("event") in (BEGINS, OPENED):
                    continue
                write(row)
                sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        told = f"the audit trail {file} cannot be read: {error.strerror or error}"
        return failing.tell("no_trail", told, NO_TRAIL, options.json)
    return 0


def _no_trail(config: Config, *, as_json: bool) -> int:
    if as_json:
        told = f"{config.path} keeps no audit trail; 'audit: {{}}' in its global section makes one"
        return failing.tell("no_trail", told, NO_TRAIL, True)
    sys.stderr.write(f"{config.path} keeps no audit trail. To have one, put this into it:\n\n")
    sys.stderr.write("  global:\n    audit: {}\n")
    return NO_TRAIL


def verify(config: Config, state: Path, env: str | None, options: argparse.Namespace) -> int:
    """Report whether rows of the audit log are missing or were changed."""
    file = trail_file(config, state, env)
    if file is None:
        return _no_trail(config, as_json=options.json)
    key = key_from(os.environ)
    try:
        report = check(_all_lines(file), key)
    except OSError as error:
        told = f"the audit trail {file} cannot be read: {error.strerror or error}"
        return failing.tell("no_trail", told, NO_TRAIL, options.json)
    if options.json:
        facts = {
            "rows": report.rows,
            "chains": report.chains,
            "unprotected": report.unprotected,
            "has_earlier": report.has_earlier,
        }
        problems = {"problems": list(report.problems), "more_problems": report.more_problems}
        print_json({"ok": not report.problems, "keyed": key is not None, **facts, **problems})
    else:
        _print_report(file, report, has_key=key is not None)
    return FAILED if report.problems else DONE


def _all_lines(file: Path) -> Iterator[Line]:
    """All lines of the log, from the oldest to the newest. The files are opened first, because they
    may be renamed."""
    with ExitStack() as stack:
        opened: dict[tuple[int, int], tuple[str, BinaryIO]] = {}
        for number in (0, *older_numbers(file)):
            path = older(file, number) if number else file
            try:
                lines = stack.enter_context(open(path, "rb"))
            except FileNotFoundError:
                continue
            found = os.fstat(lines.fileno())
            opened.setdefault((found.st_dev, found.st_ino), (path.name, lines))
        for name, lines in reversed(opened.values()):
            yield from numbered(name, lines)


def _print_report(file: Path, report: Report, *, has_key: bool) -> None:
    for problem in report.problems:
        sys.stdout.write(f"{plain(problem)}\n")
    if report.more_problems:
        sys.stdout.write(f"… and {report.more_problems} more problems\n")
    verdict = "no row is missing or was changed"
    if report.problems:
        verdict = "rows are missing, were changed, or cannot be checked"
    elif not report.rows:
        verdict = "there is nothing to check"
    sys.stdout.write(
        f"{file}: {counted(report.rows, 'row')} in {counted(report.chains, 'chain')}: {verdict}\n"
    )
    if report.has_earlier:
        sys.stdout.write(
            "rows before the oldest one are not there: retention, or a program, has deleted them\n"
        )
    if report.unprotected:
        sys.stdout.write(
            f"{report.unprotected} rows at the beginning are of an earlier version and not "
            "protected\n"
        )
    if not has_key:
        sys.stdout.write(
            "MCPX_KEY is not set: a program that changes rows could also compute the chain again\n"
        )


# ---- which rows


def _wanted(options: argparse.Namespace) -> Wanted:
    fields = {"server": options.server, "name": options.tool, "principal": options.principal}
    same = {
        key: value
        for key, value in {**fields, "outcome": options.outcome}.items()
        if value is not None
    }
    since = None if options.since is None else moment(options.since, time.time())

    def wanted(row: Json) -> bool:
        return all(row.get(key) == value for key, value in same.items()) and (
            since is None or _at(row) >= since
        )

    return wanted


def moment(text: str, now: float) -> str:
    """`1h` before now, or a date or time, as the rows have it: texts that sort as times do."""
    span = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    try:
        if span is not None:
            at = datetime.fromtimestamp(now - int(span[1]) * _SPANS[span[2]], UTC)
        else:
            at = datetime.fromisoformat(text)
            at = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        hint = "say 1h, 30m, 2d, 2026-01-31 or 2026-01-31T12:00"
        raise ConfigError(
            [f"error: --since {text!r} is neither a span nor a time; {hint}"]
        ) from None
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _limit(text: str | int) -> int:
    try:
        if (limit := int(text)) > 0:
            return limit
    except ValueError:
        pass
    raise ConfigError([f"error: --limit {text!r} is not a number above 0"])


def _at(row: Json) -> str:
    return str(row.get("time") or "")


# ---- from where


def _latest(file: Path, wanted: Wanted, limit: int) -> tuple[list[Json], tuple[int, int]]:
    """The last rows, and how far the file itself was read: which one it was, and to where."""
    found: list[Json] = []
    ended: set[str] = set()
    behind = (0, 0)
    for number in (0, *older_numbers(file)):
        try:
            opened = open(file if number == 0 else older(file, number), "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            continue  # it was just turned over, or nothing came since
        with opened:
            ended |= _ended(opened)
            joined = _joined(_rows(opened), ended)
            rows: deque[Json] = deque((row for row in joined if wanted(row)), limit - len(found))
            if number == 0:
                behind = (os.fstat(opened.fileno()).st_ino, opened.tell())
        found = [*rows, *found]
        if len(found) >= limit:
            break
    return found, behind


def _ended(opened: BinaryIO) -> set[str]:
    """The calls of a file that have their second row. Leaves the file at its beginning."""
    ended = {found[1].decode() for line in opened if (found := _ENDED.match(line)) is not None}
    opened.seek(0)
    return ended


def _joined(rows: Iterable[Json], ended: Collection[str]) -> Iterator[Json]:
    """One row for each call: the first row of a call is shown only if the second one is missing."""
    for row in rows:
        event = row.get("event")
        if event == OPENED:
            continue
        if event != BEGINS:
            yield row
        elif row.get("call") not in ended:
            yield {**row, "event": "call", "outcome": "unfinished"}


def _rows(opened: BinaryIO) -> Iterator[Json]:
    """Whole lines that are rows; what somebody cut off is passed over."""
    while line := opened.readline():
        if not line.endswith(b"\n"):
            opened.seek(-len(line), os.SEEK_CUR)  # it is being written
            return
        try:
            if row := as_object(codec.load(line)):
                yield row
        except codec.BadJson:
            continue


def _following(file: Path, behind: tuple[int, int]) -> Iterator[Json]:
    """What comes behind that place, whatever becomes of the file: one that was turned over is read
    to its end, and those that were begun after it. Whoever reads slowly misses nothing that is
    kept."""
    mark, at = behind
    while True:
        opened = _opened(file, mark)
        if opened is None:
            time.sleep(LOOK)
            continue
        with opened:
            its = os.fstat(opened.fileno()).st_ino
            if its == mark:
                opened.seek(at)
            mark, at = its, 0
            while True:
                replaced = not _is_at(opened, file)
                yield from _rows(opened)
                if replaced:
                    break
                time.sleep(LOOK)
            mark = _begun_after(file, mark)


def _opened(file: Path, mark: int) -> BinaryIO | None:
    """The file with that mark, wherever it stands by now; else the one that is written to."""
    for _ in range(TRIES):  # it may be turned over between looking and opening
        path = older(file, number) if (number := _number(file, mark)) else file
        try:
            opened = open(path, "rb")  # noqa: SIM115 - kept open over many looks
        except FileNotFoundError:
            continue
        if not number or os.fstat(opened.fileno()).st_ino == mark:
            return opened
        opened.close()
    return None


def _begun_after(file: Path, mark: int) -> int:
    """The mark of the next one, once there is one; 0: nobody knows, for that one is gone."""
    while number := _number(file, mark):
        following = _mark(file, number - 1)
        if not following:
            time.sleep(LOOK)
        elif _number(file, mark) == number:  # else it was turned over meanwhile
            return following
    return 0


def _number(file: Path, mark: int) -> int:
    """Which of the older ones it is; 0: none of them."""
    for number in count(1):
        its = _mark(file, number)
        if its in (0, mark):
            return number if its else 0
    return 0


def _mark(file: Path, number: int) -> int:
    try:
        return os.stat(older(file, number) if number else file).st_ino
    except FileNotFoundError:
        return 0


def _is_at(opened: BinaryIO, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened.fileno()), os.stat(file))
    except FileNotFoundError:
        return False


# ---- how they look


def _write_json(row: Json) -> None:
    text = codec.dump(row).decode(errors="replace")
    sys.stdout.write(_STEERING.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n")


class _Table:
    """Columns as wide as what is shown in them, so that most rows fit a terminal; longer cells push
    the rest aside."""

    def __init__(self, rows: list[Json], *, follow: bool) -> None:
        told = [
            _HEADS,
            *(_cells(row)[0] for row in rows),
            *([[" " * width for width in _AHEAD]] if follow else []),
        ]
        self._widths = [
            min(max(map(len, column)), widest)
            for column, widest in zip(zip(*told, strict=True), _WIDEST, strict=True)
        ]

    def head(self) -> str:
        return self._line(_HEADS, "WHY")

    def __call__(self, row: Json) -> None:
        sys.stdout.write(self._line(*_cells(row)))

    def _line(self, cells: Sequence[str], last: str) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)]
        return "  ".join([*padded, last]).rstrip() + "\n"


def _cells(row: Json) -> tuple[list[str], str]:
    def text(key: str) -> str:
        return plain(str(row.get(key) if row.get(key) is not None else ""))

    stamp = text("time").replace("T", " ").removesuffix("Z")
    if row.get("event") == "call":
        what = (
            text("name")
            if row.get("method") == "tools/call"
            else f"{text('method')} {text('name')}"
        )
        why = " ".join(
            filter(None, (f"code {text('code')}" if "code" in row else "", text("rule")))
        )
        return [stamp, text("principal"), text("server"), what, text("outcome"), text("ms")], why
    rest = {
        key: value
        for key, value in row.items()
        if key not in ("time", "event", "principal", "server", "name")
    }
    told = " ".join(f"{plain(key)}={plain(str(value))}" for key, value in rest.items())
    return [stamp, text("principal"), text("server"), text("name") or "-", text("event"), ""], told
