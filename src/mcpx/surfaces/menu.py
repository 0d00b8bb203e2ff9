"""The menu in the description of a compact surface's first tool, within a token budget (SUR-10).

As the catalog grows: every tool with a short description, then names only, then one line for each
server with its purpose, then totals. Tokens that are left go to more words for all servers alike,
then to names of tools. The same catalog gives the same bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from mcpx.formats.tokens import estimate
from mcpx.model.call import Json
from mcpx.model.offer import Offer
from mcpx.model.slices import Work
from mcpx.surfaces.large.measure import counted
from mcpx.surfaces.text import cut, one_line, purpose, told_short, within_tokens
from mcpx.surfaces.view import Service
from mcpx.wire import codec

INSTRUCTIONS = 300
"""Characters of a server's instructions that are shown (S0)."""
NAMES_SHARE = 0.6
"""Of the budget, for names of servers alone: tokenizers cut names into small pieces."""
LONGEST_NAME = 100
"""Characters of a tool's name that are shown: one server must not use up the menu of all."""
WORDS = (24, 20, 16, 14, 12, 10, 8, 7, 6, 5, 4)
"""Tokens of each server's purpose, as there is room."""
MANY_WORDS = 20
"""Tokens of a purpose beyond which names of tools say more."""
SOME_TOOLS = (40, 30, 20, 15, 10, 7, 5)
"""Names of tools of each server, where there is room for more than words."""
LEAST_TOLD = 4
"""Tokens, at least, of a tool with its description."""
MOST_DESCRIBED = 500
"""Servers whose purpose is shown: a menu has no room for more."""
HEADING = "Servers, as name (number of tools): what it is for"

Tools = dict[str, list[Offer]]
"""By server, in the order of the config."""


@dataclass(frozen=True)
class Menu:
    services: Sequence[Service]
    tools: Tools
    abouts: Mapping[int, str] | None = None
    """Short descriptions by the identity of the offer. None if a menu has no room for them."""

    @cached_property
    def purposes(self) -> Mapping[str, str]:
        """By server. The first tools stand for the purpose of a server that does not state it."""
        found: dict[str, str] = {}
        for service in self.services[:MOST_DESCRIBED]:
            tools = self.tool_names(service.name, SOME_TOOLS[-1])
            found[service.name] = purpose(service) or ", ".join(tools)
        return found

    def tool_names(self, server: str, most: int) -> list[str]:
        return [cut(one_line(offer.name), LONGEST_NAME) for offer in self.tools[server][:most]]


def abouts(offers: Sequence[Offer], budget: int) -> Work[dict[int, str] | None]:
    """To be done in slices: descriptions take a while to be taken apart."""
    if len(offers) > budget // LEAST_TOLD:
        return None
    found: dict[int, str] = {}
    for offer in offers:
        found[id(offer)] = told_short(offer)
        yield
    return found


def tools_by_server(services: Sequence[Service], offers: Sequence[Offer]) -> Tools:
    found: Tools = {service.name: [] for service in services}
    for offer in offers:
        found.setdefault(offer.server, []).append(offer)
    return found


def definitions_within(
    budget: int, menu: Menu, define: Callable[[str], list[Json]], more: str
) -> list[Json]:
    """The definitions `define` makes around the fullest menu with which they stay within the budget.

    `more` says how to read on where not all is shown.
    """
    for lines in _steps(menu, more):
        # Whatever the rest of the definitions takes, characters / 4 is the least a menu can cost.
        text = _joined(lines, 4 * budget)
        if text is not None and _cost(definitions := define(text)) <= budget:
            return definitions
    room = int(NAMES_SHARE * budget) - _cost(define(""))
    return define(_totals(menu, room, more))


def services_within(room: int, menu: Menu, more: str) -> str:
    """The services with a few words each, by name only, or how many there are; `more` says how to
    read on."""
    if not menu.services:
        return ""
    for tokens in (*WORDS, 3):
        lines = (
            _with_words(one_line(service.name), menu, service, tokens) for service in menu.services
        )
        text = _joined(chain(("Services:",), lines), 4 * room)
        if text is not None and estimate(codec.dump(text).decode()) <= room:
            return text
    names = _joined((one_line(service.name) for service in menu.services), 4 * room, ", ")
    if names is not None and estimate(names) + 5 <= room:
        return f"Services: {names}"
    return f"There are {counted(len(menu.services), 'service')}. {more}".rstrip()


def _steps(menu: Menu, more: str) -> Iterator[Iterable[str]]:
    if menu.abouts is not None:
        yield _full(menu, menu.abouts)
    yield _names(menu)
    for some in SOME_TOOLS:
        heading = f"{HEADING} [some of its tools]. {more}"
        yield chain((heading,), _summaries(menu, MANY_WORDS, some))
    for tokens in WORDS:
        yield chain((f"{HEADING}. {more}",), _summaries(menu, tokens))


def _joined(parts: Iterable[str], most: int, separator: str = "\n") -> str | None:
    """None as soon as they are longer: of ten thousand tools the first hundreds are looked at."""
    taken: list[str] = []
    left = most + len(separator)
    for part in parts:
        left -= len(part) + len(separator)
        if left < 0:
            return None
        taken.append(part)
    return separator.join(taken)


def _cost(definitions: list[Json]) -> int:
    return estimate(codec.dump(definitions).decode())


def _full(menu: Menu, abouts: Mapping[int, str]) -> Iterator[str]:
    for service in menu.services:
        yield _server(service)
        for offer in menu.tools[service.name]:
            line = f"    - {cut(one_line(offer.name), LONGEST_NAME)}: {abouts[id(offer)]}"
            yield line.removesuffix(": ")


def _names(menu: Menu) -> Iterator[str]:
    for service in menu.services:
        yield _server(service)
        yield f"    {', '.join(menu.tool_names(service.name, len(menu.tools[service.name])))}"


def _summaries(menu: Menu, tokens: int, some: int = 0) -> Iterator[str]:
    for service in menu.services:
        count = len(menu.tools[service.name])
        name = one_line(service.name)
        if not count:
            yield _with_words(name, menu, service, tokens)
            continue
        line = _with_words(f"{name} ({count})", menu, service, tokens)
        if some:
            names = menu.tool_names(service.name, some)
            if count > some:
                names.append("...")
            line += f" [{', '.join(names)}]"
        yield line


def _with_words(name: str, menu: Menu, service: Service, tokens: int) -> str:
    words = within_tokens(menu.purposes.get(service.name, ""), tokens)
    return f"{name}: {words}".removesuffix(": ")


def _totals(menu: Menu, room: int, more: str) -> str:
    """How much there is, and as many servers by name as there is room for."""
    servers = counted(len(menu.services), "server")
    totals = f"{servers}, {counted(sum(map(len, menu.tools.values())), 'tool')}"
    room -= estimate(totals) + estimate(more) + 2
    if room < 0:
        return totals
    names: list[str] = []
    for service in menu.services:
        name = one_line(service.name)
        room -= estimate(name) + 1
        if room < 0:
            names.append("...")
            break
        names.append(name)
    return f"{more}\n{totals}: {', '.join(names)}".removesuffix(": ")


def _server(service: Service) -> str:
    about = cut(one_line(service.instructions or service.description), INSTRUCTIONS)
    return f"  Server: {one_line(service.name)} - {about}".removesuffix(" - ")
