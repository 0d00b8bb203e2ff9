"""Modes that `auto` chose for clients. They outlive a reload (SUR-5).

A replica that continues a session of another one gets the choice with the session.
"""

from dataclasses import dataclass

from mcpx.base.caching import Lru
from mcpx.model.call import Json
from mcpx.surfaces import SURFACES

MAX_CHOICES = 10_000
"""As many as sessions."""


@dataclass(frozen=True, slots=True)
class Choice:
    client: str
    mode: str
    reason: str


def read(about: Json) -> Choice | None:
    """Return the choice of another replica, or None if it is not valid."""
    words = [about.get(name) for name in Choice.__slots__]
    if about.get("mode") not in SURFACES or not all(isinstance(word, str) for word in words):
        return None
    return Choice(**{name: about[name] for name in Choice.__slots__})


class Choices:
    def __init__(self) -> None:
        self._made: Lru[str, Choice] = Lru(MAX_CHOICES)

    def of(self, key: str) -> Choice | None:
        return self._made.get(key)

    def keep(self, key: str, choice: Choice) -> None:
        self._made[key] = choice

    def forget(self, key: str) -> None:
        self._made.pop(key, None)

    def latest(self, number: int = 20) -> list[Choice]:
        return list(self._made.values())[-number:]
