"""What a surface is handed: the catalog as one caller may see it, and the guarded way to call.

A surface never sees servers, links or policy, so a new surface cannot forget any of them.
"""

from typing import Protocol

from mcpx.model.call import Call, Json
from mcpx.model.offer import Kind, Offer


class View(Protocol):
    async def page(self, kind: Kind, call: Call) -> tuple[list[Json], str | None]:
        """The page of definitions the call asks for, and the cursor of the next."""
        ...

    async def find(self, kind: Kind, name: object) -> Offer:
        """The offer of that public name. Raises `NotFound`, also for one this caller may not see."""
        ...

    async def call(self, offer: Offer, call: Call, params: Json) -> Json:
        """Send `params`, which name the offer as its own server does, to that server."""
        ...
