"""`mcpx status`, `servers`, `reload`, `admin`, and `version`: questions to the gateway that runs on
a config, over its control channel.

Only `servers` without a running gateway imports the gateway itself.
"""

import argparse
import calendar
import contextlib
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from mcpx import __version__
from mcpx.cli.codes import DONE, FAILED, MISTAKE, NOT_RUNNING, PARTIAL, code_if
from mcpx.cli.output import (
    UP,
    Cell,
    Output,
    Style,
    Table,
    columns,
    counted,
    is_starting,
    objects,
    plain,
    print_json,
    printable,
    say,
    state_of,
    styled,
    text_of,
    why_down,
)
from mcpx.cli.running import result_of, warn
from mcpx.cli.target import Target
from mcpx.model.call import Json, as_object

SERVER_KEYS = ("name", "status", "phase", "phase_s", "tools", "last_error")
KEYS = (
    "version",
    "role",
    "pid",
    "started_at",
    "config",
    "url",
    "admin_url",
    "clients",
    "attached",
    "revision",
    "replicas",
    "mode",
    "log_file",
    "last_reload",
)
ROLES = {
    "background": "in the background for clients",
    "alone": "for the one client that started it",
}
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
OF_THE_DEMO = "\n  The built-in demo has none: start it again for another login URL."


def version(options: argparse.Namespace) -> int:
    python, system = platform.python_version(), f"{platform.system()} {platform.machine()}"
    facts = {"version": __version__, "python": python, "system": system}
    line = f"mcpx {__version__} · Python {python} · {system}"
    Output(options.json).result({**facts, "executable": sys.executable}, line)
    return DONE


def reload(options: argparse.Namespace) -> int:
    out, target = Output(options.json), Target.required(options, "reload")
    answer = target.ask_now("reload")
    if answer is None:
        message = f"no gateway runs on {target.path}; start one with: mcpx {target.path}"
        return out.fail("not_running", message, NOT_RUNNING)
    if out.json or answer.get("ok"):
        out.result(answer, str(answer.get("plan")))
        return code_if(not answer.get("ok"), MISTAKE)
    warn("\n\n".join(problems_of(answer)))
    warn("Nothing was changed; the running gateway keeps its last good configuration.")
    return MISTAKE


def problems_of(answer: Json) -> list[str]:
    """Why a gateway refused a configuration."""
    problems: list[Any] = answer.get("problems") or [f"error: {answer.get('error')}"]
    return list(map(str, problems))


def admin(options: argparse.Namespace) -> int:
    """Print and open a login URL, which works once."""
    out, target = Output(options.json), Target.required(options, "admin", OF_THE_DEMO)
    opens_browser = sys.stdout.isatty() and not options.no_browser and not out.json
    answer = target.ask_now("admin", file=opens_browser)
    if answer is None:
        message = f"no gateway runs on {target.path}; start one with: mcpx {target.path} --admin"
        return out.fail("not_running", message, NOT_RUNNING)
    if not answer.get("ok"):
        return out.fail("failed", str(answer.get("error")), FAILED)
    url = str(answer["url"])
    out.result({"url": url}, url)
    sys.stdout.flush()
    file = answer.get("file")
    if opens_browser and file:
        import webbrowser

        # The login URL must not be an argument of the browser program: other users can read the
        # process list.
        with contextlib.suppress(Exception):  # The terminal shows the URL.
            webbrowser.open(Path(str(file)).as_uri())
    return DONE


def status(options: argparse.Namespace) -> int:
    target = Target.of(options)
    answer = target.ask_now("status") or Json()
    if not answer.get("ok"):
        return _not_running(target, Output(options.json))
    servers = objects(answer.get("servers"))
    if options.json:
        about = [{key: server.get(key) for key in SERVER_KEYS} for server in servers]
        print_json({"running": True, **{key: answer.get(key) for key in KEYS}, "servers": about})
    else:
        _print(answer, servers)
    return code_of(servers)


def code_of(servers: Sequence[Json]) -> int:
    """The exit code: whether a server is down."""
    is_partial = any(each.get("status") not in UP and not is_starting(each) for each in servers)
    return code_if(is_partial, PARTIAL)


def _not_running(target: Target, out: Output) -> int:
    config = target.path and str(target.path)
    line = f"no gateway runs on {config}; start one: mcpx {config}"
    if config is None:
        line = "no config was found here, and no gateway can be looked for without one"
    out.result({"running": False, "config": config}, line)
    return NOT_RUNNING


def _print(answer: Json, servers: Sequence[Json]) -> None:
    head = (
        f"mcpx {text_of(answer, 'version')} runs",
        ROLES.get(str(answer.get("role"))),
        f"since {local_time(answer.get('started_at'))}",
        f"process {answer.get('pid')}",
    )
    say(f"{styled('✓', 'green')} {' · '.join(filter(None, head))}")
    for title, line in _facts(answer, servers):
        say(f"  {title:10}{line}")


def _facts(answer: Json, servers: Sequence[Json]) -> Iterator[tuple[str, str]]:
    titles = {"Config": "config", "Clients": "url", "Admin": "admin_url", "Log": "log_file"}
    for title, key in titles.items():
        text = str(answer.get(key) or "")
        if "://" in text:
            yield title, printable(text)
        elif text:
            yield title, plain(text)
    yield "Attached", _clients(answer)
    yield "Servers", _summary(servers)
    for server in servers:
        if server.get("status") not in UP:
            yield "", _down(server)
    title = "Replicas"
    for replica in objects(answer.get("replicas")):
        yield title, _replica(replica)
        title = ""
    yield "Revision", f"{answer.get('revision')}{_reload(as_object(answer.get('last_reload')))}"


def _down(server: Json) -> str:
    mark, why = styled("✗", "red"), why_down(server)
    if is_starting(server):
        mark = styled("…", "yellow")
    line = f"{mark} {text_of(server, 'name')} {state_of(server)}"
    if why:
        line += f": {why}"
    return line


def _clients(answer: Json) -> str:
    attached = objects(answer.get("attached"))
    line = f"{counted(len(attached), 'client')} on this machine"
    names = Counter(text_of(one, "client", "a client") for one in attached)
    titles = [name + f" ({number})" * (number > 1) for name, number in names.items()]
    if titles:
        line += f": {', '.join(titles)}"
    others = int(answer.get("clients") or 0) - len(attached)
    if others > 0:
        line += f", {counted(others, 'session')} over the network"
    return line


def _replica(replica: Json) -> str:
    facts = [text_of(replica, "name"), f"revision {replica.get('revision')}"]
    if not replica.get("shared"):
        facts.append(styled("a configuration of its own", "yellow"))
    if replica.get("state") == "leaving":
        facts.append("leaving")
    if replica.get("me"):
        facts.append("this one")
    return " · ".join(facts)


def _summary(servers: Sequence[Json]) -> str:
    words = (state_of(server).split() for server in servers)
    states = Counter(state for state, *_ in words)
    tools = sum(server.get("tools") or 0 for server in servers)
    counts = ", ".join(f"{number} {state}" for state, number in states.items())
    return f"{counts or 'none'} · {counted(tools, 'tool')}"


def _reload(reload: Json) -> str:
    if not reload:
        return ""
    at = local_time(reload.get("at"))
    if reload.get("ok"):
        return f" · reloaded {at}: {text_of(reload, 'plan')}"
    return f" · the config on disk was refused {at}; mcpx servers says why"


def local_time(stamp: object) -> str:
    """A UTC time stamp as local time, with its day unless that is today."""
    try:
        then = time.localtime(calendar.timegm(time.strptime(str(stamp), "%Y-%m-%dT%H:%M:%SZ")))
    except (ValueError, OverflowError):
        return "?"
    if then[:3] == time.localtime()[:3]:
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%Y-%m-%d %H:%M:%S", then)


# Servers


def servers(options: argparse.Namespace) -> int:
    """Show every server and its state. A running gateway is asked, whatever has become of its file.
    Without one, each server is connected to once."""
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
    """Connect to each server once."""
    from mcpx.cli.gateway_client import settled, temporary_gateway

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
        state, detail = state_of(server), _server_detail(server)
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
                table.note(_link_line(link))
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


def _server_detail(server: Json) -> str:
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


def _link_line(link: Json) -> str:
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
