"""What a search for tools answers: the best matches with their signatures, the others by name (SUR-4).

The one that every compact surface has: `search` offers it as a tool, the others give it where a model says words
that are no name (SUR-12).
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcpx.catalog.catalog import Catalog
from mcpx.catalog.entries import LONGEST_TEXT, description_of, parameters_of
from mcpx.catalog.search import Index
from mcpx.formats.tokens import estimate
from mcpx.model.call import Json
from mcpx.model.offer import Offer
from mcpx.model.slices import in_slices
from mcpx.surfaces.phrases import cut, one_line, quoted, short, starting
from mcpx.surfaces.view import View

if TYPE_CHECKING:
    from mcpx.surfaces.compact import Compact

SIGNATURES = 380
"""Tokens of a reply that go to the signatures of the best hits; the first one is always told."""
NAMES = 120
"""Tokens that go to the names of the others."""
LONGEST_LINE = 4_000
"""Characters of one signature in a reply."""
REMEMBERED = 1_000
"""Tools whose rendering is kept."""
AT_ONCE = 100
"""Tools that are indexed while everybody waits (some 10 ms); more are indexed in slices, once for all who ask."""


class Finder:
    """Searches for one surface, in its words."""

    def __init__(self, surface: "Compact") -> None:
        self._surface = surface
        self._texts: dict[int, tuple[Offer, str, Json]] = {}
        """What is told of a tool, by the identity of its offer: rendering costs more than finding."""
        self._indexing = asyncio.Lock()

    async def index(self, catalog: Catalog) -> Index:
        if catalog.indexed or len(catalog.offers["tools"]) <= AT_ONCE:
            return catalog.index
        async with self._indexing:
            return await in_slices(catalog.indexing())

    async def search(self, view: View, query: str, *, service: str = "", limit: int = 20, offset: int = 0) -> Json:
        catalog = await view.prepare()
        if service:
            self._surface.service(view, service)
        found = (await self.index(catalog)).search(query, limit=limit, offset=offset, service=service or None)
        offers = [catalog.offers["tools"][hit.position] for hit in found.hits]
        structured: Json = {
            "tools": [self._text(offer)[1] for offer in offers],
            "total": found.total,
            "limit": limit,
        }
        told = self._told(offers, query, found.total, offset)
        return self._surface.reply(f"{told}\n{note}" if (note := starting(view)) else told, structured)

    def _told(self, offers: Sequence[Offer], query: str, total: int, offset: int) -> str:
        if not offers:
            more = "" if total == 0 else f" beyond the {total} there are"
            listed = ", or mcp_list_services" if self._surface.settings.enable_list_services else ""
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
        names = _fitting([self._surface.spelled(offer) for offer in offers[told:]])
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
            line = (
                f"- {cut(self._surface.signature(offer), LONGEST_LINE)} [{offer.server}]{f' {about}' if about else ''}"
            )
            fields: Json = {
                "name": offer.name,
                "display_name": offer.public,
                "description": description_of(offer)[:LONGEST_TEXT],
                "service": offer.server,
                "parameters": parameters_of(offer.definition.get("inputSchema")),
            }
            known = self._texts[id(offer)] = (offer, line, fields)
        return known[1], known[2]


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
