"""The one door for a changed configuration: whoever proposes one, it is read, judged, planned and applied here.

The watcher of the file, SIGHUP and `mcpx reload` propose what the file says; the admin API commits changes, which are
written to the file first (CFG-6). What is wrong changes nothing and says why (CFG-5). Proposals and commits come one
after the other, and each that changed something is a revision.
"""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from mcpx.config import Config, Plan
from mcpx.config.editing import edited
from mcpx.config.edits import Change, EditError, Restore
from mcpx.config.exports import Exported, export
from mcpx.config.load import Texts
from mcpx.config.plan import plan as plan_of
from mcpx.config.problems import Refused, Told
from mcpx.config.watch import Print, print_of
from mcpx.config.written import Where, Written, absolute, nothing_written, read_written
from mcpx.core.gateway import Gateway
from mcpx.core.history import Archive, History, Kept, Outline, Revision, Via
from mcpx.core.saving import Overtaken, Unwritable, replace_file
from mcpx.core.showing import FileChange, changes, difference, shown
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError, McpxError
from mcpx.model.events import ConfigApplied
from mcpx.wire.folders import private_folder
from mcpx.wire.logs import OURS
from mcpx.wire.tasks import Tasks

__all__ = [
    "Committed",
    "ConfigStore",
    "EditError",
    "FileChange",
    "Fresh",
    "Preview",
    "Read",
    "Revision",
    "Stale",
    "Unwritable",
    "Via",
    "Written",
]

log = logging.getLogger(__name__)

Read = Callable[[Texts | None], Config]
"""Reads the configuration; with texts, as if its files said that."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """What a gateway without a file may begin to keep its configuration in."""

    where: Where
    read: Read
    begun: Callable[[], None]
    """Called once the file is there."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would do."""

    etag: str
    """Of the files it was made from."""
    files: tuple[FileChange, ...]
    told: tuple[Told, ...]
    """What is wrong with it; nothing: it would be taken up."""
    warnings: tuple[str, ...] = ()
    plan: Plan | None = None
    """None where something is wrong."""

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


class Stale(McpxError):
    """The files are no longer what the change was made for."""

    def __init__(self, etag: str) -> None:
        super().__init__("the configuration was changed meanwhile; look at it again")
        self.etag = etag


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
        """`read` is None where there is no file, and `where` the file's place; `fresh` then allows to make one.
        `applied` hears of every configuration that was taken up, `coming` before that: servers that start may take
        their time."""
        config = gateway.generation.config
        self.sources: Sequence[Path] = config.sources
        """Where a change may change the outcome; also after a file was refused, so that its mending is noticed."""
        self._gateway = gateway
        self._read = read
        self._where = where
        self._fresh = fresh if read is None else None
        self._applied = applied
        self._coming = coming
        self._turn = asyncio.Lock()
        self._tasks = Tasks("the config store")
        self._history: History = Outline()
        self._history.add(Revision(1, _now(), "start", "the first configuration"), {})
        self._keeps_texts = False
        self._state: Path | None = None
        self._last: Json | None = None
        self._unheard: Revision | None = None
        """What was taken up unasked since somebody last asked."""
        self._seen: Written | None = None
        self._ours: dict[Path, Print] = {}
        """How the files were left by the last commit."""

    @property
    def revision(self) -> int:
        return self._history.revisions[-1].number

    @property
    def destination(self) -> Path | None:
        """Where the first write will go while there is no file."""
        return self._fresh.where.path if self._fresh is not None else None

    def revisions(self) -> list[Revision]:
        """The newest first."""
        return self._history.revisions[::-1]

    def keep_history(self, state: Path | None) -> None:
        """From now on texts are kept, too: below the state folder, or in memory. Call it once, at the start."""
        self._keeps_texts = True
        self._state = state
        self._open_history()

    def _open_history(self) -> None:
        if self._where is None:
            return  # there is nothing to keep yet
        before = self._history.revisions[-1]
        self._history = History()
        if self._state is not None:
            name = hashlib.sha256(f"{self._where.path}\0{self._where.env or ''}".encode()).hexdigest()[:16]
            self._history = Archive(self._state / "history" / name)
        if not os.path.exists(self._where.path):
            return
        written = self._seen = read_written(self._where)
        known = self._history.revisions[-1] if self._history.revisions else None
        if known is None:
            self._note(written, Revision(1, before.at, "start", "the first configuration", "start"))
        elif known.etag != written.etag:
            plan = "changed while mcpx was not running"
            self._note(written, Revision(known.number + 1, _now(), "the file changed", plan, "file"))

    async def close(self) -> None:
        """Waits for a commit that is under way."""
        async with self._turn:
            pass
        await self._tasks.close()

    # Reading

    async def look(self) -> Written:
        """The configuration as it is written at this moment."""
        return await asyncio.to_thread(self._look)

    def _look(self) -> Written:
        if self._where is None:
            return nothing_written()
        self._seen = read_written(self._where, known=self._seen)
        return self._seen

    async def preview(self, change: Change) -> Preview:
        """What a change would do; nothing is written. Raises `EditError` for one that cannot be made."""
        written = await self.look()
        texts = await asyncio.to_thread(self._edited, written, change)
        files = await asyncio.to_thread(changes, written, texts)
        try:
            config = await asyncio.to_thread(self._judged, texts)
        except ConfigError as error:
            return Preview(written.etag, files, _told(error))
        plan = plan_of(self._gateway.generation.config, config)
        return Preview(written.etag, files, (), config.warnings, plan)

    async def imagine(self, change: Change) -> Config:
        """The configuration as it would be; nothing is written or taken up. Raises `EditError` for a change that cannot
        be made, `Refused` for one that is wrong."""
        written = await self.look()
        texts = await asyncio.to_thread(self._edited, written, change)
        return await asyncio.to_thread(self._refusing, texts)

    def _edited(self, written: Written, change: Change) -> Texts:
        if isinstance(change, Restore):
            return self._as_then(written, change.number)
        where = self._place
        texts = edited(written, change, lambda texts: read_written(where, texts), self.destination)
        said = {sheet.path: sheet.text for sheet in written.sheets}
        return {path: text for path, text in texts.items() if said.get(path) != text}

    @property
    def _place(self) -> Where:
        where = self._where or (self._fresh.where if self._fresh is not None else None)
        if where is None:
            raise EditError("not_possible", "there is no config file to write to", hint="start mcpx with one")
        return where

    def _judged(self, texts: Texts) -> Config:
        read = self._read or (self._fresh.read if self._fresh is not None else None)
        if read is None:
            raise EditError("not_possible", "there is no config file to write to", hint="start mcpx with one")
        return read(texts)

    async def diff(self, old: int | None, new: int | None = None) -> str:
        """What one revision says otherwise than another; None: than the files now. Secrets are masked."""
        before = await asyncio.to_thread(self._texts_of, old)
        after = await asyncio.to_thread(self._texts_of, new)
        return await asyncio.to_thread(difference, before, after)

    async def revision_text(self, number: int) -> dict[str, str]:
        """By file; secrets are masked."""
        texts = await asyncio.to_thread(self._texts_of, number)
        return await asyncio.to_thread(lambda: {path: shown(path, text) for path, text in texts.items()})

    def _texts_of(self, number: int | None) -> Kept:
        if number is None:
            return _texts(self._look())
        texts = self._history.texts(number)
        if texts is None:
            raise EditError("not_found", f"revision {number} is not kept", hint="see the list of revisions")
        return texts

    async def export(self, form: Literal["yaml", "mcpServers"]) -> Exported:
        """The configuration for somebody else: references stay, secrets become references. Raises `EditError`."""
        written = await self.look()
        return await asyncio.to_thread(export, written, form)

    # Changing

    async def commit(
        self, change: Change, *, if_match: str | None, author: str, via: Via, message: str = ""
    ) -> Committed:
        """Write a change and take it up. Raises `Stale` unless the files are those of `if_match`, `EditError` for a
        change that cannot be made, `Refused` for one that is wrong, `Unwritable`: then nothing was changed."""
        made = _Made(author, via, message)
        work = self._commit(lambda written: self._edited(written, change), if_match, made)
        # Whoever asked may leave; what was begun is brought to its end.
        return await asyncio.shield(self._tasks.start(work, awaited=True))

    async def restore(
        self, number: int, *, if_match: str | None, author: str, via: Via, message: str = ""
    ) -> Committed:
        """Let the files say again what they said then: a new revision. Raises as `commit`."""
        message = message or f"restored revision {number}"
        return await self.commit(Restore(number), if_match=if_match, author=author, via=via, message=message)

    def _as_then(self, written: Written, number: int) -> Texts:
        texts = {absolute(Path(path)): text for path, text in self._texts_of(number).items()}
        now = {sheet.path: sheet.text for sheet in written.sheets}
        if not texts or texts.keys() != now.keys():
            hint = "edit the texts by hand"
            raise EditError("not_possible", f"revision {number} had other files", hint=hint)
        return {path: text for path, text in texts.items() if now[path] != text}

    async def _commit(self, make: Callable[[Written], Texts], if_match: str | None, made: "_Made") -> Committed:
        async with self._turn:
            left = {path: print_of(path) for path in self.sources}
            written = await self.look()
            if if_match is not None and if_match != written.etag:
                raise Stale(written.etag)
            texts = await asyncio.to_thread(make, written)
            if not texts:
                return Committed(self._history.revisions[-1], written.etag, False, Plan())
            config = await asyncio.to_thread(self._refusing, texts)
            await asyncio.to_thread(self._write, written, texts, left)
            self._ours = left
            return await self._take_up_written(config, written, texts, made)

    def _refusing(self, texts: Texts) -> Config:
        try:
            return self._judged(texts)
        except Refused:
            raise
        except EditError:
            raise
        except ConfigError as error:
            raise Refused(error.problems, (), _told(error)) from None

    def _write(self, written: Written, texts: Texts, left: dict[Path, Print]) -> None:
        done: list[tuple[Path, bytes, bytes]] = []
        try:
            for path, text in texts.items():
                sheet = next((sheet for sheet in written.sheets if sheet.path == path), None)
                before = sheet.data if sheet is not None else None
                data = sheet.bytes_of(text) if sheet is not None else text.encode()
                if sheet is None:
                    self._make_room(path.parent)
                found = replace_file(path, data, before)
                left[path] = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
                if before is not None:
                    done.append((path, data, before))
        except (Overtaken, Unwritable) as error:
            for path, data, before in done:
                replace_file(path, before, data)
            if isinstance(error, Overtaken):
                raise Stale(self._look().etag) from None
            raise

    def _make_room(self, folder: Path) -> None:
        try:
            if not folder.exists():
                private_folder(folder)
        except OSError as error:
            raise Unwritable(f"{folder} cannot be made: {error.strerror or error}") from None

    async def _take_up_written(self, config: Config, before: Written, texts: Texts, made: "_Made") -> Committed:
        if self._fresh is not None:
            self._begin(self._fresh)
        if self._keeps_texts and before.sheets and self._history.revisions[-1].etag != before.etag:
            # Edited by hand and not taken up yet, or refused: it is kept all the same.
            number, plan = self.revision + 1, "edited by hand, replaced by the next"
            self._note(before, Revision(number, _now(), "the file changed", plan, "file"))
        written = await self.look()
        by = f"{made.author} ({made.via})" if made.author else made.via
        try:
            plan = await self._apply(config)
            told, error = str(plan), ""
        except Exception as problem:  # the file is written: whoever asked must hear how it stands
            log.exception("a configuration that was written could not be taken up")
            plan, told = None, "written, and could not be taken up"
            error = f"written, and could not be taken up: {type(problem).__name__}; the gateway goes on as before"
        revision = Revision(self.revision + 1, _now(), by, told, made.via, made.author, made.message, written.etag)
        self._note(written, revision)
        self._last = {"ok": not error, "plan": told, "at": _now(), **({"problems": [error]} if error else {})}
        self._gateway.bus.publish(ConfigApplied(by, not error, told))
        return Committed(revision, written.etag, True, plan, tuple(texts), config.warnings, error)

    def _begin(self, fresh: Fresh) -> None:
        """There is a file now."""
        self._fresh, self._read, self._where = None, fresh.read, fresh.where
        if self._keeps_texts:
            number = self.revision
            self._open_history()
            if not self._history.revisions:
                self._history.add(Revision(number, _now(), "start", "the first configuration"), {})
        fresh.begun()

    def _note(self, written: Written, revision: Revision) -> None:
        from dataclasses import replace

        self._history.add(replace(revision, etag=written.etag), _texts(written))

    # Proposals

    async def file_changed(self) -> Json | None:
        """For the watcher: what a commit wrote is no news."""
        if self._ours and {path: print_of(path) for path in self.sources} == self._ours:
            return None
        return await self.propose(by="the file changed")

    async def propose(self, text: str | None = None, *, by: str, via: Via = "file", author: str = "") -> Json:
        """Take up what the file says, or what `text` says in its place; what came of it."""
        if self._read is None:
            return {"ok": False, "error": "there is no config file to read again"}
        async with self._turn:
            path = self._gateway.generation.config.path
            texts = None if text is None or path is None else {path: text}
            try:
                # In a thread: a keyring or the opening of what is encrypted may take its time.
                config = await asyncio.to_thread(self._read, texts)
            except ConfigError as error:
                answer = self._refused(error)
            else:
                answer = await self._take_up(config, by, via, author)
            self._last = {**answer, "at": _now()}
            plan = str(answer.get("plan") or f"{len(answer.get('problems', ()))} mistakes")
            self._gateway.bus.publish(ConfigApplied(by, answer["ok"], plan))
            return answer

    def _refused(self, error: ConfigError) -> Json:
        self.sources = getattr(error, "sources", self.sources)
        for problem in error.problems:
            log.error("%s", problem, extra=OURS)
        log.error("nothing was changed; the gateway keeps its last good configuration")
        return {"ok": False, "problems": error.problems}

    async def _take_up(self, config: Config, by: str, via: Via, author: str) -> Json:
        plan = await self._apply(config)
        written = await self.look() if self._keeps_texts else nothing_written()
        edited_by_hand = self._keeps_texts and written.etag != self._history.revisions[-1].etag
        if not plan.empty or edited_by_hand:
            revision = Revision(self.revision + 1, _now(), by, str(plan), via, author)
            self._note(written, revision)
            if not plan.empty:
                self._unheard = revision
        return {"ok": True, "plan": str(plan), "changed": not plan.empty, "revision": self.revision}

    async def _apply(self, config: Config) -> Plan:
        self.sources = config.sources
        self._gateway.redactor.learn("config", config.secrets)  # before anything is said of it
        for warning in config.warnings:
            log.warning("%s", warning, extra=OURS)
        self._coming(config)
        plan = await self._gateway.apply(config)
        log.info("reloaded: %s", plan)
        self._applied(config)
        return plan

    async def asked(self) -> Json:
        """For somebody who edited and asked, and whom the watcher or a signal may have forestalled."""
        answer = await self.propose(by="somebody who asked", via="cli")
        before = self._unheard
        if answer["ok"]:
            self._unheard = None
            if not answer["changed"] and before is not None:
                answer = {**answer, "plan": f"{answer['plan']} (taken up already at {before.at[11:19]}: {before.plan})"}
        return answer

    def status(self) -> Json:
        return {
            "revision": self.revision,
            "last_reload": self._last,
            "history": [asdict(revision) for revision in self._history.revisions],
        }


@dataclass(frozen=True, slots=True)
class _Made:
    author: str
    via: Via
    message: str


def _texts(written: Written) -> Mapping[str, str]:
    return {str(sheet.path): sheet.text for sheet in written.sheets}


def _told(error: ConfigError) -> tuple[Told, ...]:
    told: tuple[Told, ...] = getattr(error, "told", ())
    return told or tuple(Told(problem.removeprefix("error: ")) for problem in error.problems)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
