"""The servers of the configuration: whether their programs are found and new enough, and how far
one of them gets when it is started once.

Checks are limited in time: a program that does not report its version costs a sentence.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from mcpx.cli.doctor.finding import Case, Finding, error, ok, warning
from mcpx.cli.gateway_client import shown_while, temporary_gateway
from mcpx.cli.output import Waiting, counted, limited
from mcpx.cli.parsing import suggestion
from mcpx.cli.running import mistake, result_of
from mcpx.config import Config, Server
from mcpx.core.causes import cause_of
from mcpx.core.trying import Tried, only, try_server
from mcpx.processes.environment import child_environment, find_program
from mcpx.transports import Stdio, downloads_itself

PATIENCE_SECONDS = 3.0
"""For a program to print its version."""
MAX_VERSION_BYTES = 65536
MIN_NODE, SUPPORTED_NODE = 18, 20
"""Most servers need the first; Node's authors maintain the second and later."""
_ON_NODE = ("npx", "node", "npm", "pnpm", "pnpx", "yarn")
_ON_WINDOWS = os.name != "posix"


def program_of(server: Server, environ: Mapping[str, str]) -> str | None:
    """The path of a server's program. None if it is not found, or if the server has none."""
    spec = server.connection
    if not isinstance(spec, Stdio):
        return None
    env = child_environment(environ, spec.env, spec.inherit_env)
    return _found(spec.command, env, spec.cwd)


def _found(command: str, env: Mapping[str, str], cwd: str | None = None) -> str | None:
    try:
        return find_program(command, env, cwd)
    except OSError:
        return None


def lacks_program(server: Server, environ: Mapping[str, str]) -> bool:
    return isinstance(server.connection, Stdio) and program_of(server, environ) is None


def programs(case: Case) -> Iterator[Finding]:
    users: dict[tuple[str, str], list[str]] = {}
    for server in case.servers:
        spec = server.connection
        if not server.enabled or not isinstance(spec, Stdio):
            continue
        path = program_of(server, case.environ)
        if path is None:
            yield _missing(server, spec, case.environ)
        else:
            users.setdefault((spec.command, path), []).append(server.name)
    for (command, path), names in users.items():
        what = f"{path} is there" if path == command else f"{command} is {path}"
        yield ok(what, _servers(names))


def _servers(names: Sequence[str]) -> str:
    return f"server{'s' * (len(names) > 1)} {limited(names, 4)}"


def _missing(server: Server, spec: Stdio, environ: Mapping[str, str]) -> Finding:
    where = _servers([server.name])
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        fix = f"mkdir -p {shlex.quote(spec.cwd)}"
        return error(f"its working folder {spec.cwd} is not there", where, fix=fix)
    if os.path.dirname(spec.command) and os.path.exists(spec.command):
        fix = f"chmod +x {shlex.quote(spec.command)}"
        return error(f"{spec.command} may not be run", where, fix=fix)
    cause = cause_of(server, "command not found", (), environ)
    what, fixes = f"{spec.command} is not found", list[str]()
    if cause is not None:
        what = cause.cause.rstrip(".")
        fixes.append(cause.fix)
    if not os.path.dirname(spec.command):
        what += f"; it is not on the PATH that mcpx has ({environ.get('PATH', os.defpath)})"
        fixes.append("if it is installed, use its absolute path as the command")
    return error(what, where, fix="; ".join(fixes))


def node(case: Case) -> Iterator[Finding]:
    """Whether Node is new enough for the servers that run on it."""
    users: dict[str, list[str]] = {}
    for server in case.servers:
        spec = server.connection
        if not server.enabled or not isinstance(spec, Stdio):
            continue
        is_on_node = os.path.basename(spec.command) in _ON_NODE
        if is_on_node and not lacks_program(server, case.environ):  # `programs` reports that.
            env = child_environment(case.environ, spec.env, spec.inherit_env)
            # npx runs the node in its own folder, if there is one.
            beside = os.path.join(os.path.dirname(spec.command), "node")
            users.setdefault(_found(beside, env) or _found("node", env) or "", []).append(
                server.name
            )
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    for path, names in users.items():
        patience = min(PATIENCE_SECONDS, deadline - time.monotonic())
        yield _node(path, _servers(names), case.environ, patience)


def _node(path: str, where: str, environ: Mapping[str, str], patience: float) -> Finding:
    if not path:
        fix = "install Node.js (https://nodejs.org)"
        return error("node is not found, and npx needs it", where, fix=fix)
    output = version_output(path, child_environment(environ, {}, False), patience)
    version = re.match(r"v?(\d+)\.[\d.]+", output.strip())
    if version is None:
        fix = f"run: {shlex.quote(path)} --version"
        return warning(f"{path} does not say its version", where, fix=fix)
    number, what = int(version[1]), f"Node {version[0]}"
    fix = f"update Node.js to {SUPPORTED_NODE} or newer (https://nodejs.org)"
    if number < MIN_NODE:
        need = f"most servers need {MIN_NODE} or newer"
        return error(f"{what} is too old: {need} ({path})", where, fix=fix)
    if number < SUPPORTED_NODE:
        need = f"some servers need {SUPPORTED_NODE} or newer"
        return warning(f"{what} is no longer looked after, and {need} ({path})", where, fix=fix)
    return ok(f"{what} is new enough ({path})", where)


def version_output(path: str, environ: Mapping[str, str], patience: float) -> str:
    """What a program prints for `--version`. It is ended when it takes too long or prints too
    much."""
    if patience <= 0:
        return ""
    try:
        child = subprocess.Popen(
            [path, "--version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=not _ON_WINDOWS,
        )
    except (OSError, ValueError):
        return ""
    timer = threading.Timer(patience, _kill, (child,))
    timer.start()
    with child:
        try:
            assert child.stdout is not None
            output = child.stdout.read(MAX_VERSION_BYTES)
        finally:
            timer.cancel()
            _kill(child)
    if len(output) == MAX_VERSION_BYTES:
        return ""
    return output.decode(errors="replace")


def _kill(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        if _ON_WINDOWS:
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)


# One server, started once


def named(servers: Sequence[Server], name: str) -> Server:
    for server in servers:
        if server.name == name:
            return server
    names = [each.name for each in servers]
    hint = suggestion(name, names, f"there is {', '.join(map(repr, names)) or 'none'}")
    raise mistake(f"no server is named {name!r}; {hint}")


def examined(case: Case, config: Config, server: Server) -> Iterator[Finding]:
    where, spec = f"server {server.name}", server.connection
    if server.switched_off is None:
        if not server.enabled:
            yield ok("it is disabled in the config; it is started here all the same", where)
        path = program_of(server, case.environ)
        if path is not None:
            yield ok(f"its program is {path}", where)
        elif not isinstance(spec, Stdio):
            yield ok(f"its address is {getattr(spec, 'url', '?')}", where)
    tried = result_of(_tried(case, config, server))
    if tried.ok:
        info = tried.server_info or {}
        name = " ".join(str(info[key]) for key in ("name", "version") if info.get(key))
        answer = f"{name or 'no name'}, MCP {tried.protocol}"
        yield ok(f"it answers in {tried.seconds:.1f} s: {answer}", where)
        lists = [counted(len(tried.tools), "tool")]
        if tried.prompts:
            lists.append(counted(tried.prompts, "prompt"))
        if tried.resources:
            lists.append(counted(tried.resources, "resource"))
        yield ok(f"it lists {', '.join(lists)}", where)
    elif tried.needs_auth:
        fix = f"mcpx auth login {server.name}"
        yield error("it answers, and wants somebody to sign in", where, fix=fix)
    else:
        yield _failure(tried, server, where)


def _failure(tried: Tried, server: Server, where: str) -> Finding:
    cause, fix = tried.cause, ""
    what = f"{tried.error or 'it does not work'}, after {tried.seconds:.1f} s"
    if cause is not None:
        what, fix = f"{what}. {cause.cause}", cause.fix
    if server.switched_off is not None:
        what = f"it is switched off: {tried.error}"
    return Finding("error", what, where, fix, tried.stderr[-MAX_STDERR_LINES:])


MAX_STDERR_LINES = 12


async def _tried(case: Case, config: Config, server: Server) -> Tried:
    began, progress = time.monotonic(), f"starting {server.name}"
    if downloads_itself(server.connection):
        progress += " (the first time it is downloaded)"

    async def text() -> str:
        return f"{progress}, {time.monotonic() - began:.0f} s"

    with Waiting() as waiting:
        async with temporary_gateway(only(config), case.state) as gateway:
            return await shown_while(waiting, try_server(gateway, config, server.name), text)
