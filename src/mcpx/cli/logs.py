"""`mcpx logs`: what servers have printed to standard error, as the running gateway has kept it.

`mcpx` in place of a server is the gateway's own log, from its file, whether the gateway runs or
not. Lines cannot control the terminal.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from mcpx.base.files import is_at
from mcpx.cli.codes import DONE, FAILED, MISTAKE, NOT_RUNNING
from mcpx.cli.output import Output, plain, say, styled
from mcpx.cli.parsing import suggestion
from mcpx.cli.running import mistake, result_of, warn
from mcpx.cli.target import Target, subject_of
from mcpx.model.call import Json, as_list, as_object

POLL_SECONDS = 0.4
OWN = "mcpx"
MAX_LINE = 2_100
"""Characters. The gateway has cut longer lines already."""
MAX_OWN_LINE = 20_000


def logs(options: argparse.Namespace) -> int:
    server = subject_of(options)
    if options.lines < 1:
        raise mistake("-n is a number of lines, from 1 on")
    target = Target.of(options)
    if server == OWN:
        return _own(target, options)
    return result_of(_logs(target, options, server))


async def _logs(target: Target, options: argparse.Namespace, server: str | None) -> int:
    out = Output(options.json)
    seen: dict[str, int] = {}
    answer = await _ask(target, server, seen, options.lines)
    if answer is None:
        where = target.path or "a config here"
        message = f"no gateway runs on {where}; what servers print is kept while one runs"
        return out.fail("not_running", message, NOT_RUNNING)
    if server is not None and not answer.get("ok"):
        names = [str(name) for name in as_list(answer.get("names"))]
        hint = suggestion(server, names, f"there is {', '.join([*names, OWN])}")
        return out.not_found(f"no server is named {plain(server)!r}; {hint}")
    rows = _rows(answer, seen)[-options.lines :]
    if not rows and not options.follow:
        warn(f"{plain(server or 'no server')} has printed nothing")
    _write(rows, out.json, server is None)
    while options.follow:
        await asyncio.sleep(POLL_SECONDS)
        answer = await _ask(target, server, seen, 0)
        if answer is None or not answer.get("ok"):
            warn("the gateway is gone")
            return NOT_RUNNING
        _write(_rows(answer, seen), out.json, server is None)
    return DONE


async def _ask(target: Target, server: str | None, seen: dict[str, int], limit: int) -> Json | None:
    return await target.ask("logs", 10.0, server=server, after=dict(seen), limit=limit)


def _rows(answer: Json, seen: dict[str, int]) -> list[Json]:
    """The lines of all servers in the order in which they came."""
    rows: list[Json] = []
    for name, log in as_object(answer.get("servers")).items():
        rows += [{"server": name, **as_object(line)} for line in as_list(log.get("lines"))]
        seen[name] = int(log.get("last") or 0)
    return sorted(rows, key=_time_of)


def _time_of(row: Json) -> float:
    return float(row.get("at") or 0)


def _write(rows: Sequence[Json], as_json: bool, with_server: bool) -> None:
    for row in rows:
        server, at, text = str(row["server"]), _time_of(row), str(row.get("text") or "")
        if as_json:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
            facts = {"server": server, "at": stamp, "stream": row.get("stream"), "text": text}
            say(json.dumps(facts))
            continue
        line = plain(text, MAX_LINE)
        if row.get("stream") == OWN:
            line = styled(line, "dim")
        if with_server:
            line = styled(f"[{plain(server)}] ", "cyan") + line
        clock = styled(time.strftime("%H:%M:%S", time.localtime(at)), "dim")
        say(f"{clock} {line}")
    sys.stdout.flush()


# The gateway's own log


def _own(target: Target, options: argparse.Namespace) -> int:
    out, file = Output(options.json), _file(target)
    if file is None:
        message = "the gateway's own log goes to its standard error; global.log_file keeps it in "
        return out.fail("no_log", f"{message}a file", FAILED)
    try:
        with file.open("rb") as lines:
            for line in deque(lines, maxlen=options.lines):
                _write_own(line, out.json)
            sys.stdout.flush()
            if options.follow:
                for line in appended_lines(file, lines):
                    _write_own(line, out.json)
    except FileNotFoundError:
        return out.fail("no_log", f"{file} is not there yet: nothing was written", FAILED)
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror or error}"
        return out.fail("no_log", message, MISTAKE)
    return DONE


def appended_lines(file: Path, lines: BinaryIO | None) -> Generator[bytes]:
    """Complete lines that are added to an open file, and to the files that replace it, as
    `tail -F` shows them. Flushes standard output while it waits."""
    try:
        while True:
            is_current = lines is not None and is_at(file, lines.fileno())
            if lines is not None:
                if os.fstat(lines.fileno()).st_size < lines.tell():
                    lines.seek(0)  # The file was truncated.
                yield from complete_lines(lines)
            if is_current or not file.exists():
                sys.stdout.flush()
                time.sleep(POLL_SECONDS)
                continue
            if lines is not None:
                lines.close()
                lines = None
            with contextlib.suppress(FileNotFoundError):
                lines = file.open("rb")
    finally:
        if lines is not None:
            lines.close()


def complete_lines(lines: BinaryIO) -> Iterator[bytes]:
    """The lines up to one that is still being written."""
    while line := lines.readline():
        if not line.endswith(b"\n"):
            lines.seek(-len(line), os.SEEK_CUR)
            return
        yield line


def _write_own(raw: bytes, as_json: bool) -> None:
    text = raw.decode("utf-8", "replace").rstrip("\n")
    if as_json:
        say(json.dumps({"server": OWN, "text": text}))
    else:
        say(plain(text, MAX_OWN_LINE))


def _file(target: Target) -> Path | None:
    """The log file of the running gateway, otherwise that of the configuration or of the last
    gateway that ran in the background."""
    if target.path is None or target.channel is None:
        return None
    answer = target.ask_now("logs", 10.0, limit=1)
    if answer is not None:
        name = answer.get("log_file")
        return name and Path(str(name))
    configured = target.load().global_.log_file
    if configured is not None:
        return target.path.parent / configured
    file = target.state / "logs" / f"gateway-{target.channel.stem}.log"
    return file if file.is_file() else None
