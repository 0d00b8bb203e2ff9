"""The search index over tools: a ranking by the words of a query, with the rules for names on top.

Promised: the same documents and query give the same order (ties by position); `total` counts every
match; when the query looks like a name, the tools of that name come first and those whose names
begin so come next; of a query with several wishes each one's best tool comes first; how many hits
are worth showing is said, and that nothing fits; time and memory are bounded by the number of
documents, whatever their text and the query hold. Not promised: meaning. Words are compared, with
endings, slips, synonyms and (for Chinese) translations seen through; a query in quite other words
finds nothing.
"""

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from mcpx.base.aio import Work, at_once
from mcpx.catalog.search.postings import NAME, Postings, Reading, Texts
from mcpx.catalog.search.query import LONGEST_QUERY, Asking, wishes
from mcpx.catalog.search.ranking import Dampings, Ranking
from mcpx.catalog.search.words import is_cjk, plain

_MOST_PARAMETERS = 64
_PARAMETER_CHARACTERS = 300
"""Of the description of one parameter, so that the first does not hide the others."""

_PUBLIC, _EXACT, _PREFIX = 3_000.0, 2_000.0, 1_000.0
"""Added to the score where the rules for names decide. No score of words comes near."""
_STRONG = 0.5
"""Of the best score that words alone give: what has less is a weak match."""
_SORTED_AT_ONCE = 1_000
_FITTING = 3
"""Of the ranking: when none of so many fits, nothing does."""
_LOOKED_AT = 32
"""Of the ranking, for the wishes of a query one by one."""
_PREFIX_WORDS = 2
"""A query of so many words may be the beginning of a name."""


@dataclass(frozen=True, slots=True)
class Document:
    """What is searched of one tool."""

    name: str
    """The server's own name of it."""
    public: str
    """The name it is shown under."""
    service: str
    service_description: str
    description: str
    parameters: tuple[tuple[str, str], ...]
    """Name and description of each top-level input property."""
    read_only: bool = False
    """By its annotations, as the next one."""
    destructive: bool = False
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    position: int
    """In the documents that were given to `build`."""
    score: float


@dataclass(frozen=True, slots=True)
class Hits:
    hits: tuple[Hit, ...]
    """The page that was asked for."""
    total: int
    """All matches, on this page or not."""
    strong: int = 0
    """How many of the first hits of this page say what was asked for; the others share a word or
    two with it. 0 on a page with hits: nothing fits, or (on a later page) what fits came before."""


class Index:
    """Built by `build`, then only read."""

    __slots__ = (
        "_asking",
        "_called",
        "_count",
        "_dampings",
        "_deprecated",
        "_names",
        "_own_names",
        "_postings",
        "_services",
    )

    def __init__(self, documents: Iterable[Document]) -> None:
        at_once(self._read(documents))

    @classmethod
    def building(cls, documents: Iterable[Document]) -> Work["Index"]:
        """To be done in slices: ten thousand documents take half a second."""
        index = cls.__new__(cls)
        yield from index._read(documents)
        return index

    def _read(self, documents: Iterable[Document]) -> Work[None]:
        self._services: dict[str, array[int]] = {}
        self._called: dict[str, dict[int, float]] = {}
        self._own_names: list[str] = []
        self._dampings = Dampings()
        self._deprecated: set[int] = set()
        reading = Reading()
        names: list[list[tuple[str, int]]] = []
        """In sorted pieces: sorting all of them takes as long as it takes."""
        some: set[tuple[str, int]] = set()
        position = -1
        for position, document in enumerate(documents):
            self._services.setdefault(document.service, array("I")).append(position)
            name, public, service = (
                plain(text[: NAME.characters])
                for text in (document.name, document.public, document.service)
            )
            for full, bonus in ((name, _EXACT), (service + name, _PUBLIC), (public, _PUBLIC)):
                self._called.setdefault(full, {})[position] = bonus
            some.update(((name, position), (public, position)))
            if len(some) >= _SORTED_AT_ONCE:
                names.append(sorted(some))
                some.clear()
            self._own_names.append(document.name[: NAME.characters])
            self._dampings.add(
                position,
                self._own_names[-1],
                read_only=document.read_only,
                destructive=document.destructive,
                deprecated=document.deprecated,
            )
            if document.deprecated:
                self._deprecated.add(position)
            reading.document(_texts(document))
            yield
        self._count = position + 1
        self._names: list[tuple[str, int]] = []
        for at, entry in enumerate(heapq.merge(*names, sorted(some))):
            self._names.append(entry)
            if at % _SORTED_AT_ONCE == 0:
                yield
        self._postings = yield from Postings.building(reading)
        self._asking = Asking(self._postings)

    def search(
        self,
        query: str,
        *,
        limit: int = 20,
        offset: int = 0,
        service: str | None = None,
        among: Sequence[int] | None = None,
    ) -> Hits:
        """The page `[offset : offset + limit]` of the ranking, and how many matches there are in
        all.

        A blank query matches everything, in order. `service` is a service's exact name; `among`:
        the positions that count, in order, as if there were no others.
        """
        pool: Sequence[int] = (
            range(self._count) if service is None else self._services.get(service, ())
        )
        if among is not None:
            pool = among if service is None else sorted(set(pool).intersection(among))
        start = max(offset, 0)
        end = start + max(limit, 0)
        if not query.strip():
            hits = tuple(Hit(position, 0.0) for position in pool[start:end])
            return Hits(hits, len(pool), len(hits))
        lifted = self._lifted(query)
        if among is not None and lifted:
            seen = set(pool)
            lifted = {position: bonus for position, bonus in lifted.items() if position in seen}
        parts = [query] if lifted else wishes(query[:LONGEST_QUERY])
        ranking = Ranking(parts, self._asking, self._postings, self._count, self._dampings)
        scores = ranking.scores
        every = service is None and among is None
        top = max(scores if every else (scores[position] for position in pool), default=0.0)
        for position, bonus in lifted.items():
            scores[position] += bonus
        matches = [position for position in pool if scores[position]]
        best = heapq.nlargest(max(end, _LOOKED_AT), matches, key=scores.__getitem__)
        first = best[:_FITTING]
        fits = bool(best) and (
            best[0] in lifted
            or ranking.fits(first)
            or any(ranking.says_name(self._own_names[position]) for position in first)
        )
        if len(parts) > 1:
            for position in ranking.served(parts, self._own_names, best[:_LOOKED_AT]):
                scores[position] += top
            best.sort(key=lambda position: (-scores[position], position))
        hits = tuple(Hit(position, scores[position]) for position in best[start:end])
        return Hits(
            hits, len(matches), sum(1 for hit in hits if hit.score >= _STRONG * top) if fits else 0
        )

    def _lifted(self, query: str) -> Mapping[int, float]:
        """The positions that the rules for names lift, and by how much."""
        name = plain(query) if len(query) <= 2 * NAME.characters else ""
        found: dict[int, float] = {}
        if len(query.split()) <= _PREFIX_WORDS and (len(name) > 1 or is_cjk(name)):
            for full, position in islice(self._names, bisect_left(self._names, (name, 0)), None):
                if not full.startswith(name):
                    break
                found[position] = _PREFIX
        if name:
            found.update(self._called.get(name, {}))
        if " " in query.strip():
            # Words are not a name yet: what is deprecated is only put first for who writes its
            # name.
            found = {
                position: bonus
                for position, bonus in found.items()
                if position not in self._deprecated
            }
        return found


def _texts(document: Document) -> Texts:
    parameters = document.parameters[:_MOST_PARAMETERS]
    return (
        document.name,
        document.service,
        document.service_description,
        document.description,
        " ".join(name[: NAME.characters] for name, _ in parameters),
        " ".join(description[:_PARAMETER_CHARACTERS] for _, description in parameters),
    )
