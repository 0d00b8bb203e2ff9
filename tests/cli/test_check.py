"""CFG-8, SEC-1, RUN-2: `mcpx check` through the real program: it judges as `mcpx` does, and says
what has no effect."""

import json
from pathlib import Path
from typing import Any

import pytest

from kit.admin_api import AdminApi
from kit.client import Session
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
def test_check_and_start_refuse_an_open_address_in_the_same_words(
    tmp_path: Path, host: str
) -> None:
    """SEC-1."""
    file = written(tmp_path, server={"host": host})
    checked, started = mcpx(tmp_path, "check", file), mcpx(tmp_path, file)
    assert (checked.returncode, checked.stdout) == (started.returncode, started.stdout) == (2, "")
    assert checked.stderr == started.stderr and host in checked.stderr


def test_check_sees_the_address_and_the_transport_that_the_environment_names(
    tmp_path: Path,
) -> None:
    """SEC-1, RUN-2: as the start does."""
    file = written(tmp_path)
    assert mcpx(tmp_path, "check", file, MCPX_HOST="0.0.0.0").returncode == 2
    assert (
        mcpx(tmp_path, "check", file, MCPX_HOST="0.0.0.0", MCPX_TRANSPORT="stdio").returncode == 0
    )
    file = written(tmp_path, server={"host": "0.0.0.0"})
    assert mcpx(tmp_path, "check", file, MCPX_HOST="localhost").returncode == 0


def test_check_takes_an_open_address_that_a_token_protects(tmp_path: Path) -> None:
    """SEC-1."""
    file = written(
        tmp_path, server={"host": "0.0.0.0", "auth": {"tokens": [{"name": "me", "token": "t"}]}}
    )
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


ASKS = {
    "name": "asks",
    "connection": {"type": "stdio", "command": COMMAND, "env": {"KEY": "${NOT_SET_HERE}"}},
}
CALLS = {"name": "calls", "type": "http", "http": {"url": "http://h/${NOT_SET_HERE}"}}
PRIVATE = {"auth": {"type": "bearer", "tokens": [{"name": "me", "token": "${NOT_SET_HERE}"}]}}
UNSET: dict[str, tuple[dict[str, Any], str | None]] = {
    "a server": ({"mcp_servers": [SERVER, ASKS]}, "asks"),
    "a command": ({"mcp_servers": [SERVER], "commands": [CALLS]}, "calls"),
    "the tokens of clients": ({"mcp_servers": [SERVER], "server": PRIVATE}, None),
    "the global section": (
        {"mcp_servers": [SERVER], "global": {"log_level": "${NOT_SET_HERE}"}},
        None,
    ),
    "the policy": ({"mcp_servers": [SERVER], "policy": {"default": "${NOT_SET_HERE}"}}, None),
}


@pytest.mark.parametrize(("config", "disabled"), UNSET.values(), ids=UNSET)
def test_check_doctor_serve_and_admin_agree_about_an_unset_variable(
    tmp_path: Path, config: dict[str, Any], disabled: str | None
) -> None:
    """CFG-3: the variable disables its server or command. Elsewhere, and with --strict, it is an
    error."""
    file = written(tmp_path, **config)
    for words in (["check", file, "--strict"], [file, "--strict"]):
        done = mcpx(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "error: variable NOT_SET_HERE is not set\n  --> mcpx.json:1:" in done.stderr
    for words in (["check", file], [file]):
        assert mcpx(tmp_path, *words, MCPX_STRICT="true").returncode == 2
    checked = mcpx(tmp_path, "check", file, "--json")
    examined = json.loads(
        mcpx(tmp_path, "doctor", "--config", file, "--json", MCPX_PORT="0").stdout
    )["findings"]
    level = next(each["level"] for each in examined if "NOT_SET_HERE is not set" in each["what"])
    with Gateway({"mcp_servers": [SERVER]}, admin=True) as gateway:
        planned = AdminApi(gateway).post("/api/config/plan", {"text": json.dumps(config)})
        judged = AdminApi(gateway).post("/api/config/validate", {"text": json.dumps(config)})
    assert judged["ok"] is planned["ok"] is (disabled is not None)
    if disabled is None:
        assert (checked.returncode, level) == (2, "error")
        assert mcpx(tmp_path, file).returncode == 2
        return
    with Gateway(config) as gateway:
        started = gateway.stderr()
    (warned,) = json.loads(checked.stdout)["warnings"]
    drafts = [each["message"] for told in (planned, judged) for each in told["problems"]]
    for text in (warned, started, *drafts):
        assert f"{disabled!r} is switched off: variable NOT_SET_HERE is not set (" in text
    assert (checked.returncode, level, len(drafts)) == (0, "warning", 2)


def test_a_strict_gateway_refuses_a_draft_with_an_unset_variable(tmp_path: Path) -> None:
    """CFG-3."""
    with Gateway({"mcp_servers": [SERVER]}, "--strict", admin=True) as gateway:
        draft = {"text": json.dumps({"mcp_servers": [SERVER, ASKS]})}
        assert not AdminApi(gateway).post("/api/config/plan", draft)["ok"]


def test_check_says_which_entries_are_disabled(tmp_path: Path) -> None:
    """CFG-3."""
    file = written(tmp_path, mcp_servers=[SERVER, ASKS])
    rows = json.loads(mcpx(tmp_path, "check", file, "--json").stdout)["servers"]
    assert [(row["name"], row["enabled"]) for row in rows] == [("a", True), ("asks", False)]
    assert rows[0]["last_error"] is None and rows[1]["last_error"].startswith(
        "variable NOT_SET_HERE is not set ("
    )
    assert "must be one of true, false" in mcpx(tmp_path, file, MCPX_STRICT="maybe").stderr


def test_places_keep_their_whole_path_for_whoever_stands_at_the_root(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("mcp_serverz: []\n")
    assert (
        f"--> {file}:1:1"
        in mcpx(Path(tmp_path.anchor), "check", str(file), MCPX_STATE_DIR=str(tmp_path)).stderr
    )


def test_check_does_not_look_up_what_is_off(tmp_path: Path) -> None:
    """CFG-3."""
    off = {
        "name": "off",
        "enabled": False,
        "connection": {"type": "stdio", "command": "${NOT_SET_HERE}"},
    }
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
        (
            {"command": "/bin/sh -c true"},
            "put its arguments into args: command '/bin/sh', args ['-c', 'true']",
        ),
        ({"command": "sh 'open"}, "put its arguments into args: command 'sh'"),
    ],
)
def test_check_warns_of_a_command_that_is_not_there(
    tmp_path: Path, connection: dict[str, Any], told: str
) -> None:
    """CFG-8: by the PATH and from the folder the server would get; it may come later, so it is no
    error."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "notes.txt").write_text("")
    server = {"name": "s", "connection": {"type": "stdio", **connection}}
    done = mcpx(tmp_path, "check", written(tmp_path, mcp_servers=[server]))
    assert done.returncode == 0
    assert done.stderr.startswith("warning: server 's': ") and told in done.stderr
    off = written(tmp_path, mcp_servers=[{**server, "enabled": False}])
    assert mcpx(tmp_path, "check", off).stderr == ""


def test_check_warns_of_the_gateway_in_its_own_file(tmp_path: Path) -> None:
    """CFG-2: by its program, and by the address it would listen on, which the environment may
    change."""
    own = {"name": "me", "connection": {"type": "http", "url": "http://localhost:8000/mcp"}}
    runs = {
        "name": "too",
        "connection": {"type": "stdio", "command": "mcpx", "args": ["mcpx.json"]},
    }
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
    assert mcpx(tmp_path, "check", written(tmp_path)).stdout.endswith(
        " · 1 of 1 server enabled · 0 commands\n"
    )
    two = [SERVER, {**SERVER, "name": "b"}]
    file = written(tmp_path, mcp_servers=two, commands=[command])
    assert mcpx(tmp_path, "check", file).stdout.endswith(" · 2 of 2 servers enabled · 1 command\n")


def test_help_lists_every_log_level_that_works(tmp_path: Path) -> None:
    """RUN-2."""
    refused = mcpx(tmp_path, "--log-level", "LOUD").stderr
    levels = refused.partition("is not one of ")[2].strip()
    assert "CRITICAL" in levels and levels in " ".join(mcpx(tmp_path, "--help").stdout.split())


def test_check_warns_of_a_command_that_clients_know_by_another_name(tmp_path: Path) -> None:
    """NAM-5: not every client takes every character."""
    commands = [
        {"name": name, "type": "http", "http": {"url": "http://h"}}
        for name in ("my cool tool", "fine.tool-1")
    ]
    file = written(tmp_path, commands=commands)
    (warning,) = json.loads(mcpx(tmp_path, "check", file, "--json").stdout)["warnings"]
    with Gateway({"commands": commands}) as gateway:
        shown = {
            tool["name"] for tool in Session(gateway.port).request("tools/list")["result"]["tools"]
        }
    assert (
        warning.startswith("command 'my cool tool' is named 'my_cool_tool_")
        and "fine.tool-1" in shown
    )
    assert warning.split("'")[3] in shown
