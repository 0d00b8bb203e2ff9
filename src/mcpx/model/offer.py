"""One tool, prompt, resource or resource template as one server offers it."""

from dataclasses import dataclass
from typing import Literal

from mcpx.model.call import Json

Kind = Literal["tools", "prompts", "resources", "templates"]
KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources", "templates")


@dataclass(frozen=True, slots=True)
class Offer:
    kind: Kind
    server: str
    name: str
    """What the server itself calls it: a name, a URI or a URI template."""
    public: str
    """What clients call it."""
    definition: Json
    """As shown to clients: public name and `_meta.proxy` put in, everything else as the server sent it."""


Offers = dict[Kind, list[Json]]
"""What a source offers, as it says it itself."""
