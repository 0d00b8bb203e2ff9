"""What is pasted into client programs is what they read: well formed, under the right keys, without
a secret."""

import base64
import json
import shlex
import tomllib
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

from mcpx.clients.catalogue import clients
from mcpx.clients.entry import PLACEHOLDER
from mcpx.clients.programs import Program, programs

URL = "http://127.0.0.1:8000/mcp"
COMMAND = ["/opt/my tools/mcpx", "/home/ada/config.yaml", "--transport", "stdio"]


def made(url: str | None = URL, token: bool = False) -> dict[str, Program]:
    return {one.id: one for one in programs(url=url, command=COMMAND, token=token)}


def entry(program: Program, *keys: str, at: int = 0) -> Any:
    """What stands under the keys in a snippet."""
    snippet = program.snippets[at]
    read = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}[snippet.language]
    value = read(snippet.text)
    for key in keys:
        value = value[key]
    return value


@pytest.mark.parametrize("token", [False, True])
@pytest.mark.parametrize("url", [URL, None])
def test_every_snippet_is_well_formed_and_names_the_gateway(url: str | None, token: bool) -> None:
    for program in made(url, token).values():
        assert program.snippets and program.why
        assert program.transport == ("stdio" if url is None else program.transport)
        for snippet in program.snippets:
            if snippet.language == "shell":
                assert shlex.split(snippet.text)
            elif snippet.language != "url":
                read = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}[
                    snippet.language
                ]
                assert "mcpx" in json.dumps(read(snippet.text)) and snippet.path
            assert (URL if program.transport == "http" else COMMAND[0]) in snippet.text


def test_without_http_every_program_gets_a_command() -> None:
    assert set(made(None)) == {each.id for each in clients() if not each.imports_only} | {"other"}
    assert {program.transport for program in made(None).values()} == {"stdio"}


@pytest.mark.parametrize(
    ("id", "at", "keys", "wanted"),
    [
        ("claude-code", 1, ("mcpServers", "mcpx"), {"type": "http", "url": URL}),
        ("claude-desktop", 0, ("mcpServers", "mcpx"), {"command": COMMAND[0], "args": COMMAND[1:]}),
        ("cursor", 0, ("mcpServers", "mcpx"), {"url": URL}),
        ("vscode", 1, ("servers", "mcpx"), {"type": "http", "url": URL}),
        ("codex", 1, ("mcp_servers", "mcpx"), {"url": URL}),
        ("gemini-cli", 1, ("mcpServers", "mcpx"), {"httpUrl": URL}),
        ("windsurf", 0, ("mcpServers", "mcpx"), {"url": URL, "transport": "http"}),
        ("windsurf", 1, ("mcpServers", "mcpx"), {"serverUrl": URL}),
        ("zed", 0, ("context_servers", "mcpx"), {"url": URL}),
        ("cline", 0, ("mcpServers", "mcpx"), {"type": "streamableHttp", "url": URL}),
        ("opencode", 0, ("mcp", "servers", "mcpx"), {"type": "remote", "url": URL}),
        ("opencode", 1, ("mcp", "mcpx"), {"type": "remote", "url": URL, "enabled": True}),
        ("jetbrains", 0, ("mcpServers", "mcpx"), {"url": URL}),
        ("junie", 0, ("mcpServers", "mcpx"), {"command": COMMAND[0], "args": COMMAND[1:]}),
        ("lm-studio", 0, ("mcpServers", "mcpx"), {"url": URL}),
        (
            "goose",
            0,
            ("extensions", "mcpx"),
            {"type": "streamable_http", "name": "mcpx", "uri": URL, "enabled": True},
        ),
    ],
)
def test_the_entry_has_the_shape_that_the_program_reads(
    id: str, at: int, keys: tuple[str, ...], wanted: Any
) -> None:
    assert entry(made()[id], *keys, at=at) == wanted


@pytest.mark.parametrize(
    ("id", "at", "keys", "wanted"),
    [
        (
            "claude-code",
            1,
            ("mcpServers", "mcpx", "headers", "Authorization"),
            "Bearer ${MCPX_TOKEN}",
        ),
        (
            "cursor",
            0,
            ("mcpServers", "mcpx", "headers", "Authorization"),
            "Bearer ${env:MCPX_TOKEN}",
        ),
        (
            "vscode",
            0,
            ("servers", "mcpx", "headers", "Authorization"),
            "Bearer ${input:mcpx-token}",
        ),
        ("vscode", 0, ("inputs", 0, "id"), "mcpx-token"),
        ("codex", 1, ("mcp_servers", "mcpx", "bearer_token_env_var"), "MCPX_TOKEN"),
        (
            "opencode",
            0,
            ("mcp", "servers", "mcpx", "headers", "Authorization"),
            "Bearer {env:MCPX_TOKEN}",
        ),
        (
            "zed",
            0,
            ("context_servers", "mcpx", "headers", "Authorization"),
            f"Bearer {PLACEHOLDER}",
        ),
    ],
)
def test_a_token_stands_as_the_variable_that_the_program_reads(
    id: str, at: int, keys: tuple[str, ...], wanted: str
) -> None:
    program = made(token=True)[id]
    assert entry(program, *keys, at=at) == wanted and program.notes


def test_commands_are_one_argument_where_they_have_blanks() -> None:
    line = made(None)["claude-code"].snippets[0].text
    assert shlex.split(line)[-len(COMMAND) :] == COMMAND
    assert shlex.split(made()["codex"].snippets[0].text) == [
        "codex",
        "mcp",
        "add",
        "mcpx",
        "--url",
        URL,
    ]
    told = shlex.split(made(token=True)["claude-code"].snippets[0].text)
    assert told[:3] == ["claude", "mcp", "add-json"] and json.loads(told[-1])["url"] == URL


def test_deeplinks_hold_the_entry() -> None:
    cursor = urlsplit(made()["cursor"].deeplink or "")
    assert json.loads(base64.b64decode(parse_qs(cursor.query)["config"][0])) == {"url": URL}
    vscode = made()["vscode"].deeplink or ""
    assert json.loads(unquote(vscode.partition("?")[2])) == {
        "name": "mcpx",
        "type": "http",
        "url": URL,
    }
    assert made(token=True)["vscode"].deeplink is None


def test_a_program_is_known_by_what_it_says_of_itself() -> None:
    found = made()
    assert found["vscode"].is_called("Visual Studio Code - Insiders") and found[
        "claude-code"
    ].is_called("claude-code")
    assert not found["claude-code"].is_called("claude-ai") and not found["other"].is_called(
        "anything"
    )
