"""What follows from what the links of one server report: questions, messages, and lost links."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mcpx.base.aio import TokenBucket
from mcpx.model.call import Json
from mcpx.model.errors import RpcError, Unavailable
from mcpx.model.events import ResourceUpdated, ServerSaid
from mcpx.model.offer import KINDS, Kind
from mcpx.transports import starts_process
from mcpx.upstreams.wishes import is_session
from mcpx.wire import codec

if TYPE_CHECKING:
    from mcpx.upstreams.link import Link
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

BURST, RATE = 500.0, 100.0
"""Messages at once, and per second."""
BURST_BYTES, RATE_BYTES = 4.0 * 2**20, 2.0**20
REPORT_SECONDS = 10.0
"""Between two log lines about dropped messages."""
LATE = 0.25
"""Seconds after which updates of resources are sent that came too fast."""

Update = Callable[[Json, frozenset[str]], None]


class Chatter:
    def __init__(
        self, server: str, update: Update, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`update` sends an update of a resource to its subscribers."""
        self._server = server
        self._update = update
        self._clock = clock
        self._messages = TokenBucket(BURST, RATE, clock)
        self._bytes = TokenBucket(BURST_BYTES, RATE_BYTES, clock)
        self._dropped = 0
        self._reported_at = float("-inf")
        self._late: dict[object, tuple[Json, frozenset[str]]] = {}
        """By URI. At most one per subscription."""
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, params: Json) -> bool:
        """Whether a message may be sent to clients."""
        if self._fits(params):
            return True
        self._dropped += 1
        now = self._clock()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            told = "[%s] says too much at once: %d messages left out"
            log.warning(told, self._server, self._dropped)
            self._dropped = 0
        return False

    def updated(self, params: Json, to: frozenset[str]) -> None:
        """A resource has changed. Sends the update now, or with others a little later."""
        if not self._late and self._fits(params):
            self._update(params, to)
            return
        uri = params.get("uri")
        if uri in self._late:
            to |= self._late.pop(uri)[1]
        self._late[uri] = params, to
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LATE, self._catch_up)

    def _catch_up(self) -> None:
        self._timer = None
        late, self._late = self._late, {}
        for params, to in late.values():
            self._update(params, to)

    def _fits(self, params: Json) -> bool:
        if self._messages.tokens < 1:
            return False
        try:
            size = len(codec.dump(params))
        except codec.Unencodable:
            return False
        return self._bytes.take(size) and self._messages.take()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._late.clear()


DEBOUNCE = 0.05
"""Seconds to collect announcements before the lists are read again."""
REST = 0.5
REST_SHARE = 8
LONGEST_REST = 30.0
"""Minimum and maximum seconds between two readings, and the factor for the last reading's time."""
STORM = 1.5
"""Growth of the minimum in a storm."""
READ_AGAIN = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Seconds before a list that could not be read is tried again."""


class ListRefresh:
    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._changed: set[Kind] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._rereading: dict[Link, set[Kind]] = {}
        """Changed lists of links of some clients, while they are read again."""

    def lists_changed(self, link: "Link", kinds: tuple[Kind, ...]) -> None:
        """A server has announced changes on a link."""
        if link is self._upstream.links.main:
            self._changed.update(kinds)
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = self._upstream.tasks.start(self._refresh())
            return
        link.told.difference_update(kinds)
        client = link.owner or link.only_holder or link.last_client
        if isinstance(client, str) and is_session(client):
            is_running = link in self._rereading
            self._rereading.setdefault(link, set()).update(kinds)
            if not is_running:
                self._upstream.tasks.start(self._learn_session(link, client))

    async def _refresh(self) -> None:
        pause = _Pause()
        while self._changed:
            await asyncio.sleep(DEBOUNCE)
            kinds = _take(self._changed)
            link = self._upstream.links.main
            if link is None or not link.alive:
                return
            try:
                with pause.measured():
                    await self._upstream.book.read(link, kinds, announced=True)
            except RpcError as error:
                if link.alive:
                    told = "[%s] its lists could not be read: %s"
                    log.warning(told, self._upstream.name, error.message)
            await pause.rest(self._changed)

    async def _learn_session(self, link: "Link", session: str) -> None:
        """A link whose lists differ from the common lists belongs to its session."""
        changed, pause = self._rereading[link], _Pause()
        try:
            while changed and link.alive:
                with pause.measured():
                    differs = await self._upstream.book.learn_session(link, session, _take(changed))
                if differs and link.alive and link.owner in (None, session):
                    if link.owner is None:
                        why = "the server keeps something for this client"
                        link.owner, link.use, link.why = session, "session", why
                        self._upstream.owner.bound(link)
                    link.lasting = True
                await pause.rest(changed)
        finally:
            del self._rereading[link]

    async def retry(self, link: "Link", kinds: tuple[Kind, ...]) -> None:
        """Read lists that the server has rejected, perhaps only for a while."""
        for pause in READ_AGAIN:
            await asyncio.sleep(pause)
            if not link.alive:
                return
            try:
                kinds = await self._upstream.book.read(link, kinds, announced=False)
            except RpcError:
                return  # The link is lost.
            if not kinds:
                return


def _take(changed: set[Kind]) -> tuple[Kind, ...]:
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in changed)
    changed.clear()
    return kinds


class _Pause:
    """Pause between two readings of the same lists."""

    def __init__(self) -> None:
        self._floor = REST
        self._took = 0.0

    @contextmanager
    def measured(self) -> Generator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._took = time.monotonic() - began

    async def rest(self, changed: Collection[Kind]) -> None:
        """Wait until the lists may be read again. `changed` grows in a storm."""
        await asyncio.sleep(min(max(self._floor, REST_SHARE * self._took), LONGEST_REST))
        if changed:
            self._floor = min(self._floor * STORM, LONGEST_REST)
        else:
            self._floor = REST


NOBODY = object()
"""The owner of a message that no client receives."""

CHANGES: Mapping[str, tuple[Kind, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}


class LinkOwner:
    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._name = upstream.name
        self._publish = upstream.context.publish
        self._apart = upstream.context.apart
        self._traits = upstream.traits
        self._chatter = Chatter(upstream.name, self._resource_updated)

    def close(self) -> None:
        self._chatter.close()

    # Messages
    # ----------------------------------------------------------------------------------------------

    def heard(self, link: "Link", method: str, params: Json, owner: object | None) -> None:
        """A message outside of a call. `owner`: the client that it concerns, or None for all."""
        if method in CHANGES:
            self._upstream.refresh.lists_changed(link, CHANGES[method])
        elif method == "notifications/resources/updated":
            uri = params.get("uri")
            users = link.listening.subscribers.get(uri) if isinstance(uri, str) else None
            if users:
                self._chatter.updated(params, frozenset(users))
        elif self._chatter.admits(params):
            shared = owner is None and link.calls > 0 and not link.single
            if shared and method == "notifications/message" and self._apart():
                # It may be about any call on this link. While one client has calls, it is that
                # client's. Otherwise it is only logged.
                owner = link.only_holder or NOBODY
            self._publish(ServerSaid(self._name, method, params, owner, link.callers))

    def _resource_updated(self, params: Json, to: frozenset[str]) -> None:
        self._publish(ResourceUpdated(self._name, params, to))

    # Links
    # ----------------------------------------------------------------------------------------------

    def output_began(self) -> None:
        """The process of a link that is being opened has written its first byte."""
        self._upstream.connection.has_output = True

    def lost(self, link: "Link", reason: str) -> None:
        links = self._upstream.links
        was_main = link is links.main
        links.retire(link)
        if was_main:
            log.warning("[%s] connection lost: %s", self._name, reason)
            self._upstream.connection.lost(reason)
        elif links.main is not None and not starts_process(self._upstream.server.connection):
            # Either both links of the server answer, or none.
            self._upstream.tasks.start(self._probe(links.main))

    async def _probe(self, main: "Link") -> None:
        try:
            await main.probe(self._upstream.server.timeout)
        except Unavailable as error:
            if main.alive and main is self._upstream.links.main:
                self.lost(main, error.message.removeprefix(f"{self._name}: "))
        except RpcError:
            pass  # An error is an answer.

    def retired(self, link: "Link") -> None:
        """The link is being closed."""
        self._upstream.book.held.link_gone(link)
        if link.listening.subscribers:
            self._upstream.subscriptions.carry_soon()

    def rested(self, link: "Link") -> None:
        """The link carries no call any more."""
        self._upstream.links.rested(link)

    def bound(self, link: "Link") -> None:
        """The link belongs to one session from now on."""
        self._upstream.links.wishes.rethink()
        if link is self._upstream.links.main:
            self.renew()
        else:
            self._upstream.subscriptions.carry_soon()

    def renew(self) -> None:
        """Open another main link. The current one stays for its clients."""
        links = self._upstream.links
        if links.main is not None:
            links.main.told.clear()  # Its lists are not the common lists any more.
        links.main = None
        self._upstream.connection.renew()

    def spoilt(self, link: "Link") -> None:
        """No client can use the main link any more."""
        self._upstream.links.retire(link)
        self._upstream.connection.renew()

    def main_changed(self, link: "Link") -> None:
        """Another link is the main one."""
        for each in self._upstream.links:
            each.told.clear()
        self._upstream.health.watch(link)
        self._upstream.subscriptions.carry_soon()

    # Questions
    # ----------------------------------------------------------------------------------------------

    def answered(self) -> None:
        """A call is answered in which the server could have asked a question."""
        if self._traits.answered_unasked():
            told = "[%s] has asked nothing in many calls: its connection is shared by everybody"
            log.info(told, self._name)
            self._traits_changed()

    def asked(self, method: str) -> None:
        """The server has asked a question."""
        if self._traits.asked(method):
            log.debug("[%s] asks: %s", self._name, method)
            self._traits_changed()
            main = self._upstream.links.main
            if main is not None and main.use == "lent":
                # Clients that cannot be asked need a link that declares nothing as the main link.
                self.renew()

    def asked_late(self) -> None:
        """The server has asked a question while no client had a call on a used link."""
        if not self._traits.asks_late:
            self._traits.asks_late = True
            self._traits_changed()

    def _traits_changed(self) -> None:
        self._upstream.links.wishes.rethink()
        self._upstream.book.keep_soon()
