"""What of everything some callers see."""

from typing import Protocol

from mcpx.model.offer import Offer


class Sight(Protocol):
    """Whatever it says no to reads as if it did not exist. Callers who see the same have the same
    object, so that what is made for one (a narrowed catalog, a menu) is there for all of them."""

    @property
    def weight(self) -> int:
        """How much work one offer is, in patterns that may have to be tried."""
        ...

    @property
    def picks(self) -> bool:
        """Whether it may tell one resource of a server from another; else all of a server's are
        seen, or none."""
        ...

    def server(self, name: str) -> bool:
        """Whether anything of that server may be known: its name, its state, its words."""
        ...

    def offer(self, offer: Offer) -> bool:
        """A tool, prompt, resource or template."""
        ...

    def resource(self, server: str, uri: str) -> bool:
        """A resource by the server's own URI, listed or not."""
        ...


class Blind:
    """Sees nothing: whoever came in through a profile that is gone."""

    weight = 0
    picks = False

    def server(self, name: str) -> bool:
        return False

    def offer(self, offer: Offer) -> bool:
        return False

    def resource(self, server: str, uri: str) -> bool:
        return False


NOTHING: Sight = Blind()
