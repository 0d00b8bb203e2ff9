"""The view of a caller without tools that are for apps only (MCP Apps), for compact surfaces.

Hosts hide such tools from models. In a compact mode the gateway does this, because the host sees no
tools of servers.
"""

from collections.abc import Awaitable, Callable, Sequence

from mcpx.catalog.apps import is_app_only
from mcpx.catalog.catalog import Catalog
from mcpx.model.call import Call, Json
from mcpx.model.errors import NotFound
from mcpx.model.offer import Kind, Offer
from mcpx.surfaces.view import Service, View


class ModelView:
    """Implements `View`."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def catalog(self) -> Catalog:
        return self._view.catalog.for_models

    async def prepare(self) -> Catalog:
        return (await self._view.prepare()).for_models

    def service(self, name: str) -> Service | None:
        return self._view.service(name)

    def services(self) -> Sequence[Service]:
        return self._view.services()

    def starting(self) -> Sequence[str]:
        return self._view.starting()

    async def page(self, kind: Kind, call: Call) -> Json:
        return await self._view.page(kind, call)

    async def find(self, kind: Kind, name: object) -> Offer:
        offer = await self._view.find(kind, name)
        if kind == "tools" and is_app_only(offer.definition):
            raise NotFound("tool", offer.public)
        return offer

    async def pick(self, server: str, tool: str) -> Offer | None:
        offer = await self._view.pick(server, tool)
        return None if offer is None or is_app_only(offer.definition) else offer

    def call(self, offer: Offer, call: Call, params: Json) -> Awaitable[Json]:
        return self._view.call(offer, call, params)

    async def locate(self, uri: str) -> tuple[str, str] | None:
        return await self._view.locate(uri)

    def send(self, server: str, call: Call, params: Json) -> Awaitable[Json]:
        return self._view.send(server, call, params)

    def own(self, name: str, call: Call, work: Callable[[], Awaitable[Json]]) -> Awaitable[Json]:
        return self._view.own(name, call, work)
