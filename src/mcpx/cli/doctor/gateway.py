"""The gateway that runs, or could: its state folder, its control socket, its port, its version."""

import contextlib
import errno
import http.client
import json
import os
import shlex
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from mcpx import __version__
from mcpx.base.files import require_private
from mcpx.cli.doctor.finding import Case, Finding, error, ok, warning
from mcpx.cli.doctor.programs import has_program
from mcpx.cli.output import UP, counted
from mcpx.cli.running import result_of
from mcpx.core.causes import cause_of
from mcpx.front.control import ask, socket_path
from mcpx.model.call import Json, as_object

PATIENCE = 2.0
"""Seconds somebody who listens may take to say who it is."""
MAX_GATEWAYS = 20
"""Control sockets that are tried."""


def state(case: Case) -> Iterator[Finding]:
    """Whether what is not configuration can be kept."""
    folder, there = case.state, case.state
    while not os.path.lexists(there) and there.parent != there:
        there = there.parent
    quoted = shlex.quote(str(there))
    if there == folder:
        try:
            require_private(folder)
        except OSError as problem:
            yield error(
                "state", str(problem), str(folder), fix="set MCPX_STATE_DIR to a folder of your own"
            )
            return
    elif not there.is_dir():
        yield error(
            "state",
            f"{there} is no folder",
            str(folder),
            fix=f"remove {quoted}, or set MCPX_STATE_DIR",
        )
        return
    if not os.access(there, os.W_OK | os.X_OK):
        fix = (
            f"chmod u+rwx {quoted}"
            if os.stat(there).st_uid == _user()
            else "set MCPX_STATE_DIR to another"
        )
        yield error(
            "state", f"{there} cannot be written: nothing will be remembered", str(folder), fix=fix
        )
        return
    for name in ("control", "history", "snapshots", "vault"):
        below = folder / name
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(below).st_uid != _user():
                own = f"sudo chown -R $(id -un) {shlex.quote(str(below))}"
                yield error("state", f"{below} belongs to another user", str(folder), fix=own)
    yield ok("state", "what is to be remembered can be written", str(folder))


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def running(case: Case) -> Iterator[Finding]:
    """How the gateway on this config is, if one runs."""
    if case.path is None:
        return
    if case.status is None:
        file = socket_path(case.state, case.path, case.env)
        if _is_socket(file):
            what = "a gateway ran on this config and left its socket; nobody answers there"
            yield warning("gateway", what, str(file), fix=f"start it again: {case.serve_command()}")
        else:
            yield ok("gateway", "none runs on this config", fix=case.serve_command())
        return
    told = case.status
    url, version = told.get("url"), told.get("version")
    found = [as_object(each) for each in cast("list[object]", told.get("servers") or [])]
    where = f" at {url}" if url else ""
    yield ok("gateway", f"one runs on this config{where}, with {counted(len(found), 'server')}")
    if version != __version__:
        what = f"it is mcpx {version}, and this is {__version__}: it was started before the update"
        yield warning("gateway", what, fix="end it and start it again")
    reload = as_object(told.get("last_reload"))
    if reload and not reload.get("ok"):
        problems = cast("list[object]", reload.get("problems") or [reload.get("error")])
        first = str(problems[0]).removeprefix("error: ").partition("\n")[0] if problems else ""
        what = "it refused the present config and still runs on the previous one"
        if case.config is None:  # The config findings have the errors.
            yield ok("gateway", what)
        else:
            yield error(
                "gateway",
                f"{what}: {first}",
                fix=f"{case.command('check')}, then {case.command('reload')}",
            )
    for server in found:
        yield from _down(case, server)


def _down(case: Case, told: dict[str, Any]) -> Iterator[Finding]:
    state, name = told.get("status"), str(told.get("name"))
    if state in UP or state == "connecting":
        return
    problem = str(told.get("last_error") or state).removeprefix(f"{name}: ")
    known = next(
        (each for each in (case.config.mcp_servers if case.config else ()) if each.name == name),
        None,
    )
    if known is not None and not has_program(known, case.environ):
        return  # `programs` reports it.
    cause = None if known is None else cause_of(known, problem, (), case.environ)
    if state == "needs_auth":
        fix = case.command("auth", "login", name)
        yield error("server", "somebody has to sign in", f"server {name}", fix=fix)
        return
    look = case.command("doctor", name)
    what = f"it is {state}: {problem}" + (f" ({cause.cause.rstrip('.')})" if cause else "")
    yield error("server", what, f"server {name}", fix=f"{cause.fix}; {look}" if cause else look)


def _is_socket(file: Path) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(file).st_mode)
    except OSError:
        return False


def port(case: Case) -> Iterator[Finding]:
    """Whether the port for clients is free, or the gateway on this config has it."""
    url = None if case.status is None else case.status.get("url")
    if isinstance(url, str):
        yield ok("port", f"the gateway on this config listens at {url}")
        return
    if case.port == 0:
        return
    where = f"{case.host}:{case.port}"
    problem = _taken(case.host, case.port)
    if problem is None:
        yield ok("port", "it is free", where)
        return
    if problem.errno in (errno.EADDRNOTAVAIL, socket.EAI_NONAME):
        yield error(
            "port", f"{case.host} is no address of this machine", where, fix="correct server.host"
        )
        return
    if problem.errno == errno.EACCES:
        fix = case.serve_command("--port", "8000")
        yield error("port", f"port {case.port} needs more rights than you have", where, fix=fix)
        return
    if case.path is None and not case.environ.get("MCPX_PORT"):
        yield ok("port", "it is taken; the demo takes another", where)
        return
    what = f"it is taken by {_who_listens(case)}"
    other = case.serve_command("--port", "0")
    fix = f"end that one, or take another port: {other}, or server.port in the config"
    yield error("port", what, where, fix=fix)


def _who_listens(case: Case) -> str:
    """Which gateway or program has the port, as far as this user can see."""
    gateway = result_of(_gateway_at(case))
    if gateway is not None:
        return f"the gateway that runs on {gateway.get('config')} (process {gateway.get('pid')})"
    where = f"{_dialled(case.host)}:{case.port}/mcp"
    by = (
        "another mcpx"
        if is_mcpx(f"http://{where}") or is_mcpx(f"https://{where}")
        else "another program"
    )
    who = _holder(case.port)
    return f"{by} ({who})" if who else by


async def _gateway_at(case: Case) -> Json | None:
    """The status of this user's gateway that listens on the port of this config."""
    for socket_file in sorted(case.state.glob("control/*.sock"))[:MAX_GATEWAYS]:
        status = await ask(socket_file, "status", PATIENCE / 2)
        url = None if status is None else status.get("url")
        if isinstance(url, str) and urlsplit(url).port == case.port:
            return status
    return None


def _taken(host: str, port: int) -> OSError | None:
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind, socket.SOCK_STREAM) as tried:
            if os.name == "posix":
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
            tried.listen(1)
    except OSError as problem:
        return problem
    return None


def _dialled(host: str) -> str:
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)
    return f"[{local}]" if ":" in local and not local.startswith("[") else local


def is_mcpx(url: str) -> bool | None:
    """Whether a gateway answers at an address; None: nobody does."""
    try:
        parts = urlsplit(url)
        connection = _connection(parts.scheme, parts.hostname or "", parts.port)
        try:
            connection.request("GET", "/health", headers={"Accept": "application/json"})
            answer = connection.getresponse()
            told: Any = json.loads(answer.read(65536) or b"null")
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as problem:
        return None if isinstance(problem, OSError) else False
    return isinstance(told, dict) and "status" in told


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=PATIENCE)
    # Only whether a gateway answers is of interest, and its certificate is often self-signed.
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=unverified)


def _holder(port: int) -> str | None:
    """Which process of this user's listens there, where that can be told."""
    inodes: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(each) in inodes for each in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()}, process {process.name}"
    return None
