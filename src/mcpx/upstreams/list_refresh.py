"""Reads the lists of a server again after it has announced changes.

A storm of announcements costs one reading, and a server that never stops is read less and less
often, at least twice a minute.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mcpx.model.errors import RpcError
from mcpx.model.offer import KINDS, Kind
from mcpx.upstreams.wishes import is_session

if TYPE_CHECKING:
    from mcpx.upstreams.link import Link
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

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
