"""Trying out a server or a command once, beside what runs, whether it is saved or not.

Promise: what runs is not touched; no more than `AT_ONCE` run at a time and each ends within its time, its process with
it; secrets of an entry that is not saved are blotted out of the log too while it is tried. A command that is run is
decided and recorded as any call of it: by the rules and limits of the configuration that runs.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from mcpx.admin.causes import Cause, cause_of
from mcpx.admin.errors import ApiError
from mcpx.commands.work import CommandFailed, Resolved
from mcpx.config import Config, FrontServer, Policy, Server
from mcpx.config.masking import MASK
from mcpx.core.gateway import Gateway
from mcpx.core.local import COMMANDS, Tool
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import RpcError
from mcpx.model.offer import Offer
from mcpx.processes.stderrlog import Redact, line_of

AT_ONCE = 4
LONGEST = 60.0
"""Seconds one may take."""
TAIL = 40
"""Lines of standard error that are told."""
CALLER = Caller(principal="admin", client={"name": "mcpx-admin"})
"""Whom rules and the trail take for the one who runs a command here."""


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
async def _beside(gateway: Gateway, config: Config) -> AsyncGenerator[Gateway]:
    """Another gateway for this configuration, and nothing of it left afterwards."""
    mark = object()
    gateway.redactor.learn(mark, config.secrets)
    other = gateway.beside(config)
    try:
        yield other
    finally:
        await other.close()
        gateway.redactor.forget(mark)


def _only(config: Config, **kept: Any) -> Config:
    """The configuration without what would guard or start anything else."""
    bare: dict[str, Any] = {"mcp_servers": (), "commands": (), "profiles": (), "policy": Policy()}
    return replace(config, server=FrontServer(), **{**bare, **kept})


async def _try_server(gateway: Gateway, config: Config, name: str) -> Tried:
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
    async with _beside(gateway, _only(config, mcp_servers=(server,))) as other:
        return await _tried(other, server)


async def _tried(other: Gateway, server: Server) -> Tried:
    began = time.monotonic()
    heard: deque[tuple[bytes, Redact | None]] = deque(maxlen=TAIL)
    other.overhear = lambda name: lambda raw, redact: heard.append((raw, redact))
    other.start()
    upstream = other.generation.upstreams[server.name]
    problem: str | None = None
    try:
        async with asyncio.timeout(LONGEST):
            await upstream.settled.wait()
    except TimeoutError:
        problem = f"not connected after {LONGEST:g} s"
    seconds = round(time.monotonic() - began, 3)
    redact = other.redactor.redact
    stderr = tuple(filter(None, (redact(line_of(raw, own)) for raw, own in heard)))
    terms, state = upstream.terms, upstream.status.state
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
    problem = (problem or upstream.problem or "not connected").removeprefix(f"{server.name}: ")
    cause = await asyncio.to_thread(cause_of, server, problem, stderr, other.environ)
    return Tried(False, seconds, stderr=stderr, error=problem, cause=cause, needs_auth=state == "needs_auth")


@dataclass(frozen=True, slots=True)
class Ran:
    """How it went with a command."""

    ok: bool
    tool: Json
    resolved: Resolved | None = None
    result: Json | None = None
    ms: float | None = None
    error: str | None = None


async def _try_command(gateway: Gateway, config: Config, name: str, arguments: Json, dry: bool) -> Ran:
    command = next(each for each in config.commands if each.name == name)
    if command.switched_off is not None:
        return Ran(False, {}, error=gateway.redactor.redact(command.switched_off))
    alone = _only(config, commands=(replace(command, enabled=True, cache_ttl=None),))
    async with _beside(gateway, alone) as other:
        assert other.generation.local is not None
        tool = other.generation.local.answering(name)
        redact = other.redactor.redact_values
        try:
            resolved = tool.resolved(arguments, MASK)
        except CommandFailed as error:
            return Ran(False, tool.definition, error=redact(str(error)))
        told = Ran(True, tool.definition, None if resolved is None else _redacted(resolved, redact))
        if dry:
            return told
        began = time.perf_counter()
        try:
            async with asyncio.timeout(LONGEST):
                result = await _called(gateway, tool, arguments)
        except TimeoutError:
            return replace(told, ok=False, ms=_ms(began), error=f"took longer than {LONGEST:g} s")
        except RpcError as error:
            return replace(told, ok=False, ms=_ms(began), error=redact(error.message))
        good = result.get("isError") is not True
        return replace(told, ok=good, ms=_ms(began), result=gateway.redactor.redact_values(redact(result)))


def _called(gateway: Gateway, tool: Tool, arguments: Json) -> Awaitable[Json]:
    """As the rules of what runs have it: it may be saved under this name, with others' rights to it."""
    name = tool.command.name
    params: Json = {"name": name, "arguments": arguments}
    offer = gateway.catalog.native("tools", COMMANDS, name) or Offer("tools", COMMANDS, name, name, tool.definition)
    call = Call("tools/call", params, CALLER)
    return gateway.relay(COMMANDS, name, call, params, lambda: tool.run(arguments, None), offer)


def _ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 1)


def _redacted(resolved: Resolved, redact: Any) -> Resolved:
    return Resolved(
        method=resolved.method,
        url=redact(resolved.url),
        headers=redact(dict(resolved.headers)),
        body=redact(resolved.body),
        argv=None if resolved.argv is None else tuple(redact(list(resolved.argv))),
        cwd=resolved.cwd,
        env=redact(dict(resolved.env)),
    )


class Trials:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._running = 0

    @contextmanager
    def _turn(self) -> Generator[None]:
        if self._running >= AT_ONCE:
            told = f"{AT_ONCE} trials run already"
            raise ApiError(429, "too_many_trials", told, hint="wait until one is over", headers={"Retry-After": "5"})
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def server(self, config: Config, name: str) -> Tried:
        """Connect to a server of this configuration once, and let go."""
        with self._turn():
            return await _try_server(self._gateway, config, name)

    async def command(self, config: Config, name: str, arguments: Json, *, dry: bool) -> Ran:
        """Tell what a command of this configuration would send or run; unless it is `dry`, do it, as a call would."""
        with self._turn():
            return await _try_command(self._gateway, config, name, arguments, dry)
