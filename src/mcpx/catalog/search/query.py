"""Reads a query: its parts, its words, and what tools may call each word (FMT-3).

One word of the query is one concept however many names it has, so a word with five translations
does not count five times. A run of Chinese is cut into the fewest glossary words that cover the
most of it. English words have synonyms. A word that no tool says is compared with known words:
one wrong, missing, extra or swapped letter is found wherever it stands, a second one in words of
eight letters or more. Work and the number of concepts are bounded. Word order and negation are
not read.

`glossary.txt` has the Chinese words and `synonyms.txt` the English ones. They are read when they
are first needed.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

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

Names = tuple[tuple[str, ...], ...]
"""The names of one word; each is one or more words that belong together."""

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


class Asking:
    """Reads queries to one index. Remembers the words it looked up."""

    __slots__ = ("_known", "_postings", "_spellings")

    def __init__(self, postings: Postings) -> None:
        self._postings = postings
        self._spellings: Spellings | None = None
        """Made for the first word that is not known."""
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
            if first == at and (called := synonyms().get(stems(pair))):
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
        called = dict.fromkeys(synonyms().get(stems((whole,)), ()), SYNONYM)
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
        spellings = self._spellings
        if spellings is None:
            count = self._postings.count
            spellings = Spellings(self._postings.written, lambda word: count(stem(word)))
            self._spellings = spellings
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


# Parts of a query


MOST_WISHES = 8
"""A text of more parts is a story, not a list of wishes."""

_BETWEEN = re.compile(
    r"[,;\n!?、，；。！？]|[.](?=\s|\Z)"
    r"|\b(?:and|then|also|plus|finally|next|afterwards|after that)\b"
    r"|然后|接着|并且|以及|同时|最后|和",
    re.IGNORECASE,
)


def wishes(query: str) -> list[str]:
    """The parts of a query in order; the whole of it when it has one or too many."""
    parts = [
        part for part in map(str.strip, _BETWEEN.split(query, maxsplit=4 * MOST_WISHES)) if part
    ]
    return parts if 1 < len(parts) <= MOST_WISHES else [query]


_ASKS = re.compile(
    r"\s*(?:what|which|who|whose|where|when|how|is|are|does|did|has|have|show|list|tell|see|view)\b"
    r"|.{0,40}(?:什么|哪|多少|几个|吗|查看|看看|怎么样)",
    re.IGNORECASE,
)


def is_question(query: str) -> bool:
    """Whether it asks to be told something rather than to have something done."""
    return _ASKS.match(query) is not None


# Glossary and synonyms


class Glossary:
    """What each word is called. A word without names says nothing about a tool."""

    __slots__ = ("_longest", "entries")

    def __init__(self, entries: Mapping[str, Names]) -> None:
        self.entries = entries
        self._longest = max(map(len, entries), default=0)

    @classmethod
    def parse(cls, text: str) -> "Glossary":
        """Lines of `word word: name, other name`; `#` begins a comment. A word on two lines has the
        names of both."""
        entries: dict[str, Names] = {}
        for line in text.splitlines():
            left, colon, right = line.partition("#")[0].partition(":")
            if colon:
                names = tuple(tuple(name.split()) for name in right.split(",") if name.strip())
                for word in left.split():
                    entries[word] = tuple(dict.fromkeys((*entries.get(word, ()), *names)))
        return cls(entries)

    def cut(self, run: str) -> list[str]:
        """The run in pieces: the glossary's words, and single characters where it has none."""
        # For the best way to cut the first characters: how many are in no word, and how many pieces
        # there are.
        cost = [(0, 0)]
        came = [0]
        for end in range(1, len(run) + 1):
            best, start = (cost[-1][0] + 1, cost[-1][1] + 1), end - 1
            for earlier in range(max(0, end - self._longest), end):
                if run[earlier:end] in self.entries:
                    other = (cost[earlier][0], cost[earlier][1] + 1)
                    if other < best:
                        best, start = other, earlier
            cost.append(best)
            came.append(start)
        found: list[str] = []
        end = len(run)
        while end:
            found.append(run[came[end] : end])
            end = came[end]
        return found[::-1]


@cache
def chinese() -> Glossary:
    """The Chinese glossary that is shipped."""
    return Glossary.parse(_text("glossary.txt"))


def parse_synonyms(text: str) -> Mapping[tuple[str, ...], Names]:
    """Lines of `word other_word: name, other name`, or of `word, other word` that all stand for
    each other. Words and names are terms."""
    entries: dict[tuple[str, ...], dict[tuple[str, ...], None]] = {}
    for line in text.splitlines():
        left, colon, right = line.partition("#")[0].partition(":")
        phrases = [tuple(name.split()) for name in (right if colon else left).split(",")]
        names = [terms for phrase in phrases if (terms := stems(phrase))]
        said = phrases
        if colon:
            said = [tuple(word.split("_")) for word in left.split()]
        for phrase in said:
            one = stems(phrase)
            # Without its small words `go to` would be `go`, and mean too much.
            if len(one) == len(phrase):
                others = dict.fromkeys(name for name in names if name != one)
                entries.setdefault(one, {}).update(others)
    return {said: tuple(names) for said, names in entries.items() if said and names}


@cache
def in_chinese() -> Mapping[tuple[str, ...], Names]:
    """The glossary the other way round: for English terms the Chinese words, each as its pairs of
    characters."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], None]] = {}
    for word, names in chinese().entries.items():
        pairs = tuple(gram for gram in grams(word) if len(gram) > 1)
        if pairs:
            for name in names:
                found.setdefault(stems(name), {})[pairs] = None
    return {terms: tuple(words) for terms, words in found.items()}


@cache
def synonyms() -> Mapping[tuple[str, ...], Names]:
    """What English words and pairs of words are called as well."""
    return parse_synonyms(_text("synonyms.txt"))


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


# Words that are nearly right


_SHORTEST_GUESSED = 4
"""Shorter words have too many neighbours to guess at."""
_SHORTEST_FOR_TWO = 8
_CANDIDATES = 2_000
"""So many words with the same beginning (or end) are compared, no more."""


class Spellings:
    """Words in lower case, sorted forwards and backwards."""

    __slots__ = ("_backward", "_forward", "_frequency")

    def __init__(self, written: Iterable[str], frequency: Callable[[str], int]) -> None:
        self._forward = sorted(word for word in written if word.isascii() and word.isalpha())
        self._backward = sorted(word[::-1] for word in self._forward)
        self._frequency = frequency

    def starting(self, beginning: str, limit: int) -> list[str]:
        """The words that go on from here, the frequent first."""
        return sorted(_with_prefix(self._forward, beginning), key=self._rank)[:limit]

    def near(self, word: str, limit: int) -> list[str]:
        """The words that `word` can be a slip of: the nearest only, the frequent first."""
        if len(word) < _SHORTEST_GUESSED or not word.isalpha():
            return []
        allowed = 2 if len(word) >= _SHORTEST_FOR_TWO else 1
        # One slip leaves one end of the word whole. (Less than half of it: a swap touches two
        # letters.)
        kept = max(1, (len(word) - 1) // (1 + allowed))
        candidates = set(_with_prefix(self._forward, word[:kept]))
        candidates.update(found[::-1] for found in _with_prefix(self._backward, word[::-1][:kept]))
        nearest = allowed
        found: list[str] = []
        letters = set(word)
        for candidate in candidates:
            # Cheap to ask, and says no to nearly all: a slip brings in one letter and takes one
            # away.
            if (
                abs(len(candidate) - len(word)) <= nearest
                and len(letters.difference(candidate)) <= nearest
                and len(set(candidate) - letters) <= nearest
            ):
                distance = slips(word, candidate, nearest)
                if distance < nearest:
                    nearest, found = distance, []
                if distance == nearest:
                    found.append(candidate)
        return sorted(found, key=self._rank)[:limit]

    def _rank(self, word: str) -> tuple[int, str]:
        return -self._frequency(word), word


def _with_prefix(ordered: Sequence[str], prefix: str) -> list[str]:
    start = end = bisect_left(ordered, prefix)
    last = min(len(ordered), start + _CANDIDATES)
    while end < last and ordered[end].startswith(prefix):
        end += 1
    return list(ordered[start:end])


def slips(one: str, other: str, most: int) -> int:
    """Wrong, missing, extra or swapped letters between two words; `most + 1` when there are more
    than `most`."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        following = [at]
        for there, another in enumerate(other, 1):
            cost = min(row[there] + 1, following[-1] + 1, row[there - 1] + (letter != another))
            if at > 1 and there > 1 and letter == other[there - 2] and one[at - 2] == another:
                cost = min(cost, before[there - 2] + 1)
            following.append(cost)
        if min(following) > most:
            return most + 1
        before, row = row, following
    return min(row[-1], most + 1)
