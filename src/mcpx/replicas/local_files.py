"""The shared files of this replica: which of them have changed, and merging one with the store.

A file is replaced with mode 0600, and only if nobody has changed it since it was read. Files that
other users can write to are left alone. What the rules remember is in `replicas.json`, beside the
folders, so that a replica that was away can tell its own changes from old copies.
"""

import logging
import os
import stat
import zlib
from collections.abc import Iterable
from pathlib import Path
from time import time
from typing import Final

from mcpx.base import WINDOWS
from mcpx.base.files import private_folder, read_small, replace_private, require_private
from mcpx.base.state_file import UnreadableState
from mcpx.model.call import Json, as_object
from mcpx.replicas.merge_rules import Rule
from mcpx.replicas.seals import Seals
from mcpx.wire import codec

log = logging.getLogger(__name__)

TIMESTAMP_SECONDS: Final = 1.0
"""A folder may change twice within this time with the same timestamp."""
MAX_VALUE_BYTES: Final = 4 << 20
"""Compressed, in the store: a larger one would take longer than the store may take to answer."""
MAX_STATE_BYTES: Final = 128 << 20
MAX_KNOWN_BYTES: Final = 16 << 20
MAX_PROBLEMS: Final = 1_000
ATTEMPTS: Final = 8
KNOWN: Final = "replicas.json"

Mark = tuple[int, int, int]
"""Identity, time, and size of a file when it was read."""


class NotShared(Exception):
    """A file cannot be shared as it is. The message says why."""


class LocalFiles:
    def __init__(self, state: Path, rules: Iterable[Rule], seals: Seals) -> None:
        self.rules = {rule.folder: rule for rule in rules}
        self._state = state
        self._seals = seals
        self.known = _Known(state)
        self._marks: dict[str, Mark | None] = {}
        """By file. Threads add entries: iterate over a copy."""
        self._folder_times: dict[str, int] = {}
        self._problems: set[str] = set()

    def rule(self, name: str) -> Rule | None:
        """The rule of a file. Its name is relative to the state folder."""
        folder, _, file = name.partition("/")
        rule = self.rules.get(folder)
        if rule is None or not rule.owns(file):
            return None
        return rule

    def lasting(self) -> list[str]:
        """The files that should not expire in the store."""
        rules = [(name, self.rule(name)) for name in list(self._marks)]
        return [name for name, rule in rules if rule is not None and rule.lasting]

    def report(self, problem: str) -> None:
        """Log a problem once."""
        if problem not in self._problems and len(self._problems) < MAX_PROBLEMS:
            self._problems.add(problem)
            log.warning("%s", problem)

    # Changes

    def forget_marks(self) -> set[str]:
        """Make all files count as changed. Return those that are known."""
        self._folder_times.clear()
        self._marks.clear()
        return set(self.known.files)

    def changed_folders(self) -> list[Rule]:
        """Files are replaced, not rewritten, which changes the time of their folder."""
        return [
            rule
            for folder, rule in self.rules.items()
            if self._folder_time(folder) != self._folder_times.get(folder)
        ]

    def _folder_time(self, folder: str) -> int:
        try:
            return os.stat(self._state / folder).st_mtime_ns
        except OSError:
            return 0

    def changed_files(self, rule: Rule) -> set[str]:
        """The changed files of one folder. For a thread."""
        folder_time = self._folder_time(rule.folder)
        before = {name for name in list(self._marks) if name.startswith(f"{rule.folder}/")}
        try:
            found = self._scan(rule)
        except OSError:  # The folder was lost: its files are written again.
            self._folder_times[rule.folder] = 0
            return {name for name in before if rule.lasting}
        if time() - folder_time / 1e9 > TIMESTAMP_SECONDS:
            self._folder_times[rule.folder] = folder_time
        removed = before - found.keys()
        if not rule.lasting:
            for name in removed:
                del self._marks[name]
            removed = set[str]()
        return removed | {name for name, mark in found.items() if self._marks.get(name) != mark}

    def _scan(self, rule: Rule) -> dict[str, Mark]:
        folder = self._state / rule.folder
        with os.scandir(folder) as entries:
            owned = [entry for entry in entries if rule.owns(entry.name)]
            files = [(_mark(entry.stat(follow_symlinks=False)), entry.name) for entry in owned]
        files.sort(key=lambda file: file[0][1], reverse=True)
        if len(files) > rule.most:
            latest = f"only the latest {rule.most} files"
            self.report(f"of {folder} {latest} are shared with other replicas")
        return {f"{rule.folder}/{name}": mark for mark, name in files[: rule.most]}

    # One file

    def meet(self, rule: Rule, name: str, sealed: bytes | None) -> tuple[bool, bytes | None]:
        """Merge a file with the value of the store. For a thread.

        Return whether the file was changed, and what to write to the store, if anything. Raises
        `NotShared` and OSError.
        """
        try:
            return self._merge(rule, name, sealed)
        except (ValueError, KeyError, TypeError, RecursionError, UnreadableState) as error:
            raise NotShared(f"its content is not valid ({type(error).__name__})") from None

    def _merge(self, rule: Rule, name: str, sealed: bytes | None) -> tuple[bool, bytes | None]:
        file = self._state / name
        theirs = self._opened(sealed, name)
        for _ in range(ATTEMPTS):
            raw, self._marks[name], changed_at = _read(file, rule.largest)
            merged = theirs
            if raw is not None or file.parent.is_dir():  # A lost folder is not a removal.
                mine = rule.taken(raw, changed_at, self.known.files.get(name, {}))
                merged = _both(rule, mine, theirs)
            if merged is None:
                self._marks.pop(name, None)
                return False, None
            rendered = rule.rendered(merged, raw)
            if rendered == raw or self._replace(rule, file, raw, rendered):
                break
        else:
            raise NotShared("it changes all the time")
        self.known.remember(name, rule.remembered(merged))
        if rendered is None:
            self._marks.pop(name, None)
        elif rendered != raw:
            self._marks[name] = None  # Read the new file again.
            self._folder_times.pop(rule.folder, None)
        if merged == theirs:
            return rendered != raw, None
        return rendered != raw, self._sealed(merged, name)

    def _replace(self, rule: Rule, file: Path, before: bytes | None, after: bytes | None) -> bool:
        """Return False if the file has changed since it was read."""
        if after is not None and len(after) > rule.largest:
            raise NotShared("with the changes of others it would be too large")
        private_folder(file.parent)
        with rule.alone(file):
            if _read(file, rule.largest)[0] != before:
                return False
            if after is None:
                file.unlink(missing_ok=True)
            else:
                replace_private(file, after)
        return True

    def _sealed(self, state: Json, name: str) -> bytes:
        sealed = self._seals.encrypt(zlib.compress(codec.dump(state), 1), name.encode())
        if len(sealed) > MAX_VALUE_BYTES:
            raise NotShared("it is too large")
        return sealed

    def _opened(self, sealed: bytes | None, name: str) -> Json | None:
        if not sealed:
            return None
        plain = self._seals.decrypt(sealed, name.encode())
        if plain is None:
            self.report(f"{name} in the store was encrypted with another key: it is written again")
            return None
        try:
            text = zlib.decompressobj().decompress(plain, MAX_STATE_BYTES)
        except zlib.error:
            raise NotShared("its value in the store cannot be read") from None
        return as_object(codec.load(text)) or None


class _Known:
    """What the rules remember of each file, in `replicas.json`."""

    def __init__(self, state: Path) -> None:
        self._file = state / KNOWN
        self.files: dict[str, Json] = {}
        self._is_saved = True

    def remember(self, name: str, known: Json) -> None:
        if known == self.files.get(name, {}):
            return
        self._is_saved = False
        self.files.pop(name, None)
        if known:
            self.files[name] = known

    def load(self) -> None:
        try:
            raw = _read(self._file, MAX_KNOWN_BYTES)[0]
            found = as_object(codec.load(raw or b"{}"))
        except (OSError, NotShared, codec.BadJson) as error:
            text = "%s cannot be read (%s): files that were removed here meanwhile come back"
            log.warning(text, self._file, error)
            found = {}
        self.files = {name: as_object(known) for name, known in found.items()}

    def save(self) -> None:
        """If it has changed. For a thread. Raises OSError."""
        if self._is_saved:
            return
        self._is_saved = True
        private_folder(self._file.parent)
        replace_private(self._file, codec.dump(dict(self.files)))


def _both(rule: Rule, mine: Json | None, theirs: Json | None) -> Json | None:
    if mine is None or theirs is None:
        return mine or theirs
    return rule.merged(mine, theirs)


def _mark(found: os.stat_result) -> Mark:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(file: Path, max_bytes: int) -> tuple[bytes | None, Mark | None, float]:
    """Return the content, its mark, and the time of its change. Raises `NotShared`."""
    try:
        require_private(file.parent)
        found = os.lstat(file)
    except FileNotFoundError:
        return None, None, 0.0
    is_private = WINDOWS or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)
    if not stat.S_ISREG(found.st_mode) or not is_private:
        raise NotShared("it is not a file of this user alone")
    if found.st_size > max_bytes:
        raise NotShared("it is too large")
    return read_small(file, max_bytes + 1), _mark(found), found.st_mtime
