"""The menu in the description of a compact surface's first tool: what there is, within a budget of
tokens (SUR-10).

As the catalog grows: every tool with a short description, then names only, then a line for each
server with what it is for, then servers by name, then totals. What is left of the budget goes to
more words for all servers alike, then to names of tools. The same catalog gives the same bytes,
whoever connected first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

from mcpx.formats.tokens import estimate
from mcpx.model.call import Json
from mcpx.model.offer import Offer
from mcpx.model.slices import Work
from mcpx.surfaces.large.preview import counted
from mcpx.surfaces.texts.about import told_short
from mcpx.surfaces.texts.phrases import cut, one_line
from mcpx.surfaces.texts.purpose import fitting
from mcpx.surfaces.view import Service
from mcpx.wire import codec

INSTRUCTIONS = 300
"""Characters of a server's instructions that are shown (S0)."""
NAMES_SHARE = 0.6
"""Of the budget, when nothing but names of servers is left to fill it with: tokenizers cut names
into small pieces."""
LONGEST_NAME = 100
"""Characters of a tool's name that are shown: one server must not use up the menu of all."""
WORDS = (24, 20, 16, 14, 12, 10, 8, 7, 6, 5, 4)
"""Tokens of what each server is for, as there is room."""
FEW_WORDS = 14
"""Tokens of them beside the names of all its tools."""
MANY_WORDS = 20
"""Tokens beyond which names of tools say more."""
SOME_TOOLS = (40, 30, 20, 15, 10, 7, 5)
"""Names of tools of each server, where there is room for more than words."""
LEAST_TOLD = 4
"""Tokens, at least, of a tool with its description."""
HEADING = "Servers, as name (number of tools): what it is for"

Tools = dict[str, list[Offer]]
"""By server, in the order of the config."""


@dataclass(frozen=True, slots=True)
class Menu:
    """What a menu is made of."""

    services: Sequence[Service]
    tools: Tools
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By server: what it is for, in more words than there may be room for."""
    abouts: Mapping[int, str] | None = None
    """By the identity of the offer: its short description. None: there are more tools than a menu
    can describe."""


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
    """The definitions `define` makes around the fullest menu with which all of them stay within the
    budget.

    `more` says how to read on where not all is shown.
    """
    for step in _steps(menu, more):
        # Whatever the rest of the definitions takes, characters / 4 is the least a menu can cost.
        text = _joined(step, 4 * budget)
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
        lines = (_named(service.name, _words(menu, service, tokens)) for service in menu.services)
        text = _joined(chain(("Services:",), lines), 4 * room)
        if text is not None and estimate(codec.dump(text).decode()) <= room:
            return text
    names = _joined((one_line(service.name) for service in menu.services), 4 * room, ", ")
    if names is not None and estimate(names) + 5 <= room:
        return f"Services: {names}"
    told = f"There are {counted(len(menu.services), 'service')}."
    return f"{told} {more}" if more else told


def _steps(menu: Menu, more: str) -> Iterator[Iterable[str | None]]:
    if menu.abouts is not None:
        yield _full(menu, menu.abouts)
    if menu.words:
        yield _names(menu, FEW_WORDS)
    yield _names(menu)
    heading = f"{HEADING}. {more}"
    if menu.words:
        for some in SOME_TOOLS:
            yield chain(
                (f"{HEADING} [some of its tools]. {more}",), _summaries(menu, MANY_WORDS, some)
            )
        for tokens in WORDS:
            yield chain((heading,), _summaries(menu, tokens))


def _joined(parts: Iterable[str | None], most: int, separator: str = "\n") -> str | None:
    """None as soon as they are longer than that: of ten thousand tools the first hundreds are
    looked at."""
    taken: list[str] = []
    for part in parts:
        if part is None or (most := most - len(part) - len(separator)) < -len(separator):
            return None
        taken.append(part)
    return separator.join(taken)


def _cost(definitions: list[Json]) -> int:
    return estimate(codec.dump(definitions).decode())


def _full(menu: Menu, told: Mapping[int, str]) -> Iterator[str]:
    for service in menu.services:
        yield _server(service)
        for offer in menu.tools[service.name]:
            text, name = told[id(offer)], cut(one_line(offer.name), LONGEST_NAME)
            yield f"    - {name}: {text}" if text else f"    - {name}"


def _names(menu: Menu, tokens: int = 0) -> Iterator[str]:
    for service in menu.services:
        yield _server(service, _words(menu, service, tokens) if tokens else "")
        offers = menu.tools[service.name]
        # Piece by piece: whoever joins them stops when it is too much.
        for at in range(0, len(offers), 100):
            names = ", ".join(
                cut(one_line(offer.name), LONGEST_NAME) for offer in offers[at : at + 100]
            )
            yield f"    {names}{',' if at + 100 < len(offers) else ''}"


def _summaries(menu: Menu, tokens: int, some: int = 0) -> Iterator[str]:
    for service in menu.services:
        offers = menu.tools[service.name]
        line = _named(_counted(service, offers), _words(menu, service, tokens))
        if some and offers:
            names = ", ".join(cut(one_line(offer.name), LONGEST_NAME) for offer in offers[:some])
            line += f" [{names}{', ...' if len(offers) > some else ''}]"
        yield line


def _words(menu: Menu, service: Service, tokens: int) -> str:
    return fitting(menu.words.get(service.name, ""), service.name, tokens)


def _named(name: str, words: str) -> str:
    return f"{one_line(name)}: {words}" if words else one_line(name)


def _counted(service: Service, offers: Sequence[Offer]) -> str:
    return f"{one_line(service.name)} ({len(offers)})" if offers else one_line(service.name)


def _totals(menu: Menu, room: int, more: str) -> str:
    """How much there is, and as many servers by name as there is room for."""
    totals = (
        f"{counted(len(menu.services), 'server')}, "
        f"{counted(sum(map(len, menu.tools.values())), 'tool')}"
    )
    names: list[str] = []
    room -= estimate(totals) + estimate(more) + 2
    if room < 0:
        return totals
    for service in menu.services:
        room -= estimate(one_line(service.name)) + 1
        if room < 0:
            names.append("...")
            break
        names.append(one_line(service.name))
    return f"{more}\n{totals}: {', '.join(names)}" if names else f"{more}\n{totals}"


def _server(service: Service, words: str = "") -> str:
    about = cut(one_line(service.instructions or service.description), INSTRUCTIONS) or words
    return (
        f"  Server: {one_line(service.name)} - {about}"
        if about
        else f"  Server: {one_line(service.name)}"
    )
