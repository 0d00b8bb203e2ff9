"""A query as concepts: what each of its words can be called by the tools.

Promised: one word of the query is one concept however many names it has, so a word with five translations does
not count five times; the number of concepts is bounded whatever the query holds. Not promised: grammar. Word order
and negation are not read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from mcpx.catalog.search.glossary import Names, chinese, synonyms
from mcpx.catalog.search.postings import Postings
from mcpx.catalog.search.words import STOP_WORDS, grams, is_cjk, pieces, stem, stems, words

LONGEST_QUERY = 2_000
"""Characters that are read."""
_MOST_CONCEPTS = 128
_MOST_GUESSES = 8
"""Words that are looked up among the near ones, a query."""
_MOST_UNFINISHED = 3
"""In a query of so many words the last may be unfinished."""

# How much a name counts that does not stand in the query itself.
SYNONYM = 0.4
UNFINISHED = 0.6
GUESSED = 0.6
# Chinese as it is written, beside its translation. Single characters say little.
CHARACTER = 0.2
PAIR = 0.5


@dataclass(frozen=True, slots=True)
class Name:
    """One way to say a concept: terms that belong together, and how much they count."""

    terms: tuple[str, ...]
    weight: float = 1.0


Concept = tuple[Name, ...]


def concepts(query: str, postings: Postings) -> list[Concept]:
    """What to look for: names that occur in the index only."""
    raw = list(_unfolded(query, postings))
    unfinished = len(raw) - 1 if len(raw) <= _MOST_UNFINISHED and query[-1:].isalnum() else None
    written = {term for word in raw if not is_cjk(word) for term in stems(pieces(word))}
    found: dict[Concept, None] = {}
    guesses = 0
    for at, word in enumerate(raw):
        if len(found) >= _MOST_CONCEPTS:
            break
        if is_cjk(word):
            found.update(dict.fromkeys(islice(_chinese(word, postings), _MOST_CONCEPTS)))
        elif word.lower() not in STOP_WORDS:
            concept = tuple(_english(word, written, postings))
            if not concept and guesses < _MOST_GUESSES:
                guesses += 1
                concept = tuple(_guessed(pieces(word)[0], at == unfinished, postings))
            if concept:
                found[concept] = None
    return list(found)[:_MOST_CONCEPTS]


def _unfolded(query: str, postings: Postings) -> Iterator[str]:
    """The raw words of a query; what is joined (`readFile`) comes in parts unless the tools join it too."""
    for word in words(query[:LONGEST_QUERY]):
        whole, *parts = (word,) if is_cjk(word) else pieces(word)
        if parts and stem(whole) not in postings:
            yield from parts
        else:
            yield word


def _english(word: str, written: set[str], postings: Postings) -> Iterator[Name]:
    """A word as it stands, in one piece or in its parts, and its synonyms."""
    whole, *parts = pieces(word)
    rarity: float | None = None
    for terms in dict.fromkeys((stems((whole,)), stems(tuple(parts)))):
        known = tuple(term for term in terms if term in postings)
        if known:
            yield Name(known)
            rarity = rarity or sum(map(postings.rarity, known))
    for terms in _terms(_synonyms(whole), postings):
        # What the query says itself counts as its own word, not as another name of this one.
        if written.isdisjoint(terms):
            # Another name never says more than the word that was written.
            most = 1.0 if rarity is None else rarity / sum(map(postings.rarity, terms))
            yield Name(terms, SYNONYM * min(1.0, most))


def _synonyms(word: str) -> Names:
    entries = synonyms().entries
    return entries.get(word) or entries.get(word.removesuffix("s"), ())


def _guessed(word: str, unfinished: bool, postings: Postings) -> Iterator[Name]:
    """What a word can mean that occurs nowhere."""
    spellings = postings.spellings()
    weight = UNFINISHED
    near = spellings.starting(word, 8) if unfinished and len(word) > 1 else []
    if not near:
        weight = GUESSED
        near = spellings.near(word, 3)
    for terms in dict.fromkeys(stems((guess,)) for guess in near):
        yield Name(terms, weight)


def _chinese(run: str, postings: Postings) -> Iterator[Concept]:
    """The glossary's words, and the characters and pairs themselves for tools that are described in Chinese."""
    glossary = chinese()
    said = ""
    for word in glossary.cut(run):
        names = glossary.entries.get(word)
        if names == ():
            said += " "
            continue
        said += word
        concept = tuple(Name(terms) for terms in _terms(names or (), postings))
        if concept:
            yield concept
    for part in said.split():
        for gram in grams(part):
            if gram in postings:
                yield (Name((gram,), CHARACTER if len(gram) == 1 else PAIR),)


def _terms(names: Names, postings: Postings) -> Iterable[tuple[str, ...]]:
    """The names as terms, those that occur in the index, each once."""
    found = dict.fromkeys(stems(name) for name in names)
    return [terms for terms in found if terms and all(term in postings for term in terms)]
