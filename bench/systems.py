"""What is measured, and how each of it is started. To measure another gateway, add a row to `PEERS`."""

import asyncio
import json
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.client import Client, Era, HttpClient, Refused, StdioClient
from bench.processes import UPSTREAM, Started
from bench.upstream import Json

Transport = Literal["stdio", "http"]
RELAYS = Path(__file__).with_name("relays")
START = 30.0
"""Seconds for anything to listen."""


class Broken(Exception):
    """A system that does not start or does not serve: there is nothing to measure."""


Command = Callable[[str], list[str]]
"""Config file -> the command that serves it on stdio; `--port N` is added for HTTP."""


@dataclass(frozen=True, slots=True)
class Pair:
    """How the client reaches the gateway, and how the gateway reaches its upstream."""

    front: Transport
    upstream: Transport

    @property
    def key(self) -> str:
        return f"{self.front}-{self.upstream}"

    def __str__(self) -> str:
        return f"{self.front} ← {self.upstream}"


PAIRS = tuple(Pair(front, upstream) for upstream in ("stdio", "http") for front in ("stdio", "http"))


@dataclass(frozen=True, slots=True)
class System:
    name: str
    era: Era
    """Of the client and of the upstream alike."""
    command: Command | None = None
    """None: the client is connected to the upstream itself."""

    def __str__(self) -> str:
        return f"{self.name} ({self.era})"


def _relay(script: str) -> Command:
    return lambda config: [sys.executable, "-P", str(RELAYS / script), config]


def _mcpx(config: str) -> list[str]:
    return [sys.executable, "-m", "mcpx", config]


PEERS: dict[str, Command | None] = {
    "direct": None,
    "floor": _relay("floor.py"),
    "mcpx": _mcpx,
    "sdk": _relay("sdk.py"),
    "fastmcp": _relay("fastmcp_proxy.py"),
}
BOTH_ERAS = ("direct", "floor", "mcpx")


def systems(names: list[str]) -> list[System]:
    older = [System(name, "older", PEERS[name]) for name in names]
    return older + [System(name, "modern", PEERS[name]) for name in names if name in BOTH_ERAS]


@dataclass(slots=True)
class Gateway:
    """A system that runs, and a client of it. `process` is None for a direct connection to an HTTP upstream."""

    system: System
    client: Client
    process: Started | None
    tools: int
    tool: str = ""
    """The public name of the tool that is called."""
    asked: int = 0

    def cpu(self) -> float:
        return self.process.cpu() if self.process is not None else 0.0

    def rss(self) -> float:
        return self.process.rss() if self.process is not None else 0.0

    async def list_tools(self) -> float:
        """One `tools/list`, and the seconds it took; all tools must be there, and nothing else."""
        began = time.perf_counter()
        result = await self.client.request("tools/list", {})
        took = time.perf_counter() - began
        names = sorted(tool["name"] for tool in result.get("tools", ()))
        if [name.rpartition("_")[2] for name in names] != [f"t{n:04}" for n in range(self.tools)]:
            raise Refused(f"{len(names)} tools where {self.tools} were expected: {names[:3]} …")
        self.tool = names[0]
        return took


class Upstreams:
    """What gateways are given to connect to: a command to start, or a server that runs already."""

    def __init__(self, transport: Transport, folder: Path, tools: int) -> None:
        self.tools = tools
        self._transport = transport
        self._folder = folder
        self._started: list[Started] = []
        self.ports: dict[Era, int] = {}

    async def __aenter__(self) -> "Upstreams":
        eras: tuple[Era, ...] = ("older", "modern")
        for era in eras if self._transport == "http" else ():
            port = self.ports[era] = _free_port()
            started = await Started.start([*self.command(era), "--port", str(port)], self._folder)
            self._started.append(started)
            await _listening(port, started)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(started.stop() for started in self._started))

    def command(self, era: Era) -> list[str]:
        return [sys.executable, "-I", "-S", UPSTREAM, "--tools", str(self.tools), "--era", era]

    def entry(self, era: Era) -> Json:
        """As it stands in a config file."""
        if self._transport == "http":
            return {"url": f"http://127.0.0.1:{self.ports[era]}/mcp"}
        command, *args = self.command(era)
        return {"command": command, "args": args}


@asynccontextmanager
async def running(system: System, pair: Pair, upstreams: Upstreams) -> AsyncGenerator[Gateway]:
    """Start a system and bring it to its first `tools/list`; on the way out it is ended, whatever happened."""
    with tempfile.TemporaryDirectory(prefix="mcpx-bench-") as name:
        folder = Path(name)
        process: Started | None = None
        client: Client | None = None
        try:
            if system.command is None and pair.upstream == "http":
                client = HttpClient(system.era, upstreams.ports[system.era])
            elif system.command is None or pair.front == "stdio":
                process = await Started.start(_command(system, upstreams, folder), folder, pipes=True)
                client = StdioClient(system.era, process.process)
            else:
                port = _free_port()
                process = await Started.start([*_command(system, upstreams, folder), "--port", str(port)], folder)
                await _listening(port, process)
                client = HttpClient(system.era, port)
            gateway = Gateway(system, client, process, upstreams.tools)
            try:
                async with asyncio.timeout(START):
                    await client.open()
                    await gateway.list_tools()
            except (Refused, OSError, TimeoutError) as error:
                said = process.complaint() if process is not None else ""
                raise Broken(f"{system}, {pair}: does not serve: {error!r}\n{said}") from error
            yield gateway
        finally:
            if client is not None:
                await client.close()
            if process is not None:
                await process.stop()


def _command(system: System, upstreams: Upstreams, folder: Path) -> list[str]:
    if system.command is None:
        return upstreams.command(system.era)
    config = folder / "config.json"
    config.write_text(json.dumps({"mcpServers": {"echo": upstreams.entry(system.era)}}), encoding="utf-8")
    return system.command(str(config))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _listening(port: int, process: Started) -> None:
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
