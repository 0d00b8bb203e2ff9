"""Before a call goes out to a server that is not taken at its word: what its link lists is read,
and judged (SEC-5).

A link is a process or a session of its own: what another one listed says nothing of it. So the
first call on each waits until the list that it is about was read there, and one that names what is
held back by then is not sent. Nothing of this concerns a server with `trust: open`.

A server without sessions that does not say when its lists change may change them between any two
requests: that is not seen here.
"""

import asyncio

from mcpx.base.aio import Tasks
from mcpx.model.call import Caller, Json, as_object
from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, SERVER_TIMEOUT, NotFound, Unavailable
from mcpx.model.offer import Kind
from mcpx.upstreams.held import is_held, lists
from mcpx.upstreams.lease import Lease
from mcpx.upstreams.link import Link
from mcpx.upstreams.links import Links
from mcpx.upstreams.offers import OfferBook
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.upstreams.traits import kind_of

_Place = tuple[Link, Kind | ClientKind]


class Judging:
    def __init__(self, server: str, book: OfferBook, links: Links, tasks: Tasks) -> None:
        self._server = server
        self._book = book
        self._links = links
        self._tasks = tasks
        self._readings: dict[_Place, asyncio.Task[str | None]] = {}
        """One for all calls that wait for it."""

    def passes(self, lease: Lease) -> bool:
        """Whether a call of a tool may be sent at once, for nothing of what is listed is held back;
        if not, `admit` tells."""
        link, call, admission = lease.link, lease.call, self._book.admission
        if (
            self._readings
            or call.method != "tools/call"
            or "tools" not in link.told
            or link in self._book.held.by_link
        ):
            return False
        if admission is None or self._book.varies or (call.caller.capabilities and link.modern):
            return False
        return admission.admitted(self._book.common) is self._book.common

    async def admit(self, lease: Lease, params: Json) -> None:
        """Returns when the call may be sent, at once; what it raises is the answer, and the lease
        is over then."""
        kind, name = _target(lease.call.method, params)
        if kind is None:
            return
        link, caller = lease.link, lease.call.caller
        try:
            if kind not in link.told or (link, kind) in self._readings:
                await self._read(link, kind, caller)
            if (special := self._unread_kind(link, caller, kind, name)) is not None:
                await self._read(link, special, caller)
            if self._holds(link, caller, kind, name):
                raise NotFound(kind.removesuffix("s"), name)
        except BaseException:
            lease.end()
            raise

    def _unread_kind(self, link: Link, caller: Caller, kind: Kind, name: str) -> ClientKind | None:
        """The kind of this client, if what it calls may be offered on this link to such clients
        only: a modern one tells each what it is offered, and that was not read there."""
        if (
            not link.modern
            or not caller.answers
            or (whose := kind_of(caller.capabilities)) in link.told
        ):
            return None
        differs = self._book.differs_for(whose) or not lists(self._book.of(caller), kind, name)
        return whose if differs else None

    def _holds(self, link: Link, caller: Caller, kind: Kind, name: str) -> bool:
        """Whether what is called so is held back, where this caller finds it or on the link its
        call goes over."""
        admission = self._book.admission
        if admission is None or not admission.shown:
            return admission is not None
        book = self._book
        found, own = book.of(caller), book.held.of(link)
        if is_held(admission, found, kind, name) or (
            own is not None and is_held(admission, own, kind, name)
        ):
            return True
        # An older main link lists the same to everybody, also to a session that had something of
        # its own elsewhere.
        everybodys = link is self._links.main and not link.modern and found is not book.common
        return everybodys and is_held(admission, book.common, kind, name)

    # Reading
    # ----------------------------------------------------------------------------------------------

    async def _read(self, link: Link, what: Kind | ClientKind, caller: Caller) -> None:
        """Within the time of a call; whoever gives up leaves the reading to the others."""
        place: _Place = (link, what)
        limit = link.server.call_timeout
        task = self._readings.get(place)
        if task is None:
            work = (
                self._list(link, what)
                if isinstance(what, str)
                else self._book.learn_modern(what, caller, link)
            )
            task = self._readings[place] = self._tasks.start(work, awaited=True, apart=True)
            task.add_done_callback(lambda _: self._readings.pop(place, None))
        await asyncio.wait((task,), timeout=limit)
        if not task.done():
            reason = (
                f"has not listed what it offers within {limit:g} s; it is pinned, and not "
                "called before"
            )
            raise Unavailable(self._server, SERVER_TIMEOUT, reason)
        if not link.alive or task.cancelled():
            lost = Unavailable(self._server, SERVER_DIED, "the connection was lost")
            lost.unsent = True
            raise lost
        if (problem := task.result()) is not None:
            raise Unavailable(
                self._server, SERVER_DOWN, f"{problem}; it is pinned, and not called before"
            )

    async def _list(self, link: Link, kind: Kind) -> str | None:
        """Why it cannot be read, if it cannot."""
        book = self._book
        if link is self._links.main:
            return book.notes[kind][0] if await book.read(link, (kind,), said_so=False) else None
        link.told.add(
            kind
        )  # before it is read: what the server says to have changed meanwhile is read again
        try:
            listed = await book.lists(link, (kind,), link)
            if kind not in listed.offers:
                link.told.discard(kind)
                return listed.notes[kind][0]
            judge = book.admission
            if (
                judge is not None
                and link in self._links
                and book.held.keep(link, listed.offers, judge)
            ):
                book.judge()
            return None
        except BaseException:
            link.told.discard(kind)
            raise
        finally:
            if link not in book.held:
                book.account.drop((link, kind))

    # What does not count any more
    # ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """What was listed up to now was judged by nobody, except what everybody is offered."""
        for link in self._links:
            if link is not self._links.main:
                link.told.clear()


def _target(method: str, params: Json) -> tuple[Kind | None, str]:
    """Which pinned definition a call is about, if it is about one."""
    if method == "tools/call":
        return "tools", str(params.get("name"))
    if method == "prompts/get":
        return "prompts", str(params.get("name"))
    ref = as_object(params.get("ref"))
    return ("prompts", str(ref.get("name"))) if ref.get("type") == "ref/prompt" else (None, "")
