"""What `auto` chose for whom. Outlives a reload: a session keeps its surface (SUR-5)."""

from dataclasses import dataclass

REMEMBERED = 10_000
"""Choices kept; as many as there may be sessions."""


@dataclass(frozen=True, slots=True)
class Choice:
    client: str
    mode: str
    reason: str


class Choices:
    def __init__(self) -> None:
        self._made: dict[str, Choice] = {}

    def of(self, key: str) -> Choice | None:
        return self._made.get(key)

    def keep(self, key: str, choice: Choice) -> None:
        while len(self._made) >= REMEMBERED:
            del self._made[next(iter(self._made))]
        self._made[key] = choice

    def forget(self, key: str) -> None:
        self._made.pop(key, None)

    def latest(self, number: int = 20) -> list[Choice]:
        return list(self._made.values())[-number:]
