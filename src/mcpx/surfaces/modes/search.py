"""Three tools: search for tools, execute one, list the services (SUR-4, the result shapes of
S2)."""

from collections.abc import Sequence
from typing import Any, ClassVar

from mcpx.catalog.catalog import Catalog
from mcpx.model.call import Call, Json, as_list, as_object
from mcpx.model.errors import NotFound
from mcpx.model.offer import Offer
from mcpx.surfaces.batch import call_schema
from mcpx.surfaces.compact import READER, Compact, Mistake, Unknown
from mcpx.surfaces.large.reading import PARAMETERS
from mcpx.surfaces.menu import MANY_WORDS, Menu, how_many, services_within
from mcpx.surfaces.results import MOST_BLOCKS
from mcpx.surfaces.settings import TOOL_PROXY, Rendering
from mcpx.surfaces.several_names import tell_each, wanted
from mcpx.surfaces.surface import Surfaces
from mcpx.surfaces.text import exact, one_line, purpose, quoted, short, within_tokens
from mcpx.surfaces.tool_search import Manner
from mcpx.surfaces.view import Service, View

SERVICES = 570
"""Tokens in which the services are named before the first search."""
LISTED = "name (tools): what it is for"
MOST = 100
"""Hits that one search may ask for."""


class Search(Compact):
    type: ClassVar[str] = "search"
    lists_servers: ClassVar[bool] = True
    menu_settings: ClassVar[tuple[str, ...]] = (*TOOL_PROXY, "menu_budget")
    naming: ClassVar[tuple[str, ...]] = ("tool_name",)

    def __init__(self, surfaces: Surfaces) -> None:
        super().__init__(surfaces)
        self._limit = min(self.settings.search_limit, MOST)
        listed = ", or mcp_list_services" * self.settings.enable_list_services
        self.manner = Manner("Search for names to get their signatures.", listed, pages=True)

    def definitions(self, menu: Menu) -> list[Json]:
        settings = self.settings
        more = "mcp_list_services names them." * settings.enable_list_services
        told = services_within(min(SERVICES, settings.menu_budget), menu, more)
        switches = {
            "mcp_search_tools": settings.enable_search,
            "mcp_execute_tool": settings.enable_execute,
            "mcp_list_services": settings.enable_list_services,
        }
        return [tool for tool in _definitions(self._limit, told) if switches[tool["name"]]]

    async def answer(self, view: View, call: Call, name: str, arguments: Json) -> Json | None:
        settings = self.settings
        if name == "mcp_search_tools" and settings.enable_search:
            self.only(arguments, "query", "service_name", "limit", "offset")
            query = self.text(arguments, "query", needed=False)
            named = arguments.get("service_name")
            if arguments.get("query") is None and named in (None, ""):
                raise Mistake(
                    'Say in "query" what the tool should do, or name a "service_name" to see its '
                    "tools."
                )
            limit = min(_number(arguments, "limit", self._limit, least=1), MOST)
            offset = _number(arguments, "offset", 0, least=0)
            if named in (None, ""):
                return await self.finder.search(view, query, limit=limit, offset=offset)
            services = wanted(named, "service_name", lambda name: view.service(name) is not None)
            if isinstance(services, str):
                return await self.finder.search(
                    view, query, service=services, limit=limit, offset=offset
                )
            return await self._of_each(view, query, services, limit)
        if name == "mcp_execute_tool" and settings.enable_execute:
            return await self.execute(view, call, arguments)
        if name == "mcp_list_services" and settings.enable_list_services:
            return await self.bounded(call, await self._services(view))
        return None

    async def _of_each(self, view: View, query: str, services: Sequence[str], limit: int) -> Json:
        """Several services, one after the other (SUR-12); for programs as one search."""
        told = await tell_each(
            self,
            view,
            services,
            lambda name, _: self.finder.search(view, query, service=name, limit=limit),
        )
        if "structuredContent" not in told:
            return told
        pages = [
            as_object(page) for page in as_list(as_object(told["structuredContent"]).get("results"))
        ]
        found = [page for page in pages if "tools" in page]
        tools = [tool for page in found for tool in page["tools"]]
        return {
            **told,
            "structuredContent": {
                "tools": tools,
                "total": sum(p["total"] for p in found),
                "limit": limit,
            },
        }

    # Execute
    # ----------------------------------------------------------------------------------------------

    async def target(self, view: View, arguments: Json) -> Offer:
        return await self._named(view, self.text(arguments, "tool_name"))

    async def _named(self, view: View, name: str) -> Offer:
        """By display name, by the server's own name, or as `server.tool`."""
        if name == READER.public:
            return READER
        offer = (
            view.catalog.find("tools", name)
            or _by_own_name(view.catalog, name)
            or await self.dotted(view, name)
        )
        if offer is not None:
            return offer
        try:
            return await view.find("tools", name)  # a server that is starting may have it
        except NotFound:
            offer = _by_own_name(view.catalog, name)
            if offer is not None:
                return offer
            otherwise = "Use mcp_search_tools to find tools." * self.settings.enable_search
            raise Unknown(f"Unknown tool {quoted(name)}.", name, otherwise=otherwise) from None

    def finished(self, result: Json, how: Rendering) -> Json:
        """S2's shape around what the tool returned."""
        if not how.structured:
            return result
        failed = result.get("isError") is True
        content: Any = result.get("content")
        blocks = as_list(content)[:MOST_BLOCKS]
        texts = [text for block in blocks if isinstance(text := as_object(block).get("text"), str)]
        value = result.get("structuredContent")
        if value is None and texts:
            value = "\n".join(texts)
        told: Json = {
            "success": not failed,
            "result": None if failed else value,
            "error": ("\n".join(texts) or "the tool failed") if failed else None,
        }
        return {**result, "structuredContent": told}

    def entry(self, value: object, error: str | None) -> Json:
        return {"success": error is None, "result": value, "error": error}

    def entries(self, entries: list[Json], failed: int) -> Json:
        error = f"{failed} of {len(entries)} calls failed or were not run" if failed else None
        return {"success": not failed, "result": entries, "error": error}

    def failure(self, text: str) -> Json:
        return {
            **self.reply(text, {"success": False, "result": None, "error": text}),
            "isError": True,
        }

    # Services
    # ----------------------------------------------------------------------------------------------

    async def _services(self, view: View) -> Json:
        _, menu = await self.contents(view)
        services: list[Json] = []
        lines: list[str] = []
        unknown = view.starting()
        for service in view.services():  # as they are now
            count = len(menu.tools.get(service.name, ()))
            services.append(
                {
                    "name": service.name,
                    "description": service.description,
                    "status": service.status,
                    "tool_count": count,
                }
            )
            lines.append(_service_line(service, count, unknown))
        told = "\n".join((LISTED, *lines)) if lines else "There are no services."
        return self.reply(told, {"services": services})

    def spelled(self, offer: Offer) -> str:
        return offer.public

    def how_to_call(self, offer: Offer, arguments: str) -> str:
        return f'mcp_execute_tool {{"tool_name": {exact(offer.public)}, "arguments": {arguments}}}'


def _service_line(service: Service, count: int, starting: Sequence[str]) -> str:
    """Of one that is connected nothing is said of its state."""
    state = str(count)
    if service.status != "connected":
        reason = service.reason
        if service.status == "needs_auth":
            reason = reason.rpartition("; ")[2]  # what to do comes last
        reason = short(reason)
        state = (
            f"{service.status}{f': {reason}' if reason else ''}, "
            f"{how_many(count, service.name, starting)}"
        )
    said = within_tokens(purpose(service), MANY_WORDS)
    return f"{one_line(service.name)} ({state}): {said}".removesuffix(": ")


def _by_own_name(catalog: Catalog, name: str) -> Offer | None:
    """The only tool that its server calls so."""
    alike = catalog.tools_named(name)
    if len(alike) > 1:
        names = " or ".join(exact(offer.public) for offer in alike[:10])
        raise Mistake(f"Several services have a tool {quoted(name)}. Say {names}.")
    return alike[0] if alike else None


def _number(arguments: Json, name: str, default: int, *, least: int) -> int:
    value: Any = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Mistake(f"{name} must be a number, {least} or more")
    return value


def _definitions(limit: int, services: str) -> list[Json]:
    text = {"type": "string"}
    return [
        {
            "name": "mcp_search_tools",
            "description": "Search the available MCP tools. The best matches come with their "
            "signatures, ready to be "
            "called with mcp_execute_tool. Say in a few words what you want to "
            f"do.\n\n{services}".rstrip(),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": {**text, "description": "What the tool should do, or its name"},
                    "service_name": {
                        **text,
                        "description": "Only tools of this service (or: a, b); without query all",
                    },
                    "limit": {
                        "type": "integer",
                        "description": "Most tools to return",
                        "default": limit,
                    },
                    "offset": {
                        "type": "integer",
                        "description": "Matches to pass over, for the next page",
                    },
                },
            },
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": "mcp_execute_tool",
            "description": "Execute an MCP tool that mcp_search_tools found. "
            f"Large results are kept back: read on with tool mcpx.result, arguments {PARAMETERS}.",
            "inputSchema": call_schema(
                tool_name={**text, "description": "Name of the tool as the search gave it"}
            ),
        },
        {
            "name": "mcp_list_services",
            "description": (
                "List all MCP services: what each is for, how many tools it has, which "
                "are not connected."
            ),
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": True},
        },
    ]
