"""The menu in the description of a compact surface's first tool: what there is, within a budget of tokens (SUR-10).

As the catalog grows: every tool with a short description, then names only, then one line for each server, then totals.
The same catalog gives the same bytes, whoever connected first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from mcpx.formats.tokens import estimate
from mcpx.model.call import Json
from mcpx.model.offer import Offer
from mcpx.surfaces.large.preview import counted
from mcpx.surfaces.phrases import cut, one_line, short
from mcpx.surfaces.view import Service
from mcpx.wire import codec

INSTRUCTIONS = 300
"""Characters of a server's instructions that are shown (S0)."""
NAMES_SHARE = 0.6
"""Of the budget, when nothing but names of servers is left to fill it with: tokenizers cut names into small pieces."""

LONGEST_NAME = 100
"""Characters of a tool's name that are shown: one server must not use up the menu of all."""

Tools = dict[str, list[Offer]]
"""By server, in the order of the config."""


def tools_by_server(services: Sequence[Service], offers: Sequence[Offer]) -> Tools:
    found: Tools = {service.name: [] for service in services}
    for offer in offers:
        found.setdefault(offer.server, []).append(offer)
    return found


def definitions_within(
    budget: int, services: Sequence[Service], tools: Tools, define: Callable[[str], list[Json]]
) -> list[Json]:
    """The definitions `define` makes around the fullest menu with which all of them stay within the budget."""
    for step in (_full, _names, _summaries, _counts):
        # Whatever the rest of the definitions takes, characters / 4 is the least a menu can cost.
        menu = _joined(step(services, tools, 5 * budget), 5 * budget)
        if menu is not None and _cost(definitions := define(menu)) <= budget:
            return definitions
    return define(_totals(services, tools, int(NAMES_SHARE * budget) - _cost(define(""))))


def _joined(parts: Iterable[str | None], most: int, separator: str = "\n") -> str | None:
    """None as soon as they are longer than that: of ten thousand tools the first hundreds are looked at."""
    taken: list[str] = []
    for part in parts:
        if part is None or (most := most - len(part) - len(separator)) < -len(separator):
            return None
        taken.append(part)
    return separator.join(taken)


def _cost(definitions: list[Json]) -> int:
    return estimate(codec.dump(definitions).decode())


def _full(services: Sequence[Service], tools: Tools, _: int) -> Iterator[str]:
    for service in services:
        yield _server(service)
        for offer in tools[service.name]:
            text, name = short(offer.definition.get("description")), cut(one_line(offer.name), LONGEST_NAME)
            yield f"    - {name}: {text}" if text else f"    - {name}"


def _names(services: Sequence[Service], tools: Tools, most: int) -> Iterator[str | None]:
    for service in services:
        yield _server(service)
        if tools[service.name]:
            names = (cut(one_line(offer.name), LONGEST_NAME) for offer in tools[service.name])
            line = _joined(names, most, ", ")
            yield None if line is None else f"    {line}"


def _summaries(services: Sequence[Service], tools: Tools, _: int) -> Iterator[str]:
    for service in services:
        about = short(service.description or service.instructions)
        line = f"  Server: {one_line(service.name)} ({counted(len(tools[service.name]), 'tool')})"
        yield f"{line} - {about}" if about else line


def _counts(services: Sequence[Service], tools: Tools, _: int) -> Iterator[str]:
    for service in services:
        yield f"  Server: {one_line(service.name)} ({counted(len(tools[service.name]), 'tool')})"


def _totals(services: Sequence[Service], tools: Tools, room: int) -> str:
    """How much there is, and as many servers by name as there is room for."""
    totals = f"  {counted(len(services), 'server')}, {counted(sum(map(len, tools.values())), 'tool')}"
    names: list[str] = []
    room -= estimate(totals) + 2
    for service in services:
        room -= estimate(one_line(service.name)) + 1
        if room < 0:
            return f"{totals}: {', '.join(names)}, ..." if names else totals
        names.append(one_line(service.name))
    return f"{totals}: {', '.join(names)}"


def _server(service: Service) -> str:
    about = cut(one_line(service.instructions or service.description), INSTRUCTIONS)
    return f"  Server: {one_line(service.name)} - {about}" if about else f"  Server: {one_line(service.name)}"
