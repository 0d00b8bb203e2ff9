"""RUN-5: `mcpx import`: found, told apart, shown, written; secrets go where they belong, and
nothing is lost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.client import Session
from kit.command import run_command
from kit.gateway import Gateway
from kit.user import User

FIXTURES = Path(__file__).parents[1] / "fixtures"
TOKEN = "ghp_1234567890abcdefghijklmnopqrstuvwxyz"
OTHER = "ghp_zyxwvutsrqponmlkjihgfedcba0987654321"
GITHUB = {"command": "npx", "args": ["-y", "server-github"], "env": {"GITHUB_TOKEN": TOKEN}}
WEB = {"url": "https://web.example.com/mcp"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the files of another system")


class ImportingUser(User):
    """A user of client apps whose servers are imported."""

    def put(self, name: str, value: object) -> Path:
        return self.write_file(name, value if isinstance(value, str) else json.dumps(value))

    def cursor(self, **servers: object) -> Path:
        return self.put(".cursor/mcp.json", {"mcpServers": servers})

    def claude(self, **servers: object) -> Path:
        return self.put(".config/Claude/claude_desktop_config.json", {"mcpServers": servers})

    def run(
        self, *words: str, stdin: str = "", **environ: str
    ) -> "subprocess.CompletedProcess[str]":
        return super().run("import", *words, stdin=stdin, **environ)

    def told(self, *words: str, **environ: str) -> dict[str, Any]:
        return super().run_json(*words, **environ)

    @property
    def servers(self) -> dict[str, dict[str, Any]]:
        return {
            each["name"]: each
            for each in yaml.safe_load(self.user_config.read_text())["mcp_servers"]
        }


@pytest.fixture
def user(tmp_path: Path) -> ImportingUser:
    return ImportingUser(tmp_path)


def test_the_servers_of_all_clients_are_one_config(user: ImportingUser) -> None:
    """RUN-5: what was found, where each comes from, and where it goes is said."""
    user.claude(github=GITHUB, files={"command": "files"})
    user.cursor(GitHub={**GITHUB, "command": "/usr/bin/npx", "args": ["server-github"]}, web=WEB)
    ended = user.run("--yes")
    assert ended.returncode == 0
    assert "Claude Desktop 2, Cursor 2: 4 servers, 3 different" in ended.stderr
    lines = {line.split()[0]: line for line in ended.stdout.splitlines()}
    assert (
        "Claude Desktop, Cursor" in lines["github"] and "called 'GitHub' there" in lines["github"]
    )
    assert (
        f"3 servers written into {user.user_config}" in ended.stdout
        and "mcpx connect" in ended.stdout
    )
    assert list(user.servers) == ["github", "files", "web"]
    assert user.user_config.stat().st_mode & 0o777 == 0o600


def test_importing_again_changes_nothing(user: ImportingUser) -> None:
    """Also where the secrets are in an env file by now."""
    user.claude(github=GITHUB, web={**WEB, "headers": {"Authorization": f"Bearer {OTHER}"}})
    user.told("--yes")
    before = user.user_config.read_bytes(), (user.user_config.parent / ".env").read_bytes()
    told = user.told("--yes")
    assert [each["state"] for each in told["servers"]] == ["there", "there"] and told[
        "written"
    ] is False
    assert (
        user.user_config.read_bytes(),
        (user.user_config.parent / ".env").read_bytes(),
    ) == before


def test_two_that_share_a_name_are_both_taken(user: ImportingUser) -> None:
    user.claude(github=GITHUB)
    user.cursor(github={**GITHUB, "env": {"GITHUB_TOKEN": OTHER}})
    user.told("--yes")
    assert list(user.servers) == ["github", "github-cursor"]
    lines = (user.user_config.parent / ".env").read_text().splitlines()[1:]
    assert lines == [f"GITHUB_TOKEN={TOKEN}", f"GITHUB_TOKEN_2={OTHER}"]
    assert user.servers["github-cursor"]["connection"]["env"] == {
        "GITHUB_TOKEN": "${GITHUB_TOKEN_2}"
    }


def test_one_address_with_and_without_its_token_is_one_server(user: ImportingUser) -> None:
    user.claude(other={"command": "x"})
    user.cursor(web=WEB)
    user.put(
        ".codex/config.toml",
        '[mcp_servers.web]\nurl = "https://web.example.com/mcp/"\nbearer_token_env_var = "T"\n',
    )
    user.told("--yes", T="t")
    assert user.servers["web"]["connection"]["headers"] == {"Authorization": "Bearer ${T}"}
    assert list(user.servers) == ["other", "web"]


def test_what_is_off_in_one_client_and_on_in_another_is_on(user: ImportingUser) -> None:
    user.cursor(a={"command": "a", "disabled": True}, b={"command": "b", "disabled": True})
    user.claude(a={"command": "a"})
    user.told("--yes")
    assert {name: server.get("enabled") for name, server in user.servers.items()} == {
        "a": None,
        "b": False,
    }


def test_a_config_there_is_keeps_its_comments_and_order(user: ImportingUser) -> None:
    """CFG-6: the new entries come behind the others, in the manner of the file."""
    text = (
        "# mine\nmcp_servers:\n- name: old   # keep it\n  connection: {type: stdio, command: "
        "old}\n\nmode: search\n"
    )
    (user.folder / "mcpx.yaml").write_text(text)
    user.cursor(web=WEB)
    assert user.told("--yes")["config"] == str(user.folder / "mcpx.yaml")
    written = (user.folder / "mcpx.yaml").read_text()
    assert (
        written.startswith("# mine\nmcp_servers:\n- name: old   # keep it\n")
        and "mode: search" in written
    )
    assert [each["name"] for each in yaml.safe_load(written)["mcp_servers"]] == ["old", "web"]
    assert not user.user_config.exists()


def test_a_name_that_the_config_has_for_another_is_not_touched_unless_asked(
    user: ImportingUser,
) -> None:
    user.put(
        ".config/mcpx/config.yaml",
        "mcp_servers:\n  - {name: web, connection: {type: http, url: 'https://old'}}\n",
    )
    user.cursor(web=WEB)
    user.told("--yes")
    assert {name: each["connection"]["url"] for name, each in user.servers.items()} == {
        "web": "https://old",
        "web-cursor": WEB["url"],
    }
    user.cursor(web={"url": "https://third.example.com"})
    told = user.told("--yes", "--replace")
    assert told["servers"][0]["state"] == "replaces"
    assert user.servers["web"]["connection"]["url"] == "https://third.example.com"


def test_a_broken_file_is_told_with_its_place_and_the_others_are_taken(user: ImportingUser) -> None:
    user.put(".cursor/mcp.json", '{\n  "mcpServers": {\n    "a": }\n}')
    user.claude(github=GITHUB)
    ended = user.run("--yes")
    assert (
        ended.returncode == 1
        and ".cursor/mcp.json:3:10" in ended.stderr
        and "Traceback" not in ended.stderr
    )
    assert list(user.servers) == ["github"]


def test_an_entry_that_is_no_server_is_told_with_its_place(user: ImportingUser) -> None:
    user.put(".cursor/mcp.json", '{"mcpServers": {\n "a": {"comand": "x"}\n}}')
    ended = user.run("--yes")
    assert (
        ended.returncode == 1 and "mcp.json:2:" in ended.stderr and "did you mean" in ended.stderr
    )


def test_mcpx_itself_is_left_out_and_told(user: ImportingUser) -> None:
    user.cursor(
        mcpx={"url": "http://localhost:8000/mcp"},
        gateway={"command": "uvx", "args": ["--from", "mcpx-gateway==9.9", "mcpx"]},
        web=WEB,
    )
    ended = user.run("--yes")
    assert ended.stderr.count("it is mcpx itself") == 2 and list(user.servers) == ["web"]


def test_without_a_yes_nothing_is_written(user: ImportingUser) -> None:
    user.cursor(github=GITHUB)
    ended = user.run()
    assert (
        ended.returncode == 2 and "--yes" in ended.stderr and not user.user_config.parent.exists()
    )


def test_a_dry_run_shows_the_change_and_writes_nothing(user: ImportingUser) -> None:
    user.cursor(github=GITHUB)
    ended = user.run("--dry-run")
    assert ended.returncode == 0 and "GITHUB_TOKEN: '${GITHUB_TOKEN}'" in ended.stdout
    assert TOKEN not in ended.stdout + ended.stderr and not user.user_config.parent.exists()
    assert "+mcp_servers:" in user.told("--dry-run")["diff"]


def test_only_and_skip_choose_by_name(user: ImportingUser) -> None:
    user.cursor(**{"a-1": {"command": "a"}, "a-2": {"command": "b"}, "c": {"command": "c"}})
    told = user.told("--yes", "--only", "a-*", "--skip", "*-2")
    assert [each["state"] for each in told["servers"]] == ["new", "skipped", "skipped"] and list(
        user.servers
    ) == ["a-1"]
    ended = user.run("--yes", "--only", "nobody")
    assert ended.returncode == 2 and "a-1, a-2, c" in ended.stderr


def test_the_tools_that_a_client_hides_are_hidden_here_too(user: ImportingUser) -> None:
    """RUN-5: as a rule of the policy, shown before it is written; other rules stay."""
    shop = {"command": sys.executable, "args": [str(FIXTURES / "shop_server.py")]}
    user.put(".gemini/settings.json", {"mcpServers": {"shop": {**shop, "includeTools": ["slow"]}}})
    user.put(
        ".codeium/windsurf/mcp_config.json",
        {"mcpServers": {"off": {"command": "x", "disabledTools": ["y"]}}},
    )
    rule = {"effect": "deny", "tools": ["other"]}
    user.user_config.parent.mkdir(parents=True)
    user.user_config.write_text(json.dumps({"policy": {"rules": [rule]}}))
    ended = user.run("--dry-run")
    assert "tools: only slow" in ended.stdout and "tools: without y" in ended.stdout, ended
    told = user.told("--yes")
    assert {each["name"]: each["hidden_tools"] for each in told["servers"]} == {
        "shop": ["*", "!slow"],
        "off": ["y"],
    }
    config = yaml.safe_load(user.user_config.read_text())
    hidden = [{"effect": "deny", "tools": tools} for tools in (["shop.*", "!shop.slow"], ["off.y"])]
    assert config["policy"]["rules"] == [rule, *hidden]
    del config["mcp_servers"][1]
    with Gateway(config) as gateway:
        assert Session(gateway.port).tools() == ["slow"]


def test_a_filter_of_one_client_hides_nothing_from_another(user: ImportingUser) -> None:
    user.put(
        ".gemini/settings.json", {"mcpServers": {"a": {"command": "a", "excludeTools": ["x"]}}}
    )
    user.cursor(a={"command": "a"})
    told = user.told("--yes")
    assert (
        told["servers"][0]["hidden_tools"] == []
        and "hide different ones" in told["servers"][0]["why"]
    )
    assert "policy" not in yaml.safe_load(user.user_config.read_text())


def test_a_clients_own_file_is_never_written(user: ImportingUser) -> None:
    file = user.cursor(web=WEB)
    before = file.read_bytes()
    ended = user.run("--yes", "--into", str(file))
    assert ended.returncode == 2 and "--into FILE" in ended.stderr and file.read_bytes() == before


def test_words_that_are_no_client_are_told_with_what_was_meant(user: ImportingUser) -> None:
    ended = user.run("curser")
    assert ended.returncode == 2 and "did you mean 'cursor'?" in ended.stderr
    assert user.run("nothing.json").returncode == 2
    ended = user.run("zed")
    assert ended.returncode == 0 and "it has no file here" in ended.stderr


def test_a_config_in_a_clients_shape_is_written_in_that_shape(user: ImportingUser) -> None:
    """CFG-6: it is the user's own, and stays as it is written."""
    file = user.put(
        "own.json", '{\n  // mine\n  "mcpServers": {\n    "x": {"command": "x"}\n  }\n}\n'
    )
    user.cursor(
        web={**WEB, "disabled": True}, here={"command": "a", "args": ["${workspaceFolder}"]}
    )
    user.told("--yes", "--into", str(file))
    text = file.read_text()
    assert text.startswith('{\n  // mine\n  "mcpServers": {\n    "x": {"command": "x"},\n')
    servers = json.loads(text.replace("// mine", ""))["mcpServers"]
    assert servers["web"] == {"type": "http", "url": WEB["url"], "disabled": True}
    assert servers["here"] == {"command": "a", "args": ["${workspaceFolder}"], "disabled": True}


# Files and standard input


def test_a_file_of_any_shape_is_taken(user: ImportingUser) -> None:
    native = {
        "auth_configs": [
            {"name": "key", "type": "bearer_token", "bearer_token": {"token": "${KEY}"}}
        ],
        "mcp_servers": [
            {
                "name": "a",
                "auth": {"ref": "key"},
                "connection": {"type": "http", "url": "https://a"},
            }
        ],
        "commands": [
            {"name": "now", "type": "http", "http": {"method": "GET", "url": "https://t.example"}}
        ],
    }
    user.put("native.json", native)
    told = user.told(str(user.home / "native.json"), "--yes", KEY="k")
    sections = [each["section"] for each in told["servers"]]
    assert sections == ["auth_configs", "mcp_servers", "commands"]
    written = yaml.safe_load(user.user_config.read_text())
    assert (
        written["mcp_servers"][0]["auth"] == {"ref": "key"}
        and written["commands"][0]["name"] == "now"
    )


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"mcpServers": {"web": WEB}}),
        '[mcp_servers.web]\nurl = "https://web.example.com/mcp"\n',
        "https://web.example.com/mcp",
        '"web": {"serverUrl": "https://web.example.com/mcp"},',
    ],
)
def test_standard_input_is_taken(text: str, user: ImportingUser) -> None:
    ended = user.run("-", "--yes", stdin=text)
    assert ended.returncode == 0, ended.stderr
    (server,) = user.servers.values()
    assert server["connection"] == {"type": "http", "url": "https://web.example.com/mcp"}


def test_what_stands_on_standard_input_and_is_nothing_is_told(user: ImportingUser) -> None:
    ended = user.run("-", "--yes", stdin="{}")
    assert ended.returncode == 2 and "no server was recognised" in ended.stderr


def test_a_projects_servers_run_in_its_folder(user: ImportingUser) -> None:
    user.put(f"{user.folder}/.vscode/vars.env", f"API_TOKEN={TOKEN}\nPLAIN=a b\n")
    entry = {
        "command": "./server.sh",
        "args": ["${workspaceFolder}/x"],
        "envFile": "${workspaceFolder}/.vscode/vars.env",
    }
    user.put(f"{user.folder}/.vscode/mcp.json", {"servers": {"here": entry}})
    user.told("--yes")
    assert user.servers["here"]["connection"] == {
        "type": "stdio",
        "command": "./server.sh",
        "args": [f"{user.folder}/x"],
        "env": {"API_TOKEN": "${API_TOKEN}", "PLAIN": "a b"},
        "cwd": str(user.folder),
    }


def test_claude_codes_servers_of_this_project_come_too_however_large_its_file_is(
    user: ImportingUser,
) -> None:
    projects = {
        str(user.folder): {"mcpServers": {"own": {"command": "own"}}, "history": ["x" * 2_000_000]},
        "/other": {"mcpServers": {"no": {"command": "no"}}},
    }
    user.put(".claude.json", {"mcpServers": {"mine": {"command": "mine"}}, "projects": projects})
    ended = user.run("--yes")
    assert ended.returncode == 0 and "those of 1 other are left out" in ended.stderr
    assert sorted(user.servers) == ["mine", "own"]


# Secrets


def test_secrets_go_to_an_env_file_that_says_what_it_said_before(user: ImportingUser) -> None:
    """CFG-9: out of the config, for nobody else to read, and found again."""
    user.put(".config/mcpx/.env", "# mine\nGITHUB_TOKEN=mine-already\nKEPT=1").chmod(0o644)
    user.cursor(github=GITHUB)
    told = user.told("--yes")
    assert told["secrets"] == {"kept": "env", "names": ["GITHUB_TOKEN_2"]}
    env = user.user_config.parent / ".env"
    assert env.read_text() == f"# mine\nGITHUB_TOKEN=mine-already\nKEPT=1\nGITHUB_TOKEN_2={TOKEN}\n"
    assert env.stat().st_mode & 0o777 == 0o600
    ended = run_command(["check", str(user.user_config)], user.folder, user.environ)
    assert ended.returncode == 0, ended.stderr


def test_a_name_that_refers_to_something_is_taken_without_that(user: ImportingUser) -> None:
    user.cursor(**{"a${keyring:b}": {"command": "a"}})
    told = user.told("--yes")
    assert told["written"] and "name: 'a{keyring:b}'" in user.user_config.read_text()


def test_an_env_file_with_a_quote_that_has_no_end_is_told_and_left(user: ImportingUser) -> None:
    env = user.put(".config/mcpx/.env", "KEPT=1\nOPEN='it\n")
    user.cursor(github={**GITHUB, "env": {"GITHUB_TOKEN": f"it's {TOKEN}"}})
    ended = user.run("--yes")
    assert (
        ended.returncode == 2
        and f"{env}:2 cannot be read" in ended.stderr
        and TOKEN not in ended.stderr
    )
    assert env.read_text() == "KEPT=1\nOPEN='it\n" and not user.user_config.exists()


def test_an_env_file_keeps_its_bom_and_its_line_ends(user: ImportingUser) -> None:
    before = b"\xef\xbb\xbf# mine\r\nKEPT='a b'\r\nLAST=1"
    user.put(".config/mcpx/.env", "").write_bytes(before)
    user.cursor(github=GITHUB)
    user.told("--yes")
    assert (
        user.user_config.parent / ".env"
    ).read_bytes() == before + f"\r\nGITHUB_TOKEN={TOKEN}\r\n".encode()


def test_a_variable_that_is_set_to_something_else_is_not_taken_for_it(user: ImportingUser) -> None:
    """The process environment wins over `.env`: the secret would be lost."""
    user.cursor(github=GITHUB)
    assert user.told("--yes", GITHUB_TOKEN="another")["secrets"]["names"] == ["GITHUB_TOKEN_2"]


def test_the_default_of_a_variable_that_is_a_secret_is_not_lost(user: ImportingUser) -> None:
    user.put(
        ".claude.json",
        {"mcpServers": {"a": {"command": "a", "env": {"A_TOKEN": f"${{A_TOKEN:-{TOKEN}}}"}}}},
    )
    user.told("--yes")
    values = dict(
        line.split("=", 1)
        for line in (user.user_config.parent / ".env").read_text().splitlines()[1:]
    )
    (name,) = values
    assert (
        values[name] == TOKEN
        and user.servers["a"]["connection"]["env"]["A_TOKEN"] == f"${{A_TOKEN:-${{{name}}}}}"
    )


def test_secrets_may_stay_in_the_config(user: ImportingUser) -> None:
    user.cursor(github=GITHUB)
    ended = user.run("--yes", "--secrets", "config")
    assert ended.returncode == 0 and TOKEN not in ended.stdout + ended.stderr
    assert user.servers["github"]["connection"]["env"] == {"GITHUB_TOKEN": TOKEN}
    assert (
        user.user_config.stat().st_mode & 0o777 == 0o600
        and not (user.user_config.parent / ".env").exists()
    )


def in_ring(user: ImportingUser, *words: str) -> "subprocess.CompletedProcess[str]":
    """A program of its own, with a keyring that is a file."""
    more = {"PYTHONPATH": str(FIXTURES / "rings"), "KEYRING_FILE": str(user.home / "ring.json")}
    line = [sys.executable, "-m", "mcpx", *words]
    return subprocess.run(
        line,
        cwd=user.folder,
        env={**user.environ, **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_secrets_go_to_the_keyring_where_that_is_wished(user: ImportingUser) -> None:
    """CFG-9: and the server finds it there."""
    user.cursor(github=GITHUB)
    ended = in_ring(user, "import", "--yes", "--secrets", "keyring")
    assert ended.returncode == 0 and TOKEN not in ended.stdout + ended.stderr, ended.stderr
    assert user.servers["github"]["connection"]["env"] == {
        "GITHUB_TOKEN": "${keyring:GITHUB_TOKEN}"
    }
    assert (
        TOKEN in (user.home / "ring.json").read_text()
        and not (user.user_config.parent / ".env").exists()
    )
    checked = in_ring(user, "check", str(user.user_config))
    assert checked.returncode == 0 and "switched off" not in checked.stderr
    user.cursor(again={**GITHUB, "env": {"GITHUB_TOKEN": OTHER}})
    refused = in_ring(user, "import", "--yes", "--secrets", "keyring")
    assert refused.returncode == 2 and "has another secret named GITHUB_TOKEN" in refused.stderr
    assert (
        "again" not in user.user_config.read_text()
        and OTHER not in (user.home / "ring.json").read_text()
    )


def test_without_a_keyring_nothing_is_written(user: ImportingUser) -> None:
    user.cursor(github=GITHUB)
    ended = user.run("--yes", "--secrets", "keyring")
    assert (
        ended.returncode == 2 and "--secrets env" in ended.stderr and not user.user_config.exists()
    )


# With a gateway that runs


def test_a_running_gateway_takes_it_up(user: ImportingUser) -> None:
    """CFG-5: what was imported is served when the command ends."""
    shop = {"command": sys.executable, "args": [str(FIXTURES / "shop_server.py")]}
    user.cursor(shop=shop)
    with Gateway({"mcp_servers": [], "global": {"hot_reload": False}}) as gateway:
        state = {"MCPX_STATE_DIR": str(gateway.folder / "state")}
        told = user.told("--yes", "--into", str(gateway.file), **state)
        assert told["gateway"]["ok"] and "shop" in told["gateway"]["plan"]
        assert [each["name"] for each in gateway.control("status")["servers"]] == ["shop"]
