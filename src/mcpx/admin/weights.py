"""What definitions and menus cost, in tokens: estimated once for each catalog, in slices."""

from collections.abc import Sequence
from typing import cast

from mcpx.catalog.catalog import Catalog
from mcpx.core.gateway import Gateway
from mcpx.core.generation import Generation
from mcpx.core.onlooking import Onlooker
from mcpx.formats.tokens import estimate
from mcpx.model.call import ADMIN, Call, Caller, Json, as_list
from mcpx.model.offer import Offer
from mcpx.model.slices import Work, in_slices
from mcpx.surfaces.compact import Compact
from mcpx.wire import codec

COMPACT = ("inspect", "describe", "search")
OWNER = Caller(ADMIN, client={"name": "mcpx admin"})
"""Who looks."""


def tokens_of(definition: object) -> int:
    """Of one definition in a list."""
    try:
        return estimate(codec.dump(definition).decode())
    except codec.Unencodable:
        return 0  # nor can it be listed


class Weights:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._catalog: Catalog | None = None
        self._costs: dict[int, int] = {}
        """By the identity of the offer, which the catalog holds."""
        self._total = 0
        self._menus: tuple[Catalog, Generation, dict[str, tuple[int, int]]] | None = None

    async def costs(self) -> tuple[Catalog, dict[int, int], int]:
        """The catalog of everything, what each of its tools costs, and all of them."""
        await self._gateway.catalogs.ready()
        catalog = self._gateway.catalog
        if catalog is not self._catalog:
            costs = await in_slices(_weighed(catalog.offers["tools"]))
            self._catalog, self._costs, self._total = catalog, costs, sum(costs.values())
            return catalog, costs, self._total
        return catalog, self._costs, self._total

    async def menus(self) -> dict[str, tuple[int, int]]:
        """Of each mode: how many tools its list has, and what they cost."""
        catalog, _, total = await self.costs()
        generation = self._gateway.generation
        if self._menus is not None and self._menus[0] is catalog and self._menus[1] is generation:
            return self._menus[2]
        menus = {"direct": (len(catalog.offers["tools"]), total)}
        view, call = Onlooker(self._gateway, generation, OWNER), Call("tools/list", {}, OWNER)
        for mode in COMPACT:
            listed = await generation.surfaces.of(mode).list_tools(view, call)
            tools: list[Json] = as_list(listed.get("tools"))
            menus[mode] = (len(tools), sum(map(tokens_of, tools)))
        self._menus = (catalog, generation, menus)
        return menus

    def signature(self, offer: Offer) -> str:
        """As compact modes show it."""
        return cast(Compact, self._gateway.generation.surfaces.of("search")).signature(offer)


def _weighed(offers: Sequence[Offer]) -> Work[dict[int, int]]:
    costs: dict[int, int] = {}
    for at, offer in enumerate(offers):
        costs[id(offer)] = tokens_of(offer.definition)
        if at % 16 == 15:
            yield
    return costs
