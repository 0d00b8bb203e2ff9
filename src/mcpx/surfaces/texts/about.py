"""What a tool is told to be, in few words: its description without what the signature tells, and
its marks.

    surface.signature(offer) + mark(offer) + ": " + told_short(offer)

Descriptions are strangers' texts: what is returned is on one line and printable, but for
`Docstring.text`, which keeps its lines.
"""

from collections.abc import Mapping
from itertools import islice

from mcpx.catalog.entries import description_of, hints_of
from mcpx.model.call import as_object
from mcpx.model.offer import Offer
from mcpx.surfaces.texts.docstrings import MOST_NAMES, Docstring, read
from mcpx.surfaces.texts.phrases import SHORT, one_line, short

LOOKED_AT = 1_000
"""Characters of a description in which its first sentences are looked for: menus and searches look
at hundreds."""
READ_ONLY, DESTRUCTIVE, DEPRECATED = "read-only", "destructive", "deprecated"


def marks(offer: Offer) -> tuple[str, ...]:
    """What a model should know before it calls the tool: as the server hints."""
    hints = hints_of(offer)
    found = (
        (hints.read_only, READ_ONLY),
        (hints.destructive, DESTRUCTIVE),
        (hints.deprecated, DEPRECATED),
    )
    return tuple(word for said, word in found if said)


def mark(offer: Offer) -> str:
    """The same as it stands behind a signature, e.g. ` [read-only]`; mostly nothing."""
    words = marks(offer)
    return f" [{', '.join(words)}]" if words else ""


def docstring_of(offer: Offer, most: int | None = None) -> Docstring:
    """The description taken apart; of a long one, where nobody will read more, so many
    characters."""
    properties = as_object(as_object(offer.definition.get("inputSchema")).get("properties"))
    said = {
        name: as_object(part).get("description")
        for name, part in islice(properties.items(), MOST_NAMES)
    }
    parameters = {
        name: one_line(text[:1000]) if isinstance(text, str) else "" for name, text in said.items()
    }
    return read(description_of(offer)[:most], parameters)


def notes_of(offer: Offer) -> Mapping[str, str]:
    """By parameter: what only the description says of it. For `formats.typescript.signature(...,
    notes=...)`."""
    return docstring_of(offer).notes


def told(offer: Offer) -> str:
    """The description on one line, without blocks about parameters, results, errors and
    examples."""
    return one_line(docstring_of(offer, LOOKED_AT).text)


def told_short(offer: Offer, most: int = SHORT) -> str:
    """Its beginning: whole sentences if they say enough, else whole words and `...`."""
    return short(docstring_of(offer, LOOKED_AT).text, most)
