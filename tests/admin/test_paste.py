"""Paste anything: what is recognised, and that every text gets an answer (ADM-2, ADM-5)."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.admin_api import AdminApi
from kit.gateway import Gateway
from kit.messages import Json
from mcpx.admin.desk import About, Desk
from mcpx.admin.pasting import recognise
from mcpx.admin.shapes.servers import PasteResult
from mcpx.config import Config
from mcpx.core.gateway import Gateway as Inside
from mcpx.core.store import ConfigStore
from mcpx.imports.curl import preview_curl
from mcpx.imports.openapi import preview_openapi

SLOW = 5.0
"""Seconds no paste may take on a busy machine; on an idle one none takes one."""
TAKEN: Json = {"name": "github", "enabled": False, "connection": {"type": "stdio", "command": "x"}}


@pytest.fixture(scope="module")
def api() -> Iterator[AdminApi]:
    with Gateway({"mcp_servers": [TAKEN]}, admin=True) as gateway:
        yield AdminApi(gateway)


def pasted(api: AdminApi, text: str) -> Json:
    return api.post("/api/paste", {"text": text})


def connections(found: Json) -> dict[str, Json]:
    assert all(each["section"] == "mcp_servers" for each in found["entries"]), found
    return {each["entry"]["name"]: each["entry"]["connection"] for each in found["entries"]}


FILES: dict[str, tuple[str, dict[str, Json]]] = {
    "mcpServers": (
        '{"mcpServers": {"a": {"command": "npx", "args": ["-y", "p"]}, "b": {"url": '
        '"https://h/sse"}}}',
        {
            "a": {"type": "stdio", "command": "npx", "args": ["-y", "p"]},
            "b": {"type": "sse", "url": "https://h/sse"},
        },
    ),
    "comments": (
        '// mine\n{"mcpServers": {"a": {"command": "x", /* that */ "args": [],},},}',
        {"a": {"type": "stdio", "command": "x", "args": []}},
    ),
    "vscode": (
        '{"servers": {"a": {"type": "http", "url": "https://h/mcp"}}, "inputs": []}',
        {"a": {"type": "http", "url": "https://h/mcp"}},
    ),
    "codex": (
        '[mcp_servers.a]\ncommand = "x"\nargs = ["y"]\n',
        {"a": {"type": "stdio", "command": "x", "args": ["y"]}},
    ),
    "native": (
        "mcp_servers:\n  - name: a\n    connection: {type: websocket, url: 'wss://h/ws'}\n",
        {"a": {"type": "websocket", "url": "wss://h/ws"}},
    ),
    "code": (
        """code --add-mcp '{"name": "a", "command": "x"}'""",
        {"a": {"type": "stdio", "command": "x"}},
    ),
    "claude json": (
        """claude mcp add-json a '{"command": "x", "args": ["y"]}'""",
        {"a": {"type": "stdio", "command": "x", "args": ["y"]}},
    ),
    "a README's fence": (
        '```json\n{"mcpServers": {"a": {"command": "x"}}}\n```',
        {"a": {"type": "stdio", "command": "x"}},
    ),
}


@pytest.mark.parametrize("shape", FILES)
def test_a_clients_file_is_recognised(api: AdminApi, shape: str) -> None:
    text, wanted = FILES[shape]
    found = pasted(api, text)
    assert found["kind"] == "servers" and connections(found) == wanted
    assert all(
        next(iter(each["entry"])) == "name" and each["yaml"].startswith("- name: ")
        for each in found["entries"]
    )


LINES: dict[str, tuple[str, str, Json]] = {
    "npx": (
        "npx -y @modelcontextprotocol/server-filesystem ~/data",
        "filesystem",
        {
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-filesystem", "~/data"],
        },
    ),
    "uvx with a variable": (
        "TZ=Europe/Berlin uvx mcp-server-time",
        "time",
        {
            "type": "stdio",
            "command": "uvx",
            "args": ["mcp-server-time"],
            "env": {"TZ": "Europe/Berlin"},
        },
    ),
    "docker": (
        "docker run -i --rm -e TOKEN mcp/slack",
        "slack",
        {
            "type": "stdio",
            "command": "docker",
            "args": ["run", "-i", "--rm", "-e", "TOKEN", "mcp/slack"],
            "env": {"TOKEN": "${TOKEN}"},
        },
    ),
    "claude mcp add": (
        "claude mcp add --transport http sentry https://mcp.sentry.dev/mcp",
        "sentry",
        {"type": "http", "url": "https://mcp.sentry.dev/mcp"},
    ),
}


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_is_recognised(api: AdminApi, line: str) -> None:
    text, name, connection = LINES[line]
    found = pasted(api, text)
    assert found["kind"] == "command_line" and connections(found) == {name: connection}


ADDRESSES = {
    "https://h.example/mcp": "http",
    "https://h.example/sse": "sse",
    "wss://h.example/x": "websocket",
}


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_is_a_server_and_nothing_is_fetched(api: AdminApi, url: str) -> None:
    found = pasted(api, url)
    assert found["kind"] == "url" and list(connections(found).values()) == [
        {"type": ADDRESSES[url], "url": url}
    ]


def test_an_openapi_document_gives_operations_to_pick_from(api: AdminApi) -> None:
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "https://pets.example"}],
        "paths": {
            "/pets": {"get": {"operationId": "list", "tags": ["a"]}, "post": {"operationId": "add"}}
        },
    }
    found = pasted(api, json.dumps(document))
    assert found["kind"] == "openapi" and found["entries"] == [] and "Pets" in found["title"]
    assert [(each["id"], each["method"], each["read_only"]) for each in found["operations"]] == [
        ("list", "GET", True),
        ("add", "POST", False),
    ]
    assert pasted(api, "openapi: 3.0.0\ninfo: {title: x}\npaths: {}\n")["kind"] in (
        "openapi",
        "nothing",
    )


def test_a_curl_line_is_a_command_and_its_secret_a_variable(api: AdminApi) -> None:
    found = pasted(
        api, "curl https://api.example.com/v1/pets \\\n  -H 'Authorization: Bearer canary-81818181'"
    )
    assert found["kind"] == "curl" and "canary" not in json.dumps(found)
    assert [each["section"] for each in found["entries"]] == ["auth_configs", "commands"]


def test_a_literal_secret_stays_in_its_entry_and_a_variable_is_advised(api: AdminApi) -> None:
    found = pasted(api, "GITHUB_TOKEN=ghp_0123456789abcdefghijklmnopqrstuvwxyz npx -y gh")
    (entry,) = connections(found).values()
    assert entry["env"]["GITHUB_TOKEN"].startswith("ghp_")
    (warning,) = found["warnings"]
    assert "${GITHUB_TOKEN}" in warning and "ghp_" not in warning


def test_names_are_possible_and_each_is_there_once(api: AdminApi) -> None:
    """One that the configuration has already is told, with a name that is free."""
    given = {"github": {"command": "x"}, " a\u0007\n": {"command": "y"}, "a": {"command": "z"}}
    text = json.dumps({"mcpServers": given})
    found = pasted(api, text)
    assert list(connections(found)) == ["github", "a", "a-2"]
    assert [(each["taken"], each["free_name"]) for each in found["entries"]] == [
        (True, "github-2"),
        (False, None),
        (False, None),
    ]
    assert list(connections(pasted(api, '{"mcpServers": {"mcpx": {"command": "x"}}}'))) == [
        "mcpx-2"
    ]


NOTHING = ["", "   ", "How do I add a server?", "你好", "hello there", "{}", "[]", "a: b", "\ufeff"]


@pytest.mark.parametrize("text", NOTHING)
def test_anything_else_says_what_would_be_understood(api: AdminApi, text: str) -> None:
    found = pasted(api, text)
    assert found["kind"] == "nothing" and found["entries"] == [] and "OpenAPI" in found["title"]


def test_a_bad_entry_and_a_tool_filter_are_reported_beside_the_good_entries(api: AdminApi) -> None:
    """ADM-5: a filter is no part of an entry, so that the user must know of it."""
    servers = {"good": {"command": "x", "includeTools": ["read"]}, "bad": {"note": "no server"}}
    found = pasted(api, json.dumps({"mcpServers": servers}))
    assert [each["entry"]["name"] for each in found["entries"]] == ["good"]
    assert found["warnings"][0].startswith("'bad' is left out: neither 'command' nor 'url'")
    assert "'good' hides tools there (tools: only read)" in found["warnings"][1]


def test_a_file_that_cannot_be_read_says_where(api: AdminApi) -> None:
    found = pasted(api, '{"mcpServers": {\n  "a": {"command" "x"}}}')
    assert found["kind"] == "nothing" and found["warnings"][0].startswith("line 2, column")


def answered(text: str) -> PasteResult:
    """At a real desk, in this process."""

    async def ask() -> PasteResult:
        gateway = Inside(Config(), {})
        try:
            store = ConfigStore(gateway, None, lambda config: None)
            about = About(version="0", transport="http", started=0, config=None)
            imports: dict[str, Any] = {
                "openapi": preview_openapi,
                "curl": preview_curl,
            }
            return await recognise(
                Desk(gateway=gateway, store=store, about=lambda: about, imports=imports), text
            )
        finally:
            await gateway.close()

    began = time.process_time()
    found = asyncio.run(ask())
    assert time.process_time() - began < SLOW
    return found


BEGINNINGS = (
    'curl |npx |claude mcp add |code --add-mcp |{"mcpServers":|servers:|openapi: 3.0.0\n|[a.b]\n'
)
PARTS = (
    "'|\"|{|}|[|]|\\\n|\n|- |: |=|${|$|http://|ws://|::|\0|\ud800|-e |--|#|&a |*a |<<: |```|\u202e"
)
KNOWN = "name|command|paths:|{get: {}}|connection|type: http"
WORDS = st.sampled_from(f"{BEGINNINGS}|{PARTS}|{KNOWN}".split("|"))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.text(max_size=300), st.lists(WORDS, max_size=40).map("".join)))
def test_any_text_gets_an_answer(text: str) -> None:
    found = answered(text)
    assert found.title and found.kind
    for each in found.entries:
        name = each.entry["name"]
        assert 1 <= len(name) <= 64 and name.isprintable() and name == name.strip()


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = st.sampled_from(
    ["mcpServers", "servers", "mcp_servers", "commands", "auth_configs", "openapi", "mcp", "paths"]
)
FIELDS = st.sampled_from(
    ["command", "args", "env", "url", "headers", "type", "name", "connection", "http", "auth", "id"]
)
SECTION = st.dictionaries(st.text(max_size=5), st.dictionaries(FIELDS, NESTED)) | NESTED


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(KEYS, SECTION, max_size=3))
def test_any_json_gets_an_answer(tree: Any) -> None:
    answered(json.dumps(tree))


HUGE = {
    "line breaks": "a" + "\n" * 999_000 + "b",
    "one word": "a" * 999_000,
    "brackets": "[" * 999_000,
    "words": "a " * 499_000,
    "a quote that stays open": "npx '" + "a" * 60_000,
    "an address": "https://" + "a" * 999_000,
    "many servers": json.dumps({"mcpServers": {f"s{n}": {"command": "x"} for n in range(5_000)}}),
    "names that are one": json.dumps(
        {"mcpServers": {"s" + "\u200b" * n: {"command": "x"} for n in range(500)}}
    ),
    "many operations": "openapi: 3.0.0\npaths:\n"
    + "".join(f"  /{n}: {{get: {{}}}}\n" for n in range(5_000)),
    "a long curl": "curl https://h.example " + "-H a:b " * 50_000,
    "a curl of one option": "curl -" + "s" * 500_000 + " https://h.example",
    "a curl with many quotes": "curl https://h.example -d $'" + "\\'" * 200_000 + "'",
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_text_is_answered_soon(name: str) -> None:
    assert len(answered(HUGE[name]).entries) <= 500
