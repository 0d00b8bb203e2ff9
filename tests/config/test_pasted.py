"""ADM-5: whatever is pasted to add a server becomes a native entry, or one error that says what was
expected."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpx.config.edits import EditError
from mcpx.config.pasted import import_text
from mcpx.config.problems import Refused
from mcpx.model.errors import ConfigError

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = Path(__file__).parent / "files"


def stdio(command: str, *args: str, **env: str) -> dict[str, Any]:
    return {
        "type": "stdio",
        "command": command,
        **({"args": list(args)} if args else {}),
        **({"env": env} if env else {}),
    }


@pytest.mark.parametrize(
    ("text", "name", "connection"),
    [
        (
            "npx -y @modelcontextprotocol/server-filesystem /tmp",
            "filesystem",
            stdio("npx", "-y", "@modelcontextprotocol/server-filesystem", "/tmp"),
        ),
        (
            "$ uvx mcp-server-git --repo 'a b'",
            "git",
            stdio("uvx", "mcp-server-git", "--repo", "a b"),
        ),
        ("A=1 B='x y' npx foo@1.2", "foo", stdio("npx", "foo@1.2", A="1", B="x y")),
        ("env A=$TOKEN ./server.py", "server", stdio("./server.py", A="${TOKEN}")),
        (
            "docker run -i --rm -e GITHUB_TOKEN \\\n  ghcr.io/github/github-mcp-server:latest",
            "github",
            stdio(
                "docker",
                "run",
                "-i",
                "--rm",
                "-e",
                "GITHUB_TOKEN",
                "ghcr.io/github/github-mcp-server:latest",
            ),
        ),
        (
            "node ~/weather-server/dist/index.js",
            "weather",
            stdio("node", "~/weather-server/dist/index.js"),
        ),
        ("npx -y @acme/mcp-server", "acme", stdio("npx", "-y", "@acme/mcp-server")),
        ("python3 -m weather", "weather", stdio("python3", "-m", "weather")),
        (
            "claude mcp add gh -e A=1 B=2 -- npx -y foo --bar",
            "gh",
            stdio("npx", "-y", "foo", "--bar", A="1", B="2"),
        ),
        ("claude mcp add gh npx -y foo", "gh", stdio("npx", "-y", "foo")),
        (
            "claude mcp add --transport sse sentry https://mcp.sentry.dev/mcp -H 'Authorization: "
            "Bearer $T'",
            "sentry",
            {
                "type": "sse",
                "url": "https://mcp.sentry.dev/mcp",
                "headers": {"Authorization": "Bearer ${T}"},
            },
        ),
        (
            "https://api.github.com/mcp",
            "github",
            {"type": "http", "url": "https://api.github.com/mcp"},
        ),
        (
            "http://127.0.0.1:3000/sse",
            "127-0-0-1",
            {"type": "sse", "url": "http://127.0.0.1:3000/sse"},
        ),
        (
            "wss://tools.example.org/x",
            "example",
            {"type": "websocket", "url": "wss://tools.example.org/x"},
        ),
    ],
)
def test_a_line_becomes_a_server(text: str, name: str, connection: dict[str, Any]) -> None:
    (server,) = import_text(text).servers
    assert server == {"name": name, "connection": connection}


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}',
        '{"git": {"command": "uvx", "args": ["mcp-server-git"]}}',
        '"git": {"command": "uvx", "args": ["mcp-server-git"]},',
        '```json\n{"command": "uvx", "args": ["mcp-server-git"]} // a comment\n```',
        '{"servers": {"git": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"]}}}',
        '[{"name": "git", "command": "uvx", "args": ["mcp-server-git"]}]',
        '{"servers": [{"id": "git", "command": ["uvx", "mcp-server-git"]}]}',
        "[mcp_servers.git]\ncommand = 'uvx'\nargs = ['mcp-server-git']\n",
        "mcp_servers:\n  - name: git\n    connection: {type: stdio, command: uvx, args: "
        "[mcp-server-git]}\n",
        "- name: git\n  connection: {type: stdio, command: uvx, args: [mcp-server-git]}\n",
        "name: git\nconnection: {type: stdio, command: uvx, args: [mcp-server-git]}\n",
        'claude mcp add-json git \'{"command": "uvx", "args": ["mcp-server-git"]}\'',
    ],
)
def test_a_file_of_any_client_or_a_part_of_one_becomes_its_servers(text: str) -> None:
    (server,) = import_text(text).servers
    assert server == {"name": "git", "connection": stdio("uvx", "mcp-server-git")}


def test_commands_auth_configs_and_sections_come_along() -> None:
    pasted = import_text((FILES / "s4-mymcp.yaml").read_text())
    assert [len(each) for each in (pasted.servers, pasted.commands, pasted.auth_configs)] == [
        2,
        2,
        2,
    ]
    assert pasted.kind == "native" and set(pasted.sections) == {"server", "global"}
    (command,) = import_text("name: x\ntype: http\nhttp: {url: https://a.b}\n").commands
    assert command["name"] == "x"


@pytest.mark.parametrize(
    "file",
    sorted([*EXAMPLES.glob("clients/*.[jt]*"), *FILES.glob("*.*")]),
    ids=lambda file: file.name,
)
def test_every_example_is_recognised(file: Path) -> None:
    assert import_text(file.read_text()).servers


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing was pasted"),
        ("  \n", "nothing was pasted"),
        ("a | b", "a shell"),
        ("npx foo && echo hi", "a shell"),
        ("A=1", "without a program"),
        ("claude mcp add foo", "missing"),
        ("npx 'open", "a quote is left open"),
        ('{"a": 1}', "no server was recognised"),
        ("mcp_servers: 3", "no server was recognised"),
        ("x" * 2_000_000, "more than"),
    ],
)
def test_what_is_not_recognised_is_said(text: str, says: str) -> None:
    with pytest.raises(EditError, match=says) as caught:
        import_text(text)
    assert caught.value.code == "invalid"


def test_what_is_recognised_and_wrong_has_its_place() -> None:
    with pytest.raises(Refused) as caught:
        import_text('{"mcpServers": {"a": {\n  "command" "x"}}}')
    assert caught.value.told[0].line == 2


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="{}[]\":,- \n=a1$'|&#./@", max_size=60))
def test_whatever_is_pasted_there_is_an_answer(text: str) -> None:
    """Nothing but a `ConfigError`, whatever it is."""
    try:
        import_text(text)
    except ConfigError as error:
        assert error.problems
