"""The programs that servers need: whether they are there, also for whoever is started from a
desktop, and new enough.

Promised: bounded in time; a shell or a version that does not answer costs a sentence. Nothing is
changed.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping

from mcpx.cli.doctor.finding import Case, Finding, error, ok, warning
from mcpx.config import Server
from mcpx.core.causes import cause_of
from mcpx.processes.environment import child_environment, find_program
from mcpx.transports import Stdio

PATIENCE = 3.0
"""Seconds a program may take to say its version or its PATH."""
MOST_BYTES = 65536
"""Of what it prints."""
LAUNCHD = "/usr/bin:/bin:/usr/sbin:/sbin"
"""What programs get that are started from the desktop of macOS."""
OLDEST_NODE, OLD_NODE = 18, 20
"""The first that most servers run on at all; the first that is still looked after."""
_OF_NODE = ("npx", "node", "npm", "pnpm", "pnpx", "yarn")


def programs(case: Case) -> Iterator[Finding]:
    servers = (
        []
        if case.config is None
        else [server for server in case.config.mcp_servers if server.enabled]
    )
    found: dict[str, tuple[str, list[str]]] = {}
    missing: list[tuple[Server, Stdio]] = []
    for server in servers:
        spec = server.connection
        if not isinstance(spec, Stdio):
            continue
        env = child_environment(case.environ, spec.env, spec.inherit_env)
        try:
            path = find_program(spec.command, env, spec.cwd)
        except OSError:
            missing.append((server, spec))
        else:
            found.setdefault(spec.command, (path, []))[1].append(server.name)
    if not found and not missing:
        return
    here = case.environ.get("PATH", os.defpath)
    shell = login_path(case.environ) if missing else None
    for server, spec in missing:
        yield _missing(server, spec, shell, case.environ)
    for command, (path, names) in found.items():
        yield ok(
            "program",
            f"{command} is {path}" if path != command else f"{path} is there",
            _whose(names),
        )
    bare = {command: told for command, told in found.items() if not os.path.dirname(command)}
    desktop = desktop_path(case.environ) if bare else None
    for command, (path, names) in bare.items():
        if desktop is not None and desktop != here and _on(command, desktop) is None:
            yield _not_on_desktop(command, path, names, desktop)


def has_program(server: Server, environ: Mapping[str, str]) -> bool:
    """Whether the program of a stdio server is found in this environment; True for other
    servers."""
    spec = server.connection
    if not isinstance(spec, Stdio):
        return True
    try:
        find_program(spec.command, child_environment(environ, spec.env, spec.inherit_env), spec.cwd)
    except OSError:
        return False
    return True


def _whose(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{'server' if len(names) == 1 else 'servers'} {', '.join(names[:4])}{more}"


def _missing(server: Server, spec: Stdio, shell: str | None, environ: Mapping[str, str]) -> Finding:
    whose = _whose([server.name])
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        return error(
            "program",
            f"its working folder {spec.cwd} is not there",
            whose,
            fix=f"mkdir -p {shlex.quote(spec.cwd)}",
        )
    there = _on(spec.command, shell) if shell and not os.path.dirname(spec.command) else None
    if there is not None:
        what = (
            f"{spec.command} is on the PATH of your login shell ({there}), but not on the one "
            "mcpx has here"
        )
        return error(
            "program", what, whose, fix=f"use {there} as its command, or start mcpx from that shell"
        )
    if os.path.exists(spec.command) and os.path.dirname(spec.command):
        return error(
            "program",
            f"{spec.command} may not be run",
            whose,
            fix=f"chmod +x {shlex.quote(spec.command)}",
        )
    cause = cause_of(server, "command not found", (), environ)
    what = f"{spec.command} is not found" if cause is None else cause.cause.rstrip(".")
    return error("program", what, whose, fix="" if cause is None else cause.fix)


def _not_on_desktop(command: str, path: str, names: list[str], desktop: str) -> Finding:
    others = (
        'launchctl setenv PATH "$PATH"'
        if sys.platform == "darwin"
        else "systemctl --user import-environment PATH"
    )
    what = (
        f"{command} is not on the PATH of programs started from the desktop ({desktop}), nor "
        "of what they start"
    )
    return warning("program", what, _whose(names), fix=f"use {path} as its command, or: {others}")


def _on(command: str, path: str) -> str | None:
    try:
        return find_program(command, {"PATH": path}, None)
    except OSError:
        return None


def login_path(environ: Mapping[str, str]) -> str | None:
    """The PATH that the user's login shell makes; None where that cannot be told."""
    shell = environ.get("SHELL") or "/bin/sh"
    if os.name != "posix" or os.path.basename(shell) not in (
        "sh",
        "bash",
        "zsh",
        "dash",
        "ksh",
        "fish",
    ):
        return None
    kept = {
        name: environ[name]
        for name in ("HOME", "USER", "LOGNAME", "SHELL", "LANG")
        if name in environ
    }
    told = _said(
        [shell, "-lc", 'printf "\\n%s" "$PATH"'], {**kept, "PATH": LAUNCHD, "TERM": "dumb"}
    )
    lines = [line for line in (told or "").splitlines() if "/" in line]
    path = lines[-1].strip() if lines else ""
    return path.replace(" ", ":") if os.path.basename(shell) == "fish" else path or None


def desktop_path(environ: Mapping[str, str]) -> str | None:
    """The PATH of programs that are started from the desktop; None where that cannot be told."""
    if sys.platform == "darwin":
        told = _said(["/bin/launchctl", "getenv", "PATH"], environ)
        return (told or "").strip() or LAUNCHD
    if not sys.platform.startswith("linux") or not environ.get("XDG_RUNTIME_DIR"):
        return None
    told = _said(["systemctl", "--user", "show-environment"], environ)
    found = re.search(r"(?m)^PATH=(.*)$", told or "")
    return found[1].strip("$'\"") if found else None


def _said(line: list[str], environ: Mapping[str, str], patience: float | None = None) -> str | None:
    """What a program prints; None where it fails, takes too long or prints too much. Nothing of it
    is left afterwards."""
    alone, patience = os.name == "posix", PATIENCE if patience is None else patience
    until = time.monotonic() + patience
    if patience <= 0:
        return None
    try:
        child = subprocess.Popen(
            line,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=alone,
        )
    except (OSError, ValueError):
        return None
    output, told = child.stdout, list[bytes]()
    assert output is not None, "it was asked for"
    reader = threading.Thread(target=lambda: told.append(output.read(MOST_BYTES)), daemon=True)
    reader.start()
    try:
        reader.join(patience)
        if told and len(told[0]) < MOST_BYTES:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(until - time.monotonic(), 0.01))
    finally:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL) if alone else child.kill()
        child.wait()
        reader.join(1.0)
        if not reader.is_alive():  # else somebody who left the group holds it
            output.close()
    return told[0].decode(errors="replace") if told and child.returncode == 0 else None


def node(case: Case) -> Iterator[Finding]:
    """Whether Node is new enough for the servers that run on it."""
    names: dict[str, list[str]] = {}
    for server in case.config.mcp_servers if case.config is not None else ():
        spec = server.connection
        if (
            server.enabled
            and isinstance(spec, Stdio)
            and os.path.basename(spec.command) in _OF_NODE
        ):
            if not has_program(server, case.environ):
                continue  # `programs` reports it.
            env = child_environment(case.environ, spec.env, spec.inherit_env)
            # npx takes the node that lies beside it, if there is one.
            beside = (
                os.path.join(os.path.dirname(spec.command), "node")
                if os.path.dirname(spec.command)
                else "node"
            )
            found = _on(beside, env.get("PATH", os.defpath)) or _on(
                "node", env.get("PATH", os.defpath)
            )
            names.setdefault(found or "", []).append(server.name)
    until = (
        time.monotonic() + 2 * PATIENCE
    )  # however many there are: nobody waits for the last one longer
    for path, whose in names.items():
        yield _node(path, whose, case.environ, min(PATIENCE, until - time.monotonic()))


def _node(path: str, whose: list[str], environ: Mapping[str, str], patience: float) -> Finding:
    if not path:
        get = "install Node.js (https://nodejs.org)"
        return error("node", "node is not found, and npx needs it", _whose(whose), fix=get)
    told = _said([path, "--version"], child_environment(environ, {}, False), patience)
    version = re.match(r"v?(\d+)\.[\d.]+", (told or "").strip())
    if version is None:
        return warning(
            "node",
            f"{path} does not say its version",
            _whose(whose),
            fix=f"run: {shlex.quote(path)} --version",
        )
    number = int(version[1])
    update = f"update Node.js to {OLD_NODE} or newer (https://nodejs.org)"
    if number < OLDEST_NODE:
        what = f"Node {version[0]} is too old: most servers need {OLDEST_NODE} or newer ({path})"
        return error("node", what, _whose(whose), fix=update)
    if number < OLD_NODE:
        what = (
            f"Node {version[0]} is no longer looked after, and some servers need {OLD_NODE} or "
            f"newer ({path})"
        )
        return warning("node", what, _whose(whose), fix=update)
    return ok("node", f"Node {version[0]} is new enough ({path})", _whose(whose))
