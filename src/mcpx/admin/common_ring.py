"""The ring of events over all replicas (ADM-4, SCA-1): what happens at any of them, for listeners
at every one.

Promised: while somebody listens anywhere, each replica with an admin port writes what happens into
one stream of the store, marked with its name; whoever has listeners reads it, so that ids and order
are the same everywhere, and a listener may go on at another replica. The stream is bounded in
number, ends by itself, and is encrypted. While the store is away a listener hears of its own
replica; when it is back, what was missed is not known, and listeners are told so.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from mcpx.admin.ring import MOST, Ring
from mcpx.admin.shapes.common import Told
from mcpx.admin.streaming import framed
from mcpx.base.aio import Tasks
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown

LOOK: Final = 0.2
"""Seconds between looks at the stream, while somebody listens here."""
HEARD: Final = 5.0
"""Seconds for which one word that somebody listens is good; it is said each second."""
KEPT: Final = 600.0
"""Seconds that the stream outlives what was written last."""
AT_A_TIME: Final = 500
TOPIC: Final = "events"
_SEALED = b"event"

_ADD = Script(
    """
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'd', ARGV[1])
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""
)
_READ = Script(
    """
local told = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])) do
  told[#told + 1] = entry[1]
  told[#told + 1] = entry[2][2]
end
return told
"""
)
_SAY = Script(
    """
local heard = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
if heard == 0 then redis.call('HINCRBY', KEYS[2], ARGV[2], 1) end
return 1
"""
)
"""Where nobody had said so for a while the others may have ceased to tell: they look again then."""
_LAST = Script(
    "local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1] return last and "
    "last[1] or '0-0'"
)


class CommonRing(Ring):
    def __init__(
        self, replicas: Replicas, wake: Callable[[], None], wanted: Callable[[], None]
    ) -> None:
        """`wake`: something is new. `wanted`: somebody listens at another replica."""
        super().__init__()
        self.replica = replicas.members.me.name
        self._replicas = replicas
        self._store = replicas.store
        self._wake, self._wanted = wake, wanted
        self._ids: deque[str] = deque()
        """Of the events there are."""
        self._before = ""
        """The id of the last event that is not there any more, or never was."""
        self._at: str | None = None
        """Up to where the stream was read; None: from where on is not known yet."""
        self._due = asyncio.Event()
        self._tasks = Tasks("events of all replicas")
        self._reading: asyncio.Task[None] | None = None
        self._key, self._heard = self._store.key(TOPIC), self._store.key(TOPIC, "heard")
        self._store.on_return(self._returned)
        replicas.members.watch(TOPIC, lambda _: self._look_whether_wanted())

    # Who listens
    # ----------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Somebody listens here: others shall tell, and what they tell is read."""
        self.say_so()
        if self._reading is None:
            self._replicas.members.changed(TOPIC)
            self._reading = self._tasks.start(self._read_on(), apart=True)

    def say_so(self) -> None:
        """Each second, while somebody listens here."""
        self._store.run_later(
            _SAY, [self._heard, self._store.key("numbers")], [int(HEARD * 1000), TOPIC]
        )

    async def is_wanted(self) -> bool:
        """Whether somebody listens anywhere."""
        try:
            return bool(await self._store.ask("EXISTS", self._heard))
        except StoreDown:
            return True  # it will be seen when it is back

    def _look_whether_wanted(self) -> None:
        async def look() -> None:
            if self._store.up and await self.is_wanted():
                self._wanted()

        self._tasks.start(look(), apart=True)

    async def _returned(self, fresh: bool) -> None:
        self.clear()
        if self._reading is not None:
            self.say_so()
            self._replicas.members.changed(TOPIC)

    def rest(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def close(self) -> None:
        await self._tasks.close()

    # What happens
    # ----------------------------------------------------------------------------------------------

    def id(self, number: int) -> str:
        at = len(self._ids) - (self.last - number)
        return self._ids[at - 1] if at > 0 else self._before or super().id(number)

    def number(self, id: str) -> int | None:
        if id == self._before and id:
            return self.last - len(self._ids)
        try:
            return self.last - len(self._ids) + self._ids.index(id) + 1
        except ValueError:
            return None

    def add(self, event: str, data: Told) -> None:
        text = data.model_copy(update={"replica": self.replica}).model_dump_json()
        if not self._store.up or not self._replicas.joined.is_set():
            self._take(super().id(self.last + 1), event, text)
            return
        sealed = self._replicas.seals.encrypt(f"{event}\n{text}".encode(), _SEALED)
        self._store.run_later(_ADD, [self._key], [sealed, MOST, int(KEPT * 1000)])
        self._due.set()

    def clear(self) -> None:
        super().clear()
        self._ids.clear()
        self._before, self._at = "", None
        self._wake()

    def _take(self, id: str, event: str, text: str) -> None:
        self._ids.append(id)
        self.last += 1
        self._append(framed(event, text, id))
        while len(self._ids) > len(self._frames):
            self._before = self._ids.popleft()

    # What others tell
    # --------------------------------------------------------------------------------------------

    async def settle(self, last_id: str | None) -> int | None:
        """The number to go on after: that of an event which may have been told by another replica,
        or of the last one; None: what came since is not known."""
        try:
            if self._replicas.joined.is_set():
                await self._begin()
                if last_id and self.number(last_id) is None and _moment(last_id) is not None:
                    await self._look_back(last_id)
        except StoreDown:
            pass
        return self.number(last_id) if last_id else self.last

    async def _begin(self) -> None:
        if self._at is None:
            last: bytes = await self._store.run(_LAST, [self._key])
            if self._at is None:  # nobody else has asked meanwhile
                self._at = self._before = last.decode()

    async def _look_back(self, id: str) -> None:
        """What the stream still has since then, put before what is here."""
        found = await self._entries(id, MOST + 1)
        if (
            not found or found[0][0] != id or self.number(id) is not None
        ):  # another listener has looked back further
            return
        until = _moment(self._before) or (0, 0)
        missing = [
            (each, sealed) for each, sealed in found[1:] if (_moment(each) or (0, 0)) <= until
        ]
        if len(missing) + len(self._ids) > MOST:
            return
        for each, sealed in reversed(missing):
            if (told := self._opened(sealed)) is not None:
                made = framed(*told, each)
                self._frames.appendleft(made)
                self._ids.appendleft(each)
                self._size += len(made)
        self._before = id

    async def _entries(self, begin: str, most: int) -> list[tuple[str, bytes]]:
        found = cast(list[bytes], await self._store.run(_READ, [self._key], [begin, most]))
        return [(id.decode(), sealed) for id, sealed in zip(found[::2], found[1::2], strict=True)]

    def _opened(self, sealed: bytes) -> tuple[str, str] | None:
        plain = self._replicas.seals.decrypt(sealed, _SEALED)
        if plain is None:
            return None
        event, _, text = plain.decode().partition("\n")
        return event, text

    async def _read_on(self) -> None:
        await self._replicas.joined.wait()
        while True:
            self._due.clear()
            try:
                await self._begin()
                at = self._at
                found = await self._entries(f"({at}", AT_A_TIME)
                if found and at == self._at:
                    self._at = found[-1][0]
                    for id, sealed in found:
                        if (told := self._opened(sealed)) is not None:
                            self._take(id, *told)
                    self._wake()
            except StoreDown:
                await self._store.there.wait()
            await asyncio.sleep(LOOK / 4)  # what comes in a storm comes together
            try:
                async with asyncio.timeout(LOOK):
                    await self._due.wait()
            except TimeoutError:
                pass


def _moment(id: str) -> tuple[int, int] | None:
    """Of an id of the stream; None: it is another kind of id."""
    milliseconds, _, count = id.partition("-")
    if not (
        milliseconds.isascii() and milliseconds.isdigit() and count.isascii() and count.isdigit()
    ):
        return None
    return (int(milliseconds), int(count)) if len(id) <= 40 else None
