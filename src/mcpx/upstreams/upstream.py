"""One configured server: its state, its slice of the catalog, and the one way to send it a call.

A server that is down keeps what it last offered. A call to it opens a connection at once, shared by all that
wait; nothing is ever sent twice unless the server certainly did not act on it.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from mcpx.config import Server
from mcpx.model.call import Call, Caller, Json, as_object
from mcpx.model.errors import SERVER_DOWN, RpcError, Unavailable
from mcpx.model.offer import KINDS, Kind
from mcpx.upstreams.errands import Errand, Parking
from mcpx.upstreams.link import Link
from mcpx.upstreams.links import Links
from mcpx.wire import era
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

State = Literal["connecting", "connected", "degraded", "sleeping", "disconnected", "needs_auth", "disabled"]

DEBOUNCE = 0.05
"""Seconds to collect `list_changed` of a server before its lists are read again: storms cost one reading."""

CHANGES: Mapping[str, tuple[Kind, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}


@dataclass(frozen=True, slots=True)
class Status:
    state: State
    since: float = field(default_factory=time.time)
    last_error: str | None = None


class Hub(Protocol):
    """What an upstream tells the gateway."""

    def offers_changed(self, server: str, kinds: Iterable[Kind], said_so: bool) -> None: ...

    def resource_updated(self, server: str, params: Json, owner: str | None) -> None: ...

    def said(self, server: str, method: str, params: Json, owner: str | None) -> None: ...

    def state_changed(self, server: str) -> None: ...


class Upstream:
    def __init__(self, server: Server, hub: Hub, environ: Mapping[str, str]) -> None:
        self.server = server
        self.name = server.name
        self.status = Status("connecting" if server.enabled else "disabled")
        self.instructions = ""
        self.definitions: dict[Kind, list[Json]] = {kind: [] for kind in KINDS}
        self.settled = asyncio.Event()
        """Set once the first attempt to connect is over, whatever came of it."""
        self._hub = hub
        self._tasks = Tasks(server.name)
        self._links = Links(server, self, environ, self._tasks)
        self._parking = Parking(server.name, self._tasks)
        self._main: Link | None = None
        self._starting: asyncio.Task[None] | None = None
        self._changed: set[Kind] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._solo: Caller | None = None
        self._level: str | None = None

    # Life ----------------------------------------------------------------------------------------------------

    def start(self, caller: Caller | None = None) -> None:
        """Connect in the background. `caller` is the one client of a stdio front, whose own link this becomes."""
        self._solo = caller
        if self._starting is None or self._starting.done():
            self._starting = self._tasks.start(self._connect())

    async def _connect(self) -> None:
        self._set_state("connecting")
        try:
            link = await self._links.first(self._solo)
            self._main = link
            self.instructions = link.terms.instructions
            await link.listen()
            await self._read(link, KINDS, said_so=False)
            if self._level is not None:
                await link.set_level(self._level)
        except RpcError as error:
            message = error.message if isinstance(error, Unavailable) else f"{self.name}: {error.message}"
            log.warning("%s", message)
            if self._main is not None:
                self._main, broken = None, self._main
                self._links.forget(broken)
                await broken.close()
            self._set_state("disconnected", message)
        except Exception as error:
            log.exception("[%s] connecting failed", self.name)
            self._set_state("disconnected", f"{self.name}: {type(error).__name__}")
        else:
            if link.alive:
                self._set_state("connected")
                log.info("[%s] connected, %s, %d tools", self.name, link.terms.version, len(self.definitions["tools"]))
        finally:
            self.settled.set()

    async def _read(self, link: Link, kinds: Iterable[Kind], *, said_so: bool) -> None:
        """Read lists of the server and publish them together."""
        kinds = tuple(kinds)
        lists = await asyncio.gather(*(link.list(kind) for kind in kinds), return_exceptions=True)
        for kind, found in zip(kinds, lists, strict=True):
            if isinstance(found, RpcError) and link.alive:
                # One list that cannot be read does not cost the server its others.
                log.warning("[%s] its %s could not be listed: %s", self.name, kind, found.message)
            elif isinstance(found, BaseException):
                raise found
            else:
                self.definitions[kind] = self._usable(link, found) if kind == "tools" else found
        self._hub.offers_changed(self.name, kinds, said_so)

    def _usable(self, link: Link, tools: list[Json]) -> list[Json]:
        """Remember which arguments travel as headers; the modern era drops tools that ask for it wrongly."""
        if not link.modern:
            return tools
        self._links.annotations.clear()
        kept: list[Json] = []
        for tool in tools:
            annotations = era.param_headers(as_object(tool).get("inputSchema"))
            if annotations is None:
                log.warning("[%s] tool %r left out: an x-mcp-header in it is invalid", self.name, tool.get("name"))
                continue
            if annotations and isinstance(name := tool.get("name"), str):
                self._links.annotations[name] = annotations
            kept.append(tool)
        return kept

    def _set_state(self, state: State, error: str | None = None) -> None:
        self.status = Status(state, last_error=error)
        self._hub.state_changed(self.name)

    async def close(self) -> None:
        await self._links.close()
        await self._tasks.close()

    async def end_session(self, session: str) -> None:
        """The session is over: its private links, and its subscriptions on shared ones, go with it."""
        for link in self._links.all():
            for uri in [uri for uri, users in link.subscribers.items() if session in users]:
                try:
                    await link.unsubscribe(uri, session, {})
                except RpcError:
                    pass
        await self._links.end_session(session)

    # Calls ---------------------------------------------------------------------------------------------------

    async def call(self, call: Call, params: Json) -> Json:
        """Forward one call. An error the server itself sent is raised as it is; ours names the server."""
        caller = call.caller
        link = self._links.ready(caller)
        if link is not None and (link.modern or not caller.modern or not caller.answers):
            try:
                return await link.call(call, call.method, params, Errand(call, self.name))
            except Unavailable as error:
                if not error.unsent:
                    raise
        if not self.server.enabled:
            raise Unavailable(self.name, SERVER_DOWN, "is disabled")
        if self._parking.holds(call):
            return await self._parking.resume(call)
        await self._connected()
        if caller.modern and caller.answers and self._links.era_for(caller) == "older":
            if call.params.get("requestState") is not None:
                return await self._parking.resume(call)  # an older server has no states: it is unknown, or was ours
            return await self._parking.begin(call, lambda errand: self._run(call, params, errand))
        return await self._run(call, params, Errand(call, self.name))

    async def _run(self, call: Call, params: Json, errand: Errand) -> Json:
        caller = call.caller
        if self._links.key_for(caller) is not None:
            link = await self._links.keep(caller)
            return await link.call(call, call.method, params, errand)
        link = await self._links.borrow(caller)
        try:
            if caller.log_level is not None:
                await link.set_level(caller.log_level)
            return await link.call(call, call.method, params, errand)
        finally:
            self._links.give_back(link)

    async def _connected(self) -> None:
        """Wait, bounded, for this server only; one that is down is dialled now, once for all that wait."""
        if self._main is not None and self._main.alive:
            return
        if self._starting is None or self._starting.done():
            self.start(self._solo)
        assert self._starting is not None
        try:
            async with asyncio.timeout(self.server.timeout):
                await asyncio.shield(self._starting)
        except TimeoutError:
            raise Unavailable(self.name, SERVER_DOWN, f"not connected after {self.server.timeout:g} s") from None
        if self._main is None or not self._main.alive:
            reason = (self.status.last_error or "not connected").removeprefix(f"{self.name}: ")
            raise Unavailable(self.name, SERVER_DOWN, reason)

    async def link_for(self, caller: Caller) -> Link:
        await self._connected()
        if self._links.key_for(caller) is None and self._main is not None:
            return self._main
        return await self._links.keep(caller)

    async def shared_link(self) -> Link:
        """The link of the catalog: subscriptions of modern listeners go over it."""
        await self._connected()
        assert self._main is not None
        return self._main

    # What reaches the server besides calls ---------------------------------------------------------------------

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """A client's notification goes over the links that are its own."""
        if caller.solo:
            for link in self._links.all():
                link.notify(method, params)
        elif caller.session is not None:
            for link in self._links.of_session(caller.session):
                link.notify(method, params)

    async def set_level(self, level: str, caller: Caller) -> None:
        """`level` is the lowest anybody wants (shared links), the caller's own counts on its private link."""
        self._level = level
        for link in self._links.all():
            if link.owner is None:
                await link.set_level(level)
            elif link.owner == caller.session and caller.log_level is not None:
                await link.set_level(caller.log_level)

    # What the server says ----------------------------------------------------------------------------------------

    def heard(self, link: Link, method: str, params: Json) -> None:
        if method in CHANGES:
            self._changed.update(CHANGES[method])
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = self._tasks.start(self._refresh())
        elif method == "notifications/resources/updated":
            self._hub.resource_updated(self.name, params, link.owner)
        else:
            self._hub.said(self.name, method, params, link.owner)

    async def _refresh(self) -> None:
        while self._changed:
            await asyncio.sleep(DEBOUNCE)
            kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in self._changed)
            self._changed.clear()
            link = self._main
            if link is None or not link.alive:
                return
            try:
                await self._read(link, kinds, said_so=True)
            except RpcError as error:
                log.warning("[%s] its lists could not be read: %s", self.name, error.message)

    def lost(self, link: Link, reason: str) -> None:
        self._links.forget(link)
        if link is self._main:
            self._main = None
            self._set_state("disconnected", f"{self.name}: {reason}")
            log.warning("[%s] connection lost: %s", self.name, reason)
        self._tasks.start(link.close())

    def idle(self, link: Link) -> None:
        self._links.rested()
