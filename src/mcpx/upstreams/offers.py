"""What one server offers: to everybody, to some, and when it was last seen.

Keeps the lists in memory, within its account (`budget`), and on disk (`snapshot`). A server may
show a tool only to clients that can be asked what the tool needs: found out once for each *kind* of
client (decision 0006), over a link that is not kept for it. And a session with a link of its own
may find things there that were made on it.

The snapshot contains the lists of all kinds. Lists by kind that come from the snapshot are read
again once in each run.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from mcpx.base.aio import Tasks
from mcpx.model.call import Caller, as_object
from mcpx.model.errors import RpcError
from mcpx.model.offer import KINDS, STALE, Freshness, Kind, Offers
from mcpx.model.slices import in_slices
from mcpx.upstreams import listing
from mcpx.upstreams.admission import Admission
from mcpx.upstreams.held import HeldLists
from mcpx.upstreams.hub import Hub
from mcpx.upstreams.link import Link
from mcpx.upstreams.links import Links
from mcpx.upstreams.negotiate import LONGEST_INSTRUCTIONS
from mcpx.upstreams.snapshot import Lists, Snapshot
from mcpx.upstreams.surroundings import Surroundings
from mcpx.upstreams.traits import NOTHING, Traits, kind_of
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.wire.era import ParamHeaders

log = logging.getLogger(__name__)

KEEP_SOON = 0.2
"""Seconds to collect changes before a snapshot is written; it must be there within 0.3 s."""
KEEP_REST = 20
"""So many times as long as writing took, nothing is written again."""
FOLLOWED = 5_000
"""Definitions up to which what some clients are offered follows a change at once; else it is found
out again."""
MOST_KINDS = 16
"""Kinds of clients of which is kept what they are offered; the one longest unused goes."""
RETRY_SECONDS = 60.0
"""Seconds after which the lists for a kind of client are requested again if they could not be
read."""


class Learning:
    """The reading of the lists for one kind of client."""

    def __init__(self, patience: Literal["first", "again", "none"]) -> None:
        self.patience = patience
        """How long lists wait for it. "first": as for a server without a snapshot. "again": as for
        a server with a snapshot, because lists have waited for this kind in vain. "none": not at
        all, because other lists of this kind are known from an earlier run."""
        self.began = time.monotonic()
        self.done = asyncio.Event()
        self.late = False
        """Whether a client of this kind received lists without it."""
        self.task: asyncio.Task[None] | None = None


class OfferBook:
    def __init__(
        self,
        name: str,
        links: Links,
        annotations: dict[str, ParamHeaders],
        hub: Hub,
        around: Surroundings,
        key: str,
        traits: Traits,
        tasks: Tasks,
    ) -> None:
        self.common: Offers = {kind: [] for kind in KINDS}
        """What it offers to everybody."""
        self.known = False
        """Whether it said so itself, now or in an earlier run."""
        self.offered = False
        """Whether it ever had anything to offer."""
        self.account = around.budget.account()
        self.notes: dict[Kind | None, tuple[str, ...]] = {}
        """What of the lists is not as the server has it, for people; under None: of what only some
        are offered."""
        self.instructions = ""
        self.admission: Admission | None = None
        """Whether it may be shown; None: all of it."""
        self._told: set[Kind] = set()
        """The lists that the server itself has told by now."""
        self._name = name
        self._links = links
        self._annotations = annotations
        self._hub = hub
        self._snapshots = around.snapshots
        self._key = key
        self._traits = traits
        self._gate = around.learning
        self._tasks = tasks
        self._keeping: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._written: Snapshot | None = None
        """What is on disk, as far as is known."""
        self._rest_until = 0.0
        self._learning: dict[ClientKind, Learning] = {}
        self._failed: dict[ClientKind, float] = {}
        """When the lists for a kind could not be read, by the monotonic clock."""
        self._awaited: set[ClientKind] = set()
        """Kinds for which lists have waited in vain, in this run or in earlier ones. NOTHING stands
        for all clients."""
        self.awaited_before = False
        """Whether lists waited in vain for this server in an earlier run, and it has never
        listed."""
        self._restored: set[ClientKind] = set()
        """Kinds in `_by_kind` whose lists come from the snapshot and were not read in this run."""
        self._inherited = False
        """Whether `inherit` has set the lists, and the server has not listed since."""
        self._only: ClientKind = NOTHING
        """The kind of the program's one client: the main link is opened with its capabilities."""
        self._same: set[ClientKind] = set()
        """Kinds of clients that are offered what everybody is."""
        self._by_kind: dict[ClientKind, Offers] = {}
        """Kinds that are offered something else; the longest unused first."""
        self._by_session: dict[str, Offers] = {}
        self._fresh: dict[ClientKind | str | None, dict[Kind, Freshness | None]] = {}
        """Cache hints of lists that were read in this run, by kind of client or session. None: the
        common lists."""
        self.held = HeldLists(self.account)

    def remember(self) -> None:
        """Take up what the server offered when it was last seen, if that is known."""
        snapshot = self._snapshots.load(self._key)
        if snapshot is None:
            return
        self._written = snapshot
        self._awaited = {frozenset(kind) for kind in snapshot.awaited[:MOST_KINDS]}
        self.awaited_before = NOTHING in self._awaited
        self._traits.take_up(snapshot.traits)
        if snapshot.definitions is not None:
            self._restore(snapshot.definitions, snapshot)
        self._same = {frozenset(kind) for kind in snapshot.same[:MOST_KINDS]}
        for kind, lists in list(snapshot.by_kind.items())[:MOST_KINDS]:
            offers = listing.kept_of_kind(lists, self.account, kind, self.common)
            if offers is None:
                self._drop(self._by_kind, kind)
            else:
                self._by_kind[kind] = offers
        self._restored = set(self._by_kind)
        self._differ()

    def _restore(self, lists: Lists, snapshot: Snapshot) -> None:
        self.known = True
        self.common = listing.kept(lists, self.account)
        self.offered = any(self.common.values())
        self.instructions = snapshot.instructions[:LONGEST_INSTRUCTIONS]

    def serve_only(self, kind: ClientKind) -> None:
        """Use the lists for this kind as the common lists: the main link belongs to the program's
        one client."""
        if kind == self._only:
            return
        self._only = kind
        snapshot, same = self._written, self._same
        self._forget_kinds()
        self._same = set()
        if snapshot is None or any(kind <= one for one in same):
            return
        self.awaited_before = kind in self._awaited
        if (lists := snapshot.by_kind.get(kind)) is not None:
            self._restore(lists, snapshot)
        else:
            self.known = False  # The lists for other clients stay until its own lists are read.

    def inherit(self, other: "OfferBook") -> None:
        """Show what the server's predecessor offered until it says itself what it offers."""
        self.common, self.instructions, self.offered = (
            other.common,
            other.instructions,
            other.offered,
        )
        self._by_kind = dict(
            other._by_kind
        )  # what a session made on its own link is not among it: that link goes
        self._inherited = True
        self._differ()

    # Asking
    # ----------------------------------------------------------------------------------------------

    @property
    def varies(self) -> bool:
        return bool(self._by_kind or self._by_session)

    @property
    def varies_by_kind(self) -> bool:
        return bool(self._by_kind)

    def differs_for(self, kind: ClientKind) -> bool:
        return kind in self._by_kind

    def of(self, caller: Caller | None) -> Offers:
        """What this caller is offered; None asks for what everybody is."""
        if caller is None or caller.solo or not self.varies:
            return self.common
        if caller.session is not None and (own := self._by_session.get(caller.session)) is not None:
            return own
        return self._by_kind.get(kind_of(caller.capabilities), self.common)

    def freshness(self, caller: Caller, kind: Kind) -> Freshness | None:
        """How long the caller may cache a list. None: the server does not have this list."""
        whose: ClientKind | str | None = kind_of(caller.capabilities)
        if self.of(caller) is self.common:
            whose = None
        elif caller.session in self._by_session:
            whose = caller.session
        return self._fresh.get(whose, {}).get(kind, STALE)

    # Reading
    # ----------------------------------------------------------------------------------------------

    async def read(self, link: Link, kinds: Iterable[Kind], *, said_so: bool) -> tuple[Kind, ...]:
        """Read lists of the server and publish them together; those that could not be read."""
        kinds = tuple(kinds)
        listed = await self.lists(link, kinds)
        found = listed.offers
        # As it is now: another reading may have ended meanwhile. What was inherited goes, whichever
        # lists were read.
        own: Offers = self.common if self.known else {kind: [] for kind in KINDS}
        before, first = self.common, not self.known
        after: Offers = {**own, **found}
        if self._inherited:
            self._inherited = False
            self._forget_kinds()
        self.known = True
        self._fresh.setdefault(None, {}).update(listed.fresh)
        self._awaited.discard(self._only)
        if not said_so:
            self._failed.clear()
        if after != before:
            self.common = after
            self._follow(before, said_so, first)
        self.offered = self.offered or any(after.values())
        self._told.update(found)
        self.held.read_by_all(link)
        link.told.update(found)
        self.judge()
        if not said_so:
            self.notes.pop(None, None)
        self._note(listed.notes)
        self._hub.offers_changed(self._name, kinds, said_so)
        self.keep_soon()
        return tuple(kind for kind in kinds if kind not in found)

    def _follow(self, before: Offers, said_so: bool, first: bool) -> None:
        """Update the other lists after a change of the common lists. `first`: the common lists were
        not known."""
        size = sum(len(found) for offers in self._by_kind.values() for found in offers.values())
        if said_so and size <= FOLLOWED:
            self._by_kind = {
                kind: _following(offers, before, self.common)
                for kind, offers in self._by_kind.items()
            }
        elif not first:
            # It was started anew, perhaps another version: what some clients are offered is to be
            # found out again.
            self._same.clear()
            self._forget_kinds()
        for session in [
            session for session, offers in self._by_session.items() if offers == self.common
        ]:
            self._drop(self._by_session, session)
        names = {
            name
            for offers in self._all()
            for one in offers["tools"]
            if (name := _name_of(one)) is not None
        }
        for name in [name for name in self._annotations if name not in names]:
            del self._annotations[name]

    def _forget_kinds(self) -> None:
        for kind in list(self._by_kind):
            self._drop(self._by_kind, kind)
        self._restored.clear()
        self._differ()
        for learning in self._learning.values():
            learning.patience, learning.began = "first", time.monotonic()

    def _differ(self) -> None:
        self._traits.differing = frozenset(self._by_kind)

    def _all(self) -> Iterable[Offers]:
        return (
            (self.common, *self._by_kind.values(), *self._by_session.values())
            if self._annotations
            else ()
        )

    async def lists(
        self,
        link: Link,
        kinds: Iterable[Kind],
        whose: object = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> listing.Listed:
        listed = await listing.read(link, kinds, self.account, whose, self.common, capabilities)
        if "tools" in listed.offers:
            tools, wrong = await in_slices(
                listing.with_headers(link, listed.offers["tools"], self._annotations)
            )
            listed.offers["tools"] = tools
            if wrong:
                note = f"{wrong} of its tools left out: they {listing.BAD_HEADER}"
                listed = replace(
                    listed, notes={**listed.notes, "tools": (*listed.notes["tools"], note)}
                )
        if self.admission is not None:
            await in_slices(self.admission.studying(listed.offers))
        return listed

    def judge(self) -> None:
        """What is offered has changed, or who judges it: see what of it may be shown."""
        if self.admission is not None and self._told:
            some = (*self._by_kind.values(), *self._by_session.values(), *self.held)
            self.admission.look(self.common, self.instructions, self._told, some)

    def _note(self, notes: Mapping[Kind, tuple[str, ...]] | Mapping[None, tuple[str, ...]]) -> None:
        """Said once, and shown as long as it is so."""
        for about, found in notes.items():
            for note in found:
                if note not in self.notes.get(about, ()):
                    log.warning("[%s] %s", self._name, note)
            self.notes[about] = found

    def _drop(self, lists: dict[Any, Offers], whose: ClientKind | str) -> bool:
        """What some are offered is not kept any more; whether it was."""
        for kind in KINDS:
            self.account.drop((whose, kind))
        self._fresh.pop(whose, None)
        return lists.pop(whose, None) is not None

    def _fits(self, listed: listing.Listed) -> bool:
        if listed.cut:
            self._note(
                {
                    None: (
                        "what only some clients are offered is too much to be kept: they see what "
                        "all do",
                    )
                }
            )
        return not listed.cut

    def learning(
        self,
        caller: Caller,
        main: Link | None,
        connect: Callable[[], Awaitable[Link]],
        *,
        refresh: bool,
    ) -> Learning | None:
        """Start to read the lists for the caller's kind, or return the reading that runs.

        Returns None if the lists are known or cannot be read now. `connect` returns the main link.
        `refresh` tells whether to read lists of an earlier run again."""
        kind = kind_of(caller.capabilities)
        running = self._learning.get(kind)
        if running is not None:
            return None if running.done.is_set() else running
        restored = kind in self._restored
        if restored and not refresh:
            return None
        if not restored and self._knows(kind, main):
            return None
        if time.monotonic() - self._failed.get(kind, float("-inf")) < RETRY_SECONDS:
            return None
        self._restored.discard(kind)
        learning = Learning("none" if restored else "again" if kind in self._awaited else "first")
        self._learning[kind] = learning
        learning.task = self._tasks.start(self._learn(kind, caller, connect, learning))
        learning.task.add_done_callback(lambda _: self._learning.pop(kind, None))
        return learning

    def _knows(self, kind: ClientKind, main: Link | None) -> bool:
        """Whether the lists for this kind were read, be they those of all clients."""
        if kind in self._by_kind or any(kind <= same for same in self._same):
            return True
        return main is not None and main.alive and kind == main.needs.kind

    def is_learning(self, caller: Caller) -> bool:
        """Whether the lists for the caller's kind are read for the first time."""
        learning = self._learning.get(kind_of(caller.capabilities))
        return learning is not None and learning.patience != "none" and not learning.done.is_set()

    def awaited(self, kind: ClientKind) -> None:
        """Lists have waited for this kind in vain: they do so only once (LIF-1)."""
        if kind not in self._awaited and len(self._awaited) < MOST_KINDS:
            self._awaited.add(kind)
            self.keep_soon()

    async def _learn(
        self,
        kind: ClientKind,
        caller: Caller,
        connect: Callable[[], Awaitable[Link]],
        learning: Learning,
    ) -> None:
        try:
            main = await connect()
            if self._knows(kind, main) and learning.patience != "none":
                return  # Its lists are those of the main link.
            if main.modern and self._links.era_for(caller) == "modern":
                await self.learn_modern(kind, caller, main)
                return
            async with self._gate:
                # One that serves all kinds so far tells of this kind too, unless it is offered
                # something else.
                if not await self._learn_over(kind, caller, exact=False):
                    await self._learn_over(kind, caller, exact=True)
        except RpcError as error:
            log.debug(
                "[%s] what it offers to %s is not known: %s",
                self._name,
                sorted(kind),
                error.message,
            )
            if self._links.main is not None:
                self._failed[kind] = time.monotonic()
                if kind not in self._by_kind:
                    self.awaited(kind)
        finally:
            learning.done.set()

    async def learn_modern(self, kind: ClientKind, caller: Caller, link: Link) -> str | None:
        """Over a modern link, which tells each client what it is offered; what could not be read,
        if anything."""
        listed = await self.lists(link, KINDS, kind, caller.capabilities)
        if len(listed.offers) < len(KINDS) and kind in self._by_kind:
            return next(listed.notes[one][0] for one in KINDS if one not in listed.offers)
        link.told.add(kind)
        self._learnt(kind, kind, listed)
        return None

    async def _learn_over(self, kind: ClientKind, caller: Caller, *, exact: bool) -> bool:
        """Whether that told what clients of this kind are offered."""
        link = await self._links.for_learning(caller, exact=exact)
        asked, usable = set(self._traits.asks), False
        try:
            listed = await self.lists(
                link, KINDS, kind, caller.capabilities if link.modern else None
            )
            told = link.needs.kind == kind or {**self.common, **listed.offers} == self.common
            if told:
                self._learnt(link.needs.kind, kind, listed)
            else:
                self._drop(self._by_kind, kind)
                self._differ()
            usable = told and asked == self._traits.asks
            return told
        finally:
            await self._links.learnt(link, caller, usable=usable)

    def _learnt(self, told: ClientKind, kind: ClientKind, listed: listing.Listed) -> None:
        """The lists for a kind were read, over a link with the capabilities `told`."""
        offers: Offers = {**self.common, **listed.offers}
        before = self._by_kind.get(kind, self.common)
        learning = self._learning.get(kind)
        if offers == self.common or not self._fits(listed):
            offers = self.common
            self._same.add(told)
            if len(self._same) > MOST_KINDS:
                self._same.pop()
            self._drop(self._by_kind, told)
            self._drop(self._by_kind, kind)
        else:
            self._same.discard(kind)
            self._by_kind[kind] = offers
            self._fresh.setdefault(kind, {}).update(listed.fresh)
            if len(self._by_kind) > MOST_KINDS:
                self._drop(self._by_kind, next(iter(self._by_kind)))
        self._failed.pop(kind, None)
        self._awaited.discard(kind)
        self._differ()
        self.keep_soon()
        changed: tuple[Kind, ...] = tuple(one for one in KINDS if before[one] != offers[one])
        if changed:
            self.judge()
        announce = learning is None or learning.late or learning.patience == "none"
        self._hub.listed_for(self._name, kind, changed, announce=announce)
        if learning is not None:
            learning.done.set()  # The link may take longer to close.

    async def learn_session(self, link: Link, session: str, kinds: Iterable[Kind]) -> bool:
        """A link that one session uses says that its lists have changed; whether they are that
        session's own now."""
        kinds = tuple(kinds)
        try:
            listed = await self.lists(link, kinds, session)
        except RpcError:
            return False
        offered = self._by_session.get(session) or self._by_kind.get(link.needs.kind, self.common)
        offers: Offers = {**offered, **listed.offers}
        own = offers != self.common and self._fits(listed)
        if own:
            self._by_session[session] = offers
            self._fresh.setdefault(session, {}).update(listed.fresh)
        else:
            self._drop(self._by_session, session)
        self.judge()
        self._hub.offers_vary(self._name, kinds, session)
        return own

    def forget_session(self, session: str) -> None:
        if self._drop(self._by_session, session):
            self.judge()
            self._hub.offers_vary(self._name, (), None)

    # On disk
    # ----------------------------------------------------------------------------------------------

    def keep_soon(self) -> None:
        if self._keeping is None and (self.known or self._awaited):
            loop = asyncio.get_running_loop()
            self._keeping = loop.call_at(
                max(loop.time() + KEEP_SOON, self._rest_until), self._begin_keeping
            )

    def _begin_keeping(self) -> None:
        self._keeping = None
        if self._writing is not None:
            self.keep_soon()
        else:
            self._writing = self._tasks.start(self._keep())

    async def _keep(self) -> None:
        try:
            snapshot = self._snapshot()
            if snapshot == self._written and self._snapshots.use(self._key):
                return
            loop = asyncio.get_running_loop()
            began = loop.time()
            await self._snapshots.keep(self._key, snapshot)
            self._written = snapshot
            self._rest_until = loop.time() + KEEP_REST * (loop.time() - began)
        finally:
            self._writing = None

    def _snapshot(self) -> Snapshot:
        awaited = tuple(sorted(sorted(kind) for kind in self._awaited))
        if not self._only:
            common = dict(self.common) if self.known else None
            same = tuple(sorted(sorted(kind) for kind in self._same))
            traits = self._traits.to_json()
            return Snapshot(common, self.instructions, traits, same, dict(self._by_kind), awaited)
        # Replace the lists of this kind, and keep the lists of all other kinds.
        before = self._written or Snapshot(None, "")
        after = replace(before, traits=self._traits.to_json(), awaited=awaited)
        if not self.known:
            return after
        same_kinds = {frozenset(kind) for kind in before.same} - {self._only}
        by_kind = {kind: lists for kind, lists in before.by_kind.items() if kind != self._only}
        if self.common == before.definitions:
            same_kinds.add(self._only)
        else:
            by_kind[self._only] = dict(self.common)
        same = tuple(sorted(sorted(kind) for kind in same_kinds))
        return replace(after, instructions=self.instructions, same=same, by_kind=by_kind)

    async def close(self) -> None:
        """Write what was not written yet."""
        self.account.close()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None
            await self._keep()


def _name_of(definition: object) -> str | None:
    name = as_object(definition).get("name")
    return name if isinstance(name, str) else None


def _following(offers: Offers, before: Offers, after: Offers) -> Offers:
    """What some are offered once what everybody is offered has changed: the same comes and goes.

    By identity: a definition that did not change is the same object (`listing`)."""
    followed: Offers = {}
    for kind in KINDS:
        was, now, theirs = ({id(one) for one in some[kind]} for some in (before, after, offers))
        stays = [one for one in offers[kind] if id(one) not in was or id(one) in now]
        comes = [one for one in after[kind] if id(one) not in was and id(one) not in theirs]
        followed[kind] = stays + comes
    return followed
