"""The catalog's own search, for whoever is no model: by the ranking that models get in `search`
(FMT-3)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from mcpx.model.call import Caller
from mcpx.model.offer import Offer

if TYPE_CHECKING:
    from mcpx.core.gateway import Gateway
    from mcpx.surfaces.compact import Compact


@dataclass(frozen=True, slots=True)
class Match:
    offer: Offer
    score: float
    strong: bool
    """It says what was asked for."""


async def search(
    gateway: "Gateway", caller: Caller, query: str, limit: int
) -> tuple[list[Match], int]:
    """The best of what this caller may see, and how many match in all. Nothing is waited for."""
    await gateway.catalogs.ready(caller)
    catalog = gateway.catalogs.of(caller).for_models
    surface = cast("Compact", gateway.generation.surfaces.of("search"))
    found = (await surface.finder.index(catalog)).search(query.strip(), limit=limit)
    tools = catalog.offers["tools"]
    hits = enumerate(found.hits)
    return [
        Match(tools[hit.position], round(hit.score, 3), at < found.strong) for at, hit in hits
    ], found.total
