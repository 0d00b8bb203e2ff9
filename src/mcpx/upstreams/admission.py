"""Whether what a server says of itself may be shown (SEC-5), as its upstream sees it.

A server that is trusted as it comes has none. Every way out of an upstream goes through it: lists
of everybody, of some clients, of one session and of an earlier run, and what the server says about
itself.
"""

from collections.abc import Collection, Iterable
from typing import Protocol

from mcpx.model.offer import Kind, Offers
from mcpx.model.slices import Work


class Admission(Protocol):
    @property
    def shown(self) -> bool:
        """Whether clients may know anything of the server."""
        ...

    @property
    def seen(self) -> bool:
        """Whether there is anything to judge by: if not, what it offered in an earlier run counts
        for nothing."""
        ...

    @property
    def held(self) -> int:
        """Definitions that are held back."""
        ...

    @property
    def notes(self) -> list[str]:
        """What there is to tell to whoever looks after the gateway."""
        ...

    def admitted(self, offers: Offers) -> Offers:
        """What of a list may be shown; the same object for the same list."""
        ...

    def instructions(self, text: str) -> str: ...

    def studying(self, offers: Offers) -> Work[None]:
        """Before a new list is judged: what takes long."""
        ...

    def look(
        self, offers: Offers, instructions: str, told: Collection[Kind], some: Iterable[Offers] = ()
    ) -> None:
        """What the server offers to everybody, as it has told itself, and what to some; `told`:
        which lists it told."""
        ...
