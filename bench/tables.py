"""Tables from the numbers of a run, and the figures in them.

A figure is the median over the rounds. A ratio is formed inside each round, where both systems met
the same neighbours, and the median of the ratios is shown.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.upstream import Json


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [head, *([short(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    aligned = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    ]
    rule = "|".join(["", *("-" * (width + 2) for width in widths), ""])
    return "\n".join([f"{aligned[0]} |", rule, *(f"{line} |" for line in aligned[1:])]) + "\n"


def short(value: Any) -> str:
    """Three figures are more than a shared machine supports."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value.replace("|", "/").replace("\n", " ")
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def note(row: Json) -> str:
    """What a reader must know of a row: why it is empty, or how many answers were wrong."""
    if row["problem"]:
        return row["problem"][:80]
    return f"{len(row['errors'])} errors: {row['errors'][0][:60]}" if row["errors"] else ""


def value_of(turn: Json, key: str) -> float:
    """One figure of a turn."""
    if key == "rate":
        return turn["calls"] / turn["seconds"]
    if key == "cpu_ms":  # a call, which are CPU seconds for a thousand
        return 1000 * turn["cpu_seconds"] / turn["calls"]
    return turn[key]


def median_of(turns: Sequence[Json], key: str) -> float | None:
    values = [value_of(turn, key) for turn in turns if turn["calls"]]
    return median(values) if values else None


def ratio_of(mine: Sequence[Json], theirs: Sequence[Json], key: str) -> float | None:
    rounds = zip(mine, theirs, strict=False)
    ratios = [
        value_of(one, key) / value_of(other, key)
        for one, other in rounds
        if one["calls"] and other["calls"] and value_of(other, key)
    ]
    return median(ratios) if ratios else None


class Figures:
    """One system's calls, and what they are compared with: the direct connection and the floor of
    the same era."""

    def __init__(self, found: Json, others: Sequence[Json]) -> None:
        self.found = found
        same = {other["name"]: other for other in others if other["era"] == found["era"]}
        self.direct, self.floor = same.get("direct"), same.get("floor")
        self._is_direct = found["name"] == "direct"

    def note(self) -> str:
        return note(self.found)

    def p50(self) -> float | None:
        return median_of(self.found["small"]["1"], "p50_ms")

    def rate(self, width: int) -> float | None:
        return median_of(self.found["small"][str(width)], "rate")

    def cpu(self, width: int) -> float | None:
        """CPU seconds for a thousand calls; of the gateway, and a direct connection has none."""
        return None if self._is_direct else median_of(self.found["small"][str(width)], "cpu_ms")

    def large_cpu(self) -> float | None:
        return None if self._is_direct else median_of(self.found["large"], "cpu_ms")

    def times(self, key: str, turns: str, base: Json | None) -> float | None:
        """How many times what the base has; `turns` is a number of clients, or `large`."""
        if base is None or base is self.found or self._is_direct:
            return None
        return ratio_of(_turns(self.found, turns), _turns(base, turns), key)


def _turns(row: Json, turns: str) -> list[Json]:
    return row["large"] if turns == "large" else row["small"][turns]
