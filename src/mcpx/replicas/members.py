"""Which replicas there are, and where: told to the store with each beat, and found there.

Promised: a replica that joined, left or changed its state is known to the others at once while news
get through, and within `BEAT` in any case. One that has not beaten for `GONE` counts as gone,
whatever became of it; whoever finds its door closed may say so before (`lost`). While the store is
away the others count as they were last seen.

Each replica signs its record. A replica whose record has no valid signature counts as absent.

The numbers (`changed`, `numbers`) are for what must not be missed though news may be: each topic
has one in the store, and whoever watches it is told when it has grown.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from time import monotonic, time
from typing import Any, Final, Literal, cast

from mcpx.base.aio import Tasks
from mcpx.model.call import as_object
from mcpx.replicas.seals import Seals
from mcpx.replicas.store import Script, Store, StoreDown
from mcpx.wire import codec

log = logging.getLogger(__name__)

BEAT: Final = 1.0
GONE: Final = 3.5
"""Seconds: so many beats may be missed, by a machine that is very busy."""
FORGOTTEN: Final = 3_600.0
"""Seconds after which nothing is known of one that is gone."""

WARN_SECONDS: Final = 30.0
"""Between two warnings about records without a valid signature."""
_PURPOSE: Final = b"member"

State = Literal["serving", "leaving"]


@dataclass(frozen=True, slots=True)
class Member:
    """One replica: a process, from its start to its end."""

    id: str
    name: str = ""
    """For people: of the machine, mostly."""
    host: str = ""
    port: int = 0
    """Where other replicas reach it."""
    state: State = "serving"
    """`leaving`: it takes no new sessions, and gives away those it has."""
    version: str = ""
    revision: int = 0
    etag: str = ""
    """Of the configuration that it runs."""
    sessions: int = 0
    started_at: float = 0.0

    def write(self, seals: Seals) -> bytes:
        """The signed record for the store."""
        text = codec.dump(asdict(self))
        return seals.sign(_PURPOSE, text).encode() + b"." + text

    @classmethod
    def read(cls, raw: bytes, seals: Seals) -> "Member | None":
        """None if no replica with the same key has signed the record."""
        signature, _, text = raw.partition(b".")
        if not seals.signed(_PURPOSE, text, signature.decode("latin-1")):
            return None
        try:
            about = as_object(codec.load(text))
            return cls(**{name: about[name] for name in cls.__slots__ if name in about})
        except (codec.BadJson, TypeError):
            return None


_BEAT = Script(
    """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = redis.call('ZSCORE', KEYS[1], ARGV[1])
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')) do
  redis.call('ZADD', KEYS[1], now, id)
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[4])) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
end
local there = redis.call('ZRANGEBYSCORE', KEYS[1], now - ARGV[3], '+inf')
local told = {}
for _, id in ipairs(there) do told[#told + 1] = redis.call('HGET', KEYS[2], id) end
return {told, redis.call('HGETALL', KEYS[3]), last and now - last or -1, redis.call('GET', KEYS[4])}
"""
)
"""Who has beaten at a time that is yet to come has beaten before the clock was set back: from now
on it counts."""
_LOOK = Script(
    """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local told = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now - ARGV[1], '+inf')) do
  told[#told + 1] = redis.call('HGET', KEYS[2], id)
end
return {told, redis.call('GET', KEYS[3])}
"""
)
_LEAVE = Script("redis.call('ZREM', KEYS[1], ARGV[1]) return redis.call('HDEL', KEYS[2], ARGV[1])")


class Members:
    def __init__(self, store: Store, seals: Seals, me: Member) -> None:
        self._store = store
        self._seals = seals
        self.me = me
        self._others: dict[str, Member] = {}
        self._lost: dict[str, float] = {}
        """Whose door was found closed, and when."""
        self._numbers: dict[str, int] = {}
        self._watched: dict[str, list[Callable[[int], None]]] = {}
        self._on_gone: list[Callable[[Member], None]] = []
        self._on_left: list[Callable[[Member], None]] = []
        self._on_absence: list[Callable[[], None]] = []
        self._tasks = Tasks("members")
        self._now = asyncio.Event()
        self._beaten = monotonic()
        self._warned = float("-inf")
        """The time of the last warning about a record without a valid signature."""
        self._told = True
        """Whether the others should look before their next beat."""
        self._life: tuple[int, bytes | None] = (0, None)
        """Of the store, as the last beat found it: how often it had gone away, and its epoch."""
        self._uncertain_until = 0.0
        """The store was away: whoever has not beaten since may be there all the same."""
        self._beating = asyncio.Lock()
        """What an earlier beat has found must not be taken up behind what a later one has."""
        store.hear("members", lambda _: self._now.set())
        store.hear("left", lambda id: self._left(id.decode(errors="replace")))
        store.hear("numbers", lambda _: self._now.set())

    @staticmethod
    def new_id() -> str:
        return secrets.token_hex(5)

    # Who is there
    # ----------------------------------------------------------------------------------------------

    @property
    def others(self) -> Mapping[str, Member]:
        """All but this one."""
        return self._others

    def find(self, id: str) -> Member | None:
        """Another one that is there, as far as is known."""
        return self._others.get(id)

    def lost(self, id: str) -> None:
        """Its door is closed: it counts as gone until it has beaten again."""
        if (member := self._others.pop(id, None)) is not None:
            self._lost[id] = monotonic()
            self._gone(member)

    def on_gone(self, gone: Callable[[Member], None]) -> None:
        """Called of one that was lost: nothing that it was asked will be answered."""
        self._on_gone.append(gone)

    def on_left(self, left: Callable[[Member], None]) -> None:
        """Called of one that has said goodbye: it answers what it was asked, and takes no more."""
        self._on_left.append(left)

    def on_absence(self, absent: Callable[[], None]) -> None:
        """Called when this very replica may have counted as gone: what is its own may be somebody
        else's by now."""
        self._on_absence.append(absent)

    def _left(self, id: str) -> None:
        if (member := self._others.pop(id, None)) is not None:
            self._parted(member)

    def _parted(self, member: Member) -> None:
        self._lost[member.id] = monotonic()
        log.info("replica %s (%s) has left", member.name, member.id)
        for left in self._on_left:
            left(member)

    def _gone(self, member: Member) -> None:
        log.info("replica %s (%s) is gone", member.name, member.id)
        for gone in self._on_gone:
            gone(member)

    # Beating
    # ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._store.on_return(self._returned)
        self._tasks.start(self._beat_on())

    def update(self, **changes: Any) -> None:
        """Something about this one; the others learn it at once."""
        changed = replace(self.me, **changes)
        if changed != self.me:
            self.me = changed
            self._now.set()
            self._told = True

    def count(self, sessions: int) -> None:
        """How many sessions this one has; the next beat tells it."""
        self.me = replace(self.me, sessions=sessions)

    async def _returned(self, fresh: bool) -> None:
        self._told = True
        # They may begin anew, or have lost the last steps: the same number does not say that
        # nothing has changed.
        self._numbers.clear()
        await self.beat()

    async def _beat_on(self) -> None:
        while True:
            try:
                async with asyncio.timeout(BEAT):
                    await self._now.wait()
            except TimeoutError:
                pass
            self._now.clear()
            if self._store.up:
                try:
                    await self.beat()
                except StoreDown:
                    pass
                except (
                    Exception
                ):  # who does not beat counts as gone, whatever the store has answered
                    log.exception("a beat failed")

    async def look(self) -> None:
        """See who is there, at this very moment, without a beat: also for who only visits. Raises
        `StoreDown`."""
        keys = [self._store.key(name) for name in ("alive", "members", "epoch")]
        async with self._beating:
            there, epoch = await self._store.run(_LOOK, keys, [int(GONE * 1000)])
            self._notice_loss(epoch)
            self._take_up(self._signed(there))

    async def beat(self) -> None:
        """Say that we are here, and see who else is. Raises `StoreDown`."""
        async with self._beating:
            await self._beat()

    async def _beat(self) -> None:
        tell, self._told = self._told, False
        keys = [self._store.key(name) for name in ("alive", "members", "numbers", "epoch")]
        words = [self.me.id, self.me.write(self._seals), int(GONE * 1000), int(FORGOTTEN * 1000)]
        there, numbers, missed, epoch = await self._store.run(_BEAT, keys, words)
        self._notice_loss(epoch)
        await self._store.look(epoch)
        paused = monotonic() - self._beaten
        self._beaten = monotonic()
        if tell:
            self._store.tell("members")
        self._take_up(self._signed(there))
        if int(missed) > GONE * 1000 or paused > GONE:
            for absent in self._on_absence:
                absent()
        pairs = cast(list[bytes], numbers)
        for topic, number in zip(pairs[::2], pairs[1::2], strict=True):
            self._see(topic.decode(), int(number))

    def _signed(self, records: list[bytes | None]) -> list[Member]:
        """The members whose records have a valid signature. Others count as absent."""
        members = [None if raw is None else Member.read(raw, self._seals) for raw in records]
        if None in members and monotonic() - self._warned >= WARN_SECONDS:
            self._warned = monotonic()
            log.warning(
                "%d of %d records of replicas in the store are ignored: they are not signed with "
                "the key of this "
                "replica. Either they are those of an earlier version of mcpx, which this version "
                "does not exchange "
                "requests with, or a third party has written to the store",
                members.count(None),
                len(members),
            )
        return [member for member in members if member is not None]

    def _notice_loss(self, epoch: bytes | None) -> None:
        """Before anybody is told that the store is back, or was emptied."""
        life = self._store.failures, epoch
        if life != self._life:
            self._life = life
            self._uncertain_until = monotonic() + GONE

    def _take_up(self, members: list[Member]) -> None:
        there = {member.id: member for member in members if member.id != self.me.id}
        for id, at in list(self._lost.items()):
            if monotonic() - at > GONE + BEAT:
                del self._lost[id]  # if it beats still, its door was closed for a moment
            else:
                there.pop(id, None)
        if monotonic() < self._uncertain_until:
            there = {**self._others, **there}
        before, self._others = self._others, there
        for id, member in before.items():
            if (
                id not in there and member.state == "leaving"
            ):  # a beat may be answered before a goodbye is heard
                self._parted(member)
            elif id not in there:
                self._gone(member)
        for id, member in there.items():
            if id not in before:
                log.info(
                    "replica %s (%s) is there, at %s:%d", member.name, id, member.host, member.port
                )

    async def leave(self) -> None:
        """This one is not there any more."""
        await self._tasks.close()
        try:
            await self._store.run(
                _LEAVE, [self._store.key("alive"), self._store.key("members")], [self.me.id]
            )
            self._store.tell("left", self.me.id.encode())
        except StoreDown:
            pass

    # Numbers
    # ----------------------------------------------------------------------------------------------

    def watch(self, topic: str, changed: Callable[[int], None]) -> None:
        """`changed` is told the number of a topic when it is first seen and when it has become
        another; also after this very replica has made it grow."""
        self._watched.setdefault(topic, []).append(changed)
        if topic in self._numbers:
            changed(self._numbers[topic])

    def changed(self, topic: str) -> None:
        """Something was written that others have to look at: behind all that is written behind."""
        self._store.later("HINCRBY", self._store.key("numbers"), topic, 1)
        self._store.tell("numbers")

    def _see(self, topic: str, number: int) -> None:
        if self._numbers.get(topic) != number:
            self._numbers[topic] = number
            for changed in self._watched.get(topic, ()):
                changed(number)


def started_now() -> float:
    return round(time(), 3)
