"""Words and what tools call them: `glossary.txt` for Chinese, `synonyms.txt` for English, read when
first needed.

Promised: a run of Chinese is cut into the fewest glossary words that cover the most of it, in time
linear in the run; an English word is looked up by its term, so its endings do not matter, and so
are two words that belong together. Not promised: translation. A word has all its names at once,
whatever the sentence means by it, and what the files do not hold is left to the words and
characters themselves.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mcpx.catalog.search.words import grams, stems

Names = tuple[tuple[str, ...], ...]
"""The names of one word; each is one or more words that belong together."""


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


class Synonyms:
    """What English words and pairs of words are called as well; all of them are terms."""

    __slots__ = ("entries",)

    def __init__(self, entries: Mapping[tuple[str, ...], Names]) -> None:
        self.entries = entries

    @classmethod
    def parse(cls, text: str) -> "Synonyms":
        """Lines of `word other_word: name, other name`, or of `word, other word` that all stand for
        each other."""
        entries: dict[tuple[str, ...], dict[tuple[str, ...], None]] = {}
        for line in text.splitlines():
            left, colon, right = line.partition("#")[0].partition(":")
            phrases = [tuple(name.split()) for name in (right if colon else left).split(",")]
            names = [terms for phrase in phrases if (terms := stems(phrase))]
            for phrase in [tuple(word.split("_")) for word in left.split()] if colon else phrases:
                # Without its small words `go to` would be `go`, and mean too much.
                if len(one := stems(phrase)) == len(phrase):
                    entries.setdefault(one, {}).update(
                        (name, None) for name in names if name != one
                    )
        return cls({said: tuple(names) for said, names in entries.items() if said and names})


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
def synonyms() -> Synonyms:
    """The English synonyms that are shipped."""
    return Synonyms.parse(_text("synonyms.txt"))


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
