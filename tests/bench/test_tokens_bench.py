"""The token benchmark: its encoder is the real one, and it runs on a small sample with a small set
of ranks.

`tiny_ranks.json` has 656 tokens, learnt from the samples; what `tiny_tokens.json` expects is what
js-tiktoken 1.0.21 makes of these texts with it.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
RANKS = Path(__file__).with_name("tiny_ranks.json")
EXPECTED = Path(__file__).with_name("tiny_tokens.json")
TOOLS = ROOT / "tests" / "formats" / "samples" / "live_tools.json"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT))
    import bench.tokens

    yield bench.tokens


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The samples, laid out as the benchmark expects its data."""
    folder = tmp_path / "data"
    (folder / "search").mkdir(parents=True)
    shutil.copy(TOOLS, folder / "live_tools.json")
    tools = [
        tool
        for server in json.loads(TOOLS.read_text(encoding="utf-8")).values()
        for tool in server["tools"]
    ]
    rows = [
        json.dumps({"tool": tool["name"], "input_schema": tool["inputSchema"]}) + "\n"
        for tool in tools
    ]
    (folder / "search" / "tools.jsonl").write_text("".join(rows), encoding="utf-8")
    return folder


@pytest.mark.parametrize(("text", "tokens"), json.loads(EXPECTED.read_text(encoding="utf-8")))
def test_the_encoder_gives_the_tokens_of_the_real_one(
    bench: ModuleType, text: str, tokens: list[int]
) -> None:
    encoder = bench.Encoder.load(RANKS)

    assert encoder.encode(text) == tokens
    assert encoder.count(text) == len(tokens)


def test_ranks_are_also_read_from_the_module_that_npm_delivers(
    bench: ModuleType, tmp_path: Path
) -> None:
    module = tmp_path / "tiny.cjs"
    module.write_text(
        f"module.exports = {RANKS.read_text(encoding='utf-8').strip()};", encoding="utf-8"
    )

    encoder = bench.Encoder.load(module)

    assert encoder.name == "tiny"
    assert encoder.encode("{path: string") == bench.Encoder.load(RANKS).encode("{path: string")


def test_the_benchmark_counts_schemas_and_values(
    bench: ModuleType, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FMT-1, FMT-2: what the formats save is measured, not claimed."""
    output = tmp_path / "numbers.json"

    assert bench.main([str(data), "--ranks", str(RANKS), "--output", str(output)]) == 0

    measured = json.loads(output.read_text(encoding="utf-8"))["encodings"]["tiny_ranks"]
    rows = {row["corpus"]: row for row in measured["schemas"]}
    assert list(rows) == [
        "live servers",
        "- filesystem",
        "- git",
        "- memory",
        "- everything",
        "search corpus",
    ]
    live = rows["live servers"]
    assert {key: live[key] for key in live if key != "corpus"} == {
        key: rows["search corpus"][key] for key in live if key != "corpus"
    }
    assert (
        live["tools"]
        == 11
        == sum(row["tools"] for name, row in rows.items() if name.startswith("-"))
    )
    for row in rows.values():
        assert 0 < row["type_bare"] < row["type_docs"] < row["json"]
        assert 0 < row["signature_bare"] < row["signature_docs"] < row["json_named"]
    for row in measured["values"]:
        assert row["chosen"] == (row["toon"] if row["form"] == "TOON" else row["json"])
        assert (row["form"] == "TOON") == (
            row["payload"].startswith(("uniform rows", "rows in an object", "rows, "))
        )
    assert capsys.readouterr().out.startswith(
        "## Tokens, tiny_ranks\n\n### Input schemas\n| tools of | n | JSON |"
    )


def test_without_data_or_ranks_it_says_what_is_missing(
    bench: ModuleType,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.main([str(tmp_path / "nowhere"), "--ranks", str(RANKS)]) == 1
    assert "neither live_tools.json nor search/tools.jsonl" in capsys.readouterr().err
    monkeypatch.setattr("bench.bpe.RANKS", tmp_path)
    assert bench.main([str(data)]) == 1
    assert "--ranks" in capsys.readouterr().err
