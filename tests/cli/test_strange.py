"""RUN-4: a server that nobody should trust, used from a terminal and a shell: nothing of it steers
the one or is run by the other, and nothing it says makes a command fall over."""

import shutil
import sys
from pathlib import Path

import pytest

from cli.conftest import Home
from cli.strange_server import NAMES
from cli.test_completion import SHELLS
from kit.terminal import Terminal, mcpx_on

SERVER = Path(__file__).parent / "strange_server.py"


@pytest.fixture
def strange(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    connection = {"type": "stdio", "command": sys.executable, "args": ["-I", "-S", str(SERVER)]}
    made.write({"name": "s", "connection": connection})
    return made


def test_a_character_outside_the_first_plane_is_itself_in_json(strange: Home) -> None:
    """What steers a terminal is spelled out; an invisible letter must not become two others by
    it."""
    assert strange.json("call", "s.tags")["structuredContent"] == {"text": "x\U000e0041y"}


@pytest.mark.parametrize(
    "words",
    [("call", "s.alone"), ("call", "s.alone", "--jmespath", "content[0].text"), ("read", "x://y")],
)
def test_half_a_pair_of_surrogates_is_spelled_out(strange: Home, words: tuple[str, ...]) -> None:
    ended = strange.run(*words)
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "half a pair \\ud800\n")


def test_half_a_pair_of_surrogates_goes_into_a_file(strange: Home) -> None:
    assert strange.run("call", "s.alone", "-o", "told.txt").returncode == 0
    assert (strange.folder / "told.txt").read_text() == "half a pair \\ud800"


def test_what_an_encoding_has_no_letters_for_is_spelled_out(strange: Home) -> None:
    ended = strange.run_process("servers", environ={"PYTHONIOENCODING": "ascii"})
    assert (
        ended.returncode == 0
        and ended.stderr == ""
        and "1 server \\xb7 mode direct" in ended.stdout
    )


@pytest.mark.parametrize(
    "words", [("read",), ("call", "s.image", "-o", "image.png"), ("call", "s.ask")]
)
def test_the_type_of_a_strangers_content_does_not_steer_the_terminal(
    strange: Home, words: tuple[str, ...]
) -> None:
    with mcpx_on(strange.folder, strange.environ, *words) as screen:
        screen.wait_for("text/plain|image/png|email")
        screen.type("\x04")
        screen.end()
    assert "title" in screen.raw and "\x1b]" not in screen.raw and "\x1b[2J" not in screen.raw


def test_what_a_stranger_says_of_a_tool_neither_steers_a_shell_nor_ends_its_completion(
    strange: Home,
) -> None:
    strange.run("tools")
    told = strange.run("__complete", "zsh", "mcpx call s.t").stdout
    assert [line.partition("\t")[0] for line in told.splitlines()] == ["s.tags", "s.told", ""]
    assert "half a pair" in told and "\x1b" not in told


@pytest.mark.parametrize("quote", ["", "'", '"'])
@pytest.mark.parametrize("shell", SHELLS)
def test_no_name_that_is_completed_is_run_by_the_shell(
    strange: Home, shell: str, quote: str
) -> None:
    """RUN-4: what is called is the tool of that name, also where the name was begun in quotes."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    bin = strange.folder / "bin"
    bin.mkdir()
    (bin / "mcpx").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mcpx "$@"\n')
    (bin / "mcpx").chmod(0o755)
    environ = {**strange.environ, "PATH": f"{bin}:{strange.environ['PATH']}"}
    strange.run("tools")
    words, set_up = SHELLS[shell]
    names = [f"{at}{name}" for at, name in enumerate(NAMES)]
    with Terminal(words, strange.folder, environ, columns=300) as screen:
        set_up(screen)
        screen.wait_for(r"set\s[\s\S]*ok>")
        for at, name in enumerate(names):
            screen.type(f"mcpx call {quote}s.{at}\t")
            # In a file: on the screen it could be what the line echoes.
            screen.type(f" > told{at}; echo told{at}''.\n")
            screen.wait_for(rf"told{at}\.")
            assert (strange.folder / f"told{at}").read_text() == f"called {name}\n", screen.text
        screen.type("exit\n")
        screen.end()
    assert not (strange.folder / "ran").exists()
