"""A very short run of the fuzzer: the tool itself works, reaches both edges, and leaves nothing
behind."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

REPOSITORY = Path(__file__).parents[2]


def test_a_short_run_reaches_both_edges_and_finds_nothing(tmp_path: Path) -> None:
    """SRC-8, PRO-6: a few seconds of it; what is rare is for a long run."""
    keep = str(tmp_path / "kept")
    command = [
        sys.executable,
        "-m",
        "bench.fuzz",
        "--minutes",
        "0.1",
        "--seed",
        "7",
        "--rest",
        "0.5",
        "--keep",
        keep,
    ]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=110
    )
    said = done.stdout + done.stderr
    assert "FOUND" not in done.stdout and done.returncode == 0, said
    for kind in (
        "http",
        "websocket",
        "sse",
        "stdio-0",
        "server: http right",
        "server: ws right",
        "server: sse right",
    ):
        assert f"| {kind} " in done.stdout, said
    assert "Traceback" not in done.stderr and "never retrieved" not in done.stderr, said
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("mcpx-fuzz-")] == []


def test_what_is_out_of_bounds_is_refused() -> None:
    for arguments in (["--minutes", "0"], ["--minutes", "100000"], ["--seed", "x"]):
        command = [sys.executable, "-m", "bench.fuzz", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and arguments[0] in done.stderr, done.stderr


def test_the_same_seed_makes_the_same_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    from bench.fuzz_inputs import frames, http, message

    def made() -> list[bytes]:
        rng = Random("7")
        return [
            http(rng, 1, ["a"], "s") + frames(rng, message(rng, ["a"]), True) for _ in range(200)
        ]

    assert made() == made()


def test_a_text_that_was_changed_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    from bench.fuzz_inputs import nonce, nonces

    mine, theirs = nonce("mine"), nonce("theirs")
    assert nonces(f"x {mine}{theirs} <y#00000000> {mine[:-2]}") == {mine, theirs}
