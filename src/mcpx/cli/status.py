"""`mcpx status`: whether a gateway runs on a config, since when, where, for whom, and how its
servers are.

Asks by the control channel and imports nothing of the gateway's rooms. Exit code 3: none runs; 4:
some servers are down.
"""

import argparse
import calendar
import sys
import time
from collections import Counter
from collections.abc import Sequence

from mcpx.cli.codes import DONE, NOT_RUNNING, PARTIAL
from mcpx.cli.places import Place, place
from mcpx.cli.running import result_of
from mcpx.cli.terminal import plain, print_json, printable, styled
from mcpx.cli.words import counted, is_downloading, state_of
from mcpx.front.control import ask
from mcpx.model.call import Json, as_list, as_object

UP = ("connected", "sleeping", "disabled")
ABOUT_SERVER = ("name", "status", "phase", "phase_s", "tools", "last_error")
TOLD = (
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
)


def status(options: argparse.Namespace) -> int:
    where = place(options)
    answer = None if where.channel is None else result_of(ask(where.channel, "status"))
    if answer is None or not answer.get("ok"):
        return _none(where, options.json)
    servers = [as_object(server) for server in as_list(answer.get("servers"))]
    down = [
        server for server in servers if server.get("status") not in UP and not is_starting(server)
    ]
    if options.json:
        more = {
            "mode": answer.get("mode"),
            "log_file": answer.get("log_file"),
            "last_reload": answer.get("last_reload"),
        }
        about = [{key: server.get(key) for key in ABOUT_SERVER} for server in servers]
        print_json(
            {"running": True, **{key: answer.get(key) for key in TOLD}, **more, "servers": about}
        )
    else:
        _print(answer, servers)
    return PARTIAL if down else DONE


def is_starting(server: Json) -> bool:
    """Whether a server connects for the first time, and has not failed."""
    return server.get("status") == "connecting" and not server.get("last_error")


def _none(where: Place, as_json: bool) -> int:
    if as_json:
        print_json({"running": False, "config": None if where.path is None else str(where.path)})
    elif where.path is None:
        sys.stdout.write("no config was found here, and no gateway can be looked for without one\n")
    else:
        sys.stdout.write(f"no gateway runs on {where.path}; start one: mcpx {where.path}\n")
    return NOT_RUNNING


def _print(answer: Json, servers: Sequence[Json]) -> None:
    role = {
        "background": "in the background for clients",
        "alone": "for the one client that started it",
    }
    how = role.get(str(answer.get("role")), "")
    since, pid = told_since(answer.get("started_at")), answer.get("pid")
    head = [
        f"mcpx {plain(str(answer.get('version')))} runs",
        how,
        f"since {since}",
        f"process {pid}",
    ]
    sys.stdout.write(f"{styled('✓', 'green')} {' · '.join(filter(None, head))}\n")
    rows = [
        ("Config", answer.get("config")),
        ("Clients", answer.get("url")),
        ("Admin", answer.get("admin_url")),
    ]
    rows += [("Log", answer.get("log_file"))]
    for title, value in rows:
        if value:
            sys.stdout.write(
                f"  {title:10}{printable(str(value)) if '://' in str(value) else plain(str(value))}\n"
            )
    sys.stdout.write(f"  {'Attached':10}{_clients(answer)}\n")
    sys.stdout.write(f"  {'Servers':10}{_servers(servers)}\n")
    for server in servers:
        if server.get("status") in UP:
            continue
        mark = styled("…", "yellow") if is_starting(server) else styled("✗", "red")
        why = plain(str(server.get("last_error") or "")).removeprefix(f"{server.get('name')}: ")
        name = plain(str(server.get("name")))
        sys.stdout.write(
            f"            {mark} {name} {state_of(server)}{f': {why}' if why else ''}\n"
        )
    for title, line in _replicas(answer):
        sys.stdout.write(f"  {title:10}{line}\n")
    sys.stdout.write(
        f"  {'Revision':10}{answer.get('revision')}{_reload(as_object(answer.get('last_reload')))}\n"
    )


def _clients(answer: Json) -> str:
    attached = [as_object(one) for one in as_list(answer.get("attached"))]
    others = max(int(answer.get("clients") or 0) - len(attached), 0)
    named = Counter(plain(str(one.get("client") or "a client")) for one in attached)
    told = ", ".join(f"{name} ({number})" if number > 1 else name for name, number in named.items())
    parts = [f"{counted(len(attached), 'client')} on this machine{f': {told}' if told else ''}"]
    return ", ".join(
        [*parts, *([f"{counted(others, 'session')} over the network"] if others else [])]
    )


def _replicas(answer: Json) -> list[tuple[str, str]]:
    """A line each: who is there, and whether all run the same configuration."""
    lines: list[str] = []
    for replica in map(as_object, as_list(answer.get("replicas"))):
        odd = "" if replica.get("shared") else styled(" · a configuration of its own", "yellow")
        leaving = " · leaving" if replica.get("state") == "leaving" else ""
        me = " · this one" if replica.get("me") else ""
        lines.append(
            f"{plain(str(replica.get('name')))} · revision "
            f"{replica.get('revision')}{odd}{leaving}{me}"
        )
    return [("" if at else "Replicas", line) for at, line in enumerate(lines)]


def _servers(servers: Sequence[Json]) -> str:
    states = Counter(
        "downloading" if is_downloading(server) else str(server.get("status")) for server in servers
    )
    tools = sum(int(server.get("tools") or 0) for server in servers)
    told = ", ".join(f"{number} {state}" for state, number in states.items()) or "none"
    return f"{told} · {counted(tools, 'tool')}"


def _reload(reload: Json) -> str:
    if not reload:
        return ""
    at = told_since(reload.get("at"))
    if reload.get("ok"):
        return f" · reloaded {at}: {plain(str(reload.get('plan')))}"
    return f" · the config on disk was refused {at}; mcpx servers says why"


def told_since(stamp: object) -> str:
    """A time as a clock on the wall shows it; with its day unless that is today."""
    try:
        then = time.localtime(calendar.timegm(time.strptime(str(stamp), "%Y-%m-%dT%H:%M:%SZ")))
    except (ValueError, OverflowError):
        return "?"
    today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)
