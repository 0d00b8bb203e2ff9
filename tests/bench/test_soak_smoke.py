"""A very short soak: the tool itself works, finds nothing wrong with single calls, and leaves
nothing behind."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

NEVER = (
    "a wrong answer",
    "answered twice",
    "an answer to nothing",
    "never answered",
    "an error that does not name its server",
    "the gateway ended",
    "processes the gateway left behind",
    "a traceback",
)
"""What no run may find, however short and however busy the machine."""


def test_a_short_soak_answers_every_call_once_and_ends_what_it_started(tmp_path: Path) -> None:
    """PRO-6, SRC-8: in a few seconds, with few clients; what takes long to show is for a long
    run."""
    command = [
        sys.executable,
        "-m",
        "bench.soak",
        "--minutes",
        "0.1",
        "--clients",
        "6",
        "--seed",
        "7",
        "--rest",
        "0",
    ]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=110
    )
    said = done.stdout + done.stderr
    assert done.returncode in (0, 1), said
    assert "last minute" in done.stdout and " calls of " in done.stdout, said
    assert [what for what in NEVER if f"WRONG: {what}" in done.stdout] == [], said
    assert "Traceback" not in done.stderr and "never retrieved" not in done.stderr, said
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("mcpx-soak-")] == []


def test_what_is_out_of_bounds_is_refused() -> None:
    for arguments in (
        ["--minutes", "0"],
        ["--minutes", "100000"],
        ["--clients", "0"],
        ["--clients", "100000"],
    ):
        command = [sys.executable, "-m", "bench.soak", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and arguments[0] in done.stderr, done.stderr
