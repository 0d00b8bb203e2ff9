"""Three tools: search for tools, execute one, list the services (SUR-4, the result shapes of S2)."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from mcpx.catalog.catalog import Catalog
from mcpx.catalog.entries import LONGEST_TEXT, description_of, parameters_of
from mcpx.catalog.search import Index
from mcpx.formats.tokens import estimate
from mcpx.model.call import Call, Json, as_object
from mcpx.model.errors import NotFound
from mcpx.model.offer import Offer
from mcpx.model.slices import in_slices
from mcpx.surfaces.compact import READER, Compact, Mistake, exact, quoted, starting
from mcpx.surfaces.descriptions import how_many
from mcpx.surfaces.menu import Tools, cut, one_line, short
from mcpx.surfaces.results import MOST_BLOCKS
from mcpx.surfaces.settings import TOOL_PROXY, Rendering
from mcpx.surfaces.surface import Surfaces
from mcpx.surfaces.view import Service, View

SIGNATURES = 380
"""Tokens of a reply that go to the signatures of the best hits; the first one is always told."""
NAMES = 120
"""Tokens that go to the names of the others."""
MOST = 100
"""Hits that one search may ask for."""
LONGEST_LINE = 4_000
"""Characters of one signature in a reply."""
REMEMBERED = 1_000
"""Tools whose rendering is kept."""
AT_ONCE = 100
"""Tools that are indexed while everybody waits (some 10 ms); more are indexed in slices, once for all who ask."""


class Search(Compact):
    type: ClassVar[str] = "search"
    menu_settings: ClassVar[tuple[str, ...]] = TOOL_PROXY

    def __init__(self, surfaces: Surfaces) -> None:
        super().__init__(surfaces)
        self._limit = min(self.settings.search_limit, MOST)
        self._texts: dict[int, tuple[Offer, str, Json]] = {}
        """What is told of a tool, by the identity of its offer: rendering costs more than finding."""
        self._indexing = asyncio.Lock()

    def definitions(self, services: Sequence[Service], tools: Tools) -> list[Json]:
        settings = self.settings
        switches = {
            "mcp_search_tools": settings.enable_search,
            "mcp_execute_tool": settings.enable_execute,
            "mcp_list_services": settings.enable_list_services,
        }
        return [tool for tool in _definitions(self._limit) if switches[tool["name"]]]

    async def answer(self, view: View, call: Call, name: str, arguments: Json) -> Json | None:
        settings = self.settings
        if name == "mcp_search_tools" and settings.enable_search:
            self.only(arguments, "query", "service_name", "limit", "offset")
            return await self._search(view, arguments)
        if name == "mcp_execute_tool" and settings.enable_execute:
            self.only(arguments, "tool_name", "arguments")
            offer = await self._named(view, self.text(arguments, "tool_name"))
            return await self.run(view, call, offer, arguments.get("arguments"))
        if name == "mcp_list_services" and settings.enable_list_services:
            return await self._services(view)
        return None

    # Search ----------------------------------------------------------------------------------------------------

    async def _index(self, catalog: Catalog) -> Index:
        if catalog.indexed or len(catalog.offers["tools"]) <= AT_ONCE:
            return catalog.index
        async with self._indexing:
            return await in_slices(catalog.indexing())

    async def _search(self, view: View, arguments: Json) -> Json:
        query = self.text(arguments, "query", needed=False)
        service = self.text(arguments, "service_name", needed=False)
        limit = min(_number(arguments, "limit", self._limit, least=1), MOST)
        offset = _number(arguments, "offset", 0, least=0)
        catalog = await view.prepare()
        if service:
            self.service(view, service)
        found = (await self._index(catalog)).search(query, limit=limit, offset=offset, service=service or None)
        offers = [catalog.offers["tools"][hit.position] for hit in found.hits]
        structured: Json = {
            "tools": [self._text(offer)[1] for offer in offers],
            "total": found.total,
            "limit": limit,
        }
        told = self._told(offers, query, found.total, offset)
        return self.reply(f"{told}\n{note}" if (note := starting(view)) else told, structured)

    def _told(self, offers: Sequence[Offer], query: str, total: int, offset: int) -> str:
        if not offers:
            more = "" if total == 0 else f" beyond the {total} there are"
            listed = ", or mcp_list_services" if self.settings.enable_list_services else ""
            return f"No tools match {quoted(query)}{more}. Try other words{listed}."
        lines: list[str] = []
        spent = told = 0
        for offer in offers:
            line = self._text(offer)[0]
            spent += estimate(line)
            if told and spent > SIGNATURES:
                break
            lines.append(line)
            told += 1
        names = _fitting([offer.public for offer in offers[told:]])
        if names:
            lines.append(f"Also: {names}")
        following = offset + len(offers)
        if following < total:
            lines.append(f"{total} tools match; offset={following} gives the next.")
        return "\n".join(lines)

    def _text(self, offer: Offer) -> tuple[str, Json]:
        """One hit: its line for the model, its fields for programs."""
        known = self._texts.get(id(offer))
        if known is None:
            if len(self._texts) >= REMEMBERED:
                self._texts.clear()
            about = short(description_of(offer))
            line = f"- {cut(self.signature(offer), LONGEST_LINE)} [{offer.server}]{f' {about}' if about else ''}"
            fields: Json = {
                "name": offer.name,
                "display_name": offer.public,
                "description": description_of(offer)[:LONGEST_TEXT],
                "service": offer.server,
                "parameters": parameters_of(offer.definition.get("inputSchema")),
            }
            known = self._texts[id(offer)] = (offer, line, fields)
        return known[1], known[2]

    # Execute -----------------------------------------------------------------------------------------------------

    async def _named(self, view: View, name: str) -> Offer:
        """By display name, by the server's own name, or as `server.tool`."""
        if name == READER.public:
            return READER
        offer = view.catalog.find("tools", name) or _by_own_name(view.catalog, name) or await self.dotted(view, name)
        if offer is not None:
            return offer
        try:
            return await view.find("tools", name)  # a server that is starting may have it
        except NotFound:
            offer = _by_own_name(view.catalog, name)
            if offer is not None:
                return offer
            hints = (await self._meant(view.catalog, name), starting(view))
            raise Mistake(" ".join([f"Unknown tool {quoted(name)}.", *filter(None, hints)])) from None

    async def _meant(self, catalog: Catalog, name: str) -> str:
        if told := self.called(catalog, name):
            return told
        hits = (await self._index(catalog)).search(name, limit=5).hits
        near = [catalog.offers["tools"][hit.position].public for hit in hits if 2 * hit.score > hits[0].score]
        if near:
            return f"Did you mean {' or '.join(map(exact, near))}?"
        return "Use mcp_search_tools to find tools." if self.settings.enable_search else ""

    def finished(self, result: Json, how: Rendering) -> Json:
        """S2's shape around what the tool returned."""
        if not how.structured:
            return result
        failed = result.get("isError") is True
        content: Any = result.get("content")
        blocks = cast(list[Any], content)[:MOST_BLOCKS] if isinstance(content, list) else []
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

    def failure(self, text: str) -> Json:
        return {**self.reply(text, {"success": False, "result": None, "error": text}), "isError": True}

    # Services ------------------------------------------------------------------------------------------------------

    async def _services(self, view: View) -> Json:
        catalog = await view.prepare()
        services: list[Json] = []
        lines: list[str] = []
        unknown = view.starting()
        for service in view.services():
            count = catalog.count(service.name, "tools")
            services.append(
                {
                    "name": service.name,
                    "description": service.description,
                    "status": service.status,
                    "tool_count": count,
                }
            )
            about = short(service.reason if service.status == "disconnected" else service.description)
            tools = how_many(count, service.name, unknown)
            lines.append(f"- {service.name} ({service.status}, {tools}){f': {about}' if about else ''}")
        return self.reply("\n".join(lines) or "There are no services.", {"services": services})

    def spelled(self, offer: Offer) -> str:
        return offer.public

    def how_to_call(self, offer: Offer, arguments: str) -> str:
        return f"mcp_execute_tool({exact(offer.public)}, {arguments})"


def _by_own_name(catalog: Catalog, name: str) -> Offer | None:
    """The only tool that its server calls so."""
    alike = catalog.tools_named(name)
    if len(alike) > 1:
        names = " or ".join(exact(offer.public) for offer in alike[:10])
        raise Mistake(f"Several services have a tool {quoted(name)}. Say {names}.")
    return alike[0] if alike else None


def _fitting(names: Sequence[str]) -> str:
    """As many of the names as there is room for."""
    shown: list[str] = []
    spent = 0
    for name in names:
        spent += estimate(name) + 1
        if spent > NAMES:
            return f"{', '.join(shown)}, ..." if shown else ""
        shown.append(one_line(name))
    return ", ".join(shown)


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


def _definitions(limit: int) -> list[Json]:
    text = {"type": "string"}
    return [
        {
            "name": "mcp_search_tools",
            "description": "Search the available MCP tools. The best matches come with their signatures, ready to be "
            "called with mcp_execute_tool. Say in a few words what you want to do.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": {**text, "description": "What the tool should do, or its name"},
                    "service_name": {**text, "description": "Only tools of this service"},
                    "limit": {"type": "integer", "description": "Most tools to return", "default": limit},
                    "offset": {"type": "integer", "description": "Matches to pass over, for the next page"},
                },
                "required": ["query"],
            },
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": "mcp_execute_tool",
            "description": "Execute an MCP tool that mcp_search_tools found.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "tool_name": {**text, "description": "Name of the tool as the search gave it"},
                    "arguments": {"type": "object", "description": "Arguments of the tool"},
                },
                "required": ["tool_name", "arguments"],
            },
        },
        {
            "name": "mcp_list_services",
            "description": "List the connected MCP services with their status and number of tools.",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": True},
        },
    ]
