"""The configuration of one replica among others (SCA-1, CFG-6).

A commit is validated by the replica that receives it, and put into the store by compare-and-set.
Then every replica writes and applies the newest revision, also one that it missed while it or the
store was away. A replica that cannot apply a revision reports this, tries again, and rejects
commits while there are other replicas. If the store was emptied, or has an older revision, the
replicas put back the newest one that they know. A revision that a starting replica put into the
empty store does not count against that.

A file that was edited by hand belongs to its replica alone until the next commit. The replica
reports another etag, and the history keeps the text. A replica that starts with files that no
revision had runs these files, with a warning.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcpx.config import Config, Plan
from mcpx.config.edits import Change, EditError, Where
from mcpx.config.load import Texts
from mcpx.config.plan import plan as plan_of
from mcpx.core.config_files import Read, Revision, changed_texts
from mcpx.core.gateway import Gateway
from mcpx.core.saving import Overtaken, Unwritable, refuse_unwritable, write_all
from mcpx.core.sharing import TOPIC, Shared, Sharing, etag_of_texts
from mcpx.core.store import Agree, Committed, ConfigStore, Fresh, Prepared, Stale
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import StoreDown

if TYPE_CHECKING:
    from mcpx.config.written import Written

log = logging.getLogger(__name__)

PREPARED: Final = 5.0
"""Seconds that clients wait until a starting replica has applied the newest revision."""
COMMIT_TRIES: Final = 10
TRIES: Final = 3
"""How often a step is tried if another replica or program is faster."""
RETRY: Final = 5.0
"""Seconds between two tries to apply the newest revision."""


class JointStore(ConfigStore):
    def __init__(
        self,
        gateway: Gateway,
        read: Read | None,
        applied: Callable[[Config], None],
        coming: Callable[[Config], None] = lambda config: None,
        *,
        where: Where | None = None,
        fresh: Fresh | None = None,
        replicas: Replicas,
    ) -> None:
        super().__init__(gateway, read, applied, coming, where=where, fresh=fresh)
        self._replicas = replicas
        self._sharing = Sharing(replicas)
        self._known: Shared | None = None
        """The newest revision that this replica has seen."""
        self._missed = ""
        """Why that revision does not run here."""
        self._due = asyncio.Event()
        self._settled = asyncio.Event()
        """Set once the store was read."""
        self._reported_etag = ""
        """Of the last files that the log reported as different."""

    def follow(self) -> None:
        """Share the configuration from now on, or from the creation of its file on."""
        if self.files.where is None:
            return
        self._report(self.files.look())
        self._replicas.members.watch(TOPIC, lambda _: self._due.set())
        self._replicas.store.on_return(self._store_returned)
        self._replicas.preparations.append(self._prepare)
        self._tasks.start(self._follow())

    async def _store_returned(self, fresh: bool) -> None:
        self._due.set()

    async def _prepare(self) -> None:
        try:
            async with asyncio.timeout(PREPARED):
                await self._settled.wait()
        except TimeoutError:
            pass

    def _begin(self, fresh: Fresh) -> None:
        super()._begin(fresh)
        self.follow()

    # Reports
    # ----------------------------------------------------------------------------------------------

    def replicas(self) -> list[Json]:
        members = self._replicas.members
        rows: list[Json] = []
        everyone = (members.me, *members.others.values())
        for member in sorted(everyone, key=lambda each: (each.name, each.id)):
            row = asdict(member)
            del row["host"], row["port"]
            row["shared"] = self._known is not None and member.etag == self._known.etag
            row["me"] = member.id == members.me.id
            rows.append(row)
        return rows

    def _report(self, written: "Written") -> None:
        """Report the running configuration to the other replicas."""
        etag = etag_of_texts(_texts_by_name(written))
        number = self.revision
        if self._known is not None and self._known.etag == etag:
            number = self._known.number
        self._replicas.members.update(revision=number, etag=etag)

    async def _note(self, revision: Revision, plan: Plan) -> None:
        await super()._note(revision, plan)
        if self.files.where is not None:
            self._report(await self.look())

    # Commit
    # ----------------------------------------------------------------------------------------------

    async def _commit(
        self, change: Change, if_match: str | None, made: Revision, agree: Agree
    ) -> Committed:
        if self.files.where is None:
            return await super()._commit(change, if_match, made, agree)
        for tries_left in range(COMMIT_TRIES, 0, -1):
            try:
                return await self._commit_shared(change, if_match, made, agree)
            except Stale:
                if if_match is not None or tries_left == 1:
                    raise
            except StoreDown:
                raise _store_away() from None
        raise AssertionError

    async def _commit_shared(
        self, change: Change, if_match: str | None, made: Revision, agree: Agree
    ) -> Committed:
        if not self._replicas.joined.is_set() or not self._replicas.store.up:
            raise _store_away()
        await self._catch_up()
        if self._missed and self._replicas.members.others:
            raise _behind(self._missed)
        async with self._turn:
            prepared = await self._prepared(change, if_match, agree)
            if isinstance(prepared, Committed):
                return prepared
            for path in prepared.texts:
                await asyncio.to_thread(refuse_unwritable, path)
            shared = await self._put(prepared, made)
            try:
                done = await self._install(shared, prepared.config)
            except Unwritable as error:
                self._missed = str(error)
                self._due.set()
                raise _behind(self._missed) from None
            self._missed = ""
            return done

    async def _put(self, prepared: Prepared, made: Revision) -> Shared:
        """Make the change the newest revision of all replicas. Raises `Stale`."""
        known = 0 if self._known is None else self._known.number
        texts = _texts_by_name(prepared.written, prepared.texts)
        shared = Shared(
            max(self._latest(prepared.written), known) + 1,
            etag_of_texts(texts),
            texts,
            f"{made.author} ({made.via})" if made.author else made.via,
            str(plan_of(self._gateway.generation.config, prepared.config)),
            made.via,
            made.author,
            made.message,
        )
        try:
            is_put = await self._sharing.put(shared, known or None)
        except StoreDown:
            raise _unknown_outcome() from None
        if not is_put:
            raise Stale(prepared.written.etag)
        self._known = shared
        return shared

    def _latest(self, written: "Written") -> int:
        """The highest number in the history, with that of an edit by hand that follows."""
        return self.revision + (self.history.last.etag != written.etag)

    async def _install(self, shared: Shared, config: Config) -> Committed:
        """Write and apply a revision. An edit by hand is kept in the history.

        Raises `Unwritable`.
        """
        for _ in range(TRIES):
            prints = self._prints()
            written = await self.look()
            texts = changed_texts(written, _texts_by_path(written, shared.texts))
            try:
                prints |= await asyncio.to_thread(write_all, written, texts)
            except Overtaken:
                continue
            self._own_prints = prints
            done = await self._finish(Prepared(written, texts, config), shared.made)
            if not done.error:
                self._report(await self.look())
            return done
        raise Unwritable("the files are changed again and again by somebody else")

    # Newest revision
    # ----------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        self._due.set()
        while True:
            try:
                async with asyncio.timeout(RETRY if self._missed else None):
                    await self._due.wait()
            except TimeoutError:
                pass
            # If the replica has left again, the entries in the store have another key.
            await self._replicas.joined.wait()
            self._due.clear()
            try:
                await self._catch_up()
            except StoreDown:
                pass  # Its return sets `_due`.
            except Exception:
                log.exception("the configuration of the other replicas could not be taken up")
            self._settled.set()

    async def _catch_up(self) -> None:
        """Make sure that the store has the newest revision, and that it runs here.

        Raises `StoreDown`.
        """
        for _ in range(TRIES):
            if await self._try_to_catch_up():
                return
        self._due.set()

    async def _try_to_catch_up(self) -> bool:
        """Returns False if another replica was faster."""
        head, known = await self._sharing.head(), self._known
        number = None if head is None else head[0]
        if known is None:
            return await self._compare(number, await self._sharing.read())
        if head == (known.number, known.etag):
            if self._missed:
                await self._take_up(known)
            return True
        if number is None or number < known.number:
            log.info("the store has lost revision %d; it is written anew", known.number)
            return await self._put_back(known, number)
        shared = await self._sharing.read()
        if shared is not None and shared.first and shared.etag != known.etag:
            log.info("a replica that has just started put its own configuration into the store")
            return await self._put_back(replace(known, number=shared.number + 1), shared.number)
        return await self._compare(number, shared)

    async def _compare(self, number: int | None, shared: Shared | None) -> bool:
        """Compare the files with the newest revision in the store, which has this number.

        `shared` is None if the store has no revision, or one with another key.
        """
        written = await self.look()
        texts = _texts_by_name(written)
        etag = etag_of_texts(texts)
        if shared is None or self._is_newer(shared, written):
            last = self.history.last
            mine = Shared(
                max(self._latest(written), (number or -1) + 1),
                etag,
                texts,
                last.by,
                last.plan,
                last.via,
                last.author,
                last.message,
                first=shared is None,
            )
            if not await self._sharing.put(mine, number, self._past()):
                return False
            self._known = mine
        elif shared.etag == etag:
            self._known, self._missed = shared, ""
            if self.revision < shared.number and self._keeps_texts:
                self._keep(replace(shared.made, at=self.history.last.at), written)
        elif self._known is not None or await self._sharing.was(etag):
            await self._take_up(shared)
            return True
        else:
            self._known = shared
            self._warn_that_it_differs(etag)
        self._report(written)
        return True

    async def _put_back(self, known: Shared, instead_of: int | None) -> bool:
        known = replace(known, first=False)
        if not await self._sharing.put(known, instead_of, self._past()):
            return False
        if self._known is None or self._known.number <= known.number:
            self._known = known  # No commit was faster.
            self._report(await self.look())
        return True

    def _is_newer(self, shared: Shared, written: "Written") -> bool:
        """Whether the files are a commit that followed on `shared`.

        Another replica missed that commit, and put its older files into an emptied store.
        """
        last = self.history.last
        is_commit = last.via not in ("file", "start") and last.etag == written.etag
        if self._known is not None or not shared.first or not is_commit:
            return False
        return last.number > shared.number and shared.etag in dict(self._past()).values()

    def _past(self) -> list[tuple[int, str]]:
        return [(each.number, each.etag) for each in self.history.revisions if each.etag]

    async def _take_up(self, shared: Shared) -> None:
        async with self._turn:
            known = self._known
            if known is not None:
                runs = (known.number, known.etag) == (shared.number, shared.etag)
                if known.number > shared.number or (runs and not self._missed):
                    return  # A commit was faster.
            self._known = shared
            missed = ""
            written = await self.look()
            try:
                texts = _texts_by_path(written, shared.texts)
                config = await asyncio.to_thread(self.files.judged, texts)
                await self._install(shared, config)
            except ConfigError as error:
                missed = "; ".join(error.problems)
                if missed != self._missed:
                    self._tell(self._refuse(error), shared.by)
            except Unwritable as error:
                missed = str(error)
            if missed and missed != self._missed:
                log.error(
                    "revision %d of all replicas does not run here: %s. It is tried again, and "
                    "`GET /api/replicas` tells",
                    shared.number,
                    missed,
                )
            self._missed = missed

    def _warn_that_it_differs(self, etag: str) -> None:
        if etag != self._reported_etag:
            self._reported_etag = etag
            log.warning(
                "the configuration of this replica is not that of the others (revision %d), and "
                "stays its own until the next change by the admin API; `mcpx config push FILE` "
                "makes a file that of all",
                0 if self._known is None else self._known.number,
            )


def _texts_by_name(written: "Written", instead: Texts | None = None) -> dict[str, str]:
    changed = instead or {}
    return {sheet.path.name: changed.get(sheet.path, sheet.text) for sheet in written.sheets}


def _texts_by_path(written: "Written", texts: Mapping[str, str]) -> dict[Path, str]:
    """Raises `EditError` if the replica has files with other names."""
    here = {sheet.path.name: sheet.path for sheet in written.sheets}
    if here.keys() != texts.keys():
        theirs, ours = ", ".join(sorted(texts))[:200], ", ".join(sorted(here))[:200]
        hint = "give all replicas files of the same names"
        told = f"its configuration is in {ours or 'no file'}, not in {theirs}"
        raise EditError("not_possible", told, hint=hint)
    return {here[name]: text for name, text in texts.items()}


def _unknown_outcome() -> EditError:
    told = (
        "the store that replicas share went away in that very moment: whether they take it up "
        "is known when it is back"
    )
    return EditError("not_possible", told, hint="look at it again then")


def _behind(why: str) -> EditError:
    told = f"this replica does not run what all others do, and takes it up as soon as it can: {why}"
    hint = "mend that, or change the configuration at another replica"
    return EditError("not_possible", told, hint=hint)


def _store_away() -> EditError:
    told = (
        "nothing was changed: a change is that of all replicas, and the store they share "
        "cannot be reached"
    )
    hint = "try again when it is back; the file can be edited by hand meanwhile"
    return EditError("not_possible", told, hint=hint)
