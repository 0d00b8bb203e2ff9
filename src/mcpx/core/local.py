"""The local commands as one more source (SRC-6): listed, searched, called and policed like the
tools of a server.

Promised: a command that did not change in a reload is the same one, with its connections and what
runs; one that is gone finishes what it was asked. Arguments are checked before anything runs,
whatever the surface (SRC-5). What goes wrong in a command is told as a tool error that begins with
its name.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mcpx.auth import Auth
from mcpx.auth.credentials import Credentials
from mcpx.auth.ring import Ring
from mcpx.commands.parameters import with_defaults
from mcpx.commands.work import Bench, CommandFailed, Progress, Resolved, Resolves, Work
from mcpx.config import Command, Config
from mcpx.config.plan import same
from mcpx.model.call import Call, Caller, Json, as_object
from mcpx.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, NotFound, RpcError
from mcpx.model.offer import Offers
from mcpx.upstreams.life import Status
from mcpx.wire.fetch import Fetcher

if TYPE_CHECKING:
    from mcpx.surfaces.checking.arguments import Checker

log = logging.getLogger(__name__)

COMMANDS = "commands"
"""The name of the service; reserved among servers."""
DESCRIPTION = "Commands of this gateway's own: HTTP requests and scripts."


@dataclass(frozen=True, slots=True)
class Means:
    """What all commands of a gateway share."""

    environ: Mapping[str, str]
    fetcher: Callable[[], Fetcher]
    checker: "Callable[[], Checker]"
    ring: Ring
    redact: Callable[[str], str] = str
    """Takes out of a text what must not be said."""


class Tool:
    """One command as it is called."""

    def __init__(
        self, command: Command, auth: tuple[str, Auth] | None, paths: tuple[str, ...], means: Means
    ) -> None:
        self.made_of = (command, auth, paths)
        """Two that are made of the same are the same."""
        self.command = command
        self.schema = command.schema
        self._means = means
        self.credentials: Credentials | None = None
        """What it proves itself with, once it has been called."""
        self._work: Work | None = None
        self._running = 0
        self._rest = asyncio.Event()

    @property
    def running(self) -> int:
        """Calls that are not over."""
        return self._running

    @property
    def definition(self) -> Json:
        return definition_of(self.command)

    def _at_work(self) -> Work:
        if self._work is None:
            command, auth, paths = self.made_of
            means = self._means
            if auth is not None:
                self.credentials = means.ring.of(*auth)
            bench = Bench(
                name=command.name,
                schema=self.schema,
                environ=means.environ,
                fetcher=means.fetcher,
                credentials=self.credentials,
                script_paths=paths,
            )
            self._work = command.action.prepare(bench)
        return self._work

    async def run(self, arguments: object, progress: Progress | None) -> Json:
        checked = self._means.checker().check(self.schema, arguments, mend=False)
        if checked.problems:
            return failure(self.command.name, "; ".join(checked.problems))
        self._running += 1
        try:
            result = await self._at_work().run(
                with_defaults(self.schema, checked.arguments), progress
            )
            if not isinstance(cast(object, result), dict):  # whoever wrote it
                raise TypeError(
                    f"the result of a command is a mapping, not {type(result).__name__}"
                )
            return result
        except CommandFailed as error:
            return failure(self.command.name, self._means.redact(str(error)))
        except RpcError:
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # a library that ends the program is no reason to end it
            log.exception("[%s] the command failed", self.command.name)
            return failure(
                self.command.name,
                f"failed inside the gateway: {type(error).__name__}; its log says more",
            )
        finally:
            self._running -= 1
            if not self._running:
                self._rest.set()

    def resolved(self, arguments: object, mask: str) -> Resolved | None:
        """What a call would send or run, and nothing of it done; None: this kind of command cannot
        tell. Raises `CommandFailed`."""
        checked = self._means.checker().check(self.schema, arguments, mend=False)
        if checked.problems:
            raise CommandFailed("; ".join(checked.problems))
        work = self._at_work()
        if not hasattr(work, "resolved"):
            return None
        return cast(Resolves, work).resolved(with_defaults(self.schema, checked.arguments), mask)

    async def drain(self, grace: float) -> None:
        """Let what runs finish, for so many seconds, then close."""
        try:
            async with asyncio.timeout(grace):
                while self._running:
                    self._rest.clear()
                    await self._rest.wait()
        except TimeoutError:
            log.warning(
                "[%s] a call outlives the command, which was removed or changed", self.command.name
            )
        await self.close()

    async def close(self) -> None:
        work, self._work = self._work, None
        try:
            if work is not None:
                await work.close()
        except Exception:
            log.exception(
                "[%s] the command could not be closed", self.command.name
            )  # all others must be


def definition_of(command: Command) -> Json:
    """As clients get it listed."""
    annotations = {"readOnlyHint": True} if command.changes_nothing else {}
    if command.read_only is False:
        annotations = {"readOnlyHint": False}
    return {
        "name": command.name,
        "description": command.description,
        "inputSchema": command.schema,
        **({"annotations": annotations} if annotations else {}),
    }


class LocalCommands:
    """Implements `core.generation.Source`."""

    name = COMMANDS
    prefix: str | None = None
    local = True
    pinned = False
    known = True
    offered = True
    offers_vary = False
    instructions = ""
    description = DESCRIPTION

    def __init__(self, config: Config, means: Means, before: "LocalCommands | None" = None) -> None:
        """`before`: whose commands go on where they did not change."""
        auths = {entry.name: entry.auth for entry in config.auth_configs}
        former = {} if before is None else before._tools
        self._tools: dict[str, Tool] = {}
        for command in config.commands:
            if not command.enabled:
                continue
            auth = None if command.auth is None else (command.auth, auths[command.auth])
            fresh = Tool(command, auth, config.global_.script_paths, means)
            kept = former.get(command.name)
            self._tools[command.name] = (
                kept if kept is not None and same(kept.made_of, fresh.made_of) else fresh
            )
        self._offers: Offers = {"tools": [tool.definition for tool in self._tools.values()]}
        if before is not None and before._offers == self._offers:
            self._offers = before._offers  # the same object: nothing has to be built anew
        self.status = Status("connected", time.time()) if before is None else before.status
        self.settled = asyncio.Event()
        self.settled.set()

    @property
    def enabled(self) -> bool:
        return bool(self._tools)

    @property
    def tools(self) -> Collection[Tool]:
        return self._tools.values()

    def offers(self, caller: Caller | None) -> Offers:
        return self._offers

    def cache_ttl_of(self, name: str) -> float | None:
        return self._tools[name].command.cache_ttl if name in self._tools else None

    def answering(self, name: str) -> Tool:
        return self._tools[name]

    def shares(self, caller: Caller) -> bool:
        return True  # a command hears nothing of who calls it

    async def introduced(self) -> None:
        pass

    async def call(self, call: Call, params: Json, *, repeatable: bool = False) -> Json:
        if call.method != "tools/call":
            raise RpcError(METHOD_NOT_FOUND, f"{COMMANDS}: there is nothing here but tools")
        name = params.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise NotFound("tool", str(name))
        return await tool.run(params.get("arguments"), _progress(call, params))

    async def subscribe(self, caller: Caller, uri: str, params: Json) -> Json:
        raise RpcError(INVALID_PARAMS, f"{COMMANDS}: there are no resources here")

    unsubscribe = subscribe

    def replaced_by(self, successor: "LocalCommands | None") -> list[Tool]:
        """The commands that do not go on there."""
        going_on: set[Tool] = set() if successor is None else set(successor.tools)
        return [tool for tool in self.tools if tool not in going_on]

    async def close(self) -> None:
        await asyncio.gather(*(tool.close() for tool in self._tools.values()))


def failure(name: str, reason: str) -> Json:
    return {"content": [{"type": "text", "text": f"{name}: {reason}"}], "isError": True}


def _progress(call: Call, params: Json) -> Progress | None:
    """Where the progress of a call goes; nowhere if its client did not ask for it."""
    token: Any = as_object(params.get("_meta")).get("progressToken")
    voice = call.voice
    if token is None or voice is None:
        return None

    def tell(progress: float, total: float | None, message: str | None) -> None:
        told: Json = {"progressToken": token, "progress": progress}
        if total is not None:
            told["total"] = total
        if message is not None:
            told["message"] = message
        voice.tell("notifications/progress", told)

    return tell


__all__ = ["COMMANDS", "LocalCommands", "Means", "Tool", "definition_of", "failure"]
