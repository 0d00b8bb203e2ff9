"""mcpx as a stranger gets it: a wheel in a fresh environment, an empty home, nothing else installed (RUN-1, RUN-3)."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import anyio
import pytest

from behaviour.clients import Door, Kind, Person, connected
from mcpx import __version__

REPOSITORY = Path(__file__).resolve().parents[2]
BOUND = 120.0
"""Seconds for one command of uv, which may have to fetch what is not in its cache."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")]


def run(command: Sequence[str], home: Path, cwd: Path) -> str:
    """What a command prints, on both streams."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=stranger(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def stranger(home: Path) -> dict[str, str]:
    """The environment of somebody who has uv and nothing of ours. uv's cache stays, to spare the network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MCPX_", "PYTHON", "VIRTUAL_"))}
    return {**kept, "HOME": str(home), "UV_CACHE_DIR": uv_cache()} | {
        name: str(home / folder)
        for name, folder in (
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_STATE_HOME", ".local/state"),
            ("XDG_DATA_HOME", ".local/share"),
        )
    }


def uv_cache() -> str:
    return subprocess.run(
        ["uv", "cache", "dir"], capture_output=True, text=True, check=True, timeout=BOUND
    ).stdout.strip()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as for a release; uv's own configuration counts."""
    out = tmp_path_factory.mktemp("wheel")
    command = ["uv", "build", "--wheel", "--out-dir", str(out), str(REPOSITORY)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stdout
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment with nothing but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    run(["uv", "venv", "--no-project", str(folder)], home, home)
    run(["uv", "pip", "install", "--python", str(folder), str(wheel)], home, home)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """RUN-1: the distribution is `mcpx-gateway`, the package and the command are `mcpx`."""
    assert wheel.name.startswith(f"mcpx_gateway-{__version__}-py3-none-any")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith("METADATA"))
        described = archive.read(metadata).decode()
    assert {name.split("/")[0] for name in names} == {"mcpx", f"mcpx_gateway-{__version__}.dist-info"}
    assert "Name: mcpx-gateway\n" in described
    assert [name for name in names if "__pycache__" in name] == []


def test_only_what_runs_is_installed(installed: Path, home: Path) -> None:
    """RUN-1: neither the SDK nor any test tool comes along, and of uvicorn nothing but itself."""
    listed = run(["uv", "pip", "list", "--python", str(installed.parent), "--format", "freeze"], home, home)
    names = {line.split("==")[0].split(" ")[0].lower() for line in listed.splitlines() if "==" in line or "@" in line}
    assert "mcpx-gateway" in names
    assert names & {"mcp", "httpx", "watchfiles", "jinja2", "python-dotenv", "pytest", "playwright"} == set()


def test_it_tells_its_version_as_a_command_and_as_a_module(installed: Path, home: Path, tmp_path: Path) -> None:
    """RUN-1"""
    expected = f"mcpx {__version__}\n"
    assert run([str(installed / "mcpx"), "--version"], home, tmp_path) == expected
    assert run([str(installed / "python"), "-m", "mcpx", "--version"], home, tmp_path) == expected


@pytest.mark.parametrize("kind", ["raw-older", "raw-modern"])
def test_the_first_command_serves_the_demo_on_stdio(
    kind: Kind, installed: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RUN-1, RUN-3: `python -m mcpx`, started by a client, without any config; nothing is written."""
    work, stderr = tmp_path / "work", tmp_path / "stderr.txt"
    work.mkdir()
    monkeypatch.chdir(work)
    command = [str(installed / "python"), "-I", "-m", "mcpx"]
    door = Door("stdio", command=command, env=stranger(home), stderr=stderr)

    async def use() -> None:
        async with connected(kind, door, Person("ada")) as client:
            tools = [tool["name"] for tool in await client.listed("tools/list")]
            assert {"demo_echo", "demo_time", "demo_calculate"} <= set(tools)
            result = await client.call("demo_calculate", {"expression": "6 * 7"})
            assert "42" in result["content"][0]["text"]

    anyio.run(use)
    assert "Traceback" not in stderr.read_text(encoding="utf-8")
    assert list(work.iterdir()) == []
    assert [path for path in home.rglob("*") if "mcpx" in path.name] == []


def test_uvx_runs_it_from_the_folder(home: Path, tmp_path: Path) -> None:
    """RUN-1"""
    printed = run(["uvx", "--quiet", "--from", str(REPOSITORY), "mcpx", "--version"], home, tmp_path)
    assert printed == f"mcpx {__version__}\n"
