"""`python -m bench.search_folds FOLDER`: do the constants of the search hold for queries they were
not chosen on?

Cross-validation. The queries are dealt into folds by the server of the first tool they ask for, so
that a server's queries are either looked at or left out. For each fold the constants are chosen
anew on the others, one after the other from usual values, by the mean recall@5 of the sets; the
left-out fold is measured with them. Where the figures are far below those of the shipped constants,
these fit the queries and not the task. What it cannot tell: whether the words of the thesaurus do,
so it is also measured with a part of them taken away.
"""

import argparse
import hashlib
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.search import Query as Asked
from bench.search import found, read
from bench.search_own import own_queries
from mcpx.catalog.search import Document, Index, postings, query, ranking

FOLDS = 5
Values = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    name: str
    set: Callable[[float], None]
    get: Callable[[], float]
    usual: float
    tried: Values


def _of(module: Any, name: str, usual: float, *tried: float) -> Constant:
    return Constant(
        name, partial(setattr, module, name), partial(getattr, module, name), usual, tried
    )


def _weight(at: int, name: str, usual: float, *tried: float) -> Constant:
    def change(weight: float) -> None:
        fields = list(postings.FIELDS)
        fields[at] = replace(fields[at], weight=weight)
        postings.FIELDS = tuple(fields)  # type: ignore[assignment]

    return Constant(name, change, lambda: postings.FIELDS[at].weight, usual, tried)


CONSTANTS = (
    _weight(0, "name", 2.0, 3.0, 4.5),
    _weight(1, "service", 1.0, 2.0, 3.0),
    _weight(2, "service description", 1.0, 0.5, 0.25),
    _weight(4, "parameter names", 0.5, 1.0, 1.5),
    _weight(5, "parameter descriptions", 0.25, 0.5, 1.0),
    _of(postings, "SATURATION", 1.2, 1.6, 2.0, 2.5),
    _of(query, "SYNONYM", 0.3, 0.4, 0.5, 0.6, 0.7),
    _of(query, "TRANSLATED", 0.4, 0.7, 1.0),
    _of(ranking, "ANSWERED", 0.5, 0.4, 0.3),
    _of(ranking, "NAMED", 0.0, 0.4, 0.8),
    _of(ranking, "LOSES", 1.0, 0.85, 0.7),
    _of(ranking, "CHANGES", 1.0, 0.85, 0.7),
)


@contextmanager
def constants(values: Values) -> Iterator[None]:
    before = [one.get() for one in CONSTANTS]
    try:
        for one, value in zip(CONSTANTS, values, strict=True):
            one.set(value)
        yield
    finally:
        for one, value in zip(CONSTANTS, before, strict=True):
            one.set(value)


class Measured:
    """Recall@5 of each query for a choice of constants, worked out once."""

    def __init__(self, documents: Sequence[Document], queries: Sequence[Asked]) -> None:
        self._documents = documents
        self._queries = queries
        self._known: dict[Values, list[float]] = {}

    def __call__(self, values: Values) -> list[float]:
        if values not in self._known:
            with constants(values):
                self._known[values] = recalls(Index(self._documents), self._queries)
        return self._known[values]


def recalls(index: Index, queries: Sequence[Asked]) -> list[float]:
    return [
        found(one, [hit.position for hit in index.search(one.text, limit=5).hits], 5)
        for one in queries
    ]


def by_set(
    queries: Sequence[Asked], values: Sequence[float], chosen: Sequence[int]
) -> dict[str, float]:
    sets: dict[str, list[float]] = {}
    for at in chosen:
        sets.setdefault(queries[at].set, []).append(values[at])
    return {name: statistics.fmean(some) for name, some in sets.items()}


def folds(documents: Sequence[Document], queries: Sequence[Asked]) -> list[list[int]]:
    dealt: list[list[int]] = [[] for _ in range(FOLDS)]
    for at, one in enumerate(queries):
        first = next((min(wanted) for wanted in one.relevant if wanted), 0)
        dealt[hashlib.sha256(documents[first].service.encode()).digest()[0] % FOLDS].append(at)
    return dealt


def choose(measured: Measured, queries: Sequence[Asked], training: Sequence[int]) -> Values:
    values = tuple(one.usual for one in CONSTANTS)

    def worth(some: Values) -> float:
        return statistics.fmean(by_set(queries, measured(some), training).values())

    for at, one in enumerate(CONSTANTS):
        choices = [(*values[:at], value, *values[at + 1 :]) for value in (one.usual, *one.tried)]
        values = max(choices, key=worth)
    return values


def cross_validated(documents: Sequence[Document], queries: Sequence[Asked]) -> Mapping[str, Any]:
    measured = Measured(documents, queries)
    everything = range(len(queries))
    shipped = tuple(one.get() for one in CONSTANTS)
    usual = tuple(one.usual for one in CONSTANTS)
    left_out = [0.0] * len(queries)
    chosen: list[Values] = []
    for fold in folds(documents, queries):
        inside = frozenset(fold)
        chosen.append(choose(measured, queries, [at for at in everything if at not in inside]))
        for at in fold:
            left_out[at] = measured(chosen[-1])[at]
    return {
        "usual": by_set(queries, measured(usual), everything),
        "left_out": by_set(queries, left_out, everything),
        "shipped": by_set(queries, measured(shipped), everything),
        "chosen": {one.name: [values[at] for values in chosen] for at, one in enumerate(CONSTANTS)},
        "shipped_values": {one.name: value for one, value in zip(CONSTANTS, shipped, strict=True)},
    }


@contextmanager
def fewer_synonyms(share: float, seed: int) -> Iterator[None]:
    """With a random share of the thesaurus's words taken away."""
    usual = query.synonyms
    whole = usual()
    chance = random.Random(seed)
    fewer = {said: names for said, names in whole.items() if chance.random() >= share}
    query.synonyms = lambda: fewer  # type: ignore[assignment]
    try:
        yield
    finally:
        query.synonyms = usual


def without_words(
    documents: Sequence[Document], queries: Sequence[Asked]
) -> Mapping[str, Mapping[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for share in (0.2, 0.4, 1.0):
        runs: list[dict[str, float]] = []
        for seed in range(1 if share == 1.0 else 3):
            with fewer_synonyms(share, seed):
                runs.append(
                    by_set(queries, recalls(Index(documents), queries), range(len(queries)))
                )
        table[f"without {share:.0%} of the synonyms"] = {
            name: statistics.fmean(run[name] for run in runs) for name in runs[0]
        }
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.search_folds", description=__doc__)
    parser.add_argument("folder", type=Path, help="where tools.jsonl and queries*.jsonl are")
    folder: Path = parser.parse_args().folder
    if not (folder / "tools.jsonl").is_file():
        parser.error(f"no tools.jsonl in {folder}")
    documents, queries = read(folder)
    own = own_queries(documents, live=False)
    queries += [Asked(one.set, one.text, one.relevant) for one in own if one.relevant]
    if not queries:
        parser.error(f"no queries*.jsonl in {folder}")
    results = cross_validated(documents, queries)
    rows = {key: results[key] for key in ("usual", "left_out", "shipped")} | without_words(
        documents, queries
    )
    names = list(results["shipped"])
    lines = [["R@5", *names], ["---"] * (len(names) + 1)]
    lines += [[key, *(f"{row[name]:.3f}" for name in names)] for key, row in rows.items()]
    sys.stdout.write("".join(f"| {' | '.join(line)} |\n" for line in lines))
    for name, values in results["chosen"].items():
        sys.stdout.write(f"{name}: shipped {results['shipped_values'][name]:g}, chosen {values}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
