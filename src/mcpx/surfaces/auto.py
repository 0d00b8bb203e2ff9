"""Which surface a client is shown when nobody said: every tool while they are few, or the client can cope (SUR-5).

Decided at a session's first list, from the catalog known then, and kept: a menu that changes its nature in mid-session
would confuse any model. A modern client has no session: for it every list decides anew, and calls go by the last one.
The rules are data (`settings.AUTO_RULES`); a user's own come first.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from mcpx.catalog.catalog import Catalog
from mcpx.formats.tokens import estimate
from mcpx.model.call import Call, Caller, Json
from mcpx.surfaces.large.preview import counted
from mcpx.surfaces.menu import cut, one_line
from mcpx.surfaces.results import owner_of
from mcpx.surfaces.settings import AUTO_RULES, Settings, Shown
from mcpx.surfaces.surface import Surface
from mcpx.surfaces.view import View
from mcpx.wire import codec

log = logging.getLogger(__name__)

COMPACT: Shown = "search"
"""Of the compact modes: its menu is the same few tokens at any size of the catalog."""
REMEMBERED = 10_000
"""Choices kept; as many as there may be sessions."""


@dataclass(frozen=True, slots=True)
class Choice:
    client: str
    mode: Shown
    reason: str


class Choices:
    """What was chosen for whom. Outlives a reload: a session keeps its surface."""

    def __init__(self) -> None:
        self._made: dict[str, Choice] = {}

    def of(self, key: str) -> Choice | None:
        return self._made.get(key)

    def keep(self, key: str, choice: Choice) -> None:
        while len(self._made) >= REMEMBERED:
            del self._made[next(iter(self._made))]
        self._made[key] = choice

    def forget(self, key: str) -> None:
        self._made.pop(key, None)

    def latest(self, number: int = 20) -> list[Choice]:
        return list(self._made.values())[-number:]


def _size(definition: Json) -> int:
    """Tokens of one tool in a list."""
    try:
        return estimate(codec.dump(definition).decode())
    except codec.Unencodable:
        return 0  # nor can it be listed


class Auto:
    def __init__(self, settings: Settings, choices: Choices, surface: Callable[[Shown], Surface]) -> None:
        self._settings = settings
        self._choices = choices
        self._surface = surface
        self._size: tuple[Catalog | None, int] = (None, 0)

    async def list_tools(self, view: View, call: Call) -> Json:
        anew = call.caller.session is None
        return await (await self._chosen(view, call.caller, anew=anew)).list_tools(view, call)

    async def call_tool(self, view: View, call: Call) -> Json:
        return await (await self._chosen(view, call.caller)).call_tool(view, call)

    def by_name(self, caller: Caller) -> bool:
        choice = self._choices.of(owner_of(caller))
        return choice is None or choice.mode == "direct"

    def expected(self, caller: Caller, catalog: Catalog) -> Shown:
        """What was chosen for this caller, else what would be if it listed this catalog now."""
        return (self._choices.of(owner_of(caller)) or self._choose(_client(caller), catalog)).mode

    async def _chosen(self, view: View, caller: Caller, *, anew: bool = False) -> Surface:
        key = owner_of(caller)
        before = self._choices.of(key)
        if before is not None and not anew:
            return self._surface(before.mode)
        choice = self._choose(_client(caller), await view.prepare())
        if choice != before:
            self._choices.keep(key, choice)
            log.info("auto: %s is shown %r: %s", choice.client or "a client", choice.mode, choice.reason)
        return self._surface(choice.mode)

    def _choose(self, client: str, catalog: Catalog) -> Choice:
        for rule in (*self._settings.auto_rules, *AUTO_RULES):
            if rule.matches(client):
                return Choice(client, rule.mode, rule.reason)
        if self._size[0] is not catalog:
            self._size = (catalog, sum(_size(offer.definition) for offer in catalog.offers["tools"]))
        size, budget = self._size[1], self._settings.auto_budget
        count = len(catalog.offers["tools"])
        told = f"{counted(count, 'tool')} take{'s' * (count == 1)} about {size:,} tokens, the budget is {budget:,}"
        return Choice(client, "direct" if size <= budget else COMPACT, told)


def _client(caller: Caller) -> str:
    return cut(one_line(caller.client.get("name")), 80)
