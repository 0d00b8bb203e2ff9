"""A session in each compact mode before published servers: find a tool through the menu, call it,
get what it gives.

Nothing but the words of a task is known here: which server has the tool, what it is called and what
it takes is told by the surface itself (SUR-2, SUR-3, SUR-4, SUR-5). Every result is compared with
the same call made directly.
"""

import functools
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from behaviour.clients import Client, Door, Json, OnProgress, RefusedError, connected
from e2e.inspector import Answer, inspect
from e2e.peers import COMMITS, STATIC, TEXT, World
from e2e.people import WAYS, Local, Way, directly, door_to, said
from kit.gateway import GatewayProcess
from mcpx.catalog.naming import wrap_uri

pytestmark = [
    pytest.mark.anyio,
    # The SDK warns about sampling and roots, which older servers live by.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

FOUR = ("everything", "filesystem", "memory", "git")
LONG = "".join(f"entry {number:04} of the journal\n" for number in range(2_000))
"""Longer than what is shown at once."""


@dataclass(frozen=True)
class Found:
    """A tool as the surface told of it."""

    server: str
    name: str
    spelled: str
    """How it is named in a call."""
    signature: str


@dataclass(frozen=True)
class Talk:
    """A client that knows the tools of one compact mode and nothing else."""

    client: Client
    mode: str
    """The one it is shown; of `auto` the one that was chosen."""

    async def find(self, query: str, *words: str) -> Found:
        """The tool that says it does this, with all the words in its name."""
        told = await (self._searched(query) if self.mode == "search" else self._browsed())
        for tool in told:
            if all(word in tool.name for word in words):
                return tool
        raise AssertionError(f"{query!r} leads to {[tool.name for tool in told]}")

    async def _searched(self, query: str) -> list[Found]:
        reply = await self.client.call("mcp_search_tools", {"query": query, "limit": 5})
        return [
            Found(tool["service"], tool["name"], tool["display_name"], _text(reply))
            for tool in reply["structuredContent"]["tools"]
        ]

    async def _browsed(self) -> list[Found]:
        teller, argument = {
            "inspect": ("inspect", "server_name"),
            "describe": ("describe", "method"),
        }[self.mode]
        menu = next(
            tool["description"]
            for tool in await self.client.listed("tools/list")
            if tool["name"] == teller
        )
        servers = re.findall(r"^  Server: (\S+)", menu, re.MULTILINE)
        assert servers == list(FOUR)
        found = []
        for server in servers:
            reply = await self.client.call(teller, {argument: server})
            dotted = f"{server}." if self.mode == "describe" else ""
            found += [
                Found(server, tool["name"], f"{dotted}{tool['name']}", "")
                for tool in await self._tools_of(reply, dotted)
            ]
        return found

    async def _tools_of(self, reply: Json, dotted: str) -> list[Json]:
        """All tools of a server: at once, or, where that was too much to be told at once, read on
        by the handle."""
        structured = reply["structuredContent"]
        if "tools" in structured:
            return structured["tools"]
        whole = await self.read_on(structured["handle"])
        return [
            {"name": name}
            for name in re.findall(rf"^- {re.escape(dotted)}([\w-]+)\(", whole, re.MULTILINE)
        ]

    async def read_on(self, handle: str, **how: Any) -> str:
        """A kept result, page by page."""
        pages: list[str] = []
        offset = 0
        while True:
            page = _text(await self.built_in({"handle": handle, "offset": offset, **how}))
            body, _, note = page.rpartition("\n")
            following = re.search(r"next: (\{.*\})\]$", note)
            pages.append(body if note.startswith("[mcpx: ") else page)
            if following is None:
                return "\n".join(pages)
            offset = json.loads(following[1])["offset"]

    async def built_in(self, arguments: Json) -> Json:
        return await self.run(
            Found("mcpx", "result", "result" if self.mode == "inspect" else "mcpx.result", ""),
            arguments,
        )

    async def told(self, tool: Found) -> str:
        """All that is said of one tool."""
        match self.mode:
            case "inspect":
                reply = await self.client.call(
                    "inspect", {"server_name": tool.server, "tool_name": tool.spelled}
                )
            case "describe":
                reply = await self.client.call("describe", {"method": tool.spelled})
            case _:
                return tool.signature
        return _text(reply)

    async def run(
        self, tool: Found, arguments: Json, on_progress: OnProgress | None = None
    ) -> Json:
        match self.mode:
            case "inspect":
                name, wrapped = "exec", {"server_name": tool.server, "tool_name": tool.spelled}
            case "describe":
                name, wrapped = "call", {"method": tool.spelled}
            case _:
                name, wrapped = "mcp_execute_tool", {"tool_name": tool.spelled}
        return await self.client.call(name, {**wrapped, "arguments": arguments}, on_progress)

    def unwrapped(self, result: Json) -> Json:
        """Without what the mode puts around `structuredContent`, and without what belongs to the
        era (SUR-7)."""
        result = said(result)
        if self.mode != "search":
            return result
        around = result.pop("structuredContent")
        failed = result.get("isError", False)
        assert around["success"] is not failed
        assert (around["error"] is None) is not failed
        inner = around["result"]
        return {**result, "structuredContent": inner} if isinstance(inner, dict) else result


def _text(result: Json) -> str:
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


# ---- the world


def config(earth: World, graph: str, **more: Any) -> Json:
    peers = earth.peers(graph)
    common = {"startup_wait": 20, "first_start_wait": 20, "auto_budget": 1_000, **more}
    return {"mode": "auto", "mcp_servers": [peers[name].native for name in FOUR], "global": common}


@pytest.fixture(scope="module")
def gateway(earth: World) -> Iterator[GatewayProcess]:
    (earth.files / "journal.txt").write_text(LONG, encoding="utf-8")
    with GatewayProcess(config(earth, "shared.jsonl")) as running:
        yield running
        assert "Traceback" not in running.stderr(), running.stderr()


@pytest.fixture(scope="module")
async def direct(earth: World) -> AsyncIterator[Mapping[str, Client]]:
    """The same person at each of the four, without mcpx."""
    async with AsyncExitStack() as stack:
        clients = {}
        for name, peer in earth.peers("direct.jsonl").items():
            if name in FOUR:
                there = directly(peer, Local("ada", earth.files), earth.folder / f"{name}.txt")
                clients[name] = await stack.enter_async_context(there)
        yield clients


@pytest.fixture(scope="module", params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture(scope="module", params=["inspect", "describe", "search", "auto"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
async def talk(
    way: Way, mode: str, earth: World, gateway: GatewayProcess, direct: Mapping[str, Client]
) -> AsyncIterator[Talk]:
    """A client that can be asked everything. It comes after `direct` and goes before it."""
    shown = "search" if mode == "auto" else mode
    async with _opened(way, mode, earth, gateway) as door:
        async with connected(way.kind, door, Local("ada", earth.files)) as client:
            yield Talk(client, shown)
        if door.stderr is not None:
            assert "Traceback" not in door.stderr.read_text(encoding="utf-8")


@asynccontextmanager
async def _opened(
    way: Way, mode: str, earth: World, gateway: GatewayProcess
) -> AsyncIterator[Door]:
    """Over HTTP each mode has its path; on stdio there is one, which the command line chooses
    (SUR-6)."""
    if way.shared:
        yield Door(way.front, gateway.url if mode == "auto" else f"{gateway.url}/{mode}")
        return
    with GatewayProcess(
        config(earth, f"{way}-{mode}.jsonl"), "--mode", mode, transport="stdio"
    ) as alone:
        yield door_to(alone, "stdio")


# ---- the session

NAMES = {
    "inspect": ["inspect", "exec"],
    "describe": ["describe", "call", "resources"],
    "search": ["mcp_search_tools", "mcp_execute_tool", "mcp_list_services"],
}


async def test_the_menu_is_two_or_three_tools_whatever_stands_behind(talk: Talk) -> None:
    """SUR-2, SUR-3, SUR-4, SUR-5"""
    assert [tool["name"] for tool in await talk.client.listed("tools/list")] == NAMES[talk.mode]


async def test_a_file_is_read(talk: Talk, direct: Mapping[str, Client], earth: World) -> None:
    """SUR-7, FMT-1: the signature says what it takes; a text comes as it is."""
    tool = await talk.find("read a text file", "read", "text", "file")
    assert re.search(r"\bpath: string\b", await talk.told(tool))
    arguments = {"path": str(earth.files / "notes.txt")}
    expected = said(await direct[tool.server].call(tool.name, arguments))
    result = talk.unwrapped(await talk.run(tool, arguments))
    assert result == expected
    assert _text(result) == TEXT


async def test_commits_are_listed(talk: Talk, direct: Mapping[str, Client], earth: World) -> None:
    """SUR-7"""
    tool = await talk.find("show the commit logs of a repository", "git", "log")
    assert re.search(r"\brepo_path: string\b", await talk.told(tool))
    arguments = {"repo_path": str(earth.repository)}
    expected = said(await direct[tool.server].call(tool.name, arguments))
    result = talk.unwrapped(await talk.run(tool, arguments))
    assert result["content"] == expected["content"]
    assert all(message in _text(result) for message in COMMITS)


async def test_an_image_passes_untouched_between_its_texts(
    talk: Talk, direct: Mapping[str, Client]
) -> None:
    """SUR-8"""
    tool = await talk.find("get a tiny image", "tiny", "image")
    expected = said(await direct[tool.server].call(tool.name))
    result = talk.unwrapped(await talk.run(tool, {}))
    assert [block["type"] for block in result["content"]] == ["text", "image", "text"]
    assert result == expected


async def test_what_is_data_keeps_its_value_in_fewer_characters(
    talk: Talk, way: Way, mode: str, direct: Mapping[str, Client]
) -> None:
    """SUR-7, FMT-2: rows come shorter as text and whole as `structuredContent`."""
    create = await talk.find("create new entities in the knowledge graph", "create", "entities")
    entities = [
        {
            "name": f"{way} {mode} {number}",
            "entityType": "person",
            "observations": [f"has number {number}"],
        }
        for number in range(6)
    ]
    await talk.run(create, {"entities": entities})
    await direct["memory"].call(create.name, {"entities": entities})
    read = await talk.find("open nodes of the knowledge graph by their names", "open", "nodes")
    arguments = {"names": [entity["name"] for entity in entities]}
    expected = said(await direct[read.server].call(read.name, arguments))
    result = talk.unwrapped(await talk.run(read, arguments))
    assert result["structuredContent"] == expected["structuredContent"]
    assert [entity["name"] for entity in result["structuredContent"]["entities"]] == arguments[
        "names"
    ]
    assert len(_text(result)) < len(_text(expected))
    assert all(entity["name"] in _text(result) for entity in entities)


async def test_resources_and_prompts_stay_in_reach(
    talk: Talk, direct: Mapping[str, Client]
) -> None:
    """SUR-3, NAM-4: as MCP has it in every mode; `describe` has a tool besides, with binary as
    embedded resources."""
    expected = said(await direct["everything"].request("resources/read", {"uri": STATIC}))
    assert wrap_uri("everything", STATIC) in [
        entry["uri"] for entry in await talk.client.listed("resources/list")
    ]
    assert (
        said(await talk.client.request("resources/read", {"uri": wrap_uri("everything", STATIC)}))
        == expected
    )
    prompts = [prompt["name"] for prompt in await talk.client.listed("prompts/list")]
    assert "everything_simple-prompt" in prompts
    filled = await talk.client.request(
        "prompts/get", {"name": "everything_simple-prompt", "arguments": {}}
    )
    assert filled["messages"] != []
    if talk.mode != "describe":
        return
    listed = await talk.client.call("resources", {"server_name": "everything"})
    (uri,) = {
        entry["uri"] for entry in listed["structuredContent"]["resources"] if entry["uri"] == STATIC
    }
    assert uri in _text(listed)
    read = await talk.client.call("resources", {"uri": uri})
    assert read["content"] == [{"type": "text", "text": expected["contents"][0]["text"]}]
    assert read["structuredContent"] == {"contents": expected["contents"]}
    binary = "demo://resource/dynamic/blob/7"  # tells the time of day
    (wanted,) = (await direct["everything"].request("resources/read", {"uri": binary}))["contents"]
    (block,) = (await talk.client.call("resources", {"uri": binary}))["content"]
    assert block["type"] == "resource"
    assert {**block["resource"], "blob": ""} == {**wanted, "blob": ""}
    assert block["resource"]["blob"] != ""


async def test_a_question_is_answered_in_the_middle_of_a_call(
    talk: Talk, direct: Mapping[str, Client]
) -> None:
    """PRO-5: the tool is there only for those who can be asked, and the surface finds it for
    them."""
    tool = await talk.find(
        "trigger an elicitation request to the user", "trigger", "elicitation", "request"
    )
    questions, results = [], []
    for client, call in (
        (direct[tool.server], direct[tool.server].call(tool.name)),
        (talk.client, talk.run(tool, {})),
    ):
        before = len(client.user.asked)
        results.append(await call)
        asked = [
            question for question in client.user.asked[before:] if question.method != "roots/list"
        ]
        questions.append(
            [
                (one.method, {key: value for key, value in one.params.items() if key != "_meta"})
                for one in asked
            ]
        )
    assert [method for method, _ in questions[0]] == ["elicitation/create"]
    assert questions[0] == questions[1]
    assert talk.unwrapped(results[1])["content"] == said(results[0])["content"]
    assert "ada" in _text(results[1])


async def test_progress_comes_step_by_step_before_the_result(
    talk: Talk, direct: Mapping[str, Client]
) -> None:
    """PRO-4"""
    tool = await talk.find("long running operation with progress", "long-running")
    arguments = {"duration": 0.15, "steps": 3}
    steps: list[tuple[float, float | None]] = []
    result = await talk.run(
        tool, arguments, lambda params: steps.append((params["progress"], params["total"]))
    )
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert talk.unwrapped(result) == said(await direct[tool.server].call(tool.name, arguments))


async def test_a_long_file_is_kept_and_read_on_to_its_end(talk: Talk, earth: World) -> None:
    """SUR-11: bit by bit, by a word in it, and no other client's handle is known."""
    tool = await talk.find("read a text file", "read", "text", "file")
    result = talk.unwrapped(await talk.run(tool, {"path": str(earth.files / "journal.txt")}))
    kept = result["structuredContent"]
    assert kept["total_bytes"] == len(LONG.encode())
    assert LONG.startswith(kept["preview"])
    assert "2,000 lines" in kept["shape"]
    assert kept["handle"] in _text(result)
    assert len(_text(result)) < 4_000
    assert (await talk.read_on(kept["handle"])).rstrip("\n") == LONG.rstrip("\n")
    assert "1234: entry 1234 of the journal" in _text(
        await talk.built_in({"handle": kept["handle"], "grep": "1234"})
    )
    unknown = await talk.built_in({"handle": "AAAAAAAAAAAA"})
    assert unknown["isError"] is True


async def test_a_mistake_comes_back_with_what_would_have_been_right(
    talk: Talk, earth: World
) -> None:
    """SUR-9"""
    tool = await talk.find("read a text file", "read", "text", "file")
    misspelt = Found(tool.server, tool.name, tool.spelled.replace("text", "txet"), "")
    unknown = await talk.run(misspelt, {"path": "x"})
    assert unknown["isError"] is True
    assert tool.name in _text(unknown)
    refused = await talk.run(tool, {"paht": str(earth.files / "notes.txt"), "head": 1})
    assert refused["isError"] is True
    assert "paht" in _text(refused)
    assert re.search(r"\bpath: string\b", _text(refused))
    mended = await talk.run(tool, {"path": str(earth.files / "notes.txt"), "head": "1"})
    assert mended.get("isError", False) is False
    assert _text(mended).startswith(TEXT.splitlines()[0])
    assert '"1"' in mended["content"][-1]["text"]


async def test_a_servers_own_failure_is_its_own(
    talk: Talk, direct: Mapping[str, Client], earth: World
) -> None:
    """PRO-6, SUR-7"""
    tool = await talk.find("read a text file", "read", "text", "file")
    arguments = {"path": str(earth.files / "absent.txt")}
    expected = said(await direct[tool.server].call(tool.name, arguments))
    result = talk.unwrapped(await talk.run(tool, arguments))
    assert (result["isError"], result["content"]) == (True, expected["content"])


async def test_the_tools_themselves_are_not_called_by_name(talk: Talk) -> None:
    """SUR-9: who tries is told how; what exists nowhere is unknown."""
    result = await talk.client.call("everything_echo", {"message": "hello"})
    assert result["isError"] is True
    assert "everything" in _text(result) and "echo" in _text(result)
    with pytest.raises(RefusedError) as refused:
        await talk.client.call("no_such_tool_anywhere", {})
    assert refused.value.error["code"] == -32602


# ---- auto


@pytest.mark.parametrize("kind", ["sdk-older", "sdk-modern"])
async def test_auto_shows_everything_to_a_client_that_defers_tools_itself(
    kind: Any, gateway: GatewayProcess, earth: World
) -> None:
    """SUR-5: by the client's name, whatever the budget; others beside it are shown the search."""
    async with connected(
        kind, Door("http", gateway.url), Local("claude-code", earth.files, quiet=True)
    ) as client:
        names = [tool["name"] for tool in await client.listed("tools/list")]
        assert {
            "everything_echo",
            "filesystem_read_text_file",
            "git_git_log",
            "memory_read_graph",
        } <= set(names)
        echoed = await client.call("everything_echo", {"message": "hello"})
        assert _text(echoed) == "Echo: hello"
    async with connected(
        kind, Door("http", gateway.url), Local("bob", earth.files, quiet=True)
    ) as client:
        assert [tool["name"] for tool in await client.listed("tools/list")] == NAMES["search"]


async def test_auto_shows_everything_while_it_is_within_the_budget(earth: World) -> None:
    """SUR-5: the reason is in the log."""
    with GatewayProcess(
        config(earth, "small.jsonl", auto_budget=100_000, log_level="INFO")
    ) as running:
        user = Local("ada", earth.files, quiet=True)
        async with connected("sdk-older", Door("http", running.url), user) as client:
            names = [tool["name"] for tool in await client.listed("tools/list")]
        assert "everything_echo" in names
        assert re.search(
            r"auto: ada is shown 'direct': \d+ tools take about [\d,]+ tokens", running.stderr()
        )


# ---- the official inspector

MCPX = str(Path(sys.executable).parent / "mcpx")

CALLS: Mapping[str, tuple[str, Json]] = {
    "inspect": (
        "exec",
        {"server_name": "everything", "tool_name": "get-sum", "arguments": {"a": 2, "b": 40}},
    ),
    "describe": ("call", {"method": "everything.get-sum", "arguments": {"a": 2, "b": 40}}),
    "search": (
        "mcp_execute_tool",
        {"tool_name": "everything_get-sum", "arguments": {"a": 2, "b": 40}},
    ),
}


@pytest.mark.parametrize("shown", list(CALLS))
@pytest.mark.parametrize("route", ["http", "modern-http", "stdio"])
def test_the_inspector_lists_and_calls(
    route: str, shown: str, gateway: GatewayProcess, earth: World, tmp_path: Path
) -> None:
    """SUR-2, SUR-3, SUR-4, SUR-6: a client that nobody here has written; it checks results by their
    schemas."""
    if route == "stdio":
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config(earth, f"inspected-{shown}.jsonl")), encoding="utf-8")
        target = [MCPX, str(file), "--mode", shown]
    else:
        era = "modern" if route == "modern-http" else "legacy"
        target = [f"{gateway.url}/{shown}", "--transport", "http", "--protocol-era", era]
    run = functools.partial(inspect, target, tmp_path)
    listed: Answer = run("--method", "tools/list")
    assert listed.code == 0, listed.stderr
    assert [tool["name"] for tool in listed.result["tools"]] == NAMES[shown]
    name, arguments = CALLS[shown]
    words = ("--tool-name", name, "--tool-args-json", json.dumps(arguments))
    called = run("--method", "tools/call", *words)
    assert called.code == 0, called.stderr
    assert "42" in called.result["content"][0]["text"]
