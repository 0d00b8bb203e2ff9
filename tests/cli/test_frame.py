"""RUN-4: what all commands have in common: help at once, mistakes with what was meant, JSON for
programs."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.command import mcpx
from mcpx.cli.command_table import COMMANDS, GROUPS
from mcpx.cli.output import Cell, Table, agreed, cut, plain, shown, styled, width_of
from mcpx.cli.parsing import command_first, parser_of

HEAVY = ("mcpx.config", "mcpx.core.gateway", "asyncio", "yaml", "fastapi", "orjson")


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "serve"])
def test_help_waits_for_nothing_that_the_command_itself_needs(command: str) -> None:
    """RUN-4: the config, asyncio and all transports take many times as long as the help."""
    code = f"import sys; sys.argv[1:] = ['{command}', '--help']\nimport atexit\n"
    code += f"atexit.register(lambda: print('HEAVY', [m for m in {HEAVY} if m in sys.modules]))\n"
    code += "from mcpx.cli.main import main; main()"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert f"usage: mcpx {command}" in told.stdout and told.stdout.endswith("HEAVY []\n"), told


def test_the_help_lists_every_command_with_what_it_takes(tmp_path: Path) -> None:
    text = mcpx(tmp_path, "help").stdout
    for command in COMMANDS.values():
        assert (
            f"mcpx {command.name} {command.arguments}".rstrip() in text and command.summary in text
        )
    assert [title for title in GROUPS if f"\n{title}:\n" not in text] == []


def test_an_unknown_option_is_told_with_the_one_that_was_meant(tmp_path: Path) -> None:
    ended = mcpx(tmp_path, "servers", "--jsno")
    assert ended.returncode == 2 and "unknown option --jsno; did you mean --json?" in ended.stderr


def test_only_what_is_needed_is_told_to_be_lacking(tmp_path: Path) -> None:
    ended = mcpx(tmp_path, "auth")
    assert ended.returncode == 2 and ended.stderr.startswith(
        "error: the following arguments are required: action\n"
    )


def test_a_word_that_stands_elsewhere_is_told_with_where(tmp_path: Path) -> None:
    assert "did you mean 'mcpx config rollback'?" in mcpx(tmp_path, "rollback").stderr


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("--config a.yaml tools", "tools --config a.yaml"),
        ("--config=a.yaml tools github", "tools --config=a.yaml github"),
        ("--env prod --json check b.yaml", "check --env prod --json b.yaml"),
        ("--config a.yaml call x.y k=v -- --config", "call --config a.yaml x.y k=v -- --config"),
        ("--config a.yaml add npx -y --json", "add --config a.yaml npx -y --json"),
        ("--config a.yaml import cursor", "import --config a.yaml cursor"),
        ("--json import openapi a.json", "import openapi --json a.json"),
        ("--port 0 serve a.yaml", "serve --port 0 a.yaml"),
        ("--config tools", "--config tools"),
        ("--config a.yaml --transport stdio", "--config a.yaml --transport stdio"),
        ("--config a.yaml help tools", "help tools"),
        ("--unknown tools", "--unknown tools"),
        ("tools --config a.yaml", "tools --config a.yaml"),
        ("-- tools", "-- tools"),
    ],
)
def test_options_may_stand_before_the_command(typed: str, read: str) -> None:
    """RUN-4."""
    assert command_first(typed.split()) == read.split()


def test_a_config_named_before_the_command_is_the_one_that_is_read(tmp_path: Path) -> None:
    """RUN-4: also for shells that complete the line."""
    (tmp_path / "other.yaml").write_text("mcp_servers: []\n")
    assert mcpx(tmp_path, "--config", "other.yaml", "check").stdout.startswith(
        f"{tmp_path / 'other.yaml'}: good"
    )
    ended = mcpx(tmp_path, "--log-level", "DEBUG", "check", "other.yaml")
    assert ended.returncode == 2 and "unknown option --log-level" in ended.stderr
    assert (
        "--strict"
        in mcpx(tmp_path, "__complete", "zsh", "mcpx --config other.yaml check --").stdout
    )


def test_an_unknown_letter_is_told_as_that(tmp_path: Path) -> None:
    ended = mcpx(tmp_path, "servers", "-z", "b.yaml", "c.yaml")
    assert ended.returncode == 2 and ended.stderr.startswith("error: unknown option -z\n"), (
        ended.stderr
    )


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["login", "--json", "a"], ["a"]),
        (["login", "--json", "--", "a", "-b"], ["a", "-b"]),
        (["--", "login", "--json", "--config=x", "--"], ["--json", "--config=x", "--"]),
        (["login", "a", "--", "--env"], ["a", "--env"]),
        (["login", "--"], []),
    ],
)
def test_behind_two_dashes_there_are_words_only(typed: list[str], words: list[str]) -> None:
    """By whatever Python: its argparse took them for options up to 3.13."""
    read = parser_of(COMMANDS["auth"]).read(typed)
    assert (read.action, read.words, read.json) == (
        "login",
        words,
        "--json" in typed and "--json" not in words,
    )
    assert (read.config, read.env) == (None, None)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["check", "a", "--", "--env", "-z"], "error: too many words: --env -z\n"),
        (["token", "--", "-new"], "error: argument action: invalid choice: '-new' "),
        (["check", "--config", "--", "a"], "error: argument --config: expected one argument\n"),
    ],
)
def test_what_is_wrong_behind_two_dashes_is_told_as_it_was_typed(
    tmp_path: Path, typed: list[str], told: str
) -> None:
    ended = mcpx(tmp_path, *typed)
    assert ended.returncode == 2 and ended.stderr.startswith(told), ended.stderr


@pytest.mark.parametrize("word", ["a" * 300, "a" * 300 + ".yaml"])
def test_a_word_that_can_be_no_files_name_is_a_mistake_like_others(
    tmp_path: Path, word: str
) -> None:
    for command in ([word], ["check", word], ["servers", word], ["pins", word]):
        ended = mcpx(tmp_path, *command)
        assert ended.returncode == 2 and ended.stderr.startswith("error: "), ended.stderr


def test_mistakes_are_json_for_whoever_reads_json(tmp_path: Path) -> None:
    (tmp_path / "mcpx.yaml").write_text("mcp_servers:\n  - name: a\n    conection: {}\n")
    ended = mcpx(tmp_path, "check", "mcpx.yaml", "--json")
    problem = json.loads(ended.stderr)["error"]["problems"][-1]
    assert ended.returncode == 2 and problem["line"] == 3 and problem["file"].endswith("mcpx.yaml")
    (tmp_path / "mcpx.yaml").write_text("mcp_servers: []\n")
    for command in ("admin", "audit", "reload"):
        ended = mcpx(tmp_path, command, "mcpx.yaml", "--json")
        assert (
            ended.returncode in (1, 3)
            and ended.stdout == ""
            and json.loads(ended.stderr)["error"]["message"]
        )


def test_piped_tables_are_whole_and_have_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("A", "B")
    table.add(Cell("中文", "red"), "x" * 500)
    table.add("four", "y")
    table.note("below")
    table.print()
    first, second, third, below = capsys.readouterr().out.splitlines()
    assert (
        first == "A     B"
        and second == "中文  " + "x" * 500
        and third == "four  y"
        and below == "  below"
    )


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_row_is_one_line_and_colours_show_unless_unwanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RUN-4: `NO_COLOR`."""
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = Table("A", "B")
    table.add("one", "x" * 500)
    assert width_of(table.text().splitlines()[1]) == 40
    assert styled("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("x", "red") == "x"


def test_on_a_narrow_terminal_the_last_column_stands_below_and_no_line_is_folded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    table = Table("NAME", "ARGUMENTS", "WHAT")
    table.add("one", "y" * 60, "说明" * 60)
    table.add("two", "", "")
    lines = table.text().splitlines()
    assert (
        lines[0].split() == ["NAME", "ARGUMENTS"]
        and lines[3].startswith("  说明说明")
        and lines[4] == "two"
    )
    assert max(map(width_of, lines)) <= 40 and len(lines) == 5


def test_what_strangers_wrote_says_nothing_to_the_terminal() -> None:
    assert plain("a\x1b[31mb\nc") == "a [31mb c" and shown("a\x1b[2Jb\nc\td") == "a�[2Jb\nc\td"
    assert cut("中文中文", 5) == "中文…" and cut("abc", 3) == "abc"


def test_nobody_is_asked_where_nobody_sits() -> None:
    assert not agreed("Sure?", default=True)
