"""Every tool of every server under its public name, everything else untouched (SUR-1)."""

from typing import ClassVar

from mcpx.model.call import Call, Caller, Json
from mcpx.surfaces.surface import Surface
from mcpx.surfaces.view import View


class Direct(Surface):
    type: ClassVar[str] = "direct"

    async def list_tools(self, view: View, call: Call) -> Json:
        return await view.page("tools", call)

    def by_name(self, caller: Caller) -> bool:
        return True

    async def call_tool(self, view: View, call: Call) -> Json:
        offer = await view.find("tools", call.params.get("name"))
        return await view.call(offer, call, {**call.params, "name": offer.name})
