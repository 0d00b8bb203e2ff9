"""What whoever started mcpx in a terminal reads first: where it is found, and what to do next
(RUN-3).

Promised: nothing of it is in the way of the first client, and nothing is written anywhere.
"""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from mcpx import __version__
from mcpx.upkeep import Run, say

NAMED = 20
"""Servers and commands that are greeted by name."""


def greet(run: Run, url: str, login: str | None) -> None:
    if run.config.path is not None:
        servers = _named([server.name for server in run.config.mcp_servers if server.enabled])
        commands = [command.name for command in run.config.commands if command.enabled]
        told = f" · commands: {_named(commands)}" if commands else ""
        say(run, f"mcpx {__version__} · {url} · servers: {servers}{told} · Ctrl-C ends it")
        if login is not None:
            say(run, f"  Admin {admin_text(run, login)}")
        return
    admin = None if login is None else admin_text(run, login)
    for line in _first_minute(
        url, admin, typed_as(os.environ), run.config.global_.log_format == "text"
    ):
        say(run, line)


def admin_text(run: Run, login_url: str) -> str:
    """The address of the admin UI for the log.

    The login URL signs in its reader. It is shown on a terminal, but not to programs that collect
    logs.
    """
    if sys.stderr.isatty():
        return f"{login_url}  (good once)"
    address = login_url.partition("/login")[0]
    if run.config.path is None and run.admin is not None and run.admin.token is None:
        return f"{address}  (to sign in, set MCPX_ADMIN_TOKEN before the start)"
    if run.config.path is None:
        return f"{address}  (sign in with the token in MCPX_ADMIN_TOKEN)"
    words = [str(run.config.path), *([] if run.env is None else ["--env", run.env])]
    return f"{address}  (for a login URL: {typed_as(os.environ)} admin {shlex.join(words)})"


def _named(names: Sequence[str]) -> str:
    return (
        ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        or "none"
    )


def _first_minute(url: str, admin: str | None, mcpx: str, spaced: bool) -> list[str]:
    """The demo: whose tools these are, and how to get one's own."""
    lines = [
        f"mcpx {__version__} · no config found, running the built-in demo (nothing is written)",
        "",
    ]
    lines.append(f"  MCP    {url}")
    if admin is not None:
        lines.append(f"  Admin  {admin}")
    lines += ["", f"  Try    {mcpx} call demo.calculate expression='6 * 7'"]
    found = _found_elsewhere()
    if found is None:
        lines.append(f"  Next   {mcpx} add npx -y @modelcontextprotocol/server-filesystem .")
    else:
        lines.append(f"  Next   {mcpx} import    {found}")
    lines.append(f"         {mcpx} connect   put mcpx into your client programs")
    lines += ["", "Ctrl-C ends it"]
    return lines if spaced else [line for line in lines if line]


def _found_elsewhere() -> str | None:
    """Servers in the files of client programs: `11 servers in Claude Desktop, Cursor, VS Code`."""
    from mcpx.clients.glance import glance

    found = [each for each in glance(os.environ) if each.servers]
    number = sum(each.servers for each in found)
    names = list(dict.fromkeys(each.name for each in found))
    return f"{number} server{'s' * (number != 1)} in {_named(names)}" if number else None


def typed_as(environ: Mapping[str, str]) -> str:
    """The command line that starts this mcpx, for hints. With `uv run` or `uvx`, `mcpx` is not on
    the PATH."""
    if words := environ.get("MCPX_TYPED_AS"):
        return words
    if "UV_RUN_RECURSION_DEPTH" in environ:
        return "uv run --no-dev mcpx"
    from mcpx.clients.launcher import cached

    found = cached(sys.prefix)
    return (
        "mcpx"
        if found is None
        else shlex.join((os.path.basename(found.words[0]), *found.words[1:]))
    )
