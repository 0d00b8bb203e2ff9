"""A config with a server that has one of each, with and without a gateway that runs: commands
answer alike."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kit.command import run_command, run_process
from kit.gateway import LISTENS, measured
from kit.process import START, Child, stdio_command

Json = dict[str, Any]


def using(name: str, *args: str, **keys: Any) -> Json:
    command, *words = stdio_command("using_server.py", *args)
    return {
        "name": name,
        "connection": {"type": "stdio", "command": command, "args": ["-I", "-S", *words]},
        **keys,
    }


@dataclass
class Home:
    """A folder with a config, and all that mcpx would keep elsewhere."""

    folder: Path
    file: Path = field(init=False)
    environ: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.file = self.folder / "config.json"
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MCPX_", "XDG_"))
        }
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        self.environ = {
            **kept,
            "HOME": str(home),
            "MCPX_STATE_DIR": str(self.folder / "state"),
            "NO_COLOR": "",
        }

    def write(self, *servers: Json, **keys: Any) -> None:
        self.file.write_text(json.dumps({"mcp_servers": list(servers), **keys}), encoding="utf-8")
        self.file.chmod(0o600)

    def run(
        self, *words: str, stdin: str = "", environ: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        return run_command(words, self.folder, {**self.environ, **(environ or {})}, stdin)

    def run_process(
        self, *words: str, stdin: str = "", environ: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        return run_process(
            words, self.folder, {**self.environ, **(environ or {})}, stdin, before=measured()
        )

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    def record(self, name: str = "record") -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def forget(self) -> None:
        """What its servers have recorded for others."""
        for name in ("record", "other"):
            (self.folder / name).unlink(missing_ok=True)

    def gateway(self, *words: str) -> Child:
        command = [
            sys.executable,
            *measured(),
            "-m",
            "mcpx",
            str(self.file),
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            *words,
        ]
        child = Child(command, self.environ, self.folder).__enter__()
        assert child.stderr.wait_for(LISTENS, START) is not None, child.stderr.text
        return child


def three_servers(folder: Path) -> Home:
    made = Home(folder)
    record = str(folder / "record")
    other = str(folder / "other")
    down = {"type": "stdio", "command": "/bin/sh", "args": ["-c", "echo 'no API key' >&2; exit 3"]}
    made.write(
        using("one", "--record", record, "--says", "one is here"),
        using("two", "--record", other),
        {"name": "down", "connection": down},
    )
    return made


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return three_servers(tmp_path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """With a gateway that all tests of a module use: none of them changes its config."""
    made = three_servers(tmp_path_factory.mktemp("running"))
    child = made.gateway()
    try:
        yield made
    finally:
        child.end()


@pytest.fixture(params=["alone", "running"])
def either(request: pytest.FixtureRequest) -> Home:
    """With and without a gateway that runs."""
    if request.param == "alone":
        return request.getfixturevalue("home")
    shared: Home = request.getfixturevalue("running")
    shared.forget()
    return shared
