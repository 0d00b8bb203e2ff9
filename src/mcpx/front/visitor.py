"""Who a request comes from, and through which door they came in."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcpx.model.call import ANONYMOUS

if TYPE_CHECKING:
    from mcpx.front.identity.badge import Badge


@dataclass(frozen=True, slots=True)
class Visitor:
    principal: str = ANONYMOUS
    profile: str | None = None
    """The named view they came in through; None: everything."""
    address: str = ""
    """Of their machine, by the word of a proxy that is trusted; empty where there is no network
    between."""
    badge: "Badge | None" = None
    """What they showed to be let in (never the secret); None where nothing is asked for."""

    def owns(self, other: "Visitor") -> bool:
        """Whether what the other began is this one's too: whose it is and what they see of it must
        be the same. Not the address: that of a laptop changes, and a renewed token is another badge
        of the same principal."""
        return self.principal == other.principal and self.profile == other.profile
