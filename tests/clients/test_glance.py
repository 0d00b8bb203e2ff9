"""RUN-3: what the greeting tells of client programs: found in a few milliseconds, and never a
reason to fail."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcpx.clients.catalogue import clients, places_here
from mcpx.clients.glance import MAX_BYTES, glance

SERVERS = {
    "files": {"command": "npx", "args": ["-y", "server-files"]},
    "web": {"url": "https://example.com/mcp"},
}


def at(home: Path, name: str, text: str) -> Path:
    file = home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def told(home: Path) -> list[tuple[str, int, bool]]:
    project = home / "project"
    project.mkdir(exist_ok=True)
    found = glance({"HOME": str(home)}, project)
    return [(each.client_id, each.servers, each.has_mcpx) for each in found]


@pytest.mark.skipif(sys.platform != "linux", reason="the files of another system")
def test_every_client_is_found_with_the_number_of_its_servers(tmp_path: Path) -> None:
    at(tmp_path, ".config/Claude/claude_desktop_config.json", json.dumps({"mcpServers": SERVERS}))
    at(
        tmp_path,
        ".cursor/mcp.json",
        '{// mine\n"mcpServers": {"a": {"url": "https://a.example"},},}',
    )
    at(tmp_path, ".config/Code/User/mcp.json", json.dumps({"servers": SERVERS, "inputs": []}))
    at(tmp_path, ".codex/config.toml", '[mcp_servers.a]\ncommand = "a"\n')
    at(
        tmp_path,
        ".config/opencode/opencode.json",
        json.dumps({"mcp": {"a": {"type": "local", "command": ["a"]}}}),
    )
    own = {"mcpServers": {"own": {"command": "own"}}}
    projects = {str(tmp_path / "project"): own, "/other": {"mcpServers": SERVERS}}
    at(tmp_path, ".claude.json", json.dumps({"mcpServers": SERVERS, "projects": projects}))
    at(tmp_path, "project/.mcp.json", json.dumps({"mcpServers": SERVERS}))
    assert told(tmp_path) == [
        ("claude-code", 2, False),  # the project's, which Copilot reads, too
        ("claude-code", 3, False),
        ("claude-desktop", 2, False),
        ("cursor", 1, False),
        ("vscode", 2, False),
        ("codex", 1, False),
        ("opencode", 1, False),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "/usr/bin/mcpx"},
        {"command": "uvx", "args": ["--from", "mcpx-gateway==1.2", "mcpx"]},
        {"command": "python3", "args": ["-m", "mcpx"]},
        {"url": "http://127.0.0.1:8000/mcp"},
    ],
)
def test_mcpx_itself_is_told_and_not_counted(entry: dict[str, object], tmp_path: Path) -> None:
    at(tmp_path, ".cursor/mcp.json", json.dumps({"mcpServers": {**SERVERS, "mcpx": entry}}))
    assert told(tmp_path) == [("cursor", 2, True)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"mcpServers": 3}',
        '{"mcpServers": {"a": 1, "b": null}}',
        "{" * 100_000,
        "\x00",
    ],
)
def test_a_file_that_cannot_be_read_counts_as_not_there(text: str, tmp_path: Path) -> None:
    at(tmp_path, ".cursor/mcp.json", text)
    at(tmp_path, ".codex/config.toml", text)
    at(tmp_path, ".gemini/settings.json", json.dumps({"mcpServers": SERVERS}))
    assert told(tmp_path) == [("gemini-cli", 2, False)]


@pytest.mark.parametrize(
    "entry", [{"command": 5}, {"command": "a", "args": True}, {"cmd": 1.5, "args": {"a": "b"}}]
)
def test_an_entry_that_is_nonsense_is_counted_all_the_same(
    entry: dict[str, object], tmp_path: Path
) -> None:
    at(tmp_path, ".cursor/mcp.json", json.dumps({"mcpServers": {**SERVERS, "odd": entry}}))
    assert told(tmp_path) == [("cursor", 3, False)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_what_is_no_file_or_too_large_is_passed_over(tmp_path: Path) -> None:
    at(tmp_path, ".cursor/mcp.json", " " * MAX_BYTES + json.dumps({"mcpServers": SERVERS}))
    (tmp_path / ".gemini").mkdir()
    os.mkfifo(tmp_path / ".gemini" / "settings.json")  # whoever opened it would wait for ever
    (tmp_path / ".codex" / "config.toml").mkdir(parents=True)
    assert told(tmp_path) == []


def test_the_room_of_configurations_is_not_loaded() -> None:
    code = "import sys; from mcpx.clients.glance import glance; glance()\n"
    code += "print([m for m in ('mcpx.config', 'yaml', 'asyncio', 'orjson') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_every_file_but_yaml_is_looked_for(tmp_path: Path) -> None:
    """What the catalogue learns, the glance knows."""
    forms = {
        place.format
        for client in clients()
        for place in places_here(client, tmp_path, {"HOME": str(tmp_path)})
    }
    assert forms == {"json", "jsonc", "toml", "yaml"}
