"""All of it for one process: its store, its fellow replicas, what they seal by, and their locks.

Promised: `joined` is set once the store was reached and the key is known; nothing here is to be
used before. A replica whose key is not that of the others (another `MCPX_KEY`) does not join, and
says so until it has the same. The store says whose key that is; one that was emptied is told so by
those who were there, whoever else was quicker. Whoever finds that it has become another parts from
the others again (`parted`): two keys in one store would write over each other without end.
"""

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from mcpx.base.aio import Tasks
from mcpx.replicas.address import StoreAddress
from mcpx.replicas.members import Member, Members, started_now
from mcpx.replicas.once import Turns
from mcpx.replicas.seals import Seals, key_from
from mcpx.replicas.store import Script, Store, StoreDown

if TYPE_CHECKING:
    from mcpx.replicas.file_sync import FileSync

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
LOOK: Final = 1.0
"""Seconds between looks at whose the store is, of one that may not join."""
UNCLAIMED: Final = 4.0
"""Seconds for which a store was nobody's that was somebody else's before: if it was just emptied,
they write their fingerprint anew before that."""
SETTLED: Final = 3.0
"""Seconds after which a replica that has joined is one of those who were there; and for which a
fingerprint is that of somebody who may merely have been quicker."""
TOPIC: Final = "key"

_CLAIM = Script(
    """
local there, now = redis.call('GET', KEYS[1]), tonumber(redis.call('TIME')[1])
if ARGV[2] == 'look' or there == ARGV[1] then return {there, 0} end
local age = now - tonumber(redis.call('GET', KEYS[2]) or 0)
if there and (ARGV[2] == 'claim' or age > tonumber(ARGV[3])) then return {there, 0} end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], now)
redis.call('HINCRBY', KEYS[3], ARGV[4], 1)
return {ARGV[1], 1}
"""
)
"""Whose the store is, and whether that has changed. `claim`: ours if it is nobody's; `reclaim`:
also if somebody has claimed it just now."""


class Replicas:
    def __init__(self, address: StoreAddress, environ: Mapping[str, str], version: str) -> None:
        self.store = Store(address)
        self._given = key_from(environ)
        self.seals = Seals(self._given)
        name = (
            environ.get("MCPX_REPLICA") or f"{socket.gethostname()}-{os.getpid()}"
        )  # several on one machine
        me = Member(Members.new_id(), name, version=version, started_at=started_now())
        self.members = Members(self.store, self.seals, me)
        self.forwarded: Counter[str] = Counter()
        """Requests that were handed to other replicas, by how that ended."""
        self.adopted = 0
        """Sessions that were gone on with here."""
        self.files: FileSync | None = None
        """The files that all of them have; None: there is no folder for any."""
        self.joined = asyncio.Event()
        self.preparations: list[Callable[[], Awaitable[None]]] = []
        """What is done once it has joined and before clients are let in; each bounds itself."""
        self.parted = asyncio.Event()
        """Set while one that had joined is not with the others any more, whose key is another."""
        self._odd = ""
        """A fingerprint that is not ours, and was told."""
        self._unclaimed: float | None = None
        """Since when there is none."""
        self._since: float | None = None
        """When it joined for the first time."""
        self._state = self.members.me.state
        """What it was when it parted."""
        self._settling = asyncio.Lock()
        self._next: asyncio.TimerHandle | None = None
        self._tasks = Tasks("replicas")
        self.store.on_return(self._settle_key)
        self.members.watch(TOPIC, lambda _: self._look_again())
        self.turns = Turns(self.store)

    @property
    def id(self) -> str:
        """Of this one."""
        return self.members.me.id

    def start(self) -> None:
        self.store.start()

    async def _settle_key(self, fresh: bool) -> None:
        """One key for all, whoever made it; written anew where the store was emptied."""
        async with self._settling:
            if await self._agree_on_key(fresh):
                there = await self._whose(fresh)
                if there is None:
                    self._unclaimed = self._unclaimed or monotonic()
                elif there != self.seals.fingerprint:
                    self._stay_apart(there)
                else:
                    self._join()
                    return
            self._look_later()

    async def _agree_on_key(self, fresh: bool) -> bool:
        """False: the store was emptied between writing and reading."""
        if self._given is not None:
            return True
        key = self.store.key("secret")
        await self.store.ask("SET", key, self.seals.key.hex(), "NX")
        found = await self.store.ask("GET", key)
        if found is None:
            return False
        self.seals.take_up(bytes.fromhex(found.decode()))
        if fresh and self._since is None:
            log.warning(
                "MCPX_KEY is not set: a party that can read the store can read shared sign-ins "
                "and sessions, and act "
                "as a replica and as any client. Set MCPX_KEY to the same value on all replicas "
                "(`mcpx secret key` "
                "makes one)"
            )
        return True

    async def _whose(self, fresh: bool) -> str | None:
        """The fingerprint that is in the store; None: there is none, and it is not for us to change
        that yet."""
        how: Literal["look", "claim", "reclaim"] = "claim"
        if self.joined.is_set():
            if fresh and self._was_there:
                how = "reclaim"
            else:
                how = "claim"
        elif self._odd and (self._unclaimed is None or monotonic() - self._unclaimed < UNCLAIMED):
            how = "look"
        store = self.store
        keys = [store.key("fingerprint"), store.key("fingerprint", "since"), store.key("numbers")]
        found, is_news = await store.run(
            _CLAIM, keys, [self.seals.fingerprint, how, SETTLED, TOPIC]
        )
        if is_news:
            store.tell("numbers")
        if found is None:
            return None
        self._unclaimed = None
        return found.decode()

    @property
    def _was_there(self) -> bool:
        return self._since is not None and monotonic() - self._since > SETTLED

    def _join(self) -> None:
        self._since = self._since or monotonic()
        if self.parted.is_set():
            self.parted.clear()
            self.members.update(state=self._state)
        self.joined.set()

    def _stay_apart(self, there: str) -> None:
        if there != self._odd:
            self._odd = there
            log.error(
                "the replicas of this store have another MCPX_KEY than this one: it does not join "
                "them. Set the "
                "same on all; if that of all others was changed, delete the key %s in the store",
                self.store.key("fingerprint"),
            )
        if self.joined.is_set():
            self.joined.clear()
            self.parted.set()
            self._state = self.members.me.state
            self.members.update(state="leaving")  # nobody hands anything over, or asks for its word

    def _look_later(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(LOOK, self._look_again)

    def _look_again(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self.store.up:  # else on its return
            self._tasks.start(self._once_more())

    async def _once_more(self) -> None:
        try:
            await self._settle_key(False)
        except StoreDown:
            pass

    async def address(self) -> str:
        """By which machines that reach the store reach this one, most likely: where we reach it
        from."""
        where = self.store.address
        if where.kind == "socket":
            return LOOPBACK
        loop = asyncio.get_running_loop()
        host, port = where.hosts[0]
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            family, _, _, _, target = found[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(target)  # nothing is sent
                return str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK

    async def close(self) -> None:
        await self._tasks.close()
        await self.turns.close()
        if self._next is not None:
            self._next.cancel()
        if self._since is not None:
            await self.members.leave()
        await self.store.close()
