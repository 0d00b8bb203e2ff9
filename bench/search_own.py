"""Queries of our own for `bench.search`: written before any result was looked at, half of them
never tuned to.

`samples/search/queries_own.jsonl` names tools of the same folder (`own_live` those of
`live_tools.json` beside it). `part` says which half a query is in, by a hash of its words. A query
without tools is one that nothing fits.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpx.catalog.entries import document_of
from mcpx.catalog.search import Document, Index
from mcpx.model.offer import Offer

QUERIES = Path(__file__).with_name("samples") / "search" / "queries_own.jsonl"
LIVE = "own_live"
"""The sets over the live servers begin so."""
CUT = 5


@dataclass(frozen=True, slots=True)
class Own:
    set: str
    part: str
    text: str
    relevant: tuple[frozenset[int], ...]


def live_documents(file: Path) -> list[Document]:
    """The tools of `live_tools.json` as the gateway reads them."""
    servers: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return [
        document_of(
            Offer("tools", server, tool["name"], tool["name"], tool),
            about.get("instructions") or "",
        )
        for server, about in servers.items()
        for tool in about["tools"]
    ]


def own_queries(documents: Sequence[Document], live: bool) -> list[Own]:
    """Those of one corpus whose tools are all there."""
    positions: dict[tuple[str, str], int] = {}
    for position, document in enumerate(documents):
        positions.setdefault((document.service, document.name), position)
    found: list[Own] = []
    for line in QUERIES.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        wanted = [
            [(one["server"], one["tool"]) for one in (e, *e.get("alternatives", ()))]
            for e in row["relevant"]
        ]
        if row["set"].startswith(LIVE) == live and all(
            one in positions for some in wanted for one in some
        ):
            relevant = tuple(frozenset(positions[one] for one in some) for some in wanted)
            found.append(Own(row["set"], row["part"], row["query"], relevant))
    # That nothing fits is only known of the tools these queries were written for.
    return found if any(own.relevant for own in found) else []


def measured(folder: Path, documents: Sequence[Document]) -> list[Mapping[str, Any]]:
    """For each set and half: recall, how often the answer is a strong hit, how often nothing is
    said to fit."""
    corpora = [(own_queries(documents, live=False), Index(documents))]
    places = (folder / "live_tools.json", folder.parent / "live_tools.json")
    file = next((place for place in places if place.is_file()), None)
    if file is not None:
        tools = live_documents(file)
        corpora.append((own_queries(tools, live=True), Index(tools)))
    rows: dict[tuple[str, str], list[tuple[float, float, bool | None, bool]]] = {}
    for queries, index in corpora:
        for query in queries:
            hits = index.search(query.text)
            positions = [hit.position for hit in hits.hits]
            wanted = frozenset[int]().union(*query.relevant)
            answer = next(
                (at for at, position in enumerate(positions[:CUT]) if position in wanted), None
            )
            recalls = [
                sum(1 for one in query.relevant if one & set(positions[:cut]))
                / max(1, len(query.relevant))
                for cut in (1, CUT)
            ]
            inside = None if answer is None else answer < hits.strong
            rows.setdefault((query.set, query.part), []).append(
                (recalls[0], recalls[1], inside, hits.strong == 0)
            )
    return [
        {
            "set": name,
            "part": part,
            "queries": len(some),
            "R@1": sum(row[0] for row in some) / len(some),
            "R@5": sum(row[1] for row in some) / len(some),
            "in_top": sum(1 for row in some if row[2] is not None),
            "in_strong": sum(1 for row in some if row[2]),
            "nothing_fits": sum(1 for row in some if row[3]),
        }
        for (name, part), some in sorted(rows.items())
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "set | part | queries | R@1 | R@5 | in the first 5 and strong | nothing fits",
        "--- | " * 6 + "---",
    ]
    for row in rows:
        nothing = f"{row['nothing_fits']} of {row['queries']}"
        cells = (row["set"], row["part"], str(row["queries"]))
        if row["set"].endswith("none"):
            cells += ("", "", "")
        else:
            cells += (
                f"{row['R@1']:.3f}",
                f"{row['R@5']:.3f}",
                f"{row['in_strong']} of {row['in_top']}",
            )
        lines.append(" | ".join((*cells, nothing)))
    return "".join(f"| {line} |\n" for line in lines)
