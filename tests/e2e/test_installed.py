"""mcpx as a stranger gets it: built, and installed with an empty home and nothing else (RUN-1,
RUN-3)."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import urllib.request
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import anyio
import pytest

from behaviour.clients import AnsweringUser, Door, Kind, connected
from fixtures.stranger import BOUND, REPOSITORY, clone, printed, stranger, tracked
from kit.gateway import LISTENS, STOP_SECONDS, admin_address
from kit.process import START, Child
from mcpx import __version__

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv"),
]

VERSION = f"mcpx {__version__}\n"
INFO = f"mcpx_gateway-{__version__}.dist-info"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def dist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both distributions, built as for a release: the wheel of the sdist, not of
    the sources."""
    out = tmp_path_factory.mktemp("dist")
    printed(["uv", "build", "--out-dir", str(out), str(sources)], dict(os.environ), out)
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    (built,) = dist.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment with nothing but one distribution and what it
    asks for."""
    base = tmp_path_factory.mktemp("fresh")
    env, folder = stranger(base), base / "venv"
    printed(["uv", "venv", "--no-project", str(folder)], env, base)
    printed(
        [
            "uv",
            "pip",
            "install",
            "--python",
            str(folder),
            str(request.getfixturevalue(request.param)),
        ],
        env,
        base,
    )
    return folder / ("Scripts" if os.name == "nt" else "bin")


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        return HeaderParser().parsestr(archive.read(f"{INFO}/METADATA").decode())


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    """RUN-1: pages, sentences, word lists and the type marker as well as code, byte for byte."""
    assert wheel.name == f"mcpx_gateway-{__version__}-py3-none-any.whl"
    ours = {name.removeprefix("src/"): REPOSITORY / name for name in tracked("src/mcpx")}
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.startswith(f"{INFO}/")}
        assert sorted(packed ^ set(ours)) == []
        assert [name for name in packed if archive.read(name) != ours[name].read_bytes()] == []
        assert archive.read(f"{INFO}/licenses/LICENSE") == (REPOSITORY / "LICENSE").read_bytes()
    assert {"mcpx/py.typed", "mcpx/admin/site/index.html"} <= packed


def test_the_package_says_what_it_is(wheel: Path) -> None:
    """RUN-1: the distribution is `mcpx-gateway`, the package and the command are `mcpx`."""
    told = metadata(wheel)
    assert (told["Name"], told["Version"], told["Requires-Python"]) == (
        "mcpx-gateway",
        __version__,
        ">=3.11",
    )
    assert (
        told["License-Expression"] == "Apache-2.0"
        and told["Description-Content-Type"] == "text/markdown"
    )
    assert 0 < len(told["Summary"]) <= 120
    kinds = set(told.get_all("Classifier", []))
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)} <= kinds
    assert len({kind for kind in kinds if kind.startswith("Operating System ::")}) == 3
    assert told.get_all("Provides-Extra") == ["keyring"]
    assert str(told.get_payload()) == (REPOSITORY / "README.md").read_text(encoding="utf-8")
    with ZipFile(wheel) as archive:
        commands = (
            archive.read(f"{INFO}/entry_points.txt").decode().split("\n[")[0].strip().splitlines()
        )
    assert commands == [
        "[console_scripts]",
        "mcpx = mcpx.cli.main:main",
        "mcpx-gateway = mcpx.cli.main:main",
    ]


def test_the_sdist_holds_what_a_packager_needs(
    sdist: Path, sources: Path, wheel: Path, tmp_path: Path
) -> None:
    """RUN-1: documentation, examples and packaging files too; the same wheel comes of it as of the
    sources."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [name for part in ("src", "docs", "examples", "packaging") for name in tracked(part)]
    assert (
        sorted(
            {*wanted, "LICENSE", "README.md", "CHANGELOG.md", "Containerfile", "pyproject.toml"}
            - names
        )
        == []
    )
    assert [
        name for name in names if re.search(r"node_modules|__pycache__|\.venv|uv\.lock", name)
    ] == []
    printed(
        ["uv", "build", "--wheel", "--out-dir", str(tmp_path), str(sources)],
        dict(os.environ),
        tmp_path,
    )
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_only_what_runs_is_installed(installed: Path, home: Path) -> None:
    """RUN-1: neither the SDK nor any test tool comes along, and no second HTTP server."""
    command = ["uv", "pip", "list", "--python", str(installed.parent), "--format", "freeze"]
    listed = printed(command, stranger(home), home)
    names = {
        line.split("==")[0].split(" ")[0].lower()
        for line in listed.splitlines()
        if "==" in line or "@" in line
    }
    assert "mcpx-gateway" in names
    assert (
        names
        & {
            "mcp",
            "httpx",
            "uvicorn",
            "watchfiles",
            "jinja2",
            "python-dotenv",
            "pytest",
            "playwright",
        }
        == set()
    )


def test_nothing_that_was_installed_knows_where_it_was_built(
    installed: Path, sources: Path
) -> None:
    """RUN-1: no path of the sources, nor of this repository, is left in it."""
    (package,) = installed.parent.rglob("site-packages/mcpx")
    files = [*package.rglob("*"), *(package.parent / INFO).iterdir(), installed / "mcpx"]
    places = [str(place).encode() for place in (REPOSITORY, sources)]
    texts = [file for file in files if file.is_file() and file.suffix not in (".pyc", ".gz")]
    assert len(texts) > 100
    assert [
        file.name for file in texts if any(place in file.read_bytes() for place in places)
    ] == []


def test_every_name_it_goes_by_behaves_the_same(
    installed: Path, home: Path, tmp_path: Path
) -> None:
    """RUN-1: as a command, by the distribution's name and as a module; what it calls itself is
    mcpx."""
    ways = [
        [str(installed / "mcpx")],
        [str(installed / "mcpx-gateway")],
        [str(installed / "python"), "-I", "-m", "mcpx"],
    ]
    env = stranger(home)
    for words, code in ((["--version"], 0), (["--help"], 0), (["--nonsense"], 2), (["chekc"], 2)):
        told = [printed([*way, *words], env, tmp_path, code) for way in ways]
        assert told[0] == told[1] == told[2]
        assert (
            "__main__" not in told[0]
            and "mcpx-gateway" not in told[0]
            and "Traceback" not in told[0]
        )
    assert printed([*ways[0], "--version"], env, tmp_path) == VERSION


def test_a_config_is_checked_where_it_was_installed(
    installed: Path, home: Path, tmp_path: Path
) -> None:
    """CFG-8: what the checks need is inside."""
    file = tmp_path / "mcpx.yaml"
    file.write_text(
        "mcp_servers:\n  - name: one\n    connection: {type: http, url: 'http://127.0.0.1:9/mcp'}\n"
    )
    told = printed([str(installed / "mcpx"), "check", str(file)], stranger(home), tmp_path)
    assert "good · native shape" in told and "1 of 1 server enabled" in told
    file.write_text("mcp_server: []\n")
    assert "did you mean" in printed(
        [str(installed / "mcpx"), "check", str(file)], stranger(home), tmp_path, 2
    )


@pytest.mark.parametrize("kind", ["raw-older", "raw-modern"])
def test_the_first_command_serves_the_demo_on_stdio(
    kind: Kind, installed: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RUN-1, RUN-3: `python -m mcpx`, started by a client, without any config; nothing is
    written."""
    work, stderr = tmp_path / "work", tmp_path / "stderr.txt"
    work.mkdir()
    monkeypatch.chdir(work)
    command = [str(installed / "python"), "-I", "-m", "mcpx"]
    use_the_demo(Door("stdio", command=command, env=stranger(home), stderr=stderr), kind)
    assert "Traceback" not in stderr.read_text(encoding="utf-8")
    assert list(work.iterdir()) == []
    assert [path for path in home.rglob("*") if "mcpx" in path.name] == []


def use_the_demo(door: Door, kind: Kind = "raw-older") -> None:
    async def use() -> None:
        async with connected(kind, door, AnsweringUser("ada")) as client:
            tools = [tool["name"] for tool in await client.listed("tools/list")]
            assert {"demo_echo", "demo_time", "demo_calculate"} <= set(tools)
            result = await client.call("demo_calculate", {"expression": "6 * 7"})
            assert "42" in result["content"][0]["text"]

    anyio.run(use)


def test_the_admin_pages_are_served_where_it_was_installed(
    installed: Path, home: Path, tmp_path: Path
) -> None:
    """ADM-1: the page and all that it loads at first come out of the package."""
    command = [str(installed / "mcpx"), "--transport", "http", "--port", "0", "--admin-port", "0"]
    with Child(
        command, stranger(home, MCPX_STATE_DIR=str(tmp_path / "state")), cwd=tmp_path
    ) as child:
        assert child.stderr.wait_for(LISTENS, START), child.stderr.text
        address = admin_address(child.stderr)
        page = fetched(f"{address}/").decode()
        assert "<title>mcpx</title>" in page
        loaded = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', page)
        site = REPOSITORY / "src" / "mcpx" / "admin" / "site"
        assert len(loaded) > 3
        assert [
            name for name in loaded if fetched(f"{address}/{name}") != (site / name).read_bytes()
        ] == []
        child.process.terminate()
        assert child.process.wait(STOP_SECONDS) == 0


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=START) as answer:
        assert answer.status == 200
        return bytes(answer.read())


def test_uvx_runs_it_from_the_folder(sources: Path, home: Path, tmp_path: Path) -> None:
    """RUN-1: from the sources, in which nothing is written; anew when they are others, as after
    `git pull`."""
    folder = shutil.copytree(sources, tmp_path / "clone")
    committed(folder)
    before = {path.relative_to(folder) for path in folder.rglob("*")}
    command, env = ["uvx", "--quiet", "--from", str(folder), "mcpx"], stranger(home)
    assert printed([*command, "--version"], env, tmp_path) == VERSION
    use_the_demo(Door("stdio", command=command, env=env, stderr=tmp_path / "stderr.txt"))
    assert {path.relative_to(folder) for path in folder.rglob("*")} == before
    pulled = folder / "src" / "mcpx" / "cli" / "main.py"
    pulled.write_text(
        pulled.read_text(encoding="utf-8").replace("def main(", "print('pulled')\n\n\ndef main(", 1)
    )
    committed(folder)
    assert printed([*command, "--version"], env, tmp_path) == f"pulled\n{VERSION}"


def committed(folder: Path) -> None:
    as_somebody = [
        "git",
        "-C",
        str(folder),
        "-c",
        "user.name=ada",
        "-c",
        "user.email=ada@example.com",
    ]
    for words in (
        ["init", "--quiet"],
        ["add", "--all"],
        ["commit", "--quiet", "--message", "a change"],
    ):
        subprocess.run([*as_somebody, *words], check=True, timeout=BOUND)


def test_uvx_runs_it_by_the_name_of_the_distribution(
    wheel: Path, home: Path, tmp_path: Path
) -> None:
    """RUN-1: `uvx mcpx-gateway@…` is what a registry's entry becomes. uv is shown the wheel, which
    no index has."""
    name = f"mcpx-gateway@{__version__}"
    command = ["uvx", "--quiet", "--find-links", str(wheel.parent), name]
    use_the_demo(Door("stdio", command=command, env=stranger(home), stderr=tmp_path / "stderr.txt"))
    assert printed([*command, "--version"], stranger(home), tmp_path) == VERSION


def test_uv_installs_it_as_a_tool_and_removes_it(wheel: Path, home: Path, tmp_path: Path) -> None:
    """RUN-1"""
    env, command = stranger(home), home / ".local" / "bin" / "mcpx"
    printed(["uv", "tool", "install", str(wheel)], env, tmp_path)
    assert printed(["mcpx", "--version"], env, tmp_path) == VERSION
    use_the_demo(Door("stdio", command=[str(command)], env=env, stderr=tmp_path / "stderr.txt"))
    printed(["uv", "tool", "uninstall", "mcpx-gateway"], env, tmp_path)
    assert not os.path.lexists(command)
    assert [path for path in home.rglob("*") if "mcpx" in path.name] == []


def test_pipx_installs_it_and_removes_it(wheel: Path, home: Path, tmp_path: Path) -> None:
    """RUN-1"""
    env, command = stranger(home), home / ".local" / "bin" / "mcpx"
    pipx = ["uvx", "--quiet", "pipx"]
    printed([*pipx, "install", str(wheel)], env, tmp_path)
    assert json.loads(printed([*pipx, "list", "--json"], env, tmp_path))["venvs"].keys() == {
        "mcpx-gateway"
    }
    assert (
        subprocess.run([command, "--version"], env=env, capture_output=True, text=True).stdout
        == VERSION
    )
    use_the_demo(Door("stdio", command=[str(command)], env=env, stderr=tmp_path / "stderr.txt"))
    printed([*pipx, "uninstall", "mcpx-gateway"], env, tmp_path)
    assert not os.path.lexists(command)
