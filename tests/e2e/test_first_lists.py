"""The first list of client libraries that support requests of servers: with and without mcpx
(LIF-1, PRO-3)."""

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest

from kit.gateway import GatewayProcess
from kit.node import NPM, node, npm_bin
from kit.process import FIXTURES, START

Json = dict[str, Any]

CLIENTS = FIXTURES / "first_list"
LIBRARIES: dict[str, Sequence[str]] = {
    "python": [sys.executable, str(CLIENTS / "python_sdk.py")],
    "fastmcp": [sys.executable, str(CLIENTS / "fastmcp_client.py")],
    "typescript": [node(), str(CLIENTS / "typescript_sdk.mjs"), str(NPM / "node_modules")],
}
SERVER = [node(), npm_bin("server-everything"), "stdio"]
SLOW_SERVER = ["sh", "-c", 'sleep 0.7; exec "$0" "$@"', *SERVER]
"""Starts as slowly as a program under npx: longer than `startup_wait`."""


def listed(
    library: str, era: str, target: Sequence[str], env: dict[str, str] | None = None
) -> Json:
    """The tools of the first list by name, and the result of a call that needs sampling."""
    program = [*LIBRARIES[library], era, *target]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=START)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for tool in seen["tools"].values():
        tool.pop("_meta", None)  # mcpx adds the name of the server.
        tool.pop(
            "execution", None
        )  # Revision 2026-07-28 does not have this field, so clients remove it.
    return {"tools": seen["tools"], "content": seen["result"]["content"]}


def through_mcpx(library: str, era: str, front: Literal["http", "stdio"]) -> Json:
    """The same over a gateway that has never started the server."""
    entry = {
        "name": "everything",
        "connection": {"type": "stdio", "command": SLOW_SERVER[0], "args": SLOW_SERVER[1:]},
    }
    # A separate process: limits of a process that starts servers apply to programs that the test
    # starts meanwhile.
    config = {"mcp_servers": [entry], "global": {"first_start_wait": START}}
    with GatewayProcess(config, transport=front) as gateway:
        if front == "http":
            return listed(library, era, [gateway.url])
        return listed(library, era, gateway.stdio_command, gateway.env)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_sees_in_its_first_list_what_it_sees_without_mcpx(library: str) -> None:
    """LIF-1, PRO-3: over HTTP and stdio, in both eras; and it can call a tool that asks for
    sampling."""
    ways: list[tuple[str, Literal["http", "stdio"]]]
    ways = [("older", "http"), ("older", "stdio"), ("modern", "http"), ("modern", "stdio")]
    with ThreadPoolExecutor() as pool:
        runs = {way: pool.submit(through_mcpx, library, *way) for way in ways}
        direct = listed(library, "older", SERVER)
        assert len(direct["tools"]) == 17
        for way, run in runs.items():
            assert run.result() == direct, way
