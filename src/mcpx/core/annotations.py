"""Which arguments of a tool travel as HTTP headers too: read from its schema once for each
catalog."""

from mcpx.catalog.catalog import Catalog
from mcpx.wire import era


class Annotations:
    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._known: dict[str, era.ParamHeaders | None] = {}

    def of(self, catalog: Catalog, tool: str) -> era.ParamHeaders | None:
        """As whoever has this catalog may know."""
        whole = catalog.whole
        if self._catalog is not whole:
            self._catalog, self._known = whole, {}
        offer = whole.find("tools", tool)
        if offer is None:
            return None  # and not kept: there is no end of names that nobody has
        if tool not in self._known:
            self._known[tool] = era.param_headers(offer.definition.get("inputSchema"))
        wanted = self._known[tool]
        return wanted if wanted and catalog.sees(offer) else None
