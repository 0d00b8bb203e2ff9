"""A new part is one file, or one installed package: config validation, routes and command line take it up as it is."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import mcpx
from behaviour.compact import Visitor
from fixtures.gateway import Gateway

SURFACE = '''
"""Every tool, shouted."""

from typing import ClassVar

from mcpx.surfaces.modes.direct import Direct


class Loud(Direct):
    type: ClassVar[str] = "loud"

    async def list_tools(self, view, call):
        listed = await super().list_tools(view, call)
        return {"tools": [{**tool, "name": tool["name"].upper()} for tool in listed["tools"]]}
'''
TRANSPORT = '''
"""A server that is not there at all."""

from dataclasses import dataclass
from typing import ClassVar

from mcpx.transports.dial import Dial
from mcpx.transports.memory import Memory
from mcpx.wire.peer import Conversation


async def serve(method, params):
    answers = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "p"}},
        "tools/list": {"tools": [{"name": "quack", "inputSchema": {"type": "object"}}]},
    }
    if method == "server/discover":
        from mcpx.model.errors import RpcError

        raise RpcError(-32601, "no such method")
    return answers[method]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pond:
    type: ClassVar[str] = "pond"

    depth: int
    """Metres."""

    async def open(self, dial: Dial) -> Conversation:
        return await Memory(serve=serve).open(dial)
'''
WAYS = ("file", "package")


@pytest.fixture(scope="module", params=WAYS)
def env(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """An environment in which there is one more surface and one more transport."""
    folder = tmp_path_factory.mktemp("parts")
    if request.param == "file":
        package = folder / "mcpx"
        shutil.copytree(Path(mcpx.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "surfaces" / "modes" / "loud.py").write_text(SURFACE)
        (package / "transports" / "pond.py").write_text(TRANSPORT)
    else:
        (folder / "ducks.py").write_text(SURFACE + TRANSPORT.partition('all."""')[2])
        about = folder / "ducks-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ducks\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(
            "[mcpx.surfaces]\nloud = ducks:Loud\n[mcpx.transports]\npond = ducks:Pond\n"
        )
    return {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


CONFIG = {"mcp_servers": [{"name": "duck", "connection": {"type": "pond", "depth": 3}}]}


def test_a_new_part_is_configured_routed_and_shown(env: Mapping[str, str]) -> None:
    """SUR-6: at its own path, and as the default of the command line."""
    with Gateway(CONFIG, "--mode", "loud", env=env) as gateway:
        assert Visitor(gateway.port).names() == ["QUACK"]
        assert Visitor(gateway.port, "direct").names() == ["quack"]
    with Gateway({**CONFIG, "mode": "direct"}, env=env) as gateway:
        assert Visitor(gateway.port, "loud").names() == ["QUACK"]
        assert Visitor(gateway.port, "loud", "modern").names() == ["QUACK"]


def check(tmp_path: Path, env: Mapping[str, str], text: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "mcpx.yaml"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mcpx", "check", str(file)]
    return subprocess.run(
        command, env={**os.environ, **env}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_new_part_is_validated_like_any_other(env: Mapping[str, str], tmp_path: Path) -> None:
    """CFG-4"""
    server = "mcp_servers: [{name: a, connection: {type: pond, "
    good = check(tmp_path, env, f"mode: loud\n{server}depth: 3}}}}]")
    assert good.returncode == 0, good.stderr
    assert "mode loud" in good.stdout
    for wrong, told in (("dept: 3", "did you mean 'depth'?"), ("depth: deep", "expected a number")):
        refused = check(tmp_path, env, f"{server}{wrong}}}}}]")
        assert refused.returncode == 2
        assert told in refused.stderr


def test_without_it_the_same_config_is_refused_with_what_there_is(tmp_path: Path) -> None:
    """CFG-4"""
    refused = check(tmp_path, {}, "mode: loud\nmcp_servers: [{name: a, connection: {type: pond, depth: 3}}]")
    assert refused.returncode == 2
    assert "one of auto, describe, direct, inspect, search" in refused.stderr
    assert "one of http, sse, stdio, websocket" in refused.stderr
