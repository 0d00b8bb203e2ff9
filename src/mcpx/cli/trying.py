"""Tries servers for `mcpx add`: connects to them, lists their tools, and reports the outcome."""

import asyncio
import logging
import os
import time
from collections.abc import Mapping

from mcpx.cli.output import Waiting, counted, plain, say
from mcpx.cli.running import warn
from mcpx.config import Config
from mcpx.core.trying import Tried
from mcpx.model.call import Json
from mcpx.transports import downloads_itself

MAX_TOOLS = 12
MAX_STDERR_LINES = 5


async def try_all(config: Config, names: list[str]) -> dict[str, Tried]:
    """Connect to each server, and list its tools."""
    from mcpx.core.gateway import Gateway
    from mcpx.core.trying import only, try_server
    from mcpx.model.state import state_folder
    from mcpx.processes import process

    logging.getLogger("mcpx").addHandler(logging.NullHandler())  # The command reports errors.
    gateway = Gateway(only(config), os.environ, state_folder(os.environ), looks=True)
    connections = {server.name: server.connection for server in config.mcp_servers}
    found: dict[str, Tried] = {}
    try:
        with Waiting() as waiting:
            for name in names:
                hint = "; the first time it is downloaded" * downloads_itself(connections[name])
                attempt = asyncio.ensure_future(try_server(gateway, config, name))
                began = time.monotonic()
                while not attempt.done():
                    seconds = time.monotonic() - began
                    waiting.tell(f"trying {name} ({seconds:.0f} s{hint})")
                    await asyncio.wait([attempt], timeout=0.2)
                found[name] = attempt.result()
    finally:
        await gateway.close()
        await process.end_all()
    return found


def print_trial(name: str, tried: Tried) -> None:
    named = plain(name, 100)
    if tried.ok:
        counts = [counted(len(tried.tools), "tool")]
        for number, noun in ((tried.prompts, "prompt"), (tried.resources, "resource")):
            counts += [counted(number, noun)] * bool(number)
        tools = [plain(tool, 60) for tool in tried.tools[:MAX_TOOLS]]
        more = len(tried.tools) - MAX_TOOLS
        names = f": {', '.join(tools)}" * bool(tools) + f", and {more} more" * (more > 0)
        say(f"{named} works ({tried.seconds:.1f} s): {', '.join(counts)}{names}")
    elif tried.needs_auth:
        say(f"{named} answers, and wants somebody to sign in")
    else:
        warn(f"{named} does not work: {plain(tried.error or '?', 1000)}")
        if tried.cause is not None:
            warn(f"  {plain(tried.cause.cause, 500)}")
            warn(f"  to mend it: {plain(tried.cause.fix, 500)}")
        for line in tried.stderr[-MAX_STDERR_LINES:]:
            warn(f"  | {plain(line, 200)}")


def facts_of_trials(tried: Mapping[str, Tried]) -> list[Json]:
    return [
        {
            "name": name,
            "ok": each.ok,
            "seconds": each.seconds,
            "tools": list(each.tools),
            "needs_auth": each.needs_auth,
            "error": each.error,
            "cause": each.cause and each.cause.told(),
        }
        for name, each in tried.items()
    ]
