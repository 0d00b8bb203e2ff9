"""SUR-9: a tool that is named in the form of another place is told with the right call of this one,
in every mode."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from behaviour.compact import CALLER, MODES, Compact, Json, Visitor, config, text, told
from kit.gateway import Gateway, GatewayProcess

FIELDS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [
    {"name": "read_file", "description": "Reads a file", "inputSchema": FIELDS},
    {"name": "listAll", "description": "Lists everything", "inputSchema": {"type": "object"}},
]
FORMS = (
    "my-files_read_file",
    "my-files/read_file",
    "my-files.read_file",
    "my-files:read_file",
    "my-files__read_file",
    "mcp__my-files__read_file",
    "mcp__mcpx__my-files_read_file",
    "mcp_my-files_read_file",
    "mcpx.my-files_read_file",
    "my_files_read_file",
    "My-Files.Read_File",
    "MY_FILES.READ-FILE",
    "myFiles.readFile",
    "read_file",
    "read-file",
    "readFile",
)


def right(mode: str, server: str = "my-files", tool: str = "read_file") -> str:
    """The call as it is told."""
    named: dict[str, Json] = {
        "inspect": {"server_name": server, "tool_name": tool},
        "describe": {"method": f"{server}.{tool}"},
        "search": {"tool_name": f"{server}_{tool}"},
    }
    return f'{CALLER[mode]} {json.dumps(named[mode])[:-1]}, "arguments": {{...}}}}'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("names")
    twin = {
        "tools": [{"name": "twin", "description": "One of two", "inputSchema": {"type": "object"}}]
    }
    blank = {
        "tools": [{"name": "do it", "description": "Does it", "inputSchema": {"type": "object"}}]
    }
    servers = (
        *(
            told("my-files", folder, {"tools": TOOLS}),
            told("a", folder, twin),
            told("b", folder, twin),
        ),
        told("with space", folder, blank),
    )
    with GatewayProcess(config(*servers, naming={"prefix": "always"})) as gateway:
        assert Visitor(
            gateway.port, "direct"
        ).tools()  # all servers are there: names are told of those that are
        yield gateway
        assert gateway.process.poll() is None
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


def places(mode: Compact, name: str) -> list[tuple[str, Json]]:
    """Every place in which a model may put a name: a tool of the surface, and its arguments."""
    given = {"arguments": {"path": "a"}}
    match mode:
        case "inspect":
            return [
                ("inspect", {"server_name": name}),
                ("inspect", {"server_name": "a", "tool_name": name}),
                ("exec", {"server_name": name, **given}),
                ("exec", {"tool_name": name, **given}),
                ("exec", {"server_name": name, "tool_name": name, **given}),
                ("exec", {"server_name": "a", "tool_name": name, **given}),
                ("exec", {"method": name, **given}),
            ]
        case "describe":
            return [
                ("describe", {"method": name}),
                ("call", {"method": name, **given}),
                ("call", {"tool_name": name, **given}),
                ("call", {"method": f"a.{name}", **given}),
            ]
        case "search":
            return [
                ("mcp_execute_tool", {"tool_name": name, **given}),
                ("mcp_execute_tool", {"method": name, **given}),
                ("mcp_execute_tool", {"service_name": "nobody", "tool_name": name, **given}),
            ]


def accepted(client: Visitor, result: Json) -> bool:
    """Where the name has one meaning only it may be taken as it is."""
    shown = json.dumps(result)
    return not result.get("isError") and ("read_file" in shown or "path" in shown)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_a_name_in_another_form_leads_to_the_right_call(
    gateway: Gateway, mode: Compact, form: str
) -> None:
    """SUR-9: in any argument, also of several calls, and as the name of the tool itself."""
    client = Visitor(gateway.port, mode)
    for tool, arguments in places(mode, form):
        result = client.use(tool, **arguments)
        if not accepted(client, result):
            error = client.error(result)
            assert right(mode) in error, (tool, arguments, error)
            assert "read_file({path: string" in error, (tool, arguments, error)
        if tool == CALLER[mode]:
            several = client.use(tool, calls=[arguments])
            words = "\n".join(block["text"] for block in several["content"])
            assert right(mode) in words or not several.get("isError"), words
    by_name = client.error(client.use(form, path="a"))
    assert right(mode) in by_name and "read_file({path: string" in by_name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "form", ["twin", "Twin", "TWIN", "nobody.twin", "nobody/twin", "mcp__nobody__twin"]
)
def test_all_tools_that_a_name_may_mean_are_told(
    gateway: Gateway, mode: Compact, form: str
) -> None:
    """SUR-9: none is taken."""
    client = Visitor(gateway.port, mode)
    given: dict[Any, Json] = {
        "inspect": {"server_name": "nobody", "tool_name": form},
        "describe": {"method": form},
        "search": {"tool_name": form},
    }
    for error in (
        client.error(client.use(CALLER[mode], **given[mode], arguments={})),
        client.error(client.use(form)),
    ):
        assert (right(mode, "a", "twin") in error and right(mode, "b", "twin") in error) or (
            mode == "search" and '"a_twin"' in error and '"b_twin"' in error
        ), error


@pytest.mark.parametrize("form", FORMS)
def test_where_every_tool_is_shown_its_public_name_is_told(gateway: Gateway, form: str) -> None:
    """SUR-9, SUR-1: still the error of the protocol."""
    client = Visitor(gateway.port, "direct")
    answer = client.ask("tools/call", {"name": form, "arguments": {"path": "a"}})
    if form == "my-files_read_file":
        assert not answer["result"].get("isError")
        return
    assert answer["error"]["code"] == -32602
    assert answer["error"]["message"] == f'Unknown tool: {form}. Did you mean "my-files_read_file"?'


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_that_is_nowhere_is_told_with_what_comes_near(
    gateway: Gateway, mode: Compact
) -> None:
    """SUR-9: a description said "use read_text_file instead", and there is none."""
    client = Visitor(gateway.port, mode)
    server_and_tool: dict[Any, Json] = {
        "inspect": {"server_name": "my-files", "tool_name": "read_text_file"},
        "describe": {"method": "my-files.read_text_file"},
        "search": {"tool_name": "my-files_read_text_file"},
    }
    error = client.error(client.use(CALLER[mode], **server_and_tool[mode], arguments={"path": "a"}))
    assert '"read_file"' in error or right(mode) in error, error
    by_name = client.ask("tools/call", {"name": "read_text_file", "arguments": {}})
    assert by_name["error"]["code"] == -32602
    assert (
        CALLER[mode] in by_name["error"]["message"] and right(mode) in by_name["error"]["message"]
    )


@pytest.mark.parametrize("mode", MODES)
def test_the_tools_of_another_mode_are_told_apart(gateway: Gateway, mode: Compact) -> None:
    """SUR-9: who calls a tool of another surface hears which there are here."""
    client = Visitor(gateway.port, mode)
    for other in {"inspect", "describe", "mcp_search_tools", *CALLER.values()} - set(
        client.names()
    ):
        message = client.ask("tools/call", {"name": other, "arguments": {}})["error"]["message"]
        assert f"The tools here are {', '.join(client.names())}." in message


@pytest.mark.parametrize("mode", ["inspect", "describe"])
def test_a_server_in_another_writing_is_told(gateway: Gateway, mode: Compact) -> None:
    """SUR-9."""
    client = Visitor(gateway.port, mode)
    argument = "server_name" if mode == "inspect" else "method"
    for form in ("My-Files", "my_files", "myfiles", "my-file"):
        words = client.use(mode, **{argument: form})["content"][0]["text"]
        assert 'Did you mean "my-files"?' in words, words


def test_a_known_name_is_a_name_before_it_is_words(gateway: Gateway) -> None:
    """SUR-3, SUR-12: blanks in it or not."""
    client = Visitor(gateway.port, "describe")
    for name in ("with space.do it", "with space"):
        answer = text(client.use("describe", method=name))
        assert "with space.do it(" in answer and "No server" not in answer


@pytest.mark.parametrize("mode", ["inspect", "describe"])
def test_a_wrong_name_of_a_server_that_was_named_leads_to_its_own_tool(
    tmp_path: Path, mode: Compact
) -> None:
    """SUR-9: not to another's that is called just so."""
    other = {
        "tools": [{"name": "readFile", "description": "Another", "inputSchema": {"type": "object"}}]
    }
    with Gateway(
        config(told("my-files", tmp_path, {"tools": TOOLS}), told("other", tmp_path, other))
    ) as two:
        client = Visitor(two.port, mode)
        said = client.error(client.run("my-files", "readFile"))
        assert right(mode) in said and "other" not in said
