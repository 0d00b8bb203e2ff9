"""Explains a model's mistakes: near names, the right call, the signature (SUR-9, SUR-12).

A tool is found by its public name, as `server.tool` with any separator (`/`, `:`, `_`, `__`), with
`mcp__` or a gateway's name before it, by its bare name, and without regard to case, `-` and `_`.
All tools that fit such a name are listed. Nothing is called on such a guess.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from mcpx.base.aio import Work, in_slices
from mcpx.catalog.catalog import Catalog
from mcpx.model.call import Json
from mcpx.model.errors import NotFound
from mcpx.model.offer import Offer
from mcpx.surfaces.large.reading import OWN_NAMES, READER
from mcpx.surfaces.menu import Menu
from mcpx.surfaces.results import said, text_of
from mcpx.surfaces.text import NEAREST, cut, exact, one_line, quoted, starting
from mcpx.surfaces.view import View

if TYPE_CHECKING:
    from mcpx.surfaces.compact import Compact

CANDIDATES = 500
"""Names that are compared letter by letter with one that was not found."""
COMPARED = 60
"""Characters of a name that are compared so."""
LONGEST = 300
"""Characters of what can be a name of a tool in some form."""
TAILS = 4
"""Beginnings of a name that may be left out, one after the other."""
_PIECE = 200
_AROUND = " \t\r\n`'\""
_SEPARATOR = re.compile(r"__|[./:]")
_WRITING = str.maketrans("", "", "_-./: ")


class Mistake(Exception):
    """What a model did wrong, in words that help it to do right. Caught in `Compact.call_tool`."""


class Unknown(Mistake):
    """A name that is nobody's. What it may have meant is found by whoever tells of it
    (`guide.Guide`)."""

    def __init__(
        self,
        said: str,
        *names: str,
        among: Sequence[str] = (),
        noun: str = "tools",
        server: str = "",
        otherwise: str = "",
    ) -> None:
        """`names`: what to look for, the likeliest first. `among`: the names there are, of what
        `noun` says. `server`: whose tool it was to be. `otherwise`: what to say where nothing is
        found."""
        super().__init__(said)
        self.names = names
        self.among = among
        self.noun = noun
        self.server = server
        self.otherwise = otherwise


class Meanings:
    """The tools that a name may mean."""

    def __init__(self) -> None:
        self._plain: tuple[Catalog | None, dict[str, list[Offer]]] = (None, {})
        self._sorting = asyncio.Lock()

    async def of(self, catalog: Catalog, name: str) -> list[Offer]:
        """Every tool of this name, in the first of its forms that any tool has."""
        name = name.strip(_AROUND)
        if len(name) > LONGEST:
            return []
        plain = await self._by_plain_name(catalog)
        for form in _forms(name):
            found = _exactly(catalog, form) or [
                o for o in plain.get(_plain(form), ()) if catalog.sees(o)
            ]
            if found:
                return found
        return []

    async def _by_plain_name(self, catalog: Catalog) -> dict[str, list[Offer]]:
        async with self._sorting:
            whole = catalog.whole  # one for all, whatever each of them sees
            if self._plain[0] is not whole:
                self._plain = (whole, await in_slices(_sorted(whole)))
            return self._plain[1]


def _sorted(catalog: Catalog) -> Work[dict[str, list[Offer]]]:
    known: dict[str, list[Offer]] = {}
    for at, offer in enumerate(catalog.offers["tools"]):
        if at % _PIECE == 0:
            yield
        if len(offer.name) > LONGEST:
            continue
        for key in {_plain(offer.public), _plain(offer.server + offer.name), _plain(offer.name)}:
            known.setdefault(key, []).append(offer)
    known.pop("", None)
    return known


def _forms(name: str) -> Iterator[str]:
    """The name, then what is left of it without what may stand before: `mcp__`, a server that is
    none."""
    if name:
        yield name
    if name[:4].lower() == "mcp_" and name[4:5] not in ("", "_"):
        yield name[4:]
    for at, separator in enumerate(_SEPARATOR.finditer(name)):
        if at == TAILS:
            return
        if rest := name[separator.end() :]:
            yield rest


def _exactly(catalog: Catalog, name: str) -> list[Offer]:
    parts = [name.partition(separator) for separator in (".", "/", ":", "__")]
    split = [catalog.native("tools", server, tool) for server, _, tool in parts]
    found = [catalog.find("tools", name), *split, *catalog.tools_named(name)]
    return list({id(offer): offer for offer in found if offer is not None}.values())


def _plain(name: str) -> str:
    """A name without its way of writing: `fs_read`, `FS.read` and `fs__Read` are one."""
    return name.translate(_WRITING).casefold()


def near(wanted: str, names: Iterable[str], least: float = 0.5) -> list[str]:
    """The names that are spelled nearly so, or hold it."""
    wanted = wanted[:COMPARED].lower()
    lowered = {name[:COMPARED].lower(): name for name in names}
    close = get_close_matches(wanted, list(lowered)[:CANDIDATES], NEAREST, least)
    return [lowered[name] for name in close] or [
        full for name, full in lowered.items() if wanted and wanted in name
    ][:NEAREST]


def suggested(names: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(map(exact, names))}?"


def listed(names: Sequence[str], noun: str) -> str:
    if not names:
        return f"There are no {noun}."
    some = [cut(one_line(name), COMPARED) for name in names[:20]]
    told = f"There are these {noun}: {', '.join(some)}"
    if len(names) > 20:
        told += f" and {len(names) - 20} more"
    return f"{told}."


def nearest(wanted: str, names: Iterable[str], noun: str) -> str:
    """The nearest names, or those there are."""
    names = list(names)
    close = near(wanted, names)
    if close:
        return suggested(close)
    return listed(names, noun)


LONGEST_SIGNATURE = 4_000
"""Characters of it in an error."""
WORDS = 300
"""Characters of what a model said that are searched for."""
HITS = 10
"""Tools that a search gives where words are no name."""
PERHAPS = 3
"""Tools that an error offers where nothing is near."""
NEAR = 0.6
"""How like a name must be to be offered beside what a search finds."""


class Guide:
    """For one surface."""

    def __init__(self, surface: "Compact", meanings: Meanings) -> None:
        self._surface = surface
        self._meanings = meanings

    async def meant(self, catalog: Catalog, *names: str, server: str = "") -> list[Offer]:
        """The tools of the first of these names that is any tool's, in whatever form a model may
        have seen it; those of the server that was named before any other's."""
        if server:
            found = await self._meanings.of(catalog, f"{server}.{names[0]}")
            if own := [offer for offer in found if offer.server == server]:
                return own
        for name in names:
            found = await self._meanings.of(catalog, name)
            found = [offer for offer in found if offer.server == server] or found
            if name == READER.name or name in OWN_NAMES:
                found = [READER, *found]
            if found:
                return found
        return []

    async def explained(self, view: View, mistake: Mistake) -> str:
        """A mistake in words that lead to the right call."""
        if not isinstance(mistake, Unknown):
            return str(mistake)
        catalog, hints = view.catalog, [str(mistake)]
        offers = await self.meant(catalog, *mistake.names, server=mistake.server)
        close: list[str] = []
        if mistake.noun == "servers" or not offers:
            close = near(mistake.names[0], mistake.among)
        if close:
            hints.append(suggested(close))
        if offers:
            hints.append(f"There is a tool of that name: {self._calls(offers)}.")
        elif close and mistake.server:
            offer = catalog.native("tools", mistake.server, close[0])
            offers = [offer] if offer is not None else []
        elif not close:
            hints += await self._otherwise(catalog, mistake)
        note = starting(view)
        if note and not offers:
            hints.append(note)
        return self._with_signature(" ".join(hints), offers)

    async def _otherwise(self, catalog: Catalog, mistake: Unknown) -> list[str]:
        """What to do if no name is near."""
        hints: list[str] = []
        if mistake.noun != "servers" or len(mistake.names) > 1:  # Else no tool was named.
            hints += await self._perhaps(catalog, " ".join(mistake.names))
        if mistake.among:
            hints.append(listed(mistake.among, mistake.noun))
        if mistake.otherwise and not hints:
            hints.append(mistake.otherwise)
        return hints

    async def no_tool(self, catalog: Catalog, name: str) -> Mistake | NotFound:
        """A tool was called under a name that is none of the surface's own."""
        offers = await self.meant(catalog, name)
        if offers:
            said = f"Tools are not called by name here. Call it as {self._calls(offers)}"
            return Mistake(self._with_signature(said, offers))
        ours = ", ".join(tool["name"] for tool in self._surface.definitions(Menu((), {})))
        hints = await self._perhaps(catalog, name)
        if ours:
            hints.insert(0, f"The tools here are {ours}.")
        return NotFound("tool", name, hint=" ".join(hints))

    async def searched(self, view: View, words: str) -> Json:
        """What is told where a server was to be named and is not: a search over everything, after
        names that are near. What can only be the name of a tool in another form is a mistake."""
        catalog = await view.prepare()
        names = [service.name for service in view.services()]
        unknown = Unknown(f"Unknown server {quoted(words)}.", words, among=names, noun="servers")
        name = words if len(words.split()) == 1 else ""
        if name and (any(sign in name for sign in "./:") or await self.meant(catalog, name)):
            raise unknown
        words = words[:WORDS]
        if not (await self._surface.finder.index(catalog)).search(words, limit=1).hits:
            raise unknown
        said = [f"No server is called {quoted(words)}."]
        close = near(name, names, NEAR)
        if name and close:
            said.append(suggested(close))
        said.append("Searched everything:")
        found = await self._surface.finder.search(view, words, limit=HITS)
        return _introduced(found, " ".join(said))

    async def _perhaps(self, catalog: Catalog, words: str) -> list[str]:
        """What a search makes of a name that is nobody's."""
        hits = (await self._surface.finder.index(catalog)).search(words[:WORDS], limit=PERHAPS).hits
        offers = [
            catalog.offers["tools"][hit.position] for hit in hits if 2 * hit.score > hits[0].score
        ]
        if not offers:
            return []
        return [f"Did you mean {self._calls(offers)}?"]

    def _calls(self, offers: Sequence[Offer]) -> str:
        calls = [self._surface.how_to_call(offer, "{...}") for offer in offers[:NEAREST]]
        if len(offers) > NEAREST:
            calls.append(f"{len(offers) - NEAREST} more")
        return " or ".join(dict.fromkeys(calls))

    def _with_signature(self, text: str, offers: Sequence[Offer]) -> str:
        if len(offers) != 1:
            return text
        return f"{text}\n{cut(self._surface.signature(offers[0]), LONGEST_SIGNATURE)}"


def _introduced(reply: Json, words: str) -> Json:
    """A reply with a line before its text."""
    first, *others = reply["content"]
    return {**reply, "content": [said(f"{words}\n{text_of(first) or ''}"), *others]}
