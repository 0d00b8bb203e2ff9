"""Notices that the files of a configuration changed (CFG-5).

Polls by `stat`, every `hot_reload_interval` seconds. That interval is a promise, a poll works on
network folders, in containers and through symbolic links, where notifications of the system do not
arrive, and a handful of `stat` calls costs nothing; so there is no thread and no dependency.

Promised: a change is told once it has been at rest for a moment, so that a half-written file is
seldom read; what changes while it is being told is told again, so that a storm of edits ends in its
last state. Not done here: reading the files. What is told may turn out to be no change at all.
"""

import asyncio
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from mcpx.config.files import members

log = logging.getLogger(__name__)

REST = 0.15
"""Seconds a change must be at rest: editors truncate and write within a few milliseconds."""
PATIENCE = 2.0
"""Seconds after which a change that does not come to rest is told all the same."""
SLACK_NS = 2_000_000_000
"""By how much the clock of a file system may lag behind, its granularity included."""

Print = tuple[int | str, ...] | None
"""What tells one state of a file or folder from another; None: it is not there."""


class Watcher:
    def __init__(
        self,
        sources: Callable[[], Iterable[Path]],
        interval: Callable[[], float],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        """Changes count from now on: make it right after the files were read."""
        self._sources = sources
        self._interval = interval
        self._changed = changed
        self._told = time.time_ns()
        self._seen = self._look()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self._interval())
            now = self._look()
            if not self._differs(now):
                self._seen = now  # with what came to be watched meanwhile
                continue
            now = await self._at_rest(now)
            if not self._differs(now):
                continue  # it came and went
            self._seen, self._told = now, time.time_ns()
            try:
                await self._changed()
            except Exception:
                log.exception("a changed configuration could not be taken up")

    def _look(self) -> dict[Path, Print]:
        return {path: print_of(path) for path in self._sources()}

    def _differs(self, now: dict[Path, Print]) -> bool:
        return any(
            found != self._seen[path]
            if path in self._seen
            else _touched_since(found, self._told - SLACK_NS)
            for path, found in now.items()
        )

    async def _at_rest(self, now: dict[Path, Print]) -> dict[Path, Print]:
        for _ in range(int(PATIENCE / REST)):
            await asyncio.sleep(REST)
            before, now = now, self._look()
            if now == before:
                break
        return now


def print_of(path: Path) -> Print:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # not there, not reachable, or not a possible name
        return None
    if stat.S_ISDIR(found.st_mode):
        return tuple(file.name for file in members(path))
    # The change time tells of a new mode and of a file moved here with its old date.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _touched_since(found: Print, moment: int) -> bool:
    """Whether a file that was not watched until now may have changed since it was read."""
    return any(isinstance(part, int) and part > moment for part in (found or ())[:2])
