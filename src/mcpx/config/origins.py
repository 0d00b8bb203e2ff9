"""Where the parts of a tree stood before it was translated or put together from several files.

Promised: every path leads to a file and a path as its author wrote it, through as many trees as lie
between.
"""

from typing import Protocol

from mcpx.config.problems import Spot
from mcpx.config.tree import KeyPath


class Traced(Protocol):
    """A file, or a tree made from others."""

    def trace(self, path: KeyPath) -> Spot: ...


class Origins:
    """The nearest moved ancestor decides; what was never moved stands where it is in the tree
    below."""

    def __init__(self, below: Traced) -> None:
        self._below = below
        self._moved: dict[KeyPath, tuple[Traced, KeyPath]] = {}

    def __setitem__(self, path: KeyPath, written: KeyPath) -> None:
        """It stands elsewhere in the tree below."""
        self._moved[path] = self._below, written

    def adopt(self, path: KeyPath, origins: Traced, there: KeyPath) -> None:
        """It came from another tree, with all that is in it."""
        self._moved[path] = origins, there

    def trace(self, path: KeyPath) -> Spot:
        for length in range(len(path), 0, -1):
            if (found := self._moved.get(path[:length])) is not None:
                origins, there = found
                return origins.trace(there + path[length:])
        return self._below.trace(path)

    def literal(self, path: KeyPath) -> str | None:
        """How a scalar is spelled in its file."""
        file, written = self.trace(path)
        return file.literal(written)
