"""The files of this replica that are shared: which were changed here, and one of them merged with
what the store has.

Promised: a file is replaced as its room replaces it, 0600 and at once, and never while it is not
what was merged. One that others could have written is left alone, and its folder with it. What the
rules remember is kept beside the folders, so that a replica that was away tells what was changed
meanwhile from what is merely old.
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
from mcpx.model.call import Json, as_object
from mcpx.replicas.rules import Rule
from mcpx.replicas.seals import Seals
from mcpx.wire import codec

log = logging.getLogger(__name__)

YOUNG: Final = 1.0
"""Seconds in which a folder that was changed may be changed again without a trace in its time."""
LARGEST_SEALED: Final = 4 << 20
"""Bytes of a value in the store, compressed: what takes longer to travel than the store may take to
answer would make it count as away."""
TRIES: Final = 8
KNOWN: Final = "replicas.json"
_LARGEST_KNOWN: Final = 16 << 20
_LARGEST_STATE: Final = 128 << 20
_MOST_SAID: Final = 1_000


class Odd(Exception):
    """A file that is not shared as it is; says why."""


class Shelf:
    def __init__(self, state: Path, rules: Iterable[Rule], seals: Seals) -> None:
        self.rules = {rule.folder: rule for rule in rules}
        self._state, self._seals = state, seals
        self._known: dict[str, Json] = {}
        """Of each file, what its rule remembers."""
        self._unwritten = False
        self._marks: dict[str, object] = {}
        """Of files as they were when they were last read. Threads put into it what others go
        through: copied first."""
        self._folders: dict[str, int] = {}
        """When they were last changed, as far as is known."""
        self._said: set[str] = set()

    def rule(self, name: str) -> Rule | None:
        """Of a file, by its name under the state folder."""
        folder, _, file = name.partition("/")
        rule = self.rules.get(folder)
        return rule if rule is not None and rule.owns(file) else None

    @property
    def lasting(self) -> list[str]:
        """The files that are there and stay."""
        return [
            name
            for name in list(self._marks)
            if (rule := self.rule(name)) is not None and rule.lasting
        ]

    def say(self, problem: str) -> None:
        if problem not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(problem)
            log.warning("%s", problem)

    # What was changed here
    # -------------------------------------------------------------------------------------

    def forget_looks(self) -> set[str]:
        """All there is counts as changed with the next look; those of which something is known, at
        once."""
        self._folders.clear()
        self._marks.clear()
        return set(self._known)

    def stirred(self) -> list[Rule]:
        """Whose folders were changed: files are replaced and removed, never written into, and that
        shows there."""
        return [
            rule
            for folder, rule in self.rules.items()
            if self._changed_at(folder) != self._folders.get(folder)
        ]

    def _changed_at(self, folder: str) -> int:
        """0: it is not there."""
        try:
            return os.stat(self._state / folder).st_mtime_ns
        except OSError:
            return 0

    def changed(self, rule: Rule) -> set[str]:
        """The files of a folder that were changed; for a thread."""
        folder = self._state / rule.folder
        at = self._changed_at(rule.folder)
        try:
            with os.scandir(folder) as entries:
                files = [
                    (entry.stat(follow_symlinks=False), entry.name)
                    for entry in entries
                    if rule.owns(entry.name)
                ]
        except OSError:  # what is there no more with its folder was lost: it is written anew
            self._folders[rule.folder] = 0
            return {name for name in self.lasting if name.startswith(f"{rule.folder}/")}
        if time() - at / 1e9 > YOUNG:
            self._folders[rule.folder] = at
        files.sort(key=lambda file: file[0].st_mtime_ns, reverse=True)
        if len(files) > rule.most:
            self.say(
                f"of {folder} only the latest {rule.most} files are shared with other replicas"
            )
        found = {f"{rule.folder}/{name}": _mark(about) for about, name in files[: rule.most]}
        gone = {
            name
            for name in list(self._marks)
            if name.startswith(f"{rule.folder}/") and name not in found
        }
        if not rule.lasting:
            for name in gone:
                del self._marks[name]
            gone = set[str]()
        return gone | {name for name, mark in found.items() if self._marks.get(name) != mark}

    # One file
    # ----------------------------------------------------------------------------------------------

    def meet(self, rule: Rule, name: str, sealed: bytes | None) -> tuple[bool, bytes | None]:
        """Merge what is here and what the store has; for a thread. Whether the file was changed for
        it, and what is to be put into the store, if anything. Raises `Odd`; OSError."""
        file, known = self._state / name, self._known.get(name, {})
        try:
            theirs = None if not sealed else self._opened(sealed, name)
            for _ in range(TRIES):
                raw, mark, at = _read(file, rule.largest)
                self._marks[name] = mark
                is_lost = raw is None and not file.parent.is_dir()  # nobody meant this one
                mine = None if is_lost else rule.taken(raw, at, known)
                both = (
                    theirs
                    if mine is None
                    else mine
                    if theirs is None
                    else rule.merged(mine, theirs)
                )
                if both is None:
                    self._marks.pop(name, None)
                    return False, None
                after = rule.rendered(both, raw)
                if after == raw or self._replaced(rule, file, raw, after):
                    break
            else:
                raise Odd("it changes all the time")
            self._remember(name, rule.remembered(both))
            mine = None if both == theirs else self._sealed(both, name)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Odd(f"what it says is not understood ({type(error).__name__})") from None
        if after is None:
            self._marks.pop(name, None)
        elif after != raw:
            self._marks[name] = None  # as it is now it was not read: the next look does
            self._folders.pop(rule.folder, None)
        return after != raw, mine

    def _replaced(self, rule: Rule, file: Path, before: bytes | None, after: bytes | None) -> bool:
        if after is not None and len(after) > rule.largest:
            raise Odd("with what others have it would be too large")
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
        if len(sealed) > LARGEST_SEALED:
            raise Odd("it is too large")
        return sealed

    def _opened(self, sealed: bytes, name: str) -> Json | None:
        plain = self._seals.decrypt(sealed, name.encode())
        if plain is None:
            self.say(
                f"what the store has of {name} was encrypted with another key: it is written anew"
            )
            return None
        try:
            return (
                as_object(codec.load(zlib.decompressobj().decompress(plain, _LARGEST_STATE)))
                or None
            )
        except zlib.error:
            raise Odd("what the store has of it cannot be read") from None

    # What is remembered
    # ----------------------------------------------------------------------------------------

    def _remember(self, name: str, known: Json) -> None:
        if known != self._known.get(name, {}):
            self._unwritten = True
            self._known[name] = known
            if not known:
                del self._known[name]

    def read_known(self) -> None:
        file = self._state / KNOWN
        try:
            raw = _read(file, _LARGEST_KNOWN)[0]
            found = {} if raw is None else as_object(codec.load(raw))
        except (OSError, Odd, codec.BadJson) as error:
            log.warning(
                "%s cannot be read (%s): what was removed here while this replica was away comes "
                "back",
                file,
                error,
            )
            found = {}
        self._known = {
            name: as_object(known) for name, known in found.items() if self.rule(name) is not None
        }

    @property
    def unwritten(self) -> bool:
        return self._unwritten

    def write_known(self) -> None:
        self._unwritten = False
        try:
            private_folder(self._state)
            replace_private(self._state / KNOWN, codec.dump(dict(self._known)))
        except OSError as error:
            self.say(f"what is shared with other replicas cannot be remembered: {error}")


def _mark(about: os.stat_result) -> object:
    return about.st_ino, about.st_mtime_ns, about.st_size


def _read(file: Path, largest: int) -> tuple[bytes | None, object, float]:
    """What is in it, its mark, and when it was written. One that others could have written is
    `Odd`."""
    try:
        require_private(file.parent)
        about = os.lstat(file)
    except FileNotFoundError:
        return None, None, 0.0
    if not stat.S_ISREG(about.st_mode) or not (
        WINDOWS or (about.st_uid == os.geteuid() and not about.st_mode & 0o022)
    ):
        raise Odd("it is not a file of this user alone")
    if about.st_size > largest:
        raise Odd("it is too large")
    return read_small(file, largest + 1), _mark(about), about.st_mtime
