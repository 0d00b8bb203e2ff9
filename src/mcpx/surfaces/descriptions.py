"""What a server, or one of its tools, is: as text for a model, as raw definitions for a program.

What the tools of a server have in common is told once: a sentence that most of them end with, that
they only read. Nothing is said of a tool that its own description does not say.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mcpx.catalog.entries import description_of
from mcpx.formats.typescript import DESCRIPTION_LENGTH
from mcpx.formats.writing import schema_writer
from mcpx.model.call import Json, as_object
from mcpx.model.offer import Offer
from mcpx.model.slices import Pace
from mcpx.surfaces.docstrings import Docstring
from mcpx.surfaces.large.measure import counted, size_of
from mcpx.surfaces.menu import INSTRUCTIONS, LONGEST_NAME
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
    sentences,
    short,
)
from mcpx.surfaces.view import Service

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
    longest = DESCRIPTION_LENGTH if longest is None else longest
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
    return "tools not known yet" if not tools and server in starting else counted(tools, "tool")


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
    lines = [f"{service.name} ({service.status}, {count}){f': {about}' if about else ''}"]
    if service.trouble is not None and service.reason:
        lines.append(f"It {service.trouble}: {cut(one_line(service.reason), INSTRUCTIONS)}")
    pace = Pace()  # there may be thousands of them
    told: list[_Listed] = []
    tools: list[Json] = []
    unread = room
    most = 4 * LISTED if len(offers) > 1 else None
    for offer in offers:
        await pace.step()
        tools.append(raw(offer))
        listed = _listed(surface, offer, most) if unread > 0 else _Listed(offer, marks(offer), ())
        unread -= max(sum(map(len, listed.said)), min(len(description_of(offer)), 4 * LISTED) // 2)
        told.append(listed)
    told.sort(key=lambda each: DEPRECATED in each.marks)
    shared = _shared(told)
    once = frozenset(sentence for line in shared for sentence in line.sentences)
    lines += [line.told for line in shared]
    usual = _usual(told)
    lines += [f"Unless marked, tools are {usual}."] if usual else []
    texts = [" ".join(sentence for sentence in each.said if sentence not in once) for each in told]
    sizes = list(map(len, texts))
    longest = (
        LISTED
        if sum(sizes) <= ALL_LISTED
        else min(max(fair_share(sizes, ALL_LISTED), LEAST_LISTED), LISTED)
    )
    cuts = named = False
    for each, said in zip(told, texts, strict=True):
        await pace.step()
        offer = each.offer
        if room < 0:
            lines.append(f"- {cut(one_line(offer.name), LONGEST_NAME)}")
            named = True
            continue
        if len(said) > longest and len(told) > 1:
            said, cuts = short(said, longest), True
        numbers = "".join(
            line.sign for line in shared if line.sign and line.sentences[0] in each.said
        )
        head, _, types = surface.signature(offer).partition("\n")
        said = _FORGED.sub(r"(\1)", said)
        line = (
            f"- {head}{f': {said}' if said else ''}{numbers}{_marked(_unusual(each.marks, usual))}"
        )
        lines += [line, types] if types else [line]
        room -= size_of(line) + size_of(types)
    if named:
        lines.append("Of some only names are told; ask for those you need, several at once.")
    if cuts:
        lines.append("Some descriptions are shortened; ask for one tool to read all of its own.")
    structured: Json = {
        "server": service.name,
        "description": service.description,
        "instructions": service.instructions,
        "status": service.status,
        "tools": tools,
    }
    return surface.reply("\n".join(lines), structured)


def raw(offer: Offer, key: str = "name") -> Json:
    """The definition as the server gave it, under the server's own name for it; `key` is where that
    stands."""
    definition = {**offer.definition, key: offer.name, "server": offer.server}
    meta = {
        key: value
        for key, value in as_object(definition.pop("_meta", None)).items()
        if key != "proxy"
    }
    return {**definition, "_meta": meta} if meta else definition


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
    about = offer.definition.get("description")
    return Docstring(about.strip() if isinstance(about, str) else "")


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
