"""Two tools: `inspect` tells what there is, `exec` calls it (SUR-2, the layout of S0)."""

from collections.abc import Sequence
from typing import ClassVar

from mcpx.model.call import Call, Json
from mcpx.model.offer import Offer
from mcpx.surfaces.compact import BUILT_IN, READER, Compact
from mcpx.surfaces.descriptions import describe_tool
from mcpx.surfaces.large.reading import PARAMETERS
from mcpx.surfaces.menu import Tools, definitions_within
from mcpx.surfaces.phrases import exact
from mcpx.surfaces.view import Service, View


class Inspect(Compact):
    type: ClassVar[str] = "inspect"
    lists_servers: ClassVar[bool] = True
    menu_settings: ClassVar[tuple[str, ...]] = ("menu_budget",)

    def definitions(self, services: Sequence[Service], tools: Tools) -> list[Json]:
        return definitions_within(self.settings.menu_budget, services, tools, _definitions)

    async def answer(self, view: View, call: Call, name: str, arguments: Json) -> Json | None:
        if name == "inspect":
            self.only(arguments, "server_name", "tool_name")
            server = self.text(arguments, "server_name")
            tool = self.text(arguments, "tool_name", needed=False)
            return await self.bounded(call, await self._inspect(view, server, tool))
        if name == "exec":
            self.only(arguments, "server_name", "tool_name", "arguments")
            offer = await self.tool(view, self.text(arguments, "server_name"), self.text(arguments, "tool_name"))
            return await self.run(view, call, offer, arguments.get("arguments"))
        return None

    async def _inspect(self, view: View, server: str, tool: str) -> Json:
        if tool:
            return describe_tool(self, await self.tool(view, server, tool))
        if server == BUILT_IN:
            return describe_tool(self, READER)
        catalog = await view.prepare()
        service = self.service(view, server)
        return await self.told(view, service, [offer for offer in catalog.offers["tools"] if offer.server == server])

    def spelled(self, offer: Offer) -> str:
        return offer.name

    def how_to_call(self, offer: Offer, arguments: str) -> str:
        names = f'"server_name": {exact(offer.server)}, "tool_name": {exact(offer.name)}'
        return f'exec {{{names}, "arguments": {arguments}}}'


def _definitions(menu: str) -> list[Json]:
    text = {"type": "string"}
    return [
        {
            "name": "inspect",
            "description": "Inspect available MCP tools and their schemas.\n\nAvailable tools:\n" + menu,
            "inputSchema": {
                "type": "object",
                "properties": {
                    "server_name": {**text, "description": "Name of the server"},
                    "tool_name": {**text, "description": "Name of one tool; without it all tools of the server"},
                },
                "required": ["server_name"],
            },
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": "exec",
            "description": "Execute a tool of an MCP server. Use inspect first to learn its parameters. "
            f"Large results are kept back: read on with tool result of server mcpx, arguments {PARAMETERS}.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "server_name": {**text, "description": "Name of the server"},
                    "tool_name": {**text, "description": "Name of the tool"},
                    "arguments": {"type": "object", "description": "Arguments of the tool"},
                },
                "required": ["server_name", "tool_name"],
            },
        },
    ]
