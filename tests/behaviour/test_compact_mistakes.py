"""SUR-9: a model's mistake comes back as a tool error that lets it correct itself, whatever it
sent."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from behaviour.compact import CALLER, ERAS, MODES, Json, Visitor, config, told
from kit.client import post, wait_until_settled
from kit.gateway import Gateway, GatewayProcess
from kit.messages import request

JUNK = "j" * 1_000_000
SIGNATURE = {
    "inspect": "note({path: string",
    "describe": "told.note({path: string",
    "search": "told_note({path: string",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    offers: Json = {
        "tools": [{"name": "only", "inputSchema": {"type": "object"}}],
        "resources": [{"uri": "other://text", "name": "text"}],
    }
    folder = tmp_path_factory.mktemp("offers")
    with GatewayProcess(
        config(told("told"), told("weather.api"), told("other", folder, offers))
    ) as gateway:
        wait_until_settled(gateway.port)
        yield gateway
        assert gateway.process.poll() is None
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.fixture(
    params=[(mode, era) for mode in MODES for era in ERAS], ids=lambda both: "-".join(both)
)
def client(gateway: Gateway, request: pytest.FixtureRequest) -> Visitor:
    return Visitor(gateway.port, *request.param)


def still_answers(client: Visitor) -> bool:
    return client.run("told", "note", {"path": "a"})["content"][0]["text"] == 'note {"path": "a"}'


def test_an_unknown_tool_is_told_with_the_nearest_names(client: Visitor) -> None:
    """SUR-9."""
    error = client.error(client.run("told", "notee"))
    assert "notee" in error and '"told_note"' in error.replace('"note"', '"told_note"')
    assert still_answers(client)


@pytest.mark.parametrize("mode", ["inspect", "describe"])
def test_an_unknown_server_is_told_with_the_nearest_names(gateway: Gateway, mode: str) -> None:
    """SUR-9: the nearest ones, or those there are."""
    client = Visitor(gateway.port, mode)
    error = client.error(client.run("tolt", "note"))
    assert '"tolt"' in error and '"told"' in error
    error = client.error(client.run("qqqq", "note"))
    assert "told" in error and "weather.api" in error


def test_a_method_without_a_dot_is_explained(gateway: Gateway) -> None:
    """SUR-9, SUR-3."""
    client = Visitor(gateway.port, "describe")
    assert "server.tool" in client.error(client.use("call", method="note"))
    assert "told" in client.error(client.use("call", method="told"))
    for method in (".", "told.", ".note", "weather.note", "..", "told..note", ""):
        assert client.error(client.use("call", method=method))
        assert client.error(client.use("describe", method=method))


ELSEWHERE: list[tuple[str, str, Json, list[str]]] = [
    (
        "describe",
        "call",
        {"method": "note"},
        [
            'call {"method": "told.note", "arguments": {...}}',
            'call {"method": "weather.api.note", "arguments": {...}}',
        ],
    ),
    (
        "describe",
        "call",
        {"method": "told/note"},
        ['call {"method": "told.note", "arguments": {...}}'],
    ),
    (
        "describe",
        "call",
        {"method": "told_note"},
        ['call {"method": "told.note", "arguments": {...}}'],
    ),
    ("describe", "describe", {"method": "note"}, ['"told.note"']),
    (
        "inspect",
        "inspect",
        {"server_name": "told.note"},
        ['"told"', 'exec {"server_name": "told", "tool_name": "note", "arguments": {...}}'],
    ),
    (
        "inspect",
        "exec",
        {"server_name": "told", "tool_name": "only"},
        ['exec {"server_name": "other", "tool_name": "only", "arguments": {...}}'],
    ),
    (
        "search",
        "mcp_execute_tool",
        {"tool_name": "result", "arguments": {}},
        ['mcp_execute_tool {"tool_name": "mcpx.result", "arguments": {...}}'],
    ),
    ("search", "mcp_execute_tool", {"tool_name": "note", "path": "a"}, ['goes into "arguments"']),
]


@pytest.mark.parametrize(("mode", "tool", "arguments", "words"), ELSEWHERE)
def test_who_names_a_tool_in_another_form_is_told_how_to_call_it(
    gateway: Gateway, mode: str, tool: str, arguments: Json, words: list[str]
) -> None:
    """SUR-9: the names of other surfaces, of other servers, with other separators."""
    error = Visitor(gateway.port, mode)
    told = error.error(error.use(tool, **arguments))
    assert [word for word in words if word not in told] == []


def test_blanks_around_a_name_do_not_matter(client: Visitor) -> None:
    """SUR-9."""
    assert client.run("told", "note ", {"path": "a"})["content"][0]["text"] == 'note {"path": "a"}'


def test_a_resource_of_another_server_is_told_with_its_owner(gateway: Gateway) -> None:
    """SUR-3, SUR-9: what the server named says, and whose it is."""
    client = Visitor(gateway.port, "describe")
    error = client.error(client.use("resources", server_name="told", uri="other://text"))
    assert 'resource of server "other"' in error


@pytest.mark.parametrize(
    "arguments",
    [
        "junk",
        "[1, 2]",
        [1, {"a": 2}],
        17,
        1.5,
        True,
        False,
        [],
        {"path": JUNK, "limit": JUNK},
        JUNK,
        [JUNK],
    ],
    ids=lambda value: f"{type(value).__name__}-{len(json.dumps(value))}",
)
def test_arguments_that_are_no_object_are_refused_in_few_words(
    client: Visitor, arguments: Any
) -> None:
    """SUR-9: with the signature, however much was sent."""
    result = client.run("told", "note", arguments)
    error = client.error(result)
    assert SIGNATURE[client.mode] in error
    assert len(json.dumps(result)) < 4_000
    assert still_answers(client)


def test_arguments_as_json_text_are_understood_and_none_are_none(client: Visitor) -> None:
    """SUR-9, SUR-7: the one is said, the other is the same as leaving them out."""
    result = client.run("told", "note", '{"path": "a"}')
    assert result["content"][0]["text"] == 'note {"path": "a"}' and len(result["content"]) == 2
    answer = client.run_raw("told", "calls", None)["result"]
    assert not answer.get("isError") and answer["content"][0]["text"].isdecimal()
    assert "path" in client.error(client.run_raw("told", "note", None)["result"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["path", "required"]),
        ({"limit": 3}, ["path", "required"]),
        ({"path": "a", "limmit": 3}, ["limmit", "unknown", "limit"]),
        ({"path": "a", "limit": "three"}, ["limit", "integer", "three"]),
        ({"path": "a", "limit": 0}, ["limit", "1", "0"]),
        ({"path": ["a"]}, ["path", "string"]),
        ({"path": "a", "mode": "fastt"}, ["mode", '"fast"', '"thorough"', '"fastt"']),
        ({"path": "a", "tags": ["x", {"y": 1}]}, ["tags[1]", "string"]),
    ],
)
def test_wrong_arguments_are_refused_with_path_expectation_and_signature(
    client: Visitor, arguments: Json, words: list[str]
) -> None:
    """SUR-9: missing, unknown and wrongly typed ones; nothing was called."""
    error = client.error(client.run("told", "note", arguments))
    assert [word for word in words if word not in error] == []
    assert SIGNATURE[client.mode] in error


@pytest.mark.parametrize(
    "arguments", [{}, {"x": 1}, {"server_name": 5}, {"method": 5}, {"tool_name": 5}, {"query": 5}]
)
def test_wrong_arguments_of_the_surfaces_own_tools_are_mistakes_too(
    client: Visitor, arguments: Json
) -> None:
    """SUR-9."""
    for tool in client.tools():
        if tool["inputSchema"].get("required") and (
            arguments or tool["name"] != "mcp_search_tools"
        ):
            # A search for nothing lists everything.
            assert client.error(client.use(tool["name"], **arguments))
    assert still_answers(client)


@pytest.mark.parametrize(
    "arguments", ["text", 5, [1], JUNK], ids=["text", "number", "array", "junk"]
)
def test_the_surfaces_own_arguments_may_be_anything(client: Visitor, arguments: Any) -> None:
    """SUR-9: a tool error or a refusal, never a crash."""
    for tool in client.names():
        answer = client.ask("tools/call", {"name": tool, "arguments": arguments})
        assert "error" in answer or answer["result"]["isError"] is True
        assert len(json.dumps(answer)) < 4_000
    assert still_answers(client)


@pytest.mark.parametrize(
    "name", [JUNK, "\ud83d", "\u0000\n\u202e", "../../etc/passwd", '"}', "💥" * 5_000]
)
def test_names_may_be_anything(client: Visitor, name: str) -> None:
    """SUR-9: half an emoji, control characters, a megabyte: a short tool error."""
    for server, tool in ((name, "note"), ("told", name), (name, name)):
        result = client.run(server, tool)
        assert client.error(result)
        assert len(json.dumps(result)) < 4_000
    assert still_answers(client)


def test_a_search_for_anything_ends(gateway: Gateway) -> None:
    """SUR-9, FMT-3: queries, limits and offsets of any kind."""
    client = Visitor(gateway.port, "search")
    for query in (JUNK, "\ud83d", "", " ", "a " * 100_000, "读" * 10_000):
        result = client.use("mcp_search_tools", query=query)
        assert not result.get("isError")
        assert len(result["content"][0]["text"]) < 4_000
    for more in (
        {"limit": 0},
        {"limit": -1},
        {"limit": "many"},
        {"offset": -1},
        {"offset": [1]},
        {"limit": 1.5},
    ):
        assert next(iter(more)) in client.error(
            client.use("mcp_search_tools", query="note", **more)
        )
    for more in (
        {"limit": 10**12},
        {"offset": 10**12},
        {"limit": None, "service_name": None},
        {"limit": 5.0},
    ):
        assert not client.use("mcp_search_tools", query="note", **more).get("isError")


def test_the_public_name_of_a_tool_is_no_tool_here_and_the_way_is_told(client: Visitor) -> None:
    """SUR-9: a model that remembers `direct`, or another surface, hears how it is done here."""
    error = client.error(client.use("told_note", path="a"))
    assert CALLER[client.mode] in error and "note" in error
    unknown = client.ask("tools/call", {"name": "nothing_of_the_kind", "arguments": {}})
    assert unknown["error"]["code"] == -32602


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One server has tools with the names of ours, and wants arguments of the same names repeated
    in headers."""
    names = ("inspect", "exec", "describe", "call", "resources", "mcp_execute_tool", "mcpx.result")
    properties = {
        "method": {"type": "string", "x-mcp-header": "Method-Of-Mine"},
        "server_name": {"type": "string", "x-mcp-header": "Server-Of-Mine"},
        "tool_name": {"type": "string", "x-mcp-header": "Tool-Of-Mine"},
    }
    schema = {"type": "object", "properties": properties}
    odd = {
        "tools": [{"name": name, "description": "Theirs", "inputSchema": schema} for name in names]
    }
    servers = (told("odd", tmp_path_factory.mktemp("crowded"), odd, prefix=""), told("told"))
    with Gateway(config(*servers)) as gateway:
        yield gateway


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", MODES)
def test_tools_that_are_called_like_our_own_do_not_stand_in_the_way(
    crowded: Gateway, mode: str, era: str
) -> None:
    """SUR-9, SRC-8: neither their names nor their headers (`x-mcp-header`) count for the surface's
    own tools."""
    client = Visitor(crowded.port, mode, era)
    assert still_answers(client)


@pytest.mark.parametrize("mode", MODES)
def test_nobody_else_reads_what_was_kept(crowded: Gateway, mode: str) -> None:
    """SUR-11, SRC-8: a tool that is called `mcpx.result` does not get the handles."""
    client = Visitor(crowded.port, mode)
    kept = client.structured(
        client.run(
            "told", "give", {"result": {"content": [{"type": "text", "text": "x" * 20_000}]}}
        )
    )
    assert client.run("mcpx", "result", {"handle": kept["handle"], "limit": 5})["content"][0][
        "text"
    ].startswith("xxxxx")


def test_a_tool_name_that_is_no_text_is_refused_like_everywhere(gateway: Gateway) -> None:
    """SUR-9, PRO-6: that is the client's mistake, not the model's."""
    client = Visitor(gateway.port, "inspect")
    for params in ({}, {"name": None}, {"name": 5, "arguments": {}}, {"name": ["inspect"]}):
        message = request("tools/call", params, 99)
        assert (
            post(gateway.port, message, client.headers, client.path).message["error"]["code"]
            == -32602
        )
