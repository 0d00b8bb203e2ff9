"""What a compact mode tells of servers and tools: the menu, and descriptions of one (SUR-2, SUR-3,
SUR-10).

The menu is in the description of a mode's first tool, within a token budget. As the catalog
grows: every tool with a short description, then names only, then one line for each server with its
purpose, then totals. Tokens that are left go to more words for all servers alike, then to names of
tools. The same catalog gives the same bytes.

The description of a server says once what its tools have in common: a sentence that most of them
end with, that they only read.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Protocol

from mcpx.base.aio import Pace, Work
from mcpx.catalog.entries import description_of
from mcpx.formats.tokens import estimate
from mcpx.formats.typescript import DESCRIPTION_LENGTH
from mcpx.formats.writing import schema_writer
from mcpx.model.call import Json, as_object
from mcpx.model.offer import Offer
from mcpx.surfaces.docstrings import Docstring
from mcpx.surfaces.large.measure import counted, size_of
from mcpx.surfaces.settings import Settings
from mcpx.surfaces.text import (
    DEPRECATED,
    DESTRUCTIVE,
    READ_ONLY,
    cut,
    docstring_of,
    fair_share,
    marks,
    one_line,
    passages,
    purpose,
    sentences,
    short,
    told_short,
    within_tokens,
)
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
    """The definitions that `define` makes around the fullest menu within the budget.

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


LISTED = 1_000
"""Characters of one description among others, at most."""
LEAST_LISTED = 120
"""And at least: a sentence or two."""
ALL_LISTED = 2_500
"""Characters that the descriptions of one server's tools share; a signature is never cut for it."""
RETURNS = 80
"""Characters that tell in a list what a tool returns."""
LEAST_SHARED = 3
"""Tools that must say the same before it is told once."""
SHORTEST_SHARED = 12
"""Characters of a sentence that is worth it."""
MOST_SHARED = 8
MOST_EXCEPTIONS = 4
"""Tools that are named because a sentence is not theirs; if there are more, those that have it bear
its number."""
NEARLY_ALL = 0.8
"""Of the tools: what is told once, the others are marked."""
MAY_WRITE = "may write"
_FORGED = re.compile(
    rf"\[((?:{READ_ONLY}|{DESTRUCTIVE}|{DEPRECATED}|{MAY_WRITE}|\d)[^\[\]]{{0,40}})\]"
)
"""What stands in a description as only we say it."""


class Describer(Protocol):
    settings: Settings

    def reply(self, text: str, structured: Json) -> Json: ...

    def signature(self, offer: Offer) -> str: ...


def describe_tool(surface: Describer, offer: Offer) -> Json:
    """All there is to know of one tool."""
    shown = _shown(surface, offer)
    longest = surface.settings.of(offer.server).max_description_len
    if longest is None:
        longest = DESCRIPTION_LENGTH
    head, _, types = surface.signature(offer).partition("\n")
    lines = [head + _marked(marks(offer)), types, shown.text]
    # The signature has only their beginnings.
    lines += [
        f"{name}: {note}" for name, note in shown.notes.items() if longest and len(note) > longest
    ]
    titled = (("Returns", shown.returns), ("Raises", shown.raises), ("Example", shown.examples))
    lines += [f"{title}: {said}" for title, said in titled if said]
    return surface.reply("\n".join(line for line in lines if line), raw(offer))


def how_many(tools: int, server: str, starting: Sequence[str]) -> str:
    """The number of a server's tools. None is not said of one that is starting and has not told yet
    (LIF-1)."""
    if not tools and server in starting:
        return "tools not known yet"
    return counted(tools, "tool")


async def describe_server(
    surface: Describer,
    service: Service,
    offers: list[Offer],
    room: int,
    starting: Sequence[str] = (),
) -> Json:
    """A server and all its tools: signatures for `room` bytes, then names. Deprecated ones are the
    last."""
    about = cut(one_line(service.instructions or service.description), INSTRUCTIONS)
    count = how_many(len(offers), service.name, starting)
    lines = [f"{service.name} ({service.status}, {count}): {about}".removesuffix(": ")]
    if service.trouble is not None and service.reason:
        lines.append(f"It {service.trouble}: {cut(one_line(service.reason), INSTRUCTIONS)}")
    pace = Pace()  # There may be thousands of tools.
    listed = await _all_listed(surface, offers, room, pace)
    shared = _shared(listed)
    lines += [line.told for line in shared]
    usual = _usual(listed)
    if usual:
        lines.append(f"Unless marked, tools are {usual}.")
    once = frozenset(sentence for line in shared for sentence in line.sentences)
    texts = [" ".join([part for part in each.said if part not in once]) for each in listed]
    longest = _longest_text(texts)
    cuts = False
    for each, said in zip(listed, texts, strict=True):
        await pace.step()
        if room < 0:
            lines.append(f"- {cut(one_line(each.offer.name), LONGEST_NAME)}")
            continue
        if len(said) > longest:
            said, cuts = short(said, longest), True
        signs = [line.sign for line in shared if line.sentences[0] in each.said]
        head, _, types = surface.signature(each.offer).partition("\n")
        said = _FORGED.sub(r"(\1)", said)
        line = f"- {head}: {said}".removesuffix(": ")
        line += "".join(signs) + _marked(_unusual(each.marks, usual))
        lines += filter(None, (line, types))
        room -= size_of(line) + size_of(types)
    if lines[-1].startswith("- ") and room < 0:
        lines.append("Of some only names are told; ask for those you need, several at once.")
    if cuts:
        lines.append("Some descriptions are shortened; ask for one tool to read all of its own.")
    structured: Json = {
        "server": service.name,
        "description": service.description,
        "instructions": service.instructions,
        "status": service.status,
        "tools": [raw(offer) for offer in offers],
    }
    return surface.reply("\n".join(lines), structured)


async def _all_listed(
    surface: Describer, offers: Sequence[Offer], room: int, pace: Pace
) -> "list[_Listed]":
    """Descriptions are read as long as there may be room for them."""
    most = 4 * LISTED if len(offers) > 1 else None
    found: list[_Listed] = []
    for offer in offers:
        await pace.step()
        listed = _Listed(offer, marks(offer), ())
        if room > 0:
            listed = _listed(surface, offer, most)
        description = min(len(description_of(offer)), 4 * LISTED)
        room -= max(sum(map(len, listed.said)), description // 2)
        found.append(listed)
    found.sort(key=lambda each: DEPRECATED in each.marks)
    return found


def _longest_text(texts: Sequence[str]) -> int:
    """Characters of one description, so that all of them stay within their room."""
    sizes = [len(text) for text in texts]
    if len(texts) == 1:
        return sizes[0]
    if sum(sizes) <= ALL_LISTED:
        return LISTED
    return min(max(fair_share(sizes, ALL_LISTED), LEAST_LISTED), LISTED)


def raw(offer: Offer, key: str = "name") -> Json:
    """The definition as the server gave it, under the server's own name for it; `key` is where that
    stands."""
    definition = {**offer.definition, key: offer.name, "server": offer.server}
    meta = {
        key: value
        for key, value in as_object(definition.pop("_meta", None)).items()
        if key != "proxy"
    }
    if meta:
        definition["_meta"] = meta
    return definition


@dataclass(frozen=True, slots=True)
class _Listed:
    """One tool of a list."""

    offer: Offer
    marks: tuple[str, ...]
    said: tuple[str, ...]
    """Its description, sentence by sentence."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """Sentences that most tools have, and for which of them they are told."""

    sentences: tuple[str, ...]
    told: str
    sign: str = ""
    """What the tools bear that have it, if not all do and the others are too many to be named."""


def _shown(surface: Describer, offer: Offer) -> Docstring:
    """The description without what the signature tells. A schema that stays JSON tells only what is
    in it."""
    if schema_writer(surface.settings.of(offer.server).schema_format).takes_notes:
        return docstring_of(offer)
    return Docstring(description_of(offer).strip())


def _listed(surface: Describer, offer: Offer, most: int | None) -> _Listed:
    """Of a long description so many characters are looked at."""
    shown = _shown(surface, offer)
    parts = passages((shown.text or shown.examples)[:most])
    said = [sentence for part in parts for sentence in map(str.strip, sentences(one_line(part)))]
    returns = short(shown.returns, RETURNS)
    if returns[:1].isalnum() and _says_more(returns, f"{offer.name} {shown.text}"):
        said.append(f"Returns: {returns}")
    return _Listed(offer, marks(offer), tuple(filter(None, said)))


def _says_more(text: str, than: str) -> bool:
    known = set(than.lower().replace("_", " ").split())
    new = [word for word in text.lower().split() if word.strip(".,:;()") not in known]
    return len(new) > 2 or not text.isascii()


def _shared(told: Sequence[_Listed]) -> list[_Shared]:
    """What at least half of the tools say in the same words, in the order in which it is first
    said."""
    least = max(LEAST_SHARED, -(-len(told) // 2))
    counts = Counter(sentence for each in told for sentence in dict.fromkeys(each.said))
    often = [
        s for s, count in counts.items() if count >= least and len(s.encode()) >= SHORTEST_SHARED
    ]
    whose: dict[tuple[str, ...], list[str]] = {}
    for sentence in often[:MOST_SHARED]:
        others = tuple(each.offer.name for each in told if sentence not in each.said)
        whose.setdefault(others, []).append(sentence)
    found: list[_Shared] = []
    for number, (others, together) in enumerate(whose.items(), 1):
        said, sign = " ".join(together), f" [{number}]"
        if not others:
            found.append(_Shared(tuple(together), f"All tools: {said}"))
        elif len(others) <= MOST_EXCEPTIONS:
            names = ", ".join(cut(one_line(name), LONGEST_NAME) for name in others)
            found.append(_Shared(tuple(together), f"All but {names}: {said}"))
        else:
            found.append(_Shared(tuple(together), f"Tools with{sign}: {said}", sign))
    return found


def _usual(told: Sequence[_Listed]) -> str:
    """What nearly all tools are, if it is worth saying once."""
    for word in (READ_ONLY, DESTRUCTIVE):
        count = sum(word in each.marks for each in told)
        if count > LEAST_SHARED and count >= NEARLY_ALL * len(told):
            return word
    return ""


def _unusual(words: tuple[str, ...], usual: str) -> tuple[str, ...]:
    if not usual:
        return words
    if READ_ONLY not in words and DESTRUCTIVE not in words:
        return (MAY_WRITE, *words)
    return tuple(word for word in words if word != usual)


def _marked(words: Sequence[str]) -> str:
    return f" [{', '.join(words)}]" if words else ""
