"""How a link reaches a server. One class per way: its config fields and its behaviour.

A transport opens conversations; it knows nothing of eras, catalogs or callers.
"""

from typing import TYPE_CHECKING, ClassVar, Protocol

from mcpx.model.family import Family
from mcpx.transports.http import Http
from mcpx.transports.sse import Sse
from mcpx.transports.stdio import Stdio
from mcpx.transports.websocket import Websocket

if TYPE_CHECKING:
    from mcpx.transports.dial import Dial
    from mcpx.wire.peer import Conversation


class Transport(Protocol):
    """A frozen dataclass, whose fields are its keys in a config file."""

    type: ClassVar[str]

    async def open(self, dial: "Dial") -> "Conversation": ...


def starts_process(transport: Transport) -> bool:
    """Whether each of its conversations is a process of its own, which costs more than a
    connection."""
    return getattr(transport, "starts_process", False)


def downloads_itself(transport: Transport) -> bool:
    """Return True if the process of this transport may have to download the server first
    (LIF-10)."""
    return getattr(transport, "downloads_itself", False)


TRANSPORTS: Family[Transport] = Family(
    "mcpx.transports",
    "mcpx.transports",
    beside=(
        "dial",
        "memory",
        "proving",
        "refusals",
        "replies",
        "sinks",
    ),
    needs=("open",),
    keys=True,
)
"""What a config file may name. `memory` is for programs that bring their own server."""

__all__ = [
    "TRANSPORTS",
    "Http",
    "Sse",
    "Stdio",
    "Transport",
    "Websocket",
    "downloads_itself",
    "starts_process",
]
