"""Opens the links of one server: for which client, in which era, with which capabilities (PRO-3).

A server that never asked is opened with what all its clients so far can be asked, so that one link
serves them. A server that asks, or that offers different things to different clients, is opened
with exactly what the client can be asked. There are at most `max_links` links. A link that no
client uses any more makes room for another.
"""

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from mcpx.model.call import Caller
from mcpx.model.errors import OVERLOADED, SERVER_DIED, RpcError, Unavailable
from mcpx.transports.dial import Dial
from mcpx.upstreams.link import PLAIN, Link, Use, through
from mcpx.upstreams.negotiate import Deadline, Era, Identity, is_refusal
from mcpx.upstreams.traits import Needs, both, forwarded_capabilities, kind_of, older_version
from mcpx.upstreams.wishes import Wish
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

NOBODY_IN_PARTICULAR = Identity(through({}), {})
OPENINGS = 4
"""Links that are opened at a time."""


class Dialler:
    def __init__(self, upstream: "Upstream") -> None:
        self.annotations: dict[str, era.ParamHeaders] = {}
        """The arguments of each tool that are sent as headers, for links to modern HTTP servers."""
        self.openings: dict[asyncio.Task[None], Wish] = {}
        self._upstream = upstream
        self._name = upstream.name
        self._traits = upstream.traits

    # Links for callers
    # ----------------------------------------------------------------------------------------------

    def begin(self, wish: Wish, caller: Caller) -> bool:
        """Open a link in the background. Returns False if there is no room for one."""
        if len(self.openings) >= OPENINGS:
            return False  # The end of one of them tries again.
        links = self._upstream.links
        self._make_room(wish)
        if self.is_full and not self._replaces_main(wish):
            links.pool.drop_longest_idle()
            return False  # The end of that link tries again.
        task = self._upstream.tasks.start(self._dial(wish, caller))
        self.openings[task] = wish
        task.add_done_callback(self._dialled)
        return True

    async def _dial(self, wish: Wish, caller: Caller) -> None:
        try:
            link = await self._connect(wish, caller)
        except RpcError as error:
            self._upstream.links.opening_failed(wish, error)
        else:
            self._upstream.links.pool.add(link)
            if link.use == "session":
                self._upstream.owner.bound(link)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self.openings.pop(task, None)
        links = self._upstream.links
        links.provide()
        for link in links:
            if link.use == "call" and not link.calls:  # Its call was cancelled.
                links.retire(link)

    @property
    def is_full(self) -> bool:
        pool = self._upstream.links.pool
        count = len(pool.open) + len(pool.closing) + len(self.openings)
        return count >= self._upstream.server.max_links

    def _replaces_main(self, wish: Wish) -> bool:
        """Whether the link will be the main one, so that it needs no room beside it."""
        links = self._upstream.links
        main = links.main
        if main is None or links.pool.open != [main] or self.openings or main.leases:
            return False
        return wish.use == "lent" and not self._traits.asks

    def _make_room(self, wish: Wish) -> None:
        """Close links whose clients are gone, and those that the main link can replace."""
        links = self._upstream.links
        for link in links:
            is_needed = links.may_serve(link, wish) or not links.pool.is_spare(link)
            if not is_needed and (link.unused or self._is_covered(link)):
                links.retire(link)

    def _is_covered(self, link: Link) -> bool:
        main = self._upstream.links.main
        if main is None or self._traits.asks or link.owner is not None:
            return False
        return main.use == link.use == "lent" and main.needs.covers(link.needs)

    async def _connect(self, wish: Wish, caller: Caller, *, exact: bool = False) -> Link:
        """Open a link, and note whether the server speaks its era."""
        wishes = self._upstream.links.wishes
        try:
            link = await self._open_for(wish, caller, exact=exact)
        except RpcError as error:
            if is_refusal(error) and wishes.does_not_speak(wish.era):
                log.info("[%s] speaks only the other protocol era; calls are bridged", self._name)
            raise
        wishes.speaks(wish.era)
        return link

    # Links to read lists
    # ----------------------------------------------------------------------------------------------

    async def for_learning(self, caller: Caller, *, exact: bool) -> Link:
        """A link like those of this caller, to read its lists. `learnt` must follow."""
        links = self._upstream.links
        wish = links.wishes.of(caller)
        for link in links:
            is_like = not exact or link.needs == wish.needs
            if is_like and link.needs.kind and links.may_serve(link, wish):
                return link
        if self.is_full:
            raise Unavailable(self._name, OVERLOADED, "there is no connection to spare")
        task = asyncio.current_task()
        assert task is not None
        self.openings[task] = wish
        try:
            link = await self._connect(wish._replace(use="learning"), caller, exact=exact)
        finally:
            del self.openings[task]
        links.pool.add(link)
        return link

    async def learnt(self, link: Link, caller: Caller, *, usable: bool) -> None:
        """The lists are read. The link stays if a call waits for it, or as the main link."""
        if link.use != "learning":
            return
        links = self._upstream.links
        wish = links.wishes.of(caller)
        link.use = wish.use
        if usable and link.alive and link.owner == wish.owner:
            links.provide()
            link.calls += 1  # The link works.
            links.unite()
        if link is not links.main and not link.leases:
            links.retire(link)
        if links.pool.closing:
            await asyncio.wait(links.pool.closing)

    # Opening
    # ----------------------------------------------------------------------------------------------

    async def main(self, solo: Caller | None) -> Link:
        """The main link. `solo` is the one client of a stdio front.

        Tries the likelier era first, so that one server needs one process.
        """
        likely: Era = "older"
        if self._traits.era is not None:
            likely = self._traits.era
        elif solo is None or solo.modern:
            likely = "modern"
        openings: tuple[Era, ...] = ("older", "modern")
        if likely == "modern":
            openings = ("modern", "older")
        link = self._main(solo)
        try:
            await self._open(link, *openings)
        except Unavailable as error:
            if likely != "modern" or error.code != SERVER_DIED:
                raise
            # Some old servers end when they receive an unknown request before `initialize`.
            link = self._main(solo)
            await self._open(link, "older")
        return link

    def _main(self, solo: Caller | None) -> Link:
        if solo is not None:
            return self._link(_identity(solo), "shared", solo)
        if self._traits.declares and self._serves_all:
            who = replace(NOBODY_IN_PARTICULAR, capabilities=self._traits.declares)
            return self._link(who, "lent")
        return self._link(NOBODY_IN_PARTICULAR, "shared")

    @property
    def _serves_all(self) -> bool:
        """Whether one link can serve clients of all kinds."""
        return not self._traits.asks and not self._upstream.book.varies_by_kind

    async def _open_for(self, wish: Wish, caller: Caller, *, exact: bool) -> Link:
        standing = caller if wish.owner is not None or caller.solo else None
        if standing is None and (wish.needs is None or not wish.needs.kind):
            link = self._link(NOBODY_IN_PARTICULAR, wish.use)
        else:
            who = _identity(caller)
            if wish.owner is None and self._serves_all and not exact:
                for other in self._upstream.links:
                    if other.alive and other.use == "lent" and other.owner is None:
                        able = both(who.capabilities, other.who.capabilities)
                        who = Identity(who.client, able, max(who.version, other.who.version))
            link = self._link(who, wish.use, standing)
        link.owner, link.why = wish.owner, wish.why
        per_session = self._upstream.server.isolation == "per_session"
        link.lasting = per_session and caller.session is not None
        await self._open(link, wish.era)
        return link

    def _link(self, who: Identity, use: Use, standing: Caller | None = None) -> Link:
        """`standing` is asked between calls."""
        needs = Needs(kind_of(who.capabilities), who.version)
        if who is NOBODY_IN_PARTICULAR:
            needs = PLAIN
        upstream = self._upstream

        def may_ask() -> bool:
            return standing is None or upstream.context.may_ask(upstream.name, standing)

        link = Link(
            upstream.server,
            upstream.owner,
            who,
            self._traits,
            needs,
            use=use,
            voice=None if standing is None or standing.modern else standing.voice,
            may_ask=may_ask,
        )
        link.single = standing is not None
        return link

    async def _open(self, link: Link, *openings: Era) -> None:
        upstream, server, context = self._upstream, link.server, self._upstream.context
        deadline = Deadline(server.start_limit, server.timeout)

        def output_began() -> None:
            deadline.output_began()
            upstream.owner.output_began()

        dial = Dial(
            server.name,
            link,
            server.timeout,
            server.max_message,
            context.environ,
            self.annotations,
            upstream.credentials,
            context.own_id,
            upstream.connection.confide,
            context.overhear(server.name),
            output_began,
        )
        await link.open(openings, dial, deadline)


def _identity(caller: Caller) -> Identity:
    return Identity(
        through(caller.client), forwarded_capabilities(caller.capabilities), older_version(caller)
    )
