"""What is made of a catalog and kept until it is another: one for each who see the same, all of one
whole catalog."""

from typing import Generic, TypeVar

from mcpx.catalog.catalog import Catalog

MOST = 32
"""That are kept; the oldest goes."""

Made = TypeVar("Made")


class Editions(Generic[Made]):
    def __init__(self) -> None:
        self._kept: dict[int, tuple[Catalog, object, Made]] = {}
        """By the identity of the catalog, which is held."""

    def of(self, catalog: Catalog, edition: object = None) -> Made | None:
        kept = self._kept.get(id(catalog))
        return kept[2] if kept is not None and kept[1] == edition else None

    def keep(self, catalog: Catalog, made: Made, edition: object = None) -> Made:
        """`edition`: what else it depends on."""
        kept = self._kept
        kept.pop(id(catalog), None)
        if kept and next(iter(kept.values()))[0].whole is not catalog.whole:
            kept.clear()  # what is over is not held
        elif len(kept) >= MOST:
            del kept[next(iter(kept))]
        kept[id(catalog)] = (catalog, edition, made)
        return made
