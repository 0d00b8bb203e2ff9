"""What one server offers: to everybody, to some, and when it was last seen.

Keeps the lists in memory and (through `snapshot`) on disk. A server may show a tool only to clients that can be asked
what the tool needs: found out once for each *kind* of client (decision 0006), over a link that is not kept for it. And
a session with a link of its own may find things there that were made on it.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from mcpx.model.call import Caller
from mcpx.model.errors import RpcError
from mcpx.model.offer import KINDS, Kind, Offers
from mcpx.upstreams import listing
from mcpx.upstreams.hub import Hub
from mcpx.upstreams.link import Link
from mcpx.upstreams.links import Links
from mcpx.upstreams.snapshot import Snapshot
from mcpx.upstreams.surroundings import Surroundings
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.upstreams.traits import Traits, kind_of
from mcpx.wire.era import ParamHeaders
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

KEEP_SOON = 0.2
"""Seconds to collect changes before a snapshot is written; it must be there within 0.3 s."""
MOST_KINDS = 16
"""Kinds of clients of which is kept what they are offered; the one longest unused goes."""


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
        self.instructions = ""
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
        self._learning: dict[ClientKind, asyncio.Task[None]] = {}
        self._same: set[ClientKind] = set()
        """Kinds of clients that are offered what everybody is."""
        self._by_kind: dict[ClientKind, Offers] = {}
        """Kinds that are offered something else; the longest unused first."""
        self._by_session: dict[str, Offers] = {}

    def remember(self) -> None:
        """Take up what the server offered when it was last seen, if that is known."""
        snapshot = self._snapshots.load(self._key)
        if snapshot is None:
            return
        self.known = True
        self.common = {kind: list(snapshot.definitions[kind]) for kind in KINDS}
        self.instructions = snapshot.instructions
        self._same = {frozenset(kind) for kind in snapshot.same}
        self._traits.take_up(snapshot.traits)

    def inherit(self, other: "OfferBook") -> None:
        """Show what the server's predecessor offered until it says itself what it offers."""
        self.common, self.instructions = other.common, other.instructions
        self._by_kind = dict(other._by_kind)  # what a session made on its own link is not among it: that link goes

    # Asking ------------------------------------------------------------------------------------------------------

    @property
    def varies(self) -> bool:
        return bool(self._by_kind or self._by_session)

    @property
    def varies_by_kind(self) -> bool:
        return bool(self._by_kind)

    def of(self, caller: Caller | None) -> Offers:
        """What this caller is offered; None asks for what everybody is."""
        if caller is None or not self.varies:
            return self.common
        if caller.session is not None and (own := self._by_session.get(caller.session)) is not None:
            return own
        return self._by_kind.get(kind_of(caller.capabilities), self.common)

    # Reading -----------------------------------------------------------------------------------------------------

    async def read(self, link: Link, kinds: Iterable[Kind], *, said_so: bool) -> tuple[Kind, ...]:
        """Read lists of the server and publish them together; those that could not be read."""
        kinds = tuple(kinds)
        found = await self._lists(link, kinds)
        # As it is now: another reading may have ended meanwhile. What was inherited goes, whichever lists were read.
        own: Offers = self.common if self.known else {kind: [] for kind in KINDS}
        before = self.common
        self.common = {**own, **found}
        self.known = True
        if self.common != before:
            if said_so:
                self._by_kind = {kind: _follow(offers, before, self.common) for kind, offers in self._by_kind.items()}
            else:
                # It was started anew, perhaps another version: what some clients are offered is to be found out again.
                self._same.clear()
                self._by_kind.clear()
            self._by_session = {s: offers for s, offers in self._by_session.items() if offers != self.common}
        self._hub.offers_changed(self._name, kinds, said_so)
        self.keep_soon()
        return tuple(kind for kind in kinds if kind not in found)

    async def _lists(self, link: Link, kinds: Iterable[Kind], capabilities: Mapping[str, Any] | None = None) -> Offers:
        found = await listing.read(link, kinds, capabilities)
        if "tools" in found:
            found["tools"] = listing.with_headers(link, found["tools"], self._annotations)
        return found

    def learn(self, caller: Caller, main: Link) -> asyncio.Task[None] | None:
        """Find out, once, what clients of this kind are offered; the task while it runs."""
        kind = kind_of(caller.capabilities)
        if kind in self._by_kind or kind == main.needs.kind or any(kind <= same for same in self._same):
            return None
        task = self._learning.get(kind)
        if task is None:
            task = self._learning[kind] = self._tasks.start(self._learn(kind, caller, main))
            task.add_done_callback(lambda _: self._learning.pop(kind, None))
        return task

    async def _learn(self, kind: ClientKind, caller: Caller, main: Link) -> None:
        try:
            if main.modern and self._links.era_for(caller) == "modern":
                found = await self._lists(main, KINDS, caller.capabilities)
                self._learnt(kind, caller, found)
                return
            async with self._gate:
                # One that serves all kinds so far tells of this kind too, unless it is offered something else.
                if not await self._learn_over(kind, caller, exact=False):
                    await self._learn_over(kind, caller, exact=True)
        except RpcError as error:
            log.debug("[%s] what it offers to %s is not known: %s", self._name, sorted(kind), error.message)

    async def _learn_over(self, kind: ClientKind, caller: Caller, *, exact: bool) -> bool:
        """Whether that told what clients of this kind are offered."""
        link = await self._links.for_learning(caller, exact=exact)
        asked, usable = set(self._traits.asks), False
        try:
            found = await self._lists(link, KINDS, caller.capabilities if link.modern else None)
            told = link.needs.kind == kind or {**self.common, **found} == self.common
            if told:
                self._learnt(link.needs.kind, caller, found)
            usable = told and asked == self._traits.asks
            return told
        finally:
            await self._links.learnt(link, caller, usable=usable)

    def _learnt(self, kind: ClientKind, caller: Caller, found: Offers) -> None:
        offers: Offers = {**self.common, **found}
        if offers == self.common:
            self._same.add(kind)
            if len(self._same) > MOST_KINDS:
                self._same.pop()
            self.keep_soon()
            if self._by_kind.pop(kind, None) is None:
                return
        else:
            self._by_kind[kind] = offers
            if len(self._by_kind) > MOST_KINDS:
                self._by_kind.pop(next(iter(self._by_kind)))
        self._hub.offers_vary(self._name, KINDS, caller.session)

    async def learn_session(self, link: Link, session: str, kinds: Iterable[Kind]) -> bool:
        """A link that one session uses says that its lists have changed; whether they are that session's own now."""
        try:
            found = await self._lists(link, kinds)
        except RpcError:
            return False
        offered = self._by_session.get(session) or self._by_kind.get(link.needs.kind, self.common)
        offers: Offers = {**offered, **found}
        if offers == self.common:
            self._by_session.pop(session, None)
        else:
            self._by_session[session] = offers
        self._hub.offers_vary(self._name, kinds, session)
        return offers != self.common

    def forget_session(self, session: str) -> None:
        if self._by_session.pop(session, None) is not None:
            self._hub.offers_vary(self._name, (), None)

    # On disk -----------------------------------------------------------------------------------------------------

    def keep_soon(self) -> None:
        if self._keeping is None and self.known:
            self._keeping = asyncio.get_running_loop().call_later(KEEP_SOON, self._keep)

    def _keep(self) -> None:
        self._keeping = None
        same = [sorted(kind) for kind in self._same]
        snapshot = Snapshot(dict(self.common), self.instructions, self._traits.to_json(), same)
        self._snapshots.save(self._key, snapshot)

    def close(self) -> None:
        """Write what was not written yet."""
        if self._keeping is not None:
            self._keeping.cancel()
            self._keep()


def _follow(offers: Offers, before: Offers, after: Offers) -> Offers:
    """What some are offered once what everybody is offered has changed: the same comes and goes."""
    return {
        kind: [one for one in offers[kind] if one not in before[kind] or one in after[kind]]
        + [one for one in after[kind] if one not in before[kind] and one not in offers[kind]]
        for kind in KINDS
    }
