"""Where each term occurs and how much it says there: BM25F over the fields of a tool, worked out
once.

Promised: building is linear in the text that is read, which is bounded for each field; what is kept
is two small numbers for each term and document. Not promised: the text itself. It is not kept, and
cannot be shown again.
"""

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mcpx.base.aio import Work, at_once
from mcpx.catalog.search.words import STOP_WORDS, is_cjk, pieces, terms, words


@dataclass(frozen=True, slots=True)
class Field:
    weight: float
    evenness: float
    """BM25's b: how far the words of a long field count less."""
    characters: int
    """What is read of it, at most."""
    terms: int
    """What is kept of that, at most."""


# Chosen once, on a plateau (docs/search.md); not finely tuned. The bounds hold all of nearly every
# real tool.
NAME = Field(3.0, 0.75, 200, 40)
SERVICE = Field(2.0, 0.75, 200, 40)
SERVICE_DESCRIPTION = Field(0.5, 0.75, 1_000, 200)
DESCRIPTION = Field(1.0, 0.75, 4_000, 700)
PARAMETER_NAMES = Field(1.0, 0.75, 2_000, 200)
PARAMETER_DESCRIPTIONS = Field(0.5, 0.75, 4_000, 500)
FIELDS = (NAME, SERVICE, SERVICE_DESCRIPTION, DESCRIPTION, PARAMETER_NAMES, PARAMETER_DESCRIPTIONS)
SATURATION = 2.0
"""BM25's k1: how long more of the same word goes on to count."""

_NEW_TERMS = 20_000
"""So many terms may a service bring in that nobody had before it. (All 70 services of the measured
set have 5,000.)"""

_MANY = 20
"""Documents: in a small catalog a seventh of it is not yet many."""

_PIECE = 100
"""Small steps between two points at which the work may be interrupted."""

Texts = tuple[str, str, str, str, str, str]
"""The text of each field, in the order of `FIELDS`."""


class Postings:
    """Built from the texts of all documents, then only read."""

    __slots__ = ("_count", "_found", "chinese", "written")

    def __init__(self, documents: Iterable[Texts]) -> None:
        reading = Reading()
        for texts in documents:
            reading.document(texts)
        at_once(self._weigh(reading))

    @classmethod
    def building(cls, reading: "Reading") -> Work["Postings"]:
        """From what was read, to be done in slices."""
        postings = cls.__new__(cls)
        yield from postings._weigh(reading)
        return postings

    def _weigh(self, reading: "Reading") -> Work[None]:
        self._count = len(reading.rows)
        self.written = reading.written
        self.chinese = reading.chinese
        self._found = yield from _weighed(reading.rows, list(reading.numbers))

    def __contains__(self, term: str) -> bool:
        return term in self._found

    def of(self, term: str) -> Iterator[tuple[int, float]]:
        """Position and score of each document that holds this term, in order."""
        return zip(*self._found[term], strict=True)

    def said(self, term: str, position: int) -> float:
        """The score of one document."""
        positions, scores = self._found[term]
        at = bisect_left(positions, position)
        return scores[at] if at < len(positions) and positions[at] == position else 0.0

    def count(self, term: str) -> int:
        """How many documents hold this term."""
        return len(self._found[term][0])

    def rarity(self, term: str) -> float:
        """BM25's idf."""
        return _rarity(len(self._found[term][0]), self._count)

    def is_common(self, term: str) -> bool:
        """Whether very many tools say it."""
        return len(self._found[term][0]) > max(_MANY, self._count // 7)

    @property
    def unheard(self) -> float:
        """The rarity of a word that occurs nowhere."""
        return _rarity(0, self._count)


class Reading:
    """Turns texts into numbers, one for each term. A word is cut and stemmed once, however often it
    comes."""

    __slots__ = ("_brought", "_known", "_services", "chinese", "numbers", "rows", "written")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.rows: list[tuple[array[int], ...]] = []
        """The terms of each document, by field."""
        self.written: set[str] = set()
        self.chinese = False
        """Whether any text is written in Chinese characters."""
        self._known: dict[str, tuple[int, ...]] = {}
        self._services: dict[tuple[str, str], tuple[array[int], array[int]]] = {}
        self._brought: Counter[str] = Counter()

    def document(self, texts: Texts) -> None:
        name, service, service_description, *rest = texts
        before = len(self.numbers)
        open_to_new = self._brought[service] < _NEW_TERMS
        about = self._services.get((service, service_description))
        if about is None:
            about = (
                self._text(service, SERVICE, open_to_new),
                self._text(service_description, SERVICE_DESCRIPTION, open_to_new),
            )
            self._services[service, service_description] = about
        own = [
            self._text(text, field, open_to_new)
            for text, field in zip(rest, FIELDS[3:], strict=True)
        ]
        self.rows.append((self._text(name, NAME, open_to_new), *about, *own))
        self._brought[service] += len(self.numbers) - before

    def _text(self, text: str, field: Field, open_to_new: bool) -> "array[int]":
        found = array("I")
        for word in words(text[: field.characters]):
            numbers = self._known.get(word)
            if numbers is None:
                numbers = self._word(word, open_to_new)
            found.extend(numbers)
        return found[: field.terms]

    def _word(self, word: str, open_to_new: bool) -> tuple[int, ...]:
        if not open_to_new:
            # Not kept among the known: another service may bring it in.
            return tuple(self.numbers[term] for term in terms(word) if term in self.numbers)
        if is_cjk(word):
            self.chinese = True
        else:
            self.written.update(piece for piece in pieces(word) if piece not in STOP_WORDS)
        self._known[word] = tuple(
            self.numbers.setdefault(term, len(self.numbers)) for term in terms(word)
        )
        return self._known[word]


def _weighed(
    rows: Sequence[tuple["array[int]", ...]], vocabulary: Sequence[str]
) -> Work[dict[str, tuple["array[int]", "array[float]"]]]:
    """For each term the positions and scores, with rarity and saturation worked in."""
    totals = [0] * len(FIELDS)
    for at, row in enumerate(rows):
        for field, numbers in enumerate(row):
            totals[field] += len(numbers)
        if at % _PIECE == 0:
            yield
    lengths = [total / len(rows) for total in totals] if rows else []
    positions = [array("I") for _ in vocabulary]
    scores = [array("f") for _ in vocabulary]
    for position, row in enumerate(rows):
        frequency: dict[int, float] = {}
        for field, numbers, length in zip(FIELDS, row, lengths, strict=True):
            if numbers:
                each = field.weight / (1 - field.evenness + field.evenness * len(numbers) / length)
                for number in numbers:
                    frequency[number] = frequency.get(number, 0.0) + each
        for number, value in frequency.items():
            positions[number].append(position)
            scores[number].append(value / (SATURATION + value))
        yield
    found: dict[str, tuple[array[int], array[float]]] = {}
    for at, (term, where, values) in enumerate(zip(vocabulary, positions, scores, strict=True)):
        if at % _PIECE == 0:
            yield
        rarity = _rarity(len(where), len(rows))
        found[term] = where, array("f", [value * rarity for value in values])
    return found


def _rarity(holding: int, count: int) -> float:
    return math.log(1 + (count - holding + 0.5) / (holding + 0.5))
