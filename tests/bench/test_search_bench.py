"""The search benchmark runs on the sample in the repository and measures what it says. No test
looks at a time."""

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
        assert (
            results["quality"]["mcpx"][name]["R@5"] > results["quality"]["plain BM25F"][name]["R@5"]
        )
        assert (
            results["misspelt"]["mcpx"][name]["R@5"]
            >= results["misspelt"]["plain BM25F"][name]["R@5"]
        )
        assert f"| {name} | mcpx |" in done.stdout
    assert ("FastMCP BM25" in results["quality"]) != ("FastMCP BM25" in results["left_out"])


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    """FMT-3"""
    done = subprocess.run(
        [sys.executable, "-m", "bench.search", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 2
    assert "tools.jsonl" in done.stderr


def test_the_constants_can_be_chosen_without_the_queries_they_are_measured_with() -> None:
    """FMT-3: each query is left out once; what is shipped stays as it is."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.search_folds", SAMPLE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    rows = {
        line.split(" | ")[0]: line for line in done.stdout.splitlines() if line.startswith("| ")
    }
    assert {"| usual", "| left_out", "| shipped", "| without 100% of the synonyms"} <= set(rows)
    assert "SYNONYM: shipped 0.5, chosen [" in done.stdout


def test_a_server_is_either_looked_at_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """FMT-3"""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.search import read
    from bench.search_folds import folds

    documents, queries = read(SAMPLE)
    dealt = folds(documents, queries)
    assert sorted(at for fold in dealt for at in fold) == list(range(len(queries)))
    servers = [{documents[min(queries[at].relevant[0])].service for at in fold} for fold in dealt]
    assert sum(map(len, servers)) == len(set[str]().union(*servers))


def test_own_queries_are_only_for_the_tools_they_were_written_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FMT-3: elsewhere nobody knows whether nothing fits."""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.search import read
    from bench.search_own import QUERIES, measured, own_queries, table

    from mcpx.catalog.search import Document

    documents, _ = read(SAMPLE)
    assert own_queries(documents, live=False) == []
    rows = [json.loads(line) for line in QUERIES.read_text(encoding="utf-8").splitlines()]
    assert {row["part"] for row in rows} == {"tuning", "test"}
    wanted = {
        (one["server"], one["tool"])
        for row in rows
        for e in row["relevant"]
        for one in (e, *e.get("alternatives", ()))
    }
    theirs = [Document(name, name, server, "", name, ()) for server, name in sorted(wanted)]
    own = measured(SAMPLE, theirs)
    assert sum(row["queries"] for row in own) == sum(
        1 for row in rows if not row["set"].startswith("own_live")
    )
    assert "| own_none | test |" in table(own)


def test_recall_and_rank_are_counted_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    """FMT-3: an entry is found when the tool or one of its alternatives is; recall is the share of
    entries."""
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
