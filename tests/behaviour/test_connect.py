"""RUN-5: `mcpx connect` and `mcpx disconnect`, through the real program with a home folder of their
own."""

import json
import os
import stat
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kit.user import User
from mcpx.config.source import tree_of

CONFIG = "mcp_servers: []\nprofiles: [{name: work}]\n"
CURSOR = (
    '{\n  // mine\n  "mcpServers": {\n    "gh": {"command": "npx", "env": {"KEY": '
    '"ghp_mine"}} // x\n  }\n}'
)


class CursorUser(User):
    """A user of Cursor with a configuration of mcpx in the working folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write_config(CONFIG)
        self.cursor = self.home / ".cursor" / "mcp.json"
        self.environ |= {"PATH": os.path.dirname(sys.executable) + ":/usr/bin:/bin", "TERM": "dumb"}

    def rows(self, *words: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.run_json(*words)["clients"]
        return rows


@pytest.fixture
def ada(tmp_path: Path) -> CursorUser:
    return CursorUser(tmp_path)


def entry(file: Path) -> Any:
    tree = tree_of(file.read_text(), "json")
    assert tree is not None
    return tree["mcpServers"].get("mcpx")


def test_without_a_client_those_that_are_found_are_listed(ada: CursorUser) -> None:
    ada.write_file(ada.cursor, CURSOR)
    ada.write_file(ada.home / ".codex" / "config.toml", "model = 'x'\n")
    (ada.home / ".gemini").mkdir()
    ada.write_file(ada.home / ".lmstudio" / "mcp.json", "{")
    told = ada.run("connect")
    rows = {line.split()[0]: line for line in told.stdout.splitlines() if "~/" in line}
    assert told.returncode == 0 and rows.keys() == {"cursor", "codex", "gemini-cli", "lm-studio"}
    assert "no file yet" in rows["gemini-cli"] and "unreadable" in rows["lm-studio"]
    assert "mcpx connect cursor" in told.stdout and "claude-desktop" in told.stdout.splitlines()[-1]
    ada.run("connect", "cursor", "--yes")
    assert {row["client"]: row["mcpx"] for row in ada.rows("connect")}["cursor"] == "connected"
    assert ada.cursor.read_text() != CURSOR


@pytest.mark.parametrize(
    "target", ["home/.cursor/mcp.json", "home/new.json"], ids=["file", "absent"]
)
@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_project_file_that_is_a_link_out_of_the_project_is_not_written(
    ada: CursorUser, link: str, target: str
) -> None:
    """RUN-5: a repository may contain links to files of the user."""
    ada.write_file(ada.cursor, CURSOR)
    outside = ada.folder.parent / "outside" / target
    outside.parent.mkdir(parents=True)
    if target.endswith(".cursor/mcp.json"):
        outside.write_text(CURSOR)
    before = outside.read_text() if outside.exists() else None
    place = ada.folder / ".cursor"
    if link == "folder":
        place.symlink_to(outside.parent)
        if outside.name != "mcp.json":
            outside = outside.parent / "mcp.json"
    else:
        place.mkdir()
        (place / "mcp.json").symlink_to(outside)
    for words in (["--yes"], ["--dry-run"]):
        done = ada.run("connect", "cursor", "--project", *words)
        told = done.stdout + done.stderr
        assert done.returncode != 0 and "is a symbolic link to" in told and str(outside) in told, (
            told
        )
        assert "ghp_mine" not in told
    assert (outside.read_text() if outside.exists() else None) == before
    assert not list((ada.state / "clients").glob("*.backup"))
    if before is not None:
        assert ada.run("disconnect", "cursor", "--project", "--yes").returncode != 0


def test_a_project_file_that_is_a_link_within_the_project_is_written(ada: CursorUser) -> None:
    """RUN-5"""
    shared = ada.folder / "shared"
    shared.mkdir()
    (shared / "mcp.json").write_text(CURSOR)
    (ada.folder / ".cursor").symlink_to("shared")
    assert ada.run("connect", "cursor", "--project", "--yes").returncode == 0
    assert entry(shared / "mcp.json") and (ada.folder / ".cursor").is_symlink()
    assert ada.run("connect", "--undo", "--yes").returncode == 0
    assert (shared / "mcp.json").read_text() == CURSOR


def test_a_link_that_comes_after_the_change_is_not_followed_by_undo(ada: CursorUser) -> None:
    """RUN-5"""
    file = ada.folder / ".cursor" / "mcp.json"
    ada.write_file(file, CURSOR)
    assert ada.run("connect", "cursor", "--project", "--yes").returncode == 0
    outside = ada.home / "outside.json"
    outside.write_bytes(file.read_bytes())
    before = outside.read_text()
    file.unlink()
    file.symlink_to(outside)
    done = ada.run("connect", "--undo", "--yes")
    assert "is a symbolic link to" in done.stdout + done.stderr and outside.read_text() == before


def test_connect_shows_writes_and_takes_back(ada: CursorUser) -> None:
    """RUN-5: dry run, backup, undo."""
    ada.write_file(ada.cursor, CURSOR)
    os.chmod(ada.cursor, 0o640)
    dry = ada.run_process("connect", "cursor", "--dry-run")
    assert (
        dry.returncode == 0 and '+    "mcpx": {' in dry.stdout and ada.cursor.read_text() == CURSOR
    )
    assert "ghp_mine" not in dry.stdout and not ada.state.exists()
    done = ada.run_process("connect", "cursor", "--yes")
    assert (
        done.returncode == 0
        and "connected Cursor over stdio" in done.stdout
        and "ghp_mine" not in done.stdout
    )
    assert "mcpx connect --undo cursor" in done.stdout and "Settings > MCP" in done.stdout
    made = entry(ada.cursor)
    assert made["args"][-3:] == [str(ada.folder / "mcpx.yaml"), "--transport", "stdio"]
    assert os.path.isabs(made["command"]) and stat.S_IMODE(ada.cursor.stat().st_mode) == 0o640
    copies = list((ada.state / "clients").glob("*.backup"))
    assert [copy.read_text() for copy in copies] == [CURSOR]
    assert {stat.S_IMODE(file.stat().st_mode) for file in (ada.state / "clients").iterdir()} == {
        0o600
    }
    assert "already" in ada.run("connect", "cursor", "--yes").stdout
    undone = ada.run_process("connect", "--undo", "--yes")
    assert undone.returncode == 0 and "byte for byte" in undone.stdout
    assert ada.cursor.read_text() == CURSOR and not list((ada.state / "clients").iterdir())
    assert ada.run("connect", "--undo", "--yes").returncode == 2


def test_what_was_written_starts_a_gateway(ada: CursorUser) -> None:
    """RUN-5: the command is one that works."""
    ada.run("connect", "claude-desktop", "--yes")
    file = ada.home / ".config" / "Claude" / "claude_desktop_config.json"
    made = entry(file)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"},
    }
    answer = subprocess.run(
        [made["command"], *made["args"]],
        cwd="/",
        env={**ada.environ, "MCPX_STANDALONE": "1"},  # nothing stays in the background
        input=json.dumps({**hello, "params": params}) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(answer.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "mcpx"


def test_a_file_that_connect_made_is_gone_after_undo_with_its_folders(ada: CursorUser) -> None:
    assert ada.run("connect", "junie", "--yes").returncode == 0
    file = ada.home / ".junie" / "mcp" / "mcp.json"
    assert entry(file) and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ada.run("connect", "--undo", "junie", "--yes").returncode == 0
    assert list(ada.home.iterdir()) == []


def test_all_makes_no_file_for_a_client_that_was_not_named(ada: CursorUser) -> None:
    ada.write_file(ada.home / ".codex" / "config.toml", "")
    ada.cursor.parent.mkdir()
    told = {row["client"]: row["status"] for row in ada.rows("connect", "--all", "--yes")}
    assert told == {"cursor": "skipped", "codex": "connected"} and not ada.cursor.exists()
    assert ada.rows("disconnect", "--all", "--yes")[0]["status"] == "disconnected"
    assert (ada.home / ".codex" / "config.toml").read_text() == ""


def test_undo_of_a_file_that_was_changed_since_takes_only_the_entry(ada: CursorUser) -> None:
    ada.write_file(ada.cursor, CURSOR)
    ada.run("connect", "cursor", "--yes")
    changed = ada.cursor.read_text().replace("// mine", "// mine and yours")
    ada.cursor.write_text(changed)
    told = ada.run("connect", "--undo", "cursor", "--yes")
    assert "was changed since" in told.stdout
    assert ada.cursor.read_text() == CURSOR.replace("// mine", "// mine and yours")


def test_undo_of_a_replaced_entry_gives_the_former_one_back(ada: CursorUser) -> None:
    former = '{"mcpServers": {"mcpx": {"url": "http://127.0.0.1:9/mcp"}}}'
    ada.write_file(ada.cursor, former)
    assert ada.rows("connect", "cursor", "--yes")[0]["status"] == "replaced"
    ada.cursor.write_text(ada.cursor.read_text() + "\n")
    ada.run("connect", "--undo", "--yes")
    assert entry(ada.cursor) == {"url": "http://127.0.0.1:9/mcp"}


def test_undo_gives_back_what_was_no_entry_at_all(ada: CursorUser) -> None:
    ada.write_file(ada.cursor, '{"mcpServers": {"mcpx": "later"}}')
    ada.run("connect", "cursor", "--yes")
    ada.cursor.write_text(ada.cursor.read_text() + "\n")
    ada.run("connect", "--undo", "--yes")
    assert entry(ada.cursor) == "later"


def test_each_undo_takes_one_change_back_and_disconnect_all_of_them(ada: CursorUser) -> None:
    ada.write_file(ada.cursor, CURSOR)
    ada.run("connect", "cursor", "--yes")
    first = ada.cursor.read_text()
    assert ada.rows("connect", "cursor", "--yes", "--transport", "http")[0]["transport"] == "http"
    assert entry(ada.cursor) == {"url": "http://127.0.0.1:8000/mcp"}
    ada.run("connect", "--undo", "cursor", "--yes")
    assert ada.cursor.read_text() == first
    ada.run("connect", "cursor", "--yes", "--profile", "work")
    assert entry(ada.cursor)["args"][-2:] == ["--profile", "work"]
    assert ada.run("disconnect", "cursor", "--yes").returncode == 0
    assert ada.cursor.read_text() == CURSOR
    assert "not in Cursor" in ada.run("disconnect", "cursor", "--yes").stdout
    ada.run("connect", "--undo", "--yes")  # of the disconnect
    assert entry(ada.cursor)["args"][-1] == "work"


def test_disconnect_removes_an_entry_whoever_wrote_it(ada: CursorUser) -> None:
    ada.write_file(
        ada.cursor, '{\n  "mcpServers": {\n    "mcpx": {"url": "x"},\n    "a": {}\n  }\n}\n'
    )
    assert ada.rows("disconnect", "cursor", "--yes")[0]["backup"]
    assert ada.cursor.read_text() == '{\n  "mcpServers": {\n    "a": {}\n  }\n}\n'


def test_a_link_stays_a_link(ada: CursorUser) -> None:
    real = ada.write_file(ada.home / "dotfiles" / "mcp.json", CURSOR)
    ada.cursor.parent.mkdir()
    ada.cursor.symlink_to(real)
    ada.run("connect", "cursor", "--yes")
    assert ada.cursor.is_symlink() and entry(real)
    ada.run("connect", "--undo", "--yes")
    assert ada.cursor.is_symlink() and real.read_text() == CURSOR


def test_a_file_that_cannot_be_parsed_is_refused_with_the_place_and_left(ada: CursorUser) -> None:
    broken = '{\n  "mcpServers": {\n    "a": {},,\n  }\n}\n'
    ada.write_file(ada.cursor, broken)
    ada.write_file(ada.home / ".codex" / "config.toml", "")
    told = ada.run("connect", "cursor", "--yes")
    assert (
        told.returncode == 2
        and ".cursor/mcp.json:3:13" in told.stderr
        and ada.cursor.read_text() == broken
    )
    several = ada.run("connect", "--all", "--yes")  # the others are connected all the same
    assert (
        several.returncode == 2
        and "connected Codex" in several.stdout
        and ":3:13" in several.stderr
    )
    assert ada.cursor.read_text() == broken


def test_on_a_terminal_it_asks_and_takes_no_for_an_answer(ada: CursorUser) -> None:
    ada.write_file(ada.cursor, CURSOR)
    code, told = ada.run_in_terminal("connect", "cursor", answers={"[Y/n]": "n"})
    assert code == 1 and "Write it into Cursor? [Y/n]" in told and ada.cursor.read_text() == CURSOR
    code, told = ada.run_in_terminal("connect", "cursor", answers={"[Y/n]": ""})
    assert code == 0 and "connected Cursor" in told and entry(ada.cursor)


def test_without_a_terminal_it_asks_nobody_and_writes_nothing(ada: CursorUser) -> None:
    ada.write_file(ada.cursor, CURSOR)
    told = ada.run("connect", "cursor")
    assert told.returncode == 2 and "--yes" in told.stderr and ada.cursor.read_text() == CURSOR


def test_a_client_that_writes_while_it_is_asked_is_not_overwritten(ada: CursorUser) -> None:
    ada.write_file(ada.cursor, CURSOR)
    code, told = ada.run_in_terminal(
        "connect",
        "cursor",
        answers={"[Y/n]": "y"},
        before_answer=lambda: ada.cursor.write_text("{}"),
    )
    assert (
        code == 2
        and "changed by somebody else meanwhile" in told
        and ada.cursor.read_text() == "{}"
    )
    assert not list((ada.state / "clients").iterdir())


def test_two_at_once_write_one_entry(ada: CursorUser) -> None:
    ada.write_file(ada.cursor, CURSOR)
    with ThreadPoolExecutor(3) as several:
        ended = list(several.map(lambda _: ada.run_process("connect", "cursor", "--yes"), range(3)))
    assert [each.returncode for each in ended] == [0, 0, 0], [each.stderr for each in ended]
    assert ada.cursor.read_text().count('"mcpx"') == 1 and '"gh"' in ada.cursor.read_text()
    ada.run("connect", "--undo", "cursor", "--yes")
    assert ada.cursor.read_text() == CURSOR


KEY = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
OWN: dict[str, tuple[str, str, str | None]] = {
    "cursor": (
        ".cursor/mcp.json",
        '{\n  // mine\n  "mcpServers": {\n    "gh": {"command": "npx", "args": ["gh"], "env": '
        '{"KEY": "<KEY>"}}, // x\n'
        '    "other": {"command": "own"}\n  }\n}',
        None,
    ),
    "codex": (
        ".codex/config.toml",
        '# mine\n[mcp_servers.gh] # x\ncommand = "npx"\nargs = '
        '["gh"]\n\n[mcp_servers.gh.env]\nKEY = "<KEY>"\n\n'
        '[mcp_servers.other]\ncommand = "own"\n',
        "enabled = false",
    ),
    "cline": (
        ".cline/data/settings/cline_mcp_settings.json",
        '{"mcpServers": {"gh": {"command": "npx", "args": ["gh"], "disabled": false, "env": '
        '{"KEY": "<KEY>"}}, '
        '"other": {"command": "own"}}}',
        '"disabled": true',
    ),
    "opencode": (
        ".config/opencode/opencode.json",
        '{"mcp": {"gh": {"type": "local", "command": ["npx", "gh"], "environment": {"KEY": '
        '"<KEY>"}}, '
        '"other": {"type": "local", "command": ["own"]}}}',
        '"enabled": false',
    ),
    "goose": (
        ".config/goose/config.yaml",
        "# mine\nextensions:\n  gh:\n    type: stdio\n    cmd: npx\n    args: [gh]\n    enabled: "
        "true\n"
        "    envs: {KEY: <KEY>}\n  other: {type: stdio, cmd: own, enabled: true}\n",
        "enabled: false",
    ),
    "continue": (
        ".continue/config.yaml",
        "name: mine\nversion: 1.0.0\nschema: v1\nmcpServers:\n  - name: gh # x\n    command: "
        "npx\n    args: [gh]\n"
        "    env: {KEY: <KEY>}\n  - name: other\n    command: own\n",
        None,
    ),
}
"""For each client: its file, the text of the file, and the text that disables an entry."""


def own_file(name: str) -> tuple[str, str, str | None]:
    file, text, mark = OWN[name]
    return file, text.replace("<KEY>", KEY), mark


@pytest.mark.parametrize("name", OWN)
def test_replace_disables_what_was_imported_and_undo_gives_the_file_back(
    name: str, ada: CursorUser
) -> None:
    """RUN-5: in one change with the entry of mcpx; a client that cannot disable an entry has it
    removed."""
    file, text, mark = own_file(name)
    own = ada.write_file(file, text)
    assert ada.run("import", name, "--only", "gh", "--yes").returncode == 0
    (told,) = ada.rows("connect", name, "--yes")
    assert (
        told["duplicates"] == ["gh"]
        and told["replaced"] == []
        and "--replace" in " ".join(told["notes"])
    )
    kept = own.read_text()
    assert KEY in kept and (mark is None or mark not in kept)
    (told,) = ada.rows("connect", name, "--dry-run", "--replace")
    assert told["replaced"] == ["gh"] and KEY not in told["diff"] and own.read_text() == kept
    assert max(map(len, told["diff"].splitlines())) < 300, "a file of one line is shown in lines"
    (told,) = ada.rows("connect", name, "--yes", "--replace")
    assert told["replaced"] == ["gh"] and told["duplicates"] == []
    after = own.read_text()
    assert (
        "own" in after and (mark is None or mark in after) and (KEY in after) == (mark is not None)
    )
    (told,) = ada.rows("connect", name, "--yes", "--replace")
    assert told["status"] == "already"
    assert (
        "byte for byte" in ada.run("connect", "--undo", name, "--yes").stdout
        and own.read_text() == kept
    )
    assert (
        "byte for byte" in ada.run("connect", "--undo", name, "--yes").stdout
        and own.read_text() == text
    )


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("words", [("connect", "--undo"), ("disconnect",)])
def test_own_entries_return_to_a_file_that_was_changed_since(
    words: tuple[str, ...], name: str, ada: CursorUser
) -> None:
    file, text, _ = own_file(name)
    own = ada.write_file(file, text)
    assert ada.run("import", name, "--only", "gh", "--yes").returncode == 0
    assert ada.run("connect", name, "--yes", "--replace").returncode == 0
    own.write_text(own.read_text().replace("own", "changed"))
    done = ada.run(*words, name, "--yes")
    assert done.returncode == 0, done.stderr

    def parsed(text: str) -> Any:
        if own.suffix == ".toml":
            return tomllib.loads(text)
        return tree_of(text, "yaml" if own.suffix == ".yaml" else "json")

    now, then = parsed(own.read_text()), parsed(text.replace("own", "changed"))
    for listed in (now.get("mcpServers"), then.get("mcpServers")):
        if isinstance(listed, list):
            listed.sort(key=str)
    assert now == then


def test_servers_of_a_local_scope_of_claude_code_are_replaced_too(ada: CursorUser) -> None:
    """`claude mcp add` writes them below the project of the file."""
    server = {"type": "stdio", "command": "npx", "args": ["gh"], "env": {}}
    others = {"/elsewhere": {"mcpServers": {"gh": server}}}
    projects = {str(ada.folder): {"history": ["a"], "mcpServers": {"gh": server}}, **others}
    own = ada.write_file(
        ".claude.json",
        json.dumps({"mcpServers": {"own": {"command": "own"}}, "projects": projects}),
    )
    before = own.read_text()
    assert ada.run("import", "claude-code", "--only", "gh", "--yes").returncode == 0
    (told,) = ada.rows("connect", "claude-code", "--yes", "--replace")
    assert told["replaced"] == ["gh"]
    tree = json.loads(own.read_text())
    assert tree["projects"] == {str(ada.folder): {"history": ["a"], "mcpServers": {}}, **others}
    assert tree["mcpServers"].keys() == {"own", "mcpx"}
    assert ada.run("connect", "--undo", "--yes").returncode == 0 and own.read_text() == before


def test_on_a_terminal_connect_offers_to_replace_and_takes_no_for_an_answer(
    ada: CursorUser,
) -> None:
    ada.write_file(ada.cursor, own_file("cursor")[1])
    assert ada.run("import", "cursor", "--only", "gh", "--yes").returncode == 0
    words = ("connect", "cursor")
    code, screen = ada.run_in_terminal(
        *words, answers={"Remove its own entry? [Y/n]": "n", "Write it into": ""}
    )
    assert (
        code == 0
        and KEY in ada.cursor.read_text()
        and "'mcpx connect cursor --replace' removes" in screen
    )
    code, screen = ada.run_in_terminal(
        *words, answers={"Remove its own entry? [Y/n]": "", "Write it into": ""}
    )
    assert code == 0 and KEY not in ada.cursor.read_text() and KEY not in screen


def test_a_server_that_the_profile_hides_stays_with_the_client(ada: CursorUser) -> None:
    ada.write_file(ada.cursor, own_file("cursor")[1])
    assert ada.run("import", "cursor", "--yes").returncode == 0
    config = ada.folder / "mcpx.yaml"
    config.write_text(config.read_text().replace("{name: work}", "{name: work, servers: ['!gh']}"))
    (told,) = ada.rows("connect", "cursor", "--profile", "work", "--replace", "--yes")
    assert told["replaced"] == ["other"] and KEY in ada.cursor.read_text()


def test_over_http_a_token_is_the_clients_own_variable(ada: CursorUser) -> None:
    (ada.folder / "mcpx.yaml").write_text(
        "mcp_servers: []\nserver: {auth: {type: bearer}, port: 9321}\n"
    )
    ada.write_file(ada.cursor, "{}")
    row = ada.rows("connect", "cursor", "--transport", "http", "--yes")[0]
    assert entry(ada.cursor)["headers"] == {"Authorization": "Bearer ${env:MCPX_TOKEN}"}
    assert (
        entry(ada.cursor)["url"] == "http://127.0.0.1:9321/mcp"
        and "set MCPX_TOKEN" in row["notes"][0]
    )
    row = ada.rows("connect", "zed", "--transport", "http", "--yes")[0]
    assert "over stdio, which needs none" in row["notes"][0]
    assert ada.rows("connect", "zed", "--yes")[0]["notes"] == []


def test_a_project_has_files_of_its_own(ada: CursorUser) -> None:
    row = ada.rows("connect", "claude-code", "--project", "--yes")[0]
    file = ada.folder / ".mcp.json"
    assert row["file"] == str(file) and entry(file) and "this machine" in row["notes"][0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    told = ada.run("connect", "claude-desktop", "--project", "--yes")
    assert told.returncode == 2 and "no file for a project" in told.stderr
    assert (
        ada.rows("disconnect", "claude-code", "--project", "--yes")[0]["status"] == "disconnected"
    )
    assert not file.exists()


def test_print_shows_what_to_paste_and_writes_nothing(ada: CursorUser) -> None:
    told = ada.run("connect", "codex", "jetbrains", "--print")
    assert "[mcp_servers.mcpx]" in told.stdout and "codex mcp add mcpx --" in told.stdout
    assert "AI Assistant" in told.stdout and list(ada.home.iterdir()) == []
    assert {row["client"] for row in ada.rows("connect", "--all", "--print")} >= {
        "goose",
        "cursor",
        "kiro",
    }


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("curser",), "did you mean cursor?"),
        (("roo", "--yes"), "no longer maintained"),
        (("roo", "--print"), "Kilo Code and Cline have taken its place"),
        (("jetbrains", "--yes"), "--print shows what to paste"),
        (("claude-desktop", "--transport", "http", "--yes"), "takes no servers over HTTP"),
        (("cursor", "--profile", "nobody", "--yes"), "there is no profile 'nobody'; there is work"),
        (("cursor", "--all"), "name clients, or say --all"),
        (("jetbrains-air", "--yes"), "--project"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(
    ada: CursorUser, words: tuple[str, ...], what: str
) -> None:
    told = ada.run("connect", *words)
    assert told.returncode == 2 and what in told.stderr and list(ada.home.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(ada: CursorUser) -> None:
    ada.write_file(ada.home / ".cursor", "a file where a folder belongs")
    told = ada.run("connect", "cursor", "--yes")
    assert told.returncode == 2 and "error:" in told.stderr and "Traceback" not in told.stderr
