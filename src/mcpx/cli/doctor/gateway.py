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
from typing import Any
from urllib.parse import urlsplit

from mcpx import __version__
from mcpx.base.files import require_private
from mcpx.cli.doctor.finding import Case, Finding, error, ok, warning
from mcpx.cli.doctor.servers import lacks_program
from mcpx.cli.output import UP, counted, objects, why_down
from mcpx.cli.running import result_of
from mcpx.cli.status import problems_of
from mcpx.core.causes import cause_of
from mcpx.front.control import ask, socket_path
from mcpx.model.call import Json, as_object

PATIENCE_SECONDS = 2.0
MAX_GATEWAYS = 20
MAX_HEALTH_BYTES = 65536
LISTENS = "0A"
"""State of a socket in /proc/net/tcp."""
LOCAL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def state(case: Case) -> Iterator[Finding]:
    """Whether the state folder can be written."""
    where, existing = str(case.state), case.state
    while not os.path.lexists(existing) and existing.parent != existing:
        existing = existing.parent
    quoted = shlex.quote(str(existing))
    if existing == case.state:
        try:
            require_private(existing)
        except OSError as problem:
            yield error(str(problem), where, fix="set MCPX_STATE_DIR to a folder of your own")
            return
    elif not existing.is_dir():
        yield error(
            f"{existing} is no folder", where, fix=f"remove {quoted}, or set MCPX_STATE_DIR"
        )
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        fix = "set MCPX_STATE_DIR to another"
        if _is_own(existing):
            fix = f"chmod u+rwx {quoted}"
        yield error(f"{existing} cannot be written: nothing will be remembered", where, fix=fix)
        return
    for name in ("control", "history", "snapshots", "vault"):
        folder = case.state / name
        if os.path.lexists(folder) and not _is_own(folder):
            fix = f"sudo chown -R $(id -un) {shlex.quote(str(folder))}"
            yield error(f"{folder} belongs to another user", where, fix=fix)
    yield ok("what is to be remembered can be written", where)


def _is_own(path: Path) -> bool:
    return not hasattr(os, "geteuid") or os.lstat(path).st_uid == os.geteuid()


def running(case: Case) -> Iterator[Finding]:
    """The gateway that runs on this config, and its servers."""
    if case.path is None:
        return
    status = case.status
    if status is None:
        yield _not_running(case, socket_path(case.state, case.path, case.env))
        return
    servers = objects(status.get("servers"))
    what = f"one runs on this config, with {counted(len(servers), 'server')}"
    yield ok(what, str(status.get("url") or ""))
    version = status.get("version")
    if version != __version__:
        what = f"it is mcpx {version}, and this is {__version__}: it was started before the update"
        yield warning(what, fix="end it and start it again")
    reload = as_object(status.get("last_reload"))
    if reload and not reload.get("ok"):
        yield _refused(case, reload)
    for server in servers:
        if server.get("status") not in (*UP, "connecting"):
            yield from _down(case, server)


def _not_running(case: Case, file: Path) -> Finding:
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.lstat(file).st_mode):
            what = "a gateway ran on this config and left its socket; nobody answers there"
            return warning(what, str(file), fix=f"start it again: {case.serve_command()}")
    return ok("none runs on this config", fix=case.serve_command())


def _refused(case: Case, reload: Json) -> Finding:
    what = "it refused the present config and still runs on the previous one"
    if case.config is None:  # The findings about the config have the errors.
        return ok(what)
    first, *_ = problems_of(reload)[0].removeprefix("error: ").splitlines()
    return error(f"{what}: {first}", fix=f"{case.command('check')}, then {case.command('reload')}")


def _down(case: Case, server: Json) -> Iterator[Finding]:
    name, status = str(server.get("name")), str(server.get("status"))
    where = f"server {name}"
    if status == "needs_auth":
        fix = case.command("auth", "login", name)
        yield error("somebody has to sign in", where, fix=fix, check="server")
        return
    problem = why_down(server) or status
    what, fix = f"it is {status}: {problem}", case.command("doctor", name)
    for known in case.servers:
        if known.name != name:
            continue
        if lacks_program(known, case.environ):
            return  # `servers.programs` reports it.
        cause = cause_of(known, problem, (), case.environ)
        if cause is not None:
            what, fix = f"{what} ({cause.cause.rstrip('.')})", f"{cause.fix}; {fix}"
    yield error(what, where, fix=fix, check="server")


def port(case: Case) -> Iterator[Finding]:
    """Whether the port for clients is free, or the gateway on this config has it."""
    url = (case.status or {}).get("url")
    if url:
        yield ok(f"the gateway on this config listens at {url}")
        return
    if case.port == 0:
        return
    where = f"{case.host}:{case.port}"
    problem = _bind_error(case.host, case.port)
    if problem is None:
        yield ok("it is free", where)
    elif problem.errno in (errno.EADDRNOTAVAIL, socket.EAI_NONAME):
        what = f"{case.host} is no address of this machine"
        yield error(what, where, fix="correct server.host")
    elif problem.errno == errno.EACCES:
        fix = case.serve_command("--port", "8000")
        yield error(f"port {case.port} needs more rights than you have", where, fix=fix)
    elif case.path is None and not case.environ.get("MCPX_PORT"):
        yield ok("it is taken; the demo takes another", where)
    else:
        other = case.serve_command("--port", "0")
        fix = f"end that one, or take another port: {other}, or server.port in the config"
        yield error(f"it is taken by {_listener(case)}", where, fix=fix)


def _bind_error(host: str, port: int) -> OSError | None:
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind, socket.SOCK_STREAM) as listener:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except OSError as problem:
        return problem
    return None


def _listener(case: Case) -> str:
    """The gateway or program that has the port, as far as this user can see."""
    gateway = result_of(_gateway_at(case))
    if gateway is not None:
        return f"the gateway that runs on {gateway.get('config')} (process {gateway.get('pid')})"
    host = LOCAL_ADDRESSES.get(case.host, case.host)
    if ":" in host:
        host = f"[{host}]"
    url = f"://{host}:{case.port}/mcp"
    is_gateway = is_mcpx(f"http{url}") or is_mcpx(f"https{url}")
    name, process = "another program", _process_at(case.port)
    if is_gateway:
        name = "another mcpx"
    if process:
        name += f" ({process})"
    return name


async def _gateway_at(case: Case) -> Json | None:
    """The status of this user's gateway that listens on the port of this config."""
    for channel in sorted(case.state.glob("control/*.sock"))[:MAX_GATEWAYS]:
        status = await ask(channel, "status", PATIENCE_SECONDS / 2) or {}
        if urlsplit(str(status.get("url") or "")).port == case.port:
            return status
    return None


def is_mcpx(url: str) -> bool | None:
    """Whether a gateway answers at an address. None if no program answers."""
    try:
        parts = urlsplit(url)
        connection = _connection(parts.scheme, parts.hostname or "", parts.port)
        with contextlib.closing(connection):
            connection.request("GET", "/health", headers={"Accept": "application/json"})
            health: Any = json.loads(connection.getresponse().read(MAX_HEALTH_BYTES) or b"null")
    except OSError:
        return None
    except (http.client.HTTPException, ValueError):
        return False
    return isinstance(health, dict) and "status" in health


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
    # Only whether a gateway answers is of interest, and its certificate is often self-signed.
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=PATIENCE_SECONDS, context=unverified)


def _process_at(port: int) -> str | None:
    """The process of this user that listens on a port. Linux only."""
    sockets: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == LISTENS and int(local.rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{rest[5]}]")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) in sockets:
                process = link.parents[1]
                return f"{(process / 'comm').read_text().strip()}, process {process.name}"
    return None
