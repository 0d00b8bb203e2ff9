"""`mcpx servers`: every server and its state.

A running gateway is asked, whatever has become of its file, and without the variables that the file
may need. Without one, each server is connected to once.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import cast

from mcpx.cli.gateway_client import settled, temporary_gateway
from mcpx.cli.output import (
    UP,
    Cell,
    Style,
    Table,
    columns,
    counted,
    objects,
    plain,
    print_json,
    printable,
    say,
    state_of,
    styled,
    text_of,
)
from mcpx.cli.running import result_of
from mcpx.cli.status import code_of, local_time, problems_of
from mcpx.cli.target import Target
from mcpx.model.call import Json, as_object

NARROW_COLUMNS = 80
"""On a narrower terminal, less important counts are left out."""
MARKS: Mapping[str, tuple[str, Style]] = {
    "connected": ("✓", "green"),
    "sleeping": ("✓", "dim"),
    "disabled": ("-", "dim"),
    "connecting": ("…", "yellow"),
    "degraded": ("!", "yellow"),
    "needs_auth": ("!", "yellow"),
}
DOWN: tuple[str, Style] = ("✗", "red")


def servers(options: argparse.Namespace) -> int:
    target = Target.of(options)
    answer = target.ask_now("status") or Json()
    if "servers" in answer:
        answer = Json(running=True) | answer
    else:
        config = target.path and str(target.path)
        answer = Json(running=False, config=config) | result_of(_look(target))
    if options.json:
        print_json(answer)
    else:
        print_table(answer, options.links)
    return code_of(answer["servers"])


async def _look(target: Target) -> Json:
    config = target.load()
    async with temporary_gateway(config, target.path and target.state) as gateway:
        gateway.start()
        await settled(gateway.generation.upstreams, config)
        return await gateway.describe()


def print_table(answer: Json, with_links: bool) -> None:
    found: list[Json] = answer["servers"]
    is_terminal = sys.stdout.isatty()
    counts: list[str] = []
    if not is_terminal or columns() >= NARROW_COLUMNS:
        counts = [key for key in ("processes", "links") if any(key in each for each in found)]
    heads = ["SERVER", "STATE", "TOOLS", *map(str.upper, counts), "LATENCY", "RESTARTS", "DETAIL"]
    table = Table(*heads)
    for server in found:
        mark, style = MARKS.get(server["status"], DOWN)
        state, detail = state_of(server), _detail(server)
        has_note = is_terminal and bool(detail) and server["status"] not in UP
        table.add(
            plain(server["name"]),
            Cell(f"{mark} {state}" if is_terminal else state, style),
            *_numbers(server, counts),
            "" if has_note else detail,
        )
        if has_note:  # It says what to do, and would be cut off in the last column.
            table.note(styled(detail, style))
        if server.get("auth_url"):
            table.note(f"sign in at {printable(server['auth_url'])}")
        if with_links:
            for link in objects(server.get("links")):
                table.note(_link(link))
    table.print()
    commands: list[Json] = answer.get("commands") or []
    where = "no gateway is running; connected to look"
    if answer["running"]:
        where = f"running on {answer['config']}"
    facts = (
        counted(len(found), "server"),
        counted(len(commands), "command") * bool(commands),
        f"mode {answer.get('mode', '?')}",
        answer.get("url"),
        where,
    )
    say(" · ".join(filter(None, facts)))
    for command in commands:
        why = command.get("last_error")
        if why:
            say(f"command {plain(command['name'])} is switched off: {plain(why)}")
    for choice in answer.get("auto", ()):
        client = plain(choice["client"]) or "a client"
        say(f"auto shows {client} {choice['mode']!r}: {plain(choice['reason'])}")
    _print_refusal(as_object(answer.get("last_reload")))


def _detail(server: Json) -> str:
    error = server["last_error"]
    notes = "; ".join(map(str, server.get("notes") or ()))
    text = error or notes or server["description"] or ""
    text = text.removeprefix(f"{server['name']}: ")  # The row has the name.
    if error and server["status"] != "disabled":
        text = f"failing since {local_time(server.get('since'))}: {text}"
    return plain(text)


def _numbers(server: Json, counts: Sequence[str]) -> list[str]:
    latency = server["latency_ms"]
    return [
        str(server["tools"]),
        *(_count(server.get(key)) for key in counts),
        "-" if latency is None else f"{latency:g} ms",
        str(server["restarts"]),
    ]


def _count(value: object) -> str:
    if isinstance(value, list):
        return str(len(cast("list[object]", value)))
    return "-" if value is None else str(value)


def _link(link: Json) -> str:
    """One connection: its use, its reason, and its load."""
    facts = [text_of(link, "use", "?")]
    if link.get("calls") is not None:
        facts.append(counted(link["calls"], "call"))
    if link.get("idle_s") is not None:
        facts.append(f"idle for {link['idle_s']:.0f} s")
    facts.append(text_of(link, "why"))
    return " · ".join(filter(None, facts))


def _print_refusal(reload: Json) -> None:
    """Why the running gateway did not take the file on disk."""
    if not reload or reload.get("ok"):
        return
    say(
        f"\nThe config on disk was refused at {local_time(reload.get('at'))}; the last good one "
        "runs on:"
    )
    for line in "\n".join(problems_of(reload)).splitlines():
        say(f"  {plain(line)}")
