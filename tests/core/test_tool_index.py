"""SUR-4: the index of all tools, as programs read it through Python: the fields of S2, always those of the moment."""

from typing import Any

from fixtures.parts import Line, Toy, run, turns, until
from mcpx.config import Config
from mcpx.core.gateway import Gateway
from mcpx.model.call import Json

SCHEMA: Json = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "Where"}, "head": {"$ref": "#/$defs/a~1b"}},
    "required": ["path"],
    "$defs": {"a/b": {"type": "integer"}},
}


def listing(*tools: Json) -> Any:
    async def answer(line: Line, params: Json) -> Json:
        return {"tools": list(tools)}

    return answer


def tool(name: str, about: str) -> Json:
    return {"name": name, "description": about, "inputSchema": SCHEMA}


def test_an_entry_has_all_that_is_known_of_a_tool() -> None:
    async def main() -> None:
        toy = Toy(answers={"tools/list": listing(tool("read", "Reads a file"))})
        server = toy.server("files", prefix="fs", description="Files here.")
        gateway = Gateway(Config(mcp_servers=(server,)), {})
        gateway.start()
        try:
            await until(lambda: gateway.tool_index())
            (entry,) = gateway.tool_index()
            assert (entry.name, entry.display_name, entry.service_name) == ("read", "fs_read", "files")
            assert (entry.description, entry.service_description) == ("Reads a file", "Files here.")
            assert entry.input_schema == SCHEMA
            assert entry.parameters == {
                "path": {"type": "string", "description": "Where", "required": True},
                "head": {"type": "integer", "description": "", "required": False},
            }
            assert entry.created_at == entry.updated_at
            assert entry.created_at.tzinfo is not None
        finally:
            await gateway.close()

    run(main())


def test_the_index_follows_connects_changed_lists_disabling_and_reloads() -> None:
    async def main() -> None:
        first = Toy("older", answers={"tools/list": listing(tool("read", "Reads"), tool("stat", "Looks"))})
        other = Toy(tools=("ping",))
        gateway = Gateway(Config(mcp_servers=(first.server("a"),)), {})

        def index() -> dict[str, str]:
            return {f"{entry.service_name}.{entry.name}": entry.description for entry in gateway.tool_index()}

        assert index() == {}
        gateway.start()
        try:
            await until(lambda: index() == {"a.read": "Reads", "a.stat": "Looks"})
            before = {entry.name: entry for entry in gateway.tool_index()}
            first.answers["tools/list"] = listing(tool("read", "Reads all"), tool("stat", "Looks"))
            first.alive[0].say("notifications/tools/list_changed")
            await until(lambda: index() == {"a.read": "Reads all", "a.stat": "Looks"})
            after = {entry.name: entry for entry in gateway.tool_index()}
            assert after["stat"] == before["stat"]
            assert after["read"].created_at == before["read"].created_at
            assert after["read"].updated_at > before["read"].updated_at
            await gateway.apply(Config(mcp_servers=(first.server("a"), other.server("b"))))
            await until(lambda: "b.ping" in index())
            await gateway.apply(Config(mcp_servers=(first.server("a", enabled=False), other.server("b"))))
            await turns()
            assert list(index()) == ["b.ping"]
            await gateway.apply(Config(mcp_servers=(first.server("a"),)))
            await until(lambda: list(index()) == ["a.read", "a.stat"])
        finally:
            await gateway.close()

    run(main())
