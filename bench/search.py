"""`python -m bench.search FOLDER`: how well and how fast tools are found. What it means:
docs/search.md.

FOLDER holds `tools.jsonl` (`server, server_description, tool, description, input_schema`) and
`queries*.jsonl` (`set, id, query, relevant`, where `relevant` is a list of `{server, tool,
alternatives?}`). Prints tables; `--output` also writes the numbers as JSON. What mcpx is compared
with: `bench/search_systems.py`; queries of our own, for folders that hold their tools:
`bench/search_own.py`; whether the constants hold for other queries: `bench/search_folds.py`.
"""

import argparse
import json
import random
import re
import statistics
import sys
import time
import tracemalloc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import search_own
from bench.search_systems import Search, fastmcp_bm25, mcpx, plain_bm25f
from mcpx.catalog.search import Document, Index
from mcpx.catalog.search.query import chinese
from mcpx.catalog.search.words import words

CUTS = (1, 5, 10)
ENGLISH = ("livemcp_task", "livemcp_step", "livemcp_route")
"""The sets whose plain mean is the English macro average, where a folder has them."""
MANY = 9_000


@dataclass(frozen=True, slots=True)
class Query:
    set: str
    text: str
    relevant: tuple[frozenset[int], ...]
    """For each tool that is asked for the positions that count as found."""


# The data
# --------------------------------------------------------------------------------------------------


def read(folder: Path) -> tuple[list[Document], list[Query]]:
    documents = [_document(row) for row in _rows(folder / "tools.jsonl")]
    positions: dict[tuple[str, str], int] = {}
    for position, document in enumerate(documents):
        positions.setdefault((document.service, document.name), position)
    queries: list[Query] = []
    for file in sorted(folder.glob("queries*.jsonl")):
        for row in _rows(file):
            wanted = [
                frozenset(
                    positions[one["server"], one["tool"]]
                    for one in (entry, *entry.get("alternatives", ()))
                    if (one["server"], one["tool"]) in positions
                )
                for entry in row["relevant"]
            ]
            queries.append(Query(row["set"], row["query"], tuple(wanted)))
    return documents, queries


def _rows(file: Path) -> Iterable[dict[str, Any]]:
    return (
        json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()
    )


def _document(row: Mapping[str, Any]) -> Document:
    properties: dict[str, Any] = row["input_schema"].get("properties") or {}
    return Document(
        name=row["tool"],
        public=row["tool"],
        service=row["server"],
        service_description=row["server_description"],
        description=row["description"],
        parameters=tuple(
            (name, str(schema.get("description") or "")) if isinstance(schema, dict) else (name, "")
            for name, schema in properties.items()
        ),
    )


# Quality
# --------------------------------------------------------------------------------------------------


def found(query: Query, positions: Sequence[int], cut: int) -> float:
    """The share of the tools asked for that is among the first `cut`."""
    first = set(positions[:cut])
    return sum(1 for wanted in query.relevant if wanted & first) / len(query.relevant)


def reciprocal_rank(query: Query, positions: Sequence[int]) -> float:
    wanted = frozenset[int]().union(*query.relevant)
    return next((1 / rank for rank, position in enumerate(positions, 1) if position in wanted), 0.0)


def quality(search: Search, queries: Sequence[Query]) -> dict[str, dict[str, float]]:
    """For each set: recall at each cut, MRR, and recall at 5 of its even and its odd rows."""
    sets: dict[str, list[Query]] = {}
    for query in queries:
        sets.setdefault(query.set, []).append(query)
    measured: dict[str, dict[str, float]] = {}
    for name, rows in sets.items():
        answers = [search(query.text) for query in rows]
        pairs = list(zip(rows, answers, strict=True))
        row = {f"R@{cut}": statistics.fmean(found(*pair, cut) for pair in pairs) for cut in CUTS}
        row["MRR"] = statistics.fmean(reciprocal_rank(*pair) for pair in pairs)
        for half, some in (("even", pairs[::2]), ("odd", pairs[1::2])):
            row[half] = statistics.fmean(found(*pair, 5) for pair in some) if some else row["R@5"]
        measured[name] = row
    english = [measured[name] for name in ENGLISH if name in measured]
    if english:
        measured["English macro"] = {
            key: statistics.fmean(row[key] for row in english) for key in english[0]
        }
    return measured


def misspelt(queries: Sequence[Query]) -> list[Query]:
    """The queries with one slip in about every fourth word of five letters or more; the same ones
    every time."""
    chance = random.Random(5)

    def slip(word: str) -> str:
        at = chance.randrange(len(word) - 1)
        return chance.choice(
            (
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
                word[:at] + word[at + 1 :],
                word[: at + 1] + word[at:],
                word[:at] + chance.choice("abcdefghijklmnopqrstuvwxyz") + word[at + 1 :],
            )
        )

    changed: list[Query] = []
    for query in queries:
        places = list(re.finditer("[A-Za-z]{5,}", query.text))
        text = query.text
        chosen = chance.sample(places, max(1, len(places) // 4)) if places else []
        for place in sorted(chosen, key=lambda place: -place.start()):
            text = text[: place.start()] + slip(place.group()) + text[place.end() :]
        changed.append(replace(query, text=text))
    return changed


def whole_queries(queries: Sequence[Query]) -> tuple[int, int]:
    """How many queries are an entry of the glossary: those of three characters or more, and those
    of one or two.

    The glossary was not made from queries, so the first is 0. A query of two characters is a single
    word.
    """
    whole = [text for query in queries if (text := "".join(words(query.text))) in chinese().entries]
    return sum(1 for text in whole if len(text) > 2), sum(1 for text in whole if len(text) <= 2)


# Speed
# --------------------------------------------------------------------------------------------------


def repeated(documents: Sequence[Document], count: int) -> list[Document]:
    """As many documents as wanted: the same again and again under other names."""
    many: list[Document] = []
    for number in range(count):
        document = documents[number % len(documents)]
        turn = number // len(documents)
        changed = replace(
            document, name=f"{document.name}_{turn}x", service=f"{document.service}_{turn}x"
        )
        many.append(changed if turn else document)
    return many


def speed(
    documents: Sequence[Document], queries: Sequence[Query], rounds: int = 3
) -> dict[str, float]:
    """Times are of the CPU: those of a quiet machine, also on a busy one."""
    began = time.process_time()
    index = Index(documents)
    build = time.process_time() - began
    for query in queries[:3]:
        index.search(query.text)
    seconds: list[float] = []
    for _ in range(rounds):
        for query in queries:
            began = time.process_time()
            index.search(query.text)
            seconds.append(time.process_time() - began)
    seconds.sort()
    tracemalloc.start()
    kept = Index(documents)
    memory = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return {
        "tools": len(documents),
        "build_s": build,
        "p50_ms": 1000 * seconds[len(seconds) // 2],
        "p95_ms": 1000 * seconds[int(len(seconds) * 0.95)],
        "kept_mb": memory[0] / 1e6,
        "peak_mb": memory[1] / 1e6,
    }


# The report
# --------------------------------------------------------------------------------------------------


def run(folder: Path, many: int = MANY) -> dict[str, Any]:
    documents, queries = read(folder)
    systems: dict[str, Search | None] = {
        "mcpx": mcpx(documents),
        "plain BM25F": plain_bm25f(documents),
        "FastMCP BM25": fastmcp_bm25(documents),
    }
    there = {name: search for name, search in systems.items() if search is not None}
    slips = misspelt(queries)
    entries, single_words = whole_queries(queries)
    return {
        "tools": len(documents),
        "queries": len(queries),
        "left_out": [name for name in systems if name not in there],
        "quality": {name: quality(search, queries) for name, search in there.items()},
        "misspelt": {name: quality(search, slips) for name, search in there.items()},
        "glossary": {
            "entries": len(chinese().entries),
            "whole_queries": entries,
            "single_words": single_words,
        },
        "own": search_own.measured(folder, documents),
        "speed": [speed(documents, queries), speed(repeated(documents, many), queries, rounds=1)],
    }


def tables(results: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for title, key in (("Quality", "quality"), ("Quality with slips", "misspelt")):
        columns = [*(f"R@{cut}" for cut in CUTS), "MRR"]
        rows = [
            [name, system, *(f"{of_set[name][column]:.3f}" for column in columns)]
            for name in next(iter(results[key].values()))
            for system, of_set in results[key].items()
        ]
        parts.append(f"## {title}\n\n" + _table(["set", "system", *columns], rows))
    halves = [
        [name, system, *(f"{of_set[name][half]:.3f}" for half in ("even", "odd"))]
        for name in next(iter(results["quality"].values()))
        for system, of_set in results["quality"].items()
    ]
    parts.append(
        "## Halves: R@5 of even and odd rows\n\n" + _table(["set", "system", "even", "odd"], halves)
    )
    if results["own"]:
        parts.append("## Queries of our own\n\n" + search_own.table(results["own"]))
    columns = ["tools", "build_s", "p50_ms", "p95_ms", "kept_mb", "peak_mb"]
    timed = [
        [f"{row['tools']}", *(f"{row[column]:.2f}" for column in columns[1:])]
        for row in results["speed"]
    ]
    parts.append(
        "## Speed of mcpx (CPU time; memory the index keeps, and the most while it is built)\n\n"
        + _table(columns, timed)
    )
    glossary = results["glossary"]
    parts.append(
        f"Glossary: {glossary['entries']} Chinese words; {glossary['whole_queries']} of them are "
        "a whole query"
        f" (not counting {glossary['single_words']} queries of a single word).\n"
    )
    if results["left_out"]:
        parts.append(f"Left out, not installed here: {', '.join(results['left_out'])}.\n")
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__)
    parser.add_argument("folder", type=Path, help="where tools.jsonl and queries*.jsonl are")
    parser.add_argument("--output", type=Path, help="write the numbers here, as JSON")
    parser.add_argument(
        "--many", type=int, default=MANY, help="how many tools the larger speed run has"
    )
    options = parser.parse_args()
    folder: Path = options.folder
    if not (folder / "tools.jsonl").is_file():
        folder /= "search"
    if not (folder / "tools.jsonl").is_file():
        parser.error(f"no tools.jsonl in {options.folder}")
    results = run(folder, options.many)
    if options.output:
        options.output.write_text(json.dumps(results, indent=1), encoding="utf-8")
    sys.stdout.write(tables(results))
    return 1 if results["glossary"]["whole_queries"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
