"""RUN-4: completion in the shells themselves, and what they are told; no server is started for
it."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Home, using
from kit.terminal import Terminal
from mcpx.cli.command_table import COMMANDS
from mcpx.cli.completion import SCRIPTS, split


@pytest.fixture
def known(home: Home) -> Home:
    """Whose servers were seen once, and are not running."""
    bin = home.folder / "bin"
    bin.mkdir()
    (bin / "mcpx").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mcpx "$@"\n')
    (bin / "mcpx").chmod(0o755)
    home.environ["PATH"] = f"{bin}:{home.environ['PATH']}"
    home.run("tools")
    for record in ("record", "other"):
        (home.folder / record).unlink()
    return home


def told(home: Home, line: str, shell: str = "zsh") -> list[str]:
    """Values, and at the end what else there is to know."""
    ended = home.run("__complete", shell, line)
    assert ended.returncode == 0 and ended.stderr == ""
    *values, last = ended.stdout.split("\n")[:-1]
    return [*(value.partition("\t")[0] for value in values), last.strip()]


def test_commands_options_and_choices_are_completed(home: Home) -> None:
    assert {*COMMANDS, "help", ":"} == set(told(home, "mcpx "))
    assert told(home, "mcpx comp") == ["completion", ":files"]
    assert told(home, "mcpx completion ") == ["bash", "zsh", "fish", "powershell", ":"]
    assert {"--json", "--schema", "--profile"} <= set(told(home, "mcpx tools --"))
    assert told(home, "mcpx serve --mode d") == ["describe", "direct", ":"]
    assert told(home, "mcpx --transport=h") == ["--transport=http", ":"]
    assert told(home, "mcpx auth log") == ["login", "logout", ":"]
    assert "--tag" in told(home, "mcpx import openapi --t")
    assert told(home, "mcpx check ") == told(home, "mcpx tools --config ") == [":files"]
    assert told(home, "mcpx help ser") == ["serve", "servers", ":"]
    assert told(home, "mcpx conf") == ["config", ":files"]


def test_servers_tools_and_their_arguments_are_completed_from_what_was_known(known: Home) -> None:
    """RUN-4: and none of them is started."""
    assert told(known, "mcpx tools ") == ["one", "two", "down", ":"]
    assert told(known, "mcpx call one.a") == ["one.add", "one.ask", ":"]
    assert told(known, "mcpx call one.add ") == ["a=", "b=", ":nospace"]
    assert told(known, "mcpx call one.add a=1 ") == ["b=", ":nospace"]
    assert told(known, "mcpx call one.pick colour=") == ["colour=red", "colour=green", ":"]
    assert told(known, "mcpx prompt one.greet ") == ["who=", ":nospace"]
    assert told(known, "mcpx read using://t") == ["using://text", ":"]
    assert told(known, "mcpx auth login t") == ["two", ":"]
    assert known.record() == [] and known.record("other") == []


def test_names_come_from_the_gateway_that_runs(home: Home) -> None:
    home.write(using("late"), profiles=[{"name": "few", "tools": ["add"]}])
    child = home.gateway()
    try:
        home.run("tools")
        assert told(home, "mcpx call late.a") == ["late.add", "late.ask", ":"]
        assert told(home, "mcpx tools --profile ") == ["few", ":"]
    finally:
        child.end()


def test_a_changed_config_is_looked_at_again(known: Home) -> None:
    assert told(known, "mcpx tools o") == ["one", ":"]
    time.sleep(0.02)  # of another time than what is kept, by the file system's clock
    known.write(using("other"))
    assert told(known, "mcpx tools o") == ["other", ":"]


def test_bash_is_told_the_rest_of_a_word_that_it_breaks_and_nothing_it_would_read_otherwise(
    known: Home,
) -> None:
    """A name with a space is quoted, and what stands before a colon or `=` is not said twice."""
    assert told(known, "mcpx call one.pick colour=r", "bash") == ["red", ":"]
    assert told(known, "mcpx read using://t", "bash") == ["//text", ":"]
    known.write(using("my server"), using("it's $HOME"))
    assert told(known, "mcpx tools ", "bash") == ["my\\ server", "it\\'s\\ \\$HOME", ":"]
    assert told(known, "mcpx tools my\\ s", "bash") == ["my\\ server", ":"]
    assert told(known, 'mcpx tools "my s', "bash") == ["my server", ":"]


def test_a_line_is_split_as_shells_do_and_what_is_unfinished_is_no_mistake() -> None:
    assert split("mcpx call 'a b'\\ c \"d") == (["mcpx", "call", "a b c"], "d", '"')
    assert (
        split("mcpx ") == (["mcpx"], "", "")
        and split("") == ([], "", "")
        and split("a\\") == ([], "a", "")
    )


@pytest.mark.parametrize(
    "line", ["mcpx call x.y z=", "mcpx nothing at all ", "mcpx --config /nowhere ", "", "mcpx 'x"]
)
def test_whatever_is_typed_gives_no_error(home: Home, line: str) -> None:
    (home.folder / "config.json").write_text("{")
    ended = home.run("__complete", "bash", line)
    assert ended.returncode == 0 and ended.stderr == ""


def test_completing_loads_none_of_the_gateways_rooms(known: Home) -> None:
    """RUN-4: it is asked at every key."""
    told(known, "mcpx call one.")
    code = (
        "import sys; sys.argv[1:] = ['__complete', 'zsh', 'mcpx call one.']; from "
        "mcpx.cli.main import main; main()\n"
    )
    code += (
        "sys.stderr.write(str([m for m in ('asyncio', 'mcpx.config', 'yaml', 'orjson') if m "
        "in sys.modules]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=known.folder,
        env=known.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "one.add" in ended.stdout and ended.stderr == "[]"


# ---- in the shells


def bash(screen: Terminal) -> None:
    screen.type('PS1="ok> "; eval "$(mcpx completion bash)"; echo s""et\n')


def zsh(screen: Terminal) -> None:
    screen.type(
        'PS1="ok> "; autoload -Uz compinit; compinit -u -D; eval "$(mcpx completion zsh)"; echo '
        's""et\n'
    )


def fish(screen: Terminal) -> None:
    screen.type(
        "function fish_prompt; echo -n 'ok> '; end; mcpx completion fish | source; echo s''et\n"
    )


SHELLS: dict[str, tuple[list[str], Callable[[Terminal], None]]] = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], bash),
    "zsh": (["zsh", "-f", "-i"], zsh),
    "fish": (["fish", "--no-config", "-i"], fish),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_tool_is_completed_and_called_in_the_shell_itself(known: Home, shell: str) -> None:
    """RUN-4: what the shell made of the line is what is run."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    words, set_up = SHELLS[shell]
    with Terminal(words, known.folder, known.environ) as screen:
        set_up(screen)
        screen.wait_for(r"set\s[\s\S]*ok>")
        screen.type("mcpx call one.ad\t")
        screen.wait_for(r"mcpx call one\.add")
        screen.type(" a=4000 b=321 --json --jmespath sum\n")
        screen.wait_for("4321")
        screen.type("exit\n")
        screen.end()
    assert [line for line in known.record() if line.startswith("called")] == [
        'called add {"a": 4000, "b": 321}'
    ]


def test_the_scripts_are_what_they_were() -> None:
    """PowerShell's was never run: at least nothing changes it unseen."""
    golden = Path(__file__).parent / "golden" / "completion.ps1"
    assert SCRIPTS["powershell"] == golden.read_text()


def test_on_a_terminal_it_is_said_where_the_script_goes(home: Home) -> None:
    with Terminal(
        [sys.executable, "-m", "mcpx", "completion", "fish"], home.folder, home.environ
    ) as screen:
        assert screen.end() == 0
    assert "mcpx completion fish > ~/.config/fish/completions/mcpx.fish" in screen.text
