"""A server tried once, beside whatever runs: connect, list, let go.

Promise: it ends within its time, its process with it; secrets of an entry that is not saved are
blotted out of what is told and logged while it is tried. Nothing is kept, nobody is asked to sign
in, and nothing that guards calls is in the way. Not done here: how many run at a time.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from mcpx.config import Config, FrontServer, Policy, Server
from mcpx.core.causes import Cause, cause_of
from mcpx.core.gateway import Gateway
from mcpx.model.call import Json
from mcpx.processes.stderrlog import Overhear, Redact, line_of

LONGEST = 60.0
"""Seconds one may take."""
TAIL = 40
"""Lines of standard error that are told."""


@dataclass(frozen=True, slots=True)
class Tried:
    """How it went with a server."""

    ok: bool
    seconds: float
    protocol: str | None = None
    server_info: Json | None = None
    tools: tuple[str, ...] = ()
    prompts: int = 0
    resources: int = 0
    stderr: tuple[str, ...] = ()
    error: str | None = None
    cause: Cause | None = None
    needs_auth: bool = False


@asynccontextmanager
async def beside(gateway: Gateway, config: Config) -> AsyncGenerator[Gateway]:
    """Another gateway for this configuration, and nothing of it left afterwards."""
    mark = object()
    gateway.redactor.learn(mark, config.secrets)
    other = gateway.beside(config)
    try:
        yield other
    finally:
        await other.close()
        gateway.redactor.forget(mark)


def only(config: Config, **kept: Any) -> Config:
    """The configuration without what would guard or start anything else."""
    bare: dict[str, Any] = {"mcp_servers": (), "commands": (), "profiles": (), "policy": Policy()}
    return replace(config, server=FrontServer(), **{**bare, **kept})


def longest_trial(server: Server) -> float:
    """Seconds a trial of this server may take, its download included (LIF-10)."""
    return max(LONGEST, server.start_limit + min(server.timeout, LONGEST))


async def try_server(gateway: Gateway, config: Config, name: str) -> Tried:
    given = next(server for server in config.mcp_servers if server.name == name)
    if given.switched_off is not None:
        cause = cause_of(given, None, (), gateway.environ)
        return Tried(False, 0.0, error=gateway.redactor.redact(given.switched_off), cause=cause)
    server = replace(
        given,
        enabled=True,
        lazy=False,
        trust="open",
        limits=None,
        auto_reconnect=False,
        retry_on_failure=False,
        timeout=min(given.timeout, LONGEST),
    )
    async with beside(gateway, only(config, mcp_servers=(server,))) as other:
        return await _tried(other, server, longest_trial(server))


def _overhear_last(heard: deque[tuple[bytes, Redact | None]]) -> Overhear:
    """Keeps the lines of the last process that printed: a program that fails is started once for
    each era."""
    is_first = True

    def overhear(raw: bytes, redact: Redact | None) -> None:
        nonlocal is_first
        if is_first:
            heard.clear()
        is_first = False
        heard.append((raw, redact))

    return overhear


async def _tried(other: Gateway, server: Server, longest: float) -> Tried:
    began = time.monotonic()
    heard: deque[tuple[bytes, Redact | None]] = deque(maxlen=TAIL)
    other.overhear = lambda name: _overhear_last(heard)
    other.start()
    upstream = other.generation.upstreams[server.name]
    problem: str | None = None
    try:
        async with asyncio.timeout(longest):
            await upstream.settled.wait()
    except TimeoutError:
        problem = f"not connected after {longest:g} s"
    seconds = round(time.monotonic() - began, 3)
    redact = other.redactor.redact
    stderr = tuple(filter(None, (redact(line_of(raw, own)) for raw, own in heard)))
    terms, state = upstream.connection.terms, upstream.status.state
    if terms is not None and problem is None and state in ("connected", "degraded"):
        offers = upstream.definitions
        return Tried(
            True,
            seconds,
            protocol=terms.version,
            server_info=other.redactor.redact_values(dict(terms.server)),
            tools=tuple(str(tool.get("name")) for tool in offers["tools"]),
            prompts=len(offers["prompts"]),
            resources=len(offers["resources"]) + len(offers["templates"]),
            stderr=stderr,
        )
    problem = (problem or upstream.connection.problem or "not connected").removeprefix(
        f"{server.name}: "
    )
    cause = await asyncio.to_thread(cause_of, server, problem, stderr, other.environ)
    return Tried(
        False, seconds, stderr=stderr, error=problem, cause=cause, needs_auth=state == "needs_auth"
    )
