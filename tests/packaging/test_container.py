"""The Containerfile, without a container engine: its steps in a folder, its command with its
environment.

Not tried here: the base image, and what an engine makes of the instructions.
"""

import fnmatch
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from fixtures.stranger import REPOSITORY, printed, stranger, tracked
from kit.gateway import STOP_SECONDS
from kit.node import node, npx_command
from kit.process import START, Child
from kit.servers import raw_server

NOBODY_LISTENS = 1
TOKEN = "a-token-of-thirty-two-characters"
GUARDED = (
    f"server:\n  auth: {{type: bearer, tokens: [{{name: me, token: {TOKEN}}}]}}\nmcp_servers: []\n"
)


def instructions() -> list[tuple[str, str]]:
    """Every instruction and what follows it, lines joined."""
    text = (REPOSITORY / "Containerfile").read_text(encoding="utf-8")
    joined = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", text))
    return [
        (word, rest)
        for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)
    ]


def last(word: str) -> str:
    return [rest for name, rest in instructions() if name == word][-1]


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in last("ENV").split())


def copied() -> list[str]:
    """The files that the build takes from the folder."""
    taken = [
        rest.split()[:-1]
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
    ]
    return [name for names in taken for name in names]


def test_what_is_copied_is_what_is_let_in() -> None:
    """Nothing else of the folder, secrets and node_modules least of all, reaches the builder."""
    lines = (REPOSITORY / ".containerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert sorted(rule[1:] for rule in rules if rule.startswith("!")) == sorted(copied())
    assert [name for name in copied() if not (REPOSITORY / name).exists()] == []
    assert not any(fnmatch.fnmatch(name, "*.env*") for name in copied())


def test_it_does_not_run_as_root() -> None:
    assert int(last("USER")) > 0
    words = [word for word, _ in instructions()]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert words.count("FROM") == 2, "what builds is not in what runs"


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    """The image's environment, its volumes being folders of this test."""
    env = environment()
    volumes = json.loads(last("VOLUME"))
    assert volumes == [env["MCPX_CONFIG"], env["MCPX_STATE_DIR"], env["XDG_CACHE_HOME"]]
    for volume in volumes:
        (tmp_path / volume.lstrip("/")).mkdir()
    moved = {
        name: f"{tmp_path}{value}" if value.startswith("/") else value
        for name, value in env.items()
    }
    return {**moved, "HOME": str(tmp_path), "PATH": os.environ["PATH"], "MCPX_PORT": "0"}


def command() -> list[str]:
    words = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    assert words[0] == "mcpx"
    return [sys.executable, "-m", *words]


def test_without_auth_it_says_why_it_does_not_start(
    folders: dict[str, str], tmp_path: Path
) -> None:
    """SEC-1: an image binds every address; that is refused until a token protects it."""
    (tmp_path / "config" / "mcpx.yaml").write_text("mcp_servers: []\n")
    told = printed(command(), folders, tmp_path, 2)
    assert "no token protects" in told and "server.auth" in told


def test_without_a_config_it_says_where_one_belongs(
    folders: dict[str, str], tmp_path: Path
) -> None:
    assert "holds no config file" in printed(command(), folders, tmp_path, 2)


def test_it_serves_and_its_health_check_tells_so(folders: dict[str, str], tmp_path: Path) -> None:
    """LIF-8: the check passes while it runs and fails when it does not; the image's signal ends it
    cleanly."""
    (tmp_path / "config" / "mcpx.yaml").write_text(GUARDED)
    (tmp_path / "config" / "mcpx.yaml").chmod(0o600)
    check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert check[0] == "python3" and last("STOPSIGNAL") == "SIGTERM"
    check[0] = sys.executable
    with Child(command(), folders, cwd=tmp_path) as child:
        said = child.stderr.wait_for(r"http://0\.0\.0\.0:(\d+)/mcp", START)
        assert said, child.stderr.text
        well = {**folders, "MCPX_PORT": said[1]}
        printed(check, well, tmp_path)
        child.process.terminate()
        assert child.process.wait(STOP_SECONDS) == 0
    printed(check, well, tmp_path, NOBODY_LISTENS)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")
def test_the_steps_of_the_build_need_nothing_but_what_is_copied(tmp_path: Path) -> None:
    """RUN-1: the wheel is built and installed with the versions that the tests ran with."""
    source, home = tmp_path / "source", tmp_path / "home"
    home.mkdir()
    for name in (name for part in copied() for name in tracked(part)):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, source / name)
    (step,) = [rest for word, rest in instructions() if word == "RUN" and "uv build" in rest]
    script = (
        step.replace("/opt/uv/bin/", "")
        .replace("/dist", f"{tmp_path}/dist")
        .replace("/opt/mcpx", f"{tmp_path}/mcpx")
    )
    done = subprocess.run(
        ["sh", "-euc", script],
        cwd=source,
        env=stranger(home),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    program = str(tmp_path / "mcpx" / "bin" / "mcpx")
    assert printed(
        [program, "--version"], {"PATH": "/usr/bin:/bin", "HOME": str(home)}, home
    ).startswith("mcpx ")
    listed = printed(
        ["uv", "pip", "freeze", "--python", str(tmp_path / "mcpx")], stranger(home), home
    )
    pins = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    versions = [line for line in listed.splitlines() if "==" in line]
    assert len(versions) > 10 and [line for line in versions if f'"{line}' not in pins] == []


def sealed(tmp_path: Path, *writable: str) -> list[str]:
    """A command prefix for a read-only file system, apart from these folders of the test."""
    words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for name in writable:
        words += ["--bind", str(tmp_path / name), str(tmp_path / name)]
    return words


def local_packages(folder: Path) -> dict[str, list[str]]:
    """An npm and a Python package whose program is a small MCP server, and the command lines that
    start them."""
    connection = raw_server("raw")["connection"]
    script = f"#!/bin/sh\nexec {shlex.join([connection['command'], *connection['args']])}\n"
    manifest = {"name": "tiny", "version": "1.0.0", "bin": {"tiny": "tiny.sh"}}
    with tarfile.open(folder / "tiny.tgz", "w:gz") as archive:
        for name, text in (("package.json", json.dumps(manifest)), ("tiny.sh", script)):
            member = tarfile.TarInfo(f"package/{name}")
            member.mode, member.size = 0o755, len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    wheel = folder / "tiny-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny-1.0.0.data/scripts/tiny", script)
        archive.writestr(
            "tiny-1.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0.0\n"
        )
        archive.writestr(
            "tiny-1.0.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny-1.0.0.dist-info/RECORD", "")
    return {
        "node": ["npx", "-y", f"file:{folder / 'tiny.tgz'}"],
        "python": ["uvx", "--from", str(wheel), "tiny"],
    }


@pytest.mark.slow
@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("has_cache", [True, False])
def test_npx_and_uvx_start_with_a_read_only_root_if_the_cache_is_writable(
    folders: dict[str, str], tmp_path: Path, has_cache: bool
) -> None:
    """RUN-1: the volume and the variables of the image suffice. Without them, the error names the
    variables."""
    commands = local_packages(tmp_path)
    connections = {
        name: {"type": "stdio", "command": words[0], "args": words[1:]}
        for name, words in commands.items()
    }
    servers = [{"name": name, "connection": connection} for name, connection in connections.items()]
    file = tmp_path / "config" / "mcpx.json"
    file.write_text(json.dumps({"mcp_servers": servers}))
    programs = tmp_path / "bin"
    home = tmp_path / "home"
    for folder in (programs, home, tmp_path / "tmp"):
        folder.mkdir()
    npx = programs / "npx"
    npx.write_text(f'#!/bin/sh\nexec {shlex.join(npx_command())} "$@"\n')
    npx.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(node()).parent), os.environ["PATH"]])
    environ = {**folders, "HOME": str(home), "PATH": path, "TMPDIR": str(tmp_path / "tmp")}
    writable = ["state", "tmp", "cache"] if has_cache else ["state", "tmp"]
    command = [*sealed(tmp_path, *writable), sys.executable, "-m", "mcpx"]
    if has_cache:
        done = subprocess.run(
            [*command, "tools", "--json"], env=environ, capture_output=True, text=True, timeout=100
        )
        assert {tool["server"] for tool in json.loads(done.stdout)["tools"]} == {
            "node",
            "python",
        }, done.stderr
        return
    for name, variable in (("node", "npm_config_cache"), ("python", "UV_CACHE_DIR")):
        done = subprocess.run(
            [*command, "doctor", name], env=environ, capture_output=True, text=True, timeout=100
        )
        assert "cannot write to its package cache" in done.stdout and variable in done.stdout, (
            done.stdout
        )
