"""RUN-4: `mcpx doctor`: each finding has a real cause here, and says where it is and how to mend
it."""

import json
import os
import shlex
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.command import run_command
from kit.gateway import Gateway
from kit.until import wait_until
from mcpx.cli.doctor import gateway as gateway_look
from mcpx.cli.doctor import servers
from mcpx.cli.doctor.finding import Case
from mcpx.front.control import socket_path

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHOP = {"type": "stdio", "command": sys.executable, "args": [str(FIXTURES / "shop_server.py")]}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looked at as Linux has it")


class Patient:
    """A machine of its own: home folder, programs, config."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.config = folder / "work" / "mcpx.yaml"
        self.config.parent.mkdir()
        self.environ = {
            "HOME": str(folder),
            "PATH": str(self.bin),
            "SHELL": "/bin/sh",
            "MCPX_STATE_DIR": str(folder / "state"),
            "MCPX_PORT": "0",
        }

    def program(self, name: str, script: str, folder: Path | None = None) -> Path:
        file = (folder or self.bin) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return file

    def servers(self, **connections: object) -> None:
        servers = [{"name": name, "connection": each} for name, each in connections.items()]
        self.write({"mcp_servers": servers})

    def write(self, config: object) -> None:
        self.config.write_text(config if isinstance(config, str) else json.dumps(config))
        self.config.chmod(0o600)

    def client(self, name: str, value: object) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))
        return file

    def run(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return run_command(["doctor", *words], self.config.parent, {**self.environ, **environ})

    def found(self, check: str, *words: str, **environ: str) -> list[dict[str, Any]]:
        """What one look found; the exit code says whether anything is broken."""
        ended = self.run(*words, "--json", **environ)
        told = json.loads(ended.stdout)
        broken = [each for each in told["findings"] if each["level"] == "error"]
        assert ended.returncode == (1 if broken else 0) and told["broken"] == len(broken)
        return [each for each in told["findings"] if each["check"] == check]

    def only(self, check: str, level: str, *words: str, **environ: str) -> dict[str, Any]:
        (each,) = [each for each in self.found(check, *words, **environ) if each["level"] == level]
        return each


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    return Patient(tmp_path)


def npx(*args: str) -> dict[str, object]:
    return {"type": "stdio", "command": "npx", "args": list(args)}


def test_where_nothing_is_wrong_nothing_is_broken(patient: Patient) -> None:
    patient.servers(shop=SHOP)
    ended = patient.run()
    assert (
        ended.returncode == 0
        and ended.stdout.endswith("nothing is wrong\n")
        and "✗" not in ended.stdout
    )


def test_without_a_config_it_says_how_to_get_one(patient: Patient) -> None:
    (each,) = patient.found("config")
    assert each["level"] == "ok" and "mcpx import" in each["fix"]


def test_a_program_that_is_nowhere_is_told_with_where_to_get_it(patient: Patient) -> None:
    patient.servers(files={"type": "stdio", "command": "no-such-mcp"})
    each = patient.only("program", "error")
    assert each["where"] == "server files" and "no-such-mcp was not found" in each["what"]
    assert "install no-such-mcp" in each["fix"]


def test_a_program_that_is_not_on_the_path_is_told_to_use_its_absolute_path(
    patient: Patient,
) -> None:
    """What is on a terminal's PATH is not on that of a program started from a desktop."""
    patient.servers(files=npx())
    each = patient.only("program", "error")
    assert f"it is not on the PATH that mcpx has ({patient.bin})" in each["what"]
    assert each["fix"].endswith("if it is installed, use its absolute path as the command")
    there = patient.program("npx", "exit 0", patient.folder / "nvm")
    patient.servers(files={**npx(), "command": str(there)})
    assert patient.only("program", "ok")["what"] == f"{there} is there"


@pytest.mark.parametrize(
    ("version", "level"), [("v16.20.2", "error"), ("v18.19.0", "warning"), ("v22.3.0", "ok")]
)
def test_a_node_that_is_too_old_is_told(version: str, level: str, patient: Patient) -> None:
    patient.program("npx", "exit 0")
    patient.program("node", f"echo {version}")
    patient.servers(files=npx())
    each = patient.only("node", level)
    assert version in each["what"] and str(patient.bin / "node") in each["what"]
    assert level == "ok" or "nodejs.org" in each["fix"]


@pytest.mark.parametrize("script", ["exec sleep 60", "while :; do echo v22.0.0 no end of it; done"])
def test_a_node_that_never_ends_is_ended_and_told(script: str, patient: Patient) -> None:
    """However much it prints, and however many there are: nobody is waited for until the end, and
    nobody is left."""
    folders = [patient.folder / f"node{at}" for at in range(5)]
    for folder in folders:
        patient.program("npx", "exit 0", folder)
        patient.program("node", f"echo $$ >>{patient.folder / 'started'}\n{script}", folder)
    patient.servers(
        **{f"s{at}": {"type": "stdio", "command": str(f / "npx")} for at, f in enumerate(folders)}
    )
    told = patient.found("node")
    assert [each["level"] for each in told] == ["warning"] * 5
    assert all("does not say its version" in each["what"] for each in told)
    pids = (patient.folder / "started").read_text().split()
    assert pids and not [pid for pid in pids if Path("/proc", pid).exists()]


def test_what_a_program_prints_is_read_no_further_than_a_version_goes(patient: Patient) -> None:
    """One that prints without end would else fill the memory in the seconds it is given."""
    endless = "#!/bin/sh\nexec yes vvvvvvvvvvvvvvvv\n"
    file = patient.bin / "endless"
    file.write_text(endless)
    file.chmod(0o755)
    began = time.monotonic()
    assert servers.version_output(str(file), dict(os.environ), 30.0) == ""
    assert time.monotonic() - began < 25


def test_a_working_folder_that_is_not_there_is_told(patient: Patient) -> None:
    patient.servers(a={**SHOP, "cwd": "/no/such/folder"})
    assert patient.only("program", "error")["fix"] == "mkdir -p /no/such/folder"


def test_every_mistake_of_the_config_is_told_with_its_place_and_the_rest_is_looked_at(
    patient: Patient,
) -> None:
    patient.write("mcp_servers:\n  - name: a\n    conection: {}\n")
    each = patient.found("config")[-1]
    assert (
        each["level"] == "error"
        and each["where"].endswith("mcpx.yaml:3:5")
        and "connection" in each["fix"]
    )
    assert patient.found("state") and patient.found("client")


def test_a_variable_that_is_not_set_is_a_warning_with_where_to_set_it(patient: Patient) -> None:
    """CFG-3: as for `check`, which counts it as an error only with --strict."""
    patient.servers(a={**SHOP, "env": {"KEY": "${SHOP_KEY}"}})
    each = patient.only("config", "warning")
    assert (
        "SHOP_KEY is not set" in each["what"]
        and f"set SHOP_KEY in {patient.config.parent}/.env" in each["fix"]
    )
    assert each["where"] == "server a"
    assert patient.only("config", "error", MCPX_STRICT="true")
    (patient.config.parent / ".env").write_text("SHOP_KEY=x\n")
    (patient.config.parent / ".env").chmod(0o600)
    assert not [each for each in patient.found("config") if each["level"] != "ok"]


def test_a_file_that_is_not_there_is_told_with_its_name(patient: Patient) -> None:
    patient.servers(a={**SHOP, "env": {"KEY": "${file:no-such-file}"}})
    assert (
        patient.only("config", "warning")["fix"]
        == "create the file no-such-file, or correct its path"
    )


def test_the_gateway_in_its_own_file_is_told_as_by_check(patient: Patient) -> None:
    """CFG-3: `doctor` has the warnings of `check`."""
    patient.servers(me={"type": "http", "url": "http://localhost:8765/mcp"})
    assert (
        "it is this gateway itself" in patient.only("config", "warning", MCPX_PORT="8765")["what"]
    )


def test_a_secret_that_others_may_read_is_told_with_the_command_that_ends_it(
    patient: Patient,
) -> None:
    """CFG-9."""
    patient.servers(a={**SHOP, "env": {"API_TOKEN": "sekret-1234567"}})
    (patient.config.parent / ".env").write_text("OTHER_KEY=sekret-7654321\n")
    for file in (patient.config, patient.config.parent / ".env"):
        file.chmod(0o644)
    ended = patient.run()
    assert "sekret" not in ended.stdout and ended.returncode == 0
    fixes = [each["fix"] for each in patient.found("config") if each["level"] == "warning"]
    assert fixes == [f"chmod 600 {patient.config}", f"chmod 600 {patient.config.parent}/.env"]
    for fix in fixes:
        subprocess.run(fix, shell=True, check=True)
    assert not [each for each in patient.found("config") if each["level"] == "warning"]


@contextmanager
def listening() -> Iterator[int]:
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def test_a_port_that_is_taken_is_told_with_who_has_it(patient: Patient) -> None:
    patient.servers(shop=SHOP)
    with listening() as port:
        each = patient.only("port", "error", MCPX_PORT=str(port))
    assert (
        f"process {os.getpid()}" in each["what"]
        and "--port 0" in each["fix"]
        and each["where"].endswith(str(port))
    )
    assert patient.only("port", "ok", MCPX_PORT=str(port))["what"] == "it is free"


def test_a_port_that_another_mcpx_has_is_told_so(patient: Patient) -> None:
    patient.servers(shop=SHOP)
    with Gateway({"mcp_servers": []}) as gateway:
        assert (
            "by another mcpx" in patient.only("port", "error", MCPX_PORT=str(gateway.port))["what"]
        )


def test_the_port_line_recognizes_the_gateway_on_this_config(patient: Patient) -> None:
    """RUN-4: at the port of the config, and at the one it was started with."""
    with Gateway({"mcp_servers": []}) as gateway:
        state = str(gateway.folder / "state")
        for port in (str(gateway.port), "8765"):
            words = ("--config", str(gateway.file))
            each = patient.only("port", "ok", *words, MCPX_STATE_DIR=state, MCPX_PORT=port)
            assert each["what"] == f"the gateway on this config listens at {gateway.url}"


def test_the_port_line_names_the_config_of_another_gateway(patient: Patient) -> None:
    """RUN-4."""
    patient.servers(shop=SHOP)
    with Gateway({"mcp_servers": []}) as gateway:
        environ = {"MCPX_STATE_DIR": str(gateway.folder / "state"), "MCPX_PORT": str(gateway.port)}
        each = patient.only("port", "error", "--config", str(patient.config), **environ)
    assert f"the gateway that runs on {gateway.file}" in each["what"]
    assert f"mcpx {patient.config} --port 0" in each["fix"]


def test_a_taken_port_is_no_problem_for_the_demo(patient: Patient) -> None:
    """RUN-3: the demo takes another port."""
    with listening() as port:
        case = Case(
            None,
            None,
            patient.environ | {"MCPX_PORT": ""},
            patient.folder / "state",
            None,
            None,
            port=port,
        )
        (each,) = gateway_look.port(case)
    assert (each.level, each.what) == ("ok", "it is taken; the demo takes another")


def test_each_problem_is_counted_once(patient: Patient) -> None:
    """RUN-4: a missing program, also while a gateway runs; a client's file, also in the home
    folder."""
    missing = {
        "name": "gone",
        "connection": {"type": "stdio", "command": "no-such-npx"},
        "max_retries": 0,
    }
    patient.client(".cursor/mcp.json", {"mcpServers": {"mcpx": {"command": "/gone/bin/mcpx"}}})
    with Gateway({"mcp_servers": [missing]}) as gateway:
        wait_until(lambda: gateway.control("status")["servers"][0]["status"] == "disconnected")
        environ = {**patient.environ, "MCPX_STATE_DIR": str(gateway.folder / "state")}
        ended = run_command(
            ["doctor", "--config", str(gateway.file), "--json"], patient.folder, environ
        )
    told = json.loads(ended.stdout)
    broken = [
        (each["check"], each["where"]) for each in told["findings"] if each["level"] == "error"
    ]
    assert broken == [
        ("program", "server gone"),
        ("client", str(patient.folder / ".cursor" / "mcp.json")),
    ]
    assert told["broken"] == 2


def test_a_config_that_a_running_gateway_refused_is_counted_once(patient: Patient) -> None:
    """RUN-4."""
    with Gateway({"mcp_servers": []}) as gateway:
        gateway.file.write_text('{"mcp_serverz": []}')
        gateway.control("reload")
        words = ("--config", str(gateway.file), "--json")
        told = json.loads(patient.run(*words, MCPX_STATE_DIR=str(gateway.folder / "state")).stdout)
    assert [each["check"] for each in told["findings"] if each["level"] == "error"] == ["config"]


@pytest.mark.parametrize("in_project", [False, True])
def test_the_fix_of_a_clients_entry_mends_it(patient: Patient, in_project: bool) -> None:
    """RUN-4: the command changes the file that the finding names, whether it is the user's or the
    project's."""
    patient.servers(shop=SHOP)
    folder = patient.config.parent if in_project else patient.folder
    file = folder / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": {"mcpx": {"command": "/gone/bin/mcpx"}}}))
    words = shlex.split(patient.only("client", "error")["fix"])
    fixed = run_command([*words[1:], "--yes"], patient.config.parent, patient.environ)
    assert fixed.returncode == 0 and not [
        each for each in patient.found("client") if each["level"] == "error"
    ]


def test_a_fix_names_the_config_that_the_user_named(patient: Patient) -> None:
    """RUN-4: without it, the command would change another config."""
    patient.client(".cursor/mcp.json", {"mcpServers": {"mcpx": {"command": "/gone/bin/mcpx"}}})
    other = patient.folder / "other.yaml"
    other.write_text("mcp_servers: []\n")
    assert (
        patient.only("client", "error", "--config", str(other))["fix"]
        == f"mcpx connect cursor --config {other}"
    )


def test_a_dead_address_of_a_client_is_started_again_at_its_port(patient: Patient) -> None:
    """RUN-4."""
    patient.servers(shop=SHOP)
    with listening() as port:
        pass
    patient.client(
        ".cursor/mcp.json", {"mcpServers": {"mcpx": {"url": f"http://127.0.0.1:{port}/mcp"}}}
    )
    fix = patient.only("client", "error", MCPX_PORT="8765")["fix"]
    assert fix == f"mcpx {patient.config} --port {port}, or mcpx connect cursor"


def test_an_entry_under_another_name_is_to_be_removed_first(patient: Patient) -> None:
    """RUN-4: `connect` writes the entry under its own name, and leaves others."""
    file = patient.client(
        ".cursor/mcp.json", {"mcpServers": {"tools": {"command": "/gone/bin/mcpx"}}}
    )
    fix = patient.only("client", "error")["fix"]
    assert fix == f"remove the entry 'tools' from {file}, then mcpx connect cursor"


def test_a_state_folder_that_cannot_be_used_is_told(patient: Patient) -> None:
    """RUN-6: nothing is lost but comfort, and that is said."""
    patient.servers(shop=SHOP)
    state = patient.folder / "state"
    state.mkdir(mode=0o700)
    assert patient.only("state", "ok")
    state.chmod(0o777)
    assert "written by other users" in patient.only("state", "error")["what"]
    state.rmdir()
    state.write_text("")
    assert "MCPX_STATE_DIR" in patient.only("state", "error")["fix"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_state_folder_that_cannot_be_written_is_told(patient: Patient) -> None:
    (patient.folder / "state").mkdir(mode=0o500)
    assert "cannot be written" in patient.only("state", "error")["what"]


def test_a_socket_that_a_dead_gateway_left_is_told(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.servers(shop=SHOP)
    file = socket_path(patient.folder / "state", patient.config, None)
    file.parent.mkdir(parents=True, mode=0o700)
    file.parent.parent.chmod(0o700)
    monkeypatch.chdir(file.parent)  # the whole path is too long for a socket
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(file.name)
    assert stat.S_ISSOCK(file.stat().st_mode)
    assert "nobody answers" in patient.only("gateway", "warning")["what"]


def test_a_running_gateway_says_what_of_it_does_not_work(patient: Patient) -> None:
    """The cause and the fix come from what it knows, without starting anything a second time."""
    config = {
        "mcp_servers": [
            {"name": "shop", "connection": SHOP},
            {"name": "gone", "connection": {"type": "stdio", "command": "false"}, "max_retries": 0},
        ]
    }
    patient.program("false", "exit 1")
    with Gateway(config) as gateway:
        state = str(gateway.folder / "state")
        wait_until(
            lambda: [
                each
                for each in gateway.control("status")["servers"]
                if each["status"] == "disconnected"
            ]
        )
        found = patient.found("server", "--config", str(gateway.file), MCPX_STATE_DIR=state)
        (each,) = found
        assert (
            each["where"] == "server gone"
            and "mcpx doctor gone" in each["fix"]
            and each["level"] == "error"
        )
        assert (
            "runs on this config"
            in patient.found("gateway", "--config", str(gateway.file), MCPX_STATE_DIR=state)[0][
                "what"
            ]
        )
        gateway.file.write_text("{")
        told = patient.found("gateway", "--config", str(gateway.file), MCPX_STATE_DIR=state)
        assert told and patient.only(
            "config", "error", "--config", str(gateway.file), MCPX_STATE_DIR=state
        )


# Client programs


def test_a_client_that_starts_an_mcpx_that_is_gone_is_told(patient: Patient) -> None:
    file = patient.client(
        ".cursor/mcp.json", {"mcpServers": {"mcpx": {"command": "/gone/bin/mcpx"}}}
    )
    each = patient.only("client", "error")
    assert (
        each["where"] == str(file)
        and each["fix"] == "mcpx connect cursor"
        and "/gone/bin/mcpx" in each["what"]
    )
    there = patient.program("mcpx", "exit 0")
    entry = {"command": str(there), "args": ["serve", "--config", "/gone/mcpx.yaml"]}
    patient.client(".cursor/mcp.json", {"mcpServers": {"mcpx": entry}})
    assert "/gone/mcpx.yaml, which does not exist" in patient.only("client", "error")["what"]
    patient.client(".cursor/mcp.json", {"mcpServers": {"mcpx": {"command": str(there)}}})
    assert f"by {there}" in patient.only("client", "ok")["what"]


def test_a_client_whose_address_nobody_answers_at_is_told(patient: Patient) -> None:
    patient.servers(shop=SHOP)
    with listening() as port:
        pass
    patient.client(
        ".cursor/mcp.json", {"mcpServers": {"mcpx": {"url": f"http://127.0.0.1:{port}/mcp"}}}
    )
    assert "nobody answers" in patient.only("client", "error")["what"]
    with Gateway({"mcp_servers": []}) as gateway:
        patient.client(".cursor/mcp.json", {"mcpServers": {"mcpx": {"url": gateway.url}}})
        assert "it answers" in patient.only("client", "ok")["what"]


def test_an_entry_that_is_nonsense_costs_no_other_finding(patient: Patient) -> None:
    patient.client(
        ".cursor/mcp.json", {"mcpServers": {"mcpx": {"command": 5, "args": True}, "b": {"url": 7}}}
    )
    patient.client(".gemini/settings.json", {"mcpServers": {"mcpx": {"url": "http://[/mcp"}}})
    patient.client(".codeium/windsurf/mcp_config.json", {"mcpServers": {"a": {"command": "a"}}})
    told = patient.found("client")
    assert any("which is not found" in each["what"] for each in told)
    assert any("an address that is none" in each["what"] for each in told)
    assert any("1 server of its own" in each["what"] for each in told)


def test_a_secret_in_the_address_of_a_clients_entry_is_not_told(patient: Patient) -> None:
    with listening() as port:
        pass
    url = f"http://ada:hidden-1@127.0.0.1:{port}/mcp?key=hidden-2"
    patient.client(".cursor/mcp.json", {"mcpServers": {"mcpx": {"url": url}}})
    ended = patient.run()
    assert (
        f"at http://127.0.0.1:{port}/mcp, and nobody answers" in ended.stdout
        and "hidden" not in ended.stdout
    )


def test_a_client_with_servers_of_its_own_is_told_how_to_move_them(patient: Patient) -> None:
    patient.client(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    each = patient.only("client", "ok")
    assert "1 server of its own" in each["what"] and each["fix"].startswith("mcpx import cursor")


@pytest.mark.parametrize(
    ("name", "command", "fix"),
    [("a", "x", ""), ("b", "a", ""), ("b", "x", "mcpx import cursor, then ")],
)
def test_servers_that_are_in_the_config_are_not_to_be_imported_again(
    name: str, command: str, fix: str, patient: Patient
) -> None:
    """By their name, or as what they are."""
    patient.client(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a", "args": ["1"]}}})
    connection = {"type": "stdio", "command": command, "args": ["1"]}
    patient.write({"mcp_servers": [{"name": name, "connection": connection, "enabled": False}]})
    assert patient.only("client", "ok")["fix"] == f"{fix}mcpx connect cursor"


def test_servers_that_a_client_has_twice_are_reported_with_the_command_that_ends_it(
    patient: Patient,
) -> None:
    """RUN-4, RUN-5: the fix does what it announces."""
    patient.program("mcpx", "exit 0")
    own = {"a": {"command": "a", "args": ["1"]}, "mine": {"command": "b"}, "off": {"command": "c"}}
    entries = {**own, "mcpx": {"command": "mcpx"}}
    patient.client(".cursor/mcp.json", {"mcpServers": entries})
    stdio = {"name": "here", "connection": {"type": "stdio", "command": "a", "args": ["1"]}}
    patient.write(
        {
            "mcp_servers": [
                stdio,
                {"name": "off", "connection": {"type": "stdio", "command": "c"}, "enabled": False},
            ]
        }
    )
    twice = patient.only("client", "warning")
    assert twice["what"] == "Cursor has 1 server twice, by itself and through mcpx: a"
    assert twice["fix"] == "mcpx connect cursor --replace"
    words = [*twice["fix"].split()[1:], "--yes"]
    assert run_command(words, patient.config.parent, patient.environ).returncode == 0
    assert not [each for each in patient.found("client") if each["level"] == "warning"]
    left = json.loads((patient.folder / ".cursor" / "mcp.json").read_text())["mcpServers"]
    assert left.keys() == {"mine", "off", "mcpx"}


def test_what_a_client_will_not_take_is_told(patient: Patient) -> None:
    """By its limits in the catalogue, and by what was known of the servers last time."""
    many = {"type": "stdio", "command": sys.executable, "args": [str(FIXTURES / "told_server.py")]}
    patient.program("mcpx", "exit 0")
    for file in (".cursor/mcp.json", ".codex/config.toml"):
        patient.client(file, {"mcpServers": {"mcpx": {"command": "mcpx"}}})
    (patient.folder / ".codex" / "config.toml").write_text('[mcp_servers.mcpx]\ncommand = "mcpx"\n')
    slow = {"name": "slow", "connection": many, "call_timeout": 900, "enabled": False}
    patient.write({"mcp_servers": [slow], "global": {"first_start_wait": 30}})
    told = {each["what"] for each in patient.found("client") if each["level"] == "warning"}
    assert any("Codex gives up after 10 s" in line for line in told)
    assert any("Codex gives up a call after 60 s" in line and "slow" in line for line in told)


def test_names_and_numbers_of_tools_over_a_clients_limit_are_told(patient: Patient) -> None:
    server = FIXTURES.parent / "behaviour" / "many_tools_server.py"
    patient.program("mcpx", "exit 0")
    patient.client(".cursor/mcp.json", {"mcpServers": {"mcpx": {"command": "mcpx"}}})
    connection = {"type": "stdio", "command": sys.executable, "args": [str(server), "60"]}
    config = {
        "mode": "direct",
        "naming": {"prefix": "always"},
        "mcp_servers": [
            {
                "name": "a-server-with-a-rather-long-name-that-people-really-choose",
                "connection": connection,
            }
        ],
    }
    with Gateway(config) as gateway:
        state = str(gateway.folder / "state")
        wait_until(lambda: list((gateway.folder / "state" / "snapshots").glob("*.json")))
        told = patient.found("client", "--config", str(gateway.file), MCPX_STATE_DIR=state)
    warnings = [each["what"] for each in told if each["level"] == "warning"]
    assert any("takes about 40 tools" in line for line in warnings)
    assert any("at most 56 characters" in line for line in warnings)


@pytest.mark.parametrize(
    ("url", "level", "words"),
    [
        ("", "ok", "With an ANTHROPIC_BASE_URL of another provider, it does not defer them"),
        ("https://api.anthropic.com", "ok", "because it defers tools"),
        ("https://openrouter.ai/api", "warning", "because ANTHROPIC_BASE_URL names openrouter.ai"),
    ],
)
def test_claude_code_with_another_provider_is_reported(
    patient: Patient, url: str, level: str, words: str
) -> None:
    """SUR-5: it then loads all tools, which `auto` shows it because it usually defers them."""
    server = FIXTURES.parent / "behaviour" / "many_tools_server.py"
    patient.program("mcpx", "exit 0")
    patient.client(".claude.json", {"mcpServers": {"mcpx": {"command": "mcpx"}}})
    connection = {"type": "stdio", "command": sys.executable, "args": [str(server), "60"]}
    config = {
        "mode": "auto",
        "global": {"auto_budget": 10},
        "mcp_servers": [{"name": "many", "connection": connection}],
    }
    with Gateway(config) as gateway:
        state = str(gateway.folder / "state")
        wait_until(lambda: list((gateway.folder / "state" / "snapshots").glob("*.json")))
        environ = {"MCPX_STATE_DIR": state, "ANTHROPIC_BASE_URL": url}
        told = patient.found("client", "--config", str(gateway.file), **environ)
    (finding,) = [each for each in told if "is shown all 60 tools" in each["what"]]
    assert finding["level"] == level
    assert words in finding["what"]
    assert ("auto_direct_limit" in (finding["fix"] or "")) == (level == "warning")


# One server


def test_a_server_that_works_is_told_with_its_phases(patient: Patient) -> None:
    patient.servers(shop=SHOP)
    told = [each["what"] for each in patient.found("server", "shop")]
    assert (
        told[0] == f"its program is {sys.executable}"
        and "MCP 2025-06-18" in told[1]
        and "6 tools" in told[2]
    )


def test_a_server_that_fails_is_told_with_what_it_said_why_and_what_to_do(patient: Patient) -> None:
    broken = patient.program(
        "broken", "echo starting >&2; echo \"Error: Cannot find module 'left-pad'\" >&2; exit 3"
    )
    patient.servers(broken={"type": "stdio", "command": str(broken)})
    ended = patient.run("broken", PATH=os.environ["PATH"])
    assert ended.returncode == 1 and "✗ server:" in ended.stdout
    assert (
        "| Error: Cannot find module 'left-pad'" in ended.stdout
        and "It lacks a module: left-pad" in ended.stdout
    )
    assert "    fix: install what it needs" in ended.stdout


def test_a_server_that_nobody_knows_is_told_with_the_one_that_was_meant(patient: Patient) -> None:
    patient.servers(shop=SHOP)
    ended = patient.run("shpo")
    assert ended.returncode == 2 and "did you mean 'shop'?" in ended.stderr
    assert patient.run("shop", "--config", "none.yaml").returncode == 2


def test_a_server_that_is_disabled_is_started_all_the_same(patient: Patient) -> None:
    patient.write({"mcp_servers": [{"name": "shop", "enabled": False, "connection": SHOP}]})
    assert "disabled" in patient.found("server", "shop")[0]["what"]


def test_an_address_that_nobody_answers_at_is_told_with_its_cause(patient: Patient) -> None:
    with listening() as port:
        pass
    patient.servers(web={"type": "http", "url": f"http://127.0.0.1:{port}/mcp"})
    each = patient.only("server", "error", "web")
    assert "Nothing listens at" in each["what"] and "start the server" in each["fix"]
