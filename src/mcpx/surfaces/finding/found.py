"""Searches for tools: which ones a query finds, for programs in S2's shape and for models in few
words (SUR-4).

The one that every compact surface has: `search` offers it as a tool, the others give it where a
model says words that are no name (SUR-12). Of one service every tool is found: those that match, in
their order, then the others.
"""

import asyncio
from typing import TYPE_CHECKING

from mcpx.catalog.catalog import Catalog, Searchable
from mcpx.catalog.entries import LONGEST_TEXT, description_of, hints_of, parameters_of
from mcpx.model.call import Json
from mcpx.model.offer import Offer
from mcpx.model.slices import Pace, in_slices
from mcpx.surfaces.finding.telling import Page, Telling
from mcpx.surfaces.large.reading import BUILT_IN, OWN_NAMES, READER
from mcpx.surfaces.text import starting
from mcpx.surfaces.view import Service, View

if TYPE_CHECKING:
    from mcpx.surfaces.compact import Compact

REMEMBERED = 1_000
"""Tools whose fields are kept."""
AT_ONCE = 100
"""Tools that are indexed while everybody waits (some 10 ms); more are indexed in slices, once for
all who ask."""


class Finder:
    """Searches for one surface, in its words."""

    def __init__(self, surface: "Compact") -> None:
        self._surface = surface
        self._telling = Telling(surface)
        self._fields: dict[int, tuple[Offer, Json]] = {}
        """What programs are told of a tool, by the identity of its offer: reading schemas costs
        more than finding."""
        self._indexing = asyncio.Lock()

    async def index(self, catalog: Catalog) -> Searchable:
        if catalog.indexed or len(catalog.whole.offers["tools"]) <= AT_ONCE:
            return catalog.index
        async with self._indexing:
            return await in_slices(catalog.indexing())

    async def search(
        self, view: View, query: str, *, service: str = "", limit: int = 20, offset: int = 0
    ) -> Json:
        """A blank query finds every tool there is, or every one of the service."""
        catalog = (await view.prepare()).for_models
        query = query.strip()
        if service == BUILT_IN or query in OWN_NAMES:
            page = Page(query, None, [READER], 1, 1, 1, 0, 1)
        elif service:
            page = await self._of_service(
                catalog, self._surface.service(view, service), query, limit, offset
            )
        else:
            page = await self._of_all(
                catalog, query if catalog.offers["tools"] else "", limit, offset
            )
        structured: Json = {
            "tools": [self._for_programs(offer) for offer in page.tools[: page.matches][:limit]],
            "total": page.total,
            "limit": limit,
        }
        # Of one that has not told yet it is not said that it has none (LIF-1).
        told = "" if service in view.starting() else await self._telling.text(page)
        return self._surface.reply("\n".join(filter(None, (told, starting(view)))), structured)

    async def _of_all(self, catalog: Catalog, query: str, limit: int, offset: int) -> Page:
        found = (await self.index(catalog)).search(query, limit=limit, offset=offset)
        tools = [catalog.offers["tools"][hit.position] for hit in found.hits]
        strong = found.strong if query else len(tools)
        return Page(query, None, tools, strong, len(tools), found.total, offset, found.total)

    async def _of_service(
        self, catalog: Catalog, service: Service, query: str, limit: int, offset: int
    ) -> Page:
        found: list[Offer] = []
        strong = limit
        if query:
            index = await self.index(catalog)
            every = index.search(
                query, limit=catalog.count(service.name, "tools"), service=service.name
            )
            found = [catalog.offers["tools"][hit.position] for hit in every.hits]
            strong = min(max(every.strong - offset, 0), limit)
        matching = set(map(id, found))
        others: tuple[list[Offer], list[Offer]] = ([], [])
        pace = Pace()  # there may be thousands of them
        for offer in catalog.offers["tools"]:
            if offer.server == service.name and id(offer) not in matching:
                others[hints_of(offer).deprecated].append(offer)
            await pace.step()
        tools = [*found, *others[False], *others[True]]
        total = len(found) if query else len(tools)
        return Page(
            query,
            service,
            tools[offset:],
            strong,
            max(total - offset, 0),
            total,
            offset,
            len(tools),
        )

    def _for_programs(self, offer: Offer) -> Json:
        known = self._fields.get(id(offer))
        if known is None:
            if len(self._fields) >= REMEMBERED:
                self._fields.clear()
            fields: Json = {
                "name": offer.name,
                "display_name": offer.public,
                "description": description_of(offer)[:LONGEST_TEXT],
                "service": offer.server,
                "parameters": parameters_of(offer.definition.get("inputSchema")),
            }
            known = self._fields[id(offer)] = (offer, fields)
        return known[1]
