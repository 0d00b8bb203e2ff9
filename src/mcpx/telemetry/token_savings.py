"""Estimated tokens that compact modes saved, for the admin API and metrics.

Two things are counted: tool lists that clients received, compared with a list of all definitions,
and the text of results before and after a compact mode shortened it. Tokens are estimated without a
tokenizer, as for menus (`formats.tokens`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from mcpx.base.aio import Tasks, Work, in_slices
from mcpx.formats.tokens import estimate
from mcpx.model.call import Json, is_array, is_object
from mcpx.model.events import Bus, ToolsListed
from mcpx.model.offer import Offer
from mcpx.wire import codec

MAX_CLIENTS: Final = 400
OTHERS: Final = "others"
MAX_NAME_CHARACTERS: Final = 100
MAX_BLOCKS: Final = 200


def tokens_of(definition: Json) -> int:
    """Estimate the tokens of one tool definition."""
    try:
        return estimate(codec.dump(definition).decode())
    except codec.Unencodable:
        return 0  # The tool cannot be listed either.


class CatalogTokens:
    """Counts the tokens of all tools of a catalog once, in slices, for the catalog's lifetime."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._callbacks: dict[object, list[Callable[[int], None]]] = {}

    def count(
        self, catalog: object, offers: Sequence[Offer], callback: Callable[[int], None]
    ) -> None:
        """Call `callback` with the tokens, at once if they are known."""
        known = self._known.get(catalog)
        if known is not None:
            callback(known)
        elif catalog in self._callbacks:
            self._callbacks[catalog].append(callback)
        else:
            self._callbacks[catalog] = [callback]
            self._tasks.start(self._count(catalog, offers))

    async def _count(self, catalog: object, offers: Sequence[Offer]) -> None:
        total = await in_slices(_sum(offers))
        self._known[catalog] = total
        for callback in self._callbacks.pop(catalog):
            callback(total)


def _sum(offers: Sequence[Offer]) -> Work[int]:
    total = 0
    for index, offer in enumerate(offers):
        total += tokens_of(offer.definition)
        if index % 16 == 15:
            yield
    return total


@dataclass(slots=True)
class Lists:
    """Tool lists that a client received in a mode."""

    client: str
    mode: str
    lists: int = 0
    shown: int = 0
    direct: int = 0


class TokenSavings:
    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self.since = clock()
        self._tasks = Tasks("token savings")
        self._catalog_tokens = CatalogTokens(self._tasks)
        self._lists: dict[tuple[str, str], Lists] = {}
        self.raw = 0
        """Tokens of results as servers sent them."""
        self.given = 0
        """Tokens of the same results as clients received them."""
        bus.subscribe(self._listed, ToolsListed)

    def end(self) -> None:
        self._bus.unsubscribe(self._listed)
        self._tasks.cancel()

    def lists(self) -> list[Lists]:
        return list(self._lists.values())

    def _listed(self, event: ToolsListed) -> None:
        counts = self._counts(event)
        counts.lists += 1
        if not event.whole:
            shown = sum(map(tokens_of, event.tools))

            def add_menu(direct: int) -> None:
                counts.shown += shown
                counts.direct += direct

            self._catalog_tokens.count(event.catalog, event.offers, add_menu)
        elif event.offers:
            # All tools, or one page of them. The page's share of the tools is accurate enough.
            share = min(1.0, len(event.tools) / len(event.offers))

            def add_list(total: int) -> None:
                counts.shown += round(share * total)
                counts.direct += round(share * total)

            self._catalog_tokens.count(event.catalog, event.offers, add_list)

    def _counts(self, event: ToolsListed) -> Lists:
        client = event.caller.client.get("name")
        if not isinstance(client, str):
            client = ""
        key = (client[:MAX_NAME_CHARACTERS], event.shown)
        if key not in self._lists and len(self._lists) >= MAX_CLIENTS:
            key = (OTHERS, event.shown)
        return self._lists.setdefault(key, Lists(*key))

    def shaped(self, raw: Json, shown: Json) -> None:
        """Count a result that a compact mode returned."""
        tokens = text_tokens(raw)
        self.raw += tokens
        self.given += tokens if shown is raw else text_tokens(shown)


def text_tokens(result: Json) -> int:
    """Estimate the tokens of the text in a result."""
    content: Any = result.get("content")
    if not is_array(content):
        return 0
    total = 0
    for block in content[:MAX_BLOCKS]:
        text = block.get("text") if is_object(block) else None
        if isinstance(text, str):
            total += estimate(text)
    return total
