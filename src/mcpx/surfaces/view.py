"""What a surface is handed: the catalog as one caller may see it, and the guarded way to call.

A surface never sees servers, links or policy, so a new surface cannot forget any of them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from mcpx.catalog.apps import is_app_only
from mcpx.catalog.catalog import Catalog
from mcpx.model.call import Call, Json
from mcpx.model.errors import NotFound
from mcpx.model.offer import Kind, Offer


@dataclass(frozen=True, slots=True)
class Service:
    """One server as a client is told of it."""

    name: str
    description: str
    """The config's, else the first sentence of its instructions."""
    instructions: str
    status: str
    last_error: str | None = None

    @property
    def reason(self) -> str:
        """Its last error, without the name that it begins with."""
        return (self.last_error or "").removeprefix(f"{self.name}: ")

    @property
    def trouble(self) -> str | None:
        """Why it is of no use now, in a few words; `reason` has more. One that failed and is being
        tried again is down until that has gone well."""
        if self.status == "connecting" and self.last_error is not None:
            return "is down"
        return {"disconnected": "is down", "needs_auth": "needs a sign-in"}.get(self.status)


class View(Protocol):
    async def prepare(self) -> Catalog:
        """The catalog to show, after a moment for servers that are starting; its names stay from
        here on."""
        ...

    @property
    def catalog(self) -> Catalog:
        """All this caller may see at this moment."""
        ...

    def service(self, name: str) -> Service | None:
        """One enabled server."""
        ...

    def services(self) -> Sequence[Service]:
        """Every enabled server, in the order of the config."""
        ...

    def starting(self) -> Sequence[str]:
        """Servers of which nothing is known yet because they are still starting."""
        ...

    async def page(self, kind: Kind, call: Call) -> Json:
        """The result of a list method: a page of definitions, the cursor of the next, and hints for
        caches."""
        ...

    async def find(self, kind: Kind, name: object) -> Offer:
        """The offer of that public name. Raises `NotFound`, also for one this caller may not
        see."""
        ...

    async def pick(self, server: str, tool: str) -> Offer | None:
        """The tool of one server, by the server's own name for it; waits while that server is
        starting, and tries one that never came up."""
        ...

    def call(self, offer: Offer, call: Call, params: Json) -> Awaitable[Json]:
        """Send `params`, which name the offer as its own server does, to that server."""
        ...

    async def locate(self, uri: str) -> tuple[str, str] | None:
        """Whose resource a URI is: the server, and the URI in the server's own form."""
        ...

    def send(self, server: str, call: Call, params: Json) -> Awaitable[Json]:
        """Send a call that reads to a server."""
        ...

    def own(self, name: str, call: Call, work: Callable[[], Awaitable[Json]]) -> Awaitable[Json]:
        """Answer with a tool of the gateway's own, policed and recorded like any other."""
        ...


def for_models(view: View) -> View:
    """The view without tools that are for apps only (MCP Apps).

    Hosts hide such tools from models. In a compact mode the gateway does this, because the host
    sees no tools of servers.
    """
    return cast(View, _ModelView(view))


class _ModelView:
    def __init__(self, view: View) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    @property
    def catalog(self) -> Catalog:
        return self._view.catalog.for_models

    async def prepare(self) -> Catalog:
        return (await self._view.prepare()).for_models

    async def find(self, kind: Kind, name: object) -> Offer:
        offer = await self._view.find(kind, name)
        if kind == "tools" and is_app_only(offer.definition):
            raise NotFound("tool", offer.public)
        return offer

    async def pick(self, server: str, tool: str) -> Offer | None:
        offer = await self._view.pick(server, tool)
        if offer is not None and is_app_only(offer.definition):
            return None
        return offer
