"""SUR-2 … SUR-11 in this process: the ways of a model through each compact surface, over toy
servers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.loop import run
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.config import Config, Global, ToolProxy
from mcpx.core.gateway import Gateway
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import NotFound, RpcError
from mcpx.surfaces.settings import DEFERS, AutoRule

MODES = ("inspect", "describe", "search")
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Where"},
        "head": {"type": "integer", "minimum": 1},
    },
    "required": ["path"],
}
ROWS = [{"id": number, "name": f"row {number}"} for number in range(2_000)]


def answering(result: Json) -> Any:
    async def answer(line: ScriptedConnection, params: Json) -> Json:
        return result

    return answer


async def read(line: ScriptedConnection, params: Json) -> Json:
    """What it was given, or a result that the path names."""
    named: dict[str, Json] = {
        "rows": {"content": [{"type": "text", "text": json.dumps(ROWS)}]},
        "texts": {"content": [{"type": "text", "text": "x" * 9_000}] * 4},
        "both": {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}},
        "failed": {"content": [{"type": "text", "text": "no"}], "isError": True},
    }
    echoed = {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
    return named.get(params["arguments"]["path"], echoed)


def files() -> ScriptedServer:
    listed = [{"name": "read", "description": "Reads a file", "inputSchema": SCHEMA}]
    resources = [
        {"uri": "file:///a", "name": "a", "mimeType": "text/plain"},
        {"uri": "file:///b", "name": "b"},
    ]
    contents = {
        "file:///a": {"uri": "file:///a", "text": "hello"},
        "file:///b": {"uri": "file:///b", "blob": "aGk="},
    }

    async def resource(line: ScriptedConnection, params: Json) -> Json:
        if params["uri"] not in contents:
            raise RpcError(-32002, "no such resource")
        return {"contents": [contents[params["uri"]]]}

    return ScriptedServer(
        tools={"read": read},
        capabilities={"tools": {}, "resources": {}},
        answers={
            "tools/list": answering({"tools": listed}),
            "resources/list": answering({"resources": resources}),
            "resources/templates/list": answering({"resourceTemplates": []}),
            "resources/read": resource,
        },
    )


class Model:
    """A client of one mode; it knows how a tool of a server is called there."""

    def __init__(self, gateway: Gateway, mode: str, caller: Caller | None = None) -> None:
        self._gateway = gateway
        self.mode = mode
        self._caller = caller or Caller(
            mode=mode, session=f"session of {mode}", client={"name": "somebody"}
        )

    async def menu(self) -> list[Json]:
        return (await self._gateway.handle(Call("tools/list", {}, self._caller)))["tools"]

    async def use(self, tool: str, /, **arguments: Any) -> Json:
        params = {"name": tool, "arguments": arguments}
        return await self._gateway.handle(Call("tools/call", params, self._caller))

    async def run(self, server: str, tool: str, arguments: Any) -> Json:
        match self.mode:
            case "inspect":
                return await self.use(
                    "exec", server_name=server, tool_name=tool, arguments=arguments
                )
            case "describe":
                return await self.use("call", method=f"{server}.{tool}", arguments=arguments)
            case _:
                return await self.use(
                    "mcp_execute_tool", tool_name=f"{server}.{tool}", arguments=arguments
                )

    async def mistake(self, server: str, tool: str, arguments: Any) -> str:
        return told(await self.run(server, tool, arguments), failed=True)

    def structured(self, result: Json) -> Any:
        found = result["structuredContent"]
        return found["result"] if self.mode == "search" else found


def told(result: Json, *, failed: bool = False) -> str:
    assert result.get("isError", False) is failed, result
    return "\n".join(block["text"] for block in result["content"])


@asynccontextmanager
async def running_gateway(**settings: Any) -> AsyncIterator[Gateway]:
    servers = (
        files().server("files", prefix="fs"),
        ScriptedServer(tools=("ping",)).server("other", description="Answers."),
    )
    gateway = Gateway(
        Config(mcp_servers=servers, global_=Global(startup_wait=600.0, **settings)), {}
    )
    gateway.start()
    try:
        await until(lambda: len(gateway.catalog.offers["tools"]) == 2)
        yield gateway
    finally:
        await gateway.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_model_finds_a_tool_learns_it_and_calls_it(mode: str) -> None:
    """SUR-2, SUR-3, SUR-4"""

    async def main() -> None:
        async with running_gateway() as gateway:
            model = Model(gateway, mode)
            menu = await model.menu()
            if mode == "search":
                found = await model.use("mcp_search_tools", query="read file")
                assert found["structuredContent"]["tools"][0]["display_name"] == "fs_read"
                assert "fs_read({path: string /* Where */, head?: number" in told(found)
                listed = await model.use("mcp_list_services")
                assert "other (1): Answers" in told(listed)
                assert told(
                    await model.use("mcp_execute_tool", tool_name="read", arguments={"path": "a"})
                )
            else:
                assert (
                    "  Server: files\n    - read: Reads a file\n  Server: other - Answers."
                    in menu[0]["description"]
                )
                one, all_of_them = (
                    [{"server_name": "files", "tool_name": "read"}, {"server_name": "files"}]
                    if mode == "inspect"
                    else [{"method": "files.read"}, {"method": "files"}]
                )
                assert "read({path: string" in told(await model.use(mode, **one))
                assert "files (connected, 1 tool)" in told(await model.use(mode, **all_of_them))
                built_in = {"server_name": "mcpx"} if mode == "inspect" else {"method": "mcpx"}
                assert "handle: string" in told(await model.use(mode, **built_in))
            called = await model.run("files", "read", {"path": "a"})
            assert (json.loads(told(called)), model.structured(called)) == (
                {"path": "a"},
                {"path": "a"},
            )
            assert model.structured(await model.run("files", "read", {"path": "both"})) == {"a": 1}
            assert told(await model.run("files", "read", {"path": "failed"}), failed=True) == "no"

    run(main())


@pytest.mark.parametrize("mode", MODES)
def test_a_mistake_is_explained_and_a_near_miss_is_repaired(mode: str) -> None:
    """SUR-7, SUR-9"""

    async def main() -> None:
        async with running_gateway() as gateway:
            model = Model(gateway, mode)
            wrong = await model.mistake("files", "read", {"paht": "a"})
            assert "path: required and missing" in wrong and "read({path: string" in wrong
            assert "arguments" in await model.mistake("files", "read", [1])
            assert "head: expected at least 1" in await model.mistake(
                "files", "read", {"path": "a", "head": 0}
            )
            assert "reed" in await model.mistake("files", "reed", {"path": "a"})
            assert "not known" in await model.mistake("mcpx", "result", {"handle": "h"})
            assert "result" in await model.mistake("mcpx", "other", {})
            mended = told(await model.run("files", "read", {"path": "a", "head": "5"}))
            assert mended.endswith('Note: head: "5" taken as 5')
            if mode != "search":
                assert '"files"' in await model.mistake("flies", "read", {})
            with pytest.raises(NotFound):
                await model.use("nothing_like_it")
            by_name = told(await model.use("fs_read", path="a"), failed=True)
            assert "not called by name" in by_name

    run(main())


@pytest.mark.parametrize("mode", MODES)
def test_a_large_result_is_read_on_by_the_one_who_got_it(mode: str) -> None:
    """SUR-11"""

    async def main() -> None:
        async with running_gateway() as gateway:
            model = Model(gateway, mode)
            kept = model.structured(await model.run("files", "read", {"path": "rows"}))
            assert kept.keys() == {"handle", "total_bytes", "shape", "preview"}
            asked = {"handle": kept["handle"], "offset": 1_999}
            assert "row 1999" in told(await model.run("mcpx", "result", asked))
            stranger = Model(gateway, mode, Caller(mode=mode, session="another"))
            assert "not known" in await stranger.mistake("mcpx", "result", asked)
            joined = await model.run("files", "read", {"path": "texts"})
            assert model.structured(joined)["total_bytes"] == 4 * 9_000 + 3
            assert len(joined["content"]) == 1

    run(main())


def test_resources_are_listed_and_read() -> None:
    """SUR-3: text as text, binary as an embedded resource."""

    async def main() -> None:
        async with running_gateway() as gateway:
            model = Model(gateway, "describe")
            assert "file:///a - a (text/plain)" in told(await model.use("resources"))
            assert "files: " not in told(await model.use("resources", server_name="files"))
            assert told(await model.use("resources", uri="file:///a")) == "hello"
            assert (
                told(await model.use("resources", uri="file:///a", server_name="files")) == "hello"
            )
            binary = await model.use("resources", uri="file:///b", server_name="files")
            assert binary["content"] == [
                {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}}
            ]
            assert "Unknown resource" in told(
                await model.use("resources", uri="file:///c"), failed=True
            )
            assert "Unknown server" in told(
                await model.use("resources", server_name="nobody"), failed=True
            )
            assert 'resource of server "files"' in told(
                await model.use("resources", server_name="other", uri="file:///a"), failed=True
            )

    run(main())


def test_each_tool_of_search_can_be_switched_off() -> None:
    """SUR-4: and nobody is sent to one that is off."""

    async def main() -> None:
        async with running_gateway(
            tool_proxy=ToolProxy(enable_list_services=False, search_limit=1)
        ) as gateway:
            model = Model(gateway, "search")
            assert [tool["name"] for tool in await model.menu()] == [
                "mcp_search_tools",
                "mcp_execute_tool",
            ]
            assert "mcp_list_services" not in told(
                await model.use("mcp_search_tools", query="zebra")
            )
            assert "offset=1" in told(await model.use("mcp_search_tools", query=""))
            with pytest.raises(NotFound):
                await model.use("mcp_list_services")

    run(main())


@pytest.mark.parametrize(
    ("settings", "client", "mode", "reason"),
    [
        ({}, "claude-code", "direct", DEFERS),
        ({"auto_budget": 1}, "claude-code", "direct", DEFERS),
        ({"auto_direct_limit": 1}, "claude-code", "search", "the limit auto_direct_limit is 1"),
        ({"auto_direct_limit": 1}, "ruled", "search", "the limit auto_direct_limit is 1"),
        ({"auto_direct_limit": 1}, "other", "search", "the limit auto_direct_limit is 1"),
        ({"auto_direct_limit": 1}, "mapped", "inspect", "a rule in the config"),
        (
            {"auto_budget": 1, "auto_direct_limit": 100_000},
            "ruled",
            "direct",
            "a rule in the config",
        ),
        ({"auto_budget": 1}, "other", "search", "the budget is 1"),
    ],
)
def test_no_client_is_shown_a_list_above_the_limit(
    settings: Any, client: str, mode: str, reason: str
) -> None:
    """SUR-5: whatever its name is, and whatever a rule says."""
    rules = (AutoRule(client="ruled", mode="direct"), AutoRule(client="mapped", mode="inspect"))

    async def main() -> None:
        async with running_gateway(auto_rules=rules, **settings) as gateway:
            model = Model(gateway, mode, Caller(mode="auto", session="s", client={"name": client}))
            await model.menu()
            (choice,) = (await gateway.describe())["auto"]
            assert choice["mode"] == mode
            assert choice["reason"].endswith(reason)

    run(main())


@pytest.mark.parametrize(
    ("client", "mode"), [("somebody", "direct"), ("claude-code", "direct"), ("big", "search")]
)
def test_auto_goes_by_the_client_and_the_size_of_the_list(client: str, mode: str) -> None:
    """SUR-5"""

    async def main() -> None:
        async with running_gateway(auto_budget=1 if client == "big" else 10_000) as gateway:
            model = Model(gateway, mode, Caller(mode="auto", session="s", client={"name": client}))
            names = [tool["name"] for tool in await model.menu()]
            assert ("fs_read" in names) == (mode == "direct")
            assert [choice["mode"] for choice in (await gateway.describe())["auto"]] == [mode]
            await gateway.sessions.end_session("s")
            assert (await gateway.describe())["auto"] == []

    run(main())
