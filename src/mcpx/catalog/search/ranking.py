"""What a query finds, before the rules for names: how well each tool says what each part of the
query asks for.

Promised: a tool has the sum of what it says of each concept, and of a concept with several names
the best; tools that destroy something or are not to be used any more count less unless the query
reaches the word that says so. Of a query with several wishes the tool that answers each best can be
told. Not promised: meaning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from mcpx.catalog.search.postings import Postings
from mcpx.catalog.search.query import Asking, Concept, Name, is_question
from mcpx.catalog.search.words import plain, stems, terms, words

_LOSING = (
    "delete remove erase drop clear reset kill terminate force destroy purge wipe revoke "
    "uninstall cancel discard"
    " truncate revert trash prune unprotect"
)
LOSING = frozenset(stems(tuple(_LOSING.split())))
"""Words in a name that say that something is lost."""
_CHANGING = (
    "add append apply checkout commit copy create deploy edit fill fork init insert install merge "
    "modify move patch"
    " post publish push put rename replace save send set store submit update upload write"
)
CHANGING = frozenset(stems(tuple(_CHANGING.split())))
"""Words in a name that say that something is not as before."""
LOSES, MARKED, OUTDATED, CHANGES = 0.7, 0.97, 0.8, 0.7
"""What a tool keeps of its score that loses something; that is only marked as destructive; that is
deprecated; that changes something when a question is asked. Each unless the query reaches the word
for it."""

AROUND = 0.1
"""How much the rest of the query counts for one of its wishes."""
NAMED = 0.4
"""How much the words of a wish count once more that are in a tool's name, by how much of that name
they are."""
ANSWERED = 0.4
"""Of what the words of a wish are worth: a tool that says less does not answer it."""
_CANDIDATES = 8
"""So many tools are looked at for each wish."""

_DOING = (
    "get fetch read show list view search find look query check lookup see describe retrieve "
    "display browse inspect"
    " open count compare analyze explore create add write update edit set insert append save make "
    "generate put post"
    " patch change modify rename move copy upload send build apply format convert start run "
    "execute record delete"
    " remove clear reset stop close give take do go turn know tell call want need try let keep "
    "use play order book buy"
)
DOING = frozenset(stems(tuple(_DOING.split())))
"""Words that say what is done, and little of what it is done with."""
_DOING_WORTH, _DETAIL_WORTH = 0.5, 0.3
"""How much of their worth counts when it is asked whether anything fits; of names and numbers that
nobody knows."""
_SAID = 0.6
"""Of the most that a tool can say of a name: with so much it says it."""
_OTHERWISE, _ONLY_OTHERWISE = 0.7, 0.6
"""How much it counts when a tool says another name of a word; of a word that no tool says
itself."""
_FITTING = ((3, 0.39), (5, 0.27))
"""Of what a query of so many concepts asks for: what one of the best tools must say, or nothing
fits."""
_FITTING_ELSE = 0.14
"""In longer queries most words tell the story, not the tool."""


@dataclass(frozen=True, slots=True)
class Damping:
    """Why a tool counts less than its words say."""

    factor: float
    unless: frozenset[str]
    """The terms that ask for it all the same."""


class Dampings:
    """Of all tools: what counts less in any query, and what does in questions only."""

    __slots__ = ("_always", "_questions")

    def __init__(self) -> None:
        self._always: dict[int, Damping] = {}
        self._questions: dict[int, Damping] = {}

    def add(
        self, position: int, name: str, *, read_only: bool, destructive: bool, deprecated: bool
    ) -> None:
        said = frozenset(term for word in words(name) for term in terms(word))
        losing = said & LOSING
        factor = (OUTDATED if deprecated else 1.0) * (
            LOSES if losing else MARKED if destructive else 1.0
        )
        if factor < 1.0:
            self._always[position] = Damping(factor, losing or _NOTHING)
        if not read_only and (changing := said & CHANGING):
            self._questions[position] = Damping(CHANGES, changing)

    def dampen(self, scores: list[float], said: frozenset[str], question: bool) -> None:
        """`said`: the terms that the query reaches."""
        for some in (self._always, self._questions) if question else (self._always,):
            for position, why in some.items():
                if scores[position] and why.unless.isdisjoint(said):
                    scores[position] *= why.factor


_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """One concept of a query, and how well the tools say it."""

    concept: Concept
    scores: Mapping[int, float]


class Ranking:
    """One query, in its parts, over one index."""

    __slots__ = ("_parts", "_postings", "_written", "found", "scores")

    def __init__(
        self,
        parts: Sequence[str],
        asking: Asking,
        postings: Postings,
        count: int,
        dampings: Dampings,
    ) -> None:
        self._postings = postings
        self._written = asking.as_written(parts)
        known: dict[Concept, Found] = {}
        self._parts = [
            [known.get(one) or known.setdefault(one, self._found(one)) for one in part]
            for part in asking.concepts(parts)
        ]
        self.found = tuple(known.values())
        self.scores = [0.0] * count
        for found in self.found:
            for position, score in found.scores.items():
                self.scores[position] += score
        said = frozenset(term for one in known for name in one.names for term in name.terms)
        dampings.dampen(self.scores, said, is_question(parts[0]))

    def _found(self, concept: Concept) -> Found:
        """A tool has the score of the best of a concept's names; the words of a name add up."""
        best: dict[int, float] = {}
        for name in concept.names:
            weight = name.weight
            if len(name.terms) == 1:
                scores = self._postings.of(name.terms[0])
                if not best and weight == 1.0:
                    best = dict(scores)
                    continue
            else:
                sums: dict[int, float] = {}
                for term in name.terms:
                    for position, score in self._postings.of(term):
                        sums[position] = sums.get(position, 0.0) + score
                scores = sums.items()
            for position, score in scores:
                score *= weight
                if score > best.get(position, 0.0):
                    best[position] = score
        return Found(concept, best)

    def served(self, parts: Sequence[str], names: Sequence[str], near: Sequence[int]) -> list[int]:
        """Of some tools the one that answers each wish best, each once. None for a wish that nobody
        answers."""
        served: dict[int, None] = {}
        for part, wish in zip(self._parts, parts, strict=True):
            least = ANSWERED * sum(found.concept.worth for found in part)
            own = {
                position: sum(found.scores.get(position, 0.0) for found in part)
                for position in near
            }
            answers = nlargest(
                _CANDIDATES, (at for at in near if own[at] >= least > 0.0), key=own.__getitem__
            )
            if answers:
                called = plain(wish)
                rank = {
                    position: (
                        plain(names[position]) == called,
                        own[position]
                        + AROUND * self.scores[position]
                        + NAMED * self._named(part, names[position]),
                    )
                    for position in answers
                }
                served[max(answers, key=rank.__getitem__)] = None
        return list(served)

    def _named(self, part: Sequence[Found], name: str) -> float:
        """What the words of a wish are worth that are in this name, by how much of the name they
        are."""
        rarity = self._postings.rarity
        written = {term for word in words(name) for term in terms(word) if term in self._postings}
        whole = sum(map(rarity, written))
        matched = sum(
            max(
                (
                    one.weight * sum(map(rarity, one.terms))
                    for one in found.concept.names
                    if written.issuperset(one.terms)
                ),
                default=0.0,
            )
            for found in part
        )
        return matched * min(1.0, matched / whole) if whole else 0.0

    def fits(self, best: Sequence[int]) -> bool:
        """Whether one of these tools says enough of what is asked for, or of one of the wishes."""
        concepts = sum(1 for found in self.found if found.concept.worth)
        least = next((share for most, share in _FITTING if concepts <= most), _FITTING_ELSE)
        parts = [self.found, *self._parts] if len(self._parts) > 1 else [self.found]
        return any(
            self._said(part, position) >= least for part in parts for position in best
        ) or any(self._says_as_written(position) for position in best)

    def says_name(self, name: str) -> bool:
        """Whether the query has every word of a name that says what it is about, and little else:
        `current time` that of `time`."""
        about = {term for word in words(name) for term in terms(word)} - DOING
        own = {
            term
            for found in self.found
            for one in found.concept.names
            if one.weight == 1.0
            for term in one.terms
        }
        asked = sum(1 for found in self.found if found.concept.worth)
        return bool(about) and about <= own and 2 * len(about) >= asked

    def _says_as_written(self, position: int) -> bool:
        """Whether a tool that is described in Chinese has half of the query's words or more."""
        postings = self._postings
        said = sum(
            all(pair in postings and postings.said(pair, position) > 0 for pair in word)
            for word in self._written
        )
        return bool(self._written) and 2 * said >= len(self._written)

    def _said(self, part: Sequence[Found], position: int) -> float:
        """The share of what these concepts are worth that a tool says."""
        said = whole = 0.0
        for found in part:
            names, worth, detail = found.concept
            known = bool(names) and names[0].weight == 1.0
            if known and names[0].terms[0] in DOING:
                worth *= _DOING_WORTH
            elif detail and not known:
                worth *= _DETAIL_WORTH
            whole += worth
            if worth and position in found.scores:
                otherwise = _OTHERWISE if known else _ONLY_OTHERWISE
                said += worth * max(
                    (1.0 if name.weight == 1.0 else otherwise)
                    * min(1.0, self._share(name, position) / _SAID)
                    for name in names
                )
        return said / whole if whole else 1.0

    def _share(self, name: Name, position: int) -> float:
        """How much a tool says of a name, of all that can be said of it."""
        most = sum(map(self._postings.rarity, name.terms))
        return (
            sum(self._postings.said(term, position) for term in name.terms) / most if most else 0.0
        )
