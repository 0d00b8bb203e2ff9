"""Searches for tools, for programs and for models (SUR-4, SUR-12).

Every compact mode has this search: `search` offers it as a tool, the others use it if a model gives
words that are no name. A search of one service finds each of its tools: first those that match.

A reply has the signatures of the best hits, parameter names of others, and how to go on. Each
named tool can be called or looked up; the others are counted, and the next page begins with the
first tool that was not shown. Signatures stop where matches become weak. A reply is bounded, but
its first tool is always shown.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from mcpx.base.aio import Pace, in_slices
from mcpx.base.caching import Lru
from mcpx.catalog.catalog import Catalog, Searchable
from mcpx.catalog.entries import LONGEST_TEXT, description_of, hints_of, parameters_of
from mcpx.formats.tokens import estimate
from mcpx.model.call import Json
from mcpx.model.offer import Offer
from mcpx.surfaces.large.measure import counted
from mcpx.surfaces.large.reading import BUILT_IN, OWN_NAMES, READER
from mcpx.surfaces.text import brief_call, cut, marks, one_line, quoted, starting, told, told_short
from mcpx.surfaces.view import Service, View

if TYPE_CHECKING:
    from mcpx.surfaces.compact import Compact

SIGNATURES = 320
"""Tokens of a reply that go to the signatures of the best hits."""
NAMES = 120
"""Tokens that go to the others, by name."""
LONG = 160
"""Tokens of a line that are too many for any but the first."""
OF_A_SERVICE = 600
"""Tokens for either when the tools of one service are asked for."""
WEAK = 60
"""Of these for weak matches."""
NEAREST = 3
"""Tools that are told when none fits."""
LONGEST_LINE = 4_000
"""Characters of one signature in a reply."""
LONGEST_ABOUT = 600
"""Characters of the description of a tool that was asked for by its name."""
REMEMBERED = 1_000
"""Tools whose short description is kept."""
_MOST_NAMED = 200
"""Tools that are looked at before it is said how they are named."""
LONGEST_REASON = 300
"""Characters of why a service is down."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a surface speaks of searching."""

    signature: str = ""
    """How a model gets the signature of a tool whose name it has: a sentence."""
    elsewhere: str = ""
    """What else it may do when nothing was found."""
    pages: bool = False
    """Whether its search takes an offset."""
    apart: bool = False
    """Whether its calls name the server beside the tool."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a search found, from its offset on."""

    query: str
    """Blank: everything was asked for."""
    service: Service | None
    tools: Sequence[Offer]
    """Matches first; of a service its other tools follow."""
    strong: int
    """How many of the first say what was asked for."""
    matches: int
    """How many of the first match at all."""
    total: int
    """Matches on all pages."""
    offset: int
    count: int
    """Tools on all pages."""


class Telling:
    """For one surface."""

    def __init__(self, surface: "Compact") -> None:
        self._surface = surface
        self._abouts: Lru[int, tuple[Offer, str]] = Lru(REMEMBERED)
        """By the identity of the offer: descriptions take a while to be taken apart."""

    async def text(self, page: Page) -> str:
        pace = Pace()  # Some signatures take 15 ms to write.
        lines: list[str] = []
        for line in self._lines(page):
            lines.append(line)
            await pace.step()
        return "\n".join(lines)

    def _lines(self, page: Page) -> Iterator[str]:
        service = page.service
        if service is not None and service.trouble is not None:
            yield _trouble(service, bool(page.count))
        if not page.tools:
            if page.count or service is None or service.trouble is None:
                yield self._nothing(page)
            return
        fits = not page.query or page.strong > 0 or page.offset > 0
        called = [_is_called(offer, page.query) for offer in page.tools[: page.strong]]
        by_name = any(called) and not _is_word(page.query)
        if by_name:
            page = replace(page, strong=[*called, False].index(False))
        first = self._signatures(page) if fits else self._nearest(page)
        if not fits:
            yield _unfit(page)
        told = briefly = 0
        for line, is_signature in first:
            yield line
            told += 1
            briefly += not is_signature
        if service is not None or (fits and not by_name):
            for label, names in self._sections(page, told, fits):
                yield f"{label}: {self._joined(page, names)}"
                briefly += len(names)
                told += len(names)
        closing = self._closing(page, told, briefly > 0, fits)
        if closing:
            yield " ".join(closing)

    def _signatures(self, page: Page) -> Iterator[tuple[str, bool]]:
        """Of the strong matches, while there is room. A long one is told by name."""
        room = OF_A_SERVICE if page.service and not page.query else SIGNATURES
        for number, offer in enumerate(page.tools[: page.strong]):
            whole = _is_called(offer, page.query)
            line = self._line(page, offer, cut(self._surface.signature(offer), LONGEST_LINE), whole)
            short_enough = not number or whole or estimate(line) <= LONG
            if not short_enough:
                line = self._line(page, offer, self._brief(offer))
            room -= estimate(line)
            if number and room < 0:
                return
            yield line, short_enough

    def _nearest(self, page: Page) -> Iterator[tuple[str, bool]]:
        """A few tools if none fits. Those of a service follow with its other tools."""
        if page.service is None:
            for offer in page.tools[:NEAREST]:
                yield self._line(page, offer, self._brief(offer)), False

    def _sections(
        self, page: Page, told: int, fits: bool
    ) -> Iterator[tuple[str, list[tuple[Offer, str]]]]:
        """The tools after the first `told`, by name, as many as there is room for."""
        room, others = NAMES, "Other tools"
        optional = True
        if page.service is not None:
            room, others = OF_A_SERVICE, f"Other tools of {one_line(page.service.name)}"
            rest = page.tools[told:][:_MOST_NAMED]
            optional = sum(_cost(self._brief(offer)) for offer in rest) <= room
        weak = "Weaker matches" if fits else "Nearest"
        sections = (
            ("Also", page.strong if page.query else len(page.tools)),
            (weak, page.matches),
            (others if page.matches else "Its tools", len(page.tools)),
        )
        for label, end in sections:
            if label == "Weaker matches" and page.service is None:
                room = min(room, WEAK)
            names: list[tuple[Offer, str]] = []
            for offer in page.tools[told:end]:
                name = self._brief(offer, optional=optional)
                room -= _cost(name)
                if room < 0 and told:
                    break
                names.append((offer, name))
                told += 1
            if names:
                yield label, names
            if room < 0:
                return

    def _joined(self, page: Page, names: Sequence[tuple[Offer, str]]) -> str:
        """If calls name the server beside the tool, it stands before its tools."""
        if page.service is not None or not self._surface.manner.apart:
            return ", ".join(name for _, name in names)
        groups = groupby(names, key=lambda named: named[0].server)
        told = [
            f"{one_line(server)}: {', '.join(name for _, name in group)}"
            for server, group in groups
        ]
        return "; ".join(told)

    def _closing(self, page: Page, told: int, briefly: bool, fits: bool) -> list[str]:
        """How to go on."""
        manner = self._surface.manner
        said = [manner.signature] if briefly and manner.signature else []
        following = page.offset + told
        left = page.count - following
        if left and (fits or page.service is not None):
            kind = "weaker matches"
            if page.service is not None or not page.query:
                kind = "more tools"
            elif told < page.strong:
                kind = "more matches"
            if manner.pages:
                said.append(f"{left} {kind}: offset={following}.")
            elif kind != "weaker matches":
                said.append(f"{left} {kind} not shown.")
        if not fits and page.service is None:
            said.append(f"Try other words{manner.elsewhere}.")
        elif not fits:
            said.append("Without service_name all services are searched.")
        return said

    def _nothing(self, page: Page) -> str:
        if page.query and not page.service:
            beyond = f" beyond the {page.count} there are" if page.count else ""
            again = f"Try other words{self._surface.manner.elsewhere}."
            return f"No tools match {quoted(page.query)}{beyond}. {again}"
        whose = f"{one_line(page.service.name)} has" if page.service else "There are"
        if page.count:
            return f"{whose} {counted(page.count, 'tool')}, none beyond."
        return f"{whose} no tools."

    def _line(self, page: Page, offer: Offer, call: str, whole: bool = False) -> str:
        server = one_line(offer.server)
        notes = [*marks(offer)]
        spelled = _letters(self._surface.spelled(offer))
        if page.service is None and self._surface.manner.apart:
            call = f"{server}: {call}"
        elif page.service is None and not spelled.startswith(_letters(server)):
            notes.insert(0, server)
        about = cut(told(offer), LONGEST_ABOUT) if whole else self._about(offer)
        call, _, types = call.partition("\n")
        noted = f"[{', '.join(notes)}]" if notes else ""
        line = " ".join(filter(None, ("-", call, noted, about)))
        return f"{line}\n{types}" if types else line

    def _about(self, offer: Offer) -> str:
        known = self._abouts.get(id(offer))
        if known is None:
            known = self._abouts[id(offer)] = (offer, told_short(offer))
        return known[1]

    def _brief(self, offer: Offer, *, optional: bool = True) -> str:
        schema = offer.definition.get("inputSchema")
        return brief_call(self._surface.spelled(offer), schema, optional=optional)


def _trouble(service: Service, is_known: bool) -> str:
    unknown = "" if is_known else ", its tools are not known"
    reason = cut(one_line(service.reason), LONGEST_REASON)
    told = f"{one_line(service.name)} {service.trouble}{unknown}"
    return f"{told}: {reason}" if reason else f"{told}."


def _unfit(page: Page) -> str:
    if page.service is None:
        return "No tool here seems to do this. Nearest:"
    name = one_line(page.service.name)
    if page.matches:
        return f"No tool of {name} seems to do this."
    return f"No tool of {name} matches {quoted(page.query)}."


def _is_called(offer: Offer, query: str) -> bool:
    """Whether a query is the name of this tool; an everyday word only if the tool is shown under
    it."""
    return query == offer.public or (
        not _is_word(query) and query in (offer.name, f"{offer.server}.{offer.name}")
    )


def _is_word(query: str) -> bool:
    """Whether it may be meant as a word, though a tool may be called so."""
    return query.isalpha() and (query.islower() or query.istitle())


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


def _cost(name: str) -> int:
    return estimate(name) + 1


AT_ONCE = 100
"""Tools that are indexed while everybody waits (some 10 ms); more are indexed in slices, once for
all who ask."""


class Finder:
    """Searches for one surface, in its words."""

    def __init__(self, surface: "Compact") -> None:
        self._surface = surface
        self._telling = Telling(surface)
        self._fields: Lru[int, tuple[Offer, Json]] = Lru(REMEMBERED)
        """What programs are told of a tool, by the identity of its offer: reading schemas costs
        more than finding."""
        self._indexing = asyncio.Lock()

    async def index(self, catalog: Catalog) -> Searchable:
        if catalog.indexed or len(catalog.whole.offers["tools"]) <= AT_ONCE:
            return catalog.index
        async with self._indexing:
            return await in_slices(catalog.indexing())

    async def search(
        self, view: View, query: str, *, service: str = "", limit: int = 20, offset: int = 0
    ) -> Json:
        """A blank query finds every tool there is, or every one of the service."""
        catalog = (await view.prepare()).for_models
        query = query.strip()
        if service == BUILT_IN or query in OWN_NAMES:
            page = Page(query, None, [READER], 1, 1, 1, 0, 1)
        elif service:
            page = await self._of_service(
                catalog, self._surface.service(view, service), query, limit, offset
            )
        else:
            page = await self._of_all(
                catalog, query if catalog.offers["tools"] else "", limit, offset
            )
        structured: Json = {
            "tools": [self._for_programs(offer) for offer in page.tools[: page.matches][:limit]],
            "total": page.total,
            "limit": limit,
        }
        # Of one that has not told yet it is not said that it has none (LIF-1).
        told = "" if service in view.starting() else await self._telling.text(page)
        return self._surface.reply("\n".join(filter(None, (told, starting(view)))), structured)

    async def _of_all(self, catalog: Catalog, query: str, limit: int, offset: int) -> Page:
        found = (await self.index(catalog)).search(query, limit=limit, offset=offset)
        tools = [catalog.offers["tools"][hit.position] for hit in found.hits]
        strong = found.strong if query else len(tools)
        return Page(query, None, tools, strong, len(tools), found.total, offset, found.total)

    async def _of_service(
        self, catalog: Catalog, service: Service, query: str, limit: int, offset: int
    ) -> Page:
        found: list[Offer] = []
        strong = limit
        if query:
            index = await self.index(catalog)
            every = index.search(
                query, limit=catalog.count(service.name, "tools"), service=service.name
            )
            found = [catalog.offers["tools"][hit.position] for hit in every.hits]
            strong = min(max(every.strong - offset, 0), limit)
        matching = set(map(id, found))
        others: tuple[list[Offer], list[Offer]] = ([], [])
        pace = Pace()  # there may be thousands of them
        for offer in catalog.offers["tools"]:
            if offer.server == service.name and id(offer) not in matching:
                others[hints_of(offer).deprecated].append(offer)
            await pace.step()
        tools = [*found, *others[False], *others[True]]
        total = len(found) if query else len(tools)
        return Page(
            query,
            service,
            tools[offset:],
            strong,
            max(total - offset, 0),
            total,
            offset,
            len(tools),
        )

    def _for_programs(self, offer: Offer) -> Json:
        known = self._fields.get(id(offer))
        if known is None:
            fields: Json = {
                "name": offer.name,
                "display_name": offer.public,
                "description": description_of(offer)[:LONGEST_TEXT],
                "service": offer.server,
                "parameters": parameters_of(offer.definition.get("inputSchema")),
            }
            known = self._fields[id(offer)] = (offer, fields)
        return known[1]
