"""What `bench.search` compares: the search of mcpx, a plain BM25F, and FastMCP's BM25 where it is
installed.

The plain BM25F has the same words as mcpx and no more: no rules for names, no slips, no synonyms,
no glossary, and the usual constants (k1 1.2, b 0.75). FastMCP's is the index of its search
transform, over the text it takes of a tool.
"""

import importlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from mcpx.catalog.search import Document, Index
from mcpx.catalog.search.words import terms, words

Search = Callable[[str], Sequence[int]]
"""A query to the positions of tools, best first."""
DEPTH = 20
WEIGHTS = (3.0, 2.0, 0.5, 1.0, 0.5, 0.3)
"""Of the plain BM25F: name, service, its description, description, parameter names and
descriptions."""


def mcpx(documents: Sequence[Document]) -> Search:
    index = Index(documents)
    return lambda query: [hit.position for hit in index.search(query, limit=DEPTH).hits]


def plain_bm25f(documents: Sequence[Document]) -> Search:
    rows = [
        [Counter(term for word in words(text) for term in terms(word)) for text in _fields(d)]
        for d in documents
    ]
    lengths = [[sum(counts.values()) for counts in row] for row in rows]
    averages = [statistics.fmean(column) or 1.0 for column in zip(*lengths, strict=True)]
    postings: dict[str, dict[int, float]] = {}
    for position, row in enumerate(rows):
        for at, counts in enumerate(row):
            evened = 0.25 + 0.75 * lengths[position][at] / averages[at]
            for term, count in counts.items():
                of_term = postings.setdefault(term, {})
                of_term[position] = of_term.get(position, 0.0) + WEIGHTS[at] * count / evened

    def search(query: str) -> list[int]:
        scores: dict[int, float] = {}
        for term in {term: None for word in words(query) for term in terms(word)}:
            found = postings.get(term, {})
            rarity = math.log(1 + (len(documents) - len(found) + 0.5) / (len(found) + 0.5))
            for position, frequency in found.items():
                scores[position] = scores.get(position, 0.0) + rarity * frequency / (
                    1.2 + frequency
                )
        return sorted(scores, key=lambda position: (-scores[position], position))[:DEPTH]

    return search


def _fields(document: Document) -> tuple[str, ...]:
    return (
        document.name,
        document.service,
        document.service_description,
        document.description,
        " ".join(name for name, _ in document.parameters),
        " ".join(description for _, description in document.parameters),
    )


def fastmcp_bm25(documents: Sequence[Document]) -> Search | None:
    """The index of FastMCP's search transform over the text it takes of a tool; None where it is
    not installed."""
    try:
        module = importlib.import_module("fastmcp.server.transforms.search.bm25")
    except ImportError:
        return None
    index: Any = module._BM25Index()
    texts: list[str] = []
    for document in documents:
        described = (text for parameter in document.parameters for text in parameter if text)
        # A server is mounted there under a namespace, which goes before its tools' names.
        texts.append(
            " ".join([f"{document.service}_{document.name}", document.description, *described])
        )
    index.build(texts)
    return lambda query: index.query(query, DEPTH)
