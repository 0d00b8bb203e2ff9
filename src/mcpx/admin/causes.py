"""Why a server does not work, in plain words, and what to do about it.

Promise: guesses from what the gateway and the server said; where nothing is known, nothing is said. Looks for programs
on this machine, so it belongs into a thread. Changes nothing.
"""

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from mcpx.admin.known_causes import ANSWERED, GET, KNOWN, SAID
from mcpx.config import Server
from mcpx.processes.environment import child_environment, find_program
from mcpx.transports import Stdio

INSTALLERS = frozenset({"npx", "uvx", "bunx", "pnpx", "pnpm", "yarn", "pipx", "docker", "podman", "uv", "npm", "deno"})
"""Programs that fetch what they run the first time."""
LONGEST = 500
"""Characters of a line that are looked at."""
MOST_FOLDERS = 100
"""Of a PATH that are told."""
_HOMES = (
    *("/opt/homebrew/bin", "/usr/local/bin", "/usr/bin", "/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin"),
    *("~/.local/bin", "~/.cargo/bin", "~/.bun/bin", "~/.volta/bin", "~/.deno/bin", "~/.asdf/shims", "~/bin"),
    *("~/.nvm/versions/node/*/bin", "~/.local/share/fnm/node-versions/*/installation/bin"),
    *("~/.local/share/mise/shims", "~/.nodenv/shims", "~/.pyenv/shims", "~/Library/pnpm", "~/go/bin"),
    *("/usr/local/go/bin", "/Applications/Docker.app/Contents/Resources/bin", "/opt/node/bin", "/usr/local/nodejs/bin"),
)  # fmt: skip
"""Where people's programs are that a service does not have on its PATH."""


@dataclass(frozen=True, slots=True)
class Cause:
    cause: str
    fix: str
    repair: Mapping[str, Any] | None = field(default=None)
    """Fields of the entry that would mend it: `{"connection.command": "/usr/bin/npx"}`."""
    code: str = ""
    """Which cause it is, for who says it in another language."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """What stands in its words."""
    searched: tuple[str, ...] = ()
    """Folders in which the program was looked for."""

    def told(self) -> dict[str, Any]:
        """As the API says it."""
        return {
            "cause": self.cause,
            "fix": self.fix,
            "repair": None if self.repair is None else dict(self.repair),
            "cause_code": self.code or None,
            "cause_values": dict(self.values),
            "searched": list(self.searched),
        }


def cause_of(server: Server, problem: str | None, lines: Sequence[str], environ: Mapping[str, str]) -> Cause | None:
    """`problem`: the error as its owner is told; `lines`: the last it wrote to standard error."""
    if server.switched_off is not None:
        return _known("switched_off", it=server.switched_off)
    if problem is None:
        return None
    spec = server.connection
    if isinstance(spec, Stdio):
        return _of_program(server, spec, problem, lines, environ)
    return _of_address(server, problem, str(getattr(spec, "url", "")))


# Programs --------------------------------------------------------------------------------------------------------


def _of_program(
    server: Server, spec: Stdio, problem: str, lines: Sequence[str], environ: Mapping[str, str]
) -> Cause | None:
    env = child_environment(environ, spec.env, spec.inherit_env)
    program = os.path.basename(spec.command)
    if "command not found" in problem:
        return _missing(spec, env)
    if "cannot start" in problem:
        return _unstartable(spec, problem)
    said = "\n".join([*(line[:LONGEST] for line in lines), problem])
    for pattern, code, cause, fix in SAID:
        if found := re.search(pattern, said, re.IGNORECASE):
            return _filled(code, cause, fix, it=_first(found))
    if "no MCP server" in problem:
        return _known("not_mcp")
    if "handshake" in problem or "not connected after" in problem:
        if program in INSTALLERS:
            return _known("slow_install", {"timeout": 120}, it=program, seconds=f"{server.timeout:g}")
        return _known("no_answer", {"timeout": 120}, seconds=f"{server.timeout:g}")
    if "exited with code" in problem or "ended by signal" in problem:
        last = next((line for line in reversed(lines) if line.strip()), "")
        return _known("ended", it=last) if last else _known("ended_silently")
    return None


def _missing(spec: Stdio, env: Mapping[str, str]) -> Cause:
    command, path = spec.command, env.get("PATH", os.defpath)
    first, _, rest = command.partition(" ")
    if rest and not spec.args and _found(first, env, spec.cwd):
        words = rest.split()
        return _known("one_word", {"connection.command": first, "connection.args": words}, it=repr(command))
    if os.path.dirname(command):
        return _known("no_program", it=command)
    folders = tuple(dict.fromkeys(filter(None, path.split(os.pathsep))))[:MOST_FOLDERS]
    where = _elsewhere(command)
    if where is not None:
        found = _known("elsewhere", {"connection.command": where}, it=command, where=where)
    elif (get := GET.get(command.lower())) is not None:
        found = replace(_known(f"get_{command.lower()}", it=command), fix=get)
    else:
        found = _known("not_found", it=command)
    return replace(found, searched=folders)


def _found(command: str, env: Mapping[str, str], cwd: str | None) -> bool:
    try:
        return bool(find_program(command, env, cwd))
    except OSError:
        return False


def _elsewhere(command: str) -> str | None:
    """Where else on this machine it is; the newest of several versions."""
    if not re.fullmatch(r"[\w.+-]{1,100}", command):
        return None
    for home in _HOMES:
        for folder in sorted(glob.glob(os.path.expanduser(home)), reverse=True):
            path = os.path.join(folder, command)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return None


def _unstartable(spec: Stdio, problem: str) -> Cause | None:
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        return _known("no_folder", it=spec.cwd)
    if "Permission denied" in problem:
        return _known("not_executable", it=spec.command)
    if "Exec format error" in problem:
        return _known("no_format", it=spec.command)
    return None


# Addresses -------------------------------------------------------------------------------------------------------


def _of_address(server: Server, problem: str, url: str) -> Cause | None:
    parts = urlsplit(url)
    try:
        host, name = parts.netloc.rpartition("@")[2] or url, parts.hostname or url
    except ValueError:
        host = name = url
    for pattern, code, cause, fix in ANSWERED:
        if found := re.search(pattern, problem, re.IGNORECASE):
            return _filled(code, cause, fix, host=host, name=name, it=_first(found))
    return None


def _first(found: re.Match[str]) -> str:
    return next(filter(None, found.groups()), "")


def _known(code: str, repair: Mapping[str, Any] | None = None, **values: str) -> Cause:
    cause, fix = KNOWN["get" if code.startswith("get_") else code]
    return Cause(cause.format(**values), fix.format(**values), repair, code, values)


def _filled(code: str, cause: str, fix: str, **values: str) -> Cause:
    """What was not said leaves no gap."""
    told = cause.format(**values)
    for gap, closed in ((" ()", ""), (": .", "."), ("  ", " "), (" .", ".")):
        told = told.replace(gap, closed)
    return Cause(told.strip().rstrip(":"), fix, None, code, values)
