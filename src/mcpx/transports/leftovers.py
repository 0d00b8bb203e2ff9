"""Ends what an earlier run left behind, should both it and its keeper have been killed (LIF-7).

Each run notes its mark and itself (pid and start time) in a file. A note whose run is gone leads, by the mark in their
environment, to processes that are certainly ours. Linux only; elsewhere nothing is noted.
"""

import logging
import os
import signal
import sys
from pathlib import Path

from mcpx.transports import descendants

log = logging.getLogger("mcpx.process")


def note(folder: Path, run: str) -> Path | None:
    """Leave a note of this run; the caller removes it at a clean end."""
    myself = descendants.read_stat(os.getpid()) if sys.platform == "linux" else None
    if myself is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / run
        file.write_text(f"{os.getpid()} {myself.start}\n", encoding="ascii")
        return file
    except OSError as error:
        log.debug("no note of this run: %s", error)
        return None


def end(folder: Path) -> int:
    """End what runs that are gone left alive, and forget those runs; how many processes that were."""
    gone: dict[bytes, Path] = {}
    for file in folder.glob("*") if sys.platform == "linux" and folder.is_dir() else ():
        try:
            pid, start = (int(part) for part in file.read_text(encoding="ascii").split())
        except (OSError, ValueError):
            continue
        present = descendants.read_stat(pid)
        if present is None or present.start != start:
            gone[file.name.encode()] = file
    if not gone:
        return 0
    found = _marked(set(gone))
    descendants.send(found, signal.SIGKILL)
    for file in gone.values():
        file.unlink(missing_ok=True)
    if found:
        log.warning("ended what an earlier run had left behind (processes: %d)", len(found))
    return len(found)


def _marked(runs: set[bytes]) -> dict[int, int]:
    """Processes that carry the mark of one of these runs: pid -> start."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        marks = {token.partition(b".")[0] for token in descendants.tokens(int(name))}
        stat = descendants.read_stat(int(name)) if marks & runs else None
        if stat is not None and stat.alive:
            found[int(name)] = stat.start
    return found
