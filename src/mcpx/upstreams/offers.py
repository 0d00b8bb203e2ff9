"""What one server offers: to all clients, to some kinds of clients, and to sessions.

The lists are kept in memory, within the server's account (`budget`), and on disk
(`offer_snapshot`). A server may show a tool only to clients that can be asked what the tool needs.
Such lists are read once for each *kind* of client (decision 0006, `kind_lists`). A session with its
own link may find things that were created on that link.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcpx.base.aio import in_slices
from mcpx.model.call import Caller, as_object
from mcpx.model.errors import RpcError
from mcpx.model.offer import KINDS, STALE, Freshness, Kind, Offers
from mcpx.upstreams import listing
from mcpx.upstreams.context import ListsRead, ListsVary
from mcpx.upstreams.judging import HeldLists
from mcpx.upstreams.link import Link
from mcpx.upstreams.negotiate import LONGEST_INSTRUCTIONS
from mcpx.upstreams.snapshot import Lists, Snapshot
from mcpx.upstreams.traits import NOTHING, kind_of
from mcpx.upstreams.traits import Kind as ClientKind

if TYPE_CHECKING:
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

KEEP_SOON = 0.2
"""Seconds to collect changes before a snapshot is written. It must exist within 0.3 s."""
KEEP_REST = 20
"""Factor of the time that writing took, in which the snapshot is not written again."""
MOST_KINDS = 16


class OfferSnapshot:
    def __init__(self, upstream: "Upstream", book: "OfferBook") -> None:
        self.written: Snapshot | None = None
        """What is on disk, as far as known."""
        self._upstream = upstream
        self._book = book
        self._snapshots = upstream.context.snapshots
        self._key = upstream.snapshot_key
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._rest_until = 0.0

    def load(self) -> None:
        """Use the lists of an earlier run."""
        snapshot = self._snapshots.load(self._key)
        if snapshot is None:
            return
        book, kinds = self._book, self._upstream.kinds
        self.written = snapshot
        kinds.awaited = {frozenset(kind) for kind in snapshot.awaited[:MOST_KINDS]}
        kinds.awaited_before = NOTHING in kinds.awaited
        self._upstream.traits.take_up(snapshot.traits)
        if snapshot.definitions is not None:
            book.restore(snapshot.definitions, snapshot.instructions[:LONGEST_INSTRUCTIONS])
        book.same = {frozenset(kind) for kind in snapshot.same[:MOST_KINDS]}
        for kind, lists in list(snapshot.by_kind.items())[:MOST_KINDS]:
            offers = listing.kept_of_kind(lists, book.account, kind, book.common)
            if offers is None:
                book.drop_kind(kind)
            else:
                book.by_kind[kind] = offers
        kinds.restored = set(book.by_kind)
        book.kinds_changed()

    def keep_soon(self) -> None:
        if self._timer is None and (self._book.known or self._upstream.kinds.awaited):
            loop = asyncio.get_running_loop()
            when = max(loop.time() + KEEP_SOON, self._rest_until)
            self._timer = loop.call_at(when, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._writing is not None:
            self.keep_soon()
        else:
            self._writing = self._upstream.tasks.start(self._keep())

    async def _keep(self) -> None:
        try:
            snapshot = self._snapshot()
            if snapshot == self.written and self._snapshots.use(self._key):
                return
            loop = asyncio.get_running_loop()
            began = loop.time()
            await self._snapshots.keep(self._key, snapshot)
            self.written = snapshot
            self._rest_until = loop.time() + KEEP_REST * (loop.time() - began)
        finally:
            self._writing = None

    def _snapshot(self) -> Snapshot:
        book, traits = self._book, self._upstream.traits.to_json()
        awaited = _sorted(self._upstream.kinds.awaited)
        if not book.only:
            common = dict(book.common) if book.known else None
            same = _sorted(book.same)
            return Snapshot(common, book.instructions, traits, same, dict(book.by_kind), awaited)
        # Replace the lists of this kind, and keep the lists of all other kinds.
        before = self.written or Snapshot(None, "")
        after = replace(before, traits=traits, awaited=awaited)
        if not book.known:
            return after
        same_kinds = {frozenset(kind) for kind in before.same} - {book.only}
        by_kind = {kind: lists for kind, lists in before.by_kind.items() if kind != book.only}
        if book.common == before.definitions:
            same_kinds.add(book.only)
        else:
            by_kind[book.only] = dict(book.common)
        same = _sorted(same_kinds)
        return replace(after, instructions=book.instructions, same=same, by_kind=by_kind)

    async def close(self) -> None:
        """Write what was not written yet."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            await self._keep()


def _sorted(kinds: set[ClientKind]) -> tuple[list[str], ...]:
    return tuple(sorted(sorted(kind) for kind in kinds))


FOLLOWED = 5_000
"""Definitions up to which the lists for some clients are updated at once. Longer lists are read
again."""


class OfferBook:
    def __init__(self, upstream: "Upstream") -> None:
        self.common: Offers = {kind: [] for kind in KINDS}
        """The lists for clients of no special kind."""
        self.known = False
        """Whether the server has listed them, now or in an earlier run."""
        self.offered = False
        """Whether they were ever not empty."""
        self.instructions = ""
        self.notes: dict[Kind | None, tuple[str, ...]] = {}
        """Differences from what the server has sent. None: of lists for some clients."""
        self.only: ClientKind = NOTHING
        """The kind of the program's one client: the main link is opened with its capabilities."""
        self.same: set[ClientKind] = set()
        """Kinds of clients that get the common lists."""
        self.by_kind: dict[ClientKind, Offers] = {}
        """Other kinds, the one unused for longest first."""
        self.account = upstream.context.budget.account()
        self.held = HeldLists(self.account)
        self.snapshot = OfferSnapshot(upstream, self)
        self._upstream = upstream
        self._by_session: dict[str, Offers] = {}
        self._read: set[Kind] = set()
        """The lists that the server has sent in this run."""
        self._inherited = False
        """Whether `inherit` has set the lists, and the server has not listed since."""
        self._fresh: dict[ClientKind | str | None, dict[Kind, Freshness | None]] = {}
        """Cache hints of the lists of this run, by kind of client or session. None: common."""

    def keep_soon(self) -> None:
        self.snapshot.keep_soon()

    def restore(self, definitions: Lists, instructions: str) -> None:
        """Use the common lists of an earlier run."""
        self.known = True
        self.common = listing.kept(definitions, self.account)
        self.offered = any(self.common.values())
        self.instructions = instructions

    def serve_only(self, kind: ClientKind) -> None:
        """Use the lists for this kind as the common lists."""
        if kind == self.only:
            return
        self.only = kind
        snapshot, same = self.snapshot.written, self.same
        self.forget_kinds()
        self.same = set()
        if snapshot is None or any(kind <= one for one in same):
            return
        kinds = self._upstream.kinds
        kinds.awaited_before = kind in kinds.awaited
        lists = snapshot.by_kind.get(kind)
        if lists is not None:
            self.restore(lists, snapshot.instructions)
        else:
            self.known = False  # The common lists stay until those of the kind are read.

    def inherit(self, other: "OfferBook") -> None:
        """Show the lists of the server's predecessor until the server lists its own."""
        self.common, self.instructions = other.common, other.instructions
        self.offered = other.offered
        self.by_kind = dict(other.by_kind)
        self._inherited = True
        self.kinds_changed()

    # Lists for callers
    # ----------------------------------------------------------------------------------------------

    @property
    def varies(self) -> bool:
        return bool(self.by_kind or self._by_session)

    @property
    def varies_by_kind(self) -> bool:
        return bool(self.by_kind)

    def of(self, caller: Caller | None) -> Offers:
        """The lists for this caller. None: the common lists."""
        if caller is None or caller.solo or not self.varies:
            return self.common
        if caller.session is not None and (own := self._by_session.get(caller.session)) is not None:
            return own
        return self.by_kind.get(kind_of(caller.capabilities), self.common)

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

    async def read(self, link: Link, kinds: Iterable[Kind], *, announced: bool) -> tuple[Kind, ...]:
        """Read common lists and publish them together. Returns those that could not be read."""
        kinds = tuple(kinds)
        listed = await self.lists(link, kinds)
        found, before, is_first = listed.offers, self.common, not self.known
        after: Offers = {**before, **found}
        if is_first:  # Inherited lists do not count.
            after = {kind: found.get(kind, []) for kind in KINDS}
        if self._inherited:
            self._inherited = False
            self.forget_kinds()
        self.known = True
        self._fresh.setdefault(None, {}).update(listed.fresh)
        self._upstream.kinds.main_listed(retry_failed=not announced)
        if after != before:
            self.common = after
            self._follow(before, announced, is_first)
        self.offered = self.offered or any(after.values())
        self._read.update(found)
        self.held.read_by_all(link)
        link.told.update(found)
        self.judge()
        if not announced:
            self.notes.pop(None, None)
        self._note(listed.notes)
        self._upstream.context.publish(ListsRead(self._upstream.name, kinds, announced))
        self.keep_soon()
        return tuple(kind for kind in kinds if kind not in found)

    def _follow(self, before: Offers, announced: bool, is_first: bool) -> None:
        """Update the other lists after a change of the common lists."""
        size = sum(len(found) for offers in self.by_kind.values() for found in offers.values())
        if announced and size <= FOLLOWED:
            for kind, offers in self.by_kind.items():
                self.by_kind[kind] = _following(offers, before, self.common)
        elif not is_first:
            # The server has restarted, perhaps as another version.
            self.same.clear()
            self.forget_kinds()
        for session, offers in list(self._by_session.items()):
            if offers == self.common:
                self._drop_session(session)
        self._forget_annotations()

    def _forget_annotations(self) -> None:
        annotations = self._upstream.dialler.annotations
        if not annotations:
            return
        names: set[object] = set()
        for offers in (self.common, *self.by_kind.values(), *self._by_session.values()):
            names.update(as_object(one).get("name") for one in offers["tools"])
        for name in annotations.keys() - names:
            del annotations[name]

    def forget_kinds(self) -> None:
        for kind in list(self.by_kind):
            self.drop_kind(kind)
        self.kinds_changed()
        self._upstream.kinds.begin_again()

    def kinds_changed(self) -> None:
        self._upstream.traits.differing = frozenset(self.by_kind)

    async def lists(
        self,
        link: Link,
        kinds: Iterable[Kind],
        whose: object = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> listing.Listed:
        listed = await listing.read(link, kinds, self.account, whose, self.common, capabilities)
        if "tools" in listed.offers:
            annotations = self._upstream.dialler.annotations
            tools = listed.offers["tools"]
            tools, wrong = await in_slices(listing.with_headers(link, tools, annotations))
            listed.offers["tools"] = tools
            if wrong:
                note = f"{wrong} of its tools left out: they {listing.BAD_HEADER}"
                notes = {**listed.notes, "tools": (*listed.notes["tools"], note)}
                listed = replace(listed, notes=notes)
        admission = self._upstream.admission
        if admission is not None:
            await in_slices(admission.studying(listed.offers))
        return listed

    def judge(self) -> None:
        """The lists or their approvals have changed: decide what may be shown."""
        admission = self._upstream.admission
        if admission is not None and self._read:
            some = (*self.by_kind.values(), *self._by_session.values(), *self.held)
            admission.look(self.common, self.instructions, self._read, some)

    def _note(self, notes: Mapping[Kind, tuple[str, ...]] | Mapping[None, tuple[str, ...]]) -> None:
        """Logged once, and shown as long as they apply."""
        for about, found in notes.items():
            for note in found:
                if note not in self.notes.get(about, ()):
                    log.warning("[%s] %s", self._upstream.name, note)
            self.notes[about] = found

    def _fits(self, listed: listing.Listed) -> bool:
        if listed.cut:
            note = "what only some clients are offered is too much to be kept: they see what all do"
            self._note({None: (note,)})
        return not listed.cut

    # Lists for some
    # ----------------------------------------------------------------------------------------------

    def set_kind(self, kind: ClientKind, told: ClientKind, listed: listing.Listed) -> Offers:
        """The lists for a kind were read, over a link with the capabilities `told`."""
        offers: Offers = self.common | listed.offers
        if offers == self.common or not self._fits(listed):
            offers = self.common
            self.same.add(told)
            if len(self.same) > MOST_KINDS:
                self.same.pop()
            self.drop_kind(told)
            self.drop_kind(kind)
        else:
            self.same.discard(kind)
            self.by_kind[kind] = offers
            self._fresh.setdefault(kind, {}).update(listed.fresh)
            if len(self.by_kind) > MOST_KINDS:
                self.drop_kind(next(iter(self.by_kind)))
        self.kinds_changed()
        return offers

    def drop_kind(self, kind: ClientKind) -> None:
        self._drop(kind)
        self.by_kind.pop(kind, None)

    def _drop_session(self, session: str) -> bool:
        self._drop(session)
        return self._by_session.pop(session, None) is not None

    def _drop(self, whose: ClientKind | str) -> None:
        for kind in KINDS:
            self.account.drop((whose, kind))
        self._fresh.pop(whose, None)

    async def learn_session(self, link: Link, session: str, kinds: tuple[Kind, ...]) -> bool:
        """Read lists that have changed on a session's link. Returns whether they differ from the
        common lists."""
        try:
            listed = await self.lists(link, kinds, session)
        except RpcError:
            return False
        kind_lists = self.by_kind.get(link.needs.kind, self.common)
        offers: Offers = self._by_session.get(session, kind_lists) | listed.offers
        differs = offers != self.common and self._fits(listed)
        if differs:
            self._by_session[session] = offers
            self._fresh.setdefault(session, {}).update(listed.fresh)
        else:
            self._drop_session(session)
        self.judge()
        self._upstream.context.publish(ListsVary(self._upstream.name, kinds, session))
        return differs

    def forget_session(self, session: str) -> None:
        if self._drop_session(session):
            self.judge()
            self._upstream.context.publish(ListsVary(self._upstream.name))

    async def close(self) -> None:
        self.account.close()
        await self.snapshot.close()


def _following(offers: Offers, before: Offers, after: Offers) -> Offers:
    """The lists for some clients after a change of the common lists.

    Compares by identity: an unchanged definition is the same object (`listing`).
    """
    followed: Offers = {}
    for kind in KINDS:
        was = set(map(id, before[kind]))
        now = set(map(id, after[kind]))
        own = set(map(id, offers[kind]))
        stays = [one for one in offers[kind] if id(one) not in was or id(one) in now]
        comes = [one for one in after[kind] if id(one) not in was and id(one) not in own]
        followed[kind] = stays + comes
    return followed
