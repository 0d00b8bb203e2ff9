"""Ends what an earlier run left behind, should both it and its keeper have been killed (LIF-7).

Each run notes its mark and itself (pid and start time) in a file. A note whose run is gone leads,
by the mark in their environment or the brand that goes with it, to processes that are certainly
ours. Linux only; elsewhere nothing is noted.
"""

import logging
import os
import re
import signal
from pathlib import Path

from mcpx.base.files import private_folder, read_small, require_private, write_private
from mcpx.processes.systems import linux, system
from mcpx.processes.systems.tree import BRANDS, brand_of

log = logging.getLogger("mcpx.process")

_RUN = re.compile("[0-9a-f]{32}")


def note(folder: Path, run: str) -> Path | None:
    """Leave a note of this run; the caller removes it at a clean end."""
    myself = linux.read_stat(os.getpid()) if system is linux else None
    if myself is None:
        return None
    try:
        private_folder(folder)
        file = folder / run
        write_private(file, f"{os.getpid()} {myself.start}\n")
        return file
    except OSError as error:
        log.debug("no note of this run: %s", error)
        return None


def end(folder: Path) -> int:
    """End what runs that are gone left alive, and forget those runs; how many processes that
    were."""
    gone: dict[bytes, Path] = {}
    for file in _notes(folder):
        try:
            pid, start = (int(part) for part in read_small(file, 100).split())
        except (OSError, ValueError):
            continue
        present = linux.read_stat(pid)
        if present is None or present.start != start:
            gone[file.name.encode()] = file
    if not gone:
        return 0
    found = _marked(set(gone))
    linux.send(found, signal.SIGKILL)
    for file in gone.values():
        file.unlink(missing_ok=True)
    if found:
        log.warning("ended what an earlier run had left behind (processes: %d)", len(found))
    return len(found)


def _notes(folder: Path) -> list[Path]:
    """None from a folder that is not ours alone: a note of somebody else could lead to what is
    alive and well."""
    if system is not linux or not os.path.lexists(folder):
        return []
    try:
        require_private(folder)
        return [folder / name for name in os.listdir(folder) if _RUN.fullmatch(name)]
    except OSError as error:
        log.warning("not looked for what an earlier run left behind: %s", error)
        return []


def _marked(runs: set[bytes]) -> dict[int, int]:
    """Processes that carry the mark or the brand of one of these runs: pid -> start."""
    found: dict[int, int] = {}
    brands = {brand_of(run.decode()) for run in runs}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        marks = {token.partition(b".")[0] for token in linux.tokens(int(name))}
        ours = marks & runs or linux.read_brand(int(name)) // BRANDS in brands
        stat = linux.read_stat(int(name)) if ours else None
        if stat is not None and stat.alive:
            found[int(name)] = stat.start
    return found
