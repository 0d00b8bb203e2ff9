"""The gateway as one caller finds it: what a surface is handed, and what the router needs
besides."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from mcpx.catalog.catalog import Catalog
from mcpx.core.generation import Source
from mcpx.core.relay import OURS
from mcpx.model.call import Call, Caller, Json, as_list, as_object
from mcpx.model.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    NotFound,
    RpcError,
    Unavailable,
)
from mcpx.model.events import ToolsListed
from mcpx.model.offer import Kind, Offer
from mcpx.surfaces.surface import Surface
from mcpx.surfaces.text import NEAREST, exact
from mcpx.surfaces.view import Service, View

if TYPE_CHECKING:
    from mcpx.core.gateway import Gateway
    from mcpx.core.generation import Generation
    from mcpx.surfaces.compact import Compact


class WholeView(View, Protocol):
    """A view that also reaches what no surface needs: subscriptions, and what is told of lists."""

    def listed(self, surface: Surface, listed: Json) -> None: ...

    def subscribe(self, server: str, uri: str, call: Call) -> Awaitable[Json]: ...

    def unsubscribe(self, server: str, uri: str, call: Call) -> Awaitable[Json]: ...


def route(surface: Surface, view: WholeView, call: Call) -> Awaitable[Json]:
    """Not a coroutine of its own, as little as the rows below that only hand on: each would cost
    every call."""
    row = ROUTES.get(call.method)
    if row is None:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {call.method}")
    return row(surface, view, call)


async def _list_tools(surface: Surface, view: WholeView, call: Call) -> Json:
    listed = await surface.list_tools(view, call)
    view.listed(surface, listed)
    return listed


def _call_tool(surface: Surface, view: WholeView, call: Call) -> Awaitable[Json]:
    return surface.call_tool(view, call)


def _lists(kind: Kind) -> "Row":
    def row(surface: Surface, view: WholeView, call: Call) -> Awaitable[Json]:
        return view.page(kind, call)

    return row


async def _get_prompt(surface: Surface, view: WholeView, call: Call) -> Json:
    offer = await view.find("prompts", call.params.get("name"))
    return await view.call(offer, call, {**call.params, "name": offer.name})


async def _read_resource(surface: Surface, view: WholeView, call: Call) -> Json:
    server, uri = await _located(view, call)
    return await view.send(server, call, {**call.params, "uri": uri})


async def _subscribe(surface: Surface, view: WholeView, call: Call) -> Json:
    server, uri = await _located(view, call)
    return await view.subscribe(server, uri, call)


async def _unsubscribe(surface: Surface, view: WholeView, call: Call) -> Json:
    server, uri = await _located(view, call)
    return await view.unsubscribe(server, uri, call)


async def _located(view: WholeView, call: Call) -> tuple[str, str]:
    uri = call.params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "params.uri must be a string")
    found = await view.locate(uri)
    if found is None:
        raise NotFound(
            "resource", uri, INVALID_PARAMS if call.caller.modern else RESOURCE_NOT_FOUND
        )
    return found


async def _complete(surface: Surface, view: WholeView, call: Call) -> Json:
    ref = as_object(call.params.get("ref"))
    if ref.get("type") == "ref/prompt":
        offer: Offer = await view.find("prompts", ref.get("name"))
        return await view.call(offer, call, {**call.params, "ref": {**ref, "name": offer.name}})
    if ref.get("type") == "ref/resource" and isinstance(uri := ref.get("uri"), str):
        try:
            offer = await view.find("templates", uri)
            return await view.call(offer, call, {**call.params, "ref": {**ref, "uri": offer.name}})
        except NotFound:
            found = await view.locate(uri)
            if found is None:
                raise
            return await view.send(found[0], call, {**call.params, "ref": {**ref, "uri": found[1]}})
    raise RpcError(INVALID_PARAMS, "params.ref must be a ref/prompt or a ref/resource")


Row = Callable[[Surface, WholeView, Call], Awaitable[Json]]

ROUTES: dict[str, Row] = {
    "tools/list": _list_tools,
    "tools/call": _call_tool,
    "prompts/list": _lists("prompts"),
    "prompts/get": _get_prompt,
    "resources/list": _lists("resources"),
    "resources/templates/list": _lists("templates"),
    "resources/read": _read_resource,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "completion/complete": _complete,
}


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


LIST_KEYS: dict[Kind, str] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resourceTemplates",
}
"""The key of the definitions in the result of each list method."""
NOUNS: dict[Kind, str] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "template",
}


class CallersView:
    """Implements `surfaces.view.View` and `WholeView`."""

    __slots__ = ("_at", "_caller", "_found", "_gateway", "_generation")

    def __init__(self, gateway: "Gateway", generation: "Generation", caller: Caller) -> None:
        self._gateway = gateway
        self._generation = generation
        """The one the call began in."""
        self._caller = caller
        self._at = -1
        self._found: Catalog | None = None
        """What the catalog was when there had been so many changes."""

    @property
    def catalog(self) -> Catalog:
        catalogs, found = self._gateway.catalogs, self._found
        if found is None or self._at != catalogs.changes:
            found = self._found = catalogs.of(self._caller)
            self._at = catalogs.changes
        return found

    async def prepare(self) -> Catalog:
        await self._gateway.access.prepare(self._caller)
        catalog = self.catalog
        await self._gateway.access.show(self._caller, catalog)
        return catalog

    def service(self, name: str) -> Service | None:
        return (
            self._gateway.access.service(name)
            if self._gateway.access.knows(self._caller, name)
            else None
        )

    def services(self) -> list[Service]:
        return [
            found
            for its in self._gateway.generation.sources
            if (found := self.service(its.name)) is not None
        ]

    def starting(self) -> list[str]:
        return self._gateway.starting.unknown(self._caller)

    async def page(self, kind: Kind, call: Call) -> Json:
        catalog = await self.prepare()
        found, following = catalog.page(kind, call.params.get("cursor"), call.params.get("limit"))
        listed: Json = {LIST_KEYS[kind]: found}
        if following is not None:
            listed["nextCursor"] = following
        if self._caller.modern:
            listed.update(self._gateway.access.freshness(self._caller, kind).to_json())
        return listed

    async def find(self, kind: Kind, name: object) -> Offer:
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, f"the name of the {NOUNS[kind]} must be a string")
        offer = self.catalog.find(kind, name)
        if offer is None:
            async for catalog in self._later(name=name):
                if (offer := catalog.find(kind, name)) is not None:
                    break
            else:
                raise NotFound(
                    NOUNS[kind], name, hint=await self._meant(name) if kind == "tools" else ""
                )
        return offer

    async def _meant(self, name: str) -> str:
        """The public names that a name in the form of another place may stand for (SUR-9)."""
        offers = await self._generation.surfaces.lasting.meanings.of(self.catalog, name)
        return (
            f"Did you mean {' or '.join(exact(offer.public) for offer in offers[:NEAREST])}?"
            if offers
            else ""
        )

    async def pick(self, server: str, tool: str) -> Offer | None:
        offer = self.catalog.native("tools", server, tool)
        if (
            offer is None
            and server in self._gateway.generation.upstreams
            and self.service(server) is not None
        ):
            async for catalog in self._later(server):
                if (offer := catalog.native("tools", server, tool)) is not None:
                    break
        return offer

    async def locate(self, uri: str) -> tuple[str, str] | None:
        found = self.catalog.resolve_uri(uri)
        if found is None:
            async for catalog in self._later():
                if (found := catalog.resolve_uri(uri)) is not None:
                    break
        return found

    async def _later(self, server: str | None = None, name: str = "") -> AsyncIterator[Catalog]:
        """The catalog as it grows: with what is offered to callers like this one, and while servers
        are starting.

        A server that is meant and not known is waited for, and tried if it is down (LIF-4)."""
        problem: Unavailable | None = None
        if await self._gateway.catalogs.ready(self._caller):
            yield self.catalog
        for stranger in self._gateway.access.strangers(self._caller, server, name):
            try:
                await stranger.introduced()
            except Unavailable as error:
                problem = error  # to be told only if nobody else has what is wanted
            else:
                yield await self._whole()
        async for _ in self._gateway.starting.as_they_settle(self._caller, server):
            yield await self._whole()
        if problem is not None:
            raise problem

    async def _whole(self) -> Catalog:
        """With all that is offered by now: a large one takes a while."""
        await self._gateway.catalogs.ready(self._caller)
        return self.catalog

    def call(self, offer: Offer, call: Call, params: Json) -> Awaitable[Json]:
        if self._generation is not self._gateway.generation and not self.catalog.sees(offer):
            # Not any more: it was found before a reload.
            raise NotFound(NOUNS[offer.kind], offer.public)
        hints = as_object(offer.definition.get("annotations"))
        harmless = offer.kind != "tools" or bool(
            hints.get("readOnlyHint") or hints.get("idempotentHint")
        )
        source = self._gateway.source(self._generation, offer.server)
        ttl = source.cache_ttl_of(offer.name) if offer.kind == "tools" else None
        if (
            ttl is not None
            and hints.get("readOnlyHint") is True
            and self._gateway.is_current(source)
        ):
            answers = self._gateway.provisions.answers
            return self._gateway.relay(
                offer.server,
                offer.name,
                call,
                params,
                lambda: answers.of(self._of_now(source, offer), offer.name, ttl, call, params),
                offer,
            )
        return self._gateway.relay(
            offer.server,
            offer.name,
            call,
            params,
            lambda: source.call(call, params, repeatable=harmless),
            offer,
        )

    def _of_now(self, source: Source, offer: Offer) -> Source:
        """Whose answer may be given again to a call that may have waited: not that of what is held
        back by now. What is really called is looked at by its server's own upstream, at the last
        moment."""
        kind = offer.kind
        if (
            source.pinned
            and kind in ("tools", "prompts")
            and self.catalog.native(kind, source.name, offer.name) is None
        ):
            raise NotFound(NOUNS[kind], offer.public)
        return source

    def send(self, server: str, call: Call, params: Json) -> Awaitable[Json]:
        uri = params.get("uri", as_object(params.get("ref")).get("uri"))
        if not self.catalog.may_read(server, str(uri)):
            raise _unknown_resource(str(uri), call)
        source = self._gateway.source(self._generation, server)
        name = str(params.get("uri", ""))
        return self._gateway.relay(
            server, name, call, params, lambda: source.call(call, params, repeatable=True)
        )

    def own(self, name: str, call: Call, work: Callable[[], Awaitable[Json]]) -> Awaitable[Json]:
        return self._gateway.relay(OURS, name, call, call.params, work)

    def listed(self, surface: Surface, listed: Json) -> None:
        """This caller was shown these tools."""
        if self._gateway.bus.heard(ToolsListed):
            mode, catalog = self._caller.mode or self._generation.surfaces.default, self.catalog
            whole = surface.by_name(self._caller)
            self._gateway.bus.publish(
                ToolsListed(
                    mode,
                    as_list(listed.get("tools")),
                    catalog,
                    catalog.offers["tools"],
                    whole,
                    self._caller,
                    surface.shown_as(self._caller)[0],
                )
            )

    def subscribe(self, server: str, uri: str, call: Call) -> Awaitable[Json]:
        source = self._gateway.source(self._generation, server)
        return self._gateway.relay(
            server, uri, call, call.params, lambda: source.subscribe(self._caller, uri, call.params)
        )

    def unsubscribe(self, server: str, uri: str, call: Call) -> Awaitable[Json]:
        source = self._gateway.source(self._generation, server)
        return self._gateway.relay(
            server,
            uri,
            call,
            call.params,
            lambda: source.unsubscribe(self._caller, uri, call.params),
        )


def _unknown_resource(uri: str, call: Call) -> NotFound:
    return NotFound("resource", uri, INVALID_PARAMS if call.caller.modern else RESOURCE_NOT_FOUND)


class Onlooker(CallersView):
    """What a surface is handed to say what it would show."""

    __slots__ = ()

    async def prepare(self) -> Catalog:
        await self._gateway.catalogs.ready(self._caller)
        return self.catalog
