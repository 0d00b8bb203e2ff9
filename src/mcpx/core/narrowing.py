"""The catalogs of those who do not see everything: narrowed once for all who see the same, and again when it changes.

A small one is narrowed when it is asked for; a large one in slices, and until that is done its callers find the one
before, or nothing: never what they must not see. What is kept is bounded; the oldest goes.
"""

import asyncio
from collections.abc import Callable

from mcpx.catalog.catalog import Catalog
from mcpx.catalog.narrowed import Blank, Narrowed
from mcpx.model.slices import at_once, in_slices
from mcpx.policy.sight import Sight
from mcpx.wire.tasks import Tasks

AT_ONCE = 3_000
"""Offers times patterns that are looked at while everybody waits: ten milliseconds."""
KEPT_OFFERS = 2_000_000
"""Offers in all narrowed catalogs that are kept, some thirty bytes each."""


class _Entry:
    def __init__(self, whole: Catalog, sight: Sight) -> None:
        self.whole = whole
        self.sight = sight
        self.catalog: Narrowed | None = None
        self.building: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        return 0 if self.catalog is None else sum(map(len, self.catalog.offers.values()))


class Narrowing:
    def __init__(self, tasks: Tasks, on_done: Callable[[], None]) -> None:
        """`on_done`: somebody finds another one from now on."""
        self._tasks = tasks
        self._on_done = on_done
        self._entries: dict[tuple[int, int], _Entry] = {}
        """By the identities of whole catalog and sight, both of which the entry holds."""
        self._latest: dict[int, Narrowed] = {}
        """By the identity of the sight, which it holds."""
        self._offers = 0

    def of(self, whole: Catalog, sight: Sight) -> Catalog:
        entry = self._entries.get((id(whole), id(sight))) or self._begin(whole, sight)
        return entry.catalog or self._latest.get(id(sight)) or Blank.of(whole, sight)

    def building(self, whole: Catalog, sight: Sight) -> "asyncio.Task[None] | None":
        """What to wait for, if it is not done."""
        return (self._entries.get((id(whole), id(sight))) or self._begin(whole, sight)).building

    def unseen(self, whole: Catalog, sight: Sight) -> "asyncio.Task[None] | None":
        """What to wait for, if there is nothing to show before it is done."""
        building = self.building(whole, sight)
        return None if building is None or id(sight) in self._latest else building

    def _begin(self, whole: Catalog, sight: Sight) -> _Entry:
        entry = self._entries[id(whole), id(sight)] = _Entry(whole, sight)
        size = sum(map(len, whole.offers.values()))
        if size * (1 + sight.weight) <= AT_ONCE:
            self._done(entry, at_once(Narrowed.narrowing(whole, sight)))
        else:
            entry.building = self._tasks.start(self._build(entry))
        return entry

    async def _build(self, entry: _Entry) -> None:
        try:
            catalog = await in_slices(Narrowed.narrowing(entry.whole, entry.sight))
            if self._entries.get((id(entry.whole), id(entry.sight))) is entry:  # else it is over already
                self._done(entry, catalog)
        finally:
            entry.building = None

    def _done(self, entry: _Entry, catalog: Narrowed) -> None:
        entry.catalog = self._latest[id(entry.sight)] = catalog
        self._on_done()
        self._offers += entry.size
        for key, other in list(self._entries.items()) if self._offers > KEPT_OFFERS else ():
            if self._offers <= KEPT_OFFERS:
                break
            if other is not entry and other.catalog is not None:
                self._drop(key)
                self._latest.pop(key[1], None)

    def _drop(self, key: tuple[int, int]) -> None:
        self._offers -= self._entries.pop(key).size

    def keep(self, *wholes: Catalog) -> None:
        """What others were narrowed to is over."""
        current = {id(whole) for whole in wholes}
        for key in [key for key in self._entries if key[0] not in current]:
            self._drop(key)

    def clear(self) -> None:
        """Everybody sees with other eyes."""
        self._entries.clear()
        self._latest.clear()
        self._offers = 0
