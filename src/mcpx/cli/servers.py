"""`mcpx servers` and `mcpx reload`: ask the gateway that runs on this config, over its control
socket."""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from mcpx.cli import failing
from mcpx.cli.codes import MISTAKE, NOT_RUNNING, PARTIAL
from mcpx.cli.reach import TICK, starting
from mcpx.cli.running import result_of
from mcpx.cli.state import state_folder
from mcpx.cli.status import is_starting, told_since
from mcpx.cli.terminal import (
    Cell,
    Style,
    Table,
    Waiting,
    columns,
    plain,
    print_json,
    printable,
    styled,
)
from mcpx.cli.words import counted, state_of
from mcpx.config import Config
from mcpx.model.call import Json, as_object

NARROW = 80
"""Columns of a terminal: below it, counts that few ask for are left out."""
UP = ("connected", "sleeping", "disabled")


def servers(
    path: Path | None,
    load: Callable[[], Config],
    environ: Mapping[str, str],
    env: str | None,
    as_json: bool,
    with_links: bool = False,
) -> int:
    """Every server and how it is; without a running gateway they are connected to here, once.

    A running gateway is asked whatever has become of its file, and without the variables the file
    may need. `path` is None for the demo."""
    answer: Json | None = (
        None if path is None else result_of(_ask(path, state_folder(environ), env))
    )
    if answer is None:
        seen = result_of(_look(load(), environ, None if path is None else state_folder(environ)))
        answer = {"running": False, "config": None if path is None else str(path), **seen}
    if as_json:
        print_json(answer)
    else:
        print_table(answer, with_links)
    down = [
        server
        for server in answer["servers"]
        if server["status"] not in UP and not is_starting(server)
    ]
    return PARTIAL if down else 0


def reload(config_path: Path, state: Path, env: str | None, as_json: bool = False) -> int:
    from mcpx.front.control import ask, socket_path

    answer = result_of(ask(socket_path(state, config_path, env), "reload"))
    if answer is None:
        told = f"no gateway runs on {config_path}; start one with: mcpx {config_path}"
        return failing.tell("not_running", told, NOT_RUNNING, as_json)
    if as_json:
        print_json(answer)
        return 0 if answer.get("ok") else MISTAKE
    if answer.get("ok"):
        sys.stdout.write(f"{answer.get('plan')}\n")
        return 0
    problems: list[Any] = answer.get("problems") or [f"error: {answer.get('error')}"]
    sys.stderr.write("\n\n".join(str(problem) for problem in problems) + "\n")
    sys.stderr.write(
        "Nothing was changed; the running gateway keeps its last good configuration.\n"
    )
    return MISTAKE


async def _ask(path: Path, state: Path, env: str | None) -> Json | None:
    from mcpx.front.control import ask, socket_path

    answer = await ask(socket_path(state, path, env), "status")
    return {"running": True, **answer} if answer is not None and "servers" in answer else None


async def _look(config: Config, environ: Mapping[str, str], state: Path | None) -> Json:
    """Connect to every server once, see, and let go."""
    from mcpx.core.gateway import Gateway
    from mcpx.processes import process

    logging.getLogger("mcpx").addHandler(logging.NullHandler())  # the table says it all
    once = tuple(replace(server, auto_reconnect=False) for server in config.mcp_servers)
    gateway = Gateway(replace(config, mcp_servers=once), environ, state, looks=True)
    try:
        gateway.start()
        upstreams = gateway.generation.upstreams
        settled = asyncio.ensure_future(
            asyncio.gather(*(upstream.settled.wait() for upstream in upstreams.values()))
        )
        with Waiting() as waiting:
            while not settled.done():
                await asyncio.wait((settled,), timeout=TICK)
                still = [
                    {"name": name, **upstream.describe()}
                    for name, upstream in upstreams.items()
                    if not upstream.settled.is_set()
                ]
                waiting.tell(starting(still, len(upstreams) - len(still), config))
        await settled
        return await gateway.describe()
    finally:
        await gateway.close()
        await process.end_all()


MARKS: Mapping[str, tuple[str, Style]] = {
    "connected": ("✓", "green"),
    "sleeping": ("✓", "dim"),
    "disabled": ("-", "dim"),
    "connecting": ("…", "yellow"),
    "degraded": ("!", "yellow"),
    "needs_auth": ("!", "yellow"),
}
"""On a terminal, before the state; whatever else is down."""


def print_table(answer: Json, with_links: bool) -> None:
    found: list[Json] = answer["servers"]
    narrow = sys.stdout.isatty() and columns() < NARROW
    counts = [
        key
        for key in ("processes", "links")
        if not narrow and any(key in server for server in found)
    ]
    table = Table(
        "SERVER", "STATE", "TOOLS", *map(str.upper, counts), "LATENCY", "RESTARTS", "DETAIL"
    )
    for server in found:
        name, state, *more, detail = _row(server, counts)
        mark, style = MARKS.get(state, ("✗", "red"))
        wide = sys.stdout.isatty()
        apart = (
            wide and state not in UP and bool(detail)
        )  # it says what to do, and would be cut off in the last column
        shown = state_of(server)
        table.add(
            name, Cell(f"{mark} {shown}" if wide else shown, style), *more, "" if apart else detail
        )
        if apart:
            table.note(styled(detail, style))
        if where := server.get("auth_url"):
            table.note(f"sign in at {printable(where)}")
        if with_links:
            for link in server.get("links") or ():
                table.note(_link(as_object(link)))
    table.print()
    where = (
        f"running on {answer['config']}"
        if answer["running"]
        else "no gateway is running; connected to look"
    )
    commands: list[Json] = answer.get("commands") or []
    told = counted(len(commands), "command") if commands else None
    facts = [
        counted(len(found), "server"),
        told,
        f"mode {answer.get('mode', '?')}",
        answer.get("url"),
        where,
    ]
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
    detail = (error or notes or server["description"] or "").removeprefix(
        f"{name}: "
    )  # the row names it already
    if error and server["status"] != "disabled":  # which is no failure, but has its reason
        detail = f"failing since {told_since(server.get('since'))}: {detail}"
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
    sys.stdout.write(
        f"\nThe config on disk was refused at {told_since(reload.get('at'))}; the last good one "
        "runs on:\n"
    )
    for problem in problems:
        for line in str(problem).splitlines():
            sys.stdout.write(f"  {plain(line)}\n")
