"""RUN-2, RUN-6: `mcpx servers` and `mcpx reload` as functions, and where state is kept."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from behaviour.raw import eventually
from fixtures.gateway import Gateway
from fixtures.process import START, stdio_command
from mcpx.cli.servers import reload, servers
from mcpx.cli.state import state_folder
from mcpx.config import Config, Server, load
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError


@pytest.mark.parametrize(
    ("platform", "environ", "place"),
    [
        ("linux", {"HOME": "/h"}, "/h/.local/state/mcpx"),
        ("linux", {"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/mcpx"),
        ("linux", {"HOME": "/h", "XDG_STATE_HOME": ""}, "/h/.local/state/mcpx"),
        ("linux", {"HOME": "/h", "MCPX_STATE_DIR": ""}, "/h/.local/state/mcpx"),
        ("linux", {"HOME": "/h", "MCPX_STATE_DIR": "/m"}, "/m"),
        ("darwin", {"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/h/Library/Application Support/mcpx"),
        ("win32", {"HOME": "/h", "LOCALAPPDATA": "/l"}, "/l/mcpx"),
        ("win32", {"HOME": "/h"}, "/h/AppData/Local/mcpx"),
    ],
)
def test_state_has_its_place_on_each_platform(
    monkeypatch: pytest.MonkeyPatch, platform: str, environ: dict[str, str], place: str
) -> None:
    """RUN-6."""
    monkeypatch.setattr(sys, "platform", platform)
    assert state_folder(environ) == Path(place)


def test_a_relative_state_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RUN-6."""
    monkeypatch.chdir(tmp_path)
    assert state_folder({"MCPX_STATE_DIR": "state"}) == tmp_path / "state"


def entry(name: str) -> Json:
    command, *args = stdio_command("raw_server.py")
    return {"name": name, "connection": {"type": "stdio", "command": command, "args": args}}


def written(folder: Path, *names: str) -> Path:
    file = folder / "mcpx.json"
    file.write_text(json.dumps({"mcp_servers": [entry(name) for name in names]}))
    file.chmod(0o600)
    return file


def test_servers_connects_and_prints_one_row_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RUN-2: columns line up; a server that is switched off is no failure."""
    file = written(tmp_path, "a", "much-longer-name")
    environ = {"MCPX_STATE_DIR": str(tmp_path / "state")}
    assert servers(file, lambda: load(file, environ), environ, None, False) == 0
    head, *rows, last = capsys.readouterr().out.splitlines()
    assert {row[head.index("STATE") :].split()[0] for row in rows} == {"connected"}
    assert last == "2 servers · mode direct · no gateway is running; connected to look"
    assert not (tmp_path / "state").exists()


def test_servers_of_an_empty_config_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RUN-2."""
    environ = {"MCPX_STATE_DIR": str(tmp_path)}
    assert servers(tmp_path / "x.json", Config, environ, None, True) == 0
    assert json.loads(capsys.readouterr().out) == {
        "running": False,
        "config": str(tmp_path / "x.json"),
        "servers": [],
        "mode": "direct",
        "auto": [],
    }


class Down:
    """A transport that says what a nasty server might."""

    async def open(self, dial: object) -> object:
        raise OSError("never mind")


def test_a_server_that_is_down_gives_exit_code_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RUN-2: and what it says is plain text."""
    server = Server(name="down", connection=Down(), description="\x1b[31m")  # type: ignore[arg-type]
    config = Config(mcp_servers=(server,))
    assert servers(tmp_path / "x.json", lambda: config, {"MCPX_STATE_DIR": str(tmp_path)}, None, False) == 4
    out = capsys.readouterr().out
    assert "disconnected" in out and "\x1b" not in out
    head, row, last = out.splitlines()
    assert "down" not in row[head.index("DETAIL") :], "the row names the server once"
    assert last.startswith("1 server · ")


def test_a_bad_config_is_told_when_nobody_runs_on_it(tmp_path: Path) -> None:
    """RUN-2: as for every command, by `ConfigError`."""
    file = tmp_path / "mcpx.json"
    file.write_text("{")
    with pytest.raises(ConfigError):
        servers(file, lambda: load(file, {}), {"MCPX_STATE_DIR": str(tmp_path)}, None, False)


def test_reload_without_a_gateway_is_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RUN-2."""
    assert reload(tmp_path / "x.json", tmp_path, None) == 3
    assert "no gateway runs on" in capsys.readouterr().err


@pytest.fixture
def watched() -> Iterator[Gateway]:
    """A gateway that takes up its file by itself."""
    config = {"mcp_servers": [entry("a")], "global": {"hot_reload_interval": 0.05}}
    with Gateway(config) as gateway:
        yield gateway


def asked(gateway: Gateway, verb: str) -> str:
    command = [sys.executable, "-m", "mcpx", verb, str(gateway.file)]
    return subprocess.run(command, env=gateway.env, capture_output=True, text=True, timeout=START, check=False).stdout


def test_servers_says_where_clients_find_the_gateway(watched: Gateway) -> None:
    """RUN-2: in the last line of the table."""
    *_, last = asked(watched, "servers").splitlines()
    assert last == f"1 server · mode direct · {watched.url} · running on {watched.file}"


def test_reload_tells_once_of_a_change_that_was_taken_up_before_it_was_asked(watched: Gateway) -> None:
    """CFG-5: who edits and asks at once is not told that nothing changed and left to wonder."""
    assert asked(watched, "reload") == "nothing changed\n"
    watched.file.write_text(json.dumps({**watched.config, "mcp_servers": [entry("a"), entry("b")]}))
    eventually(lambda: "reloaded: 1 started (b), 1 kept" in watched.stderr())
    told = asked(watched, "reload")
    assert re.fullmatch(r"nothing changed \(taken up already at \d\d:\d\d:\d\d: 1 started \(b\), 1 kept\)\n", told)
    assert asked(watched, "reload") == "nothing changed\n"
