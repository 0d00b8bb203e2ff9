"""The search benchmark runs on the sample in the repository and measures what it says. No test looks at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "catalog" / "search" / "sample"


def test_it_prints_tables_and_writes_numbers(tmp_path: Path) -> None:
    """FMT-3"""
    output = tmp_path / "numbers.json"
    command = [sys.executable, "-m", "bench.search", SAMPLE, "--many", "100", "--output", output]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text(encoding="utf-8"))
    assert results["glossary"]["whole_queries"] == 0
    assert [row["tools"] for row in results["speed"]] == [results["tools"], 100]
    for name in ("sample_en", "sample_zh"):
        assert results["quality"]["mcpx"][name]["R@5"] > results["quality"]["plain BM25F"][name]["R@5"]
        assert results["misspelt"]["mcpx"][name]["R@5"] >= results["misspelt"]["plain BM25F"][name]["R@5"]
        assert f"| {name} | mcpx |" in done.stdout
    assert ("FastMCP BM25" in results["quality"]) != ("FastMCP BM25" in results["left_out"])


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    """FMT-3"""
    done = subprocess.run(
        [sys.executable, "-m", "bench.search", tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 2
    assert "tools.jsonl" in done.stderr


def test_recall_and_rank_are_counted_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    """FMT-3: an entry is found when the tool or one of its alternatives is; recall is the share of entries."""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.search import Query, found, quality, reciprocal_rank

    query = Query("s", "q", (frozenset({1, 7}), frozenset({2})))
    assert [found(query, [9, 7, 2], cut) for cut in (1, 2, 3)] == [0.0, 0.5, 1.0]
    assert reciprocal_rank(query, [9, 7, 2]) == 0.5
    assert reciprocal_rank(query, [9]) == 0.0
    other = Query("s", "other", (frozenset({3}),))
    measured = quality(lambda text: [7] if text == "q" else [3], [query, other])
    assert measured["s"]["R@5"] == 0.75
    assert (measured["s"]["even"], measured["s"]["odd"]) == (0.5, 1.0)
    assert "English macro" not in measured


def test_a_whole_query_in_the_glossary_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """FMT-3"""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.search import Query, whole_queries

    wanted = (frozenset({0}),)
    queries = [Query("zh", text, wanted) for text in ("天气预报。", "搜索", "查询明天的天气")]
    assert whole_queries(queries) == (1, 1)


def test_slips_are_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """FMT-3"""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.search import Query, misspelt

    queries = [Query("s", "weather forecast for Lisbon tomorrow", (frozenset({0}),))]
    assert misspelt(queries) == misspelt(queries) != queries
