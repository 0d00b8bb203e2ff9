"""Judges the lists of a link before a call to a pinned server goes over it (SEC-5).

A link is a process or a session of its own, so the lists of another link say nothing about it. The
first call on each link waits until the list that has its target was read there. A call to a
withheld target is not sent. Nothing of this concerns a server with `trust: open`.

A server without sessions that does not announce changes may change its lists between any two
requests. This is not detected.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcpx.model.call import Caller, Json, as_object
from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, SERVER_TIMEOUT, NotFound, Unavailable
from mcpx.model.offer import Kind, Offers
from mcpx.upstreams.bridges import Lease
from mcpx.upstreams.context import Admission
from mcpx.upstreams.link import Link
from mcpx.upstreams.listing import Account
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.upstreams.traits import kind_of

if TYPE_CHECKING:
    from mcpx.upstreams.upstream import Upstream

_Reading = tuple[Link, Kind | ClientKind]


class HeldLists:
    """Lists of links beside the main one from which something is withheld.

    They are kept to judge the calls on these links, and to be approved. The lists of the last link
    that was closed are kept, too, because a link for a single call is closed before an
    administrator can look.
    """

    def __init__(self, account: Account) -> None:
        self.by_link: dict[Link, Offers] = {}
        self._account = account
        self._closed: Link | None = None

    def __iter__(self) -> Iterator[Offers]:
        return iter(self.by_link.values())

    def keep(self, link: Link, listed: Offers, admission: Admission) -> bool:
        """Returns whether something is withheld, or was."""
        offers: Offers = self.by_link.get(link, {}) | listed
        if admission.admitted(offers) is offers:
            return self.drop(link)
        self.by_link[link] = offers
        return True

    def read_by_all(self, link: Link) -> None:
        """The main link was read. A new main link is newer than the last closed link."""
        self.drop(link)
        if self._closed is not None and not link.told:
            self.drop(self._closed)

    def link_gone(self, link: Link) -> None:
        if link in self.by_link:
            if self._closed is not None:
                self.drop(self._closed)
            self._closed = link

    def drop(self, link: Link) -> bool:
        """Returns whether the link had lists."""
        offers = self.by_link.pop(link, None)
        for kind in offers or ():
            self._account.drop((link, kind))
        if link is self._closed:
            self._closed = None
        return offers is not None


class Judging:
    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._book = upstream.book
        self._links = upstream.links
        self._readings: dict[_Reading, asyncio.Task[str | None]] = {}
        """One for all calls that wait for it."""

    def passes(self, lease: Lease) -> bool:
        """Whether a tool call may be sent at once, because nothing is withheld. If not, `admit`
        decides."""
        link, call, admission = lease.link, lease.call, self._upstream.admission
        if self._readings or call.method != "tools/call" or "tools" not in link.told:
            return False
        if link in self._book.held.by_link or admission is None or self._book.varies:
            return False
        if call.caller.capabilities and link.modern:
            return False
        return admission.admitted(self._book.common) is self._book.common

    async def admit(self, lease: Lease, params: Json) -> None:
        """Returns when the call may be sent. Otherwise ends the lease and raises the answer."""
        kind, name = _target(lease.call.method, params)
        if kind is None:
            return
        link, caller = lease.link, lease.call.caller
        try:
            if kind not in link.told or (link, kind) in self._readings:
                await self._read(link, kind, caller)
            client_kind = self._unread_kind(link, caller, kind, name)
            if client_kind is not None:
                await self._read(link, client_kind, caller)
            if self._withholds(link, caller, kind, name):
                raise NotFound(kind.removesuffix("s"), name)
        except BaseException:
            lease.end()
            raise

    def _unread_kind(self, link: Link, caller: Caller, kind: Kind, name: str) -> ClientKind | None:
        """The client's kind, if a modern link may offer the target only to such clients, and their
        lists were not read there."""
        if not link.modern or not caller.answers:
            return None
        client_kind = kind_of(caller.capabilities)
        if client_kind in link.told:
            return None
        if client_kind in self._book.by_kind:
            return client_kind
        return None if _has(self._book.of(caller), kind, name) else client_kind

    def _withholds(self, link: Link, caller: Caller, kind: Kind, name: str) -> bool:
        """Whether the target is withheld, for the caller or on the link."""
        admission, book = self._upstream.admission, self._book
        if admission is None:
            return False
        if not admission.shown:
            return True
        lists = [book.of(caller)]
        if link in book.held.by_link:
            lists.append(book.held.by_link[link])
        if link is self._links.main and not link.modern:
            # An older main link lists the same for all clients.
            lists.append(book.common)
        return any(_is_withheld(admission, offers, kind, name) for offers in lists)

    # Reading
    # ----------------------------------------------------------------------------------------------

    async def _read(self, link: Link, what: Kind | ClientKind, caller: Caller) -> None:
        """Wait for a list as long as for a call. The reading continues for other calls."""
        key: _Reading = (link, what)
        name, limit = self._upstream.name, link.server.call_timeout
        task = self._readings.get(key)
        if task is None:
            work = self._list(link, what, caller)
            task = self._readings[key] = self._upstream.tasks.start(work, awaited=True, apart=True)
            task.add_done_callback(lambda _: self._readings.pop(key, None))
        await asyncio.wait((task,), timeout=limit)
        pinned = "it is pinned, and not called before"
        if not task.done():
            reason = f"has not listed what it offers within {limit:g} s; {pinned}"
            raise Unavailable(name, SERVER_TIMEOUT, reason)
        if not link.alive or task.cancelled():
            lost = Unavailable(name, SERVER_DIED, "the connection was lost")
            lost.unsent = True
            raise lost
        problem = task.result()
        if problem is not None:
            raise Unavailable(name, SERVER_DOWN, f"{problem}; {pinned}")

    async def _list(self, link: Link, what: Kind | ClientKind, caller: Caller) -> str | None:
        """Read a list. Returns why it cannot be read."""
        book = self._book
        if not isinstance(what, str):
            return await self._upstream.kinds.learn_modern(what, caller, link)
        if link is self._links.main:
            unread = await book.read(link, (what,), announced=False)
            return book.notes[what][0] if unread else None
        link.told.add(what)  # Changes that are announced from now on remove it again.
        try:
            listed = await book.lists(link, (what,), link)
            if what not in listed.offers:
                link.told.discard(what)
                return listed.notes[what][0]
            admission = self._upstream.admission
            if admission is None or link not in self._links:
                return None
            if book.held.keep(link, listed.offers, admission):
                book.judge()
            return None
        except BaseException:
            link.told.discard(what)
            raise
        finally:
            if link not in book.held.by_link:
                book.account.drop((link, what))

    def begin(self) -> None:
        """The server is pinned from now on. Only the lists of the main link were judged."""
        for link in self._links:
            if link is not self._links.main:
                link.told.clear()


def _is_withheld(admission: Admission, offers: Offers, kind: Kind, name: str) -> bool:
    """False for an unknown name: the server answers that itself."""
    admitted = admission.admitted(offers)
    if admitted is offers or _has(admitted, kind, name):
        return False
    return _has(offers, kind, name)


def _has(offers: Offers, kind: Kind, name: str) -> bool:
    return any(as_object(one).get("name") == name for one in offers.get(kind, ()))


def _target(method: str, params: Json) -> tuple[Kind | None, str]:
    """The pinned definition that a call is about."""
    if method == "tools/call":
        return "tools", str(params.get("name"))
    if method == "prompts/get":
        return "prompts", str(params.get("name"))
    ref = as_object(params.get("ref"))
    if ref.get("type") == "ref/prompt":
        return "prompts", str(ref.get("name"))
    return None, ""
