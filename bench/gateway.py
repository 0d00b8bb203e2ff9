"""A system that runs, with the upstreams behind it and a client in front; everything is ended on
every way out."""

import asyncio
import re
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.client import Client, Era, Refused, StdioClient
from bench.http_client import HttpClient, SseClient
from bench.processes import UPSTREAM, Started
from bench.systems import ERAS, Launch, Order, Pair, System, Transport
from bench.upstream import Json

START = 60.0
"""Seconds for anything to listen, and again to serve all of its tools."""
NATIVE = re.compile(r"s(\d+)t(\d+)$")

Tool = tuple[int, int]
"""Numbers of a server and of one of its tools."""


class Broken(Exception):
    """A system that does not start or does not serve: there is nothing to measure."""


class Unable(Exception):
    """A system that was not made for this front or this upstream."""


class Upstreams:
    """What gateways are given to connect to: commands to start, or servers that run already, all in
    one process."""

    def __init__(
        self,
        transport: Transport,
        folder: Path,
        *,
        servers: int,
        tools: int,
        show_all: bool = False,
    ) -> None:
        self.servers = servers
        self.tools = tools
        self.show_all = show_all
        """Gateways have to list every tool, however many they are."""
        self.extra: dict[int, list[str]] = {}
        """More arguments for a stdio server, by its number."""
        self._transport: Transport = transport
        self._folder = folder
        self._started: list[Started] = []
        self.ports: dict[Era, int] = {}

    async def __aenter__(self) -> "Upstreams":
        for era in ERAS if self._transport == "http" else ():
            port = self.ports[era] = free_port()
            command = [*self.command(era, 0), "--port", str(port), "--servers", str(self.servers)]
            started = await Started.start(command, self._folder)
            self._started.append(started)
            await listening(port, started)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(started.stop() for started in self._started))

    def command(self, era: Era, number: int) -> list[str]:
        options = [
            "--era",
            era,
            "--tools",
            str(self.tools),
            "--id",
            str(number),
            *self.extra.get(number, ()),
        ]
        return [sys.executable, "-I", "-S", UPSTREAM, *options]

    def entries(self, era: Era, count: int) -> dict[str, Json]:
        """As they stand in a config file."""
        return {f"u{number}": self._entry(era, number) for number in range(count)}

    def _entry(self, era: Era, number: int) -> Json:
        if self._transport == "http":
            return {"url": f"http://127.0.0.1:{self.ports[era]}/{number}/mcp"}
        command, *args = self.command(era, number)
        return {"command": command, "args": args}


@dataclass(slots=True)
class Gateway:
    """A system that runs, and a client of it. `process` is None for a direct connection to an HTTP
    upstream."""

    system: System
    era: Era
    client: Client
    process: Started | None
    expected: frozenset[Tool]
    """The tools it has to show, and no others."""
    launch: Launch
    port: int
    names: dict[Tool, str] = field(default_factory=dict[Tool, str])
    """What the gateway calls them."""
    asked: int = 0

    def cpu(self) -> float:
        return self.process.cpu() if self.process is not None else 0.0

    def rss(self) -> float:
        return self.process.rss() if self.process is not None else 0.0

    async def list_tools(self, *, whole: bool = True) -> float:
        """One complete `tools/list`, and the seconds it took; with `whole` exactly the expected
        tools must be there."""
        began = time.perf_counter()
        listed: list[Json] = []
        params: Json = {}
        while True:
            result = await self.client.request("tools/list", params)
            listed += result.get("tools", ())
            if not result.get("nextCursor"):
                break
            params = {"cursor": result["nextCursor"]}
        took = time.perf_counter() - began
        self.names = self._named(listed)
        if whole and (self.names.keys() != self.expected or len(listed) > len(self.expected)):
            raise Refused(f"{len(listed)} tools where {len(self.expected)} were expected")
        return took

    def _named(self, listed: Iterable[Json]) -> dict[Tool, str]:
        found: dict[Tool, str] = {}
        for tool in listed:
            name: str = tool["name"]
            wrapped = (
                self.launch.wrapper.name.search(name) if self.launch.wrapper is not None else None
            )
            if wrapped is not None:
                server = wrapped.group(wrapped.re.groups) if wrapped.re.groups else None
                found.update(
                    (one, name) for one in self.expected if server is None or one[0] == int(server)
                )
            elif native := NATIVE.search(name):
                found[int(native[1]), int(native[2])] = name
        return found

    async def list_until_whole(self) -> None:
        """Some answer with what they have and tell of the rest later."""
        deadline = time.monotonic() + START
        while True:
            await self.list_tools(whole=False)
            if self.names.keys() == self.expected:
                return
            if time.monotonic() > deadline:
                raise Refused(
                    f"{len(self.names)} tools after {START:g} s where {len(self.expected)} were "
                    "expected"
                )
            await asyncio.sleep(0.01)

    async def call(self, tool: Tool, arguments: Json, client: Client | None = None) -> Json:
        name = self.names[tool]
        wrapper = self.launch.wrapper
        if wrapper is not None:
            arguments = {"tool_name": wrapper.tool.format(*tool), wrapper.arguments: arguments}
        return await (client or self.client).request(
            "tools/call", {"name": name, "arguments": arguments}
        )

    def another_client(self) -> Client:
        """One more session of an HTTP front; it is not opened yet."""
        return _http_client(self.launch, self.era, self.port)


def check(result: Mapping[str, Any], expected: str) -> None:
    content = result.get("content")
    if result.get("isError") or content != [{"type": "text", "text": expected}]:
        raise Refused(f"a wrong answer: {str(dict(result))[:300]}")


@asynccontextmanager
async def running(
    system: System,
    era: Era,
    pair: Pair,
    upstreams: Upstreams,
    *,
    home: Path | None = None,
    whole: bool = True,
) -> AsyncGenerator[Gateway]:
    """Start a system and bring it to its first complete `tools/list`; on the way out it is ended,
    whatever happened.

    `home` is its folder, with what it kept from an earlier start; without it the start is a first
    one. Without `whole` the client is open when this returns, and nothing was listed.
    """
    async with AsyncExitStack() as stack:
        folder = home or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpx-bench-"))
        )
        servers = upstreams.servers if system.many else 1
        expected = frozenset(
            (server, tool) for server in range(servers) for tool in range(upstreams.tools)
        )
        port, entries = free_port(), upstreams.entries(era, servers)
        launch = _launch(
            system, Order(pair.front, era, entries, folder, port, upstreams.show_all), upstreams
        )
        process: Started | None = None
        if launch.argv:
            pipes = system.build is None or pair.front == "stdio"
            try:
                process = await Started.start(launch.argv, folder, pipes=pipes, env=launch.env)
            except OSError as error:
                raise Broken(f"does not start: {error}") from error
            stack.push_async_callback(process.stop)
            if pipes:
                client: Client = StdioClient(era, process.process)
            else:
                await listening(port, process)
                client = _http_client(launch, era, port)
        else:
            port = upstreams.ports[era]
            client = _http_client(launch, era, port)
        gateway = Gateway(system, era, client, process, expected, launch, port)
        stack.push_async_callback(lambda: gateway.client.close())
        try:
            async with asyncio.timeout(START):
                await _open(gateway)
                if whole:
                    await gateway.list_until_whole()
        except (Refused, OSError, TimeoutError) as error:
            said = process.complaint() if process is not None else ""
            raise Broken(f"does not serve: {error!r} {said}") from error
        yield gateway


def _launch(system: System, order: Order, upstreams: Upstreams) -> Launch:
    if system.build is None:
        return (
            Launch([], "/0/mcp")
            if "url" in order.first
            else Launch(upstreams.command(order.era, 0))
        )
    launch = system.build(order)
    if launch is None:
        raise Unable
    return launch


def _http_client(launch: Launch, era: Era, port: int) -> Client:
    return SseClient(port, launch.path) if launch.sse else HttpClient(era, port, launch.path)


async def _open(gateway: Gateway) -> None:
    """Opens its client. Some listen before they serve: then a new one is tried, as long as the
    process lives."""
    while True:
        try:
            return await gateway.client.open()
        except Refused:
            retried = isinstance(gateway.client, HttpClient | SseClient)
            if not retried or gateway.process is None or not gateway.process.running:
                raise
        await gateway.client.close()
        await asyncio.sleep(0.01)
        gateway.client = gateway.another_client()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def listening(port: int, process: Started) -> None:
    deadline = time.monotonic() + START
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if not process.running or time.monotonic() > deadline:
                raise Broken(f"nothing listens on port {port}: {process.complaint()}") from None
            await asyncio.sleep(0.002)
        else:
            writer.close()
            return
