"""All connections to one server, and what follows from what is heard on them: lists, subscriptions,
what it is like.

Owns the links, what the server offers, and who listens for its resources. Whether there is a main
link at all, and when it is tried again, is the server's life (`life`), which is told.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from mcpx.base.aio import Tasks
from mcpx.config import Server
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import SERVER_DIED, SERVER_TIMEOUT, RpcError, Unavailable
from mcpx.model.offer import KINDS, Kind
from mcpx.transports import starts_process
from mcpx.upstreams.chatter import Chatter
from mcpx.upstreams.dialling import Dialler
from mcpx.upstreams.hub import Hub
from mcpx.upstreams.link import Link
from mcpx.upstreams.links import Links
from mcpx.upstreams.offers import OfferBook
from mcpx.upstreams.snapshot import identity_of, key_of
from mcpx.upstreams.subscriptions import Subscriptions
from mcpx.upstreams.surroundings import Surroundings
from mcpx.upstreams.traits import Traits
from mcpx.upstreams.wishes import is_session

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials

log = logging.getLogger(__name__)

DEBOUNCE = 0.05
"""Seconds to collect `list_changed` of a server before its lists are read again: storms cost one
reading."""
REST = 0.5
REST_SHARE = 8
LONGEST_REST = 30.0
"""Seconds between two readings, and so many times as long as the last took: a server that never
stops announcing changes is read less and less often, at least twice a minute."""
STORM = 1.5
"""How the rest grows while there is no rest."""

PROOF = 5.0
"""Seconds for a sign of life from a server that did not list its tools."""

READ_AGAIN = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Seconds before a list that could not be read is tried again."""

NOBODY = object()
"""Whom a message concerns that no client is told."""

CHANGES: Mapping[str, tuple[Kind, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}


class MainLink(Protocol):
    """Who looks after the main link."""

    @property
    def credentials(self) -> "Credentials | None":
        """What proves the gateway to the server, on whichever link."""
        ...

    def lost(self, reason: str) -> None: ...

    def confide(self, words: str) -> bool:
        """Takes what the server said to nobody in particular; whether clients must not be told."""
        ...

    def renew(self) -> None:
        """It is to be made anew, at once; the other links live on."""
        ...

    def changed(self, link: Link) -> None:
        """Another one is it now."""
        ...


class Connections:
    """Implements `owner.Owner`."""

    def __init__(
        self, server: Server, hub: Hub, around: Surroundings, tasks: Tasks, main: MainLink
    ) -> None:
        self.name = server.name
        self.traits = Traits()
        dialler = Dialler(
            server,
            self,
            around.environ,
            self.traits,
            lambda: main.credentials,
            around.itself,
            lambda caller: around.may_ask(server.name, caller),
            main.confide,
            lambda: around.overhear(server.name),
        )
        self.links = Links(server, self, dialler, tasks, self.traits)
        self.key = key_of(identity_of(server))
        self.book = OfferBook(
            server.name, self.links, dialler.annotations, hub, around, self.key, self.traits, tasks
        )
        self.subscriptions = Subscriptions(server.name)
        self._chatter = Chatter(
            server.name, lambda params, to: hub.resource_updated(server.name, params, to)
        )
        self._server = server
        self._hub = hub
        self._tasks = tasks
        self._main = main
        self._apart = around.apart
        self._level: str | None = None
        self.has_output = False
        """The process of the main link has written to standard output, so that no download is under
        way."""
        self._changed: set[Kind] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._rereading: dict[Link, set[Kind]] = {}
        """Links of some clients whose lists are read again, and which of them have changed since
        that began."""

    async def connect(self, solo: Caller | None) -> Link:
        """The main link, with the lists read over it, and all that clients asked for; raises what
        went wrong."""
        self.has_output = False
        link = await self.links.first(solo)
        try:
            self.book.instructions = link.terms.instructions
            await link.listen()
            unread = await self.book.read(link, KINDS, said_so=False)
            if "tools" in unread:
                await self._prove_alive(link)
            if self._level is not None:
                await link.set_level(self._level)
            await self.subscriptions.carry(self.links, link)
        except BaseException:
            await asyncio.shield(self.links.retire(link))
            raise
        if unread:
            self._tasks.start(self._read_again(link, unread))
        return link

    def output_began(self) -> None:
        self.has_output = True

    async def _prove_alive(self, link: Link) -> None:
        """A server that tells nothing of its tools may have stopped reading: that is not connected,
        with no tools."""
        try:
            await link.probe(min(PROOF, self._server.timeout))
        except Unavailable:
            raise Unavailable(
                self.name, SERVER_TIMEOUT, "answers neither what it offers nor a probe"
            ) from None
        except RpcError:
            pass  # an error is a sign of life

    async def _read_again(self, link: Link, kinds: tuple[Kind, ...]) -> None:
        """A list that could not be read may have been refused only for now."""
        for pause in READ_AGAIN:
            await asyncio.sleep(pause)
            if not link.alive:
                return
            try:
                kinds = await self.book.read(link, kinds, said_so=False)
            except RpcError:
                return  # the link is gone
            if not kinds:
                return

    def update(self, server: Server) -> None:
        self._server = server
        self.links.update(server)

    def inherit(self, other: "Connections") -> None:
        """Stand in for another one: show what that offered until it is known better."""
        if not self.book.known:
            self.book.inherit(other.book)
            self.traits.take_up(other.traits.to_json())
        self._level = other._level

    def succeed(self, other: "Connections") -> None:
        """The other one is replaced now: what its clients want to hear of is heard here."""
        self.subscriptions.inherit(other.subscriptions)
        if other._level is not None and other._level != self._level and self.links.main is not None:
            self._tasks.start(self.links.main.set_level(other._level))
        self._level = other._level
        self._carry_soon()

    async def close(self, why: str) -> None:
        self._chatter.close()
        await self.book.close()
        await self.links.close(why)

    async def end_session(self, session: str) -> None:
        """Its private links, and its subscriptions on shared ones, go with it."""
        self.book.forget_session(session)
        self.links.end_session(session)
        await self.subscriptions.end(self.links, session)

    # What reaches the server besides calls
    # ---------------------------------------------------------------------

    async def link_to_watch(self, call: Call) -> Link:
        """What a client's calls change is told where its calls go; for most of them that is the
        main link."""
        caller = call.caller
        if self.links.lends_to(caller) and not (self.traits.asks and self._passes_by(caller)):
            lease = self.links.take_now(call) or await self.links.take(call)
            lease.end()
            link = lease.link
            if self.traits.asks:
                link.bind(caller, "it has subscriptions of this client")
            if link.alive:
                return link
        if self.links.main is None:
            raise Unavailable(self.name, SERVER_DIED, "the connection was lost")
        return self.links.main

    def _passes_by(self, caller: Caller) -> bool:
        """Whether nothing ties its calls to one link: a client without a session, unless it is kept
        apart."""
        return caller.session is None and self._server.isolation == "shared"

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """A client's notification goes over the links that are its own."""
        for link in self.links:
            if caller.solo or (caller.session is not None and link.owner == caller.session):
                link.notify(method, params)

    async def set_level(self, level: str, caller: Caller) -> None:
        """`level` is the lowest anybody wants (shared links), the caller's own counts on its
        private link."""
        self._level = level
        for link in self.links:
            if link.owner is None:
                await link.set_level(level)
            elif link.owner == caller.session and caller.log_level is not None:
                await link.set_level(caller.log_level)

    # What the server says, and what becomes of its links
    # ---------------------------------------------------------

    def heard(self, link: Link, method: str, params: Json, owner: object | None) -> None:
        if method in CHANGES:
            self._lists_changed(link, CHANGES[method])
        elif method == "notifications/resources/updated":
            uri = params.get("uri")
            users = link.subscribers.get(uri) if isinstance(uri, str) else None
            if users:
                self._chatter.updated(params, frozenset(users))
        elif self._chatter.admits(params):
            shared = owner is None and link.calls > 0 and not link.single
            if shared and method == "notifications/message" and self._apart():
                # It may be about any call that was made there: while one client has calls it is
                # theirs, else the log's.
                owner = next(iter(link.holders)) if len(link.holders) == 1 else NOBODY
            self._hub.said(self.name, method, params, owner, link.callers)

    def _lists_changed(self, link: Link, kinds: tuple[Kind, ...]) -> None:
        if link is self.links.main:
            self._changed.update(kinds)
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = self._tasks.start(self._refresh())
            return
        link.told.difference_update(kinds)
        client = link.owner or (
            next(iter(link.holders)) if len(link.holders) == 1 else link.last_client
        )
        if isinstance(client, str) and is_session(client):
            again = link in self._rereading
            self._rereading.setdefault(link, set()).update(kinds)
            if not again:
                self._tasks.start(self._learn_session(link, client))

    async def _learn_session(self, link: Link, session: str) -> None:
        """The server has something for this session that nobody else has: its link stays with
        it."""
        changed, pause = self._rereading[link], _Pause()
        try:
            while changed and link.alive:
                kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in changed)
                changed.clear()
                with pause.measured():
                    own = await self.book.learn_session(link, session, kinds)
                if own and link.alive and link.owner in (None, session):
                    if link.owner is None:
                        link.owner, link.use, link.why = (
                            session,
                            "session",
                            "the server keeps something for this client",
                        )
                        self.bound(link)  # it may have become the main one meanwhile
                    link.lasting = True
                await pause.rest(lambda: bool(changed))
        finally:
            del self._rereading[link]

    async def _refresh(self) -> None:
        pause = _Pause()
        while self._changed:
            await asyncio.sleep(DEBOUNCE)
            kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in self._changed)
            self._changed.clear()
            link = self.links.main
            if link is None or not link.alive:
                return
            try:
                with pause.measured():
                    await self.book.read(link, kinds, said_so=True)
            except RpcError as error:
                if link.alive:
                    log.warning("[%s] its lists could not be read: %s", self.name, error.message)
            await pause.rest(lambda: bool(self._changed))

    def lost(self, link: Link, reason: str) -> None:
        was_main = link is self.links.main
        self.links.retire(link)
        if was_main:
            log.warning("[%s] connection lost: %s", self.name, reason)
            self._main.lost(f"{self.name}: {reason}")
            return
        main = self.links.main
        if main is not None and not starts_process(self._server.connection):
            self._tasks.start(self._look_at(main))  # the same server answers both, or neither

    async def _look_at(self, main: Link) -> None:
        try:
            await main.probe(self._server.timeout)
        except Unavailable as error:
            if main.alive and main is self.links.main:
                self.lost(main, error.message.removeprefix(f"{self.name}: "))
        except RpcError:
            pass  # an error is an answer

    def rested(self, link: Link) -> None:
        self.links.rested(link)

    def answered(self) -> None:
        if self.traits.answered_unasked():
            log.info(
                "[%s] has asked nothing in many calls: its connection is shared by everybody",
                self.name,
            )
            self.links.rethink()
            self.book.keep_soon()

    def asked(self, method: str) -> None:
        if self.traits.asked(method):
            log.debug("[%s] asks: %s", self.name, method)
            self.links.rethink()
            self.book.keep_soon()
            main = self.links.main
            if main is not None and main.use == "lent":
                # Who cannot be asked needs a link that declares nothing: that is the main one from
                # now on.
                self.renew()

    def asked_late(self) -> None:
        if not self.traits.asks_late:
            self.traits.asks_late = True
            self.links.rethink()
            self.book.keep_soon()

    def bound(self, link: Link) -> None:
        self.links.rethink()
        if link is self.links.main:
            self.renew()
        else:
            self._carry_soon()

    def renew(self) -> None:
        """Have another main link; this one lives on beside it, for who holds it."""
        if (main := self.links.main) is not None:
            main.told.clear()  # what everybody is offered is that of another from now on
        self.links.main = None
        self._main.renew()

    def spoilt(self, link: Link) -> None:
        self.links.retire(link)
        self._main.renew()

    def main_changed(self, link: Link) -> None:
        for one in self.links:
            # what it lists counts for everybody now; what the one before did, for itself
            one.told.clear()
        self._main.changed(link)
        self._carry_soon()

    def retired(self, link: Link) -> None:
        self.book.held.link_gone(link)
        if link.subscribers:
            self._carry_soon()

    def varies(self) -> bool:
        return self.book.varies_by_kind

    def _carry_soon(self) -> None:
        main = self.links.main
        if main is not None and main.alive and self.subscriptions:
            self._tasks.start(self.subscriptions.carry(self.links, main))


class _Pause:
    """Between two readings of the same lists."""

    def __init__(self) -> None:
        self._floor = REST
        self._took = 0.0

    @contextmanager
    def measured(self) -> Generator[None, None, None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._took = time.monotonic() - began

    async def rest(self, is_pressed: Callable[[], bool]) -> None:
        """Until the lists may be read again; `is_pressed`: whether they have changed by then."""
        await asyncio.sleep(min(max(self._floor, REST_SHARE * self._took), LONGEST_REST))
        self._floor = min(self._floor * STORM, LONGEST_REST) if is_pressed() else REST
