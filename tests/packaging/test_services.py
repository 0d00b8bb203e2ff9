"""The examples of services: each is what its system reads, and the command in it starts the real
program."""

import configparser
import os
import plistlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kit.gateway import LISTENS, STOP_SECONDS
from kit.process import START, Child

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ROOT / "examples" / "services"
TASK = "{http://schemas.microsoft.com/windows/2004/02/mit/task}"
BOUND = 60.0

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


class Unit(configparser.ConfigParser):
    """A unit file in which a key may stand several times."""

    def __init__(self, name: str) -> None:
        super().__init__(
            strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",)
        )
        self.read_string((SERVICES / "systemd" / name).read_text(encoding="utf-8"))

    def optionxform(self, optionstr: str) -> str:
        return optionstr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with mcpx where `uv tool install` puts it, and a config where the examples have it."""
    folder = tmp_path / "home"
    programs, config = folder / ".local" / "bin", folder / ".config" / "mcpx"
    for each in (programs, config, folder / "Library" / "Logs"):
        each.mkdir(parents=True)
    (programs / "mcpx").symlink_to(Path(sys.executable).with_name("mcpx"))
    (config / "config.yaml").write_text("server: {port: 0}\nmcp_servers: []\n")
    return folder


def environment(home: Path, **more: str) -> dict[str, str]:
    """As little as a service manager gives."""
    return {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "MCPX_STATE_DIR": str(home / "state"),
        **more,
    }


def serves_and_ends(
    command: list[str],
    env: dict[str, str],
    cwd: Path,
    log: Path | None = None,
    reload: list[str] | None = None,
) -> None:
    """It listens, is well, reads its config again when told to, and ends cleanly (LIF-8)."""
    with Child(command, env, cwd=cwd) as child:
        said = child.stderr.wait_for(LISTENS, START) if log is None else wait_in(log, child)
        assert said, child.stderr.text
        with urllib.request.urlopen(f"http://127.0.0.1:{said[1]}/health", timeout=START) as answer:
            assert answer.status == 200
        if reload is not None:
            done = subprocess.run(
                reload, env=env, cwd=cwd, capture_output=True, text=True, timeout=BOUND
            )
            assert (done.returncode, done.stdout) == (0, "nothing changed\n"), done.stderr
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(STOP_SECONDS) == 0


def wait_in(log: Path, child: Child) -> re.Match[str] | None:
    """What mcpx says of its address, in a file; the end of the child ends the waiting."""
    with Child(["tail", "-F", "-n", "+1", str(log)]) as reader:
        found = reader.stdout.wait_for(LISTENS, START)
    assert child.process.poll() is None
    return found


def expanded(value: str, home: Path) -> str:
    return value.replace("%h", str(home))


def test_the_command_of_the_user_unit_serves(home: Path) -> None:
    """RUN-2: with nothing but what the unit gives it."""
    service = Unit("mcpx.user.service")["Service"]
    name, _, path = expanded(service["Environment"], home).partition("=")
    command, reload = (
        shlex.split(expanded(service[key], home)) for key in ("ExecStart", "ExecReload")
    )
    serves_and_ends(command, environment(home, **{name: path}), home, reload=reload)


def test_the_command_of_the_system_unit_serves(home: Path) -> None:
    """RUN-2: the same, its paths being those of this test."""
    moved = {
        "/usr/local/bin/mcpx": ".local/bin/mcpx",
        "/etc/mcpx/config.yaml": ".config/mcpx/config.yaml",
    }
    told = [
        shlex.split(Unit("mcpx.service")["Service"][key]) for key in ("ExecStart", "ExecReload")
    ]
    assert all(set(moved) <= set(words) for words in told)
    command, reload = (
        [str(home / moved[word]) if word in moved else word for word in words] for words in told
    )
    serves_and_ends(command, environment(home), home, reload=reload)


def test_the_command_of_the_launch_agent_serves(home: Path) -> None:
    """RUN-2: the shell in it becomes mcpx, so that what launchd ends is mcpx; what it says is in
    the log."""
    agent = plistlib.loads((SERVICES / "launchd" / "local.mcpx.plist").read_bytes())
    assert agent["Label"] == "local.mcpx" and agent["RunAtLoad"] is True
    assert agent["KeepAlive"] == {"SuccessfulExit": False} and agent["ExitTimeOut"] == STOP_SECONDS
    log = home / "Library" / "Logs" / "mcpx.log"
    log.touch()
    serves_and_ends(
        agent["ProgramArguments"], environment(home, **agent["EnvironmentVariables"]), home, log
    )


def test_the_command_of_the_task_serves(home: Path) -> None:
    """RUN-2: it names no config, so the user's own is found."""
    task = ElementTree.parse(SERVICES / "windows" / "mcpx-task.xml").getroot()
    action = task.find(f"{TASK}Actions/{TASK}Exec")
    assert action is not None
    told = {child.tag.removeprefix(TASK): child.text or "" for child in action}
    assert told["Command"] == "%USERPROFILE%\\.local\\bin\\mcpx.exe"
    assert told["WorkingDirectory"] == "%USERPROFILE%\\.config\\mcpx"
    command = [str(home / ".local" / "bin" / "mcpx"), *told["Arguments"].split()]
    serves_and_ends(command, environment(home), home / ".config" / "mcpx")
    limit = task.find(f"{TASK}Settings/{TASK}ExecutionTimeLimit")
    assert limit is not None and limit.text == "PT0S", (
        "Task Scheduler would end it after three days"
    )


def test_a_mistake_in_the_config_is_not_tried_again(home: Path) -> None:
    """CFG-4: it ends with the code that the units name."""
    (home / ".config" / "mcpx" / "config.yaml").write_text("mcp_server: []\n")
    for name in ("mcpx.user.service", "mcpx.service"):
        service = Unit(name)["Service"]
        command = [
            str(home / ".local" / "bin" / "mcpx"),
            *shlex.split(expanded(service["ExecStart"], home))[1:],
        ]
        command = [word.replace("/etc/mcpx", str(home / ".config" / "mcpx")) for word in command]
        done = subprocess.run(
            command, env=environment(home), cwd=home, capture_output=True, text=True, timeout=BOUND
        )
        assert str(done.returncode) == service["RestartPreventExitStatus"], done.stderr
        assert "did you mean" in done.stderr


@needs_systemd
@pytest.mark.parametrize("name", ["mcpx.service", "mcpx.user.service"])
def test_systemd_finds_no_fault_with_the_units(name: str, home: Path, tmp_path: Path) -> None:
    """Every key and value is one it knows; the program is put where this machine has one."""
    unit, program = tmp_path / "mcpx.service", str(home / ".local" / "bin" / "mcpx")
    text = (SERVICES / "systemd" / name).read_text(encoding="utf-8")
    unit.write_text(re.sub(r"(?m)^(Exec\w+)=\S+", rf"\1={program}", text))
    whose = ["--user"] if "user" in name else []
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    env = {**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(run)}
    command = ["systemd-analyze", *whose, "verify", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=BOUND)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_the_system_unit_gives_little_away(tmp_path: Path) -> None:
    """SEC-3 for the whole process: systemd's own measure of exposure, of ten; what node needs keeps
    it above one."""
    unit = SERVICES / "systemd" / "mcpx.service"
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stdout[-400:]
    told = Unit("mcpx.service")["Service"]
    assert "MemoryDenyWriteExecute" not in told, "node could not run"
    assert told["User"] == "mcpx" and told["ProtectSystem"] == "strict"


def test_every_file_is_in_the_readme_with_how_to_remove_it() -> None:
    text = (SERVICES / "README.md").read_text(encoding="utf-8")
    files = [file for file in SERVICES.rglob("*") if file.is_file() and file.name != "README.md"]
    assert len(files) == 4
    assert [
        file.name
        for file in files
        if str(file.relative_to(SERVICES)) not in text.replace("\\", "/")
    ] == []
    assert text.count("Remove it:") == 4
