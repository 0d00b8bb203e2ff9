"""What compact modes spare, as it happened: lists that clients asked for, and results that were
made short.

Counted are lists that were really served, by client and by the mode each came to, against the
tokens of every definition in the same list; and the text of results as servers gave it against the
text that was shown. Both are estimates without a tokenizer. What nobody asked for is not counted,
and nothing is multiplied.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcpx.base.aio import Tasks
from mcpx.formats.tokens import estimate
from mcpx.model.call import Json, is_array, is_object
from mcpx.model.events import Bus, ToolsListed
from mcpx.telemetry.statistics import LONGEST
from mcpx.telemetry.weighing import Weighing, tokens_of

MOST = 400
"""Clients in a mode that are told apart; what comes beyond is counted as `others`."""
OTHERS = "others"
MOST_BLOCKS = 200
"""Blocks of a result whose text is counted."""


@dataclass(slots=True)
class Lists:
    """Lists of tools that a client was shown in a mode."""

    client: str
    mode: str
    lists: int = 0
    shown: int = 0
    direct: int = 0


class SavingsCount:
    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self.since = clock()
        self._tasks = Tasks("savings")
        self._weighing = Weighing(self._tasks)
        self._lists: dict[tuple[str, str], Lists] = {}
        self.raw = 0
        self.given = 0
        """Tokens of results, as they came and as they were shown."""
        bus.subscribe(self._listed, ToolsListed)

    def end(self) -> None:
        self._bus.unsubscribe(self._listed)
        self._tasks.cancel()

    def lists(self) -> list[Lists]:
        return list(self._lists.values())

    def _listed(self, event: ToolsListed) -> None:
        its = self._of(event)
        its.lists += 1
        if not event.whole:
            shown = sum(map(tokens_of, event.tools))
            self._weighing.weigh(
                event.catalog, event.offers, lambda direct: _add(its, shown, direct)
            )
        elif event.offers:  # every tool, or a page of them: the share of its page is near enough
            share = min(1.0, len(event.tools) / len(event.offers))
            self._weighing.weigh(
                event.catalog, event.offers, lambda all: _add(its, round(share * all))
            )

    def _of(self, event: ToolsListed) -> Lists:
        name = event.caller.client.get("name")
        client = name[:LONGEST] if isinstance(name, str) else ""
        key = (client, event.shown)
        if key not in self._lists and len(self._lists) >= MOST:
            key = (OTHERS, event.shown)
        return self._lists.setdefault(key, Lists(*key))

    def shaped(self, raw: Json, shown: Json) -> None:
        """A compact mode showed a result."""
        came = text_tokens(raw)
        self.raw += came
        self.given += came if shown is raw else text_tokens(shown)


def text_tokens(result: Json) -> int:
    """Of the text that a result puts before a model."""
    content: Any = result.get("content")
    if not is_array(content):
        return 0
    total = 0
    for block in content[:MOST_BLOCKS]:
        if is_object(block) and isinstance(text := block.get("text"), str):
            total += estimate(text)
    return total


def _add(its: Lists, shown: int, direct: int | None = None) -> None:
    its.shown += shown
    its.direct += shown if direct is None else direct
