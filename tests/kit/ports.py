"""TCP ports for tests."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_port() -> Iterator[int]:
    """A local port that refuses connections and that no other process can take inside the block."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # Without `listen`, the system refuses connections.
        yield bound.getsockname()[1]
