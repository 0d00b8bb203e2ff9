"""SUR-2: `inspect` and `exec`, in the layout of the document that asked for them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from behaviour.compact import ERAS, Json, Visitor, config, text, told
from fixtures.told_server import NOTE
from kit.client import StdioClient
from kit.gateway import Gateway, GatewayProcess
from kit.messages import modern_request
from kit.servers import everything_server

SHORT = "Reads the complete contents of a file"
LONG = "Lists every commit of a repository. " + "It goes back to the very first one. " * 20

READ = {
    "name": "read",
    "title": "Read",
    "description": SHORT,
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
    "outputSchema": {"type": "object", "properties": {"size": {"type": "integer"}}},
    "annotations": {"readOnlyHint": True, "x-unknown": [1]},
    "_meta": {"example.com/x": {"kept": True}},
    "x-unknown": {"nested": [None, 2.5]},
}
HISTORY = {"name": "history", "description": LONG, "inputSchema": {"type": "object"}}

OWN = """\
    - give: Returns the result it is given
    - refuse: Fails with the error it is given
    - note: Notes its arguments
    - calls: Counts the calls before this one"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("inspect")
    servers = (
        told("files", folder, {"instructions": "Work with\n  files.", "tools": [READ, HISTORY]}),
        told("exact", folder, {"instructions": "e" * 300}),
        told("longer", folder, {"instructions": "m" * 301}),
        told("quiet", schema_compression_enabled=False),
        told("described", description="What the user says it is for"),
    )
    with Gateway(config(*servers, **{"global": {"menu_budget": 4000}})) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.fixture(params=ERAS)
def client(gateway: Gateway, request: pytest.FixtureRequest) -> Visitor:
    return Visitor(gateway.port, "inspect", request.param)


def test_there_are_two_tools_with_the_parameters_of_the_document(client: Visitor) -> None:
    """SUR-2, SUR-12."""
    tools = {tool["name"]: tool["inputSchema"] for tool in client.tools()}
    assert list(tools) == ["inspect", "exec"]
    names = {name: list(schema["properties"]) for name, schema in tools.items()}
    assert names == {
        "inspect": ["server_name", "tool_name"],
        "exec": ["server_name", "tool_name", "arguments", "calls", "continue"],
    }
    assert tools["inspect"]["required"] == ["server_name"]
    assert "required" not in tools["exec"], "one call or calls"
    types = {key: part["type"] for key, part in tools["exec"]["properties"].items()}
    assert list(types.values()) == ["string", "string", "object", "array", "boolean"]


def test_the_description_of_inspect_lists_servers_and_tools(client: Visitor) -> None:
    """SUR-2: the layout of S0, in the order of the config; instructions are cut at 300
    characters."""
    lines = client.menu().split("\n")
    history = lines.pop(9)
    assert "\n".join(lines) == (
        "Inspect available MCP tools and their schemas.\n\nAvailable tools:\n"
        f"  Server: files - Work with files.\n{OWN}\n    - read: {SHORT}\n"
        f"  Server: exact - {'e' * 300}\n{OWN}\n"
        f"  Server: longer - {'m' * 300}...\n{OWN}\n"
        f"  Server: quiet\n{OWN}\n"
        f"  Server: described - What the user says it is for\n{OWN}"
    )
    short = history.removeprefix("    - history: ").removesuffix("...")
    assert LONG.startswith(short) and 20 < len(short) < 120


def test_a_server_is_told_with_all_its_tools(client: Visitor) -> None:
    """SUR-2, SUR-7: signatures for the model, the raw definitions for programs."""
    answer = client.use("inspect", server_name="files")
    raw = {tool["name"]: tool for tool in answer["structuredContent"]["tools"]}
    assert list(raw) == ["give", "refuse", "note", "calls", "read", "history"]
    assert {**raw["read"], **READ} == raw["read"]
    assert raw["read"]["_meta"] == READ["_meta"]
    assert raw["note"]["inputSchema"] == NOTE
    told = text(answer)
    assert f"read({{path: string}}): {SHORT}" in told
    assert LONG.strip() in told
    assert not answer.get("isError")


def test_a_tool_is_told_with_its_whole_schema(client: Visitor) -> None:
    """SUR-2, SUR-7, FMT-1."""
    answer = client.use("inspect", server_name="files", tool_name="note")
    raw = answer["structuredContent"]
    assert (raw["name"], raw["description"], raw["inputSchema"]) == (
        "note",
        "Notes its arguments",
        NOTE,
    )
    told = text(answer)
    for part in (
        "path: string",
        "Where it is",
        "limit?: number",
        'mode?: "fast" | "thorough"',
        "tags?: string[]",
    ):
        assert part in told
    assert "Notes its arguments" in told
    assert '"type"' not in told


def test_schemas_stay_json_where_the_user_wants_it(client: Visitor) -> None:
    """FMT-1: `schema_compression_enabled: false`, here of one server."""
    told = text(client.use("inspect", server_name="quiet", tool_name="note"))
    assert json.dumps(NOTE, separators=(",", ":")) in told


def test_exec_calls_the_tool_of_that_server(client: Visitor) -> None:
    """SUR-2: with arguments and without."""
    assert text(
        client.use("exec", server_name="files", tool_name="note", arguments={"path": "a"})
    ) == ('note {"path": "a"}')
    assert text(client.use("exec", server_name="exact", tool_name="calls")).isdecimal()


def stdio_tools(pipe: StdioClient, era: str) -> tuple[list[Json], Any]:
    """The list, and what `exec` of an addition gives."""
    call = {
        "name": "exec",
        "arguments": {"server_name": "every", "tool_name": "add", "arguments": {"a": 1, "b": 2}},
    }
    if era == "older":
        pipe.greet()
        listed = pipe.request("tools/list")
        return listed["result"]["tools"], pipe.request("tools/call", call)["result"][
            "structuredContent"
        ]
    pipe.send(modern_request("tools/list", id="list"))
    listed = pipe.reply("list")
    pipe.send(modern_request("tools/call", call, id="call"))
    return listed["result"]["tools"], pipe.reply("call")["result"]["structuredContent"]


@pytest.mark.parametrize("era", ERAS)
def test_stdio_and_http_show_the_same(era: str) -> None:
    """SUR-2, SUR-6: `mode:` in the config counts on every front; both ways are the same to the last
    byte."""
    every = everything_server("every")
    with (
        GatewayProcess(config(every, mode="inspect")) as served,
        GatewayProcess(served.config, transport="stdio") as alone,
    ):
        over_http = Visitor(served.port, era=era)
        assert over_http.names() == ["inspect", "exec"]
        with StdioClient(alone.stdio_command, alone.env) as pipe:
            tools, added = stdio_tools(pipe, era)
        assert tools == over_http.tools()
        assert added == {"sum": 3}
