"""The benchmark works, its answers are checked, and it leaves nothing behind. No test here looks at a time."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = [sys.executable, "-m", "bench", "--smoke", "--systems", "direct", "floor", "mcpx"]


def test_every_system_answers_every_question_on_every_pair(tmp_path: Path) -> None:
    output = tmp_path / "numbers.json"

    done = subprocess.run([*BENCH, "--output", output], cwd=ROOT, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stderr
    pairs = json.loads(output.read_text(encoding="utf-8"))["pairs"]
    assert set(pairs) == {"stdio ← stdio", "http ← stdio", "stdio ← http", "http ← http"}
    systems = {(name, era) for name in ("direct", "floor", "mcpx") for era in ("older", "modern")}
    for pair, rows in pairs.items():
        assert {(row["name"], row["era"]) for row in rows} == systems
        for row in rows:
            assert row["errors"] == []
            assert row["calls"] >= 40
            assert [slot["calls"] for slots in row["small"].values() for slot in slots] == [10, 10, 10]
            assert [slot["calls"] for slot in (*row["large"], *row["lists"])] == [1, 1]
            assert f"### {pair}\n" in done.stdout


def test_a_wrong_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.client import Refused
    from bench.measure import check

    def answer(text: str, **more: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": text}], **more}

    check(answer("mine", isError=False, resultType="complete"), "mine")
    for wrong in (answer("another's"), answer("mine", isError=True), {"content": []}, {}):
        with pytest.raises(Refused):
            check(wrong, "mine")


def test_a_run_that_is_interrupted_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.processes import family

    command = [*BENCH, "--pairs", "http-stdio", "--output", tmp_path / "numbers.json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        seen = set(family(run.pid))
        deadline = time.monotonic() + 30
        while not any(is_mcpx(pid) for pid, _ in seen) and time.monotonic() < deadline:
            seen.update(family(run.pid))
        run.send_signal(signal.SIGTERM)

        assert run.wait(30) == 130
    assert len(seen) > 2
    assert {(pid, start) for pid, start in seen if (pid, start) in family(pid)} == set()


def is_mcpx(pid: int) -> bool:
    try:
        return b"\0-m\0mcpx\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
