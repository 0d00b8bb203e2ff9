"""The gateway as somebody finds it who only looks: nothing is waited for, and nothing counts as
shown."""

from mcpx.catalog.catalog import Catalog
from mcpx.core.view import CallersView


class Onlooker(CallersView):
    """What a surface is handed to say what it would show."""

    __slots__ = ()

    async def prepare(self) -> Catalog:
        await self._gateway.catalogs.ready(self._caller)
        return self.catalog
