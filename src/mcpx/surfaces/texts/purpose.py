"""What a server is for, in a few words: its description, its instructions, or failing both its
tools' own words.

Promised: one line of plain words for any server, from that server alone, so that what others say or
offer changes nothing; only servers that would say the same are told apart by what their tools have
of their own. Only the beginnings of texts and the first tools are looked at.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from mcpx.catalog.search.words import STOP_WORDS, is_cjk, stem, words
from mcpx.model.offer import Offer
from mcpx.model.slices import Work
from mcpx.surfaces.texts.about import told_short
from mcpx.surfaces.texts.boilerplate import (
    DULL,
    LOOKED_AT,
    ended,
    is_of_name,
    plain_sentences,
    without_lead,
)
from mcpx.surfaces.texts.phrases import one_line, words_within
from mcpx.surfaces.view import Service

TOOLS = 60
"""Of a server, in which its own words are looked for."""
LONGEST = 160
"""Characters that are told at most."""
ENOUGH = 2
"""Telling words of a sentence: no other is looked for."""
PLENTY = 5
"""With fewer, the words of the tools are added."""
MOST_WORDS = 8
"""Of the tools."""
ROOMY = 9
"""Tokens in which the beginning of a sentence says enough; in fewer its telling words say more."""
ALIKE = 40
"""Characters by which servers say the same of themselves."""
MOST_RIVALS = 50

_DOING = (
    "get list create delete update add remove set read write search find fetch open close start "
    "stop run execute call"
    " send post put patch retrieve query show view make build generate check validate convert "
    "move copy rename upload"
    " download edit insert append push load save describe explain calculate compute analyze do "
    "apply submit handle take"
    " toggle trigger perform lookup resolve begin end new is has can summarize getter searcher "
    "return enable"
)
_ANY_SERVER = (
    "info information data detail id name all item value result tool mcp server api current "
    "multiple single specific"
    " full available existing type by with v1 v2 implementation base"
)
_THINGS = frozenset(stem(word) for word in _ANY_SERVER.split())
_SAYS_LITTLE = frozenset(stem(word) for word in _DOING.split()) | _THINGS | STOP_WORDS
_LITTLE_ROOM = (
    "ideal general automatic free precise resources resource reference context utilities "
    "real-time current performs"
    " displaying retrieval retrieving retrieves accessing explore understand discover work works "
    "pulls straight"
    " detailed fully including through flexible single dedicated system support supports various "
    "specific first instant"
)
_FLUFF = frozenset(_LITTLE_ROOM.split())
"""Where there is room for two or three words, not these."""
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_]+")
_PIECE = re.compile(r"[^\w\s-]")


def purposes(
    services: Sequence[Service], tools: Mapping[str, Sequence[Offer]]
) -> Work[dict[str, str]]:
    """By server. In slices: there may be thousands."""
    found: dict[str, str] = {}
    alike: dict[str, list[str]] = {}
    for service in services:
        said = found[service.name] = purpose(service, tools.get(service.name, ()))
        alike.setdefault(said[:ALIKE].lower(), []).append(service.name)
        yield
    for rivals in alike.values():
        if len(rivals) > 1:
            found.update(_told_apart(rivals[:MOST_RIVALS], found, tools))
            yield
    return found


def purpose(service: Service, offers: Sequence[Offer]) -> str:
    said = ""
    own = one_line(service.instructions[:LOOKED_AT])
    if service.description and not own.startswith(service.description):  # the user's word
        said = _best(service.description, service.name, instructions=False)
    elif service.instructions:
        said = _best(service.instructions, service.name, instructions=True)
    if (telling := _telling(said, service.name)) < PLENTY:
        more = _of_tools(offers[:TOOLS], service.name)
        said = said if telling or not more else ""
        known = set(words(said.lower()))
        more = [phrase for phrase in more if not known.issuperset(words(phrase.lower()))]
        said = "; ".join(filter(None, (said, ", ".join(more))))
    return words_within(said or one_line(service.description[:LOOKED_AT]), LONGEST)


def fitting(said: str, name: str, tokens: int) -> str:
    """So much of it as these tokens can say, to the end of a phrase or a word; where they are few,
    the telling words.

    `name` is shown beside it. Chinese gets a little more: two characters are a word.
    """
    if _cost(said) <= 4 * tokens:
        return ended(said) or said
    if tokens < ROOMY and said[:20].isascii() and (telling := _telling_words(said, name, tokens)):
        return telling
    at, room = 0, 4 * tokens
    while room > 0:
        room -= _cost(said[at])
        at += 1
    head = said[:at]
    if at < len(said) and (head[-1] + said[at]).isascii() and " " not in (head[-1], said[at]):
        head = head.rpartition(" ")[0] or said.split(" ", 1)[0]
    elif not head[-1:].isascii():
        clause = max(head.rfind(mark) for mark in "，、；：")
        head = head[:clause] if clause > len(head) // 3 else head
    before, semicolon, last = head.rpartition("; ")
    return ended(
        before if semicolon and " " not in last.strip() and not last.endswith(",") else head
    )


def _cost(text: str) -> int:
    """Quarters of a token."""
    return len(text) if text.isascii() else sum(1 if c.isascii() else 3 for c in text)


def _telling_words(said: str, name: str, tokens: int) -> str:
    found: list[str] = []
    room = 4 * tokens
    own = _stems_of(name)
    for token in said.split():
        word = token.strip(".,:;!?()\"'-–—")
        low = word.lower()
        if _says_little(low) or low in DULL or low in _FLUFF or stem(low) in own or word in found:
            continue
        if _cost(word) < room or not found:
            room -= _cost(word) + 1
            found.append(word)
    return " ".join(found)


def _best(text: str, name: str, *, instructions: bool) -> str:
    """Of the first sentences the first that says enough, else the one that says most."""
    found = plain_sentences(text, name, instructions=instructions)
    enough = (said for said in found if _telling(said, name) >= ENOUGH)
    return next(enough, None) or max(found, key=lambda said: _telling(said, name), default="")


def _telling(said: str, name: str) -> int:
    """How many of its first words say something that the name does not."""
    found = 0
    for word in words(said)[:10]:
        if is_cjk(word):
            found += len(word) // 2
        elif word.lower() not in DULL and not is_of_name(word, name):
            found += 1
    return found


# What the tools say
# --------------------------------------------------------------------------------------------------


def _of_tools(offers: Sequence[Offer], server: str) -> list[str]:
    """The words that tell most of what a server's tools are about."""
    if not offers:
        return []
    if len(offers) == 1:
        said = without_lead(told_short(offers[0], 100).rstrip("."))
        return [said or " ".join(_parts_of(offers[0].name))]
    if len(offers) <= 3:
        named = [_parts_of(offer.name) for offer in offers]
        return [
            " ".join(parts[1:] if parts[0] == "get" and len(parts) > 1 else parts)
            for parts in named
            if parts
        ]
    subject = _subject(offers, server)
    things = (thing for thing in _things(offers, server) if thing not in " ".join(subject))
    return [*subject, *things][:MOST_WORDS]


def _parts_of(name: str) -> list[str]:
    return [
        part if part.isupper() and len(part) > 1 else part.lower()
        for part in _PARTS.findall(name[:100])
    ]


def _subject(offers: Sequence[Offer], server: str) -> list[str]:
    """The pair of words that most descriptions begin with, such as `knowledge graph`."""
    counts: Counter[str] = Counter()
    own = _stems_of(server)
    for offer in offers:
        pieces = _PIECE.split(told_short(offer, 120).lower())
        pairs = [pair for piece in pieces for pair in pairwise(piece.split())]
        told = [
            pair
            for pair in pairs
            if not any(map(_says_little, pair)) and not own.issuperset(map(stem, pair))
        ]
        counts.update(dict.fromkeys(map(" ".join, told), 1))
    return [pair for pair, count in counts.most_common(1) if count > 2 and 2 * count >= len(offers)]


def _stems_of(name: str) -> set[str]:
    return {stem(part.lower()) for part in (*_parts_of(name), *words(name))}


def _says_little(word: str) -> bool:
    return len(word) < 3 or word.isdigit() or word in _SAYS_LITTLE or stem(word) in _SAYS_LITTLE


def _things(offers: Sequence[Offer], server: str) -> list[str]:
    """What their names speak of, most frequent first, then in the order of the list."""
    alone: Counter[str] = Counter()
    paired: Counter[tuple[str, str]] = Counter()
    shown: dict[str, str] = {}
    for offer in offers:
        parts = _parts_of(offer.name)
        stems = [stem(part.lower()) for part in parts]
        for part, its in zip(parts, stems, strict=True):
            shown.setdefault(its, part)
        alone.update(dict.fromkeys(stems, 1))
        paired.update(dict.fromkeys(pairwise(stems), 1))
    own = _stems_of(server)
    telling = {
        its for its, part in shown.items() if its not in own and not _says_little(part.lower())
    }
    found: dict[str, int] = {}
    within: set[str] = set()
    for pair, count in paired.items():
        if (
            pair[1] in telling
            and pair[0] in telling | _THINGS
            and count > 1
            and 5 * count >= 3 * max(alone[pair[0]], alone[pair[1]])
        ):
            found[f"{shown[pair[0]]} {shown[pair[1]]}"] = count
            within.update(pair)
    found.update({shown[its]: alone[its] for its in shown if its in telling - within})
    place = {word: number for number, word in enumerate(shown.values())}
    return sorted(found, key=lambda word: (-found[word], place[word.split()[0]]))


def _told_apart(
    rivals: Sequence[str], found: Mapping[str, str], tools: Mapping[str, Sequence[Offer]]
) -> Iterator[tuple[str, str]]:
    """Servers that say the same of themselves: each begins with what only its own tools have."""
    things = {rival: _things(tools.get(rival, ())[:TOOLS], rival) for rival in rivals}
    have = Counter(thing for each in things.values() for thing in set(each))
    for name, its in things.items():
        special = [thing for thing in its if have[thing] == 1][:3]
        if special:
            yield name, words_within(f"{', '.join(special)}; {found[name]}", LONGEST)
