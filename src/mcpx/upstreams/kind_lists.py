"""Reads the lists that a server offers to one kind of client, and decides how long lists wait.

The reading uses a link that is closed afterwards. Lists that come from the snapshot are read again
once in each run. A list waits for a server or a kind that has never listed only in one run (LIF-1).
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Literal

from mcpx.model.call import Caller
from mcpx.model.errors import RpcError
from mcpx.model.offer import KINDS, Kind
from mcpx.upstreams.context import KindListed
from mcpx.upstreams.link import Link
from mcpx.upstreams.listing import Listed
from mcpx.upstreams.offers import MOST_KINDS
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.upstreams.traits import kind_of

if TYPE_CHECKING:
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

RETRY_SECONDS = 60.0
"""Seconds after which lists for a kind of client that could not be read are requested again."""
UNREACHABLE = ("disconnected", "needs_auth", "disabled")
"""States in which the lists for a kind of client are not requested."""


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


class KindLists:
    def __init__(self, upstream: "Upstream") -> None:
        self.awaited: set[ClientKind] = set()
        """Kinds for which lists have waited in vain, in this run or in earlier ones. NOTHING stands
        for all clients."""
        self.awaited_before = False
        """Whether lists waited in vain for this server in an earlier run, and it has never
        listed."""
        self.restored: set[ClientKind] = set()
        """Kinds whose lists come from the snapshot and were not read in this run."""
        self._upstream = upstream
        self._book = upstream.book
        self._learning: dict[ClientKind, Learning] = {}
        self._failed: dict[ClientKind, float] = {}
        """Monotonic time at which the lists for a kind could not be read."""

    @property
    def delays_lists(self) -> bool:
        """Whether lists wait for the server."""
        return not self._upstream.settled.is_set() and not self.awaited_before

    def given_up(self) -> None:
        """Record that a list has waited for the server in vain."""
        self._record_awaited(self._upstream.connection.solo_kind)

    def given_up_for(self, learning: Learning, caller: Caller) -> None:
        """Record that the caller receives a list before the reading of its kind's lists is done."""
        learning.late = True
        if learning.patience == "first":
            self._record_awaited(kind_of(caller.capabilities))

    def _record_awaited(self, kind: ClientKind) -> None:
        if kind not in self.awaited and len(self.awaited) < MOST_KINDS:
            self.awaited.add(kind)
            self._book.keep_soon()

    def main_listed(self, *, retry_failed: bool) -> None:
        """The common lists were read."""
        self.awaited.discard(self._book.only)
        if retry_failed:
            self._failed.clear()

    def begin_again(self) -> None:
        """The lists of all kinds were forgotten."""
        self.restored.clear()
        for learning in self._learning.values():
            learning.patience, learning.began = "first", time.monotonic()

    def is_learning(self, caller: Caller) -> bool:
        """Whether the lists for the caller's kind are read for the first time."""
        if not caller.answers or caller.solo:
            return False
        learning = self._learning.get(kind_of(caller.capabilities))
        return learning is not None and learning.patience != "none" and not learning.done.is_set()

    def learning(self, caller: Caller) -> Learning | None:
        """Start to read the lists for the caller's kind, or return the reading that runs.

        Returns None if the lists are known or cannot be read now.
        """
        state = self._upstream.status.state
        if caller.solo or not caller.answers or not self._book.known or state in UNREACHABLE:
            return None
        kind = kind_of(caller.capabilities)
        running = self._learning.get(kind)
        if running is not None:
            return None if running.done.is_set() else running
        is_restored = kind in self.restored
        if is_restored:
            if state == "sleeping":
                return None
        elif self._knows(kind, self._upstream.links.main):
            return None
        if time.monotonic() - self._failed.get(kind, float("-inf")) < RETRY_SECONDS:
            return None
        self.restored.discard(kind)
        patience: Literal["first", "again", "none"] = "first"
        if is_restored:
            patience = "none"
        elif kind in self.awaited:
            patience = "again"
        learning = self._learning[kind] = Learning(patience)
        learning.task = self._upstream.tasks.start(self._learn(kind, caller, learning))
        learning.task.add_done_callback(lambda _: self._learning.pop(kind, None))
        return learning

    def _knows(self, kind: ClientKind, main: Link | None) -> bool:
        """Whether the lists for this kind were read, be they the common lists."""
        if kind in self._book.by_kind or any(kind <= same for same in self._book.same):
            return True
        return main is not None and main.alive and kind == main.needs.kind

    async def _learn(self, kind: ClientKind, caller: Caller, learning: Learning) -> None:
        upstream = self._upstream
        try:
            main = await upstream.connection.main_link()
            if self._knows(kind, main) and learning.patience != "none":
                return  # They are the lists of the main link.
            if main.modern and upstream.links.wishes.era_for(caller) == "modern":
                await self.learn_modern(kind, caller, main)
                return
            async with upstream.context.learning:
                # A link for all kinds will do, unless the lists for this kind differ.
                if not await self._learn_over_link(kind, caller, exact=False):
                    await self._learn_over_link(kind, caller, exact=True)
        except RpcError as error:
            told = "[%s] what it offers to %s is not known: %s"
            log.debug(told, upstream.name, sorted(kind), error.message)
            if upstream.links.main is not None:
                self._failed[kind] = time.monotonic()
                if kind not in self._book.by_kind:
                    self._record_awaited(kind)
        finally:
            learning.done.set()

    async def learn_modern(self, kind: ClientKind, caller: Caller, link: Link) -> str | None:
        """Read the lists over a modern link, which serves each kind. Returns a problem."""
        listed = await self._book.lists(link, KINDS, kind, caller.capabilities)
        missing: list[Kind] = [one for one in KINDS if one not in listed.offers]
        if missing and kind in self._book.by_kind:
            return listed.notes[missing[0]][0]
        link.told.add(kind)
        self._learnt(kind, kind, listed)
        return None

    async def _learn_over_link(self, kind: ClientKind, caller: Caller, *, exact: bool) -> bool:
        """Whether the link has the lists for clients of this kind."""
        upstream, book = self._upstream, self._book
        link = await upstream.dialler.for_learning(caller, exact=exact)
        asked, is_usable = set(upstream.traits.asks), False
        capabilities = None
        if link.modern:
            capabilities = caller.capabilities
        try:
            listed = await book.lists(link, KINDS, kind, capabilities)
            counts = link.needs.kind == kind or book.common | listed.offers == book.common
            if counts:
                self._learnt(link.needs.kind, kind, listed)
            else:
                book.drop_kind(kind)
                book.kinds_changed()
            is_usable = counts and asked == upstream.traits.asks
            return counts
        finally:
            await upstream.dialler.learnt(link, caller, usable=is_usable)

    def _learnt(self, told: ClientKind, kind: ClientKind, listed: Listed) -> None:
        book, name = self._book, self._upstream.name
        before = book.by_kind.get(kind, book.common)
        after = book.set_kind(kind, told, listed)
        self._failed.pop(kind, None)
        self.awaited.discard(kind)
        book.keep_soon()
        changed: tuple[Kind, ...] = tuple(one for one in KINDS if before[one] != after[one])
        if changed:
            book.judge()
        learning = self._learning.get(kind)
        announce = learning is None or learning.late or learning.patience == "none"
        self._upstream.context.publish(KindListed(name, kind, changed, announce))
        if learning is not None:
            learning.done.set()  # The link may take longer to close.
