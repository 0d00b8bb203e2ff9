"""How commands reach a gateway: the one that runs on the configuration, or one in this process.

Both give the same answers. A gateway in this process connects only to the servers that are needed.
On a terminal, a progress line names the servers that are still starting. A list of all servers does
not wait for a server that hangs, and names it.
"""

import asyncio
import contextlib
import json
import logging
import math
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mcpx import __version__
from mcpx.base.files import require_private
from mcpx.cli.output import (
    Waiting,
    counted,
    is_downloading,
    is_starting,
    limited,
    objects,
    plain,
    text_of,
    why_down,
)
from mcpx.cli.parsing import suggestion
from mcpx.cli.questions import Questions
from mcpx.cli.running import mistake, warn
from mcpx.cli.target import Target
from mcpx.library.values import Progress, Tool
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import METHOD_NOT_FOUND, SERVER_DOWN, RpcError
from mcpx.wire import channels, codec, jsonrpc
from mcpx.wire.peer import Peer

if TYPE_CHECKING:
    from mcpx.config import Config
    from mcpx.core.gateway import Gateway as Core
    from mcpx.library.asking import Elicit
    from mcpx.library.gateway import Gateway
    from mcpx.library.values import Health, Question
    from mcpx.model.offer import Offer
    from mcpx.upstreams.upstream import Upstream

MAX_MESSAGE_BYTES = 64 * 2**20
CONNECT_SECONDS = 2.0
TICK_SECONDS = 0.1
POLL_SECONDS = 0.5
"""Between two status requests to a running gateway."""
NAME = "mcpx command line"

T = TypeVar("T")
Needs = Callable[["Config"], Sequence[str] | None]
"""Names the servers that a command needs; None means all. Raises ConfigError for a wrong name."""
OnProgress = Callable[[Progress], None]
Verbs = Callable[..., Awaitable[Json]]
"""Sends a request of the control channel: `await ask("auth.login", name=name)`."""


class _Answers:
    """Answers requests of the running gateway (`wire.peer.Inbound`)."""

    def __init__(self, elicit: Questions) -> None:
        self._elicit = elicit

    async def request(self, message: Json) -> Json:
        method = message["method"]
        if method == "ping":
            return {}
        if method == "elicitation/create":
            server = str(message["id"]).rpartition(":")[0]  # The ids name the server that asks.
            return await self._elicit(server, jsonrpc.params_of(message))
        raise RpcError(METHOD_NOT_FOUND, f"{method} is not supported here")

    def notification(self, method: str, params: Json) -> None:
        pass

    def closed(self, reason: str) -> None:
        pass


class _ProgressListener:
    """Implements `wire.peer.Meanwhile`."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress

    def progress(self, params: Json) -> None:
        self._on_progress(Progress.of(params))

    def notification(self, method: str, params: Json) -> None:
        pass

    async def question(self, method: str, params: Json | None) -> Json:
        raise RpcError(METHOD_NOT_FOUND, f"{method} is not supported here")

    def paused(self, retry_ms: int) -> None:
        pass


class RunningGateway:
    """The gateway that runs on the configuration, over its control channel.

    A request that is given up is cancelled there. Questions of servers go to `elicit`; all other
    requests are refused.
    """

    is_running = True
    earlier_path = None

    def __init__(self, target: Target, writer: asyncio.StreamWriter, elicit: Questions) -> None:
        self._target = target
        self.peer = Peer(
            "the running gateway", lambda raw: writer.write(raw + b"\n"), _Answers(elicit)
        )

    async def request(
        self, method: str, params: Json | None = None, on_progress: OnProgress | None = None
    ) -> Json:
        if on_progress is None:
            return await self.peer.request(method, params)
        given = params or {}
        given = {**given, "_meta": {**as_object(given.get("_meta")), "progressToken": 0}}
        return await self.peer.request(method, given, meanwhile=_ProgressListener(on_progress))

    async def search(self, query: str, limit: int) -> Json:
        answer = await self._ask("search", query=query, limit=limit, profile=self._target.profile)
        if not answer.get("ok"):
            raise mistake(f"the gateway that runs cannot search: {answer.get('error')}")
        return answer

    async def missing(self, name: str) -> Json | None:
        """Why a server or a tool is not offered: `message` and `hint`. None if the name is offered
        or unknown."""
        answer = await self._ask("missing", name=name, profile=self._target.profile)
        return as_object(answer.get("missing")) or None

    async def servers(self) -> list[Json]:
        return objects((await self._ask("status")).get("servers"))

    async def _ask(self, verb: str, **more: object) -> Json:
        answer = await self._target.ask(verb, 40.0, **more)
        if answer is None:
            raise RpcError(SERVER_DOWN, "the gateway that ran on this config is gone")
        return answer

    async def initialize(self) -> None:
        params: Json = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {"form": {}, "url": {}}},
            "clientInfo": {"name": NAME, "version": __version__},
        }
        await self.request("initialize", params)
        self.peer.notify("notifications/initialized", None)

    async def listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                self.peer.receive(line)
        self.peer.lose("it has ended", SERVER_DOWN)


class OwnGateway:
    """A gateway in this process."""

    is_running = False

    def __init__(self, gateway: "Gateway", earlier_path: str | None) -> None:
        self._gateway = gateway
        self.earlier_path = earlier_path
        """`SERVER.TOOL` of the wanted tool in an earlier run, if only its server was started."""

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


Client = RunningGateway | OwnGateway


@contextlib.asynccontextmanager
async def connected(
    target: Target,
    waiting: Waiting,
    needs: Needs = lambda config: None,
    *,
    whole: bool = True,
    tool: str | None = None,
) -> AsyncGenerator[Client]:
    """The running gateway, otherwise one in this process.

    `whole`: wait until each server has started or failed. Without `whole`, a slow server does not
    delay the others. `tool`: a public name. If it is known from an earlier run and `needs` names no
    server, only its server is started.
    """
    elicit = Questions(waiting)
    stream = await _attach(target)
    if stream is None:
        async with _opened(target, elicit, waiting, needs, whole, tool) as gateway:
            yield gateway
        return
    reader, writer = stream
    client = RunningGateway(target, writer, elicit)
    listening = asyncio.ensure_future(client.listen(reader))
    try:
        await client.initialize()
        yield client
    finally:
        listening.cancel()
        await client.peer.close()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _attach(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """Open a connection to the running gateway. Returns None if no gateway accepts clients."""
    if target.channel is None:
        return None
    try:
        stream = await _open(target.channel)
    except (OSError, NotImplementedError):
        return None
    if stream is None:
        return None
    reader, writer = stream
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            request = {"do": "attach", "mode": "direct", "profile": target.profile}
            writer.write(json.dumps(request).encode() + b"\n")
            answer = as_object(codec.load(await reader.readline()))
    except (OSError, ValueError, TimeoutError, codec.BadJson):
        answer = Json()
    if answer.get("ok"):
        return stream
    writer.close()
    if answer.get("reason") == "profile":
        raise mistake(f"{answer.get('error')}")
    return None


async def _open(channel: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    require_private(channel.parent)
    if not channels.is_taken(channel):
        return None
    connection = await asyncio.to_thread(channels.dial, channel, CONNECT_SECONDS)
    connection.setblocking(False)
    connect: Any = asyncio.open_connection
    if connection.family.name == "AF_UNIX":
        connect = asyncio.open_unix_connection
    return await connect(sock=connection, limit=MAX_MESSAGE_BYTES)


@contextlib.asynccontextmanager
async def _opened(
    target: Target,
    elicit: Questions,
    waiting: Waiting,
    needs: Needs,
    whole: bool,
    tool: str | None,
) -> AsyncGenerator[OwnGateway]:
    from mcpx.library.gateway import Gateway

    config = target.load()

    async def answer(question: "Question") -> Json:
        return await elicit(question.server, dict(question.params))

    state = target.path and target.state  # The demo keeps nothing.
    wanted, earlier_path = needs(config), None
    if wanted is None and tool is not None and state is not None:
        earlier = await _offer_of_earlier_run(tool, config, target, answer)
        if earlier is not None:
            # With one server, the tool may have another public name.
            wanted, earlier_path = [earlier.server], f"{earlier.server}.{earlier.name}"
    opening = Gateway.open(
        config,
        profile=target.profile,
        env=target.env,
        state=state,
        servers=wanted,
        elicit=answer,
        client=NAME,
    )
    async with opening as gateway:
        await _settled(gateway, config, waiting, whole)
        yield OwnGateway(gateway, earlier_path)


async def _offer_of_earlier_run(
    tool: str, config: "Config", target: Target, elicit: "Elicit"
) -> "Offer | None":
    """The tool that had this public name in an earlier run. None, with a report, if it is
    unknown."""
    from mcpx.core.gateway import Gateway
    from mcpx.library.asking import capabilities
    from mcpx.model.call import Caller

    core = Gateway(config, os.environ, target.state)
    try:
        # The capabilities are those of a command's gateway, because lists of servers may depend on
        # them.
        asks = capabilities(elicit, None, ())
        caller = Caller(principal="local", profile=target.profile, capabilities=asks)
        for offer in core.catalogs.of(caller).offers["tools"]:
            if offer.public == tool:
                return offer
    finally:
        await core.close()
    enabled = sum(server.enabled for server in config.mcp_servers)
    if enabled > 1:
        warn(
            f"{plain(tool)!r} names no server and is not known from an earlier run; starting "
            f"{enabled} servers to find it. 'mcpx call SERVER.TOOL' starts one."
        )
    return None


async def _settled(gateway: "Gateway", config: "Config", waiting: Waiting, whole: bool) -> None:
    """Wait until the servers have started or failed; without `whole`, only while one of them has
    news."""
    clock = asyncio.get_running_loop().time
    ready = asyncio.ensure_future(gateway.ready())
    began = changed = clock()
    last = gateway.starting
    try:
        while not ready.done():
            await asyncio.wait((ready,), timeout=TICK_SECONDS)
            still = gateway.starting
            if not still:
                continue
            servers = await gateway.servers()
            if still != last:
                changed, last = clock(), still
            if not whole and clock() - changed > _patience(servers, config):
                return
            late = [dict(server.raw) for server in servers if server.name in still]
            up = sum(server.healthy for server in servers)
            waiting.tell(f"{starting_text(late, up, config)}, {clock() - began:.0f} s")
        await ready
    finally:
        ready.cancel()
        waiting.clear()


def _patience(servers: "Sequence[Health]", config: "Config") -> float:
    """Seconds without news. While no server has anything to show, wait on."""
    if any(server.healthy or server.raw.get("tools") for server in servers):
        return config.global_.first_start_wait
    return math.inf


def starting_text(late: Sequence[Json], up: int, config: "Config") -> str:
    """The servers that have not started yet, their programs, and which of them download."""
    connections = {server.name: server.connection for server in config.mcp_servers}
    names = [_with_program(server, connections.get(server["name"])) for server in late]
    return f"starting {limited(names, 3)}, {up} of {up + len(late)} up"


def _with_program(server: Json, connection: object) -> str:
    facts: list[str] = []
    command = getattr(connection, "command", None)
    if isinstance(command, str):
        facts.append(os.path.basename(command))
    if is_downloading(server):
        facts.append(f"downloading, {server.get('phase_s')} s")
    name = str(server.get("name"))
    if facts:
        name += f" ({', '.join(facts)})"
    return name


async def shown_while(
    waiting: Waiting,
    work: Awaitable[T],
    text: Callable[[], Awaitable[str]],
    seconds: float = TICK_SECONDS,
) -> T:
    """Wait for the work, and show the text in the progress line meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait((task,), timeout=seconds))[0]:
            waiting.tell(await text())
        return task.result()
    finally:
        waiting.clear()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))  # A request tells its gateway that it is cancelled.


async def tools_of(client: Client) -> list[Tool]:
    answer = await client.request("tools/list")
    return list(map(Tool.of, objects(answer.get("tools"))))


async def tools_when_started(
    client: Client, waiting: Waiting, server: str | None, enough: Callable[[Sequence[Tool]], bool]
) -> list[Tool]:
    """List the tools. While a server is starting and `enough` says no, wait for it and list them
    again.

    `server` is the only server to wait for; None means all. A server that failed is not waited for.
    """

    async def late() -> str:
        servers = [each for each in await client.servers() if server in (None, each.get("name"))]
        return _late_text(list(filter(is_starting, servers)))

    while True:
        names, _, _ = (await late()).rpartition(",")
        tools = await shown_while(waiting, tools_of(client), late, POLL_SECONDS)
        if not names or enough(tools):
            return tools
        await shown_while(waiting, _until_changed(late, names), late, POLL_SECONDS)


async def _until_changed(late: Callable[[], Awaitable[str]], names: str) -> None:
    while (await late()).startswith(f"{names},"):  # noqa: ASYNC110  Nothing reports the change.
        await asyncio.sleep(POLL_SECONDS)


def _late_text(servers: Sequence[Json]) -> str:
    if not servers:
        return ""
    doing = "starting"
    if all(map(is_downloading, servers)):
        doing = "downloading"
    seconds = max(each.get("phase_s") or 0 for each in servers)
    return f"{doing} {limited([text_of(each, 'name') for each in servers], 3)}, {seconds} s"


def is_down(server: Json) -> bool:
    """A server that failed and is tried again is down until it is connected."""
    state = server.get("status")
    return state in ("disconnected", "needs_auth") or (
        state == "connecting" and bool(server.get("last_error"))
    )


def report_down(servers: Sequence[Json], only: str | None = None, suffix: str = "") -> list[Json]:
    """Report on stderr which servers are down or still starting, and return them. `suffix`: see
    `Target.suffix`."""
    found = [server for server in servers if only in (None, server.get("name"))]
    late = list(filter(is_starting, found))
    for server in filter(is_down, found):
        name = text_of(server, "name")
        message = f"{name} is down: {why_down(server)}"
        if server.get("status") == "needs_auth":
            message = f"{name} wants somebody to sign in: mcpx auth login {name}{suffix}"
        warn(f"{message}")
    for server in found:
        _report_withheld(server, suffix)
    _report_late("listed as last time", [server for server in late if server.get("tools")])
    _report_late(
        "not listed yet (mcpx tools NAME waits)",
        [server for server in late if not server.get("tools")],
    )
    return [
        {key: server.get(key) for key in ("name", "status", "last_error")}
        for server in found
        if is_down(server) or is_starting(server)
    ]


def _report_late(what: str, servers: Sequence[Json]) -> None:
    if servers:
        names = ", ".join(text_of(server, "name") for server in servers)
        warn(f"still starting, and {what}: {names}")


def _report_withheld(server: Json, suffix: str) -> None:
    """Report tools that the administrator does not find in a list, and the command that changes
    it."""
    name, held = text_of(server, "name"), int(server.get("held") or 0)
    approve = f"mcpx approve {name}{suffix}"
    if server.get("quarantined"):
        warn(f"{name} is in quarantine: approve its tools with: {approve}")
    elif held:
        number = counted(held, "withheld definition")
        warn(f"{name} has {number}: new or changed; look and approve: {approve}")
    elif server.get("status") == "disabled" and server.get("last_error"):
        warn(f"{name} is disabled: {text_of(server, 'last_error')}")


# A gateway for one look, and requests to the control channel


@contextlib.asynccontextmanager
async def temporary_gateway(
    config: "Config", state: Path | None, *, probe_only: bool = True
) -> AsyncGenerator["Core"]:
    """A gateway in this process that tries each server once. Its servers are not started yet.
    `probe_only`: nobody is asked to sign in."""
    from mcpx.core.gateway import Gateway
    from mcpx.processes import process

    logging.getLogger("mcpx").addHandler(logging.NullHandler())  # The command reports failures.
    once = tuple(replace(server, auto_reconnect=False) for server in config.mcp_servers)
    gateway = Gateway(replace(config, mcp_servers=once), os.environ, state, looks=probe_only)
    try:
        yield gateway
    finally:
        await gateway.close()
        await process.end_all()


async def settled(upstreams: "Mapping[str, Upstream]", config: "Config") -> None:
    """Wait until each server has started or failed."""

    async def text() -> str:
        late = [
            {"name": name, **upstream.describe()}
            for name, upstream in upstreams.items()
            if not upstream.settled.is_set()
        ]
        return starting_text(late, len(upstreams) - len(late), config)

    waits = [upstream.settled.wait() for upstream in upstreams.values()]
    with Waiting() as waiting:
        await shown_while(waiting, asyncio.gather(*waits), text)


async def running_verbs(target: Target, probe: str) -> Verbs | None:
    """The control channel of the running gateway. Returns None if no gateway answers `probe`."""
    if await target.ask(probe, 20.0) is None:
        return None

    async def ask(verb: str, **more: object) -> Json:
        answer = await target.ask(verb, 60.0, **more)
        return answer or {"ok": False, "error": "the gateway has ended"}

    return ask


def local_verbs(verbs: Mapping[str, Callable[[Json], Awaitable[Json]]]) -> Verbs:
    """The same requests, answered in this process."""

    async def ask(verb: str, **more: object) -> Json:
        if verb not in verbs:
            return {"ok": False, "error": "no gateway runs on this config"}
        return await verbs[verb](more)

    return ask


def known_server(answer: Json, name: str) -> Json:
    """The answer. Raises ConfigError if it says that no server has this name."""
    if not answer.get("unknown"):
        return answer
    names = [str(each) for each in as_list(answer.get("names"))]
    there = f"there is: {', '.join(names) or 'none'}"
    raise mistake(f"{answer['error']}; {suggestion(name, names, there)}")
