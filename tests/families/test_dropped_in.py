"""A new part is one file, or one installed package: config validation, routes and command line take
it up as it is."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

import mcpx
from behaviour.compact import Visitor, text, told
from kit.gateway import GatewayProcess

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
AUTH = '''
"""A feather in the hat."""

from dataclasses import dataclass, field
from typing import ClassVar

from mcpx.auth.credentials import Credentials, Fixed, Proof, Purpose
from mcpx.model.kinds import Mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class Feather:
    type: ClassVar[str] = "feather"
    per_server: ClassVar[bool] = False

    colour: str = field(repr=False)
    """Of the feather."""

    def mistakes(self):
        if self.colour == "beige":
            yield Mistake("nobody sees that", ("colour",))

    def credentials(self, purpose: Purpose) -> Credentials:
        return Fixed(Proof(headers=(("X-Feather", self.colour),)))
'''
COMMAND = '''
"""A duck that is here."""

from dataclasses import dataclass
from typing import ClassVar

from mcpx.commands.work import Bench, CommandFailed
from mcpx.model.kinds import Mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class Quack:
    type: ClassVar[str] = "quack"

    times: int = 1
    """How often."""

    @property
    def reads_only(self) -> bool:
        return True

    def mistakes(self, parameters):
        if self.times > 9:
            yield Mistake("too loud", ("times",), "9 are enough")

    def prepare(self, bench: Bench):
        return Quacking(self.times)


class Quacking:
    def __init__(self, times):
        self.times, self.calls = times, 0

    async def run(self, arguments, progress):
        self.calls += 1
        if arguments.get("at") == "night":
            raise CommandFailed("ducks sleep at night")
        return {"content": [{"type": "text", "text": "quack " * self.times + str(self.calls)}]}

    async def close(self):
        pass
'''
FORMAT = '''
"""Values in the language of ducks."""

from typing import ClassVar


class Duckish:
    type: ClassVar[str] = "duckish"

    def value(self, value: object) -> str | None:
        return f"quack {len(value)}!" if isinstance(value, dict) else None

    def schema(self, schema: object) -> str | None:
        return "takes bread"
'''
WAYS = ("file", "package")
FILES = {
    "surfaces/modes/loud": (SURFACE, "surfaces", "Loud"),
    "transports/pond": (TRANSPORT, "transports", "Pond"),
    "auth/feather": (AUTH, "auth", "Feather"),
    "commands/quack": (COMMAND, "commands", "Quack"),
    "formats/duckish": (FORMAT, "formats", "Duckish"),
}
"""By their place in the folder: source, family, class."""


def _points() -> list[tuple[str, str, str]]:
    return [(place.rpartition("/")[2], family, cls) for place, (_, family, cls) in FILES.items()]


@pytest.fixture(scope="module", params=WAYS)
def env(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """An environment in which each family has one more part."""
    folder = tmp_path_factory.mktemp("parts")
    if request.param == "file":
        package = folder / "mcpx"
        shutil.copytree(
            Path(mcpx.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
        )
        for place, (source, _, _) in FILES.items():
            (package / f"{place}.py").write_text(source)
    else:
        (folder / "ducks.py").write_text("\n".join(source for source, _, _ in FILES.values()))
        about = folder / "ducks-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ducks\nVersion: 1.0\n")
        points = [f"[mcpx.{family}]\n{name} = ducks:{cls}\n" for name, family, cls in _points()]
        (about / "entry_points.txt").write_text("".join(points))
    return {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


CONFIG = {"mcp_servers": [{"name": "duck", "connection": {"type": "pond", "depth": 3}}]}


def test_a_new_part_is_configured_routed_and_shown(env: Mapping[str, str]) -> None:
    """SUR-6: at its own path, and as the default of the command line."""
    with GatewayProcess(CONFIG, "--mode", "loud", env=env) as gateway:
        assert Visitor(gateway.port).names() == ["QUACK"]
        assert Visitor(gateway.port, "direct").names() == ["quack"]
    with GatewayProcess({**CONFIG, "mode": "direct"}, env=env) as gateway:
        assert Visitor(gateway.port, "loud").names() == ["QUACK"]
        assert Visitor(gateway.port, "loud", "modern").names() == ["QUACK"]


DUCK = {
    "name": "duck",
    "description": "Quacks",
    "type": "quack",
    "quack": {"times": 2},
    "parameters": [{"name": "at", "enum": ["noon", "night"]}],
}


@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_new_command_is_listed_and_called(env: Mapping[str, str], era: str) -> None:
    """SRC-6, RUN-8: its arguments are checked, its failures are tool errors, its answers are kept
    where the config says so (LIF-9)."""
    kept = {**DUCK, "name": "kept", "cache_ttl": 60}
    with GatewayProcess({"commands": [DUCK, kept], "mode": "direct"}, env=env) as gateway:
        visitor = Visitor(gateway.port, "direct", era)
        (tool, _) = visitor.tools()
        assert (tool["name"], tool["annotations"]["readOnlyHint"]) == ("duck", True)
        assert [text(visitor.use("duck", at="noon")) for _ in range(2)] == [
            "quack quack 1",
            "quack quack 2",
        ]
        assert [text(visitor.use("kept", at="noon")) for _ in range(2)] == ["quack quack 1"] * 2
        assert text(visitor.use("kept")) == "quack quack 2"
        slept = visitor.use("kept", at="night")
        assert slept["isError"] and text(slept) == "kept: ducks sleep at night"
        assert visitor.use("duck", at="dawn")["isError"]
        assert (
            text(Visitor(gateway.port, "describe", era).run("commands", "duck")) == "quack quack 3"
        )


def test_a_new_format_is_chosen_for_one_server(env: Mapping[str, str]) -> None:
    """FMT-1, FMT-2, RUN-8: also in the process for large results; what it has no words for is
    JSON."""
    chosen = told("chosen", value_format="duckish", schema_format="duckish")
    limits = {"startup_wait": 15, "first_start_wait": 15, "result_limit": 2_000_000}
    with GatewayProcess(
        {"mcp_servers": [chosen, told("plain")], "global": limits}, env=env
    ) as gateway:
        visitor = Visitor(gateway.port, "describe")

        def shown(server: str, value: object) -> str:
            result = {"content": [{"type": "text", "text": json.dumps(value)}]}
            return text(visitor.run(server, "give", {"result": result}))

        assert shown("chosen", {"a": 1, "b": 2}) == "quack 2!"
        assert shown("plain", {"a": 1, "b": 2}) == '{"a":1,"b":2}'
        assert shown("chosen", [1, 2]) == "[1,2]"
        assert shown("chosen", {"a": ["word"] * 100_000}) == "quack 1!"
        assert "note takes bread" in text(visitor.use("describe", method="chosen.note"))
        assert "note({path: string" in text(visitor.use("describe", method="plain.note"))


class Gatekeeper(ThreadingHTTPServer):
    """An older MCP server that lets nobody in but who wears a red feather."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hall)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/mcp"
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Hall(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, Any]] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hall"},
        },
        "tools/list": {"tools": [{"name": "sit", "inputSchema": {"type": "object"}}]},
    }

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {
            "jsonrpc": "2.0",
            "id": asked.get("id"),
            "result": self.answers.get(asked["method"], {}),
        }
        body = json.dumps(answer).encode()
        modern = asked["method"] == "server/discover"
        status = 400 if modern else 202 if "id" not in asked else 200
        if self.headers.get("X-Feather") != "red":
            status = 403
        body = body if status == 200 else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def do_DELETE(self) -> None:
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        pass


def test_a_new_way_to_prove_oneself_is_used_towards_a_server(env: Mapping[str, str]) -> None:
    """RUN-8"""
    with Gatekeeper() as hall:
        server = {
            "name": "hall",
            "auth": {"ref": "hat"},
            "connection": {"type": "http", "url": hall.url},
        }
        hat = {"name": "hat", "type": "feather", "feather": {"colour": "red"}}
        waits = {"startup_wait": 15, "first_start_wait": 15}
        with GatewayProcess(
            {"mcp_servers": [server], "auth_configs": [hat], "global": waits}, env=env
        ) as gateway:
            assert Visitor(gateway.port, "direct").names() == ["sit"]


def check(tmp_path: Path, env: Mapping[str, str], text: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "mcpx.yaml"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mcpx", "check", str(file)]
    return subprocess.run(
        command,
        env={**os.environ, **env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_new_part_is_validated_like_any_other(env: Mapping[str, str], tmp_path: Path) -> None:
    """CFG-4"""
    server = "mcp_servers: [{name: a, connection: {type: pond, "
    good = check(tmp_path, env, f"mode: loud\n{server}depth: 3}}}}]")
    assert good.returncode == 0, good.stderr
    assert "mode loud" in good.stdout
    for wrong, said in (("dept: 3", "did you mean 'depth'?"), ("depth: deep", "expected a number")):
        refused = check(tmp_path, env, f"{server}{wrong}}}}}]")
        assert refused.returncode == 2
        assert said in refused.stderr


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("commands: [{name: a, type: quack, quack: {time: 2}}]", "did you mean 'times'?"),
        ("commands: [{name: a, type: quak, quack: {times: 2}}]", "did you mean 'quack'?"),
        ("commands: [{name: a, type: quack, quack: {times: 10}}]", "too loud"),
        (
            "auth_configs: [{name: a, type: feather, feather: {color: red}}]",
            "did you mean 'colour'?",
        ),
        ("auth_configs: [{name: a, type: feather, feather: {colour: beige}}]", "nobody sees that"),
        ("global: {value_format: duckis}", "did you mean 'duckish'?"),
        ("global: {value_format: typescript}", "one of duckish, json, toon"),
        ("global: {schema_format: toon}", "one of duckish, json, typescript"),
    ],
)
def test_mistakes_with_a_new_part_are_told_like_any_other(
    wrong: str, said: str, env: Mapping[str, str], tmp_path: Path
) -> None:
    """CFG-4"""
    refused = check(tmp_path, env, wrong)
    assert refused.returncode == 2
    assert said in refused.stderr, refused.stderr


def test_new_parts_are_taken_in_one_config(env: Mapping[str, str], tmp_path: Path) -> None:
    good = check(
        tmp_path,
        env,
        "commands: [{name: a, type: quack, quack: {times: 2}}]\n"
        "auth_configs: [{name: hat, type: feather, feather: {colour: red}}]\n"
        "mcp_servers: [{name: b, auth: {ref: hat}, connection: {type: http, url: "
        "'https://example.org/mcp'}}]\n"
        "global: {value_format: duckish, schema_format: duckish}\n",
    )
    assert good.returncode == 0, good.stderr
    assert "Traceback" not in good.stderr


def test_without_it_the_same_config_is_refused_with_what_there_is(tmp_path: Path) -> None:
    """CFG-4"""
    refused = check(
        tmp_path, {}, "mode: loud\nmcp_servers: [{name: a, connection: {type: pond, depth: 3}}]"
    )
    assert refused.returncode == 2
    assert "one of auto, describe, direct, inspect, search" in refused.stderr
    assert "one of http, sse, stdio, websocket" in refused.stderr
