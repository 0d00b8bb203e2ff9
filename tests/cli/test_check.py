"""CFG-8, SEC-1, RUN-2: `mcpx check` through the real program: it judges as `mcpx` does, and says what has no effect."""

import json
from pathlib import Path
from typing import Any

import pytest

from kit.command import mcpx
from kit.gateway import Gateway
from kit.process import stdio_command

COMMAND, *ARGS = stdio_command("raw_server.py")
SERVER = {"name": "a", "connection": {"type": "stdio", "command": COMMAND, "args": ARGS}}


def written(folder: Path, **config: Any) -> str:
    file = folder / "mcpx.json"
    file.write_text(json.dumps({"mcp_servers": [SERVER], **config}))
    file.chmod(0o600)
    return file.name


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.com"])
def test_check_and_start_refuse_an_open_address_in_the_same_words(tmp_path: Path, host: str) -> None:
    """SEC-1."""
    file = written(tmp_path, server={"host": host})
    checked, started = mcpx(tmp_path, "check", file), mcpx(tmp_path, file)
    assert (checked.returncode, checked.stdout) == (started.returncode, started.stdout) == (2, "")
    assert checked.stderr == started.stderr and host in checked.stderr


def test_check_sees_the_address_and_the_transport_that_the_environment_names(tmp_path: Path) -> None:
    """SEC-1, RUN-2: as the start does."""
    file = written(tmp_path)
    assert mcpx(tmp_path, "check", file, MCPX_HOST="0.0.0.0").returncode == 2
    assert mcpx(tmp_path, "check", file, MCPX_HOST="0.0.0.0", MCPX_TRANSPORT="stdio").returncode == 0
    file = written(tmp_path, server={"host": "0.0.0.0"})
    assert mcpx(tmp_path, "check", file, MCPX_HOST="localhost").returncode == 0


def test_check_takes_an_open_address_that_a_token_protects(tmp_path: Path) -> None:
    """SEC-1."""
    file = written(tmp_path, server={"host": "0.0.0.0", "auth": {"tokens": [{"name": "me", "token": "t"}]}})
    assert mcpx(tmp_path, "check", file).returncode == 0


def test_check_judges_the_address_of_the_store_as_the_start_does(tmp_path: Path) -> None:
    """SCA-2: wherever it stands."""
    file = written(tmp_path, mcp_servers=[SERVER])
    done = mcpx(tmp_path, "check", file, MCPX_STORE="redis://host:99999")
    assert (done.returncode, "MCPX_STORE" in done.stderr) == (2, True)
    assert mcpx(tmp_path, "check", file, MCPX_STORE="redis://host").returncode == 0
    file = written(tmp_path, mcp_servers=[SERVER], server={"store": "http://host"})
    done = mcpx(tmp_path, "check", file)
    assert (done.returncode, "server.store" in done.stderr) == (2, True)


def test_check_and_strict_refuse_what_a_start_only_switches_off(tmp_path: Path) -> None:
    """CFG-3: exit code 2, variable and place; without, the other servers run and the status says why one does not."""
    asks = {"name": "asks", "connection": {"type": "stdio", "command": COMMAND, "env": {"KEY": "${NOT_SET_HERE}"}}}
    config = {"mcp_servers": [SERVER, asks]}
    file = written(tmp_path, **config)
    for done in (
        mcpx(tmp_path, "check", file),
        mcpx(tmp_path, file, "--strict"),
        mcpx(tmp_path, file, MCPX_STRICT="true"),
    ):
        assert (done.returncode, done.stdout) == (2, "")
        assert "error: variable NOT_SET_HERE is not set\n  --> mcpx.json:1:" in done.stderr
    assert "must be one of true, false" in mcpx(tmp_path, file, MCPX_STRICT="maybe").stderr
    with Gateway(config) as gateway:
        assert "server 'asks' is switched off: variable NOT_SET_HERE is not set (" in gateway.stderr()


def test_places_keep_their_whole_path_for_whoever_stands_at_the_root(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("mcp_serverz: []\n")
    assert f"--> {file}:1:1" in mcpx(Path(tmp_path.anchor), "check", str(file), MCPX_STATE_DIR=str(tmp_path)).stderr


def test_check_does_not_look_up_what_is_off(tmp_path: Path) -> None:
    """CFG-3."""
    off = {"name": "off", "enabled": False, "connection": {"type": "stdio", "command": "${NOT_SET_HERE}"}}
    done = mcpx(tmp_path, "check", written(tmp_path, mcp_servers=[SERVER, off]))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("connection", "told"),
    [
        ({"command": "no-such-program"}, "the command 'no-such-program' is not found"),
        ({"command": "./run", "cwd": "sub"}, "the command './run' is not found"),
        ({"command": "sh", "env": {"PATH": "/nowhere"}}, "the command 'sh' is not found"),
        ({"command": "./notes.txt", "cwd": "."}, "the command './notes.txt' cannot be run"),
        ({"command": "sh", "cwd": "nowhere"}, "/nowhere': no such file or directory"),
        (
            {"command": "npx -y @scope/server"},
            "put its arguments into args: command 'npx', args ['-y', '@scope/server']",
        ),
        ({"command": "/bin/sh -c true"}, "put its arguments into args: command '/bin/sh', args ['-c', 'true']"),
        ({"command": "sh 'open"}, "put its arguments into args: command 'sh'"),
    ],
)
def test_check_warns_of_a_command_that_is_not_there(tmp_path: Path, connection: dict[str, Any], told: str) -> None:
    """CFG-8: by the PATH and from the folder the server would get; it may come later, so it is no error."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "notes.txt").write_text("")
    server = {"name": "s", "connection": {"type": "stdio", **connection}}
    done = mcpx(tmp_path, "check", written(tmp_path, mcp_servers=[server]))
    assert done.returncode == 0
    assert done.stderr.startswith("warning: server 's': ") and told in done.stderr
    off = written(tmp_path, mcp_servers=[{**server, "enabled": False}])
    assert mcpx(tmp_path, "check", off).stderr == ""


def test_check_warns_of_the_gateway_in_its_own_file(tmp_path: Path) -> None:
    """CFG-2: by its program, and by the address it would listen on, which the environment may change."""
    own = {"name": "me", "connection": {"type": "http", "url": "http://localhost:8000/mcp"}}
    runs = {"name": "too", "connection": {"type": "stdio", "command": "mcpx", "args": ["mcpx.json"]}}
    file = written(tmp_path, mcp_servers=[SERVER, own, runs])
    done = mcpx(tmp_path, "check", file)
    told = [line.partition(":")[2].partition(",")[0] for line in done.stderr.splitlines()]
    assert told == [" server 'too' is left out", " server 'me' is left out"]
    assert done.stdout.endswith(" · 1 of 1 server enabled · 0 commands\n")
    assert "'me'" not in mcpx(tmp_path, "check", file, MCPX_PORT="8001").stderr
    assert "'me'" not in mcpx(tmp_path, "check", file, MCPX_TRANSPORT="stdio").stderr


def test_check_counts_in_words_people_use(tmp_path: Path) -> None:
    """CFG-8: one server, two servers."""
    command = {"name": "c", "type": "http", "http": {"url": "http://h"}}
    assert mcpx(tmp_path, "check", written(tmp_path)).stdout.endswith(" · 1 of 1 server enabled · 0 commands\n")
    two = [SERVER, {**SERVER, "name": "b"}]
    file = written(tmp_path, mcp_servers=two, commands=[command])
    assert mcpx(tmp_path, "check", file).stdout.endswith(" · 2 of 2 servers enabled · 1 command\n")


def test_help_lists_every_log_level_that_works(tmp_path: Path) -> None:
    """RUN-2."""
    refused = mcpx(tmp_path, "--log-level", "LOUD").stderr
    levels = refused.partition("is not one of ")[2].strip()
    assert "CRITICAL" in levels and levels in " ".join(mcpx(tmp_path, "--help").stdout.split())
