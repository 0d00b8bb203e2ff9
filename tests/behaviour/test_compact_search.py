"""SUR-4: `mcp_search_tools`, `mcp_execute_tool` and `mcp_list_services`, in the result shapes of
the document."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from behaviour.compact import ERAS, Json, Visitor, config, text, told
from kit.gateway import Gateway
from kit.servers import raw_server

TOOLS = ["mcp_search_tools", "mcp_execute_tool", "mcp_list_services"]
READ = {
    "name": "read_file",
    "description": "Read the complete contents of a file from the disk",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where the file is"},
            "head": {"type": ["integer", "null"]},
            "mode": {"anyOf": [{"type": "string"}, {"type": "boolean"}], "description": "How"},
        },
        "required": ["path"],
    },
}


def simple(name: str, description: str) -> Json:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


FILES = {
    "instructions": "Works with files. And with folders too.",
    "tools": [
        READ,
        simple("shared", "Of files"),
        simple("notes_open", "Opens notes, says the server files"),
    ],
}
NOTES = {
    "tools": [simple("shared", "Of notes"), simple("open", "Opens a page, says the server notes")]
}
MANY = {
    "tools": [simple(f"zebra_{number}", f"Feeds zebra number {number}") for number in range(130)]
}
TAKES = {
    "type": "object",
    "properties": {
        "label": {"type": "string"},
        "depth": {"type": "integer"},
        "node": {"type": "string"},
    },
    "required": ["node"],
}
LONG = f"Prunes a tree. {'It takes care of every branch. ' * 10}Nothing is lost."
GRAPH = {
    "tools": [
        {**simple("old_walk", "DEPRECATED: walks the tree"), "inputSchema": TAKES},
        {
            **simple("grow", "Grows a tree"),
            "inputSchema": TAKES,
            "annotations": {"readOnlyHint": True},
        },
        {
            **simple("prune_tree", LONG),
            "inputSchema": TAKES,
            "annotations": {"destructiveHint": True},
        },
    ]
}
OWN = ["give", "refuse", "note", "calls"]
"""What every server of this kind has."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("search")
    servers = (
        told("files", folder, FILES, prefix="fs"),
        told("notes", folder, NOTES, prefix="notes", description="Pages of notes"),
        told("plain", folder, {"tools": [simple("notes_open", "Opens notes, plainly")]}, prefix=""),
        told("many", folder, MANY),
        told("graph", folder, GRAPH),
        raw_server("down", "--crash-on-start"),
        raw_server("off", enabled=False),
    )
    with Gateway(config(*servers)) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.fixture(params=ERAS)
def client(gateway: Gateway, request: pytest.FixtureRequest) -> Visitor:
    return Visitor(gateway.port, "search", request.param)


def found(client: Visitor, query: str, **more: Any) -> Json:
    return client.use("mcp_search_tools", query=query, **more)["structuredContent"]


def test_there_are_three_tools_with_the_parameters_of_the_document(client: Visitor) -> None:
    """SUR-4."""
    tools = {tool["name"]: tool["inputSchema"] for tool in client.tools()}
    assert list(tools) == TOOLS
    types = {
        name: {key: part["type"] for key, part in schema["properties"].items()}
        for name, schema in tools.items()
    }
    search = types["mcp_search_tools"]
    assert (search["query"], search["service_name"]) == ("string", "string")
    assert {search["limit"], search["offset"]} <= {"integer", "number"}
    execute = {
        "tool_name": "string",
        "arguments": "object",
        "calls": "array",
        "continue": "boolean",
    }
    assert types["mcp_execute_tool"] == execute
    assert types["mcp_list_services"] == {}
    assert not tools["mcp_search_tools"].get("required")
    assert "required" not in tools["mcp_execute_tool"], "one call or calls"


def test_a_search_gives_tools_in_the_shape_of_the_document(client: Visitor) -> None:
    """SUR-4: exactly these keys; a parameter says its type, what it is and whether it is
    required."""
    answer = client.use("mcp_search_tools", query="read_file")
    shape = answer["structuredContent"]
    assert shape.keys() == {"tools", "total", "limit"}
    assert shape["limit"] == 20
    assert shape["tools"][0] == {
        "name": "read_file",
        "display_name": "fs_read_file",
        "description": "Read the complete contents of a file from the disk",
        "service": "files",
        "parameters": {
            "path": {"type": "string", "description": "Where the file is", "required": True},
            "head": {"type": "integer | null", "description": "", "required": False},
            "mode": {"type": "string | boolean", "description": "How", "required": False},
        },
    }


def test_the_text_of_a_search_is_enough_to_call_the_best_hit(client: Visitor) -> None:
    """SUR-4: it carries the signature, under the name that `mcp_execute_tool` takes."""
    told = text(client.use("mcp_search_tools", query="complete contents of a file"))
    assert "fs_read_file({path: string" in told
    assert text(
        client.use("mcp_execute_tool", tool_name="fs_read_file", arguments={"path": "a"})
    ) == ('read_file {"path": "a"}')


def test_total_counts_all_matches_and_offset_pages_through_them(client: Visitor) -> None:
    """SUR-4: pages do not overlap and leave nothing out."""
    first = found(client, "zebra", limit=50)
    assert (first["total"], first["limit"], len(first["tools"])) == (130, 50, 50)
    assert "offset=50" in text(client.use("mcp_search_tools", query="zebra", limit=50))
    pages = [
        found(client, "zebra", limit=50, offset=offset)["tools"] for offset in (0, 50, 100, 150)
    ]
    assert [len(page) for page in pages] == [50, 50, 30, 0]
    assert len({tool["display_name"] for page in pages for tool in page}) == 130
    assert found(client, "zebra", limit=50, offset=150)["total"] == 130


def test_limit_says_how_many_there_may_be_on_a_page(client: Visitor) -> None:
    """SUR-4: who pages by it, whatever was asked for, gets every tool once."""
    seen: list[str] = []
    while True:
        page = found(client, "zebra", limit=120, offset=len(seen))
        seen += [tool["display_name"] for tool in page["tools"]]
        if len(seen) >= page["total"]:
            break
        assert len(page["tools"]) == page["limit"]
    assert len(set(seen)) == len(seen) == 130


def test_a_search_may_be_of_one_service(client: Visitor) -> None:
    """SUR-4: `service_name`; an unknown one is a mistake that names the others."""
    of_notes = found(client, "shared", service_name="notes")
    assert (
        [tool["service"] for tool in of_notes["tools"]] == ["notes"] * len(of_notes["tools"]) != []
    )
    assert {tool["service"] for tool in found(client, "shared")["tools"]} == {"files", "notes"}
    assert found(client, "zebra", service_name="notes")["total"] == 0
    unknown = client.error(client.use("mcp_search_tools", query="x", service_name="note"))
    assert '"note"' in unknown and '"notes"' in unknown


def named(text: str) -> list[str]:
    """The tools a reply tells of, in its order."""
    return re.findall(r"([\w.-]+)\(", text)


def test_of_a_service_all_tools_are_told(client: Visitor) -> None:
    """SUR-4: without a query; deprecated ones are the last, and each is shown with what it
    takes."""
    answer = client.use("mcp_search_tools", service_name="graph")
    every = [f"graph_{tool}" for tool in (*OWN, "grow", "prune_tree", "old_walk")]
    assert named(text(answer)) == every
    shape = answer["structuredContent"]
    assert [tool["display_name"] for tool in shape["tools"]] == every
    assert (shape["total"], shape["limit"]) == (7, 20)
    assert "offset" not in text(answer)


def test_of_a_service_those_that_match_come_first_and_the_others_are_told_too(
    client: Visitor,
) -> None:
    """SUR-4: `total` and `tools` are those that match."""
    answer = client.use("mcp_search_tools", query="prune", service_name="graph")
    assert answer["structuredContent"]["total"] == 1
    assert [tool["name"] for tool in answer["structuredContent"]["tools"]] == ["prune_tree"]
    told = text(answer)
    assert told.startswith("- graph_prune_tree({")
    assert (
        "Other tools of graph: graph_give(result), " in told
        and "graph_grow(node, label?, depth?)" in told
    )
    assert sorted(named(told)) == sorted(
        f"graph_{tool}" for tool in (*OWN, "grow", "prune_tree", "old_walk")
    )


def test_what_does_not_match_in_a_service_leaves_its_tools(client: Visitor) -> None:
    """SUR-4."""
    answer = client.use("mcp_search_tools", query="qqqqxyzzy", service_name="graph")
    assert answer["structuredContent"] == {"tools": [], "total": 0, "limit": 20}
    assert "No tool of graph" in text(answer) and "graph_grow(node, label?, depth?)" in text(answer)


@pytest.mark.parametrize("services", [["notes", "graph"], "notes, graph", '["notes", "graph"]'])
def test_several_services_are_told_at_once(client: Visitor, services: Any) -> None:
    """SUR-12: each as it would be alone; for programs as one search."""
    alone = [client.use("mcp_search_tools", service_name=name) for name in ("notes", "graph")]
    both = client.use("mcp_search_tools", service_name=services)
    assert both["content"][0]["text"] == "\n\n".join(
        answer["content"][0]["text"] for answer in alone
    )
    told, parts = both["structuredContent"], [answer["structuredContent"] for answer in alone]
    assert told["tools"] == [tool for part in parts for tool in part["tools"]]
    assert (told["total"], told["limit"]) == (sum(part["total"] for part in parts), 20)


def test_a_wrong_service_among_several_gets_its_own_error(client: Visitor) -> None:
    """SUR-12, SUR-9."""
    answer = client.use("mcp_search_tools", service_name=["graph", "nowhere"])
    assert "isError" not in answer
    assert 'Unknown server "nowhere"' in answer["content"][0]["text"]
    assert {tool["service"] for tool in answer["structuredContent"]["tools"]} == {"graph"}


@pytest.mark.parametrize(
    "wanted", [{"query": "zebra"}, {"service_name": "many"}, {"query": "9", "service_name": "many"}]
)
@pytest.mark.parametrize("limit", [2, 20, 100])
def test_the_offset_a_reply_says_passes_no_tool_over(
    client: Visitor, wanted: Json, limit: int
) -> None:
    """SUR-4: who follows it is told of every tool once, and of how many there are left."""
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        told = text(client.use("mcp_search_tools", **wanted, limit=limit, offset=offset))
        seen += named(told)
        found = re.search(r"(\d+) [a-z ]+: offset=(\d+)", told)
        offset = int(found[2]) if found else None
        if found:
            assert (int(found[1]), offset) == (
                (134 if "service_name" in wanted else 130) - len(seen),
                len(seen),
            )
    zebras = {f"many_zebra_{number}" for number in range(130)}
    expected = zebras | {f"many_{tool}" for tool in OWN} if "service_name" in wanted else zebras
    assert len(seen) == len(expected) and set(seen) == expected


def test_a_search_for_nothing_in_particular_is_a_mistake(client: Visitor) -> None:
    """SUR-4, SUR-9: it says what there is to say."""
    for arguments in ({}, {"limit": 3}, {"query": None}):
        said = client.error(client.use("mcp_search_tools", **arguments))
        assert '"query"' in said and '"service_name"' in said


def test_a_search_for_a_name_tells_all_there_is_to_know(client: Visitor) -> None:
    """SUR-4: the signature, the whole description, and no others."""
    told = text(client.use("mcp_search_tools", query="graph_prune_tree"))
    assert told.startswith("- graph_prune_tree({label?: string, depth?: number")
    assert "Nothing is lost." in told and "[destructive]" in told
    assert named(told) == ["graph_prune_tree"]
    assert "Nothing is lost." not in text(client.use("mcp_search_tools", query="prune a tree"))


def test_the_service_is_told_where_the_name_does_not_say_it(client: Visitor) -> None:
    """SUR-4: it is what `service_name` takes."""
    told = text(client.use("mcp_search_tools", query="complete contents of a file"))
    assert re.search(r"^- fs_read_file\(.*\) \[files\] Read", told, re.MULTILINE)
    assert "[graph" not in text(client.use("mcp_search_tools", query="graph_grow"))


def test_a_service_that_is_down_says_so(client: Visitor) -> None:
    """SUR-4, LIF-1."""
    for more in ({}, {"query": "anything"}):
        told = text(client.use("mcp_search_tools", service_name="down", **more))
        assert told.startswith("down is down, its tools are not known: ")


def test_nothing_found_is_no_error(client: Visitor) -> None:
    """SUR-4."""
    nothing = client.use("mcp_search_tools", query="qqqqxyzzy")
    assert nothing["structuredContent"] == {"tools": [], "total": 0, "limit": 20}
    assert not nothing.get("isError")
    assert "qqqqxyzzy" in text(nothing)


def test_a_raw_name_is_enough_where_it_is_the_only_one(client: Visitor) -> None:
    """SUR-4."""
    assert text(client.use("mcp_execute_tool", tool_name="read_file", arguments={"path": "a"})) == (
        'read_file {"path": "a"}'
    )
    assert text(
        client.use("mcp_execute_tool", tool_name="files.read_file", arguments={"path": "a"})
    ) == ('read_file {"path": "a"}')


def test_a_display_name_wins_over_raw_names(client: Visitor) -> None:
    """SUR-4: `notes_open` is the raw name of a tool of `files` and the display name of another."""
    every = {
        tool["display_name"]: tool["description"] for tool in found(client, "notes open")["tools"]
    }
    assert every["fs_notes_open"] == "Opens notes, says the server files"
    # The first in the config that wants a display name has it: `open` of `notes`, with its prefix
    # (NAM-1).
    assert every["notes_open"] == "Opens a page, says the server notes"
    assert text(client.use("mcp_execute_tool", tool_name="notes_open", arguments={})) == "open {}"


def test_an_ambiguous_raw_name_is_a_mistake_that_says_the_display_names(client: Visitor) -> None:
    """SUR-4, SUR-9."""
    ambiguous = client.error(client.use("mcp_execute_tool", tool_name="shared", arguments={}))
    assert '"fs_shared"' in ambiguous and '"notes_shared"' in ambiguous


def test_all_enabled_services_are_listed_with_their_states(client: Visitor) -> None:
    """SUR-4: the description is the config's, else the first sentence of the instructions; the
    disabled one is not."""
    answer = client.use("mcp_list_services")
    assert answer["structuredContent"].keys() == {"services"}
    services = {service["name"]: service for service in answer["structuredContent"]["services"]}
    assert list(services) == ["files", "notes", "plain", "many", "graph", "down"]
    assert services["files"] == {
        "name": "files",
        "description": "Works with files.",
        "status": "connected",
        "tool_count": 7,
    }
    assert (services["notes"]["description"], services["notes"]["tool_count"]) == (
        "Pages of notes",
        6,
    )
    assert (services["plain"]["description"], services["many"]["tool_count"]) == ("", 134)
    assert services["down"].keys() == services["files"].keys()
    assert services["down"]["status"] != "connected" and services["down"]["tool_count"] == 0
    told = text(answer)
    assert all(name in told for name in services) and "off" not in told.split()


def test_an_execution_gives_the_shape_of_the_document(client: Visitor) -> None:
    """SUR-4, SUR-7: success, result and error, in both cases."""
    done = client.use("mcp_execute_tool", tool_name="fs_read_file", arguments={"path": "a"})
    assert done["structuredContent"] == {
        "success": True,
        "result": 'read_file {"path": "a"}',
        "error": None,
    }
    failed = client.use("mcp_execute_tool", tool_name="fs_nothing_like_it", arguments={})
    assert failed["structuredContent"] == {"success": False, "result": None, "error": text(failed)}
    assert failed["isError"] is True


@pytest.mark.parametrize("switch", ["enable_search", "enable_execute", "enable_list_services"])
def test_a_tool_that_is_switched_off_is_neither_listed_nor_callable(switch: str) -> None:
    """SUR-4, SUR-6: and `tool_proxy_mode` makes the surface the default one."""
    off = dict(
        zip(["enable_search", "enable_execute", "enable_list_services"], TOOLS, strict=True)
    )[switch]
    settings = {"tool_proxy_mode": True, "tool_proxy": {switch: False, "search_limit": 3}}
    arguments: dict[str, Json] = {
        "mcp_search_tools": {"query": "give"},
        "mcp_execute_tool": {"tool_name": "told_calls", "arguments": {}},
        "mcp_list_services": {},
    }
    with Gateway(config(told("told"), **{"global": settings})) as gateway:
        client = Visitor(gateway.port)
        assert client.names() == [tool for tool in TOOLS if tool != off]
        assert "error" in client.ask("tools/call", {"name": off, "arguments": arguments[off]})
        for tool in client.names():
            assert not client.use(tool, **arguments[tool]).get("isError")
        if switch != "enable_search":
            shape = found(client, "")
            assert (shape["limit"], len(shape["tools"]), shape["total"]) == (3, 3, 4)
