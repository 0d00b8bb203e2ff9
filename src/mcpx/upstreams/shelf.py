"""What one server offers: to everybody, to some, and when it was last seen.

Reads the lists of a link, keeps them in memory and (through `snapshot`) on disk, and finds out what other clients than
the gateway itself are offered (`variants`). It opens no connection of its own accord but those a caller needs anyway.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from mcpx.model.call import Caller, Json, as_object
from mcpx.model.errors import RpcError
from mcpx.model.offer import KINDS, Kind
from mcpx.upstreams.link import Link
from mcpx.upstreams.links import Links
from mcpx.upstreams.snapshot import Snapshot, Snapshots
from mcpx.upstreams.variants import Offers, Variants, answers_key
from mcpx.wire import codec, era
from mcpx.wire.tasks import Tasks

log = logging.getLogger(__name__)

KEEP_SOON = 0.2
"""Seconds to collect changes before a snapshot is written; it must be there within 0.3 s."""


class Dates(NamedTuple):
    """Of one tool, in seconds since the epoch."""

    created: float
    """First seen by this process."""
    updated: float
    """Its definition last changed."""


class Announcer(Protocol):
    """Who is told of changed offers."""

    def offers_changed(self, server: str, kinds: Iterable[Kind], said_so: bool) -> None: ...

    def offers_vary(self, server: str, kinds: Iterable[Kind], session: str | None) -> None: ...


class Shelf:
    def __init__(
        self, name: str, links: Links, announcer: Announcer, snapshots: Snapshots, key: str, tasks: Tasks
    ) -> None:
        self.definitions: Offers = {kind: [] for kind in KINDS}
        """What it offers to everybody."""
        self.known = False
        """Whether it said so itself, now or in an earlier run."""
        self.instructions = ""
        self.dates: dict[str, Dates] = {}
        self.variants = Variants()
        self._name = name
        self._links = links
        self._announcer = announcer
        self._snapshots = snapshots
        self._key = key
        self._tasks = tasks
        self._keeping: asyncio.TimerHandle | None = None
        self._learning: dict[str, asyncio.Task[None]] = {}

    def remember(self) -> None:
        """Take up what the server offered when it was last seen, if that is known."""
        snapshot = self._snapshots.load(self._key)
        if snapshot is None:
            return
        self.known = True
        self.definitions = {kind: list(snapshot.definitions[kind]) for kind in KINDS}
        self.instructions = snapshot.instructions
        self._date([])

    def inherit(self, other: "Shelf") -> None:
        """Show what the server's predecessor offered until it says itself what it offers."""
        self.definitions, self.instructions, self.dates = other.definitions, other.instructions, other.dates
        self.variants.inherit(other.variants)

    def offers(self, caller: Caller | None) -> Offers:
        """What this caller is offered; None asks for what everybody is."""
        if caller is None or not self.variants:
            return self.definitions
        return self.variants.find(caller.session, caller.capabilities) or self.definitions

    async def read(self, link: Link, kinds: Iterable[Kind], *, said_so: bool) -> None:
        """Read lists of the server and publish them together."""
        kinds = tuple(kinds)
        found = await self._lists(link, kinds)
        before = self.definitions["tools"]
        # As it is now: another reading may have ended meanwhile. What was inherited goes, whichever lists were read.
        own: Offers = self.definitions if self.known else {kind: [] for kind in KINDS}
        self.definitions = {**own, **found}
        self.known = True
        if "tools" in found:
            self._date(before)
        self._announcer.offers_changed(self._name, kinds, said_so)
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().call_later(KEEP_SOON, self._keep)

    def _date(self, before: list[Json]) -> None:
        """Note which tools are new, and which have changed."""
        now = time.time()
        known = {str(as_object(tool).get("name")): tool for tool in before}
        dates: dict[str, Dates] = {}
        for tool in self.definitions["tools"]:
            name = str(as_object(tool).get("name"))
            old = self.dates.get(name, Dates(now, now))
            dates[name] = old if known.get(name) == tool else Dates(old.created, now)
        self.dates = dates

    async def _lists(self, link: Link, kinds: Iterable[Kind], capabilities: Mapping[str, Any] | None = None) -> Offers:
        """What a link is offered; a list that cannot be read is left out, and does not cost the server its others."""
        kinds = tuple(kinds)
        lists = await asyncio.gather(*(link.list(kind, capabilities) for kind in kinds), return_exceptions=True)
        read: Offers = {}
        for kind, found in zip(kinds, lists, strict=True):
            if isinstance(found, RpcError) and link.alive:
                log.warning("[%s] its %s could not be listed: %s", self._name, kind, found.message)
            elif isinstance(found, BaseException):
                raise found
            else:
                found = self._writable(kind, found)
                read[kind] = self._usable(link, found) if kind == "tools" else found
        return read

    def _writable(self, kind: Kind, found: list[Json]) -> list[Json]:
        """Without what no list could carry: one infinity in one definition must not cost anybody the whole list."""
        if codec.is_writable(found):
            return found
        kept = [definition for definition in found if codec.is_writable(definition)]
        log.warning(
            "[%s] %d of its %s left out: they cannot be written as JSON", self._name, len(found) - len(kept), kind
        )
        return kept

    def _usable(self, link: Link, tools: list[Json]) -> list[Json]:
        """Remember which arguments travel as headers; the modern era drops tools that ask for it wrongly."""
        if not link.modern:
            return tools
        kept: list[Json] = []
        for tool in tools:
            annotations = era.param_headers(as_object(tool).get("inputSchema"))
            if annotations is None:
                log.warning("[%s] tool %r left out: an x-mcp-header in it is invalid", self._name, tool.get("name"))
                continue
            if isinstance(name := as_object(tool).get("name"), str):
                self._links.annotations.pop(name, None)
                if annotations:
                    self._links.annotations[name] = annotations
            kept.append(tool)
        return kept

    # Different offers to different clients -----------------------------------------------------------------------

    def learn(self, caller: Caller, main: Link) -> asyncio.Task[None] | None:
        """Find out, once, what callers that can be asked the same things are offered; the task while it runs."""
        key = answers_key(caller.capabilities)
        if key in self.variants.known:
            return None
        task = self._learning.get(key)
        if task is None:
            task = self._learning[key] = self._tasks.start(self._learn(key, caller, main))
            task.add_done_callback(lambda _: self._learning.pop(key, None))
        return task

    async def _learn(self, key: str, caller: Caller, main: Link) -> None:
        try:
            if self._links.era_for(caller) == "modern" and main.modern:
                found = await self._lists(main, KINDS, caller.capabilities)
            elif self._links.key_for(caller) is not None:
                link = await self._links.keep(caller)
                found = await self._lists(link, KINDS, caller.capabilities if link.modern else None)
            else:
                link = await self._links.borrow(caller)
                try:
                    found = await self._lists(link, KINDS)
                finally:
                    self._links.give_back(link)
        except RpcError as error:
            log.debug("[%s] what it offers to %s is not known: %s", self._name, key, error.message)
            return
        if self.variants.learn(key, {**self.definitions, **found}, self.definitions):
            self._announcer.offers_vary(self._name, KINDS, caller.session)

    async def learn_session(self, link: Link, session: str, kinds: Iterable[Kind]) -> None:
        """A session's own link says that its lists have changed: from now on they are its own."""
        try:
            found = await self._lists(link, kinds)
        except RpcError:
            return
        before = self.variants.find(session, link.who.capabilities)
        self.variants.learn_session(session, {**(before or self.definitions), **found})
        self._announcer.offers_vary(self._name, kinds, session)

    def forget_session(self, session: str) -> None:
        if self.variants.forget_session(session):
            self._announcer.offers_vary(self._name, (), None)

    # On disk -----------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        self._keeping = None
        self._snapshots.save(self._key, Snapshot(dict(self.definitions), self.instructions))

    def close(self) -> None:
        """Write what was not written yet."""
        if self._keeping is not None:
            self._keeping.cancel()
            self._keep()
