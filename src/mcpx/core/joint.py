"""The configuration of one replica among others (SCA-1, CFG-6): a commit is that of all, or of
none.

Promised: a commit is put to every other replica, which judges it with its own environment and its
own files; one that refuses it, or says nothing, keeps it from being made, and nothing is written
anywhere. Agreed upon, it is put into the store, and every replica takes up the newest there is: in
order, also what it missed while it or the store was away. A store that came back empty, or with
less than it had, is given the newest that a replica knows; what somebody who started just then has
put there does not count against that.

What could not be taken up, for a full disk say, is tried again and again; until then nothing is
changed by way of that replica while there are others. What is edited by hand on one replica stays
there, is told by its etag, and goes when a commit is made elsewhere; its text stays in the history.
A replica that starts with files that nobody knows runs those, and says so.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcpx.config import Config
from mcpx.config.edits import Change, EditError, Where
from mcpx.config.load import Texts
from mcpx.config.plan import plan as plan_of
from mcpx.config.problems import Refused, Told
from mcpx.config.watch import print_of
from mcpx.core.gateway import Gateway
from mcpx.core.history import Revision
from mcpx.core.proposals import Read
from mcpx.core.saving import Overtaken, Unwritable, refuse_unwritable, write_all
from mcpx.core.sharing import (
    TOPIC,
    TURN,
    Refusal,
    Shared,
    Sharing,
    Verdict,
    etag_of_texts,
    switched_off,
)
from mcpx.core.store import Committed, ConfigStore, Fresh, Prepared, Stale, told_of
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import StoreDown

if TYPE_CHECKING:
    from mcpx.config import Plan
    from mcpx.config.written import Written

log = logging.getLogger(__name__)

PREPARED: Final = 5.0
"""Seconds that clients wait for a replica that starts to take up what all others run."""
TRIES: Final = 3
"""How often something is begun anew that somebody else was quicker with."""
RETRY: Final = 5.0
"""Seconds between two tries to take up what all others run."""


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
        """The newest of all replicas, as far as it was seen here."""
        self._missed = ""
        """Why that does not run here; empty: it does, or need not."""
        self._due = asyncio.Event()
        self._settled = asyncio.Event()
        """Set once what all others run was looked at."""
        self._odd = ""
        """The etag that was said to be nobody else's."""

    def follow(self) -> None:
        """While there is no file there is nothing to share."""
        if self._where is None:
            return
        self._report(self._look())
        self._sharing.answer(self._judge)
        self._replicas.members.watch(TOPIC, lambda _: self._due.set())
        self._replicas.store.on_return(self._returned)
        self._replicas.preparations.append(self._prepare)
        self._tasks.start(self._follow_on())

    async def _prepare(self) -> None:
        try:
            async with asyncio.timeout(PREPARED):
                await self._settled.wait()
        except TimeoutError:
            pass

    def _begin(self, fresh: Fresh) -> None:
        super()._begin(fresh)
        self.follow()

    async def close(self) -> None:
        await self._sharing.close()
        await super().close()

    # Telling
    # ----------------------------------------------------------------------------------------------

    def replicas(self) -> list[Json]:
        members = self._replicas.members
        common = "" if self._known is None else self._known.etag
        told: list[Json] = []
        for member in sorted(
            (members.me, *members.others.values()), key=lambda each: (each.name, each.id)
        ):
            about = {
                key: value for key, value in asdict(member).items() if key not in ("host", "port")
            }
            told.append(
                {
                    **about,
                    "shared": bool(common) and member.etag == common,
                    "me": member.id == members.me.id,
                }
            )
        return told

    def _report(self, written: "Written") -> None:
        """What runs here, for all to see."""
        etag = etag_of_texts(_texts_by_name(written))
        known = self._known
        number = known.number if known is not None and known.etag == etag else self.revision
        self._replicas.members.update(revision=number, etag=etag)

    async def _note(self, revision: Revision, plan: "Plan") -> None:
        await super()._note(revision, plan)
        if self._where is not None:
            self._report(await self.look())

    # Committing
    # ----------------------------------------------------------------------------------------------

    async def _commit(
        self, change: Change, if_match: str | None, made: Revision, agree: Callable[[Config], None]
    ) -> Committed:
        if self._where is None:
            return await super()._commit(change, if_match, made, agree)
        if not self._replicas.joined.is_set() or not self._replicas.store.up:
            raise _apart()
        try:
            async with AsyncExitStack() as held:
                await held.enter_async_context(self._replicas.turns.turn(TOPIC, TURN))
                await self._catch_up()
                if (
                    self._missed and self._replicas.members.others
                ):  # by itself it may go on from what it has
                    raise _behind(self._missed)
                async with self._turn:
                    prepared = await self._prepared(change, if_match, agree)
                    if isinstance(prepared, Committed):
                        return prepared
                    shared = await self._agreed(prepared, made)
                    await (
                        held.aclose()
                    )  # the next change may be made to it, however long it takes to run here
                    try:
                        done = await self._installed(shared, prepared.config)
                    except Unwritable as error:
                        self._missed = str(error)
                        self._due.set()
                        raise _behind(self._missed) from None
                    self._missed = ""
                    return done
        except StoreDown:
            raise _apart() from None

    async def _agreed(self, prepared: Prepared, made: Revision) -> Shared:
        """With all others, and in the store. Raises `Refused`, `Stale`, `Unwritable`,
        `StoreDown`."""
        for path in prepared.texts:
            await asyncio.to_thread(refuse_unwritable, path)
        texts = _texts_by_name(prepared.written, prepared.texts)
        refusals, highest = await self._sharing.ask(texts, frozenset(switched_off(prepared.config)))
        if refusals:
            raise _refused(refusals)
        known = self._known
        number = (
            max(highest, self._latest(prepared.written), 0 if known is None else known.number) + 1
        )
        plan = str(plan_of(self._gateway.generation.config, prepared.config))
        by = f"{made.author} ({made.via})" if made.author else made.via
        shared = Shared(
            number, etag_of_texts(texts), texts, by, plan, made.via, made.author, made.message
        )
        try:
            is_put = await self._sharing.put(shared, None if known is None else known.number)
        except StoreDown:
            raise _unknown() from None
        if not is_put:
            raise Stale(prepared.written.etag)
        self._known = shared
        return shared

    def _latest(self, written: "Written") -> int:
        """The highest number that is taken here, once what was edited by hand is kept too."""
        return self.revision + (self._history.revisions[-1].etag != written.etag)

    async def _installed(self, shared: Shared, config: Config) -> Committed:
        """All have agreed: the files say it, and it is taken up. Whatever somebody saves in the
        same moment is kept in the history. Raises `Unwritable`."""
        for _ in range(TRIES):
            left = {path: print_of(path) for path in self.sources}
            written = await self.look()
            said = {sheet.path: sheet.text for sheet in written.sheets}
            texts = {
                path: text
                for path, text in _placed(written, shared.texts).items()
                if said[path] != text
            }
            try:
                left |= await asyncio.to_thread(write_all, written, texts)
            except Overtaken:
                continue
            self._ours = left
            done = await self._finish(config, written, texts, shared.made)
            if not done.error:
                self._report(await self.look())
            return done
        raise Unwritable("the files are changed again and again by somebody else")

    # Being asked
    # ----------------------------------------------------------------------------------------------

    async def _judge(self, texts: Mapping[str, str], off: frozenset[str]) -> Verdict:
        written = await self.look()
        try:
            told = await asyncio.to_thread(self._objections, written, texts, off)
        except EditError as error:
            told = (Told(error.message, error.hint),)
        except ConfigError as error:
            told = told_of(error)
        except Unwritable as error:
            told = (Told(str(error)),)
        return Verdict(told, self._latest(written))

    def _objections(
        self, written: "Written", texts: Mapping[str, str], off: frozenset[str]
    ) -> tuple[Told, ...]:
        placed = _placed(written, texts)
        for sheet in written.sheets:
            if placed[sheet.path] != sheet.text:
                refuse_unwritable(sheet.path)
        config = self._judged(placed)
        # What whoever asks can use, and this one too until now, must not be missing here alone.
        left_out = {*off, *switched_off(self._gateway.generation.config)}
        return tuple(
            Told(f"{name} would be switched off there: {why}")
            for name, why in switched_off(config).items()
            if name not in left_out
        )

    # Following
    # ----------------------------------------------------------------------------------------------

    async def _returned(self, fresh: bool) -> None:
        self._due.set()

    async def _follow_on(self) -> None:
        self._due.set()
        while True:
            try:
                async with asyncio.timeout(RETRY if self._missed else None):
                    await self._due.wait()
            except TimeoutError:
                pass
            await (
                self._replicas.joined.wait()
            )  # also if it has parted meanwhile: what is there is for another key
            self._due.clear()
            try:
                await self._catch_up()
            except StoreDown:
                pass  # once it is back it is looked at again
            except Exception:
                log.exception("the configuration of the other replicas could not be taken up")
            self._settled.set()

    async def _catch_up(self) -> None:
        """See to it that the store has the newest, and that it runs here. Raises `StoreDown`."""
        for _ in range(TRIES):
            if await self._caught_up():
                return
        self._due.set()

    async def _caught_up(self) -> bool:
        """False: somebody else was quicker."""
        head, known = await self._sharing.head(), self._known
        if known is not None and head == (known.number, known.etag):
            if self._missed:
                await self._take_up_shared(known)
            return True
        if known is not None and (head is None or head[0] < known.number):
            log.info(
                "the store has lost revision %d of the configuration; it is written anew",
                known.number,
            )
            return await self._give_back(known, None if head is None else head[0])
        shared = await self._sharing.read()
        if known is not None and shared is not None and shared.first and shared.etag != known.etag:
            log.info(
                "a replica that has just started has put its own configuration into the emptied "
                "store"
            )
            return await self._give_back(replace(known, number=shared.number + 1), shared.number)
        written = await self.look()
        texts = _texts_by_name(written)
        etag = etag_of_texts(texts)
        if shared is None or self._succeeds(
            shared, written
        ):  # None: or none that this key opens, which is new then
            last = self._history.revisions[-1]
            number = max(self._latest(written), 0 if head is None else head[0] + 1)
            mine = Shared(
                number,
                etag,
                texts,
                last.by,
                last.plan,
                last.via,
                last.author,
                last.message,
                shared is None,
            )
            if not await self._sharing.put(mine, None if head is None else head[0], self._past()):
                return False
            self._known = mine
        elif shared.etag == etag:
            self._known, self._missed = shared, ""
            if self.revision < shared.number and self._keeps:
                at = self._history.revisions[-1].at
                self._keep(replace(shared.made, at=at), written)
        elif known is not None or await self._sharing.was(etag):
            await self._take_up_shared(shared)
            return True
        else:
            self._known = shared
            self._say_that_it_differs(etag)
        self._report(written)
        return True

    async def _give_back(self, known: Shared, instead_of: int | None) -> bool:
        """What all have agreed to, or one had before anybody else came, is in the store again."""
        known = replace(known, first=False)
        if not await self._sharing.put(known, instead_of, self._past()):
            return False
        if (
            self._known is None or self._known.number <= known.number
        ):  # else a commit from here was quicker
            self._known = known
            self._report(await self.look())
        return True

    def _succeeds(self, shared: Shared, written: "Written") -> bool:
        """Whether what is here was agreed upon after what another replica started with, and put
        into an empty store: it has missed that."""
        last = self._history.revisions[-1]
        is_agreed = (
            last.via not in ("file", "start")
            and last.etag == written.etag
            and last.number > shared.number
        )
        return (
            self._known is None
            and shared.first
            and is_agreed
            and shared.etag in {etag for _, etag in self._past()}
        )

    def _past(self) -> list[tuple[int, str]]:
        return [
            (revision.number, revision.etag)
            for revision in self._history.revisions
            if revision.etag
        ]

    async def _take_up_shared(self, shared: Shared) -> None:
        async with self._turn:
            known = self._known
            if known is not None and known.number > shared.number:
                return  # a commit from here was quicker
            if (
                known is not None
                and (known.number, known.etag) == (shared.number, shared.etag)
                and not self._missed
            ):
                return
            self._known = shared
            missed = ""
            written = await self.look()
            try:
                config = await asyncio.to_thread(
                    lambda: self._judged(_placed(written, shared.texts))
                )
                await self._installed(shared, config)
            except ConfigError as error:
                missed = "; ".join(error.problems)
                if missed != self._missed:
                    self._tell(self._refused(error), shared.by)
            except Unwritable as error:
                missed = str(error)
                if missed != self._missed:
                    log.error("%s", error)
            if missed and missed != self._missed:
                log.error(
                    "revision %d of all replicas does not run here; it is tried again, and `GET "
                    "/api/replicas` tells",
                    shared.number,
                )
            self._missed = missed

    def _say_that_it_differs(self, etag: str) -> None:
        if etag != self._odd:
            self._odd = etag
            log.warning(
                "the configuration of this replica is not that of the others (revision %d), and "
                "stays its own until "
                "the next change by the admin API; `mcpx config push FILE` makes a file that of "
                "all",
                0 if self._known is None else self._known.number,
            )


def _texts_by_name(written: "Written", instead: Texts | None = None) -> dict[str, str]:
    return {
        sheet.path.name: (instead or {}).get(sheet.path, sheet.text) for sheet in written.sheets
    }


def _placed(written: "Written", texts: Mapping[str, str]) -> dict[Path, str]:
    """By the files here. Raises `EditError` where they are others."""
    here = {sheet.path.name: sheet.path for sheet in written.sheets}
    if here.keys() != texts.keys():
        theirs, ours = ", ".join(sorted(texts))[:200], ", ".join(sorted(here))[:200]
        hint = "give all replicas files of the same names"
        told = f"its configuration is in {ours or 'no file'}, not in {theirs}"
        raise EditError("not_possible", told, hint=hint)
    return {here[name]: text for name, text in texts.items()}


def _refused(refusals: list[Refusal]) -> Refused:
    told = [
        replace(each, message=f"replica {refusal.replica} refuses it: {each.message}")
        for refusal in refusals
        for each in refusal.told
    ]
    return Refused([f"error: {each.message}" for each in told], (), told)


def _unknown() -> EditError:
    told = (
        "the store that replicas share went away in that very moment: whether they take it up "
        "is known when it is back"
    )
    return EditError("not_possible", told, hint="look at it again then")


def _behind(why: str) -> EditError:
    told = f"this replica does not run what all others do, and takes it up as soon as it can: {why}"
    return EditError(
        "not_possible", told, hint="mend that, or change the configuration at another replica"
    )


def _apart() -> EditError:
    told = (
        "nothing was changed: a change is that of all replicas, and the store they share "
        "cannot be reached"
    )
    hint = "try again when it is back; the file can be edited by hand meanwhile"
    return EditError("not_possible", told, hint=hint)
