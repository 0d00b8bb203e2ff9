"""`mcpx servers` and `mcpx reload`: ask the gateway that runs on this config, over its control socket."""

import asyncio
import calendar
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from mcpx.cli.codes import MISTAKE, NOT_RUNNING, PARTIAL
from mcpx.cli.state import state_folder
from mcpx.cli.terminal import plain, print_json, printable
from mcpx.cli.words import counted
from mcpx.config import Config
from mcpx.model.call import Json, as_object

UP = ("connected", "sleeping", "disabled")


def servers(
    path: Path,
    load: Callable[[], Config],
    environ: Mapping[str, str],
    env: str | None,
    as_json: bool,
    with_links: bool = False,
) -> int:
    """Every server and how it is; without a running gateway they are connected to here, once.

    A running gateway is asked whatever has become of its file, and without the variables the file may need."""
    answer: Json | None = asyncio.run(_ask(path, state_folder(environ), env))
    if answer is None:
        seen = asyncio.run(_look(load(), environ, state_folder(environ)))
        answer = {"running": False, "config": str(path), **seen}
    if as_json:
        print_json(answer)
    else:
        print_table(answer, with_links)
    down = [server["name"] for server in answer["servers"] if server["status"] not in UP]
    return PARTIAL if down else 0


def reload(config_path: Path, state: Path, env: str | None, as_json: bool = False) -> int:
    from mcpx.front.control import ask, socket_path

    answer = asyncio.run(ask(socket_path(state, config_path, env), "reload"))
    if answer is None:
        sys.stderr.write(f"error: no gateway runs on {config_path}; start one with: mcpx {config_path}\n")
        return NOT_RUNNING
    if as_json:
        print_json(answer)
        return 0 if answer.get("ok") else MISTAKE
    if answer.get("ok"):
        sys.stdout.write(f"{answer.get('plan')}\n")
        return 0
    problems: list[Any] = answer.get("problems") or [f"error: {answer.get('error')}"]
    sys.stderr.write("\n\n".join(str(problem) for problem in problems) + "\n")
    sys.stderr.write("Nothing was changed; the running gateway keeps its last good configuration.\n")
    return MISTAKE


async def _ask(path: Path, state: Path, env: str | None) -> Json | None:
    from mcpx.front.control import ask, socket_path

    answer = await ask(socket_path(state, path, env), "status")
    return {"running": True, **answer} if answer is not None and "servers" in answer else None


async def _look(config: Config, environ: Mapping[str, str], state: Path) -> Json:
    """Connect to every server once, see, and let go."""
    from mcpx.core.gateway import Gateway
    from mcpx.processes import process

    logging.getLogger("mcpx").addHandler(logging.NullHandler())  # the table says it all
    once = tuple(replace(server, auto_reconnect=False) for server in config.mcp_servers)
    gateway = Gateway(replace(config, mcp_servers=once), environ, state, looks=True)
    try:
        gateway.start()
        await asyncio.gather(*(upstream.settled.wait() for upstream in gateway.generation.upstreams.values()))
        return await gateway.describe()
    finally:
        await gateway.close()
        await process.end_all()


def print_table(answer: Json, with_links: bool) -> None:
    found: list[Json] = answer["servers"]
    counts = [key for key in ("processes", "links") if any(key in server for server in found)]
    heads = ("SERVER", "STATE", "TOOLS", *map(str.upper, counts), "LATENCY", "RESTARTS", "DETAIL")
    rows = [heads, *(_row(server, counts) for server in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads) - 1)]
    for at, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write("  ".join([*cells, row[-1]]).rstrip() + "\n")
        if at > 0 and (where := found[at - 1].get("auth_url")):
            sys.stdout.write(f"  sign in at {printable(where)}\n")
        if with_links and at > 0:
            for link in found[at - 1].get("links") or ():
                sys.stdout.write(f"  {_link(as_object(link))}\n")
    where = f"running on {answer['config']}" if answer["running"] else "no gateway is running; connected to look"
    commands: list[Json] = answer.get("commands") or []
    told = counted(len(commands), "command") if commands else None
    facts = [counted(len(found), "server"), told, f"mode {answer.get('mode', '?')}", answer.get("url"), where]
    sys.stdout.write(" · ".join(filter(None, facts)) + "\n")
    for command in commands:
        if why := command.get("last_error"):
            sys.stdout.write(f"command {plain(command['name'])} is switched off: {plain(why)}\n")
    for choice in answer.get("auto", ()):
        client = plain(choice["client"]) or "a client"
        sys.stdout.write(f"auto shows {client} {choice['mode']!r}: {plain(choice['reason'])}\n")
    _print_refusal(as_object(answer.get("last_reload")))


def _row(server: Json, counts: Sequence[str]) -> tuple[str, ...]:
    name, latency, error = server["name"], server["latency_ms"], server["last_error"]
    notes = "; ".join(map(str, server.get("notes") or ()))
    detail = (error or notes or server["description"] or "").removeprefix(f"{name}: ")  # the row names it already
    if error and server["status"] != "disabled":  # which is no failure, but has its reason
        detail = f"failing since {_local(server.get('since'))}: {detail}"
    return (
        plain(name),
        server["status"],
        str(server["tools"]),
        *(_count(server.get(key)) for key in counts),
        "-" if latency is None else f"{latency:g} ms",
        str(server["restarts"]),
        plain(detail),
    )


def _count(value: object) -> str:
    if isinstance(value, list):
        return str(len(cast(list[object], value)))
    return "-" if value is None else str(value)


def _link(link: Json) -> str:
    """One connection: what it is used for, why there is one, and how busy it is."""
    calls, idle = link.get("calls"), link.get("idle_s")
    facts = [
        plain(str(link.get("use", "?"))),
        None if calls is None else counted(calls, "call"),
        None if idle is None else f"idle for {idle:.0f} s",
        plain(str(link.get("why") or "")),
    ]
    return " · ".join(filter(None, facts))


def _print_refusal(reload: Json) -> None:
    """The file on disk is not what runs: say what is wrong with it."""
    if not reload or reload.get("ok"):
        return
    problems: list[Any] = reload.get("problems") or [reload.get("error")]
    sys.stdout.write(f"\nThe config on disk was refused at {_local(reload.get('at'))}; the last good one runs on:\n")
    for problem in problems:
        for line in str(problem).splitlines():
            sys.stdout.write(f"  {plain(line)}\n")


def _local(stamp: object) -> str:
    """A time as a clock on the wall shows it; with its day unless that is today."""
    try:
        then = time.localtime(calendar.timegm(time.strptime(str(stamp), "%Y-%m-%dT%H:%M:%SZ")))
    except (ValueError, OverflowError):
        return "?"
    today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)
