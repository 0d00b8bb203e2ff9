"""What is known of client programs is whole, and tells their files on every system."""

import re
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from mcpx.admin.sentences import recognised
from mcpx.clients.catalogue import SYSTEMS, System, client, clients
from mcpx.clients.launcher import launcher

HOMES: dict[System, str] = {
    "macos": "/Users/ada",
    "linux": "/home/ada",
    "windows": "C:\\Users\\ada",
}


def files(name: str, system: System, scope: str = "user", **environ: str) -> list[str]:
    known = client(name)
    assert known is not None
    places = known.places(
        system, environ, HOMES[system], "D:\\work" if system == "windows" else "/work"
    )
    return [str(place.path) for place in places if place.scope == scope]


@pytest.mark.parametrize(
    ("name", "macos", "linux", "windows"),
    [
        (
            "claude-desktop",
            "/Users/ada/Library/Application Support/Claude/claude_desktop_config.json",
            "/home/ada/.config/Claude/claude_desktop_config.json",
            "C:\\Users\\ada\\AppData\\Roaming\\Claude\\claude_desktop_config.json",
        ),
        (
            "vscode",
            "/Users/ada/Library/Application Support/Code/User/mcp.json",
            "/home/ada/.config/Code/User/mcp.json",
            "C:\\Users\\ada\\AppData\\Roaming\\Code\\User\\mcp.json",
        ),
        (
            "zed",
            "/Users/ada/.config/zed/settings.json",
            "/home/ada/.config/zed/settings.json",
            "C:\\Users\\ada\\AppData\\Roaming\\Zed\\settings.json",
        ),
        (
            "goose",
            "/Users/ada/.config/goose/config.yaml",
            "/home/ada/.config/goose/config.yaml",
            "C:\\Users\\ada\\AppData\\Roaming\\Block\\goose\\config\\config.yaml",
        ),
        (
            "codex",
            "/Users/ada/.codex/config.toml",
            "/home/ada/.codex/config.toml",
            "C:\\Users\\ada\\.codex\\config.toml",
        ),
        (
            "claude-code",
            "/Users/ada/.claude.json",
            "/home/ada/.claude.json",
            "C:\\Users\\ada\\.claude.json",
        ),
    ],
)
def test_files_are_where_the_client_has_them(
    name: str, macos: str, linux: str, windows: str
) -> None:
    assert [files(name, system)[0] for system in SYSTEMS] == [macos, linux, windows]


@pytest.mark.parametrize(
    ("name", "system", "environ", "wanted"),
    [
        (
            "claude-desktop",
            "linux",
            {"XDG_CONFIG_HOME": "/x"},
            "/x/Claude/claude_desktop_config.json",
        ),
        (
            "claude-desktop",
            "linux",
            {"XDG_CONFIG_HOME": "x"},
            "/home/ada/.config/Claude/claude_desktop_config.json",
        ),
        (
            "claude-desktop",
            "linux",
            {"XDG_CONFIG_HOME": ""},
            "/home/ada/.config/Claude/claude_desktop_config.json",
        ),
        ("codex", "macos", {"CODEX_HOME": "/c"}, "/c/config.toml"),
        ("copilot-cli", "linux", {"COPILOT_HOME": "/c"}, "/c/mcp-config.json"),
        ("vscode", "windows", {"APPDATA": "E:\\Data"}, "E:\\Data\\Code\\User\\mcp.json"),
        ("zed", "macos", {"XDG_CONFIG_HOME": "/x"}, "/Users/ada/.config/zed/settings.json"),
    ],
)
def test_variables_move_the_files_of_clients_that_heed_them(
    name: str, system: System, environ: dict[str, str], wanted: str
) -> None:
    assert files(name, system, **environ)[0] == wanted


def test_a_projects_files_are_in_its_folder_and_its_local_servers_below_its_name() -> None:
    assert files("cursor", "windows", "project") == ["D:\\work\\.cursor\\mcp.json"]
    known = client("Claude Code")
    assert known is not None
    local = next(p for p in known.places("linux", {}, "/home/ada", "/work") if p.scope == "local")
    assert local.root == ("projects", "/work", "mcpServers") and local.spec.reads


def test_the_data_is_whole() -> None:
    ids = [each.id for each in clients()]
    assert len(set(ids)) == len(ids) >= 24
    for each in clients():
        assert re.fullmatch(r"20\d\d-\d\d", each.verified) and (each.after or each.imports_only)
        assert each.http or each.why
        for spec in each.specs:
            assert set(spec.paths) == set(SYSTEMS)
            ends = {
                "json": (".json",),
                "jsonc": (".json", ".jsonc"),
                "toml": (".toml",),
                "yaml": (".yaml", ".yml"),
            }
            assert spec.scope == "gui" or all(
                path.endswith(ends[spec.format]) for path in spec.paths["linux"]
            )
        for system in SYSTEMS:
            kind = PureWindowsPath if system == "windows" else PurePosixPath
            for place in each.places(
                system, {}, HOMES[system], "C:\\p" if system == "windows" else "/p"
            ):
                assert (
                    isinstance(place.path, kind)
                    and place.path.is_absolute()
                    and "$" not in str(place.path)
                )


def test_every_note_of_the_page_for_connecting_can_be_said_in_another_language() -> None:
    notes = {
        note
        for each in clients()
        for note in (*each.http_notes, *each.stdio_notes, each.token_note)
        if note
    }
    assert notes and [note for note in notes if recognised(note) is None] == []


def test_a_client_is_known_by_its_name_however_it_is_spelled() -> None:
    found = [
        client(word)
        for word in ("VS Code", "vs-code", "VSCODE", "Claude Code", "claudecode", "nobody")
    ]
    assert [each and each.id for each in found] == [
        "vscode",
        "vscode",
        "vscode",
        "claude-code",
        "claude-code",
        None,
    ]


def test_files_that_a_pattern_stands_for_are_found(tmp_path: Path) -> None:
    folder = tmp_path / ".continue" / "mcpServers"
    folder.mkdir(parents=True)
    for name in ("b.yaml", "a.yaml", "c.json"):
        (folder / name).write_text("")
    known = client("continue")
    assert known is not None
    places = [p for p in known.places("linux", {}, tmp_path, tmp_path) if "*" in str(p.path)]
    assert [file.name for place in places for file in place.there()] == [
        "a.yaml",
        "b.yaml",
        "c.json",
    ]


# What starts it
# --------------------------------------------------------------------------------------------------


def test_an_installation_that_is_kept_is_started_by_its_own_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "venv" / "bin" / "mcpx"
    program.parent.mkdir(parents=True)
    python = str(program.with_name("python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert launcher(str(tmp_path), python).words == (python, "-m", "mcpx")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert launcher(str(tmp_path), python).words == (str(program),)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mcpx").symlink_to(program)  # as `uv tool install` and pipx do
    assert launcher(str(tmp_path), python).words == (str(tmp_path / "bin" / "mcpx"),)


def test_one_that_lives_in_a_cache_is_started_by_what_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uvx").write_text("#!/bin/sh\n")
    (tmp_path / "uvx").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    words = launcher(
        "/home/ada/.cache/uv/archive-v0/Ab3", "/home/ada/.cache/uv/archive-v0/Ab3/bin/python"
    ).words
    assert words[0] == str(tmp_path / "uvx") and words[1] == "--from" and words[3] == "mcpx"
    assert Path(words[2]).is_dir() or words[2].startswith("mcpx-gateway==")
    assert launcher("/home/ada/.cache/pipx/ab", "/x/python").words[1:3] == ("run", "--spec")
