"""What of a session is in the store, so that another replica can go on with it: who, what the
client said of itself, its level and subscriptions, what it was shown, and the events of its streams
that it may come back for.

Promised: a session is one replica's at a time, and who takes it up does so in one step (`take`): of
two that try at once one gets it. Who had it before writes nothing any more; of two who think that
they have it, the one who took it up later does (`life`), whatever an older copy of the store says.
All of it is written behind, sealed, and gone when the session is. Events are bounded in number and
bytes, the oldest go first; what is larger than `LARGEST` is not among them.

A record and its events are authenticated together with the session id, the owner of the session
(principal and profile), and for an event its place. So a party that can write to the store and has
no key can delete a record or put an older one back, but cannot give a session to another client.
The names of the keys do not reveal session ids.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcpx.front.audience import Session
from mcpx.front.http_session import HttpSession, Told
from mcpx.front.notices import Parcel
from mcpx.front.sessions import IDLE
from mcpx.front.visitor import Visitor
from mcpx.model.call import Json, as_list, as_object
from mcpx.replicas.members import GONE
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script
from mcpx.wire import codec

log = logging.getLogger(__name__)

LASTS: Final = IDLE + 300.0
"""Seconds a record is kept after its owner last said that the session is there: longer than those
between two words."""
EVENTS_LAST: Final = 120.0
MOST_EVENTS: Final = 1_000
EVENT_BYTES: Final = 1 << 20
LARGEST: Final = 256 << 10
"""Of one session: for how many seconds, how many events, how many bytes in all, and of one of
them."""

_PUT = Script(
    """
local found = redis.call('HMGET', KEYS[1], 'owner', 'life')
local owner = found[1]
local is_newer = tonumber(found[2] or 0) >= tonumber(ARGV[4])
if owner and owner ~= ARGV[1] and owner ~= '' and is_newer then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'who', ARGV[2], 'about', ARGV[3], 'life', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
"""
)
_TAKE = Script(
    """
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner or redis.call('HGET', KEYS[1], 'who') ~= ARGV[2] then return {0} end
if owner ~= '' and owner ~= ARGV[1] then
  local time = redis.call('TIME')
  local beat = redis.call('ZSCORE', KEYS[3], owner)
  local alive = beat and time[1] * 1000 + time[2] / 1000 - beat < tonumber(ARGV[3])
  for n = 5, #ARGV do if ARGV[n] == owner then alive = false end end
  if alive then return {2, owner} end
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
redis.call('HINCRBY', KEYS[1], 'life', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
local about = redis.call('HMGET', KEYS[1], 'about', 'life', 'sent')
return {1, about[1], about[2], about[3] or '0', redis.call('LRANGE', KEYS[2], 0, -1)}
"""
)
_FREE = Script(
    """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
return redis.call('HSET', KEYS[1], 'owner', '')
"""
)
_END = Script(
    """
local found = redis.call('HMGET', KEYS[1], 'owner', 'life')
if found[1] ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
if found[2] ~= '0' then
  redis.call('HSET', KEYS[1], 'owner', '-', 'life', found[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
"""
)
"""One that was gone on with leaves a trace: who had it before, and was away since, may think that
it still has it."""
_EVENT = Script(
    """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[6] then return 0 end
if ARGV[1] ~= '' then redis.call('HSET', KEYS[1], 'sent', ARGV[1]) end
if ARGV[2] == '' then return 0 end
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('HSET', KEYS[1], 'size', 0) end
redis.call('RPUSH', KEYS[2], ARGV[2])
local size = redis.call('HINCRBY', KEYS[1], 'size', #ARGV[2])
while size > tonumber(ARGV[3]) or redis.call('LLEN', KEYS[2]) > tonumber(ARGV[4]) do
  local gone = redis.call('LPOP', KEYS[2])
  if not gone then break end
  size = redis.call('HINCRBY', KEYS[1], 'size', -#gone)
end
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return 1
"""
)

_NEWS: Final = b"taken"
_BEGUN, _EVENT_OF, _LAST = "b", "e", "l"


@dataclass(frozen=True, slots=True)
class Taken:
    """A session that is this replica's now."""

    about: Json
    life: int
    sent: int
    streams: Mapping[str, Told]
    subscriptions: Mapping[tuple[str, str], set[str]]


class Records:
    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._seals = replicas.seals

    # Writing
    # ----------------------------------------------------------------------------------------------

    def put(self, owner: HttpSession, shown: Json | None) -> None:
        """A session of this replica, as it is now; and its streams from now on."""
        session = owner.session
        if owner.journal is None:
            owner.journal = _Journal(self, session.id, _who(owner.visitor))
        self._store.run_later(_PUT, self._keys(session.id)[:1], self._words(owner, shown))

    async def put_again(self, owner: HttpSession, shown: Json | None) -> bool:
        """The store was away. False: somebody else has it by now. Raises `StoreDown`."""
        return bool(
            await self._store.run(_PUT, self._keys(owner.session.id)[:1], self._words(owner, shown))
        )

    def keep(self, id: str) -> None:
        """It is still in use."""
        self._store.later("PEXPIRE", self._keys(id)[0], int(LASTS * 1000))

    def free(self, id: str) -> None:
        """Whoever is asked for it next may have it."""
        self._store.run_later(_FREE, self._keys(id)[:1], [self._replicas.id])

    def end(self, id: str) -> None:
        self._store.run_later(_END, self._keys(id), [self._replicas.id, int(LASTS * 1000)])

    def event(self, id: str, who: bytes, head: str, data: bytes, sent: int | None) -> None:
        sealed = b""
        if head:
            sealed = head.encode() + b"\n" + self._seals.encrypt(data, _event_of(id, who, head))
        bounds = (EVENT_BYTES, MOST_EVENTS, int(EVENTS_LAST * 1000))
        words = ["" if sent is None else sent, sealed, *bounds, self._replicas.id]
        self._store.run_later(_EVENT, self._keys(id), words)

    def _words(self, owner: HttpSession, shown: Json | None) -> list[str | bytes | int]:
        session = owner.session
        who = _who(owner.visitor)
        about = self._seals.encrypt(codec.dump(_about(session, shown)), _record_of(session.id, who))
        return [
            self._replicas.id,
            self._seals.name(b"owner", who),
            about,
            owner.life,
            int(LASTS * 1000),
        ]

    def _keys(self, id: str) -> list[str]:
        name = self._seals.name(b"session", id.encode())
        return [self._store.key("session", name), self._store.key("events", name)]

    # News
    # ----------------------------------------------------------------------------------------------

    def news(self, id: str, life: int) -> bytes:
        """For the other replicas: this one has taken a session up."""
        return self._seals.encrypt(codec.dump([id, life]), _NEWS)

    def read_news(self, sealed: bytes) -> tuple[str, int] | None:
        """None if no replica of this store wrote them."""
        plain = self._seals.decrypt(sealed, _NEWS)
        if plain is None:
            return None
        id, life = as_list(codec.load(plain))
        return id, life

    # Taking up
    # ----------------------------------------------------------------------------------------------

    async def take(self, id: str, visitor: Visitor, lost: Iterable[str]) -> Taken | str | None:
        """Make it this replica's, unless it is that of another that lives: whose it is then. None:
        there is none, or not this visitor's. `lost`: who does not count as living. Raises
        `StoreDown`."""
        keys = [*self._keys(id), self._store.key("alive")]
        who = _who(visitor)
        words = [
            self._replicas.id,
            self._seals.name(b"owner", who),
            int(GONE * 1000),
            int(LASTS * 1000),
            *lost,
        ]
        found: list[Any] = await self._store.run(_TAKE, keys, words)
        match int(found[0]):
            case 1:
                return self._taken(id, who, found)
            case 2:
                return found[1].decode()
            case _:
                return None

    def _taken(self, id: str, who: bytes, found: list[Any]) -> Taken | None:
        plain = self._seals.decrypt(found[1], _record_of(id, who))
        if plain is None:
            log.warning(
                "a session record in the store was written with another key, or was changed; the "
                "session has ended "
                "and its client has to connect again"
            )
            return None
        about = as_object(codec.load(plain))
        streams = self._streams(id, who, found[4])
        return Taken(about, int(found[2]), int(found[3]), streams, _subscriptions(about))

    def _streams(self, id: str, who: bytes, entries: Iterable[bytes]) -> dict[str, Told]:
        streams: dict[str, Told] = {}
        for entry in entries:
            raw, _, sealed = entry.partition(b"\n")
            head = raw.decode(errors="replace")
            data = self._seals.decrypt(sealed, _event_of(id, who, head))
            parts = head.split(" ")
            if data is None or len(parts) != 4:
                continue
            kind, name, number, droppable = parts
            told = streams.setdefault(name, Told())
            about, _, data = data.partition(b"\n")
            told.request = codec.load(about)["id"]
            if kind == _BEGUN:
                continue
            if not told.events or int(number) > told.events[-1][0]:  # else it was written twice
                told.events.append((int(number), Parcel(data, droppable == "1")))
                told.done = told.done or kind == _LAST
        return streams


class _Journal:
    """Of one session."""

    __slots__ = ("_id", "_records", "_who")

    def __init__(self, records: Records, id: str, who: bytes) -> None:
        self._records = records
        self._id = id
        self._who = who

    def begun(self, stream: str, request: str | int) -> None:
        self._records.event(
            self._id, self._who, f"{_BEGUN} {stream} 0 0", _answering(request), None
        )

    def event(
        self, stream: str, request: str | int | None, number: int, parcel: Parcel, *, last: bool
    ) -> None:
        if len(parcel.data) <= LARGEST:
            head = f"{_LAST if last else _EVENT_OF} {stream} {number} {int(parcel.droppable)}"
            self._records.event(self._id, self._who, head, _answering(request) + parcel.data, None)

    def pushed(self, number: int, parcel: Parcel | None, sent: int) -> None:
        if parcel is None or len(parcel.data) > LARGEST:
            self._records.event(self._id, self._who, "", b"", sent)
        else:
            head = f"{_EVENT_OF} push {number} {int(parcel.droppable)}"
            self._records.event(self._id, self._who, head, _answering(None) + parcel.data, sent)


def _answering(request: str | int | None) -> bytes:
    """A line that each event begins with: the first ones of a long stream go, and with them what
    they told."""
    return codec.dump({"id": request}) + b"\n"


def _who(visitor: Visitor) -> bytes:
    """The owner of a session."""
    return codec.dump([visitor.principal, visitor.profile])


def _record_of(id: str, who: bytes) -> bytes:
    """The associated data of a record."""
    return codec.dump(["session", id]) + who


def _event_of(id: str, who: bytes, head: str) -> bytes:
    """The associated data of an event."""
    return codec.dump(["event", id, head]) + who


def _about(session: Session, shown: Json | None) -> Json:
    caller = session.caller
    return {
        "client": dict(caller.client),
        "capabilities": dict(caller.capabilities),
        "version": caller.version,
        "mode": caller.mode,
        "level": caller.log_level,
        "subscriptions": [
            [*target, sorted(forms)] for target, forms in session.subscriptions.items()
        ],
        "shown": shown,
    }


def _subscriptions(about: Json) -> dict[tuple[str, str], set[str]]:
    return {(each[0], each[1]): set(each[2]) for each in as_list(about.get("subscriptions"))}
