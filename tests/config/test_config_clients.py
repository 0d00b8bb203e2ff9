"""The files of client programs load as they are: where their servers stand and what they call
things (CFG-2).

Shapes as their programs documented them in November 2026.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpx.config import Config, Naming, Server, load
from mcpx.transports import Http, Sse, Stdio

FILES = Path(__file__).parents[2] / "examples" / "clients"

Loaded = Callable[..., Config]
Refused = Callable[..., str]

FILESYSTEM = ("-y", "@modelcontextprotocol/server-filesystem", "/tmp")
SET = {"REMOTE_TOKEN": "t", "TEAM": "red"}


def of_file(folder: Path, name: str, **environ: str) -> Config:
    shutil.copy(FILES / name, folder / name)
    (folder / name).chmod(0o600)
    config = load(folder / name, environ)
    assert (config.mode, config.naming) == ("auto", Naming(prefix="always"))
    return config


def test_codex_keeps_its_servers_in_toml(folder: Path) -> None:
    config = of_file(folder, "codex.toml", **SET)
    assert config.mcp_servers == (
        Server(
            name="files",
            connection=Stdio(
                command="npx",
                args=FILESYSTEM,
                env={"LOG_LEVEL": "info"},
                cwd="/tmp",
                inherit_env=("LOCAL_TOKEN",),
            ),
            timeout=20.0,
            call_timeout=60.0,
        ),
        Server(
            name="issue tracker",
            connection=Http(
                url="https://tracker.example.com/mcp",
                headers={"X-Region": "eu", "X-Team": "red", "Authorization": "Bearer t"},
            ),
        ),
        Server(name="old", enabled=False, connection=Stdio(command="old-server")),
    )
    assert config.dialect == "codex"
    assert config.warnings == (
        "codex.toml: keys mcpx does not know are passed over: model, approval_policy, profiles, "
        "enabled_tools",
    )


def test_a_variable_codex_names_and_nobody_set_is_told_with_its_place(folder: Path) -> None:
    """CFG-3."""
    tracker = of_file(folder, "codex.toml", TEAM="red").mcp_servers[1]
    assert tracker.switched_off == "variable REMOTE_TOKEN is not set (codex.toml:21:1)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[mcp_servers.a]\ncommand = "x"\nargs = 3',
            "expected a list, not a number\n  --> c.toml:3:1  (mcp_servers.a.args)",
        ),
        ("[mcp_servers.a]\n\n[mcp_servers.a.env]\nA = []", "c.toml:1:2  (mcp_servers.a)"),
        (
            '[mcp_servers.a]\ncommand = "x"\ncommand = "y"',
            "not valid TOML: cannot overwrite a value",
        ),
        ("[mcp_servers.a", "not valid TOML"),
        ("a = " + "[" * 100_000, "nested more than"),
        ("a = " + "{a = " * 10_000, "nested more than"),
        ("a." * 400_000 + "a = 1", "nested more than"),
        ('"a" . ' * 100_000 + "a = 1", "nested more than"),
        ("[" + "a." * 400_000 + "a]", "nested more than"),
        ("a = [" + "1," * 60_000 + "]", "more than 50,000 values"),
        ("a = 1" + "0" * 5000, "not valid TOML"),
        ("a" * 1_000_000, "not valid TOML"),
        ("'" * 1_000_000, "not valid TOML"),
    ],
)
def test_a_mistake_in_toml_is_told_with_its_line(text: str, message: str, refused: Refused) -> None:
    """CFG-4."""
    assert message in refused(text, "c.toml")


def test_opencode_has_local_and_remote_servers(folder: Path) -> None:
    config = of_file(folder, "opencode.json", **SET)
    assert config.mcp_servers == (
        Server(
            name="files",
            connection=Stdio(command="npx", args=FILESYSTEM, env={"API_KEY": "t"}),
            timeout=5.0,
        ),
        Server(
            name="remote",
            connection=Http(
                url="https://mcp.example.com/mcp", headers={"Authorization": "Bearer t"}
            ),
        ),
        Server(name="off", enabled=False, connection=Stdio(command="x", args=("${env:NOT_SET}",))),
    )
    assert config.dialect == "opencode"
    assert config.warnings == (
        "opencode.json: keys mcpx does not know are passed over: model, server, mode, oauth",
    )


def test_opencode_may_keep_them_one_level_deeper(loaded: Loaded) -> None:
    servers = {
        "a": {"type": "local", "command": ["x"]},
        "b": {"type": "remote", "url": "http://h/sse"},
    }
    config = loaded(json.dumps({"mcp": {"servers": servers}}), "opencode.jsonc")
    assert config.dialect == "opencode"
    assert [server.connection for server in config.mcp_servers] == [
        Stdio(command="x"),
        Sse(url="http://h/sse"),
    ]
    named = {"servers": {"type": "local", "command": ["x"]}}
    assert loaded(json.dumps({"mcp": named}), "opencode.json").mcp_servers[0].name == "servers"


def test_zed_keeps_them_among_its_settings(folder: Path) -> None:
    config = of_file(folder, "zed-settings.json", **SET)
    assert config.mcp_servers == (
        Server(
            name="files",
            connection=Stdio(command="npx", args=FILESYSTEM, env={"LOG_LEVEL": "info"}),
        ),
        Server(
            name="older", connection=Stdio(command="uvx", args=("mcp-server-git",), env={"A": "b"})
        ),
        Server(
            name="remote",
            connection=Http(
                url="https://mcp.example.com/mcp", headers={"Authorization": "Bearer t"}
            ),
        ),
    )
    assert config.dialect == "zed"
    assert config.warnings == (
        "zed-settings.json: server 'postgres' is left out: it comes with an extension, "
        "the file does not say how it runs",
        "zed-settings.json: keys mcpx does not know are passed over: theme",
    )


def test_vs_code_may_keep_them_among_its_settings(folder: Path, loaded: Loaded) -> None:
    config = of_file(folder, "vscode-settings.json")
    files, remote, asks = config.mcp_servers
    assert files.connection == Stdio(command="npx", args=("-y", "server", str(folder)))
    assert remote.connection == Http(url="https://mcp.example.com/mcp")
    assert (asks.enabled, config.dialect) == (False, "vscode")
    dotted = loaded(
        '{"mcp.servers": {"a": {"command": "x"}}, "mode": {"their": "own"}}', "settings.json"
    )
    assert dotted.mcp_servers == (Server(name="a", connection=Stdio(command="x")),)


def test_copilot_calls_a_program_local(folder: Path) -> None:
    config = of_file(folder, "copilot.json")
    assert config.mcp_servers == (
        Server(
            name="files", connection=Stdio(command="npx", args=("-y", "server"), env={"A": "b"})
        ),
        Server(
            name="remote", connection=Http(url="https://mcp.example.com/mcp", headers={"A": "b"})
        ),
        Server(name="mcpx-2", connection=Stdio(command="mcpx", args=("other.yaml",))),
    )


def test_a_reserved_name_is_changed_in_a_clients_file_and_told(loaded: Loaded) -> None:
    servers = {name: {"command": "x"} for name in ("mcpx", "mcpx-2", "commands")}
    config = loaded(json.dumps({"mcpServers": servers}), "mcp.json")
    assert [server.name for server in config.mcp_servers] == ["mcpx-3", "mcpx-2", "commands-2"]
    assert config.warnings == (
        "server 'mcpx' is called 'mcpx-3' here: its own name is reserved",
        "server 'commands' is called 'commands-2' here: its own name is reserved",
    )
    listed = loaded("mcpServers: [{name: mcpx, command: x}]")
    assert [server.name for server in listed.mcp_servers] == ["mcpx-2"]


# The folder a file belongs to


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (".vscode/mcp.json", "servers"),
        (".cursor/mcp.json", "mcpServers"),
        (".kiro/settings/mcp.json", "mcpServers"),
        ("mcp.json", "servers"),
    ],
)
def test_the_workspace_is_the_folder_above_the_clients_own(
    name: str, key: str, loaded: Loaded, folder: Path
) -> None:
    args = ["${workspaceFolder}/a", "${workspaceFolderBasename}", "${userHome}"]
    entry = {"command": "x", "args": args, "cwd": "sub"}
    connection = (
        loaded(json.dumps({key: {"a": entry}}), name, HOME="/home/me").mcp_servers[0].connection
    )
    assert connection == Stdio(
        command="x", args=(f"{folder}/a", folder.name, "/home/me"), cwd=f"{folder}/sub"
    )


@pytest.mark.parametrize("env_file", ["${workspaceFolder}/secrets.env", "secrets.env"])
def test_the_env_file_of_a_server_is_read_into_its_environment(
    env_file: str, loaded: Loaded, folder: Path
) -> None:
    """`env` wins over it, nothing in it is looked into again, and a change in it is noticed
    (CFG-5)."""
    (folder / "secrets.env").write_text("# mine\nA=file\nexport B='file # $X ${Y}'\n")
    entry = {"command": "x", "envFile": env_file, "env": {"A": "entry"}}
    config = loaded(json.dumps({"servers": {"a": entry}}), ".vscode/mcp.json")
    assert config.mcp_servers[0].connection == Stdio(
        command="x", env={"A": "entry", "B": "file # $X ${Y}"}
    )
    assert config.warnings == ()
    assert folder / "secrets.env" in config.sources


def test_a_server_whose_env_file_is_not_there_is_switched_off(
    loaded: Loaded, refused: Refused, folder: Path
) -> None:
    """CFG-3: as VS Code, which does not start it either."""
    text = json.dumps(
        {"servers": {"a": {"command": "x", "envFile": "nope.env"}, "b": {"command": "y"}}}
    )
    a, b = loaded(text, "mcp.json").mcp_servers
    assert a.switched_off == "envFile 'nope.env' does not exist (mcp.json:1:47)"
    assert b.enabled
    assert "envFile 'nope.env' does not exist" in refused(text, "mcp.json", strict=True)
    off = {"command": "x", "envFile": "nope.env", "disabled": True}
    assert loaded(json.dumps({"servers": {"a": off}}), "mcp.json").warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers: [{name: a, connection: {type: stdio, command: x, envFile: e}}]",
        "mcp_servers: [{name: a, command: x, envFile: e}]",
    ],
)
def test_the_env_file_is_a_key_of_clients_only(text: str, refused: Refused) -> None:
    """CFG-4."""
    assert "unknown key 'envFile'" in refused(text)


def test_an_address_has_no_env_file(loaded: Loaded) -> None:
    config = loaded(json.dumps({"servers": {"a": {"url": "http://h", "envFile": "e"}}}), "mcp.json")
    assert config.mcp_servers[0].connection == Http(url="http://h")
    assert config.warnings == ("mcp.json: keys mcpx does not know are passed over: envFile",)


# Claude Code's own file


def claude(projects: dict[str, Any], **beside: Any) -> str:
    return json.dumps({"numStartups": 3, "projects": projects, **beside})


def test_claude_codes_file_gives_the_users_servers_and_those_of_the_project(
    loaded: Loaded, folder: Path
) -> None:
    user = {"a": {"command": "user"}, "b": {"command": "user"}}
    projects = {
        str(folder): {
            "mcpServers": {"b": {"type": "stdio", "command": "mine"}, "c": {"command": "mine"}}
        },
        "/elsewhere": {"mcpServers": {"d": {"command": "other"}}},
        "/empty": {"mcpServers": {}, "history": ["${NOT_SET}"]},
    }
    config = loaded(claude(projects, mcpServers=user), ".claude.json")
    commands = {server.name: getattr(server.connection, "command") for server in config.mcp_servers}  # noqa: B009
    assert commands == {"a": "user", "b": "mine", "c": "mine"}
    assert config.warnings == (
        f".claude.json: the servers of project {folder} are taken, it holds the working folder; "
        "those of 1 other are left out",
        ".claude.json: keys mcpx does not know are passed over: numStartups",
    )


def test_a_project_holds_the_folders_below_it(
    loaded: Loaded, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    text = claude({str(folder): {"mcpServers": {"a": {"command": "x"}}}})
    (folder / ".claude.json").write_text(text)
    (folder / ".claude.json").chmod(0o600)
    monkeypatch.chdir(folder / "deep" / "er")
    assert [server.name for server in load(folder / ".claude.json", {}).mcp_servers] == ["a"]


def test_without_a_project_here_those_of_others_are_left_out(loaded: Loaded) -> None:
    config = loaded(
        claude({"/x": {"mcpServers": {"a": {"command": "x"}}}, "/y": {}}), ".claude.json"
    )
    assert config.mcp_servers == ()
    told = (
        ".claude.json: the servers of 1 project are left out: none of them holds the working folder"
    )
    assert config.warnings[0] == told


def test_gemini_takes_an_address_for_sse_and_a_dollar_for_a_variable(folder: Path) -> None:
    """CFG-2: it is known by its file, or by its own word for streamable HTTP."""
    servers = {
        "a": {"httpUrl": "https://a/mcp", "headers": {"X-Key": "$A_KEY"}, "timeout": 30000},
        "b": {"url": "https://b/mcp"},
        "c": {"command": "c"},
    }
    (folder / "gemini.json").write_text(
        json.dumps({"theme": "x", "mcpServers": servers, "mcp": {"excluded": ["c"]}})
    )
    config = load(folder / "gemini.json", {"A_KEY": "k"})
    a, b, c = config.mcp_servers
    assert config.dialect == "gemini" and a.connection == Http(
        url="https://a/mcp", headers={"X-Key": "k"}
    )
    assert a.call_timeout == 30 and b.connection == Sse(url="https://b/mcp") and not c.enabled


def test_a_settings_file_of_gemini_is_known_by_its_place(folder: Path) -> None:
    (folder / ".gemini").mkdir()
    file = folder / ".gemini" / "settings.json"
    file.write_text(json.dumps({"mcpServers": {"b": {"url": "https://b/mcp"}}}))
    assert load(file, {}).mcp_servers[0].connection == Sse(url="https://b/mcp")


def test_goose_has_words_of_its_own(folder: Path) -> None:
    (folder / "config.yaml").write_text(
        "GOOSE_MODEL: x\n"
        "extensions:\n"
        "  developer: {type: builtin, name: developer, enabled: true, bundled: true}\n"
        "  a: {type: stdio, name: A, cmd: uvx, args: [a], envs: {X: '1'}, env_keys: [A_KEY], "
        "timeout: 2000}\n"
        "  b: {type: streamable_http, name: b, uri: 'https://b/mcp', enabled: false}\n"
    )
    config = load(folder / "config.yaml", {"A_KEY": "k"})
    a, b = config.mcp_servers
    assert config.dialect == "goose" and a.name == "a" and a.call_timeout == 2000
    assert a.connection == Stdio(command="uvx", args=("a",), env={"A_KEY": "k", "X": "1"})
    assert b.connection == Http(url="https://b/mcp") and not b.enabled
    assert "extension 'developer' is left out: it is a part of Goose" in "".join(config.warnings)
    off = load(folder / "config.yaml", {}).mcp_servers[0].switched_off
    assert (
        off is not None
        and off.startswith("variable A_KEY is not set (")
        and "config.yaml:4:" in off
    )


def test_continue_lists_its_servers_and_keeps_headers_among_options(folder: Path) -> None:
    (folder / "c.yaml").write_text(
        "name: x\nmcpServers:\n  - name: s\n    type: streamable-http\n    url: https://s/mcp\n"
        "    requestOptions: {headers: {Authorization: 'Bearer ${{ secrets.S_KEY }}'}, verifySsl: "
        "true}\n"
    )
    config = load(folder / "c.yaml", {"S_KEY": "k"})
    assert config.mcp_servers[0].connection == Http(
        url="https://s/mcp", headers={"Authorization": "Bearer k"}
    )
    assert "requestOptions" in "".join(config.warnings)


def test_amp_has_a_dot_in_its_key(folder: Path) -> None:
    (folder / "amp.json").write_text(
        json.dumps({"amp.url": "x", "amp.mcpServers": {"a": {"command": "a"}}})
    )
    assert load(folder / "amp.json", {}).mcp_servers[0].connection == Stdio(command="a")
