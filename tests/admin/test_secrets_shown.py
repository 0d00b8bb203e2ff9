"""SEC-4, OBS-1, ADM-2: no view, export, report, log, or error shows a secret of a real
configuration."""

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import yaml

from kit.admin_api import AdminApi
from kit.command import run_command
from kit.gateway import Gateway
from kit.process import FIXTURES
from kit.until import wait_until
from mcpx.config.edits import Where
from mcpx.config.masking import MASK, mask, unmask
from mcpx.config.written import read_written
from mcpx.model.redaction import Redactor
from mcpx.model.secret_rules import learnable_secrets

Json = dict[str, Any]
CASES: list[Json] = yaml.safe_load((FIXTURES / "server_configs.yaml").read_text())
SERVERS = [case for case in CASES if "server" in case]
COMMANDS = [case for case in CASES if "server" not in case]
PRINT_ALL = 'printf "%s\\n" "$@" >&2; env >&2; exit 1'
"""A program that shows its arguments and its environment on stderr."""


def entry_of(case: Json) -> Json:
    city = [{"name": "city", "type": "string", "required": True}]
    if "server" in case:
        kind = "stdio" if "command" in case["server"] else "http"
        return {"name": case["name"], "connection": {"type": kind, **case["server"]}}
    if "http_command" in case:
        return {
            "name": case["name"],
            "type": "http",
            "parameters": city,
            "http": case["http_command"],
        }
    script = {"path": "script.sh", **case["script_command"]}
    return {"name": case["name"], "type": "script", "parameters": city, "script": script}


def config_of(servers: list[Json]) -> Json:
    return {"mcp_servers": servers, "commands": [entry_of(case) for case in COMMANDS]}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    else:
        yield str(value)


def shown_secrets(text: str) -> list[str]:
    return [
        f"{case['name']}: {secret}"
        for case in CASES
        for secret in case["secrets"]
        if secret in text
    ]


def hidden_values(text: str) -> list[str]:
    return [
        f"{case['name']}: {value}"
        for case in CASES
        for value in case["harmless"]
        if value not in text
    ]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """With all configurations, none of them started."""
    servers = [{**entry_of(case), "enabled": False} for case in SERVERS]
    with Gateway(yaml.safe_dump(config_of(servers), width=1000), admin=True) as started:
        script = started.folder / "script.sh"
        script.write_text("#!/bin/sh\n")
        script.chmod(0o700)
        yield started


def test_the_corpus_is_large_enough_and_tells_the_truth() -> None:
    assert len(CASES) >= 60 and len({case["name"] for case in CASES}) == len(CASES)
    for case in CASES:
        whole = "\n".join(texts(entry_of(case)))
        assert not [part for part in (*case["secrets"], *case["harmless"]) if part not in whole], (
            case["name"]
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_configuration_is_masked_and_restored(case: Json) -> None:
    tree = config_of([entry_of(case)] if "server" in case else [])
    masked = mask(tree)
    assert not [secret for secret in case["secrets"] if secret in "\n".join(texts(masked))]
    assert unmask(masked, copy.deepcopy(tree)) == tree


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_redactor_learns_the_secrets_and_leaves_other_text(case: Json) -> None:
    redactor = Redactor()
    redactor.learn("config", learnable_secrets({"mcp_servers": [entry_of(case)]}))
    for secret in case["secrets"]:
        assert secret not in redactor.redact(f"error: cannot use {secret}: refused")
    ordinary = (
        "listening on port 8080, level info, mode true, user root, database postgres, "
        "transport stdio, local, demo"
    )
    assert redactor.redact(ordinary) == ordinary


def test_harmless_values_stay_readable() -> None:
    text = "\n".join(texts(mask(config_of([entry_of(case) for case in SERVERS]))))
    hidden = hidden_values(text)
    assert len(hidden) <= 0.05 * sum(len(case["harmless"]) for case in CASES), hidden


@pytest.mark.parametrize(
    "path",
    [
        "/api/config",
        "/api/mcp-servers",
        "/api/commands",
        "/api/config/export",
        "/api/config/export?format=mcp-json",
    ],
)
def test_the_admin_api_shows_no_secret(path: str, gateway: Gateway) -> None:
    text = "\n".join(texts(AdminApi(gateway).get(path)))
    assert not shown_secrets(text)
    assert "@modelcontextprotocol/server-postgres" in text or path == "/api/commands"


def test_the_command_line_exports_no_secret(gateway: Gateway) -> None:
    done = run_command(["export", str(gateway.file)], gateway.folder, gateway.env)
    assert done.returncode == 0 and "server-postgres" in done.stdout
    assert not shown_secrets(done.stdout + done.stderr)


def test_diagnostics_hold_neither_variables_nor_arguments(gateway: Gateway) -> None:
    text = "\n".join(texts(AdminApi(gateway).get("/api/diagnostics")))
    assert not shown_secrets(text) and "GITHUB_TOOLSETS" in text
    assert "repos,issues,pull_requests" not in text and "server-postgres" not in text


def test_a_text_that_is_sent_back_masked_keeps_its_secrets(gateway: Gateway) -> None:
    api = AdminApi(gateway)
    (file,) = api.get("/api/config")["files"]
    before = yaml.safe_load(gateway.file.read_text())
    changed = file["text"].replace("us-central1", "us-central2")
    api.post("/api/config", {"text": changed}, If_Match=api.etag)
    text = gateway.file.read_text()
    assert MASK not in text and yaml.safe_load(text.replace("us-central2", "us-central1")) == before


@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case["name"])
def test_a_dry_run_shows_no_secret(case: Json, gateway: Gateway) -> None:
    trial = {"arguments": {"city": "Rome"}, "dry": True}
    answer = AdminApi(gateway).ask("POST", f"/api/commands/{case['name']}/test", trial)
    assert answer.status == 200 and answer.json["ok"], answer.body
    text = "\n".join(texts(answer.json["resolved"]))
    assert (not shown_secrets(text) and "Rome" in text) or "login" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("type: stdio", "type: stdoi"),
        ("args:", "argz:"),
        ("env:", "envv:"),
        ("mcp_servers:", "mcp_servers: [\n"),
    ],
    ids=["type", "args", "env", "unreadable"],
)
def test_mistakes_show_no_secret(old: str, new: str, gateway: Gateway) -> None:
    """Neither the plan of a text with mistakes, nor the mistakes, nor the file if somebody writes
    it like that."""
    api = AdminApi(gateway)
    good = gateway.file.read_text()
    text = good.replace(old, new)
    for path in ("/api/config/plan", "/api/config/validate"):
        answer = api.ask("POST", path, {"text": text})
        assert answer.status == 200 and not shown_secrets("\n".join(texts(answer.json)))
    try:
        gateway.file.write_text(text)
        assert not shown_secrets("\n".join(texts(api.get("/api/config"))))
        done = run_command(["check", str(gateway.file)], gateway.folder, gateway.env)
        assert done.returncode == 2 and not shown_secrets(done.stdout + done.stderr)
    finally:
        gateway.file.write_text(good)


def _starting(case: Json) -> Json:
    """A server that fails: a program that prints its arguments and variables, or an address without
    a listener."""
    entry = entry_of(case)
    connection = entry["connection"]
    if "command" in connection:
        # The options keep their places, for a secret may follow its option.
        connection = {
            **connection,
            "command": "sh",
            "args": ["-c", PRINT_ALL, "sh", *connection.get("args", [])],
        }
    else:
        connection = {
            **connection,
            "url": urlunsplit(("http", "127.0.0.1:9", *urlsplit(connection["url"])[2:])),
        }
    return {**entry, "connection": connection, "auto_reconnect": False, "retry_on_failure": False}


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a POSIX shell")
def test_logs_and_errors_show_no_secret() -> None:
    """OBS-1: servers that fail and print all that they were given."""
    servers = [_starting(case) for case in SERVERS]
    with Gateway(yaml.safe_dump({"mcp_servers": servers}, width=1000), admin=True) as gateway:
        api = AdminApi(gateway)
        wait_until(_all_failed(api, len(servers)))
        seen = [gateway.stderr(), "\n".join(texts(api.get("/api/mcp-servers")))]
        for case in SERVERS:
            name = case["name"]
            seen += texts(
                [api.get(f"/api/mcp-servers/{name}"), api.get(f"/api/mcp-servers/{name}/logs")]
            )
        text = "\n".join(seen)
        assert "mcp-server-fetch" in text and not shown_secrets(text)


def _all_failed(api: AdminApi, count: int) -> Callable[[], bool]:
    return lambda: (
        sum(row["last_error"] is not None for row in api.get("/api/mcp-servers")["servers"])
        == count
    )


TOKEN = "fake-opaque-example-thirty"
BROKEN_YAML = f"""\
mcp_servers:
  - name: a
    args: ['--header', 'X-Access: {TOKEN}']
   bad: [
  env:
    MY_ACCESS: {TOKEN}
"""
BROKEN_JSON = f"""{{"mcpServers": {{"a": {{"args": ["--token", "{TOKEN}"], "env": {{"MY_ACCESS": "{TOKEN}"}}}}"""
TOML = f"""\
[mcp_servers.a]
command = "x"
args = ["-H", "X-Access: {TOKEN}"]
env = {{ MINE = "{TOKEN}" }}
"""


@pytest.mark.parametrize(
    ("form", "text"), [("yaml", BROKEN_YAML), ("json", BROKEN_JSON), ("toml", TOML)]
)
def test_a_file_that_cannot_be_read_or_changed_shows_no_secret(
    form: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / f"config.{form}"
    path.write_text(text)
    path.chmod(0o600)
    shown = read_written(Where(path, {})).text()
    assert TOKEN not in shown and MASK in shown
