"""What a model reads through each surface: the menu before its first call, and the replies to
searches.

The surfaces are the real ones; only what stands behind them is a file instead of servers.
"""

import asyncio
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import orjson

from bench.bpe import Encoder
from mcpx.catalog.catalog import Catalog, Source
from mcpx.catalog.naming import Naming
from mcpx.formats.tokens import estimate
from mcpx.model.call import Call, Caller
from mcpx.model.offer import KINDS, Kind
from mcpx.surfaces.settings import Settings
from mcpx.surfaces.surface import Lasting, Surfaces
from mcpx.surfaces.view import Service, View

Json = dict[str, Any]
MODES = ("direct", "inspect", "describe", "search")
QUERIES = ("queries_dev.jsonl", "queries_short_dev.jsonl", "queries_zh_dev.jsonl")


class Shelf:
    """A catalog without servers: as much of a `View` as listing and searching need."""

    def __init__(self, name: str, servers: dict[str, Json]) -> None:
        self.name = name
        self._services = {
            server: Service(
                server, told.get("description", ""), told.get("instructions") or "", "connected"
            )
            for server, told in servers.items()
        }
        sources = [
            Source(
                server,
                None,
                {kind: told["tools"] if kind == "tools" else [] for kind in KINDS},
                description=about,
            )
            for server, told in servers.items()
            for about in [told.get("description", "")]
        ]
        self.catalog = Catalog.build(sources, Naming(prefix="always"))

    async def prepare(self) -> Catalog:
        return self.catalog

    def service(self, name: str) -> Service | None:
        return self._services.get(name)

    def services(self) -> Sequence[Service]:
        return list(self._services.values())

    def starting(self) -> Sequence[str]:
        return ()

    async def page(self, kind: Kind, call: Call) -> Json:
        items, _ = self.catalog.page(kind)
        return {kind: items}


def shelves(data: Path, growth: int = 18) -> list[Shelf]:
    """The corpora that are there, and the larger one `growth` times over under other names."""
    found: list[Shelf] = []
    live = data / "live_tools.json"
    if live.exists():
        found.append(Shelf("live servers", json.loads(live.read_text(encoding="utf-8"))))
    corpus = data / "search" / "tools.jsonl"
    if corpus.exists():
        servers: dict[str, Json] = {}
        for row in map(json.loads, corpus.read_text(encoding="utf-8").splitlines()):
            told = servers.setdefault(
                row.get("server", "server"),
                {"description": row.get("server_description", ""), "tools": []},
            )
            schema = {
                "name": row["tool"],
                "description": row.get("description"),
                "inputSchema": row["input_schema"],
            }
            told["tools"].append(schema)
        found.append(Shelf("search corpus", servers))
        many = {f"{name} {n}": told for n in range(growth) for name, told in servers.items()}
        found.append(Shelf(f"search corpus x {growth}", many))
    return found


def menus(encoder: Encoder, shelves: Sequence[Shelf]) -> list[Json]:
    """All tool definitions of a surface as compact JSON, for each catalog."""
    rows: list[Json] = []
    surfaces = _surfaces()
    for shelf in shelves:
        for mode in MODES:
            call = Call("tools/list", {}, Caller())
            listed = asyncio.run(surfaces.of(mode).list_tools(cast(View, shelf), call))
            text = orjson.dumps(listed["tools"]).decode()
            rows.append(
                {
                    "corpus": shelf.name,
                    "tools": len(shelf.catalog.offers["tools"]),
                    "surface": mode,
                    "tokens": encoder.count(text),
                    "estimate": estimate(text),
                }
            )
    return rows


def replies(encoder: Encoder, shelf: Shelf, queries: Sequence[str]) -> Json:
    """The text of a search's reply, over all queries."""
    search = _surfaces().of("search")
    counts: list[int] = []
    for query in queries:
        call = Call(
            "tools/call", {"name": "mcp_search_tools", "arguments": {"query": query}}, Caller()
        )
        result = asyncio.run(search.call_tool(cast(View, shelf), call))
        counts.append(encoder.count(result["content"][0]["text"]))
    return {
        "corpus": shelf.name,
        "queries": len(counts),
        "median": statistics.median(counts),
        "largest": max(counts),
    }


def read_queries(data: Path) -> list[str]:
    files = [data / "search" / name for name in QUERIES]
    return [
        json.loads(line)["query"]
        for file in files
        if file.exists()
        for line in file.open(encoding="utf-8")
    ]


def _surfaces() -> Surfaces:
    return Surfaces("direct", Settings(), Lasting())
