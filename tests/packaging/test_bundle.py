"""The `.mcpb` bundle: the official program takes it, and what it describes runs as a client would
run it."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import anyio
import pytest

from behaviour.clients import AnsweringUser, Door, connected
from fixtures.stranger import BOUND, REPOSITORY, clone, printed, stranger
from kit.node import NPM, node, npm_bin
from mcpx import __version__

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv"),
]

RESOLVE = """
import { readFileSync } from "node:fs";
const { getMcpConfigForManifest } = await import(process.argv[1]);
const { folder, userConfig } = JSON.parse(readFileSync(0, "utf8"));
const manifest = JSON.parse(readFileSync(folder + "/manifest.json", "utf8"));
const options = { manifest, extensionPath: folder, systemDirs: {}, userConfig, pathSeparator: "/" };
console.log(JSON.stringify(await getMcpConfigForManifest(options)));
"""
"""What Claude Desktop does with a manifest, by the library that it does it with."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    sources = clone(folder / "sources")
    built = folder / "mcpx.mcpb"
    printed(["bash", str(sources / "scripts" / "mcpb"), str(built)], stranger(folder), folder)
    return built


@pytest.fixture
def unpacked(bundle: Path, tmp_path: Path) -> Path:
    """Unpacked by the official program, in a folder whose name has a space, as Claude Desktop's
    has."""
    folder = tmp_path / "Claude Extensions" / "mcpx"
    mcpb("unpack", str(bundle), str(folder))
    return folder


def mcpb(*words: str) -> str:
    command = [node(), npm_bin("@anthropic-ai/mcpb"), *words]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def configured(folder: Path, user_config: Mapping[str, str]) -> dict[str, Any]:
    library = NPM / "node_modules" / "@anthropic-ai" / "mcpb" / "dist" / "index.js"
    asked = json.dumps({"folder": str(folder), "userConfig": user_config})
    command = [node(), "--input-type=module", "--eval", RESOLVE, str(library)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_official_program_finds_no_fault_with_it(unpacked: Path) -> None:
    assert "Manifest schema validation passes!" in mcpb("validate", str(unpacked / "manifest.json"))
    assert (
        json.loads((unpacked / "manifest.json").read_text(encoding="utf-8"))["version"]
        == __version__
    )


def test_the_bundle_holds_what_it_names_and_nothing_else(bundle: Path) -> None:
    with ZipFile(bundle) as archive:
        names = archive.namelist()
        assert archive.read("LICENSE") == (REPOSITORY / "LICENSE").read_bytes()
        assert archive.read("icon.png").startswith(b"\x89PNG")
    wheel = f"mcpx_gateway-{__version__}-py3-none-any.whl"
    assert names == ["manifest.json", "LICENSE", "icon.png", wheel, "pyproject.toml", "server.py"]


def test_the_same_sources_give_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    """Whenever and wherever it is built."""
    sources, again = clone(tmp_path / "elsewhere"), tmp_path / "again.mcpb"
    printed(["bash", str(sources / "scripts" / "mcpb"), str(again)], stranger(tmp_path), tmp_path)
    assert again.read_bytes() == bundle.read_bytes()


def test_a_wheel_of_another_version_is_refused(tmp_path: Path) -> None:
    wheel, out = tmp_path / "mcpx_gateway-9.9.9-py3-none-any.whl", tmp_path / "out.mcpb"
    wheel.write_bytes(b"")
    command = ["python3", str(REPOSITORY / "packaging" / "mcpb" / "pack.py"), str(wheel), str(out)]
    assert "is not the wheel of version" in printed(command, stranger(tmp_path), tmp_path, 1)
    assert not out.exists()


@pytest.mark.parametrize("chosen", ["nothing", "a config"])
def test_what_the_bundle_describes_runs(chosen: str, unpacked: Path, tmp_path: Path) -> None:
    """RUN-3: with nothing filled in the demo; with a config what that has. The versions are those
    of the tests."""
    home = tmp_path / "home"
    home.mkdir()
    user_config: dict[str, str] = {}
    if chosen == "a config":
        file = home / "my servers.yaml"
        (home / "greet.py").write_text("print('hello from a script')\n")
        file.write_text(
            "commands:\n  - name: greet\n    type: script\n    description: Greets\n"
            "    script: {interpreter: python3, path: greet.py}\n"
        )
        user_config = {"config": str(file)}
    config = configured(unpacked, user_config)
    assert "${" not in json.dumps(config)
    env, stderr = (
        stranger(home, **config["env"], MCPX_STATE_DIR=str(home / "state")),
        tmp_path / "stderr.txt",
    )
    door = Door("stdio", command=[config["command"], *config["args"]], env=env, stderr=stderr)

    async def use() -> None:
        async with connected("raw-older", door, AnsweringUser("ada")) as client:
            tools = [tool["name"] for tool in await client.listed("tools/list")]
            assert tools == (
                ["greet"] if chosen == "a config" else ["demo_echo", "demo_time", "demo_calculate"]
            )
            called = await client.call(
                *(("greet", {}) if chosen == "a config" else ("demo_echo", {"text": "hello"}))
            )
            assert "hello" in called["content"][0]["text"]

    anyio.run(use)
    assert "Traceback" not in stderr.read_text(encoding="utf-8")
    listed = printed(
        ["uv", "pip", "freeze", "--python", str(unpacked / ".venv")], stranger(home), tmp_path
    )
    pins = (unpacked / "pyproject.toml").read_text(encoding="utf-8")
    versions = [line for line in listed.splitlines() if "==" in line]  # not our own wheel
    assert len(versions) > 10 and [line for line in versions if f'"{line}' not in pins] == []
