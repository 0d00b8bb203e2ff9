"""Loads the lists of one server from its snapshot, and writes the snapshot when they change."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from mcpx.upstreams import listing
from mcpx.upstreams.negotiate import LONGEST_INSTRUCTIONS
from mcpx.upstreams.snapshot import Snapshot
from mcpx.upstreams.traits import NOTHING
from mcpx.upstreams.traits import Kind as ClientKind

if TYPE_CHECKING:
    from mcpx.upstreams.offers import OfferBook
    from mcpx.upstreams.upstream import Upstream

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
