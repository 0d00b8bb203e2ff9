"""The configuration as the admin API has it: read, previewed, changed, written, kept and restored
(CFG-6).

Promised: a commit is written to the files and taken up through the door a file edit takes; it is
refused if the files are not those it was made for (`Stale`), and a configuration that is wrong is
never written. Of two that commit at once one is told; what the watcher finds of a commit is no
news, and a hand edit in the same moment is not lost. All of it is loaded with the first call: a
gateway without the admin API does without.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mcpx.base.aio import Tasks
from mcpx.config import Config, Plan
from mcpx.config.edits import Change, EditError, Restore, Where
from mcpx.config.load import Texts
from mcpx.config.plan import plan as plan_of
from mcpx.config.problems import Refused, Told
from mcpx.config.watch import Print, print_of
from mcpx.core.gateway import Gateway
from mcpx.core.history import Archive, History, Kept, Revision, Via, archive_folder, now
from mcpx.core.proposals import Proposals, Read
from mcpx.core.saving import Overtaken, Unwritable, texts_of, write_all
from mcpx.model.errors import ConfigError, McpxError

if TYPE_CHECKING:
    from mcpx.config.exports import Exported
    from mcpx.config.written import Written
    from mcpx.core.differences import FileChange

__all__ = [
    "Committed",
    "ConfigStore",
    "EditError",
    "Fresh",
    "Preview",
    "Read",
    "Refused",
    "Revision",
    "Stale",
    "Unwritable",
    "Via",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fresh:
    """The file that a gateway without one may begin to keep its configuration in."""

    where: Where
    read: Read
    begun: Callable[[], None]
    """Called once the file is there."""
    state: Path | None = None
    """Where its history is kept from then on; None: where that of others is."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would do."""

    etag: str
    """Of the files it was made from."""
    files: "tuple[FileChange, ...]"
    told: tuple[Told, ...]
    """What is wrong with it; nothing: it would be taken up."""
    warnings: tuple[str, ...] = ()
    plan: Plan | None = None
    config: Config | None = None
    """Both None where something is wrong."""

    @property
    def ok(self) -> bool:
        return not self.told


@dataclass(frozen=True, slots=True)
class Committed:
    """What a change did."""

    revision: Revision
    etag: str
    changed: bool
    """False: the files said it already; nothing was written."""
    plan: Plan | None
    """None: it is written, and could not be taken up."""
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    """Why it could not be taken up."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change that may be written."""

    written: "Written"
    """The files it was made from."""
    texts: Texts
    """What of them it changes."""
    config: Config


class Stale(McpxError):
    """The files are no longer what the change was made for."""

    def __init__(self, etag: str) -> None:
        super().__init__("the configuration was changed meanwhile; look at it again")
        self.etag = etag


class ConfigStore(Proposals):
    def __init__(
        self,
        gateway: Gateway,
        read: Read | None,
        applied: Callable[[Config], None],
        coming: Callable[[Config], None] = lambda config: None,
        *,
        where: Where | None = None,
        fresh: Fresh | None = None,
    ) -> None:
        """As `Proposals`. `where`: what `read` reads. `fresh`: where there is no file, the one that
        may be made."""
        super().__init__(gateway, read, applied, coming)
        self._where = where
        self._fresh = fresh if where is None else None
        self._tasks = Tasks("the config store")
        self._keeps = False
        self._state: Path | None = None
        self._seen: Written | None = None
        self._ours: dict[Path, Print] = {}
        """How the last commit left the files."""

    @property
    def destination(self) -> Path | None:
        """Where the first write will go while there is no file."""
        return self._fresh.where.path if self._fresh is not None else None

    def keeps(self, number: int) -> bool:
        """Whether the texts of a revision are there to go back to."""
        return self._history.keeps(number)

    def keep_history(self, state: Path | None) -> None:
        """From now on texts are kept, too: below the state folder, or in memory. Call it once, at
        the start."""
        self._keeps, self._state = True, state
        if self._where is not None:
            self._open_history(self._where)

    def follow(self) -> None:
        """Take part in what others change, from now on; here there are no others."""

    def _open_history(self, where: Where, *, begun: bool = False) -> None:
        """`begun`: the file was made just now, and what it says is about to be kept."""
        before = self._history.revisions[-1]
        history = History()
        if self._state is not None:
            history = Archive(archive_folder(self._state, where.path, where.env))
        known = history.revisions[-1] if history.revisions else None
        self._history = history
        if begun or not os.path.exists(where.path):
            if known is None:
                history.add(before, {})  # it begins with the next
            return
        written = self._look()
        if known is None:
            self._keep(replace(before, number=1), written)
        elif known.etag != written.etag and history.texts(known.number) == texts_of(written):
            # An earlier version of mcpx computed the etag in another way. The files are the same.
            history.replace_last(replace(known, etag=written.etag), texts_of(written))
        elif known.etag != written.etag:
            told = "changed while mcpx was not running"
            self._keep(Revision(known.number + 1, now(), "the file changed", told, "file"), written)

    async def close(self) -> None:
        async with self._turn:
            await self._tasks.close()

    # Reading

    async def look(self) -> "Written":
        """The configuration as it is written at this moment."""
        return await asyncio.to_thread(self._look)

    @asynccontextmanager
    async def at_rest(self) -> "AsyncGenerator[Written]":
        """As `look`, while nothing is being taken up: what is written is what runs, unless it was
        refused."""
        async with self._turn:
            yield await self.look()

    def _look(self) -> "Written":
        from mcpx.config.written import nothing_written, read_written

        if self._where is None:
            return nothing_written()
        self._seen = read_written(self._where, known=self._seen)
        return self._seen

    async def preview(self, change: Change) -> Preview:
        """What a change would do; nothing is written. Raises `EditError` for one that cannot be
        made."""
        return await asyncio.to_thread(self._preview, change)

    def _preview(self, change: Change) -> Preview:
        from mcpx.core.differences import changes

        written = self._look()
        texts = self._edited(written, change)
        files = changes(written, texts)
        try:
            config = self._judged(texts)
        except ConfigError as error:
            return Preview(written.etag, files, told_of(error))
        plan = plan_of(self._gateway.generation.config, config)
        return Preview(written.etag, files, (), config.warnings, plan, config)

    async def imagine(self, change: Change) -> Config:
        """The configuration as it would be; nothing is written or taken up. Raises `EditError` for
        a change that cannot be made, `Refused` for one that is wrong."""
        return await asyncio.to_thread(lambda: self._judged(self._edited(self._look(), change)))

    def _edited(self, written: "Written", change: Change) -> Texts:
        from mcpx.config.editing import edited
        from mcpx.config.written import read_written

        if isinstance(change, Restore):
            return self._as_then(written, change.number)
        where = self._where or (self._fresh.where if self._fresh is not None else None)
        if where is None:
            raise _no_file()
        texts = edited(written, change, lambda texts: read_written(where, texts), self.destination)
        said = {sheet.path: sheet.text for sheet in written.sheets}
        return {path: text for path, text in texts.items() if said.get(path) != text}

    def _judged(self, texts: Texts) -> Config:
        read = self._fresh.read if self._fresh is not None else self._read
        if read is None:
            raise _no_file()
        return read(texts)

    async def diff(self, old: int | None, new: int | None = None) -> str:
        """What one revision says otherwise than another; None: than the files now. Secrets are
        masked."""
        from mcpx.core.differences import difference

        return await asyncio.to_thread(lambda: difference(self._texts_of(old), self._texts_of(new)))

    async def revision_text(self, number: int) -> dict[str, str]:
        """By file; secrets are masked."""
        from mcpx.core.differences import shown

        return await asyncio.to_thread(
            lambda: {path: shown(path, text) for path, text in self._texts_of(number).items()}
        )

    def _texts_of(self, number: int | None) -> Kept:
        if number is None:
            return texts_of(self._look())
        texts = self._history.texts(number)
        if texts is None:
            raise EditError(
                "not_found", f"revision {number} is not kept", hint="see the list of revisions"
            )
        return texts

    async def export(self, form: Literal["yaml", "mcpServers"]) -> "Exported":
        """The configuration for somebody else: references stay, secrets become references. Raises
        `EditError`."""
        from mcpx.config.exports import export

        return await asyncio.to_thread(lambda: export(self._look(), form))

    # Changing

    async def commit(
        self,
        change: Change,
        *,
        if_match: str | None,
        author: str,
        via: Via,
        message: str = "",
        agree: Callable[[Config], None] = lambda config: None,
    ) -> Committed:
        """Write a change and take it up. Raises `Stale` unless the files are those of `if_match`,
        `EditError` for a change that cannot be made, `Refused` for one that is wrong, `Unwritable`,
        and what `agree` raises, which sees the configuration before it is written: then nothing was
        changed."""
        made = Revision(0, "", "", "", via, author, message)
        # Whoever asked may leave; what was begun is brought to its end.
        return await asyncio.shield(
            self._tasks.start(self._commit(change, if_match, made, agree), awaited=True)
        )

    def _as_then(self, written: "Written", number: int) -> Texts:
        texts = {Path(path): text for path, text in self._texts_of(number).items()}
        now = {sheet.path: sheet.text for sheet in written.sheets}
        if not texts or texts.keys() != now.keys():
            hint = "look at its text, and edit"
            raise EditError(
                "not_possible", f"revision {number} was not of the files there are now", hint=hint
            )
        return {path: text for path, text in texts.items() if now[path] != text}

    async def _commit(
        self, change: Change, if_match: str | None, made: Revision, agree: Callable[[Config], None]
    ) -> Committed:
        async with self._turn:
            left = {path: print_of(path) for path in self.sources}
            prepared = await self._prepared(change, if_match, agree)
            if isinstance(prepared, Committed):
                return prepared
            await asyncio.to_thread(self._write, prepared.written, prepared.texts, left)
            self._ours = left
            return await self._finish(prepared.config, prepared.written, prepared.texts, made)

    async def _prepared(
        self, change: Change, if_match: str | None, agree: Callable[[Config], None]
    ) -> "Prepared | Committed":
        """A change made and judged; nothing is written yet. Raises as `commit` does."""
        written = await self.look()
        if if_match is not None and if_match != written.etag:
            raise Stale(written.etag)
        texts = await asyncio.to_thread(self._edited, written, change)
        if not texts:
            return Committed(self._history.revisions[-1], written.etag, False, Plan())
        try:
            config = await asyncio.to_thread(self._judged, texts)
        except EditError:
            raise
        except ConfigError as error:
            raise Refused(error.problems, (), told_of(error)) from None
        agree(config)
        return Prepared(written, texts, config)

    def _write(self, written: "Written", texts: Texts, left: dict[Path, Print]) -> None:
        try:
            left |= write_all(written, texts)
        except Overtaken:
            raise Stale(self._look().etag) from None

    async def _finish(
        self, config: Config, before: "Written", texts: Texts, made: Revision
    ) -> Committed:
        """The files say it: now it is taken up, and kept."""
        if self._fresh is not None:
            self._begin(self._fresh)
        if self._keeps and before.sheets and self._history.revisions[-1].etag != before.etag:
            # Edited by hand and not taken up yet, or refused: it is kept all the same.
            told = "edited by hand and replaced before it was taken up"
            self._keep(Revision(self.revision + 1, now(), "the file changed", told, "file"), before)
        by = f"{made.author} ({made.via})" if made.author else made.via
        plan, error = None, ""
        try:
            plan = await self._apply(config)
        except Exception as problem:
            # The files are written: whoever asked must hear how it stands.
            log.exception("a configuration that was written could not be taken up")
            error = (
                f"it is written, and could not be taken up ({type(problem).__name__}); a "
                "reload tries it again"
            )
        told = error or str(plan)
        written = await self.look()
        number = max(made.number, self.revision + 1)
        revision = replace(made, number=number, at=now(), by=by, plan=told, etag=written.etag)
        self._keep(revision, written)
        self._tell({"ok": False, "problems": [error]} if error else {"ok": True, "plan": told}, by)
        return Committed(revision, written.etag, True, plan, tuple(texts), config.warnings, error)

    def _begin(self, fresh: Fresh) -> None:
        """There is a file now."""
        self._fresh, self._read, self._where = None, fresh.read, fresh.where
        self._state = self._state or fresh.state
        if self._keeps:
            self._open_history(fresh.where, begun=True)
        fresh.begun()

    def _keep(self, revision: Revision, written: "Written") -> None:
        self._history.add(
            replace(revision, etag=written.etag), texts_of(written) if self._keeps else {}
        )

    # Proposals

    async def file_changed(self) -> None:
        if self._ours and {path: print_of(path) for path in self.sources} == self._ours:
            return  # a commit wrote it and took it up
        await super().file_changed()

    async def _note(self, revision: Revision, plan: Plan) -> None:
        if not self._keeps:
            await super()._note(revision, plan)
            return
        written = await self.look()
        if not plan.empty or written.etag != self._history.revisions[-1].etag:
            self._keep(revision, written)


def _no_file() -> EditError:
    return EditError(
        "not_possible", "there is no config file to write to", hint="start mcpx with one"
    )


def told_of(error: ConfigError) -> tuple[Told, ...]:
    told: tuple[Told, ...] = getattr(error, "told", ())
    return told or tuple(Told(problem.removeprefix("error: ")) for problem in error.problems)
