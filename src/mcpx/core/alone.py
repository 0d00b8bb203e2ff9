"""The configuration changed by a command, without a running gateway (CFG-6).

As in `store`, a change is validated, written atomically, and kept as a revision. If a gateway runs
with these files, it keeps the history itself. The command tells the gateway to reload.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.config import Config, load
from mcpx.config.edits import Edit, Where
from mcpx.config.load import Texts
from mcpx.config.plan import plan as plan_of
from mcpx.core.config_files import (
    ConfigFiles,
    History,
    Revision,
    archive_folder,
    changed_texts,
    now,
)
from mcpx.core.differences import FileChange, changes
from mcpx.core.saving import Overtaken, texts_of, write_all
from mcpx.model.errors import ConfigError

if TYPE_CHECKING:
    from mcpx.config.written import Written

AUTHOR = "command line"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A valid change that was not written yet."""

    written: "Written"
    """The files before the change."""
    texts: Texts
    config: Config
    before: Config | None
    """None if the file did not exist or was invalid."""

    @property
    def files(self) -> tuple[FileChange, ...]:
        """Without secrets."""
        return changes(self.written, self.texts)

    @property
    def plan(self) -> str:
        return str(plan_of(self.before or Config(), self.config))


class Alone:
    def __init__(
        self, path: Path, environ: Mapping[str, str], env: str | None, state: Path
    ) -> None:
        """`path` is the file or folder, absolute. A file that does not exist is created."""
        self.where = Where(path, environ, env)
        self.is_new = not os.path.exists(path)
        self._files = ConfigFiles(self.where, self._read, is_new=self.is_new)
        self._folder = archive_folder(state, path, env)

    def look(self) -> "Written":
        return self._files.look()

    def propose(
        self, change: list[Edit] | Texts, written: "Written | None" = None, **more: str
    ) -> Proposal:
        """Validate a change or new texts. `more`: variables that will be set.

        Raises `EditError` or `Refused`.
        """
        written = written or self.look()
        if isinstance(change, list):
            texts = self._files.edited(written, change)
        else:
            texts = changed_texts(written, change)
        return Proposal(written, texts, self._read(texts, more), self._before())

    def _read(self, texts: Texts | None, more: Mapping[str, str] | None = None) -> Config:
        where = self.where
        return load(where.path, {**(more or {}), **where.environ}, where.env, texts=texts)

    def _before(self) -> Config | None:
        if self.is_new:
            return None
        try:
            return self._read(None)
        except ConfigError:
            return None

    def write(self, proposal: Proposal) -> None:
        """Raises `ConfigError` if another program has changed a file, and `Unwritable`."""
        try:
            write_all(proposal.written, proposal.texts)
        except Overtaken:
            told = "error: the config was changed by somebody else in this moment"
            raise ConfigError([f"{told}; nothing was written: try again"]) from None

    def keep_before(self, written: "Written", *, runs: bool) -> None:
        """Keep the current files, unless a running gateway does."""
        history = History(self._folder)
        if not written.sheets:
            return
        if not history.revisions:
            first = Revision(1, now(), "start", "the first configuration", "file")
        elif runs or history.last.etag == written.etag:
            return
        else:
            number = history.last.number + 1
            first = Revision(number, now(), "the file changed", "edited by hand", "file")
        self._keep(history, first, written)

    def keep(self, plan: str, message: str) -> int | None:
        """Keep the changed files. Returns the number of the revision, or None on a failure."""
        self._files.is_new = False
        written = self.look()
        history = History(self._folder)
        number = 1
        if history.revisions:
            if history.last.etag == written.etag:
                return history.last.number
            number = history.last.number + 1
        made = Revision(number, now(), f"{AUTHOR} (cli)", plan, "cli", AUTHOR, message)
        self._keep(history, made, written)
        return number if History(self._folder).keeps(number) else None

    @staticmethod
    def _keep(history: History, revision: Revision, written: "Written") -> None:
        history.add(replace(revision, etag=written.etag), texts_of(written))

    def revisions(self) -> list[tuple[Revision, bool]]:
        """Newest first, and whether each can be restored."""
        history = History(self._folder)
        return [(each, history.keeps(each.number)) for each in reversed(history.revisions)]

    def texts(self, number: int) -> Texts:
        """The texts of a revision. Raises `ConfigError`."""
        kept = History(self._folder).texts(number)
        if not kept:
            hint = "'mcpx config history' lists those that are"
            raise ConfigError([f"error: revision {number} is not kept; {hint}"])
        if kept.keys() != texts_of(self.look()).keys():
            raise ConfigError([f"error: revision {number} was not of the files there are now"])
        return {Path(path): text for path, text in kept.items()}
