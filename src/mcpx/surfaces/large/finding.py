"""`grep` in a kept result: which rows, keys or lines contain a text (SUR-11).

Promise: a plain substring, in lower case on both sides when what is looked for has no capitals.
JSON is looked through as compact JSON, where the text may stand as it is or as JSON spells it.
Linear in what is looked through.
"""

from collections.abc import Iterable

from mcpx.formats.json import as_json
from mcpx.surfaces.large.excerpt import cut


class Needle:
    """What is looked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = text == text.lower()
        """A text without capitals finds both."""
        self._spellings = {text, as_json(text)[1:-1]}

    def quoted(self) -> str:
        return as_json(cut(self.text, 40))

    def fold(self, text: str) -> str:
        """What to look through, with every character where it was: one letter alone would become
        two."""
        return text.replace("İ", "i").lower() if self.folded else text

    def in_lines(self, lines: Iterable[str]) -> list[int]:
        return [number for number, line in enumerate(lines) if self.text in self.fold(line)]

    def in_json(self, values: Iterable[object]) -> list[int]:
        """Which of some lists or objects contain it; what is around their items is not theirs."""
        return [number for number, value in enumerate(values) if self._is_in(as_json(value)[1:-1])]

    def _is_in(self, text: str) -> bool:
        text = self.fold(text)
        return any(spelling in text for spelling in self._spellings)
