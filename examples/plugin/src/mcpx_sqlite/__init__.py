"""Two parts for mcpx: commands that read a SQLite database, and values as Markdown tables."""

import asyncio
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from mcpx.commands.work import Bench, CommandFailed, Progress
from mcpx.model.kinds import IN_FOLDER, Mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class Sqlite:
    type: ClassVar[str] = "sqlite"
    reads_only: ClassVar[bool] = True  # it is opened so

    path: str = field(metadata=IN_FOLDER)
    query: str
    """One statement; `:name` stands for an argument."""

    def mistakes(self, parameters: Mapping[str, bool] | None) -> Iterator[Mistake]:
        if not self.query.strip():
            yield Mistake("there is nothing to ask for", ("query",))

    def prepare(self, bench: Bench) -> "Query":
        return Query(self, bench.schema.get("properties", {}))


class Query:
    def __init__(self, what: Sqlite, parameters: Iterable[str]) -> None:
        self._what, self._absent = what, dict.fromkeys(parameters)

    async def run(self, arguments: Mapping[str, Any], progress: Progress | None) -> dict[str, Any]:
        try:
            rows = await asyncio.to_thread(self._rows, {**self._absent, **arguments})
        except sqlite3.Error as error:
            raise CommandFailed(str(error)) from None
        return {"content": [{"type": "text", "text": json.dumps(rows, default=str)}]}

    def _rows(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        connection = sqlite3.connect(Path(self._what.path).as_uri() + "?mode=ro", uri=True)
        try:
            found = connection.execute(self._what.query, arguments)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchmany(1000)]
        finally:
            connection.close()

    async def close(self) -> None:
        pass


class Markdown:
    type: ClassVar[str] = "markdown"

    def value(self, value: object) -> str | None:
        """A table, where all rows have the same keys."""
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(row, dict) for row in value)
        ):
            return None
        if not (names := list(value[0])) or any(list(row) != names for row in value):
            return None
        rows = [
            names,
            ["---"] * len(names),
            *([_cell(row[name]) for name in names] for row in value),
        ]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", "\\|").replace("\n", "<br>")
