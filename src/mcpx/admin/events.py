"""Everything that happens, for whoever listens to `GET /api/events` (ADM-4).

Promise: what happens is told within a second, to all listeners from one ring; after a break a
listener goes on where it was, or is told that it cannot. Telling never holds up a call: what
happens is noted, and put into words a moment later, storms together. Listeners are bounded in
number; one that does not read costs nothing but its place, and loses that. While nobody listens
nothing is heard, but for `LINGER` seconds after the last one has gone. With several replicas it is
one ring over all of them (`common_ring`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from mcpx import __version__
from mcpx.admin import waiting
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError
from mcpx.admin.people import People
from mcpx.admin.ring import Ring
from mcpx.admin.rows import call_row, rates, status_of
from mcpx.admin.shapes.events import (
    ApprovalsEvent,
    CallEvent,
    CatalogEvent,
    ClientsEvent,
    ConfigEvent,
    Hello,
    RatesEvent,
    Reset,
    StatusEvent,
)
from mcpx.admin.streaming import BEAT, COMMENT, EventStream, frame
from mcpx.base.aio import Tasks
from mcpx.catalog.catalog import Catalog
from mcpx.model.events import ApprovalChanged, ConfigApplied, Noted, OffersChanged, UpstreamChanged
from mcpx.model.offer import KINDS, Kind
from mcpx.model.slices import Work, in_slices

if TYPE_CHECKING:
    from mcpx.admin.common_ring import CommonRing

MOST_STREAMS = 64
SOON = 0.1
"""Seconds in which what happens is gathered."""
TICK = 1.0
LINGER = 120.0
CALLS_A_SECOND = 50


class _Listener:
    __slots__ = ("ended", "news", "read", "seen")

    def __init__(self, read: int) -> None:
        self.read = read
        """The number of the last event it was sent."""
        self.seen: dict[str, int] = {}
        """Which editions of the latest figures it was sent."""
        self.news = asyncio.Event()
        self.ended = False


class Events:
    def __init__(self, desk: Desk, people: People, etag: Callable[[], Any]) -> None:
        """`etag`: that of the configuration, to be awaited."""
        self._desk = desk
        self._people = people
        self._etag = etag
        self._listeners: set[_Listener] = set()
        self._common = self._common_ring()
        self._ring = self._common or Ring()
        self._tasks = Tasks("admin events")
        self._on = False
        self._left: float = 0.0
        """When the last listener went, by the clock of the loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._servers: set[str] = set()
        """Of which something is to be told."""
        self._told: dict[str, StatusEvent] = {}
        self._offers: dict[str | None, set[Kind]] = {}
        self._pending: int | None = None
        self._calls = _Calls(desk, self._ring)
        self._catalog: Catalog | None = None
        self._shapes: dict[tuple[str, Kind], int] = {}
        self._snapshots: dict[str, tuple[int, bytes]] = {}
        """The latest figures, which replace those before: their edition, and the event."""
        self._clients_told: object = None

    def _common_ring(self) -> "CommonRing | None":
        replicas = self._desk.gateway.replicas
        if replicas is None:
            return None
        from mcpx.admin.common_ring import CommonRing

        return CommonRing(replicas, self._wake, self._begin)

    # Listening
    # ----------------------------------------------------------------------------------------------

    def listen(self, last_id: str | None) -> EventStream:
        """The events after that one, or from now on. Raises `ApiError` where there are too many
        listeners."""
        if len(self._listeners) >= MOST_STREAMS:
            message = f"{MOST_STREAMS} streams of events are open already"
            raise ApiError(
                503, "too_many_streams", message, hint="close some", headers={"retry-after": "5"}
            )
        self._begin()
        if self._common is not None:
            self._common.listen()
        number = None if not last_id else self._ring.number(last_id)
        listener = _Listener(self._ring.last if number is None else number)
        self._listeners.add(listener)
        frames = self._frames(listener, last_id, lost=bool(last_id) and number is None)
        return EventStream(frames, lambda: self._gone(listener))

    def _gone(self, listener: _Listener) -> None:
        self._listeners.discard(listener)
        self._left = asyncio.get_running_loop().time()

    async def _frames(
        self, listener: _Listener, last_id: str | None, *, lost: bool
    ) -> AsyncGenerator[bytes]:
        if self._common is not None:
            number = await self._common.settle(last_id)
            listener.read, lost = self._ring.last if number is None else number, number is None
        at = self._ring.id(listener.read)
        yield frame("hello", await self._hello(), at)
        if lost:
            yield frame("reset", Reset(reason="what happened since is not known any more"), at)
        loop = asyncio.get_running_loop()
        due = loop.time() + BEAT
        while not listener.ended:
            listener.news.clear()
            if not self._ring.knows(listener.read):
                return  # too slow; when it comes again it is told to begin anew
            if (found := self._next(listener)) is None:
                try:
                    async with asyncio.timeout_at(due):
                        await listener.news.wait()
                    continue
                except TimeoutError:
                    found = COMMENT
            yield found
            due = loop.time() + BEAT

    def _next(self, listener: _Listener) -> bytes | None:
        if listener.read < self._ring.last:
            listener.read, some = self._ring.after(listener.read)
            return some
        for name, (edition, made) in self._snapshots.items():
            if listener.seen.get(name) != edition:
                listener.seen[name] = edition
                return made
        return None

    async def _hello(self) -> Hello:
        etag = await self._etag()
        replica = None if self._common is None else self._common.replica
        revision = self._desk.store.revision
        return Hello(
            version=__version__, run=self._ring.run, revision=revision, etag=etag, replica=replica
        )

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.news.set()

    # Life
    # ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._on:
            return
        self._on = True
        self._ring.clear()
        bus = self._desk.gateway.bus
        bus.subscribe(self._upstream_changed, UpstreamChanged)
        bus.subscribe(self._offers_changed, OffersChanged)
        bus.subscribe(self._config_applied, ConfigApplied)
        bus.subscribe(self._approval_changed, ApprovalChanged, Noted)
        if self._desk.recording is not None:
            self._desk.recording.hear(self._calls_heard)
        self._told = {
            name: status_of(self._desk.gateway, name)
            for name in self._desk.gateway.generation.upstreams
        }
        self._pending = waiting.count(self._desk.gateway)
        self._catalog = None
        self._tasks.start(self._tick(), apart=True)

    def _rest(self) -> None:
        self._on = False
        bus = self._desk.gateway.bus
        for listener in (
            self._upstream_changed,
            self._offers_changed,
            self._config_applied,
            self._approval_changed,
        ):
            bus.unsubscribe(listener)
        if self._desk.recording is not None:
            self._desk.recording.hear(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._snapshots.clear()
        if self._common is not None:
            self._common.rest()

    def end_streams(self) -> None:
        """The end is near: every stream ends in order."""
        for listener in self._listeners:
            listener.ended = True
        self._wake()

    async def close(self) -> None:
        self.end_streams()
        if self._on:
            self._rest()
        if self._common is not None:
            await self._common.close()
        await self._tasks.close()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        await self._look_at_catalog()
        while self._on:
            await asyncio.sleep(TICK)
            if self._listeners or loop.time() - self._left <= LINGER:
                if self._common is not None:
                    self._common.say_so()
            elif (
                self._common is None or not await self._common.is_wanted()
            ) and not self._listeners:
                self._rest()
                return
            await self._look_at_catalog()
            if self._calls.catch_up():
                self._wake()
            if self._listeners:
                self._look_at_rates()
                self._look_at_clients()
            self._soon()

    # What happens
    # ----------------------------------------------------------------------------------------------

    def _soon(self) -> None:
        if self._timer is None and self._on:
            self._timer = asyncio.get_running_loop().call_later(SOON, self._tell)

    def _upstream_changed(self, event: UpstreamChanged) -> None:
        self._servers.add(event.server)
        self._soon()

    def _offers_changed(self, event: OffersChanged) -> None:
        if event.session is None and event.viewers is None and event.client_kind is None:
            self._offers.setdefault(event.server, set()).update(event.kinds)
            self._soon()

    def _approval_changed(self, event: ApprovalChanged | Noted) -> None:
        self._pending = None
        self._soon()

    def _config_applied(self, event: ConfigApplied) -> None:
        self._tasks.start(self._tell_config(event), apart=True)

    def _calls_heard(self, first: int, last: int) -> None:
        self._calls.heard(first, last)
        self._wake()

    async def _tell_config(self, event: ConfigApplied) -> None:
        gateway, store = self._desk.gateway, self._desk.store
        told = ConfigEvent(
            ok=event.ok,
            revision=store.revision,
            etag=await self._etag(),
            by=event.by,
            summary=gateway.redactor.redact(event.plan)[:1_000],
            problems=0 if event.ok else max(1, _leading_number(event.plan)),
        )
        self._ring.add("config", told)
        self._wake()
        self._servers.update(gateway.generation.upstreams, self._told)
        await self._look_at_catalog()
        self._tell()

    def _tell(self) -> None:
        """All that was noted, in words."""
        self._timer = None
        gateway, last = self._desk.gateway, self._ring.last
        servers, self._servers = self._servers, set[str]()
        for name in servers:
            told = status_of(gateway, name)
            if told != self._told.get(name) and not (told.gone and name not in self._told):
                self._ring.add("status", told)
            if told.gone:
                self._told.pop(name, None)
            else:
                self._told[name] = told
        offers, self._offers = self._offers, dict[str | None, set[Kind]]()
        for server, kinds in offers.items():
            tools = len(gateway.catalog.offers["tools"])
            self._ring.add("catalog", CatalogEvent(server=server, kinds=sorted(kinds), tools=tools))
        pending = waiting.count(gateway)
        if pending != self._pending:
            self._pending = pending
            self._ring.add("approvals", ApprovalsEvent(pending=pending))
        if self._ring.last != last:
            self._wake()

    # What is looked at
    # -------------------------------------------------------------------------------------------

    async def _look_at_catalog(self) -> None:
        """Clients that were shown nothing are told of no change: whether there is one is seen by
        looking."""
        catalog = self._desk.gateway.catalog
        if catalog is self._catalog:
            return
        first, self._catalog = self._catalog is None, catalog
        shapes = await in_slices(_shaping(catalog))
        if catalog is not self._catalog:
            return  # somebody looks at a later one
        before, self._shapes = self._shapes, shapes
        if first:
            return
        for key in {key for key, _ in before.items() ^ shapes.items()}:
            self._offers.setdefault(key[0], set()).add(key[1])
            self._servers.add(key[0])

    def _look_at_rates(self) -> None:
        told = rates(self._desk, self._people)
        if told is not None:
            self._snapshot("rates", told, same=lambda a, b: a == b)

    def _look_at_clients(self) -> None:
        rows = self._people.rows()
        mark = [
            (r.name, r.principal, r.profile, r.version, r.sessions, r.mode, r.why) for r in rows
        ]
        if mark != self._clients_told:
            self._clients_told = mark
            self._snapshot("clients", ClientsEvent(clients=rows, sessions=self._people.sessions))

    def _snapshot(
        self,
        name: str,
        told: RatesEvent | ClientsEvent,
        same: Callable[[bytes, bytes], bool] | None = None,
    ) -> None:
        edition, before = self._snapshots.get(name, (0, b""))
        made = frame(name, told)
        if same is None or not same(made, before):
            self._snapshots[name] = (edition + 1, made)
            self._wake()


class _Calls:
    """Calls that are over, told one by one while they are few; of many, some, and how many were
    passed over."""

    def __init__(self, desk: Desk, ring: Ring) -> None:
        self._desk = desk
        self._ring = ring
        self._second = 0
        self._told = 0
        """In this second."""
        self._passed = 0
        """Not told since the last that was."""
        self._last = 0
        """The number of the last one that was passed over."""

    def heard(self, first: int, last: int) -> None:
        room = self._room()
        many = last - first + 1
        self._passed += max(0, many - room)
        self._last = last
        if room:
            self._tell(max(first - 1, last - room))

    def catch_up(self) -> bool:
        """Tell at least of the last one, now that nothing else comes; whether there was any."""
        if not self._passed or not self._room():
            return False
        self._passed -= 1
        self._tell(self._last - 1)
        return True

    def _room(self) -> int:
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._told = second, 0
        return CALLS_A_SECOND - self._told

    def _tell(self, after: int) -> None:
        recording = self._desk.recording
        for row in [] if recording is None else recording.told_rows(after):
            if row["number"] > self._last:
                break
            self._told += 1
            told = call_row(row)
            self._ring.add("call", CallEvent(**told.model_dump(), skipped=self._passed))
            self._passed = 0


def _shaping(catalog: Catalog) -> Work[dict[tuple[str, Kind], int]]:
    """By server and kind: something that differs when what is offered does."""
    shapes: dict[tuple[str, Kind], int] = {}
    for kind in KINDS:
        for at, offer in enumerate(catalog.offers[kind]):
            key = (offer.server, kind)
            about = offer.definition.get("description")
            shapes[key] = hash(
                (shapes.get(key, 0), offer.public, about if isinstance(about, str) else None)
            )
            if at % 100 == 99:
                yield
    return shapes


def _leading_number(text: str) -> int:
    word = text.partition(" ")[0]
    return int(word) if word.isdecimal() and len(word) < 9 else 0
