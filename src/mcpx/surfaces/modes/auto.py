"""Which surface a client is shown when nobody said: every tool while they are few, or the client
can cope (SUR-5).

Decided at a session's first list, from the catalog known then, and kept: a menu that changes its
nature in mid-session would confuse any model. A modern client has no session: for it every list
decides anew, and calls go by the last one. The rules are data (`settings.AUTO_RULES`); a user's own
come first. No rule shows more than `auto_direct_limit`. A client that usually defers tools may be
configured not to, and the gateway cannot see this setting.
"""

import logging
from collections.abc import Iterable
from typing import ClassVar

from mcpx.catalog.catalog import Catalog
from mcpx.formats.tokens import estimate
from mcpx.model.call import Call, Caller, Json
from mcpx.surfaces.large.measure import counted
from mcpx.surfaces.results import owner_of
from mcpx.surfaces.settings import AUTO_RULES, TOOL_PROXY
from mcpx.surfaces.surface import Choice, PerCatalog, Surface, Surfaces
from mcpx.surfaces.text import cut, one_line
from mcpx.surfaces.view import View
from mcpx.wire import codec

log = logging.getLogger(__name__)

COMPACT = "search"
"""Of the compact modes: its menu has the least tokens, at any size of the catalog."""
ENOUGH = 10
"""Times the budget: what is larger is not counted to its end."""


def _size(definition: Json) -> int:
    """Tokens of one tool in a list."""
    try:
        return estimate(codec.dump(definition).decode())
    except codec.Unencodable:
        return 0  # nor can it be listed


def _size_of_all(definitions: Iterable[Json], enough: int) -> int:
    """Not counted further than that: it is decided then, and there may be ten thousand of them."""
    total = 0
    for definition in definitions:
        total += _size(definition)
        if total > enough:
            break
    return total


class Auto(Surface):
    type: ClassVar[str] = "auto"
    lists_servers: ClassVar[bool] = True
    menu_settings: ClassVar[tuple[str, ...]] = (*TOOL_PROXY, "menu_budget")

    def __init__(self, surfaces: Surfaces) -> None:
        super().__init__(surfaces)
        self._choices = surfaces.lasting.choices
        self._surface = surfaces.of
        self._sizes: PerCatalog[int] = PerCatalog()
        self._enough = max(ENOUGH * self.settings.auto_budget, self.settings.auto_direct_limit)

    async def list_tools(self, view: View, call: Call) -> Json:
        anew = call.caller.session is None
        return await (await self._chosen(view, call.caller, anew=anew)).list_tools(view, call)

    async def call_tool(self, view: View, call: Call) -> Json:
        return await (await self._chosen(view, call.caller)).call_tool(view, call)

    def by_name(self, caller: Caller) -> bool:
        choice = self._choices.get(owner_of(caller))
        return choice is None or choice.mode == "direct"

    def shown_as(self, caller: Caller) -> tuple[str, str]:
        choice = self._choices.get(owner_of(caller))
        return (
            (self.type, "decided at its first list")
            if choice is None
            else (choice.mode, choice.reason)
        )

    def shows_all(self, caller: Caller, catalog: Catalog) -> bool:
        choice = self._choices.get(owner_of(caller)) or self.choose(_client(caller), catalog)
        return choice.mode == "direct"

    async def _chosen(self, view: View, caller: Caller, *, anew: bool = False) -> Surface:
        key = owner_of(caller)
        before = self._choices.get(key)
        if before is not None and not anew:
            return self._surface(before.mode)
        choice = self.choose(_client(caller), await view.prepare())
        if choice != before:
            self._choices[key] = choice
            log.info(
                "auto: %s is shown %r: %s", choice.client or "a client", choice.mode, choice.reason
            )
        return self._surface(choice.mode)

    def choose(self, client: str, catalog: Catalog) -> Choice:
        """Choose the mode for a client of this name."""
        settings = self.settings
        rule = next(
            (rule for rule in (*settings.auto_rules, *AUTO_RULES) if rule.matches(client)), None
        )
        if rule is not None and rule.mode != "direct":
            return Choice(client, rule.mode, rule.reason)
        size, limit = self.size_of(catalog), settings.auto_direct_limit
        if rule is not None and size <= limit:
            return Choice(client, "direct", rule.reason)
        name = "the budget"
        if rule is not None or limit < settings.auto_budget:
            name = "the limit auto_direct_limit"
        budget = min(limit, settings.auto_budget) if rule is None else limit
        count = len(catalog.offers["tools"])
        about = "about" if size <= self._enough else "more than"
        told = (
            f"{counted(count, 'tool')} take{'s' * (count == 1)} {about} {size:,} tokens, "
            f"{name} is {budget:,}"
        )
        return Choice(client, "direct" if size <= budget else COMPACT, told)

    def size_of(self, catalog: Catalog) -> int:
        """Tokens of the list of all tools; counting stops above `_enough`."""
        size = self._sizes.of(catalog)
        if size is None:
            definitions = [offer.definition for offer in catalog.offers["tools"]]
            size = self._sizes.keep(catalog, _size_of_all(definitions, self._enough))
        return size


def _client(caller: Caller) -> str:
    return cut(one_line(caller.client.get("name")), 80)
