"""docs/performance.md is made from numbers, all of them or some. `numbers.json` is a tiny run, cut
down."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NUMBERS = Path(__file__).with_name("numbers.json")
Json = dict[str, Any]


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch) -> Callable[[Json], str]:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.report import document

    return document


@pytest.fixture
def numbers() -> Json:
    return json.loads(NUMBERS.read_text(encoding="utf-8"))


def table_under(text: str, heading: str) -> list[dict[str, str]]:
    """The rows of the first table after a heading, by the names of its columns."""
    lines = text[text.index(f"\n{heading}\n") :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows: list[list[str]] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def test_every_section_has_its_tables(document: Callable[[Json], str], numbers: Json) -> None:
    text = document(numbers)

    for title in ("Calls", "Start", "Lists", "Memory and sessions", "Growth", "A server is killed"):
        assert "mcpx" in {
            row["system"]
            for row in table_under(text.replace("### stdio ← stdio\n", ""), f"## {title}")
        }
    commands = {row["by"] for row in table_under(text, "## Local commands")}
    assert {"mcpx, stdio front", "mcpx, http front", "create_subprocess_exec"} < commands
    assert {row["gateway"] for row in table_under(text, "## The guard")} == {"plain", "guarded"}
    assert {row["a call"] for row in table_under(text, "## Replicas")} == {
        "no store",
        "owner",
        "foreign",
    }
    for title in ("In short", "Method", "The machine", "Limits"):
        assert f"\n## {title}\n" in text
    assert "Not measured" not in text


def test_a_ratio_is_the_median_of_the_ratios_of_each_round(
    document: Callable[[Json], str], numbers: Json
) -> None:
    rows = {row["name"]: row for row in numbers["sections"]["hot"]["rows"] if row["era"] == "older"}
    turn = rows["mcpx"]["small"]["16"][0]
    for name, seconds in (
        ("floor", (1.0, 2.0, 4.0)),
        ("mcpx", (2.0, 6.0, 40.0)),
    ):  # ratios 2, 3 and 10
        rows[name]["small"]["16"] = [{**turn, "calls": 1000, "cpu_seconds": one} for one in seconds]

    (shown,) = [
        row
        for row in table_under(document(numbers), "### stdio ← stdio")
        if (row["system"], row["era"]) == ("mcpx", "older")
    ]

    assert (shown["CPU s/1k @16"], shown["CPU ×floor @16"]) == ("6", "3")


def test_wrong_answers_are_told(document: Callable[[Json], str], numbers: Json) -> None:
    assert "none was wrong or missing" in document(numbers)

    numbers["sections"]["hot"]["rows"][0]["errors"] = ["a wrong answer: {}", "another"]

    assert "2 were wrong or missing, 0 of them with mcpx" in document(numbers)
    assert "2 errors: a wrong answer: {}" in document(numbers)


def test_a_busy_machine_is_told(document: Callable[[Json], str], numbers: Json) -> None:
    for section in numbers["sections"].values():
        section["machine"]["cores"], section["loads"] = 2, [0.1, 2.0]
    assert "Others were at work" not in document(numbers)

    numbers["sections"]["hot"]["loads"] = [0.1, 5.0]

    assert "**Others were at work on it during: hot.**" in document(numbers)


def test_what_was_not_measured_is_told(document: Callable[[Json], str], numbers: Json) -> None:
    del numbers["sections"]["growth"]

    assert "Not measured in this run: `bench --only growth`." in document(numbers)
    assert "Not measured in this run: `bench --only hot`." in document({"sections": {}})
