"""How commands that use tools reach a gateway: the one that runs on the config, by its control
channel; else one in this process, which connects only to the servers that are needed.

Promised: the same answers either way; whoever waits for slow servers on a terminal is told for
which; a list of all does not wait for one that hangs, and names it. Nothing heavy is imported where
a gateway runs.
"""

import asyncio
import contextlib
import math
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from mcpx.cli.attached import Elicit, OnProgress, attached
from mcpx.cli.places import Place, place
from mcpx.cli.terminal import Waiting, plain
from mcpx.cli.words import counted, is_downloading
from mcpx.library.values import Tool
from mcpx.model.call import Json, as_list, as_object

if TYPE_CHECKING:
    from mcpx.config import Config
    from mcpx.library.asking import Elicit as Answer
    from mcpx.library.gateway import Gateway
    from mcpx.library.values import Health, Question
    from mcpx.model.offer import Offer

TICK = 0.1
"""Seconds between two looks at who is still starting."""
POLL = 0.5
"""Seconds between two status requests to a running gateway."""

__all__ = [
    "Desk",
    "Needs",
    "Place",
    "is_down",
    "place",
    "reach",
    "tell_down",
    "tools_of",
    "tools_when_started",
]

Needs = Callable[["Config"], Sequence[str] | None]
"""Which servers have to be there; None: all. Raises `ConfigError` for a name that cannot be."""


class Desk(Protocol):
    """What commands ask, whoever answers."""

    @property
    def running(self) -> bool:
        """Whether it is a gateway that runs."""
        ...

    @property
    def earlier_path(self) -> str | None:
        """`SERVER.TOOL` of the wanted tool in an earlier run, if its server alone was started."""
        ...

    async def request(
        self, method: str, params: Json | None = None, on_progress: OnProgress | None = None
    ) -> Json:
        """A method of MCP. Raises `RpcError`."""
        ...

    async def search(self, query: str, limit: int) -> Json: ...

    async def servers(self) -> list[Json]: ...

    async def missing(self, name: str) -> Json | None:
        """Why a server or a tool is not offered: `message` and `hint`. None if the name is offered
        or unknown."""
        ...


@contextlib.asynccontextmanager
async def reach(
    place: Place,
    elicit: Elicit,
    waiting: Waiting,
    needs: Needs = lambda config: None,
    *,
    whole: bool = True,
    tool: str | None = None,
) -> AsyncGenerator[Desk]:
    """`whole`: wait until each server has started or failed. Without `whole`, a slow server does
    not delay the others. `tool`: a public name. If it is known from an earlier run and `needs`
    names no server, its server alone starts."""
    if place.channel is not None:
        async with attached(place.channel, place.profile, elicit) as there:
            if there is not None:
                yield there
                return
    async with _opened(place, elicit, waiting, needs, whole, tool) as desk:
        yield desk


@contextlib.asynccontextmanager
async def _opened(
    place: Place, elicit: Elicit, waiting: Waiting, needs: Needs, whole: bool, tool: str | None
) -> AsyncGenerator[Desk]:
    from mcpx.library.gateway import Gateway

    if place.path is None:
        from mcpx import demo

        config = demo.config()
        if sys.stderr.isatty():
            sys.stderr.write("no config found; this is the built-in demo\n")
    else:
        from mcpx.config import load

        config = load(place.path, os.environ, place.env)

    async def answer(question: "Question") -> Json:
        return await elicit(question.server, dict(question.params))

    wanted = needs(config)
    earlier: Offer | None = None
    if wanted is None and tool is not None and place.path is not None:
        earlier = await _of_earlier_run(tool, config, place, answer)
        wanted = None if earlier is None else [earlier.server]
    opening = Gateway.open(
        config,
        profile=place.profile,
        env=place.env,
        state=None if place.path is None else place.state,
        servers=wanted,
        elicit=answer,
        client="mcpx command line",
    )
    async with opening as gateway:
        await _settled(gateway, config, waiting, whole)
        # With one server, the tool may have another public name.
        yield _Own(gateway, None if earlier is None else f"{earlier.server}.{earlier.name}")


async def _of_earlier_run(
    tool: str, config: "Config", place: Place, elicit: "Answer"
) -> "Offer | None":
    """The tool that had this public name in an earlier run. None, with a report, if it is
    unknown."""
    from mcpx.core.gateway import Gateway as Core
    from mcpx.library.asking import capabilities
    from mcpx.model.call import Caller

    core = Core(config, os.environ, place.state)
    try:
        # The capabilities are those of a command's gateway, because lists of servers may depend on
        # them.
        caller = Caller(
            principal="local", profile=place.profile, capabilities=capabilities(elicit, None, ())
        )
        offers = core.catalogs.of(caller).offers["tools"]
        known = next((offer for offer in offers if offer.public == tool), None)
    finally:
        await core.close()
    enabled = [server.name for server in config.mcp_servers if server.enabled]
    if known is not None or len(enabled) < 2:
        return known
    sys.stderr.write(
        f"{plain(tool)!r} names no server and is not known from an earlier run; starting "
        f"{len(enabled)} servers to "
        f"find it. 'mcpx call SERVER.TOOL' starts one.\n"
    )
    return None


async def _settled(gateway: "Gateway", config: "Config", waiting: Waiting, whole: bool) -> None:
    ready = asyncio.ensure_future(gateway.ready())
    began = asyncio.get_running_loop().time()
    news, last = began, gateway.starting
    try:
        while not ready.done():
            await asyncio.wait((ready,), timeout=TICK)
            if not (still := gateway.starting):
                continue
            servers, now = await gateway.servers(), asyncio.get_running_loop().time()
            if still != last:
                news, last = now, still
            if not whole and now - news > _patience(servers, config):
                return
            late = [dict(server.raw) for server in servers if server.name in still]
            up = sum(server.healthy for server in servers)
            waiting.tell(f"{starting(late, up, config)}, {now - began:.0f} s")
        await ready
    finally:
        ready.cancel()
        waiting.clear()


def _patience(servers: "Sequence[Health]", config: "Config") -> float:
    """Seconds without news; while there is nothing to show, nothing is gained by not waiting."""
    anything = any(server.healthy or server.raw.get("tools") for server in servers)
    return config.global_.first_start_wait if anything else math.inf


def starting(late: Sequence[Json], up: int, config: "Config") -> str:
    """The progress line: the servers that have not started yet, their programs, and which of them
    download."""
    connections = {server.name: server.connection for server in config.mcp_servers}
    named = ", ".join(
        _with_program(server, connections.get(str(server.get("name")))) for server in late[:3]
    )
    more = f" and {len(late) - 3} more" if len(late) > 3 else ""
    return f"starting {named}{more}, {up} of {up + len(late)} up"


def _with_program(server: Json, connection: object) -> str:
    facts: list[str] = []
    command = getattr(connection, "command", None)
    if isinstance(command, str):
        facts.append(os.path.basename(command))
    if is_downloading(server):
        facts.append(f"downloading, {server.get('phase_s')} s")
    name = str(server.get("name"))
    return f"{name} ({', '.join(facts)})" if facts else name


class _Own:
    """The gateway in this process."""

    running = False

    def __init__(self, gateway: "Gateway", earlier_path: str | None) -> None:
        self._gateway = gateway
        self.earlier_path = earlier_path

    async def request(
        self, method: str, params: Json | None = None, on_progress: OnProgress | None = None
    ) -> Json:
        return await self._gateway.request(method, params, on_progress=on_progress)

    async def search(self, query: str, limit: int) -> Json:
        found, total = await self._gateway.search_all(query, limit, wait=False)
        tools = [
            {"definition": each.tool.raw, "score": each.score, "strong": each.strong}
            for each in found
        ]
        return {"tools": tools, "total": total}

    async def servers(self) -> list[Json]:
        return [dict(server.raw) for server in await self._gateway.servers()]

    async def missing(self, name: str) -> Json | None:
        return await self._gateway.missing(name)


async def tools_when_started(
    desk: Desk, waiting: Waiting, server: str | None, enough: Callable[[Sequence[Tool]], bool]
) -> list[Tool]:
    """List the tools. While a server is starting and `enough` says no, wait for it and list them
    again.

    `server` is the only server to wait for; None means all. A server that failed is not waited for.
    """
    try:
        while True:
            late = [
                plain(str(each.get("name"))) for each in _starting(await desk.servers(), server)
            ]
            tools = await _listed_with_progress(desk, waiting, server)
            if not late or enough(tools):
                return tools
            await _until_changed(desk, waiting, server, late)
    finally:
        waiting.clear()


async def _listed_with_progress(desk: Desk, waiting: Waiting, server: str | None) -> list[Tool]:
    listing = asyncio.ensure_future(tools_of(desk))
    try:
        while not (await asyncio.wait((listing,), timeout=POLL))[0]:
            await _show_starting(desk, waiting, server)
        return listing.result()
    finally:
        listing.cancel()


async def _until_changed(
    desk: Desk, waiting: Waiting, server: str | None, late: Sequence[str]
) -> None:
    while True:
        if await _show_starting(desk, waiting, server) != late:
            return
        await asyncio.sleep(POLL)


async def _show_starting(desk: Desk, waiting: Waiting, server: str | None) -> list[str]:
    late = _starting(await desk.servers(), server)
    names = [plain(str(each.get("name"))) for each in late]
    if late:
        doing = "downloading" if all(is_downloading(each) for each in late) else "starting"
        more = f" and {len(late) - 3} more" if len(late) > 3 else ""
        seconds = max(int(each.get("phase_s") or 0) for each in late)
        waiting.tell(f"{doing} {', '.join(names[:3])}{more}, {seconds} s")
    return names


def _starting(servers: Sequence[Json], only: str | None) -> list[Json]:
    """Servers that are starting, and that have not failed before."""
    found = [server for server in servers if only in (None, server.get("name"))]
    return [
        server for server in found if server.get("status") == "connecting" and not is_down(server)
    ]


async def tools_of(desk: Desk) -> list[Tool]:
    return [
        Tool.of(as_object(raw)) for raw in as_list((await desk.request("tools/list")).get("tools"))
    ]


def is_down(server: Json) -> bool:
    """Of no use now; one that failed and is being tried again is down until that has gone well."""
    state = server.get("status")
    return state in ("disconnected", "needs_auth") or (
        state == "connecting" and bool(server.get("last_error"))
    )


def tell_down(servers: Sequence[Json], only: str | None = None, target: str = "") -> list[Json]:
    """Report on stderr which servers are down or still starting, and return them. `target`: see
    `where.same_target`."""
    found = [server for server in servers if only in (None, server.get("name"))]
    missing = [
        server for server in found if is_down(server) or server.get("status") == "connecting"
    ]
    down = [
        {key: server.get(key) for key in ("name", "status", "last_error")} for server in missing
    ]
    for server in down:
        name = plain(str(server["name"]))
        if not is_down(server):
            continue
        if server["status"] == "needs_auth":
            sys.stderr.write(f"{name} wants somebody to sign in: mcpx auth login {name}{target}\n")
        else:
            why = str(server["last_error"] or "").removeprefix(f"{server['name']}: ")
            sys.stderr.write(f"{name} is down: {plain(why)}\n")
    for server in found:
        _tell_withheld(server, target)
    late = [server for server in missing if not is_down(server)]
    for known, told in (
        (True, "listed as last time"),
        (False, "not listed yet (mcpx tools NAME waits)"),
    ):
        if names := [
            plain(str(server.get("name"))) for server in late if bool(server.get("tools")) is known
        ]:
            sys.stderr.write(f"still starting, and {told}: {', '.join(names)}\n")
    return down


def _tell_withheld(server: Json, target: str) -> None:
    """Report tools that the administrator does not find in a list, and the command that changes
    it."""
    name, held, why = (
        plain(str(server.get("name"))),
        int(server.get("held") or 0),
        server.get("last_error"),
    )
    if server.get("quarantined"):
        sys.stderr.write(
            f"{name} is in quarantine: approve its tools with: mcpx approve {name}{target}\n"
        )
    elif held:
        told = (
            f"{counted(held, 'definition')} of {name} {'is' if held == 1 else 'are'} withheld: "
            "new or changed"
        )
        sys.stderr.write(f"{told}; look and approve: mcpx approve {name}{target}\n")
    elif server.get("status") == "disabled" and why:
        sys.stderr.write(f"{name} is disabled: {plain(str(why))}\n")
