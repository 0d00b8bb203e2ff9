"""Names, pages and settings as a user meets them: a file is written, mcpx is started on it, a
client looks."""

import base64
import json
import re
from pathlib import Path

import pytest

from behaviour.compact import Visitor
from behaviour.compact import told as told_server
from kit.client import Session, StdioClient
from kit.command import MCPX
from kit.gateway import Gateway
from kit.messages import Json, structured_content, text_of
from kit.process import stdio_command
from kit.servers import raw_server

TAKES = {"type": "object", "properties": {}}


def tool(name: str, description: str = "") -> Json:
    return {"name": name, "description": description, "inputSchema": TAKES}


def names_of(client: Session, server: str) -> dict[str, str]:
    """The server's own name -> the public one."""
    listed = client.request("tools/list")["result"]["tools"]
    origins = [(entry["name"], entry["_meta"]["proxy"]) for entry in listed]
    return {origin["name"]: public for public, origin in origins if origin["server"] == server}


ODD_NAMES = ("read file", "größe", "名前", "a/b:c", "x" * 100, "x" * 99 + "y")


def test_names_that_clients_refuse_are_made_safe_and_still_lead_to_their_tool(
    tmp_path: Path,
) -> None:
    """NAM-5, NAM-3: characters and length; no two become one, and the next start gives the same
    names."""
    config = {
        "mcp_servers": [
            told_server("odd", tmp_path, {"tools": [tool(name) for name in ODD_NAMES]}, prefix="")
        ]
    }
    seen: list[dict[str, str]] = []
    for _ in range(2):
        with Gateway(config) as gateway:
            client = Session(gateway.port)
            seen.append(names_of(client, "odd"))
            for native in ODD_NAMES:
                called = client.call(seen[-1][native])
                assert native in str(called), called
    public = {native: seen[0][native] for native in ODD_NAMES}
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in public.values()), public
    assert len(set(public.values())) == len(ODD_NAMES)
    assert all(
        re.search(r"_[0-9a-f]{6}$", public[native]) for native in ODD_NAMES if len(native) > 64
    )
    assert seen[0] == seen[1]


def test_two_servers_with_one_name_are_told_apart_in_the_order_of_the_config() -> None:
    """NAM-1, NAM-6: the first keeps the plain name, whoever is up first; both are called by what is
    listed."""
    slow, quick = (
        raw_server("slow", "--start-delay", "0.5", prefix=""),
        raw_server("quick", prefix=""),
    )
    with Gateway(
        {"global": {"startup_wait": 10, "first_start_wait": 10}, "mcp_servers": [slow, quick]}
    ) as gateway:
        client = Session(gateway.port)
        names = {server: names_of(client, server) for server in ("slow", "quick")}
        assert (names["slow"]["whoami"], names["quick"]["whoami"]) == ("whoami", "quick_whoami")
        assert (
            structured_content(client.call("whoami"))["pid"]
            != structured_content(client.call("quick_whoami"))["pid"]
        )
        assert [name for name in client.tools() if name.endswith("echo")] == ["echo", "quick_echo"]


def test_a_list_is_one_page_unless_pages_are_asked_for() -> None:
    """NAM-6: `limit` and `cursor` on the aggregated list; every entry once, in the same order."""
    with Gateway(
        {"mcp_servers": [raw_server("one", "--name-count", "7"), raw_server("two")]}
    ) as gateway:
        client = Session(gateway.port)
        whole = client.request("tools/list")["result"]
        assert "nextCursor" not in whole
        pages, params = [], {"limit": 4}
        while True:
            page = client.request("tools/list", params)["result"]
            pages.append(page["tools"])
            if "nextCursor" not in page:
                break
            offset = json.loads(base64.b64decode(page["nextCursor"]))
            assert offset == {"offset": sum(map(len, pages))}
            params = {"limit": 4, "cursor": page["nextCursor"]}
        assert [entry for page in pages for entry in page] == whole["tools"]
        assert {len(page) for page in pages[:-1]} == {4}


def test_a_search_finds_what_is_meant_in_either_language(tmp_path: Path) -> None:
    """FMT-3, SUR-4: exact name before prefix before description; typos, camelCase and Chinese words
    find as well."""
    offered = {
        "tools": [
            tool("weather", "Tells what it is like outside"),
            tool("weather_map", "Draws a picture"),
            tool("forecast", "The weather of the days to come"),
            tool("sendEmail", "Writes to somebody"),
            tool("translate", "把文字翻译成另一种语言"),
        ]
    }
    with Gateway(
        {"mode": "search", "mcp_servers": [told_server("it", tmp_path, offered)]}
    ) as gateway:
        client = Session(gateway.port)

        def found(query: str) -> list[str]:
            result = client.call("mcp_search_tools", query=query)["result"]
            return [entry["name"] for entry in result["structuredContent"]["tools"]]

        assert found("weather")[:3] == ["weather", "weather_map", "forecast"]
        assert (
            found("send email")[0]
            == found("send_email")[0]
            == found("sned email")[0]
            == "sendEmail"
        )
        assert found("翻译")[0] == "translate"


YAML = """
naming: {separator: "::", prefix: always}
server: {host: 127.0.0.1, port: 0}
global: {call_timeout: 20, startup_wait: 10, first_start_wait: 10}
mcp_servers:
  - name: here
    connection: {type: stdio, command: %s, args: %s}
  - name: away
    enabled: false
    connection: {type: stdio, command: nobody-has-this}
"""


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_one_file_says_it_all(tmp_path: Path, suffix: str) -> None:
    """CFG-1, NAM-2: YAML and JSON alike, and nothing else is needed or written beside it."""
    command, *args = stdio_command("raw_server.py")
    file = tmp_path / f"config.{suffix}"
    if suffix == "yaml":
        file.write_text(YAML % (json.dumps(command), json.dumps(args)), encoding="utf-8")
    else:
        connection = {"type": "stdio", "command": command, "args": args}
        naming = {"separator": "::", "prefix": "always"}
        away = {
            "name": "away",
            "enabled": False,
            "connection": {"type": "stdio", "command": "nobody-has-this"},
        }
        servers = [{"name": "here", "connection": connection}, away]
        whole = {
            "naming": naming,
            "server": {"port": 0},
            "global": {"startup_wait": 10, "first_start_wait": 10},
            "mcp_servers": servers,
        }
        file.write_text(json.dumps(whole), encoding="utf-8")
    file.chmod(0o600)
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "MCPX_STATE_DIR": str(tmp_path / "state"),
    }
    with StdioClient([*MCPX, str(file), "--transport", "stdio"], env) as client:
        client.greet()
        assert text_of(client.call("here::echo", text="hello")) == "hello"
        listed = client.request("tools/list")["result"]["tools"]
        assert {entry["_meta"]["proxy"]["server"] for entry in listed} == {"here"}
        assert client.finish() == 0
    assert {path.name for path in tmp_path.iterdir()} <= {file.name, "state"}


def test_values_come_from_the_environment_from_env_files_and_from_files(tmp_path: Path) -> None:
    """CFG-3: as the server sees them; the process wins over `.env`, `$$` is a dollar, a disabled
    server's are not looked up."""
    (tmp_path / ".env").write_text("FROM_DOTENV=dotenv\nBOTH=dotenv\n", encoding="utf-8")
    (tmp_path / ".env").chmod(0o600)
    (tmp_path / "secret").write_text("from a file\n", encoding="utf-8")
    wanted = {
        "A": "${FROM_PROCESS}",
        "B": "${env:FROM_PROCESS} twice",
        "C": "${FROM_DOTENV}",
        "D": "${BOTH}",
        "E": "${NOT_SET:-a default}",
        "F": "${file:secret}",
        "G": "$${FROM_PROCESS}",
    }
    off = {
        "name": "off",
        "enabled": False,
        "connection": {"type": "stdio", "command": "${NOT_SET}"},
    }
    config = {"mcp_servers": [raw_server("it", connection={"env": wanted}), off]}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    file.chmod(0o600)
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "MCPX_STATE_DIR": str(tmp_path / "state"),
    }
    with StdioClient(
        [*MCPX, str(file), "--transport", "stdio"],
        {**env, "FROM_PROCESS": "process", "BOTH": "process"},
    ) as it:
        it.greet()
        got = structured_content(it.call("it_whoami"))["env"]
        assert {name: got.get(name) for name in wanted} == {
            "A": "process",
            "B": "process twice",
            "C": "dotenv",
            "D": "process",
            "E": "a default",
            "F": "from a file",
            "G": "${FROM_PROCESS}",
        }
        assert it.finish() == 0


def test_an_unset_variable_is_never_a_literal(tmp_path: Path) -> None:
    """CFG-3: `mcpx check` warns with the variable, its place, and the disabled server; `--strict`
    makes it an error."""
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps({"mcp_servers": [raw_server("it", connection={"env": {"A": "${NOT_SET}"}})]})
    )
    file.chmod(0o600)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with StdioClient([*MCPX, "check", str(file)], environ) as check:
        assert check.wait() == 0
        message = r"warning: server 'it' is .*NOT_SET.*config\.json:\d+:\d+"
        assert check.stderr.wait_for(message, 5) is not None, check.stderr.text
    with StdioClient([*MCPX, "check", "--strict", str(file)], environ) as check:
        assert check.wait() == 2
        assert check.stderr.wait_for(r"error: .*NOT_SET", 5) is not None, check.stderr.text
        assert (
            check.stderr.wait_for(r"config\.json:\d+:\d+ .*mcp_servers\[0\]\.connection\.env\.A", 5)
            is not None
        )


def test_compact_names_lead_to_odd_tools_too(tmp_path: Path) -> None:
    """NAM-5, SUR-3: a tool is called by the name its own server gave it."""
    with Gateway(
        {
            "mode": "describe",
            "mcp_servers": [told_server("odd", tmp_path, {"tools": [tool("read file")]})],
        }
    ) as it:
        visitor = Visitor(it.port, "describe")
        assert "read file" in str(visitor.run("odd", "read file", {}))
