"""RUN-2, RUN-6: `mcpx servers` and `mcpx reload` as functions, and where state is kept."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.command import private_environ, run_command
from kit.gateway import Gateway
from kit.process import stdio_command
from kit.until import wait_until
from mcpx.cli.status import print_table
from mcpx.cli.target import Target
from mcpx.config import Config, Server
from mcpx.model.call import Json
from mcpx.model.state import state_folder


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


def test_a_relative_state_folder_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_servers_connects_and_prints_one_row_each(tmp_path: Path) -> None:
    """RUN-2: columns line up; a server that is switched off is no failure."""
    file = written(tmp_path, "a", "much-longer-name")
    environ = private_environ(tmp_path, MCPX_STATE_DIR=str(tmp_path / "state"))
    ended = run_command(["servers", str(file)], tmp_path, environ)
    assert ended.returncode == 0
    head, *rows, last = ended.stdout.splitlines()
    assert {row[head.index("STATE") :].split()[0] for row in rows} == {"connected"}
    assert last == "2 servers · mode direct · no gateway is running; connected to look"
    assert not (tmp_path / "state").exists()


def test_servers_of_an_empty_config_are_none(tmp_path: Path) -> None:
    """RUN-2."""
    file = written(tmp_path)
    ended = run_command(["servers", str(file), "--json"], tmp_path, private_environ(tmp_path))
    assert ended.returncode == 0
    assert json.loads(ended.stdout) == {
        "running": False,
        "config": str(file),
        "servers": [],
        "commands": [],
        "mode": "direct",
        "auto": [],
    }


class Down:
    """A transport that says what a nasty server might."""

    async def open(self, dial: object) -> object:
        raise OSError("never mind")


def test_a_server_that_is_down_gives_exit_code_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RUN-2: and what it says is plain text."""
    server = Server(name="down", connection=Down(), description="\x1b[31m")  # type: ignore[arg-type]
    config = Config(mcp_servers=(server,))
    monkeypatch.setattr(Target, "load", lambda _: config)
    ended = run_command(["servers", str(written(tmp_path))], tmp_path, private_environ(tmp_path))
    assert ended.returncode == 4
    out = ended.stdout
    assert "disconnected" in out and "\x1b" not in out
    head, row, last = out.splitlines()
    assert "down" not in row[head.index("DETAIL") :], "the row names the server once"
    assert last.startswith("1 server · ")


def test_servers_without_a_config_shows_the_demo(tmp_path: Path) -> None:
    """RUN-4: as `mcpx tools` does. Nothing is written."""
    environ = private_environ(tmp_path, HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path / "none"))
    ended = run_command(["servers"], tmp_path, environ)
    assert ended.returncode == 0 and ended.stdout.splitlines()[1].split()[:2] == [
        "demo",
        "connected",
    ]
    assert (
        json.loads(run_command(["servers", "--json"], tmp_path, environ).stdout)["config"] is None
    )
    assert list(tmp_path.iterdir()) == []


def test_a_bad_config_is_told_when_nobody_runs_on_it(tmp_path: Path) -> None:
    """RUN-2: as for every command."""
    file = tmp_path / "mcpx.json"
    file.write_text("{")
    ended = run_command(["servers", str(file)], tmp_path, private_environ(tmp_path))
    assert ended.returncode == 2 and ended.stderr.startswith("error: ")


def test_reload_without_a_gateway_is_exit_code_3(tmp_path: Path) -> None:
    """RUN-2."""
    environ = private_environ(tmp_path)
    ended = run_command(["reload", str(written(tmp_path))], tmp_path, environ)
    assert ended.returncode == 3 and "no gateway runs on" in ended.stderr


@pytest.fixture
def watched() -> Iterator[Gateway]:
    """A gateway that takes up its file by itself."""
    config = {"mcp_servers": [entry("a")], "global": {"hot_reload_interval": 0.05}}
    with Gateway(config) as gateway:
        yield gateway


def asked(gateway: Gateway, verb: str, *options: str) -> str:
    return run_command([verb, str(gateway.file), *options], gateway.folder, gateway.env).stdout


def test_servers_says_where_clients_find_the_gateway(watched: Gateway) -> None:
    """RUN-2: in the last line of the table."""
    *_, last = asked(watched, "servers").splitlines()
    assert last == f"1 server · mode direct · {watched.url} · running on {watched.file}"


def test_reload_tells_once_of_a_change_that_was_taken_up_before_it_was_asked(
    watched: Gateway,
) -> None:
    """CFG-5: who edits and asks at once is not told that nothing changed and left to wonder."""
    assert asked(watched, "reload") == "nothing changed\n"
    watched.file.write_text(json.dumps({**watched.config, "mcp_servers": [entry("a"), entry("b")]}))
    wait_until(lambda: "reloaded: 1 started (b), 1 kept" in watched.stderr())
    told = asked(watched, "reload")
    assert re.fullmatch(
        r"nothing changed \(taken up already at \d\d:\d\d:\d\d: 1 started \(b\), 1 kept\)\n", told
    )
    assert asked(watched, "reload") == "nothing changed\n"


# ---- the reason, not the code


def shell(name: str, script: str, **keys: object) -> Json:
    return {
        "name": name,
        "connection": {"type": "stdio", "command": "/bin/sh", "args": ["-c", script]},
        **keys,
    }


def looked_at(folder: Path, *entries: Json) -> dict[str, str]:
    """The rows of `mcpx servers` without a gateway, by server."""
    file = folder / "mcpx.json"
    file.write_text(json.dumps({"mcp_servers": entries}))
    file.chmod(0o600)
    state = str(folder / "state")
    environ = private_environ(folder, MCPX_STATE_DIR=state, PATH="/usr/bin:/bin")
    ended = run_command(["servers", str(file)], folder, environ)
    return {line.split()[0]: line for line in ended.stdout.splitlines()}


def test_servers_tells_why_a_server_died_in_its_own_words(tmp_path: Path) -> None:
    """LIF-7: since when, the code, and the last line it printed; in one row, also if the line
    paints."""
    rows = looked_at(
        tmp_path,
        shell("key", "echo starting >&2; echo 'boom: no API key' >&2; exit 3"),
        shell("paint", r"printf 'a\033[31mred\rb\n' >&2; exit 1"),
        shell("silent", "exit 4"),
        shell("killed", "kill -9 $$$$"),
    )
    since = r"failing since \d\d:\d\d:\d\d: the process "
    assert re.search(since + r"exited with code 3: boom: no API key$", rows["key"])
    assert re.search(since + r"exited with code 1: ared b$", rows["paint"])
    assert re.search(since + r"exited with code 4$", rows["silent"])
    assert re.search(since + r"was ended by signal 9$", rows["killed"])


def test_servers_shows_the_first_line_of_what_is_no_mcp_server(tmp_path: Path) -> None:
    """SRC-8: whether it ends or stays."""
    rows = looked_at(
        tmp_path,
        shell("usage", "echo 'Usage: thing [--port N]'; echo more"),
        shell("web", "echo 'Listening on port 3000'; exec sleep 60", timeout=2),
        shell("stuck", "echo 'waiting for a sign' >&2; exec sleep 60", timeout=2),
    )
    assert "code 0; it is no MCP server" in rows["usage"] and rows["usage"].endswith(
        "'Usage: thing [--port N]'"
    )
    assert (
        "handshake within 2 s; it is no MCP server" in rows["web"]
        and "'Listening on port 3000'" in rows["web"]
    )
    assert rows["stuck"].endswith(
        "did not complete the handshake within 2 s; the last it said: waiting for a sign"
    )


def test_a_secret_of_the_config_does_not_come_out_by_what_a_server_prints(tmp_path: Path) -> None:
    """LIF-7: `invalid key sk-…` is a usual thing to print."""
    entry = shell("key", 'echo "invalid key $API_KEY in $PLACE" >&2; exit 1')
    entry["connection"]["env"] = {"API_KEY": "sk-0123456789", "PLACE": "production"}
    assert looked_at(tmp_path, entry)["key"].endswith("invalid key *** in production")


def test_a_look_without_a_gateway_tries_each_server_once(tmp_path: Path) -> None:
    """RUN-2: in both eras, however long the slowest takes; the table shows an outcome, not an
    attempt."""
    slow = shell("slow", "exec sleep 60", timeout=2.5)
    quick = shell("quick", f"echo x >> {tmp_path}/tries; exit 1", retry_delay=0.1)
    rows = looked_at(tmp_path, slow, quick)
    assert rows["quick"].split()[1] == "disconnected"
    assert (tmp_path / "tries").read_text().count("x") <= 2


ROW = {
    "status": "connected",
    "tools": 2,
    "latency_ms": None,
    "restarts": 0,
    "last_error": None,
    "description": "d",
}
LINKS = [
    {"use": "shared", "why": "for everybody", "calls": 3, "idle_s": 12.4},
    {"use": "session", "why": "it asked\x1b[2J for roots", "calls": 1, "idle_s": 0},
]


def test_processes_and_links_are_shown_where_the_gateway_tells_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """LIF-2: a count each; why there are so many in a view of its own."""
    rows = [{"name": "a", **ROW, "processes": 2, "links": LINKS}, {"name": "b", **ROW}]
    answer: Json = {"running": True, "config": "x", "servers": rows}
    print_table(answer, False)
    head, first, second, _ = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "SERVER",
        "STATE",
        "TOOLS",
        "PROCESSES",
        "LINKS",
        "LATENCY",
        "RESTARTS",
        "DETAIL",
    ]
    assert first.split() == ["a", "connected", "2", "2", "2", "-", "0", "d"]
    assert second.split() == ["b", "connected", "2", "-", "-", "-", "0", "d"]
    print_table(answer, True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "  shared · 3 calls · idle for 12 s · for everybody"
    assert lines[3] == "  session · 1 call · idle for 0 s · it asked [2J for roots"
    print_table({**answer, "servers": [{"name": "b", **ROW}]}, True)
    assert "LINKS" not in capsys.readouterr().out


def test_a_server_that_was_switched_off_says_why_and_is_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """CFG-3"""
    row = {
        "name": "a",
        **ROW,
        "status": "disabled",
        "since": "2026-11-15T12:00:00Z",
        "last_error": "a: TOKEN is not set",
    }
    print_table({"running": True, "config": "x", "servers": [row]}, False)
    assert capsys.readouterr().out.splitlines()[1].endswith("0         TOKEN is not set")


def test_commands_are_counted_and_one_that_was_switched_off_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """CFG-3"""
    commands = [
        {"name": "a", "last_error": None},
        {"name": "b", "last_error": "variable TOKEN is not set"},
    ]
    print_table({"running": True, "config": "x", "servers": [], "commands": commands}, False)
    _, facts, off = capsys.readouterr().out.splitlines()
    assert facts.startswith("0 servers · 2 commands · ")
    assert off == "command b is switched off: variable TOKEN is not set"
    print_table({"running": True, "config": "x", "servers": []}, False)
    assert "command" not in capsys.readouterr().out


def test_servers_tells_that_the_file_on_disk_was_refused_and_why(watched: Gateway) -> None:
    """CFG-5: who looks at a gateway that does not do what the file says is told so, until the file
    is mended."""
    watched.file.write_text('{"mcp_servers": [], "mode": "loud"}')
    wait_until(lambda: "nothing was changed" in watched.stderr())
    told = asked(watched, "servers")
    assert re.search(
        r"^The config on disk was refused at \d\d:\d\d:\d\d; the last good one runs on:$",
        told,
        re.M,
    )
    assert "config.json:1:" in told and "loud" in told
    watched.file.write_text(json.dumps(watched.config))
    wait_until(lambda: "refused" not in asked(watched, "servers"))


def test_how_long_a_server_fails_counts_from_its_first_failure() -> None:
    """LIF-5: not from the last attempt, of which there are many."""

    def status() -> Json:
        return json.loads(asked(gateway, "servers", "--json"))["servers"][0]

    with Gateway(
        {"mcp_servers": [shell("key", "echo boom >&2; exit 3", retry_delay=1.1)]}
    ) as gateway:
        wait_until(lambda: status()["last_error"])
        first = status()
        wait_until(lambda: status()["restarts"] > first["restarts"])
        later = status()
        assert later["since"] == first["since"] and later["last_error"].endswith(
            "exited with code 3: boom"
        )


def test_nothing_a_server_says_begins_a_line_of_the_log() -> None:
    """LIF-7: neither on standard error nor in an error."""
    forged = "23:59:59 ERROR all is lost"
    said = f'{{"jsonrpc":"2.0","id":1,"error":{{"code":-1,"message":"no\\\\n{forged}"}}}}'
    script = f"printf 'a\\r{forged}\\n' >&2; read line; printf '%s\\n' '{said}'; exit 1"
    with Gateway({"mcp_servers": [shell("liar", script)]}) as gateway:
        wait_until(lambda: gateway.stderr().count("all is lost") >= 2)
        lines = gateway.stderr().splitlines()
    assert [line for line in lines if line.startswith(forged)] == []
    assert any(line.endswith(f"[liar] a {forged}") for line in lines)
