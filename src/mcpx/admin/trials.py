"""Trying out a server or a command once, beside what runs, whether it is saved or not.

Promise: what runs is not touched; no more than `AT_ONCE` run at a time and each ends within its
time, its process with it; secrets of an entry that is not saved are blotted out of the log too
while it is tried. A command that is run is decided and recorded as any call of it: by the rules and
limits of the configuration that runs.
"""

import asyncio
import time
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from mcpx.admin.errors import ApiError
from mcpx.commands.work import CommandFailed, Resolved
from mcpx.config import Config
from mcpx.config.masking import MASK
from mcpx.core.gateway import Gateway
from mcpx.core.local import COMMANDS, Tool
from mcpx.core.trying import LONGEST, Tried, beside, only, try_server
from mcpx.model.call import ADMIN, Call, Caller, Json
from mcpx.model.errors import RpcError
from mcpx.model.offer import Offer

AT_ONCE = 4
CALLER = Caller(principal=ADMIN, client={"name": "mcpx-admin"})
"""Whom rules and the trail take for the one who runs a command here."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How it went with a command."""

    ok: bool
    tool: Json
    resolved: Resolved | None = None
    result: Json | None = None
    ms: float | None = None
    error: str | None = None


async def _try_command(
    gateway: Gateway, config: Config, name: str, arguments: Json, dry: bool
) -> Ran:
    command = next(each for each in config.commands if each.name == name)
    if command.switched_off is not None:
        return Ran(False, {}, error=gateway.redactor.redact(command.switched_off))
    alone = only(config, commands=(replace(command, enabled=True, cache_ttl=None),))
    async with beside(gateway, alone) as other:
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
        return replace(
            told, ok=good, ms=_ms(began), result=gateway.redactor.redact_values(redact(result))
        )


def _called(gateway: Gateway, tool: Tool, arguments: Json) -> Awaitable[Json]:
    """As the rules of what runs have it: it may be saved under this name, with others' rights to
    it."""
    name = tool.command.name
    params: Json = {"name": name, "arguments": arguments}
    offer = gateway.catalog.native("tools", COMMANDS, name) or Offer(
        "tools", COMMANDS, name, name, tool.definition
    )
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
            raise ApiError(
                429,
                "too_many_trials",
                told,
                hint="wait until one is over",
                headers={"Retry-After": "5"},
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def server(self, config: Config, name: str) -> Tried:
        """Connect to a server of this configuration once, and let go."""
        with self._turn():
            return await try_server(self._gateway, config, name)

    async def command(self, config: Config, name: str, arguments: Json, *, dry: bool) -> Ran:
        """Tell what a command of this configuration would send or run; unless it is `dry`, do it,
        as a call would."""
        with self._turn():
            return await _try_command(self._gateway, config, name, arguments, dry)
