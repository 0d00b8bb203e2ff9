"""Tools as the admin API shows them, their cost in tokens, and how models find them.

Lists are built as JSON, in slices, because a catalog may have thousands of tools. The last complete
list is kept until its catalog changes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, plain
from mcpx.admin.shapes.watching import Hit, SearchResult, ToolDetail
from mcpx.base.aio import Work, in_slices
from mcpx.catalog.catalog import Catalog
from mcpx.catalog.entries import MOST_PARAMETERS, description_of
from mcpx.core.gateway import Gateway
from mcpx.core.generation import Generation
from mcpx.core.missing import pinned_servers, why_missing
from mcpx.core.view import Onlooker
from mcpx.formats.tokens import estimate
from mcpx.model.call import ADMIN, Call, Caller, Json, as_list, as_object
from mcpx.model.offer import Offer
from mcpx.surfaces.compact import Compact
from mcpx.upstreams.upstream import Upstream
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


if TYPE_CHECKING:
    from mcpx.policy.approvals import Approval
    from mcpx.policy.pins.pin_file import Held

LONGEST = 300
"""Characters of a description in a list."""
TOGETHER = 16
"""Rows after which others may have their turn."""


class _Listed(NamedTuple):
    rows: list[bytes]
    """JSON, a few of them together."""
    total: int
    tokens: int

    def told(self, held: "_Listed | None" = None) -> bytes:
        """In the shape of `Tools`; what is held costs no client anything."""
        rows, total = (
            (self.rows, self.total)
            if held is None
            else (self.rows + held.rows, self.total + held.total)
        )
        return b'{"tools":[%b],"total":%d,"tokens":%d}' % (b",".join(rows), total, self.tokens)


class Toolbox:
    def __init__(self, desk: Desk, weights: Weights) -> None:
        self._desk = desk
        self._gateway = desk.gateway
        self._weights = weights
        self._kept: tuple[Catalog, _Listed] | None = None

    # Lists
    # ----------------------------------------------------------------------------------------------

    async def tools(self, profile: str | None, server: str | None) -> bytes:
        """JSON in the shape of `Tools`."""
        catalog = await self._catalog(profile)
        if server is None and self._kept is not None and self._kept[0] is catalog:
            listed = self._kept[1]
        else:
            offers = catalog.offers["tools"]
            listed = await self._listed(
                offer for offer in offers if server is None or offer.server == server
            )
            if server is None:
                self._kept = catalog, listed
        held = None if profile is not None else await self._listed(self._held(server), held=True)
        return listed.told(held)

    async def of_server(self, upstream: Upstream) -> bytes:
        """All that it offers, in the shape of `Tools`; what is held has its own name only."""
        await self._gateway.catalogs.ready()
        catalog, name = self._gateway.catalog, upstream.name
        offers: list[tuple[Offer, bool]] = []
        for definition in upstream.definitions["tools"]:
            own = str(definition.get("name"))
            offer = catalog.native("tools", name, own)
            offers.append((offer or Offer("tools", name, own, own, definition), offer is None))
        _, costs, _ = await self._weights.costs()
        return (await in_slices(_listing(offers, costs))).told()

    async def _listed(self, offers: Iterable[Offer], *, held: bool = False) -> _Listed:
        _, costs, _ = await self._weights.costs()
        return await in_slices(_listing(((offer, held) for offer in offers), costs))

    async def detail(self, name: str, profile: str | None) -> ToolDetail:
        catalog = await self._catalog(profile)
        offer, held = catalog.find("tools", name), False
        if offer is None and profile is None:
            offer, held = next((each for each in self._held() if each.public == name), None), True
        if offer is None:
            hint = "GET /api/tools lists what there is"
            unknown = ApiError(404, None, f"there is no tool {plain(name)[:200]!r}", "name", hint)
            raise missing_error(self._gateway, name, profile, "name") or unknown
        signature = self._weights.signature(offer)
        told = {
            **row_of(offer, tokens_of(offer.definition), held=held),
            "definition": offer.definition,
            "signature": signature,
            "signature_tokens": estimate(signature),
        }
        return ToolDetail(**plain(told))

    def _held(self, server: str | None = None) -> Iterator[Offer]:
        """Under a name that no other has: it has no public one as long as it is held."""
        for name, held in _held_tools(self._gateway):
            if server is None or server == name:
                item = held.item
                yield Offer("tools", name, item.name, f"{name}.{item.name}", item.definition)

    async def _catalog(self, profile: str | None) -> Catalog:
        gateway = self._gateway
        if profile is None:
            await gateway.catalogs.ready()
            return gateway.catalog
        caller = self.caller(profile)
        await gateway.catalogs.ready(caller)
        return gateway.catalogs.of(caller)

    def caller(self, profile: str | None) -> Caller:
        """The owner, looking through a profile."""
        if profile is None:
            return OWNER
        self._desk.check_profile(profile)
        return Caller(OWNER.principal, profile, client=OWNER.client)

    # Finding
    # ----------------------------------------------------------------------------------------------

    async def search(self, query: str, limit: int, profile: str | None) -> SearchResult:
        """By the ranking, and in the words, that models get in `search`."""
        catalog, caller = await self._catalog(profile), self.caller(profile)
        generation = self._gateway.generation
        surface = cast(Compact, generation.surfaces.of("search"))
        catalog = catalog.for_models
        found = (await surface.finder.index(catalog)).search(query, limit=limit)
        tools = catalog.offers["tools"]
        hits = [
            Hit(
                **plain(
                    {
                        "name": offer.public,
                        "server": offer.server,
                        "tool": offer.name,
                        "description": description_of(offer)[:LONGEST],
                    }
                ),
                score=round(hit.score, 3),
            )
            for hit in found.hits
            for offer in (tools[hit.position],)
        ]
        view = Onlooker(self._gateway, generation, caller)
        told = await surface.finder.search(view, query, limit=surface.settings.search_limit)
        text = "\n".join(
            str(as_object(block).get("text", "")) for block in as_list(told.get("content"))
        )
        return SearchResult(
            query=plain(query),
            hits=hits,
            total=found.total,
            model_sees=plain(text),
            model_tokens=estimate(text),
        )


def missing_error(gateway: Gateway, name: str, profile: str | None, path: str) -> ApiError | None:
    """Why a configured tool or server is not offered, and the command that changes it."""
    missing = why_missing(gateway, name, profile, OWNER.principal)
    if missing is None:
        return None
    message, hint = (
        gateway.redactor.redact(plain(text)) for text in (missing.message, missing.hint)
    )
    return ApiError(404, f"tool_{missing.reason}", message, path, hint)


def _listing(offers: Iterable[tuple[Offer, bool]], costs: Mapping[int, int]) -> Work[_Listed]:
    """Of each whether it is held."""
    rows: list[bytes] = []
    some: list[Json] = []
    total = tokens = 0
    for offer, held in offers:
        cost = costs.get(id(offer))
        some.append(row_of(offer, tokens_of(offer.definition) if cost is None else cost, held=held))
        total += 1
        tokens += some[-1]["tokens"]
        if len(some) == TOGETHER:
            rows.append(codec.dump(some)[1:-1])
            some.clear()
            yield
    if some:
        rows.append(codec.dump(some)[1:-1])
    return _Listed(rows, total, tokens)


def row_of(offer: Offer, tokens: int, *, held: bool = False) -> Json:
    definition = offer.definition
    hints, title = as_object(definition.get("annotations")), definition.get("title")
    title = title if isinstance(title, str) else hints.get("title")
    properties = as_object(as_object(definition.get("inputSchema")).get("properties"))
    return {
        "name": offer.public,
        "server": offer.server,
        "tool": offer.name,
        "title": title[:LONGEST] if isinstance(title, str) else None,
        "description": description_of(offer)[:LONGEST],
        "read_only": _hint(hints, "readOnlyHint"),
        "destructive": _hint(hints, "destructiveHint"),
        "tokens": tokens,
        "held": held,
        "parameters": list(properties)[:MOST_PARAMETERS],
    }


def _hint(hints: Json, name: str) -> bool | None:
    value = hints.get(name)
    return value if isinstance(value, bool) else None


# What waits for a person
# --------------------------------------------------------------------------------------------------
# Nothing is built for looking: a gateway without policies and pins has no store of either.


def calls_waiting(gateway: Gateway) -> "list[Approval]":
    if "policy_state" not in vars(gateway.provisions) or "approvals" not in vars(
        gateway.provisions.policy_state
    ):
        return []
    return gateway.provisions.policy_state.approvals.pending()


def _held_tools(gateway: Gateway) -> "Iterator[tuple[str, Held]]":
    for name, its in pinned_servers(gateway).items():
        for held in list(its.kept.held.values()):
            if held.item.kind == "tools":
                yield name, held


def is_quarantined(gateway: Gateway, server: str) -> bool:
    upstream = gateway.generation.upstreams.get(server)
    return upstream is not None and upstream.server.enabled and not upstream.enabled
