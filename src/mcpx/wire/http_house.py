"""What the connections of one HTTP server have in common: their limits, and the house that counts
them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mcpx.wire.exchange import PHRASES, Exchange, status_line
from mcpx.wire.flow import Budget

if TYPE_CHECKING:
    from mcpx.wire.http_connection import Connection


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost. Times in seconds and for the whole phase: dripping bytes gains
    nothing."""

    header_bytes: int = 65536
    body_bytes: int = 4 * 2**20
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    keep_alive: float = 75.0
    """Longer than the pools of clients keep idle connections (Node 4 s, Go and aiohttp 15 to
    90)."""
    connections: int = 4096
    write_timeout: float = 30.0
    """A reader that takes next to nothing for so long is dropped."""
    waiting_bytes: int = 128 * 2**20
    """What may wait to be read by all clients together."""
    bodies_bytes: int = 256 * 2**20
    """The bodies of all requests that are being read or answered. Beyond it the next large one is
    refused."""


class House(Protocol):
    """What all connections share."""

    limits: Limits
    handler: Callable[[Exchange], None]
    forestall: Callable[[Exchange], int | None] | None
    """The status with which a request is refused whatever its body says, asked before much of that
    was read."""
    refusal: Callable[[int], bytes]
    """Builds the last response of a connection, from its status."""
    now: float
    """By the coarse clock of all of them."""
    closing: bool
    bodies: int
    """Bytes of large bodies, of requests being read or answered."""
    budget: Budget

    def admit(self, connection: "Connection") -> bool: ...

    def adopt(self, transport: asyncio.Transport) -> None: ...

    def forget(self, connection: "Connection") -> None: ...


_MORE = {401: b"www-authenticate: Bearer\r\n", 503: b"retry-after: 1\r\n"}


def refusal(status: int) -> bytes:
    """The whole answer to a client that is not heard any further."""
    text = PHRASES[status]
    head = status_line(status, "text/plain") + _MORE.get(status, b"")
    return head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(text) + text
