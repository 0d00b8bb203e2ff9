"""ADM-2: a configuration for somebody else holds no secret, and loads."""

import json
from pathlib import Path

import pytest
import yaml

from mcpx.config import load
from mcpx.config.edits import EditError, Where
from mcpx.config.exports import export
from mcpx.config.migration import migrated
from mcpx.config.written import nothing_written, read_written

TEXT = """\
mode: search
server: {admin_token: admin-1}
mcp_servers:
  - name: files
    prefix: f
    connection:
      type: stdio
      command: npx
      args: [--api-key, arg-1]
      env: {GITHUB_TOKEN: env-1, LOG: info, OTHER: "${OTHER_TOKEN:-none}"}
  - name: my web
    enabled: false
    connection: {type: http, url: "https://u:pass-1@h/x", headers: {Authorization: Bearer head-1}}
auth_configs:
  - name: k
    type: bearer_token
    bearer_token: {token: "${K_TOKEN:-default-secret-1}"}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "c.yaml"
    file.write_text(TEXT)
    file.chmod(0o600)
    return file


def test_a_native_export_is_the_same_with_variables_for_its_secrets(path: Path) -> None:
    exported = export(read_written(Where(path, {})), "yaml")
    assert not [
        word
        for word in ("arg-1", "env-1", "pass-1", "head-1", "admin-1", "secret-1")
        if word in exported.text
    ]
    values = {"SERVER_ADMIN_TOKEN": "admin-1", "FILES_TOKEN": "arg-1", "GITHUB_TOKEN": "env-1"}
    values |= {"MY_WEB_SECRET": "pass-1", "MY_WEB_AUTHORIZATION": "head-1"}
    assert values.keys() <= exported.variables.keys() and exported.variables[
        "GITHUB_TOKEN"
    ].endswith("env.GITHUB_TOKEN")
    again = path.with_name("again.yaml")
    again.write_text(exported.text)
    again.chmod(0o600)
    before, after = load(path, {"K_TOKEN": "x"}), load(again, {**values, "K_TOKEN": "x"})
    assert (after.mcp_servers[0], after.auth_configs, after.mode) == (
        before.mcp_servers[0],
        before.auth_configs,
        "search",
    )


SHUFFLED = """\
mcp_servers:
  - timeout: 3
    connection: {args: [y], command: npx, type: stdio}
    prefix: p
    name: one
commands:
  - http: {url: "http://h/"}
    type: http
    name: two
"""
CLIENT = (
    '{"mcpServers": {"one": {"timeout": 3, "args": ["y"], "command": "npx", "env": {"A": "b"}}}}'
)


def _keys_of_entries(text: str) -> list[list[str]]:
    tree = yaml.safe_load(text)
    entries = [*tree.get("mcp_servers", ()), *tree.get("commands", ())]
    return [list(table) for entry in entries for table in (entry, entry.get("connection")) if table]


def test_an_export_has_one_order_of_keys(tmp_path: Path) -> None:
    """CFG-8: the name first, whatever the order in the file."""
    file = tmp_path / "c.yaml"
    file.write_text(SHUFFLED)
    keys = _keys_of_entries(export(read_written(Where(file, {})), "yaml").text)
    assert keys == [
        ["name", "prefix", "connection", "timeout"],
        ["type", "command", "args"],
        ["name", "type", "http"],
    ]


def test_a_migrated_file_has_one_order_of_keys(tmp_path: Path) -> None:
    """CFG-8."""
    where = Where(tmp_path / "mcp.json", {})
    where.path.write_text(CLIENT)
    text = migrated(read_written(where), where, tmp_path / "mcpx.yaml").text
    assert _keys_of_entries(text) == [
        ["name", "connection", "call_timeout"],
        ["type", "command", "args", "env"],
    ]


def test_an_export_for_clients_says_what_it_leaves_out(path: Path) -> None:
    exported = export(read_written(Where(path, {})), "mcpServers")
    servers = json.loads(exported.text)["mcpServers"]
    assert servers["files"]["env"] == {
        "GITHUB_TOKEN": "${GITHUB_TOKEN}",
        "LOG": "info",
        "OTHER": "${OTHER_TOKEN:-none}",
    }
    assert servers["my web"]["disabled"] is True and servers["my web"]["type"] == "http"
    assert any("prefix" in line for line in exported.warnings) and any(
        "auth_configs" in line for line in exported.warnings
    )
    assert (
        "SERVER_ADMIN_TOKEN" not in exported.variables and exported.media_type == "application/json"
    )


def test_without_a_file_there_is_nothing_to_export() -> None:
    with pytest.raises(EditError):
        export(nothing_written(), "yaml")
