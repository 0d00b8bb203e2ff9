"""How a model that named something wrongly is shown the way, in the words of its surface (SUR-9,
SUR-12).

What was wrong comes first, then near names, the right call, the signature where one tool is meant;
failing all that, what a search finds.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcpx.catalog.catalog import Catalog
from mcpx.model.call import Json
from mcpx.model.errors import NotFound
from mcpx.model.offer import Offer
from mcpx.surfaces.finding.mistakes import Meanings, Mistake, Unknown, listed, near, suggested
from mcpx.surfaces.finding.wanted import introduced
from mcpx.surfaces.large.reading import OWN_NAMES, READER
from mcpx.surfaces.menu import Menu
from mcpx.surfaces.text import NEAREST, cut, quoted, starting
from mcpx.surfaces.view import View

if TYPE_CHECKING:
    from mcpx.surfaces.compact import Compact

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
        close = (
            near(mistake.names[0], mistake.among) if mistake.noun == "servers" or not offers else []
        )
        if close:
            hints.append(suggested(close))
        if offers:
            hints.append(f"There is a tool of that name: {self._calls(offers)}.")
        elif close and mistake.server:
            offer = catalog.native("tools", mistake.server, close[0])
            offers = [] if offer is None else [offer]
        elif not close:
            if (
                mistake.noun != "servers" or len(mistake.names) > 1
            ):  # else nothing was said of a tool
                hints += await self._perhaps(catalog, " ".join(mistake.names))
            hints += [listed(mistake.among, mistake.noun)] if mistake.among else []
            hints += [mistake.otherwise] if mistake.otherwise and len(hints) == 1 else []
        hints += [note] if (note := starting(view)) and not offers else []
        return self._with_signature(" ".join(hints), offers)

    async def no_tool(self, catalog: Catalog, name: str) -> Mistake | NotFound:
        """A tool was called under a name that is none of the surface's own."""
        offers = await self.meant(catalog, name)
        if offers:
            said = f"Tools are not called by name here. Call it as {self._calls(offers)}"
            return Mistake(self._with_signature(said, offers))
        ours = ", ".join(tool["name"] for tool in self._surface.definitions(Menu((), {})))
        hints = [f"The tools here are {ours}."] if ours else []
        return NotFound("tool", name, hint=" ".join([*hints, *await self._perhaps(catalog, name)]))

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
        close = near(name, names, NEAR) if name else []
        said = [
            f"No server is called {quoted(words)}.",
            *([suggested(close)] if close else []),
            "Searched everything:",
        ]
        return introduced(
            await self._surface.finder.search(view, words, limit=HITS), " ".join(said)
        )

    async def _perhaps(self, catalog: Catalog, words: str) -> list[str]:
        """What a search makes of a name that is nobody's."""
        hits = (await self._surface.finder.index(catalog)).search(words[:WORDS], limit=PERHAPS).hits
        offers = [
            catalog.offers["tools"][hit.position] for hit in hits if 2 * hit.score > hits[0].score
        ]
        return [f"Did you mean {self._calls(offers)}?"] if offers else []

    def _calls(self, offers: Sequence[Offer]) -> str:
        calls = dict.fromkeys(
            self._surface.how_to_call(offer, "{...}") for offer in offers[:NEAREST]
        )
        return " or ".join(calls) + (
            f" or {len(offers) - NEAREST} more" if len(offers) > NEAREST else ""
        )

    def _with_signature(self, text: str, offers: Sequence[Offer]) -> str:
        return (
            f"{text}\n{cut(self._surface.signature(offers[0]), LONGEST_SIGNATURE)}"
            if len(offers) == 1
            else text
        )
