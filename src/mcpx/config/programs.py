"""Programs that a configuration names and this machine does not have: a warning of `mcpx check`,
which starts nothing.

Promised: looked for as a child would be found, in the folder and by the `PATH` it would get. What
is disabled is not looked for.
"""

import os
import shlex
from collections.abc import Mapping
from typing import cast

from mcpx.config.schema import Config
from mcpx.config.tree import shorten
from mcpx.processes.environment import child_environment, find_program
from mcpx.transports import Stdio


def program_warnings(config: Config, environ: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for server in config.mcp_servers:
        spec = server.connection
        if server.enabled and isinstance(spec, Stdio):
            env = child_environment(environ, spec.env, spec.inherit_env)
            found += _warnings(f"server {server.name!r}", spec.command, env, spec.cwd)
    for command in config.commands:
        if command.enabled and command.action.type == "script":
            from mcpx.commands.script import Script  # only a file with such a command pays for it

            script = cast(Script, command.action)
            if script.interpreter:
                env = child_environment(environ, script.env, False)
                found += _warnings(
                    f"command {command.name!r}", script.interpreter, env, script.cwd, "interpreter"
                )
    return found


def _warnings(
    what: str, command: str, env: Mapping[str, str], cwd: str | None, key: str = "command"
) -> list[str]:
    try:
        find_program(command, env, cwd)
    except OSError as error:
        if error.filename != command:
            return [f"{what}: its working folder {cwd!r}: {os.strerror(error.errno or 0).lower()}"]
        if len(words := _words(command)) > 1 and (
            not os.path.dirname(words[0]) or _is_there(words[0], env, cwd)
        ):
            advice = (
                f"put its arguments into args: command {words[0]!r}, args {shorten(str(words[1:]))}"
            )
            if key == "interpreter":  # what stands in args comes after the script
                advice = (
                    f"name it alone: interpreter {words[0]!r}; options of its own go into "
                    "the script's first line"
                )
            return [f"{what}: {shorten(command)!r} is no program; {advice}"]
        reason = "is not found" if isinstance(error, FileNotFoundError) else "cannot be run"
        return [f"{what}: the {key} {shorten(command)!r} {reason}"]
    return []


def _is_there(command: str, env: Mapping[str, str], cwd: str | None) -> bool:
    try:
        return bool(find_program(command, env, cwd))
    except OSError:
        return False


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an open quote
        return command.split()
