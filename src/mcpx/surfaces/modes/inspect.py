"""Two tools: `inspect` tells what there is, `exec` calls it (SUR-2, the layout of S0)."""

from typing import ClassVar

from mcpx.model.call import Call, Json
from mcpx.model.offer import Offer
from mcpx.surfaces.batch import call_schema
from mcpx.surfaces.compact import BUILT_IN, READER, Compact, Mistake, Unknown
from mcpx.surfaces.large.reading import PARAMETERS
from mcpx.surfaces.menu import Menu, definitions_within, describe_tool
from mcpx.surfaces.several_names import NAMES, tell_each, wanted
from mcpx.surfaces.text import exact
from mcpx.surfaces.tool_search import Manner
from mcpx.surfaces.view import View

READ_ON = "inspect(server_name) lists the tools of a server."


class Inspect(Compact):
    type: ClassVar[str] = "inspect"
    lists_servers: ClassVar[bool] = True
    menu_settings: ClassVar[tuple[str, ...]] = ("menu_budget",)
    naming: ClassVar[tuple[str, ...]] = ("server_name", "tool_name")
    manner = Manner("inspect(server_name, tool_name) gives a signature.", apart=True)

    def definitions(self, menu: Menu) -> list[Json]:
        return definitions_within(self.settings.menu_budget, menu, _definitions, READ_ON)

    async def answer(self, view: View, call: Call, name: str, arguments: Json) -> Json | None:
        if name == "inspect":
            self.only(arguments, "server_name", "tool_name")
            return await self.bounded(call, await self._inspect(view, arguments))
        return await self.execute(view, call, arguments) if name == "exec" else None

    async def _inspect(self, view: View, arguments: Json) -> Json:
        servers = wanted(
            arguments.get("server_name"), "server_name", lambda name: view.service(name) is not None
        )
        tools = arguments.get("tool_name")
        if not tools:
            if isinstance(servers, str):
                return await self._server(view, servers)
            return await tell_each(
                self, view, servers, lambda name, room: self._server(view, name, room)
            )
        if not isinstance(servers, str):
            if len(servers) > 1:
                raise Mistake(
                    "tool_name goes with one server_name; leave it out, or ask for each server "
                    "alone"
                )
            servers = servers[0]
        server = servers
        tools = wanted(
            tools, "tool_name", lambda name: view.catalog.native("tools", server, name) is not None
        )
        if isinstance(tools, str):
            return describe_tool(self, await self.tool(view, server, tools))

        async def tell(name: str, room: int | None) -> Json:
            return describe_tool(self, await self.tool(view, server, name))

        return await tell_each(self, view, tools, tell)

    async def _server(self, view: View, name: str, room: int | None = None) -> Json:
        if name == BUILT_IN:
            return describe_tool(self, READER)
        catalog = await view.prepare()
        service = view.service(name)
        if service is None:
            return await self.guide.searched(view, name)
        return await self.told(
            view,
            service,
            [offer for offer in catalog.offers["tools"] if offer.server == name],
            room,
        )

    async def target(self, view: View, arguments: Json) -> Offer:
        given = [
            value
            for key in self.naming
            if isinstance(value := arguments.get(key), str) and value.strip()
        ]
        try:
            server, tool = (self.text(arguments, key) for key in self.naming)
        except Mistake as mistake:
            raise Unknown(f"{mistake}.", *given) if given else mistake from None
        return await self.tool(view, server, tool)

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
            "description": "Inspect available MCP tools and their schemas.\n\nAvailable tools:\n"
            + menu,
            "inputSchema": {
                "type": "object",
                "properties": {
                    "server_name": {
                        **NAMES,
                        "description": "A server, a list, or words to search for",
                    },
                    "tool_name": {
                        **NAMES,
                        "description": "One of its tools or a list; without it all",
                    },
                },
                "required": ["server_name"],
            },
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": "exec",
            "description": "Execute a tool of an MCP server. Use inspect first to learn its "
            "parameters. "
            "Large results are kept back: read on with tool result of server mcpx, arguments "
            f"{PARAMETERS}.",
            "inputSchema": call_schema(server_name=text, tool_name=text),
        },
    ]
