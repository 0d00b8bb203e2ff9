"""Servers tried from the command line: connect and list, with a word on what is waited for, and
what came of it."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Mapping

from mcpx.cli.output import Waiting, counted, plain
from mcpx.config import Config
from mcpx.core.trying import Tried
from mcpx.model.call import Json
from mcpx.transports import downloads_itself

MOST_TOOLS = 12
"""Names that are told."""
TAIL = 5
"""Lines of a server that does not work."""


async def try_all(config: Config, names: list[str]) -> dict[str, Tried]:
    from mcpx.core.gateway import Gateway
    from mcpx.core.trying import only, try_server
    from mcpx.model.state import state_folder
    from mcpx.processes import process

    logging.getLogger("mcpx").addHandler(logging.NullHandler())  # what went wrong is told here
    gateway = Gateway(only(config), os.environ, state_folder(os.environ), looks=True)
    found: dict[str, Tried] = {}
    try:
        with Waiting() as waiting:
            for name in names:
                downloads = _downloads(config, name)
                attempt = asyncio.ensure_future(try_server(gateway, config, name))
                began = time.monotonic()
                while not attempt.done():
                    more = "; the first time it is downloaded" if downloads else ""
                    waiting.tell(f"trying {name} ({time.monotonic() - began:.0f} s{more})")
                    await asyncio.wait([attempt], timeout=0.2)
                found[name] = attempt.result()
    finally:
        await gateway.close()
        await process.end_all()
    return found


def _downloads(config: Config, name: str) -> bool:
    server = next(server for server in config.mcp_servers if server.name == name)
    return downloads_itself(server.connection)


def print_trial(name: str, tried: Tried) -> None:
    named = plain(name, 100)
    if tried.ok:
        tools = [plain(tool, 60) for tool in tried.tools[:MOST_TOOLS]]
        more = (
            f", and {len(tried.tools) - MOST_TOOLS} more" if len(tried.tools) > MOST_TOOLS else ""
        )
        names = f": {', '.join(tools)}{more}" if tools else ""
        extra = [
            counted(n, what)
            for n, what in ((tried.prompts, "prompt"), (tried.resources, "resource"))
            if n
        ]
        told = ", ".join([counted(len(tried.tools), "tool"), *extra])
        sys.stdout.write(f"{named} works ({tried.seconds:.1f} s): {told}{names}\n")
        return
    if tried.needs_auth:
        sys.stdout.write(f"{named} answers, and wants somebody to sign in\n")
        return
    sys.stderr.write(f"{named} does not work: {plain(tried.error or '?', 1000)}\n")
    if tried.cause is not None:
        sys.stderr.write(
            f"  {plain(tried.cause.cause, 500)}\n  to mend it: {plain(tried.cause.fix, 500)}\n"
        )
    for line in tried.stderr[-TAIL:]:
        sys.stderr.write(f"  | {plain(line, 200)}\n")


def facts_of_trials(tried: Mapping[str, Tried]) -> list[Json]:
    return [
        {
            "name": name,
            "ok": each.ok,
            "seconds": each.seconds,
            "tools": list(each.tools),
            "needs_auth": each.needs_auth,
            "error": each.error,
            "cause": None if each.cause is None else each.cause.told(),
        }
        for name, each in tried.items()
    ]
