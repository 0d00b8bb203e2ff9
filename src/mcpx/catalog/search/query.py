"""A query as concepts: what each of its words can be called by the tools.

Promised: one word of the query is one concept however many names it has, so a word with five
translations does not count five times; the number of concepts is bounded whatever the query holds.
Not promised: grammar. Word order and negation are not read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from mcpx.catalog.search.glossary import Names, chinese, in_chinese, synonyms
from mcpx.catalog.search.postings import Postings
from mcpx.catalog.search.words import (
    LONGEST_WORD,
    STOP_WORDS,
    grams,
    is_cjk,
    pieces,
    stem,
    stems,
    words,
)

LONGEST_QUERY = 2_000
"""Characters that are read."""
_MOST_CONCEPTS = 128
_MOST_NAMES = 16
"""Of one English word, its synonyms among them."""
_MOST_GUESSES = 8
"""Words that are looked up among the near ones, a query."""
_MOST_UNFINISHED = 3
"""In a query of so many words the last may be unfinished."""
_SHORTEST_HALF = 3
"""Of two words that are written as one."""
_REMEMBERED = 1_024
"""Words whose names are kept for the next query."""

# How much a name counts that does not stand in the query itself.
SYNONYM = 0.5
UNFINISHED = 0.6
GUESSED = 0.6
TRANSLATED = 0.7
"""An English word in a tool that is described in Chinese."""
# Chinese as it is written, beside its translation. Single characters say little.
CHARACTER = 0.2
PAIR = 0.5


class Name(NamedTuple):
    """One way to say a concept: terms that belong together, and how much they count. (Made by the
    hundred.)"""

    terms: tuple[str, ...]
    weight: float = 1.0


class Concept(NamedTuple):
    """What one word of the query asks for."""

    names: tuple[Name, ...]
    """None of them when no tool says anything like it."""
    worth: float
    """How much it says: the rarity of the word that was written. 0 for what only repeats another
    concept."""
    detail: bool = False
    """Whether it looks like a name, a number or what is to be told: what to do it with, not what to
    do."""


class _Known(NamedTuple):
    """What the index knows of one word."""

    own: tuple[Name, ...]
    others: tuple[Name, ...]
    rarity: float | None


def concepts(query: str, postings: Postings) -> list[Concept]:
    """What to look for."""
    return Asking(postings).concepts([query])[0]


class Asking:
    """Reads queries to one index. Remembers the words it looked up."""

    __slots__ = ("_known", "_postings")

    def __init__(self, postings: Postings) -> None:
        self._postings = postings
        self._known: dict[tuple[str, ...], _Known] = {}

    def concepts(self, parts: Sequence[str]) -> list[list[Concept]]:
        """What to look for, part by part: names that occur in the index only."""
        raw = [list(self._unfolded(part)) for part in parts]
        # Of a short query the end may be unfinished, and is when nothing follows it.
        finished = sum(map(len, raw)) > _MOST_UNFINISHED or not parts[-1][-1:].isalnum()
        written = {
            term
            for some in raw
            for word in some
            if not is_cjk(word)
            for term in stems(pieces(word))
        }
        found: list[list[Concept]] = []
        room, guesses = _MOST_CONCEPTS, _MOST_GUESSES
        for some in raw:
            part: dict[Concept, None] = {}
            for at, word in enumerate(some):
                if len(part) >= room:
                    break
                if is_cjk(word):
                    part.update(dict.fromkeys(islice(self._chinese(word), room)))
                elif word.lower() not in STOP_WORDS:
                    concept = self._english(some, at, written)
                    if not concept.names and guesses:
                        guesses -= 1
                        unfinished = not finished and some is raw[-1] and at == len(some) - 1
                        concept = concept._replace(
                            names=tuple(self._guessed(pieces(word)[0], unfinished))
                        )
                    part[concept] = None
            found.append(list(part)[:room])
            room -= len(found[-1])
        return found

    def _unfolded(self, query: str) -> Iterator[str]:
        """The raw words of a query; what is joined (`readFile`) comes in parts unless the tools
        join it too."""
        for word in words(query[:LONGEST_QUERY]):
            whole, *parts = (word,) if is_cjk(word) else pieces(word)
            if parts and stem(whole) not in self._postings:
                yield from parts
            else:
                yield word if is_cjk(word) else word[:LONGEST_WORD]

    def _english(self, raw: Sequence[str], at: int, written: set[str]) -> Concept:
        """A word as it stands, with a neighbour (`box plot` for `boxplot`), and by its synonyms."""
        postings = self._postings
        word = pieces(raw[at])
        known = self._of(word)
        names = list(known.own)
        worth = postings.unheard if known.rarity is None else known.rarity
        others = known.others
        for first in range(max(0, at - 1), min(at + 1, len(raw) - 1)):
            pair = raw[first].lower(), raw[first + 1].lower()
            joined = stem("".join(pair))
            if joined in postings:
                names.append(Name((joined,), min(1.0, worth / postings.rarity(joined))))
            if first == at and (called := synonyms().entries.get(stems(pair))):
                others = (*self._others(dict.fromkeys(called, SYNONYM), known.rarity), *others)
        # What the query says itself counts as its own word, not as another name of this one.
        names.extend(name for name in others if written.isdisjoint(name.terms))
        return Concept(tuple(names[:_MOST_NAMES]), worth, _detail(raw, at))

    def _of(self, word: tuple[str, ...]) -> _Known:
        """One word, in its pieces."""
        known = self._known.get(word)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[word] = self._looked_up(word)
        return known

    def _looked_up(self, word: tuple[str, ...]) -> _Known:
        whole, *parts = word
        own: dict[tuple[str, ...], None] = {}
        for terms in (stems((whole,)), stems(tuple(parts))):
            if some := tuple(term for term in terms if term in self._postings):
                own[some] = None
        rarity = self._rarity(next(iter(own))) if own else None
        called = dict.fromkeys(synonyms().entries.get(stems((whole,)), ()), SYNONYM)
        if self._postings.chinese:
            called.update(dict.fromkeys(in_chinese().get(stems((whole,)), ()), TRANSLATED))
        return _Known(tuple(map(Name, own)), self._others(called, rarity), rarity)

    def _others(
        self, called: Mapping[tuple[str, ...], float], rarity: float | None
    ) -> tuple[Name, ...]:
        """Other names of a word, as far as they occur. They never say more than the word that was
        written.

        What very many tools say tells nothing beside the word itself."""
        names: list[Name] = []
        for terms, weight in called.items():
            if all(term in self._postings for term in terms):
                if rarity is None:
                    names.append(Name(terms, weight))
                elif not all(map(self._postings.is_common, terms)):
                    names.append(Name(terms, weight * min(1.0, rarity / self._rarity(terms))))
        return tuple(names)

    def _rarity(self, terms: tuple[str, ...]) -> float:
        return sum(map(self._postings.rarity, terms))

    def _guessed(self, word: str, unfinished: bool) -> Iterator[Name]:
        """What a word can mean that occurs nowhere."""
        spellings = self._postings.spellings()
        near = spellings.starting(word, 8) if unfinished and len(word) > 1 else []
        if near:
            yield from (
                Name(terms, UNFINISHED)
                for terms in dict.fromkeys(stems((guess,)) for guess in near)
            )
            return
        near = spellings.near(word, 3)
        for terms in (
            dict.fromkeys(stems((guess,)) for guess in near) if near else self._halves(word)
        ):
            yield Name(terms, GUESSED)

    def _halves(self, word: str) -> Iterator[tuple[str, ...]]:
        """Two known words that are written as one."""
        for at in range(_SHORTEST_HALF, len(word) - _SHORTEST_HALF + 1):
            halves = word[:at], word[at:]
            if STOP_WORDS.isdisjoint(halves) and all(
                stem(half) in self._postings for half in halves
            ):
                yield stems(halves)
                return

    def _chinese(self, run: str) -> Iterator[Concept]:
        """The glossary's words, and the characters and pairs themselves for tools that are
        described in Chinese."""
        glossary = chinese()
        said = ""
        for word in glossary.cut(run):
            names = glossary.entries.get(word)
            if names == ():
                said += " "
                continue
            said += word
            if names is not None:
                known = tuple(Name(terms) for terms in self._terms(names))
                worth = max(
                    (self._rarity(name.terms) for name in known), default=self._postings.unheard
                )
                yield Concept(known, worth)
        for part in said.split():
            for gram in grams(part):
                if gram in self._postings:
                    yield Concept((Name((gram,), CHARACTER if len(gram) == 1 else PAIR),), 0.0)

    def as_written(self, parts: Sequence[str]) -> list[tuple[str, ...]]:
        """The Chinese words of a query that say something, each as its pairs; one character says
        too little."""
        runs = [word for part in parts for word in words(part[:LONGEST_QUERY]) if is_cjk(word)]
        if not runs:
            return []
        glossary = chinese()
        said = (
            word for run in runs for word in glossary.cut(run) if glossary.entries.get(word) != ()
        )
        pairs = (tuple(gram for gram in grams(word) if len(gram) == 2) for word in said)
        return [some for some in islice(pairs, _MOST_CONCEPTS) if some]

    def _terms(self, names: Names) -> Iterable[tuple[str, ...]]:
        """The names as terms, those that occur in the index, each once."""
        found = dict.fromkeys(stems(name) for name in names)
        return [terms for terms in found if terms and all(term in self._postings for term in terms)]


def _detail(raw: Sequence[str], at: int) -> bool:
    first = raw[at][0]
    return (
        first.isdigit()
        or (at > 0 and first.isupper() and not raw[at].isupper())
        or "that" in raw[:at]
    )
