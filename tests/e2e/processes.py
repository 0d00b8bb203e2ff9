"""Looks for processes that should be gone."""

import time
from pathlib import Path

import pytest

from kit.gateway import STOP_SECONDS

PROC = Path("/proc")

needs_proc = pytest.mark.skipif(
    not (PROC / "self" / "cmdline").exists(), reason="looks for processes in /proc"
)


def left_running(word: str, seconds: float = STOP_SECONDS) -> list[str]:
    """The command lines that hold a word, after `seconds` at most for them to go."""
    deadline = time.monotonic() + seconds
    while (found := running(word)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def running(word: str) -> list[str]:
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                line = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue  # ended meanwhile
            if word in line:
                found.append(line)
    return found
