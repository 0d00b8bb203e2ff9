"""Every block of the pages does what the page says: commands run, configurations load, programs
run, JSON parses.

What cannot be run here stands in `not_run.toml` with the reason and how often; one more is a
mistake until it does.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from docs import prepared
from docs.blocks import ELSEWHERE, Block, Command, blocks, pages
from docs.session import Session
from mcpx.config import load

HERE = Path(__file__).parent
NOT_RUN = tomllib.loads((HERE / "not_run.toml").read_text(encoding="utf-8"))
RUN = {"console", "bash", "sh"}
LOADED = {"yaml", "json", "toml"}
SHOWN = {"", "nginx", "ts", "text", "ini", "xml", "powershell", "dockerfile"}
"""To be looked at: formats of other programs, output, types."""
OURS = {
    "mcp_servers",
    "mcpServers",
    "servers",
    "commands",
    "profiles",
    "policy",
    "global",
    "server",
    "mode",
    "naming",
    "auth_configs",
}
"""A mapping with one of these at its top is a configuration."""
EXPECTED = re.compile("is reserved|which is this gateway|is not found|not found")
"""Said of what is pasted into a client, which names mcpx itself; and of programs that are not on
this machine."""
ENGLISH = [page for page in pages() if ".zh-CN." not in page]
CHINESE = [page for page in pages() if ".zh-CN." in page]


def left_out(command: Command) -> str | None:
    """The entry of not_run.toml that says why it is not run."""
    return next((start for start in NOT_RUN if command.text.startswith(start)), None)


def commands_of(page: str) -> list[tuple[Block, list[Command]]]:
    return (
        []
        if page in ELSEWHERE
        else [(block, block.commands) for block in blocks(page) if block.commands]
    )


@pytest.mark.parametrize("page", pages())
def test_every_block_is_of_a_kind_that_is_looked_after(page: str) -> None:
    assert [
        f"{b.place}: {b.language}"
        for b in blocks(page)
        if b.language not in RUN | LOADED | SHOWN | {"python"}
    ] == []


def test_what_is_not_run_is_listed_with_its_reason_and_no_more_than_that() -> None:
    met = [
        entry
        for page in ENGLISH
        for _, commands in commands_of(page)
        for c in commands
        if (entry := left_out(c))
    ]
    assert {start: met.count(start) for start in NOT_RUN} == {
        start: told["count"] for start, told in NOT_RUN.items()
    }
    assert all(told["why"] for told in NOT_RUN.values())


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", [page for page in ENGLISH if commands_of(page)])
def test_the_commands_of_a_page_do_what_it_shows(page: str, tmp_path: Path) -> None:
    """RUN-4: from the top to the end, in one folder."""
    session = prepared.session(page, tmp_path)
    try:
        for number, block in enumerate(blocks(page)):
            if name := block.wishes.get("use"):
                session.end()
                session = prepared.named(name, tmp_path / str(number))
            if name := prepared.file_of(block):
                session.write(name, block.text)
            session.run(block, [command for command in block.commands if left_out(command) is None])
    finally:
        session.end()


@pytest.mark.parametrize("page", CHINESE)
def test_a_chinese_page_shows_no_command_that_its_english_twin_does_not_show(page: str) -> None:
    def told(of: str) -> set[str]:
        return {c.text.partition(" #")[0].rstrip() for block in blocks(of) for c in block.commands}

    english = page.replace(".zh-CN", "")
    assert sorted(told(page) - told(english)) == []


def is_config(text: str, language: str) -> bool:
    if language == "yaml":
        return bool(set(re.findall(r"^([\w]+):", text, re.MULTILINE)) & OURS)
    value = tomllib.loads(text) if language == "toml" else json.loads(text)
    return isinstance(value, dict) and any(isinstance(value.get(key), dict) for key in OURS)


@pytest.mark.parametrize(
    "page", [page for page in pages() if any(b.language in LOADED for b in blocks(page))]
)
def test_the_configurations_of_a_page_load_as_they_stand(page: str, tmp_path: Path) -> None:
    """CFG-8: without a warning, in a folder that has nothing else, with nothing set."""
    for block in blocks(page):
        if block.language not in LOADED:
            continue
        if is_config(block.text, block.language):
            folder = tmp_path / str(block.line)
            prepared.beside(folder)
            file = folder / f"mcpx.{block.language}"
            file.write_text(block.text, encoding="utf-8")
            if name := block.wishes.get("beside"):
                (folder / "others.yaml").write_text(prepared.CONTEXT[name], encoding="utf-8")
            warnings = load(folder if name else file, prepared.VARIABLES).warnings
            if (
                "/clients/" not in page
            ):  # what is pasted into a client program has words and variables of its own
                assert [
                    warning for warning in warnings if not EXPECTED.search(str(warning))
                ] == [], block.place


WITH_PROGRAMS = [page for page in pages() if any(b.language == "python" for b in blocks(page))]


@pytest.mark.parametrize(
    "page", [page for page in WITH_PROGRAMS if page != "docs/library.md"]
)  # tests/library has it
def test_the_programs_of_a_page_run(page: str, tmp_path: Path) -> None:
    """RUN-7."""
    session: Session = prepared.session(page, tmp_path)
    for block in blocks(page):
        if name := prepared.file_of(block):
            session.write(name, block.text)
        if block.language == "python":
            done = subprocess.run(
                [sys.executable, "-c", block.text],
                cwd=session.folder,
                env=session.environ,
                capture_output=True,
                timeout=60,
            )
            assert done.returncode == 0, f"{block.place}: {done.stderr.decode()}"


def test_a_wish_that_is_misspelt_is_noticed() -> None:
    known = {"file", "exit", "output", "use", "beside"}
    assert [
        f"{b.place}: {w}"
        for page in pages()
        for b in blocks(page)
        for w in b.wishes
        if w not in known
    ] == []


def test_a_page_that_shows_something_else_than_the_program_says_fails(tmp_path: Path) -> None:
    """The test of these tests."""
    session = Session(tmp_path)
    wrong = Block("x.md", 1, "console", "$ echo one two\none three\n")
    with pytest.raises(AssertionError, match="one three"):
        session.run(wrong, wrong.commands)
    failing = Block("x.md", 1, "console", "$ false\n")
    with pytest.raises(AssertionError, match="ended with 1"):
        session.run(failing, failing.commands)
    good = Block("x.md", 1, "console", "$ echo one 22\none 3\n$ exit 6\n", {"exit": "6"})
    with pytest.raises(AssertionError):  # it left the shell: nothing more could run there
        session.run(good, good.commands)
