"""The catalogs of those who do not see everything: narrowed once for all who see the same, and
again when it changes.

A small one is narrowed when it is asked for; a large one in slices, and until that is done its
callers find the one before, or nothing: never what they must not see, nor what only another client
is offered who sees with the same eyes. What is kept is bounded; the oldest goes.
"""

import asyncio
from collections.abc import Callable

from mcpx.base.aio import Tasks, at_once, in_slices
from mcpx.catalog.catalog import Catalog
from mcpx.catalog.narrowed import Blank, Narrowed
from mcpx.policy.sight import Sight

AT_ONCE = 3_000
"""Offers times patterns that are looked at while everybody waits: ten milliseconds."""
KEPT_OFFERS = 2_000_000
"""Offers in all narrowed catalogs that are kept, some thirty bytes each."""


class _Entry:
    def __init__(self, whole: Catalog, sight: Sight, number: int) -> None:
        self.whole = whole
        self.sight = sight
        self.number = number
        """Which of all it is: a later one is made of what was offered later."""
        self.catalog: Narrowed | None = None
        self.building: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        return 0 if self.catalog is None else sum(map(len, self.catalog.offers.values()))


class Narrowing:
    def __init__(
        self, tasks: Tasks, on_done: Callable[[], None], shared: Callable[[], Catalog | None]
    ) -> None:
        """`on_done`: somebody finds another one from now on; `shared`: what everybody is
        offered."""
        self._tasks = tasks
        self._on_done = on_done
        self._shared = shared
        self._entries: dict[tuple[int, int], _Entry] = {}
        """By the identities of whole catalog and sight, both of which the entry holds."""
        self._latest: dict[int, _Entry] = {}
        """Of what everybody is offered, what was narrowed last; by the identity of the sight, which
        it holds."""
        self._offers = 0
        self._begun = 0
        self._first = 0
        """The first of those that are made for the eyes of now."""

    def of(self, whole: Catalog, sight: Sight) -> Catalog:
        entry = self._entries.get((id(whole), id(sight))) or self._begin(whole, sight)
        if entry.catalog is None:
            entry = self._latest.get(id(sight), entry)
        return entry.catalog or Blank.of(whole, sight)

    def building(self, whole: Catalog, sight: Sight) -> "asyncio.Task[None] | None":
        """What to wait for, if it is not done."""
        return (self._entries.get((id(whole), id(sight))) or self._begin(whole, sight)).building

    def unseen(self, whole: Catalog, sight: Sight) -> "asyncio.Task[None] | None":
        """What to wait for, if there is nothing to show before it is done."""
        building = self.building(whole, sight)
        return None if building is None or id(sight) in self._latest else building

    def _begin(self, whole: Catalog, sight: Sight) -> _Entry:
        self._begun += 1
        entry = self._entries[id(whole), id(sight)] = _Entry(whole, sight, self._begun)
        size = sum(map(len, whole.offers.values()))
        if size * (1 + sight.weight) <= AT_ONCE:
            self._done(entry, at_once(Narrowed.narrowing(whole, sight)), whole is self._shared())
        else:
            entry.building = self._tasks.start(self._build(entry, whole is self._shared()))
        return entry

    async def _build(self, entry: _Entry, for_all: bool) -> None:
        try:
            catalog = await in_slices(Narrowed.narrowing(entry.whole, entry.sight))
            if self._entries.get((id(entry.whole), id(entry.sight))) is entry:
                self._done(entry, catalog, for_all)
            elif for_all and entry.number >= self._first:
                # It is over already, and still the latest there is: where changes come faster than
                # they are narrowed nobody would ever find anything.
                entry.catalog = catalog
                self._is_latest(entry)
                self._on_done()
        finally:
            entry.building = None

    def _is_latest(self, entry: _Entry) -> None:
        before = self._latest.get(id(entry.sight))
        if before is None or before.number < entry.number:
            self._latest[id(entry.sight)] = entry

    def _done(self, entry: _Entry, catalog: Narrowed, for_all: bool) -> None:
        entry.catalog = catalog
        if for_all:
            self._is_latest(entry)
        self._on_done()
        self._offers += entry.size
        for key, other in list(self._entries.items()) if self._offers > KEPT_OFFERS else ():
            if self._offers <= KEPT_OFFERS:
                break
            if other is not entry and other.catalog is not None:
                self._drop(key)
                if self._latest.get(key[1]) is other:
                    del self._latest[key[1]]

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
        self._first = self._begun + 1
