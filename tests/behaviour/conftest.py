"""One gateway before one upstream of each kind, for a module; and a gateway of its own for each
stdio client."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from behaviour.clients import Door, Front
from kit.gateway import Gateway, GatewayProcess
from kit.process import START, Child, stdio_command

Json = dict[str, Any]

NETWORK = ("http_older", "http_modern", "sse_older", "websocket_older", "websocket_modern")
SDK_ROW = "http"
"""The transport whose servers use the official SDK. The others use the standard library, which
starts sooner."""
CHILDREN = ("stdio_older", "stdio_modern")
RAW = ("raw_older", "raw_modern")


class Matrix:
    """All upstreams, the gateway before all of them, and the doors that lead in."""

    def __init__(self, servers: dict[str, Json], gateway: Gateway) -> None:
        self._servers = servers
        self._gateway = gateway

    @contextmanager
    def door(self, front: Front, server: str = "") -> Iterator[Door]:
        """Into the gateway that all share, or on stdio into one that has only this server."""
        if front == "bridge":
            stderr = self._gateway.folder / f"{secrets.token_hex(4)}.txt"
            env = {**self._gateway.env, "MCPX_STANDALONE": "false"}
            yield Door(front, command=self._gateway.stdio_command, env=env, stderr=stderr)
            assert (
                stderr.read_text(encoding="utf-8") == ""
            )  # a gateway of its own would have said something
            return
        if front != "stdio":
            yield Door(front, self.urls(self._gateway.port)[front])
            return
        with GatewayProcess(matrix_config([self._servers[server]]), transport="stdio") as alone:
            stderr = alone.folder / "stderr.txt"
            yield Door(front, command=alone.stdio_command, env=alone.env, stderr=stderr)
            said = stderr.read_text(encoding="utf-8")
            assert "Traceback" not in said, said

    @staticmethod
    def urls(port: int) -> dict[str, str]:
        base = f"127.0.0.1:{port}"
        return {
            "http": f"http://{base}/mcp",
            "sse": f"http://{base}/sse",
            "websocket": f"ws://{base}/ws",
        }


def matrix_config(servers: list[Json]) -> Json:
    return {
        "naming": {"prefix": "always"},
        "global": {"startup_wait": 15, "first_start_wait": 15},
        "mcp_servers": servers,
    }


def _child(name: str, *command: str) -> Json:
    return {
        "name": name,
        "connection": {"type": "stdio", "command": command[0], "args": list(command[1:])},
    }


@contextmanager
def upstreams(folder: Path) -> Iterator[dict[str, Json]]:
    """One server of each kind, as entries of `mcp_servers`. All processes start at the same
    time."""
    with ExitStack() as stack:
        started = {}
        for name in NETWORK:
            transport, era = name.split("_")
            script = "everything.py" if transport == SDK_ROW else "everything_server.py"
            command = stdio_command(script, "--transport", transport, "--era", era)
            started[name] = stack.enter_context(Child(command))
        servers: dict[str, Json] = {}
        for name, child in started.items():
            ready = child.stdout.wait_for(r"^ready (\S+)$", START)
            assert ready is not None, f"{name} did not get ready:\n{child.stderr.text}"
            servers[name] = {
                "name": name,
                "connection": {"type": name.split("_")[0], "url": ready[1]},
            }
        for name in CHILDREN:
            # A client may get a process of its own; the record counts the cancellations of all of
            # them.
            flags = ("--era", name.split("_")[1], "--record", str(folder / name))
            servers[name] = _child(name, *stdio_command("everything_server.py", *flags))
        for name in RAW:
            flags = ("--era", name.split("_")[1], "--big-integers")
            servers[name] = _child(name, *stdio_command("raw_server.py", *flags))
        yield servers


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    with (
        upstreams(tmp_path_factory.mktemp("upstreams")) as servers,
        Gateway(matrix_config(list(servers.values()))) as gateway,
    ):
        yield Matrix(servers, gateway)
        assert "Traceback" not in gateway.stderr(), gateway.stderr()
