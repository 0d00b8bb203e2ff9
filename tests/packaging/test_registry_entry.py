"""`packaging/server.json`: what the official MCP registry takes, and what a client makes of it.

The rules are those of the registry's schema of 2025-12-11 and of its validators, as far as they
concern such an entry.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpx import __version__
from mcpx.surfaces import SURFACES

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
BOUND = 60.0

INPUT = {
    "description",
    "isRequired",
    "format",
    "value",
    "isSecret",
    "default",
    "placeholder",
    "choices",
    "variables",
}
ARGUMENT = INPUT | {"type", "name", "isRepeated"}
PACKAGE = {
    "registryType",
    "registryBaseUrl",
    "identifier",
    "version",
    "fileSha256",
    "runtimeHint",
    "runtimeArguments",
    "packageArguments",
    "environmentVariables",
    "transport",
}
SERVER = {
    "$schema",
    "name",
    "title",
    "description",
    "version",
    "packages",
    "remotes",
    "repository",
    "websiteUrl",
}


@pytest.fixture
def entry() -> dict[str, Any]:
    return json.loads((PACKAGING / "server.json").read_text(encoding="utf-8"))


@pytest.fixture
def package(entry: dict[str, Any]) -> dict[str, Any]:
    (only,) = entry["packages"]
    return only


def test_the_entry_is_one_the_registry_takes(entry: dict[str, Any]) -> None:
    """RUN-1"""
    assert (
        entry["$schema"]
        == "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
    )
    assert set(entry) <= SERVER
    assert (
        re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
        and 3 <= len(entry["name"]) <= 200
    )
    assert 1 <= len(entry["description"]) <= 100
    assert 1 <= len(entry["title"]) <= 100


def test_the_package_is_the_one_on_pypi(package: dict[str, Any]) -> None:
    """RUN-1: PyPI is the only index that the registry takes for Python, so none is named."""
    assert set(package) <= PACKAGE - {"registryBaseUrl"}
    assert (package["registryType"], package["identifier"]) == ("pypi", "mcpx-gateway")
    assert (package["runtimeHint"], package["transport"]) == ("uvx", {"type": "stdio"})


def test_every_input_says_what_it_is_for(package: dict[str, Any]) -> None:
    for value in package["packageArguments"]:
        assert (
            set(value) <= ARGUMENT and value["type"] == "named" and value["name"].startswith("--")
        )
    for value in package["environmentVariables"]:
        assert set(value) <= INPUT | {"name"}
        assert value.get("isSecret", False) == ("KEY" in value["name"])
    for value in package["packageArguments"] + package["environmentVariables"]:
        assert value["description"] and value.get("format", "string") in (
            "string",
            "number",
            "boolean",
            "filepath",
        )


def test_every_variable_is_one_that_mcpx_reads(package: dict[str, Any]) -> None:
    manifest = json.loads((PACKAGING / "mcpb" / "manifest.json").read_text(encoding="utf-8"))
    named = {value["name"] for value in package["environmentVariables"]} | set(
        manifest["server"]["mcp_config"]["env"]
    )
    sources = "".join(
        file.read_text(encoding="utf-8") for file in (ROOT / "src" / "mcpx").rglob("*.py")
    )
    assert named and [name for name in sorted(named) if f'"{name}"' not in sources] == []


def choices(package: dict[str, Any], name: str) -> list[str]:
    (found,) = [
        value["choices"]
        for value in package["packageArguments"] + package["environmentVariables"]
        if value["name"] == name
    ]
    return found


def test_every_choice_is_there_and_none_is_missing(package: dict[str, Any]) -> None:
    """SUR-6: the modes that the entry offers are all there are."""
    assert set(choices(package, "--mode")) == set(SURFACES)


def test_each_choice_starts_the_real_program(package: dict[str, Any], tmp_path: Path) -> None:
    """RUN-2: as a client starts it that read the entry, which then goes away."""
    (fixed,) = [value for value in package["packageArguments"] if "value" in value]
    ways = [
        ([fixed["name"], fixed["value"], "--mode", mode], "INFO")
        for mode in choices(package, "--mode")
    ]
    ways += [
        ([fixed["name"], fixed["value"]], level) for level in choices(package, "MCPX_LOG_LEVEL")
    ]
    for words, level in ways:
        env = {
            "HOME": str(tmp_path),
            "MCPX_STATE_DIR": str(tmp_path / "state"),
            "MCPX_LOG_LEVEL": level,
        }
        command = [sys.executable, "-m", "mcpx", *words]
        done = subprocess.run(
            command, input="", env=env, cwd=tmp_path, capture_output=True, text=True, timeout=BOUND
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_no_version_is_written_by_hand(entry: dict[str, Any], package: dict[str, Any]) -> None:
    """`packaging/versions.py` writes them all after a change of `mcpx.__version__`."""
    manifest = json.loads((PACKAGING / "mcpb" / "manifest.json").read_text(encoding="utf-8"))
    assert entry["version"] == package["version"] == manifest["version"] == __version__


def test_a_version_that_is_left_behind_is_told_of_and_mended(tmp_path: Path) -> None:
    for name in ("packaging/versions.py", "packaging/server.json", "packaging/mcpb/manifest.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    source = tmp_path / "src" / "mcpx" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text('__version__ = "7.8.9"\n')
    command = [sys.executable, str(tmp_path / "packaging" / "versions.py")]
    told = subprocess.run([*command, "--check"], capture_output=True, text=True, timeout=BOUND)
    assert told.returncode == 1 and "server.json is not of version 7.8.9" in told.stderr
    assert subprocess.run(command, timeout=BOUND).returncode == 0
    assert subprocess.run([*command, "--check"], timeout=BOUND).returncode == 0
    text = (tmp_path / "packaging" / "server.json").read_text(encoding="utf-8")
    assert text.count('"version": "7.8.9"') == 2
    assert text.replace("7.8.9", __version__) == (PACKAGING / "server.json").read_text(
        encoding="utf-8"
    )


def test_the_readme_claims_the_entry_and_no_other(entry: dict[str, Any]) -> None:
    """The registry looks for this line in the package's description on PyPI, which is the
    README."""
    claimed = re.findall(r"mcp-name: (\S+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(claimed) == {entry["name"]}
