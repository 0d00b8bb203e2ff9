"""The configuration changed by somebody who has no gateway at hand: the command line (CFG-6).

Promised: as `store`, without what runs: a change is made to the texts of the files, judged, written
as a whole, and kept as a revision; what is wrong is never written, what somebody else saved
meanwhile is never lost. A gateway that keeps the history of these files itself is left to do so.
Not done here: telling a running gateway.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcpx.config import Config, load
from mcpx.config.editing import edited
from mcpx.config.edits import Edit, Where
from mcpx.config.load import Texts
from mcpx.config.plan import plan as plan_of
from mcpx.config.written import Written, nothing_written, read_written
from mcpx.core.differences import FileChange, changes
from mcpx.core.history import Archive, Kept, Revision, archive_folder, now
from mcpx.core.saving import Overtaken, texts_of, write_all
from mcpx.model.errors import ConfigError

AUTHOR = "command line"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that would be good: what the files say, what they would say, and what that means."""

    written: Written
    texts: Texts
    config: Config
    before: Config | None
    """None: there was no file, or it could not be taken up as it is."""

    @property
    def files(self) -> tuple[FileChange, ...]:
        """Masked."""
        return changes(self.written, self.texts)

    @property
    def plan(self) -> str:
        return str(plan_of(self.before or Config(), self.config))


class Alone:
    def __init__(
        self, path: Path, environ: Mapping[str, str], env: str | None, state: Path
    ) -> None:
        """`path`: the file or folder, absolute; a file that is not there yet is made."""
        self.where = Where(path, environ, env)
        self.is_new = not os.path.exists(path)
        self._folder = archive_folder(state, path, env)

    def look(self) -> Written:
        return nothing_written() if self.is_new else read_written(self.where)

    def propose(
        self, change: list[Edit] | Texts, written: Written | None = None, **more: str
    ) -> Proposal:
        """What a change, or new texts, would do; nothing is written. `more`: variables that will be
        set by then. Raises `EditError` for a change that cannot be made, `Refused` for one that is
        wrong."""
        where, written = self.where, written or self.look()
        if isinstance(change, list):
            fresh = where.path if self.is_new else None
            made = edited(written, change, lambda texts: read_written(where, texts), fresh)
        else:
            made = change
        said = {sheet.path: sheet.text for sheet in written.sheets}
        texts = {path: text for path, text in made.items() if said.get(path) != text}
        return Proposal(written, texts, self._read(texts, more), self._before())

    def _read(self, texts: Texts, more: Mapping[str, str]) -> Config:
        environ = {**more, **self.where.environ}
        return load(self.where.path, environ, self.where.env, texts=texts)

    def _before(self) -> Config | None:
        try:
            return (
                None if self.is_new else load(self.where.path, self.where.environ, self.where.env)
            )
        except ConfigError:
            return None

    def write(self, proposal: Proposal) -> None:
        """Raises `ConfigError` where somebody else was quicker, `Unwritable`."""
        try:
            write_all(proposal.written, proposal.texts)
        except Overtaken:
            told = (
                "error: the config was changed by somebody else in this moment; nothing was "
                "written: try again"
            )
            raise ConfigError([told]) from None

    # What it said before

    def keep_before(self, written: Written, *, runs: bool) -> None:
        """What the files say now, unless it is kept already. `runs`: a gateway does, which may keep
        it, too."""
        archive = Archive(self._folder)
        known = archive.revisions[-1] if archive.revisions else None
        if not written.sheets or (known is not None and (runs or known.etag == written.etag)):
            return
        number, told = (
            (1, "the first configuration")
            if known is None
            else (known.number + 1, "edited by hand")
        )
        by = "start" if known is None else "the file changed"
        archive.add(Revision(number, now(), by, told, "file", etag=written.etag), texts_of(written))

    def keep(self, plan: str, message: str) -> int | None:
        """What they say after a change; the number of its revision. None: nothing can be kept."""
        written = read_written(self.where)
        archive = Archive(self._folder)
        known = archive.revisions[-1] if archive.revisions else None
        if known is not None and known.etag == written.etag:
            return known.number
        number = 1 if known is None else known.number + 1
        by = f"{AUTHOR} (cli)"
        made = Revision(number, now(), by, plan, "cli", AUTHOR, message, written.etag)
        archive.add(made, texts_of(written))
        return number if Archive(self._folder).keeps(number) else None

    def revisions(self) -> list[tuple[Revision, bool]]:
        """The newest first, and whether each can be gone back to."""
        archive = Archive(self._folder)
        return [
            (revision, archive.keeps(revision.number)) for revision in reversed(archive.revisions)
        ]

    def texts(self, number: int) -> Texts:
        """What the files said in a revision. Raises `ConfigError`."""
        kept: Kept | None = Archive(self._folder).texts(number)
        if not kept:
            raise ConfigError(
                [
                    f"error: revision {number} is not kept; 'mcpx config history' lists those "
                    "that are"
                ]
            )
        written = self.look()
        if kept.keys() != texts_of(written).keys():
            raise ConfigError([f"error: revision {number} was not of the files there are now"])
        return {Path(path): text for path, text in kept.items()}
