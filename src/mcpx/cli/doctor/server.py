"""One server started once for real: how far it gets, what it says, why it fails, and what to do
about it."""

import asyncio
import logging
import time
from collections.abc import Iterator

from mcpx.cli.doctor.finding import Case, Finding, error, ok
from mcpx.cli.output import Waiting, counted
from mcpx.cli.running import result_of
from mcpx.config import Config, Server
from mcpx.config.problems import nearest
from mcpx.core.trying import Tried
from mcpx.model.errors import ConfigError
from mcpx.processes.environment import child_environment, find_program
from mcpx.transports import Stdio, downloads_itself

TAIL = 12
"""Lines of its standard error that are shown."""


def named(config: Config, name: str) -> Server:
    server = next((each for each in config.mcp_servers if each.name == name), None)
    if server is None:
        names = [each.name for each in config.mcp_servers]
        meant = nearest(name, names)
        hint = (
            f"did you mean {meant!r}?"
            if meant
            else f"there is {', '.join(map(repr, names)) or 'none'}"
        )
        raise ConfigError([f"error: no server is named {name!r}; {hint}"])
    return server


def examined(case: Case, config: Config, server: Server) -> Iterator[Finding]:
    whose = f"server {server.name}"
    spec = server.connection
    if not server.enabled and server.switched_off is None:
        yield ok("server", "it is disabled in the config; it is started here all the same", whose)
    if isinstance(spec, Stdio) and server.switched_off is None:
        env = child_environment(case.environ, spec.env, spec.inherit_env)
        try:
            yield ok("server", f"its program is {find_program(spec.command, env, spec.cwd)}", whose)
        except OSError:
            pass  # starting it tells why, and what to do
    elif server.switched_off is None:
        yield ok("server", f"its address is {getattr(spec, 'url', '?')}", whose)
    tried = result_of(_tried(case, config, server.name))
    yield from _told(tried, server, whose)


def _told(tried: Tried, server: Server, whose: str) -> Iterator[Finding]:
    if tried.ok:
        info = tried.server_info or {}
        called = " ".join(str(info[key]) for key in ("name", "version") if info.get(key))
        yield ok(
            "server",
            f"it answers in {tried.seconds:.1f} s: {called or 'no name'}, MCP {tried.protocol}",
            whose,
        )
        what = ", ".join(
            counted(n, noun)
            for n, noun in (
                (len(tried.tools), "tool"),
                (tried.prompts, "prompt"),
                (tried.resources, "resource"),
            )
            if n or noun == "tool"
        )
        yield ok("server", f"it lists {what}", whose)
        return
    if tried.needs_auth:
        yield error(
            "server",
            "it answers, and wants somebody to sign in",
            whose,
            fix=f"mcpx auth login {server.name}",
        )
        return
    cause = tried.cause
    what = f"{tried.error or 'it does not work'}, after {tried.seconds:.1f} s"
    if server.switched_off is not None:
        what = f"it is switched off: {tried.error}"
    elif cause is not None:
        what = f"{what}. {cause.cause}"
    yield error(
        "server", what, whose, fix="" if cause is None else cause.fix, lines=tried.stderr[-TAIL:]
    )


async def _tried(case: Case, config: Config, name: str) -> Tried:
    from mcpx.core.gateway import Gateway
    from mcpx.core.trying import only, try_server
    from mcpx.processes import process

    logging.getLogger("mcpx").addHandler(logging.NullHandler())  # what went wrong is told here
    gateway = Gateway(only(config), case.environ, case.state, looks=True)
    try:
        with Waiting() as waiting:
            began = time.monotonic()
            attempt = asyncio.ensure_future(try_server(gateway, config, name))
            more = (
                "; the first time it is downloaded"
                if downloads_itself(named(config, name).connection)
                else ""
            )
            while not attempt.done():
                waiting.tell(f"starting {name} ({time.monotonic() - began:.0f} s{more})")
                await asyncio.wait([attempt], timeout=0.2)
            return attempt.result()
    finally:
        await gateway.close()
        await process.end_all()
