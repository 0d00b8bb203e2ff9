"""The events of `GET /api/events` (ADM-4).

Events are sent within a second. Callbacks of calls only note a change; a timer describes it a
moment later, together with others. Without a reader, nothing is observed, except for
`LINGER_SECONDS` after the last one has disconnected. With several replicas, each replica has an
event buffer and sends its events to the others (`ClusterEvents`).
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from mcpx import __version__
from mcpx.admin import watching
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError
from mcpx.admin.shapes.common import Told
from mcpx.admin.shapes.watching import (
    ApprovalsEvent,
    CallEvent,
    CatalogEvent,
    ClientsEvent,
    ConfigEvent,
    Hello,
    Reset,
    StatusEvent,
)
from mcpx.admin.streaming import BEAT, COMMENT, EventStream, frame, framed
from mcpx.base.aio import Tasks, Work, in_slices
from mcpx.catalog.catalog import Catalog
from mcpx.model.events import ApprovalChanged, ConfigApplied, Noted, OffersChanged, UpstreamChanged
from mcpx.model.offer import KINDS, Kind

if TYPE_CHECKING:
    from mcpx.replicas.replicas import Replicas

MAX_STREAMS: Final = 64
MAX_EVENTS: Final = 1_000
MAX_EVENT_BYTES = 1 << 20
MAX_FRAME_BYTES: Final = 64 << 10
SOON = 0.1
"""Seconds in which changes are gathered."""
TICK = 1.0
LINGER = 120.0
WANTED_SECONDS: Final = 5.0
"""Seconds for which another replica's readers count after its last message."""
CALLS_A_SECOND = 50
TOPIC: Final = "events"
_SEALED: Final = b"event"


class EventBuffer:
    """The last events as frames, shared by all readers.

    A reader remembers only its position, so a slow reader costs nothing. If its next event was
    dropped, its stream ends, and its next stream begins with `reset`.
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        """Identifies the numbers of this process."""
        self.last: int = 0
        self.ended = False
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._latest: dict[str, tuple[int, bytes]] = {}
        """The frame of each figure that replaces its predecessor, and how often it changed."""
        self._changed = asyncio.Event()

    def id(self, number: int) -> str:
        return f"{self.run}-{number}"

    def number(self, id: str) -> int | None:
        """The position after an event, or None if events after it are missing here."""
        run, _, number = id.partition("-")
        if run != self.run or not (number.isascii() and number.isdigit()) or len(number) > 15:
            return None
        return int(number) if self._has_all_after(int(number)) else None

    def _has_all_after(self, number: int) -> bool:
        return self.last - len(self._frames) <= number <= self.last

    def add(self, event: str, text: str) -> None:
        self.last += 1
        made = framed(event, text, self.id(self.last))
        self._frames.append(made)
        self._size += len(made)
        while len(self._frames) > MAX_EVENTS or self._size > MAX_EVENT_BYTES:
            self._size -= len(self._frames.popleft())
        self._wake()

    def put(self, event: str, data: Told) -> None:
        """Replace the latest figure of this name, if it differs."""
        changes, before = self._latest.get(event, (0, b""))
        made = frame(event, data)
        if made != before:
            self._latest[event] = changes + 1, made
            self._wake()

    def clear(self) -> None:
        """Forget all events, because some are missing."""
        self.last += 1
        self._frames.clear()
        self._size = 0
        self._latest.clear()
        self._wake()

    def end(self) -> None:
        """End all streams."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(self, number: int) -> AsyncGenerator[bytes]:
        """The frames after a number, and a comment after each silence."""
        seen: dict[str, int] = {}
        while not self.ended and self._has_all_after(number):
            changed = self._changed
            if number < self.last:
                number, some = self._after(number)
                yield some
                continue
            for some in self._unseen(seen):
                yield some
            if changed is not self._changed:
                continue
            try:
                async with asyncio.timeout(BEAT):
                    await changed.wait()
            except TimeoutError:
                yield COMMENT

    def _after(self, number: int) -> tuple[int, bytes]:
        begin, size, some = len(self._frames) - (self.last - number), 0, list[bytes]()
        for made in islice(self._frames, begin, None):
            some.append(made)
            size += len(made)
            if size >= MAX_FRAME_BYTES:
                break
        return number + len(some), b"".join(some)

    def _unseen(self, seen: dict[str, int]) -> Iterator[bytes]:
        for event, (changes, made) in list(self._latest.items()):
            if seen.get(event) != changes:
                seen[event] = changes
                yield made


class ClusterEvents:
    """Sends the events of this replica to the others, and receives theirs, encrypted.

    A replica with readers asks the others for events every second. Messages of the store have no
    history: if the store was away, events are missing, and the readers begin anew.
    """

    def __init__(
        self, replicas: "Replicas", buffer: EventBuffer, begin: Callable[[], None]
    ) -> None:
        """`begin` is called when another replica has readers."""
        self.replica = replicas.members.me.name
        self._replicas = replicas
        self._buffer = buffer
        self._begin = begin
        self._asked_at = -WANTED_SECONDS
        replicas.store.hear(TOPIC, self._received)
        replicas.store.on_return(self._returned)

    @property
    def is_wanted(self) -> bool:
        """Whether another replica has readers."""
        return time.monotonic() - self._asked_at < WANTED_SECONDS

    def ask(self) -> None:
        """Ask the other replicas for their events."""
        self._send(b"")

    def send(self, event: str, text: str) -> None:
        if self.is_wanted:
            self._send(f"{event}\n{text}".encode())

    def _send(self, message: bytes) -> None:
        if self._replicas.store.up and self._replicas.joined.is_set():
            sealed = self._replicas.seals.encrypt(message, _SEALED)
            self._replicas.store.tell(TOPIC, sealed)

    def _received(self, sealed: bytes) -> None:
        message = self._replicas.seals.decrypt(sealed, _SEALED)
        if message is None:
            return
        event, _, text = message.decode().partition("\n")
        if event:
            self._buffer.add(event, text)
        else:
            self._asked_at = time.monotonic()
            self._begin()

    async def _returned(self, fresh: bool) -> None:
        self._buffer.clear()


class Events:
    """Observes the gateway, and describes its changes as events."""

    def __init__(self, desk: Desk, people: watching.People, etag: Callable[[], Any]) -> None:
        """`etag` is an async function that returns the configuration's etag."""
        self._desk = desk
        self._people = people
        self._etag = etag
        self._readers = 0
        self._left_at = 0.0
        """When the last reader disconnected, in loop time."""
        self.buffer = EventBuffer()
        self._cluster: ClusterEvents | None = None
        if desk.gateway.replicas is not None:
            self._cluster = ClusterEvents(desk.gateway.replicas, self.buffer, self.begin)
        self._tasks = Tasks("admin events")
        self._on = False
        self._timer: asyncio.TimerHandle | None = None
        self._servers: set[str] = set()
        """Servers with a change that was not described yet."""
        self._offers: dict[str | None, set[Kind]] = {}
        self._told: dict[str, StatusEvent] = {}
        self._pending: int | None = None
        self._calls = _Calls(desk, self._add)
        self._catalog: Catalog | None = None
        self._shapes: dict[tuple[str, Kind], int] = {}
        self._clients: object = None

    # Readers
    # ----------------------------------------------------------------------------------------------

    def listen(self, last_id: str | None) -> EventStream:
        """The events after that one, or from now on. Raises ApiError if there are too many
        readers."""
        if self._readers >= MAX_STREAMS:
            message, again = (
                f"{MAX_STREAMS} streams of events are open already",
                {"retry-after": "5"},
            )
            raise ApiError(503, "too_many_streams", message, hint="close some", headers=again)
        self._readers += 1
        self.begin()
        if self._cluster is not None:
            self._cluster.ask()
        return EventStream(self._read(last_id), self._left)

    def _left(self) -> None:
        self._readers -= 1
        self._left_at = asyncio.get_running_loop().time()

    async def _read(self, last_id: str | None) -> AsyncGenerator[bytes]:
        number = self.buffer.last
        if last_id:
            known = self.buffer.number(last_id)
        else:
            known = number
        is_reset = known is None
        if known is not None:
            number = known
        hello = Hello(
            version=__version__,
            run=self.buffer.run,
            revision=self._desk.store.revision,
            etag=await self._etag(),
        )
        if self._cluster is not None:
            hello.replica = self._cluster.replica
        yield frame("hello", hello, self.buffer.id(number))
        if is_reset:
            lost = Reset(reason="what happened since is not known any more")
            yield frame("reset", lost, self.buffer.id(number))
        async for some in self.buffer.read(number):
            yield some

    def end_streams(self) -> None:
        self.buffer.end()

    async def close(self) -> None:
        self.end_streams()
        if self._on:
            self._rest()
        await self._tasks.close()

    # Observation
    # ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        if self._on:
            return
        self._on = True
        self.buffer.clear()
        gateway = self._desk.gateway
        gateway.bus.subscribe(
            self._note, UpstreamChanged, OffersChanged, ConfigApplied, ApprovalChanged, Noted
        )
        if self._desk.recording is not None:
            self._desk.recording.hear(self._calls.heard)
        names = gateway.generation.upstreams
        self._told = {name: watching.status_of(gateway, name) for name in names}
        self._pending = watching.count_waiting(gateway)
        self._catalog = None
        self._tasks.start(self._tick(), apart=True)

    def _rest(self) -> None:
        self._on = False
        self._desk.gateway.bus.unsubscribe(self._note)
        if self._desk.recording is not None:
            self._desk.recording.hear(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        await self._look_at_catalog()
        while self._on:
            await asyncio.sleep(TICK)
            lingers = self._readers or loop.time() - self._left_at <= LINGER
            if self._cluster is not None and lingers:
                self._cluster.ask()
            if not lingers and (self._cluster is None or not self._cluster.is_wanted):
                self._rest()
                return
            await self._look_at_catalog()
            self._calls.catch_up()
            if self._readers:
                self._look_at_figures()
            self._soon()

    def _note(self, event: object) -> None:
        match event:
            case UpstreamChanged():
                self._servers.add(event.server)
            case OffersChanged(session=None, viewers=None, client_kind=None):
                self._offers.setdefault(event.server, set()).update(event.kinds)
            case ApprovalChanged() | Noted():
                self._pending = None
            case ConfigApplied():
                self._tasks.start(self._tell_config(event), apart=True)
            case _:
                return
        self._soon()

    def _soon(self) -> None:
        if self._timer is None and self._on:
            self._timer = asyncio.get_running_loop().call_later(SOON, self._tell)

    def _add(self, event: str, data: Told) -> None:
        if self._cluster is not None:
            data = data.model_copy(update={"replica": self._cluster.replica})
        text = data.model_dump_json()
        self.buffer.add(event, text)
        if self._cluster is not None:
            self._cluster.send(event, text)

    async def _tell_config(self, event: ConfigApplied) -> None:
        gateway = self._desk.gateway
        told = ConfigEvent(
            ok=event.ok,
            revision=self._desk.store.revision,
            etag=await self._etag(),
            by=event.by,
            summary=gateway.redactor.redact(event.plan)[:1_000],
        )
        if not event.ok:
            told.problems = max(1, _leading_number(event.plan))
        self._add("config", told)
        self._servers.update(gateway.generation.upstreams, self._told)
        await self._look_at_catalog()
        self._tell()

    def _tell(self) -> None:
        """Describe all changes that were noted."""
        self._timer = None
        gateway = self._desk.gateway
        servers, self._servers = self._servers, set[str]()
        for name in servers:
            told = watching.status_of(gateway, name)
            before = self._told.get(name)
            if told != before and not (told.gone and before is None):
                self._add("status", told)
            self._told[name] = told
            if told.gone:
                del self._told[name]
        offers, self._offers = self._offers, dict[str | None, set[Kind]]()
        for server, kinds in offers.items():
            tools = len(gateway.catalog.offers["tools"])
            self._add("catalog", CatalogEvent(server=server, kinds=sorted(kinds), tools=tools))
        pending = watching.count_waiting(gateway)
        if pending != self._pending:
            self._pending = pending
            self._add("approvals", ApprovalsEvent(pending=pending))

    async def _look_at_catalog(self) -> None:
        """Compare the catalog with the last one: `OffersChanged` reports only changes of lists that
        a client has received."""
        catalog = self._desk.gateway.catalog
        if catalog is self._catalog:
            return
        is_first, self._catalog = self._catalog is None, catalog
        shapes = await in_slices(_shapes_of(catalog))
        if catalog is not self._catalog:
            return  # A later catalog is being compared.
        before, self._shapes = self._shapes, shapes
        if is_first:
            return
        for server, kind in {key for key, _ in before.items() ^ shapes.items()}:
            self._offers.setdefault(server, set()).add(kind)
            self._servers.add(server)

    def _look_at_figures(self) -> None:
        rates = watching.rates(self._desk, self._people)
        if rates is not None:
            self.buffer.put("rates", rates)
        rows = self._people.rows()
        clients = [
            row.model_copy(update={"calls_per_minute": 0, "last_seen": None}) for row in rows
        ]
        if clients != self._clients:
            self._clients = clients
            self.buffer.put("clients", ClientsEvent(clients=rows, sessions=self._people.sessions))


class _Calls:
    """Sends finished calls one by one. Of more than `CALLS_A_SECOND`, it skips and counts some."""

    def __init__(self, desk: Desk, add: Callable[[str, Told], None]) -> None:
        self._desk = desk
        self._add = add
        self._second = 0
        self._sent = 0
        """In this second."""
        self._skipped = 0
        """Since the last call that was sent."""
        self._last = 0
        """The number of the last finished call."""

    def heard(self, first: int, last: int) -> None:
        room = self._room()
        self._skipped += max(0, last - first + 1 - room)
        self._last = last
        if room:
            self._send(max(first - 1, last - room))

    def catch_up(self) -> None:
        """Send at least the last call, after calls have stopped."""
        if self._skipped and self._room():
            self._skipped -= 1
            self._send(self._last - 1)

    def _room(self) -> int:
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._sent = second, 0
        return CALLS_A_SECOND - self._sent

    def _send(self, after: int) -> None:
        recording = self._desk.recording
        assert recording is not None
        for row in recording.told_rows(after):
            if row["number"] > self._last:
                break
            self._sent += 1
            call = watching.call_row(row).model_dump()
            self._add("call", CallEvent(**call, skipped=self._skipped))
            self._skipped = 0


def _shapes_of(catalog: Catalog) -> Work[dict[tuple[str, Kind], int]]:
    """A hash of the offers of each server and kind."""
    shapes: dict[tuple[str, Kind], int] = {}
    for kind in KINDS:
        for at, offer in enumerate(catalog.offers[kind]):
            key: tuple[str, Kind] = (offer.server, kind)
            about = offer.definition.get("description")
            if not isinstance(about, str):
                about = None
            shapes[key] = hash((shapes.get(key, 0), offer.public, about))
            if at % 100 == 99:
                yield
    return shapes


def _leading_number(text: str) -> int:
    word = text.partition(" ")[0]
    return int(word) if word.isdecimal() and len(word) < 9 else 0
