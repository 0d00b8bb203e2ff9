"""How many tokens lists of tools take: of the definitions that were shown, and of all there are.

The estimator is that of menus (`formats.tokens`). All tools of a catalog are counted once, in
slices, for as long as the catalog is there.
"""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from mcpx.base.aio import Tasks
from mcpx.formats.tokens import estimate
from mcpx.model.call import Json
from mcpx.model.offer import Offer
from mcpx.model.slices import Work, in_slices
from mcpx.wire import codec

Then = Callable[[int], None]


def tokens_of(definition: Json) -> int:
    """Of one tool in a list."""
    try:
        return estimate(codec.dump(definition).decode())
    except codec.Unencodable:
        return 0  # nor can it be listed


class Weighing:
    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._waiting: dict[object, list[Then]] = {}
        """Who wants to know of catalogs that are being counted."""

    def weigh(self, catalog: object, offers: Sequence[Offer], then: Then) -> None:
        """`then` is told the tokens of all these tools of a catalog, at once if they are known."""
        known = self._known.get(catalog)
        if known is not None:
            then(known)
        elif catalog in self._waiting:
            self._waiting[catalog].append(then)
        else:
            self._waiting[catalog] = [then]
            self._tasks.start(self._count(catalog, offers))

    async def _count(self, catalog: object, offers: Sequence[Offer]) -> None:
        total = self._known[catalog] = await in_slices(_sum(offers))
        for then in self._waiting.pop(catalog):
            then(total)


def _sum(offers: Sequence[Offer]) -> Work[int]:
    total = 0
    for at, offer in enumerate(offers):
        total += tokens_of(offer.definition)
        if at % 16 == 15:
            yield
    return total
