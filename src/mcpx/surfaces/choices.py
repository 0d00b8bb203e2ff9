"""What `auto` chose for whom. Outlives a reload: a session keeps its surface (SUR-5)."""

from dataclasses import dataclass

from mcpx.model.call import Json
from mcpx.surfaces import SURFACES

REMEMBERED = 10_000
"""Choices kept; as many as there may be sessions."""


@dataclass(frozen=True, slots=True)
class Choice:
    client: str
    mode: str
    reason: str


def read(about: Json) -> Choice | None:
    """As another replica told it."""
    words = [about.get(name) for name in Choice.__slots__]
    client, mode, reason = (word if isinstance(word, str) else None for word in words)
    if client is None or mode is None or reason is None or mode not in SURFACES:
        return None
    return Choice(client, mode, reason)


class Choices:
    def __init__(self) -> None:
        self._made: dict[str, Choice] = {}

    def of(self, key: str) -> Choice | None:
        return self._made.get(key)

    async def find(self, key: str) -> Choice | None:
        """The same for somebody without a session, who may have been shown it elsewhere."""
        return self.of(key)

    def keep(self, key: str, choice: Choice, *, everywhere: bool = False) -> None:
        """`everywhere`: for a list to somebody without a session, whose calls may come to any
        replica."""
        while len(self._made) >= REMEMBERED:
            self._drop(next(iter(self._made)))
        self._made[key] = choice

    def _drop(self, key: str) -> None:
        """For want of room."""
        self.forget(key)

    def forget(self, key: str) -> None:
        self._made.pop(key, None)

    def latest(self, number: int = 20) -> list[Choice]:
        return list(self._made.values())[-number:]

    async def close(self) -> None:
        """Nothing is left to do."""
