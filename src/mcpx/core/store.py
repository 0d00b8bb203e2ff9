"""Reload, preview, change, and restore the configuration of a running gateway (CFG-5, CFG-6).

The file watcher, SIGHUP, and `mcpx reload` propose what the files say. The admin API commits a
change, which is written to the files first. Proposals and commits are applied one after another. An
invalid configuration changes nothing, and each applied change is a revision. A commit raises
`Stale` if the files are not those it was made for. The watcher ignores the files of a commit, but
not an edit by hand at the same time.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mcpx.base.aio import Tasks
from mcpx.config import Config, Plan
from mcpx.config.edits import Change, EditError, Restore, Where
from mcpx.config.load import Texts
from mcpx.config.plan import plan as plan_of
from mcpx.config.problems import Refused, Told
from mcpx.config.watch import Print, print_of
from mcpx.core.config_files import (
    ConfigFiles,
    History,
    Kept,
    Read,
    Revision,
    Via,
    archive_folder,
    changed_texts,
    now,
    told_of,
)
from mcpx.core.gateway import Gateway
from mcpx.core.saving import Overtaken, Unwritable, texts_of, write_all
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError, McpxError
from mcpx.model.events import ConfigApplied
from mcpx.wire.logs import OURS

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
    "now",
]

log = logging.getLogger(__name__)

Agree = Callable[[Config], None]
"""Receives a valid configuration before it is written, and raises an error to prevent that."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """The file that the first commit creates, for a gateway without one."""

    where: Where
    read: Read
    begun: Callable[[], None]
    """Called once the file exists."""
    state: Path | None = None
    """The state folder for its history, unless another one is given."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect of a change."""

    etag: str
    """Of the files before the change."""
    files: "tuple[FileChange, ...]"
    told: tuple[Told, ...]
    """The problems. Without any, the change can be applied."""
    warnings: tuple[str, ...] = ()
    plan: Plan | None = None
    config: Config | None = None
    """Both are None if there are problems."""

    @property
    def ok(self) -> bool:
        return not self.told


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit."""

    revision: Revision
    etag: str
    changed: bool
    """False if the files were the same already, so that nothing was written."""
    plan: Plan | None
    """None if the files were written, but could not be applied."""
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    """Why the configuration could not be applied."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A valid change that was not written yet."""

    written: "Written"
    """The files before the change."""
    texts: Texts
    """The texts that differ."""
    config: Config


class Stale(McpxError):
    """The files are no longer those that the change was made for."""

    def __init__(self, etag: str) -> None:
        super().__init__("the configuration was changed meanwhile; look at it again")
        self.etag = etag


class ConfigTexts:
    """Texts of the configuration for users: revisions, their differences, and exports."""

    def __init__(self, store: "ConfigStore") -> None:
        self._store = store

    def keeps(self, number: int) -> bool:
        """Whether a revision can be restored."""
        return self._store.history.keeps(number)

    async def diff(self, old: int | None, new: int | None = None) -> str:
        """The difference of two revisions, without secrets. None is the current files."""
        from mcpx.core.differences import difference

        return await asyncio.to_thread(lambda: difference(self.of(old), self.of(new)))

    async def revision_text(self, number: int) -> dict[str, str]:
        """The texts of a revision by file, without secrets."""
        from mcpx.core.differences import shown

        def masked() -> dict[str, str]:
            return {path: shown(path, text) for path, text in self.of(number).items()}

        return await asyncio.to_thread(masked)

    def of(self, number: int | None) -> Kept:
        if number is None:
            return texts_of(self._store.files.look())
        texts = self._store.history.texts(number)
        if texts is None:
            hint = "see the list of revisions"
            raise EditError("not_found", f"revision {number} is not kept", hint=hint)
        return texts

    async def export(self, form: Literal["yaml", "mcpServers"]) -> "Exported":
        """The configuration for another user, with references instead of secrets.

        Raises `EditError`.
        """
        from mcpx.config.exports import export

        return await asyncio.to_thread(lambda: export(self._store.files.look(), form))


class ConfigStore:
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
        """`read` is None and `where` may be None if there is no config file.

        `coming` is called before a configuration is applied, and `applied` afterwards.
        """
        self._fresh = None if where is not None else fresh
        self.files = ConfigFiles(where, read)
        if self._fresh is not None:
            self.files = ConfigFiles(self._fresh.where, self._fresh.read, is_new=True)
        self.sources: Sequence[Path] = gateway.generation.config.sources
        """Files and folders whose change may change the configuration, or repair a bad one."""
        self.texts = ConfigTexts(self)
        self.history = History()
        self.history.add(Revision(1, now(), "start", "the first configuration"), {})
        self._gateway = gateway
        self._read = read
        self._applied = applied
        self._coming = coming
        self._tasks = Tasks("the config store")
        self._turn = asyncio.Lock()
        self._last_reload: Json | None = None
        self._unreported: Revision | None = None
        """The last revision of a watcher or a signal that no user has heard of."""
        self._keeps_texts = False
        self._state: Path | None = None
        self._own_prints: dict[Path, Print] = {}
        """Fingerprints of the files after the last commit."""

    @property
    def revision(self) -> int:
        return self.history.last.number

    def revisions(self) -> list[Revision]:
        """Newest first."""
        return self.history.revisions[::-1]

    def follow(self) -> None:
        """Share the configuration with other replicas, if there are any."""

    def replicas(self) -> list[Json]:
        """Each replica and its configuration. Empty without a store."""
        return []

    def status(self) -> Json:
        return {
            "revision": self.revision,
            "last_reload": self._last_reload,
            "history": [asdict(revision) for revision in self.history.revisions],
        }

    async def close(self) -> None:
        async with self._turn:
            await self._tasks.close()

    # Reload
    # ----------------------------------------------------------------------------------------------

    async def file_changed(self) -> None:
        """For the watcher."""
        if not self._own_prints or self._prints() != self._own_prints:
            await self.propose(by="the file changed")

    def _prints(self) -> dict[Path, Print]:
        return {path: print_of(path) for path in self.sources}

    async def propose(
        self, text: str | None = None, *, by: str, via: Via = "file", author: str = ""
    ) -> Json:
        """Apply what the files say, or `text` in the place of the only file."""
        if self._read is None:
            return {"ok": False, "error": "there is no config file to read again"}
        async with self._turn:
            path = self._gateway.generation.config.path
            texts = None if text is None or path is None else {path: text}
            try:
                # In a thread, because a keyring or a decryption may take long.
                config = await asyncio.to_thread(self._read, texts)
            except ConfigError as error:
                answer = self._refuse(error)
            else:
                plan = await self._apply(config)
                revision = Revision(self.revision + 1, now(), by, str(plan), via, author)
                await self._note(revision, plan)
                if not plan.empty:
                    self._unreported = revision
                answer = {
                    "ok": True,
                    "plan": str(plan),
                    "changed": not plan.empty,
                    "revision": self.revision,
                }
            self._tell(answer, by)
            return answer

    async def asked(self, *, via: Via = "cli", author: str = "") -> Json:
        """Reload for a user. If the watcher was faster, the answer reports its reload."""
        answer = await self.propose(by=author or "somebody who asked", via=via, author=author)
        if answer["ok"]:
            before, self._unreported = self._unreported, None
            if not answer["changed"] and before is not None:
                applied = f"taken up already at {before.at[11:19]}: {before.plan}"
                answer["plan"] = f"{answer['plan']} ({applied})"
        return answer

    def _tell(self, answer: Json, by: str) -> None:
        self._last_reload = {**answer, "at": now()}
        plan = str(answer.get("plan") or f"{len(answer.get('problems', ()))} mistakes")
        self._gateway.bus.publish(ConfigApplied(by, answer["ok"], plan))

    def _refuse(self, error: ConfigError) -> Json:
        self.sources = getattr(error, "sources", self.sources)
        for problem in error.problems:
            log.error("%s", problem, extra=OURS)
        log.error("nothing was changed; the gateway keeps its last good configuration")
        return {"ok": False, "problems": error.problems}

    async def _apply(self, config: Config) -> Plan:
        self.sources = config.sources
        self._gateway.redactor.learn("config", config.secrets)  # Before anything is logged.
        for warning in config.warnings:
            log.warning("%s", warning, extra=OURS)
        self._coming(config)
        plan = await self._gateway.apply(config)
        log.info("reloaded: %s", plan)
        self._applied(config)
        return plan

    async def _note(self, revision: Revision, plan: Plan) -> None:
        """Add a revision if the configuration or the text of a file has changed."""
        if not self._keeps_texts:
            if not plan.empty:
                self.history.add(revision, {})
            return
        written = await self.look()
        if not plan.empty or written.etag != self.history.last.etag:
            self._keep(revision, written)

    # History
    # ----------------------------------------------------------------------------------------------

    def keep_history(self, state: Path | None) -> None:
        """Keep texts from now on, in the state folder or in memory. Called once, at the start."""
        self._keeps_texts, self._state = True, state
        if self.files.where is not None:
            self._open_history(self.files.where)

    def _open_history(self, where: Where, *, created: bool = False) -> None:
        """`created`: the file was created just now, and its revision follows."""
        first = self.history.last
        folder = self._state and archive_folder(self._state, where.path, where.env)
        self.history = history = History(folder)
        known = history.revisions[-1] if history.revisions else None
        if created or not os.path.exists(where.path):
            if known is None:
                history.add(first, {})
            return
        written = self.files.look()
        if known is None:
            self._keep(replace(first, number=1), written)
        elif known.etag != written.etag and history.texts(known.number) == texts_of(written):
            # An earlier version of mcpx computed the etag in another way. The files are the same.
            history.replace_last(replace(known, etag=written.etag), texts_of(written))
        elif known.etag != written.etag:
            self._keep_edit("changed while mcpx was not running", written)

    def _keep(self, revision: Revision, written: "Written") -> None:
        texts: Kept = {}
        if self._keeps_texts:
            texts = texts_of(written)
        self.history.add(replace(revision, etag=written.etag), texts)

    def _keep_edit(self, what: str, written: "Written") -> None:
        """Keep an edit by hand that was not applied as a reload."""
        edit = Revision(self.revision + 1, now(), "the file changed", what, "file")
        self._keep(edit, written)

    # Files
    # ----------------------------------------------------------------------------------------------

    async def look(self) -> "Written":
        """The current files."""
        return await asyncio.to_thread(self.files.look)

    @asynccontextmanager
    async def at_rest(self) -> "AsyncGenerator[Written]":
        """The current files, while no configuration is being applied."""
        async with self._turn:
            yield await self.look()

    async def preview(self, change: Change) -> Preview:
        """The effect of a change. Raises `EditError`."""
        return await asyncio.to_thread(self._preview, change)

    def _preview(self, change: Change) -> Preview:
        from mcpx.core.differences import changes

        written = self.files.look()
        texts = self._edited(written, change)
        files = changes(written, texts)
        try:
            config = self.files.judged(texts)
        except ConfigError as error:
            return Preview(written.etag, files, told_of(error))
        plan = plan_of(self._gateway.generation.config, config)
        return Preview(written.etag, files, (), config.warnings, plan, config)

    async def imagine(self, change: Change) -> Config:
        """The configuration after a change. Raises `EditError` or `Refused`."""

        def changed() -> Config:
            return self.files.judged(self._edited(self.files.look(), change))

        return await asyncio.to_thread(changed)

    def _edited(self, written: "Written", change: Change) -> Texts:
        if not isinstance(change, Restore):
            return self.files.edited(written, change)
        number = change.number
        texts = {Path(path): text for path, text in self.texts.of(number).items()}
        if not texts or texts.keys() != {sheet.path for sheet in written.sheets}:
            hint = "look at its text, and edit"
            raise EditError(
                "not_possible", f"revision {number} was not of the files there are now", hint=hint
            )
        return changed_texts(written, texts)

    # Commit
    # ----------------------------------------------------------------------------------------------

    async def commit(
        self,
        change: Change,
        *,
        if_match: str | None,
        author: str,
        via: Via,
        message: str = "",
        agree: Agree = lambda config: None,
    ) -> Committed:
        """Write a change and apply it.

        Raises `Stale` unless the files have the etag `if_match`, `EditError`, `Refused`,
        `Unwritable`, and the errors of `agree`. Nothing was changed then.
        """
        made = Revision(0, "", "", "", via, author, message)
        work = self._tasks.start(self._commit(change, if_match, made, agree), awaited=True)
        return await asyncio.shield(work)  # A client that disconnects does not stop the commit.

    async def _commit(
        self, change: Change, if_match: str | None, made: Revision, agree: Agree
    ) -> Committed:
        async with self._turn:
            prints = self._prints()
            prepared = await self._prepared(change, if_match, agree)
            if isinstance(prepared, Committed):
                return prepared
            try:
                prints |= await asyncio.to_thread(write_all, prepared.written, prepared.texts)
            except Overtaken:
                raise Stale(self.files.look().etag) from None
            self._own_prints = prints
            return await self._finish(prepared, made)

    async def _prepared(
        self, change: Change, if_match: str | None, agree: Agree
    ) -> Prepared | Committed:
        """A change that can be written, or the result if nothing changes. Raises as `commit`."""
        written = await self.look()
        if if_match is not None and if_match != written.etag:
            raise Stale(written.etag)
        texts = await asyncio.to_thread(self._edited, written, change)
        if not texts:
            return Committed(self.history.last, written.etag, False, Plan())
        try:
            config = await asyncio.to_thread(self.files.judged, texts)
        except EditError:
            raise
        except ConfigError as error:
            raise Refused(error.problems, (), told_of(error)) from None
        agree(config)
        return Prepared(written, texts, config)

    async def _finish(self, prepared: Prepared, made: Revision) -> Committed:
        """Apply and keep what was written."""
        before, config = prepared.written, prepared.config
        if self._fresh is not None:
            self._begin(self._fresh)
        if self._keeps_texts and before.sheets and self.history.last.etag != before.etag:
            self._keep_edit("edited by hand and replaced before it was taken up", before)
        by = f"{made.author} ({made.via})" if made.author else made.via
        plan, error = None, ""
        try:
            plan = await self._apply(config)
        except Exception as problem:  # The caller must know that the files were written.
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
        answer: Json = {"ok": True, "plan": told}
        if error:
            answer = {"ok": False, "problems": [error]}
        self._tell(answer, by)
        files = tuple(prepared.texts)
        return Committed(revision, written.etag, True, plan, files, config.warnings, error)

    def _begin(self, fresh: Fresh) -> None:
        """The first commit has created the file."""
        self._fresh, self._read = None, fresh.read
        self.files.is_new = False
        self._state = self._state or fresh.state
        if self._keeps_texts:
            self._open_history(fresh.where, created=True)
        fresh.begun()
