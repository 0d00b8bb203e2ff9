"""Every tool of every server under its public name, everything else untouched (SUR-1)."""

from typing import ClassVar

from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import NotFound
from mcpx.surfaces.phrases import NEAREST, exact
from mcpx.surfaces.surface import Surface, Surfaces
from mcpx.surfaces.view import View


class Direct(Surface):
    type: ClassVar[str] = "direct"

    def __init__(self, surfaces: Surfaces) -> None:
        super().__init__(surfaces)
        self._lasting = surfaces.lasting

    async def list_tools(self, view: View, call: Call) -> Json:
        tools, following = await view.page("tools", call)
        return {"tools": tools} if following is None else {"tools": tools, "nextCursor": following}

    def by_name(self, caller: Caller) -> bool:
        return True

    async def call_tool(self, view: View, call: Call) -> Json:
        name = call.params.get("name")
        try:
            offer = await view.find("tools", name)
        except NotFound:
            meant = await self._lasting.meanings.of(view.catalog, str(name))
            names = " or ".join(exact(offer.public) for offer in meant[:NEAREST])
            raise NotFound("tool", str(name), hint=f"Did you mean {names}?" if names else "") from None
        return await view.call(offer, call, {**call.params, "name": offer.name})
