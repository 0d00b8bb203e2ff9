"""Names of arguments in other spellings: case and outer blanks.

Servers written in Go ignore the case of names. A rule on `text` must therefore also match `Text`
and `text `. A reading is a copy of the arguments in which the name of the rule replaces one of the
other spellings. Two spellings that the tool's schema declares are two arguments.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from mcpx.model.call import Json, is_array, is_object

MAX_SPELLINGS = 8
"""Spellings of one name in one call. More of them cannot be judged."""
MAX_DEPTH = 32
"""Levels of arguments."""
MAX_VALUES = 20_000
"""Values that one reading may visit."""


class TooManySpellings(Exception):
    """The arguments are too large, or have too many spellings of one name."""


class SpelledNames:
    """The names that the conditions of one rule lead through."""

    def __init__(self, names: Iterable[str]) -> None:
        self._top: dict[str, str] = {}
        self._nested: dict[str, str] = {}
        for name in names:
            steps = name.split(".")
            for start in range(len(steps)):
                for end in range(start + 1, len(steps) + 1):
                    step = ".".join(steps[start:end])  # A key may contain dots.
                    table = self._nested if start else self._top
                    table.setdefault(fold(step), step)

    def readings(self, arguments: Json, declared: Collection[str]) -> Iterator[Json]:
        """The arguments with other spellings replaced, if they have any. Raises
        `TooManySpellings`."""
        for turn in range(MAX_SPELLINGS + 1):
            attempt = _Attempt(self._nested, turn)
            reading = attempt.top(arguments, self._top, declared)
            if attempt.most_spellings <= turn:
                return
            if turn == MAX_SPELLINGS:
                raise TooManySpellings
            yield reading


class _Attempt:
    """One reading of the arguments: with spelling number `turn` of each name."""

    def __init__(self, nested: Mapping[str, str], turn: int) -> None:
        self._nested = nested
        self._turn = turn
        self._room = MAX_VALUES
        self.most_spellings = 0

    def top(self, arguments: Json, names: Mapping[str, str], declared: Collection[str]) -> Json:
        both = {key for key in arguments if key in declared and names.get(fold(key)) in declared}
        return self._respelled(arguments, names, both, 0)

    def _respelled(
        self, value: Json, names: Mapping[str, str], separate: Collection[str], depth: int
    ) -> Json:
        self._count(len(value))
        reading = value
        for name, keys in self._other_spellings(value, names, separate).items():
            self.most_spellings = max(self.most_spellings, len(keys))
            reading = {**reading, name: value[keys[min(self._turn, len(keys) - 1)]]}
        if self._nested:
            for key in [key for key in reading if fold(key) in names]:
                inner = self._inside(reading[key], depth + 1)
                if inner is not reading[key]:
                    reading = {**reading, key: inner}
        return reading

    def _other_spellings(
        self, value: Json, names: Mapping[str, str], separate: Collection[str]
    ) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for key in value:
            name = names.get(fold(key))
            if name is not None and key != name and key not in separate:
                found.setdefault(name, []).append(key)
        return found

    def _inside(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise TooManySpellings
        if is_object(value):
            return self._respelled(value, self._nested, (), depth)
        if not is_array(value):
            return value
        self._count(len(value))
        items = [self._inside(item, depth + 1) for item in value]
        return (
            items if any(item is not old for item, old in zip(items, value, strict=True)) else value
        )

    def _count(self, values: int) -> None:
        self._room -= values
        if self._room < 0:
            raise TooManySpellings


def fold(name: str) -> str:
    return name.strip().casefold()
