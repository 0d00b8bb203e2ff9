"""What is measured, and how each of it is started. The peers that have to be installed first are in
`peers`."""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.client import Era
from bench.upstream import Json

Transport = Literal["stdio", "http"]
ERAS: tuple[Era, ...] = ("older", "modern")
RELAYS = Path(__file__).with_name("relays")


@dataclass(frozen=True, slots=True)
class Pair:
    """How the client reaches the gateway, and how the gateway reaches its upstreams."""

    front: Transport
    upstream: Transport

    @property
    def key(self) -> str:
        return f"{self.front}-{self.upstream}"

    def __str__(self) -> str:
        return f"{self.front} ← {self.upstream}"


PAIRS = tuple(
    Pair(front, upstream) for upstream in ("stdio", "http") for front in ("stdio", "http")
)


@dataclass(frozen=True, slots=True)
class Order:
    """What a system is to serve."""

    front: Transport
    era: Era
    servers: Mapping[str, Json]
    """By name, each as it stands in an `mcpServers` map: `command` and `args`, or `url`."""
    folder: Path
    """Its own, for files."""
    port: int
    """For a front that is HTTP."""
    show_all: bool = False
    """It has to list every tool, however many they are."""

    @property
    def first(self) -> Json:
        return next(iter(self.servers.values()))

    def config(self, **more: Any) -> str:
        """The file with all servers, and what else each of them needs."""
        file = self.folder / "config.json"
        servers = {name: {**server, **more} for name, server in self.servers.items()}
        file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        return str(file)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """Tools that are not shown but called through another one."""

    name: re.Pattern[str]
    """What that one is called; the group is the number of the server it is for, if it is not for
    all."""
    tool: str
    """What it calls tool {1} of server {0}."""
    arguments: str
    """The field their arguments go into."""


@dataclass(frozen=True, slots=True)
class Launch:
    argv: Sequence[str]
    path: str = "/mcp"
    """Where its HTTP endpoint is."""
    sse: bool = False
    """It has only the HTTP+SSE of 2024-11-05."""
    wrapper: Wrapper | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])


Build = Callable[[Order], Launch | None]
"""None: this system cannot do that."""


@dataclass(frozen=True, slots=True)
class System:
    name: str
    build: Build | None = None
    """None: the client is connected to the upstream itself."""
    eras: tuple[Era, ...] = ("older",)
    """Of the client and of the upstream alike."""
    many: bool = True
    """Whether it puts many upstreams behind one endpoint; what cannot is measured with one."""
    whole: bool = True
    """Whether large answers reach the client as they are; it is measured with small calls only
    where they do not."""
    lacks: Callable[[], str] = lambda: ""
    """Why it cannot be measured here; empty: it can."""


def _relay(script: str, *, only_http: bool = False) -> Build:
    def build(order: Order) -> Launch | None:
        if only_http and order.front == "stdio":
            return None
        command = [sys.executable, "-P", str(RELAYS / script), order.config(), "--era", order.era]
        return Launch(command if order.front == "stdio" else [*command, "--port", str(order.port)])

    return build


def _mcpx(order: Order) -> Launch:
    """With its defaults, of which one would replace a list that is too long for a model."""
    return Launch(_mcpx_command(order, *(("--mode", "direct") if order.show_all else ())))


def _mcpx_search(order: Order) -> Launch:
    wrapper = Wrapper(re.compile("^mcp_execute_tool$"), "u{0}_s{0}t{1}", "arguments")
    return Launch(_mcpx_command(order, "--mode", "search"), wrapper=wrapper)


def _mcpx_command(order: Order, *options: str) -> list[str]:
    command = [sys.executable, "-m", "mcpx", order.config(), *options]
    return command if order.front == "stdio" else [*command, "--port", str(order.port)]


DIRECT = System("direct", None, ERAS, many=False)
FLOOR = System("floor", _relay("floor.py"), ERAS)
STARLETTE = System("starlette", _relay("starlette_floor.py", only_http=True), ERAS)
MCPX = System("mcpx", _mcpx, ERAS)
MCPX_SEARCH = System("mcpx-search", _mcpx_search, ERAS, whole=False)
SDK = System("sdk", _relay("sdk.py"), ERAS)
OWN = (DIRECT, FLOOR, STARLETTE, MCPX, MCPX_SEARCH, SDK)
"""What needs nothing but this repository."""
