"""Three tools: `describe` tells what there is, `call` calls it, `resources` lists and reads
resources (SUR-3)."""

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from mcpx.base.aio import Pace
from mcpx.model.call import Call, Json, as_object
from mcpx.model.errors import RpcError, Unavailable
from mcpx.model.offer import Offer
from mcpx.surfaces.batch import call_schema
from mcpx.surfaces.compact import BUILT_IN, LONGEST_NAME, READER, Compact, Mistake, Unknown
from mcpx.surfaces.large.reading import PARAMETERS
from mcpx.surfaces.menu import Menu, definitions_within, describe_tool, raw
from mcpx.surfaces.results import said
from mcpx.surfaces.several_names import NAMES, tell_each, wanted
from mcpx.surfaces.text import exact, one_line, quoted, starting
from mcpx.surfaces.tool_search import Manner
from mcpx.surfaces.view import View

READ_ON = 'describe("server") lists the tools of a server.'


class Describe(Compact):
    type: ClassVar[str] = "describe"
    lists_servers: ClassVar[bool] = True
    menu_settings: ClassVar[tuple[str, ...]] = ("menu_budget",)
    naming: ClassVar[tuple[str, ...]] = ("method",)
    manner = Manner('describe("server.tool") gives a signature.')

    def definitions(self, menu: Menu) -> list[Json]:
        return definitions_within(self.settings.menu_budget, menu, _definitions, READ_ON)

    async def answer(self, view: View, call: Call, name: str, arguments: Json) -> Json | None:
        if name == "describe":
            self.only(arguments, "method")
            return await self.bounded(call, await self._methods(view, arguments.get("method")))
        if name == "call":
            return await self.execute(view, call, arguments)
        if name == "resources":
            self.only(arguments, "server_name", "uri")
            server = self.text(arguments, "server_name", needed=False)
            uri = self.text(arguments, "uri", needed=False)
            return await (
                self._read_resource(view, call, server, uri)
                if uri
                else self._resources(view, call, server)
            )
        return None

    async def _methods(self, view: View, methods: object) -> Json:
        asked = wanted(methods, "method", lambda name: self._is_name(view, name))
        if isinstance(asked, str):
            return await self._describe(view, asked)
        return await tell_each(
            self, view, asked, lambda name, room: self._describe(view, name, room)
        )

    def _is_name(self, view: View, name: str) -> bool:
        """Of a server or a tool."""
        if view.service(name) is not None:
            return True
        parts = (name[:LONGEST_NAME].rpartition("."), name[:LONGEST_NAME].partition("."))
        return any(
            view.catalog.native("tools", server, tool) is not None for server, _, tool in parts
        )

    async def _describe(self, view: View, method: str, room: int | None = None) -> Json:
        catalog = await view.prepare()
        service = view.service(method)
        if service is not None:
            return await self.told(
                view, service, [o for o in catalog.offers["tools"] if o.server == method], room
            )
        if method == BUILT_IN:
            return describe_tool(self, READER)
        if not self._is_name(view, method) and ("." not in method or len(method.split()) > 1):
            return await self.guide.searched(view, method)
        return describe_tool(self, await self._method(view, method))

    async def target(self, view: View, arguments: Json) -> Offer:
        return await self._method(view, self.text(arguments, "method"))

    async def _method(self, view: View, method: str) -> Offer:
        offer = await self.dotted(view, method)
        if offer is not None:
            return offer
        server, dot, tool = method.partition(".")
        if dot and server and tool:
            names = [service.name for service in view.services()]
            raise Unknown(
                f"Unknown server {quoted(server)}.", server, method, among=names, noun="servers"
            )
        if view.service(method):
            raise Mistake(f"{quoted(method)} is a server: name one of its tools as well")
        raise Unknown(f'method must be "server.tool"; {quoted(method)} is not.', method)

    # Resources
    # ----------------------------------------------------------------------------------------------

    async def _resources(self, view: View, call: Call, server: str) -> Json:
        catalog = await view.prepare()
        if server:
            self.service(view, server)
        kinds: tuple[tuple[Any, str], ...] = (("resources", "uri"), ("templates", "uriTemplate"))
        lines: list[str] = []
        listed: Json = {"resources": [], "templates": []}
        pace = Pace()  # there may be thousands of them
        for kind, key in kinds:
            for offer in cast(Sequence[Offer], catalog.offers[kind]):
                await pace.step()
                if server in ("", offer.server):
                    listed[kind].append(raw(offer, key))
                    lines.append(_resource_line(offer, "" if server else f"{offer.server}: "))
        lines = lines or ["There are no resources."]
        if note := starting(view, "resources"):
            lines.append(note)
        return await self.bounded(call, self.reply("\n".join(lines), listed))

    async def _read_resource(self, view: View, call: Call, server: str, uri: str) -> Json:
        if server:
            self.service(view, server)
            found = view.catalog.resolve_uri(uri)
            if found is None or found[0] != server:
                found = (
                    server,
                    uri,
                )  # its own URI, whoever else has the same; or one it never listed
        else:
            found = await view.locate(uri)
        if found is None:
            raise Mistake(
                f'Unknown resource "{one_line(uri)[:200]}". resources() lists those there are.'
            )
        kept = {
            key: value for key, value in call.params.items() if key not in ("name", "arguments")
        }
        read = Call(
            "resources/read", {**kept, "uri": found[1]}, call.caller, call.own_voice, call.request
        )
        try:
            result = await view.send(found[0], read, read.params)
        except RpcError as error:
            whose = view.catalog.resolve_uri(uri)
            if isinstance(error, Unavailable) or whose is None or whose[0] == found[0]:
                raise
            raise Mistake(
                f"{error.message}. It is a resource of server {exact(whose[0])}."
            ) from None
        if result.get("resultType") == "input_required":
            return result
        contents: Any = result.get("contents")
        parts: list[Json] = []
        blocks: list[Json] = []
        pace = Pace()
        for part in cast(list[Any], contents) if isinstance(contents, list) else ():
            await pace.step()
            parts.append(as_object(part))
            blocks.append(_shown(parts[-1]))
        shown: Json = {"content": blocks or [said("(empty)")]}
        how = self.settings.of(found[0])
        if how.structured and not any("blob" in part for part in parts):
            shown["structuredContent"] = {"contents": parts}
        return await self.bounded(call, shown, how)

    def spelled(self, offer: Offer) -> str:
        return f"{offer.server}.{offer.name}"

    def how_to_call(self, offer: Offer, arguments: str) -> str:
        return f'call {{"method": {exact(self.spelled(offer))}, "arguments": {arguments}}}'


def _shown(part: Json) -> Json:
    """Text as text, binary as an embedded resource."""
    text = part.get("text")
    return said(text) if isinstance(text, str) else {"type": "resource", "resource": part}


def _resource_line(offer: Offer, server: str) -> str:
    definition = offer.definition
    title = one_line(definition.get("title") or definition.get("name"))
    kind = one_line(definition.get("mimeType"))
    about = one_line(definition.get("description"))
    facts = " ".join(fact for fact in (title, f"({kind})" if kind else "") if fact)
    told = ": ".join(fact for fact in (facts, about) if fact)
    return f"- {server}{one_line(offer.name)}{f' - {told}' if told else ''}"


def _definitions(menu: str) -> list[Json]:
    text = {"type": "string"}
    return [
        {
            "name": "describe",
            "description": (
                "Describe the tools of MCP servers and their parameters.\n\nAvailable tools:\n"
            )
            + menu,
            "inputSchema": {
                "type": "object",
                "properties": {
                    "method": {
                        **NAMES,
                        "description": '"server", "server.tool", a list, or words to search for',
                    },
                },
                "required": ["method"],
            },
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": "call",
            "description": "Call a tool of an MCP server. Use describe first to learn its "
            "parameters. "
            "Large results are kept back: read on with method mcpx.result, arguments "
            f"{PARAMETERS}.",
            "inputSchema": call_schema(method={**text, "description": '"server.tool"'}),
        },
        {
            "name": "resources",
            "description": "List the resources of MCP servers, or of one; with a uri, read that.",
            "inputSchema": {"type": "object", "properties": {"server_name": text, "uri": text}},
            "annotations": {"readOnlyHint": True},
        },
    ]
