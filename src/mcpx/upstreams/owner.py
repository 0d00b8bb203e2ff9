"""What a link tells whoever it belongs to (`connections`)."""

from typing import TYPE_CHECKING, Protocol

from mcpx.model.call import Json

if TYPE_CHECKING:
    from mcpx.upstreams.link import Link


class Owner(Protocol):
    """Whose links they are: told what becomes of them, and what is heard on them outside of any
    call."""

    def heard(self, link: "Link", method: str, params: Json, owner: object | None) -> None:
        """`owner` is the one client it concerns; None concerns everybody."""
        ...

    def output_began(self) -> None:
        """The process of a link that is being opened has written its first byte to standard
        output."""
        ...

    def lost(self, link: "Link", reason: str) -> None: ...

    def retired(self, link: "Link") -> None:
        """It is let go, and on its way out."""
        ...

    def rested(self, link: "Link") -> None:
        """It carries no call any more."""
        ...

    def answered(self) -> None:
        """A call is answered in which the server could have asked something."""
        ...

    def asked(self, method: str) -> None:
        """The server put a question, whoever it was for."""
        ...

    def asked_late(self) -> None:
        """The server put a question while nobody had a call there, on a link that had carried
        some."""
        ...

    def bound(self, link: "Link") -> None:
        """It is private to a session from now on."""
        ...

    def main_changed(self, link: "Link") -> None:
        """Another link is the main one; the old one goes."""
        ...

    def spoilt(self, link: "Link") -> None:
        """Nobody can be lent the main link any more."""
        ...

    def varies(self) -> bool:
        """Whether the server offers different things to different kinds of clients."""
        ...
