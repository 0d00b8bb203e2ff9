"""Which connection a call goes over: shared, private to a session, or its own for as long as the call runs.

The rule behind it all: a question of an older server must have exactly one possible addressee.

* modern server: one shared link, the caller's capabilities stamped on each request;
* older server, caller that cannot be asked anything: one shared link that declares no capabilities;
* stdio front: there is one client, so the shared link is its own and declares what it can answer;
* older caller that can be asked: a link private to its session, kept;
* modern caller that can be asked (it has no session): a kept link that carries one call at a time;
* `isolation: per_session` and `per_call` ask for more.

A server that speaks both eras gets a link per era in use. `max_links` bounds all of it: then the link that was
idle longest goes, and if none is idle a call waits its turn.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from mcpx.config import Server
from mcpx.model.call import Caller
from mcpx.model.errors import (
    METHOD_NOT_FOUND,
    OVERLOADED,
    SERVER_DIED,
    RpcError,
    Unavailable,
)
from mcpx.upstreams.link import Hearer, Link, through
from mcpx.upstreams.negotiate import Era, Identity
from mcpx.wire import era
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

Key = tuple[str, ...]
MODERN: Key = ("modern",)
OLDER: Key = ("older",)

IDLE = 300.0
"""Seconds a link that carries one call at a time is kept without one."""


class Links:
    def __init__(self, server: Server, hearer: Hearer, environ: Mapping[str, str], tasks: Tasks) -> None:
        self.annotations: dict[str, era.ParamHeaders] = {}
        self._server = server
        self._hearer = hearer
        self._environ = environ
        self._tasks = tasks
        self._kept: dict[Key, Link] = {}
        """Least recently used first."""
        self._dialling: dict[Key, asyncio.Task[Link]] = {}
        self._single: list[tuple[Key, Link]] = []
        """Idle links that carry one call at a time."""
        self._lent: set[Link] = set()
        self._opening = 0
        """Private and single links on their way; they count too."""
        self._awaited: list[Key] = []
        """Of kept links: those that somebody has asked for and not got into his hands yet."""
        self._freed = asyncio.Event()
        self._speaks: dict[Era, bool] = {}
        """What is known of the server's eras; an era that is absent was not tried."""

    # Choosing ----------------------------------------------------------------------------------------------

    def era_for(self, caller: Caller) -> Era:
        """The caller's own era unless the server is known not to speak it."""
        own: Era = "modern" if caller.modern else "older"
        other: Era = "older" if caller.modern else "modern"
        return own if self._speaks.get(own, True) else other

    def key_for(self, caller: Caller) -> Key | None:
        """Under which key this caller's link is kept; None when each call needs one to itself."""
        isolation = self._server.isolation
        if isolation == "per_call":
            return None
        chosen = self.era_for(caller)
        if isolation == "per_session" and not caller.solo:
            return ("session", caller.session or _affinity(caller), chosen)
        if chosen == "modern":
            return MODERN
        if caller.solo or not caller.answers:
            return OLDER
        if caller.session is not None:
            return ("session", caller.session, chosen)
        return None

    def ready(self, caller: Caller) -> Link | None:
        """The caller's link if it is open already: the way almost every call goes."""
        key = self.key_for(caller)
        if key is None:
            return None
        link = self._kept.get(key)
        if link is None or not link.alive:
            return None
        if key is not MODERN and key is not OLDER:
            self._kept[key] = self._kept.pop(key)
        return link

    async def keep(self, caller: Caller) -> Link:
        """The caller's kept link, opened if need be. Several callers wait for one opening."""
        while True:
            key = self.key_for(caller)
            if key is None:
                raise RpcError(METHOD_NOT_FOUND, f"{self._server.name}: not available to clients without a session")
            if (link := self.ready(caller)) is not None:
                return link
            task = self._dialling.get(key)
            if task is None:
                task = self._dialling[key] = self._tasks.start(self._open_kept(key, caller), awaited=True)
                task.add_done_callback(lambda _, key=key: self._dialling.pop(key, None))
            self._awaited.append(key)
            try:
                return await asyncio.shield(task)
            except RpcError:
                if self.key_for(caller) == key:
                    raise
                # The server does not speak this era after all; the next round takes the other.
            except asyncio.CancelledError:
                if task.cancelled() and not _being_cancelled():
                    raise Unavailable(self._server.name, OVERLOADED, "the gateway is ending") from None
                raise
            finally:
                self._awaited.remove(key)

    async def _open_kept(self, key: Key, caller: Caller) -> Link:
        private = key not in (MODERN, OLDER)
        if caller.solo or private:
            who = Identity(through(caller.client), caller.capabilities, _older_version(caller))
        else:
            who = Identity(through({}), {})
        owner = caller.session if private else None
        voice = caller.voice if (private or caller.solo) and not caller.modern else None
        async with self._place() if private else nullcontext():
            link = await self._open(self.era_for(caller), who, owner, voice)
            self._kept[key] = link
        if caller.log_level is not None:
            await link.set_level(caller.log_level)  # asked for before there was a link to ask
        return link

    async def first(self, caller: Caller | None) -> Link:
        """The link for the catalog: either era, the likelier one first, so that one server gives one process."""
        preferred: Era = "modern" if caller is None or caller.modern else "older"
        openings: tuple[Era, Era] = ("modern", "older") if preferred == "modern" else ("older", "modern")
        if caller is not None:
            who = Identity(through(caller.client), caller.capabilities, _older_version(caller))
            voice = None if caller.modern else caller.voice
        else:
            who, voice = Identity(through({}), {}), None
        link = Link(self._server, self._hearer, who, owner=None, voice=voice)
        try:
            await link.open(openings, self._environ, self.annotations)
        except Unavailable as error:
            if preferred != "modern" or error.code != SERVER_DIED:
                raise
            # Some old servers do not survive a request they do not know before `initialize`.
            link = Link(self._server, self._hearer, who, owner=None, voice=voice)
            await link.open(("older",), self._environ, self.annotations)
        got: Era = "modern" if link.modern else "older"
        self._speaks[got] = True
        if got != preferred:
            self._speaks[preferred] = False
        key = MODERN if link.modern else OLDER
        if (replaced := self._kept.get(key)) is not None:
            self._tasks.start(replaced.close())
        self._kept[key] = link
        return link

    async def _open(self, wanted: Era, who: Identity, owner: str | None, voice: Any) -> Link:
        link = Link(self._server, self._hearer, who, owner=owner, voice=voice)
        try:
            await link.open((wanted,), self._environ, self.annotations)
        except RpcError as error:
            if wanted not in self._speaks and self._speaks and _is_refusal(error):
                log.info("[%s] speaks only the other protocol era; calls are bridged", self._server.name)
                self._speaks[wanted] = False
            raise
        self._speaks[wanted] = True
        return link

    # Links that carry one call at a time ---------------------------------------------------------------------

    async def borrow(self, caller: Caller) -> Link:
        """A link for one call; `give_back` ends the loan."""
        affinity: Key = (_affinity(caller), repr(sorted(caller.answers.items(), key=lambda item: item[0])))
        if self._server.isolation != "per_call":
            for index in range(len(self._single) - 1, -1, -1):
                key, link = self._single[index]
                if key == affinity and link.alive:
                    del self._single[index]
                    self._lent.add(link)
                    return link
        who = Identity(through(caller.client), caller.capabilities, _older_version(caller))
        voice = None if caller.modern else caller.voice
        async with self._place():
            while True:
                wanted = self.era_for(caller)
                try:
                    link = await self._open(wanted, who, caller.session, voice)
                    break
                except RpcError:
                    if self.era_for(caller) == wanted:
                        raise
            self._lent.add(link)
        link.affinity = affinity
        return link

    def give_back(self, link: Link) -> None:
        self._lent.discard(link)
        if link.alive and self._server.isolation != "per_call":
            self._single.append((link.affinity, link))
            asyncio.get_running_loop().call_later(IDLE, self._tire, link, link.calls)
        else:
            self._tasks.start(link.close())
        self._freed.set()

    def _tire(self, link: Link, calls: int) -> None:
        """Close a link that nobody has borrowed since."""
        if link.calls == calls and any(link is idle for _, idle in self._single):
            self.forget(link)
            self._tasks.start(link.close())

    @asynccontextmanager
    async def _place(self) -> AsyncGenerator[None]:
        """A place within `max_links` for the link that is opened inside."""
        await self._make_room()
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1
            self._freed.set()

    async def _make_room(self) -> None:
        """Wait until one more link is within `max_links`, closing idle ones that serve nobody."""
        try:
            async with asyncio.timeout(self._server.timeout):
                while self._count() >= self._server.max_links:
                    idle = self._longest_idle()
                    if idle is not None:
                        await idle.close()
                        continue
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            raise Unavailable(
                self._server.name, OVERLOADED, f"all {self._server.max_links} connections (max_links) are in use"
            ) from None

    def _count(self) -> int:
        return len(self._kept) + len(self._single) + len(self._lent) + self._opening

    def _longest_idle(self) -> Link | None:
        if self._single:
            return self._single.pop(0)[1]
        for key, link in self._kept.items():
            if key not in (MODERN, OLDER, *self._awaited) and not link.errands and not link.subscribers:
                return self._kept.pop(key)
        return None

    def rested(self) -> None:
        """A link has nothing to do any more: it may make room for another."""
        self._freed.set()

    # Ends ----------------------------------------------------------------------------------------------------

    def update(self, server: Server) -> None:
        self._server = server
        for link in self.all():
            link.server = server

    async def wait_for_rest(self) -> None:
        """Until a link has become idle or is gone."""
        self._freed.clear()
        await self._freed.wait()

    @property
    def opening(self) -> bool:
        """Whether somebody waits for a link that is on its way."""
        return bool(self._dialling or self._opening)

    def all(self) -> list[Link]:
        return [*self._kept.values(), *(link for _, link in self._single), *self._lent]

    def forget(self, link: Link) -> None:
        """A link that was lost serves nobody any more."""
        for key, kept in list(self._kept.items()):
            if kept is link:
                del self._kept[key]
        self._single = [entry for entry in self._single if entry[1] is not link]
        self._freed.set()

    def of_session(self, session: str) -> list[Link]:
        return [link for key, link in self._kept.items() if key[:2] == ("session", session)]

    async def end_session(self, session: str) -> None:
        """Close what is private to a session, also what is only being opened."""
        for key, task in list(self._dialling.items()):
            if key[:2] == ("session", session):
                task.cancel()
        for link in self.of_session(session):
            self.forget(link)
            await link.close()

    async def close(self) -> None:
        for task in list(self._dialling.values()):
            task.cancel()
        links = self.all()
        self._kept.clear()
        self._single.clear()
        self._lent.clear()
        await asyncio.gather(*(link.close() for link in links))


def _affinity(caller: Caller) -> str:
    """Modern callers have no session; who they are is all that tells them apart."""
    return f"{caller.principal}\0{caller.client.get('name', '')}\0{caller.client.get('version', '')}"


def _older_version(caller: Caller) -> str:
    return caller.version if caller.version in era.OLDER else era.LATEST_OLDER


def _is_refusal(error: RpcError) -> bool:
    """Whether a failed opening means "not this era", as against "not now"."""
    if isinstance(error, Unavailable):
        return error.http_status is not None and 400 <= error.http_status < 500
    return True


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
