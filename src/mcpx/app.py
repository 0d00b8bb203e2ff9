"""The composition root: the only place that wires the rooms together, and the life of the process.

Starts a front, runs until the client leaves or a signal comes, lets calls in flight finish within a grace, then ends
everything it started.
"""

import asyncio
import logging
import logging.handlers
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from mcpx import __version__
from mcpx.config import Config
from mcpx.core.gateway import Gateway
from mcpx.front.desk import Desk
from mcpx.model.errors import ConfigError
from mcpx.transports import process

log = logging.getLogger("mcpx")

GRACE = 3.0
"""Seconds calls in flight may take to finish once the end has begun."""
ENDING = 6.0
"""Seconds after which an end that does not end is cut short; children are ended by then or by the keeper."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked for on the command line, after defaults."""

    config: Config
    transport: Literal["stdio", "http"]
    host: str
    port: int
    log_level: str


def serve(run: Run, environ: Mapping[str, str]) -> int:
    """Run the gateway in this process until it ends; the exit code."""
    _check_bind(run)
    _start_log(run)
    for warning in run.config.warnings:
        log.warning("%s", warning)
    _tell_what_is_to_come(run.config)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_serve(run, environ))
    return uvloop.run(_serve(run, environ))


async def _serve(run: Run, environ: Mapping[str, str]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = [signal.SIGINT, signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    gateway = Gateway(run.config, environ)
    desk = Desk(gateway)
    try:
        if run.transport == "stdio":
            await _serve_stdio(run, desk, stop)
        else:
            return await _serve_http(run, desk, stop)
    finally:
        try:
            async with asyncio.timeout(ENDING):
                await gateway.close()
                await process.end_all()
        except TimeoutError:
            log.error("some servers did not end in time; their processes are ended by force")
    return 0


async def _serve_stdio(run: Run, desk: Desk, stop: asyncio.Event) -> None:
    from mcpx.front.stdio import StdioFront

    front = StdioFront(desk, run.config.global_.max_request)
    await front.start()
    await _first_of(stop, front.ended)
    await front.close(GRACE)


async def _serve_http(run: Run, desk: Desk, stop: asyncio.Event) -> int:
    from mcpx.front.guard import Guard
    from mcpx.front.http import HttpFront

    server = run.config.server
    tokens = {token.name: token.token for token in server.auth.tokens} if server.auth is not None else {}
    front = HttpFront(desk, Guard(run.host, tokens), max_request=run.config.global_.max_request)
    try:
        port = await front.start(run.host, run.port, (server.tls.cert, server.tls.key) if server.tls else None)
    except OSError as error:
        what = error.strerror or str(error)
        _say(f"mcpx: cannot listen on {run.host}:{run.port}: {what}. Another port: --port 0 takes any free one.")
        return 1
    desk.gateway.start()
    _greet(run, port)
    await stop.wait()
    await front.close(GRACE)
    return 0


def _greet(run: Run, port: int) -> None:
    host = f"[{run.host}]" if ":" in run.host else run.host
    url = f"{'https' if run.config.server.tls else 'http'}://{host}:{port}/mcp"
    names = ", ".join(server.name for server in run.config.mcp_servers if server.enabled) or "none"
    if run.config.path is not None:
        _say(f"mcpx {__version__} · {url} · servers: {names} · Ctrl-C ends it")
        return
    _say(f"mcpx {__version__} · no config found, running the built-in demo (nothing is written)")
    _say(f"  MCP   {url}")
    _say(f"  Try   npx @modelcontextprotocol/inspector --cli {url} --transport http --method tools/list")
    _say("  Next  put your servers into mcpx.yaml and start mcpx again · Ctrl-C ends it")


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _check_bind(run: Run) -> None:
    """SEC-1: nobody opens a machine's tools to the network by accident."""
    if run.transport == "stdio" or run.host == "localhost":
        return
    try:
        loopback = ip_address(run.host).is_loopback
    except ValueError:
        loopback = False
    auth = run.config.server.auth
    if not loopback and (auth is None or not auth.tokens):
        raise ConfigError(
            [
                f"error: {run.host} can be reached from other machines, and no token protects the tools behind it\n"
                "  Bind 127.0.0.1, or set server.auth with at least one token in the config."
            ]
        )


def _tell_what_is_to_come(config: Config) -> None:
    """What the file may say already, and this version does not do yet, is said; never passed over in silence."""
    if config.mode not in ("direct", "auto"):
        log.warning("mode %r is not built yet; tools are shown one by one (direct)", config.mode)
    if config.commands:
        log.warning("%d commands are configured; this version does not serve commands yet", len(config.commands))
    if config.profiles or config.policy:
        log.warning("profiles and policy are configured; this version does not apply them yet")
    for server in config.mcp_servers:
        if server.enabled and server.auth is not None:
            log.warning("[%s] auth %r is configured; this version does not apply it yet", server.name, server.auth)


def _start_log(run: Run) -> None:
    """Log lines go to stderr or the log file, never to stdout."""
    level = getattr(logging, run.log_level)
    form = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
    root = logging.getLogger("mcpx")
    root.setLevel(level)
    root.propagate = False
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(form)
    root.handlers[:] = [console]
    if run.config.global_.log_file is not None:
        folder = run.config.path.parent if run.config.path is not None else Path.cwd()
        file = folder / run.config.global_.log_file
        try:
            handler = logging.handlers.RotatingFileHandler(file, maxBytes=10 * 2**20, backupCount=2, encoding="utf-8")
        except OSError as error:
            raise ConfigError([f"error: the log file {file} cannot be written: {error.strerror}"]) from None
        os.chmod(file, 0o600)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        root.addHandler(handler)
        console.setLevel(max(level, logging.WARNING))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
