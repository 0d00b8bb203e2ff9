"""`mcpx logs`: what servers have printed to standard error, as the gateway that runs has kept it;
with `mcpx` in the place of a server the gateway's own log, from its file, whether it runs or not.

Promised: plain lines; nothing in them steers a terminal. Bounded by what the gateway keeps of each
server.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mcpx.cli.codes import DONE, FAILED, MISTAKE, NOT_RUNNING
from mcpx.cli.failing import tell, unknown
from mcpx.cli.parsing import near
from mcpx.cli.places import Place, place
from mcpx.cli.running import result_of
from mcpx.cli.terminal import plain, styled
from mcpx.front.control import ask
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError

LOOK = 0.4
"""Seconds between two looks for new lines."""
OURS = "mcpx"
LONGEST = 2_100
"""Characters of a line: the gateway has cut it already."""


def logs(options: argparse.Namespace, server: str | None) -> int:
    if options.lines < 1:
        raise ConfigError(["error: -n is a number of lines, from 1 on"])
    where = place(options)
    if server == OURS:
        return _own(where, options)
    return result_of(_logs(where, options, server))


async def _logs(where: Place, options: argparse.Namespace, server: str | None) -> int:
    after: dict[str, int] = {}
    answer = await _asked(where, server, after, options.lines)
    if answer is None:
        told = (
            f"no gateway runs on {where.path or 'a config here'}; what servers print is kept "
            "while one runs"
        )
        return tell("not_running", told, NOT_RUNNING, options.json)
    if not answer.get("ok"):
        names = [str(name) for name in as_list(answer.get("names"))]
        close = near(server or "", names)
        hint = f"did you mean {close}?" if close else f"there is {', '.join([*names, OURS])}"
        return unknown(f"no server is named {plain(server or '')!r}; {hint}", options.json)
    rows = _rows(answer, after)[-options.lines :]
    if not rows and not options.follow:
        sys.stderr.write(f"{plain(server) if server else 'no server'} has printed nothing\n")
    _write(rows, options.json, server is None)
    while options.follow:
        await asyncio.sleep(LOOK)
        answer = await _asked(where, server, after, 0)
        if answer is None or not answer.get("ok"):
            sys.stderr.write("the gateway is gone\n")
            return NOT_RUNNING
        _write(_rows(answer, after), options.json, server is None)
    return DONE


async def _asked(
    where: Place, server: str | None, after: dict[str, int], limit: int
) -> Json | None:
    if where.channel is None:
        return None
    return await ask(where.channel, "logs", 10.0, server=server, after=dict(after), limit=limit)


def _rows(answer: Json, after: dict[str, int]) -> list[Json]:
    """In the order they came, whoever printed them."""
    rows: list[Json] = []
    for name, told in as_object(answer.get("servers")).items():
        known = as_object(told)
        rows += [{"server": name, **as_object(line)} for line in as_list(known.get("lines"))]
        after[name] = int(known.get("last") or 0)
    return sorted(rows, key=lambda row: float(row.get("at") or 0))


def _write(rows: Iterable[Json], as_json: bool, named: bool) -> None:
    for row in rows:
        if as_json:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(float(row.get("at") or 0)))
            told: dict[str, Any] = {
                "server": row["server"],
                "at": stamp,
                "stream": row.get("stream"),
            }
            sys.stdout.write(json.dumps({**told, "text": row.get("text")}) + "\n")
            continue
        at = styled(time.strftime("%H:%M:%S", time.localtime(float(row.get("at") or 0))), "dim")
        who = styled(f"[{plain(str(row['server']))}] ", "cyan") if named else ""
        text = plain(str(row.get("text") or ""), LONGEST)
        sys.stdout.write(
            f"{at} {who}{styled(text, 'dim') if row.get('stream') == OURS else text}\n"
        )
    sys.stdout.flush()


# The gateway's own
# -----------------------------------------------------------------------------------------------


def _own(where: Place, options: argparse.Namespace) -> int:
    file = _file(where)
    if file is None:
        told = (
            "the gateway's own log goes to its standard error; global.log_file keeps it in a file"
        )
        return tell("no_log", told, FAILED, options.json)
    try:
        with file.open("rb") as opened:
            for line in deque(opened, maxlen=options.lines):
                _line(line, options.json)
            sys.stdout.flush()
            if options.follow:
                _follow(file, opened.tell(), options.json)
    except FileNotFoundError:
        return tell("no_log", f"{file} is not there yet: nothing was written", FAILED, options.json)
    except OSError as error:
        return tell(
            "no_log", f"{file} cannot be read: {error.strerror or error}", MISTAKE, options.json
        )
    return DONE


def _follow(file: Path, behind: int, as_json: bool) -> None:
    while True:
        time.sleep(LOOK)
        with contextlib.suppress(FileNotFoundError):
            if os.path.getsize(file) < behind:
                behind = 0  # another one by the same name
            with file.open("rb") as opened:
                opened.seek(behind)
                whole, newline, _ = opened.read().rpartition(b"\n")
            for line in (whole + newline).splitlines():
                _line(line, as_json)
            behind += len(whole) + len(newline)
            sys.stdout.flush()


def _line(raw: bytes, as_json: bool) -> None:
    text = raw.decode("utf-8", "replace").rstrip("\n")
    sys.stdout.write(
        (json.dumps({"server": OURS, "text": text}) if as_json else plain(text, 20_000)) + "\n"
    )


def _file(where: Place) -> Path | None:
    """As the gateway that runs says it; else the configuration's, else that of the last one in the
    background."""
    answer = None if where.channel is None else result_of(ask(where.channel, "logs", 10.0, limit=1))
    if answer is not None:
        return Path(str(answer["log_file"])) if answer.get("log_file") else None
    if where.path is None or where.channel is None:
        return None
    from mcpx.config import load

    named = load(where.path, os.environ, where.env).global_.log_file
    if named is not None:
        return where.path.parent / named
    left = _left_behind(where.channel)
    return left[0] if left else None


def _left_behind(channel: Path) -> Sequence[Path]:
    """The log of a gateway that ran in the background stands under the name of its channel."""
    folder = channel.parent.parent
    return [file for file in (folder / "logs" / f"gateway-{channel.stem}.log",) if file.is_file()]
