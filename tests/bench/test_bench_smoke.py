"""The benchmark works, its answers are checked, and it leaves nothing behind. No test here looks at
a time."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = [sys.executable, "-m", "bench", "--smoke"]
Json = dict[str, Any]


def measured(output: Path, *options: str) -> tuple[dict[str, Json], str]:
    """The sections of a run, and what it printed. No peer is installed, wherever this runs."""
    command = [*BENCH, *options, "--output", str(output)]
    without = {**os.environ, "BENCH_PEERS": str(output.parent / "peers")}
    done = subprocess.run(
        command, cwd=ROOT, env=without, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text(encoding="utf-8"))["sections"], done.stdout


def by_system(section: Json, era: str = "older") -> dict[str, Json]:
    """Its rows, none of which has anything to complain about."""
    for row in section["rows"]:
        assert (row["errors"], row["problem"]) == ([], ""), row
    return {row["name"]: row for row in section["rows"] if row["era"] == era}


def test_every_system_answers_every_question_on_every_pair(tmp_path: Path) -> None:
    names = ["direct", "floor", "mcpx", "mcpx-search"]

    sections, printed = measured(
        tmp_path / "numbers.json", "--only", "hot", "--systems", ",".join(names)
    )

    rows = sections["hot"]["rows"]
    pairs = ["stdio ← stdio", "http ← stdio", "stdio ← http", "http ← http"]
    expected = [
        (pair, era, name) for pair in pairs for era in ("older", "modern") for name in names
    ]
    assert [(row["pair"], row["era"], row["name"]) for row in rows] == expected
    for row in rows:
        assert (row["errors"], row["problem"]) == ([], "")
        assert [turn["calls"] for turns in row["small"].values() for turn in turns] == [10, 10, 10]
        assert [turn["calls"] for turn in row["large"]] == (
            [] if row["name"] == "mcpx-search" else [1]
        )
        assert f"### {row['pair']}\n" in printed


def test_starts_are_measured_until_all_tools_are_there(tmp_path: Path) -> None:
    sections, printed = measured(
        tmp_path / "numbers.json", "--only", "start", "--systems", "floor,mcpx"
    )

    rows = by_system(sections["start"])
    assert list(rows) == ["floor", "mcpx", "mcpx, again"]
    for row in rows.values():
        assert list(row["starts"]) == ["1", "2"]
        assert all(
            start["first"] <= start["whole"]
            for starts in row["starts"].values()
            for start in starts
        )
        assert row["others_listed"] is not None
    assert rows["mcpx"]["others_called"] is not None
    assert "## Start\n" in printed


def test_lists_are_measured_with_few_and_many_tools(tmp_path: Path) -> None:
    sections, printed = measured(tmp_path / "numbers.json", "--only", "list", "--systems", "mcpx")

    for era in ("older", "modern"):
        row = by_system(sections["list"], era)["mcpx"]
        assert [turn["calls"] for turns in row["lists"].values() for turn in turns] == [1, 1]
        assert list(row["rss_mb"]) == ["40", "80"]
    assert "| KB a tool |" in printed


def test_memory_is_read_idle_after_calls_and_with_sessions(tmp_path: Path) -> None:
    sections, _ = measured(tmp_path / "numbers.json", "--only", "memory", "--systems", "mcpx")

    for era in ("older", "modern"):
        row = by_system(sections["memory"], era)["mcpx"]
        assert (row["after_calls"], row["sessions"]) == (40, 10)
        assert row["calls"] == 10 + 40 + 10
        assert row["idle_mb"] > 1
        assert row["ended_mb"] > 1


def test_growth_is_measured_over_servers_tools_and_sessions(tmp_path: Path) -> None:
    sections, _ = measured(tmp_path / "numbers.json", "--only", "growth", "--systems", "mcpx")

    by_system(sections["growth"])
    cases = ["2 servers", "4 servers", "2 servers, 20 tools"]
    found = [(row["era"], row["case"]) for row in sections["growth"]["rows"]]
    assert found == [("older", case) for case in (*cases, "5 sessions")] + [
        ("modern", case) for case in cases
    ]
    assert [turn["calls"] for row in sections["growth"]["rows"] for turn in row["turns"]] == [
        20
    ] * 7


def test_a_killed_server_comes_back_and_its_call_was_run_once(tmp_path: Path) -> None:
    """LIF-4"""
    sections, _ = measured(tmp_path / "numbers.json", "--only", "faults", "--systems", "mcpx")

    for era in ("older", "modern"):
        (kill,) = by_system(sections["faults"], era)["mcpx"]["kills"]
        assert kill["back"] is not None
        assert kill["told"] is not None
        assert (kill["runs"], kill["others_failed"]) == (1, 0)


def test_a_section_that_is_measured_again_replaces_itself_only(tmp_path: Path) -> None:
    output = tmp_path / "numbers.json"
    kept = {"sections": {"hot": {"rows": []}, "faults": {"rows": [], "mark": "of yesterday"}}}
    output.write_text(json.dumps(kept), encoding="utf-8")

    sections, _ = measured(output, "--only", "hot", "--systems", "direct", "--pairs", "stdio-stdio")

    assert sections["faults"] == {"rows": [], "mark": "of yesterday"}
    assert [row["name"] for row in sections["hot"]["rows"]] == ["direct", "direct"]


def test_a_peer_that_is_not_installed_is_said_to_be_and_fails_nothing(tmp_path: Path) -> None:
    output = tmp_path / "numbers.json"

    sections, printed = measured(
        output, "--only", "hot", "--systems", "floor,fastmcp", "--pairs", "stdio-stdio"
    )

    problems = {row["name"]: row["problem"] for row in sections["hot"]["rows"]}
    assert problems == {"floor": "", "fastmcp": "not installed: bench peers install"}
    (line,) = [line for line in printed.splitlines() if line.startswith("| fastmcp ")]
    assert "not installed" in line


@pytest.mark.parametrize(("answer", "right"), [("mine", True), ("another's", False)])
def test_a_wrong_answer_is_refused(
    answer: str, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.client import Refused
    from bench.gateway import check

    content = [{"type": "text", "text": answer}]
    wrong: list[Json] = [{"content": content, "isError": True}, {"content": []}, {}]
    if right:
        check({"content": content, "isError": False, "resultType": "complete"}, "mine")
    else:
        wrong.append({"content": content})
    for result in wrong:
        with pytest.raises(Refused):
            check(result, "mine")


def test_a_run_that_is_interrupted_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.processes import family

    options = ["--only", "hot", "--systems", "floor,mcpx", "--pairs", "http-stdio"]
    command = [*BENCH, *options, "--output", str(tmp_path / "numbers.json")]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
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


def test_commands_are_measured_beside_what_they_wrap(tmp_path: Path) -> None:
    sections, printed = measured(tmp_path / "numbers.json", "--only", "commands")

    rows = {(row["what"], row["name"], row["era"]): row for row in sections["commands"]["rows"]}
    wrapped = {
        ("an HTTP request", "aiohttp, directly", ""),
        ("a script", "create_subprocess_exec", ""),
    }
    ours = {
        ("an HTTP request", "mcpx, stdio front", "older"),
        ("an HTTP request", "mcpx, http front", "older"),
        ("an HTTP request", "mcpx, http front", "modern"),
        ("a script", "mcpx, stdio front", "older"),
    }
    assert rows.keys() == wrapped | ours
    for key in ours:
        assert (rows[key]["errors"], rows[key]["problem"]) == ([], "")
        assert all(turn["calls"] for turns in rows[key]["turns"].values() for turn in turns)
    assert "CPU ms a call @16" in printed


def test_a_guarded_call_is_measured_beside_a_plain_one(tmp_path: Path) -> None:
    sections, printed = measured(tmp_path / "numbers.json", "--only", "guard")

    rows = {(row["era"], row["name"]): row for row in sections["guard"]["rows"]}
    assert rows.keys() == {
        (era, name) for era in ("older", "modern") for name in ("plain", "guarded")
    }
    for row in rows.values():
        assert (row["errors"], row["problem"]) == ([], "")
        assert all(turn["calls"] for turns in row["turns"].values() for turn in turns)
    assert "× plain" in printed


def test_a_call_is_measured_with_and_without_the_admin_ui(tmp_path: Path) -> None:
    sections, printed = measured(tmp_path / "numbers.json", "--only", "admin")

    rows = {(row["era"], row["name"]): row for row in sections["admin"]["rows"]}
    assert rows.keys() == {
        (era, name) for era in ("older", "modern") for name in ("plain", "admin", "watched")
    }
    for (_, name), row in rows.items():
        assert (row["errors"], row["problem"]) == ([], "")
        assert all(turn["calls"] for turns in row["turns"].values() for turn in turns)
        assert row["idle_mb"] > 10 and row["streams_alive"] == (10 if name == "watched" else 0)
    assert "× plain" in printed


def test_replicas_are_measured_beside_a_gateway_without_a_store(tmp_path: Path) -> None:
    """SCA-1: an owner's call asks the store nothing."""
    sections, printed = measured(tmp_path / "numbers.json", "--only", "replicas")

    rows = {(row["era"], row["name"]): row for row in sections["replicas"]["rows"]}
    older = {("older", name) for name in ("no store", "owner", "foreign")}
    modern = {("modern", name) for name in ("no store", "owner", "one replica", "two replicas")}
    assert rows.keys() == older | modern
    for row in rows.values():
        assert (row["errors"], row["problem"]) == ([], "")
        assert all(turn["calls"] for turns in row["turns"].values() for turn in turns)
    assert (
        abs(rows["older", "owner"]["store_commands"]) < 0.5
    )  # beats are taken off, and may be one more or less
    assert "store commands a call" in printed and "× one" in printed
