"""The words of a search's reply: signatures of what fits, parameters' names of the rest, and how to
go on (SUR-4).

Promised: no dead ends. Whatever is named can be called or looked up; what is not is counted, and
where the surface has pages the next one begins with the first tool that was not told. Signatures
stop where matches become weak; that nothing fits is said first. A reply is bounded, and the first
tool of a page is always told, whatever it takes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mcpx.formats.tokens import estimate
from mcpx.model.offer import Offer
from mcpx.model.slices import Pace
from mcpx.surfaces.large.measure import counted
from mcpx.surfaces.text import brief_call, cut, marks, one_line, quoted, told, told_short
from mcpx.surfaces.view import Service

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
        self._abouts: dict[int, tuple[Offer, str]] = {}
        """By the identity of the offer: descriptions take a while to be taken apart."""

    async def text(self, page: Page) -> str:
        pace = Pace()  # some signatures take 15 ms to write
        lines: list[str] = []
        for line in self._lines(page):
            lines.append(line)
            await pace.step()
        return "\n".join(lines)

    def _lines(self, page: Page) -> Iterator[str]:
        service = page.service
        trouble = None if service is None else service.trouble
        if service is not None and trouble is not None:
            reason = cut(one_line(service.reason), LONGEST_REASON)
            unknown = "" if page.count else ", its tools are not known"
            yield f"{one_line(service.name)} {trouble}{unknown}{f': {reason}' if reason else '.'}"
        if not page.tools:
            if page.count or trouble is None:
                yield self._nothing(page)
            return
        fits = not page.query or page.strong > 0 or page.offset > 0
        called = [_is_called(offer, page.query) for offer in page.tools[: page.strong]]
        by_name = any(called) and not _is_word(page.query)
        if by_name:
            page = replace(page, strong=called.index(False) if False in called else len(called))
        if not fits:
            yield _unfit(page)
        told = briefly = 0
        for line, is_signature in self._signatures(page) if fits else self._nearest(page):
            yield line
            told += 1
            briefly += not is_signature
        if service is not None or (fits and not by_name):
            for label, names in self._sections(page, told, fits):
                yield f"{label}: {self._joined(page, names)}"
                briefly += len(names)
                told += len(names)
        yield from self._closing(page, told, briefly > 0, fits)

    def _signatures(self, page: Page) -> Iterator[tuple[str, bool]]:
        """Of the strong matches, while there is room; a long one hides no other, it is told by
        name."""
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
        """Of all there is a few, when none fits; of a service they are told with its other
        tools."""
        if page.service is None:
            yield from (
                (self._line(page, offer, self._brief(offer)), False)
                for offer in page.tools[:NEAREST]
            )

    def _sections(
        self, page: Page, told: int, fits: bool
    ) -> Iterator[tuple[str, list[tuple[Offer, str]]]]:
        """Those after the first `told`, by name: what they are, and as many as there is room
        for."""
        if page.service is None:
            room, of = NAMES, ""
        else:
            room, of = OF_A_SERVICE, f" of {one_line(page.service.name)}"
        sections = (
            ("Also", page.strong if page.query else len(page.tools)),
            ("Weaker matches" if fits else "Nearest", page.matches),
            (f"Other tools{of}" if page.matches else "Its tools", len(page.tools)),
        )
        # Where not all fit, what need not be sent is left out.
        sparing = page.service is not None and room < sum(
            _cost(self._brief(offer)) for offer in page.tools[told:][:_MOST_NAMED]
        )
        for label, end in sections:
            if label == "Weaker matches" and page.service is None:
                room = min(room, WEAK)
            names: list[tuple[Offer, str]] = []
            for offer in page.tools[told:end]:
                name = self._brief(offer, optional=not sparing)
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
        """Where calls name the server beside the tool, it stands before the tools it has."""
        text, server = "", ""
        for offer, name in names:
            if self._surface.manner.apart and page.service is None and offer.server != server:
                name, between = f"{one_line(offer.server)}: {name}", "; "
            else:
                between = ", "
            text, server = f"{text}{between}{name}" if text else name, offer.server
        return text

    def _closing(self, page: Page, told: int, briefly: bool, fits: bool) -> Iterator[str]:
        """How to go on."""
        manner = self._surface.manner
        following = page.offset + told
        left = page.count - following
        said = [manner.signature] if briefly and manner.signature else []
        if left and (fits or page.service is not None):
            all_tools = page.service is not None or not page.query
            kind = (
                "more tools"
                if all_tools
                else "more matches"
                if told < page.strong
                else "weaker matches"
            )
            if manner.pages:
                said.append(f"{left} {kind}: offset={following}.")
            elif kind != "weaker matches":
                said.append(f"{left} {kind} not shown.")
        if not fits and page.service is None:
            said.append(f"Try other words{manner.elsewhere}.")
        elif not fits:
            said.append("Without service_name all services are searched.")
        if said:
            yield " ".join(said)

    def _nothing(self, page: Page) -> str:
        whose = f"{one_line(page.service.name)} has" if page.service else "There are"
        if page.query and not page.service:
            beyond = f" beyond the {page.count} there are" if page.count else ""
            return (
                f"No tools match {quoted(page.query)}{beyond}. Try other "
                f"words{self._surface.manner.elsewhere}."
            )
        return (
            f"{whose} {counted(page.count, 'tool')}, none beyond."
            if page.count
            else f"{whose} no tools."
        )

    def _line(self, page: Page, offer: Offer, call: str, whole: bool = False) -> str:
        server = one_line(offer.server)
        notes = [*marks(offer)]
        if page.service is None:
            if self._surface.manner.apart:
                call = f"{server}: {call}"
            elif not _letters(self._surface.spelled(offer)).startswith(_letters(server)):
                notes.insert(0, server)
        about = cut(told(offer), LONGEST_ABOUT) if whole else self._about(offer)
        call, _, types = call.partition("\n")
        line = " ".join(filter(None, ["-", call, f"[{', '.join(notes)}]" if notes else "", about]))
        return f"{line}\n{types}" if types else line

    def _about(self, offer: Offer) -> str:
        known = self._abouts.get(id(offer))
        if known is None:
            if len(self._abouts) >= REMEMBERED:
                self._abouts.clear()
            known = self._abouts[id(offer)] = (offer, told_short(offer))
        return known[1]

    def _brief(self, offer: Offer, *, optional: bool = True) -> str:
        return brief_call(
            self._surface.spelled(offer), offer.definition.get("inputSchema"), optional=optional
        )


def _unfit(page: Page) -> str:
    if page.service is None:
        return "No tool here seems to do this. Nearest:"
    name = one_line(page.service.name)
    return (
        f"No tool of {name} "
        f"{'seems to do this' if page.matches else f'matches {quoted(page.query)}'}."
    )


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
