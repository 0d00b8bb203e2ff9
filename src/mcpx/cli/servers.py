"""`mcpx servers` and `mcpx reload`: ask the gateway that runs on this config, over its control socket."""

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcpx.cli.main import counted
from mcpx.cli.state import state_folder
from mcpx.config import Config
from mcpx.model.call import Json

NOT_RUNNING = 3
"""Exit code: no gateway runs on this config."""
PARTIAL = 4
"""Exit code: some servers are down."""

UP = ("connected", "sleeping", "disabled")


def servers(path: Path, load: Callable[[], Config], environ: Mapping[str, str], env: str | None, as_json: bool) -> int:
    """Every server and how it is; without a running gateway they are connected to here, once.

    A running gateway is asked whatever has become of its file, and without the variables the file may need."""
    answer: Json | None = asyncio.run(_ask(path, state_folder(environ), env))
    if answer is None:
        seen = asyncio.run(_look(load(), environ))
        answer = {"running": False, "config": str(path), **seen}
    if as_json:
        told = json.dumps(answer, indent=2, ensure_ascii=False)
        sys.stdout.write("".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in told) + "\n")
    else:
        _print_table(answer)
    down = [server["name"] for server in answer["servers"] if server["status"] not in UP]
    return PARTIAL if down else 0


def reload(config_path: Path, state: Path, env: str | None) -> int:
    from mcpx.front.control import ask, socket_path

    answer = asyncio.run(ask(socket_path(state, config_path, env), "reload"))
    if answer is None:
        sys.stderr.write(f"error: no gateway runs on {config_path}; start one with: mcpx {config_path}\n")
        return NOT_RUNNING
    if answer.get("ok"):
        sys.stdout.write(f"{answer.get('plan')}\n")
        return 0
    problems: list[Any] = answer.get("problems") or [f"error: {answer.get('error')}"]
    sys.stderr.write("\n\n".join(str(problem) for problem in problems) + "\n")
    sys.stderr.write("Nothing was changed; the running gateway keeps its last good configuration.\n")
    return 2


async def _ask(path: Path, state: Path, env: str | None) -> Json | None:
    from mcpx.front.control import ask, socket_path

    answer = await ask(socket_path(state, path, env), "status")
    return {"running": True, **answer} if answer is not None and "servers" in answer else None


async def _look(config: Config, environ: Mapping[str, str]) -> Json:
    """Connect to every server once, see, and let go."""
    from mcpx.core.gateway import Gateway
    from mcpx.transports import process

    logging.getLogger("mcpx").addHandler(logging.NullHandler())  # the table says it all
    gateway = Gateway(config, environ)
    try:
        gateway.start()
        await asyncio.gather(*(upstream.settled.wait() for upstream in gateway.generation.upstreams.values()))
        return gateway.describe()
    finally:
        await gateway.close()
        await process.end_all()


def _print_table(answer: Json) -> None:
    rows = [("SERVER", "STATE", "TOOLS", "LATENCY", "RESTARTS", "DETAIL")]
    for server in answer["servers"]:
        latency = "-" if server["latency_ms"] is None else f"{server['latency_ms']:g} ms"
        # The row names the server already.
        detail = (server["last_error"] or server["description"] or "").removeprefix(f"{server['name']}: ")
        rows.append(
            (server["name"], server["status"], str(server["tools"]), latency, str(server["restarts"]), _plain(detail))
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        sys.stdout.write("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]))
        sys.stdout.write("\n")
    where = f"running on {answer['config']}" if answer["running"] else "no gateway is running; connected to look"
    facts = [counted(len(answer["servers"]), "server"), f"mode {answer.get('mode', '?')}", answer.get("url"), where]
    sys.stdout.write(" · ".join(filter(None, facts)) + "\n")
    for choice in answer.get("auto", ()):
        client = _plain(choice["client"]) or "a client"
        sys.stdout.write(f"auto shows {client} {choice['mode']!r}: {_plain(choice['reason'])}\n")


def _plain(text: str) -> str:
    """What a server wrote is text, not commands to the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)[:120]
