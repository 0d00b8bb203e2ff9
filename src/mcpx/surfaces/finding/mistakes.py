"""What a model said wrong, and what it may have meant: near names, and tools of that name in any
form (SUR-9).

Promised: a tool is found by its public name, as `server.tool` with any separator (`/`, `:`, `_`,
`__`), with `mcp__` or a gateway's name before it, by its bare name, and without regard to case, `-`
and `_`; all tools that such a name fits are told. Nothing is called on such a guess: who reads it
decides.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from mcpx.catalog.catalog import Catalog
from mcpx.model.offer import Offer
from mcpx.model.slices import Work, in_slices
from mcpx.surfaces.text import NEAREST, cut, exact, one_line

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
    some = ", ".join(cut(one_line(name), COMPARED) for name in names[:20])
    return (
        f"There are these {noun}: "
        f"{some}{f' and {len(names) - 20} more' if len(names) > 20 else ''}."
    )


def nearest(wanted: str, names: Iterable[str], noun: str) -> str:
    """The nearest names, or those there are."""
    names = list(names)
    return suggested(close) if (close := near(wanted, names)) else listed(names, noun)
